"""The columns of the source."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

COLUMNS = {
    "key": "binary",
    "value": "binary",
    "topic": "string",
    "partition": "int",
    "offset": "bigint",
    "timestamp": "timestamp",
    "timestampType": "int",
    "headers": "array<struct<key:string,value:binary>>",
    "leaderEpoch": "int",
}
"""Those of Spark's Kafka connector, and the leader epoch of each record: name and type, in their order."""


def spark_schema(*, include_headers: bool, include_leader_epoch: bool = False) -> StructType:
    """All columns, nullable as those of Spark's connector are, with those that are there on demand."""
    from pyspark.sql import types

    header = types.StructType(
        [types.StructField("key", types.StringType()), types.StructField("value", types.BinaryType())]
    )
    kinds: dict[str, types.DataType] = {
        "binary": types.BinaryType(),
        "string": types.StringType(),
        "int": types.IntegerType(),
        "bigint": types.LongType(),
        "timestamp": types.TimestampType(),
        COLUMNS["headers"]: types.ArrayType(header),
    }
    left_out = {
        name for name, is_in in (("headers", include_headers), ("leaderEpoch", include_leader_epoch)) if not is_in
    }
    return types.StructType(
        [types.StructField(name, kinds[kind]) for name, kind in COLUMNS.items() if name not in left_out]
    )

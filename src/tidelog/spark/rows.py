"""Rows as Spark wants them: batches of records as Arrow columns, without a Python object per record."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.base.errors import ConfigError, MissingExtraError
from tidelog.base.ids import TopicPartition
from tidelog.base.ports import Buffer
from tidelog.client.arrow import TIMESTAMP, column_of
from tidelog.records.columns import ColumnBuffers, Columns
from tidelog.records.header import BatchHeader
from tidelog.spark.columns import COLUMNS

try:
    import pyarrow as pa
    import pyarrow.compute as pc
except ImportError:  # pragma: no cover - Spark brings it
    raise MissingExtraError("the Spark source", "spark") from None

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

_MICROSECONDS_MAX = 2**63 - 1
_FROM_RECORDS = {
    "key": "key",
    "value": "value",
    "offset": "offset",
    "timestamp": "timestamp",
    "timestampType": "timestamp_type",
    "headers": "headers",
    "leaderEpoch": "leader_epoch",
}


def arrow_schema(schema: StructType) -> pa.Schema:
    """The Arrow schema that Spark expects of rows of `schema`, which may hold any of our columns in any order.

    Raises:
        ConfigError: it holds a column that there is not, or one of another type.
    """
    from pyspark.sql.pandas.types import to_arrow_schema

    for field in schema.fields:
        wanted = COLUMNS.get(field.name)
        if wanted is None:
            raise ConfigError(f"there is no column {field.name}: there are {', '.join(COLUMNS)}")
        if field.dataType.simpleString() != wanted:
            raise ConfigError(
                f"column {field.name} is {wanted}, not {field.dataType.simpleString()}: "
                "read it as it is, and cast it afterwards"
            )
    return to_arrow_schema(schema, timezone="UTC")


class RowsBuilder:
    """Collects the records of one partition as rows.

    Args:
        schema: what `arrow_schema` returned; only its columns are decoded.
        partition: fills the columns `topic` and `partition`.
    """

    def __init__(self, schema: pa.Schema, partition: TopicPartition) -> None:
        self._schema = schema
        self._columns = Columns([_FROM_RECORDS[name] for name in schema.names if name in _FROM_RECORDS])
        self._topic = pa.scalar(partition.topic, pa.string())
        self._partition = pa.scalar(int(partition.partition), pa.int32())

    @property
    def row_count(self) -> int:
        return self._columns.row_count

    @property
    def size_bytes(self) -> int:
        return self._columns.size_bytes

    def append(self, buffer: Buffer, position: int, header: BatchHeader, first_offset: int, end_offset: int) -> None:
        """Add those records of a batch that lie in [first_offset, end_offset)."""
        self._columns.append_batch(buffer, position, header, first_offset, end_offset)

    def take(self) -> pa.RecordBatch:
        """The rows so far; the builder is empty again."""
        columns = self._columns.finish()
        arrays = [self._array(field, columns) for field in self._schema]
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)

    def _array(self, field: pa.Field, columns: ColumnBuffers) -> pa.Array:
        if field.name == "topic":
            return pa.repeat(self._topic, columns.row_count)
        if field.name == "partition":
            return pa.repeat(self._partition, columns.row_count)
        if field.name == "timestamp":
            return _microseconds(column_of("timestamp", TIMESTAMP, columns), field.type)
        # As in Spark's connector, a record without headers has null there.
        if field.name == "headers" and not columns.header_count:
            return pa.nulls(columns.row_count, field.type)
        array = column_of(_FROM_RECORDS[field.name], field.type, columns)
        if field.name == "headers":
            return pc.if_else(pc.equal(pc.list_value_length(array), 0), pa.scalar(None, field.type), array)
        if field.name == "leaderEpoch" and columns.row_count and pc.min(array).as_py() < 0:  # unknown to its leader
            return pc.if_else(pc.less(array, 0), pa.scalar(None, field.type), array)
        return array


def _microseconds(milliseconds: pa.Array, kind: pa.DataType) -> pa.Array:
    try:
        return milliseconds.cast(kind)
    except pa.ArrowInvalid:
        # A producer wrote a time that does not fit. The row is worth more than the exact time in 294,247 AD.
        limit = _MICROSECONDS_MAX // 1000
        clamped = [max(-limit, min(limit, value)) * 1000 for value in milliseconds.cast(pa.int64()).to_pylist()]
        return pa.array(clamped, pa.int64()).cast(kind)

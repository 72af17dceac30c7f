"""Rows as Spark wants them: batches of records as Arrow columns, without a Python object per record."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tidelog.base.errors import ConfigError, MissingExtraError
from tidelog.base.ids import TopicPartition
from tidelog.base.ports import Buffer
from tidelog.records.columns import ColumnBuffers, Columns
from tidelog.records.header import BatchHeader

try:
    import pyarrow as pa
    import pyarrow.compute as pc
except ImportError:  # pragma: no cover - Spark brings it
    raise MissingExtraError("the Spark source", "spark") from None

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
}
"""Those of Spark's Kafka connector: name and type, in their order."""

_MICROSECONDS_MAX = 2**63 - 1
_FROM_RECORDS = {
    "key": "key",
    "value": "value",
    "offset": "offset",
    "timestamp": "timestamp",
    "timestampType": "timestamp_type",
    "headers": "headers",
}


def spark_schema(*, include_headers: bool) -> StructType:
    """All columns, nullable as those of Spark's connector are."""
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
    return types.StructType(
        [types.StructField(name, kinds[kind]) for name, kind in COLUMNS.items() if include_headers or name != "headers"]
    )


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
        rows = columns.row_count
        if field.name == "topic":
            return pa.repeat(self._topic, rows)
        if field.name == "partition":
            return pa.repeat(self._partition, rows)
        if field.name == "timestamp":
            return _microseconds(_fixed(pa.int64(), rows, columns.timestamp), field.type)
        if field.name == "headers":
            return _headers(field.type, columns)
        if field.name == "offset":
            return _fixed(pa.int64(), rows, columns.offset)
        if field.name == "timestampType":
            return _fixed(pa.int32(), rows, columns.timestamp_type)
        if field.name == "key":
            key = columns.key_validity, columns.key_offsets, columns.key_data
            return _binary(field.type, rows, key, columns.key_null_count)
        value = columns.value_validity, columns.value_offsets, columns.value_data
        return _binary(field.type, rows, value, columns.value_null_count)


def _fixed(kind: pa.DataType, rows: int, data: Buffer | None) -> pa.Array:
    return pa.Array.from_buffers(kind, rows, [None, pa.py_buffer(data)], null_count=0)


def _binary(
    kind: pa.DataType, rows: int, parts: tuple[Buffer | None, Buffer | None, Buffer | None], null_count: int
) -> pa.Array:
    buffers = [None if part is None else pa.py_buffer(part) for part in parts]
    return pa.Array.from_buffers(kind, rows, buffers, null_count=null_count)


def _microseconds(milliseconds: pa.Array, kind: pa.DataType) -> pa.Array:
    try:
        return milliseconds.cast(pa.timestamp("ms", tz="UTC")).cast(kind)
    except pa.ArrowInvalid:
        # A producer wrote a time that does not fit. The row is worth more than the exact time in 294,247 AD.
        limit = _MICROSECONDS_MAX // 1000
        clamped = [max(-limit, min(limit, value)) * 1000 for value in milliseconds.to_pylist()]
        return pa.array(clamped, pa.int64()).cast(kind)


def _headers(kind: Any, columns: ColumnBuffers) -> pa.Array:
    rows, count = columns.row_count, columns.header_count
    keys = _binary(pa.string(), count, (None, columns.header_key_offsets, columns.header_key_data), 0)
    contents = columns.header_value_validity, columns.header_value_offsets, columns.header_value_data
    values = _binary(pa.binary(), count, contents, columns.header_value_null_count)
    pairs = pa.StructArray.from_arrays([keys, values], fields=list(kind.value_type))
    lists = pa.Array.from_buffers(
        kind, rows, [None, pa.py_buffer(columns.header_offsets)], null_count=0, children=[pairs]
    )
    # As in Spark's connector, a record without headers has null there.
    return pc.if_else(pc.equal(pc.list_value_length(lists), 0), pa.scalar(None, kind), lists)

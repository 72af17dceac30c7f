"""Records as Arrow, both ways: columns are handed over as the buffers they are. Needs pyarrow (`tidelog[arrow]`)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import TYPE_CHECKING, Any

from tidelog.base.errors import MissingExtraError
from tidelog.client.core.values import FetchedBatches
from tidelog.records.batch import split_batches
from tidelog.records.columns import ColumnBuffers, Columns

try:
    import pyarrow as pa
    import pyarrow.compute as pc
except ImportError:
    raise MissingExtraError("Arrow in and out", "arrow") from None

if TYPE_CHECKING:
    from tidelog.client.admin.lost_records import LostRecord

TIMESTAMP = pa.timestamp("ms", tz="UTC")
HEADERS = pa.list_(
    pa.field("element", pa.struct([pa.field("key", pa.string(), nullable=False), pa.field("value", pa.binary())]))
)
COLUMNS = {
    "topic": pa.string(),
    "partition": pa.int32(),
    "offset": pa.int64(),
    "leader_epoch": pa.int32(),
    "timestamp": TIMESTAMP,
    "timestamp_type": pa.int32(),
    "key": pa.binary(),
    "value": pa.binary(),
    "headers": HEADERS,
}
"""What records are read as. `timestamp_type` is 0 for CreateTime, 1 for LogAppendTime; an unknown epoch is null."""

_NOT_OF_BATCHES = ("topic", "partition")
_WRITABLE = ("key", "value", "timestamp", "partition", "headers")


class ArrowReader:
    """Gathers fetched batches into one Arrow batch.

    Args:
        columns: which of `COLUMNS`, in this order; None for all.

    Raises:
        ValueError: there is no such column.
    """

    def __init__(self, columns: Iterable[str] | None = None) -> None:
        self._names = list(COLUMNS if columns is None else columns)
        for name in self._names:
            if name not in COLUMNS:
                raise ValueError(f"there is no column {name!r}: there are {', '.join(COLUMNS)}")
        self._columns = Columns(name for name in self._names if name not in _NOT_OF_BATCHES)
        self._runs: list[tuple[str, int, int]] = []

    @property
    def row_count(self) -> int:
        return self._columns.row_count

    @property
    def size_bytes(self) -> int:
        """Of the batches that were added, without compression."""
        return self._columns.size_bytes

    def add(self, fetched: FetchedBatches) -> None:
        """Add the records at and above `fetch_offset`.

        Raises:
            MalformedBatchError: a batch is not what its header says.
        """
        before = self._columns.row_count
        for position, header in split_batches(fetched.buffer):
            self._columns.append_batch(fetched.buffer, position, header, fetched.fetch_offset)
        added = self._columns.row_count - before
        if added:
            self._runs.append((*fetched.topic_partition, added))

    def finish(self) -> pa.RecordBatch:
        """What was added. This object is empty afterwards."""
        buffers = self._columns.finish()
        runs, self._runs = self._runs, []
        arrays = [self._array(name, buffers, runs) for name in self._names]
        schema = pa.schema([pa.field(name, COLUMNS[name]) for name in self._names])
        return pa.RecordBatch.from_arrays(arrays, schema=schema)

    def _array(self, name: str, buffers: ColumnBuffers, runs: list[tuple[str, int, int]]) -> Any:
        if name in _NOT_OF_BATCHES:
            which = _NOT_OF_BATCHES.index(name)
            parts = [pa.repeat(pa.scalar(run[which], COLUMNS[name]), run[2]) for run in runs]
            return pa.concat_arrays(parts) if parts else pa.array([], COLUMNS[name])
        array = column_of(name, COLUMNS[name], buffers)
        if name == "leader_epoch" and buffers.row_count and pc.min(array).as_py() < 0:
            return pc.if_else(pc.less(array, 0), pa.scalar(None, pa.int32()), array)
        return array


LOST_COLUMNS = {"broker_id": pa.int32(), **COLUMNS, "timestamp_type": pa.string(), "producer_id": pa.int64()}
"""What lost records are written as: the fields of `LostRecord`."""
_ROWS_AT_ONCE = 10_000


def write_lost_records(records: Iterable[LostRecord], path: str) -> int:
    """Write an Arrow file (the IPC format) of records. Returns how many there were."""
    schema = pa.schema([pa.field(name, kind) for name, kind in LOST_COLUMNS.items()])
    rows, count = iter(records), 0
    with pa.OSFile(path, "wb") as file, pa.ipc.new_file(file, schema) as writer:
        while some := list(islice(rows, _ROWS_AT_ONCE)):
            writer.write_batch(pa.RecordBatch.from_pylist([_lost_row(one) for one in some], schema=schema))
            count += len(some)
    return count


def _lost_row(record: LostRecord) -> dict[str, Any]:
    headers = [{"key": key, "value": value} for key, value in record.headers]
    timestamp = record.timestamp if record.timestamp >= 0 else None
    return {**record._asdict(), "headers": headers, "timestamp": timestamp}


def column_of(name: str, kind: Any, buffers: ColumnBuffers) -> Any:
    """What was decoded of records, as an array over the same buffers.

    Args:
        name: one of `COLUMNS`, but `topic` and `partition`, which are not in the batches.
        kind: the Arrow type: that of `COLUMNS`, or one that is stored the same way.
    """
    if name in ("key", "value"):
        content = tuple(getattr(buffers, f"{name}_{part}") for part in ("validity", "offsets", "data"))
        return _binary(kind, buffers.row_count, content, getattr(buffers, f"{name}_null_count"))
    if name == "headers":
        return _headers(kind, buffers)
    return pa.Array.from_buffers(kind, buffers.row_count, [None, _buffer(getattr(buffers, name))], 0)


def _headers(kind: Any, buffers: ColumnBuffers) -> Any:
    count = buffers.header_count
    names = _binary(pa.string(), count, (None, buffers.header_key_offsets, buffers.header_key_data), 0)
    content = (buffers.header_value_validity, buffers.header_value_offsets, buffers.header_value_data)
    contents = _binary(pa.binary(), count, content, buffers.header_value_null_count)
    pairs = pa.StructArray.from_arrays([names, contents], fields=list(kind.value_type))
    return pa.Array.from_buffers(kind, buffers.row_count, [None, _buffer(buffers.header_offsets)], 0, 0, [pairs])


def _binary(kind: Any, rows: int, content: tuple[Any, ...], null_count: int) -> Any:
    validity, offsets, data = content
    if offsets is None:
        return pa.nulls(rows, kind)
    return pa.Array.from_buffers(kind, rows, [_buffer(validity), _buffer(offsets), _buffer(data)], null_count)


def _buffer(view: Any) -> Any:
    return None if view is None else pa.py_buffer(view)


def columns_from_arrow(
    data: pa.RecordBatch | pa.Table, partition: int | None = None
) -> Iterator[tuple[int | None, ColumnBuffers]]:
    """What a producer takes out of Arrow data, as columns for partitions (None: by key, or any).

    Args:
        data: columns `key` and `value` (binary or string, either may be missing), `timestamp` (a timestamp, or int64 ms
            since 1970), `headers` (list<struct<key: string, value: binary>>, or a map), `partition` (an integer; null:
            by key, or any).
        partition: for all rows, in place of that column.

    Raises:
        ValueError: there is a column of another name, or of a type that is not one of these.
    """
    for name in data.schema.names:
        if name not in _WRITABLE:
            raise ValueError(f"there is no use for column {name!r}: records are made of {', '.join(_WRITABLE)}")
    for batch in data.to_batches() if isinstance(data, pa.Table) else [data]:
        if batch.num_rows == 0:
            continue
        if partition is not None or "partition" not in batch.schema.names:
            yield partition, _columns(batch)
            continue
        targets = batch.column("partition").cast(pa.int32())
        for target in pc.unique(targets).to_pylist():
            mine = pc.is_null(targets) if target is None else pc.equal(targets, target)
            yield target, _columns(batch.filter(mine))


def _columns(batch: pa.RecordBatch) -> ColumnBuffers:
    names = batch.schema.names
    columns = ColumnBuffers(batch.num_rows)
    if "timestamp" in names:
        columns = columns._replace(timestamp=_timestamps(batch.column("timestamp")))
    if "key" in names:
        offsets, validity, content = _binary_buffers(batch.column("key"), "key")
        columns = columns._replace(key_offsets=offsets, key_validity=validity, key_data=content)
    if "value" in names:
        offsets, validity, content = _binary_buffers(batch.column("value"), "value")
        columns = columns._replace(value_offsets=offsets, value_validity=validity, value_data=content)
    if "headers" in names:
        columns = _with_headers(columns, batch.column("headers"))
    return columns


def _timestamps(array: Any) -> Any:
    if pa.types.is_timestamp(array.type):
        array = array.cast(pa.timestamp("ms", tz=array.type.tz), safe=False).cast(pa.int64())
    elif not pa.types.is_int64(array.type):
        raise ValueError(f"column 'timestamp' is {array.type}: a timestamp is expected, or int64 ms since 1970")
    if array.null_count:
        raise ValueError("column 'timestamp' has nulls: fill them, or leave the column out for the current time")
    return _bytes(array.buffers()[1])[array.offset * 8 : (array.offset + len(array)) * 8]


def _binary_buffers(array: Any, name: str, *, keep: bool = False) -> tuple[Any, Any, Any]:
    """Offsets, validity and data, or three times None if all is null (unless `keep`).

    Nothing is copied unless the type, or a slice that starts within a byte, needs it.
    """
    kind = array.type
    if array.null_count == len(array) and not keep:
        return None, None, None
    if pa.types.is_dictionary(kind):
        array = array.cast(kind.value_type)
        kind = array.type
    if not (pa.types.is_binary(kind) or pa.types.is_string(kind)):
        try:
            array = array.cast(pa.binary())
        except (pa.ArrowNotImplementedError, pa.ArrowInvalid) as error:
            raise ValueError(f"column {name!r} is {kind}: binary or string is expected ({error})") from None
    validity, offsets, data = array.buffers()
    start = array.offset
    if not array.null_count:
        validity = None
    elif start % 8:
        validity = _bytes(array.is_valid().buffers()[1])
    else:
        validity = _bytes(validity)[start // 8 :]
    ends = _bytes(offsets)[start * 4 : (start + len(array) + 1) * 4]
    return ends, validity, _bytes(data) if data is not None else b""


def _bytes(buffer: Any) -> memoryview:
    return memoryview(buffer).cast("B")


def _with_headers(columns: ColumnBuffers, array: Any) -> ColumnBuffers:
    if pa.types.is_null(array.type):
        return columns
    if not (pa.types.is_list(array.type) or pa.types.is_map(array.type)):
        raise ValueError(f"column 'headers' is {array.type}: list<struct<key: string, value: binary>> is expected")
    if pa.types.is_map(array.type):
        array = array.cast(pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())])))
    if array.null_count:
        array = pc.if_else(array.is_valid(), array, pa.scalar([], array.type))
    pairs = array.values
    if not pa.types.is_struct(pairs.type) or pairs.type.num_fields != 2:
        raise ValueError(f"column 'headers' is {array.type}: list<struct<key: string, value: binary>> is expected")
    if not len(pairs):
        return columns
    names, _, name_data = _binary_buffers(pairs.field(0), "headers.key", keep=True)
    contents, validity, content_data = _binary_buffers(pairs.field(1), "headers.value", keep=True)
    offsets = array.offsets
    ends = _bytes(offsets.buffers()[1])[offsets.offset * 4 : (offsets.offset + len(offsets)) * 4]
    return columns._replace(
        header_offsets=ends,
        header_key_offsets=names,
        header_key_data=name_data,
        header_value_offsets=contents,
        header_value_validity=validity,
        header_value_data=content_data,
    )

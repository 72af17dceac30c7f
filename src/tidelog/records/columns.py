"""Records as columns in Arrow's layout, both ways, without Arrow: plain buffers that pyarrow can wrap as they are.

For binary columns: `*_offsets` int32, one more than rows; `*_data` the bytes; `*_validity` one bit a row from the least
significant on, 0 for null, or None if nothing is null. Headers are list<struct<key: utf8, value: binary>>:
`header_offsets` says where each row's headers start, and `header_key_*` and `header_value_*` have a row a header.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable
from itertools import accumulate, pairwise
from typing import Any, Literal, NamedTuple

from tidelog.base.errors import Code, MalformedBatchError, refusal
from tidelog.base.invariant import invariant
from tidelog.base.ports import Buffer
from tidelog.records._choose import kernel, kernel_encode
from tidelog.records.batch import (
    DECOMPRESSED_SIZE_BYTES_MAX,
    HEADER_OVERHEAD_MAX,
    INT64_MAX,
    RECORD_OVERHEAD_MAX,
    SIZE_BYTES_MAX,
    find_records,
)
from tidelog.records.header import BatchHeader

COLUMNS = ("key", "value", "offset", "timestamp", "leader_epoch", "timestamp_type", "headers")
"""What there is to project."""

CREATE_TIME, LOG_APPEND_TIME = 0, 1
"""In the column `timestamp_type`."""

_INT32_MAX = 0x7FFFFFFF
_CAPACITY_FIRST = 64

_KEPT_SIZE_BYTES_MAX = 4 * 1024 * 1024
"""Of storage that is used again."""


class ColumnBuffers(NamedTuple):
    """Columns of `row_count` rows; None for those that are not wanted, or that no row has a value in."""

    row_count: int
    offset: Buffer | None = None
    """int64."""
    timestamp: Buffer | None = None
    """int64, ms since 1970; -1 for none."""
    leader_epoch: Buffer | None = None
    """int32; -1 for none."""
    timestamp_type: Buffer | None = None
    """int32: 0 CreateTime, 1 LogAppendTime."""
    key_offsets: Buffer | None = None
    key_validity: Buffer | None = None
    key_data: Buffer | None = None
    value_offsets: Buffer | None = None
    value_validity: Buffer | None = None
    value_data: Buffer | None = None
    header_offsets: Buffer | None = None
    header_key_offsets: Buffer | None = None
    header_key_data: Buffer | None = None
    header_value_offsets: Buffer | None = None
    header_value_validity: Buffer | None = None
    header_value_data: Buffer | None = None
    key_null_count: int = 0
    value_null_count: int = 0
    header_count: int = 0
    header_value_null_count: int = 0


class _Column:
    """A buffer that grows by doubling, viewed as items of one type. What is beyond what was written is arbitrary."""

    _format: Literal["B", "i", "q"]

    __slots__ = ("_format", "_item_size", "_starts_set", "_storage", "view")

    def __init__(self, item_format: Literal["B", "i", "q"], item_size: int, *, starts_set: bool = False) -> None:
        self._format = item_format
        self._item_size = item_size
        self._starts_set = starts_set  # every bit is 1 until it is written
        self._storage = self._allocate(_CAPACITY_FIRST)
        self.view = memoryview(self._storage).cast(item_format)

    def _allocate(self, items: int) -> bytearray:
        size = items * self._item_size
        return bytearray(b"\xff") * size if self._starts_set else bytearray(size)

    def reserve(self, items: int, used: int) -> None:
        """Have room for `items`, of which the first `used` are kept."""
        if items <= len(self.view):
            return
        storage = self._allocate(max(items, 2 * len(self.view)))
        storage[: used * self._item_size] = self._storage[: used * self._item_size]
        self._storage = storage
        self.view = memoryview(storage).cast(self._format)

    def take(self, items: int) -> memoryview:
        """The first `items` as bytes, which are now the caller's."""
        return memoryview(self._storage)[: items * self._item_size]

    def is_worth_keeping(self, items: int) -> bool:
        """Whether a copy of the first `items` costs less than new storage, which is filled with zeros first."""
        size = len(self._storage)
        return 4 * items * self._item_size <= size <= _KEPT_SIZE_BYTES_MAX


class _BinaryColumn:
    __slots__ = ("data", "null_count", "offsets", "validity")

    def __init__(self) -> None:
        self.data = _Column("B", 1)
        self._start()

    def _start(self) -> None:
        self.offsets = _Column("i", 4)
        self.validity = _Column("B", 1, starts_set=True)
        self.null_count = 0

    def used(self, rows: int) -> int:
        return self.offsets.view[rows]

    def reserve(self, rows: int, more_rows: int, more_bytes: int) -> None:
        used = self.used(rows)
        invariant(used + more_bytes <= _INT32_MAX, "a column of {} bytes has no room for {} more", used, more_bytes)
        self.offsets.reserve(rows + more_rows + 1, rows + 1)
        self.validity.reserve((rows + more_rows + 7) // 8, (rows + 7) // 8)
        self.data.reserve(used + more_bytes, used)

    def forget_from(self, rows: int) -> None:
        """Undo what a batch that was refused half way left behind: nulls among the rows to come."""
        bits = self.validity.view
        bits[(rows + 7) // 8 :] = b"\xff" * (len(bits) - (rows + 7) // 8)
        if rows & 7:
            bits[rows >> 3] |= 0xFF << (rows & 7) & 0xFF

    def take(self, rows: int, name: str) -> dict[str, Any]:
        """The column as `ColumnBuffers` names its parts. They are the caller's; the column is empty again.

        Each batch has room for all of its bytes in each column, so that short keys and absent headers use little of it.
        """
        used = self.used(rows)
        is_kept = self.data.is_worth_keeping(used)
        data = self.data.take(used)
        taken = {
            f"{name}_offsets": self.offsets.take(rows + 1),
            f"{name}_validity": self.validity.take((rows + 7) // 8) if self.null_count else None,
            f"{name}_data": memoryview(bytes(data)) if is_kept else data,
            f"{name}_null_count": self.null_count,
        }
        if not is_kept:
            self.data = _Column("B", 1)
        self._start()
        return taken


class Columns:
    """Collects the records of batches as columns; only those asked for are decoded.

    `size_bytes` grows with each batch: take what there is by `finish` long before a column has 2 GiB.
    """

    __slots__ = (
        "_header_keys",
        "_header_offsets",
        "_header_values",
        "_keys",
        "_leader_epochs",
        "_offsets",
        "_projection",
        "_timestamp_types",
        "_timestamps",
        "_values",
        "row_count",
        "size_bytes",
    )

    def __init__(self, projection: Iterable[str] = ("key", "value", "offset", "timestamp")) -> None:
        self._projection = frozenset(projection)
        unknown = self._projection.difference(COLUMNS)
        if unknown:
            raise ValueError(f"there is no column {', '.join(sorted(unknown))}: there are {', '.join(COLUMNS)}")
        self._keys = _BinaryColumn() if "key" in self._projection else None
        self._values = _BinaryColumn() if "value" in self._projection else None
        self._header_keys = _BinaryColumn()
        self._header_values = _BinaryColumn()
        self._start()

    def _start(self) -> None:
        wanted = self._projection
        self._offsets = _Column("q", 8) if "offset" in wanted else None
        self._timestamps = _Column("q", 8) if "timestamp" in wanted else None
        self._leader_epochs = array("i") if "leader_epoch" in wanted else None
        self._timestamp_types = array("i") if "timestamp_type" in wanted else None
        self._header_offsets = _Column("i", 4) if "headers" in wanted else None
        self.row_count = 0
        self.size_bytes = 0
        """Of the batches that were added, without compression."""

    def append_batch(
        self,
        buffer: Buffer,
        position: int,
        header: BatchHeader,
        first_offset: int = 0,
        end_offset: int | None = None,
        *,
        decompressed_size_bytes_max: int = DECOMPRESSED_SIZE_BYTES_MAX,
    ) -> int:
        """Add the records of one batch. A control batch adds none. The CRC is not checked: see `check_crc`.

        Args:
            buffer: holds the whole batch.
            position: where it starts.
            header: what `read_header` returned for it.
            first_offset: records below it are left out.
            end_offset: as are those at or above this one; None for no end.
            decompressed_size_bytes_max: the most that compressed records may grow to.

        Returns:
            How many rows were added.

        Raises:
            MalformedBatchError: INVALID_RECORD, as `validate_batch`; no row of the batch was added then.
        """
        if header.is_control:
            return 0
        base_offset, rows = header.base_offset, self.row_count
        if base_offset < 0 or base_offset + header.last_offset_delta > INT64_MAX:
            raise MalformedBatchError(f"a base offset of {base_offset}", position=position)
        region = find_records(buffer, position, header, decompressed_size_bytes_max)
        size = region[2] - region[1]
        self._reserve(region)
        appended = header.is_log_append_time
        end_delta = _INT32_MAX + 1 if end_offset is None else end_offset - base_offset
        keys, values, headers = self._keys, self._values, self._header_offsets
        header_keys, header_values = self._header_keys, self._header_values
        try:
            self.row_count, null_keys, null_values, null_header_values = kernel.decode(
                *region,
                min(max(first_offset - base_offset, 0), _INT32_MAX + 1),
                min(max(end_delta, 0), _INT32_MAX + 1),
                base_offset,
                header.max_timestamp if appended else header.base_timestamp,
                0 if appended else 1,
                rows,
                self._offsets and self._offsets.view,
                self._timestamps and self._timestamps.view,
                keys and keys.offsets.view,
                keys and keys.validity.view,
                keys and keys.data.view,
                values and values.offsets.view,
                values and values.validity.view,
                values and values.data.view,
                headers and headers.view,
                header_keys.offsets.view,
                header_keys.data.view,
                header_values.offsets.view,
                header_values.validity.view,
                header_values.data.view,
            )
        except MalformedBatchError:
            for column in (keys, values):
                if column is not None:
                    column.forget_from(rows)
            raise  # the headers have nothing to forget: if they are wanted, `_reserve` had the records walked
        added = self.row_count - rows
        if keys is not None:
            keys.null_count += null_keys
        if values is not None:
            values.null_count += null_values
        header_values.null_count += null_header_values
        if self._leader_epochs is not None:
            self._leader_epochs.extend(array("i", (header.leader_epoch,)) * added)
        if self._timestamp_types is not None:
            self._timestamp_types.extend(array("i", (LOG_APPEND_TIME if appended else CREATE_TIME,)) * added)
        self.size_bytes += size
        return added

    def _reserve(self, region: tuple[Buffer, int, int, int, int, int, int]) -> None:
        """Have room for all the records of a batch."""
        size = region[2] - region[1]
        rows, room = self.row_count, region[3]
        if room * kernel.RECORD_SIZE_BYTES_MIN > size:
            room = 0  # decoding will refuse it
        if self._offsets is not None:
            self._offsets.reserve(rows + room, rows)
        if self._timestamps is not None:
            self._timestamps.reserve(rows + room, rows)
        for column in (self._keys, self._values):
            if column is not None:
                column.reserve(rows, room, size)
        if self._header_offsets is not None:
            headers, more = self._header_offsets.view[rows], kernel.walk(*region)[4]
            self._header_offsets.reserve(rows + room + 1, rows + 1)
            self._header_keys.reserve(headers, more, size)
            self._header_values.reserve(headers, more, size)

    def finish(self) -> ColumnBuffers:
        """The columns, which are the caller's; this object starts anew, empty."""
        rows = self.row_count
        columns: dict[str, Any] = {}
        if self._offsets is not None:
            columns["offset"] = self._offsets.take(rows)
        if self._timestamps is not None:
            columns["timestamp"] = self._timestamps.take(rows)
        if self._leader_epochs is not None:
            columns["leader_epoch"] = self._leader_epochs.tobytes()
        if self._timestamp_types is not None:
            columns["timestamp_type"] = self._timestamp_types.tobytes()
        if self._keys is not None:
            columns |= self._keys.take(rows, "key")
        if self._values is not None:
            columns |= self._values.take(rows, "value")
        if self._header_offsets is not None:
            headers = self._header_offsets.view[rows]
            columns["header_count"] = headers
            columns["header_offsets"] = self._header_offsets.take(rows + 1)
            columns |= self._header_values.take(headers, "header_value")
            keys = self._header_keys.take(headers, "header_key")
            columns["header_key_offsets"], columns["header_key_data"] = _as_utf8(
                keys["header_key_offsets"], keys["header_key_data"]
            )
        self._start()
        return ColumnBuffers(rows, **columns)


def _as_utf8(offsets: memoryview, data: memoryview) -> tuple[Buffer, Buffer]:
    """(offsets, data) of header keys as text, which Arrow takes on trust: bytes that are not UTF-8 are replaced."""
    ends = offsets.cast("i")
    keys = bytes(data)
    if keys.isascii():
        return offsets, data
    texts = [keys[start:stop].decode("utf-8", "replace").encode() for start, stop in pairwise(ends)]
    return memoryview(array("i", accumulate(map(len, texts), initial=0))).cast("B"), b"".join(texts)


class EncodedRecords(NamedTuple):
    """The records of one batch, as `seal_batch` takes them."""

    records: Buffer
    record_count: int
    base_timestamp: int
    max_timestamp: int


def encode_columns(
    columns: ColumnBuffers,
    start: int = 0,
    stop: int | None = None,
    *,
    size_bytes_max: int | None = None,
    rows: Buffer | None = None,
) -> EncodedRecords:
    """Write rows of columns as the records of one batch, with offset deltas 0, 1, 2 ...

    Args:
        columns: `timestamp`, and what there is of key, value and headers; their other columns are not looked at.
        start: the first row.
        stop: behind the last row, exclusive; None for all rows.
        size_bytes_max: stop before the records exceed this size; but one row is written in any case.
        rows: int32, the rows to write, in this order, instead of all: `start` and `stop` count in it.

    Returns:
        The records, as many of the rows as fit: go on at `start` + `record_count`.

    Raises:
        ValueError: the columns contradict each other, or a timestamp lies below -1.
        KafkaError: MESSAGE_TOO_LARGE: a row of more than 2 GiB.
    """
    chosen = _ints(rows)
    row_count = columns.row_count if chosen is None else len(chosen)
    if stop is None:
        stop = row_count
    if not 0 <= start <= stop <= row_count or columns.timestamp is None:
        raise ValueError(f"rows {start} to {stop} of {row_count}, or no timestamps")
    if start == stop:
        return EncodedRecords(b"", 0, -1, -1)
    timestamps = memoryview(columns.timestamp).cast("B").cast("q")
    first = start if chosen is None else chosen[start]
    if not 0 <= first < len(timestamps) or (chosen is None and len(timestamps) < stop):
        raise ValueError(f"{len(timestamps)} timestamps for {stop} rows, of which the first is {first}")
    if chosen is None:
        room = _size_bytes_max(columns, start, stop, size_bytes_max)
    else:  # which may be any, so all that there are
        room = _size_bytes_max(columns, 0, columns.row_count, size_bytes_max, first)
    out = bytearray(room)
    end, size, max_timestamp = kernel_encode.encode(
        out,
        len(out) if size_bytes_max is None else size_bytes_max,
        start,
        stop,
        timestamps[first],
        timestamps,
        _ints(columns.key_offsets),
        columns.key_validity,
        columns.key_data,
        _ints(columns.value_offsets),
        columns.value_validity,
        columns.value_data,
        _ints(columns.header_offsets),
        _ints(columns.header_key_offsets),
        columns.header_key_data,
        _ints(columns.header_value_offsets),
        columns.header_value_validity,
        columns.header_value_data,
        chosen,
    )
    if end == start:
        raise refusal(Code.MESSAGE_TOO_LARGE, f"row {first} is larger than a record can be: 2 GiB")
    if size < room // 2:
        del out[size:]  # which gives the memory back: they may wait long to be sent
    return EncodedRecords(memoryview(out)[:size], end - start, timestamps[first], max_timestamp)


def _ints(offsets: Buffer | None) -> memoryview | None:
    return None if offsets is None else memoryview(offsets).cast("B").cast("i")


def _size_bytes_max(
    columns: ColumnBuffers, start: int, stop: int, size_bytes_max: int | None, first: int | None = None
) -> int:
    """Room for the rows' records at their largest, or for as many of them as are wanted, the first at least."""

    def of_rows(start: int, stop: int) -> int:
        size = (stop - start) * RECORD_OVERHEAD_MAX
        size += _span(columns.key_offsets, columns.key_data, start, stop)
        size += _span(columns.value_offsets, columns.value_data, start, stop)
        headers = _ints(columns.header_offsets)
        if headers is not None and stop < len(headers):
            first, last = headers[start], headers[stop]
            size += max(last - first, 0) * HEADER_OVERHEAD_MAX
            size += _span(columns.header_key_offsets, columns.header_key_data, first, last)
            size += _span(columns.header_value_offsets, columns.header_value_data, first, last)
        return size

    size = of_rows(start, stop)
    if size_bytes_max is not None and size > size_bytes_max:
        first = start if first is None else first
        size = max(size_bytes_max, of_rows(first, first + 1))
    return min(size, SIZE_BYTES_MAX)


def _span(offsets: Buffer | None, data: Buffer | None, start: int, stop: int) -> int:
    """Bytes of data that rows refer to. Encoding refuses offsets that lie; they are not to take memory before."""
    ends = _ints(offsets)
    if ends is None or data is None or not 0 <= start <= stop < len(ends):
        return 0
    return min(max(ends[stop] - ends[start], 0), memoryview(data).nbytes)

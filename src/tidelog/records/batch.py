"""Record batches: validated on the way in, read on the way out, built by producers."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from tidelog.base.errors import MalformedBatchError
from tidelog.base.ports import Buffer
from tidelog.records import kernel
from tidelog.records.compression import COMPRESSION_IDS, compress, decompress
from tidelog.records.header import (
    BATCH_OVERHEAD,
    CONTROL_FLAG,
    LOG_APPEND_TIME_FLAG,
    MAGIC,
    TRANSACTIONAL_FLAG,
    BatchHeader,
    check_crc,
    read_header,
    split_batches,
    split_whole_batches,
    stamp,
    write_header,
)

__all__ = [
    "BATCH_OVERHEAD",
    "DECOMPRESSED_SIZE_BYTES_MAX",
    "BatchBuilder",
    "BatchFacts",
    "BatchHeader",
    "Record",
    "check_crc",
    "read_header",
    "read_records",
    "split_batches",
    "split_whole_batches",
    "stamp",
    "validate_batch",
]

DECOMPRESSED_SIZE_BYTES_MAX = 256 * 1024 * 1024
"""What readers allow one batch to grow to, unless they say otherwise."""


class BatchFacts(NamedTuple):
    """What was learnt by walking a batch's records."""

    record_count: int
    max_timestamp: int
    """ms since 1970, -1 if there are no records. The header may say otherwise: then `stamp` can put it right."""
    max_timestamp_offset_delta: int
    """Of the first record that has `max_timestamp`: add the base offset."""
    keyless_record_count: int
    decompressed_size_bytes: int
    """Of the records, without the header."""
    is_dense: bool
    """Whether the offset deltas are 0, 1, 2 ...: always, until compaction removes records."""


class Record(NamedTuple):
    """One record as it is read."""

    offset: int
    timestamp: int
    """ms since 1970; -1 for none."""
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]
    leader_epoch: int
    """Of the leader that appended it; -1 for none."""


def validate_batch(
    buffer: Buffer,
    position: int,
    header: BatchHeader,
    *,
    decompressed_size_bytes_max: int = DECOMPRESSED_SIZE_BYTES_MAX,
    dense: bool = True,
) -> BatchFacts:
    """Check a batch's CRC, and that its records are what its header says. The batch itself is left as it is.

    Args:
        buffer: holds the whole batch.
        position: where it starts.
        header: what `read_header` returned for it.
        decompressed_size_bytes_max: the most that compressed records may grow to.
        dense: the offset deltas are to be 0, 1, 2 ..., one at least, as any producer writes them. False for
            batches that compaction may have thinned out: then the deltas are only to increase.

    Raises:
        MalformedBatchError: CORRUPT_MESSAGE for the CRC; INVALID_RECORD for what disagrees, and for a bomb.
    """
    check_crc(buffer, position, header)
    data: Buffer = buffer
    start = position + BATCH_OVERHEAD
    end = position + header.size_bytes
    count = header.record_count
    if header.attributes & 7:
        data = decompress(
            header.attributes & 7, memoryview(buffer)[start:end], size_bytes_max=decompressed_size_bytes_max
        )
        start = 0
        end = len(data)
    max_delta, max_at, last, keyless, is_dense = kernel.walk(data, start, end, count)
    if dense and (not is_dense or last != header.last_offset_delta or not count):
        raise _not_dense(header, position, last, is_dense)
    if last > header.last_offset_delta:
        raise MalformedBatchError(
            f"the last record has offset delta {last}, the header's last is {header.last_offset_delta}",
            position=position,
        )
    if header.attributes & LOG_APPEND_TIME_FLAG:
        max_timestamp = header.max_timestamp
        max_at = 0
    else:
        max_timestamp = header.base_timestamp + max_delta if count else -1
    return BatchFacts(count, max_timestamp, max_at, keyless, end - start, is_dense)


def _not_dense(header: BatchHeader, position: int, last: int, is_dense: bool) -> MalformedBatchError:
    if not header.record_count:
        what = "it holds no record"
    elif not is_dense:
        what = "its offset deltas are not 0, 1, 2 ..."
    else:
        what = f"its last record has offset delta {last}, its header says {header.last_offset_delta}"
    return MalformedBatchError(f"the batch of {header.record_count} records is not a producer's: {what}", position=position)


def read_records(
    buffer: Buffer,
    position: int = 0,
    header: BatchHeader | None = None,
    *,
    decompressed_size_bytes_max: int = DECOMPRESSED_SIZE_BYTES_MAX,
) -> list[Record]:
    """Read all records of one batch. Its CRC is not checked: see `check_crc`.

    Raises:
        MalformedBatchError: as `validate_batch`.
    """
    if header is None:
        header = read_header(buffer, position)
    data: Buffer = buffer
    start = position + BATCH_OVERHEAD
    end = position + header.size_bytes
    if end > len(buffer):
        raise MalformedBatchError(
            f"the batch has {header.size_bytes} bytes, of which {len(buffer) - position} are here", position=position
        )
    if header.compression:
        data = decompress(
            header.compression, memoryview(buffer)[start:end], size_bytes_max=decompressed_size_bytes_max
        )
        start = 0
        end = len(data)
    base_offset, leader_epoch = header.base_offset, header.leader_epoch
    appended = header.max_timestamp if header.is_log_append_time else None
    base_timestamp = header.base_timestamp
    return [
        Record(
            base_offset + offset_delta,
            base_timestamp + timestamp_delta if appended is None else appended,
            key,
            value,
            headers,
            leader_epoch,
        )
        for timestamp_delta, offset_delta, key, value, headers in kernel.unpack(data, start, end, header.record_count)
    ]


class BatchBuilder:
    """Collects records and writes them as one batch."""

    __slots__ = (
        "_attributes",
        "_base_sequence",
        "_codec",
        "_headers",
        "_keys",
        "_producer_epoch",
        "_producer_id",
        "_timestamps",
        "_values",
        "size_bytes",
    )

    def __init__(
        self,
        *,
        compression: str = "none",
        producer_id: int = -1,
        producer_epoch: int = -1,
        base_sequence: int = -1,
        transactional: bool = False,
        control: bool = False,
    ) -> None:
        self._codec = COMPRESSION_IDS[compression]
        self._attributes = self._codec
        if transactional:
            self._attributes |= TRANSACTIONAL_FLAG
        if control:
            self._attributes |= CONTROL_FLAG
        self._producer_id = producer_id
        self._producer_epoch = producer_epoch
        self._base_sequence = base_sequence
        self._timestamps: list[int] = []
        self._keys: list[bytes | None] = []
        self._values: list[bytes | None] = []
        self._headers: list[Iterable[tuple[str, bytes | None]]] = []
        self.size_bytes = BATCH_OVERHEAD
        """An upper bound of the batch's size before compression."""

    @property
    def record_count(self) -> int:
        return len(self._keys)

    def append(
        self,
        timestamp_ms: int,
        key: bytes | None,
        value: bytes | None,
        headers: Iterable[tuple[str, bytes | None]] = (),
    ) -> None:
        """Add a record, the next in offset and sequence."""
        self._timestamps.append(timestamp_ms)
        self._keys.append(key)
        self._values.append(value)
        self._headers.append(headers)
        size = 32
        if key is not None:
            size += len(key)
        if value is not None:
            size += len(value)
        for name, content in headers:
            size += 10 + 4 * len(name) + (len(content) if content is not None else 0)
        self.size_bytes += size

    def build(self, base_offset: int = 0, leader_epoch: int = -1) -> bytes:
        """The batch. May be called again, with another place in the log."""
        base_timestamp = self._timestamps[0] if self._timestamps else -1
        records = kernel.pack(
            [timestamp - base_timestamp for timestamp in self._timestamps], self._keys, self._values, self._headers
        )
        count = len(self._keys)
        header = BatchHeader(
            base_offset,
            0,
            leader_epoch,
            MAGIC,
            0,
            self._attributes,
            max(count - 1, 0),
            base_timestamp,
            max(self._timestamps, default=-1),
            self._producer_id,
            self._producer_epoch,
            self._base_sequence,
            count,
        )
        return bytes(write_header(header, compress(self._codec, records)))

"""Record batches: validated on the way in, read on the way out, built by producers.

A broker never unpacks a batch to store it: `validate_batch` walks its records where they are, decompressed once if need
be, and the batch is stored as it came.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from itertools import accumulate
from typing import Any, NamedTuple, TypeVar

from tidelog.base.errors import Code, MalformedBatchError, refusal
from tidelog.base.ids import TopicPartition
from tidelog.base.ports import Buffer
from tidelog.records._choose import KERNEL_IS_COMPILED, kernel, kernel_encode
from tidelog.records.compression import COMPRESSION_IDS, compress, decompress
from tidelog.records.crc32c import crc32c
from tidelog.records.header import (
    BATCH_OVERHEAD,
    COMPRESSION_MASK,
    CONTROL_FLAG,
    CRC_START,
    LOG_APPEND_TIME_FLAG,
    MAGIC,
    TRANSACTIONAL_FLAG,
    BatchHeader,
    as_sent,
    check_crc,
    read_header,
    split_batches,
    split_whole_batches,
    stamp,
    write_batch,
)

__all__ = [
    "BATCH_OVERHEAD",
    "DECOMPRESSED_SIZE_BYTES_MAX",
    "BatchBuilder",
    "BatchFacts",
    "BatchHeader",
    "Record",
    "as_sent",
    "check_crc",
    "find_records",
    "read_header",
    "read_plain_batch",
    "read_records",
    "read_records_of",
    "recompress_batch",
    "seal_batch",
    "split_batches",
    "split_whole_batches",
    "stamp",
    "validate_batch",
]

T = TypeVar("T")

DECOMPRESSED_SIZE_BYTES_MAX = 256 * 1024 * 1024
"""What readers allow one batch to grow to, unless they say otherwise."""

SCRATCH_BYTES = 1 << 20
"""Room that is kept for records that are only looked at: a new buffer costs as much as what is put into it."""

_scratches: list[bytearray] = []  # that nobody uses now

SIZE_BYTES_MAX = 0x7FFFFFFF
"""Of a batch: its length is an int32."""

RECORD_OVERHEAD_MAX = 5 + 1 + 10 + 5 + 5 + 5 + 5
"""The most bytes that a record has beside its key, its value and its headers."""

HEADER_OVERHEAD_MAX = 5 + 5
"""The most bytes that a record's header has beside its key and value."""

INT64_MIN = -(1 << 63)
INT64_MAX = (1 << 63) - 1

_Headers = Sequence[tuple[str, bytes | None]]
_Region = tuple[Buffer, int, int, int, int, int, int]
_BinaryBuffers = tuple[Buffer | None, Buffer | None, Buffer | None]


class BatchFacts(NamedTuple):
    """What was learnt by walking a batch's records."""

    record_count: int
    max_timestamp: int
    """ms since 1970; -1 if there are no records. Where the header says otherwise, `stamp` can put it right."""
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


_make_record = partial(tuple.__new__, Record)
_make_header = partial(tuple.__new__, BatchHeader)


def find_records(
    buffer: Buffer,
    position: int,
    header: BatchHeader,
    decompressed_size_bytes_max: int,
    scratch: bytearray | None = None,
) -> _Region:
    """The records of a batch, decompressed if need be, as the kernel's reading functions take them.

    Returns:
        (buffer, where the records start, where they end, how many there are to be, last offset delta, smallest
        timestamp delta, largest timestamp delta).

    Raises:
        MalformedBatchError: as `decompress`, and CORRUPT_MESSAGE for a batch that reaches beyond the buffer.
    """
    start = position + BATCH_OVERHEAD
    end = position + header.size_bytes
    if end > len(buffer):
        raise MalformedBatchError(
            f"the batch at offset {header.base_offset} has {header.size_bytes} bytes, "
            f"of which {len(buffer) - position} are here",
            position=position,
            code=Code.CORRUPT_MESSAGE,
        )
    codec = header.attributes & COMPRESSION_MASK
    if codec:
        records = memoryview(buffer)[start:end]
        buffer = decompress(codec, records, size_bytes_max=decompressed_size_bytes_max, scratch=scratch)
        start = 0
        end = len(buffer)
    if not KERNEL_IS_COMPILED:
        buffer = bytes(memoryview(buffer)[start:end])  # indexed twice as fast as a view
        start = 0
        end = len(buffer)
    delta_min, delta_max = INT64_MIN, INT64_MAX
    if not header.attributes & LOG_APPEND_TIME_FLAG:
        base_timestamp = header.base_timestamp
        if base_timestamp > 0:
            delta_max -= base_timestamp
        else:
            delta_min -= base_timestamp
    return buffer, start, end, header.record_count, header.last_offset_delta, delta_min, delta_max


def read_plain_batch(batch: Buffer) -> tuple[BatchHeader, int, int] | None:
    """Read and check the one batch that fills a buffer, as `read_header` and `validate_batch` do, but faster.

    Returns:
        (header, the largest timestamp of its records, how many have no key). None where those two have to look at it:
        it is malformed, or no such batch, or compressed, or the kernel is not compiled.
    """
    if not KERNEL_IS_COMPILED:
        return None
    found = kernel.read_plain(batch)
    if found is None:
        return None
    header = _make_header(found[0])
    return None if crc32c(memoryview(batch)[CRC_START:]) != header[4] else (header, found[1], found[2])


def validate_batch(
    buffer: Buffer,
    position: int,
    header: BatchHeader,
    *,
    decompressed_size_bytes_max: int = DECOMPRESSED_SIZE_BYTES_MAX,
    dense: bool = True,
) -> BatchFacts:
    """Check a batch's CRC, and that its records are what its header says. The batch itself is left as it is.

    A header's max timestamp that differs from the records' is no error, since clients exist that do not set it.

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
    if not header.attributes & COMPRESSION_MASK:
        region = find_records(buffer, position, header, decompressed_size_bytes_max)
        walked = kernel.walk(*region)
    else:
        try:
            scratch = _scratches.pop()
        except IndexError:  # each thread that is here at the same time has its own
            scratch = bytearray(SCRATCH_BYTES)
        try:
            region = find_records(buffer, position, header, decompressed_size_bytes_max, scratch)
            walked = kernel.walk(*region)
        finally:
            _scratches.append(scratch)
    largest, largest_at, last, keyless, _, is_dense = walked
    count = header.record_count
    if dense and (not is_dense or last != header.last_offset_delta or not count):
        raise _not_dense(header, position, last, is_dense)
    if header.attributes & LOG_APPEND_TIME_FLAG:
        max_timestamp = header.max_timestamp
        largest_at = 0
    else:
        max_timestamp = header.base_timestamp + largest if count else -1
    return tuple.__new__(BatchFacts, (count, max_timestamp, largest_at, keyless, region[2] - region[1], is_dense))


def _not_dense(header: BatchHeader, position: int, last: int, is_dense: bool) -> MalformedBatchError:
    if not header.record_count:
        what = "it holds no record"
    elif not is_dense:
        what = "its offset deltas are not 0, 1, 2 ..."
    else:
        what = f"its last record has offset delta {last}, its header says {header.last_offset_delta}"
    return MalformedBatchError(f"a batch of {header.record_count} records: {what}", position=position)


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
    return _unpack(buffer, position, header, header.leader_epoch, _make_record, None, -1, decompressed_size_bytes_max)


def read_records_of(
    topic_partition: TopicPartition, buffer: Buffer, position: int, header: BatchHeader, make: Callable[[Any], T]
) -> list[T]:
    """Read all records of one batch as a consumer is given them. As `read_records`, in one step.

    Args:
        topic_partition: where the batch is from.
        buffer, position, header: the batch.
        make: what makes a record of (topic, partition, offset, leader epoch or None, timestamp, timestamp type, key,
            value, headers).
    """
    epoch = header.leader_epoch if header.leader_epoch >= 0 else None
    topic, partition = topic_partition
    return _unpack(buffer, position, header, epoch, make, topic, partition, DECOMPRESSED_SIZE_BYTES_MAX)


def _unpack(  # noqa: PLR0917 - once per batch
    buffer: Buffer,
    position: int,
    header: BatchHeader,
    leader_epoch: int | None,
    make: Callable[[Any], T],
    topic: str | None,
    partition: int,
    decompressed_size_bytes_max: int,
) -> list[T]:
    base_offset = header.base_offset
    if base_offset < 0 or base_offset + header.last_offset_delta > INT64_MAX:
        raise MalformedBatchError(f"a base offset of {base_offset}", position=position)
    base_timestamp, scale = header.base_timestamp, 1
    if header.is_log_append_time:
        base_timestamp, scale = header.max_timestamp, 0
    region = find_records(buffer, position, header, decompressed_size_bytes_max)
    return kernel.unpack(
        *region, base_offset, base_timestamp, scale, leader_epoch, make, topic, partition, header.timestamp_type
    )


def recompress_batch(
    batch: Buffer,
    header: BatchHeader,
    codec: int,
    *,
    level: int | None = None,
    decompressed_size_bytes_max: int = DECOMPRESSED_SIZE_BYTES_MAX,
) -> bytes:
    """The same batch in another codec: all that its header says of its records is kept, its length and CRC are new.

    Args:
        batch: the whole of it.
        header: what `read_header` returned for it.
        codec: as in the attributes of a batch.
        level: see `compress`.
        decompressed_size_bytes_max: the most that compressed records may grow to.

    Raises:
        MalformedBatchError: as `decompress`.
    """
    records = decompress(
        header.compression, memoryview(batch)[BATCH_OVERHEAD:], size_bytes_max=decompressed_size_bytes_max
    )
    attributes = header.attributes & ~COMPRESSION_MASK | codec
    return write_batch(header._replace(attributes=attributes), compress(codec, records, level))


def seal_batch(
    records: Buffer,
    record_count: int,
    base_timestamp: int,
    max_timestamp: int,
    *,
    compression: str = "none",
    base_offset: int = 0,
    leader_epoch: int = -1,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    transactional: bool = False,
    control: bool = False,
) -> bytes:
    """A whole batch made of encoded records, not compressed yet, with offset deltas 0, 1, 2 ...

    Args:
        records: as `encode_columns` returns them.
        record_count: how many they are.
        base_timestamp: what their timestamp deltas were taken from, ms since 1970.
        max_timestamp: the largest of their timestamps.
        compression: `none`, `gzip`, `snappy`, `lz4` or `zstd`.
        base_offset, leader_epoch: what the leader would stamp.
        producer_id, producer_epoch, base_sequence: of an idempotent producer; -1 for none.
        transactional: whether the batch is part of a transaction.
        control: whether it holds a marker of the protocol.
    """
    codec = COMPRESSION_IDS[compression]
    header = BatchHeader(
        base_offset,
        0,
        leader_epoch,
        MAGIC,
        0,
        codec | (TRANSACTIONAL_FLAG if transactional else 0) | (CONTROL_FLAG if control else 0),
        max(record_count - 1, 0),
        base_timestamp,
        max_timestamp,
        producer_id,
        producer_epoch,
        base_sequence,
        record_count,
    )
    return write_batch(header, compress(codec, records))


class BatchBuilder:
    """Collects records and writes them as one batch. `records.columns` does it for columns, much faster."""

    __slots__ = (
        "_compression",
        "_header_count",
        "_headers",
        "_identity",
        "_keys",
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
        """See `seal_batch` for the arguments."""
        if compression not in COMPRESSION_IDS:
            raise ValueError(f"there is no compression {compression!r}: there are {', '.join(COMPRESSION_IDS)}")
        self._compression = compression
        self._identity = (producer_id, producer_epoch, base_sequence, transactional, control)
        self._timestamps: list[int] = []
        self._keys: list[bytes | None] = []
        self._values: list[bytes | None] = []
        self._headers: list[_Headers] = []
        self._header_count = 0
        self.size_bytes = BATCH_OVERHEAD
        """An upper bound of the batch's size, before compression."""

    @property
    def record_count(self) -> int:
        return len(self._timestamps)

    def append(self, timestamp_ms: int, key: bytes | None, value: bytes | None, headers: _Headers = ()) -> None:
        """Add a record, the next in offset and sequence.

        Args:
            timestamp_ms: since 1970; -1 for none.
            key: None for none.
            value: None marks the key as deleted, on a compacted topic.
            headers: names, as text, with their values.
        """
        self._timestamps.append(timestamp_ms)
        self._keys.append(key)
        self._values.append(value)
        self._headers.append(headers)
        size = RECORD_OVERHEAD_MAX
        if key is not None:
            size += len(key)
        if value is not None:
            size += len(value)
        if headers:
            self._header_count += len(headers)
            for name, content in headers:
                size += HEADER_OVERHEAD_MAX + 4 * len(name) + (len(content) if content is not None else 0)
        self.size_bytes += size

    def build(self, base_offset: int = 0, leader_epoch: int = -1) -> bytes:
        """The batch. May be called again, also for another place in the log.

        Raises:
            ValueError: a timestamp below -1.
            KafkaError: MESSAGE_TOO_LARGE: more than 2 GiB.
        """
        if self.size_bytes > SIZE_BYTES_MAX:
            raise refusal(Code.MESSAGE_TOO_LARGE, f"a batch of {self.size_bytes} bytes: 2 GiB is the most there can be")
        count = len(self._timestamps)
        base_timestamp = self._timestamps[0] if count else -1
        headers: tuple[Buffer | None, ...] = (None, None, None, None, None, None)
        if self._header_count:
            pairs = [pair for row in self._headers for pair in row]
            names, _, name_data = _as_column([name.encode() for name, _ in pairs])
            headers = (_ends(map(len, self._headers)), names, name_data, *_as_column([value for _, value in pairs]))
        out = bytearray(self.size_bytes)
        _, size, max_timestamp = kernel_encode.encode(
            out,
            len(out),
            0,
            count,
            base_timestamp,
            array("q", self._timestamps),
            *_as_column(self._keys, may_be_left_out=True),
            *_as_column(self._values, may_be_left_out=True),
            *(*headers, None),
        )
        producer_id, producer_epoch, base_sequence, transactional, control = self._identity
        return seal_batch(
            memoryview(out)[:size],
            count,
            base_timestamp,
            max_timestamp,
            compression=self._compression,
            base_offset=base_offset,
            leader_epoch=leader_epoch,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            base_sequence=base_sequence,
            transactional=transactional,
            control=control,
        )


def _as_column(values: Sequence[bytes | None], *, may_be_left_out: bool = False) -> _BinaryBuffers:
    """(offsets, validity or None, data), as `kernel_encode.encode` takes them; (None, None, None) if all are null."""
    nulls = values.count(None)
    if may_be_left_out and nulls == len(values):
        return None, None, None
    validity = None
    if nulls:
        validity = bytearray(b"\xff") * ((len(values) + 7) // 8)
        for row, value in enumerate(values):
            if value is None:
                validity[row >> 3] &= ~(1 << (row & 7)) & 0xFF
        values = [value or b"" for value in values]
    return _ends(map(len, values)), validity, b"".join(values)  # type: ignore[arg-type]  # none is None any more


def _ends(lengths: Iterable[int]) -> Buffer:
    return memoryview(array("i", accumulate(lengths, initial=0)))

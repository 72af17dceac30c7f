"""The 61 bytes in front of every record batch (message format 2), read and stamped in place.

byte   0  base offset        int64    not under the CRC: stamped by the leader
byte   8  batch length       int32    of what follows this field
byte  12  leader epoch       int32    not under the CRC: stamped by the leader (KIP-101)
byte  16  magic              int8     2
byte  17  CRC                uint32   CRC32C of everything from byte 21 to the end
byte  21  attributes         int16    bits 0-2 compression, 3 timestamp type, 4 transactional, 5 control,
                                      6: the base timestamp is the delete horizon (KIP-534)
byte  23  last offset delta  int32
byte  27  base timestamp     int64    ms since 1970; the records hold differences from it
byte  35  max timestamp      int64    ms since 1970
byte  43  producer id        int64    -1: not idempotent
byte  51  producer epoch     int16
byte  53  base sequence      int32
byte  57  record count       int32
byte  61  the records, compressed as one piece if at all
"""

from __future__ import annotations

from struct import Struct
from typing import NamedTuple

from tidelog.base.errors import Code, MalformedBatchError
from tidelog.base.ports import Buffer
from tidelog.records.crc32c import crc32c

BATCH_OVERHEAD = 61
"""Bytes of a batch before its records."""

MAGIC = 2
COMPRESSION_MASK = 0x07
LOG_APPEND_TIME_FLAG = 0x08
TRANSACTIONAL_FLAG = 0x10
CONTROL_FLAG = 0x20
DELETE_HORIZON_FLAG = 0x40

LENGTH_END = 12
_MAGIC_AT = 16
_CRC_AT = 17
CRC_START = 21
_MAX_TIMESTAMP_AT = 35
_LAYOUT = Struct(">qiibIhiqqqhii")
_BASE_OFFSET_AND_LENGTH = Struct(">qi")
_INT16 = Struct(">h")
_INT32 = Struct(">i")
_UINT32 = Struct(">I")
_INT64 = Struct(">q")


class BatchHeader(NamedTuple):
    """A batch's header as it stands on the wire: -1 is kept here where Kafka means "none"."""

    base_offset: int
    size_bytes: int
    """Of the whole batch, its header included."""
    leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int

    @property
    def compression(self) -> int:
        """The number of the codec; 0 is none. `records.compression` has the names."""
        return self.attributes & COMPRESSION_MASK

    @property
    def is_log_append_time(self) -> bool:
        """Whether the leader's clock gave all records the timestamp `max_timestamp`."""
        return bool(self.attributes & LOG_APPEND_TIME_FLAG)

    @property
    def timestamp_type(self) -> str:
        """`CreateTime` or `LogAppendTime`."""
        return "LogAppendTime" if self.attributes & LOG_APPEND_TIME_FLAG else "CreateTime"

    @property
    def is_transactional(self) -> bool:
        return bool(self.attributes & TRANSACTIONAL_FLAG)

    @property
    def is_control(self) -> bool:
        """Whether its records are markers of the protocol, which no reader is to be shown."""
        return bool(self.attributes & CONTROL_FLAG)

    @property
    def delete_horizon_ms(self) -> int | None:
        """From when on compaction may remove the batch's marks of deleted keys; None until it has come by once."""
        return self.base_timestamp if self.attributes & DELETE_HORIZON_FLAG else None

    @property
    def last_offset(self) -> int:
        """Inclusive. Holds whatever compaction removed: it may be the offset of no record."""
        return self.base_offset + self.last_offset_delta

    @property
    def next_offset(self) -> int:
        return self.base_offset + self.last_offset_delta + 1

    @property
    def last_sequence(self) -> int:
        """Inclusive; sequences wrap from 2^31 - 1 to 0. -1 if the batch has none."""
        if self.base_sequence < 0:
            return -1
        return (self.base_sequence + self.last_offset_delta) & 0x7FFFFFFF


def read_header(buffer: Buffer, position: int = 0) -> BatchHeader:
    """Read the header that starts at `position`. The batch's records need not be in `buffer`.

    Raises:
        MalformedBatchError: UNSUPPORTED_FOR_MESSAGE_FORMAT for the formats before 2, which are not stored;
            CORRUPT_MESSAGE where there is no whole header, or one that no batch can have.
    """
    if len(buffer) - position < BATCH_OVERHEAD:
        raise _too_short(buffer, position)
    (
        base_offset,
        length,
        leader_epoch,
        magic,
        crc,
        attributes,
        last_offset_delta,
        base_timestamp,
        max_timestamp,
        producer_id,
        producer_epoch,
        base_sequence,
        record_count,
    ) = _LAYOUT.unpack_from(buffer, position)
    if magic != MAGIC:
        raise _wrong_magic(magic, position)
    if length < BATCH_OVERHEAD - LENGTH_END:
        raise MalformedBatchError(
            f"a batch length of {length} leaves no room for its header", position=position, code=Code.CORRUPT_MESSAGE
        )
    if record_count < 0 or last_offset_delta < 0:
        raise MalformedBatchError(
            f"a batch of {record_count} records and a last offset delta of {last_offset_delta}",
            position=position,
            code=Code.CORRUPT_MESSAGE,
        )
    return tuple.__new__(
        BatchHeader,
        (
            base_offset,
            length + LENGTH_END,
            leader_epoch,
            magic,
            crc,
            attributes,
            last_offset_delta,
            base_timestamp,
            max_timestamp,
            producer_id,
            producer_epoch,
            base_sequence,
            record_count,
        ),
    )


def _too_short(buffer: Buffer, position: int) -> MalformedBatchError:
    if len(buffer) - position > _MAGIC_AT and buffer[position + _MAGIC_AT] != MAGIC:
        return _wrong_magic(buffer[position + _MAGIC_AT], position)
    return MalformedBatchError(
        f"{len(buffer) - position} bytes are left where a batch header of {BATCH_OVERHEAD} is expected",
        position=position,
        code=Code.CORRUPT_MESSAGE,
    )


def _wrong_magic(magic: int, position: int) -> MalformedBatchError:
    if magic in (0, 1):
        return MalformedBatchError(
            f"message format {magic} is not stored: use a client that writes format {MAGIC} (Kafka 0.11 and later)",
            position=position,
            code=Code.UNSUPPORTED_FOR_MESSAGE_FORMAT,
        )
    return MalformedBatchError(f"magic {magic} is not a message format", position=position, code=Code.CORRUPT_MESSAGE)


def split_batches(buffer: Buffer) -> list[tuple[int, BatchHeader]]:
    """Where each batch in `buffer` starts, with its header; every one is whole.

    Raises:
        MalformedBatchError: as `read_header`, and CORRUPT_MESSAGE for a batch that reaches beyond the buffer.
    """
    batches = []
    position = 0
    end = len(buffer)
    while position < end:
        header = read_header(buffer, position)
        if header.size_bytes > end - position:
            raise _cut_short(header, position, end)
        batches.append((position, header))
        position += header.size_bytes
    return batches


def split_whole_batches(buffer: Buffer) -> list[tuple[int, BatchHeader]]:
    """As `split_batches`, but a last batch that is cut short is left out: what a Fetch may return.

    Raises:
        MalformedBatchError: as `read_header`, for the batches that are whole.
    """
    batches = []
    position = 0
    end = len(buffer)
    while end - position >= LENGTH_END:
        length = _BASE_OFFSET_AND_LENGTH.unpack_from(buffer, position)[1]
        if length >= 0 and length + LENGTH_END > end - position:
            break
        header = read_header(buffer, position)
        batches.append((position, header))
        position += header.size_bytes
    return batches


def as_sent(error: MalformedBatchError, buffer: Buffer) -> MalformedBatchError:
    """What `split_batches` found wrong, for who sent the bytes: CORRUPT_MESSAGE asks for them once more.

    That helps where they were damaged on the way. Where less was sent than a batch announces, or the checksum of a
    header that no batch can have is right, they are what was meant: INVALID_RECORD, as in Kafka.
    """
    position = error.position
    left = len(buffer) - position
    if error.code is not Code.CORRUPT_MESSAGE:
        return error
    if left > _MAGIC_AT:
        length, magic = _INT32.unpack_from(buffer, position + 8)[0], buffer[position + _MAGIC_AT]
        if magic != MAGIC or length < BATCH_OVERHEAD - LENGTH_END:
            return error
        if length + LENGTH_END <= left and not _is_intact(buffer, position, length):
            return error
    if position and not _is_intact(buffer, 0, read_header(buffer).size_bytes - LENGTH_END):
        return error  # what comes behind a damaged length says nothing
    return MalformedBatchError(str(error), position=position)


def _is_intact(buffer: Buffer, position: int, length: int) -> bool:
    end = position + LENGTH_END + length
    crc: int = _UINT32.unpack_from(buffer, position + _CRC_AT)[0]
    return crc32c(memoryview(buffer)[position + CRC_START : end]) == crc


def check_crc(buffer: Buffer, position: int, header: BatchHeader) -> None:
    """Compare the batch's checksum with its bytes.

    Raises:
        MalformedBatchError: CORRUPT_MESSAGE; the bytes are not those that the producer sent.
    """
    end = position + header.size_bytes
    if end > len(buffer):
        raise _cut_short(header, position, len(buffer))
    actual = crc32c(memoryview(buffer)[position + CRC_START : end])
    if actual != header.crc:
        raise MalformedBatchError(
            f"the batch at offset {header.base_offset} has CRC {header.crc:#010x}, its bytes give {actual:#010x}",
            position=position,
            code=Code.CORRUPT_MESSAGE,
        )


def stamp(
    buffer: bytearray | memoryview,
    position: int,
    base_offset: int,
    leader_epoch: int,
    *,
    log_append_time: int | None = None,
    max_timestamp: int | None = None,
) -> None:
    """Give the batch its place in the log, in place.

    Args:
        buffer: writable; the batch in it is whole.
        position: where the batch starts.
        base_offset: of its first record.
        leader_epoch: of the leader that appends it (KIP-101).
        log_append_time: ms since 1970: becomes the timestamp of all its records.
        max_timestamp: ms since 1970: what the records really hold, where a client's header said otherwise (some
            clients leave it out). This and `log_append_time` alone touch bytes under the CRC, computed anew then.
    """
    _INT64.pack_into(buffer, position, base_offset)
    _INT32.pack_into(buffer, position + LENGTH_END, leader_epoch)
    if log_append_time is not None or max_timestamp is not None:
        if log_append_time is not None:
            attributes = _INT16.unpack_from(buffer, position + CRC_START)[0] | LOG_APPEND_TIME_FLAG
            _INT16.pack_into(buffer, position + CRC_START, attributes)
            max_timestamp = log_append_time
        _INT64.pack_into(buffer, position + _MAX_TIMESTAMP_AT, max_timestamp)
        end = position + LENGTH_END + _BASE_OFFSET_AND_LENGTH.unpack_from(buffer, position)[1]
        _UINT32.pack_into(buffer, position + _CRC_AT, crc32c(memoryview(buffer)[position + CRC_START : end]))


def write_batch(header: BatchHeader, records: Buffer) -> bytes:
    """A whole batch: `header`, its `size_bytes` and `crc` replaced by what `records` give, and `records` behind it."""
    head = bytearray(BATCH_OVERHEAD)
    length = BATCH_OVERHEAD - LENGTH_END + len(records)
    _LAYOUT.pack_into(head, 0, header[0], length, header[2], header[3], 0, *header[5:])
    _UINT32.pack_into(head, _CRC_AT, crc32c(records, crc32c(memoryview(head)[CRC_START:])))
    return b"".join((head, records))


def _cut_short(header: BatchHeader, position: int, end: int) -> MalformedBatchError:
    return MalformedBatchError(
        f"the batch at offset {header.base_offset} has {header.size_bytes} bytes, of which {end - position} are here",
        position=position,
        code=Code.CORRUPT_MESSAGE,
    )

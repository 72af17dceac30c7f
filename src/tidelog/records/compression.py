"""The codecs of record batches: gzip, snappy, lz4, zstd; decompression never grows past what it was given leave for.

Snappy comes in two framings: raw, one block, as librdkafka writes it, and xerial, as Java does:

    82 'SNAPPY' 00 | version int32 1 | compatible int32 1 | { block length int32 | raw snappy block } ...

Both are read; xerial is written, in blocks of 32 KiB, since every client reads it. Lz4 is the frame format, its blocks
independent of each other, since Java reads no others.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from struct import Struct

import cramjam

from tidelog.base.errors import Code, DecompressedTooLargeError, KafkaError, MalformedBatchError, refusal
from tidelog.base.ports import Buffer

NONE, GZIP, SNAPPY, LZ4, ZSTD = range(5)
COMPRESSION_IDS = {"none": NONE, "gzip": GZIP, "snappy": SNAPPY, "lz4": LZ4, "zstd": ZSTD}
COMPRESSION_NAMES = {number: name for name, number in COMPRESSION_IDS.items()}

DEFAULT_LEVELS = {GZIP: 6, LZ4: 4, ZSTD: 3}
_XERIAL_MAGIC = b"\x82SNAPPY\x00"
_XERIAL_HEADER = _XERIAL_MAGIC + b"\x00\x00\x00\x01\x00\x00\x00\x01"
_XERIAL_BLOCK_BYTES = 32 * 1024
_BLOCK_LENGTH = Struct(">i")

_GZIP_TRAILER = Struct("<I")
_ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"
_FIRST_GUESS_BYTES_MIN = 16 * 1024
_FIRST_GUESS_RATIO = 6
_TRUSTED_RATIO = 64  # a size that the data claims is believed, and reserved, up to here
_GROWTH = 4
_SNAPPY_RATIO_MAX = 32  # three bytes copy 64 at the most, hence 22 to 1
_TOO_SMALL = "whole buffer"  # in what cramjam says when the output ends before the input does


BRIEF_SIZE_BYTES_MAX = {GZIP: 512, SNAPPY: 128 * 1024, LZ4: 128 * 1024, ZSTD: 64 * 1024}
"""What takes three milliseconds at most: a kilobyte of gzip may have 800 blocks, and hold nothing."""
_BRIEF_BLOCKS_MAX = 16


def may_take_long(codec: int, data: Buffer) -> bool:
    """Whether it may take more than a few milliseconds to decompress it, however little it holds."""
    if len(data) > BRIEF_SIZE_BYTES_MAX.get(codec, len(data)):
        return True
    if codec != SNAPPY:
        return False
    try:
        return sum(1 for _ in islice(_snappy_blocks(memoryview(data)), _BRIEF_BLOCKS_MAX + 1)) > _BRIEF_BLOCKS_MAX
    except MalformedBatchError:
        return False  # which is found out again


def compress(codec: int, data: Buffer, level: int | None = None) -> Buffer:
    """Compress the records of a batch as one piece.

    Args:
        codec: as in the attributes of a batch; 0 returns `data` itself.
        data: any contiguous buffer.
        level: the codec's own, the higher the smaller and slower; None for ours. Snappy has none.

    Raises:
        KafkaError: UNSUPPORTED_COMPRESSION_TYPE for a number that is no codec's.
    """
    if codec == NONE:
        return data
    if codec == SNAPPY:
        return _compress_xerial(data)
    if level is None:
        level = DEFAULT_LEVELS.get(codec)
    if codec == GZIP:
        return bytes(cramjam.gzip.compress(data, level=level))
    if codec == LZ4:
        compressor = cramjam.lz4.Compressor(level=level, content_checksum=False, block_linked=False)
        compressor.compress(bytes(data))
        return bytes(compressor.finish())
    if codec == ZSTD:
        return bytes(cramjam.zstd.compress(data, level=level))
    raise _no_such_codec(codec)


def decompress(codec: int, data: Buffer, *, size_bytes_max: int, scratch: bytearray | None = None) -> Buffer:
    """Decompress the records of a batch, once, into a buffer that is the caller's, or into a scratch.

    Args:
        codec: as in the attributes of a batch; 0 returns `data` itself.
        data: the whole of the compressed records.
        size_bytes_max: the most they may grow to. What claims to be larger is refused before any of it is
            decompressed; what claims to be smaller and is larger, when it reaches the limit.
        scratch: overwritten where they fit, and then part of it is returned; None for a buffer of their own.

    Raises:
        MalformedBatchError: INVALID_RECORD: the data is not of its codec, is cut short, or has bytes left over.
        DecompressedTooLargeError: it exceeds the limit, which the error names.
        KafkaError: UNSUPPORTED_COMPRESSION_TYPE for a number that is no codec's.
    """
    if codec == NONE:
        return data
    if codec == SNAPPY:
        return _decompress_snappy(data, size_bytes_max, scratch)
    if codec == GZIP:
        into = cramjam.gzip.decompress_into
        claimed = _GZIP_TRAILER.unpack_from(data, len(data) - 4)[0] if len(data) >= 18 else None
    elif codec == LZ4:
        into = cramjam.lz4.decompress_into
        claimed = None
    elif codec == ZSTD:
        into = cramjam.zstd.decompress_into
        claimed = _zstd_content_size(data)
    else:
        raise _no_such_codec(codec)
    if claimed is not None and claimed > size_bytes_max:
        raise _too_large(codec, size_bytes_max)
    size = max(_FIRST_GUESS_BYTES_MIN, len(data) * _FIRST_GUESS_RATIO)
    if claimed is not None:
        size = min(claimed, max(size, len(data) * _TRUSTED_RATIO))
    elif scratch is not None:
        size = max(size, len(scratch))
    while True:
        size = min(size, size_bytes_max)
        output = _room(size, scratch)
        try:
            written = into(data, output)
        except cramjam.DecompressionError as error:
            if _TOO_SMALL not in str(error):
                raise _corrupt(codec, str(error)) from None
            if size == size_bytes_max:
                raise _too_large(codec, size_bytes_max) from None
            size = max(size, _FIRST_GUESS_BYTES_MIN) * _GROWTH
        else:
            return output[:written]


def _room(size: int, scratch: bytearray | None) -> memoryview:
    """So much of it, or as much of a new buffer, whose bytes all have to be set to zero first."""
    return memoryview(scratch if scratch is not None and size <= len(scratch) else bytearray(size))[:size]


def _compress_xerial(data: Buffer) -> bytes:
    view = memoryview(data)
    pieces = [_XERIAL_HEADER]
    for start in range(0, len(view), _XERIAL_BLOCK_BYTES):
        block = bytes(cramjam.snappy.compress_raw(view[start : start + _XERIAL_BLOCK_BYTES]))
        pieces += (_BLOCK_LENGTH.pack(len(block)), block)
    return b"".join(pieces)


def _decompress_snappy(data: Buffer, size_bytes_max: int, scratch: bytearray | None) -> Buffer:
    view = memoryview(data)
    total = sum(_snappy_size(block) for block in _snappy_blocks(view))
    if total > size_bytes_max:
        raise _too_large(SNAPPY, size_bytes_max)
    output = _room(total, scratch)
    position = 0
    for block in _snappy_blocks(view):
        size = _snappy_size(block)
        if size:
            try:
                cramjam.snappy.decompress_raw_into(block, output[position : position + size])
            except cramjam.DecompressionError as error:
                raise _corrupt(SNAPPY, str(error)) from None
        position += size
    return output


def _snappy_size(block: memoryview) -> int:
    """What a block claims to hold, if that can be."""
    try:
        size = cramjam.snappy.decompress_raw_len(block)
    except cramjam.DecompressionError as error:
        raise _corrupt(SNAPPY, str(error)) from None
    if size > len(block) * _SNAPPY_RATIO_MAX:
        raise _corrupt(SNAPPY, f"{len(block)} bytes cannot hold the {size} they claim")
    return int(size)


def _snappy_blocks(view: memoryview) -> Iterator[memoryview]:
    """The raw blocks of either framing, one at a time: there may be very many."""
    if view[:8] != _XERIAL_MAGIC:
        yield view
        return
    position = len(_XERIAL_HEADER)
    if len(view) < position:
        raise _corrupt(SNAPPY, "its header is cut short")
    while position < len(view):
        start = position + _BLOCK_LENGTH.size
        if start > len(view):
            raise _corrupt(SNAPPY, "a block length is cut short")
        length = _BLOCK_LENGTH.unpack_from(view, position)[0]
        if not 0 < length <= len(view) - start:
            raise _corrupt(SNAPPY, f"a block of {length} bytes, where {len(view) - start} are left")
        yield view[start : start + length]
        position = start + length


def _zstd_content_size(data: Buffer) -> int | None:
    """What the first frame's header says its content is, if it says so (RFC 8878, 3.1.1.1)."""
    head = bytes(data[:18])
    if len(head) < 18 or head[:4] != _ZSTD_MAGIC:
        return None
    descriptor = head[4]
    is_single_segment = descriptor >> 5 & 1
    size_length = (is_single_segment, 2, 4, 8)[descriptor >> 6]
    if not size_length:
        return None
    start = 5 + (not is_single_segment) + (0, 1, 2, 4)[descriptor & 3]
    size = int.from_bytes(head[start : start + size_length], "little")
    return size + 256 if size_length == 2 else size


def _corrupt(codec: int, why: str) -> MalformedBatchError:
    return MalformedBatchError(f"the records are not valid {COMPRESSION_NAMES[codec]}: {why}", position=0)


def _too_large(codec: int, size_bytes_max: int) -> DecompressedTooLargeError:
    return DecompressedTooLargeError(
        f"the {COMPRESSION_NAMES[codec]} records decompress to more than the limit of {size_bytes_max} bytes: "
        "send smaller batches",
        position=0,
    )


def _no_such_codec(codec: int) -> KafkaError:
    return refusal(Code.UNSUPPORTED_COMPRESSION_TYPE, f"there is no compression type {codec}")

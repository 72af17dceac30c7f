"""The codecs of record batches: gzip, snappy, lz4, zstd; decompression into no more than it was given leave for."""

from __future__ import annotations

from tidelog.base.errors import Code, MalformedBatchError, refusal
from tidelog.base.ports import Buffer

NONE, GZIP, SNAPPY, LZ4, ZSTD = range(5)
COMPRESSION_IDS = {"none": NONE, "gzip": GZIP, "snappy": SNAPPY, "lz4": LZ4, "zstd": ZSTD}
COMPRESSION_NAMES = {number: name for name, number in COMPRESSION_IDS.items()}


def compress(codec: int, data: Buffer) -> Buffer:
    """Compress the records of a batch as one piece. A codec of 0 returns `data` itself."""
    if codec == NONE:
        return data
    raise refusal(Code.UNSUPPORTED_COMPRESSION_TYPE, f"there is no compression type {codec}")


def decompress(codec: int, data: Buffer, *, size_bytes_max: int) -> Buffer:
    """Decompress the records of a batch, into `size_bytes_max` bytes at the most."""
    raise MalformedBatchError(f"compression type {codec} is not one", position=0)

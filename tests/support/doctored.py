"""Batches that lie, written without the code that is to catch them."""

from __future__ import annotations

import struct
import zlib

import cramjam
from crc32c import crc32c

MAGIC_AT, CRC_AT, CRC_START, RECORDS_AT = 16, 17, 21, 61

# Field of a batch header: where it is, how it is packed.
FIELDS = {
    "base_offset": (0, ">q"),
    "length": (8, ">i"),
    "leader_epoch": (12, ">i"),
    "magic": (16, ">b"),
    "attributes": (21, ">h"),
    "last_offset_delta": (23, ">i"),
    "base_timestamp": (27, ">q"),
    "max_timestamp": (35, ">q"),
    "producer_id": (43, ">q"),
    "producer_epoch": (51, ">h"),
    "base_sequence": (53, ">i"),
    "count": (57, ">i"),
}
GZIP, SNAPPY, LZ4, ZSTD = 1, 2, 3, 4
MEGABYTE = 1 << 20


def doctored(batch: bytes, **fields: int) -> bytes:
    """The batch with some of its header's fields replaced, and with the CRC that they give."""
    changed = bytearray(batch)
    for name, value in fields.items():
        position, layout = FIELDS[name]
        struct.pack_into(layout, changed, position, value)
    struct.pack_into(">I", changed, CRC_AT, crc32c(bytes(changed[CRC_START:])))
    return bytes(changed)


def batch_around(records: bytes, *, count: int = 1, **fields: int) -> bytes:
    """A batch with these bytes where its records should be."""
    header = bytearray(RECORDS_AT)
    defaults = {
        "length": RECORDS_AT - 12 + len(records),
        "magic": 2,
        "last_offset_delta": count - 1,
        "base_timestamp": 1_700_000_000_000,
        "max_timestamp": 1_700_000_000_000,
        "producer_id": -1,
        "producer_epoch": -1,
        "base_sequence": -1,
        "count": count,
    }
    return doctored(bytes(header) + records, **(defaults | fields))


def varint(value: int) -> bytes:
    """Zigzag, as records have it."""
    left = value << 1 if value >= 0 else (-value << 1) - 1
    out = bytearray()
    while left >= 0x80:
        out.append(left & 0x7F | 0x80)
        left >>= 7
    out.append(left)
    return bytes(out)


def record(
    value: bytes = b"value",
    *,
    offset_delta: int = 0,
    timestamp_delta: int = 0,
    length: int | None = None,
    key_length: int = -1,
    value_length: int | None = None,
    header_count: int = 0,
    rest: bytes = b"",
) -> bytes:
    """One record; each length can be made to lie. `rest` follows the header count."""
    body = b"".join(
        (
            b"\0",
            varint(timestamp_delta),
            varint(offset_delta),
            varint(key_length),
            varint(len(value) if value_length is None else value_length),
            value,
            varint(header_count),
            rest,
        )
    )
    return varint(len(body) if length is None else length) + body


def message_of_format(magic: int) -> bytes:
    """A whole message of the formats 0 and 1, as old producers sent them."""
    content = struct.pack(">bb", magic, 0)
    if magic:
        content += struct.pack(">q", 1_700_000_000_000)
    content += struct.pack(">i", -1) + struct.pack(">i", 5) + b"value"
    message = struct.pack(">I", zlib.crc32(content)) + content
    return struct.pack(">qi", 0, len(message)) + message


def gzip_bomb(megabytes: int) -> bytes:
    """About a kilobyte for each megabyte of zeros."""
    packer = zlib.compressobj(9, zlib.DEFLATED, -15)
    first = packer.compress(bytes(MEGABYTE)) + packer.flush(zlib.Z_FULL_FLUSH)
    # After a full flush nothing refers back: the same bytes may come again, as often as we like.
    last = packer.flush(zlib.Z_FINISH)
    trailer = struct.pack("<II", 0, MEGABYTE)  # it claims to be one megabyte
    return b"\x1f\x8b\x08\0\0\0\0\0\0\xff" + first * megabytes + last + trailer


def zstd_bomb(megabytes: int) -> bytes:
    """32 bytes for each megabyte: blocks of 128 KiB that are one byte, repeated."""
    size = 128 * 1024
    block = (size << 3 | 1 << 1).to_bytes(3, "little") + b"\0"
    last = (size << 3 | 1 << 1 | 1).to_bytes(3, "little") + b"\0"
    return b"\x28\xb5\x2f\xfd" + b"\x00\x58" + block * (8 * megabytes - 1) + last


def lz4_bomb(size_bytes: int) -> bytes:
    """`size_bytes` of blocks that each hold 4 MiB of zeros in 16 KiB: 255 times as much comes out."""
    block = bytes(cramjam.lz4.compress_block(bytes(4 * MEGABYTE), store_size=False))
    framed = struct.pack("<I", len(block)) + block
    frame = bytes(cramjam.lz4.compress(b""))
    head = frame[:4] + b"\x60\x70"  # version 1, independent blocks of 4 MiB, no sizes, no checksums
    return head + bytes([_lz4_header_checksum(head[4:])]) + framed * (size_bytes // len(framed)) + bytes(4)


def _lz4_header_checksum(descriptor: bytes) -> int:
    """The second byte of xxh32 with seed 0, for inputs shorter than 16 bytes (as the frame's descriptor is)."""
    prime2, prime3, prime4, prime5, prime1 = 2246822519, 3266489917, 668265263, 374761393, 2654435761
    mask = 0xFFFFFFFF

    def rotated(number: int, by: int) -> int:
        return (number << by | number >> (32 - by)) & mask

    state = prime5 + len(descriptor) & mask
    for start in range(0, len(descriptor) - 3, 4):
        (word,) = struct.unpack_from("<I", descriptor, start)
        state = rotated(state + word * prime3 & mask, 17) * prime4 & mask
    for byte in descriptor[len(descriptor) & ~3 :]:
        state = rotated(state + byte * prime5 & mask, 11) * prime1 & mask
    state = (state ^ state >> 15) * prime2 & mask
    state = (state ^ state >> 13) * prime3 & mask
    return (state ^ state >> 16) >> 8 & 0xFF


def snappy_lie(claimed_bytes: int) -> bytes:
    """A raw block that claims to hold so much, and holds nothing like it."""
    out = bytearray()
    left = claimed_bytes
    while left >= 0x80:
        out.append(left & 0x7F | 0x80)
        left >>= 7
    out.append(left)
    return bytes(out) + b"\x00a"


def bombs() -> dict[str, tuple[int, bytes]]:
    """Name to (codec, records): each less than a megabyte, and much more when it is decompressed."""
    return {
        "gzip, a gigabyte": (GZIP, gzip_bomb(1_000)),
        "zstd, 16 gigabytes": (ZSTD, zstd_bomb(16_000)),
        "lz4, 240 megabytes": (LZ4, lz4_bomb(1_000_000)),
        "snappy, 4 gigabytes claimed": (SNAPPY, snappy_lie(0xFFFFFFFF)),
        "snappy, claimed in a xerial block": (
            SNAPPY,
            b"\x82SNAPPY\0" + struct.pack(">iii", 1, 1, 7) + snappy_lie(0xFFFFFFFF),
        ),
    }

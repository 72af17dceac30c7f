"""Compressed batches on the event loop: those are checked there that take little; the others on another thread."""

from __future__ import annotations

import random
import struct
import zlib

import cramjam
import pytest

from support.fixtures.logs import NOW_MS, make_batch, open_log
from support.fixtures.memory_disk import MemoryDisk
from tidelog.log import Checked, TakesLongError
from tidelog.log.append import AT_ONCE_BYTES_MAX
from tidelog.records.batch import BATCH_OVERHEAD, read_header
from tidelog.records.compression import BRIEF_SIZE_BYTES_MAX, COMPRESSION_IDS, SNAPPY
from tidelog.records.header import write_batch

CODECS = ["gzip", "snappy", "lz4", "zstd"]
OVERHEAD = 200


def check(batch: bytes | bytearray, *, at_once: bool = True) -> Checked:
    rules = open_log(MemoryDisk()).rules
    return rules.check_for_leader(memoryview(bytearray(batch)), now_ms=NOW_MS, origin="client", at_once=at_once)


@pytest.mark.parametrize("codec", CODECS)
def test_what_stays_below_the_limit_is_checked_at_once(codec: str) -> None:
    """However well it is compressed."""
    brief = BRIEF_SIZE_BYTES_MAX[COMPRESSION_IDS[codec]]
    size_bytes = min(AT_ONCE_BYTES_MAX - OVERHEAD, 100 * brief)
    noise = random.Random(7).randbytes(brief // 3)
    for value in (bytes(size_bytes), noise + bytes(size_bytes - len(noise))):
        batch = make_batch(value, compression=codec)
        assert check(batch).accepted == check(batch, at_once=False).accepted


@pytest.mark.parametrize("codec", CODECS)
def test_what_grows_beyond_it_is_for_another_thread(codec: str) -> None:
    batch = make_batch(bytes(AT_ONCE_BYTES_MAX), compression=codec)
    with pytest.raises(TakesLongError):
        check(batch)
    assert check(batch, at_once=False).accepted


def gzip_of_empty_blocks(size_bytes: int, data: bytes) -> bytes:
    """Thousands of blocks of ten bits that hold nothing, and then the data."""
    count = size_bytes * 8 // 10
    blocks = bytearray(size_bytes + 8)
    for bit in range(1, count * 10, 10):
        blocks[bit >> 3] |= 1 << (bit & 7)
    last = count * 10
    blocks[last >> 3] |= 1 << (last & 7)
    stored = struct.pack("<HH", len(data), len(data) ^ 0xFFFF) + data
    header = b"\x1f\x8b\x08\0\0\0\0\0\0\xff"
    return header + bytes(blocks[: (last + 10) // 8]) + stored + struct.pack("<II", zlib.crc32(data), len(data))


def snappy_of_small_blocks(size_bytes: int, data: bytes) -> bytes:
    """Java's framing, a byte in each block."""
    blocks = [bytes(cramjam.snappy.compress_raw(data[at : at + 1])) for at in range(len(data))]
    blocks += [b"\0"] * (size_bytes // 5)
    framed = b"".join(struct.pack(">i", len(block)) + block for block in blocks)
    return b"\x82SNAPPY\x00" + struct.pack(">ii", 1, 1) + framed


def zstd_of_small_frames(size_bytes: int, data: bytes) -> bytes:
    frames = [bytes(cramjam.zstd.compress(data[at : at + 1])) for at in range(len(data))]
    empty = bytes(cramjam.zstd.compress(b""))
    return b"".join(frames) + empty * (size_bytes // len(empty))


@pytest.mark.parametrize(
    ("codec", "pack"),
    [("gzip", gzip_of_empty_blocks), ("snappy", snappy_of_small_blocks), ("zstd", zstd_of_small_frames)],
)
def test_what_takes_long_and_holds_nothing_is_for_another_thread(codec: str, pack: object) -> None:
    """15 kB of gzip took 50 ms and held eight bytes."""
    plain = make_batch("x")
    number = COMPRESSION_IDS[codec]
    payload = pack(max(15_000, BRIEF_SIZE_BYTES_MAX[number]), bytes(plain[BATCH_OVERHEAD:]))  # type: ignore[operator]
    batch = write_batch(read_header(plain)._replace(attributes=number), payload)
    with pytest.raises(TakesLongError):
        check(batch)
    assert check(batch, at_once=False).accepted[0].header.record_count == 1


def test_snappy_that_is_cut_short_is_refused_as_such() -> None:
    plain = make_batch("x", compression="snappy")
    payload = bytes(plain[BATCH_OVERHEAD:])
    batch = write_batch(read_header(plain)._replace(attributes=SNAPPY), payload[:-1])
    for at_once in (True, False):
        with pytest.raises(Exception, match="not valid snappy"):
            check(batch, at_once=at_once)


@pytest.mark.parametrize("codec", CODECS)
def test_a_batch_is_checked_by_its_own_records(codec: str) -> None:
    """The room for them is shared: what another one left there counts for nothing."""
    found = []
    for count in (30, 3, 20):
        stamps = [NOW_MS - count + index for index in range(count)]
        batch = make_batch(*[b"value"] * count, timestamps=stamps, compression=codec)
        (accepted,) = check(batch).accepted
        found.append((accepted.header.record_count, accepted.max_timestamp))
    assert found == [(30, NOW_MS - 1), (3, NOW_MS - 1), (20, NOW_MS - 1)]

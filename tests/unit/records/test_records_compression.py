"""Every codec against its other implementation in pyarrow, both snappy framings, bombs, and what is no codec's."""

from __future__ import annotations

import gzip
import random
import struct
import tracemalloc
from collections.abc import Callable
from contextlib import suppress

import cramjam
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.base.errors import Code, KafkaError, MalformedBatchError
from tidelog.records import COMPRESSION_IDS, COMPRESSION_NAMES, compress, decompress, read_header, validate_batch
from tidelog.records.compression import GZIP, LZ4, SNAPPY, ZSTD
from tidelog.records.header import BatchHeader, write_batch

CODECS = [GZIP, SNAPPY, LZ4, ZSTD]
ZEROS = bytes(50_000_000)


def arrow_decompress(codec: int, data: bytes, size: int) -> bytes:
    """What another implementation makes of `data`."""
    if codec == SNAPPY:
        blocks, position = [], 16
        while position < len(data):
            length = struct.unpack_from(">i", data, position)[0]
            block = data[position + 4 : position + 4 + length]
            blocks.append(pa.decompress(block, cramjam.snappy.decompress_raw_len(block), "snappy", asbytes=True))
            position += 4 + length
        return b"".join(blocks)
    name = COMPRESSION_NAMES[codec]
    with pa.CompressedInputStream(pa.BufferReader(data), name) as stream:
        return bytes(stream.read(size + 1))


some_bytes = st.binary(max_size=500) | st.builds(
    lambda seed, size, repeats: random.Random(seed).randbytes(size) * repeats,
    st.integers(0, 99),
    st.integers(0, 50_000),
    st.integers(0, 4),
)


@pytest.mark.parametrize("codec", [0, *CODECS])
@given(data=some_bytes)
def test_what_is_compressed_comes_back(codec: int, data: bytes) -> None:
    packed = compress(codec, memoryview(data))
    assert bytes(decompress(codec, packed, size_bytes_max=len(data))) == data
    assert bytes(decompress(codec, memoryview(bytearray(packed)), size_bytes_max=1 << 30)) == data


@pytest.mark.parametrize("codec", [0, *CODECS])
@given(data=some_bytes, room=st.integers(0, 60_000))
def test_what_has_a_scratch_is_decompressed_there_if_it_fits(codec: int, data: bytes, room: int) -> None:
    scratch = bytearray(b"\xff" * room)
    packed = compress(codec, data)
    found = decompress(codec, packed, size_bytes_max=len(data), scratch=scratch)
    assert bytes(found) == data
    if codec and 0 < len(data) <= room:
        scratch[0] ^= 1
        assert found[0] == data[0] ^ 1


@pytest.mark.parametrize("codec", CODECS)
@given(data=some_bytes)
def test_another_implementation_reads_it(codec: int, data: bytes) -> None:
    assert arrow_decompress(codec, bytes(compress(codec, data)), len(data)) == data


@pytest.mark.parametrize("codec", CODECS)
@given(data=some_bytes)
def test_what_another_implementation_writes_is_read(codec: int, data: bytes) -> None:
    """For snappy that is the raw block, as librdkafka writes it."""
    packed = pa.compress(data, COMPRESSION_NAMES[codec], asbytes=True)
    assert bytes(decompress(codec, packed, size_bytes_max=len(data))) == data


def test_snappy_is_framed_as_java_frames_it() -> None:
    data = random.Random(1).randbytes(70_000)
    packed = bytes(compress(SNAPPY, data))
    assert packed[:16] == b"\x82SNAPPY\x00\x00\x00\x00\x01\x00\x00\x00\x01"
    sizes, position = [], 16
    while position < len(packed):
        length = struct.unpack_from(">i", packed, position)[0]
        sizes.append(cramjam.snappy.decompress_raw_len(packed[position + 4 : position + 4 + length]))
        position += 4 + length
    assert sizes == [32_768, 32_768, 70_000 - 65_536]


def test_lz4_blocks_are_independent_as_java_wants_them() -> None:
    flags = bytes(compress(LZ4, b"abc" * 100_000))[4]
    assert flags >> 6 == 1, "version of the frame format"
    assert flags >> 5 & 1 == 1, "block independence"


@pytest.mark.parametrize("codec", CODECS)
def test_a_bomb_is_refused_before_it_takes_memory(codec: int) -> None:
    packed = compress(codec, ZEROS)
    tracemalloc.start()
    try:
        with pytest.raises(MalformedBatchError, match="limit of 1000000 bytes") as raised:
            decompress(codec, packed, size_bytes_max=1_000_000)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert raised.value.code is Code.INVALID_RECORD
    assert peak < (3_000_000 if codec == LZ4 else 300_000), "all but lz4 say at once how large they are"


@pytest.mark.parametrize("codec", CODECS)
def test_the_limit_is_inclusive(codec: int) -> None:
    data = random.Random(codec).randbytes(300) * 1_000
    packed = compress(codec, data)
    assert bytes(decompress(codec, packed, size_bytes_max=len(data))) == data
    with pytest.raises(MalformedBatchError, match=f"limit of {len(data) - 1} bytes"):
        decompress(codec, packed, size_bytes_max=len(data) - 1)


def test_a_gzip_that_lies_about_its_size_is_held_to_the_limit_all_the_same() -> None:
    packed = bytearray(gzip.compress(bytes(1_000_000)))
    packed[-4:] = (5).to_bytes(4, "little")
    with pytest.raises(MalformedBatchError, match="limit of 100000 bytes"):
        decompress(GZIP, packed, size_bytes_max=100_000)


def test_several_gzip_members_are_one() -> None:
    """The size in the trailer is then that of the last alone."""
    packed = gzip.compress(b"a" * 100_000) + gzip.compress(b"b")
    assert bytes(decompress(GZIP, packed, size_bytes_max=100_001)) == b"a" * 100_000 + b"b"


def test_a_zstd_that_claims_more_than_the_limit_is_refused_at_once() -> None:
    packed = bytearray(pa.compress(bytes(70_000), "zstd", asbytes=True))
    with pytest.raises(MalformedBatchError, match="limit of 69999 bytes"):
        decompress(ZSTD, packed, size_bytes_max=69_999)


def test_a_snappy_block_that_claims_the_impossible_takes_no_memory() -> None:
    tracemalloc.start()
    try:
        with pytest.raises(MalformedBatchError, match="cannot hold"):
            decompress(SNAPPY, b"\xff\xff\xff\x7f" + b"abc", size_bytes_max=1 << 30)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 100_000


XERIAL = b"\x82SNAPPY\x00\x00\x00\x00\x01\x00\x00\x00\x01"


@pytest.mark.parametrize(
    "data",
    [
        XERIAL + b"\0\0",
        XERIAL + b"\0\0\0\0",
        XERIAL + b"\xff\xff\xff\xff",
        XERIAL + b"\0\0\0\x05abc",
        XERIAL + b"\0\0\0\x03\x05abc",
        b"\x82SNAPPY\x00\x00\x00",
        b"\xff\xff\xff\xff\xff",
        b"\x04abc",
    ],
)
def test_damaged_snappy_is_refused(data: bytes) -> None:
    with pytest.raises(MalformedBatchError, match="not valid snappy"):
        decompress(SNAPPY, data, size_bytes_max=1_000)


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize(
    "damage",
    [
        lambda data: data[:-1],
        lambda data: data[: len(data) // 2],
        lambda data: data[:3],
        lambda data: data + b"\x01\x02\x03\x04\x05",
        lambda data: b"GET / HTTP/1.1\r\n",
    ],
    ids=["cut", "halved", "a head", "a tail", "http"],
)
def test_damage_is_refused(codec: int, damage: Callable[[bytes], bytes]) -> None:
    packed = damage(bytes(compress(codec, random.Random(2).randbytes(300) * 100)))
    with pytest.raises(MalformedBatchError) as raised:
        decompress(codec, packed, size_bytes_max=1_000_000)
    assert raised.value.code is Code.INVALID_RECORD
    assert COMPRESSION_NAMES[codec] in str(raised.value)


@pytest.mark.parametrize("codec", CODECS)
@given(data=st.binary(max_size=100))
def test_arbitrary_bytes_are_refused_or_small(codec: int, data: bytes) -> None:
    with suppress(MalformedBatchError):
        assert len(decompress(codec, data, size_bytes_max=5_000)) <= 5_000


def test_there_are_five_codecs() -> None:
    assert COMPRESSION_IDS == {"none": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}
    for codec in (5, 6, 7):
        with pytest.raises(KafkaError) as raised:
            compress(codec, b"")
        assert raised.value.code is Code.UNSUPPORTED_COMPRESSION_TYPE
        with pytest.raises(KafkaError) as raised:
            decompress(codec, b"", size_bytes_max=1)
        assert raised.value.code is Code.UNSUPPORTED_COMPRESSION_TYPE


def test_a_bomb_in_a_batch_names_the_limit_of_its_reader() -> None:
    header = BatchHeader(0, 0, -1, 2, 0, ZSTD, 0, 5, 5, -1, -1, -1, 1)
    bomb = write_batch(header, compress(ZSTD, ZEROS))
    assert len(bomb) < 5_000
    with pytest.raises(MalformedBatchError, match="limit of 1048576 bytes"):
        validate_batch(bomb, 0, read_header(bomb), decompressed_size_bytes_max=1 << 20)

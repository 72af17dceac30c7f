"""What one look of the kernel says of a plain batch is what `read_header` and `validate_batch` say, or nothing."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.fixtures.record_batches import Row, any_rows, build, kernels
from tidelog.base.errors import MalformedBatchError
from tidelog.records import BatchHeader, read_header, stamp, validate_batch
from tidelog.records._choose import KERNEL_IS_COMPILED
from tidelog.records.batch import read_plain_batch

INTERESTING = (0, 1, 2, 0x7F, 0x80, 0xFF)
KERNELS = [reading for reading, _ in kernels()]

needs_compiled = pytest.mark.skipif(not KERNEL_IS_COMPILED, reason="the kernel is interpreted here")


def looked_at_in_full(batch: bytes | bytearray) -> tuple[BatchHeader, int, int] | None:
    """The same by the long way; None where that refuses it, or it is more than one batch."""
    try:
        header = read_header(batch)
        facts = validate_batch(batch, 0, header)
    except MalformedBatchError:
        return None
    is_plain = header.size_bytes == len(batch) and not header.compression and not header.is_log_append_time
    return (header, facts.max_timestamp, facts.keyless_record_count) if is_plain else None


def agreed(batch: bytes | bytearray) -> Any:
    """What all kernels say, which does not depend on what lies behind the batch."""
    shifted = memoryview(bytearray(b"\xff" * 3 + bytes(batch) + b"\0" * 5))[3 : 3 + len(batch)]
    found = [kernel.read_plain(data) for kernel in KERNELS for data in (bytes(batch), shifted)]
    assert all(each == found[0] for each in found), bytes(batch).hex()
    return found[0]


@given(rows=any_rows, producer_id=st.integers(-1, (1 << 63) - 1), leader_epoch=st.integers(-1, (1 << 31) - 1))
def test_a_plain_batch_is_told_at_once(rows: list[Row], producer_id: int, leader_epoch: int) -> None:
    batch = build(rows, leader_epoch=leader_epoch)
    stamp(batch, 0, producer_id, leader_epoch)
    expected = looked_at_in_full(batch)
    assert agreed(batch) == expected
    if KERNEL_IS_COMPILED:
        assert read_plain_batch(memoryview(batch)) == expected


@given(rows=any_rows, seed=st.integers(0, 1 << 30))
def test_a_damaged_one_is_never_told_otherwise(rows: list[Row], seed: int) -> None:
    rng = random.Random(seed)
    batch = build(rows)
    for _ in range(8):
        damaged = bytearray(batch)
        for _ in range(rng.choice((1, 1, 2))):
            damaged[rng.randrange(61 if rng.random() < 0.5 else len(damaged))] = rng.choice(INTERESTING)
        del damaged[len(damaged) - rng.choice((0, 0, 0, 1, 5)) :]
        agreed(damaged)
        found = read_plain_batch(damaged)
        assert found is None or found == looked_at_in_full(damaged)


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd"])
def test_a_compressed_one_is_not_told(codec: str) -> None:
    assert agreed(build([(5, b"key", b"value", ())], codec)) is None


def test_nor_is_one_with_the_times_of_the_leader_or_two_or_none() -> None:
    batch = build([(5, b"key", b"value", ())])
    stamped = bytearray(batch)
    stamp(stamped, 0, 7, 1, log_append_time=9)
    for other in (stamped, batch + batch, b"", batch[:61]):
        assert agreed(other) is None


@needs_compiled
def test_nor_is_one_whose_checksum_is_wrong() -> None:
    batch = build([(5, b"key", b"value", ())])
    assert read_plain_batch(batch) is not None
    batch[-2] ^= 1
    assert read_plain_batch(batch) is None

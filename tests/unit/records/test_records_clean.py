"""The kernel of compaction: held against a plain model, by both kernels, and on bytes that are no records."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext, suppress
from types import ModuleType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.fixtures.record_batches import build
from tidelog.base.errors import MalformedBatchError
from tidelog.records import kernel_clean, read_header, read_records
from tidelog.records.header import write_batch


def kernels() -> list[ModuleType]:
    """The interpreted kernel, and the compiled one if it was built, whatever TIDELOG_PURE says."""
    try:
        from tidelog.records import _kernel_clean_c  # type: ignore[attr-defined]
    except ImportError:
        return [kernel_clean]
    return [kernel_clean, _kernel_clean_c]


each_kernel = pytest.mark.parametrize(
    "kernel", kernels(), ids=lambda kernel: "compiled" if kernel.KERNEL_IS_COMPILED else "interpreted"
)

rows = st.lists(
    st.tuples(
        st.integers(0, 1 << 45),
        st.none() | st.sampled_from([b"", b"a", b"b", b"k" * 70]),
        st.none() | st.binary(max_size=200),
        st.lists(st.tuples(st.sampled_from(["", "h"]), st.none() | st.binary(max_size=3)), max_size=2).map(tuple),
    ),
    max_size=12,
)


def note(kernel: ModuleType, noted: Any, keys: list[bytes], base_offset: int) -> int:
    """Take in a batch of records that are keys alone."""
    batch = bytes(build([(0, key, None, ()) for key in keys]))
    grown: int = kernel.note_keys(batch, 61, len(batch), len(keys), base_offset, noted)
    return grown


@each_kernel
def test_the_kernel_says_what_it_is(kernel: ModuleType) -> None:
    assert (kernel is not kernel_clean) == kernel.KERNEL_IS_COMPILED
    assert hasattr(kernel, "_varint") != kernel.KERNEL_IS_COMPILED, "compiled without its pxd, it would be slow"


@each_kernel
@given(rows=rows, later=st.dictionaries(st.sampled_from([b"", b"a", b"b"]), st.integers(95, 115)), drops=st.booleans())
def test_what_stays_is_what_a_plain_reading_says(
    kernel: ModuleType, rows: list[Any], later: dict[bytes, int], drops: bool
) -> None:
    batch = build(rows)
    header = read_header(batch)
    region = bytes(batch[61:]), 0, len(batch) - 61, len(rows)
    records = read_records(batch)

    noted = kernel.KeyOffsets()
    grown = kernel.note_keys(*region, 100, noted)
    latest = {key: 100 + record.offset for record in records if (key := record.key) is not None}
    assert {key: noted.get(key) for key in latest} == latest
    assert noted.get(b"absent") == -1
    assert grown == sum(len(key) + kernel.KEY_OVERHEAD_BYTES for key in latest)
    assert kernel.note_keys(*region, 90, noted) == 0

    noted = kernel.KeyOffsets()
    latest |= later
    for key, offset in latest.items():
        note(kernel, noted, [key], offset)
    kept = bytearray(b"\x07" * (len(rows) + 1))
    count, tombstones, smallest, largest = kernel.judge(*region, 100, noted, drops, kept)
    staying = [
        record
        for record in records
        if record.key is None
        or (latest.get(record.key, -1) <= 100 + record.offset and not (drops and record.value is None))
    ]
    assert count == len(staying)
    assert [index for index in range(len(rows)) if kept[index]] == [record.offset for record in staying]
    assert kept[len(rows)] == 7
    assert tombstones == sum(record.key is not None and record.value is None for record in staying)
    deltas = [record.timestamp - header.base_timestamp for record in staying] or [0]
    assert (smallest, largest) == (min(deltas), max(deltas))

    for shift in (0, 1, -(1 << 45), 1 << 60):
        out = bytearray(len(batch) + kernel.RECORD_GROWTH_MAX * len(rows))
        size = kernel.copy_kept(out, *region, kept, shift)
        moved = header._replace(record_count=count, base_timestamp=header.base_timestamp - shift)
        assert read_records(write_batch(moved, out[:size])) == staying


@each_kernel
def test_each_of_many_keys_is_found_again(kernel: ModuleType) -> None:
    keys = [b"%d." % number + b"x" * (number % 40) for number in range(5_000)]
    noted = kernel.KeyOffsets()
    assert note(kernel, noted, keys, 7) == sum(map(len, keys)) + len(keys) * kernel.KEY_OVERHEAD_BYTES
    assert [noted.get(key) for key in keys] == list(range(7, 5_007))
    assert note(kernel, noted, keys[::-1], 1 << 40) == 0
    assert [noted.get(key) - (1 << 40) for key in keys] == list(range(4_999, -1, -1))
    assert {noted.get(key + b"!") for key in keys} == {-1}


@each_kernel
@given(data=st.binary(max_size=80), count=st.integers(0, 5))
def test_bytes_that_are_no_records_are_refused_or_read_within_bounds(
    kernel: ModuleType, data: bytes, count: int
) -> None:
    kept = bytearray(b"\x01" * count)
    out = bytearray(len(data) + kernel.RECORD_GROWTH_MAX * count)
    works: list[Callable[[], Any]] = [
        lambda: kernel.note_keys(data, 0, len(data), count, 0, kernel.KeyOffsets()),
        lambda: kernel.judge(data, 0, len(data), count, 0, kernel.KeyOffsets(), False, bytearray(count)),
        lambda: kernel.copy_kept(out, data, 0, len(data), count, kept, 5),
    ]
    for work in works:
        with suppress(MalformedBatchError):
            work()


@each_kernel
def test_a_timestamp_of_more_than_64_bits_is_refused(kernel: ModuleType) -> None:
    for last, is_refused in ((1, False), (2, True)):
        body = b"\x00" + b"\xff" * 9 + bytes([last]) + b"\x00\x02k\x01\x00"
        data = bytes([2 * len(body)]) + body
        noted = kernel.KeyOffsets()
        with pytest.raises(MalformedBatchError) if is_refused else nullcontext():
            kernel.note_keys(data, 0, len(data), 1, 7, noted)
        assert noted.get(b"k") == (-1 if is_refused else 7)


@each_kernel
def test_room_that_is_too_small_is_refused(kernel: ModuleType) -> None:
    batch = build([(0, b"a", b"b", ())])
    region = bytes(batch[61:]), 0, len(batch) - 61, 1
    with pytest.raises(ValueError, match="0 bytes for 1 records"):
        kernel.judge(*region, 0, kernel.KeyOffsets(), False, bytearray())
    with pytest.raises(ValueError, match="where up to"):
        kernel.copy_kept(bytearray(2), *region, bytearray(1), 0)
    with pytest.raises(ValueError, match="of a buffer of"):
        kernel.note_keys(bytes(batch), 5, len(batch) + 1, 1, 0, kernel.KeyOffsets())

"""Partitions for keys as every other client chooses them, and rows in their order; by both kernels."""

from __future__ import annotations

import warnings
from array import array
from collections.abc import Iterator
from itertools import accumulate
from types import ModuleType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.records import kernel_keys, keys
from tidelog.records.columns import ColumnBuffers
from tidelog.records.keys import partition_for_key, rows_by_partition

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # of how it loads its schemas
    from kafka.partitioner.default import murmur2 as reference_murmur2


def kernels() -> list[ModuleType]:
    """The interpreted kernel, and the compiled one if it was built, whatever TIDELOG_PURE says."""
    try:
        from tidelog.records import _kernel_keys_c  # type: ignore[attr-defined]
    except ImportError:
        return [kernel_keys]
    return [kernel_keys, _kernel_keys_c]


@pytest.fixture(
    autouse=True,
    scope="module",
    params=kernels(),
    ids=lambda kernel: "compiled" if kernel.KERNEL_IS_COMPILED else "interpreted",
)
def kernel(request: pytest.FixtureRequest) -> Iterator[ModuleType]:
    """Every test runs with each of the kernels."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(keys, "kernel_keys", request.param)
        yield request.param


def test_the_kernel_says_what_it_is(kernel: ModuleType) -> None:
    assert (kernel is not kernel_keys) == kernel.KERNEL_IS_COMPILED
    assert hasattr(kernel, "_murmur2") != kernel.KERNEL_IS_COMPILED, "compiled without its pxd, it would be slow"


# Published with Kafka's own hash, as signed numbers.
@pytest.mark.parametrize(
    ("key", "signed"),
    [
        (b"21", -973932308),
        (b"foobar", -790332482),
        (b"a-little-bit-long-string", -985981536),
        (b"a-little-bit-longer-string", -1486304829),
        (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
        (b"abc", 479470107),
    ],
)
def test_the_hash_is_kafkas(kernel: ModuleType, key: bytes, signed: int) -> None:
    assert kernel.murmur2(key) == signed & 0xFFFFFFFF


@given(st.binary(max_size=70))
def test_the_hash_is_the_same_as_another_clients(kernel: ModuleType, key: bytes) -> None:
    assert kernel.murmur2(key) == reference_murmur2(key) & 0xFFFFFFFF


def test_all_partitions_are_used() -> None:
    assert {partition_for_key(b"%d" % number, 7) for number in range(1_000)} == set(range(7))


def column(values: list[bytes | None], gap: bytes = b"") -> ColumnBuffers:
    """Keys that start behind `gap`, as those of a slice do; a null may stand over bytes that mean nothing."""
    validity = bytearray((len(values) + 7) // 8)
    for row, value in enumerate(values):
        validity[row >> 3] |= (value is not None) << (row & 7)
    texts = [b"null" if value is None else value for value in values]
    offsets = memoryview(array("i", accumulate(map(len, texts), initial=len(gap))))
    nulls = values.count(None)
    return ColumnBuffers(
        len(values),
        key_offsets=offsets,
        key_validity=validity if nulls else None,
        key_data=gap + b"".join(texts),
        key_null_count=nulls,
    )


@given(
    st.lists(st.none() | st.binary(max_size=19), max_size=40),
    st.integers(1, 50) | st.integers(1, 5),
    st.integers(0, 49),
    st.binary(max_size=3),
)
def test_rows_go_where_their_keys_belong_in_order_and_those_without_together(
    values: list[bytes | None], partition_count: int, keyless: int, gap: bytes
) -> None:
    keyless %= partition_count
    asked: list[int] = []

    def place(count: int) -> int:
        asked.append(count)
        return keyless

    found = rows_by_partition(column(values, gap), partition_count, place)
    expected: dict[int, list[int]] = {}
    for row, key in enumerate(values):
        hashed = 0 if key is None else (reference_murmur2(key) & 0x7FFFFFFF) % partition_count
        expected.setdefault(keyless if key is None else hashed, []).append(row)
    assert {partition: list(memoryview(rows)) for partition, rows in found} == expected
    assert asked == [values.count(None)] * (None in values)


def test_without_keys_nothing_can_be_parted() -> None:
    with pytest.raises(ValueError, match="there are none"):
        rows_by_partition(ColumnBuffers(3), 2, lambda count: 0)


@pytest.mark.parametrize(
    "changes",
    [
        {"row_count": 9},
        {"key_validity": b""},
        {"key_data": b"abcd"},
        {"key_offsets": memoryview(array("i", [0, 3, 2, 5]))},
        {"key_offsets": memoryview(array("i", [-1, 1, 2, 5]))},
    ],
)
def test_columns_that_contradict_each_other_are_refused(changes: dict[str, Any]) -> None:
    whole = column([b"ab", b"c", b"de"])
    assert len(rows_by_partition(whole, 1, lambda count: 0)) == 1
    with pytest.raises(ValueError, match=r"do not fit its column|are missing for rows 0 to"):
        rows_by_partition(whole._replace(**changes), 2, lambda count: 0)


@pytest.mark.parametrize(
    ("partitions", "counts", "keyless", "room"),
    [
        ([0, 1, 0], [2, 1, 0], 0, 2),
        ([0, 1, 0], [2, 1, 0], 2, 3),
        ([0, 1, 0], [2, 1, 0], -1, 3),
        ([0, 1, 0], [2, 2, 0], 0, 3),
        ([0, 1, 0], [2, 0, 0], 0, 3),
        ([0, 1, 0], [4, -1, 0], 0, 3),
        ([1, 1, 1], [2, 1, 0], 0, 3),
        ([0, 3, 0], [2, 1, 0], 0, 3),
        ([0, -1, 0], [2, 1, 0], 0, 3),
    ],
)
def test_counts_of_other_rows_are_refused_and_nothing_is_written_outside(
    kernel: ModuleType, partitions: list[int], counts: list[int], keyless: int, room: int
) -> None:
    rows = array("i", bytes(4 * room))
    with pytest.raises(ValueError, match=r"rows|was not counted"):
        kernel.sort_rows(array("i", partitions), array("i", counts), keyless, rows)


def test_a_partition_without_room_is_refused(kernel: ModuleType) -> None:
    keyed = column([b"a", b"b"])
    for count, room, partition_count in [(2, 2, 2), (3, 1, 2), (3, 2, 0)]:
        with pytest.raises(ValueError, match="are missing for rows 0 to 2"):
            kernel.partitions_of_keys(
                keyed.key_offsets,
                None,
                keyed.key_data,
                0,
                2,
                partition_count,
                array("i", bytes(4 * room)),
                array("i", bytes(4 * count)),
            )

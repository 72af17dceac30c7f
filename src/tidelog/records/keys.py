"""Which partition a key belongs to, and which rows of columns go where by their keys: the same as Java's clients."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator
from itertools import repeat

from tidelog.base.ports import Buffer
from tidelog.records._choose import kernel_keys
from tidelog.records.columns import ColumnBuffers


def partition_for_key(key: bytes, partition_count: int) -> int:
    """The partition of a key, the same as Java's: the hash without its sign bit, modulo all partitions there are."""
    return (kernel_keys.murmur2(key) & 0x7FFFFFFF) % partition_count


def rows_by_partition(
    columns: ColumnBuffers,
    partition_count: int,
    place_keyless: Callable[[int], int],
    partition_of: Callable[[bytes | None], int | None] | None = None,
) -> list[tuple[int, Buffer]]:
    """The rows that go to each partition by their keys.

    Args:
        columns: only their keys are looked at.
        partition_count: how many partitions there are.
        place_keyless: asked for the partition of all rows without a key, if there are any, by their number.
        partition_of: asked for the partition of each row by its key; None counts the row among those without one. By
            default keys go as with `partition_for_key`.

    Returns:
        Each partition that has rows, with their numbers in order: int32, for `encode_columns`.

    Raises:
        ValueError: there are no keys, or they contradict each other; or there is no such partition.
    """
    if partition_of is None and (columns.key_offsets is None or columns.key_data is None):
        raise ValueError("rows are parted by their keys, but there are none")
    row_count = columns.row_count
    partitions = array("i", bytes(4 * row_count))
    counts = array("i", bytes(4 * (partition_count + 1)))
    if partition_of is None:
        assert columns.key_offsets is not None
        kernel_keys.partitions_of_keys(
            memoryview(columns.key_offsets).cast("B").cast("i"),
            columns.key_validity,
            columns.key_data,
            0,
            row_count,
            partition_count,
            partitions,
            counts,
        )
    else:
        for row, key in enumerate(_keys(columns)):
            partition = partition_of(key)
            if partition is not None and not 0 <= partition < partition_count:
                raise ValueError(f"there is no partition {partition}: there are {partition_count}, counted from 0")
            partitions[row] = partition_count if partition is None else partition
            counts[partitions[row]] += 1
    rows = array("i", bytes(4 * row_count))
    kernel_keys.sort_rows(partitions, counts, place_keyless(counts[-1]) if counts[-1] else 0, rows)
    ends = counts[:-1]
    return [
        (partition, memoryview(rows)[start:end])
        for partition, (start, end) in enumerate(zip([0, *ends], ends, strict=False))
        if start < end
    ]


def _keys(columns: ColumnBuffers) -> Iterator[bytes | None]:
    if columns.key_offsets is None or columns.key_data is None:
        yield from repeat(None, columns.row_count)
        return
    ends = memoryview(columns.key_offsets).cast("B").cast("i")
    data = memoryview(columns.key_data).cast("B")
    validity = columns.key_validity
    for row in range(columns.row_count):
        is_null = validity is not None and not validity[row >> 3] >> (row & 7) & 1
        yield None if is_null else bytes(data[ends[row] : ends[row + 1]])

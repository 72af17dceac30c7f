"""The hot loops of partitioning: the hash of each key, and the rows in the order of their partitions.

Run interpreted or compiled, as kernel.py says. Its C types are in kernel_keys.pxd; columns are as kernel.py lays out.
"""

from __future__ import annotations

from typing import Any

KERNEL_IS_COMPILED = not __file__.endswith(".py")
KERNEL_SOURCE_HASH: str | None = None  # of this file and its pxd, in hex: setup.py appends it to the copy it compiles


def _murmur2(data: Any, start: int, stop: int) -> int:
    """MurmurHash2 of a key. The masks keep Python to 32 bits; the words are put together so that C sees one load."""
    multiplier = 0x5BD1E995
    mask = 0xFFFFFFFF
    digest = 0x9747B28C ^ (stop - start)
    position = start
    while position + 4 <= stop:
        word = data[position + 3]
        word = word << 8 | data[position + 2]
        word = word << 8 | data[position + 1]
        word = word << 8 | data[position]
        word = word * multiplier & mask
        word = (word ^ (word >> 24)) * multiplier & mask
        digest = (digest * multiplier & mask) ^ word
        position += 4
    if position < stop:
        word = 0
        while stop > position:
            stop -= 1
            word = word << 8 | data[stop]
        digest = (digest ^ word) * multiplier & mask
    digest = (digest ^ (digest >> 13)) * multiplier & mask
    return digest ^ (digest >> 15)


def murmur2(key: Any) -> int:
    """The 32-bit MurmurHash2 of `key` under the seed that Kafka's clients share, as an unsigned number."""
    return _murmur2(key, 0, len(key))


def partitions_of_keys(
    key_offsets: Any,
    key_validity: Any,
    key_data: Any,
    start: int,
    stop: int,
    partition_count: int,
    partitions: Any,
    counts: Any,
) -> None:
    """Choose the partition of each row as Java's clients do: the hash without its sign bit, modulo the partitions.

    Args:
        key_offsets, ...: as for `encode`; there are keys.
        start: the first row.
        stop: behind the last row, exclusive.
        partition_count: how many there are to choose from.
        partitions: int32, where the choices go, from its start on; `partition_count` for a row without a key.
        counts: int32, 0, one more than partitions: grows by the rows of each partition, its last by those without key.

    Raises:
        ValueError: a column is shorter than `stop` rows, or its offsets do not fit its data; no room for the choices.
    """
    fits = 0 <= start <= stop < len(key_offsets) and stop - start <= len(partitions)
    fits = fits and 0 < partition_count < len(counts)
    if key_validity is not None:
        fits = fits and stop <= len(key_validity) * 8
    if not fits:
        raise ValueError(f"keys, or room for their partitions, are missing for rows {start} to {stop}")
    size = len(key_data)
    row = start
    while row < stop:
        at = key_offsets[row]
        end = key_offsets[row + 1]
        if not 0 <= at <= end <= size:
            raise ValueError(f"the offsets of row {row} do not fit its column")
        if key_validity is not None and not key_validity[row >> 3] >> (row & 7) & 1:
            partition = partition_count
        else:
            partition = (_murmur2(key_data, at, end) & 0x7FFFFFFF) % partition_count
        partitions[row - start] = partition
        counts[partition] += 1
        row += 1


def sort_rows(partitions: Any, counts: Any, keyless_partition: int, rows: Any) -> None:
    """Put the rows in the order of their partitions, and within one in the order they have.

    Args:
        partitions: of each row, as `partitions_of_keys` left them; and
        counts: likewise. Afterwards: where the rows of each partition end in `rows`, exclusive.
        keyless_partition: where the rows without a key go.
        rows: int32, one for each of `partitions`: where their numbers go, counted from 0.

    Raises:
        ValueError: the counts are not those of the partitions, or there is no such partition.
    """
    row_count = len(partitions)
    partition_count = len(counts) - 1
    if not 0 <= keyless_partition < partition_count or len(rows) != row_count:
        raise ValueError(f"{row_count} rows, room for {len(rows)}: those without a key go to {keyless_partition}")
    counts[keyless_partition] += counts[partition_count]
    counts[partition_count] = 0
    total = 0
    for partition in range(partition_count):
        count = counts[partition]
        if not 0 <= count <= row_count - total:
            raise ValueError(f"partition {partition} cannot have {count} of {row_count} rows")
        counts[partition] = total
        total += count
    if total != row_count:
        raise ValueError(f"{row_count} rows, but {total} were counted")
    for row in range(row_count):
        partition = partitions[row]
        if partition == partition_count:
            partition = keyless_partition
        if not 0 <= partition < partition_count or counts[partition] >= row_count:
            raise ValueError(f"the partition of row {row} was not counted")
        rows[counts[partition]] = row
        counts[partition] += 1

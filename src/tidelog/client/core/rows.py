"""Rows of columns on their way to partitions, without Arrow."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from itertools import accumulate

from tidelog.base.ports import Buffer
from tidelog.client.core.partitioner import KeyPartitioner
from tidelog.records.columns import ColumnBuffers


def rows_by_partition(columns: ColumnBuffers, partitioner: KeyPartitioner) -> dict[int | None, list[int]]:
    """The rows that go to each partition by their keys, in order; those without a key are under None."""
    if columns.key_offsets is None or columns.key_data is None:
        return {None: list(range(columns.row_count))}
    offsets = _int32(columns.key_offsets)
    data = bytes(columns.key_data)
    validity = columns.key_validity
    found: dict[int | None, list[int]] = {}
    for row in range(columns.row_count):
        if validity is not None and not validity[row >> 3] >> (row & 7) & 1:
            partition = None
        else:
            partition = partitioner.partition(data[offsets[row] : offsets[row + 1]])
        rows = found.get(partition)
        if rows is None:
            found[partition] = [row]
        else:
            rows.append(row)
    return found


def select_rows(columns: ColumnBuffers, rows: Sequence[int]) -> ColumnBuffers:
    """Columns of these rows alone, in this order. All of key, value, timestamp and headers that there is."""
    timestamps = None
    if columns.timestamp is not None:
        stamps = memoryview(columns.timestamp).cast("B").cast("q")
        timestamps = memoryview(array("q", [stamps[row] for row in rows]))
    key = _select(columns.key_offsets, columns.key_validity, columns.key_data, rows)
    value = _select(columns.value_offsets, columns.value_validity, columns.value_data, rows)
    selected = ColumnBuffers(
        len(rows),
        timestamp=timestamps,
        key_offsets=key[0],
        key_validity=key[1],
        key_data=key[2],
        value_offsets=value[0],
        value_validity=value[1],
        value_data=value[2],
    )
    if columns.header_offsets is None:
        return selected
    starts = _int32(columns.header_offsets)
    headers = [header for row in rows for header in range(starts[row], starts[row + 1])]
    names = _select(columns.header_key_offsets, None, columns.header_key_data, headers)
    contents = _select(columns.header_value_offsets, columns.header_value_validity, columns.header_value_data, headers)
    return selected._replace(
        header_offsets=_ends([starts[row + 1] - starts[row] for row in rows]),
        header_key_offsets=names[0],
        header_key_data=names[2],
        header_value_offsets=contents[0],
        header_value_validity=contents[1],
        header_value_data=contents[2],
    )


def _select(
    offsets: Buffer | None, validity: Buffer | None, data: Buffer | None, rows: Sequence[int]
) -> tuple[Buffer | None, Buffer | None, Buffer | None]:
    if offsets is None or data is None:
        return None, None, None
    ends = _int32(offsets)
    view = memoryview(data).cast("B")
    pieces = [view[ends[row] : ends[row + 1]] for row in rows]
    selected = None
    if validity is not None:
        selected = bytearray((len(rows) + 7) // 8)
        for index, row in enumerate(rows):
            if validity[row >> 3] >> (row & 7) & 1:
                selected[index >> 3] |= 1 << (index & 7)
    return _ends(list(map(len, pieces))), selected, b"".join(pieces)


def _ends(lengths: Sequence[int]) -> memoryview:
    return memoryview(array("i", accumulate(lengths, initial=0)))


def _int32(offsets: Buffer) -> memoryview:
    return memoryview(offsets).cast("B").cast("i")

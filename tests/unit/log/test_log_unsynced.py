"""Damage that power left where nothing was synced yet, told from a disk that rots."""

from __future__ import annotations

import pytest

from tidelog.log.continuity import SECTOR_SIZE_BYTES, is_unsynced
from tidelog.records import BatchBuilder


def batches(count: int = 40) -> bytes:
    data = b""
    for offset in range(count):
        builder = BatchBuilder()
        builder.append(1_700_000_000_000, None, b"value %d" % offset * 7)
        data += builder.build(offset, 3)
    return data


@pytest.mark.parametrize("position", [0, 1, 100, 491, 500, 509, 511, 512, 5_000])
def test_a_sector_of_zeros_was_never_written(position: int) -> None:
    """Wherever the batch begins in its sector, and whichever of its sectors it is that is missing."""
    data = batches()
    size_bytes = len(data) // 40
    first = SECTOR_SIZE_BYTES - position % SECTOR_SIZE_BYTES
    for start, stop in ((0, first), (first, first + SECTOR_SIZE_BYTES)):
        lost = data[:start] + bytes(stop - start) + data[stop:]
        is_hurt = start < size_bytes and lost[:size_bytes] != data[:size_bytes]
        assert is_unsynced(lost, position) == is_hurt
        assert is_unsynced(lost[:stop], position) == is_hurt  # nothing came behind it


@pytest.mark.parametrize("position", [0, 495, 497, 500, 505, 509, 511])
def test_a_bit_that_flipped_was_synced(position: int) -> None:
    data = batches()
    for at in range(len(data) // 40):
        for mask in (1, 2, 128):
            rotten = bytearray(data)
            rotten[at] ^= mask
            assert not is_unsynced(bytes(rotten), position)

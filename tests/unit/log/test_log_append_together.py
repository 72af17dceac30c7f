"""Batches that are appended together, over the end of a segment: each is where its answer says, or nowhere."""

from __future__ import annotations

import random
from typing import Any

import pytest

from support.fixtures.logs import NOW_MS, append, batches_of, make_batch, open_log
from support.fixtures.memory_disk import MemoryDisk
from tidelog.base.errors import DiskError
from tidelog.base.ids import LeaderEpoch
from tidelog.log import AppendResult, Checked, Log, Outcome, append_together

EPOCH = LeaderEpoch(0)
SEGMENT_BYTES = 1_000
PRODUCER = 7


def checked(log: Log, batch: bytearray) -> Checked:
    return log.rules.check_for_leader(memoryview(batch), now_ms=NOW_MS, origin="client", at_once=True)


def sequenced(sequence: int, value: str) -> bytearray:
    return make_batch(value, producer_id=PRODUCER, producer_epoch=0, base_sequence=sequence)


def together(log: Log, batches: list[bytearray]) -> list[Outcome]:
    return append_together(log, [checked(log, one) for one in batches], leader_epoch=EPOCH, now_ms=NOW_MS)


def files_of(disk: MemoryDisk, log: Log) -> dict[str, bytes]:
    return {segment.path: bytes(disk.files[segment.path].data) for segment in log.segments}


@pytest.mark.parametrize("seed", range(10))
def test_segments_roll_where_they_would_if_each_came_alone(seed: int) -> None:
    rng = random.Random(seed)
    rounds = [["x" * rng.randrange(300) for _ in range(rng.randrange(1, 12))] for _ in range(8)]
    disks = MemoryDisk(), MemoryDisk()
    at_once, one_by_one = (open_log(disk, segment_size_bytes=SEGMENT_BYTES) for disk in disks)
    for log in (at_once, one_by_one):
        append(log, "first")
    for values in rounds:
        outcomes = together(at_once, [make_batch(value) for value in values])
        assert outcomes == [append(one_by_one, value) for value in values]
    assert len(at_once.segments) > 3
    assert files_of(disks[0], at_once) == files_of(disks[1], one_by_one)


class _Refusing:
    """Refuses whatever is done to the segments that are made from now on."""

    def __init__(self, disk: MemoryDisk, log: Log, *, operation: str) -> None:
        self._admitted = disk.admit
        self._there = set(disk.files)
        self._operation = operation
        self.is_over = False
        disk.admit = self._admit  # type: ignore[method-assign]

    def _admit(self, path: str, operation: str) -> None:
        if not self.is_over and path.endswith(".log") and path not in self._there and operation == self._operation:
            raise DiskError(path, f"cannot {operation}: no space", errno=28)
        self._admitted(path, operation)


@pytest.mark.parametrize("operation", ["create", "write"])
@pytest.mark.parametrize("has_sequences", [False, True])
def test_what_the_first_segment_took_is_answered_where_the_next_one_fails(operation: str, has_sequences: bool) -> None:
    disk = MemoryDisk()
    log = open_log(disk, segment_size_bytes=SEGMENT_BYTES)
    append(log, "first")
    if has_sequences:
        log.append_as_leader(sequenced(0, "x"), leader_epoch=EPOCH, now_ms=NOW_MS)
    end_offset = log.log_end_offset

    def batches(first: int, count: int) -> list[bytearray]:
        values = [f"{number:03}" * 60 for number in range(first, first + count)]
        if has_sequences:
            return [sequenced(1 + first + at, value) for at, value in enumerate(values)]
        return [make_batch(value) for value in values]

    refusing = _Refusing(disk, log, operation=operation)
    outcomes = together(log, batches(0, 9))
    written = [one for one in outcomes if isinstance(one, AppendResult)]
    count = len(written)
    assert 0 < count < 9
    assert outcomes[:count] == written
    assert all(isinstance(one, DiskError) for one in outcomes[count:])
    assert [one.first_offset for one in written] == list(range(end_offset, end_offset + count))
    assert log.log_end_offset == end_offset + count
    assert [header.base_offset for header, _ in batches_of(log)] == list(range(end_offset + count))
    assert log.segments.failure is None
    refusing.is_over = True
    later = together(log, batches(count, 9 - count))
    assert [one.first_offset for one in later if isinstance(one, AppendResult)] == list(
        range(end_offset + count, end_offset + 9)
    )
    stored: list[Any] = [header.base_offset for header, _ in batches_of(log)]
    assert stored == list(range(end_offset + 9))

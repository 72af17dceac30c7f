"""A metadata log that is found beside a snapshot: does it go on from there?"""

from __future__ import annotations

import pytest

from tidelog.base.ids import LeaderEpoch, Offset
from tidelog.quorum import QuorumLog, SnapshotId
from tidelog.records.lineage import LeaderEpochLineage

Entries = list[tuple[int, int]]


def found(start: int, end: int, entries: Entries) -> QuorumLog:
    lineage = LeaderEpochLineage((LeaderEpoch(epoch), Offset(offset)) for epoch, offset in entries)
    return QuorumLog(Offset(start), Offset(end), lineage)


@pytest.mark.parametrize(
    ("start", "end", "entries"),
    [
        (0, 20, [(1, 0), (2, 12)]),
        (0, 9, [(1, 0)]),
        (9, 20, [(1, 9), (2, 12)]),
        (9, 9, [(1, 9)]),
        (0, 20, [(1, 9), (2, 12)]),  # a kill between the lineage that begins at the log start, and the log start
        (4, 20, [(1, 9), (2, 12)]),
    ],
)
def test_a_log_that_has_what_the_snapshot_is_of_stays(start: int, end: int, entries: Entries) -> None:
    assert found(start, end, entries).continues(SnapshotId(Offset(9), LeaderEpoch(1)))


@pytest.mark.parametrize(
    ("start", "end", "entries"),
    [
        (0, 8, [(1, 0)]),
        (0, 9, [(1, 0), (2, 8)]),  # as long, with a record that was never committed
        (0, 20, [(2, 0)]),
        (9, 9, [(2, 9)]),
        (0, 0, []),
    ],
)
def test_a_log_that_lacks_it_starts_anew(start: int, end: int, entries: Entries) -> None:
    assert not found(start, end, entries).continues(SnapshotId(Offset(9), LeaderEpoch(1)))

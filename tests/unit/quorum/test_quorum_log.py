"""What a metadata log says of others that end somewhere, and whether it goes on from the snapshot beside it."""

from __future__ import annotations

import pytest

from tidelog.base.errors import InvariantBrokenError
from tidelog.base.ids import LeaderEpoch, Offset
from tidelog.quorum import QuorumLog, SnapshotId
from tidelog.records.lineage import EpochEntry, LeaderEpochLineage

Entries = list[tuple[int, int]]


def found(start: int, end: int, entries: Entries, snapshot: SnapshotId | None = None) -> QuorumLog:
    lineage = LeaderEpochLineage((LeaderEpoch(epoch), Offset(offset)) for epoch, offset in entries)
    return QuorumLog(Offset(start), Offset(end), lineage, snapshot)


@pytest.mark.parametrize(
    ("start", "end", "entries"),
    [
        (0, 20, [(1, 0), (2, 12)]),
        (0, 9, [(1, 0)]),
        (0, 9, [(1, 0), (2, 9)]),  # an epoch that was to be opened
        (0, 20, [(1, 0), (2, 9)]),
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
        (0, 20, [(2, 0), (3, 12)]),
        (9, 9, [(2, 9)]),
        (0, 0, []),
    ],
)
def test_a_log_that_lacks_it_starts_anew(start: int, end: int, entries: Entries) -> None:
    assert not found(start, end, entries).continues(SnapshotId(Offset(9), LeaderEpoch(1)))


@pytest.mark.parametrize("last_epoch", [0, 1, 2, 9])
def test_an_empty_log_is_a_prefix_of_every_log_that_has_its_start(last_epoch: int) -> None:
    assert found(0, 8, [(1, 0), (2, 5)]).correction_of(Offset(0), LeaderEpoch(last_epoch)) is None


@pytest.mark.parametrize(
    ("offset", "last_epoch", "ends"),
    [
        (5, 1, None),
        (8, 2, None),
        (9, 2, (2, 8)),  # it has more
        (6, 1, (1, 5)),  # another leader wrote what comes then
        (3, 9, (2, 8)),  # of an epoch that nobody has heard of here
    ],
)
def test_a_log_that_is_no_prefix_is_told_where_its_epoch_ends(
    offset: int, last_epoch: int, ends: tuple[int, int] | None
) -> None:
    correction = found(0, 8, [(1, 0), (2, 5)]).correction_of(Offset(offset), LeaderEpoch(last_epoch))
    assert correction == (None if ends is None else EpochEntry(LeaderEpoch(ends[0]), Offset(ends[1])))


@pytest.mark.parametrize(
    ("start", "offset", "last_epoch", "has_to_load"),
    [
        (4, 4, 2, False),  # it has loaded it, or all that it covers
        (4, 5, 2, False),
        (4, 3, 2, True),  # what it needs next is gone
        (4, 0, 2, True),
        (4, 4, 1, True),  # nobody can tell where its epoch ended
        (4, 5, 1, True),
        (1, 2, 1, True),
        (1, 1, 2, False),
    ],
)
def test_what_only_a_snapshot_covers_is_to_be_loaded(
    start: int, offset: int, last_epoch: int, *, has_to_load: bool
) -> None:
    snapshot = SnapshotId(Offset(start), LeaderEpoch(2))
    correction = found(start, 8, [(2, start)], snapshot).correction_of(Offset(offset), LeaderEpoch(last_epoch))
    assert correction == (snapshot if has_to_load else None)


def test_only_what_is_older_than_all_epochs_of_the_log_is_out_of_its_sight() -> None:
    log = found(4, 8, [(2, 4), (3, 6)], SnapshotId(Offset(4), LeaderEpoch(2)))
    assert log.correction_of(Offset(5), LeaderEpoch(2)) is None
    assert log.correction_of(Offset(7), LeaderEpoch(2)) == EpochEntry(LeaderEpoch(2), Offset(6))


def test_a_log_behind_a_snapshot_of_an_older_epoch_goes_on_from_it() -> None:
    """The epoch of its first record is newer than that of the snapshot, whose end another log reaches all the same."""
    snapshot = SnapshotId(Offset(4), LeaderEpoch(1))
    log = found(4, 8, [(2, 4)], snapshot)
    assert log.correction_of(Offset(4), LeaderEpoch(1)) is None
    assert log.correction_of(Offset(4), LeaderEpoch(0)) == snapshot


def test_an_epoch_that_this_log_never_had_ends_where_the_log_does() -> None:
    log = found(0, 8, [(1, 0), (2, 5)])
    assert log.truncation_point(EpochEntry(LeaderEpoch(9), Offset(6))) == 6
    assert log.truncation_point(EpochEntry(LeaderEpoch(9), Offset(9))) == 8


def test_a_log_that_does_not_start_at_0_has_a_snapshot() -> None:
    with pytest.raises(InvariantBrokenError, match="the metadata log starts at 4, no snapshot"):
        found(4, 8, [(2, 4)]).correction_of(Offset(0), LeaderEpoch(0))

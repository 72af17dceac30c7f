"""Where a reader stands, whether the log still has what it stands on, and where it goes if not (KIP-320, KIP-279).

A reader asks the leader where the epoch of the last record it read ends. The log was truncated if that is below the
reader's position, or if the leader has no such epoch though a record of it was read:

    read            0@0 1@2 2@2 |position 3
    leader          0@1 1@1 2@1 3@1 4@1 5@1 6@3      asked where 2 ends: (1, 6); 6 is above 3, and yet all differs

Then the lineage of what was read is compared with the leader's, from the latest epoch down, until both know an epoch:
of one epoch there is only one history, so they part where it ends first.

Consumers and the plans of Spark queries go by the same rules; how each of them asks is its own.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable
from dataclasses import dataclass, field, replace
from typing import TypeVar

from tidelog.base.ids import LeaderEpoch, Offset, Position
from tidelog.client.core.needs import EARLIEST, LATEST, LookUp
from tidelog.client.core.values import ResetPolicy
from tidelog.records.lineage import EpochEntry, LeaderEpochLineage

UNDEFINED_MS_MAX = 30_000
"""If after this time no leader can tell whether the log was truncated, the reader is told that nobody knows."""

EpochEnd = tuple[LeaderEpoch, Offset] | None
"""A leader's answer to "where does this epoch end?": the largest epoch up to it that the leader has, and its end
offset, exclusive. None, which is (-1, -1) on the wire, says that it cannot tell."""

R = TypeVar("R")
Questions = Generator[LeaderEpoch, EpochEnd, R]
"""Yields leader epochs, is sent where they end, returns R: so whoever drives it may ask for many at once."""


@dataclass(slots=True)
class PositionStatus:
    """What a reader stands on: all below `offset` is behind it."""

    offset: Offset
    """Where it goes on."""
    leader_epoch: LeaderEpoch | None = None
    """Of the record before; or, if none was read, the leader's own when the offset was looked up. None is not known."""
    was_read: bool = False
    """Whether a record of `leader_epoch` was really read: an epoch that was only looked up may hold no record."""
    lineage: LeaderEpochLineage = field(default_factory=LeaderEpochLineage)
    """Of what was read without a gap up to `offset`; may be empty."""
    was_in_log: bool = False
    """Whether `offset` was an offset of this log once: read up to, or looked up."""
    last_timestamp: int | None = None
    """Of the record before it, in ms, if it was read here."""

    @staticmethod
    def stored(offset: Offset, leader_epoch: LeaderEpoch | None) -> PositionStatus:
        """Where somebody wants to go on, with the epoch of the record before if they kept it."""
        if leader_epoch is None:
            return PositionStatus(offset)
        below = [(leader_epoch, Offset(offset - 1))] if offset > 0 else []
        return PositionStatus(offset, leader_epoch, was_read=True, lineage=LeaderEpochLineage(below), was_in_log=True)

    @staticmethod
    def looked_up(offset: Offset, leader_epoch: LeaderEpoch | None) -> PositionStatus:
        """At an offset that the leader gave, with its own epoch: there may be no record of that epoch."""
        return PositionStatus(offset, leader_epoch, was_in_log=True)

    @property
    def position(self) -> Position:
        """As it may be stored: only the epoch of a record that was read says something to a later leader."""
        return Position(self.offset, self.leader_epoch if self.was_read else None)

    def on_read(self, epochs: Iterable[tuple[LeaderEpoch, int]], next_offset: int) -> None:
        """All below `next_offset` was read.

        Args:
            epochs: where leader epochs start in what was fetched, in order; it may reach on beyond `next_offset`, and
                begin with epochs that were read before.
            next_offset: exclusive.
        """
        for leader_epoch, start_offset in epochs:
            if start_offset >= next_offset:
                break
            if not self.was_read or self.leader_epoch is None or leader_epoch > self.leader_epoch:
                self.lineage.assign(leader_epoch, Offset(start_offset))
                self.leader_epoch, self.was_read = leader_epoch, True
        self.was_in_log = True
        self.offset = Offset(next_offset)

    def is_ahead_of(self, leader_epoch: LeaderEpoch | None) -> bool:
        """Whether it stands on an epoch that a leader of `leader_epoch` has not heard of yet."""
        return self.leader_epoch is not None and leader_epoch is not None and self.leader_epoch > leader_epoch

    def clone(self) -> PositionStatus:
        return replace(self, lineage=self.lineage.clone())

    def on_record(self, offset: Offset, leader_epoch: int | None, timestamp: int) -> None:
        """A record was read, and all before it."""
        epochs = () if leader_epoch is None else ((LeaderEpoch(leader_epoch), offset),)
        self.on_read(epochs, offset + 1)
        self.last_timestamp = timestamp

    def back_to(self, divergence: Divergence) -> PositionStatus:
        """Where the logs part. It still stands on a record, and so sees the next truncation too."""
        lineage = self.lineage.clone()
        lineage.truncate_from_end(divergence.offset)
        if not divergence.offset:
            return PositionStatus(divergence.offset, was_in_log=True)
        if self.was_read and not lineage:
            # It was read before this reader's time: the leader has the same epoch there.
            lineage.assign(divergence.leader_epoch, Offset(divergence.offset - 1))
        epoch = lineage.latest_leader_epoch
        return PositionStatus(
            divergence.offset,
            divergence.leader_epoch if epoch is None else epoch,
            was_read=self.was_read,
            lineage=lineage,
            was_in_log=True,
        )


@dataclass(frozen=True, slots=True)
class Divergence:
    """Where a log and what was read of it part."""

    offset: Offset
    """The first at which they differ."""
    leader_epoch: LeaderEpoch
    """Of the record before, which both have."""


@dataclass(frozen=True, slots=True)
class Intact:
    """The leader has all that the reader stands on."""


@dataclass(frozen=True, slots=True)
class Undefined:
    """The leader cannot tell. Never a reason to believe in a truncation: ask again."""


@dataclass(frozen=True, slots=True)
class EpochEndNeeded:
    """It was truncated; where, an older epoch will show."""

    leader_epoch: LeaderEpoch


@dataclass(frozen=True, slots=True)
class Truncated:
    """The logs part at `divergence`; None if what was read does not reach down to it."""

    divergence: Divergence | None

    @property
    def divergent_offset(self) -> Offset | None:
        return None if self.divergence is None else self.divergence.offset


Verdict = Intact | Undefined | EpochEndNeeded | Truncated

ValidationRule = Callable[[PositionStatus, LeaderEpoch, EpochEnd], Verdict]
"""As `judge`."""


def judge(standing: PositionStatus, requested_epoch: LeaderEpoch, answer: EpochEnd) -> Verdict:
    """What a leader's answer says.

    Args:
        standing: the reader's, with an epoch.
        requested_epoch: `standing.leader_epoch` at first, then what `EpochEndNeeded` names.
        answer: to the question where that ends.
    """
    if answer is None or answer[0] > requested_epoch:
        return Undefined()
    epoch, end_offset = answer
    if requested_epoch == standing.leader_epoch:
        has_epoch = epoch == requested_epoch or not standing.was_read
        if has_epoch and end_offset >= standing.offset:
            return Intact()
        if epoch == requested_epoch:
            return _part_where_it_ends(standing, epoch, end_offset)
    known = _latest_up_to(standing.lineage, epoch)
    if known is None:
        return Truncated(None)
    if known.leader_epoch < epoch:
        return EpochEndNeeded(known.leader_epoch)
    return _part_where_it_ends(standing, epoch, end_offset)


def validate(standing: PositionStatus, leader_epoch: LeaderEpoch) -> Questions[Intact | Undefined | Truncated]:
    """Ask a leader of `leader_epoch` as often as it takes. The standing has an epoch.

    A leader older than what was read has lost it (a cluster restored from a backup, say), unless its word is stale:
    that is the caller's to wait for, up to `UNDEFINED_MS_MAX`.
    """
    assert standing.leader_epoch is not None
    requested = min(standing.leader_epoch, leader_epoch)
    while True:
        verdict = judge(standing, requested, (yield requested))
        if not isinstance(verdict, EpochEndNeeded):
            return verdict
        requested = verdict.leader_epoch


def _part_where_it_ends(standing: PositionStatus, leader_epoch: LeaderEpoch, end_offset: Offset) -> Truncated:
    """Both know this epoch. What was read of it ends where the next one begins, or at the position."""
    newer = [entry for entry in standing.lineage.entries if entry.leader_epoch > leader_epoch]
    read_end_offset = newer[0].start_offset if newer else standing.offset
    return Truncated(Divergence(min(end_offset, read_end_offset), leader_epoch))


def _latest_up_to(lineage: LeaderEpochLineage, leader_epoch: LeaderEpoch) -> EpochEntry | None:
    """The latest epoch that was read and is not newer."""
    known = [entry for entry in lineage.entries if entry.leader_epoch <= leader_epoch]
    return known[-1] if known else None


def first_place(policy: ResetPolicy, begins_at: Callable[[], int] | None = None) -> LookUp:
    """Where a reader starts that has no position yet.

    Args:
        begins_at: the time at which a policy by duration begins, in ms since 1970.
    """
    if policy is ResetPolicy.BY_DURATION:
        assert begins_at is not None
        return LookUp(max(begins_at(), 0))
    return LookUp(EARLIEST if policy is ResetPolicy.EARLIEST else LATEST)


def place_after_truncation(
    policy: ResetPolicy,
    standing: PositionStatus,
    divergence: Divergence | None,
    last_timestamp: int | None,
    first: Callable[[], LookUp],
) -> PositionStatus | LookUp:
    """Where a reader goes on: at the divergence if it is known, whatever the policy; else where the policy says.

    Args:
        policy: not NONE, under which a reader goes nowhere.
        standing: what turned out to be lost.
        divergence: if it is known.
        last_timestamp: of the last record that was read, in ms; None if none was, or it had none.
        first: where it would start.
    """
    return standing.back_to(divergence) if divergence is not None else _place_by(policy, last_timestamp, first)


def place_in_range(
    policy: ResetPolicy,
    standing: PositionStatus,
    log_start_offset: Offset,
    last_timestamp: int | None,
    first: Callable[[], LookUp],
) -> PositionStatus | LookUp:
    """Where a reader goes on of which retention has removed what it would read next, or that never was in the log."""
    if standing.offset < log_start_offset and policy is ResetPolicy.CLOSEST:
        return PositionStatus.looked_up(log_start_offset, None)
    return _place_by(policy, last_timestamp, first)


def _place_by(policy: ResetPolicy, last_timestamp: int | None, first: Callable[[], LookUp]) -> LookUp:
    if policy is ResetPolicy.CLOSEST and last_timestamp is not None and last_timestamp >= 0:
        return LookUp(last_timestamp)
    return first()

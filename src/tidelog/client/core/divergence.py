"""Was the log truncated below a reader, and if so, where do the logs part? (KIP-320, KIP-279)

A reader asks the leader where the epoch of the last record it read ends. The log was truncated if that is below the
reader's position, or if the leader has no such epoch though a record of it was read:

    read            0@0 1@2 2@2 |position 3
    leader          0@1 1@1 2@1 3@1 4@1 5@1 6@3      asked where 2 ends: (1, 6); 6 is above 3, and yet all differs

Then the lineage of what was read is compared with the leader's, from the latest epoch down, until both know an epoch:
of one epoch there is only one history, so they part where it ends first.
"""

from __future__ import annotations

from dataclasses import dataclass

from tidelog.base.ids import LeaderEpoch, Offset
from tidelog.records.lineage import EpochEntry, LeaderEpochLineage


@dataclass(frozen=True, slots=True)
class Standing:
    """What a reader brings to the question."""

    offset: Offset
    """Where it goes on."""
    leader_epoch: LeaderEpoch
    """Of the record before; or, if none was read, the leader's own when the offset was looked up."""
    was_read: bool
    """Whether a record of `leader_epoch` was really read: an epoch that was only looked up may hold no record."""
    lineage: LeaderEpochLineage
    """Of what was read without a gap up to `offset`; may be empty."""


@dataclass(frozen=True, slots=True)
class Intact:
    """The leader has all that the reader stands on."""


@dataclass(frozen=True, slots=True)
class Undefined:
    """The leader cannot tell. Never a reason to believe in a truncation: ask again."""


@dataclass(frozen=True, slots=True)
class AskAbout:
    """It was truncated; where, an older epoch will show."""

    leader_epoch: LeaderEpoch


@dataclass(frozen=True, slots=True)
class Truncated:
    """The logs part at `divergent_offset`; None if what was read does not reach down to it."""

    divergent_offset: Offset | None


Verdict = Intact | Undefined | AskAbout | Truncated


def judge(standing: Standing, asked_epoch: LeaderEpoch, answer: tuple[LeaderEpoch, Offset] | None) -> Verdict:
    """What a leader's answer says.

    Args:
        standing: the reader's.
        asked_epoch: `standing.leader_epoch` at first, then what `AskAbout` names.
        answer: the largest epoch up to the asked one that the leader has, and its end offset; None if undefined.
    """
    if answer is None or answer[0] > asked_epoch:
        return Undefined()
    epoch, end_offset = answer
    if asked_epoch == standing.leader_epoch:
        has_epoch = epoch == asked_epoch or not standing.was_read
        if has_epoch and end_offset >= standing.offset:
            return Intact()
        if epoch == asked_epoch:
            return Truncated(min(end_offset, _end_of(standing, epoch)))
    known = _latest_up_to(standing.lineage, epoch)
    if known is None:
        return Truncated(None)
    if known.leader_epoch < epoch:
        return AskAbout(known.leader_epoch)
    return Truncated(min(end_offset, _end_of(standing, epoch)))


def _latest_up_to(lineage: LeaderEpochLineage, leader_epoch: LeaderEpoch) -> EpochEntry | None:
    """The latest epoch that was read and is not newer."""
    known = [entry for entry in lineage.entries if entry.leader_epoch <= leader_epoch]
    return known[-1] if known else None


def _end_of(standing: Standing, leader_epoch: LeaderEpoch) -> Offset:
    """Where what was read of an epoch ends, exclusive."""
    newer = [entry for entry in standing.lineage.entries if entry.leader_epoch > leader_epoch]
    return newer[0].start_offset if newer else standing.offset

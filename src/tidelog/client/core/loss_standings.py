"""Where a group stands to a loss, by what it committed."""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple

from tidelog.base.ids import Offset
from tidelog.base.losses import Loss, ReplicaFate
from tidelog.client.core.values import CommittedOffset


class Standing(Enum):
    """Where a group stands to a loss."""

    NOT_AFFECTED = "not affected"
    """It has read nothing that was lost."""
    ON_LOST_BRANCH = "on the lost branch"
    """It has read records that were lost, and has yet to be told or to go on."""
    MOVED_OFF = "moved off it"
    """It has read records of a later leader since."""
    UNKNOWN = "unknown"
    """It committed an offset without a leader epoch, or it is not known yet from where on records are lost."""


class GroupStanding(NamedTuple):
    """One group of one loss.

    Attributes:
        offset: that it committed.
        leader_epoch: of the record before it; None where the group's client does not commit it.
    """

    group_id: str
    standing: Standing
    offset: int
    leader_epoch: int | None


def divergence_of(loss: Loss) -> Offset | None:
    """From where on records may be lost: where the leader's log ended, or what was cut off begins."""
    ends = [one.end_offset for one in loss.replicas if one.fate is ReplicaFate.LED and one.end_offset is not None]
    lost = loss.lost_offsets
    if lost is not None:
        ends.append(lost[0])
    return min(ends, default=None)


def standing_of(loss: Loss, committed: CommittedOffset) -> Standing:
    """Where a group stands that committed this in the partition of a loss."""
    epoch, divergence = committed.leader_epoch, divergence_of(loss)
    if epoch is not None and epoch >= loss.leader_epoch:
        return Standing.MOVED_OFF
    if divergence is None:
        return Standing.UNKNOWN
    if committed.offset <= divergence:
        return Standing.NOT_AFFECTED
    return Standing.UNKNOWN if epoch is None else Standing.ON_LOST_BRANCH

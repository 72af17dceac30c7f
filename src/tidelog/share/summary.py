"""What is told of a share group's state in a partition to those who do not deliver its records."""

from __future__ import annotations

from typing import NamedTuple

from tidelog.base.ids import LeaderEpoch, Offset


class ShareSummary(NamedTuple):
    """By default, of what nothing is kept of.

    Attributes:
        state_epoch: raised when the state is initialized anew.
        leader_epoch: of the partition's leader that wrote or read it last.
        start: all before it is done; None if the group has not begun.
        delivery_complete_count: how many records from the start on are done (KIP-1226); -1 if it is not known.
    """

    state_epoch: int = 0
    leader_epoch: LeaderEpoch = LeaderEpoch(0)
    start: Offset | None = None
    delivery_complete_count: int = -1

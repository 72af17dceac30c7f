"""The state of a share group in one partition, as the partition's leader knows it and the share coordinator keeps it.

An offset may be used again after a truncation, for another record. What is kept therefore bears the leader epoch of the
record that it speaks of: other than in Kafka, an old acknowledgement never hides a new record.

Kafka: `PersisterStateBatch`, `PartitionAllData`, `PartitionStateBatchData`.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import Final

from tidelog.base.ids import LeaderEpoch, Offset

NO_LEADER_EPOCH: Final = LeaderEpoch(-1)
"""Who kept it did not know."""
NOT_NUMBERED: Final = -1
"""Of changes of those that do not number them: Kafka's leaders, and coordinators of groups."""


class DeliveryState(IntEnum):
    """How a record stands with a share group. The numbers are those of Kafka's protocol."""

    AVAILABLE = 0
    ACQUIRED = 1
    """A member has it. It is never kept: after a failover it is available."""
    ACKNOWLEDGED = 2
    ARCHIVED = 4
    """Nobody gets it any more: it was rejected, or delivered too often."""


@dataclass(frozen=True, slots=True)
class StateBatch:
    """How consecutive records stand.

    Attributes:
        first: the first of them.
        last: the last of them, inclusive.
        delivery_count: how often they were delivered.
        leader_epoch: of all of these records in the log of who kept it; `NO_LEADER_EPOCH` if it was not told.
    """

    first: Offset
    last: Offset
    state: DeliveryState
    delivery_count: int
    leader_epoch: LeaderEpoch = NO_LEADER_EPOCH


@dataclass(frozen=True, slots=True)
class ShareState:
    """All that is kept of one partition.

    Attributes:
        state_epoch: raised when the state is initialized anew; who writes with an older one is fenced.
        start: all before it is done; None if the group has not begun.
        start_leader_epoch: of the record just before `start`.
        batches: those from `start` on that are not simply available for the first time, by offset, without overlap.
    """

    state_epoch: int
    start: Offset | None = None
    start_leader_epoch: LeaderEpoch = NO_LEADER_EPOCH
    batches: tuple[StateBatch, ...] = ()


@dataclass(frozen=True, slots=True)
class StateChange:
    """What a leader adds to what is kept.

    Attributes:
        state_epoch: of the state that it read.
        leader_epoch: in which the partition's leader leads it; who writes with an older one is fenced.
        start: None: as before.
        delivery_complete_count: how many records from the start on are done (KIP-1226); -1 if it is not known.
        batches: what differs from before, by offset, without overlap.
        number: of two changes of a state in one leader epoch, the later has the larger. One whose answer was lost is
            sent again, and may arrive once more after the next: by then it is out of date.
    """

    state_epoch: int
    leader_epoch: LeaderEpoch
    start: Offset | None
    start_leader_epoch: LeaderEpoch = NO_LEADER_EPOCH
    delivery_complete_count: int = -1
    batches: tuple[StateBatch, ...] = ()
    number: int = NOT_NUMBERED

    @property
    def is_raise(self) -> bool:
        """Whether it changes nothing but the state epoch: as `raised_to` has it."""
        return self.leader_epoch == NO_LEADER_EPOCH and self.start is None and not self.batches


def raised_to(state_epoch: int) -> StateChange:
    """That a state has a higher epoch from now on. It is no leader who says so."""
    return StateChange(state_epoch, NO_LEADER_EPOCH, None)

"""A voter of the metadata quorum. This release runs quorums of one, which elect themselves and commit what they synced.

```
 UNATTACHED ──started──▶ LEADER ──stopped──▶ RESIGNED
```

The order is what counts, and it is that of larger quorums: the new epoch is on disk before anything is written in it,
its first record is a control record that names the leader, and nothing is committed before that record is.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Self

from tidelog.base.errors import ConfigError
from tidelog.base.ids import BrokerId, LeaderEpoch, Offset
from tidelog.base.invariant import invariant
from tidelog.quorum.state_file import QuorumState


class Role(Enum):
    """What a voter is to the log."""

    UNATTACHED = "unattached"
    LEADER = "leader"
    RESIGNED = "resigned"


class Cause(Enum):
    """Why its role changes."""

    STARTED = "started"
    STOPPED = "stopped"


TRANSITIONS: dict[tuple[Role, Cause], Role] = {
    (Role.UNATTACHED, Cause.STARTED): Role.LEADER,
    (Role.UNATTACHED, Cause.STOPPED): Role.RESIGNED,
    (Role.LEADER, Cause.STOPPED): Role.RESIGNED,
}


@dataclass(frozen=True, slots=True)
class LeaderChange:
    """The control record that opens an epoch."""

    leader_epoch: LeaderEpoch
    leader_id: BrokerId
    voters: tuple[BrokerId, ...]


@dataclass(frozen=True, slots=True)
class Ready:
    """What the driver owes the world, in field order: persist, append, publish.

    Attributes:
        state: to be in the quorum-state file, synced, before anything else is done.
        leader_change: to be appended as a control batch of its own, after the epoch was assigned to the lineage.
        high_watermark: exclusive end of what is committed; None while nothing of this epoch is.
    """

    state: QuorumState | None
    leader_change: LeaderChange | None
    high_watermark: Offset | None


class QuorumVoter:
    """One voter, of a quorum that has no other."""

    def __init__(self, node_id: BrokerId, voters: tuple[BrokerId, ...], state: QuorumState | None) -> None:
        """Take up where `state` left off; None on the first start.

        Raises:
            ConfigError: the voters are not just this node.
        """
        if voters != (node_id,):
            raise ConfigError(
                f"controller.quorum.voters: this release runs a quorum of one voter, node {node_id}; "
                f"the voters named are {', '.join(map(str, voters)) or 'none'}"
            )
        self.node_id = node_id
        self.voters = voters
        self.role = Role.UNATTACHED
        self.leader_epoch: LeaderEpoch | None = None if state is None else state.leader_epoch
        self.high_watermark: Offset | None = None
        self._epoch_start: Offset | None = None
        self._state: QuorumState | None = None
        self._leader_change: LeaderChange | None = None

    # What happened.

    def on_started(self, lineage_leader_epoch: LeaderEpoch | None) -> None:
        """The log is open. A majority of one elects this node, in an epoch above all that it knows of.

        Args:
            lineage_leader_epoch: the latest of the log. It counts too, should the file be older than the log.
        """
        self._move(Cause.STARTED)
        known = [epoch for epoch in (self.leader_epoch, lineage_leader_epoch) if epoch is not None]
        self.leader_epoch = LeaderEpoch(max(known, default=0) + 1)
        self._state = QuorumState(self.leader_epoch, leader_id=self.node_id)
        self._leader_change = LeaderChange(self.leader_epoch, self.node_id, self.voters)

    def on_epoch_opened(self, epoch_start: Offset) -> None:
        """The leader change was appended at `epoch_start`."""
        invariant(self.role is Role.LEADER and self._state is None, "an epoch was opened before it was on disk")
        self._epoch_start = epoch_start

    def on_synced(self, end_offset: Offset) -> None:
        """All below `end_offset` (exclusive) would survive a loss of power; so a majority of one has it."""
        if self.role is not Role.LEADER or self._epoch_start is None or end_offset <= self._epoch_start:
            return  # nothing is committed before a record of this epoch is
        if self.high_watermark is None or end_offset > self.high_watermark:
            self.high_watermark = end_offset

    def on_stopped(self) -> None:
        """The node stops; it leads no more."""
        self._move(Cause.STOPPED)

    # What to do about it.

    def take_ready(self) -> Ready:
        """What is owed since the last call."""
        ready = Ready(self._state, self._leader_change, self.high_watermark)
        self._state = self._leader_change = None
        return ready

    def clone(self) -> Self:
        """An independent copy."""
        copy = type(self).__new__(type(self))
        copy.__dict__.update(self.__dict__)
        return copy

    def canonical_key(self) -> tuple[object, ...]:
        """Equal for voters that behave alike."""
        return (
            self.node_id,
            self.role,
            self.leader_epoch,
            self.high_watermark,
            self._epoch_start,
            self._state,
            self._leader_change,
        )

    def _move(self, cause: Cause) -> None:
        invariant((self.role, cause) in TRANSITIONS, "voter {}: {} while {}", self.node_id, cause, self.role)
        self.role = TRANSITIONS[self.role, cause]

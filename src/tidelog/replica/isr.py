"""The in-sync replicas as the leader has to see them: what the controller said last, and all that it may yet grant.

A proposal is a fact that cannot be taken back: after a time-out, or a refusal that came late, the controller may still
have granted it. Only partition state that is newer than the one it was made on tells (rule 4).

Kafka: `CommittedPartitionState`, `PendingExpandIsr`, `PendingShrinkIsr`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol, Self

from tidelog.base.ids import BrokerEpoch, BrokerId, LeaderEpoch, Offset, PartitionEpoch
from tidelog.metadata.image import PartitionImage


class JoinRule(Protocol):
    """From which offset on a follower may join the ISR."""

    def __call__(self, high_watermark: Offset, epoch_start: Offset) -> Offset: ...


def join_point(high_watermark: Offset, epoch_start: Offset) -> Offset:
    """The one rule in production: it has all that is committed, and all that the leader began with (rule 5).

    A new leader's high watermark may lag behind what the last one committed, but its log does not.
    """
    return max(high_watermark, epoch_start)


def isr_size_min(partition: PartitionImage, min_insync_replicas: int) -> int:
    """How many must be in sync before anything is committed: never more than there are replicas (rule 4).

    Those that a reassignment adds do not count until it is done: a topic with one replica takes records all the while
    that it gets a second one.
    """
    return min(min_insync_replicas, len(partition.replicas) - len(partition.adding_replicas))


@dataclass(frozen=True, slots=True)
class IsrProposal:
    """An ISR to put to the controller (AlterPartition), on top of the partition epoch that it was made on.

    It says as well that the leader, if an unclean election made it one, has recovered. When it is the ISR that there is
    already, it asks for newer state alone: the controller grants it as any other, with a new partition epoch.

    Attributes:
        broker_epochs: the incarnations of its members when it was made, of those that are known. Whoever joins has
            proved in this one that it is in sync; what a newer one has, nobody knows, though it be registered by the
            time that this is sent (KIP-903).
    """

    leader_epoch: LeaderEpoch
    partition_epoch: PartitionEpoch
    isr: frozenset[BrokerId]
    broker_epochs: tuple[tuple[BrokerId, BrokerEpoch], ...] = ()

    def broker_epoch(self, member: BrokerId) -> BrokerEpoch | None:
        """The incarnation that is to be in sync; None where it is not known, and not checked."""
        return dict(self.broker_epochs).get(member)


class InSyncReplicas:
    """The ISR of one partition, in one leader epoch."""

    __slots__ = (
        "_min_insync_replicas",
        "_proposals",
        "_to_send",
        "committed",
        "is_proposal_open",
        "maximal",
        "size_min",
        "state",
    )

    def __init__(self, state: PartitionImage, min_insync_replicas: int) -> None:
        self.state = state
        self._min_insync_replicas = min_insync_replicas
        self.size_min = isr_size_min(state, min_insync_replicas)
        """How many must be in sync before anything is committed."""
        self.committed = frozenset(state.isr)
        """What the controller said last."""
        self.maximal = self.committed
        """Everyone who is in an ISR that may be the true one: all of them must hold what is committed."""
        self.is_proposal_open = False
        """Whether the controller was asked, or is about to be, and has not answered."""
        self._proposals: frozenset[frozenset[BrokerId]] = frozenset()
        self._to_send: IsrProposal | None = None

    @property
    def is_stable(self) -> bool:
        """Whether the controller has no more to say: every proposal is answered, and the leader has recovered."""
        return not self._proposals and not self.state.is_recovering

    def propose(self, isr: frozenset[BrokerId], active: Mapping[BrokerId, BrokerEpoch]) -> None:
        """Propose another ISR; one proposal at a time, so this does nothing while one is open.

        Args:
            active: who may be in sync, in which incarnation.
        """
        if self.is_proposal_open or (isr == self.committed and self.is_stable):
            return
        self.is_proposal_open = True
        broker_epochs = tuple((broker, active[broker]) for broker in sorted(isr) if broker in active)
        self._to_send = IsrProposal(self.state.leader_epoch, self.state.partition_epoch, isr, broker_epochs)
        self._proposals |= {isr}
        self.maximal |= isr

    def take_proposal(self) -> IsrProposal | None:
        """What to put to the controller now; out once."""
        proposal, self._to_send = self._to_send, None
        return proposal

    def on_proposal_unanswered(self) -> None:
        """The proposal timed out or was refused: another may be made, but this one may have been granted."""
        self.is_proposal_open = False

    def on_state(self, state: PartitionImage) -> bool:
        """Newer state answers every proposal, for all were made on an older one. Returns whether it was newer."""
        if state.partition_epoch <= self.state.partition_epoch:
            return False
        self.state = state
        self.size_min = isr_size_min(state, self._min_insync_replicas)
        self.committed = self.maximal = frozenset(state.isr)
        self.is_proposal_open = False
        self._proposals = frozenset()
        self._to_send = None
        return True

    def on_settings(self, min_insync_replicas: int) -> None:
        """The topic's `min.insync.replicas` is this now."""
        self._min_insync_replicas = min_insync_replicas
        self.size_min = isr_size_min(self.state, min_insync_replicas)

    def clone(self) -> Self:
        copy = type(self).__new__(type(self))
        copy.state, copy.size_min, copy._min_insync_replicas = self.state, self.size_min, self._min_insync_replicas
        copy.committed, copy.maximal = self.committed, self.maximal
        copy.is_proposal_open = self.is_proposal_open
        copy._proposals, copy._to_send = self._proposals, self._to_send
        return copy

    def canonical_key(self) -> tuple[object, ...]:
        """Equal for machines that behave alike."""
        return (self.state, self.is_proposal_open, self._to_send, self._proposals)

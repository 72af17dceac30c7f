"""StopReplica (KIP-570): a replica stops when it is told to, and is deleted only when the metadata agrees.

A push may be late, or come twice, or overtake what this broker has applied of the metadata log. So:

- one that names an older leader epoch than is known here does nothing. Every change of the replica set bumps the epoch
  (rule 8), so an equal one is no order from before the replica was added again;
- files go when an image at or past the offset of the push no longer assigns the replica here. If that image assigns it,
  the order was overtaken, and the replica goes on;
- a push that never comes costs time alone: the metadata says the same.

Kafka: `ReplicaManager.stopReplicas`.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import NamedTuple, Self

from tidelog.base.errors import Code, refusal
from tidelog.base.ids import (
    BrokerEpoch,
    BrokerId,
    ControllerEpoch,
    LeaderEpoch,
    Offset,
    PartitionIndex,
    TopicId,
    TopicPartition,
)
from tidelog.metadata.image import MetadataImage, PartitionImage


@dataclass(frozen=True, slots=True)
class StopOrder:
    """What a StopReplica says about one partition.

    Attributes:
        topic_id: None where the sender does not tell.
        leader_epoch: None for the sentinel of a deletion (-2 on the wire, -1 in the text).
        is_deletion: whether the files are to go as well.
        metadata_offset: of the committed record that it follows from, inclusive; None where the sender does not tell.
    """

    topic_partition: TopicPartition
    topic_id: TopicId | None
    leader_epoch: LeaderEpoch | None
    is_deletion: bool
    metadata_offset: Offset | None


@dataclass(frozen=True, slots=True)
class HeldReplica:
    """A log that this broker has.

    Attributes:
        leader_epoch: as this broker's metadata has it; None for a stray log, of a topic that the metadata lacks.
    """

    topic_id: TopicId
    leader_epoch: LeaderEpoch | None


class ReplicaId(NamedTuple):
    """One replica of this broker, for as long as its topic exists."""

    topic_id: TopicId
    partition: PartitionIndex


class StopReady(NamedTuple):
    """What the driver owes, in field order: serve no more, delete the files, go on as the metadata says."""

    stop: tuple[ReplicaId, ...]
    delete: tuple[ReplicaId, ...]
    resume: tuple[ReplicaId, ...]


METADATA_AHEAD_MAX = 1_000_000
"""How many offsets an order may be ahead of the metadata that its broker has heard of: more than a session's worth.

A broker that is further behind is fenced, and learns from the metadata what it holds no more.
"""


def check_stop_request(
    *,
    sent_controller_epoch: ControllerEpoch,
    controller_epoch: ControllerEpoch | None,
    sent_broker_epoch: BrokerEpoch | None,
    broker_epoch: BrokerEpoch,
) -> None:
    """Refuse a whole StopReplica, before its partitions are looked at.

    Args:
        controller_epoch: the latest that this broker knows of; None before the first.
        sent_broker_epoch: the incarnation that it was meant for; None where the request names none.

    Raises:
        KafkaError: STALE_CONTROLLER_EPOCH: another controller has taken over. STALE_BROKER_EPOCH: it was meant for an
            earlier incarnation of this broker, or names none.
    """
    if controller_epoch is not None and sent_controller_epoch < controller_epoch:
        raise refusal(
            Code.STALE_CONTROLLER_EPOCH,
            f"StopReplica of controller epoch {sent_controller_epoch}; this broker knows of {controller_epoch}",
        )
    if sent_broker_epoch is None or sent_broker_epoch < broker_epoch:
        raise refusal(
            Code.STALE_BROKER_EPOCH,
            f"StopReplica for broker epoch {sent_broker_epoch}; this broker is registered at {broker_epoch}",
        )


def check_metadata_offset(metadata_offset: Offset | None, received_end_offset: Offset) -> None:
    """Refuse a StopReplica that would hold replicas up for a record which never comes.

    Args:
        metadata_offset: of the newest record that it follows from, inclusive; None where the request tells none.
        received_end_offset: exclusive end of the metadata that this broker has heard of, committed or not.

    Raises:
        KafkaError: INVALID_REQUEST: no controller can have written so much by now.
    """
    if metadata_offset is not None and metadata_offset >= received_end_offset + METADATA_AHEAD_MAX:
        raise refusal(
            Code.INVALID_REQUEST,
            f"StopReplica of metadata offset {metadata_offset}; this broker has heard of it up to "
            f"{received_end_offset}, and no controller is {METADATA_AHEAD_MAX} ahead",
        )


def check_stop_order(order: StopOrder, held: HeldReplica) -> None:
    """Refuse an order that something newer has overtaken.

    Raises:
        KafkaError: INCONSISTENT_TOPIC_ID: it is about an earlier topic of that name. STALE_CONTROLLER_EPOCH: its leader
            epoch is older than the one known here (as the text of KIP-570 has it; Kafka shipped FENCED_LEADER_EPOCH),
            or it has the sentinel and is no deletion by topic id, or is about a stray log and has no metadata offset:
            whether that topic is gone, or not heard of here yet, nothing else tells.
    """
    if order.topic_id is not None and order.topic_id != held.topic_id:
        raise refusal(
            Code.INCONSISTENT_TOPIC_ID,
            f"{order.topic_partition}: StopReplica is about topic id {order.topic_id}, the log here is of "
            f"{held.topic_id}",
        )
    if order.leader_epoch is None:
        if not order.is_deletion or order.topic_id is None:
            raise refusal(
                Code.STALE_CONTROLLER_EPOCH,
                f"{order.topic_partition}: StopReplica without a leader epoch is for deletions by topic id alone",
            )
    elif held.leader_epoch is not None and order.leader_epoch < held.leader_epoch:
        raise refusal(
            Code.STALE_CONTROLLER_EPOCH,
            f"{order.topic_partition}: StopReplica of leader epoch {order.leader_epoch}, this broker knows of "
            f"{held.leader_epoch}",
        )
    if held.leader_epoch is None and order.metadata_offset is None:
        raise refusal(
            Code.STALE_CONTROLLER_EPOCH,
            f"{order.topic_partition}: StopReplica without a metadata offset, of a topic that is not known here",
        )


class StoppedReplicas:
    """The replicas of one broker that were told to stop, until its own metadata says what becomes of them."""

    __slots__ = ("_delete", "_pending", "_resume", "_stop", "broker_id")

    def __init__(self, broker_id: BrokerId) -> None:
        self.broker_id = broker_id
        self._pending: dict[ReplicaId, StopOrder] = {}
        self._stop: list[ReplicaId] = []
        self._delete: list[ReplicaId] = []
        self._resume: list[ReplicaId] = []

    def is_stopped(self, replica: ReplicaId) -> bool:
        """Whether it may neither lead nor follow nor serve, though the metadata applied so far may assign it."""
        return replica in self._pending

    @property
    def stopped(self) -> Collection[ReplicaId]:
        """All replicas that were told to stop."""
        return self._pending.keys()

    # What happened.

    def on_order(self, order: StopOrder, held: HeldReplica | None, image: MetadataImage) -> None:
        """A push came, for a request that `check_stop_request` let pass.

        Args:
            held: the log that is here under that name and index; None when there is none, and so nothing to do.
            image: what this broker has applied by now.

        Raises:
            KafkaError: as `check_stop_order`; nothing was changed.
        """
        if held is None:
            return
        check_stop_order(order, held)
        replica = ReplicaId(held.topic_id, order.topic_partition.partition)
        if replica not in self._pending:
            self._stop.append(replica)
        self._pending[replica] = _both(self._pending.get(replica, order), order)
        self._process_order(replica, image)

    def on_image(self, image: MetadataImage) -> None:
        """This broker has applied the metadata up to `image.last_offset`."""
        for replica in list(self._pending):
            self._process_order(replica, image)

    def on_metadata_timeout(self, replica: ReplicaId, image: MetadataImage) -> None:
        """The metadata did not come so far in a long time: it is as if the push had never come.

        Nothing of ours sends what is not committed; but whoever does must not hold a replica up for good.
        """
        if self._pending.pop(replica, None) is not None and self._is_assigned(replica, image):
            self._resume.append(replica)

    # What to do about it.

    def take_ready(self) -> StopReady:
        """What is owed since the last call."""
        ready = StopReady(tuple(self._stop), tuple(self._delete), tuple(self._resume))
        self._stop, self._delete, self._resume = [], [], []
        return ready

    def clone(self) -> Self:
        """An independent copy, for the exhaustive checker."""
        copy = type(self)(self.broker_id)
        copy._pending = self._pending.copy()
        copy._stop, copy._delete, copy._resume = self._stop.copy(), self._delete.copy(), self._resume.copy()
        return copy

    def canonical_key(self) -> tuple[object, ...]:
        """Equal for machines that behave alike."""
        return (
            self.broker_id,
            frozenset(self._pending.items()),
            tuple(self._stop),
            tuple(self._delete),
            tuple(self._resume),
        )

    def _process_order(self, replica: ReplicaId, image: MetadataImage) -> None:
        order = self._pending[replica]
        state = _state(replica, image)
        is_assigned = self._is_assigned(replica, image)
        if order.metadata_offset is not None:
            if image.last_offset is None or image.last_offset < order.metadata_offset:
                return
        elif state is not None:  # it was known when the order came: once it is not, the topic is deleted
            if order.leader_epoch is None or state.leader_epoch < order.leader_epoch:
                return  # what the order follows from is not known here yet
            if is_assigned and state.leader_epoch == order.leader_epoch:
                return  # it may be this very assignment that the order ends
        del self._pending[replica]
        if is_assigned:
            self._resume.append(replica)
        elif order.is_deletion:
            self._delete.append(replica)

    def _is_assigned(self, replica: ReplicaId, image: MetadataImage) -> bool:
        state = _state(replica, image)
        return state is not None and self.broker_id in state.replicas


def _state(replica: ReplicaId, image: MetadataImage) -> PartitionImage | None:
    topic = image.topic_by_id(replica.topic_id)
    return topic.partitions[replica.partition] if topic and replica.partition < len(topic.partitions) else None


def _both(first: StopOrder, second: StopOrder) -> StopOrder:
    """Two orders for one replica: the later metadata decides for both."""
    offsets = [offset for offset in (first.metadata_offset, second.metadata_offset) if offset is not None]
    epochs = [epoch for epoch in (first.leader_epoch, second.leader_epoch) if epoch is not None]
    is_for_good = len(epochs) < 2  # the sentinel: a topic id that is deleted never comes back
    return StopOrder(
        second.topic_partition,
        second.topic_id,
        None if is_for_good else max(epochs),
        first.is_deletion or second.is_deletion,
        max(offsets, default=None),
    )

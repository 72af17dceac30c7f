"""What brokers made of a StopReplica before, or make of it elsewhere: passed in where production has today's rules."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from tidelog.base.errors import Code, refusal
from tidelog.base.ids import BrokerId
from tidelog.metadata import MetadataImage
from tidelog.replica import HeldReplica, ReplicaId, StopOrder, StoppedReplicas, StopReady


class Stopping(Protocol):
    """What stops the replicas of one broker. As `StoppedReplicas`."""

    def is_stopped(self, replica: ReplicaId) -> bool: ...
    def on_order(self, order: StopOrder, held: HeldReplica | None, image: MetadataImage) -> None: ...
    def on_image(self, image: MetadataImage) -> None: ...
    def take_ready(self) -> StopReady: ...
    def clone(self) -> Stopping: ...
    def canonical_key(self) -> tuple[object, ...]: ...


@dataclass(frozen=True)
class StopRules:
    """What the controller and the brokers of a story go by; the defaults are production's.

    Attributes:
        grows_on_adding: whether the leader epoch grows when a replica is added, and not on removal alone (rule 8).
        pushes_before_commit: whether the controller pushes what it has decided and not committed yet.
    """

    stopping: Callable[[BrokerId], Stopping] = StoppedReplicas
    grows_on_adding: bool = True
    pushes_before_commit: bool = False


class ObeyedAtOnce:
    """An order that passes its checks is carried out as it comes: files go whatever the broker's own metadata says."""

    compares_epochs = True
    compares_topic_ids = True

    def __init__(self, broker_id: BrokerId) -> None:
        self._broker_id = broker_id
        self._obeyed: list[tuple[ReplicaId, bool]] = []

    def is_stopped(self, replica: ReplicaId) -> bool:
        return False

    def on_order(self, order: StopOrder, held: HeldReplica | None, image: MetadataImage) -> None:
        if held is None:
            return
        if self.compares_topic_ids and order.topic_id not in (None, held.topic_id):
            raise refusal(Code.INCONSISTENT_TOPIC_ID)
        known = held.leader_epoch
        is_older = known is not None and order.leader_epoch is not None and order.leader_epoch < known
        if self.compares_epochs and is_older:
            raise refusal(Code.STALE_CONTROLLER_EPOCH)
        self._obeyed.append((ReplicaId(held.topic_id, order.topic_partition.partition), order.is_deletion))

    def on_image(self, image: MetadataImage) -> None:
        """It says nothing here."""

    def take_ready(self) -> StopReady:
        obeyed, self._obeyed = self._obeyed, []
        return StopReady(
            tuple(replica for replica, _ in obeyed), tuple(replica for replica, deletes in obeyed if deletes), ()
        )

    def clone(self) -> Stopping:
        copy = type(self)(self._broker_id)
        copy._obeyed = self._obeyed.copy()
        return copy

    def canonical_key(self) -> tuple[object, ...]:
        return tuple(self._obeyed)


class WithoutEpochs(ObeyedAtOnce):
    """Before KIP-570: an order says which partition, and nothing of when it was given."""

    compares_epochs = compares_topic_ids = False


class WithoutTopicIds(ObeyedAtOnce):
    """KIP-570 to the letter: epochs are compared, and the sentinel of a deletion overrides any, of whatever topic."""

    compares_topic_ids = False


OLD_STOP_RULES = {
    "without-epochs": StopRules(WithoutEpochs),
    "obeyed-at-once": StopRules(ObeyedAtOnce),
    "grows-on-removal-only": StopRules(ObeyedAtOnce, grows_on_adding=False),
    "sentinel-overrides-any-epoch": StopRules(WithoutTopicIds),
    "push-before-commit": StopRules(ObeyedAtOnce, pushes_before_commit=True),
}

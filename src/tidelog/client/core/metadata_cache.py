"""What a client believes of the cluster: brokers, topics with their ids, and who leads what in which epoch.

Brokers learn of elections at different times, so a later answer may be an older one. Two rules keep the belief from
going back: a smaller leader epoch of the same topic id is not taken over, and a topic id that was once replaced never
comes back. A partition without a leader keeps its epoch: that is not a rewind (KIP-320).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tidelog.base.errors import Code
from tidelog.base.ids import BrokerId, LeaderEpoch, PartitionIndex, TopicId, TopicPartition
from tidelog.client.core.values import code_of

if TYPE_CHECKING:
    from tidelog.wire.messages.api_03_metadata import (
        MetadataResponse,
        MetadataResponsePartition,
        MetadataResponseTopic,
    )


@dataclass(frozen=True, slots=True)
class CachedBroker:
    """Where a broker listens for clients."""

    broker_id: BrokerId
    host: str
    port: int
    rack: str | None = None


@dataclass(frozen=True, slots=True)
class CachedPartition:
    """One partition as the newest answer shows it."""

    partition: PartitionIndex
    leader_id: BrokerId | None
    leader_epoch: LeaderEpoch | None
    """None where brokers tell none (before Metadata 7)."""
    replicas: tuple[BrokerId, ...] = ()
    isr: tuple[BrokerId, ...] = ()
    offline_replicas: tuple[BrokerId, ...] = ()


@dataclass(frozen=True, slots=True)
class TopicView:
    """One topic as the newest answer shows it."""

    name: str
    topic_id: TopicId | None
    """None where brokers tell none (before Metadata 10)."""
    is_internal: bool
    partitions: dict[PartitionIndex, CachedPartition]

    @property
    def partition_count(self) -> int:
        return len(self.partitions)


@dataclass(slots=True)
class MetadataChanges:
    """What an answer changed."""

    leaders: set[TopicPartition] = field(default_factory=set)
    """Partitions whose leader or leader epoch is another one now."""
    topics: set[str] = field(default_factory=set)
    """Topics that are new, gone, grown, or have another id."""

    def __bool__(self) -> bool:
        return bool(self.leaders or self.topics)


class MetadataCache:
    """See the module. Errors of topics are kept beside them, as the broker gave them."""

    def __init__(self) -> None:
        self.brokers: dict[BrokerId, CachedBroker] = {}
        self.controller_id: BrokerId | None = None
        self.cluster_id: str | None = None
        self.topics: dict[str, TopicView] = {}
        self.errors: dict[str, Code] = {}
        self._replaced: set[TopicId] = set()

    # What happened.
    def on_metadata(self, response: MetadataResponse, *, requested: Iterable[str] | None) -> MetadataChanges:
        """Apply a Metadata response.

        Args:
            response: without an error at its top.
            asked: the topics that were asked for; None for all there are. What was asked for and is not in the answer
                is gone.
        """
        changes = MetadataChanges()
        if response.brokers:
            self.brokers = {
                BrokerId(broker.node_id): CachedBroker(BrokerId(broker.node_id), broker.host, broker.port, broker.rack)
                for broker in response.brokers
            }
        self.controller_id = BrokerId(response.controller_id) if response.controller_id >= 0 else None
        if response.cluster_id is not None:
            self.cluster_id = response.cluster_id
        answered = set()
        for topic in response.topics:
            if topic.name is None:
                continue
            answered.add(topic.name)
            self._on_topic(topic.name, topic, changes)
        for name in set(self.topics if requested is None else requested) - answered:
            self._forget(name, Code.UNKNOWN_TOPIC_OR_PARTITION, changes)
        return changes

    def _on_topic(self, name: str, topic: MetadataResponseTopic, changes: MetadataChanges) -> None:
        code = code_of(topic.error_code)
        if code is not Code.NONE:
            if code in (Code.UNKNOWN_TOPIC_OR_PARTITION, Code.UNKNOWN_TOPIC_ID, Code.INVALID_TOPIC_EXCEPTION):
                self._forget(name, code, changes)
            self.errors[name] = code
            return
        topic_id = TopicId(topic.topic_id) if topic.topic_id.int else None
        if topic_id in self._replaced:
            return  # the answer of a broker that has not heard of the newer topic yet
        known = self.topics.get(name)
        same = known is not None and (known.topic_id == topic_id or known.topic_id is None or topic_id is None)
        if known is not None and not same and known.topic_id is not None:
            self._replaced.add(known.topic_id)
        partitions: dict[PartitionIndex, CachedPartition] = {}
        for sent in topic.partitions:
            index = PartitionIndex(sent.partition_index)
            before = known.partitions.get(index) if known is not None and same else None
            partitions[index] = after = _newer(before, sent)
            if before is None or (before.leader_id, before.leader_epoch) != (after.leader_id, after.leader_epoch):
                changes.leaders.add(TopicPartition(name, index))
        if known is None or not same or known.partitions.keys() != partitions.keys():
            changes.topics.add(name)
        self.errors.pop(name, None)
        self.topics[name] = TopicView(name, topic_id, topic.is_internal, dict(sorted(partitions.items())))

    def _forget(self, name: str, code: Code, changes: MetadataChanges) -> None:
        self.errors[name] = code
        if self.topics.pop(name, None) is not None:
            changes.topics.add(name)

    def forget_refusals(self, names: Iterable[str]) -> bool:
        """The next answer says anew why there are no such topics. Returns whether there was an error to forget."""
        refused = self.errors.keys() & set(names)
        for name in refused:
            del self.errors[name]
        return bool(refused)

    # What is believed.
    def partition(self, partition: TopicPartition) -> CachedPartition | None:
        """What is known of a partition; None if it is not known."""
        topic = self.topics.get(partition.topic)
        return topic.partitions.get(partition.partition) if topic is not None else None

    def topic_id(self, name: str) -> TopicId | None:
        topic = self.topics.get(name)
        return topic.topic_id if topic is not None else None

    def refusal(self, partition: TopicPartition) -> Code | None:
        """Why the last answer did not have a partition; None if it did, or there was none."""
        if partition.topic not in self.topics:
            return self.errors.get(partition.topic)
        return Code.UNKNOWN_TOPIC_OR_PARTITION if self.partition(partition) is None else None

    def why_missing(self, partition: TopicPartition) -> Code:
        """Why there is no leader to ask."""
        if partition.topic not in self.topics:
            return self.errors.get(partition.topic, Code.UNKNOWN_TOPIC_OR_PARTITION)
        view = self.partition(partition)
        return Code.UNKNOWN_TOPIC_OR_PARTITION if view is None else Code.LEADER_NOT_AVAILABLE


def _newer(known: CachedPartition | None, sent: MetadataResponsePartition) -> CachedPartition:
    """The sent view, unless it is of an older leader epoch than the one known."""
    leader_epoch = LeaderEpoch(sent.leader_epoch) if sent.leader_epoch >= 0 else None
    if known is not None and known.leader_epoch is not None:
        if leader_epoch is None:
            leader_epoch = known.leader_epoch
        elif leader_epoch < known.leader_epoch:
            return known
    return CachedPartition(
        PartitionIndex(sent.partition_index),
        BrokerId(sent.leader_id) if sent.leader_id >= 0 else None,
        leader_epoch,
        tuple(map(BrokerId, sent.replica_nodes)),
        tuple(map(BrokerId, sent.isr_nodes)),
        tuple(map(BrokerId, sent.offline_replicas)),
    )

"""Brokers that are told to stop replicas: production's orders and metadata, logs that are there or not, and pushes that
lie in the network until somebody delivers them, perhaps again.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from uuid import UUID

from support.old_rules.stop_rules import Stopping, StopRules
from support.worlds.replica_values import name_of
from tidelog.base.errors import KafkaError
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
from tidelog.controller.partition_changes import change_record, with_replicas
from tidelog.metadata import MetadataImage, TopicImage
from tidelog.metadata.draft import MetadataDraft
from tidelog.metadata.records import PartitionRecord, RemoveTopicRecord, TopicRecord
from tidelog.replica import HeldReplica, ReplicaId, StopOrder, check_stop_request
from tidelog.sim.checkers.stopping import BrokerView, StoppedMeansStopped

FIRST = PartitionIndex(0)
INCARNATION = BrokerEpoch(1)
FIRST_CONTROLLER = ControllerEpoch(1)


@dataclass
class Push:
    """A StopReplica on its way."""

    to: BrokerId
    controller_epoch: ControllerEpoch
    order: StopOrder


@dataclass
class Host:
    """One broker: the logs that it has, by the name of their topic, and how much of the metadata it has applied."""

    broker_id: BrokerId
    stopping: Stopping
    logs: dict[str, TopicId] = field(default_factory=dict)
    stopped: set[ReplicaId] = field(default_factory=set)
    image: MetadataImage = field(default_factory=MetadataImage.empty)
    controller_epoch: ControllerEpoch = FIRST_CONTROLLER


class StopWorld:
    """Topics of one partition each, on a few brokers. Every topic made is counted: t#1, and t#2 once t is made anew."""

    def __init__(self, brokers: list[BrokerId], rules: StopRules) -> None:
        self.rules = rules
        self.hosts = {broker: Host(broker, rules.stopping(broker)) for broker in brokers}
        self.latest = MetadataImage.empty()
        self.controller_epoch = FIRST_CONTROLLER
        self.pushes: list[Push] = []
        self.events: list[str] = []
        self.broken: list[str] = []
        self._next_offset = 0
        self._topics_made = 0
        self._checker = StoppedMeansStopped()

    # What an operator, the network and time do.

    def create(self, name: str, replicas: tuple[BrokerId, ...]) -> None:
        self._topics_made += 1
        topic_id = TopicId(UUID(int=self._topics_made))
        on: list[int] = list(replicas)
        partition = PartitionRecord(
            partition_id=FIRST,
            topic_id=topic_id,
            replicas=on,
            isr=on[:1],
            leader=on[0],
            leader_epoch=0,
            partition_epoch=0,
        )
        self._commit(TopicRecord(name=name, topic_id=topic_id), partition)

    def assign(
        self, name: str, replicas: tuple[BrokerId, ...], *, is_committed: bool = True, tells_epochs: bool = True
    ) -> None:
        """Another set of replicas; who loses its own is told to stop it, once that is committed."""
        topic = self.latest.topics_by_name[name]
        before = topic.partitions[0]
        after = with_replicas(before, replicas, min_insync_replicas=1, is_active=lambda broker: True)
        leavers = [broker for broker in before.replicas if broker not in replicas]
        if not leavers and not self.rules.grows_on_adding:
            after = replace(after, leader_epoch=before.leader_epoch)
        offset = self._next_offset
        if is_committed:
            self._commit(change_record(topic.topic_id, FIRST, before, after))
        else:
            self.controller_epoch = ControllerEpoch(self.controller_epoch + 1)
        if is_committed or self.rules.pushes_before_commit:
            self._push(topic, leavers, after.leader_epoch, Offset(offset), tells_epochs=tells_epochs)

    def delete(self, name: str) -> None:
        """The leader epoch does not grow: those who have it are sent the sentinel of a deletion."""
        topic = self.latest.topics_by_name[name]
        offset = Offset(self._next_offset)
        self._commit(RemoveTopicRecord(topic_id=topic.topic_id))
        self._push(topic, list(topic.partitions[0].replicas), None, offset)

    def learn(self, broker: BrokerId) -> None:
        """A broker applies all that is committed; what it says of a replica makes good for a push that never came."""
        host = self.hosts[broker]
        host.image, host.controller_epoch = self.latest, self.controller_epoch
        host.stopping.on_image(host.image)
        self._carry_out(host)
        for name, topic_id in list(host.logs.items()):
            replica = ReplicaId(topic_id, FIRST)
            if not self._is_assigned(host, topic_id) and not host.stopping.is_stopped(replica):
                self._delete(host, name)
        for name, topic in host.image.topics_by_name.items():
            if self._is_assigned(host, topic.topic_id):
                host.logs.setdefault(name, topic.topic_id)
        self._check()

    def deliver(self, broker: BrokerId, *, is_repeated: bool) -> None:
        """The oldest push on its way to a broker arrives."""
        push = next((push for push in self.pushes if push.to == broker), None)
        if push is None:
            self.events.append(f"nothing is on its way to {name_of(broker)}")
            return
        if not is_repeated:
            self.pushes.remove(push)
        host = self.hosts[broker]
        name = push.order.topic_partition.topic
        try:
            check_stop_request(
                sent_controller_epoch=push.controller_epoch,
                controller_epoch=host.controller_epoch,
                sent_broker_epoch=INCARNATION,
                broker_epoch=INCARNATION,
            )
            host.stopping.on_order(push.order, self._held(host, name), host.image)
        except KafkaError as error:
            self.events.append(f"{name_of(broker)} refuses to stop {name}: {error.code.name}")
        self._carry_out(host)
        self._check()

    def is_serving(self, host: Host, name: str) -> bool:
        replica = ReplicaId(host.logs[name], FIRST)
        return self._is_assigned(host, host.logs[name]) and replica not in host.stopped

    # The shells.

    def _commit(self, *records: object) -> None:
        draft = MetadataDraft(self.latest)
        for record in records:
            draft.apply(record)
        self._next_offset += len(records)
        self.latest = draft.image(Offset(self._next_offset - 1))

    def _push(
        self,
        topic: TopicImage,
        brokers: list[BrokerId],
        leader_epoch: LeaderEpoch | None,
        offset: Offset,
        *,
        tells_epochs: bool = True,
    ) -> None:
        order = StopOrder(TopicPartition(topic.name, FIRST), topic.topic_id, leader_epoch, True, offset)
        if not tells_epochs:
            order = replace(order, topic_id=None, leader_epoch=None, metadata_offset=None)
        self.pushes += [Push(broker, self.controller_epoch, order) for broker in brokers]

    def _held(self, host: Host, name: str) -> HeldReplica | None:
        topic_id = host.logs.get(name)
        if topic_id is None:
            return None
        topic = host.image.topic_by_id(topic_id)
        return HeldReplica(topic_id, None if topic is None else topic.partitions[0].leader_epoch)

    def _carry_out(self, host: Host) -> None:
        ready = host.stopping.take_ready()
        host.stopped |= {*ready.stop}
        host.stopped -= {*ready.delete, *ready.resume}
        for name, topic_id in list(host.logs.items()):
            if ReplicaId(topic_id, FIRST) in ready.delete:
                self._delete(host, name)
            elif ReplicaId(topic_id, FIRST) in ready.resume:
                self.events.append(f"{name_of(host.broker_id)} goes on with {name}#{topic_id.int}: it is assigned")

    def _delete(self, host: Host, name: str) -> None:
        self.events.append(f"{name_of(host.broker_id)} deletes {name}#{host.logs.pop(name).int}")

    @staticmethod
    def _is_assigned(host: Host, topic_id: TopicId) -> bool:
        topic = host.image.topic_by_id(topic_id)
        return topic is not None and host.broker_id in topic.partitions[0].replicas

    def _check(self) -> None:
        self.broken += [str(broken) for broken in self._checker.check(list(self._views()), self.latest)]

    def _views(self) -> Iterator[BrokerView]:
        for host in self.hosts.values():
            serving = {ReplicaId(host.logs[name], FIRST) for name in host.logs if self.is_serving(host, name)}
            yield BrokerView(
                host.broker_id,
                frozenset(ReplicaId(topic_id, FIRST) for topic_id in host.logs.values()),
                frozenset(host.stopped),
                frozenset(serving),
                host.image,
                name_of(host.broker_id),
            )

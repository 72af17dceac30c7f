"""The coordinators of one kind on this broker: one for each partition of their internal topic that it leads.

Which partition a key belongs to is a hash of it, as Kafka computes it, so that tools and other brokers agree.
The topic is made when a client first asks who coordinates its key.

Kafka: `GroupCoordinatorService` and its like, without what is about groups.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from typing import Generic

from tidelog.base.errors import Code, InvariantBrokenError, KafkaError, refusal
from tidelog.base.ids import PartitionIndex, TopicPartition
from tidelog.base.ports import Clock, Executor, Rng
from tidelog.controller import CreateTopicResult, TopicToCreate
from tidelog.coordinator.memory import CoordinatorMemory
from tidelog.log.producer_state import ProducerStates
from tidelog.metadata.configs import ConfigValues, broker_values
from tidelog.net.backoff import Backoff
from tidelog.server.broker.broker import Broker
from tidelog.server.broker.listeners import BrokerListener
from tidelog.server.coordinators.coordinator_partition import (
    Command,
    CoordinatorHost,
    CoordinatorKind,
    CoordinatorPartition,
    Event,
    M,
    ProducerCheck,
)
from tidelog.server.coordinators.retried_sends import SendToLeader
from tidelog.server.replication.partition import Partition

SEND_BACKOFF_MS = 50
SEND_BACKOFF_MS_MAX = 1_000

CreateTopics = Callable[[list[TopicToCreate]], Awaitable[Sequence[CreateTopicResult]]]


async def send_to_nobody(destination: TopicPartition, request: object) -> object:
    """For machines that send nothing."""
    raise InvariantBrokenError(f"a coordinator of a kind that sends nothing asks the leader of {destination}")


@dataclass(frozen=True, slots=True)
class CoordinatorNode:
    """The node on which coordinators live, of whatever kind.

    Attributes:
        broker: whose partitions are followed.
        properties: the node's file.
        create_topics: creates topics at the controller, and returns when this broker has them.
    """

    broker: Broker
    properties: Mapping[str, str]
    clock: Clock
    executor: Executor
    rng: Rng
    create_topics: CreateTopics


class CoordinatorPartitions(BrokerListener, ABC, Generic[M]):
    """Finds the coordinator of a key, and keeps those that live here.

    Args:
        send_to_leader: for what machines send to other brokers.
    """

    def __init__(
        self, kind: CoordinatorKind, node: CoordinatorNode, *, send_to_leader: SendToLeader = send_to_nobody
    ) -> None:
        broker = node.broker
        self._kind = kind
        self._broker = broker
        self._properties = node.properties
        self._create_topics = node.create_topics
        self._host = CoordinatorHost(
            node.clock,
            node.executor,
            loading=asyncio.Lock(),
            has_room=broker.failures.has_room,
            on_disk_error=broker.failures.on_disk_error,
            on_bug=broker.failures.on_bug,
            on_refused=self._on_role,  # as if it began anew
            send_to_leader=send_to_leader,
            backoff=Backoff(SEND_BACKOFF_MS, SEND_BACKOFF_MS_MAX, node.rng),
            tasks=broker.tasks.branch(f"{kind.noun}s"),
        )
        self._led: dict[int, Partition] = {}
        self._here: dict[int, CoordinatorPartition[M]] = {}  # for each of those, once this has begun
        self._has_begun = False
        self._creating: asyncio.Task[None] | None = None
        self._values: ConfigValues | None = None
        self._last_complaint = ""
        self._memory_of_all: CoordinatorMemory | None = None
        broker.add_listener(self)

    # What a kind adds.

    @abstractmethod
    def _new_machine(self, index: int) -> M:
        """An empty one for a partition. The kind's module was imported."""

    def _first_event(self) -> Event[M]:
        """The first event of a machine that is loaded from now on, before it serves: one that changes nothing."""
        return _nothing

    # What handlers ask.

    def submit(self, key: str, command: Command[M], check: ProducerCheck | None = None) -> object:
        """Ask the coordinator of a key, if it is here.

        Args:
            check: see `CoordinatorPartition.submit`.

        Returns:
            The answer, or a `KafkaError`, or a future of either: see `CoordinatorPartition.submit`.
        """
        index = self._index_of(key)
        if index is None:
            return refusal(Code.NOT_COORDINATOR, f"no {self._kind.noun} has a coordinator yet: ask FindCoordinator")
        return self.submit_to_partition(index, command, check)

    def submit_to_partition(self, index: int, command: Command[M], check: ProducerCheck | None = None) -> object:
        """Hand a request to the coordinator on a partition of the internal topic; see `submit`."""
        found = self._here.get(index)
        return self._missing(index) if found is None else found.submit(command, check)

    def producers_at(self, index: int) -> ProducerStates:
        """What the log of a partition knows of producers.

        Raises:
            KafkaError: nobody is served there, and why.
        """
        found = self._here.get(index)
        why = self._missing(index) if found is None else found.refusal
        if found is None or why is not None:
            raise why or refusal(Code.NOT_COORDINATOR)
        return found.partition.log.producers

    def submit_all(self, command: Command[M]) -> list[object]:
        """Submit a command to every coordinator that is here. The answers are as those of `submit`."""
        if self._led and not self._has_begun:
            return [self._missing(next(iter(self._led)))]
        return [one.submit(command) for _, one in sorted(self._here.items())]

    def partition_for(self, key: str) -> TopicPartition | None:
        """The partition that coordinates a key; None before there is the topic."""
        index = self._index_of(key)
        return None if index is None else TopicPartition(self._kind.topic, PartitionIndex(index))

    def refusal_of(self, topic_partition: TopicPartition) -> KafkaError | None:
        """Why a partition that this broker leads coordinates nobody; None while it does, or is about to."""
        found = self._here.get(topic_partition.partition)
        why = self._missing(topic_partition.partition) if found is None else found.refusal
        return None if why is None or why.code == Code.COORDINATOR_LOAD_IN_PROGRESS else why

    async def create_topic(self) -> None:
        """Make the internal topic, and return when its partitions are led. Who comes meanwhile waits along.

        Raises:
            KafkaError: COORDINATOR_NOT_AVAILABLE: it was refused; the text says what to do.
        """
        if self._creating is None or self._creating.done():
            self._creating = self._host.tasks.share(self._create())
        await asyncio.shield(self._creating)

    def _index_of(self, key: str) -> int | None:
        topic = self._broker.image.topics_by_name.get(self._kind.topic)
        return None if topic is None else partition_of(key, len(topic.partitions))

    def _missing(self, index: int) -> KafkaError:
        if index in self._led and not self._has_begun:
            return refusal(Code.COORDINATOR_LOAD_IN_PROGRESS, "this node has only just started; try again")
        try:
            self._broker.partition(self._kind.topic, index)
        except KafkaError as error:
            if error.code == Code.KAFKA_STORAGE_ERROR:
                return refusal(Code.COORDINATOR_NOT_AVAILABLE, str(error))
        return refusal(Code.NOT_COORDINATOR, f"this broker does not lead {self._kind.topic}-{index}")

    async def _create(self) -> None:
        kind, values = self._kind, self._own_values()
        replication_factor = values[kind.replication_factor_key]
        if kind.replication_factor_key.name not in self._properties:
            active_count = sum(one.is_active for one in self._broker.image.brokers.values())
            replication_factor = min(replication_factor, max(active_count, 1))
        configs = [*kind.topic_configs, ("segment.bytes", str(values[kind.segment_size_key]))]
        if kind.min_isr_key is not None:
            configs.append(("min.insync.replicas", str(values[kind.min_isr_key])))
        topic = TopicToCreate(
            kind.topic,
            num_partitions=values[kind.partition_count_key],
            replication_factor=replication_factor,
            configs=tuple(configs),
        )
        try:
            (created,) = await self._create_topics([topic])
        except KafkaError as error:
            raise refusal(Code.COORDINATOR_NOT_AVAILABLE, f"the {kind.noun}s have no coordinator: {error}") from error
        if created.code in (Code.NONE, Code.TOPIC_ALREADY_EXISTS):
            return
        why = f"the {kind.noun}s have no coordinator: {kind.topic} was not created: {created.message}"
        if created.code == Code.INVALID_REPLICATION_FACTOR:
            why += f"; start more brokers, or set {kind.replication_factor_key.name} to no more than there are"
        if why != self._last_complaint:  # clients ask again and again
            self._last_complaint = why
            kind.logger.error("%s", why)
        raise refusal(Code.COORDINATOR_NOT_AVAILABLE, why)

    @property
    def memory_bytes(self) -> int:
        """About what all that is coordinated here takes."""
        return 0 if self._memory_of_all is None else self._memory_of_all.used_bytes

    @property
    def here(self) -> list[CoordinatorPartition[M]]:
        """The partitions that coordinate here, or are being loaded to."""
        return list(self._here.values())

    # What happened.

    async def begin(self) -> None:
        """The node serves: now is the time to load what it leads. To load it earlier would hold up the start."""
        first = self._first_event()
        if self._led:
            await self._host.executor.run(partial(import_module, self._kind.module))
        self._has_begun = True
        for index, led in list(self._led.items()):
            self._start(index, led, first)

    def on_leadership_changed(self, partition: Partition) -> None:
        """This broker began, or ceased, to lead a partition."""
        self._on_role(partition, ())

    def _on_role(self, partition: Partition, pending_events: Sequence[Event[M]]) -> None:
        """Drop the coordinator on a partition. If this broker leads it, load another, which gets `pending_events`."""
        if partition.topic_partition.topic != self._kind.topic:
            return
        index = partition.topic_partition.partition
        before = self._here.get(index)
        if before is not None and (partition.replica is not None or before.partition is partition):
            del self._here[index]
            before.stop()
            self._on_ended(before.coordinator)
        if partition.replica is not None:
            self._led[index] = partition
            if self._has_begun:
                self._start(index, partition, *(pending_events or (self._first_event(),)))
        elif self._led.get(index) is partition:
            del self._led[index]

    def _on_ended(self, machine: M) -> None:
        """A coordinator is one no more: what it has counted is to be kept."""

    def notify_all(self, event: Event[M]) -> None:
        """Apply an event to every coordinator here, those too that are being loaded; see `CoordinatorPartition`."""
        for one in self.here:
            one.notify(event)

    async def events_synced(self) -> None:
        """Return once no loss of power takes back the events that coordinators here were notified of."""
        await asyncio.gather(*(one.syncing_events for one in self.here if one.syncing_events is not None))

    def _start(self, index: int, led: Partition, *first: Event[M]) -> None:
        one = self._here[index] = CoordinatorPartition(led, self._new_machine(index), self._kind, self._host)
        one.start(*first)

    @property
    def memory(self) -> CoordinatorMemory:
        """What all machines of this kind share."""
        if self._memory_of_all is None:
            self._memory_of_all = CoordinatorMemory(self._own_values()[self._kind.memory_key])
        return self._memory_of_all

    def _own_values(self) -> ConfigValues:
        if self._values is None:
            self._values = broker_values(self._properties)
        return self._values


def _nothing(machine: object, now_ms: int, wall_ms: int) -> None:
    """An event that changes nothing."""


def partition_of(key: str, partition_count: int) -> int:
    """The partition of an internal topic that a key belongs to: Java's hash of it, made positive."""
    code = 0
    units = key.encode("utf-16-be")
    for high, low in zip(units[::2], units[1::2], strict=True):
        code = (31 * code + (high << 8 | low)) & 0xFFFF_FFFF
    if code >= 1 << 31:
        code -= 1 << 32
    return 0 if code == -(1 << 31) else abs(code) % partition_count

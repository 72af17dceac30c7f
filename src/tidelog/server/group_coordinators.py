"""The group coordinators of this broker: one for each partition of `__consumer_offsets` that it leads.

Which partition a group belongs to is a hash of its name, as Kafka computes it, so that tools and other brokers agree.
The topic is made when a client first asks who coordinates its group.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, cast

from tidelog.base.errors import Code, KafkaError, refusal
from tidelog.base.ids import PartitionIndex, TopicPartition
from tidelog.base.ports import Clock, Executor, Rng
from tidelog.controller import CreatedTopic, NewTopic
from tidelog.metadata import MetadataDelta, MetadataImage
from tidelog.metadata.configs import ConfigValue, broker_values
from tidelog.metadata.topic_names import CONSUMER_OFFSETS_TOPIC
from tidelog.server.broker import Broker
from tidelog.server.partition import Partition

if TYPE_CHECKING:
    from tidelog.coordinator import GroupMemory, GroupSettings
    from tidelog.server.offsets_partition import OffsetsPartition, Tell

logger = logging.getLogger("tidelog.server.groups")

MINUTE_MS = 60_000
REPLICATION_FACTOR_KEY = "offsets.topic.replication.factor"

CreateTopics = Callable[[list[NewTopic]], Awaitable[Sequence[CreatedTopic]]]


class GroupCoordinators:
    """Finds the coordinator of a group, and keeps those that live here.

    Args:
        broker: whose partitions are followed.
        properties: the node's file.
        create_topics: creates topics at the controller, and returns when this broker has them.
    """

    def __init__(
        self,
        broker: Broker,
        properties: Mapping[str, str],
        *,
        clock: Clock,
        executor: Executor,
        rng: Rng,
        create_topics: CreateTopics,
    ) -> None:
        self._broker = broker
        self._properties = properties
        self._clock = clock
        self._executor = executor
        self._rng = rng
        self._create_topics = create_topics
        self._led: dict[int, Partition] = {}
        self._here: dict[int, OffsetsPartition] = {}  # for each of those, once this has begun
        self._has_begun = False
        self._first_topics: set[str] = set()  # that were there when it began, and still are
        self._loading = asyncio.Lock()
        self._creating: asyncio.Task[None] | None = None
        self._values: Mapping[str, ConfigValue | None] | None = None
        self._last_complaint = ""
        self.memory: GroupMemory | None = None  # once one group partition is led

    # What handlers ask.

    def ask(self, group_id: str, tell: Tell) -> object:
        """Ask the coordinator of a group, if it is here.

        Returns:
            The answer, or a `KafkaError`, or a future of either: see `OffsetsPartition.ask`.
        """
        index = self._partition_of(group_id)
        if index is None:
            return refusal(Code.NOT_COORDINATOR, "no group has a coordinator yet: ask FindCoordinator")
        found = self._here.get(index)
        return self._missing(index) if found is None else found.ask(tell)

    def ask_all(self, tell: Tell) -> list[object]:
        """Ask every coordinator that is here. The answers are as those of `ask`."""
        if self._led and not self._has_begun:
            return [self._missing(next(iter(self._led)))]
        return [one.ask(tell) for _, one in sorted(self._here.items())]

    def place(self, group_id: str) -> TopicPartition | None:
        """The partition that coordinates a group; None before there is the topic."""
        index = self._partition_of(group_id)
        return None if index is None else TopicPartition(CONSUMER_OFFSETS_TOPIC, PartitionIndex(index))

    def refusal_of(self, place: TopicPartition) -> KafkaError | None:
        """Why a partition that this broker leads coordinates nobody; None while it does, or is about to."""
        found = self._here.get(place.partition)
        why = self._missing(place.partition) if found is None else found.refusal
        return None if why is None or why.code == Code.COORDINATOR_LOAD_IN_PROGRESS else why

    async def create_topic(self) -> None:
        """Make `__consumer_offsets`, and return when its partitions are led. Who comes meanwhile waits along.

        Raises:
            KafkaError: COORDINATOR_NOT_AVAILABLE: it was refused; the text says what to do.
        """
        if self._creating is None or self._creating.done():
            self._creating = asyncio.get_running_loop().create_task(self._create())
            self._creating.add_done_callback(lambda task: task.cancelled() or task.exception())
        await asyncio.shield(self._creating)

    def _partition_of(self, group_id: str) -> int | None:
        topic = self._broker.image.topics_by_name.get(CONSUMER_OFFSETS_TOPIC)
        return None if topic is None else partition_of(group_id, len(topic.partitions))

    def _missing(self, index: int) -> KafkaError:
        if index in self._led and not self._has_begun:
            return refusal(Code.COORDINATOR_LOAD_IN_PROGRESS, "this node has only just started; try again")
        try:
            self._broker.partition(CONSUMER_OFFSETS_TOPIC, index)
        except KafkaError as error:
            if error.code == Code.KAFKA_STORAGE_ERROR:
                return refusal(Code.COORDINATOR_NOT_AVAILABLE, str(error))
        return refusal(Code.NOT_COORDINATOR, f"this broker does not lead {CONSUMER_OFFSETS_TOPIC}-{index}")

    async def _create(self) -> None:
        values = broker_values(self._properties)
        replication_factor = cast(int, values[REPLICATION_FACTOR_KEY])
        if REPLICATION_FACTOR_KEY not in self._properties:
            active_count = sum(one.is_active for one in self._broker.image.brokers.values())
            replication_factor = min(replication_factor, max(active_count, 1))
        topic = NewTopic(
            CONSUMER_OFFSETS_TOPIC,
            num_partitions=cast(int, values["offsets.topic.num.partitions"]),
            replication_factor=replication_factor,
            configs=(
                ("cleanup.policy", "compact"),
                ("compression.type", "producer"),
                ("segment.bytes", str(values["offsets.topic.segment.bytes"])),
            ),
        )
        try:
            (created,) = await self._create_topics([topic])
        except KafkaError as error:
            raise refusal(Code.COORDINATOR_NOT_AVAILABLE, f"the groups have no coordinator: {error}") from error
        if created.code in (Code.NONE, Code.TOPIC_ALREADY_EXISTS):
            return
        why = f"the groups have no coordinator: {CONSUMER_OFFSETS_TOPIC} was not created: {created.message}"
        if created.code == Code.INVALID_REPLICATION_FACTOR:
            why += f"; start more brokers, or set {REPLICATION_FACTOR_KEY} to no more than there are"
        if why != self._last_complaint:  # clients ask again and again
            self._last_complaint = why
            logger.error("%s", why)
        raise refusal(Code.COORDINATOR_NOT_AVAILABLE, why)

    @property
    def here(self) -> list[OffsetsPartition]:
        """The partitions that coordinate groups here, or are being loaded to."""
        return list(self._here.values())

    # What happened.

    async def begin(self) -> None:
        """The node serves: now is the time to load what it leads. To load it earlier would hold up the start."""
        self._first_topics = set(self._broker.image.topics_by_name)
        if self._led:
            await self._executor.run(partial(import_module, "tidelog.server.offsets_partition"))
        self._has_begun = True
        for index, partition in list(self._led.items()):
            self._start(index, partition, self._first_topics)

    def on_leadership_changed(self, partition: Partition) -> None:
        """This broker began, or ceased, to lead a partition."""
        if partition.topic_partition.topic != CONSUMER_OFFSETS_TOPIC:
            return
        index = partition.topic_partition.partition
        before = self._here.get(index)
        if before is not None and (partition.replica is not None or before.partition is partition):
            del self._here[index]
            before.stop()
        if partition.replica is not None:
            self._led[index] = partition
            if self._has_begun:
                self._start(index, partition, self._broker.image.topics_by_name)
        elif self._led.get(index) is partition:
            del self._led[index]

    async def forgotten(self) -> None:
        """Return once no loss of power brings back the offsets of topics whose deletion this broker knows of."""
        await asyncio.gather(*(one.forgetting for one in self.here if one.forgetting is not None))

    def on_image_changed(self, delta: MetadataDelta, image: MetadataImage) -> None:
        """Offsets in deleted topics go, also where the topic was made again at once."""
        if delta.deleted_topics:
            names = {topic.name for topic in delta.deleted_topics.values()}
            self._first_topics -= names
            for index, one in list(self._here.items()):
                one.on_topics_deleted(names)
                anew = self._here.get(index)
                if anew is not None and anew is not one:  # its log refused to forget: the topics are still in it
                    anew.on_topics_deleted(names)

    def _start(self, index: int, partition: Partition, topics: Collection[str]) -> None:
        """Load a partition. Its log may tell of others than `topics`, and one that is made from now on is not they."""
        from tidelog.coordinator import GroupCoordinator
        from tidelog.server.offsets_partition import OffsetsPartition

        one = self._here[index] = OffsetsPartition(
            partition,
            GroupCoordinator(index, self._group_settings(partition), rng=self._rng, memory=self._group_memory()),
            clock=self._clock,
            executor=self._executor,
            loading=self._loading,
            has_room=partial(self._broker.has_room, partition),
            on_disk_error=self._broker.on_disk_error,
            on_bug=self._broker.on_bug,
            on_refused=self.on_leadership_changed,  # as if it began anew
        )
        one.start(partial(_gone, topics))

    def _own_values(self) -> Mapping[str, int]:
        if self._values is None:
            self._values = broker_values(self._properties)
        return cast("Mapping[str, int]", self._values)

    def _group_memory(self) -> GroupMemory:
        from tidelog.coordinator import GroupMemory

        if self.memory is None:
            self.memory = GroupMemory(self._own_values()["group.coordinator.memory.bytes"])
        return self.memory

    def _group_settings(self, partition: Partition) -> GroupSettings:
        from tidelog.coordinator import GroupSettings

        values = self._own_values()
        return GroupSettings(
            session_timeout_ms_min=values["group.min.session.timeout.ms"],
            session_timeout_ms_max=values["group.max.session.timeout.ms"],
            initial_rebalance_delay_ms=values["group.initial.rebalance.delay.ms"],
            group_size_max=values["group.max.size"],
            offset_metadata_length_max=values["offset.metadata.max.bytes"],
            offsets_retention_ms=values["offsets.retention.minutes"] * MINUTE_MS,
            retention_check_interval_ms=values["offsets.retention.check.interval.ms"],
            batch_size_bytes_max=partition.log.config.batch_size_bytes_max,
        )


def _gone(known: Collection[str], topics: Iterable[str]) -> Collection[str]:
    return [topic for topic in topics if topic not in known]


def partition_of(group_id: str, partition_count: int) -> int:
    """The partition of `__consumer_offsets` that a group belongs to: Java's hash of its name, made positive."""
    code = 0
    units = group_id.encode("utf-16-be")
    for high, low in zip(units[::2], units[1::2], strict=True):
        code = (31 * code + (high << 8 | low)) & 0xFFFF_FFFF
    if code >= 1 << 31:
        code -= 1 << 32
    return 0 if code == -(1 << 31) else abs(code) % partition_count

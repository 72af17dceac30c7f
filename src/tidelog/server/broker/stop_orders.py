"""Drives the replicas of one broker that were told to stop (KIP-570): they serve no more at once, and the rest is for
the metadata to say.

The files of a log that is open go where the metadata takes its replica away, as they do without any order: there is one
way to delete. Only what the metadata has never heard of (a log that was in nobody's way) is deleted from here.

Kafka: `ReplicaManager.stopReplicas`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection
from functools import partial
from typing import Protocol

from tidelog.base.ids import BrokerId, LeaderEpoch, TopicId, TopicPartition
from tidelog.base.ports import Executor
from tidelog.metadata import MetadataImage
from tidelog.replica import HeldReplica, ReplicaId, StopOrder, StoppedReplicas
from tidelog.server.broker.assignments import Assigned
from tidelog.server.broker.hosted_partitions import HostedPartitions
from tidelog.server.replication.partition import Partition
from tidelog.server.storage.log_files import LogFiles
from tidelog.server.tasks import Tasks

logger = logging.getLogger("tidelog.server.broker")

STOPPED_SECONDS_MAX = 60.0
"""So long a replica waits for the metadata that an order follows from. Whom none reaches in that time is fenced."""


class RoleGiver(Protocol):
    """Whoever gives the replicas here their roles (the broker)."""

    @property
    def broker_id(self) -> BrokerId: ...

    @property
    def tasks(self) -> Tasks: ...

    @property
    def hosted(self) -> HostedPartitions: ...

    @property
    def image(self) -> MetadataImage: ...

    @property
    def image_lock(self) -> asyncio.Lock: ...

    async def take_roles(self, ours: list[Assigned], image: MetadataImage) -> None: ...


class StopOrders:
    """See the module.

    Args:
        broker: asked for nothing but its tasks and its id before the first image.

    Attributes:
        obeyed: orders that were; for whoever counts.
    """

    def __init__(self, broker: RoleGiver, files: LogFiles, executor: Executor) -> None:
        self.obeyed = 0
        self._broker = broker
        self._files = files
        self._executor = executor
        self._machine = StoppedReplicas(broker.broker_id)
        self._image = MetadataImage.empty()  # the newest, which may be on its way to be published
        self._strays: dict[ReplicaId, TopicPartition] = {}  # that were told to stop
        self._marked: list[tuple[TopicPartition, TopicId]] = []
        self._resumed: list[ReplicaId] = []
        self._timers: dict[ReplicaId, asyncio.TimerHandle] = {}
        self._tasks = broker.tasks.branch("stop orders")

    @property
    def stopped(self) -> Collection[ReplicaId]:
        """The replicas that were told to stop, and of which the metadata says nothing yet."""
        return self._machine.stopped

    def is_stopped(self, partition: Partition) -> bool:
        """Whether it may neither lead nor follow, though the metadata may assign it."""
        return self._machine.is_stopped(ReplicaId(partition.topic_id, partition.topic_partition.partition))

    async def obey(self, order: StopOrder) -> None:
        """Stop a replica before this returns; it stays so until the metadata has come as far as the order.

        Raises:
            KafkaError: something newer has overtaken it; see `check_stop_order`.
        """
        partition = self._broker.hosted.by_name.get(order.topic_partition)
        if partition is None:
            async with self._broker.image_lock:
                # The image that was applied meanwhile may have brought the replica, and given it a role.
                partition = self._broker.hosted.by_name.get(order.topic_partition)
                if partition is None:
                    await self._obey_about_stray(order)
                    return
        self._machine.on_order(order, HeldReplica(partition.topic_id, self._leader_epoch(partition)), self._image)
        self.obeyed += 1
        if self._process_ready():
            logger.info("%s is served here no more: the controller says so", order.topic_partition)
            self._broker.hosted.stop_serving(partition)
            replica = ReplicaId(partition.topic_id, order.topic_partition.partition)
            self._wait_for_metadata(replica)
        if self._resumed:
            await self._go_on()

    def on_image(self, image: MetadataImage) -> None:
        """The metadata came so far, and is about to be applied."""
        self._image = image
        self._machine.on_image(image)
        self._process_ready()

    def take_strays(self) -> list[tuple[TopicPartition, TopicId]]:
        """Logs to be deleted that no metadata takes away."""
        strays, self._marked = self._marked, []
        return strays

    def take_resumed(self) -> list[Assigned]:
        """What was stopped, and is assigned all the same: it leads or follows as the metadata says."""
        resumed, self._resumed = self._resumed, []
        found = []
        for replica in resumed:
            topic = self._image.topic_by_id(replica.topic_id)
            if topic is not None:
                topic_partition = TopicPartition(topic.name, replica.partition)
                found.append(Assigned(topic_partition, replica.topic_id, topic.partitions[replica.partition]))
        return found

    def _leader_epoch(self, partition: Partition) -> LeaderEpoch | None:
        """As the metadata has it; None if the topic is gone from it, and the log is about to go."""
        topic, index = self._image.topic_by_id(partition.topic_id), partition.topic_partition.partition
        return None if topic is None else topic.partitions[index].leader_epoch

    def _process_ready(self) -> bool:
        """Carry out what the machine has ready. Returns whether the replica stopped last is to serve no more."""
        ready = self._machine.take_ready()
        for replica in (*ready.delete, *ready.resume):
            self._cancel_timer(replica)
        for replica in ready.delete:
            stray = self._strays.pop(replica, None)
            if stray is not None:
                self._marked.append((stray, replica.topic_id))
        for replica in ready.resume:
            self._strays.pop(replica, None)
            if replica not in ready.stop:  # else it never stopped: the metadata knew better all along
                self._resumed.append(replica)
        return any(replica not in ready.resume for replica in ready.stop)

    def _wait_for_metadata(self, replica: ReplicaId) -> None:
        """From the first order on, whatever comes after it: not for good."""
        if replica in self._machine.stopped:
            self._cancel_timer(replica)
            loop = asyncio.get_running_loop()
            self._timers[replica] = loop.call_later(STOPPED_SECONDS_MAX, self._on_metadata_timeout, replica)

    def _cancel_timer(self, replica: ReplicaId) -> None:
        timer = self._timers.pop(replica, None)
        if timer is not None:
            timer.cancel()

    def _on_metadata_timeout(self, replica: ReplicaId) -> None:
        self._machine.on_metadata_timeout(replica, self._image)
        self._strays.pop(replica, None)
        self._process_ready()
        if self._resumed:
            logger.warning("%s is served again: in %.0f s no metadata said otherwise", replica, STOPPED_SECONDS_MAX)
            self._tasks.start(self._go_on())

    async def stop(self) -> None:
        """Give nothing a role any more."""
        for timer in self._timers.values():
            timer.cancel()
        await self._tasks.finish()

    async def _go_on(self) -> None:
        """Between two images: what was stopped without need."""
        async with self._broker.image_lock:
            await self._broker.take_roles(self.take_resumed(), self._broker.image)

    async def _obey_about_stray(self, order: StopOrder) -> None:
        """Of a topic that the metadata does not know: whatever lies here under its name, nobody serves it.

        The caller holds the lock of the image.
        """
        if order.topic_id is None or self._image.topic_by_id(order.topic_id) is not None:
            return
        topic_id = await self._executor.run(partial(self._files.topic_id_at, order.topic_partition))
        if topic_id is None:
            return
        replica = ReplicaId(topic_id, order.topic_partition.partition)
        self._machine.on_order(order, HeldReplica(topic_id, None), self._image)
        self._strays[replica] = order.topic_partition
        self.obeyed += 1
        if self._process_ready():
            self._wait_for_metadata(replica)
        await self._files.deletions.delete(self.take_strays())

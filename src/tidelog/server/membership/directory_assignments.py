"""Tells the controller in which log directory the replicas of this broker lie, where the metadata says otherwise, or
nothing (KIP-858).

It goes on until it is answered: what is not told yet when a directory fails is what the controller has to know then.

Kafka: `AssignmentsManager`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Sequence
from itertools import islice
from uuid import UUID

from tidelog.base.errors import Code, KafkaError, TidelogError
from tidelog.base.ids import BrokerEpoch, BrokerId, TopicId
from tidelog.base.ports import Rng
from tidelog.controller.leaders import LOST_DIRECTORY, directory_of
from tidelog.metadata import MetadataDelta, MetadataImage
from tidelog.metadata.features import knows_directories
from tidelog.net.backoff import Backoff
from tidelog.server.broker.assignments import Assigned, assigned
from tidelog.server.membership.controller_channel import ControllerChannel
from tidelog.server.replication.partition import Partition
from tidelog.server.storage.log_files import LogFiles
from tidelog.server.tasks import Tasks
from tidelog.wire.messages.api_73_assign_replicas_to_dirs import (
    AssignedDirectory,
    AssignedPartition,
    AssignedTopic,
    AssignReplicasToDirsRequest,
    AssignReplicasToDirsResponse,
)

logger = logging.getLogger("tidelog.server.directories")

REPLICAS_PER_REQUEST_MAX = 2_000
TIMEOUT_MS = 30_000
BACKOFF_MS = 100
BACKOFF_MS_MAX = 10_000
REQUEST_CLASS = "directories"
NOT_KNOWN = (Code.UNSUPPORTED_VERSION, Code.INVALID_REQUEST)
"""How a controller answers that does not know of lost replicas."""

Replica = tuple[TopicId, int]


class DirectoryAssignments:
    """See the module. What waits here is bounded by the replicas of this broker.

    Args:
        broker_epoch: asked for that of the present incarnation; None before it is registered.
    """

    def __init__(
        self,
        broker_id: BrokerId,
        files: LogFiles,
        broker_epoch: Callable[[], BrokerEpoch | None],
        channel: ControllerChannel,
        *,
        rng: Rng,
        tasks: Tasks,
    ) -> None:
        self._broker_id = broker_id
        self._files = files
        self._broker_epoch = broker_epoch
        self._channel = channel
        self._backoff = Backoff(BACKOFF_MS, BACKOFF_MS_MAX, rng)
        self._unreported: dict[Replica, UUID] = {}
        self._looked_at_in: tuple[BrokerEpoch, bool] | None = None
        self._image = MetadataImage.empty()
        self._tasks = tasks.branch("directories")
        self._report_task: asyncio.Task[None] | None = None

    def on_image_changed(self, delta: MetadataDelta, image: MetadataImage) -> None:
        """To be called on the loop, before `image` is published, when the logs of this broker's replicas are open."""
        broker = image.brokers.get(self._broker_id)
        if broker is None or broker.broker_epoch != self._broker_epoch():
            return  # nothing here is this incarnation's yet
        self._image = image
        looks_in = broker.broker_epoch, knows_directories(image.features)
        is_all = looks_in != self._looked_at_in
        self._looked_at_in = looks_in
        if looks_in[1]:
            self._look_at(assigned(self._broker_id, delta, image, all_there_are=is_all))
        else:
            self._unreported.clear()

    def on_moved(self, partition: Partition) -> None:
        """To be called on the loop: its log lies elsewhere from now on."""
        topic, index = self._image.topic_by_id(partition.topic_id), partition.topic_partition.partition
        if topic is not None and self._looked_at_in is not None and self._looked_at_in[1]:
            self._look_at([Assigned(partition.topic_partition, partition.topic_id, topic.partitions[index])])

    async def report_lost(self, replicas: Sequence[Replica], *, timeout_ms: int) -> bool | None:
        """Have the controller commit that the logs of replicas are gone, under Kafka's reserved id for that.

        Args:
            timeout_ms: after which to give up, for each request.

        Returns:
            Whether it has; False where it does not know that id, or this API; None where it gave no answer.
        """
        broker_epoch = self._broker_epoch()
        if broker_epoch is None:
            return None
        for start in range(0, len(replicas), REPLICAS_PER_REQUEST_MAX):
            some = dict.fromkeys(replicas[start : start + REPLICAS_PER_REQUEST_MAX], LOST_DIRECTORY)
            request = _request(self._broker_id, broker_epoch, some)
            try:
                answer = await self._channel.request(
                    request, AssignReplicasToDirsResponse, timeout_ms=timeout_ms, request_class=REQUEST_CLASS
                )
            except TidelogError as error:
                logger.warning("the controller has not answered yet about lost replicas: %s", error)
                return False if isinstance(error, KafkaError) and error.code in NOT_KNOWN else None
            codes = {
                Code(one.error_code)
                for directory in answer.directories
                for topic in directory.topics
                for one in topic.partitions
            }
            if answer.error_code in NOT_KNOWN or not codes.isdisjoint(NOT_KNOWN):
                return False
            if answer.error_code:
                logger.warning("the controller has not noted lost replicas yet: %s", Code(answer.error_code).name)
                return None
        return True

    def _look_at(self, ours: Iterable[Assigned]) -> None:
        for one in ours:
            held = self._files.directory_of(one.topic_partition)
            replica = one.topic_id, one.topic_partition.partition
            if held is None:
                continue
            if directory_of(one.state, self._broker_id) == held.directory_id:
                self._unreported.pop(replica, None)
            else:
                self._unreported[replica] = held.directory_id
        if self._unreported and self._report_task is None:
            self._report_task = self._tasks.start(self._report_all())

    async def _report_all(self) -> None:
        failures = 0
        try:
            while self._unreported:
                await asyncio.sleep(self._backoff.delay_ms(failures) / 1000)
                is_reported = await self._report(dict(islice(self._unreported.items(), REPLICAS_PER_REQUEST_MAX)))
                failures = 0 if is_reported else failures + 1
        finally:
            self._report_task = None

    async def _report(self, some: dict[Replica, UUID]) -> bool:
        """Returns whether it was answered, whatever the answer is about each."""
        broker_epoch = self._broker_epoch()
        if broker_epoch is None:
            return False
        request = _request(self._broker_id, broker_epoch, some)
        try:
            answer = await self._channel.request(
                request, AssignReplicasToDirsResponse, timeout_ms=TIMEOUT_MS, request_class=REQUEST_CLASS
            )
        except TidelogError as error:
            logger.debug("the controller was not told of directories: %s", error)
            return False
        if answer.error_code:
            logger.debug("the controller does not want to be told of directories: %s", Code(answer.error_code).name)
            return False
        for replica, directory_id in some.items():
            if self._unreported.get(replica) == directory_id:
                del self._unreported[replica]
        return True


def _request(broker_id: BrokerId, broker_epoch: BrokerEpoch, some: dict[Replica, UUID]) -> AssignReplicasToDirsRequest:
    directories: dict[UUID, AssignedDirectory] = {}
    topics: dict[tuple[UUID, TopicId], AssignedTopic] = {}
    for (topic_id, index), directory_id in some.items():
        topic = topics.get((directory_id, topic_id))
        if topic is None:
            topic = topics[directory_id, topic_id] = AssignedTopic(topic_id)
            directories.setdefault(directory_id, AssignedDirectory(directory_id)).topics.append(topic)
        topic.partitions.append(AssignedPartition(index))
    return AssignReplicasToDirsRequest(
        broker_id=broker_id, broker_epoch=broker_epoch, directories=list(directories.values())
    )

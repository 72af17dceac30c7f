"""The share coordinators of this broker: one for each partition of `__share_group_state` that it leads.

Their log is no compacted one. What newer snapshots have made redundant is deleted from its start, now and then.

Kafka: `ShareCoordinatorService`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Collection, Container, Iterable, Iterator
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Protocol

from tidelog.base.errors import Code, DiskError, KafkaError, refusal
from tidelog.base.ids import LeaderEpoch, Offset, TopicId
from tidelog.metadata import MetadataDelta, MetadataImage
from tidelog.metadata.configs import share_coordinators as keys
from tidelog.metadata.topic_names import SHARE_GROUP_STATE_TOPIC
from tidelog.server.coordinators.coordinator_partition import Command, CoordinatorKind, CoordinatorPartition, Event
from tidelog.server.coordinators.coordinator_partitions import CoordinatorNode, CoordinatorPartitions
from tidelog.server.replication.partition import Partition
from tidelog.server.share_state.turns import LimitedTurns
from tidelog.share.key import ShareKey
from tidelog.share.state import StateBatch, StateChange

if TYPE_CHECKING:
    from tidelog.coordinator.share import ShareCoordinator, ShareCoordinatorSettings

PORTION_BATCHES_MAX = 256
"""Of one change, in a record: so that a change of thousands does not hold up the others."""
BATCHES_OF_A_RECORD = 32
"""Take about as long as the record itself, which is written to the log."""
ASKED_AT_ONCE_MAX = 8
"""In one turn of the loop, of all who ask."""

SHARE_STATES = CoordinatorKind(
    SHARE_GROUP_STATE_TOPIC,
    noun="share group",
    loss="these share groups begin anew in their partitions, where share.auto.offset.reset says",
    logger=logging.getLogger("tidelog.server.share_state"),
    module="tidelog.coordinator.share",
    partition_count_key=keys.STATE_TOPIC_NUM_PARTITIONS,
    replication_factor_key=keys.STATE_TOPIC_REPLICATION_FACTOR,
    segment_size_key=keys.STATE_TOPIC_SEGMENT_BYTES,
    memory_key=keys.SHARE_COORDINATOR_MEMORY_BYTES,
    min_isr_key=keys.STATE_TOPIC_MIN_ISR,
    topic_configs=(
        ("cleanup.policy", "delete"),
        ("compression.type", "producer"),
        ("retention.bytes", "-1"),
        ("retention.ms", "-1"),
        ("unclean.leader.election.enable", "false"),
    ),
)


class LogStarts(Protocol):
    """What makes the deletion of a log's oldest records last (`ServedLogs`)."""

    async def persist_log_starts(self, partitions: Iterable[Partition]) -> None: ...

    async def delete_segments(self, partition: Partition) -> None: ...


class ShareCoordinators(CoordinatorPartitions["ShareCoordinator"]):
    """Finds the coordinator of a share group's state, and keeps those that live here.

    Args:
        log_starts: of the logs of this node.
    """

    def __init__(self, node: CoordinatorNode, *, log_starts: LogStarts) -> None:
        super().__init__(SHARE_STATES, node)
        self._log_starts = log_starts
        self._turns = LimitedTurns(ASKED_AT_ONCE_MAX)

    # What is asked of the coordinator of a key, if it is here. The answer is as that of `submit`.

    def initialize(self, key: ShareKey, *, state_epoch: int, start: Offset | None) -> Awaitable[object]:
        """Answered with `Code.NONE`."""
        return self._ask(
            key,
            lambda machine, request_id, now_ms, wall_ms: machine.on_initialize(
                request_id,
                key,
                state_epoch=state_epoch,
                start=start,
                is_known=self._is_known(key),
                now_ms=now_ms,
                wall_ms=wall_ms,
            ),
        )

    def read(self, key: ShareKey, *, leader_epoch: LeaderEpoch) -> Awaitable[object]:
        """Answered with a `ShareState`."""
        return self._ask(
            key,
            lambda machine, request_id, now_ms, wall_ms: machine.on_read(
                request_id,
                key,
                leader_epoch=leader_epoch,
                is_known=self._is_known(key),
                now_ms=now_ms,
                wall_ms=wall_ms,
            ),
        )

    def summarize(self, key: ShareKey) -> Awaitable[object]:
        """Answered with a `ShareSummary`."""
        return self._ask(
            key,
            lambda machine, request_id, now_ms, wall_ms: machine.on_summarize(
                request_id, key, is_known=self._is_known(key), now_ms=now_ms, wall_ms=wall_ms
            ),
        )

    def delete(self, key: ShareKey, *, state_epoch: int) -> Awaitable[object]:
        """Answered with `Code.NONE`."""
        return self._ask(
            key,
            lambda machine, request_id, now_ms, wall_ms: machine.on_delete(
                request_id,
                key,
                state_epoch=state_epoch,
                is_known=self._is_known(key),
                now_ms=now_ms,
                wall_ms=wall_ms,
            ),
        )

    async def write(self, key: ShareKey, portions: Iterator[StateChange], *, batch_count: int) -> object:
        """Answered with `Code.NONE`, or with the first refusal: what came before it is written.

        Args:
            portions: of one change, each of at most `PORTION_BATCHES_MAX` batches; asked for one by one.
            batch_count: of all of them.
        """
        answer: object = Code.NONE
        while answer is Code.NONE:
            await self._turns.enter(1 + min(batch_count, PORTION_BATCHES_MAX) // BATCHES_OF_A_RECORD)
            portion = next(portions)
            answer = await self._answer_in_time(key, self.submit(str(key), self._writing(key, portion)))
            batch_count -= len(portion.batches)
            if not batch_count:
                break
        return answer

    def _writing(self, key: ShareKey, change: StateChange) -> Command[ShareCoordinator]:
        return lambda machine, request_id, now_ms, wall_ms: machine.on_write(
            request_id, key, change, is_known=self._is_known(key), now_ms=now_ms, wall_ms=wall_ms
        )

    async def _ask(self, key: ShareKey, command: Command[ShareCoordinator]) -> object:
        await self._turns.enter()
        return await self._answer_in_time(key, self.submit(str(key), command))

    async def _answer_in_time(self, key: ShareKey, answer: object) -> object:
        if not isinstance(answer, asyncio.Future):
            return answer
        try:
            async with asyncio.timeout(self._own_values()[keys.WRITE_TIMEOUT_MS] / 1000):
                return await answer
        except TimeoutError:
            return refusal(
                Code.COORDINATOR_NOT_AVAILABLE,
                f"{self.partition_for(str(key))} commits nothing within share.coordinator.write.timeout.ms; it may yet",
            )

    def _is_known(self, key: ShareKey) -> bool:
        topic = self._broker.image.topic_by_id(key.topic_id)
        return topic is not None and key.partition < len(topic.partitions)

    # What happened.

    async def begin(self) -> None:
        """See `CoordinatorPartitions`; from then on what is redundant is deleted."""
        await super().begin()
        self._host.tasks.start(self._prune_regularly(), on_bug=self._on_pruning_failed)

    def on_image_changed(self, delta: MetadataDelta, image: MetadataImage) -> None:
        """States of deleted topics go."""
        if delta.deleted_topics:
            self.notify_all(partial(_forget, list(delta.deleted_topics)))

    def _first_event(self) -> Event[ShareCoordinator]:
        """A log may tell of topics that are no more."""
        return partial(_forget_all_but, self._broker.newest_image.topics_by_id)

    def _new_machine(self, index: int) -> ShareCoordinator:
        from tidelog.coordinator.share import ShareCoordinator

        return ShareCoordinator(index, self._settings(), memory=self.memory)

    def _settings(self) -> ShareCoordinatorSettings:
        from tidelog.coordinator.share import ShareCoordinatorSettings

        values = self._own_values()
        return ShareCoordinatorSettings(
            updates_per_snapshot=values[keys.SNAPSHOT_UPDATE_RECORDS_PER_SNAPSHOT],
            cold_snapshot_interval_ms=values[keys.COLD_PARTITION_SNAPSHOT_INTERVAL_MS],
        )

    # What is redundant.

    async def _prune_regularly(self) -> None:
        while True:
            await asyncio.sleep(self._own_values()[keys.STATE_TOPIC_PRUNE_INTERVAL_MS] / 1000)
            await self.prune()

    def _on_pruning_failed(self, error: Exception) -> None:
        """It was logged. The logs grow, and nothing else is wrong; it goes on with the next start."""

    async def prune(self) -> None:
        """Delete what nobody needs any more of the logs that are led here. The order is that of `record_deletion`."""
        moved = [one for one in self.here if self._move_log_start(one)]
        if not moved:
            return
        try:
            await self._log_starts.persist_log_starts(self._broker.partitions)
        except DiskError as error:
            self._kind.logger.error("the starts of logs could not be written, and their segments stay: %s", error)
            return
        for one in moved:
            if one not in self.here:
                continue
            try:
                await self._log_starts.delete_segments(one.partition)
            except DiskError as error:  # the records are gone all the same
                self._broker.failures.on_disk_error(one.partition, error)

    def _move_log_start(self, one: CoordinatorPartition[ShareCoordinator]) -> bool:
        """Returns whether there is something to delete."""
        partition = one.partition
        if one.refusal is not None:
            return False
        before = partition.log.log_start_offset
        redundant_before = one.coordinator.redundant_before
        if redundant_before <= before:
            return False
        try:
            return partition.delete_records(redundant_before) > before
        except KafkaError as error:  # another leads by now, or soon
            self._kind.logger.debug("%s is not pruned: %s", partition.topic_partition, error)
        except DiskError as error:
            self._broker.failures.on_disk_error(partition, error)
        return False


def portions_of(change: StateChange) -> Iterator[StateChange]:
    """A change in as many as it takes; what is not about single records is told with the last."""
    batches = change.batches
    if len(batches) <= PORTION_BATCHES_MAX:
        yield change
        return
    for start in range(0, len(batches), PORTION_BATCHES_MAX):
        part = batches[start : start + PORTION_BATCHES_MAX]
        is_last = start + PORTION_BATCHES_MAX >= len(batches)
        yield replace(change, batches=part) if is_last else first_portion(change, part)


def first_portion(change: StateChange, batches: tuple[StateBatch, ...]) -> StateChange:
    """A portion of a change that is not the last. Of the change, no batches are looked at."""
    return StateChange(change.state_epoch, change.leader_epoch, None, batches=batches, number=change.number)


def _forget(topic_ids: Collection[TopicId], machine: ShareCoordinator, now_ms: int, wall_ms: int) -> None:
    machine.on_topics_deleted(topic_ids, now_ms=now_ms, wall_ms=wall_ms)


def _forget_all_but(known: Container[TopicId], machine: ShareCoordinator, now_ms: int, wall_ms: int) -> None:
    machine.on_topics(known, now_ms=now_ms, wall_ms=wall_ms)

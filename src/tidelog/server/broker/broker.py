"""The broker role: follows the committed metadata and keeps one `Partition` for each replica assigned to this node.

Runs of committed records are applied one after the other. What touches the disk (to open a log may mean to recover it)
runs off the loop; then the new image is published. A token stamped on an answer is the published image's, so it never
runs ahead of what this broker would answer (KIP-1243).

Kafka: `ReplicaManager`, `BrokerMetadataPublisher`.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from uuid import UUID

from tidelog.base.errors import (
    Code,
    LostLogError,
    TidelogError,
    refusal,
)
from tidelog.base.ids import BrokerId, Offset, PartitionIndex, TopicId, TopicPartition
from tidelog.base.invariant import invariant
from tidelog.base.ports import Clock, Executor
from tidelog.controller.lost_replicas import lost_replicas
from tidelog.log import Log, NotCachedError
from tidelog.log.files.replica_list import ListedReplica
from tidelog.metadata import MetadataDelta, MetadataImage
from tidelog.metadata.image import MetadataView
from tidelog.replica import FollowerReplica, FollowerSettings, LeaderReplica, ReplicationSettings
from tidelog.server.broker.applied_offset import AppliedOffset
from tidelog.server.broker.assignments import Assigned, assigned, is_held, taken_away
from tidelog.server.broker.hosted_partitions import HostedPartitions
from tidelog.server.broker.listeners import BrokerListener, BrokerListeners
from tidelog.server.broker.partition_failures import PartitionFailures
from tidelog.server.broker.remembered_producers import RememberedProducers
from tidelog.server.broker.replica_log_dir_mover import ReplicaLogDirMover
from tidelog.server.broker.stop_orders import StopOrders
from tidelog.server.replication.follower_driver import BACKOFF_FIRST_MS, FollowerDriver
from tidelog.server.replication.leader_driver import LeaderDriver
from tidelog.server.replication.partition import Partition
from tidelog.server.replication.replication import Replicated, Replication
from tidelog.server.storage.checkpoints import Replica
from tidelog.server.storage.log_dir_assignment import WantedLog
from tidelog.server.storage.log_files import LogFiles
from tidelog.server.tasks import Tasks
from tidelog.server.transport.turns import in_turns

logger = logging.getLogger("tidelog.server.broker")

RECORDS_PER_TURN = 1_000
"""Of the metadata, which take a few microseconds each."""
RECORDS_PER_RUN_MAX = 1_000
"""Of the metadata, where several decisions wait that were committed while others were applied."""
LEAD_AGAIN_SECONDS = 1.0
LOGGED_MAX = 10
"""Partitions that are named in the log when many cannot be opened for one reason."""


@dataclass(frozen=True, slots=True)
class LostReplicaLog:
    """What is known of a replica's log that is gone, or lacks its end."""

    topic_partition: TopicPartition
    reason: str


@dataclass(frozen=True, slots=True)
class Committed:
    """What the metadata log grew by; see `Broker.on_committed`."""

    records: tuple[object, ...]
    end_offset: Offset
    from_snapshot: bool


def next_run(waiting: deque[Committed]) -> Committed:
    """Take what is to be applied together: an image costs syncs and looks at all partitions, however little is new."""
    first = waiting.popleft()
    records, end_offset = list(first.records), first.end_offset
    while waiting and not first.from_snapshot and not waiting[0].from_snapshot:
        if len(records) + len(waiting[0].records) > RECORDS_PER_RUN_MAX:
            break
        joined = waiting.popleft()
        records += joined.records
        end_offset = joined.end_offset
    return Committed(tuple(records), end_offset, first.from_snapshot)


class Broker:
    """The replicas of one node, and the image that its answers are read from.

    Args:
        broker_id: this node.
        incarnation_id: of this process. Nothing is led before its registration is in the image.
        files: opens and removes the logs.
        new_replication: makes what leaders and followers here share.
        on_failed: told when the metadata cannot be followed any more; the node has to stop.
    """

    def __init__(
        self,
        broker_id: BrokerId,
        incarnation_id: UUID,
        files: LogFiles,
        new_replication: Callable[[Replicated], Replication],
        *,
        clock: Clock,
        executor: Executor,
        tasks: Tasks,
        on_failed: Callable[[str], None],
    ) -> None:
        self.broker_id = broker_id
        self.image = MetadataImage.empty()
        self._next_image: MetadataImage | None = None  # while it is being applied
        self.incarnation_id = incarnation_id
        self.tasks = tasks.branch("broker")
        self._files = files
        self._listeners = BrokerListeners()
        self.hosted = HostedPartitions(files, self._listeners)
        self.failures = PartitionFailures(
            self.hosted, files, self._listeners, executor=executor, tasks=self.tasks, on_failed=on_failed
        )
        self.moves = ReplicaLogDirMover(self, files, clock=clock, executor=executor)
        self.producers = RememberedProducers(lambda: self.partitions)
        self.replication = new_replication(self)
        self.stops = StopOrders(self, files, executor)
        self.lost: dict[ListedReplica, LostReplicaLog] = {}
        """Replicas whose logs are gone. They have no role until `begin_anew`, and nothing is made in their place."""
        self._is_registered = False
        self._are_strays_aside = False
        self._has_just_registered = False
        self._clock = clock
        self._executor = executor
        self._on_failed = on_failed
        self._committed: deque[Committed] = deque()
        self._applying: asyncio.Task[None] | None = None
        self.image_lock = asyncio.Lock()  # held while one image follows another
        self._applied = AppliedOffset()

    @property
    def newest_image(self) -> MetadataImage:
        """What a role that is taken now goes by: the image that is being applied, or else `image`."""
        return self._next_image or self.image

    def add_listener(self, listener: BrokerListener) -> None:
        """Add a listener. It is called after those that were added before."""
        self._listeners.add(listener)

    # What clients ask.

    def partition(self, topic: str, index: int) -> Partition:
        """The replica of a partition here.

        Raises:
            KafkaError: KAFKA_STORAGE_ERROR while it is offline; NOT_LEADER_OR_FOLLOWER if another broker has it;
                UNKNOWN_TOPIC_OR_PARTITION if none has.
        """
        found = self.hosted.by_name.get((topic, index))
        if found is None:
            raise self._missing(TopicPartition(topic, PartitionIndex(index)))
        return found

    def partition_by_id(self, topic_id: TopicId, index: int) -> Partition:
        """As `partition`. Raises UNKNOWN_TOPIC_ID where the id names no topic."""
        found = self.hosted.by_id.get((topic_id, index))
        if found is None:
            topic = self.image.topic_by_id(topic_id)
            if topic is None:
                raise refusal(Code.UNKNOWN_TOPIC_ID, f"no topic has the id {topic_id}")
            raise self._missing(TopicPartition(topic.name, PartitionIndex(index)))
        return found

    async def bring_into_memory(self, missing: Sequence[NotCachedError]) -> None:
        """Read off the loop what look-ups in logs were in need of. What the disk refuses, the next look-up says."""
        await asyncio.gather(*(self._executor.run(one.fetch) for one in missing), return_exceptions=True)

    @property
    def partitions(self) -> list[Partition]:
        return list(self.hosted.by_name.values())

    def replica_of(self, topic_partition: TopicPartition) -> Partition | None:
        """The replica of a partition here, whatever it does, once its log is open."""
        return self.hosted.by_name.get(topic_partition)

    def is_offline(self, topic: str, index: int) -> bool:
        """Whether the replica that this broker should have cannot be served, because of its disk or a bug."""
        return bool(self.hosted.offline) and (topic, index) in self.hosted.offline

    @property
    def offline_partitions(self) -> list[TopicPartition]:
        """Those whose logs failed, until this node is started again."""
        return list(self.hosted.offline)

    def _missing(self, topic_partition: TopicPartition) -> TidelogError:
        reason = self.hosted.offline.get(topic_partition)
        if reason is not None:
            return refusal(
                Code.KAFKA_STORAGE_ERROR, f"{topic_partition} is offline until this node is restarted: {reason}"
            )
        if self.image.partition(topic_partition.topic, topic_partition.partition) is not None:
            return refusal(Code.NOT_LEADER_OR_FOLLOWER, f"{topic_partition}: this broker holds no replica of it")
        return refusal(Code.UNKNOWN_TOPIC_OR_PARTITION, f"there is no partition {topic_partition}")

    # What happened.

    def on_committed(self, records: tuple[object, ...], end_offset: Offset, from_snapshot: bool = False) -> None:
        """The metadata log grew for good. Applied in order, as soon as what came before is; what waits, together.

        Args:
            from_snapshot: whether there are records that are not of the log, but what a snapshot makes different.
        """
        self._committed.append(Committed(records, end_offset, from_snapshot))
        if self._applying is None:
            self._applying = self.tasks.start(self._apply_all())

    async def applied(self, end_offset: Offset) -> None:
        """Return once the published image reflects everything below `end_offset` (exclusive).

        Raises:
            KafkaError: REQUEST_TIMED_OUT: this broker stops.
        """
        await self._applied.reached(end_offset)

    async def set_strays_aside(self) -> None:
        """Rename logs that are assigned to nobody here. No image comes meanwhile: its logs would lie there first.

        Those that the metadata log has removed go for good, later: from here on, at once when they are removed.
        """
        async with self.image_lock:
            await self._executor.run(partial(self._files.deletions.set_strays_aside, self.image))
            self._are_strays_aside = True
            self._files.deletions.removed.clear()
        self._files.deletions.remove_marked_later()

    def on_log_truncating(self, replica: Replica, end_offset: Offset) -> None:
        """The log of a follower is about to be truncated."""
        self.moves.note_truncation(replica, end_offset)

    def on_moved(self, partition: Partition) -> None:
        """The log of a partition lies in another directory from now on."""
        self._listeners.on_moved(partition)

    # What to do about it.

    async def _apply_all(self) -> None:
        try:
            while self._committed:
                async with self.image_lock:
                    await self._apply(next_run(self._committed))
                if self._committed:
                    await asyncio.sleep(0)
        except Exception as error:
            # Without the metadata this broker would answer from the past, for ever. It must not.
            logger.critical("the committed metadata cannot be applied; this broker serves nothing more", exc_info=True)
            self.hosted.remove_all()
            self._on_failed(f"the committed metadata cannot be applied: {error}")
        finally:
            self._applying = None

    async def _apply(self, committed: Committed) -> None:
        delta = MetadataDelta(self.image)
        async for record in in_turns(committed.records, turn_size=RECORDS_PER_TURN):
            if not self._are_strays_aside and not committed.from_snapshot:
                self._note_removals(delta.view, record)
            delta.replay(record)
        image = self._next_image = delta.apply(Offset(committed.end_offset - 1))
        was_registered = self._is_registered
        self._follow_brokers(delta, image)
        self.stops.on_image(image)
        removed = taken_away(self.broker_id, delta, image)
        for topic_partition, topic_id in removed:
            await self._cut_off(self._forget(topic_partition, topic_id))
            await self.moves.end(topic_partition)
        if not was_registered:
            removed = []  # it may be assigned again further on: `set_strays_aside` looks at what is left then
        await self._files.deletions.delete([*removed, *self.stops.take_strays()])
        if self._are_strays_aside and not committed.from_snapshot:
            await self._files.deletions.delete_strays(delta.deleted_topics.keys())
        ours = assigned(self.broker_id, delta, image, all_there_are=self._has_just_registered)
        ours += [one for one in self.stops.take_resumed() if one not in ours]
        self._has_just_registered = False
        await self._open_missing(ours, image)
        if delta.changed_configs:
            self._update_min_insync_replicas(image)
        await self.take_roles(ours, image)
        if delta.changed_brokers:
            async for partition in in_turns(self.partitions):
                partition.role.on_brokers(self.replication.active_brokers)
        await self._listeners.prepare(delta, image)
        self._listeners.on_image_changed(delta, image)
        self.image, self._next_image = image, None
        self._publish(committed.end_offset)

    def _note_removals(self, before: MetadataView, record: object) -> None:
        for lost in lost_replicas(before, record):
            if lost.broker_id == self.broker_id:
                self._files.deletions.removed.note(lost)

    async def _open_missing(self, ours: Sequence[Assigned], image: MetadataImage) -> None:
        """Open the logs that are not open yet. Before the metadata tells of the registration of this process none is
        made: it may be one that lay here, or its topic may be gone since.
        """
        missing = [a for a in ours if (a.topic_id, a.topic_partition.partition) not in self.hosted.by_id]
        if not missing:
            return
        failed_count = 0
        added: list[Partition] = []
        wanted = [
            WantedLog(a.topic_partition, a.topic_id, self._is_new(a), is_only_replica=len(a.state.replicas) == 1)
            for a in missing
        ]
        opened_logs = await self._files.opening.open(wanted, image, makes=self._is_registered)
        async for one, opened in in_turns(zip(missing, opened_logs, strict=True)):
            before = self.lost.pop((one.topic_id, one.topic_partition.partition), None)
            if opened is None:
                continue
            if isinstance(opened, LostLogError):
                self._note_lost(one, str(opened), is_alone=before is None and len(self.lost) < LOGGED_MAX)
                continue
            reason = self._why_not(one.topic_partition, opened)
            if reason is None:
                assert isinstance(opened, Log)
                added.append(self._add(one, opened))
                continue
            failed_count += 1
            self.hosted.take_offline(one.topic_partition, reason, is_alone=failed_count <= LOGGED_MAX)
        if failed_count > LOGGED_MAX:
            logger.error("%d partitions are offline; the first %d were named", failed_count, LOGGED_MAX)
        if len(self.lost) > LOGGED_MAX:
            logger.error("%d replicas have lost their logs; the first %d were named", len(self.lost), LOGGED_MAX)
        await self._lower_checkpoints(added)

    def _note_lost(self, one: Assigned, reason: str, *, is_alone: bool) -> None:
        if is_alone:
            logger.error(
                "%s: A REPLICA IS LOST: %s. The others are asked first: it counts as in sync nowhere, and begins anew. "
                "If the files were moved, stop this node and put them back before it starts again",
                *(one.topic_partition, reason),
            )
        self.lost[one.topic_id, one.topic_partition.partition] = LostReplicaLog(one.topic_partition, reason)

    async def begin_anew(self, replicas: Sequence[ListedReplica]) -> list[Partition]:
        """Open or make the logs of lost replicas whose loss is committed, and give them their roles.

        Returns:
            Those that are here again.

        Raises:
            DiskError: that they may be made anew could not be noted.
        """
        async with self.image_lock:
            await self._files.opening.accept_losses(replicas)
            for topic_id, index in replicas:
                self.replication.loss_notes.on_begun_anew((topic_id, PartitionIndex(index)))
            ours = []
            for topic_id, index in replicas:
                lost = self.lost.pop((topic_id, index), None)
                topic = self.image.topic_by_id(topic_id)
                if lost is not None and topic is not None and is_held(self.broker_id, self.image, topic_id, index):
                    ours.append(Assigned(lost.topic_partition, topic_id, topic.partitions[index]))
            await self._open_missing(ours, self.image)
            await self.take_roles(ours, self.image)
            return [found for one in ours if (found := self.replica_of(one.topic_partition)) is not None]

    def _update_min_insync_replicas(self, image: MetadataImage) -> None:
        """Before any state of partitions that comes with it: in an ISR that the controller granted under a new
        `min.insync.replicas` nothing is committed by the old one, for others may be eligible to lead (rule 4).
        """
        in_force = self._files.in_force(image)
        settings: dict[str, ReplicationSettings] = {}
        for partition in self.partitions:
            if partition.replica is not None:
                topic = partition.topic_partition.topic
                if topic not in settings:
                    settings[topic] = in_force.replication_settings(topic)
                partition.replica.on_settings(settings[topic])

    def _why_not(self, topic_partition: TopicPartition, opened: Log | TidelogError) -> str | None:
        """Why a log cannot be served: it could not be opened, or its directory failed while others were opened."""
        if not isinstance(opened, Log):
            return str(opened)
        held = self._files.directory_of(topic_partition)
        if held is None or held.failure is None:
            return None
        return f"log directory {held.path} failed: {held.failure}"

    def _is_new(self, one: Assigned) -> bool:
        """Whether it came here just now: what came before this process registered may have been written to before."""
        index = one.topic_partition.partition
        has_come_up_to_date = self.image.last_offset is not None and self._is_registered_in(self.image)
        return has_come_up_to_date and not is_held(self.broker_id, self.image, one.topic_id, index)

    def _is_registered_in(self, image: MetadataImage) -> bool:
        us = image.brokers.get(self.broker_id)
        return us is not None and us.incarnation_id == self.incarnation_id

    def _follow_brokers(self, delta: MetadataDelta, image: MetadataImage) -> None:
        """Nothing is led or followed here before the metadata tells of the registration of this process (rule 6)."""
        if not delta.changed_brokers and not delta.are_features_changed and self.image.last_offset is not None:
            return
        us = image.brokers.get(self.broker_id)
        is_registered = self._is_registered_in(image)
        self._has_just_registered = is_registered and not self._is_registered
        self._is_registered = is_registered
        self.replication.broker_epoch = us.broker_epoch if us is not None and is_registered else None
        self.replication.on_image(image)

    async def _lower_checkpoints(self, opened: Sequence[Partition]) -> None:
        """Where a log ends below its checkpointed high watermark, that goes back before anything is appended: else what
        comes in the place of what was lost would count as committed after the next start.
        """
        lower = []
        for partition in opened:
            known = self._files.high_watermark(partition.topic_partition)
            if known is not None and partition.high_watermark < known:
                lower.append(partition)
        if lower:
            await self._files.served.write_high_watermarks(lower)

    async def _cut_off(self, *stopped: Partition | None) -> None:
        """Return once no thread works on the logs of partitions that were stopped."""
        for partition in stopped:
            if partition is not None:
                async with partition.log_lock:
                    pass

    async def take_roles(self, ours: list[Assigned], image: MetadataImage) -> None:
        """Lead what this broker is told to lead, once each lineage says so on disk (rule 1); follow the rest.

        What an earlier incarnation led is not for this one, whose registration ends it (rule 6).
        """
        to_lead: list[tuple[Assigned, Partition]] = []
        to_follow: list[tuple[Assigned, Partition]] = []
        async for one in in_turns(ours):
            partition = self.hosted.by_id.get((one.topic_id, one.topic_partition.partition))
            if partition is None:
                continue
            leads = one.state.leader == self.broker_id
            invariant(
                not leads or self.broker_id in one.state.isr,
                "{}: leader {} is not in its ISR",
                one.topic_partition,
                self.broker_id,
            )
            role, wanted = partition.role, LeaderDriver if leads else FollowerDriver
            if not self._is_registered or self.stops.is_stopped(partition):
                self.hosted.stop_serving(partition, one.state.leader_epoch)
            elif role.leader_epoch == one.state.leader_epoch and isinstance(role, wanted):
                role.on_state(one.state)
            else:
                self.hosted.stop_serving(partition, one.state.leader_epoch)
                await self._cut_off(partition)
                (to_lead if leads else to_follow).append((one, partition))
        if to_lead:
            await self._lead(to_lead, image)
        async for one, partition in in_turns(to_follow):
            if self._may_serve(partition):
                self._follow(one, partition)

    def _may_serve(self, partition: Partition) -> bool:
        """Whether it is still here, and was not told to stop."""
        return self.hosted.is_here(partition) and not self.stops.is_stopped(partition)

    def _follow(self, one: Assigned, partition: Partition) -> None:
        machine = FollowerReplica(
            one.topic_partition,
            self.broker_id,
            one.state,
            partition.bounds,
            partition.log.lineage,
            settings=FollowerSettings(fetch_backoff_ms=BACKOFF_FIRST_MS),
        )
        partition.follow(FollowerDriver(partition, machine, self.replication))

    async def _lead(self, to_lead: list[tuple[Assigned, Partition]], image: MetadataImage) -> None:
        for one, partition in to_lead:
            if one.state.is_recovering and one.state.unclean_epoch == one.state.leader_epoch:
                _log_what_is_left(one, partition)
        errors = await self._files.served.assign_leader_epochs(
            [(partition.log, one.state.leader_epoch) for one, partition in to_lead]
        )
        topics = {one.topic_partition.topic for one, _ in to_lead}
        settings = self._files.in_force(image).replication_settings_of(topics)
        async for (one, partition), error in in_turns(zip(to_lead, errors, strict=True)):
            if not self._may_serve(partition):
                continue  # meanwhile its directory failed, or it was told to stop
            if error is not None:
                if self.failures.on_not_led(partition, error):
                    self.tasks.start(self._lead_later(one))
                continue
            replica = LeaderReplica(
                one.topic_partition,
                self.broker_id,
                one.state,
                partition.bounds,
                partition.log.lineage,
                settings=settings[one.topic_partition.topic],
                now_ms=self._clock.now_ms(),
                is_held=not partition.is_sync_awaited,
            )
            replica.on_brokers(self.replication.active_brokers)
            partition.lead(replica)
            self._listeners.on_leadership_changed(partition)

    async def _lead_later(self, one: Assigned) -> None:
        """There was no room to note where the epoch starts: try again, if it still is to be led here."""
        await asyncio.sleep(LEAD_AGAIN_SECONDS)
        async with self.image_lock:
            topic = self.image.topic_by_id(one.topic_id)
            partition = self.hosted.by_id.get((one.topic_id, one.topic_partition.partition))
            if topic is not None and partition is not None and partition.replica is None:
                state = topic.partitions[one.topic_partition.partition]
                await self.take_roles([replace(one, state=state)], self.image)

    def _add(self, one: Assigned, log: Log) -> Partition:
        partition = Partition(
            one.topic_partition,
            one.topic_id,
            log,
            high_watermark=self._files.high_watermark(one.topic_partition),
            host=self.replication,
        )
        self.hosted.add(partition)
        self.moves.resume(partition)
        return partition

    def _forget(self, topic_partition: TopicPartition, topic_id: TopicId) -> Partition | None:
        """There is no replica here any more: stop serving at once. Returns what is stopped."""
        self.lost.pop((topic_id, topic_partition.partition), None)
        return self.hosted.remove(topic_partition, topic_id)

    def _publish(self, end_offset: Offset) -> None:
        last_offset = self.image.last_offset
        invariant(last_offset == end_offset - 1, "published {}, applied up to {}", last_offset, end_offset)
        self._applied.on_published(end_offset)
        self.replication.doubts.on_published(self.image)

    async def stop(self) -> None:
        """Serve no more. The logs are closed by `LogFiles`."""
        if self._applying is not None:
            await asyncio.gather(self._applying, return_exceptions=True)
        self._applied.on_stopped()
        await self.stops.stop()
        await self.moves.stop()
        await self.failures.stop()
        partitions = self.partitions
        for partition in partitions:
            self.hosted.stop_serving(partition)
        await self.replication.stop()
        await self._cut_off(*partitions)


def _log_what_is_left(one: Assigned, partition: Partition) -> None:
    """An unclean election made this replica the leader: say which records it has."""
    log = partition.log
    logger.warning(
        "%s: this broker leads after an UNCLEAN ELECTION, in leader epoch %d. Its log holds offsets %d to %d "
        "(exclusive), the last of leader epoch %s, and its high watermark is %d. Records of other replicas from offset "
        "%d on are lost, acknowledged ones too; the active controller logs who ordered the election",
        *(one.topic_partition, one.state.leader_epoch, log.log_start_offset, log.log_end_offset),
        *(log.lineage.epoch_at(Offset(log.log_end_offset - 1)), partition.high_watermark, log.log_end_offset),
    )

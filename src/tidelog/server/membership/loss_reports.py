"""Tells the account of losses what the replicas of this broker held, for every entry that awaits them.

A replica tells once it leads, or once the leader of its epoch has accepted a fetch: then whatever was to be cut off is
cut off. It goes on until it is answered. What was noted before a crash is read from the directory of the log.

What is kept of lost records goes when its last one is older than `retention.ms` of the topic, and the oldest of it when
more is kept than `losses.kept.bytes`.

Counterpart in Kafka: none.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial

from tidelog.base.errors import Code, DiskError, TidelogError
from tidelog.base.ids import BrokerEpoch, BrokerId, LeaderEpoch, Offset, PartitionIndex, TopicPartition
from tidelog.base.losses import LossId, ReplicaFate, ReplicaLoss
from tidelog.base.ports import Clock, Disk, Executor, Rng
from tidelog.log.lost_records import kept_files, kept_size_bytes, read_notes, remove_notes, remove_uncut, what_is_gone
from tidelog.metadata import MetadataDelta, MetadataImage
from tidelog.net.backoff import Backoff
from tidelog.server.broker.broker import Broker
from tidelog.server.broker.listeners import BrokerListener
from tidelog.server.membership.controller_channel import ControllerChannel
from tidelog.server.replication.follower_driver import FollowerDriver
from tidelog.server.replication.partition import Partition
from tidelog.server.tasks import Tasks
from tidelog.server.transport.turns import in_turns
from tidelog.wire.messages.api_10002_tell_losses import LossToTell, TellLossesRequest, TellLossesResponse
from tidelog.wire.messages.losses import replica_entry_of

logger = logging.getLogger("tidelog.server.losses")

LOSSES_PER_REQUEST_MAX = 100
"""Some milliseconds of the controller's event loop, in several steps."""
TOLD_AT_ONCE_MAX = 2_000
"""In several requests, before it is looked again what there is to tell."""
DIRECTORIES_AT_ONCE = 100
TIMEOUT_MS = 30_000
BACKOFF_MS = 50
BACKOFF_MS_MAX = 2_000
REST_FACTOR = 30
"""After a look at all that is awaited, so much longer than that took: it costs a few hundredths of a processor."""
REQUEST_CLASS = "losses"


class LossReports(BrokerListener):
    """See the module. What waits here is bounded by the replicas of this broker, and by the account.

    Args:
        broker_epoch: asked for that of the present incarnation; None before it is registered.
        retention_check_interval_ms: how often what is kept is looked at for its age.
    """

    def __init__(
        self,
        broker: Broker,
        broker_epoch: Callable[[], BrokerEpoch | None],
        channel: ControllerChannel,
        *,
        clock: Clock,
        disk: Disk,
        executor: Executor,
        rng: Rng,
        retention_check_interval_ms: int,
        tasks: Tasks,
    ) -> None:
        self._broker = broker
        self._notes = broker.replication.loss_notes
        self._broker_epoch = broker_epoch
        self._channel = channel
        self._clock = clock
        self._disk = disk
        self._executor = executor
        self._backoff = Backoff(BACKOFF_MS, BACKOFF_MS_MAX, rng)
        self._tasks = tasks.branch("losses")
        self._retention_check_interval_ms = retention_check_interval_ms
        self._task: asyncio.Task[None] | None = None
        self._retention: asyncio.Task[None] | None = None
        self._has_looked = False
        self._unlooked: list[LossId] = []
        self._has_begun = False
        self._unread: dict[str, Partition] = {}  # by directory: something may have been noted before this process began
        self._opened_before: set[LossId] = set()  # entries that are older than this process
        self._told: set[LossId] = set()  # rows of whole logs, which the image does not show yet
        self._kept: dict[LossId, ReplicaLoss] = {}  # own rows with records in a file, the oldest first
        self._kept_size_bytes = 0
        self._look_seconds = 0.0
        self._expired: set[LossId] = set()  # of those, what is too old, or not whole
        self._forgotten: set[LossId] = set()  # by the account, with records in a file
        self._has_news = asyncio.Event()
        broker.add_listener(self)

    @property
    def _broker_id(self) -> BrokerId:
        return self._broker.broker_id

    def on_image_changed(self, delta: MetadataDelta, image: MetadataImage) -> None:
        """See `BrokerListener`."""
        us = image.brokers.get(self._broker_id)
        if us is None or us.broker_epoch != self._broker_epoch():
            self._has_looked = False  # what changes meanwhile is looked at with all else
            return  # nothing here is this incarnation's yet
        if not self._has_looked:
            self._has_looked = True
            self._unlooked = list(image.losses)
            if not self._has_begun:
                self._has_begun = True
                self._opened_before.update(self._unlooked)
                self._unread = {each.log.directory: each for each in self._broker.partitions}
                self._look_who_is_empty(image)
        for loss_id in delta.changed_losses:
            self._look_at(loss_id, image)
        if self._notes.unsynced:
            self._look_who_is_in_sync(delta, image)  # after what was opened along with that
        if delta.changed_losses or delta.changed_partitions or self._unlooked:
            self._wake()

    def _look_who_is_empty(self, image: MetadataImage) -> None:
        """A log may have begun anew before this process did."""
        for each in self._broker.partitions:
            topic, index = image.topics_by_id.get(each.topic_id), each.topic_partition.partition
            if each.opened_end_offset == 0 and topic is not None and self._broker_id not in topic.partitions[index].isr:
                self._notes.on_begun_anew((each.topic_id, index))

    def _look_who_is_in_sync(self, delta: MetadataDelta, image: MetadataImage) -> None:
        for topic_id, indexes in delta.changed_partitions.items():
            topic = image.topics_by_id.get(topic_id)
            for index in indexes:
                if topic is None or self._broker_id in topic.partitions[index].isr:
                    self._notes.on_in_sync((topic_id, index))
        for topic_id, deleted in delta.deleted_topics.items():
            for number in range(len(deleted.partitions)):
                self._notes.on_in_sync((topic_id, PartitionIndex(number)))

    def on_moved(self, partition: Partition) -> None:
        """See `BrokerListener`. What is kept moved with the log, unless a disk refused some of it."""
        self._tasks.start(self._check_kept(partition))

    async def _check_kept(self, partition: Partition) -> None:
        async for loss_id in in_turns(list(self._kept)):
            row = self._kept.get(loss_id)
            if row is None or self._partition(loss_id) is not partition:
                continue
            look = partial(kept_size_bytes, self._disk, partition.log.directory, loss_id.leader_epoch)
            try:
                is_whole = await self._executor.run(look) >= row.kept_size_bytes
            except DiskError as error:
                logger.warning("what is kept of lost records cannot be read: %s", error)
                is_whole = False
            if not is_whole and self._kept.get(loss_id) is row:
                self._expired.add(loss_id)  # what is left would pass for all
        self._wake()

    def _look_at(self, loss_id: LossId, image: MetadataImage) -> None:
        loss = image.losses.get(loss_id)
        self._on_row(loss_id, None if loss is None else loss.replica(self._broker_id))

    async def _look_at_all(self) -> None:
        unlooked, self._unlooked = self._unlooked, []
        async for loss_id in in_turns(unlooked):
            self._look_at(loss_id, self._broker.newest_image)

    def _on_row(self, loss_id: LossId, row: ReplicaLoss | None) -> None:
        self._told.discard(loss_id)
        before = self._kept.pop(loss_id, None)
        self._kept_size_bytes -= 0 if before is None else before.kept_size_bytes
        if before is not None and row is None:
            self._forgotten.add(loss_id)
        self._expired.discard(loss_id)
        if row is None or row.fate is not ReplicaFate.AWAITED:
            self._notes.await_no_more(loss_id)
            self._opened_before.discard(loss_id)
        else:
            self._notes.await_told(loss_id)
        if row is not None and row.kept_size_bytes:
            self._kept[loss_id] = row
            self._kept_size_bytes += row.kept_size_bytes

    def _wake(self) -> None:
        self._has_news.set()
        if self._task is None and self._has_work:
            self._task = self._tasks.start(self._tell_all())
        if self._retention is None and self._kept:
            self._retention = self._tasks.start(self._retain())

    @property
    def _has_work(self) -> bool:
        notes = self._notes
        is_to_drop = self._forgotten or self._expired or self._excess_size_bytes > 0
        return bool(self._unlooked or self._unread or notes.awaited or notes.untold or is_to_drop)

    @property
    def _excess_size_bytes(self) -> int:
        return self._kept_size_bytes - self._notes.kept_size_bytes_max

    async def _retain(self) -> None:
        """Look at the age of what is kept, from time to time, for as long as anything is."""
        try:
            while self._kept:
                await asyncio.sleep(self._retention_check_interval_ms / 1000)
                now_ms = self._clock.wall_ms()
                async for loss_id in in_turns(list(self._kept)):
                    row = self._kept.get(loss_id)
                    if row is not None and self._is_expired(loss_id, row, now_ms):
                        self._expired.add(loss_id)
                self._wake()
        finally:
            self._retention = None

    def _is_expired(self, loss_id: LossId, row: ReplicaLoss, now_ms: int) -> bool:
        """Records without a timestamp are as old as what was told of them."""
        partition = self._partition(loss_id)
        newest_ms = row.told_ms if row.last_timestamp_ms is None else row.last_timestamp_ms
        if partition is None or newest_ms is None or "delete" not in partition.log.config.cleanup_policy:
            return False
        retention_ms = partition.log.config.retention_ms
        return retention_ms is not None and now_ms - newest_ms > retention_ms

    async def _tell_all(self) -> None:
        waited = 0
        try:
            while self._has_work:
                await self._look_at_all()
                await self._rest(waited)
                await self._read_notes()
                while self._forgotten:
                    await self._drop(self._forgotten.pop())
                began = asyncio.get_running_loop().time()
                rows = await self._ready()
                self._look_seconds = asyncio.get_running_loop().time() - began
                waited = 0 if rows and await self._tell_in_portions(rows) else waited + 1
        finally:
            self._task = None

    async def _rest(self, waited: int) -> None:
        """Until there may be more to tell: an entry that waits for a leader is looked at less and less often."""
        self._has_news.clear()
        if not waited:
            await asyncio.sleep(BACKOFF_MS / 1000)  # what comes in a few images is told together
            return
        try:
            async with asyncio.timeout(self._backoff.delay_ms(min(waited, 10)) / 1000):
                await self._has_news.wait()
        except TimeoutError:
            pass
        await asyncio.sleep(max(BACKOFF_MS / 1000, REST_FACTOR * self._look_seconds))

    async def _read_notes(self) -> None:
        """Of all logs once, a few at a time. A directory that cannot be read is tried again, and tells nothing."""
        unread = list(self._unread.items())
        for start in range(0, len(unread), DIRECTORIES_AT_ONCE):
            some = dict(unread[start : start + DIRECTORIES_AT_ONCE])
            for directory, notes in (await self._executor.run(partial(self._notes_in, some))).items():
                partition = self._unread.pop(directory)
                for loss_id, row in notes:
                    gone = what_is_gone(partition.log, row)
                    if gone is not None:
                        self._notes.note(loss_id, gone)
                    else:
                        await self._forget_uncut(partition, loss_id, row)

    def _notes_in(self, logs: Mapping[str, Partition]) -> dict[str, list[tuple[LossId, ReplicaLoss]]]:
        """On a thread. What cannot be read is left out."""
        found = {}
        for directory, partition in logs.items():
            try:
                found[directory] = read_notes(
                    self._disk,
                    directory,
                    topic_id=partition.topic_id,
                    partition=partition.topic_partition.partition,
                    broker_id=self._broker_id,
                )
            except DiskError as error:
                logger.warning("what was noted of lost records cannot be read: %s", error)
        return found

    async def _forget_uncut(self, partition: Partition, loss_id: LossId, row: ReplicaLoss) -> None:
        """What was noted is in the log yet. If it is to be cut off it is noted again; so the note has to go before."""
        async with partition.log_lock:
            if row.cut_from is not None and what_is_gone(partition.log, row) is None:
                await self._executor.run(
                    partial(self._remove_uncut, partition.log.directory, loss_id.leader_epoch, row.cut_from)
                )

    def _remove_uncut(self, directory: str, leader_epoch: LeaderEpoch, offset: Offset) -> None:
        """On a thread. A note that stays is found again after the next start."""
        try:
            remove_uncut(self._disk, directory, leader_epoch, offset)
        except DiskError as error:
            logger.debug("a note of records that are there stays: %s", error)

    def _partition(self, loss_id: LossId) -> Partition | None:
        topic = self._broker.newest_image.topic_by_id(loss_id.topic_id)
        return None if topic is None else self._broker.replica_of(TopicPartition(topic.name, loss_id.partition))

    async def _ready(self) -> dict[LossId, ReplicaLoss]:
        """What can be told now."""
        rows: dict[LossId, ReplicaLoss] = {}
        awaited = (
            LossId(*replica, leader_epoch) for replica, epochs in self._notes.awaited.items() for leader_epoch in epochs
        )
        async for loss_id in in_turns(list(dict.fromkeys((*awaited, *self._notes.untold)))):
            if len(rows) >= TOLD_AT_ONCE_MAX:
                break
            row = self._notes.untold.get(loss_id)
            if row is None and loss_id in self._told:
                continue
            partition = self._partition(loss_id)
            if partition is None:
                if row is not None:
                    rows[loss_id] = row  # it was taken away meanwhile, and is not cut any more
            elif partition.log.directory not in self._unread and _is_settled(partition, loss_id.leader_epoch):
                rows[loss_id] = self._uncut(partition, loss_id) if row is None else row
        excess = self._excess_size_bytes
        kept = list(self._kept.items()) if excess > 0 or self._expired else []
        for loss_id, row in kept:
            if len(rows) >= TOLD_AT_ONCE_MAX:
                break
            if (loss_id in self._expired or excess > 0) and loss_id not in rows and loss_id not in self._told:
                excess -= row.kept_size_bytes
                await self._drop(loss_id)
                rows[loss_id] = replace(row, kept_size_bytes=0)
        return rows

    def _uncut(self, partition: Partition, loss_id: LossId) -> ReplicaLoss:
        """The row of a replica from which nothing was cut off."""
        loss = self._broker.newest_image.losses.get(loss_id)
        leads = partition.role.leader_replica is not None
        if leads and (loss is None or loss.leader in (None, self._broker_id)):
            entries = partition.log.lineage.entries
            starts = (entry.start_offset for entry in entries if entry.leader_epoch >= loss_id.leader_epoch)
            return ReplicaLoss(self._broker_id, ReplicaFate.LED, next(starts, partition.log.log_end_offset))
        was_empty = loss_id in self._opened_before and partition.opened_end_offset == 0
        if was_empty or loss_id in self._notes.begun_anew:
            return ReplicaLoss(self._broker_id, ReplicaFate.EMPTY)
        return ReplicaLoss(self._broker_id, ReplicaFate.WHOLE)

    async def _drop(self, loss_id: LossId) -> None:
        """Remove what is kept of a loss."""
        partition = self._partition(loss_id)
        if partition is not None:
            await self._executor.run(partial(self._remove_kept, partition.log.directory, loss_id.leader_epoch))
            logger.warning("%s: the records that epoch %d lost are kept no more", partition.topic_partition, loss_id[2])

    def _remove_kept(self, directory: str, leader_epoch: LeaderEpoch) -> None:
        """On a thread."""
        try:
            for path in kept_files(self._disk, directory, leader_epoch):
                self._disk.remove(path)
        except DiskError as error:
            logger.warning("lost records are kept beyond losses.kept.bytes, or retention.ms: %s", error)

    async def _tell_in_portions(self, rows: dict[LossId, ReplicaLoss]) -> bool:
        """Returns whether the account has them all."""
        untold = list(rows.items())
        for start in range(0, len(untold), LOSSES_PER_REQUEST_MAX):
            if not await self._tell(dict(untold[start : start + LOSSES_PER_REQUEST_MAX])):
                return False
        return True

    async def _tell(self, rows: Mapping[LossId, ReplicaLoss]) -> bool:
        """Returns whether the account has it."""
        broker_epoch = self._broker_epoch()
        if broker_epoch is None:
            return False
        request = TellLossesRequest(
            broker_id=self._broker_id,
            broker_epoch=broker_epoch,
            losses=[LossToTell(*loss_id, replica_entry_of(row)) for loss_id, row in rows.items()],
        )
        try:
            answer = await self._channel.request(
                request, TellLossesResponse, timeout_ms=TIMEOUT_MS, request_class=REQUEST_CLASS
            )
        except TidelogError as error:
            logger.debug("the controller was not told of losses: %s", error)
            return False
        if answer.error_code:
            logger.debug("the controller does not want to be told of losses: %s", Code(answer.error_code).name)
            return False
        noted = [loss_id for loss_id, row in rows.items() if self._notes.untold.get(loss_id) is row]
        for loss_id in noted:
            self._notes.on_told(loss_id)
        for loss_id, row in rows.items():
            if row.fate is not ReplicaFate.CUT and not self._is_shown(loss_id, row):
                self._told.add(loss_id)
            elif loss_id in self._kept and not row.kept_size_bytes:
                self._kept_size_bytes -= self._kept.pop(loss_id).kept_size_bytes
        directories = [
            (partition.log.directory, loss_id.leader_epoch, from_offset)
            for loss_id in noted
            if (partition := self._partition(loss_id)) is not None
            and (from_offset := rows[loss_id].cut_from) is not None
        ]
        await self._executor.run(partial(self._remove_notes, directories))
        return True

    def _is_shown(self, loss_id: LossId, row: ReplicaLoss) -> bool:
        loss = self._broker.newest_image.losses.get(loss_id)
        shown = None if loss is None else loss.replica(self._broker_id)
        return shown is not None and shown.fate is row.fate and shown.kept_size_bytes == row.kept_size_bytes

    def _remove_notes(self, noted: list[tuple[str, LeaderEpoch, Offset]]) -> None:
        """On a thread. One that stays is told again after the next start, which changes nothing."""
        for directory, leader_epoch, from_offset in noted:
            try:
                remove_notes(self._disk, directory, leader_epoch, from_offset=from_offset)
            except DiskError as error:
                logger.debug("a note of lost records stays: %s", error)


def _is_settled(partition: Partition, leader_epoch: LeaderEpoch) -> bool:
    """Whether all that the replica holds in that epoch, or a later one, is its leader's."""
    role = partition.role
    if role.leader_epoch is None or role.leader_epoch < leader_epoch:
        return False
    return role.leader_replica is not None or (isinstance(role, FollowerDriver) and role.replica.is_reconciled)

"""Drives the machine of one share partition: what it says is owed, in its order.

```
 read what was kept ──► reconcile it with the log ──► serve:  kept by the coordinator ──► members answered ──► woken
```

Kafka: `SharePartition`, as `SharePartitionManager` creates it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from typing import Protocol

from tidelog.base.errors import Code, InvariantBrokenError, KafkaError, refusal
from tidelog.base.ids import CorrelationId, LeaderEpoch, Offset
from tidelog.base.ports import Clock
from tidelog.log import NotCachedError
from tidelog.server.broker.broker import Broker
from tidelog.server.replication.deadlines import ReplicationDeadlines
from tidelog.server.replication.partition import Partition
from tidelog.server.replication.partition_listeners import PartitionListener, PartitionListeners
from tidelog.server.share_fetching.kept_states import FENCED, KeepsShareStates, code_for_members
from tidelog.server.share_fetching.share_settings import ShareFetchSettings
from tidelog.server.tasks import Tasks
from tidelog.share import (
    NO_LEADER_EPOCH,
    AcknowledgedRecords,
    Bounds,
    ForgottenRecords,
    SharePartition,
    ShareState,
    StateChange,
    reconciled,
)

logger = logging.getLogger("tidelog.server.share_fetching")

LOOK_UPS_MAX = 8
"""How often a place in the log is looked up without waiting."""
TOLD_MAX = 10
"""Ranges of forgotten records that are named in the log."""


class ShareHost(Protocol):
    """What all share partitions here have in common."""

    broker: Broker
    clock: Clock
    deadlines: ReplicationDeadlines
    tasks: Tasks

    @property
    def persister(self) -> KeepsShareStates: ...

    def on_ended(self, driver: ShareDriver) -> None:
        """It is of no use any more: the next fetch loads what was kept anew."""
        ...

    def on_forgotten(self, count: int) -> None:
        """So many records that were delivered were taken back."""
        ...


class ShareDriver:
    """One partition, for one share group, in one leader epoch.

    Attributes:
        machine: None while it is being loaded.
        error: why it could not be loaded, or ended.
        listeners: told of the next change of what can be acquired.
        is_used: whether the group has members that fetch from this broker; one that is not ends when it is idle.
    """

    __slots__ = (
        "_answers",
        "_due_ms",
        "_host",
        "_last_correlation_id",
        "error",
        "group_id",
        "is_used",
        "leader_epoch",
        "listeners",
        "machine",
        "partition",
        "settings",
    )

    def __init__(
        self,
        group_id: str,
        partition: Partition,
        leader_epoch: LeaderEpoch,
        settings: ShareFetchSettings,
        host: ShareHost,
    ) -> None:
        """Do nothing until `begin`."""
        self.group_id = group_id
        self.partition = partition
        self.leader_epoch = leader_epoch
        self.settings = settings
        self.machine: SharePartition | None = None
        self.error: KafkaError | None = None
        self.listeners: PartitionListeners[PartitionListener] = PartitionListeners()
        self.is_used = True
        self._host = host
        self._answers: dict[CorrelationId, asyncio.Future[Code]] = {}
        self._last_correlation_id = 0
        self._due_ms: int | None = None

    def begin(self) -> None:
        """Load what was kept."""
        self._host.tasks.start(self._load(), on_bug=self.on_bug)

    def end(self, error: KafkaError) -> None:
        """The leadership is over, or the group: whoever waits is told."""
        if self.error is not None:
            return
        self.error = error
        if self.machine is not None:
            self.machine.on_stopped()
            for number, code in self.machine.take_ready().answers:
                self._answer(number, code)
        self.listeners.notify()

    @property
    def serving(self) -> SharePartition | None:
        """The machine, if it serves."""
        return self.machine if self.error is None else None

    # What happened.

    def on_settings(self, settings: ShareFetchSettings) -> None:
        self.settings = settings
        if self.machine is not None:
            self.machine.on_settings(settings.delivery)
            self.listeners.notify()  # there may be room for more

    def acknowledge(self, member_id: str, batches: Sequence[AcknowledgedRecords]) -> asyncio.Future[Code]:
        """A member says what became of records.

        Returns:
            Done once that is kept.

        Raises:
            KafkaError: see `SharePartition.on_acknowledge`.
        """
        machine = self.serving
        if machine is None:
            raise refusal(
                Code.INVALID_RECORD_STATE, f"member {member_id} has no records of {self.partition.topic_partition}"
            )
        self._last_correlation_id += 1
        number = CorrelationId(self._last_correlation_id)
        machine.on_acknowledge(number, member_id, batches, self._host.clock.now_ms())
        future: asyncio.Future[Code] = asyncio.get_running_loop().create_future()
        self._answers[number] = future
        self.process_ready()
        return future

    def on_member_left(self, member_id: str) -> None:
        """Others may have its records."""
        if self.serving is not None:
            self.serving.on_member_left(member_id)
            self.process_ready()

    def on_due(self, now_ms: int) -> None:
        """A deadline may be over."""
        machine = self.serving
        if machine is None or self._due_ms is None or now_ms < self._due_ms:
            return
        self._due_ms = None
        machine.on_tick(now_ms)
        self.process_ready()

    def on_bug(self, error: Exception) -> None:
        """A bug: what was kept is loaded anew, which all that was confirmed is in."""
        logger.critical("%s: share group %r is loaded anew: a bug in Tidelog", *self._names, exc_info=error)
        self._host.on_ended(self)

    # What is owed.

    def process_ready(self) -> None:
        """Carry out what the machine has ready."""
        machine = self.serving
        if machine is None:
            return
        try:
            change, answers, has_released = machine.take_ready()
        except InvariantBrokenError as error:
            self.on_bug(error)
            return
        if change is not None:
            self._host.tasks.start(self._write(machine, change), on_bug=self.on_bug)
        for number, code in answers:
            self._answer(number, code)
        due_ms = machine.next_deadline_ms()
        if due_ms is not None and (self._due_ms is None or due_ms < self._due_ms):
            self._due_ms = due_ms
            self._host.deadlines.add(self, due_ms)
        if machine.is_fenced:
            self._host.on_ended(self)
        elif has_released:
            self.listeners.notify()
        elif not self.is_used and machine.is_idle:
            self._host.on_ended(self)

    def _answer(self, number: CorrelationId, code: Code) -> None:
        future = self._answers.pop(number)
        if not future.done():
            future.set_result(code)

    async def _write(self, machine: SharePartition, change: StateChange) -> None:
        partition, host = self.partition, self._host
        error: KafkaError | None = None
        try:
            await host.persister.write(self.group_id, partition.topic_id, partition.topic_partition.partition, change)
        except KafkaError as refused:
            error = refused
        if self.serving is not machine:
            return
        now_ms = host.clock.now_ms()
        if error is None:
            machine.on_written(now_ms)
        else:
            logger.debug("%s: share group %r: %s: %s", *self._names, error.code.name, error)
            machine.on_write_refused(code_for_members(error.code), now_ms, is_fenced=error.code in FENCED)
        self.process_ready()

    async def _load(self) -> None:
        partition, host = self.partition, self._host
        try:
            kept = await host.persister.read(
                self.group_id, partition.topic_id, partition.topic_partition.partition, self.leader_epoch
            )
            start = await self._first_start() if kept.start is None else None
        except KafkaError as error:
            logger.debug("%s: share group %r cannot be loaded: %s: %s", *self._names, error.code.name, error)
            self.error = self.error or refusal(code_for_members(error.code), str(error))
            host.on_ended(self)
            self.listeners.notify()
            return
        if self.error is not None:
            return  # the leadership ended meanwhile
        log = partition.log
        if start is not None:
            kept = ShareState(kept.state_epoch, start, NO_LEADER_EPOCH)
        state, forgotten = reconciled(kept, log.lineage, Bounds(log.log_start_offset, log.log_end_offset))
        if forgotten:
            self._tell_forgotten(forgotten)
        self.machine = SharePartition(
            self.leader_epoch,
            state,
            log.lineage,
            settings=self.settings.delivery,
            is_kept=start is None and not forgotten,
        )
        self.process_ready()
        self.listeners.notify()

    async def _first_start(self) -> Offset:
        """Where a group begins that has read nothing of the partition. Raises KafkaError."""
        ago_ms, partition = self.settings.begins_ago_ms, self.partition
        if ago_ms is None:
            return partition.log.log_start_offset
        if ago_ms == 0:
            return partition.high_watermark
        timestamp_ms, look_ups = self._host.clock.wall_ms() - ago_ms, 0
        while True:
            look_ups += 1
            try:
                found = partition.at_timestamp(timestamp_ms, partition.high_watermark, may_wait=look_ups > LOOK_UPS_MAX)
            except NotCachedError as missing:
                await self._host.broker.bring_into_memory([missing])
            else:
                return partition.high_watermark if found is None else Offset(found.offset)

    def _tell_forgotten(self, forgotten: Sequence[ForgottenRecords]) -> None:
        count = sum(one.last - one.first + 1 for one in forgotten)
        ranges = ", ".join(map(_in_words, forgotten[:TOLD_MAX]))
        more = f" and {len(forgotten) - TOLD_MAX} more ranges" if len(forgotten) > TOLD_MAX else ""
        logger.warning(
            "%s: share group %r: A TRUNCATION TOOK BACK RECORDS that were delivered: what the group has done with %d "
            "offsets is forgotten. %s%s. Records that have these offsets now are delivered as new ones",
            *(*self._names, count, ranges, more),
        )
        self._host.on_forgotten(count)

    @property
    def _names(self) -> tuple[object, str]:
        return self.partition.topic_partition, self.group_id


def _in_words(one: ForgottenRecords) -> str:
    epoch = "an unknown leader epoch" if one.leader_epoch == NO_LEADER_EPOCH else f"leader epoch {one.leader_epoch}"
    here = one.leader_epoch_here
    now = "beyond the log end now" if here is None else f"now of leader epoch {here}"
    return f"{one.first} to {one.last} of {epoch} ({now})"

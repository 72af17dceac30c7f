"""A broker hears which losses await its replicas, whenever it registers."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest

from support.fixtures.logs import DIRECTORY, append, open_log
from support.fixtures.waiting import until
from tidelog.base.ids import BrokerEpoch, BrokerId, LeaderEpoch, Offset, PartitionIndex, TopicId, TopicPartition
from tidelog.base.losses import Loss, LossCause, ReplicaFate, ReplicaLoss
from tidelog.io.clock import SystemClock
from tidelog.io.executor import InlineExecutor
from tidelog.io.rng import SystemRng
from tidelog.log.lost_records import LostTail, keep_lost_tail, kept_files
from tidelog.metadata import BrokerImage, MetadataDelta, MetadataImage
from tidelog.server.membership.loss_reports import LossReports
from tidelog.server.replication.loss_notes import LossNotes
from tidelog.server.tasks import Tasks
from tidelog.sim.world.disk import SimulatedDisk
from tidelog.wire.messages.api_10002_tell_losses import TellLossesRequest, TellLossesResponse

US = BrokerId(1)
TOPIC = TopicId(UUID(int=7))


def entry(partition: int) -> Loss:
    where = "flights", TOPIC, PartitionIndex(partition), LeaderEpoch(4)
    return Loss(*where, LossCause.BY_OPERATOR, US, 0, (ReplicaLoss(US),))


def cut(start: int) -> ReplicaLoss:
    """One record."""
    return ReplicaLoss(US, ReplicaFate.CUT, Offset(start + 1), Offset(start), None, LeaderEpoch(1), LeaderEpoch(1))


class Reporting:
    """A broker with one partition, that is told of metadata, and tells a controller that agrees."""

    def __init__(self) -> None:
        self.notes = LossNotes()
        self.broker_epoch = BrokerEpoch(30)
        self.image = MetadataImage.empty()
        self.tasks = Tasks("broker")
        self.disk = SimulatedDisk()
        self.log = open_log(self.disk)
        self.told: list[TellLossesRequest] = []
        topic = SimpleNamespace(name="flights")
        role = SimpleNamespace(leader_epoch=LeaderEpoch(4), leader_replica=self)  # it leads, so all is cut off
        partition = self.partition = SimpleNamespace(
            log=self.log,
            log_lock=asyncio.Lock(),
            role=role,
            topic_id=TOPIC,
            topic_partition=TopicPartition("flights", 0),
            opened_end_offset=1,
        )
        self.newest: Any = SimpleNamespace(topic_by_id=lambda _: topic, losses={})
        broker: Any = SimpleNamespace(
            broker_id=US,
            replication=SimpleNamespace(loss_notes=self.notes),
            add_listener=lambda _: None,
            newest_image=self.newest,
            replica_of=lambda _: partition,
            partitions=[partition],
        )
        channel: Any = SimpleNamespace(request=self._request)
        self.reports = LossReports(
            broker,
            lambda: self.broker_epoch,
            channel,
            clock=SystemClock(),
            disk=self.disk,
            executor=InlineExecutor(),
            rng=SystemRng(),
            retention_check_interval_ms=300_000,
            tasks=self.tasks,
        )

    async def _request(self, request: TellLossesRequest, *_: object, **__: object) -> TellLossesResponse:
        self.told.append(request)
        return TellLossesResponse()

    def learn(self, registered_at: int, *losses: Loss) -> None:
        registered: Any = SimpleNamespace(broker_epoch=BrokerEpoch(registered_at))
        brokers: dict[BrokerId, BrokerImage] = {US: registered}
        changed = {loss.id: loss for loss in losses}
        delta: Any = SimpleNamespace(changed_losses=set(changed), changed_partitions={}, deleted_topics={})
        told: MetadataDelta = delta
        self.image = replace(self.image, brokers=brokers, losses={**self.image.losses, **changed})
        self.newest.losses = self.image.losses
        self.reports.on_image_changed(told, self.image)


def test_what_is_opened_while_a_broker_registers_again_awaits_it_all_the_same() -> None:
    """The metadata has its new epoch before the answer to its registration is there."""

    async def story() -> None:
        reporting = Reporting()
        reporting.learn(30, entry(0))
        reporting.learn(31, entry(1))
        await until(lambda: set(reporting.notes.awaited) == {(TOPIC, 0)})
        reporting.broker_epoch = BrokerEpoch(31)
        reporting.learn(31, entry(2))
        await until(lambda: set(reporting.notes.awaited) == {(TOPIC, 0), (TOPIC, 1), (TOPIC, 2)})
        await reporting.tasks.end()

    asyncio.run(story())


def test_what_was_cut_off_before_a_crash_is_told_with_what_was_cut_off_since() -> None:
    """The first step is noted on disk alone; the second one was made before anybody looked there."""

    async def story() -> None:
        reporting = Reporting()
        for value in ("m0", "m1", "m2"):
            append(reporting.log, value, epoch=1)
        loss = entry(0)
        first, second = (
            keep_lost_tail(reporting.disk, reporting.log, LostTail(loss.id, cut(start), 1 << 20)) for start in (2, 1)
        )
        assert first.cut_from == 2
        reporting.log.truncate_to(Offset(1))
        reporting.notes.note(loss.id, second)
        reporting.learn(30, loss)
        await until(lambda: bool(reporting.told))
        (told,) = reporting.told[0].losses
        assert (told.replica.cut_from, told.replica.end_offset) == (1, 3)
        await until(lambda: not [name for name in reporting.disk.list(DIRECTORY) if name.endswith(".loss")])
        await reporting.tasks.end()

    asyncio.run(story())


def test_what_did_not_move_with_its_log_is_told_as_kept_no_more() -> None:
    """A disk that refuses a file keeps it back. What did move would pass for all: it goes too."""

    async def story() -> None:
        reporting = Reporting()
        for value in ("m0", "m1", "m2"):
            append(reporting.log, value, epoch=1)
        loss = entry(0)
        rows = [keep_lost_tail(reporting.disk, reporting.log, LostTail(loss.id, cut(at), 1 << 20)) for at in (2, 1)]
        whole = rows[0].joined(rows[1])
        reporting.learn(30, replace(loss, replicas=(whole,)))
        partition: Any = reporting.partition
        reporting.reports.on_moved(partition)
        for _ in range(100):
            await asyncio.sleep(0)
        assert reporting.told == []
        (_, last) = kept_files(reporting.disk, DIRECTORY, loss.leader_epoch)
        reporting.disk.remove(last)
        reporting.reports.on_moved(partition)
        await until(lambda: bool(reporting.told))
        (told,) = reporting.told[0].losses
        assert (told.replica.cut_from, told.replica.kept_size_bytes) == (1, 0)
        assert kept_files(reporting.disk, DIRECTORY, loss.leader_epoch) == []
        await reporting.tasks.end()

    asyncio.run(story())


@pytest.mark.parametrize(("isr", "fate"), [((), ReplicaFate.EMPTY), ((US,), ReplicaFate.WHOLE)])
def test_a_replica_that_was_empty_when_its_process_began_is_so_in_an_entry_that_is_opened_later(
    isr: tuple[BrokerId, ...], fate: ReplicaFate
) -> None:
    """All replicas had lost their logs, and this one was started twice before somebody was elected. One in sync held
    all that there was.
    """

    async def story() -> None:
        reporting = Reporting()
        partition: Any = reporting.partition
        partition.opened_end_offset = 0
        reporting.image = replace(reporting.image, topics_by_id=topic_with(isr))
        reporting.learn(30)
        reporting.learn(30, replace(entry(0), leader=BrokerId(2)))
        await until(lambda: bool(reporting.told))
        assert [ReplicaFate(one.replica.fate) for one in reporting.told[0].losses] == [fate]
        await reporting.tasks.end()

    asyncio.run(story())


def topic_with(isr: tuple[BrokerId, ...]) -> Any:
    return {TOPIC: SimpleNamespace(partitions=[SimpleNamespace(isr=isr)])}

"""A broker hears which losses await its replicas, whenever it registers."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from types import SimpleNamespace
from typing import Any
from uuid import UUID

from tidelog.base.ids import BrokerEpoch, BrokerId, LeaderEpoch, PartitionIndex, TopicId
from tidelog.base.losses import Loss, LossCause, ReplicaLoss
from tidelog.io.rng import SystemRng
from tidelog.metadata import BrokerImage, MetadataDelta, MetadataImage
from tidelog.server.membership.loss_reports import LossReports
from tidelog.server.replication.loss_notes import LossNotes
from tidelog.server.tasks import Tasks

US = BrokerId(1)
TOPIC = TopicId(UUID(int=7))


def entry(partition: int) -> Loss:
    where = "flights", TOPIC, PartitionIndex(partition), LeaderEpoch(4)
    return Loss(*where, LossCause.BY_OPERATOR, US, 0, (ReplicaLoss(US),))


class Reporting:
    """A broker that is told of metadata, and has no controller to tell anything."""

    def __init__(self) -> None:
        self.notes = LossNotes()
        self.broker_epoch = BrokerEpoch(30)
        self.image = MetadataImage.empty()
        self.tasks = Tasks("broker")
        broker: Any = SimpleNamespace(
            broker_id=US, replication=SimpleNamespace(loss_notes=self.notes), add_listener=lambda _: None
        )
        unused: Any = None
        self.reports = LossReports(
            broker, lambda: self.broker_epoch, unused, disk=unused, executor=unused, rng=SystemRng(), tasks=self.tasks
        )

    def learn(self, registered_at: int, *losses: Loss) -> None:
        registered: Any = SimpleNamespace(broker_epoch=BrokerEpoch(registered_at))
        brokers: dict[BrokerId, BrokerImage] = {US: registered}
        changed = {loss.id: loss for loss in losses}
        delta: Any = SimpleNamespace(changed_losses=set(changed))
        told: MetadataDelta = delta
        self.image = replace(self.image, brokers=brokers, losses={**self.image.losses, **changed})
        self.reports.on_image_changed(told, self.image)


def test_what_is_opened_while_a_broker_registers_again_awaits_it_all_the_same() -> None:
    """The metadata has its new epoch before the answer to its registration is there."""

    async def story() -> None:
        reporting = Reporting()
        reporting.learn(30, entry(0))
        reporting.learn(31, entry(1))
        assert set(reporting.notes.awaited) == {(TOPIC, 0)}
        reporting.broker_epoch = BrokerEpoch(31)
        reporting.learn(31, entry(2))
        assert set(reporting.notes.awaited) == {(TOPIC, 0), (TOPIC, 1), (TOPIC, 2)}
        await reporting.tasks.end()

    asyncio.run(story())

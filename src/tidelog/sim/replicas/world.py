"""All of a run: the brokers and what becomes of their machines, the controller, the network, and the clients."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from tidelog.base.errors import DiskError
from tidelog.base.ids import BrokerId
from tidelog.metadata.image import MetadataImage
from tidelog.replica import ReplicaId
from tidelog.sim.replicas.broker import LOGS, Broker
from tidelog.sim.replicas.clients import Consumer, Place, Producer
from tidelog.sim.replicas.controller import CONTROLLER, Controller, machine_of
from tidelog.sim.replicas.fabric import Fabric, Station
from tidelog.sim.replicas.picture import LogPicture
from tidelog.sim.replicas.plan import Plan
from tidelog.sim.replicas.watch import Watch
from tidelog.sim.world.machine import Machine
from tidelog.sim.world.process import ProcessKilledError
from tidelog.sim.world.world import SimulatedWorld

CLIENTS = "clients"
RESTART_MS = 300
IN_STEP_MS = 1_000


class ReplicaCluster:
    """See the module.

    Attributes:
        brokers: the processes that run.
        images: the metadata after each batch of its history.
    """

    def __init__(self, world: SimulatedWorld, plan: Plan) -> None:
        self.plan = plan
        self.brokers: dict[BrokerId, Broker] = {}
        self.images: list[MetadataImage] = []
        self.producers: list[Producer] = []
        self.consumers: list[Consumer] = []
        self.watch = Watch(plan, self)
        self.machines: dict[BrokerId, Machine] = {}
        self.fabric = Fabric(world.loop, world.network, world.rng.stream("fabric").random_source, world.trace)
        self.network = world.network
        self.loop = world.loop
        self.rng = world.rng.stream("cluster")
        self._root = world.loop.root.context.copy()
        self._clients_machine = world.machine(CLIENTS)
        self._clients: Station
        controller_machine = world.machine(CONTROLLER)
        self.controller = Controller(
            controller_machine, self.fabric, plan, world.rng.stream("controller"), self._on_decided
        )
        for number in range(1, plan.nodes + 1):
            broker = BrokerId(number)
            machine = self.machines[broker] = world.machine(machine_of(broker))
            machine.disk.make_dirs(LOGS)
            self.start(broker)

    # What the watch, and brokers, want to know.

    @property
    def latest(self) -> MetadataImage:
        return self.controller.image

    def image_at(self, number: int) -> MetadataImage:
        """After so many batches."""
        return self.images[number - 1] if number else MetadataImage.empty()

    def picture(self, broker: BrokerId, name: ReplicaId) -> LogPicture:
        return self.watch.picture(broker, name)

    def on_step(self) -> None:
        self.watch.is_touched = True

    def on_logs_touched(self) -> None:
        self.watch.is_touched = self.watch.are_logs_touched = True

    def on_fact(self, kind: str) -> None:
        self.watch.on_fact(kind)

    def on_process_failed(self, broker: BrokerId, why: str) -> None:
        """It cannot go on: it ends between two steps, and is started again."""
        self.watch.on_fact("broker ended by its disk or its registration")
        process = self.brokers.get(broker)

        def end() -> None:
            if self.brokers.get(broker) is process and self.machines[broker].is_running:
                self.end(broker, self.machines[broker].kill)
                self.start_later(broker, RESTART_MS)

        self.loop.call_soon(end, context=self._root)

    def _on_decided(self, before: MetadataImage, after: MetadataImage) -> None:
        self.images.append(after)
        self.watch.on_decided(before, after)

    # Brokers.

    def start(self, broker: BrokerId) -> None:
        """Start its process, unless one runs."""
        machine = self.machines[broker]
        if machine.is_running:
            return

        async def main() -> None:
            try:
                self.brokers[broker] = Broker(broker, machine, self.fabric, self.plan, self)
            except DiskError as error:
                self.on_process_failed(broker, str(error))
            await asyncio.Event().wait()

        machine.start(main)
        self.watch.is_touched = True

    def start_later(self, broker: BrokerId, ms: float) -> None:
        """Start its process in so many milliseconds."""
        self.loop.call_later(ms / 1000, self.start, broker, context=self._root)

    def end(self, broker: BrokerId, how: Callable[[], None]) -> None:
        """End its process."""
        self.brokers.pop(broker, None)
        how()
        self.watch.is_touched = True

    def stop(self, broker: BrokerId) -> None:
        """Stop it cleanly, if it runs and is registered."""
        process, machine = self.brokers.get(broker), self.machines[broker]
        if process is None or not machine.is_running:
            return
        try:
            process.close()
        except (DiskError, ProcessKilledError):
            self.end(broker, machine.kill)
            return
        self.end(broker, machine.end)

    # Topics and clients.

    def start_clients(self) -> None:
        """All producers and consumers of the plan, over all topics."""
        plan, topics = self.plan, sorted(self.latest.topics_by_name)

        async def main() -> None:
            self._clients = self.fabric.station(CLIENTS, lambda sender, body, reply: None)
            place = self._place
            for number, acks in enumerate(plan.producers):
                topic, rng = topics[number % len(topics)], self.rng.stream(f"producer {number}")
                is_idempotent = acks == -1 and rng.random() < 0.5
                self.producers.append(Producer(f"p{number}", topic, place, rng, acks=acks, is_idempotent=is_idempotent))
            for number in range(plan.consumers):
                topic, rng = topics[number % len(topics)], self.rng.stream(f"consumer {number}")
                self.consumers.append(Consumer(f"c{number}", topic, place, rng))

        self._clients_machine.start(main)

    def start_last_producer(self, topic: str) -> Producer:
        """One that has to succeed."""
        rng = self.rng.stream(f"last producer of {topic}")

        def begin() -> Producer:
            return Producer(f"last-{topic}", topic, self._place, rng, acks=-1, is_idempotent=True)

        return self._clients.context.run(begin)

    @property
    def _place(self) -> Place:
        return Place(self._clients, self._clients_machine.clock, self.plan, self.watch)

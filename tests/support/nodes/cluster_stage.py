"""A cluster of production nodes on a virtual clock, for stories with given faults; every step is checked."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import replace

from tidelog.base.ids import BrokerId, PartitionIndex, TopicPartition
from tidelog.client.admin.descriptions import NewTopic
from tidelog.client.factory import AsyncFactory
from tidelog.metadata.image import PartitionImage
from tidelog.server.replication.partition import Partition
from tidelog.sim.faults.cluster_fault_injector import CLIENT
from tidelog.sim.faults.network_faults import ways
from tidelog.sim.node import LOGS
from tidelog.sim.runs.cluster import make_nodes
from tidelog.sim.runs.cluster_plan import ClusterPlan, machine_of
from tidelog.sim.runs.cluster_recorder import ClusterRecorder
from tidelog.sim.runs.cluster_views import hosted, quorum_of
from tidelog.sim.runs.workload import TOPIC, WorkloadPlan
from tidelog.sim.world.world import SimulatedWorld

POLL_SECONDS = 0.01
WAIT_SECONDS_MAX = 60.0
STORY_SECONDS_MAX = 600.0
PARTITION = TopicPartition(TOPIC, PartitionIndex(0))
CLIENTS = WorkloadPlan(partitions=1, producers=1, replication_factor=3, min_insync_replicas=2, syncs_each=False)
PLAN = ClusterPlan(clients=CLIENTS, session_ms=1_000, lag_ms_max=1_000, checkpoint_ms=60_000)
"""Checkpoints of the high watermark are rare: a node that starts again knows less than it did."""


class Stage:
    """Nodes by their numbers, from 1.

    Args:
        properties: of every node, beside those of the plan.
    """

    def __init__(
        self, world: SimulatedWorld, plan: ClusterPlan = PLAN, properties: dict[str, str] | None = None
    ) -> None:
        self.world = world
        self.plan = plan
        self.nodes = make_nodes(world, plan, properties)
        self.recorder = ClusterRecorder(plan, self.nodes, lambda: world.loop.stepped)
        self.factory = AsyncFactory([node.bootstrap for node in self.nodes.values()], world=world.client_world(CLIENT))

    # Nodes.

    async def start(self, *numbers: int) -> None:
        """Return when they serve; all that do not run, if none is named."""
        node_ids = [BrokerId(number) for number in numbers] or [
            node_id for node_id, node in self.nodes.items() if not node.machine.is_running
        ]
        starting = [self.nodes[node_id].start_soon() for node_id in node_ids]
        async with asyncio.timeout(WAIT_SECONDS_MAX):
            await asyncio.gather(*starting)
        for node_id in node_ids:
            self.recorder.on_process_changed(node_id)

    def kill(self, *numbers: int) -> None:
        """As `kill -9`."""
        self._end(numbers, without_power=False)

    async def stop(self, number: int) -> None:
        """Cleanly, as SIGTERM does."""
        node_id = BrokerId(number)
        self.recorder.before_end(node_id, without_power=False)
        assert await self.nodes[node_id].stop()
        self.recorder.after_end(node_id)

    def lose_power(self, *numbers: int) -> None:
        """All at once."""
        self._end(numbers, without_power=True)

    def _end(self, numbers: Iterable[int], *, without_power: bool) -> None:
        for node_id in map(BrokerId, numbers):
            self.recorder.before_end(node_id, without_power=without_power)
        for node_id in map(BrokerId, numbers):
            node = self.nodes[node_id]
            (node.lose_power if without_power else node.kill)()
            self.recorder.after_end(node_id)

    def lose_disk(self, number: int) -> None:
        """With its power; what it comes back with is formatted, and empty."""
        node_id = BrokerId(number)
        node = self.nodes[node_id]
        self.recorder.before_disk_lost(node_id)
        node.lose_power()
        node.format()
        node.machine.disk.sync_dir(LOGS)
        self.recorder.after_end(node_id)

    def part(self, numbers: Iterable[int], others: Iterable[int]) -> None:
        """Let nothing through between these nodes and those, until `heal`."""
        ones, rest = ([machine_of(BrokerId(number)) for number in group] for group in (numbers, others))
        for way in ways(ones, rest, both=True):
            self.world.network.block(*way)

    def heal(self) -> None:
        """Let everything through."""
        self.world.network.heal()

    # What is the case.

    @property
    def state(self) -> PartitionImage:
        """Of the partition, as it is committed."""
        found = self.recorder.latest.partition(TOPIC, PartitionIndex(0))
        assert found is not None
        return found

    @property
    def leader(self) -> int:
        """Of the partition; 0 for nobody."""
        return self.state.leader or 0

    @property
    def controller(self) -> int:
        """The node that leads the quorum; 0 for none, or several."""
        found = [
            node_id
            for node_id, node in self.nodes.items()
            if (quorum := quorum_of(node)) is not None and quorum.is_leader
        ]
        return found[0] if len(found) == 1 else 0

    def replica(self, number: int) -> Partition:
        """Of the partition, at a node that runs."""
        found = hosted(self.nodes[BrokerId(number)], PARTITION)
        assert found is not None
        return found

    def values(self, number: int) -> list[str]:
        """What the log of the partition has at a node, each with its leader epoch: `m1@0`."""
        known = self.recorder.watched[PARTITION]
        self.recorder.look(PARTITION)
        return [
            f"{value.decode() if isinstance(value, bytes) else value}@{leader_epoch}"
            for leader_epoch, value in known.stored[BrokerId(number)].records
        ]

    async def until(self, is_so: Callable[[], bool], *, seconds_max: float = WAIT_SECONDS_MAX) -> None:
        """Raises AssertionError if it does not come to pass in that time."""
        for _ in range(round(seconds_max / POLL_SECONDS)):
            if is_so():
                return
            await asyncio.sleep(POLL_SECONDS)
        raise AssertionError(f"{is_so} is still not so after {seconds_max} s")

    async def until_settled(self) -> None:
        """All replicas are in sync, and equal to the leader."""
        await self.until(lambda: self.leader != 0 and set(self.state.isr) == set(self.state.replicas))
        await self.until(lambda: self.recorder.replicas_differ() is None)

    # What clients do.

    async def make_topic(self, *replicas: int) -> None:
        """With these replicas, the first preferred."""
        async with self.factory.admin() as admin:
            await admin.create_topics([NewTopic(TOPIC, replica_assignments={0: list(replicas)})])
        self.recorder.watch(PARTITION)

    def factory_at(self, *numbers: int) -> AsyncFactory:
        """Of clients that begin at these nodes."""
        bootstrap = [self.nodes[BrokerId(number)].bootstrap for number in numbers]
        return AsyncFactory(bootstrap, world=self.world.client_world(CLIENT))

    async def produce(self, *values: str, at: tuple[int, ...] = ()) -> None:
        """With acks=all, from these nodes on; return when they are acknowledged."""
        async with (self.factory_at(*at) if at else self.factory).producer() as producer:
            sent = [(value, await producer.send(TOPIC, value.encode())) for value in values]
            for value, future in sent:
                self.acknowledge(value, (await future).offset)

    def acknowledge(self, value: str, offset: int | None) -> None:
        """A producer with acks=all was told where its record is."""
        assert offset is not None
        self.recorder.on_acknowledged(PARTITION, offset, value.encode())


def tell(
    story: Callable[[Stage], Awaitable[None]],
    *,
    seed: int = 1,
    plan: ClusterPlan = PLAN,
    properties: dict[str, str] | None = None,
    **changes: object,
) -> ClusterRecorder:
    """Play a story on a stage whose nodes all serve, and hold that nothing breaks.

    Args:
        changes: of the plan.
    """
    with SimulatedWorld(seed) as world:
        stage = Stage(world, replace(plan, **changes), properties)  # type: ignore[arg-type]

        async def play() -> None:
            await stage.start()
            await story(stage)

        def check() -> None:
            stage.recorder.after_step()
            assert not stage.recorder.broken, "; ".join(map(str, stage.recorder.broken))

        world.loop.after_step = check
        try:
            world.run(play(), limit_seconds=STORY_SECONDS_MAX)
        finally:
            world.loop.after_step = None
        return stage.recorder

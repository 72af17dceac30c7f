"""The story of one production node and its clients."""

from __future__ import annotations

import asyncio
from collections import Counter

from tidelog.client.factory import AsyncFactory
from tidelog.sim.faults.faults import Fault
from tidelog.sim.faults.faulty_node import FaultyNode
from tidelog.sim.faults.network_faults import begin_rate, end_rates
from tidelog.sim.faults.node_faults import NODE_FAULTS
from tidelog.sim.node import SimulatedNode
from tidelog.sim.runs.recorder import Recorder
from tidelog.sim.runs.story import Story
from tidelog.sim.runs.workload import Workload, WorkloadPlan
from tidelog.sim.world.world import SimulatedWorld

NODE = "node-1"
CLIENT = "client"
HEALED_SECONDS_MAX = 240.0
"""Of virtual time, in which everything that was begun must come to its end once nothing is in the way any more."""
PARTED = {
    "partition": ((CLIENT, NODE), (NODE, CLIENT)),
    "partition to node": ((CLIENT, NODE),),
    "partition from node": ((NODE, CLIENT),),
}


class OneNodeStory(Story):
    """A production node and its clients.

    Args:
        world: for nothing else.
        plan: what the clients do.
    """

    def __init__(self, world: SimulatedWorld, plan: WorkloadPlan) -> None:
        node = SimulatedNode(world.machine(NODE), plan.properties)
        self.recorder = Recorder(node, syncs_each=plan.syncs_each)
        self._node = FaultyNode(node, self.recorder, plan.topic_partitions)
        client_world = world.client_world(CLIENT)
        factory = AsyncFactory(node.bootstrap, world=client_world)
        rng = world.rng.stream("workload")
        self._workload = Workload(factory, [node.bootstrap], client_world, plan, rng=rng, recorder=self.recorder)
        super().__init__(world, 1, NODE_FAULTS, self.recorder)

    async def _start(self) -> None:
        await self._node.start()
        await self._workload.prepare()
        self._workload.start()

    def _begin(self, rate: Fault) -> None:
        begin_rate(self._world.network, rate)
        self._node.begin(rate)

    async def _suffer(self, step: Fault) -> None:
        if step.kind not in PARTED:
            await self._node.suffer(step)
            return
        self._node.steps[step.kind] += 1
        for source, target in PARTED[step.kind]:
            self._world.network.block(source, target)
        await asyncio.sleep(step.lasts_ms / 1000)
        self._world.network.heal()

    async def _finish(self) -> None:
        self._world.network.heal()
        end_rates(self._world.network)
        await self._node.heal()
        try:
            async with asyncio.timeout(HEALED_SECONDS_MAX):
                await self._workload.finish()
        except TimeoutError:
            self.recorder.check_books()
            waits_for = f"{HEALED_SECONDS_MAX:.0f} s after the healing there are {self._workload.waits_for()}"
            self.recorder.expect(False, "Progress", waits_for)
            return
        self.recorder.expect(True, "Progress", "")
        self.recorder.check_books()
        await self._node.stop()

    def _injected(self) -> Counter[str]:
        return self._node.steps + self._world.network.injected + self._node.machine.executor.injected

"""One production node to which everything is done that can go wrong, and which is started again each time; and the
story of it and its clients.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from random import Random

from tidelog.client.factory import AsyncFactory
from tidelog.sim.executor import ExecutorFaults
from tidelog.sim.faults import Fault
from tidelog.sim.node import SimulatedNode
from tidelog.sim.node_faults import NODE_FAULTS
from tidelog.sim.stored import LOG_SUFFIX
from tidelog.sim.story import Story
from tidelog.sim.witness import Witness
from tidelog.sim.workload import Plan, Workload
from tidelog.sim.world import SimulatedWorld

NODE = "node-1"
CLIENT = "client"
HEALED_SECONDS_MAX = 240.0
"""Of virtual time, in which everything that was begun must come to its end once nothing is in the way any more."""
START_SECONDS_MAX = 120.0
START_ATTEMPTS_MAX = 5
STEP_POLL_SECONDS = 0.01
STEP_POLLS_MAX = 500
"""Until a change of the disk comes at which the node is to be killed; then it is killed anyway."""
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

    def __init__(self, world: SimulatedWorld, plan: Plan) -> None:
        self._node = HurtNode(world, plan)
        self.witness = self._node.witness
        factory = AsyncFactory(self._node.bootstrap, world=world.client_world(CLIENT))
        self._workload = Workload(factory, plan, world.rng.stream("workload"), self.witness)
        super().__init__(world, 1, NODE_FAULTS, self.witness)

    async def _start(self) -> None:
        await self._node.start()
        await self._workload.prepare()
        self._workload.start()

    def _begin(self, rate: Fault) -> None:
        self._node.begin(rate)

    async def _suffer(self, step: Fault) -> None:
        await self._node.suffer(step)

    async def _finish(self) -> None:
        await self._node.heal()
        try:
            async with asyncio.timeout(HEALED_SECONDS_MAX):
                await self._workload.finish()
        except TimeoutError:
            self.witness.check_books()
            waits_for = f"{HEALED_SECONDS_MAX:.0f} s after the healing there are {self._workload.waits_for()}"
            self.witness.expect(False, "Progress", waits_for)
            return
        self.witness.expect(True, "Progress", "")
        self.witness.check_books()
        await self._node.stop()

    def _injected(self) -> Counter[str]:
        return self._node.injected()


class HurtNode:
    """What becomes of the node.

    Attributes:
        witness: sees what becomes of it.
    """

    def __init__(self, world: SimulatedWorld, plan: Plan) -> None:
        self._world = world
        self._node = SimulatedNode(world.machine(NODE), plan.properties)
        self._machine = self._node.machine
        self._partitions = plan.topic_partitions
        self._steps: Counter[str] = Counter()
        self.witness = Witness(self._node, syncs_each=plan.syncs_each)

    @property
    def bootstrap(self) -> str:
        """HOST:PORT for clients."""
        return self._node.bootstrap

    def injected(self) -> Counter[str]:
        """How often something went wrong, by kind."""
        return self._steps + self._world.network.injected + self._machine.executor.injected

    # To be well.

    async def start(self) -> None:
        """Return when it serves."""
        for _ in range(START_ATTEMPTS_MAX):
            if await self._try_to_start():
                self.witness.on_serving()
                return
            self._node.kill()
            await asyncio.sleep(1)
        self.witness.expect(False, "Progress", f"the node does not start, {START_ATTEMPTS_MAX} times in a row")

    async def _try_to_start(self) -> bool:
        starting = self._node.start_soon()
        await asyncio.wait([starting], timeout=START_SECONDS_MAX)
        if not starting.done():
            self.witness.expect(False, "Progress", f"the node did not start in {START_SECONDS_MAX:.0f} s")
            return False
        if starting.exception() is not None:
            self.witness.expect(False, "Progress", f"the node cannot start: {starting.exception()}")
            return False
        return True

    async def heal(self) -> None:
        """From now on nothing is in the way; whatever is out of use is started again."""
        network = self._world.network
        network.heal()
        network.faults.reset_rate = network.faults.straggle_rate = network.faults.cut_rate = 0.0
        self._machine.executor.faults = ExecutorFaults()
        self._machine.disk.is_cold = lambda: False
        self._machine.disk.free_write_bytes = None
        await self._mend()

    async def _mend(self) -> None:
        """Start it again if it came to its end, or if something is out of use until it does."""
        node = self._node.node
        if node is None or node.failure.done():
            await self._kill(0, without_power=False)
        elif any(not self.witness.is_rotten(one) for one in node.broker.offline_partitions):
            await self._stop(0)

    async def stop(self) -> None:
        """Stop cleanly, for good."""
        self.witness.before_end(without_power=False)
        self.witness.expect(await self._node.stop(), "Progress", "not every log could be closed")

    # To suffer.

    def begin(self, fault: Fault) -> None:
        """What goes wrong all along."""
        network, executor = self._world.network.faults, self._machine.executor.faults
        match fault.kind:
            case "network reset":
                network.reset_rate = fault.amount
            case "network straggle":
                network.straggle_rate = fault.amount
            case "network cut":
                network.cut_rate = fault.amount
            case "disk stall":
                executor.stall_rate = fault.amount
            case "disk slow":
                executor.wait_ms_max = fault.amount
            case "disk cold":
                cold = self._machine.rng.stream("cold")
                self._machine.disk.is_cold = lambda: cold.random() < fault.amount

    async def suffer(self, fault: Fault) -> None:
        """One thing goes wrong; return when it is over."""
        self._steps[fault.kind] += 1
        amount = round(fault.amount)
        match fault.kind:
            case "kill":
                await self._kill(fault.lasts_ms, without_power=False)
            case "power loss":
                await self._kill(fault.lasts_ms, without_power=True)
            case "kill in step" | "power loss in step":
                await self._kill_in_step(amount, fault.lasts_ms, without_power=fault.kind.startswith("power"))
            case "kill while starting":
                await self._kill_while_starting(amount, fault.lasts_ms)
            case "stop":
                await self._stop(fault.lasts_ms)
            case "disk full":
                self._machine.disk.free_write_bytes = amount
                await asyncio.sleep(fault.lasts_ms / 1000)
                self._machine.disk.free_write_bytes = None
                await self._mend()
            case "clock jump":
                self._machine.clock.wall_offset_ms += amount
            case "bit rot":
                await self._rot(amount, fault.lasts_ms)
            case _:
                for source, target in PARTED[fault.kind]:
                    self._world.network.block(source, target)
                await asyncio.sleep(fault.lasts_ms / 1000)
                self._world.network.heal()

    async def _kill(self, off_ms: int, *, without_power: bool) -> None:
        self.witness.before_end(without_power=without_power)
        if without_power:
            self._node.lose_power()
        else:
            self._node.kill()
        await asyncio.sleep(off_ms / 1000)
        await self.start()

    async def _stop(self, off_ms: int) -> None:
        self.witness.before_end(without_power=False)
        await self._node.stop()
        await asyncio.sleep(off_ms / 1000)
        await self.start()

    async def _kill_in_step(self, change: int, off_ms: int, *, without_power: bool) -> None:
        self._machine.kill_at_change = change
        await self._until_ended()
        await self._kill(off_ms, without_power=without_power)

    async def _until_ended(self) -> None:
        for _ in range(STEP_POLLS_MAX):
            if not self._machine.is_running:
                break
            await asyncio.sleep(STEP_POLL_SECONDS)

    async def _kill_while_starting(self, change: int, off_ms: int) -> None:
        self.witness.before_end(without_power=False)
        self._node.kill()
        starting = self._node.start_soon()
        self._machine.kill_at_change = change
        for _ in range(STEP_POLLS_MAX):
            if starting.done() or not self._machine.is_running:
                break
            await asyncio.sleep(STEP_POLL_SECONDS)
        self._node.kill()
        await asyncio.sleep(off_ms / 1000)
        await self.start()

    async def _rot(self, amount: int, off_ms: int) -> None:
        """Of one partition's records, while the node is off: what is in memory does not rot."""
        partition = self._partitions[amount % len(self._partitions)]
        disk = self._machine.disk
        self.witness.before_end(without_power=False)
        self._node.kill()
        inside = f"logs/{partition}/"
        for path in sorted(path for path in disk.files if path.startswith(inside) and path.endswith(LOG_SUFFIX)):
            if disk.files[path].data:
                disk.rot(path, Random(amount))  # noqa: S311  # which bit is drawn already
                self.witness.on_rotten(partition)
                break
        await asyncio.sleep(off_ms / 1000)
        await self.start()

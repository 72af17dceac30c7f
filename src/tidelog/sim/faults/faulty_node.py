"""One production node to whose machine everything is done that can go wrong, and which is started again each time."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from random import Random
from typing import Protocol

from tidelog.base.ids import TopicPartition
from tidelog.sim.faults.faults import Fault
from tidelog.sim.node import SimulatedNode
from tidelog.sim.runs.stored import LOG_SUFFIX
from tidelog.sim.world.executor import ExecutorFaults

START_SECONDS_MAX = 120.0
START_ATTEMPTS_MAX = 5
STEP_POLL_SECONDS = 0.01
STEP_POLLS_MAX = 500
"""Until a change of the disk comes at which the node is to be killed; then it is killed anyway."""


class NodeRecorder(Protocol):
    """Sees from outside what becomes of the node."""

    def on_serving(self) -> None: ...
    def before_end(self, *, without_power: bool) -> None: ...
    def after_end(self) -> None: ...
    def on_rotten(self, partition: TopicPartition) -> None: ...
    def is_rotten(self, partition: TopicPartition) -> bool: ...
    def expect(self, holds: bool, invariant: str, what: str) -> None: ...


class FaultyNode:
    """See the module.

    Args:
        node: not started yet.
        recorder: is told of everything before it is done.
        partitions: whose records may rot.

    Attributes:
        steps: what was done to it, by kind.
    """

    def __init__(self, node: SimulatedNode, recorder: NodeRecorder, partitions: Sequence[TopicPartition]) -> None:
        self.node = node
        self.machine = node.machine
        self.steps: Counter[str] = Counter()
        self._recorder = recorder
        self._partitions = partitions

    # To be well.

    async def start(self) -> None:
        """Return when it serves."""
        for _ in range(START_ATTEMPTS_MAX):
            if await self._try_to_start():
                self._recorder.on_serving()
                return
            self.node.kill()
            await asyncio.sleep(1)
        self._recorder.expect(False, "Progress", f"the node does not start, {START_ATTEMPTS_MAX} times in a row")

    async def _try_to_start(self) -> bool:
        starting = self.node.start_soon()
        await asyncio.wait([starting], timeout=START_SECONDS_MAX)
        if not starting.done():
            self._recorder.expect(False, "Progress", f"the node did not start in {START_SECONDS_MAX:.0f} s")
            return False
        if starting.exception() is not None:
            self._recorder.expect(False, "Progress", f"the node cannot start: {starting.exception()}")
            return False
        return True

    async def heal(self) -> None:
        """From now on nothing is in the way; whatever is out of use is started again."""
        self.machine.executor.faults = ExecutorFaults()
        self.machine.disk.is_cold = lambda: False
        self.machine.disk.free_write_bytes = None
        await self.mend()

    async def mend(self) -> None:
        """Start it again if it came to its end, or if something is out of use until it does."""
        node = self.node.node
        if node is None or node.failure.done():
            await self.kill(0, without_power=False)
        elif any(not self._recorder.is_rotten(one) for one in node.broker.offline_partitions):
            await self.stop_and_start(0)

    async def stop(self) -> None:
        """Stop cleanly, for good."""
        self._recorder.before_end(without_power=False)
        self._recorder.expect(await self.node.stop(), "Progress", "not every log could be closed")

    # To suffer.

    def begin(self, fault: Fault) -> None:
        """What goes wrong with its disk all along."""
        executor = self.machine.executor.faults
        match fault.kind:
            case "disk stall":
                executor.stall_rate = fault.amount
            case "disk slow":
                executor.wait_ms_max = fault.amount
            case "disk cold":
                cold = self.machine.rng.stream("cold")
                self.machine.disk.is_cold = lambda: cold.random() < fault.amount

    async def suffer(self, fault: Fault) -> None:
        """One thing goes wrong; return when it is over. Raises KeyError for what does not happen to one machine."""
        amount = round(fault.amount)
        self.steps[fault.kind] += 1
        match fault.kind:
            case "kill":
                await self.kill(fault.lasts_ms, without_power=False)
            case "power loss":
                await self.kill(fault.lasts_ms, without_power=True)
            case "kill in step" | "power loss in step":
                await self._kill_in_step(amount, fault.lasts_ms, without_power=fault.kind.startswith("power"))
            case "kill while starting":
                await self._kill_while_starting(amount, fault.lasts_ms)
            case "stop":
                await self.stop_and_start(fault.lasts_ms)
            case "disk full":
                await self._fill(amount, fault.lasts_ms)
            case "clock jump":
                self.machine.clock.wall_offset_ms += amount
            case "bit rot":
                await self._rot(amount, fault.lasts_ms)
            case _:
                raise KeyError(fault.kind)

    async def kill(self, off_ms: int, *, without_power: bool) -> None:
        """End it in any case; start it again."""
        self.end(without_power=without_power)
        await asyncio.sleep(off_ms / 1000)
        await self.start()

    def end(self, *, without_power: bool) -> None:
        """Its process is gone, and with it the machine if that loses power."""
        self._recorder.before_end(without_power=without_power)
        if without_power:
            self.node.lose_power()
        else:
            self.node.kill()
        self._recorder.after_end()

    async def stop_and_start(self, off_ms: int) -> None:
        """Stop cleanly, and start again."""
        self._recorder.before_end(without_power=False)
        await self.node.stop()
        await asyncio.sleep(off_ms / 1000)
        await self.start()

    async def _kill_in_step(self, change: int, off_ms: int, *, without_power: bool) -> None:
        self.machine.kill_at_change = change
        for _ in range(STEP_POLLS_MAX):
            if not self.machine.is_running:
                break
            await asyncio.sleep(STEP_POLL_SECONDS)
        await self.kill(off_ms, without_power=without_power)

    async def _kill_while_starting(self, change: int, off_ms: int) -> None:
        self.end(without_power=False)
        starting = self.node.start_soon()
        self.machine.kill_at_change = change
        for _ in range(STEP_POLLS_MAX):
            if starting.done() or not self.machine.is_running:
                break
            await asyncio.sleep(STEP_POLL_SECONDS)
        self.end(without_power=False)
        await asyncio.sleep(off_ms / 1000)
        await self.start()

    async def _fill(self, free_bytes: int, lasts_ms: int) -> None:
        self.machine.disk.free_write_bytes = free_bytes
        await asyncio.sleep(lasts_ms / 1000)
        self.machine.disk.free_write_bytes = None
        await self.mend()

    async def _rot(self, amount: int, off_ms: int) -> None:
        """Of one partition's records, while the node is off: what is in memory does not rot."""
        partition = self._partitions[amount % len(self._partitions)]
        self.end(without_power=False)
        if flip_bit(self.node, partition, amount):
            self._recorder.on_rotten(partition)
        await asyncio.sleep(off_ms / 1000)
        await self.start()


def flip_bit(node: SimulatedNode, partition: TopicPartition, amount: int) -> bool:
    """Of the first log file of a partition that has any bytes. Returns whether there is one."""
    disk, inside = node.machine.disk, f"logs/{partition}/"
    for path in sorted(path for path in disk.files if path.startswith(inside) and path.endswith(LOG_SUFFIX)):
        if disk.files[path].data:
            disk.rot(path, Random(amount))  # noqa: S311  # which bit is drawn already
            return True
    return False

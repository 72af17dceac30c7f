"""One machine: its disk, clock and connections, and the process that runs on it, which can end at any step."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from tidelog.base.errors import InvariantBrokenError
from tidelog.base.invariant import invariant
from tidelog.base.ports import Buffer
from tidelog.sim.runs.trace import Trace
from tidelog.sim.world.clock import SimulatedClock
from tidelog.sim.world.disk import SimulatedDisk
from tidelog.sim.world.executor import SimulatedExecutor
from tidelog.sim.world.loop import SimulatedLoop
from tidelog.sim.world.network import SimulatedNetwork
from tidelog.sim.world.process import Process, ProcessKilledError
from tidelog.sim.world.rng import SeededRng

T = TypeVar("T")


class Machine:
    """See the module.

    Args:
        name: by which others reach it.
        rng: all that is random here.

    Attributes:
        disk: what it keeps, through every crash and loss of power.
        network: its ports; no process of another machine is reached but through it.
        kill_at_change: the process is killed in place of so many changes of the disk from now; None for never.
    """

    def __init__(
        self, name: str, *, loop: SimulatedLoop, network: SimulatedNetwork, trace: Trace, rng: SeededRng
    ) -> None:
        self.name = name
        self.rng = rng
        self.clock = SimulatedClock(loop)
        self.disk = SimulatedDisk()
        self.disk.on_change = self._on_change
        self.network = network.machine(name)
        self.executor = SimulatedExecutor(loop, rng.stream("executor").random_source)
        self.kill_at_change: int | None = None
        self._loop = loop
        self._trace = trace
        self._power = rng.stream("power").random_source
        self._process: Process | None = None
        self._starts = 0

    @property
    def is_running(self) -> bool:
        """Whether a process is there."""
        return self._process is not None

    @property
    def is_alive(self) -> bool:
        """Whether a process is there, and was not killed in the very step that is being taken."""
        return self._process is not None and self._process.is_alive

    def runs(self, process: Process | None) -> bool:
        """Whether it is the one that is there, and lives."""
        return process is not None and process is self._process and process.is_alive

    def start(self, main: Callable[[], Coroutine[Any, Any, T]]) -> asyncio.Task[T]:
        """Run a program, on a machine that has none; switch it on if need be.

        Returns:
            Its first task. It is never done if the process is killed.
        """
        invariant(self._process is None, "{} runs a process already", self.name)
        self.network.is_up = True
        self._starts += 1
        process = self._process = self._loop.new_process(f"{self.name} #{self._starts}")
        return process.context.run(lambda: self._loop.create_task(main()))

    def do(self, work: Callable[[], Coroutine[Any, Any, T]]) -> asyncio.Task[T]:
        """Have the process that runs do something else as well."""
        process = self._process
        if process is None:
            raise InvariantBrokenError(f"nothing runs on {self.name}")
        return process.context.run(lambda: self._loop.create_task(work()))

    def new_rng(self) -> SeededRng:
        """For a process that starts: no two draw alike."""
        return self.rng.stream(f"process {self._starts}")

    def end(self) -> None:
        """The program came to its end by itself: nothing of it is left."""
        self._end(is_silent=False)

    def kill(self) -> None:
        """As `kill -9` does, between two steps: the machine stays, and its disk keeps what was written."""
        self._end(is_silent=False)

    def lose_power(self) -> None:
        """The machine stops. The disk keeps what was synced, and an arbitrary part of the rest; nobody is told."""
        self._end(is_silent=True)
        self.network.is_up = False
        self.disk.lose_power(self._power)

    def _end(self, *, is_silent: bool) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        self._trace.add(self._loop.now_us, f"{process.name} ends")
        process.end()
        self.kill_at_change = None
        self.network.hang_up(is_silent=is_silent)
        with self._unplugged():
            process.bury()
        self.disk.crash()

    @contextmanager
    def _unplugged(self) -> Iterator[None]:
        self.disk.is_unplugged = True
        try:
            yield
        finally:
            self.disk.is_unplugged = False

    def _on_change(self, operation: str, path: str, data: Buffer) -> None:
        if self.kill_at_change is not None:
            if self.kill_at_change == 0:
                self._kill_in_step()
            self.kill_at_change -= 1
        self._trace.add(self._loop.now_us, f"disk {self.name} {operation} {path}", data)

    def _kill_in_step(self) -> None:
        """The disk refuses whatever the rest of this step still tries; the process is buried after it."""
        process = self._process
        if process is None:
            return
        process.end()
        self.disk.is_unplugged = True
        self._loop.call_soon(self.kill, context=self._loop.root.context.copy())
        raise ProcessKilledError(f"{process.name} is killed")

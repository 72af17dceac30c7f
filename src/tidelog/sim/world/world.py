"""A simulated world from one seed: the loop, the network, and the machines on it."""

from __future__ import annotations

import gc
from collections.abc import Coroutine
from types import TracebackType
from typing import Any, TypeVar

from tidelog.client.cluster import World
from tidelog.sim.runs.trace import Trace
from tidelog.sim.world.loop import LIMIT_SECONDS, SimulatedLoop
from tidelog.sim.world.machine import Machine
from tidelog.sim.world.network import SimulatedNetwork
from tidelog.sim.world.rng import SeededRng

T = TypeVar("T")

GC_THRESHOLD = 50_000
"""As a node's own process has it: see `server/main.py`."""


class SimulatedWorld:
    """Everything of one run. The same seed and the same code give the same run, to the byte.

        with SimulatedWorld(seed=7) as world:
            node = SimulatedNode(world.machine("node-1"))
            world.run(story(world, node))

    Args:
        seed: what everything random is drawn from.

    Attributes:
        trace: what happened so far.
    """

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.rng = SeededRng(seed)
        self.trace = Trace()
        self.loop = SimulatedLoop()
        self.network = SimulatedNetwork(self.loop, self.rng.stream("network").random_source, self.trace)
        self._machines: dict[str, Machine] = {}
        self._client_worlds = 0

    def __enter__(self) -> SimulatedWorld:
        self._gc_threshold = gc.get_threshold()
        gc.set_threshold(GC_THRESHOLD)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        gc.set_threshold(*self._gc_threshold)
        self.loop.close()

    @property
    def elapsed_seconds(self) -> float:
        """Of virtual time."""
        return self.loop.elapsed_seconds

    def machine(self, name: str) -> Machine:
        """The machine of this name, made when first asked for."""
        if name not in self._machines:
            self._machines[name] = Machine(
                name, loop=self.loop, network=self.network, trace=self.trace, rng=self.rng.stream(f"machine {name}")
            )
        return self._machines[name]

    def client_world(self, name: str) -> World:
        """What clients on the machine of this name reach the world through."""
        machine = self.machine(name)
        self._client_worlds += 1
        return World(machine.network, machine.clock, machine.rng.stream(f"clients {self._client_worlds}"))

    def run(self, main: Coroutine[Any, Any, T], *, limit_seconds: float = LIMIT_SECONDS) -> T:
        """Run until `main` is done; see `SimulatedLoop.run`."""
        return self.loop.run(main, limit_seconds=limit_seconds)

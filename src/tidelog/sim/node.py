"""The production node on a simulated machine: started, stopped, killed, and started again on what its disk kept."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from tidelog.base.invariant import invariant
from tidelog.server.config import NodeConfig
from tidelog.server.node import Node
from tidelog.sim.machine import Machine

CLIENT_PORT = 9092
CONTROLLER_PORT = 9093


class SimulatedNode:
    """See the module.

    Args:
        machine: on which nothing else runs.
        properties: Kafka's keys, beside those that say who and where it is.
        node_id: its number in the cluster.

    Attributes:
        node: the production code's own, while it runs.
    """

    def __init__(self, machine: Machine, properties: Mapping[str, str] | None = None, *, node_id: int = 1) -> None:
        self.machine = machine
        self.node: Node | None = None
        self._properties = {
            "node.id": str(node_id),
            "process.roles": "broker,controller",
            "listeners": f"PLAINTEXT://{machine.name}:{CLIENT_PORT},CONTROLLER://{machine.name}:{CONTROLLER_PORT}",
            "controller.listener.names": "CONTROLLER",
            "controller.quorum.voters": f"{node_id}@{machine.name}:{CONTROLLER_PORT}",
            "log.dirs": "logs",
            **(properties or {}),
        }
        machine.disk.make_dirs("logs")

    @property
    def bootstrap(self) -> str:
        """HOST:PORT for clients."""
        return f"{self.machine.name}:{CLIENT_PORT}"

    async def start(self) -> None:
        """Return when it serves.

        Raises:
            TidelogError: it cannot; the text says why.
        """
        await self.machine.start(self._start)

    def start_soon(self) -> asyncio.Task[None]:
        """Begin to start; it may be killed meanwhile."""
        return self.machine.start(self._start)

    async def _start(self) -> None:
        machine = self.machine
        self.node = Node(
            NodeConfig.from_properties(self._properties),
            disk=machine.disk,
            network=machine.network,
            clock=machine.clock,
            rng=machine.new_rng(),
            executor=machine.executor,
        )
        await self.node.start()

    async def stop(self) -> bool:
        """Stop cleanly, as SIGTERM does. Returns whether every log was closed."""
        node, self.node = self.node, None
        invariant(node is not None, "{} does not run", self.machine.name)
        assert node is not None
        is_clean = await self.machine.do(node.stop)
        self.machine.end()
        return is_clean

    def kill(self) -> None:
        """As `kill -9`: what was written is kept."""
        self.node = None
        self.machine.kill()

    def lose_power(self) -> None:
        """What was synced is kept, and an arbitrary part of the rest."""
        self.node = None
        self.machine.lose_power()

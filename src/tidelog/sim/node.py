"""The production node on a simulated machine: started, stopped, killed, and started again on what its disk kept."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import replace

from tidelog.base.ids import BrokerId, ClusterId, uuid_text
from tidelog.base.invariant import invariant
from tidelog.log.directory import LogDirectory
from tidelog.log.files.checkpoint import MetaProperties
from tidelog.server.node import Node
from tidelog.server.settings.config import NodeConfig
from tidelog.sim.world.machine import Machine

CLIENT_PORT = 9092
CONTROLLER_PORT = 9093
INTERNAL_PORT = 9094
LOGS = "logs"


class SimulatedNode:
    """See the module.

    Args:
        machine: on which nothing else runs.
        properties: Kafka's keys, beside those that say who and where it is.
        node_id: its number in the cluster.
        cluster_id: of the cluster that its directory is formatted for; None: the node formats it for one of its own.

    Attributes:
        node: the production code's own, while it runs.
        on_made: told of each incarnation of that before it starts.
    """

    def __init__(
        self,
        machine: Machine,
        properties: Mapping[str, str] | None = None,
        *,
        node_id: int = 1,
        cluster_id: ClusterId | None = None,
    ) -> None:
        self.machine = machine
        self.node: Node | None = None
        self.on_made: Callable[[Node], None] = _nobody_asked
        self._properties = {
            "node.id": str(node_id),
            "process.roles": "broker,controller",
            "listeners": f"PLAINTEXT://{machine.name}:{CLIENT_PORT},CONTROLLER://{machine.name}:{CONTROLLER_PORT}",
            "controller.listener.names": "CONTROLLER",
            "controller.quorum.voters": f"{node_id}@{machine.name}:{CONTROLLER_PORT}",
            "log.dirs": LOGS,
            **(properties or {}),
        }
        self._node_id = BrokerId(node_id)
        self._cluster_id = cluster_id
        self._formats = 0
        self.format()

    @property
    def bootstrap(self) -> str:
        """HOST:PORT for clients."""
        return f"{self.machine.name}:{CLIENT_PORT}"

    def format(self, *, is_replacement: bool = False) -> None:
        """Make its directory, empty, as `tidelog storage format` does; with `--lost` as a replacement."""
        disk = self.machine.disk
        disk.remove_tree(LOGS)
        disk.make_dirs(LOGS)
        if self._cluster_id is not None:
            self._formats += 1
            directory_id = self.machine.rng.stream(f"directory {self._formats}").uuid()
            directory = LogDirectory.open(disk, LOGS)
            properties = MetaProperties(self._cluster_id, self._node_id, uuid_text(directory_id))
            directory.format(replace(properties, has_quorum_state=is_replacement))
            directory.close()

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
        self.on_made(self.node)
        await self.node.start()

    async def stop(self) -> bool:
        """Stop cleanly, as SIGTERM does. Returns whether every log was closed."""
        node = self.node
        invariant(node is not None, "{} does not run", self.machine.name)
        assert node is not None
        is_clean = await self.machine.do(node.stop)
        self.node = None
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


def _nobody_asked(*_: object) -> None:
    pass

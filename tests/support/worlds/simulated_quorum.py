"""Controllers of one metadata quorum, production code all, on machines of a simulated world."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any, TypeVar
from uuid import UUID

from tidelog.base.errors import Code, KafkaError, refusal
from tidelog.base.ids import BrokerId, ClusterId, LeaderEpoch, Offset, uuid_text
from tidelog.controller import ConfigChange, ConfigOperation, ConfigsToAlter
from tidelog.log.directory import LogDirectory
from tidelog.log.files.checkpoint import MetaProperties
from tidelog.metadata import ResourceKey, ResourceType
from tidelog.net.address import Address
from tidelog.net.connection import ConnectionSettings, open_connection
from tidelog.quorum.values import ReplicaKey, SnapshotId, Voter, VoterSet
from tidelog.server.node import Node
from tidelog.server.storage.metadata_snapshots import MetadataSnapshots, Snapshot
from tidelog.sim.node import SimulatedNode
from tidelog.sim.world.machine import Machine
from tidelog.sim.world.world import SimulatedWorld

R = TypeVar("R")

CLUSTER = ClusterId("jtxwXpv4Sgyz09Nvdi2SYg")
PORT = 9093
EVERYBODY = ResourceKey(ResourceType.BROKER, "")
SETTING = "message.max.bytes"
WAIT_SECONDS_MAX = 60.0
POLL_SECONDS = 0.005
METADATA = "logs/__cluster_metadata-0"


def directory_id(node_id: int) -> UUID:
    """Of the directory that a node is formatted with."""
    return UUID(int=1_000 + node_id)


def format_directory(machine: Machine, node_id: int, cluster_id: ClusterId = CLUSTER) -> None:
    """As `tidelog storage format`."""
    directory = LogDirectory.open(machine.disk, "logs")
    properties = MetaProperties(cluster_id, BrokerId(node_id), uuid_text(directory_id(node_id)))
    directory.format(properties)
    directory.close()


def voter(node_id: int) -> Voter:
    """A node as the log names it."""
    return Voter(ReplicaKey(BrokerId(node_id), directory_id(node_id)), (("CONTROLLER", f"node-{node_id}", PORT),))


def format_first_voters(machine: Machine, *ids: int) -> None:
    """As `tidelog storage format --initial-controllers`: these vote when the log begins."""
    machine.disk.make_dirs(METADATA)
    first = Snapshot(SnapshotId(Offset(0), LeaderEpoch(0)), (), VoterSet(tuple(map(voter, ids)), version=1), 0)
    MetadataSnapshots(METADATA, disk=machine.disk).write(first)


class Quorum:
    """Some controllers; more can be added.

    Args:
        ids: of the voters that are configured.
        in_log: those voters stand in the log, where they can be changed.
        settings: Kafka's keys, for all of them.
    """

    def __init__(
        self, world: SimulatedWorld, ids: Sequence[int], settings: Mapping[str, str], *, in_log: bool = False
    ) -> None:
        self.world = world
        self.voters = "" if in_log else ",".join(f"{node_id}@node-{node_id}:{PORT}" for node_id in ids)
        self.bootstrap = ",".join(f"node-{node_id}:{PORT}" for node_id in ids) if in_log else ""
        self.settings = dict(settings)
        self.nodes: dict[int, SimulatedNode] = {}
        for node_id in ids:
            self.add(node_id)
            if in_log:
                format_first_voters(self.machine(node_id), *ids)

    def add(self, node_id: int, *, cluster_id: ClusterId = CLUSTER, roles: str = "controller", **more: str) -> None:
        """One more machine, formatted, that does not run yet."""
        machine = self.world.machine(f"node-{node_id}")
        is_broker = roles == "broker"
        listeners = f"PLAINTEXT://node-{node_id}:9092" if is_broker else f"CONTROLLER://node-{node_id}:{PORT}"
        properties = {
            "process.roles": roles,
            "listeners": listeners,
            "controller.quorum.voters": self.voters,
            "controller.quorum.bootstrap.servers": self.bootstrap,
            **self.settings,
            **{key.replace("_", "."): value for key, value in more.items()},
        }
        self.nodes[node_id] = SimulatedNode(machine, properties, node_id=node_id)
        format_directory(machine, node_id, cluster_id)

    def twin(self, node_id: int) -> SimulatedNode:
        """A second machine that takes itself for this node, formatted, that does not run yet."""
        machine = self.world.machine(f"twin-{node_id}")
        listeners = {"listeners": f"CONTROLLER://twin-{node_id}:{PORT}"}
        twin = SimulatedNode(machine, {**self.nodes[node_id]._properties, **listeners}, node_id=node_id)
        format_directory(machine, node_id)
        return twin

    def configure(self, node_id: int, **more: str) -> None:
        """Other settings, from the next start on."""
        self.nodes[node_id]._properties.update({key.replace("_", "."): value for key, value in more.items()})

    def machine(self, node_id: int) -> Machine:
        return self.nodes[node_id].machine

    def node(self, node_id: int) -> Node:
        node = self.nodes[node_id].node
        assert node is not None, f"node {node_id} does not run"
        return node

    @property
    def running(self) -> list[Node]:
        return [one.node for one in self.nodes.values() if one.node is not None]

    async def start(self, *ids: int) -> None:
        """Start those, or all; return when they serve."""
        await asyncio.gather(*(self.nodes[node_id].start() for node_id in ids or list(self.nodes)))

    async def until(self, condition: Callable[[], object], what: str) -> None:
        """Virtual time passes until it is so."""
        deadline = asyncio.get_running_loop().time() + WAIT_SECONDS_MAX
        while not condition():
            assert asyncio.get_running_loop().time() < deadline, f"still not so: {what}"
            await asyncio.sleep(POLL_SECONDS)

    def leaders(self) -> list[int]:
        """Whose controllers are active."""
        return [node.config.node_id for node in self.running if node.active_controller is not None]

    async def leader(self, *, other_than: int | None = None) -> int:
        """Return when somebody leads: who. One that cannot know that it leads no more may be `other_than`."""

        def found() -> list[int]:
            return [one for one in self.leaders() if one != other_than]

        await self.until(found, "somebody leads")
        return found()[0]

    async def set(self, value: int) -> int:
        """Have whoever leads change a setting of all brokers; returns the end of the metadata at its node then."""
        while True:
            node = self.node(await self.leader())
            try:
                await self.set_at(node, value)
            except KafkaError:
                await asyncio.sleep(POLL_SECONDS)
                continue
            return int(node.controller.journal.committed_end_offset)

    async def set_at(self, node: Node, value: int) -> None:
        """Have this one change it, in a step of its own process. Raises KafkaError: it leads no more, by now."""
        change = ConfigsToAlter(EVERYBODY, [ConfigChange(SETTING, ConfigOperation.SET, str(value))])

        async def decide() -> None:
            (result,) = await node.controller.request(lambda state: state.decide_alter_configs([change]))
            assert result.code == 0, result.message

        node_id = node.config.node_id
        deciding = self.machine(node_id).do(decide)
        while not deciding.done():
            if self.nodes[node_id].node is not node or not self.machine(node_id).is_running:
                raise refusal(Code.NOT_CONTROLLER, f"node {node_id} is gone")
            await asyncio.sleep(POLL_SECONDS / 10)
        deciding.result()

    async def ask(self, node_id: int, message: object, response: type[R]) -> R:
        """Ask a controller by its listener."""
        world = self.world.client_world("client")
        connection = await open_connection(world.network, Address(f"node-{node_id}", PORT), ConnectionSettings("test"))
        try:
            return await connection.request(message, response, timeout_ms=30_000)
        finally:
            connection.close()

    def values(self) -> dict[int, str | None]:
        """The setting, as each node that runs has it."""
        return {node.config.node_id: node.image.configs.get(EVERYBODY, {}).get(SETTING) for node in self.running}

    async def until_all_have(self, value: int) -> None:
        await self.until(lambda: set(self.values().values()) == {str(value)}, f"all have {value}: {self.values()}")

    def log_of(self, node_id: int) -> bytes:
        """The files of a node's metadata log, one after the other."""
        files = self.machine(node_id).disk.files
        paths = sorted(path for path in files if path.startswith(METADATA) and path.endswith(".log"))
        return b"".join(bytes(files[path].data) for path in paths)


def run_quorum(
    story: Callable[[Quorum], Coroutine[Any, Any, None]],
    seed: int = 1,
    settings: Mapping[str, str] | None = None,
    *,
    ids: Sequence[int] = (1, 2, 3),
    in_log: bool = False,
) -> None:
    """Play a story with three controllers that do not run yet."""
    with SimulatedWorld(seed) as world:
        world.run(story(Quorum(world, ids, settings or {}, in_log=in_log)), limit_seconds=600)

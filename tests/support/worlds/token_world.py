"""A cluster of production nodes on a virtual clock, and one client that asks any of them and keeps what it has seen."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Mapping
from typing import Any, TypeVar
from uuid import UUID
from weakref import finalize

from support.old_rules.token_rules import TokenRules
from support.worlds.replica_values import name_of
from tidelog.base.errors import Code, NetworkError
from tidelog.base.ids import BrokerId, ClusterId, LeaderEpoch, Offset, TopicId, uuid_text
from tidelog.client.consistency import ConsistencyContextStore
from tidelog.net.address import Address
from tidelog.net.connection import ConnectionSettings, open_connection
from tidelog.server.node import Node
from tidelog.server.quorum.metadata_log import MetadataLog
from tidelog.sim.checkers.metadata_reads import MetadataReads, TopicRead
from tidelog.sim.faults.network_faults import ways
from tidelog.sim.node import CLIENT_PORT, CONTROLLER_PORT, SimulatedNode
from tidelog.sim.world.world import SimulatedWorld
from tidelog.wire.api import ApiKey, api
from tidelog.wire.schema import layout_of

T = TypeVar("T")

CONTEXT = "the client"
CLIENT = "client"
HELD_SECONDS = 0.5
SETTLED_SECONDS_MAX = 120.0
POLL_SECONDS = 0.01
TIMEOUT_MS = 60_000
WAIT_MS = 5_000
SEEDS = range(4, 100)
"""The first one with which the first of three nodes is elected, and those that may be it some day."""
UNKNOWN = frozenset({Code.UNKNOWN_TOPIC_OR_PARTITION, Code.UNKNOWN_TOPIC_ID})


class TokenWorld:
    """See the module. The first node is the active controller: the seed is one that brings that about.

    Args:
        properties: of a node beside those of all stories, by the name of its machine.

    Attributes:
        events: what the client was told.
        broken: the invariants that do not hold of it.
    """

    def __init__(
        self,
        size: int,
        rules: TokenRules,
        *,
        snapshot_bytes: int | None = None,
        properties: Callable[[str], Mapping[str, str]] = lambda _: {},
    ) -> None:
        self.rules = rules
        self._properties = properties
        self.events: list[str] = []
        self.broken: list[str] = []
        self.reads = MetadataReads()
        self.known: set[str] = set()
        self.store = ConsistencyContextStore()
        self._cut_off: dict[BrokerId, Offset] = {}  # with the end of its log then
        self._lacked: dict[BrokerId, Offset] = {}  # who was cut off once, and from where on
        self._topic_ids: dict[UUID, TopicId] = {}
        for seed in SEEDS:
            self._begin(seed, size, snapshot_bytes)
            first = self.nodes[BrokerId(1)].node
            if first is not None and first.active_controller is not None:
                break
            self.close()

    def _begin(self, seed: int, size: int, snapshot_bytes: int | None) -> None:
        self._world = world = SimulatedWorld(seed)
        finalize(self, world.loop.close)
        self.client = world.client_world(CLIENT)
        cluster_id = ClusterId(uuid_text(world.rng.stream("cluster").uuid()))
        self.nodes = {
            node_id: self._new_node(node_id, size, cluster_id, snapshot_bytes)
            for node_id in map(BrokerId, range(1, size + 1))
        }
        self.run(self._start(self.nodes))

    def _new_node(
        self, node_id: BrokerId, size: int, cluster_id: ClusterId, snapshot_bytes: int | None
    ) -> SimulatedNode:
        voters = ",".join(f"{voter}@node-{voter}:{CONTROLLER_PORT}" for voter in range(1, size + 1))
        properties = {
            "controller.quorum.voters": voters,
            "broker.session.timeout.ms": "600000",
            "offsets.topic.num.partitions": "1",
            "offsets.topic.replication.factor": "1",
        }
        if snapshot_bytes is not None:
            properties["metadata.log.max.record.bytes.between.snapshots"] = str(snapshot_bytes)
        machine = self._world.machine(f"node-{node_id}")
        properties |= self._properties(machine.name)
        node = SimulatedNode(machine, properties, node_id=node_id, cluster_id=cluster_id)
        node.on_made = self.rules.weaken
        return node

    def close(self) -> None:
        self._world.loop.close()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Let virtual time pass until it is done."""
        return self._world.run(work, limit_seconds=10 * SETTLED_SECONDS_MAX)

    # Nodes.

    async def _start(self, node_ids: Iterable[BrokerId]) -> None:
        await asyncio.gather(*(self.nodes[node_id].start_soon() for node_id in node_ids))
        await self.settle()

    async def start(self, node_id: BrokerId) -> None:
        await self._start([node_id])

    def crash(self, node_id: BrokerId) -> None:
        self.nodes[node_id].kill()

    async def hold(self, node_id: BrokerId) -> None:
        """It applies no metadata for a while."""
        node = self.nodes[node_id].node
        assert node is not None
        await node.broker.image_lock.acquire()
        asyncio.get_running_loop().call_later(HELD_SECONDS, node.broker.image_lock.release)

    def cut_off(self, node_id: BrokerId) -> None:
        """Nothing gets through between it and the other nodes. The client reaches it."""
        self._cut_off[node_id] = _log(self.nodes[node_id]).log_end_offset
        others = [other.machine.name for other in self.nodes.values()]
        for way in ways([self.nodes[node_id].machine.name], others, both=True):
            self._world.network.block(*way)

    def reconnect(self) -> None:
        self._lacked |= self._cut_off
        self._cut_off.clear()
        self._world.network.heal()

    async def settle(self) -> None:
        """Until somebody leads, and all who are connected know all that is committed."""
        async with asyncio.timeout(SETTLED_SECONDS_MAX):
            while not self._is_settled():
                await asyncio.sleep(POLL_SECONDS)

    def _is_settled(self) -> bool:
        there = [node.node for node_id, node in self.nodes.items() if node_id not in self._cut_off]
        running = [node for node in there if node is not None]
        leading = [node for node in running if node.active_controller is not None]
        if len(leading) != 1 or len({node.image.last_offset for node in running}) != 1:
            return False
        end_offset = leading[0].controller.journal.committed_end_offset
        brokers = leading[0].image.brokers.values()
        active = {broker.broker_id for broker in brokers if broker.is_active}
        return leading[0].image.last_offset == end_offset - 1 and {node.config.node_id for node in running} <= active

    # The client.

    async def ask(self, node_id: BrokerId, request: Any, version: int | None) -> Any:
        """The answer; None where the node hung up. Tells what happened as far as it is no answer."""
        key = ApiKey(layout_of(type(request)).api_key)
        loop = asyncio.get_running_loop()
        settings = ConnectionSettings("client", consistency=self.store if self.rules.sends_tokens else None)
        began = loop.time()
        connection = await open_connection(
            self.client.network, Address(self.nodes[node_id].machine.name, CLIENT_PORT), settings
        )
        response: type[Any] = api(key).response
        try:
            return await connection.request(request, response, timeout_ms=TIMEOUT_MS, version=version)
        except NetworkError:
            self.events.append(f"{name_of(node_id)} hangs up on {api(key).name}{self.waited(began)}")
            return None
        finally:
            connection.close()

    def waited(self, began: float) -> str:
        """How long something took that began then, if it took all the time that is allowed."""
        return ", after all its time" if self._world.loop.time() - began >= WAIT_MS / 1000 else ""

    @property
    def now(self) -> float:
        return self._world.loop.time()

    def on_read(self, begin: Any, topics: dict[str, TopicRead | None]) -> None:
        """The client was told of topics: None for one that is not there."""
        self.broken += [str(one) for one in self.reads.on_answered(begin, topics)]
        self.known |= {name for name, topic in topics.items() if topic is not None}
        self.known -= {name for name, topic in topics.items() if topic is None}

    def topic_id(self, drawn: UUID) -> TopicId:
        """In its place a number, by the order in which the client heard of them."""
        return self._topic_ids.setdefault(drawn, TopicId(UUID(int=len(self._topic_ids) + 1)))

    def topic_read(self, topic: Any) -> TopicRead:
        """A topic as an answer has it."""
        leader_epochs = tuple(LeaderEpoch(one.leader_epoch) for one in topic.partitions)
        return TopicRead(self.topic_id(topic.topic_id), leader_epochs)

    def has_loaded_a_snapshot(self, node_id: BrokerId) -> bool:
        """Whether what it lacked while it was cut off came so: its log has a gap there."""
        node = self.nodes[node_id]
        return node_id in self._lacked and _log(node).log_start_offset > self._lacked[node_id]

    def is_behind(self, node: Node) -> bool:
        token = self.store.read().token
        return token is not None and (node.image.last_offset is None or node.image.last_offset < token)


def _log(node: SimulatedNode) -> MetadataLog:
    assert node.node is not None
    return node.node.quorum.storage.log


def errors_of(answer: Any) -> list[Code]:
    """All that an answer says, of the whole and of its rows."""
    found = []
    for name in getattr(answer, "__slots__", ()):
        value = getattr(answer, name)
        if name == "error_code" and value:
            found.append(Code(value))
        for row in value if isinstance(value, list) else ():
            found += errors_of(row)
    return found

"""A client that sends whatever token it is told to, and keeps those that answers bear; a node for it to ask."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

from support.clients.wire_client import batch_of
from support.fixtures.waiting import until
from tidelog.client.cluster import World
from tidelog.controller import TopicToCreate
from tidelog.net.address import Address
from tidelog.net.connection import Connection, ConnectionSettings, open_connection
from tidelog.server.node import Node
from tidelog.sim.node import CLIENT_PORT, SimulatedNode
from tidelog.sim.world.world import SimulatedWorld
from tidelog.wire import NO_TOKEN_YET, ConsistencyState
from tidelog.wire.api import ApiKey, api
from tidelog.wire.messages.api_00_produce import PartitionProduceData, ProduceRequest, TopicProduceData
from tidelog.wire.messages.api_03_metadata import MetadataRequest, MetadataRequestTopic
from tidelog.wire.schema import layout_of

TIMEOUT_MS = 60_000
LATE = 1 << 40
"""A token beyond the end of any log."""


class TokenClient:
    """One connection.

    Attributes:
        sends: with each request; None for nothing.
        stamps: of the answers, in turn.
    """

    def __init__(self, sends: ConsistencyState | None) -> None:
        self.sends = sends
        self.stamps: list[ConsistencyState] = []
        self.connection: Connection | None = None

    def state(self) -> ConsistencyState | None:
        return self.sends

    def on_state(self, state: ConsistencyState) -> None:
        self.stamps.append(state)

    async def ask(self, request: object, *, version: int | None = None) -> Any:
        """The answer. Raises NetworkError: it hung up instead."""
        assert self.connection is not None
        response: type[Any] = api(ApiKey(layout_of(type(request)).api_key)).response
        return await self.connection.request(request, response, timeout_ms=TIMEOUT_MS, version=version)


@asynccontextmanager
async def token_client(
    world: World, host: str, port: int, sends: ConsistencyState | None = NO_TOKEN_YET
) -> AsyncIterator[TokenClient]:
    """A client that is connected, and hangs up in the end."""
    client = TokenClient(sends)
    settings = ConnectionSettings("tokens", consistency=client)
    client.connection = await open_connection(world.network, Address(host, port), settings)
    try:
        yield client
    finally:
        client.connection.close()


class OneNode:
    """A node that knows the topic `flights`, of one partition, and clients of it."""

    def __init__(self, world: SimulatedWorld, properties: Mapping[str, str] | None = None) -> None:
        self.world = world
        self.simulated = SimulatedNode(world.machine("node-1"), {"min.insync.replicas": "1", **(properties or {})})

    @property
    def node(self) -> Node:
        assert self.simulated.node is not None
        return self.simulated.node

    @property
    def last_offset(self) -> int:
        assert self.node.image.last_offset is not None
        return self.node.image.last_offset

    @property
    def waiting(self) -> int:
        return len(self.node.broker._applied)

    def client(
        self, token: int | None = None, *, cluster_id: str | None = None, port: int = CLIENT_PORT
    ) -> AbstractAsyncContextManager[TokenClient]:
        """One that sends this token with each request, of this cluster."""
        state = None if token is None else ConsistencyState(cluster_id or self.node.cluster_id, token)
        return token_client(self.world.client_world("client"), "node-1", port, state)

    async def make(self, *names: str) -> None:
        async def decide() -> None:
            await self.node.create_topics([TopicToCreate(name, 1, 1) for name in names])

        await self.simulated.machine.do(decide)

    async def until(self, is_so: Callable[[], object]) -> None:
        await until(is_so)


def play(story: Callable[[OneNode], Awaitable[None]], properties: Mapping[str, str] | None = None) -> None:
    with SimulatedWorld(1) as world:
        one = OneNode(world, properties)

        async def run() -> None:
            await one.simulated.start()
            await one.make("flights")
            await story(one)
            if one.simulated.node is not None:
                await one.simulated.stop()

        world.run(run(), limit_seconds=600)


def produce(topic: str, acks: int = -1) -> ProduceRequest:
    rows = [TopicProduceData(name=topic, partition_data=[PartitionProduceData(0, batch_of(b"1"))])]
    return ProduceRequest(acks=acks, timeout_ms=1_000, topic_data=rows)


def metadata(*topics: str) -> MetadataRequest:
    return MetadataRequest(topics=[MetadataRequestTopic(name=name) for name in topics], allow_auto_topic_creation=False)


def codes_of(answer: Any) -> list[int]:
    """The error of the answer as a whole, then those of its rows."""
    whole = [answer.error_code] if getattr(answer, "error_code", 0) else []
    rows = getattr(answer, "topics", None) or getattr(answer, "results", None) or []
    return whole + [row.error_code for row in rows]

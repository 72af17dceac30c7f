"""Three nodes that forward: the controller learns whose request it is, whichever node was asked (KIP-590)."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any
from uuid import UUID

import pytest

from support.clients.admin_requests import RESOURCE_TOPIC
from support.clients.token_client import token_client
from support.fixtures.memory_disk import MemoryDisk
from tidelog.base.errors import Code
from tidelog.base.ids import BrokerId, ClusterId, uuid_text
from tidelog.base.principals import ANONYMOUS, Principal, Requester
from tidelog.cli.ports import free_ports
from tidelog.client.cluster import real_world
from tidelog.io.clock import SystemClock
from tidelog.io.executor import InlineExecutor
from tidelog.io.network import RealNetwork
from tidelog.io.rng import SystemRng
from tidelog.log.directory import LogDirectory
from tidelog.log.files.checkpoint import MetaProperties
from tidelog.server.api.envelopes import Envelope
from tidelog.server.api.handlers import (
    api_19_create_topics,
    api_20_delete_topics,
    api_44_incremental_alter_configs,
    api_57_update_features,
)
from tidelog.server.api.request_context import RequestContext
from tidelog.server.node import Node
from tidelog.server.settings.config import NodeConfig
from tidelog.server.transport.listener_roles import CONTROLLER
from tidelog.wire import ApiKey, ConsistencyState, RequestHeader
from tidelog.wire.messages.api_03_metadata import MetadataRequest, MetadataRequestTopic
from tidelog.wire.messages.api_10_find_coordinator import FindCoordinatorRequest
from tidelog.wire.messages.api_19_create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from tidelog.wire.messages.api_20_delete_topics import DeleteTopicsRequest, DeleteTopicState
from tidelog.wire.messages.api_44_incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from tidelog.wire.messages.api_57_update_features import FeatureUpdateKey, UpdateFeaturesRequest

HOST = "127.0.0.1"
SECONDS_MAX = 60.0
CLUSTER = ClusterId("AAAAAAAAAAAAAAAAAAAAAQ")
ALICE = Principal("User", "alice")
SEEN_BY_ALICE = ConsistencyState(CLUSTER, 1)
HEADER = RequestHeader(ApiKey.CREATE_TOPICS, 7, 1, "tokens", None)
HANDLERS = [api_19_create_topics, api_20_delete_topics, api_44_incremental_alter_configs, api_57_update_features]
IDS = (1, 2, 3)


Seen = tuple[int, Any, RequestContext]
"""A node, a request that its controller was asked, and what stands beside that."""


def formatted(node_id: int) -> MemoryDisk:
    """A disk of a node of the cluster."""
    disk = MemoryDisk()
    disk.make_dirs("logs")
    directory = LogDirectory.open(disk, "logs")
    directory.format(MetaProperties(CLUSTER, BrokerId(node_id), uuid_text(UUID(int=node_id))))
    directory.close()
    disk.locked.clear()
    return disk


class ThreeNodes:
    """All in this process, on disks in memory and real sockets.

    Attributes:
        seen: what the handlers of controllers were asked.
    """

    def __init__(self, seen: list[Seen]) -> None:
        ports = free_ports(HOST, [None] * 2 * len(IDS))
        self.ports = dict(zip(IDS, ports[: len(IDS)], strict=True))
        self.controller_ports = dict(zip(IDS, ports[len(IDS) :], strict=True))
        voters = ",".join(f"{node_id}@{HOST}:{self.controller_ports[node_id]}" for node_id in IDS)
        self.nodes = {node_id: self._node(node_id, voters) for node_id in IDS}
        self.seen = seen

    def _node(self, node_id: int, voters: str) -> Node:
        config = {
            "node.id": str(node_id),
            "process.roles": "broker,controller",
            "listeners": f"PLAINTEXT://{HOST}:{self.ports[node_id]},CONTROLLER://{HOST}:{self.controller_ports[node_id]}",
            "controller.listener.names": "CONTROLLER",
            "controller.quorum.voters": voters,
            "log.dirs": "logs",
        }
        return Node(
            NodeConfig.from_properties(config),
            disk=formatted(node_id),
            network=RealNetwork(),
            clock=SystemClock(),
            rng=SystemRng(),
            executor=InlineExecutor(),
        )

    @property
    def controller(self) -> int:
        (found,) = [node_id for node_id, node in self.nodes.items() if node.active_controller is not None]
        return found

    async def ask(self, node_id: int, *requests: Any) -> list[Any]:
        """The answers of a node to alice, who has shown it a delegation token."""
        has_open = self.nodes[node_id].listeners._connections.open
        before = set(has_open)
        async with token_client(real_world(), HOST, self.ports[node_id], SEEN_BY_ALICE) as client:
            for connection in has_open.keys() - before:
                connection.requester = connection.requester._replace(principal=ALICE, by_token=True)
            self.seen.clear()
            return [await client.ask(request) for request in requests]


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> list[Seen]:
    """What the handlers of controllers are asked."""
    requests: list[Seen] = []

    def looked_at(handle: Callable[..., Any]) -> Callable[..., Any]:
        def look(node: Any, request: Any, context: RequestContext) -> Any:
            if context.listener_role == CONTROLLER:
                requests.append((node.config.node_id, request, context))
            return handle(node, request, context)

        return look

    for module in HANDLERS:
        monkeypatch.setattr(module, "handle", looked_at(module.handle))
    return requests


def play(seen: list[Seen], story: Callable[[ThreeNodes], Awaitable[None]]) -> None:
    async def bounded() -> None:
        three = ThreeNodes(seen)
        async with asyncio.timeout(SECONDS_MAX):
            await asyncio.gather(*(node.start() for node in three.nodes.values()))
            try:
                await story(three)
            finally:
                await asyncio.gather(*(node.stop() for node in three.nodes.values()))

    asyncio.run(bounded())


def create(name: str) -> CreateTopicsRequest:
    return CreateTopicsRequest(topics=[CreatableTopic(name, 1, 1)], timeout_ms=10_000)


def test_the_controller_learns_whose_request_it_is(seen: list[Seen]) -> None:
    async def story(three: ThreeNodes) -> None:
        controller = three.controller
        change = AlterableConfig("retention.ms", 0, "77")
        automatic = MetadataRequest(topics=[MetadataRequestTopic(name="automatic")], allow_auto_topic_creation=True)
        for node_id in set(IDS) - {controller}:
            altered = AlterConfigsResource(resource_type=RESOURCE_TOPIC, resource_name="a", configs=[change])
            created, altered_too, updated, deleted, described = await three.ask(
                node_id,
                create("a"),
                IncrementalAlterConfigsRequest(resources=[altered]),
                UpdateFeaturesRequest(feature_updates=[FeatureUpdateKey("group.version", max_version_level=1)]),
                DeleteTopicsRequest(topics=[DeleteTopicState(name="a")], timeout_ms=10_000),
                automatic,
            )
            assert [one.error_code for one in created.topics] == [Code.NONE]
            assert [one.error_code for one in altered_too.responses] == [Code.NONE]
            assert updated.error_code == Code.NONE
            assert [one.error_code for one in deleted.responses] == [Code.NONE]
            assert [one.error_code for one in described.topics] == [Code.NONE]
            asked = [type(request).__name__.removesuffix("Request") for _, request, _ in seen]
            at_once = ["CreateTopics", "IncrementalAlterConfigs", "UpdateFeatures", "DeleteTopics"]
            assert asked[:4] == at_once
            assert asked[4:] in ([], ["CreateTopics"])  # the other broker may have been asked to make it before
            for asked_id, _, context in seen:
                assert asked_id == controller
                assert context.requester == Requester(ALICE, HOST, by_token=True)
                assert context.connection.requester == Requester(ANONYMOUS, HOST)
                assert context.header.client_id == "tokens"
                assert context.header.consistency_state == SEEN_BY_ALICE
            await three.ask(node_id, DeleteTopicsRequest(topics=[DeleteTopicState(name="automatic")], timeout_ms=9_000))

    play(seen, story)


def test_what_a_broker_wants_for_itself_it_asks_as_such(seen: list[Seen]) -> None:
    async def story(three: ThreeNodes) -> None:
        node_id = next(one for one in IDS if one != three.controller)
        request = FindCoordinatorRequest(key_type=0, coordinator_keys=["a group"])
        await three.ask(node_id, request)
        (created,) = [context for _, one, context in seen if isinstance(one, CreateTopicsRequest)]
        assert created.forwarded_for is None
        assert created.header.client_id == f"broker-{node_id}"

    play(seen, story)


def test_a_node_that_is_not_the_active_controller_says_so_in_the_envelope(seen: list[Seen]) -> None:
    async def story(three: ThreeNodes) -> None:
        other = next(node_id for node_id in IDS if node_id != three.controller)
        sealed = Envelope(create("a"), CreateTopicsResponse, HEADER, Requester(ALICE, HOST), InlineExecutor()).sealed(7)
        async with token_client(real_world(), HOST, three.controller_ports[other]) as broker:
            answer = await broker.ask(sealed)
        assert (answer.error_code, answer.response_data) == (Code.NOT_CONTROLLER, None)

    play(seen, story)

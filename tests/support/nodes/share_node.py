"""A node in this process, whose share coordinators are asked without those who are members of share groups."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from uuid import UUID

from support.clients.share_state_client import ShareStateClient
from support.clients.wire_client import WireClient
from support.fixtures.waiting import until
from tidelog.base.errors import Code
from tidelog.base.ids import TopicId
from tidelog.controller import TopicToCreate
from tidelog.controller.values import FeatureToUpdate, UpgradeType
from tidelog.io.clock import SystemClock
from tidelog.io.disk import RealDisk
from tidelog.io.executor import ThreadExecutor
from tidelog.io.network import RealNetwork
from tidelog.io.rng import SystemRng
from tidelog.metadata.features import SHARE_VERSION
from tidelog.metadata.topic_names import SHARE_GROUP_STATE_TOPIC
from tidelog.server.node import Node
from tidelog.server.settings.config import NodeConfig

SECONDS_MAX = 60.0
PARTITIONS = 8

NO_SETTINGS: Mapping[str, str] = {}


def new_node(directory: Path, settings: Mapping[str, str]) -> Node:
    properties = {
        "node.id": "1",
        "process.roles": "broker,controller",
        "listeners": "PLAINTEXT://127.0.0.1:0,CONTROLLER://127.0.0.1:0",
        "controller.listener.names": "CONTROLLER",
        "controller.quorum.voters": "1@127.0.0.1:0",
        "log.dirs": str(directory / "logs"),
        "share.coordinator.state.topic.num.partitions": "2",
    }
    return Node(
        NodeConfig.from_properties(properties | dict(settings)),
        disk=RealDisk(),
        network=RealNetwork(),
        clock=SystemClock(),
        rng=SystemRng(),
        executor=ThreadExecutor(),
    )


async def started(
    directory: Path, settings: Mapping[str, str] = NO_SETTINGS, *, level: int = 1, coordinates: bool = True
) -> tuple[Node, TopicId]:
    """A node with a topic; share groups are on and coordinated, unless the level is 0."""
    node = new_node(directory, settings)
    await node.start()
    if node.image.features.get(SHARE_VERSION, 0) != level:
        (updated,) = await node.controller.request_whole(
            lambda state: state.decide_update_features(
                [FeatureToUpdate(SHARE_VERSION, level, UpgradeType.SAFE_DOWNGRADE)]
            )
        )
        assert updated.code == Code.NONE
        await node.caught_up()
    topic = node.image.topic("read")
    if topic is None:
        await node.create_topics([TopicToCreate("read", PARTITIONS, 1)])
        topic = node.image.topic("read")
    assert topic is not None
    if level and coordinates:
        if node.image.topic(SHARE_GROUP_STATE_TOPIC) is None:
            await node.share_states.create_topic()
        await settled(node)
    return node, topic.topic_id


async def settled(node: Node) -> None:
    """Return when all coordinators are loaded, or known not to be."""

    def is_loading() -> bool:
        here, topic = node.share_states.here, node.image.topic(SHARE_GROUP_STATE_TOPIC)
        waiting = [one for one in here if one.refusal and one.refusal.code == Code.COORDINATOR_LOAD_IN_PROGRESS]
        return topic is None or len(here) < len(topic.partitions) or bool(waiting)

    await until(lambda: not is_loading())


def run(scenario: Callable[[], Awaitable[None]]) -> None:
    async def bounded() -> None:
        await asyncio.wait_for(scenario(), SECONDS_MAX)

    asyncio.run(bounded())


async def ask(node: Node, topic_id: UUID, work: Callable[[ShareStateClient], None]) -> None:
    """On another thread, over a connection of its own."""

    def asking() -> None:
        with WireClient(node.listeners.first.port) as wire:
            work(ShareStateClient(wire, topic_id))

    await asyncio.to_thread(asking)

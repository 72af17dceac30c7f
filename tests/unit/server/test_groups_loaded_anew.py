"""A log refuses a coordinator's batch: the groups on it are loaded anew, and miss nothing of what happens just then."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from support.fixtures.memory_disk import MemoryDisk
from support.load.group_member import commit_request
from tidelog.base.errors import Code, refusal
from tidelog.controller import TopicToCreate, TopicToDelete
from tidelog.io.clock import SystemClock
from tidelog.io.executor import InlineExecutor
from tidelog.io.network import RealNetwork
from tidelog.io.rng import SystemRng
from tidelog.server.node import Node
from tidelog.server.settings.config import NodeConfig
from tidelog.wire.messages.api_09_offset_fetch import OffsetFetchRequestGroup, OffsetFetchResponseGroup

SECONDS_MAX = 60.0

PROPERTIES = {
    "node.id": "1",
    "process.roles": "broker,controller",
    "listeners": "PLAINTEXT://127.0.0.1:0,CONTROLLER://127.0.0.1:0",
    "controller.listener.names": "CONTROLLER",
    "controller.quorum.voters": "1@127.0.0.1:0",
    "log.dirs": "logs",
    "offsets.topic.num.partitions": "1",
}


async def ask(node: Node, tell: Any) -> Any:
    answer = node.groups.submit("g", tell)
    return await answer if isinstance(answer, asyncio.Future) else answer


async def committed(node: Node) -> dict[str, int]:
    def tell(coordinator: Any, request_id: Any, now_ms: int, wall_ms: int) -> None:
        request = OffsetFetchRequestGroup(group_id="g")
        coordinator.on_offset_fetch(request_id, request, now_ms=now_ms, wall_ms=wall_ms)

    answer = await ask(node, tell)
    assert isinstance(answer, OffsetFetchResponseGroup)
    return {topic.name: topic.partitions[0].committed_offset for topic in answer.topics}


async def commit(node: Node, topic: str, offset: int) -> None:
    def tell(coordinator: Any, request_id: Any, now_ms: int, wall_ms: int) -> None:
        request = commit_request("g", {(topic, 0): offset})
        coordinator.on_offset_commit(request_id, request, api_version=9, now_ms=now_ms, wall_ms=wall_ms)

    await ask(node, tell)


def test_offsets_of_a_topic_whose_deletion_could_not_be_written_are_not_its_successors(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(batch: object) -> None:
        raise refusal(Code.MESSAGE_TOO_LARGE, "not now")

    async def run() -> None:
        config = NodeConfig.from_properties(PROPERTIES)
        node = Node(
            config,
            disk=MemoryDisk(),
            network=RealNetwork(),
            clock=SystemClock(),
            rng=SystemRng(),
            executor=InlineExecutor(),
        )
        await node.start()
        await node.create_topics([TopicToCreate("kept", 1, 1), TopicToCreate("again", 1, 1)])
        await node.groups.create_topic()
        await commit(node, "kept", 4)
        await commit(node, "again", 5)
        assert await committed(node) == {"kept": 4, "again": 5}

        (before,) = node.groups.here
        monkeypatch.setattr(before, "_append", refuse)
        wanted = [TopicToDelete(name="again")]
        await node.controller.request(lambda state: state.decide_delete_topics(wanted))
        await node.caught_up()
        await node.create_topics([TopicToCreate("again", 1, 1)])
        (after,) = node.groups.here
        assert after is not before
        while after.refusal is not None:
            await asyncio.sleep(0)
        assert await committed(node) == {"kept": 4}
        await node.stop()

    asyncio.run(asyncio.wait_for(run(), SECONDS_MAX))

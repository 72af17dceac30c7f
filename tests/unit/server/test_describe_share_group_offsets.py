"""DescribeShareGroupOffsets: which partitions share coordinators are asked about."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest

from support.fixtures.coordinated_sharers import Sharers
from support.fixtures.loop_steps import Steps
from tidelog.base.errors import Code
from tidelog.base.ids import Offset
from tidelog.coordinator.groups.share.states import TopicStates
from tidelog.metadata.features import SHARE_VERSION, SHARE_VERSION_SERVED
from tidelog.server.api.handlers import api_90_describe_share_group_offsets as handler
from tidelog.server.groups.partition_ends import Place
from tidelog.server.groups.share_group_positions import SharePosition
from tidelog.server.transport.turns import TURN_SIZE
from tidelog.wire.messages.api_90_describe_share_group_offsets import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
    DescribeShareGroupOffsetsRequestTopic,
)


class Node:
    """A node that knows two partitions, and notes what it is asked about them."""

    def __init__(self, partition_count: int = 2) -> None:
        topics = {"t": partition_count}
        self.image = replace(Sharers(topics=topics).image, features={SHARE_VERSION: SHARE_VERSION_SERVED})
        self.asked: list[Place] = []

    @property
    def groups(self) -> Node:
        return self

    def submit(self, group_id: str, command: object) -> object:
        """All partitions have begun."""
        return {
            topic.topic_id: TopicStates(topic.name, frozenset(range(len(topic.partitions))))
            for topic in self.image.topics_by_name.values()
        }

    @property
    def share_positions(self) -> Node:
        return self

    async def of(self, group_id: str, places: Sequence[Place]) -> dict[Place, SharePosition]:
        self.asked += places
        return {place: SharePosition(Offset(7)) for place in places}


def test_nobody_is_asked_about_partitions_that_are_not_there() -> None:
    """A share coordinator that does not know a partition is asked five times, as its metadata may lag: for 15 s."""
    node = Node()
    topics = [
        DescribeShareGroupOffsetsRequestTopic("t", [-1, 0, 1, 2, 999]),
        DescribeShareGroupOffsetsRequestTopic("nowhere", [0]),
    ]
    request = DescribeShareGroupOffsetsRequest(groups=[DescribeShareGroupOffsetsRequestGroup("g", topics)])
    context = SimpleNamespace(is_long=False)
    (group,) = asyncio.run(handler.handle(cast(Any, node), request, cast(Any, context))).groups
    assert [index for _, index in node.asked] == [0, 1]
    told, nothing = group.topics
    assert {one.partition_index: (one.start_offset, one.error_code) for one in told.partitions} == {
        -1: (-1, Code.NONE),
        0: (7, Code.NONE),
        1: (7, Code.NONE),
        2: (-1, Code.NONE),
        999: (-1, Code.NONE),
    }
    assert [one.start_offset for one in nothing.partitions] == [-1]
    assert not context.is_long


def test_a_group_that_stands_in_many_partitions_is_told_of_in_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    node, context, steps = Node(3_000), SimpleNamespace(is_long=False), Steps()
    row = vars(handler)["_row"]

    def counted(*arguments: Any) -> Any:
        steps.count()
        return row(*arguments)

    monkeypatch.setattr(handler, "_row", counted)
    request = DescribeShareGroupOffsetsRequest(groups=[DescribeShareGroupOffsetsRequestGroup("g", None)])
    (group,) = asyncio.run(handler.handle(cast(Any, node), request, cast(Any, context))).groups
    assert [index for _, index in node.asked] == list(range(3_000))
    assert [one.start_offset for one in group.topics[0].partitions] == [7] * 3_000
    assert max(steps.counts) <= TURN_SIZE
    assert context.is_long

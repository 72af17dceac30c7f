"""DescribeShareGroupOffsets: which partitions share coordinators are asked about."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, cast

from support.fixtures.coordinated_sharers import Sharers
from tidelog.base.errors import Code
from tidelog.base.ids import Offset
from tidelog.metadata.features import SHARE_VERSION, SHARE_VERSION_SERVED
from tidelog.server.api.handlers import api_90_describe_share_group_offsets as handler
from tidelog.server.groups.share_group_positions import Place, SharePosition
from tidelog.wire.messages.api_90_describe_share_group_offsets import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
    DescribeShareGroupOffsetsRequestTopic,
)


class Node:
    """A node that knows two partitions, and notes what it is asked about them."""

    def __init__(self) -> None:
        self.image = replace(Sharers(topics={"t": 2}).image, features={SHARE_VERSION: SHARE_VERSION_SERVED})
        self.asked: list[Place] = []

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
    (group,) = asyncio.run(handler.handle(cast(Any, node), request, cast(Any, None))).groups
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

"""OffsetFetch 10 names topics by ids: those that the topics had when their offsets were looked up."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, cast

import pytest

from support.fixtures.coordinated_consumers import Consumers, topic_id
from tidelog.coordinator.groups import GroupSettings
from tidelog.metadata.image import MetadataImage
from tidelog.server.api.handlers.api_09_offset_fetch import handle
from tidelog.wire.messages.api_09_offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponseTopic,
)


@dataclass
class Groups:
    """Coordinators whose answer is yet to be committed."""

    answer: asyncio.Future[object]

    def submit(self, group_id: str, command: object) -> object:
        return self.answer


def image_with(incarnation: int) -> MetadataImage:
    world = Consumers(GroupSettings(), topics={"t": 1})
    world.incarnations["t"] = incarnation
    return world.image


@pytest.mark.parametrize("names", [True, False])
def test_a_topic_that_is_made_anew_before_the_answer_does_not_get_the_offsets_of_the_old_one(*, names: bool) -> None:
    async def story() -> OffsetFetchResponse:
        answer: asyncio.Future[object] = asyncio.get_running_loop().create_future()
        node = SimpleNamespace(image=image_with(0), groups=Groups(answer))
        asked = [OffsetFetchRequestTopic(topic_id=topic_id("t"), partition_indexes=[0])] if names else None
        request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id="g", topics=asked)])
        response = handle(cast(Any, node), request, cast(Any, SimpleNamespace(api_version=10)))
        node.image = image_with(1)
        found = OffsetFetchResponseTopic(
            name="t", partitions=[OffsetFetchResponsePartition(partition_index=0, committed_offset=7)]
        )
        answer.set_result(OffsetFetchResponseGroup(group_id="g", topics=[found]))
        return await cast("Awaitable[OffsetFetchResponse]", response)

    (group,) = asyncio.run(story()).groups
    assert [one.topic_id for one in group.topics] == [topic_id("t")]

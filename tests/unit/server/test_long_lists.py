"""Answers that list thousands of topics or partitions are made on another thread."""

from __future__ import annotations

import asyncio
import threading
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest

from tidelog.base.errors import Code
from tidelog.base.ids import PartitionIndex, TopicId, TopicPartition
from tidelog.controller import ElectedLeader
from tidelog.io.executor import ThreadExecutor
from tidelog.metadata import MetadataImage, TopicImage
from tidelog.server.api.handlers import api_43_elect_leaders, api_74_list_config_resources
from tidelog.wire.messages.api_43_elect_leaders import ElectLeadersRequest, ElectLeadersResponse
from tidelog.wire.messages.api_74_list_config_resources import ListConfigResourcesRequest, ListConfigResourcesResponse

BOTH = pytest.mark.parametrize(("count", "is_long"), [(10, False), (2_000, True)])


class Node:
    """Some parts of one, with threads."""

    def __init__(self, **parts: Any) -> None:
        self.executor = ThreadExecutor()
        self.consistency_state = None
        vars(self).update(parts)

    async def caught_up(self) -> None:
        pass


def threads_of(monkeypatch: pytest.MonkeyPatch, module: Any, name: str) -> list[int]:
    """The threads on which a function is called from now on."""
    threads: list[int] = []
    function = getattr(module, name)

    def noted(*arguments: Any) -> Any:
        threads.append(threading.get_ident())
        return function(*arguments)

    monkeypatch.setattr(module, name, noted)
    return threads


def answered(module: Any, node: Any, request: Any, context: Any) -> Any:
    async def answer() -> Any:
        made = module.handle(node, request, context)
        return await made if asyncio.iscoroutine(made) or asyncio.isfuture(made) else made

    try:
        return asyncio.run(answer())
    finally:
        node.executor.close()


@BOTH
def test_the_names_of_many_topics(count: int, is_long: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    topics = [TopicImage(f"t{index:04}", TopicId(UUID(int=index + 1)), ()) for index in range(count)]
    node = Node(image=MetadataImage(topics_by_name={topic.name: topic for topic in reversed(topics)}))
    threads = threads_of(monkeypatch, api_74_list_config_resources, "ConfigResource")
    context = SimpleNamespace(api_version=1, is_long=False, read=lambda node: node)
    found = answered(api_74_list_config_resources, node, ListConfigResourcesRequest(resource_types=[2]), context)
    assert isinstance(found, ListConfigResourcesResponse)
    assert [one.resource_name for one in found.config_resources] == [topic.name for topic in topics]
    assert (set(threads) != {threading.get_ident()}) is is_long
    assert context.is_long is is_long


@BOTH
def test_the_outcomes_of_many_elections(count: int, is_long: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    names = [TopicPartition("t", PartitionIndex(index)) for index in range(count)]
    elected = [ElectedLeader(name, Code.NONE, None) for name in reversed(names)]

    async def request_in_pieces(_: object) -> list[ElectedLeader]:
        return elected

    journal = SimpleNamespace(speculative=SimpleNamespace(metadata=None, settings=None))
    node = Node(controller=SimpleNamespace(request_in_pieces=request_in_pieces, journal=journal))
    monkeypatch.setattr(api_43_elect_leaders, "pieces_to_elect", lambda *_: [])
    threads = threads_of(monkeypatch, api_43_elect_leaders, "PartitionResult")
    context = SimpleNamespace(api_version=2, is_long=False)
    request = ElectLeadersRequest(election_type=0, topic_partitions=None, timeout_ms=1)
    found = answered(api_43_elect_leaders, node, request, context)
    assert isinstance(found, ElectLeadersResponse)
    assert [one.partition_id for one in found.replica_election_results[0].partition_result] == list(range(count))
    assert (set(threads) != {threading.get_ident()}) is is_long
    assert context.is_long is is_long

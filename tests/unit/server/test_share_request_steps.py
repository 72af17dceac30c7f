"""Requests of share groups that list much: what takes long is done on another thread, or in turns."""

from __future__ import annotations

import asyncio
import threading
import weakref
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest

from support.fixtures.coordinated_sharers import Sharers
from support.fixtures.loop_steps import Steps
from tidelog.base.errors import Code
from tidelog.coordinator.groups.share.describe_share_groups import viewed
from tidelog.io.executor import ThreadExecutor
from tidelog.metadata.image import MetadataImage
from tidelog.security.authorizer import AllowEverything
from tidelog.server.api import share_acknowledgements
from tidelog.server.api.handlers import api_77_share_group_describe, api_78_share_fetch
from tidelog.server.api.long_requests import in_pieces
from tidelog.server.api.share_acknowledgements import Acknowledgements
from tidelog.wire.api import ApiKey, api
from tidelog.wire.messages.api_77_share_group_describe import ShareGroupDescribeRequest, ShareGroupDescribeResponse
from tidelog.wire.messages.api_78_share_fetch import (
    ShareAcknowledgementBatch,
    ShareFetchPartition,
    ShareFetchRequest,
    ShareFetchTopic,
)
from tidelog.wire.messages.api_87_read_share_group_state_summary import (
    ReadShareGroupStateSummaryPartition,
    ReadShareGroupStateSummaryRequest,
    ReadShareGroupStateSummaryTopic,
)


@pytest.mark.parametrize(("topics", "is_long"), [(10, False), (1_000, True)])
def test_groups_with_many_topics_are_described_on_another_thread(
    topics: int, is_long: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = [f"topic-{number}" for number in range(topics)]
    world = Sharers(topics=dict.fromkeys(names, 1))
    world.share_beat("a", 0, topics=names)
    world.pass_ms(0)
    threads: list[int] = []
    row = api_77_share_group_describe._row

    def noted(*arguments: Any) -> Any:
        threads.append(threading.get_ident())
        return row(*arguments)

    monkeypatch.setattr(api_77_share_group_describe, "_row", noted)
    context: Any = SimpleNamespace(is_long=False)

    async def scenario() -> ShareGroupDescribeResponse:
        executor = ThreadExecutor()
        view = viewed(world.share_group, None)
        groups = SimpleNamespace(submit=lambda *_: view)
        node: Any = SimpleNamespace(
            authorizer=AllowEverything(),
            image=MetadataImage(features={"share.version": 1}),
            executor=executor,
            groups=groups,
        )
        try:
            answer = api_77_share_group_describe.handle(node, ShareGroupDescribeRequest(group_ids=["g"]), context)
            return answer if isinstance(answer, ShareGroupDescribeResponse) else await answer
        finally:
            executor.close()

    response = asyncio.run(scenario())
    assert len(response.groups[0].members[0].subscribed_topic_names) == topics
    assert (threads != [threading.get_ident()]) is is_long
    assert context.is_long is is_long


def test_many_acknowledgements_are_read_on_another_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    threads: list[int] = []
    check: Callable[..., None] = vars(share_acknowledgements)["check_acknowledged"]

    def noted(*arguments: Any, **options: Any) -> None:
        threads.append(threading.get_ident())
        check(*arguments, **options)

    monkeypatch.setattr(share_acknowledgements, "check_acknowledged", noted)
    rows = [ShareAcknowledgementBatch(first_offset=one, last_offset=one, acknowledge_types=[1]) for one in range(500)]
    topic = ShareFetchTopic(UUID(int=1), [ShareFetchPartition(0, rows), ShareFetchPartition(1, rows[:1])])
    taken: list[int] = []

    async def scenario() -> Acknowledgements:
        executor = ThreadExecutor()

        def acknowledge(group_id: str, member_id: str, key: object, batches: list[Any]) -> asyncio.Future[Code]:
            taken.append(len(batches))
            future: asyncio.Future[Code] = asyncio.get_running_loop().create_future()
            future.set_result(Code.NONE)
            return future

        fetching: Any = SimpleNamespace(acknowledge=acknowledge)
        try:
            acknowledgements = Acknowledgements(fetching, executor, "g", "m", is_renewing=False)
            await acknowledgements.add([topic])
            await acknowledgements.kept()
            return acknowledgements
        finally:
            executor.close()

    acknowledgements = asyncio.run(scenario())
    assert taken == [500, 1]
    assert threads[0] != threading.get_ident() == threads[1]
    assert set(acknowledgements.errors.values()) == {(Code.NONE, None)}


def test_a_fetch_that_is_refused_keeps_nothing_of_what_it_names() -> None:
    """To free it all is for another thread, once the handler is done."""

    class Topics(list[ShareFetchTopic]):
        pass

    rows = [ShareAcknowledgementBatch(first_offset=0, last_offset=0, acknowledge_types=[1])]

    async def scenario() -> None:
        topics = Topics(ShareFetchTopic(UUID(int=one), [ShareFetchPartition(0, rows)]) for one in range(10))
        request = ShareFetchRequest(
            group_id="g",
            member_id="m",
            share_session_epoch=0,
            max_wait_ms=0,
            min_bytes=0,
            max_records=1,
            batch_size=1,
            topics=topics,
        )
        node: Any = SimpleNamespace(image=MetadataImage(features={"share.version": 1}), share_fetching=None)
        answer = await api_78_share_fetch.handle(node, request, SimpleNamespace())  # type: ignore[arg-type]
        assert answer.error_code == Code.INVALID_REQUEST
        kept = weakref.ref(topics)
        request.topics = []
        del topics
        assert kept() is None

    asyncio.run(scenario())


def test_pieces_that_nobody_waits_for_are_given_up_some_at_a_time() -> None:
    steps = Steps()

    class Awaited(asyncio.Future[None]):
        def cancel(self, msg: object = None) -> bool:
            steps.count()
            return super().cancel(msg)

    known = api(ApiKey.READ_SHARE_GROUP_STATE_SUMMARY)
    rows = [ReadShareGroupStateSummaryPartition(partition=one, leader_epoch=0) for one in range(3_000)]
    request = ReadShareGroupStateSummaryRequest(
        group_id="g", topics=[ReadShareGroupStateSummaryTopic(UUID(int=1), rows)]
    )
    asked = 0

    async def handle(node: Any, piece: Any, context: Any) -> Any:
        nonlocal asked
        asked += 1
        await Awaited(loop=asyncio.get_running_loop())

    async def scenario() -> None:
        executor = ThreadExecutor()
        node: Any = SimpleNamespace(executor=executor, consistency_state=None)
        context: Any = SimpleNamespace(read=lambda node: node)
        answering = asyncio.ensure_future(in_pieces(known, handle)(node, request, context))
        while asked < 90:
            await asyncio.sleep(0)
        answering.cancel()
        await asyncio.gather(answering, return_exceptions=True)
        while sum(steps.counts) < asked:
            await asyncio.sleep(0)
        executor.close()

    asyncio.run(scenario())
    assert max(steps.counts) <= 16 < asked

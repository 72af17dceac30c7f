"""Fetch 4-18: committed records, for consumers; and all there are, for followers of partitions that this broker leads.

Behaviour: waits up to MaxWaitMs for MinBytes; that of a follower no longer once another request has come behind it on
its connection, which it holds up; that of many partitions no longer once others wait for memory; answers whole
batches, the first of them whole however large. Errors and divergence are answered at once, and so is a fetch of
nothing. From version 7 there are sessions (KIP-227). The leader epoch is checked (KIP-320), of what a session remembers
too; whoever sends LastFetchedEpoch learns where its log diverged. A follower (`replica_id`, from 15 on `replica_state`)
is read to up to the log end, and its fetch proves what it has if it is accepted. Consumers of version 11 and up are
also answered by a follower, once it has reconciled with its leader; OFFSET_OUT_OF_RANGE of a follower means that the
leader is to be asked, as in Kafka. The HighWatermark field (KIP-1166) is for the metadata quorum and means nothing
here. A consumer needs READ on each topic when it is read, as the rules are then.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from functools import partial
from typing import TYPE_CHECKING

from tidelog.base.errors import Code, KafkaError
from tidelog.server.api.division import Division, with_value
from tidelog.server.api.fetch_reading import ZSTD_FROM_VERSION, FetchReading
from tidelog.server.api.fetch_sessions import PARTITION_BYTES, FetchSession, begins_anew
from tidelog.server.api.leader_hints import endpoints_of
from tidelog.server.api.long_requests import forget_lists
from tidelog.server.api.request_context import RequestContext, code_of
from tidelog.server.api.rights import readable_topics
from tidelog.server.api.told_readers import ReaderName
from tidelog.wire.messages.api_01_fetch import FetchRequest, FetchResponse, NodeEndpoint

if TYPE_CHECKING:
    from tidelog.server.api.ports import DataApi
    from tidelog.server.settings.metrics import Reader

TOPIC_IDS_FROM_VERSION = 13
LEADERS_FROM_VERSION = 16
FOLLOWERS_FROM_VERSION = 11
"""Readers of older versions know nothing of replicas to read from, and expect the leader (KIP-392)."""

BY_PARTS = Division("topics", "responses", Division("partitions", "partitions"), weight_max=500)
FORGOTTEN_BY_PARTS = BY_PARTS._replace(listed="forgotten_topics_data")


def handle(node: DataApi, request: FetchRequest, context: RequestContext) -> FetchResponse | Awaitable[FetchResponse]:
    is_by_id = context.header.api_version >= TOPIC_IDS_FROM_VERSION
    if context.is_long:
        return _handle_long(node, request, context, is_by_id=is_by_id)
    try:
        session = node.fetch_sessions.begin(request, is_by_id=is_by_id, now_ms=node.clock.now_ms())
    except KafkaError as error:
        return FetchResponse(error_code=code_of(error, "Fetch"))
    return _read(node, request, context, session)


async def _handle_long(
    node: DataApi, request: FetchRequest, context: RequestContext, *, is_by_id: bool
) -> FetchResponse:
    try:
        session = await _long_session(node, request, is_by_id=is_by_id)
    except KafkaError as error:
        return FetchResponse(error_code=code_of(error, "Fetch"))
    if (
        context.kept is not None
    ):  # what the request says is in the session; those that stay are bounded among themselves
        held_bytes = 0 if session.session_id else len(session.partitions) * PARTITION_BYTES
        context.kept.hold(min(held_bytes, context.kept.size_bytes))
    response = _read(node, request, context, session)
    del request
    return await response if isinstance(response, Awaitable) else response


async def _long_session(node: DataApi, request: FetchRequest, *, is_by_id: bool) -> FetchSession:
    """What begins anew is taken in on another thread, where nobody else knows of it yet; what changes, by parts."""
    sessions, now_ms = node.fetch_sessions, node.clock.now_ms()
    if begins_anew(request):

        def taken_in() -> FetchSession:
            session = sessions.new(request, is_by_id=is_by_id, now_ms=now_ms)
            forget_lists(request)  # what it lists is the session's, or freed
            return session

        session = await node.executor.compute(taken_in)
        sessions.begin_anew(request, session, now_ms)
        return session
    first, *rest = await node.executor.compute(partial(_parts_of, request))
    session = sessions.begin(first, is_by_id=is_by_id, now_ms=now_ms)
    while rest:
        await asyncio.sleep(0)
        sessions.go_on(session, rest.pop(0), now_ms)
    return session


def _parts_of(request: FetchRequest) -> list[FetchRequest]:
    """What it adds comes before what it forgets. Nothing is listed in the request itself afterwards."""
    parts = BY_PARTS.pieces_of(with_value(request, "forgotten_topics_data", []))
    if request.forgotten_topics_data:
        parts += FORGOTTEN_BY_PARTS.pieces_of(with_value(request, "topics", []))
    forget_lists(request)
    return parts


def _read(
    node: DataApi, request: FetchRequest, context: RequestContext, session: FetchSession
) -> FetchResponse | Awaitable[FetchResponse]:
    reads_zstd = context.header.api_version >= ZSTD_FROM_VERSION
    reader: Reader = "follower" if session.is_follower else "consumer"
    reading = FetchReading(
        node.broker,
        session,
        request,
        node.config.fetch_size_bytes_max,
        reads_zstd=reads_zstd,
        reads_from_followers=context.header.api_version >= FOLLOWERS_FROM_VERSION,
        now_ms=node.clock.now_ms,
        fetched_bytes=None if node.metrics is None else node.metrics.requests.fetched.of(reader),
        readable=readable_topics(node, context),
    )
    has_ended = True
    try:
        reading.read_due()
        is_done = reading.has_enough or request.max_wait_ms <= 0
        if is_done and not reading.not_cached and not session.is_partway and not reading.is_long:
            return _answer(node, reading, context)
        has_ended = False
    finally:
        if has_ended:
            session.on_fetch_ended()
            _let_go(node)
    return _wait(node, reading, session, request.max_wait_ms, context)


def _answer(node: DataApi, reading: FetchReading, context: RequestContext) -> FetchResponse:
    return _with_leaders(reading.answer(), node, reading, context)


async def _answer_in_turns(node: DataApi, reading: FetchReading, context: RequestContext) -> FetchResponse:
    context.is_long = True
    return _with_leaders(await reading.answer_in_turns(), node, reading, context)


def _with_leaders(
    response: FetchResponse, node: DataApi, reading: FetchReading, context: RequestContext
) -> FetchResponse:
    for partition, diverging in reading.told:
        told = ReaderName(context.header.client_id or "", context.connection.peer.rpartition(":")[0])
        now_ms = node.clock.wall_ms()
        node.told_readers.note(partition.topic_partition, partition.topic_id, told, diverging, now_ms)
    reading.told.clear()
    if reading.leaders and context.api_version >= LEADERS_FROM_VERSION:
        name = context.connection.listener_name
        response.node_endpoints = endpoints_of(node.broker.image, reading.leaders, name, NodeEndpoint)
    return response


async def _wait(
    node: DataApi, reading: FetchReading, session: FetchSession, wait_ms_max: int, context: RequestContext
) -> FetchResponse:
    """Read what becomes due, until there is enough, the time is up, or it holds up what came behind it."""
    loop, connection = asyncio.get_running_loop(), context.connection
    changed = asyncio.Event()
    yields = session.is_follower  # a consumer with two long polls on one connection would ask without a pause
    is_late = wait_ms_max <= 0 or (yields and connection.has_more)

    def on_late() -> None:
        nonlocal is_late
        is_late = True
        changed.set()

    on_due = session.on_due = changed.set
    connection.on_more = on_late if yields else None
    if context.kept is not None:
        context.kept.give_way(on_late)
    timer = loop.call_later(max(wait_ms_max, 0) / 1000, on_late)
    try:
        while True:
            if session.is_partway:
                await asyncio.sleep(0)
            elif reading.not_cached:
                await node.broker.bring_into_memory(reading.not_cached)
            if reading.is_overtaken:
                return FetchResponse(error_code=Code.INVALID_FETCH_SESSION_EPOCH, session_id=session.session_id)
            if session.has_due:
                reading.read_due()
            if not reading.not_cached and not session.is_partway:
                if reading.has_enough or is_late:
                    if reading.is_long:
                        return await _answer_in_turns(node, reading, context)
                    return _answer(node, reading, context)
                changed.clear()
                await changed.wait()
    finally:
        timer.cancel()
        connection.on_more = None
        if session.on_due is on_due:
            session.on_fetch_ended()
        _let_go(node)


def _let_go(node: DataApi) -> None:
    """Have the sessions that ended part with what they follow, with turns for others in between."""
    if node.fetch_sessions.let_go():
        asyncio.get_running_loop().call_soon(_let_go, node)

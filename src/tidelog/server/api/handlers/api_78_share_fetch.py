"""ShareFetch 1-2: a member of a share group acquires records, and acknowledges others on the way (KIP-932).

Behaviour: served from share.version 1 on; below it UNSUPPORTED_VERSION. Waits up to MaxWaitMs for MinBytes. Records
that are found are the member's, so they are answered at once. What is acknowledged comes first, and is answered once
the share coordinator keeps it. Batches are answered whole; AcquiredRecords says which of their records the member has.
In version 2 MaxRecords may be strict (KIP-1206), and a request that renews (KIP-1222) fetches nothing. A session ends
with its connection.
"""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from typing import TYPE_CHECKING

from tidelog.base.errors import Code, KafkaError, refusal
from tidelog.server.api.leader_hints import endpoints_of
from tidelog.server.api.request_context import RequestContext, code_of
from tidelog.server.api.rights import readable_topics
from tidelog.server.api.share_acknowledgements import ROWS_MAX, Acknowledgements, check_served, leader_hint, portions
from tidelog.server.api.share_reading import ReadForMember, ShareReading
from tidelog.server.share_fetching.share_sessions import FINAL_EPOCH, INITIAL_EPOCH, PartitionId, ShareSession
from tidelog.server.transport.turns import in_turns
from tidelog.wire.messages.api_78_share_fetch import (
    ShareAcquiredRecords,
    ShareFetchLeader,
    ShareFetchNodeEndpoint,
    ShareFetchPartitionData,
    ShareFetchRequest,
    ShareFetchResponse,
    ShareFetchTopicResponse,
)

if TYPE_CHECKING:
    from tidelog.server.api.ports import ShareApi


async def handle(node: ShareApi, request: ShareFetchRequest, context: RequestContext) -> ShareFetchResponse:
    fetching = node.share_fetching
    try:
        group_id, member_id = check_served(node.image, request.group_id, request.member_id)
        session = await _session(node, request, context, group_id, member_id)
    except KafkaError as error:
        return ShareFetchResponse(error_code=code_of(error, "ShareFetch"), error_message=str(error))
    readable = readable_topics(node, context)
    acknowledgements = Acknowledgements(
        fetching, node.executor, group_id, member_id, is_renewing=request.is_renew_ack, readable=readable
    )
    if request.share_session_epoch != INITIAL_EPOCH:
        await acknowledgements.add(request.topics)
    found: dict[PartitionId, ReadForMember] = {}
    if request.share_session_epoch != FINAL_EPOCH and not request.is_renew_ack:
        reading = ShareReading(fetching, session, request, node.config.fetch_size_bytes_max, readable)
        if not await _read(node, reading, session, request.max_wait_ms, context):
            message = "a later request of the session came"
            return ShareFetchResponse(error_code=Code.INVALID_SHARE_SESSION_EPOCH, error_message=message)
        found = reading.found
    await acknowledgements.kept()
    if request.share_session_epoch == FINAL_EPOCH:
        fetching.end_session(session)
    response = await _answer(node, context, found, acknowledgements)
    response.acquisition_lock_timeout_ms = fetching.settings_of(group_id).delivery.lock_ms
    return response


async def _session(
    node: ShareApi, request: ShareFetchRequest, context: RequestContext, group_id: str, member_id: str
) -> ShareSession:
    """The session, with what the request adds and forgets. Raises KafkaError: see `ShareSessions`."""
    fetching, epoch = node.share_fetching, request.share_session_epoch
    if request.is_renew_ack and (request.max_wait_ms or request.min_bytes or request.max_bytes or request.max_records):
        raise refusal(Code.INVALID_REQUEST, "a request that renews acknowledgements fetches nothing, and asks for none")
    if epoch == INITIAL_EPOCH:
        async with aclosing(portions(request.topics)) as named:  # or what is named lives on until somebody closes it
            async for _, partitions in named:
                if any(one.acknowledgement_batches for one in partitions):
                    raise refusal(Code.INVALID_REQUEST, "a request that opens a session acknowledges records")
    session = fetching.sessions.begin(group_id, member_id, epoch)
    fetching.let_go()
    fetching.use_on(session, context.connection)
    if epoch == FINAL_EPOCH:
        return session
    try:
        async with aclosing(portions(request.topics)) as named:
            async for topic_id, partitions in named:
                fetching.sessions.add(session, topic_id, [one.partition_index for one in partitions])
    except KafkaError:
        if epoch == INITIAL_EPOCH:
            fetching.end_session(session)
        raise
    async for topic_id, indexes in portions(request.forgotten_topics_data):
        fetching.sessions.forget(session, topic_id, indexes)
    return session


async def _read(
    node: ShareApi, reading: ShareReading, session: ShareSession, wait_ms_max: int, context: RequestContext
) -> bool:
    """Read what becomes due, until there is enough or the time is up. Returns False if the session has ended."""
    changed = asyncio.Event()
    is_late = wait_ms_max <= 0

    def on_late() -> None:
        nonlocal is_late
        is_late = True
        changed.set()

    timer: asyncio.TimerHandle | None = None
    if context.kept is not None:
        context.kept.give_way(on_late)
    if is_late:
        reading.on_late()
    try:
        while True:
            reading.read_due()
            if reading.has_enough:
                return True
            if reading.not_cached:
                await node.broker.bring_into_memory(reading.not_cached)
            elif reading.is_partway:
                await asyncio.sleep(0)
            elif is_late:
                return True
            else:
                if timer is None:
                    timer = asyncio.get_running_loop().call_later(wait_ms_max / 1000, on_late)
                    session.on_due = changed.set
                changed.clear()
                await changed.wait()
                if is_late:
                    reading.on_late()
            if reading.is_overtaken:
                return False
    finally:
        if timer is not None:
            timer.cancel()
            if session.on_due == changed.set:
                session.on_due = None


async def _answer(
    node: ShareApi, context: RequestContext, found: dict[PartitionId, ReadForMember], acknowledgements: Acknowledgements
) -> ShareFetchResponse:
    context.is_long = context.is_long or len(found) + len(acknowledgements.errors) > ROWS_MAX
    leaders = acknowledgements.leaders
    topics: dict[object, ShareFetchTopicResponse] = {}
    fetched_bytes = None if node.metrics is None else node.metrics.requests.fetched.of("share_group")
    async for key in in_turns({**found, **acknowledgements.errors}):
        row = _row(node, key, found.get(key), leaders)
        if fetched_bytes is not None and row.records:
            fetched_bytes[key[0]] = fetched_bytes.get(key[0], 0) + len(row.records)
        if key in acknowledgements.errors:
            row.acknowledge_error_code, row.acknowledge_error_message = acknowledgements.errors[key]
            leader = acknowledgements.leader_for(key)
            if leader is not None:
                row.current_leader = leader
        topic = topics.get(key[0])
        if topic is None:
            topic = topics[key[0]] = ShareFetchTopicResponse(topic_id=key[0])
        topic.partitions.append(row)
    name = context.connection.listener_name
    endpoints = endpoints_of(node.image, leaders, name, ShareFetchNodeEndpoint) if leaders else []
    return ShareFetchResponse(responses=list(topics.values()), node_endpoints=endpoints)


def _row(node: ShareApi, key: PartitionId, found: ReadForMember | None, leaders: list[int]) -> ShareFetchPartitionData:
    row = ShareFetchPartitionData(partition_index=key[1], current_leader=ShareFetchLeader())
    if found is None:
        return row
    if found.error is not None:
        row.error_code = code_of(found.error, f"ShareFetch {key[0]}-{key[1]}")
        row.error_message = str(found.error)
        leader = leader_hint(node.image, key, found.error.code, leaders)
        if leader is not None:
            row.current_leader = leader
        return row
    if found.records is not None:
        row.records = found.records
    row.acquired_records = [ShareAcquiredRecords(*one) for one in found.acquired or ()]
    return row

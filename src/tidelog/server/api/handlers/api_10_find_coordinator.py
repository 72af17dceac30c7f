"""FindCoordinator 0-6: the broker that leads a group's partition of `__consumer_offsets`, a transactional id's of
`__transaction_state`, or a share group's state's of `__share_group_state`.

Behaviour: the first to ask has the topic made, and is answered when it is there. Several keys at once from 4 on
(KIP-699). A coordinator is named after it has shown that it is there, or there is news (`leader_doubts`). A key
whose partition nobody leads, or whose log is damaged, gets COORDINATOR_NOT_AVAILABLE with the reason.
Of states of share groups from 6 on (KIP-932), by keys `group:topicId:partition`; other keys, and all below level 1 of
share.version, get INVALID_REQUEST, which ends the attempt at once (COORDINATOR_NOT_AVAILABLE would be retried for
ever). librdkafka takes a broker without this API for one that knows no lz4, and stops compressing without a word.
"""

from __future__ import annotations

from collections.abc import Awaitable, Set
from functools import partial
from typing import TYPE_CHECKING, Any

from tidelog.base.errors import Code, KafkaError, refusal
from tidelog.base.ids import BrokerId
from tidelog.metadata import MetadataImage
from tidelog.server.api.request_context import RequestContext, code_of
from tidelog.server.api.share_answers import share_groups_refused
from tidelog.share.key import ShareKey
from tidelog.wire.messages.api_10_find_coordinator import (
    KEY_TYPE_GROUP,
    KEY_TYPE_SHARE,
    KEY_TYPE_TRANSACTION,
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)

if TYPE_CHECKING:
    from tidelog.server.api.ports import CoordinatorsApi
    from tidelog.server.coordinators.coordinator_partitions import CoordinatorPartitions

SEVERAL_KEYS_FROM_VERSION = 4
SHARE_FROM_VERSION = 6


def handle(
    node: CoordinatorsApi, request: FindCoordinatorRequest, context: RequestContext
) -> FindCoordinatorResponse | Awaitable[FindCoordinatorResponse]:
    coordinators = _coordinators(node, request.key_type, context.api_version)
    if coordinators is not None and coordinators.partition_for("") is None:
        return _create_then_answer(node, coordinators, request, context)
    if coordinators is not None and node.broker.replication.doubts.concern(
        _leaders_named(coordinators, request, node.image)
    ):
        return _settle_then_answer(node, coordinators, request, context)
    return _answer(node, request, context, None)


def _coordinators(node: CoordinatorsApi, key_type: int, version: int) -> CoordinatorPartitions[Any] | None:
    if key_type == KEY_TYPE_TRANSACTION:
        return node.transactions
    if key_type == KEY_TYPE_SHARE and version >= SHARE_FROM_VERSION and share_groups_refused(node.image) is None:
        return node.share_states
    return node.groups if key_type == KEY_TYPE_GROUP else None


async def _create_then_answer(
    node: CoordinatorsApi,
    coordinators: CoordinatorPartitions[Any],
    request: FindCoordinatorRequest,
    context: RequestContext,
) -> FindCoordinatorResponse:
    refused = None
    try:
        await coordinators.create_topic()
    except KafkaError as error:
        refused = error
    return _answer(node, request, context, refused)


async def _settle_then_answer(
    node: CoordinatorsApi,
    coordinators: CoordinatorPartitions[Any],
    request: FindCoordinatorRequest,
    context: RequestContext,
) -> FindCoordinatorResponse:
    named = partial(_leaders_named, coordinators, request)
    await node.broker.replication.doubts.settled(lambda: node.image, named)
    return _answer(node, request, context, None)


def _leaders_named(
    coordinators: CoordinatorPartitions[Any], request: FindCoordinatorRequest, image: MetadataImage
) -> Set[BrokerId]:
    places = map(coordinators.partition_for, request.coordinator_keys or [request.key])
    states = [image.partition(place.topic, place.partition) for place in places if place is not None]
    leaders = [image.reachable_leader(state) for state in states if state is not None]
    return {leader for leader in leaders if leader is not None}


def _answer(
    node: CoordinatorsApi, request: FindCoordinatorRequest, context: RequestContext, error: KafkaError | None
) -> FindCoordinatorResponse:
    if context.api_version >= SEVERAL_KEYS_FROM_VERSION:
        keys = dict.fromkeys(request.coordinator_keys)
        every = [_coordinator(node, key, request.key_type, context, error) for key in keys]
        return FindCoordinatorResponse(coordinators=every)
    found = _coordinator(node, request.key, request.key_type, context, error)
    return FindCoordinatorResponse(
        error_code=found.error_code,
        error_message=found.error_message,
        node_id=found.node_id,
        host=found.host,
        port=found.port,
    )


def _coordinator(
    node: CoordinatorsApi, key: str, key_type: int, context: RequestContext, error: KafkaError | None
) -> Coordinator:
    try:
        if error is not None:
            raise error
        return _find(node, key, key_type, context)
    except KafkaError as refused:
        return Coordinator(key=key, error_code=code_of(refused, "FindCoordinator"), error_message=str(refused))


def _find(node: CoordinatorsApi, key: str, key_type: int, context: RequestContext) -> Coordinator:
    coordinators = _coordinators(node, key_type, context.api_version)
    if coordinators is None:
        raise refusal(Code.INVALID_REQUEST, f"there are no coordinators of key type {key_type} for this request")
    if key_type == KEY_TYPE_SHARE:
        ShareKey.parse(key)
    place = coordinators.partition_for(key)
    state = None if place is None else node.image.partition(place.topic, place.partition)
    leader = None if state is None or state.leader is None else node.image.brokers.get(state.leader)
    endpoint = None if leader is None or leader.is_fenced else leader.endpoint(context.connection.listener_name)
    if place is None or leader is None or endpoint is None:
        raise refusal(Code.COORDINATOR_NOT_AVAILABLE, f"nobody leads {place} at the moment")
    if leader.broker_id == node.config.node_id:
        why = coordinators.refusal_of(place)
        if why is not None:
            raise refusal(Code.COORDINATOR_NOT_AVAILABLE, str(why))
    return Coordinator(key=key, node_id=leader.broker_id, host=endpoint.host, port=endpoint.port)

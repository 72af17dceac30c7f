"""Metadata 0-13: the brokers, and what topics there are, as the published image has them.

Behaviour: topics by name or (10+) by id; a topic that is not there is created with the broker's defaults if the client
and `auto.create.topics.enable` allow it, and is in this same answer; whoever had too many made is answered
THROTTLING_QUOTA_EXCEEDED for the rest, which clients repeat (`max.auto.created.topics.per.ip`). "No leader" (-1) comes
with the leader epoch that is in force: it is no rewind. Fenced brokers are not shown, unless all are: then the one that
answers is, for a client that is shown none has nobody left to ask (librdkafka drops all its connections, for good). An
answer waits until the leaders that it names have shown that they are there, or for news of them (`leader_doubts`). One
that has just gone is shown for some seconds though it is fenced: librdkafka 2.16 drops a broker that an answer does not
show, and with it, for a second, the partitions that the same answer moves away from it. A replica whose disk failed
here is among the offline replicas, and if it leads, there is no leader (LEADER_NOT_AVAILABLE), as Kafka 4 answers:
every client waits and asks again, where a leader that refuses each request with KAFKA_STORAGE_ERROR would be asked ten
times a second. What one is authorized to do (KIP-430) comes with each topic that was not asked for by an unknown id.
"""

from __future__ import annotations

from collections.abc import Awaitable, Set
from functools import partial
from typing import TYPE_CHECKING

from tidelog.base.errors import Code, KafkaError
from tidelog.base.ids import BrokerId, TopicId
from tidelog.metadata import BrokerImage, MetadataImage, TopicImage
from tidelog.metadata.topic_names import INTERNAL_TOPICS, check_topic_name
from tidelog.server.api.authorized_operations import AuthorizedOperations
from tidelog.server.api.forwarding import create_topics_with_defaults
from tidelog.server.api.request_context import RequestContext, code_of
from tidelog.wire.messages.api_03_metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from tidelog.wire.primitives import ZERO_UUID

if TYPE_CHECKING:
    from tidelog.server.api.ports import DataApi

NO_TOPICS_MEANS_ALL_BEFORE_VERSION = 1
NAMELESS_SINCE_VERSION = 12
"""Before, an answer gives every topic a name, though from 10 on a request need not."""

DESCRIBED_AT_ONCE_MAX = 512
"""Topics and partitions, of an answer that is made on the event loop: some milliseconds."""


def handle(
    node: DataApi, request: MetadataRequest, context: RequestContext
) -> MetadataResponse | Awaitable[MetadataResponse]:
    missing = _to_create(node, request)
    if missing:
        admitted = node.connections.peers.admit_topics(context.requester, missing)
        return _create_then_answer(node, request, context, admitted, frozenset(missing[len(admitted) :]))
    is_begun = context.as_of is not None  # then later pieces reflect what the first one did, and wait for nothing newer
    if not is_begun and node.broker.replication.doubts.concern(_leaders_named(request, context, node.image)):
        return _settle_then_answer(node, request, context)
    return _answer_where_it_fits(node, request, context)


async def _settle_then_answer(node: DataApi, request: MetadataRequest, context: RequestContext) -> MetadataResponse:
    named = partial(_leaders_named, request, context)
    await node.broker.replication.doubts.settled(lambda: node.image, named)
    response = _answer_where_it_fits(node, request, context)
    return await response if isinstance(response, Awaitable) else response


def _leaders_named(request: MetadataRequest, context: RequestContext, image: MetadataImage) -> Set[BrokerId]:
    """Which leaders the answer names. Of many partitions it is taken for granted that they have all."""
    described = 0
    leaders: set[BrokerId] = set()
    topics = image.topics_by_name.values() if _wants_all_topics(request, context) else request.topics or ()
    for one in topics:
        topic = one if isinstance(one, TopicImage) else _found(image, one)
        partitions = () if topic is None else topic.partitions
        described += 1 + len(partitions)
        if described > DESCRIBED_AT_ONCE_MAX:
            return {one.broker_id for one in image.brokers.values() if not one.is_fenced}
        for state in partitions:
            leader = image.reachable_leader(state)
            if leader is not None:
                leaders.add(leader)
    return leaders


def _to_create(node: DataApi, request: MetadataRequest) -> list[str]:
    if not request.topics or not request.allow_auto_topic_creation or not node.config.auto_create_topics_enable:
        return []
    names = {topic.name for topic in request.topics if topic.name is not None and topic.topic_id == ZERO_UUID}
    # The coordinators' topics are theirs to make, with partitions and settings of their own.
    taken = node.image.topics_by_name.keys() | INTERNAL_TOPICS
    return sorted(name for name in names - taken if check_topic_name(name) is None)


async def _create_then_answer(
    node: DataApi, request: MetadataRequest, context: RequestContext, missing: list[str], refused: frozenset[str]
) -> MetadataResponse:
    # Whatever comes of it, and whoever was first, the image says: that of now, for who asks for topics is to see them.
    if missing:
        context.as_of = None
        try:
            await create_topics_with_defaults(node, missing, context)
        except KafkaError as error:
            code_of(error, f"Metadata: auto-creation of {missing}")
        unmade = sum(name not in node.image.topics_by_name for name in missing)
        if unmade:
            node.connections.peers.give_back_topics(context.requester, unmade)
    answer = _answer_where_it_fits(node, request, context)
    response = await answer if isinstance(answer, Awaitable) else answer
    if refused:
        for topic in response.topics:
            if topic.error_code == Code.UNKNOWN_TOPIC_OR_PARTITION and topic.name in refused:
                topic.error_code = Code.THROTTLING_QUOTA_EXCEEDED
    return response


def _answer_where_it_fits(
    node: DataApi, request: MetadataRequest, context: RequestContext
) -> MetadataResponse | Awaitable[MetadataResponse]:
    """On another thread, if there is much to tell."""
    image, described, operations = context.read(node).image, 0, AuthorizedOperations(node, context)
    gone = node.broker.replication.doubts.just_gone
    wants_all_topics = _wants_all_topics(request, context)
    for one in image.topics_by_name.values() if wants_all_topics else request.topics or ():
        topic = one if isinstance(one, TopicImage) else _found(image, one)
        described += 1 if topic is None else 1 + len(topic.partitions)
        if described > DESCRIBED_AT_ONCE_MAX:
            context.is_long = True
            return node.executor.compute(partial(_answer, node, image, request, context, operations, gone=gone))
    return _answer(node, image, request, context, operations, gone=gone)


def _wants_all_topics(request: MetadataRequest, context: RequestContext) -> bool:
    return request.topics is None or (not request.topics and context.api_version < NO_TOPICS_MEANS_ALL_BEFORE_VERSION)


def _found(image: MetadataImage, requested: MetadataRequestTopic) -> TopicImage | None:
    return (
        image.topic(requested.name or "")
        if requested.topic_id == ZERO_UUID
        else image.topic_by_id(TopicId(requested.topic_id))
    )


def _answer(
    node: DataApi,
    image: MetadataImage,
    request: MetadataRequest,
    context: RequestContext,
    operations: AuthorizedOperations,
    *,
    gone: Set[BrokerId],
) -> MetadataResponse:
    requested = request.topics
    if requested is None or _wants_all_topics(request, context):
        topics = [_topic(node, image, topic) for topic in image.topics_by_name.values()]
    else:
        distinct = {(one.topic_id, one.name): one for one in requested}  # each once, as Kafka does
        no_name = None if context.api_version >= NAMELESS_SINCE_VERSION else ""
        topics = [_requested_topic(node, image, one, no_name) for one in distinct.values()]
    if request.include_topic_authorized_operations:
        for topic in topics:
            if topic.error_code != Code.UNKNOWN_TOPIC_ID:
                topic.topic_authorized_operations = operations.on_topic(topic.name or "")
    brokers = []
    for broker in shown_brokers(image, BrokerId(node.config.node_id), gone):
        endpoint = broker.endpoint(context.connection.listener_name)
        if endpoint is not None:
            brokers.append(MetadataResponseBroker(broker.broker_id, endpoint.host, endpoint.port, broker.rack))
    controller_id = -1 if node.controller_id is None else node.controller_id
    answer = MetadataResponse(brokers=brokers, cluster_id=node.cluster_id, controller_id=controller_id, topics=topics)
    if request.include_cluster_authorized_operations:
        answer.cluster_authorized_operations = operations.on_cluster()
    return answer


def shown_brokers(image: MetadataImage, us: BrokerId, gone: Set[BrokerId]) -> list[BrokerImage]:
    """Those that clients are told of: who is not fenced, or this broker if all are; and who has just gone (`gone`)."""
    every = image.brokers.values()
    shown = [one for one in every if not one.is_fenced] or [one for one in every if one.broker_id == us]
    return [*shown, *(one for one in every if one.broker_id in gone and one not in shown)]


def _requested_topic(
    node: DataApi, image: MetadataImage, requested: MetadataRequestTopic, no_name: str | None
) -> MetadataResponseTopic:
    found, name = _found(image, requested), requested.name
    if found is not None:
        return _topic(node, image, found)
    if requested.topic_id != ZERO_UUID:
        return MetadataResponseTopic(error_code=Code.UNKNOWN_TOPIC_ID, topic_id=requested.topic_id, name=no_name)
    if name is None:
        return MetadataResponseTopic(error_code=Code.INVALID_REQUEST, name=no_name)
    illegal = check_topic_name(name) is not None
    code = Code.INVALID_TOPIC_EXCEPTION if illegal else Code.UNKNOWN_TOPIC_OR_PARTITION
    return MetadataResponseTopic(error_code=code, name=name)


def _topic(node: DataApi, image: MetadataImage, topic: TopicImage) -> MetadataResponseTopic:
    partitions = []
    us = node.config.node_id
    for index, state in enumerate(topic.partitions):
        leader = image.reachable_leader(state)
        offline: list[int] = [r for r in state.replicas if r not in image.brokers or image.brokers[r].is_fenced]
        if us in state.replicas and node.broker.is_offline(topic.name, index):
            offline.append(us)
            leader = None if leader == us else leader
        partitions.append(
            MetadataResponsePartition(
                error_code=Code.LEADER_NOT_AVAILABLE if leader is None else Code.NONE,
                partition_index=index,
                leader_id=-1 if leader is None else leader,
                leader_epoch=state.leader_epoch,
                replica_nodes=list(state.replicas),
                isr_nodes=list(state.isr),
                offline_replicas=offline,
            )
        )
    return MetadataResponseTopic(
        name=topic.name, topic_id=topic.topic_id, is_internal=topic.name in INTERNAL_TOPICS, partitions=partitions
    )

"""What single APIs need beyond an operation on what they name.

Kafka: `KafkaApis`, `ControllerApis`, `DescribeTopicPartitionsRequestHandler`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING, Any
from uuid import UUID

from tidelog.base.errors import Code, KafkaError, MalformedMessageError, refusal
from tidelog.base.ids import PartitionIndex, TopicId
from tidelog.metadata import ResourceKey, ResourceType
from tidelog.metadata.acls import AclOperation, AclResourceType
from tidelog.server.api.authorization import (
    Answered,
    DenyWhole,
    Guard,
    Rows,
    Whole,
    topic_denial,
    topic_of,
)
from tidelog.server.api.denied_answers import blank, denied_row, row_class
from tidelog.server.api.division import Division, with_value
from tidelog.server.api.node_identity import settings_denial
from tidelog.server.api.rights import Rights
from tidelog.wire.api import Api
from tidelog.wire.messages.api_10_find_coordinator import KEY_TYPE_GROUP, KEY_TYPE_SHARE, KEY_TYPE_TRANSACTION
from tidelog.wire.primitives import ZERO_UUID

if TYPE_CHECKING:
    from tidelog.server.api.ports import ServerApi
    from tidelog.server.api.request_context import Handler, RequestContext

TOPIC, GROUP, CLUSTER = AclResourceType.TOPIC, AclResourceType.GROUP, AclResourceType.CLUSTER
TRANSACTIONAL_ID = AclResourceType.TRANSACTIONAL_ID

NOT_ALL_TOPICS = "the group has topics that the requester may not describe"


# Produce.

_ATTRIBUTES_AT, _TRANSACTIONAL = 22, 0x10
"""Of a batch: the lower byte of its attributes, and the bit that says that it is part of a transaction."""


def _has_transactional_batch(request: Any) -> bool:
    for topic in request.topic_data:
        for data in topic.partition_data:
            records = data.records
            if records is not None and len(records) > _ATTRIBUTES_AT and records[_ATTRIBUTES_AT] & _TRANSACTIONAL:
                return True
    return False


def _transactional_write(rights: Rights, request: Any, version: int) -> KafkaError | None:
    if not _has_transactional_batch(request):
        return None
    transactional_id = request.transactional_id
    if transactional_id is None:
        return rights.refusal((AclOperation.WRITE,), TRANSACTIONAL_ID, "")
    return rights.denial(AclOperation.WRITE, TRANSACTIONAL_ID, transactional_id)


def _closing_where_unanswered(known: Api, handle: Handler) -> Handler:
    """A producer with acks=0 learns by a close that something is denied: there is an answer where it waits for none."""

    def serve(node: ServerApi, request: Any, context: RequestContext) -> Any:
        is_awaited = bool(request.acks)
        answer = handle(node, request, context)
        if is_awaited:
            return answer
        return _check_later(answer) if isinstance(answer, Awaitable) else _checked(answer)

    return serve


async def _check_later(answer: Awaitable[Any]) -> None:
    return _checked(await answer)


def _checked(answer: Any) -> None:
    if answer is not None:
        raise MalformedMessageError(
            "a produce request with acks=0 was denied, which only a close can tell its producer: an ACL that allows "
            "WRITE on its topics, and on its transactional id, is needed"
        )


PRODUCE_UNANSWERED = Guard(_closing_where_unanswered, asks=frozenset({AclOperation.WRITE}))
PRODUCE_TRANSACTIONAL = Whole(_transactional_write, asks=frozenset({AclOperation.WRITE}))


# Metadata.

NO_TOPICS_MEANS_ALL_BEFORE_VERSION = 1
NAMELESS_SINCE_VERSION = 12


def _metadata_denial(rights: Rights, request: Any, one: Any) -> KafkaError | None:
    if one.name is None and one.topic_id == ZERO_UUID:
        return None  # the handler says what is wrong with it
    error = topic_denial(rights, AclOperation.DESCRIBE, one)
    if error is not None or one.topic_id != ZERO_UUID:
        return error
    if rights.image.topic(one.name) is not None or not request.allow_auto_topic_creation:
        return None
    return None if rights.on_cluster(AclOperation.CREATE) else rights.denial(AclOperation.CREATE, TOPIC, one.name)


def _metadata_row(rights: Rights, cls: type[Any], one: Any, error: KafkaError, version: int) -> Any:
    if one.topic_id == ZERO_UUID:
        return blank(cls, error_code=error.code, name=one.name)
    no_name = None if version >= NAMELESS_SINCE_VERSION else ""
    return blank(cls, error_code=error.code, topic_id=one.topic_id, name=no_name)


def _metadata_of_all(rights: Rights, request: Any, answer: Any, version: int) -> None:
    """Before version 1 no topics mean all."""
    if request.topics is None or (not request.topics and version < NO_TOPICS_MEANS_ALL_BEFORE_VERSION):
        answer.topics[:] = [one for one in answer.topics if rights.may(AclOperation.DESCRIBE, TOPIC, one.name)]


METADATA_ROWS = Rows(
    _metadata_denial,
    deny=_metadata_row,
    runs_anyway=True,
    asks=frozenset({AclOperation.DESCRIBE, AclOperation.CREATE}),
)
METADATA_OF_ALL = Answered(_metadata_of_all, "topics", asks=frozenset({AclOperation.DESCRIBE}))


# Fetch.


def _by_followers(known: Api, handle: Handler) -> Handler:
    """Who says that it is a follower proves by a fetch what it has, so that is looked at before a session knows it."""

    def serve(node: ServerApi, request: Any, context: RequestContext) -> Any:
        state = request.replica_state
        if (request.replica_id if state is None else state.replica_id) < 0:
            return handle(node, request, context)
        if Rights(node, context).on_cluster(AclOperation.CLUSTER_ACTION):
            return handle(node, request, context)
        denied = partial(_denied_fetch, known, request)
        return node.executor.compute(denied) if context.is_long else denied()

    return serve


def _denied_fetch(known: Api, request: Any) -> Any:
    """As Kafka has it: of each partition, and of the topic rather than of the cluster."""
    of_topic = row_class(known.response, "responses")
    of_partition = row_class(of_topic, "partitions")
    code = Code.TOPIC_AUTHORIZATION_FAILED
    rows = [
        blank(
            of_topic,
            topic=topic.topic,
            topic_id=topic.topic_id,
            partitions=[
                blank(of_partition, partition_index=one.partition, error_code=code, records=b"")
                for one in topic.partitions
            ],
        )
        for topic in request.topics
    ]
    return blank(known.response, responses=rows)


FETCH_BY_FOLLOWERS = Guard(_by_followers, asks=frozenset({AclOperation.CLUSTER_ACTION}))


# Topics made, and unmade.


def _creation(rights: Rights, request: Any, one: Any) -> KafkaError | None:
    if rights.on_cluster(AclOperation.CREATE):
        return None
    return rights.denial(AclOperation.CREATE, TOPIC, one.name)


def _created_configs(rights: Rights, request: Any, answer: Any, version: int) -> None:
    """Who may not describe the settings of a topic does not see what it was made with."""
    for row in answer.topics:
        if not row.error_code and not rights.may(AclOperation.DESCRIBE_CONFIGS, TOPIC, row.name):
            row.topic_config_error_code = Code.TOPIC_AUTHORIZATION_FAILED
            row.num_partitions = row.replication_factor = -1
            row.configs = []


def _deletion(rights: Rights, request: Any, one: Any) -> KafkaError | None:
    if rights.on_cluster(AclOperation.DELETE):
        return None
    error, topic = topic_denial(rights, AclOperation.DELETE, one), topic_of(one)
    if error is None or isinstance(topic, UUID) or rights.image.topic(topic) is not None:
        return error
    if not rights.may(AclOperation.DESCRIBE, TOPIC, topic):
        return error
    return refusal(Code.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {topic!r}")


def _deletion_row(rights: Rights, cls: type[Any], one: Any, error: KafkaError, version: int) -> Any:
    """Whoever names an id is told the name if it may describe the topic."""
    topic = topic_of(one)
    name, topic_id = (None, topic) if isinstance(topic, UUID) else (topic, ZERO_UUID)
    found = None if name is not None else rights.image.topic_by_id(TopicId(topic_id))
    if found is not None and rights.may(AclOperation.DESCRIBE, TOPIC, found.name):
        name = found.name
    return blank(cls, name=name, topic_id=topic_id, error_code=error.code, error_message=str(error))


CREATED_TOPICS = Rows(_creation)
CREATED_CONFIGS = Answered(_created_configs, "topics")
DELETED_TOPICS = Rows(_deletion, deny=_deletion_row)


# DescribeTopicPartitions.


def _describing_visible_topics(known: Api, handle: Handler) -> Handler:
    """Of all topics, only those that the requester may describe count for a page, and for where the next one begins."""

    async def serve(node: ServerApi, request: Any, context: RequestContext) -> Any:
        limit = min(request.response_partition_limit, node.config.described_partitions_max)
        if not request.topics and limit > 0:
            visible = partial(_visible_topics, Rights(node, context), request, limit)
            request = with_value(request, "topics", await node.executor.compute(visible))
            if not request.topics:
                return blank(known.response)
        answer = handle(node, request, context)
        return await answer if isinstance(answer, Awaitable) else answer

    return serve


def _visible_topics(rights: Rights, request: Any, partitions_max: int) -> list[Any]:
    """The topics of one page, and one more, if there is one: the next page begins with it."""
    from tidelog.wire.messages.api_75_describe_topic_partitions import TopicRequest

    first, count = "" if request.cursor is None else request.cursor.topic_name, 0
    topics = rights.image.topics_by_name
    visible = []
    for name in sorted(topics):
        if name >= first and rights.may(AclOperation.DESCRIBE, TOPIC, name):
            visible.append(TopicRequest(name=name))
            if count >= partitions_max:
                break
            skipped = request.cursor.partition_index if request.cursor is not None and name == first else 0
            count += max(len(topics[name].partitions) - skipped, 0)
    return visible


VISIBLE_TOPICS = Guard(_describing_visible_topics)


# Settings.


def _configs(operation: AclOperation, *, is_whole: bool = False) -> Rows:
    """Args: is_whole: what the request does not list is taken back."""
    kinds = {ResourceType.TOPIC: TOPIC, ResourceType.GROUP: GROUP}

    def denial(rights: Rights, request: Any, one: Any) -> KafkaError | None:
        kind = kinds.get(one.resource_type)
        if kind is not None:
            return rights.denial(operation, kind, one.resource_name)
        if one.resource_type in set(ResourceType):
            error = rights.cluster_denial(operation)
            if error is None and operation is AclOperation.ALTER_CONFIGS:
                names = [config.name for config in one.configs]
                if is_whole:
                    names += rights.image.configs.get(
                        ResourceKey(ResourceType(one.resource_type), one.resource_name), ()
                    )
                return settings_denial(rights, names)
            return error
        return None  # the handler knows no such type

    return Rows(denial)


DESCRIBED_CONFIGS = _configs(AclOperation.DESCRIBE_CONFIGS)
ALTERED_CONFIGS = _configs(AclOperation.ALTER_CONFIGS)
REPLACED_CONFIGS = _configs(AclOperation.ALTER_CONFIGS, is_whole=True)


# Coordinators.


def _coordinator_denial(rights: Rights, key_type: int, key: str) -> KafkaError | None:
    if key_type == KEY_TYPE_GROUP:
        return rights.denial(AclOperation.DESCRIBE, GROUP, key)
    if key_type == KEY_TYPE_TRANSACTION:
        return rights.denial(AclOperation.DESCRIBE, TRANSACTIONAL_ID, key)
    return rights.cluster_denial(AclOperation.CLUSTER_ACTION) if key_type == KEY_TYPE_SHARE else None


SEVERAL_KEYS_FROM_VERSION = 4


def _one_coordinator(rights: Rights, request: Any, version: int) -> KafkaError | None:
    if version >= SEVERAL_KEYS_FROM_VERSION:
        return None
    return _coordinator_denial(rights, request.key_type, request.key)


ONE_COORDINATOR = Whole(_one_coordinator)
COORDINATORS = Rows(
    lambda rights, request, one: _coordinator_denial(rights, request.key_type, one),
    Division("coordinator_keys", "coordinators"),
)


# Groups.

SEVERAL_GROUPS_FROM_VERSION = 8


def _one_group(rights: Rights, request: Any, version: int) -> KafkaError | None:
    if version >= SEVERAL_GROUPS_FROM_VERSION:
        return None
    return rights.denial(AclOperation.DESCRIBE, GROUP, request.group_id)


OFFSETS_OF_ONE_GROUP = Whole(_one_group, asks=frozenset({AclOperation.DESCRIBE}))


def _subscription(rights: Rights, request: Any, version: int) -> KafkaError | None:
    for name in request.subscribed_topic_names or ():
        error = rights.denial(AclOperation.DESCRIBE, TOPIC, name)
        if error is not None:
            return error
    return None


SUBSCRIPTION = Whole(_subscription, weigh=lambda request: len(request.subscribed_topic_names or ()))


def _described_assignments(rights: Rights, request: Any, answer: Any, version: int) -> None:
    """A group whose members read what the requester may not describe is not described."""
    allowed: dict[str, bool] = {}

    def may_describe(name: str) -> bool:
        if name not in allowed:
            allowed[name] = rights.may(AclOperation.DESCRIBE, TOPIC, name)
        return allowed[name]

    for group in answer.groups:
        if not group.error_code and not all(map(may_describe, _assigned_topics(group.members))):
            group.error_code, group.error_message = Code.TOPIC_AUTHORIZATION_FAILED, NOT_ALL_TOPICS
            group.members = []


def _assigned_topics(members: Iterable[Any]) -> Iterable[str]:
    for member in members:
        for assignment in (member.assignment, getattr(member, "target_assignment", None)):
            if assignment is not None:
                yield from (one.topic_name for one in assignment.topic_partitions)


DESCRIBED_ASSIGNMENTS = Answered(_described_assignments, "groups")


# Transactions.


def _producer_id(rights: Rights, request: Any, version: int) -> KafkaError | None:
    if request.transactional_id is not None:
        return rights.denial(AclOperation.WRITE, TRANSACTIONAL_ID, request.transactional_id)
    if rights.on_cluster(AclOperation.IDEMPOTENT_WRITE) or rights.may_any(AclOperation.WRITE, TOPIC):
        return None
    return rights.refusal((AclOperation.IDEMPOTENT_WRITE,), CLUSTER)


PRODUCER_ID = Whole(_producer_id)

LEADERS_FROM_VERSION = 4


def _markers(rights: Rights, request: Any, version: int) -> KafkaError | None:
    """Tools abort transactions that hang; who commits one is its coordinator. Kafka takes both of either."""
    if any(marker.transaction_result for marker in request.markers):
        return rights.cluster_denial(AclOperation.CLUSTER_ACTION)
    return rights.cluster_denial(AclOperation.ALTER, AclOperation.CLUSTER_ACTION)


MARKERS = Whole(
    _markers,
    weigh=lambda request: len(request.markers),
    asks=frozenset({AclOperation.ALTER, AclOperation.CLUSTER_ACTION}),
)


def _transaction(rights: Rights, request: Any, version: int) -> KafkaError | None:
    """From version 4 on the leaders of partitions ask."""
    if version >= LEADERS_FROM_VERSION:
        return rights.cluster_denial(AclOperation.CLUSTER_ACTION)
    return rights.denial(AclOperation.WRITE, TRANSACTIONAL_ID, request.v3_and_below_transactional_id)


def _adding_all_or_none(known: Api, handle: Handler) -> Handler:
    """Partitions join a transaction together: beside one that is denied, none is added."""

    def serve(node: ServerApi, request: Any, context: RequestContext) -> Any:
        if context.api_version >= LEADERS_FROM_VERSION:
            return handle(node, request, context)
        look = partial(_not_added, known, Rights(node, context), request, partial(node.audit.on_denied, known))
        if context.is_long:
            return _add_later(node.executor.compute(look), node, request, context, handle)
        return look() or handle(node, request, context)

    return serve


async def _add_later(
    denied: Awaitable[Any], node: ServerApi, request: Any, context: RequestContext, handle: Handler
) -> Any:
    answer = await denied or handle(node, request, context)
    return await answer if isinstance(answer, Awaitable) else answer


def _not_added(known: Api, rights: Rights, request: Any, on_denied: Callable[[str], None]) -> Any:
    """The answer to a request of which a topic is denied; None if none is."""
    topics = request.v3_and_below_topics
    denials = [rights.denial(AclOperation.WRITE, TOPIC, topic.name) for topic in topics]
    denied = [error is not None for error in denials]
    if not any(denied):
        return None
    for why in dict.fromkeys(str(error) for error in denials if error is not None):
        on_denied(why)
    of_topic = row_class(known.response, "results_by_topic_v3_and_below")
    of_partition = row_class(of_topic, "results_by_partition")
    rows = [
        of_topic(
            name=topic.name,
            results_by_partition=[
                of_partition(
                    partition_index=index,
                    partition_error_code=_code_beside_denied(rights, topic.name, index, is_denied=is_denied),
                )
                for index in topic.partitions
            ],
        )
        for topic, is_denied in zip(topics, denied, strict=True)
    ]
    return blank(known.response, results_by_topic_v3_and_below=rows)


def _code_beside_denied(rights: Rights, topic: str, index: int, *, is_denied: bool) -> Code:
    if is_denied:
        return Code.TOPIC_AUTHORIZATION_FAILED
    is_there = rights.image.partition(topic, PartitionIndex(index)) is not None
    return Code.OPERATION_NOT_ATTEMPTED if is_there else Code.UNKNOWN_TOPIC_OR_PARTITION


TRANSACTION = Whole(_transaction)
ADDED_PARTITIONS = Guard(_adding_all_or_none)


def _described_transactions(rights: Rights, request: Any, answer: Any, version: int) -> None:
    for row in answer.transaction_states:
        row.topics[:] = [one for one in row.topics if rights.may(AclOperation.DESCRIBE, TOPIC, one.topic)]


DESCRIBED_TRANSACTIONS = Answered(_described_transactions, "transaction_states")


# Log directories.


def _cluster(operation: AclOperation, deny: DenyWhole) -> Whole:
    """An operation on the cluster, where the answer does not list what the request lists."""
    return Whole(
        lambda rights, request, version: rights.cluster_denial(operation), deny=deny, asks=frozenset({operation})
    )


MOVED_TOPICS = Division("topics", "results", Division("partitions", "partitions"))
"""The answer to a request by directory is one by topic."""


def _denied_moves(known: Api, request: Any, error: KafkaError, version: int) -> Any:
    cls = row_class(known.response, MOVED_TOPICS.answered)
    topics = (topic for directory in request.dirs for topic in directory.topics)
    return blank(known.response, results=[denied_row(MOVED_TOPICS, cls, topic, error, version) for topic in topics])


MOVES = _cluster(AclOperation.ALTER, _denied_moves)


def _denied_stops(known: Api, request: Any, error: KafkaError, version: int) -> Any:
    """Of what is denied each partition is told, however the version of the request lists it."""
    from tidelog.server.api.handlers.api_05_stop_replica import orders_of

    cls = row_class(known.response, "partition_errors")
    places = [order.topic_partition for order in orders_of(request)]
    rows = [blank(cls, topic_name=name, partition_index=index, error_code=error.code) for name, index in places]
    return blank(known.response, error_code=error.code, partition_errors=rows)


STOPS = _cluster(AclOperation.CLUSTER_ACTION, _denied_stops)


# Losses.


def _lost_records(rights: Rights, request: Any, version: int) -> KafkaError | None:
    return rights.denial_by_id(AclOperation.READ, request.topic_id)


LOST_RECORDS = Whole(_lost_records)


def _resumptions(known: Api, handle: Handler) -> Handler:
    """Those of topics that the reader may not read are passed over, as those of topics that are not there."""

    def serve(node: ServerApi, request: Any, context: RequestContext) -> Any:
        rights = Rights(node, context)
        if len(request.resumptions) <= RESUMPTIONS_LOOKED_AT_MAX:  # else it is refused
            named = {one.topic_id for one in request.resumptions}
            allowed = {one for one in named if rights.denial_by_id(AclOperation.READ, one) is None}
            kept = [one for one in request.resumptions if one.topic_id in allowed]
            request = with_value(request, "resumptions", kept)
        return handle(node, request, context)

    return serve


RESUMPTIONS_LOOKED_AT_MAX = 1_000
RESUMPTIONS = Guard(_resumptions)

"""Which requests wait for the metadata that their token speaks of, and where an answer says that it did not come.

One row for each API, and a test that misses none that names topics (KIP-1243):

- `READS` answer from the metadata as such: they wait whatever they ask for.
- `DENIALS` do something else, and wait only where they would be refused for what this broker does not know: a request
  that would succeed is not held up. Each is looked at before it is begun: what was half done cannot be begun again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any
from uuid import UUID

from tidelog.base.errors import Code
from tidelog.base.ids import TopicId
from tidelog.metadata import MetadataImage
from tidelog.wire.api import Api, ApiKey
from tidelog.wire.primitives import ZERO_UUID

if TYPE_CHECKING:
    from tidelog.server.node import Node

Refuse = Callable[[Api, Any, int, Code, str], Any]
"""(API, request, its version, code, why) to an answer that says so; None where the answer has no place for it."""

IsDenied = Callable[["Node", Any], bool]
"""Whether a request would be answered with an unknown topic, or a denial, from the metadata that is here."""

TOP_LEVEL_FROM_METADATA_VERSION = 13
TOP_LEVEL_FROM_LOG_DIRS_VERSION = 3


# Where the error goes.


def _at_top(known: Api, request: Any, version: int, code: Code, why: str) -> Any:
    answer = known.response(error_code=code)
    if hasattr(answer, "error_message"):
        answer.error_message = why
    return answer


def _metadata(known: Api, request: Any, version: int, code: Code, why: str) -> Any:
    """Before version 13 each topic that is named has an error, and the answer as a whole has none."""
    if version >= TOP_LEVEL_FROM_METADATA_VERSION:
        return known.response(error_code=code)
    if not request.topics:
        return None
    from tidelog.wire.messages.api_03_metadata import MetadataResponseTopic

    no_name = "" if version < 12 else None
    rows = {
        (one.topic_id, one.name): MetadataResponseTopic(
            error_code=code, name=no_name if one.name is None else one.name, topic_id=one.topic_id
        )
        for one in request.topics
    }
    return known.response(topics=list(rows.values()))


def _configs(known: Api, request: Any, version: int, code: Code, why: str) -> Any:
    from tidelog.wire.messages.api_32_describe_configs import DescribeConfigsResult

    rows = {
        (one.resource_type, one.resource_name): DescribeConfigsResult(
            error_code=code, error_message=why, resource_type=one.resource_type, resource_name=one.resource_name
        )
        for one in request.resources
    }
    return known.response(results=list(rows.values())) if rows else None


def _log_dirs(known: Api, request: Any, version: int, code: Code, why: str) -> Any:
    """Version 2 has no error for all: one row of no directory says it."""
    if version >= TOP_LEVEL_FROM_LOG_DIRS_VERSION:
        return known.response(error_code=code)
    from tidelog.wire.messages.api_35_describe_log_dirs import DescribeLogDirsResult

    return known.response(results=[DescribeLogDirsResult(error_code=code, log_dir="")])


def _topic_partitions(known: Api, request: Any, version: int, code: Code, why: str) -> Any:
    if not request.topics:
        return None
    from tidelog.wire.messages.api_75_describe_topic_partitions import DescribeTopicPartitionsResponseTopic

    names = dict.fromkeys(one.name for one in request.topics)
    return known.response(topics=[DescribeTopicPartitionsResponseTopic(error_code=code, name=name) for name in names])


READS: dict[int, Refuse] = {
    ApiKey.METADATA: _metadata,
    ApiKey.DESCRIBE_ACLS: _at_top,
    ApiKey.DESCRIBE_CONFIGS: _configs,
    ApiKey.DESCRIBE_LOG_DIRS: _log_dirs,
    ApiKey.DESCRIBE_DELEGATION_TOKEN: _at_top,
    ApiKey.DESCRIBE_CLIENT_QUOTAS: _at_top,
    ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: _at_top,
    ApiKey.DESCRIBE_CLUSTER: _at_top,
    ApiKey.LIST_CONFIG_RESOURCES: _at_top,
    ApiKey.DESCRIBE_TOPIC_PARTITIONS: _topic_partitions,
}
"""The ten of KIP-1243; those that are not served yet are gated from their first day on."""


# What would be refused.

Named = Iterable[tuple["str | UUID | None", Iterable[int]]]
"""Topics, by name or by id, with the partitions that are asked for."""


def _names_unknown(named: Callable[[Any], Named]) -> IsDenied:
    """Refused where a topic that is named is not there, or a partition of it."""

    def is_denied(node: Node, request: Any) -> bool:
        return _is_any_unknown(node.image, named(request))

    return is_denied


def _is_any_unknown(image: MetadataImage, named: Named) -> bool:
    for topic, indexes in named:
        found = image.topic_by_id(TopicId(topic)) if isinstance(topic, UUID) else image.topic(topic or "")
        count = 0 if found is None else len(found.partitions)
        if found is None or any(index >= count for index in indexes):
            return True
    return False


def _of_topics(topics: str, name: str = "name", partitions: str = "partitions", index: str = "") -> IsDenied:
    """Of a request that lists topics, by its fields.

    Args:
        index: of a partition's row; empty where the rows are the numbers.
    """

    def named(request: Any) -> Named:
        for topic in getattr(request, topics) or ():
            topic_id = getattr(topic, "topic_id", ZERO_UUID)
            rows = getattr(topic, partitions) if partitions else ()
            indexes = (getattr(row, index) for row in rows) if index else rows
            yield (getattr(topic, name, None) if topic_id == ZERO_UUID else topic_id), indexes

    return _names_unknown(named)


def _fetched(node: Node, request: Any) -> bool:
    """What a session follows counts as well, though a request does not name it again."""
    if _fetch_names_unknown(node, request):
        return True
    followed = node.fetch_sessions.followed(request.session_id)
    return _is_any_unknown(node.image, ((one.topic or one.topic_id, (one.wanted.partition,)) for one in followed))


_fetch_names_unknown = _of_topics("topics", "topic", index="partition")


def _moved(request: Any) -> Named:
    return ((topic.name, topic.partitions) for directory in request.dirs for topic in directory.topics)


def _decided(node: Node, request: Any) -> bool:
    """By the controller, and who knows by which: one that was deposed refuses by what it knew then.

    A broker that has the metadata of a token follows the leader that wrote it, and asks no older one. It is not held up
    for longer so: it has to have that metadata before it passes any answer on.
    """
    return True


DENIALS: dict[int, IsDenied] = {
    ApiKey.PRODUCE: _of_topics("topic_data", partitions="partition_data", index="index"),
    ApiKey.FETCH: _fetched,
    ApiKey.LIST_OFFSETS: _of_topics("topics", index="partition_index"),
    ApiKey.OFFSET_COMMIT: _of_topics("topics", index="partition_index"),
    ApiKey.DELETE_RECORDS: _of_topics("topics", index="partition_index"),
    ApiKey.OFFSET_FOR_LEADER_EPOCH: _of_topics("topics", "topic", index="partition"),
    ApiKey.ALTER_REPLICA_LOG_DIRS: _names_unknown(_moved),
    ApiKey.OFFSET_DELETE: _of_topics("topics", index="partition_index"),
    ApiKey.CREATE_TOPICS: _decided,
    ApiKey.DELETE_TOPICS: _decided,
    ApiKey.ALTER_CONFIGS: _decided,
    ApiKey.CREATE_PARTITIONS: _decided,
    ApiKey.ELECT_LEADERS: _decided,
    ApiKey.INCREMENTAL_ALTER_CONFIGS: _decided,
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: _decided,
    ApiKey.LIST_PARTITION_REASSIGNMENTS: _decided,
    ApiKey.UPDATE_FEATURES: _decided,
    ApiKey.UNREGISTER_BROKER: _decided,
    ApiKey.ADD_RAFT_VOTER: _decided,
    ApiKey.REMOVE_RAFT_VOTER: _decided,
}
"""Whoever serves one more API that names topics, or that the controller decides, adds its row here."""

"""What a request that bears a consistency token waits for, and where its answer says that it did not come (KIP-1243).

`apis.py` says which API waits how: those that read the metadata whatever they ask for, others only where they would be
refused for what this broker does not know.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any
from uuid import UUID

from tidelog.base.errors import Code
from tidelog.base.ids import TopicId
from tidelog.wire.api import Api
from tidelog.wire.primitives import ZERO_UUID

if TYPE_CHECKING:
    from tidelog.server.api.ports import ServerApi

Refuse = Callable[[Api, Any, int, Code, str], Any]
"""(API, request, its version, code, why) to an answer that says so; None where the answer has no place for it."""

AreDenied = Callable[["ServerApi", Any], Iterator[bool]]
"""Whether each of what a request is about would be answered with an unknown topic, or a denial, from the metadata that
is here. It may be very much: whoever looks stops at the first that would be, and gives others their turn."""

TOP_LEVEL_FROM_METADATA_VERSION = 13
TOP_LEVEL_FROM_LOG_DIRS_VERSION = 3


# Where the error goes.


def at_top(known: Api, request: Any, version: int, code: Code, why: str) -> Any:
    answer = known.response(error_code=code)
    if hasattr(answer, "error_message"):
        answer.error_message = why
    return answer


def in_metadata(known: Api, request: Any, version: int, code: Code, why: str) -> Any:
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


def in_configs(known: Api, request: Any, version: int, code: Code, why: str) -> Any:
    from tidelog.wire.messages.api_32_describe_configs import DescribeConfigsResult

    rows = {
        (one.resource_type, one.resource_name): DescribeConfigsResult(
            error_code=code, error_message=why, resource_type=one.resource_type, resource_name=one.resource_name
        )
        for one in request.resources
    }
    return known.response(results=list(rows.values())) if rows else None


def in_log_dirs(known: Api, request: Any, version: int, code: Code, why: str) -> Any:
    """Version 2 has no error for all: one row of no directory says it."""
    if version >= TOP_LEVEL_FROM_LOG_DIRS_VERSION:
        return known.response(error_code=code)
    from tidelog.wire.messages.api_35_describe_log_dirs import DescribeLogDirsResult

    return known.response(results=[DescribeLogDirsResult(error_code=code, log_dir="")])


def in_topic_partitions(known: Api, request: Any, version: int, code: Code, why: str) -> Any:
    if not request.topics:
        return None
    from tidelog.wire.messages.api_75_describe_topic_partitions import DescribeTopicPartitionsResponseTopic

    names = dict.fromkeys(one.name for one in request.topics)
    return known.response(topics=[DescribeTopicPartitionsResponseTopic(error_code=code, name=name) for name in names])


# What would be refused.

Named = Iterable[tuple["str | UUID | None", Iterable[int]]]
"""Topics, by name or by id, with the partitions that are asked for."""


def names_unknown(named: Callable[[Any], Named]) -> AreDenied:
    """Refused where a topic that is named is not there, or a partition of it."""

    return lambda node, request: _are_unknown(node, named(request))


def _are_unknown(node: ServerApi, named: Named) -> Iterator[bool]:
    for topic, indexes in named:
        image = node.image
        found = image.topic_by_id(TopicId(topic)) if isinstance(topic, UUID) else image.topic(topic or "")
        yield found is None
        if found is not None:
            count = len(found.partitions)
            yield from (index >= count for index in indexes)


def of_topics(topics: str, name: str = "name", partitions: str = "partitions", index: str = "") -> AreDenied:
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

    return names_unknown(named)


def fetched(node: ServerApi, request: Any) -> Iterator[bool]:
    """What a session follows counts as well, though a request does not name it again."""
    yield from _fetch_names_unknown(node, request)
    followed = list(node.fetch_sessions.followed(request.session_id))
    yield from _are_unknown(node, ((one.topic or one.topic_id, (one.wanted.partition,)) for one in followed))


_fetch_names_unknown = of_topics("topics", "topic", index="partition")


def added(request: Any) -> Named:
    """Of partitions that join transactions: a producer's request names one transaction, a broker's many."""
    for topic in request.v3_and_below_topics:
        yield topic.name, topic.partitions
    for transaction in request.transactions:
        for topic in transaction.topics:
            yield topic.name, topic.partitions


def moved(request: Any) -> Named:
    return ((topic.name, topic.partitions) for directory in request.dirs for topic in directory.topics)


def decided(node: ServerApi, request: Any) -> Iterator[bool]:
    """By the controller, and who knows by which: one that was deposed refuses by what it knew then.

    A broker that has the metadata of a token follows the leader that wrote it, and asks no older one. It is not held up
    for longer so: it has to have that metadata before it passes any answer on.
    """
    yield True


def logs_in(node: ServerApi, request: Any) -> Iterator[bool]:
    """By a user or a delegation token that may be known elsewhere by now, or be none any more.

    A broker that is behind could only say that the password is wrong, after which clients give up: so it hangs up.
    """
    yield True

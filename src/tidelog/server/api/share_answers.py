"""What handlers of share groups' states do alike."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from tidelog.base.errors import Code, KafkaError, refusal
from tidelog.base.ids import PartitionIndex, TopicId
from tidelog.metadata import MetadataImage
from tidelog.metadata.features import SHARE_VERSION, SHARE_VERSION_SERVED
from tidelog.server.api.request_context import code_of
from tidelog.share.key import ShareKey

if TYPE_CHECKING:
    from tidelog.server.api.ports import ShareStatesApi

R = TypeVar("R")


def share_groups_refused(image: MetadataImage) -> KafkaError | None:
    """Why the requests of share groups (KIP-932) are not served; None while they are."""
    if image.features.get(SHARE_VERSION, 0) >= SHARE_VERSION_SERVED:
        return None
    return refusal(
        Code.UNSUPPORTED_VERSION,
        f"share groups are served from {SHARE_VERSION} {SHARE_VERSION_SERVED} on: upgrade the feature",
    )


async def answers_of(
    node: ShareStatesApi,
    group_id: str,
    topics: Sequence[Any],
    ask: Callable[[ShareKey, Any], Awaitable[object]],
) -> list[Any]:
    """What a coordinator answers for each partition that is listed, in their order; a refusal is a `KafkaError`.

    Args:
        ask: takes the key of a partition, and its row.
    """
    refused = share_groups_refused(node.image)
    if refused is None and not group_id:
        refused = refusal(Code.INVALID_REQUEST, "the group id is empty")
    asked = [
        (ShareKey(group_id, TopicId(topic.topic_id), PartitionIndex(row.partition)), row)
        for topic in topics
        for row in topic.partitions
    ]
    if refused is not None:
        return [refused] * len(asked)
    return await asyncio.gather(*(_answered(ask, key, row) for key, row in asked))


async def _answered(ask: Callable[[ShareKey, Any], Awaitable[object]], key: ShareKey, row: Any) -> object:
    try:
        return await ask(key, row)
    except KafkaError as error:
        return error


def rows_of(
    topics: Sequence[Any],
    answers: Sequence[Any],
    new_topic: Callable[..., R],
    new_row: Callable[..., Any],
    told: Callable[[int, Any], Any] | None = None,
) -> list[R]:
    """The rows of a response, by topic as they were asked for.

    Args:
        new_row: takes a partition, and an error if there is one.
        told: the row of an answer that is none.
    """
    rest = iter(answers)
    topic_rows = []
    for topic in topics:
        rows = []
        for asked in topic.partitions:
            answer = next(rest)
            if isinstance(answer, KafkaError):
                code = code_of(answer, "share group state")
                rows.append(new_row(partition=asked.partition, error_code=code, error_message=str(answer)))
            else:
                rows.append(new_row(partition=asked.partition) if told is None else told(asked.partition, answer))
        topic_rows.append(new_topic(topic_id=topic.topic_id, partitions=rows))
    return topic_rows

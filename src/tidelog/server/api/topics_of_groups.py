"""DESCRIBE on the topics that groups' offsets are asked of, or are told of.

Kafka: `KafkaApis.handleOffsetFetchRequest`, `KafkaApis.handleDescribeShareGroupOffsetsRequest`.
"""

from __future__ import annotations

from collections.abc import Awaitable
from functools import partial
from typing import TYPE_CHECKING, Any

from tidelog.metadata.acls import AclOperation, AclResourceType
from tidelog.server.api.authorization import LOOKED_AT_ONCE_MAX, Asks, topic_denial
from tidelog.server.api.denied_answers import denied_row, in_place, row_class
from tidelog.server.api.division import Division, with_value
from tidelog.server.api.rights import Rights
from tidelog.wire.api import Api

if TYPE_CHECKING:
    from tidelog.server.api.ports import ServerApi
    from tidelog.server.api.request_context import Handler, RequestContext


class TopicsOfGroups:
    """DESCRIBE on the topics that groups' offsets are asked of, or are told of where none is named.

    Args:
        topics: how they lie in what is asked of a group, and in what is told of it. A request without groups, and its
            answer, are those of one.
    """

    asks: Asks = frozenset({AclOperation.DESCRIBE})

    def __init__(self, topics: Division) -> None:
        self._topics = topics

    def guarding(self, known: Api, handle: Handler) -> Handler:
        def serve(node: ServerApi, request: Any, context: RequestContext) -> Any:
            rights, version = Rights(node, context), context.api_version
            if request.groups:
                asked = list(request.groups)
                of_group = row_class(known.response, "groups")
            else:
                asked, of_group = [request], known.response
            denied = [self._denied(rights, one, of_group, version) for one in asked]
            allowed = [self._allowed(one, rows) for one, rows in zip(asked, denied, strict=True)]
            request = with_value(request, "groups", allowed) if request.groups else allowed[0]
            answer = handle(node, request, context)
            if isinstance(answer, Awaitable):
                return self._complete_later(answer, node, rights, asked, denied)
            return self._complete(answer, node, rights, asked, denied)

        return serve

    def _denied(self, rights: Rights, one: Any, of_group: type[Any], version: int) -> list[Any]:
        """Of what is asked of a group, a row for each topic that is denied, and None for each that is not."""
        cls = row_class(of_group, self._topics.answered)
        inner, rows = self._topics, []
        for topic in getattr(one, self._topics.listed) or ():
            error = topic_denial(rights, AclOperation.DESCRIBE, topic)
            rows.append(None if error is None else denied_row(inner, cls, topic, error, version))
        return rows

    def _allowed(self, one: Any, rows: list[Any]) -> Any:
        listed = getattr(one, self._topics.listed)
        if rows.count(None) == len(rows):
            return one
        allowed = [topic for topic, row in zip(listed, rows, strict=True) if row is None]
        return with_value(one, self._topics.listed, allowed)

    async def _complete_later(self, answer: Awaitable[Any], node: ServerApi, *looked_at: Any) -> Any:
        completed = self._complete(await answer, node, *looked_at)
        return await completed if isinstance(completed, Awaitable) else completed

    def _complete(self, answer: Any, node: ServerApi, *looked_at: Any) -> Any:
        """A group that is asked for all its topics may have very many."""
        told = getattr(answer, "groups", None) or [answer]
        complete = partial(self._completed, answer, told, *looked_at)
        count = sum(len(getattr(group, self._topics.answered)) for group in told)
        return node.executor.compute(complete) if count > LOOKED_AT_ONCE_MAX else complete()

    def _completed(
        self, answer: Any, told: list[Any], rights: Rights, asked: list[Any], denied: list[list[Any]]
    ) -> Any:
        for one, rows, group in zip(asked, denied, told, strict=True):
            topics = getattr(group, self._topics.answered)
            if getattr(one, self._topics.listed) is None:
                may = partial(rights.may, AclOperation.DESCRIBE, AclResourceType.TOPIC)
                topics[:] = [topic for topic in topics if may(topic_of_row(topic))]
            elif not group.error_code:
                topics[:] = in_place(rows, topics)
        return answer


def topic_of_row(row: Any) -> str:
    """The name of a topic that an answer tells of."""
    name: str = row.topic_name if hasattr(row, "topic_name") else row.name
    return name

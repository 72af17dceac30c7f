"""Requests that list much are answered in pieces, one after another, with turns for everybody else in between.

Each piece is a request of its own, and its answer a part of the whole. What is said of one name stays in one piece,
unless that is more than a piece may hold. So the largest request that a stranger may send takes the event loop for a
few milliseconds at a time; and what a controller decides by it is appended in portions that the quorum can follow, as
Kafka's controller bounds the records of an operation.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from copy import copy
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from tidelog.wire.api import Api, ApiKey

if TYPE_CHECKING:
    from tidelog.server.dispatch import Handler, RequestContext
    from tidelog.server.node import Node

ELEMENTS_MAX = 256
"""In a piece. The dearest take some ten microseconds each."""
RECORDS_MAX = 64
"""In a piece that becomes records of the metadata log: each takes some hundred microseconds here, and at every node."""

LOOKED_AT_FROM_BYTES = 4_096
"""A shorter request lists few elements, unless it orders more than it lists (`Division.orders`)."""


class Division(NamedTuple):
    """How the requests of one API are divided.

    Attributes:
        listed: the field of the request that lists, and `answered` that of the answer which has a row for each.
        inner: the field of what is listed that lists in turn, if it may be divided too; `answered_inner` likewise.
        weight_max: of a piece.
        is_order: it changes metadata: its answer reflects what was done last. Others reflect what there was at first.
        orders: what one of those listed weighs, where that is more than what it lists.
        listed_once: the field that listed them in earlier versions.
        waits_for_all: whether its pieces wait for something, and none is to wait for another.
    """

    listed: str
    answered: str
    inner: str | None = None
    answered_inner: str = "partitions"
    weight_max: int = ELEMENTS_MAX
    is_order: bool = False
    orders: Callable[[Any], int] | None = None
    listed_once: str = ""
    waits_for_all: bool = False

    def weight_of(self, one: Any) -> int:
        if self.orders is not None:
            return self.orders(one)
        return 1 if self.inner is None else 1 + len(getattr(one, self.inner))

    def is_long(self, request: Any) -> bool:
        return sum(map(self.weight_of, getattr(request, self._field_of(request)) or ())) > self.weight_max

    def _field_of(self, request: Any) -> str:
        return self.listed_once if self.listed_once and not getattr(request, self.listed) else self.listed

    def pieces_of(self, request: Any) -> list[Any]:
        """The requests that make up this one, at least one."""
        field = self._field_of(request)
        listed = getattr(request, field)
        if not listed:
            return [request]
        pieces: list[list[Any]] = []
        weight = self.weight_max
        for group in _by_name(listed):
            for part in self._parts_of(group):
                added = sum(map(self.weight_of, part))
                if weight + added > self.weight_max:
                    pieces.append([])
                    weight = 0
                pieces[-1] += part
                weight += added
        return [with_value(request, field, piece) for piece in pieces]

    def _parts_of(self, group: list[Any]) -> Iterator[list[Any]]:
        if sum(map(self.weight_of, group)) <= self.weight_max or (self.is_order and self.inner is None):
            yield group  # an order that names a topic twice is refused as a whole
            return
        for one in group:
            if self.inner is None:
                yield [one]
                continue
            within = getattr(one, self.inner)
            for start in range(0, max(len(within), 1), self.weight_max - 1):
                yield [with_value(one, self.inner, within[start : start + self.weight_max - 1])]

    def joined(self, answers: Sequence[Any]) -> Any:
        """One answer of those to the pieces; the first error that counts for a whole piece counts for it all."""
        whole = answers[0]
        rows = getattr(whole, self.answered)
        for answer in answers[1:]:
            for row in getattr(answer, self.answered):
                if self.inner is not None and rows and _name_of(rows[-1]) == _name_of(row):
                    getattr(rows[-1], self.answered_inner).extend(getattr(row, self.answered_inner))
                else:
                    rows.append(row)
            if hasattr(whole, "node_endpoints"):
                whole.node_endpoints += [one for one in answer.node_endpoints if one not in whole.node_endpoints]
            if getattr(answer, "error_code", 0) and not whole.error_code:
                whole.error_code = answer.error_code
                if hasattr(whole, "error_message"):
                    whole.error_message = answer.error_message
        return whole


def with_value(message: Any, field: str, value: object) -> Any:
    """Another message, which says something else in one field."""
    changed = copy(message)
    setattr(changed, field, value)
    return changed


_NAMES = ("name", "topic", "topic_name", "topic_id", "path", "resource_name", "resource_type")


def _name_of(one: Any) -> object:
    return one if isinstance(one, str) else tuple(getattr(one, field, None) for field in _NAMES)


def _by_name(listed: Sequence[Any]) -> Iterator[list[Any]]:
    groups: dict[object, list[Any]] = {}
    for one in listed:
        groups.setdefault(_name_of(one), []).append(one)
    yield from groups.values()


def _ordered_topic(topic: Any) -> int:
    count: int = max(topic.num_partitions, len(topic.assignments), 1)
    return 1 + count + len(topic.configs)


def _ordered_partitions(topic: Any) -> int:
    count: int = max(topic.count, 1)
    return count  # of which few are new, mostly; nobody knows here


def _orders(listed: str, answered: str, **how: Any) -> Division:
    return Division(listed, answered, weight_max=RECORDS_MAX, is_order=True, **how)


DIVISIONS: dict[int, Division] = {
    ApiKey.PRODUCE: Division("topic_data", "responses", "partition_data", "partition_responses", waits_for_all=True),
    ApiKey.LIST_OFFSETS: Division("topics", "topics", "partitions"),
    ApiKey.METADATA: Division("topics", "topics"),
    ApiKey.OFFSET_COMMIT: Division("topics", "topics", "partitions"),
    ApiKey.FIND_COORDINATOR: Division("coordinator_keys", "coordinators"),
    ApiKey.DESCRIBE_GROUPS: Division("groups", "groups"),
    ApiKey.DELETE_RECORDS: Division("topics", "topics", "partitions", waits_for_all=True),
    ApiKey.OFFSET_FOR_LEADER_EPOCH: Division("topics", "topics", "partitions"),
    ApiKey.DESCRIBE_CONFIGS: Division("resources", "results", weight_max=16),  # each is answered with all its keys
    ApiKey.DELETE_GROUPS: Division("groups_names", "results"),
    ApiKey.OFFSET_DELETE: Division("topics", "topics", "partitions"),
    ApiKey.CREATE_TOPICS: _orders("topics", "topics", orders=_ordered_topic),
    ApiKey.DELETE_TOPICS: _orders("topics", "responses", listed_once="topic_names"),
    ApiKey.ALTER_REPLICA_LOG_DIRS: Division("dirs", "results", "topics"),
    ApiKey.CREATE_PARTITIONS: _orders("topics", "results", orders=_ordered_partitions),
    ApiKey.ALTER_CONFIGS: _orders("resources", "responses", orders=lambda one: 1 + len(one.configs)),
    ApiKey.INCREMENTAL_ALTER_CONFIGS: _orders("resources", "responses", orders=lambda one: 1 + len(one.configs)),
    ApiKey.ELECT_LEADERS: _orders(
        "topic_partitions", "replica_election_results", inner="partitions", answered_inner="partition_result"
    ),
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: _orders("topics", "responses", inner="partitions"),
    ApiKey.ALTER_PARTITION: _orders("topics", "topics", inner="partitions"),
}


def is_long(known: Api, request: Any, size_bytes: int) -> bool:
    """Whether a request is to be answered in pieces."""
    division = DIVISIONS.get(known.key)
    if division is None or (size_bytes < LOOKED_AT_FROM_BYTES and division.orders is None):
        return False
    if known.key == ApiKey.PRODUCE and not request.acks:
        return False  # who waits for no answer may be gone before the second piece
    return division.is_long(request)


def in_pieces(known: Api, handle: Handler) -> Handler:
    """The handler of an API, for long requests: it answers piece by piece, if there is a way to divide them."""
    division = DIVISIONS.get(known.key)
    if division is None:

        def answer_whole(node: Node, request: Any, context: RequestContext) -> Any:
            context.reflects = node.consistency_state  # the answer is written later, on another thread
            return handle(node, request, context)

        return answer_whole

    async def answer(node: Node, request: Any, context: RequestContext) -> Any:
        if not division.is_order:
            context.reflects = node.consistency_state
        answers: list[Any] = []
        for piece in await node.executor.run(partial(division.pieces_of, request)):
            one = handle(node, piece, context)
            if isinstance(one, Awaitable):
                one = asyncio.ensure_future(one) if division.waits_for_all else await one
            answers.append(one)
            await asyncio.sleep(0)
        answers = [await one if isinstance(one, Awaitable) else one for one in answers]
        answers = [one for one in answers if one is not None]
        return await node.executor.run(partial(division.joined, answers)) if answers else None

    return answer

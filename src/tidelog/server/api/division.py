"""How a request that lists much is divided into pieces, and how their answers are joined."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from copy import copy
from itertools import pairwise
from typing import Any, NamedTuple

ELEMENTS_MAX = 256
"""In a piece. The dearest take some ten microseconds each."""
PRODUCED_MAX = 64
"""In a piece of which each element is a write to a log of its own. Producers send as many, and are answered at once."""
WRITES_MAX = 32
"""In a piece of which each element asks a coordinator, or writes to a log that it needs first."""
RECORDS_MAX = 64
"""In a piece that becomes records of the metadata log: each takes some hundred microseconds here, and at every node."""


class Division(NamedTuple):
    """How the requests of one API are divided.

    Attributes:
        listed: the field of the request that lists, and `answered` that of the answer which has a row for each.
        inner: how what is listed is divided in turn, if it lists in turn.
        weight_max: of a piece.
        is_order: it changes something: what is named twice is refused.
        orders: what one of those listed weighs, where that is more than what it lists.
        earlier: how requests of earlier versions are divided, where they list in another field.
        waits_for_all: whether its pieces wait for something, and none is to wait for another.
        is_whole: what it lists counts together: its handler is given all of it, and does on another thread what it can.
        counted_with: another field of the request that lists what counts with that, where `is_whole`.
    """

    listed: str
    answered: str
    inner: Division | None = None
    weight_max: int = ELEMENTS_MAX
    is_order: bool = False
    orders: Callable[[Any], int] | None = None
    earlier: Division | None = None
    waits_for_all: bool = False
    is_whole: bool = False
    counted_with: str = ""

    def of(self, request: Any) -> Division:
        """The division for the version of this request."""
        if self.earlier is None or getattr(request, self.listed):
            return self
        return self.earlier

    def is_long(self, request: Any) -> bool:
        beside = len(getattr(request, self.counted_with) or ()) if self.counted_with else 0
        return self._weight_within(request) + beside > self.weight_max

    def _weight_within(self, message: Any) -> int:
        listed = getattr(message, self.listed) or ()
        return len(listed) if self.inner is None and self.orders is None else sum(map(self._weight_of, listed))

    def _weight_of(self, one: Any) -> int:
        if self.orders is not None:
            return self.orders(one)
        return 1 if self.inner is None else 1 + self.inner._weight_within(one)

    def pieces_of(self, request: Any) -> list[Any]:
        """The requests that make up this one, at least one."""
        listed = getattr(request, self.listed)
        if not listed or self.is_whole:
            return [request]
        return [with_value(request, self.listed, piece) for piece in self._packed(_by_name(listed), self.weight_max)]

    def taken_from(self, request: Any) -> list[Any]:
        """As `pieces_of`, the last one first; the request lists nothing any more, so each piece frees what it lists."""
        pieces = self.pieces_of(request)
        if pieces[0] is not request:
            setattr(request, self.listed, [])
        pieces.reverse()
        return pieces

    def _packed(self, groups: Iterable[list[Any]], weight_max: int) -> list[list[Any]]:
        pieces: list[list[Any]] = []
        weight = weight_max
        for group in groups:
            for part in self._parts_of(group, weight_max):
                added = sum(map(self._weight_of, part))
                if weight + added > weight_max:
                    pieces.append([])
                    weight = 0
                pieces[-1] += part
                weight += added
        return pieces

    def _parts_of(self, group: list[Any], weight_max: int) -> Iterator[list[Any]]:
        if sum(map(self._weight_of, group)) <= weight_max:
            yield group
            return
        if self.is_order and self.inner is None:  # what is named twice is refused: no part names it once
            starts = (0, *range(weight_max, len(group) - 1, weight_max), len(group))
            yield from (group[start:end] for start, end in pairwise(starts))
            return
        for one in group:
            if self.inner is None:
                yield [one]
            else:
                yield from ([part] for part in self.inner._divided(one, weight_max - 1))

    def _divided(self, message: Any, weight_max: int) -> list[Any]:
        """One of those listed, in as many as are no longer than that."""
        listed = getattr(message, self.listed)
        if not listed:
            return [message]
        if self.inner is None:
            pieces = [listed[start : start + weight_max] for start in range(0, len(listed), weight_max)]
        else:
            pieces = self._packed(([one] for one in listed), weight_max)
        return [with_value(message, self.listed, piece) for piece in pieces]

    def may_be_heavy(self, piece: Any) -> bool:
        """Whether a piece may list more than is in one elsewhere, because that cannot be divided."""
        return self.is_whole or (self.orders is not None and len(getattr(piece, self.listed)) == 1)

    def joined(self, answers: list[Any]) -> Any:
        """One answer of those to the pieces; the first error that counts for a whole piece counts for it all.

        Nothing is left of the others, nor of the list.
        """
        answers.reverse()
        whole = answers.pop()
        while answers:
            self._join(whole, answers.pop())
        return whole

    def let_go(self, answer: Any) -> None:
        """Free the rows of an answer, some at a time: on whatever thread it is, no other can do anything meanwhile."""
        rows = getattr(answer, self.answered)
        while rows:
            if self.inner is None:
                del rows[-ELEMENTS_MAX:]
            else:
                self.inner.let_go(rows.pop())

    def _join(self, whole: Any, answer: Any) -> None:
        rows = getattr(whole, self.answered)
        for row in getattr(answer, self.answered):
            if self.inner is not None and rows and _name_of(rows[-1]) == _name_of(row):
                self.inner._join(rows[-1], row)
            else:
                rows.append(row)
        if hasattr(whole, "node_endpoints"):
            whole.node_endpoints += [one for one in answer.node_endpoints if one not in whole.node_endpoints]
        if getattr(answer, "error_code", 0) and not whole.error_code:
            whole.error_code = answer.error_code
            if hasattr(whole, "error_message"):
                whole.error_message = answer.error_message


def with_value(message: Any, field: str, value: object) -> Any:
    """Another message, which says something else in one field."""
    changed = copy(message)
    setattr(changed, field, value)
    return changed


_NAMES = (
    "producer_id",
    "name",
    "topic",
    "topic_name",
    "topic_id",
    "path",
    "resource_name",
    "resource_type",
    "group_id",
)


def _name_of(one: Any) -> object:
    return one if isinstance(one, str) else tuple(getattr(one, field, None) for field in _NAMES)


def _by_name(listed: Sequence[Any]) -> Iterator[list[Any]]:
    groups: dict[object, list[Any]] = {}
    for one in listed:
        groups.setdefault(_name_of(one), []).append(one)
    yield from groups.values()


def ordered_topic(topic: Any) -> int:
    count: int = max(topic.num_partitions, len(topic.assignments), 1)
    return 1 + count + len(topic.configs)


def ordered_partitions(topic: Any) -> int:
    count: int = max(topic.count, 1)
    return count  # of which few are new, mostly; nobody knows here


def ordered_quotas(entry: Any) -> int:
    return 1 + len(entry.entity) + len(entry.ops)


def added_partitions(transaction: Any) -> int:
    return 1 + sum(map(len, (topic.partitions for topic in transaction.topics)))


BATCHES_OF_A_WRITE = 32
"""Of a share group's state: so many take about as long as a write to a log."""


def written_batches(partition: Any) -> int:
    count: int = len(partition.state_batches)
    return 1 + count // BATCHES_OF_A_WRITE


def orders(listed: str, answered: str, **how: Any) -> Division:
    return Division(listed, answered, weight_max=RECORDS_MAX, is_order=True, **how)

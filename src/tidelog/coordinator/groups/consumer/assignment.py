"""Which partitions a member has, and what an assignor works from. Kafka: `GroupSpec`, `MemberSubscriptionSpec`."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Mapping
from dataclasses import dataclass, field
from heapq import merge
from operator import attrgetter
from typing import Any, TypeVar

from tidelog.base.ids import TopicId

R = TypeVar("R")
T = TypeVar("T")

PIECE = 1_000
"""Members and partitions that are looked at in one go, in a millisecond or two."""

Assignment = Mapping[TopicId, frozenset[int]]
"""Partitions by topic; no topic is there without a partition."""

NOTHING: Assignment = {}
NO_PARTITIONS: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True)
class AssignableMember:
    """A member, as an assignor sees it.

    Attributes:
        topics: that it is subscribed to, and that exist.
        target: what it was assigned before: as much of it as possible stays.
        instance_id: of a static member.
    """

    topics: frozenset[TopicId]
    target: Assignment = field(default_factory=dict)
    instance_id: str | None = None


Members = Mapping[str, AssignableMember]
"""By member id."""

Pieces = Generator[None, None, R]
"""Work that takes long: each step is a piece of about `PIECE` elements, and its end the result."""


class Pace:
    """Says when a piece of work is done."""

    __slots__ = ("_done",)

    def __init__(self) -> None:
        self._done = 0

    def counts(self, elements: int) -> bool:
        """So many elements more were looked at. Returns whether it is others' turn."""
        self._done += elements
        if self._done < PIECE:
            return False
        self._done = 0
        return True


Assignor = Callable[[Members, Mapping[TopicId, int]], Pieces[dict[str, Assignment]]]
"""From the members and the number of partitions of each topic to what each member is to read.

Every partition of a topic with a subscriber goes to exactly one of its subscribers, and every member is in the result.
An assignor depends on its arguments only, not on the order of a mapping.
"""


def finished(pieces: Pieces[R]) -> R:
    """The result of work that is done at once."""
    while True:
        try:
            next(pieces)
        except StopIteration as end:
            result: R = end.value
            return result


def contains(whole: Assignment, part: Assignment) -> bool:
    """Whether every partition of `part` is in `whole`."""
    return all(partitions <= whole.get(topic, frozenset()) for topic, partitions in part.items())


def intersects(one: Assignment, other: Assignment) -> bool:
    """Whether a partition is in both."""
    return any(not partitions.isdisjoint(other.get(topic, ())) for topic, partitions in one.items())


def sorted_topics(topics: Iterable[TopicId], pace: Pace) -> Pieces[list[TopicId]]:
    """Topics in the order of their ids. These are compared as numbers, which is much faster."""
    return (yield from _sorted(topics, attrgetter("int"), pace))


def sorted_names(names: Iterable[str], pace: Pace) -> Pieces[list[str]]:
    """Names in their order."""
    return (yield from _sorted(names, str, pace))


def _sorted(elements: Iterable[T], key: Callable[[T], Any], pace: Pace) -> Pieces[list[T]]:
    runs: list[list[T]] = []
    run: list[T] = []
    for element in elements:
        run.append(element)
        if len(run) >= PIECE:
            run.sort(key=key)
            runs.append(run)
            run = []
        if pace.counts(1):
            yield
    run.sort(key=key)
    if not runs:
        return run
    found: list[T] = []
    for element in merge(*runs, run, key=key):
        found.append(element)
        if pace.counts(2):
            yield
    return found


def assigned_parts(ids: list[str], owners: Mapping[TopicId, list[int]], pace: Pace) -> Pieces[dict[str, Assignment]]:
    """What an assignor made of it: from the index of the owner of each partition of each topic."""
    parts: list[dict[TopicId, list[int]]] = [{} for _ in ids]
    for topic, owners_of_topic in owners.items():
        for partition, owner in enumerate(owners_of_topic):
            parts[owner].setdefault(topic, []).append(partition)
            if pace.counts(1):
                yield
    found: dict[str, Assignment] = {}
    for member_id, part in zip(ids, parts, strict=True):
        assignment: dict[TopicId, frozenset[int]] = {}
        found[member_id] = assignment
        if pace.counts(1):
            yield
        for topic, partitions in part.items():
            assignment[topic] = frozenset(partitions)
            if pace.counts(1 + len(partitions) // 8):
                yield
    return found


def kept_owners(
    ids: list[str], members: Members, partition_counts: Mapping[TopicId, int], pace: Pace
) -> Pieces[dict[TopicId, list[int]]]:
    """The index of the member that has each partition and still wants it; -1 for none. Topics are in their order."""
    owners: dict[TopicId, list[int]] = {}
    for topic, count in partition_counts.items():
        owners[topic] = [-1] * count
        if pace.counts(1):
            yield
    for index, member_id in enumerate(ids):
        member = members[member_id]
        if pace.counts(1):
            yield
        for topic, partitions in member.target.items():
            if topic not in member.topics or topic not in owners:
                continue
            owners_of_topic = owners[topic]
            for partition in partitions:
                if partition < len(owners_of_topic) and owners_of_topic[partition] < 0:
                    owners_of_topic[partition] = index
            if pace.counts(1 + len(partitions)):
                yield
    return owners

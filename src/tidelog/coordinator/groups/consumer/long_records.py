"""Records of groups that say very much, made in pieces. Those of consumer groups are as `recorded` would make them.

A member has its target, and what it reads, in one record each, however many topics they are of: Kafka's formats say so.
What such a record says is kept beside its bytes, so that its writer need not read it to take it in.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeVar

from tidelog.base.ids import TopicId
from tidelog.coordinator.groups.consumer import recorded
from tidelog.coordinator.groups.consumer.assignment import Assignment, Pace, Pieces, sorted_names, sorted_topics
from tidelog.coordinator.groups.consumer.group import MatchedTopics
from tidelog.coordinator.groups.consumer.member import ConsumerSubscription, CurrentAssignment, Holding
from tidelog.journal import KeyValue
from tidelog.wire.primitives import uvarint

T = TypeVar("T")

ELEMENTS_AT_ONCE = 200
"""Of an array, encoded in one go."""
ELEMENT_WORK = 6
"""What an element takes, in partitions looked at."""


def target_record(group_id: str, member_id: str, target: Assignment, pace: Pace) -> Pieces[KeyValue]:
    """As `recorded.target_record`."""
    topics = yield from sorted_topics(target, pace)

    def encoded(part: list[TopicId]) -> KeyValue:
        return recorded.target_record(group_id, member_id, {topic: target[topic] for topic in part})

    key, value = yield from spliced(encoded, topics, pace)
    return key, recorded.said(value, target)


def current_record(group_id: str, member_id: str, current: CurrentAssignment, pace: Pace) -> Pieces[KeyValue]:
    """As `recorded.current_record`."""
    nothing: Holding = {}

    def shortened(assigned: Holding, revoking: Holding) -> CurrentAssignment:
        return CurrentAssignment(current.member_epoch, current.previous_epoch, current.state, assigned, revoking)

    def encoded_assigned(part: list[TopicId]) -> KeyValue:
        return recorded.current_record(
            group_id, member_id, shortened({topic: current.assigned[topic] for topic in part}, nothing)
        )

    def encoded_revoking(part: list[TopicId]) -> KeyValue:
        return recorded.current_record(
            group_id, member_id, shortened(nothing, {topic: current.revoking[topic] for topic in part})
        )

    topics = yield from sorted_topics(current.assigned, pace)
    key, value = yield from spliced(encoded_assigned, topics, pace)
    if current.revoking:
        topics = yield from sorted_topics(current.revoking, pace)
        _, revoking = yield from spliced(encoded_revoking, topics, pace)
        _, nothing_assigned = recorded.current_record(group_id, member_id, shortened(nothing, nothing))
        assert nothing_assigned is not None
        kept = len(nothing_assigned) - len(_REVOKES_NOTHING)  # the epochs and the state, and that nothing is assigned
        value = value[: -len(_REVOKES_NOTHING)] + revoking[kept:]
    return key, recorded.said(value, current)


_REVOKES_NOTHING = b"\x01\x00"
"""What the record of a member ends with that gives nothing up: an empty array, and no tagged fields."""


def pattern_record(group_id: str, pattern: str, matched: MatchedTopics, pace: Pace) -> Pieces[KeyValue]:
    """As `recorded.pattern_record`."""
    names = yield from sorted_names(matched.topics, pace)

    def encoded(part: list[str]) -> KeyValue:
        return recorded.pattern_record(
            group_id, pattern, MatchedTopics(frozenset(part), matched.version, matched.timestamp_ms)
        )

    key, value = yield from spliced(encoded, names, pace)
    return key, recorded.said(value, matched)


def member_record(group_id: str, member_id: str, subscription: ConsumerSubscription, pace: Pace) -> Pieces[KeyValue]:
    """As `recorded.member_record`."""

    def encoded(part: list[str]) -> KeyValue:
        return recorded.member_record(group_id, member_id, subscription.with_names(tuple(part)))

    key, value = yield from spliced(encoded, subscription.topic_names, pace)
    return key, recorded.said(value, subscription)


def spliced(encoded: Callable[[list[T]], KeyValue], elements: Iterable[T], pace: Pace) -> Pieces[tuple[bytes, bytes]]:
    """A record with a long array, from records that are the same but for the length of that."""
    rest = list(elements)
    key, empty = encoded([])
    assert empty is not None
    if not rest:
        return key, empty
    _, shortest = encoded(rest[:1])
    assert shortest is not None
    at = next(index for index, byte in enumerate(empty) if shortest[index] != byte)  # of the length of the array
    tail = empty[at + 1 :]
    parts = [empty[:at], uvarint(len(rest) + 1)]
    for start in range(0, len(rest), ELEMENTS_AT_ONCE):
        part = rest[start : start + ELEMENTS_AT_ONCE]
        _, value = encoded(part)
        assert value is not None
        parts.append(value[at + len(uvarint(len(part) + 1)) : len(value) - len(tail)])
        if pace.counts(ELEMENT_WORK * len(part)):
            yield
    parts.append(tail)
    return key, b"".join(parts)

"""The records of share groups: written by one leader, and what they make of the groups of the next.

Each record is one item of a group and says all of it, so the order of items does not matter, and compaction drops
nothing that counts. Kafka: `GroupCoordinatorRecordHelpers`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import islice
from typing import Any, TypeVar, cast

from tidelog.base.ids import TopicId
from tidelog.coordinator.groups.consumer.assignment import Assignment, Pace, Pieces
from tidelog.coordinator.groups.consumer.long_records import spliced
from tidelog.coordinator.groups.consumer.recorded import Said, said
from tidelog.coordinator.groups.group_record_types import GroupRecordKey, GroupRecordType, MemberRecordKey
from tidelog.coordinator.groups.share.group import ShareGroup
from tidelog.coordinator.groups.share.member import (
    ShareCurrent,
    ShareSubscription,
    current_of,
    in_order,
    subscription_of,
    target_of,
    target_value,
)
from tidelog.coordinator.groups.share.states import (
    PARTITIONS_PER_TOPIC_WORK,
    RecordedStates,
    recorded_topics,
    states_of,
)
from tidelog.coordinator.groups.share_group_records import (
    ShareGroupCurrentMemberAssignmentValue,
    ShareGroupMemberMetadataValue,
    ShareGroupMetadataValue,
    ShareGroupStatePartitionMetadataValue,
    ShareGroupStateTopic,
    ShareGroupTargetAssignmentMemberValue,
    ShareGroupTargetAssignmentMetadataValue,
)
from tidelog.journal import KeyValue
from tidelog.journal.versioned_records import decode_key, decode_value, encode_key, encode_value, record_type
from tidelog.wire.primitives import uvarint

VERSION = 0
ARRAYS = ("initializing_topics", "initialized_topics", "deleting_topics")
TOPICS_AT_ONCE = 100
"""Of the states of a group, encoded in one go."""
TOPIC_WORK = 6
"""What one of them takes, in elements looked at."""

T = TypeVar("T")

_GROUP = GroupRecordType.SHARE_GROUP_METADATA
_MEMBER = GroupRecordType.SHARE_GROUP_MEMBER_METADATA
_TARGET_EPOCH = GroupRecordType.SHARE_GROUP_TARGET_ASSIGNMENT_METADATA
_TARGET = GroupRecordType.SHARE_GROUP_TARGET_ASSIGNMENT_MEMBER
_CURRENT = GroupRecordType.SHARE_GROUP_CURRENT_MEMBER_ASSIGNMENT
_STATES = GroupRecordType.SHARE_GROUP_STATE_PARTITION_METADATA

KEY_VERSIONS = frozenset(kind.to_bytes(2) for kind in (_GROUP, _MEMBER, _TARGET_EPOCH, _TARGET, _CURRENT, _STATES))
"""What the keys of these records begin with."""


# Writing.


def group_record(group_id: str, epoch: int, metadata_hash: int) -> KeyValue:
    """The group epoch."""
    return _group_key(_GROUP, group_id), encode_value(
        ShareGroupMetadataValue(epoch=epoch, metadata_hash=metadata_hash), VERSION
    )


def member_record(group_id: str, member_id: str, subscription: ShareSubscription, pace: Pace) -> Pieces[KeyValue]:
    """What a member wants."""

    def encoded(names: list[str]) -> KeyValue:
        value = replace(subscription, topic_names=tuple(names)).value()
        return _member_key(_MEMBER, group_id, member_id), encode_value(value, VERSION)

    key, value = yield from _long(encoded, list(subscription.topic_names), pace)
    return key, said(value, subscription)


def target_epoch_record(group_id: str, target_epoch: int, assigned_at_ms: int) -> KeyValue:
    """That the target assignment is made for a group epoch."""
    value = ShareGroupTargetAssignmentMetadataValue(assignment_epoch=target_epoch, assignment_timestamp=assigned_at_ms)
    return _group_key(_TARGET_EPOCH, group_id), encode_value(value, VERSION)


def target_record(group_id: str, member_id: str, target: Assignment, pace: Pace) -> Pieces[KeyValue]:
    """What a member is to read."""

    def encoded(topics: list[TopicId]) -> KeyValue:
        value = target_value({topic: target[topic] for topic in topics})
        return _member_key(_TARGET, group_id, member_id), encode_value(value, VERSION)

    key, value = yield from _long(encoded, in_order(target), pace)
    return key, said(value, target)


def current_record(group_id: str, member_id: str, current: ShareCurrent, pace: Pace) -> Pieces[KeyValue]:
    """What a member reads."""

    def encoded(topics: list[TopicId]) -> KeyValue:
        value = replace(current, assigned={topic: current.assigned[topic] for topic in topics}).value()
        return _member_key(_CURRENT, group_id, member_id), encode_value(value, VERSION)

    key, value = yield from _long(encoded, in_order(current.assigned), pace)
    return key, said(value, current)


def _long(encoded: Callable[[list[T]], KeyValue], elements: list[T], pace: Pace) -> Pieces[tuple[bytes, bytes]]:
    """A record that may say much."""
    if len(elements) > TOPICS_AT_ONCE:
        return (yield from spliced(encoded, elements, pace))
    key, value = encoded(elements)
    assert value is not None
    if pace.counts(TOPIC_WORK * len(elements)):
        yield
    return key, value


def states_record(group_id: str, states: RecordedStates, pace: Pace) -> Pieces[KeyValue]:
    """The partitions that the group may read. However many topics they are of, that is one record, as Kafka has it."""
    initializing = yield from _array(recorded_topics, states.initializing, "initializing_topics", pace)
    initialized = yield from _array(recorded_topics, states.initialized, "initialized_topics", pace)
    deleting = yield from _array(_deleting_topics, states.deleting, "deleting_topics", pace)
    value = b"".join((_NO_STATES[:2], *initializing, *initialized, *deleting, _NO_STATES[-1:]))
    return _group_key(_STATES, group_id), said(value, states)


_NO_STATES = b"\x00\x00\x01\x01\x01\x00"
"""The value of a group without states: its version, three arrays without elements, no tagged fields."""


def _deleting_topics(topics: Iterable[tuple[TopicId, str]]) -> list[ShareGroupStateTopic]:
    return [ShareGroupStateTopic(topic_id, name) for topic_id, name in topics]


def _array(
    made: Callable[[Iterable[tuple[TopicId, T]]], list[Any]], topics: Mapping[TopicId, T], name: str, pace: Pace
) -> Pieces[list[bytes]]:
    """One of the arrays of the value, from values that hold a part of it and nothing else."""
    parts = [uvarint(len(topics) + 1)]
    at = 2 + ARRAYS.index(name)
    rest = iter(topics.items())
    while some := list(islice(rest, TOPICS_AT_ONCE)):
        elements = made(some)
        value = encode_value(ShareGroupStatePartitionMetadataValue(**{name: elements}), VERSION)
        parts.append(value[at + len(uvarint(len(some) + 1)) : at - len(_NO_STATES) + 1])
        partitions = sum(len(getattr(one, "partitions", ())) for one in elements)
        if pace.counts(TOPIC_WORK * len(some) + partitions // PARTITIONS_PER_TOPIC_WORK):
            yield
    return parts


def member_tombstones(group_id: str, member_id: str) -> tuple[KeyValue, ...]:
    """What forgets a member; what it wants goes last, as without it the rest is nobody's."""
    return tuple((_member_key(kind, group_id, member_id), None) for kind in (_CURRENT, _TARGET, _MEMBER))


def group_tombstones(group: ShareGroup) -> Iterator[KeyValue]:
    """What forgets a group."""
    for member_id in {**group.subscriptions, **group.targets, **group.currents}:
        yield from member_tombstones(group.group_id, member_id)
    for kind in (_TARGET_EPOCH, _STATES, _GROUP):
        yield _group_key(kind, group.group_id), None


def _group_key(kind: GroupRecordType, group_id: str) -> bytes:
    return encode_key(kind, GroupRecordKey(group_id=group_id))


def _member_key(kind: GroupRecordType, group_id: str, member_id: str) -> bytes:
    return encode_key(kind, MemberRecordKey(group_id=group_id, member_id=member_id))


# Reading.


def apply(groups: dict[str, ShareGroup], record: KeyValue) -> int:
    """Take a record of `KEY_VERSIONS` in.

    Returns:
        How many bytes more the groups take in memory.
    """
    key, value = record
    kind = record_type(key)
    member_id = ""
    if kind in (_GROUP, _TARGET_EPOCH, _STATES):
        group_id = decode_key(GroupRecordKey, key).group_id
    else:
        member_key = decode_key(MemberRecordKey, key)
        group_id, member_id = member_key.group_id, member_key.member_id
    group = groups.get(group_id)
    before_bytes = 0
    if group is None:
        if value is None:
            return 0
        group = groups[group_id] = ShareGroup(group_id)
    else:
        before_bytes = group.size_bytes
    _apply_to(group, kind, member_id, value)
    if group.is_gone:
        del groups[group_id]
        return -before_bytes
    return group.size_bytes - before_bytes


def _apply_to(group: ShareGroup, kind: int, member_id: str, value: bytes | None) -> None:
    if isinstance(value, Said):
        _apply_meaning(group, member_id, value.meaning)
    elif kind == _GROUP:
        if value is None:
            group.set_epoch(None, 0)
        else:
            read = decode_value(ShareGroupMetadataValue, value)
            group.set_epoch(read.epoch, read.metadata_hash)
    elif kind == _TARGET_EPOCH:
        if value is None:
            group.set_target_epoch(None, None)
        else:
            made = decode_value(ShareGroupTargetAssignmentMetadataValue, value)
            group.set_target_epoch(made.assignment_epoch, made.assignment_timestamp or None)
    elif kind == _MEMBER:
        member = None if value is None else decode_value(ShareGroupMemberMetadataValue, value)
        group.set_subscription(member_id, None if member is None else subscription_of(member))
    elif kind == _TARGET:
        target = None if value is None else decode_value(ShareGroupTargetAssignmentMemberValue, value)
        group.set_target(member_id, None if target is None else target_of(target))
    elif kind == _CURRENT:
        current = None if value is None else decode_value(ShareGroupCurrentMemberAssignmentValue, value)
        group.set_current(member_id, None if current is None else current_of(current))
    elif kind == _STATES:
        states = None if value is None else decode_value(ShareGroupStatePartitionMetadataValue, value)
        group.set_states(None if states is None else states_of(states))


def _apply_meaning(group: ShareGroup, member_id: str, meaning: object) -> None:
    if isinstance(meaning, ShareSubscription):
        group.set_subscription(member_id, meaning)
    elif isinstance(meaning, ShareCurrent):
        group.set_current(member_id, meaning)
    elif isinstance(meaning, RecordedStates):
        group.set_states(meaning)
    else:
        group.set_target(member_id, cast(Assignment, meaning))

"""The records of consumer groups: written by one leader, and what they make of the groups of the next.

Each record is one item of a group and says all of it, so the order of items does not matter, and compaction drops
nothing that counts. Kafka: `GroupCoordinatorRecordHelpers`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import cast

from tidelog.coordinator.groups.consumer.assignment import Assignment
from tidelog.coordinator.groups.consumer.group import ConsumerGroup, MatchedTopics
from tidelog.coordinator.groups.consumer.member import (
    ConsumerSubscription,
    CurrentAssignment,
    current_of,
    subscription_of,
    target_of,
    target_value,
)
from tidelog.coordinator.groups.consumer_group_records import (
    ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupMemberMetadataValue,
    ConsumerGroupMetadataValue,
    ConsumerGroupRegularExpressionValue,
    ConsumerGroupTargetAssignmentMemberValue,
    ConsumerGroupTargetAssignmentMetadataValue,
)
from tidelog.coordinator.groups.group_record_types import (
    GroupRecordKey,
    GroupRecordType,
    MemberRecordKey,
    RegularExpressionRecordKey,
)
from tidelog.journal import KeyValue
from tidelog.journal.versioned_records import decode_key, decode_value, encode_key, encode_value, record_type

VERSION = 0

_GROUP = GroupRecordType.CONSUMER_GROUP_METADATA
_MEMBER = GroupRecordType.CONSUMER_GROUP_MEMBER_METADATA
_TARGET_EPOCH = GroupRecordType.CONSUMER_GROUP_TARGET_ASSIGNMENT_METADATA
_TARGET = GroupRecordType.CONSUMER_GROUP_TARGET_ASSIGNMENT_MEMBER
_CURRENT = GroupRecordType.CONSUMER_GROUP_CURRENT_MEMBER_ASSIGNMENT
_PATTERN = GroupRecordType.CONSUMER_GROUP_REGULAR_EXPRESSION

KEY_VERSIONS = frozenset(kind.to_bytes(2) for kind in (_GROUP, _MEMBER, _TARGET_EPOCH, _TARGET, _CURRENT, _PATTERN))
"""What the keys of these records begin with."""


class Said(bytes):
    """The value of a record, and what it says: who wrote it need not read it.

    Attributes:
        meaning: what reading it would make of it; nobody changes it.
    """

    meaning: object


def said(value: bytes, meaning: object) -> Said:
    """A value that needs not be read."""
    found = Said(value)
    found.meaning = meaning
    return found


# Writing.


def group_record(group_id: str, epoch: int, metadata_hash: int) -> KeyValue:
    """The group epoch."""
    return _group_key(_GROUP, group_id), encode_value(
        ConsumerGroupMetadataValue(epoch=epoch, metadata_hash=metadata_hash), VERSION
    )


def member_record(group_id: str, member_id: str, subscription: ConsumerSubscription) -> KeyValue:
    """What a member wants."""
    return _member_key(_MEMBER, group_id, member_id), encode_value(subscription.value(), VERSION)


def target_epoch_record(group_id: str, target_epoch: int, assigned_at_ms: int) -> KeyValue:
    """That the target assignment is made for a group epoch."""
    value = ConsumerGroupTargetAssignmentMetadataValue(
        assignment_epoch=target_epoch, assignment_timestamp=assigned_at_ms
    )
    return _group_key(_TARGET_EPOCH, group_id), encode_value(value, VERSION)


def target_record(group_id: str, member_id: str, target: Assignment) -> KeyValue:
    """What a member is to have."""
    return _member_key(_TARGET, group_id, member_id), encode_value(target_value(target), VERSION)


def current_record(group_id: str, member_id: str, current: CurrentAssignment) -> KeyValue:
    """What a member has."""
    return _member_key(_CURRENT, group_id, member_id), encode_value(current.value(), VERSION)


def pattern_record(group_id: str, pattern: str, matched: MatchedTopics | None) -> KeyValue:
    """The topics of a pattern; None if nobody is subscribed to it any more."""
    key = encode_key(_PATTERN, RegularExpressionRecordKey(group_id=group_id, regular_expression=pattern))
    if matched is None:
        return key, None
    value = ConsumerGroupRegularExpressionValue(
        topics=sorted(matched.topics), version=matched.version, timestamp=matched.timestamp_ms
    )
    return key, encode_value(value, VERSION)


def member_tombstones(group_id: str, member_id: str) -> tuple[KeyValue, ...]:
    """What forgets a member; what it wants goes last, as without it the rest is nobody's."""
    return tuple((_member_key(kind, group_id, member_id), None) for kind in (_CURRENT, _TARGET, _MEMBER))


def group_tombstones(group: ConsumerGroup) -> Iterator[KeyValue]:
    """What forgets a group."""
    for member_id in {**group.subscriptions, **group.targets, **group.currents}:
        yield from member_tombstones(group.group_id, member_id)
    for pattern in group.matched:
        yield pattern_record(group.group_id, pattern, None)
    for kind in (_TARGET_EPOCH, _GROUP):
        yield _group_key(kind, group.group_id), None


def whole_group(group: ConsumerGroup) -> Iterator[KeyValue]:
    """All records of a group."""
    yield group_record(group.group_id, group.epoch, group.metadata_hash)
    for member_id, subscription in group.subscriptions.items():
        yield member_record(group.group_id, member_id, subscription)
    for member_id, target in group.targets.items():
        yield target_record(group.group_id, member_id, target)
    yield target_epoch_record(group.group_id, group.target_epoch, group.assigned_at_ms or 0)
    for member_id, current in group.currents.items():
        yield current_record(group.group_id, member_id, current)


def _group_key(kind: GroupRecordType, group_id: str) -> bytes:
    return encode_key(kind, GroupRecordKey(group_id=group_id))


def _member_key(kind: GroupRecordType, group_id: str, member_id: str) -> bytes:
    return encode_key(kind, MemberRecordKey(group_id=group_id, member_id=member_id))


# Reading.


def apply(groups: dict[str, ConsumerGroup], record: KeyValue) -> int:
    """Take a record of `KEY_VERSIONS` in.

    Returns:
        How many bytes more the groups take in memory.
    """
    key, value = record
    kind = record_type(key)
    if kind in (_GROUP, _TARGET_EPOCH):
        group_id, item = decode_key(GroupRecordKey, key).group_id, ""
    elif kind == _PATTERN:
        pattern_key = decode_key(RegularExpressionRecordKey, key)
        group_id, item = pattern_key.group_id, pattern_key.regular_expression
    else:
        member_key = decode_key(MemberRecordKey, key)
        group_id, item = member_key.group_id, member_key.member_id
    group = groups.get(group_id)
    if group is None:
        if value is None:
            return 0
        group = groups[group_id] = ConsumerGroup(group_id)
        before_bytes = 0
    else:
        before_bytes = group.size_bytes
    _apply_to(group, kind, item, value)
    if group.is_gone:
        del groups[group_id]
        return -before_bytes
    return group.size_bytes - before_bytes


def _apply_to(group: ConsumerGroup, kind: int, item: str, value: bytes | None) -> None:
    if isinstance(value, Said):
        _apply_meaning(group, item, value.meaning)
    elif kind == _GROUP:
        if value is None:
            group.set_epoch(None, 0)
        else:
            read = decode_value(ConsumerGroupMetadataValue, value)
            group.set_epoch(read.epoch, read.metadata_hash)
    elif kind == _TARGET_EPOCH:
        if value is None:
            group.set_target_epoch(0, None)
        else:
            made = decode_value(ConsumerGroupTargetAssignmentMetadataValue, value)
            group.set_target_epoch(made.assignment_epoch, made.assignment_timestamp or None)
    elif kind == _MEMBER:
        member = None if value is None else decode_value(ConsumerGroupMemberMetadataValue, value)
        group.set_subscription(item, None if member is None else subscription_of(member))
    elif kind == _TARGET:
        target = None if value is None else decode_value(ConsumerGroupTargetAssignmentMemberValue, value)
        group.set_target(item, None if target is None else target_of(target))
    elif kind == _CURRENT:
        current = None if value is None else decode_value(ConsumerGroupCurrentMemberAssignmentValue, value)
        group.set_current(item, None if current is None else current_of(current))
    elif kind == _PATTERN:
        found = None if value is None else decode_value(ConsumerGroupRegularExpressionValue, value)
        group.set_matched(
            item, None if found is None else MatchedTopics(frozenset(found.topics), found.version, found.timestamp)
        )


def _apply_meaning(group: ConsumerGroup, item: str, meaning: object) -> None:
    if isinstance(meaning, ConsumerSubscription):
        group.set_subscription(item, meaning)
    elif isinstance(meaning, CurrentAssignment):
        group.set_current(item, meaning)
    elif isinstance(meaning, MatchedTopics):
        group.set_matched(item, meaning)
    else:
        group.set_target(item, cast(Assignment, meaning))

"""The records of coordinators' logs, by the names of Apache Kafka's classes for them."""

from __future__ import annotations

from typing import Any

from tidelog.coordinator.groups.consumer_group_records import (
    ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupMemberMetadataValue,
    ConsumerGroupMetadataValue,
    ConsumerGroupPartitionMetadataValue,
    ConsumerGroupRegularExpressionValue,
    ConsumerGroupTargetAssignmentMemberValue,
    ConsumerGroupTargetAssignmentMetadataValue,
)
from tidelog.coordinator.groups.group_record_types import GroupRecordKey, MemberRecordKey, RegularExpressionRecordKey
from tidelog.coordinator.groups.records import GroupMetadataValue, OffsetCommitValue
from tidelog.coordinator.groups.share_group_records import (
    ShareGroupCurrentMemberAssignmentValue,
    ShareGroupMemberMetadataValue,
    ShareGroupMetadataValue,
    ShareGroupStatePartitionMetadataValue,
    ShareGroupTargetAssignmentMemberValue,
    ShareGroupTargetAssignmentMetadataValue,
)
from tidelog.coordinator.share import ShareSnapshotValue, ShareStateKey, ShareUpdateValue
from tidelog.coordinator.transactions.records import TransactionLogKey, TransactionLogValue
from tidelog.wire.schema import layout_of

# Of each: its coordinator, its key, its value. The keys of offsets and groups are packed by hand, and tested so.
_RECORDS: tuple[tuple[str, str, type[Any] | None, type[Any]], ...] = (
    ("group", "OffsetCommit", None, OffsetCommitValue),
    ("group", "GroupMetadata", None, GroupMetadataValue),
    ("group", "ConsumerGroupMetadata", GroupRecordKey, ConsumerGroupMetadataValue),
    ("group", "ConsumerGroupPartitionMetadata", GroupRecordKey, ConsumerGroupPartitionMetadataValue),
    ("group", "ConsumerGroupMemberMetadata", MemberRecordKey, ConsumerGroupMemberMetadataValue),
    ("group", "ConsumerGroupTargetAssignmentMetadata", GroupRecordKey, ConsumerGroupTargetAssignmentMetadataValue),
    ("group", "ConsumerGroupTargetAssignmentMember", MemberRecordKey, ConsumerGroupTargetAssignmentMemberValue),
    ("group", "ConsumerGroupCurrentMemberAssignment", MemberRecordKey, ConsumerGroupCurrentMemberAssignmentValue),
    ("group", "ConsumerGroupRegularExpression", RegularExpressionRecordKey, ConsumerGroupRegularExpressionValue),
    ("group", "ShareGroupMetadata", GroupRecordKey, ShareGroupMetadataValue),
    ("group", "ShareGroupMemberMetadata", MemberRecordKey, ShareGroupMemberMetadataValue),
    ("group", "ShareGroupTargetAssignmentMetadata", GroupRecordKey, ShareGroupTargetAssignmentMetadataValue),
    ("group", "ShareGroupTargetAssignmentMember", MemberRecordKey, ShareGroupTargetAssignmentMemberValue),
    ("group", "ShareGroupCurrentMemberAssignment", MemberRecordKey, ShareGroupCurrentMemberAssignmentValue),
    ("group", "ShareGroupStatePartitionMetadata", GroupRecordKey, ShareGroupStatePartitionMetadataValue),
    ("transaction", "TransactionLog", TransactionLogKey, TransactionLogValue),
    ("share", "ShareSnapshot", ShareStateKey, ShareSnapshotValue),
    ("share", "ShareUpdate", ShareStateKey, ShareUpdateValue),
)

RECORD_MESSAGES: list[tuple[str, type[Any], int]] = [
    (f"org.apache.kafka.coordinator.{coordinator}.generated.{name}{part}", cls, version)
    for coordinator, name, key, value in _RECORDS
    for part, cls in (("Key", key), ("Value", value))
    if cls is not None
    for version in layout_of(cls).versions
]
"""Of each key and value in each version: Kafka's class, ours, and the version."""

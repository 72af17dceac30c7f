"""What the records of `__consumer_offsets` are of: the numbers before their keys. Kafka: `CoordinatorRecordType`."""

from __future__ import annotations

from enum import IntEnum

from tidelog.wire.schema import field, message, string


class GroupRecordType(IntEnum):
    """The numbers that Apache Kafka 4.3 knows. It has no 9 and no 18."""

    LEGACY_OFFSET_COMMIT = 0
    OFFSET_COMMIT = 1
    GROUP_METADATA = 2
    CONSUMER_GROUP_METADATA = 3
    CONSUMER_GROUP_PARTITION_METADATA = 4
    CONSUMER_GROUP_MEMBER_METADATA = 5
    CONSUMER_GROUP_TARGET_ASSIGNMENT_METADATA = 6
    CONSUMER_GROUP_TARGET_ASSIGNMENT_MEMBER = 7
    CONSUMER_GROUP_CURRENT_MEMBER_ASSIGNMENT = 8
    SHARE_GROUP_MEMBER_METADATA = 10
    SHARE_GROUP_METADATA = 11
    SHARE_GROUP_TARGET_ASSIGNMENT_METADATA = 12
    SHARE_GROUP_TARGET_ASSIGNMENT_MEMBER = 13
    SHARE_GROUP_CURRENT_MEMBER_ASSIGNMENT = 14
    SHARE_GROUP_STATE_PARTITION_METADATA = 15
    CONSUMER_GROUP_REGULAR_EXPRESSION = 16
    STREAMS_GROUP_METADATA = 17
    STREAMS_GROUP_MEMBER_METADATA = 19
    STREAMS_GROUP_TARGET_ASSIGNMENT_METADATA = 20
    STREAMS_GROUP_TARGET_ASSIGNMENT_MEMBER = 21
    STREAMS_GROUP_CURRENT_MEMBER_ASSIGNMENT = 22
    STREAMS_GROUP_TOPOLOGY = 23


@message(api_key=GroupRecordType.CONSUMER_GROUP_METADATA, versions="0", kind="data")
class GroupRecordKey:
    """The key of what there is one of in a group: types 3, 4, 6, 11, 12 and 15."""

    group_id: str = field(string, doc="The group.")


@message(api_key=GroupRecordType.CONSUMER_GROUP_MEMBER_METADATA, versions="0", kind="data")
class MemberRecordKey:
    """The key of what there is one of for each member: types 5, 7, 8, 10, 13 and 14."""

    group_id: str = field(string, doc="The group.")
    member_id: str = field(string, doc="The member.")


@message(api_key=GroupRecordType.CONSUMER_GROUP_REGULAR_EXPRESSION, versions="0", kind="data")
class RegularExpressionRecordKey:
    """The key of a pattern that members subscribe to: type 16."""

    group_id: str = field(string, doc="The group.")
    regular_expression: str = field(string, doc="The pattern.")

"""What `__consumer_offsets` holds of share groups, in Kafka's own formats, so that its tools read our log (KIP-932).

Kafka: `GroupCoordinatorRecordHelpers`.
"""

from __future__ import annotations

from uuid import UUID

from tidelog.coordinator.groups.consumer_group_records import TargetAssignmentPartitions
from tidelog.coordinator.groups.group_record_types import GroupRecordType
from tidelog.wire.schema import array, field, int8, int32, int64, message, string, struct, uuid


@message(api_key=GroupRecordType.SHARE_GROUP_METADATA, versions="0", flexible="0+", kind="data")
class ShareGroupMetadataValue:
    """A group."""

    epoch: int = field(int32, doc="The group epoch: raised whenever a member or what it wants changes.")
    metadata_hash: int = field(int64, doc="Of the topics that are read, as they were seen last.")


@message(api_key=GroupRecordType.SHARE_GROUP_MEMBER_METADATA, versions="0", flexible="0+", kind="data")
class ShareGroupMemberMetadataValue:
    """A member, as its heartbeats said."""

    rack_id: str | None = field(string, nullable="0+", default=None, doc="Where it stands.")
    client_id: str = field(string, doc="As it called itself when it joined.")
    client_host: str = field(string, doc="From where it joined.")
    subscribed_topic_names: list[str] = field(array(string), default_factory=list, doc="The topics it subscribes to.")


@message(api_key=GroupRecordType.SHARE_GROUP_TARGET_ASSIGNMENT_METADATA, versions="0", flexible="0+", kind="data")
class ShareGroupTargetAssignmentMetadataValue:
    """The target assignment of a group."""

    assignment_epoch: int = field(int32, doc="The group epoch that it is made for.")
    assignment_timestamp: int = field(int64, tag=0, default=0, doc="When it was made, in ms; 0 if that is not known.")


@message(api_key=GroupRecordType.SHARE_GROUP_TARGET_ASSIGNMENT_MEMBER, versions="0", flexible="0+", kind="data")
class ShareGroupTargetAssignmentMemberValue:
    """What a member is to read, together with others."""

    topic_partitions: list[TargetAssignmentPartitions] = field(
        array(TargetAssignmentPartitions), default_factory=list, doc="The partitions."
    )


@message(api_key=GroupRecordType.SHARE_GROUP_CURRENT_MEMBER_ASSIGNMENT, versions="0", flexible="0+", kind="data")
class ShareGroupCurrentMemberAssignmentValue:
    """What a member reads, together with others."""

    member_epoch: int = field(int32, doc="Its epoch.")
    previous_member_epoch: int = field(int32, doc="The epoch before: accepted too, if the answer was lost.")
    state: int = field(int8, doc="0: stable. There is nothing to wait for, as nobody gives anything up.")
    assigned_partitions: list[TargetAssignmentPartitions] = field(
        array(TargetAssignmentPartitions), default_factory=list, doc="The partitions."
    )


@struct
class ShareGroupStatePartitions:
    """Partitions of one topic."""

    topic_id: UUID = field(uuid, doc="The topic's id.")
    topic_name: str = field(string, doc="The topic's name.")
    partitions: list[int] = field(array(int32), default_factory=list, doc="The partitions.")


@struct
class ShareGroupStateTopic:
    """One topic."""

    topic_id: UUID = field(uuid, doc="The topic's id.")
    topic_name: str = field(string, doc="The topic's name.")


@message(api_key=GroupRecordType.SHARE_GROUP_STATE_PARTITION_METADATA, versions="0", flexible="0+", kind="data")
class ShareGroupStatePartitionMetadataValue:
    """For which partitions the share coordinator holds a state of the group."""

    initializing_topics: list[ShareGroupStatePartitions] = field(
        array(ShareGroupStatePartitions), default_factory=list, doc="It was asked to begin one."
    )
    initialized_topics: list[ShareGroupStatePartitions] = field(
        array(ShareGroupStatePartitions), default_factory=list, doc="It has begun one."
    )
    deleting_topics: list[ShareGroupStateTopic] = field(
        array(ShareGroupStateTopic), default_factory=list, doc="It was asked to delete all of the topic."
    )

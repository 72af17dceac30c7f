"""What `__consumer_offsets` holds of the groups of KIP-848, in Kafka's own formats, so that its tools read our log.

Kafka: `GroupCoordinatorRecordHelpers`.
"""

from __future__ import annotations

from enum import IntEnum
from uuid import UUID

from tidelog.coordinator.groups.group_record_types import GroupRecordType
from tidelog.wire.schema import array, bytes_, field, int8, int32, int64, message, string, struct, uuid


class ConsumerMemberState(IntEnum):
    """How far a member has come towards its target assignment, as its record says it."""

    STABLE = 0
    UNREVOKED_PARTITIONS = 1
    """It has yet to give partitions up."""
    UNRELEASED_PARTITIONS = 2
    """It waits for partitions that others have yet to give up."""
    UNKNOWN = 127


@message(api_key=GroupRecordType.CONSUMER_GROUP_METADATA, versions="0", flexible="0+", kind="data")
class ConsumerGroupMetadataValue:
    """A group."""

    epoch: int = field(int32, doc="The group epoch: raised whenever a member or what it wants changes.")
    metadata_hash: int = field(int64, tag=0, default=0, doc="Of the topics that are read, as they were seen last.")


@struct
class ConsumerGroupPartitionRacks:
    """Where one partition's replicas stand."""

    partition: int = field(int32, doc="The partition.")
    racks: list[str] = field(array(string), default_factory=list, doc="The racks.")


@struct
class ConsumerGroupTopicMetadata:
    """One topic that the group reads."""

    topic_id: UUID = field(uuid, doc="The topic's id.")
    topic_name: str = field(string, doc="The topic's name.")
    num_partitions: int = field(int32, doc="How many partitions it has.")
    partition_metadata: list[ConsumerGroupPartitionRacks] = field(
        array(ConsumerGroupPartitionRacks), default_factory=list, doc="Empty since Kafka 4.0."
    )


@message(api_key=GroupRecordType.CONSUMER_GROUP_PARTITION_METADATA, versions="0", flexible="0+", kind="data")
class ConsumerGroupPartitionMetadataValue:
    """The topics of a group as they were seen last: before `metadata_hash` there was this."""

    topics: list[ConsumerGroupTopicMetadata] = field(
        array(ConsumerGroupTopicMetadata), default_factory=list, doc="The topics."
    )


@struct
class ClassicMemberProtocol:
    """An assignor that a classic member offers."""

    name: str = field(string, doc="The assignor.")
    metadata: bytes = field(bytes_, doc="The member's subscription, in the assignor's form.")


@struct
class ClassicMemberMetadata:
    """What there is to know of a member that speaks the classic protocol in a group of KIP-848."""

    session_timeout_ms: int = field(int32, default=0, doc="Its session timeout.")
    supported_protocols: list[ClassicMemberProtocol] = field(
        array(ClassicMemberProtocol), default_factory=list, doc="What it offers."
    )


@message(api_key=GroupRecordType.CONSUMER_GROUP_MEMBER_METADATA, versions="0", flexible="0+", kind="data")
class ConsumerGroupMemberMetadataValue:
    """A member, as its heartbeats said."""

    instance_id: str | None = field(string, nullable="0+", default=None, doc="The static member's name (KIP-345).")
    rack_id: str | None = field(string, nullable="0+", default=None, doc="Where it stands.")
    client_id: str = field(string, doc="As it called itself when it joined.")
    client_host: str = field(string, doc="From where it joined.")
    subscribed_topic_names: list[str] = field(array(string), default_factory=list, doc="The topics it subscribes to.")
    subscribed_topic_regex: str | None = field(
        string, nullable="0+", default=None, doc="The pattern it subscribes to, if it does."
    )
    rebalance_timeout_ms: int = field(int32, default=-1, doc="How long it may take to give partitions up.")
    server_assignor: str | None = field(string, nullable="0+", default=None, doc="The assignor it wants.")
    classic_member_metadata: ClassicMemberMetadata | None = field(
        ClassicMemberMetadata,
        nullable="0+",
        tag=0,
        default_factory=ClassicMemberMetadata,
        doc="None for a member that speaks KIP-848's protocol: that has to be said, as absent means an empty one.",
    )


@message(api_key=GroupRecordType.CONSUMER_GROUP_TARGET_ASSIGNMENT_METADATA, versions="0", flexible="0+", kind="data")
class ConsumerGroupTargetAssignmentMetadataValue:
    """The target assignment of a group."""

    assignment_epoch: int = field(int32, doc="The group epoch that it is made for.")
    assignment_timestamp: int = field(int64, tag=0, default=0, doc="When it was made, in ms; 0 if that is not known.")


@struct
class TargetAssignmentPartitions:
    """Partitions of one topic."""

    topic_id: UUID = field(uuid, doc="The topic's id.")
    partitions: list[int] = field(array(int32), default_factory=list, doc="The partitions.")


@message(api_key=GroupRecordType.CONSUMER_GROUP_TARGET_ASSIGNMENT_MEMBER, versions="0", flexible="0+", kind="data")
class ConsumerGroupTargetAssignmentMemberValue:
    """What a member will read once the others have given it up."""

    topic_partitions: list[TargetAssignmentPartitions] = field(
        array(TargetAssignmentPartitions), default_factory=list, doc="The partitions."
    )


@struct
class CurrentAssignmentPartitions:
    """Partitions of one topic."""

    topic_id: UUID = field(uuid, doc="The topic's id.")
    partitions: list[int] = field(array(int32), default_factory=list, doc="The partitions.")
    assignment_epochs: list[int] | None = field(
        array(int32),
        nullable="0+",
        tag=0,
        default_factory=list,
        doc="Since which member epoch it has each of them, to fence the commits of earlier owners.",
    )


@message(api_key=GroupRecordType.CONSUMER_GROUP_CURRENT_MEMBER_ASSIGNMENT, versions="0", flexible="0+", kind="data")
class ConsumerGroupCurrentMemberAssignmentValue:
    """What a member reads."""

    member_epoch: int = field(int32, doc="Its epoch.")
    previous_member_epoch: int = field(int32, doc="The epoch before: accepted too, if the answer was lost.")
    state: int = field(int8, doc="A `ConsumerMemberState`.")
    assigned_partitions: list[CurrentAssignmentPartitions] = field(
        array(CurrentAssignmentPartitions), default_factory=list, doc="What it may read."
    )
    partitions_pending_revocation: list[CurrentAssignmentPartitions] = field(
        array(CurrentAssignmentPartitions), default_factory=list, doc="What it has yet to give up."
    )


@message(api_key=GroupRecordType.CONSUMER_GROUP_REGULAR_EXPRESSION, versions="0", flexible="0+", kind="data")
class ConsumerGroupRegularExpressionValue:
    """The topics that match a pattern."""

    topics: list[str] = field(array(string), default_factory=list, doc="The topics.")
    version: int = field(int64, doc="Of the metadata in which they were looked up.")
    timestamp: int = field(int64, doc="When they were looked up, in ms.")

"""ShareGroupDescribe (key 77): state and members of share groups (KIP-932)."""

from __future__ import annotations

from uuid import UUID

from tidelog.wire.messages.api_60_describe_cluster import AUTHORIZED_OPERATIONS_UNASKED
from tidelog.wire.schema import array, boolean, field, int16, int32, message, string, struct, uuid


@message(api_key=77, versions="1", flexible="0+")
class ShareGroupDescribeRequest:
    """Ask the coordinator of the groups."""

    group_ids: list[str] = field(array(string), default_factory=list, doc="The groups.")
    include_authorized_operations: bool = field(
        boolean, default=False, doc="Whether to answer what the asker may do with them."
    )


@struct
class ShareGroupDescribePartitions:
    """Partitions of one topic."""

    topic_id: UUID = field(uuid, doc="The topic's id.")
    topic_name: str = field(string, doc="The topic's name.")
    partitions: list[int] = field(array(int32), default_factory=list, doc="The partitions.")


@struct
class ShareGroupDescribeAssignment:
    """What a member reads, together with others."""

    topic_partitions: list[ShareGroupDescribePartitions] = field(
        array(ShareGroupDescribePartitions), default_factory=list, doc="The partitions."
    )


@struct(kw_only=True)
class ShareGroupDescribeMember:
    """A member."""

    member_id: str = field(string, doc="Its id.")
    rack_id: str | None = field(string, nullable="0+", default=None, doc="Where it stands.")
    member_epoch: int = field(int32, doc="Its epoch.")
    client_id: str = field(string, default="", doc="As it called itself when it joined.")
    client_host: str = field(string, default="", doc="From where it joined.")
    subscribed_topic_names: list[str] = field(array(string), default_factory=list, doc="The topics it subscribes to.")
    assignment: ShareGroupDescribeAssignment = field(ShareGroupDescribeAssignment, doc="What it reads.")


@struct(kw_only=True)
class ShareGroupDescribeGroup:
    """A group."""

    error_code: int = field(int16, default=0, doc="0 if it is described.")
    error_message: str | None = field(string, nullable="0+", default=None, doc="What went wrong.")
    group_id: str = field(string, doc="The group.")
    group_state: str = field(string, default="", doc='"Stable" and so on.')
    group_epoch: int = field(int32, default=0, doc="Raised whenever a member or what it wants changes.")
    assignment_epoch: int = field(int32, default=0, doc="The group epoch that the assignment is made for.")
    assignor_name: str = field(string, default="", doc="The assignor that made it.")
    members: list[ShareGroupDescribeMember] = field(
        array(ShareGroupDescribeMember), default_factory=list, doc="Its members."
    )
    authorized_operations: int = field(
        int32, default=AUTHORIZED_OPERATIONS_UNASKED, doc="Bits by the number of the operation."
    )


@message(api_key=77, versions="1", flexible="0+")
class ShareGroupDescribeResponse:
    """The groups."""

    throttle_time_ms: int = field(int32, default=0, doc="How long it was held back.")
    groups: list[ShareGroupDescribeGroup] = field(
        array(ShareGroupDescribeGroup), default_factory=list, doc="In the order asked."
    )

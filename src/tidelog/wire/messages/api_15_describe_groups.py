"""DescribeGroups (key 15): state and members of classic groups.

Version 1 tells of throttling, 3 what the asker may do (KIP-430), 4 names static members (KIP-345), 5 is flexible, 6 has
a message, and GROUP_ID_NOT_FOUND for a group that is not there (KIP-1043).
"""

from __future__ import annotations

from tidelog.wire.messages.api_60_describe_cluster import AUTHORIZED_OPERATIONS_UNASKED
from tidelog.wire.schema import array, boolean, bytes_, field, int16, int32, message, string, struct


@message(api_key=15, versions="0-6", flexible="5+")
class DescribeGroupsRequest:
    """Ask the coordinator of the groups."""

    groups: list[str] = field(array(string), default_factory=list, doc="The groups.")
    include_authorized_operations: bool = field(
        boolean, versions="3+", default=False, doc="Whether to answer what the asker may do with them."
    )


@struct(kw_only=True)
class DescribedGroupMember:
    """A member."""

    member_id: str = field(string, doc="Its id.")
    group_instance_id: str | None = field(
        string, versions="4+", nullable="4+", default=None, ignorable=True, doc="The static member's name."
    )
    client_id: str = field(string, default="", doc="As it called itself when it joined.")
    client_host: str = field(string, default="", doc="From where it joined.")
    member_metadata: bytes = field(bytes_, default=b"", doc="What it wants, in the protocol chosen.")
    member_assignment: bytes = field(bytes_, default=b"", doc="What it got.")


@struct(kw_only=True)
class DescribedGroup:
    """A group."""

    error_code: int = field(int16, default=0, doc="0 if it is described.")
    error_message: str | None = field(
        string, versions="6+", nullable="6+", default=None, ignorable=True, doc="What went wrong."
    )
    group_id: str = field(string, doc="The group.")
    group_state: str = field(string, default="", doc='"Stable" and so on.')
    protocol_type: str = field(string, default="", doc='"consumer", or what else its members agreed on.')
    protocol_data: str = field(string, default="", doc="The protocol chosen.")
    members: list[DescribedGroupMember] = field(array(DescribedGroupMember), default_factory=list, doc="Its members.")
    authorized_operations: int = field(
        int32, versions="3+", default=AUTHORIZED_OPERATIONS_UNASKED, doc="Bits by the number of the operation."
    )


@message(api_key=15, versions="0-6", flexible="5+")
class DescribeGroupsResponse:
    """The groups."""

    throttle_time_ms: int = field(int32, versions="1+", default=0, ignorable=True, doc="How long it was held back.")
    groups: list[DescribedGroup] = field(array(DescribedGroup), default_factory=list, doc="In the order asked.")

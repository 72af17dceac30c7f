"""LeaveGroup (key 13): members go, without waiting for their sessions to end.

Version 1 tells of throttling, 3 takes several members and static ones by name (KIP-345), 4 is flexible, 5 takes a
reason (KIP-800).
"""

from __future__ import annotations

from tidelog.wire.schema import array, field, int16, int32, message, string, struct


@struct(kw_only=True)
class MemberIdentity:
    """Who goes."""

    member_id: str = field(string, doc="The member; may be empty for a static one.")
    group_instance_id: str | None = field(string, nullable="3+", default=None, doc="The static member's name.")
    reason: str | None = field(
        string, versions="5+", nullable="5+", default=None, ignorable=True, doc="Why it leaves, for the log."
    )


@message(api_key=13, versions="0-5", flexible="4+")
class LeaveGroupRequest:
    """A member says so itself, or an administrator does for it."""

    group_id: str = field(string, doc="The group.")
    member_id: str = field(string, versions="0-2", default="", doc="The member.")
    members: list[MemberIdentity] = field(
        array(MemberIdentity), versions="3+", default_factory=list, doc="The members."
    )


@struct(kw_only=True)
class MemberResponse:
    """Whether one is gone."""

    member_id: str = field(string, doc="The member.")
    group_instance_id: str | None = field(string, nullable="3+", default=None, doc="The static member's name.")
    error_code: int = field(int16, default=0, doc="0 if it is gone.")


@message(api_key=13, versions="0-5", flexible="4+")
class LeaveGroupResponse:
    """What became of each."""

    throttle_time_ms: int = field(int32, versions="1+", default=0, ignorable=True, doc="How long it was held back.")
    error_code: int = field(int16, default=0, doc="Of the group; before version 3, of the member.")
    members: list[MemberResponse] = field(
        array(MemberResponse), versions="3+", default_factory=list, doc="One answer for each."
    )

"""JoinGroup (key 11): become a member of a classic group, or rejoin for its next generation.

Version 1 has a rebalance time-out of its own, 2 tells of throttling, 4 may answer MEMBER_ID_REQUIRED (KIP-394), 5 knows
static members (KIP-345), 6 is flexible, 7 names the protocol type in answers, 8 takes a reason (KIP-800), 9 may tell a
returning static leader to skip the assignment (KIP-814).
"""

from __future__ import annotations

from tidelog.wire.schema import array, boolean, bytes_, field, int16, int32, message, string, struct


@struct
class JoinGroupRequestProtocol:
    """A way to assign partitions that the member supports."""

    name: str = field(string, doc='Its name, such as "range".')
    metadata: bytes = field(bytes_, doc="What the member wants, for the leader of the group to read.")


@message(api_key=11, versions="0-9", flexible="6+")
class JoinGroupRequest:
    """Answered when all members have joined, or the time for it is over."""

    group_id: str = field(string, doc="The group.")
    session_timeout_ms: int = field(int32, doc="Without a heartbeat for so long, the member is gone.")
    rebalance_timeout_ms: int = field(
        int32, versions="1+", default=-1, ignorable=True, doc="How long others wait for it to rejoin; -1: the session."
    )
    member_id: str = field(string, default="", doc="Empty at first; then what the coordinator gave.")
    group_instance_id: str | None = field(
        string, versions="5+", nullable="5+", default=None, doc="The static member's name (KIP-345)."
    )
    protocol_type: str = field(string, doc='"consumer", or what else the members agree on.')
    protocols: list[JoinGroupRequestProtocol] = field(
        array(JoinGroupRequestProtocol), default_factory=list, doc="In order of preference."
    )
    reason: str | None = field(
        string, versions="8+", nullable="8+", default=None, ignorable=True, doc="Why it joins, for the log."
    )


@struct(kw_only=True)
class JoinGroupResponseMember:
    """A member, as the leader is told of it."""

    member_id: str = field(string, doc="Its id.")
    group_instance_id: str | None = field(
        string, versions="5+", nullable="5+", default=None, ignorable=True, doc="The static member's name."
    )
    metadata: bytes = field(bytes_, doc="What it wants, in the protocol chosen.")


@message(api_key=11, versions="0-9", flexible="6+")
class JoinGroupResponse:
    """The generation that the member is in."""

    throttle_time_ms: int = field(int32, versions="2+", default=0, ignorable=True, doc="How long it was held back.")
    error_code: int = field(int16, default=0, doc="0 if it is in.")
    generation_id: int = field(int32, default=-1, doc="The generation, or -1.")
    protocol_type: str | None = field(
        string, versions="7+", nullable="7+", default=None, ignorable=True, doc="The group's."
    )
    protocol_name: str | None = field(
        string, nullable="7+", default="", doc="The protocol that all support, chosen by most."
    )
    leader: str = field(string, default="", doc="The member that assigns.")
    skip_assignment: bool = field(
        boolean, versions="9+", default=False, doc="Whether the leader leaves the assignment as it is."
    )
    member_id: str = field(string, default="", doc="The id to be known by.")
    members: list[JoinGroupResponseMember] = field(
        array(JoinGroupResponseMember), default_factory=list, doc="All of them, for the leader only."
    )

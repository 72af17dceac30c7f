"""SyncGroup (key 14): the leader of a generation says who gets what; every member is told its part.

Version 1 tells of throttling, 3 knows static members (KIP-345), 4 is flexible, 5 checks type and name of the protocol
(KIP-559).
"""

from __future__ import annotations

from tidelog.wire.schema import array, bytes_, field, int16, int32, message, string, struct


@struct
class SyncGroupRequestAssignment:
    """What one member gets."""

    member_id: str = field(string, doc="The member.")
    assignment: bytes = field(bytes_, doc="Its part, for it alone to read.")


@message(api_key=14, versions="0-5", flexible="4+")
class SyncGroupRequest:
    """Answered when the leader has said it."""

    group_id: str = field(string, doc="The group.")
    generation_id: int = field(int32, doc="As JoinGroup answered.")
    member_id: str = field(string, doc="As JoinGroup answered.")
    group_instance_id: str | None = field(
        string, versions="3+", nullable="3+", default=None, doc="The static member's name (KIP-345)."
    )
    protocol_type: str | None = field(
        string, versions="5+", nullable="5+", default=None, ignorable=True, doc="What the member believes it is."
    )
    protocol_name: str | None = field(
        string, versions="5+", nullable="5+", default=None, ignorable=True, doc="What the member believes was chosen."
    )
    assignments: list[SyncGroupRequestAssignment] = field(
        array(SyncGroupRequestAssignment), default_factory=list, doc="From the leader only."
    )


@message(api_key=14, versions="0-5", flexible="4+")
class SyncGroupResponse:
    """The member's part."""

    throttle_time_ms: int = field(int32, versions="1+", default=0, ignorable=True, doc="How long it was held back.")
    error_code: int = field(int16, default=0, doc="0 if it has one.")
    protocol_type: str | None = field(
        string, versions="5+", nullable="5+", default=None, ignorable=True, doc="The group's."
    )
    protocol_name: str | None = field(
        string, versions="5+", nullable="5+", default=None, ignorable=True, doc="The protocol chosen."
    )
    assignment: bytes = field(bytes_, default=b"", doc="What the leader gave it.")

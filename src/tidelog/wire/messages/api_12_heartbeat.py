"""Heartbeat (key 12): a member of a classic group is alive, and learns whether it must rejoin.

Version 1 tells of throttling, 3 knows static members (KIP-345), 4 is flexible.
"""

from __future__ import annotations

from tidelog.wire.schema import field, int16, int32, message, string


@message(api_key=12, versions="0-4", flexible="4+")
class HeartbeatRequest:
    """Sent some times within each session time-out."""

    group_id: str = field(string, doc="The group.")
    generation_id: int = field(int32, doc="The generation the member believes is current.")
    member_id: str = field(string, doc="As JoinGroup answered.")
    group_instance_id: str | None = field(
        string, versions="3+", nullable="3+", default=None, doc="The static member's name (KIP-345)."
    )


@message(api_key=12, versions="0-4", flexible="4+")
class HeartbeatResponse:
    """REBALANCE_IN_PROGRESS asks it to rejoin."""

    throttle_time_ms: int = field(int32, versions="1+", default=0, ignorable=True, doc="How long it was held back.")
    error_code: int = field(int16, default=0, doc="0 if all is as the member believes.")

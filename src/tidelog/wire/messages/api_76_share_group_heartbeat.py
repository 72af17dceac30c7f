"""ShareGroupHeartbeat (key 76): a consumer joins a share group, stays in it, and learns what it reads (KIP-932)."""

from __future__ import annotations

from uuid import UUID

from tidelog.wire.schema import array, field, int16, int32, message, string, struct, uuid


@message(api_key=76, versions="1", flexible="0+")
class ShareGroupHeartbeatRequest:
    """The consumer lives. What has not changed since its last heartbeat may be None."""

    group_id: str = field(string, doc="The group.")
    member_id: str = field(string, doc="The member, as it chose to call itself.")
    member_epoch: int = field(int32, doc="As the member believes; 0 to join, -1 to leave.")
    rack_id: str | None = field(string, nullable="0+", default=None, doc="Where it stands.")
    subscribed_topic_names: list[str] | None = field(
        array(string), nullable="0+", default=None, doc="The topics it subscribes to."
    )


@struct
class ShareGroupHeartbeatPartitions:
    """Partitions of one topic."""

    topic_id: UUID = field(uuid, doc="The topic's id.")
    partitions: list[int] = field(array(int32), default_factory=list, doc="The partitions.")


@struct
class ShareGroupHeartbeatAssignment:
    """What a member is to read, together with others."""

    topic_partitions: list[ShareGroupHeartbeatPartitions] = field(
        array(ShareGroupHeartbeatPartitions), default_factory=list, doc="The partitions."
    )


@message(api_key=76, versions="1", flexible="0+")
class ShareGroupHeartbeatResponse:
    """How the coordinator sees the member."""

    throttle_time_ms: int = field(int32, default=0, doc="How long it was held back.")
    error_code: int = field(int16, default=0, doc="0 if it is a member.")
    error_message: str | None = field(string, nullable="0+", default=None, doc="What went wrong.")
    member_id: str | None = field(string, nullable="0+", default=None, doc="Its id.")
    member_epoch: int = field(int32, default=0, doc="Its epoch.")
    heartbeat_interval_ms: int = field(int32, default=0, doc="How long to wait before the next heartbeat.")
    assignment: ShareGroupHeartbeatAssignment | None = field(
        ShareGroupHeartbeatAssignment, nullable="0+", default=None, doc="What it is to read; None: as before."
    )

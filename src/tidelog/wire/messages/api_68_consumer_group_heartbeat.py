"""ConsumerGroupHeartbeat (key 68): a consumer joins a group, stays in it, and learns what it reads (KIP-848).

Version 1 can subscribe to a pattern, and demands that the consumer choose its own member id (KIP-1082).
"""

from __future__ import annotations

from uuid import UUID

from tidelog.wire.schema import array, field, int16, int32, message, string, struct, uuid

JOIN_MEMBER_EPOCH = 0
LEAVE_MEMBER_EPOCH = -1
LEAVE_STATIC_MEMBER_EPOCH = -2
"""A static member leaves, and means to come back: its partitions are kept for it."""


@struct
class ConsumerGroupHeartbeatPartitions:
    """Partitions of one topic."""

    topic_id: UUID = field(uuid, doc="The topic's id.")
    partitions: list[int] = field(array(int32), default_factory=list, doc="The partitions.")


@message(api_key=68, versions="0-1", flexible="0+")
class ConsumerGroupHeartbeatRequest:
    """The consumer lives. What has not changed since its last heartbeat may be left out: None, or -1."""

    group_id: str = field(string, doc="The group.")
    member_id: str = field(string, default="", doc="The member. In version 0 the coordinator chooses one for an empty.")
    member_epoch: int = field(int32, doc="As the member believes; or one of the constants above.")
    instance_id: str | None = field(string, nullable="0+", default=None, doc="The static member's name (KIP-345).")
    rack_id: str | None = field(string, nullable="0+", default=None, doc="Where it stands.")
    rebalance_timeout_ms: int = field(int32, default=-1, doc="How long it may take to give partitions up.")
    subscribed_topic_names: list[str] | None = field(
        array(string), nullable="0+", default=None, doc="The topics it subscribes to."
    )
    subscribed_topic_regex: str | None = field(
        string, versions="1+", nullable="1+", default=None, doc="An RE2 pattern of topics it subscribes to."
    )
    server_assignor: str | None = field(string, nullable="0+", default=None, doc='The assignor it wants, as "uniform".')
    topic_partitions: list[ConsumerGroupHeartbeatPartitions] | None = field(
        array(ConsumerGroupHeartbeatPartitions), nullable="0+", default=None, doc="What it reads."
    )


@struct
class ConsumerGroupHeartbeatAssignment:
    """What a member is to read."""

    topic_partitions: list[ConsumerGroupHeartbeatPartitions] = field(
        array(ConsumerGroupHeartbeatPartitions), default_factory=list, doc="The partitions that it may read now."
    )


@message(api_key=68, versions="0-1", flexible="0+")
class ConsumerGroupHeartbeatResponse:
    """How the coordinator sees the member."""

    throttle_time_ms: int = field(int32, default=0, doc="How long it was held back.")
    error_code: int = field(int16, default=0, doc="0 if it is a member.")
    error_message: str | None = field(string, nullable="0+", default=None, doc="What went wrong.")
    member_id: str | None = field(string, nullable="0+", default=None, doc="Its id.")
    member_epoch: int = field(int32, default=0, doc="Its epoch.")
    heartbeat_interval_ms: int = field(int32, default=0, doc="How long to wait before the next heartbeat.")
    assignment: ConsumerGroupHeartbeatAssignment | None = field(
        ConsumerGroupHeartbeatAssignment, nullable="0+", default=None, doc="What it is to read; None: as before."
    )

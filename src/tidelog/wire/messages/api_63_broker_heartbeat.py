"""BrokerHeartbeat (key 63): a broker tells the controller that it lives, and how far it is (KIP-631).

Version 1 names directories that failed (KIP-858), 2 those that are cordoned (KIP-1066). All are flexible.
"""

from __future__ import annotations

from uuid import UUID

from tidelog.wire.schema import array, boolean, field, int16, int32, int64, message, uuid


@message(api_key=63, versions="0-2", flexible="0+")
class BrokerHeartbeatRequest:
    """The broker lives."""

    broker_id: int = field(int32, doc="The broker.")
    broker_epoch: int = field(int64, default=-1, doc="Its incarnation.")
    current_metadata_offset: int = field(int64, doc="The last offset of the metadata log that it has applied.")
    want_fence: bool = field(boolean, default=False, doc="Whether it is not ready to lead.")
    want_shut_down: bool = field(boolean, default=False, doc="Whether it wants to stop, once it leads nothing.")
    offline_log_dirs: list[UUID] = field(
        array(uuid), versions="1+", tag=0, default_factory=list, ignorable=True, doc="The directories that failed."
    )
    cordoned_log_dirs: list[UUID] | None = field(
        array(uuid),
        versions="2+",
        nullable="2+",
        tag=1,
        default=None,
        doc="The directories where no new log may be put; None while the broker does not know them yet.",
    )


@message(api_key=63, versions="0-2", flexible="0+")
class BrokerHeartbeatResponse:
    """How the controller sees the broker."""

    throttle_time_ms: int = field(int32, default=0, doc="How long it was held back.")
    error_code: int = field(int16, default=0, doc="0 if the heartbeat counted.")
    is_caught_up: bool = field(boolean, default=False, doc="Whether it has applied its own registration.")
    is_fenced: bool = field(boolean, default=True, doc="Whether it may lead nothing.")
    should_shut_down: bool = field(boolean, default=False, doc="Whether it leads nothing any more, and may stop.")

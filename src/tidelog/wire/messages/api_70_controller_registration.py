"""ControllerRegistration (key 70): a controller tells the active one where it listens and what it can run (KIP-919)."""

from __future__ import annotations

from uuid import UUID

from tidelog.wire.schema import array, boolean, field, int16, int32, message, string, struct, uint16, uuid


@struct
class ControllerListener:
    """Where the controller listens, under one listener name."""

    name: str = field(string, doc="The listener's name.")
    host: str = field(string, doc="The host that others reach it by.")
    port: int = field(uint16, doc="Its port.")
    security_protocol: int = field(int16, default=0, doc="0: plain; 1: TLS; 2: SASL; 3: SASL over TLS.")


@struct
class ControllerFeature:
    """A feature that the controller can run with (KIP-584)."""

    name: str = field(string, doc="The feature, as `metadata.version`.")
    min_supported_version: int = field(int16, doc="The lowest level.")
    max_supported_version: int = field(int16, doc="The highest level.")


@message(api_key=70, versions="0", flexible="0+")
class ControllerRegistrationRequest:
    """What a controller is, when it starts."""

    controller_id: int = field(int32, doc="The controller.")
    incarnation_id: UUID = field(uuid, doc="Of this process: a request that is sent again is no other incarnation.")
    zk_migration_ready: bool = field(boolean, default=False, doc="Never, here.")
    listeners: list[ControllerListener] = field(
        array(ControllerListener), default_factory=list, doc="Where it listens."
    )
    features: list[ControllerFeature] = field(
        array(ControllerFeature), default_factory=list, doc="What it can run with."
    )


@message(api_key=70, versions="0", flexible="0+")
class ControllerRegistrationResponse:
    """Whether it is registered."""

    throttle_time_ms: int = field(int32, default=0, doc="How long it was held back.")
    error_code: int = field(int16, default=0, doc="0 if it is.")
    error_message: str | None = field(string, nullable="0+", default="", doc="Why not, in words.")

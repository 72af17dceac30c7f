"""FindCoordinator (key 10): which broker coordinates a group or a transactional id.

Version 1 knows transactional ids, 3 is flexible, 4 asks for several at once (KIP-699), 5 may answer
TRANSACTION_ABORTABLE (KIP-890), 6 knows share groups (KIP-932).
"""

from __future__ import annotations

from tidelog.wire.schema import array, field, int8, int16, int32, message, string, struct

KEY_TYPE_GROUP = 0
KEY_TYPE_TRANSACTION = 1
KEY_TYPE_SHARE = 2


@message(api_key=10, versions="0-6", flexible="3+")
class FindCoordinatorRequest:
    """Ask any broker who coordinates."""

    key: str = field(string, versions="0-3", default="", doc="The group, or the transactional id.")
    key_type: int = field(int8, versions="1+", default=KEY_TYPE_GROUP, doc="KEY_TYPE_GROUP and so on.")
    coordinator_keys: list[str] = field(
        array(string), versions="4+", default_factory=list, doc="The groups, or the transactional ids."
    )


@struct
class Coordinator:
    """Who coordinates one of them."""

    key: str = field(string, doc="The group, or the transactional id.")
    node_id: int = field(int32, default=-1, doc="The broker, or -1.")
    host: str = field(string, default="", doc="Its host, on the listener that the client used.")
    port: int = field(int32, default=-1, doc="Its port.")
    error_code: int = field(int16, default=0, doc="0 if there is a coordinator.")
    error_message: str | None = field(string, nullable="4+", default=None, ignorable=True, doc="Why there is none.")


@message(api_key=10, versions="0-6", flexible="3+")
class FindCoordinatorResponse:
    """The coordinators."""

    throttle_time_ms: int = field(int32, versions="1+", default=0, ignorable=True, doc="How long it was held back.")
    error_code: int = field(int16, versions="0-3", default=0, doc="0 if there is a coordinator.")
    error_message: str | None = field(
        string, versions="1-3", nullable="1-3", default=None, ignorable=True, doc="Why there is none."
    )
    node_id: int = field(int32, versions="0-3", default=-1, ignorable=True, doc="The broker, or -1.")
    host: str = field(string, versions="0-3", default="", doc="Its host, on the listener that the client used.")
    port: int = field(int32, versions="0-3", default=-1, ignorable=True, doc="Its port.")
    coordinators: list[Coordinator] = field(
        array(Coordinator), versions="4+", default_factory=list, doc="One answer per key."
    )

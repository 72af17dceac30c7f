"""DescribeCluster (key 60, KIP-700): the cluster's id, its brokers, its controller.

All versions are flexible. Version 1 describes brokers or controllers (KIP-919), 2 fenced brokers too (KIP-1073).
"""

from __future__ import annotations

from tidelog.wire.schema import array, boolean, field, int8, int16, int32, message, string, struct

ENDPOINT_BROKERS = 1
ENDPOINT_CONTROLLERS = 2

AUTHORIZED_OPERATIONS_UNASKED = -0x8000_0000
"""What stands for authorized operations that were not asked for."""


@message(api_key=60, versions="0-2", flexible="0+")
class DescribeClusterRequest:
    """Ask any broker about the cluster."""

    include_cluster_authorized_operations: bool = field(
        boolean, default=False, doc="Whether to answer what the asker may do with the cluster."
    )
    endpoint_type: int = field(int8, versions="1+", default=ENDPOINT_BROKERS, doc="Whose addresses are wanted.")
    include_fenced_brokers: bool = field(boolean, versions="2+", default=False, doc="Whether to list those too.")


@struct
class DescribeClusterBroker:
    """A broker, or a controller."""

    broker_id: int = field(int32, doc="Its id.")
    host: str = field(string, doc="Its host.")
    port: int = field(int32, doc="Its port.")
    rack: str | None = field(string, nullable="0+", default=None, doc="Its rack, if it has one.")
    is_fenced: bool = field(
        boolean, versions="2+", default=False, ignorable=True, doc="Whether it may not serve at the moment."
    )


@message(api_key=60, versions="0-2", flexible="0+")
class DescribeClusterResponse:
    """What the broker knows of the cluster."""

    throttle_time_ms: int = field(int32, default=0, doc="How long it was held back.")
    error_code: int = field(int16, default=0, doc="Of the answer as a whole.")
    error_message: str | None = field(string, nullable="0+", default=None, doc="What went wrong.")
    endpoint_type: int = field(
        int8, versions="1+", default=ENDPOINT_BROKERS, ignorable=True, doc="Whose addresses these are."
    )
    cluster_id: str = field(string, default="", doc="The cluster.")
    controller_id: int = field(int32, default=-1, doc="A broker that takes requests for the controller, or -1.")
    brokers: list[DescribeClusterBroker] = field(array(DescribeClusterBroker), default_factory=list, doc="The nodes.")
    cluster_authorized_operations: int = field(
        int32, default=AUTHORIZED_OPERATIONS_UNASKED, doc="Bits by the number of the operation."
    )

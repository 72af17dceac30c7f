"""Metadata (key 3): the brokers, and the topics with their partitions and leaders.

Version 1 asks for all topics with null (0: with none named), 4 says whether missing ones may be created, 5 answers
offline replicas, 7 leader epochs (KIP-320), 8 authorized operations (KIP-430), 9 is flexible, 10 carries topic ids
(KIP-516), 12 asks by them, 13 has an error for the whole answer.
"""

from __future__ import annotations

from uuid import UUID

from tidelog.wire.primitives import ZERO_UUID
from tidelog.wire.schema import array, boolean, field, int16, int32, message, string, struct, uuid

AUTHORIZED_OPERATIONS_UNASKED = -0x8000_0000
"""What stands for authorized operations that were not asked for."""


@struct(kw_only=True)
class MetadataRequestTopic:
    """A topic by its name, or by its id from version 12."""

    topic_id: UUID = field(uuid, versions="10+", default=ZERO_UUID, ignorable=True, doc="Used if there is no name.")
    name: str | None = field(string, nullable="10+", default=None, doc="None only in version 12 and later.")


@message(api_key=3, versions="0-13", flexible="9+")
class MetadataRequest:
    """Ask any broker about the cluster."""

    topics: list[MetadataRequestTopic] | None = field(
        array(MetadataRequestTopic), nullable="1+", default=None, doc="None: all (in version 0: an empty list)."
    )
    allow_auto_topic_creation: bool = field(
        boolean, versions="4+", default=True, doc="Whether the broker may create what is missing, if it is set up to."
    )
    include_cluster_authorized_operations: bool = field(
        boolean, versions="8-10", default=False, doc="Later versions ask DescribeCluster."
    )
    include_topic_authorized_operations: bool = field(
        boolean, versions="8+", default=False, doc="Whether to answer what the asker may do with each topic."
    )


@struct
class MetadataResponseBroker:
    """A broker that is alive."""

    node_id: int = field(int32, doc="Its id.")
    host: str = field(string, doc="Its host, on the listener that the client used.")
    port: int = field(int32, doc="Its port.")
    rack: str | None = field(
        string, versions="1+", nullable="1+", default=None, ignorable=True, doc="Its rack, if it has one."
    )


@struct(kw_only=True)
class MetadataResponsePartition:
    """A partition: who leads, who replicates."""

    error_code: int = field(int16, default=0, doc="LEADER_NOT_AVAILABLE while there is no leader.")
    partition_index: int = field(int32, doc="The partition.")
    leader_id: int = field(int32, default=-1, doc="The leader, or -1.")
    leader_epoch: int = field(int32, versions="7+", default=-1, ignorable=True, doc="The leader epoch, or -1.")
    replica_nodes: list[int] = field(array(int32), default_factory=list, doc="All replicas, the preferred one first.")
    isr_nodes: list[int] = field(array(int32), default_factory=list, doc="The replicas that are in sync.")
    offline_replicas: list[int] = field(
        array(int32), versions="5+", default_factory=list, ignorable=True, doc="The replicas that are not available."
    )


@struct(kw_only=True)
class MetadataResponseTopic:
    """A topic that was asked for, or the error that it meets."""

    error_code: int = field(int16, default=0, doc="0 if it is there.")
    name: str | None = field(string, nullable="12+", default=None, doc="None if it was asked for by an unknown id.")
    topic_id: UUID = field(uuid, versions="10+", default=ZERO_UUID, ignorable=True, doc="Its id.")
    is_internal: bool = field(boolean, versions="1+", default=False, ignorable=True, doc="Kept by the cluster itself.")
    partitions: list[MetadataResponsePartition] = field(
        array(MetadataResponsePartition), default_factory=list, doc="Its partitions."
    )
    topic_authorized_operations: int = field(
        int32,
        versions="8+",
        default=AUTHORIZED_OPERATIONS_UNASKED,
        ignorable=True,
        doc="Bits by the number of the operation.",
    )


@message(api_key=3, versions="0-13", flexible="9+")
class MetadataResponse:
    """What the broker knows of the cluster."""

    throttle_time_ms: int = field(int32, versions="3+", default=0, ignorable=True, doc="How long it was held back.")
    brokers: list[MetadataResponseBroker] = field(
        array(MetadataResponseBroker), default_factory=list, doc="The brokers that are alive."
    )
    cluster_id: str | None = field(
        string, versions="2+", nullable="2+", default=None, ignorable=True, doc="The cluster."
    )
    controller_id: int = field(
        int32, versions="1+", default=-1, ignorable=True, doc="A broker that takes requests for the controller, or -1."
    )
    topics: list[MetadataResponseTopic] = field(array(MetadataResponseTopic), default_factory=list, doc="The topics.")
    cluster_authorized_operations: int = field(
        int32,
        versions="8-10",
        default=AUTHORIZED_OPERATIONS_UNASKED,
        ignorable=True,
        doc="Bits by the number of the operation.",
    )
    error_code: int = field(int16, versions="13+", default=0, ignorable=True, doc="Of the answer as a whole.")

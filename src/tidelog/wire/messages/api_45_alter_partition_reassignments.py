"""AlterPartitionReassignments (key 45): move partitions to other replicas, or give up moving them (KIP-455).

Version 1 may insist on as many replicas as there are (KIP-860). All are flexible.
"""

from __future__ import annotations

from tidelog.wire.schema import array, boolean, field, int16, int32, message, string, struct


@struct
class ReassignablePartition:
    """Who is to hold one partition."""

    partition_index: int = field(int32, doc="The partition.")
    replicas: list[int] | None = field(
        array(int32),
        nullable="0+",
        default=None,
        doc="Its replicas, the preferred leader first; None to cancel the reassignment that is under way.",
    )


@struct
class ReassignableTopic:
    """Partitions of one topic."""

    name: str = field(string, doc="The topic's name.")
    partitions: list[ReassignablePartition] = field(array(ReassignablePartition), doc="The partitions.")


@message(api_key=45, versions="0-1", flexible="0+")
class AlterPartitionReassignmentsRequest:
    """Begin reassignments, or cancel them."""

    timeout_ms: int = field(int32, default=60_000, doc="How long to wait for the answer.")
    allow_replication_factor_change: bool = field(
        boolean, versions="1+", default=True, doc="Whether partitions may get more replicas, or fewer."
    )
    topics: list[ReassignableTopic] = field(array(ReassignableTopic), default_factory=list, doc="The topics.")


@struct
class ReassignablePartitionResponse:
    """What became of one partition."""

    partition_index: int = field(int32, doc="The partition.")
    error_code: int = field(int16, default=0, doc="0 if it was begun, or cancelled.")
    error_message: str | None = field(string, nullable="0+", default=None, doc="Why it was not.")


@struct
class ReassignableTopicResponse:
    """The partitions of one topic."""

    name: str = field(string, doc="The topic's name.")
    partitions: list[ReassignablePartitionResponse] = field(array(ReassignablePartitionResponse), doc="The partitions.")


@message(api_key=45, versions="0-1", flexible="0+")
class AlterPartitionReassignmentsResponse:
    """One answer per partition, unless the request was refused as a whole."""

    throttle_time_ms: int = field(int32, default=0, doc="How long it was held back.")
    allow_replication_factor_change: bool = field(boolean, versions="1+", default=True, doc="As in the request.")
    error_code: int = field(int16, default=0, doc="Why the whole request was refused.")
    error_message: str | None = field(string, nullable="0+", default=None, doc="The same in words.")
    responses: list[ReassignableTopicResponse] = field(
        array(ReassignableTopicResponse), default_factory=list, doc="The topics."
    )

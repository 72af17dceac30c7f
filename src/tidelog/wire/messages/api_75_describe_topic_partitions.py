"""DescribeTopicPartitions (key 75): topics and their partitions, piece by piece (KIP-966)."""

from __future__ import annotations

from uuid import UUID

from tidelog.wire.primitives import ZERO_UUID
from tidelog.wire.schema import array, boolean, field, int16, int32, message, string, struct, uuid

UNKNOWN_OPERATIONS = -(1 << 31)


@struct
class TopicRequest:
    """A topic."""

    name: str = field(string, doc="Its name.")


@struct
class Cursor:
    """Where to go on: topics are answered in the order of their names."""

    topic_name: str = field(string, doc="The first topic.")
    partition_index: int = field(int32, doc="The first of its partitions.")


@message(api_key=75, versions="0", flexible="0+")
class DescribeTopicPartitionsRequest:
    """Ask for topics, or for the rest of what was asked before."""

    topics: list[TopicRequest] = field(array(TopicRequest), doc="The topics; empty: all of them.")
    response_partition_limit: int = field(int32, default=2000, doc="How many partitions to answer at most.")
    cursor: Cursor | None = field(Cursor, nullable="0+", default=None, doc="Where to start; None: at the beginning.")


@struct(kw_only=True)
class DescribeTopicPartitionsResponsePartition:
    """One partition."""

    error_code: int = field(int16, default=0, doc="Why it cannot be used now, or 0.")
    partition_index: int = field(int32, doc="The partition.")
    leader_id: int = field(int32, doc="Its leader, or -1.")
    leader_epoch: int = field(int32, default=-1, ignorable=True, doc="Its leader epoch.")
    replica_nodes: list[int] = field(array(int32), doc="Who holds it, the preferred leader first.")
    isr_nodes: list[int] = field(array(int32), doc="The in-sync replicas.")
    eligible_leader_replicas: list[int] | None = field(
        array(int32), nullable="0+", default=None, doc="Who may lead beside the ISR; None: not known."
    )
    last_known_elr: list[int] | None = field(
        array(int32), nullable="0+", default=None, doc="Who might lead after an unclean election; None: not known."
    )
    offline_replicas: list[int] = field(
        array(int32), default_factory=list, ignorable=True, doc="Replicas whose broker or disk is away."
    )


@struct(kw_only=True)
class DescribeTopicPartitionsResponseTopic:
    """One topic."""

    error_code: int = field(int16, default=0, doc="0 if it is there.")
    name: str | None = field(string, nullable="0+", doc="Its name.")
    topic_id: UUID = field(uuid, default=ZERO_UUID, ignorable=True, doc="Its id.")
    is_internal: bool = field(boolean, default=False, ignorable=True, doc="Whether the cluster uses it itself.")
    partitions: list[DescribeTopicPartitionsResponsePartition] = field(
        array(DescribeTopicPartitionsResponsePartition), default_factory=list, doc="Those that are answered here."
    )
    topic_authorized_operations: int = field(
        int32, default=UNKNOWN_OPERATIONS, doc="What the asker may do, a bit for each operation."
    )


@message(api_key=75, versions="0", flexible="0+")
class DescribeTopicPartitionsResponse:
    """As much as the limit allows."""

    throttle_time_ms: int = field(int32, default=0, ignorable=True, doc="How long it was held back.")
    topics: list[DescribeTopicPartitionsResponseTopic] = field(
        array(DescribeTopicPartitionsResponseTopic), doc="The topics, by name."
    )
    next_cursor: Cursor | None = field(Cursor, nullable="0+", default=None, doc="Where to go on; None: it is all.")

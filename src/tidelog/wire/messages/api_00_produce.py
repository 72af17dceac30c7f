"""Produce (key 0): append record batches to partitions.

Version 5 answers the log start offset, 7 allows zstd, 8 answers which records were refused, 9 is flexible, 10 tells the
new leader (KIP-951), 12 adds partitions to a transaction by producing to them (KIP-890), 13 names topics by id.
"""

from __future__ import annotations

from uuid import UUID

from tidelog.base.ports import Buffer
from tidelog.wire.primitives import ZERO_UUID
from tidelog.wire.schema import array, field, int16, int32, int64, message, records, string, struct, uuid


@struct
class PartitionProduceData:
    """What to append to one partition."""

    index: int = field(int32, doc="The partition.")
    records: Buffer | None = field(records, nullable="0+", default=None, doc="One batch (from version 3 on).")


@struct(kw_only=True)
class TopicProduceData:
    """The partitions of one topic."""

    name: str = field(string, versions="0-12", default="", ignorable=True, doc="The topic's name.")
    topic_id: UUID = field(uuid, versions="13+", default=ZERO_UUID, ignorable=True, doc="The topic's id.")
    partition_data: list[PartitionProduceData] = field(array(PartitionProduceData), doc="The partitions.")


@message(api_key=0, versions="3-13", flexible="9+")
class ProduceRequest:
    """Append to the partitions that the receiver leads."""

    transactional_id: str | None = field(
        string, versions="3+", nullable="3+", default=None, doc="None outside of transactions."
    )
    acks: int = field(int16, doc="0: answer nothing; 1: when the leader wrote it; -1: when all in-sync replicas did.")
    timeout_ms: int = field(int32, doc="How long to wait for the replicas.")
    topic_data: list[TopicProduceData] = field(array(TopicProduceData), doc="The topics.")


@struct
class BatchIndexAndErrorMessage:
    """A record for which its batch was refused (KIP-467)."""

    batch_index: int = field(int32, doc="The record's place in the batch, from 0.")
    batch_index_error_message: str | None = field(string, nullable="0+", default=None, doc="What is wrong with it.")


@struct
class LeaderIdAndEpoch:
    """Who leads now, for a client that asked the wrong broker (KIP-951)."""

    leader_id: int = field(int32, default=-1, doc="The leader, or -1 if there is none or it is not known.")
    leader_epoch: int = field(int32, default=-1, doc="The latest leader epoch known.")


@struct
class PartitionProduceResponse:
    """What became of one partition's batch."""

    index: int = field(int32, doc="The partition.")
    error_code: int = field(int16, default=0, doc="0 if it was appended.")
    base_offset: int = field(int64, default=-1, doc="The offset of the batch's first record; -1 on an error.")
    log_append_time_ms: int = field(
        int64, versions="2+", default=-1, ignorable=True, doc="The broker's time if the topic uses it, else -1."
    )
    log_start_offset: int = field(int64, versions="5+", default=-1, ignorable=True, doc="Where the log starts.")
    record_errors: list[BatchIndexAndErrorMessage] = field(
        array(BatchIndexAndErrorMessage), versions="8+", default_factory=list, ignorable=True, doc="Refused records."
    )
    error_message: str | None = field(
        string, versions="8+", nullable="8+", default=None, ignorable=True, doc="Why the batch was refused."
    )
    current_leader: LeaderIdAndEpoch | None = field(
        LeaderIdAndEpoch,
        versions="10+",
        tag=0,
        default=None,
        ignorable=True,
        doc="With NOT_LEADER_OR_FOLLOWER and FENCED_LEADER_EPOCH.",
    )


@struct(kw_only=True)
class TopicProduceResponse:
    """The partitions of one topic."""

    name: str = field(string, versions="0-12", default="", ignorable=True, doc="The topic's name.")
    topic_id: UUID = field(uuid, versions="13+", default=ZERO_UUID, ignorable=True, doc="The topic's id.")
    partition_responses: list[PartitionProduceResponse] = field(array(PartitionProduceResponse), doc="The partitions.")


@struct
class NodeEndpoint:
    """Where a leader named in the same response is (KIP-951)."""

    node_id: int = field(int32, doc="The broker.")
    host: str = field(string, doc="Its host, on the listener that the client used.")
    port: int = field(int32, doc="Its port.")
    rack: str | None = field(string, nullable="0+", default=None, doc="Its rack, if it has one.")


@message(api_key=0, versions="3-13", flexible="9+")
class ProduceResponse:
    """One answer per partition. There is none to a request with acks=0."""

    responses: list[TopicProduceResponse] = field(array(TopicProduceResponse), doc="The topics.")
    throttle_time_ms: int = field(int32, versions="1+", default=0, ignorable=True, doc="How long it was held back.")
    node_endpoints: list[NodeEndpoint] = field(
        array(NodeEndpoint),
        versions="10+",
        tag=0,
        default_factory=list,
        ignorable=True,
        doc="Of the leaders in `current_leader`.",
    )

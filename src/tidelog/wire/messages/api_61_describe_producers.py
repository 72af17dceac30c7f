"""DescribeProducers (key 61): who writes to partitions, and which transactions are open there (KIP-664)."""

from __future__ import annotations

from tidelog.wire.schema import array, field, int16, int32, int64, message, string, struct


@struct
class DescribeProducersTopic:
    """The partitions of one topic."""

    name: str = field(string, doc="The topic's name.")
    partition_indexes: list[int] = field(array(int32), default_factory=list, doc="The partitions.")


@message(api_key=61, versions="0", flexible="0+")
class DescribeProducersRequest:
    """Ask the leaders of partitions."""

    topics: list[DescribeProducersTopic] = field(array(DescribeProducersTopic), default_factory=list, doc="The topics.")


@struct(kw_only=True)
class DescribedProducerState:
    """What a partition remembers of one producer."""

    producer_id: int = field(int64, doc="The producer's id.")
    producer_epoch: int = field(int32, doc="Its epoch.")
    last_sequence: int = field(int32, default=-1, doc="The sequence number of its last record, or -1.")
    last_timestamp: int = field(int64, default=-1, doc="The timestamp of its last batch in ms, or -1.")
    coordinator_epoch: int = field(int32, doc="Of the coordinator that wrote its last marker; -1 if none did.")
    current_txn_start_offset: int = field(
        int64, default=-1, doc="The first offset of its open transaction; -1 without one."
    )


@struct(kw_only=True)
class DescribedProducersPartition:
    """The producers of one partition."""

    partition_index: int = field(int32, doc="The partition.")
    error_code: int = field(int16, default=0, doc="0 if they are listed.")
    error_message: str | None = field(string, nullable="0+", default=None, doc="Why not, in words.")
    active_producers: list[DescribedProducerState] = field(
        array(DescribedProducerState), default_factory=list, doc="The producers."
    )


@struct
class DescribedProducersTopic:
    """The partitions of one topic."""

    name: str = field(string, doc="The topic's name.")
    partitions: list[DescribedProducersPartition] = field(
        array(DescribedProducersPartition), default_factory=list, doc="The partitions."
    )


@message(api_key=61, versions="0", flexible="0+")
class DescribeProducersResponse:
    """The producers of each partition."""

    throttle_time_ms: int = field(int32, default=0, doc="How long it was held back.")
    topics: list[DescribedProducersTopic] = field(
        array(DescribedProducersTopic), default_factory=list, doc="The topics."
    )

"""AddPartitionsToTxn (key 24): partitions join a transaction.

Version 3 is flexible. From 4 on brokers send it, for many transactions at once, to add partitions or to look whether
they are in (KIP-890); before, producers do. 5 may answer TRANSACTION_ABORTABLE.
"""

from __future__ import annotations

from tidelog.wire.schema import array, boolean, field, int16, int32, int64, message, string, struct


@struct
class AddPartitionsToTxnTopic:
    """Partitions of one topic."""

    name: str = field(string, doc="Its name.")
    partitions: list[int] = field(array(int32), default_factory=list, doc="Their indexes.")


@struct(kw_only=True)
class AddPartitionsToTxnTransaction:
    """What one transaction asks."""

    transactional_id: str = field(string, versions="4+", doc="The id.")
    producer_id: int = field(int64, versions="4+", doc="Its producer.")
    producer_epoch: int = field(int16, versions="4+", doc="Its producer's epoch.")
    verify_only: bool = field(boolean, versions="4+", default=False, doc="Only look whether the partitions are in.")
    topics: list[AddPartitionsToTxnTopic] = field(
        array(AddPartitionsToTxnTopic), versions="4+", default_factory=list, doc="The partitions."
    )


@message(api_key=24, versions="0-5", flexible="3+")
class AddPartitionsToTxnRequest:
    """Add partitions to transactions, or look for them there."""

    transactions: list[AddPartitionsToTxnTransaction] = field(
        array(AddPartitionsToTxnTransaction), versions="4+", default_factory=list, doc="Which transactions."
    )
    v3_and_below_transactional_id: str = field(string, versions="0-3", default="", doc="The id.")
    v3_and_below_producer_id: int = field(int64, versions="0-3", default=0, doc="Its producer.")
    v3_and_below_producer_epoch: int = field(int16, versions="0-3", default=0, doc="Its producer's epoch.")
    v3_and_below_topics: list[AddPartitionsToTxnTopic] = field(
        array(AddPartitionsToTxnTopic), versions="0-3", default_factory=list, doc="The partitions."
    )


@struct(kw_only=True)
class AddPartitionsToTxnPartitionResult:
    """What became of one partition."""

    partition_index: int = field(int32, doc="The partition.")
    partition_error_code: int = field(int16, default=0, doc="0 if it is in the transaction.")


@struct(kw_only=True)
class AddPartitionsToTxnTopicResult:
    """What became of the partitions of one topic."""

    name: str = field(string, doc="Its name.")
    results_by_partition: list[AddPartitionsToTxnPartitionResult] = field(
        array(AddPartitionsToTxnPartitionResult), default_factory=list, doc="Each partition."
    )


@struct(kw_only=True)
class AddPartitionsToTxnResult:
    """What became of one transaction's partitions."""

    transactional_id: str = field(string, versions="4+", doc="The id.")
    topic_results: list[AddPartitionsToTxnTopicResult] = field(
        array(AddPartitionsToTxnTopicResult), versions="4+", default_factory=list, doc="By topic."
    )


@message(api_key=24, versions="0-5", flexible="3+")
class AddPartitionsToTxnResponse:
    """Which partitions are in."""

    throttle_time_ms: int = field(int32, default=0, ignorable=True, doc="How long it was held back.")
    error_code: int = field(int16, versions="4+", default=0, ignorable=True, doc="0 unless all of it was refused.")
    results_by_transaction: list[AddPartitionsToTxnResult] = field(
        array(AddPartitionsToTxnResult), versions="4+", default_factory=list, doc="By transaction."
    )
    results_by_topic_v3_and_below: list[AddPartitionsToTxnTopicResult] = field(
        array(AddPartitionsToTxnTopicResult), versions="0-3", default_factory=list, doc="By topic."
    )

"""AddPartitionsToTxn (key 24): partitions that a transaction is about to write to.

Version 2 may answer PRODUCER_FENCED, 3 is flexible and the last that producers send, 4 is for brokers, names several
transactions, and may only ask whether a partition is in one, 5 may answer TRANSACTION_ABORTABLE (both KIP-890).
"""

from __future__ import annotations

from tidelog.wire.schema import array, boolean, field, int16, int32, int64, message, string, struct


@struct
class AddPartitionsToTxnTopic:
    """The partitions of one topic."""

    name: str = field(string, doc="The topic's name.")
    partitions: list[int] = field(array(int32), default_factory=list, doc="The partitions.")


@struct(kw_only=True)
class AddPartitionsToTxnTransaction:
    """What one transaction is about to write to."""

    transactional_id: str = field(string, doc="Of its producer.")
    producer_id: int = field(int64, doc="The producer's id.")
    producer_epoch: int = field(int16, doc="The producer's epoch.")
    verify_only: bool = field(boolean, default=False, doc="Whether to look only: nothing is added.")
    topics: list[AddPartitionsToTxnTopic] = field(
        array(AddPartitionsToTxnTopic), default_factory=list, doc="The topics."
    )


@message(api_key=24, versions="0-5", flexible="3+")
class AddPartitionsToTxnRequest:
    """Add partitions to transactions, or ask whether they are in them."""

    transactions: list[AddPartitionsToTxnTransaction] = field(
        array(AddPartitionsToTxnTransaction), versions="4+", default_factory=list, doc="The transactions."
    )
    v3_and_below_transactional_id: str = field(string, versions="0-3", default="", doc="Of the one producer.")
    v3_and_below_producer_id: int = field(int64, versions="0-3", default=0, doc="Its id.")
    v3_and_below_producer_epoch: int = field(int16, versions="0-3", default=0, doc="Its epoch.")
    v3_and_below_topics: list[AddPartitionsToTxnTopic] = field(
        array(AddPartitionsToTxnTopic), versions="0-3", default_factory=list, doc="The topics of its transaction."
    )


@struct
class AddPartitionsToTxnPartitionResult:
    """Whether one partition is in the transaction now."""

    partition_index: int = field(int32, doc="The partition.")
    partition_error_code: int = field(int16, default=0, doc="0 if it is.")


@struct
class AddPartitionsToTxnTopicResult:
    """The partitions of one topic."""

    name: str = field(string, doc="The topic's name.")
    results_by_partition: list[AddPartitionsToTxnPartitionResult] = field(
        array(AddPartitionsToTxnPartitionResult), default_factory=list, doc="The partitions."
    )


@struct
class AddPartitionsToTxnResult:
    """What became of one transaction's partitions."""

    transactional_id: str = field(string, doc="Of its producer.")
    topic_results: list[AddPartitionsToTxnTopicResult] = field(
        array(AddPartitionsToTxnTopicResult), default_factory=list, doc="The topics."
    )


@message(api_key=24, versions="0-5", flexible="3+")
class AddPartitionsToTxnResponse:
    """What became of each partition. Where one is refused, none of its transaction is added."""

    throttle_time_ms: int = field(int32, default=0, doc="How long it was held back.")
    error_code: int = field(int16, versions="4+", default=0, ignorable=True, doc="Why the whole request was refused.")
    results_by_transaction: list[AddPartitionsToTxnResult] = field(
        array(AddPartitionsToTxnResult), versions="4+", default_factory=list, doc="The transactions."
    )
    results_by_topic_v3_and_below: list[AddPartitionsToTxnTopicResult] = field(
        array(AddPartitionsToTxnTopicResult),
        versions="0-3",
        default_factory=list,
        doc="The topics of the one transaction.",
    )

"""DescribeTransactions (key 65): how transactions stand with their coordinators (KIP-664)."""

from __future__ import annotations

from tidelog.wire.schema import array, field, int16, int32, int64, message, string, struct


@message(api_key=65, versions="0", flexible="0+")
class DescribeTransactionsRequest:
    """Ask the coordinator of the transactional ids."""

    transactional_ids: list[str] = field(array(string), default_factory=list, doc="The ids; none for no answer.")


@struct
class DescribedTransactionTopic:
    """The partitions of one topic."""

    topic: str = field(string, doc="The topic's name.")
    partitions: list[int] = field(array(int32), default_factory=list, doc="The partitions.")


@struct(kw_only=True)
class DescribedTransaction:
    """What its coordinator knows of one transactional id."""

    error_code: int = field(int16, default=0, doc="0 if it is described.")
    transactional_id: str = field(string, doc="The id.")
    transaction_state: str = field(string, default="", doc='As Kafka spells it, "Ongoing".')
    transaction_timeout_ms: int = field(int32, default=0, doc="After which it is aborted if it is still open.")
    transaction_start_time_ms: int = field(int64, default=0, doc="When it began; -1 if none is open.")
    producer_id: int = field(int64, default=0, doc="The producer's id.")
    producer_epoch: int = field(int16, default=0, doc="The producer's epoch.")
    topics: list[DescribedTransactionTopic] = field(
        array(DescribedTransactionTopic),
        default_factory=list,
        doc="What it has written to; while it ends, what has no marker yet.",
    )


@message(api_key=65, versions="0", flexible="0+")
class DescribeTransactionsResponse:
    """How each stands."""

    throttle_time_ms: int = field(int32, default=0, doc="How long it was held back.")
    transaction_states: list[DescribedTransaction] = field(
        array(DescribedTransaction), default_factory=list, doc="The transactions."
    )

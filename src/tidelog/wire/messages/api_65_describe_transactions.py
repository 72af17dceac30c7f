"""DescribeTransactions (key 65): where transactional ids stand."""

from __future__ import annotations

from tidelog.wire.schema import array, field, int16, int32, int64, message, string, struct


@message(api_key=65, versions="0", flexible="0+")
class DescribeTransactionsRequest:
    """Ask the coordinator of some ids."""

    transactional_ids: list[str] = field(array(string), default_factory=list, doc="Which.")


@struct(kw_only=True)
class TopicData:
    """Partitions of one topic."""

    topic: str = field(string, doc="Its name.")
    partitions: list[int] = field(array(int32), default_factory=list, doc="Their indexes.")


@struct(kw_only=True)
class TransactionState:
    """Where one id stands."""

    error_code: int = field(int16, default=0, doc="0 if it is known here.")
    transactional_id: str = field(string, doc="The id.")
    transaction_state: str = field(string, default="", doc="The name of its state.")
    transaction_timeout_ms: int = field(int32, default=0, doc="That its producer asked for.")
    transaction_start_time_ms: int = field(int64, default=0, doc="When it began, or -1.")
    producer_id: int = field(int64, default=0, doc="Its producer.")
    producer_epoch: int = field(int16, default=0, doc="Its producer's epoch.")
    topics: list[TopicData] = field(array(TopicData), default_factory=list, doc="Where its records lie.")


@message(api_key=65, versions="0", flexible="0+")
class DescribeTransactionsResponse:
    """One row for each id."""

    throttle_time_ms: int = field(int32, default=0, ignorable=True, doc="How long it was held back.")
    transaction_states: list[TransactionState] = field(array(TransactionState), default_factory=list, doc="The rows.")

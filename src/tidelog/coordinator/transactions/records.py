"""The records of `__transaction_state`, in Kafka's own formats, so that its tools read our log.

```
 key    version 0 │ transactional id
 value  version 0, or 1 from transaction.version 1 on (flexible) │ where it stands; none at all: a tombstone
```

Kafka: `TransactionLog`.
"""

from __future__ import annotations

from itertools import groupby
from struct import Struct

from tidelog.base.errors import CorruptLogError, KafkaError, MalformedMessageError
from tidelog.base.ids import PartitionIndex, ProducerEpoch, ProducerId, TopicPartition
from tidelog.coordinator.transactions.transaction import TRANSITIONS, Transaction, TransactionState
from tidelog.wire.compile import decode, encode
from tidelog.wire.schema import array, boolean, field, int8, int16, int32, int64, layout_of, message, string, struct

KEY_VERSION = 0
FLEXIBLE_VALUE_VERSION = 1

_VERSION = Struct(">h")


@message(api_key=0, versions="0", flexible="none", kind="data")
class TransactionLogKey:
    """Of which transactional id the value speaks."""

    transactional_id: str = field(string, doc="The id.")


@struct(kw_only=True)
class TransactionLogPartitions:
    """Partitions of one topic."""

    topic: str = field(string, doc="Its name.")
    partition_ids: list[int] = field(array(int32), default_factory=list, doc="Their indexes.")


@message(api_key=0, versions="0-1", flexible="1+", kind="data")
class TransactionLogValue:
    """Where a transactional id stands."""

    producer_id: int = field(int64, doc="That produces under it.")
    previous_producer_id: int = field(
        int64, versions="1+", tag=0, tagged="1+", default=-1, ignorable=True, doc="Before its epochs ran out, or -1."
    )
    next_producer_id: int = field(
        int64, versions="1+", tag=1, tagged="1+", default=-1, ignorable=True, doc="Once this end is complete, or -1."
    )
    producer_epoch: int = field(int16, doc="In force, or -1 before there is one.")
    transaction_timeout_ms: int = field(int32, doc="That the producer asked for.")
    transaction_status: int = field(int8, doc="The number of its state.")
    transaction_partitions: list[TransactionLogPartitions] | None = field(
        array(TransactionLogPartitions), nullable="0+", default_factory=list, doc="Where its records may lie."
    )
    transaction_last_update_timestamp_ms: int = field(int64, doc="When this was written.")
    transaction_start_timestamp_ms: int = field(int64, doc="When it began, or -1.")
    client_transaction_version: int = field(
        int16, versions="1+", tag=2, tagged="1+", default=0, ignorable=True, doc="As the producer speaks it (KIP-890)."
    )
    next_producer_epoch: int = field(
        int16,
        versions="1+",
        tag=3,
        tagged="1+",
        default=-1,
        ignorable=True,
        doc="Of two-phase commit (KIP-939), or -1.",
    )
    has_lost_records: bool = field(
        boolean,
        versions="1+",
        tag=10_320,
        tagged="1+",
        default=False,
        ignorable=True,
        doc="Ours: a partition may lack records of it, so it is not to be committed.",
    )


def transaction_key(transactional_id: str) -> bytes:
    """The key of an id."""
    return _VERSION.pack(KEY_VERSION) + encode(TransactionLogKey(transactional_id=transactional_id), KEY_VERSION)


def decode_key(key: bytes) -> str | None:
    """The transactional id in a key; None for a kind of record that this release does not know.

    Raises:
        CorruptLogError: it is not what it claims.
    """
    if len(key) < _VERSION.size:
        raise CorruptLogError(f"a key of {len(key)} bytes holds no version")
    if _VERSION.unpack_from(key)[0] != KEY_VERSION:
        return None
    try:
        read: TransactionLogKey = decode(TransactionLogKey, key, KEY_VERSION, _VERSION.size)
    except (MalformedMessageError, KafkaError) as error:
        raise CorruptLogError(f"TransactionLogKey: {error}") from error
    return read.transactional_id


def encode_transaction(transaction: Transaction, version: int) -> bytes:
    """The value of an id, in a version of its layout."""
    ordered = sorted(transaction.partitions)
    value = TransactionLogValue(
        producer_id=transaction.producer_id,
        previous_producer_id=_or_minus_one(transaction.previous_producer_id),
        next_producer_id=_or_minus_one(transaction.next_producer_id),
        producer_epoch=_or_minus_one(transaction.producer_epoch),
        transaction_timeout_ms=transaction.timeout_ms,
        transaction_status=transaction.state,
        # Null while it is Empty, and then only: Kafka's reader looks for a list in every other state.
        transaction_partitions=None
        if transaction.state is TransactionState.EMPTY
        else [
            TransactionLogPartitions(topic=topic, partition_ids=[one.partition for one in ones])
            for topic, ones in groupby(ordered, key=lambda one: one.topic)
        ],
        transaction_last_update_timestamp_ms=transaction.updated_ms,
        transaction_start_timestamp_ms=_or_minus_one(transaction.started_ms),
        client_transaction_version=transaction.client_version,
        has_lost_records=transaction.has_lost_records,
    )
    return _VERSION.pack(version) + encode(value, version)


def decode_transaction(transactional_id: str, data: bytes) -> Transaction:
    """The inverse.

    Raises:
        CorruptLogError: the bytes are no such value, or one of a version that this release does not know.
    """
    if len(data) < _VERSION.size:
        raise CorruptLogError(f"TransactionLogValue: {len(data)} bytes hold no version")
    (version,) = _VERSION.unpack_from(data)
    if version not in layout_of(TransactionLogValue).versions:
        raise CorruptLogError(f"TransactionLogValue has no version {version} in this release; was a newer one here?")
    try:
        read: TransactionLogValue = decode(TransactionLogValue, data, version, _VERSION.size)
        state = TransactionState(read.transaction_status)
    except (MalformedMessageError, KafkaError) as error:
        raise CorruptLogError(f"TransactionLogValue: {error}") from error
    except ValueError as error:
        raise CorruptLogError(f"TransactionLogValue: there is no state {read.transaction_status}") from error
    if state not in TRANSITIONS:
        raise CorruptLogError(f"TransactionLogValue: {state.label} is never written")
    if read.producer_epoch < 0 and state is not TransactionState.EMPTY:
        raise CorruptLogError(f"TransactionLogValue: {state.label} with no epoch")
    return Transaction(
        transactional_id=transactional_id,
        producer_id=ProducerId(read.producer_id),
        producer_epoch=None if read.producer_epoch < 0 else ProducerEpoch(read.producer_epoch),
        previous_producer_id=_id_or_none(read.previous_producer_id),
        next_producer_id=_id_or_none(read.next_producer_id),
        timeout_ms=read.transaction_timeout_ms,
        state=state,
        partitions=frozenset(
            TopicPartition(topic.topic, PartitionIndex(index))
            for topic in read.transaction_partitions or ()
            for index in topic.partition_ids
        ),
        started_ms=None if read.transaction_start_timestamp_ms < 0 else read.transaction_start_timestamp_ms,
        updated_ms=read.transaction_last_update_timestamp_ms,
        client_version=read.client_transaction_version,
        has_lost_records=read.has_lost_records,
    )


def _or_minus_one(value: int | None) -> int:
    return -1 if value is None else value


def _id_or_none(producer_id: int) -> ProducerId | None:
    return None if producer_id < 0 else ProducerId(producer_id)

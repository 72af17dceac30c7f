"""Which producer a transactional id belongs to, and what the others are told.

Kafka: `TransactionCoordinator.endTransaction`, `TransactionMetadata`.
"""

from __future__ import annotations

from tidelog.base.errors import Code, KafkaError, refusal
from tidelog.base.invariant import invariant
from tidelog.coordinator.transactions.transaction import EPOCH_MAX, PREPARED, Transaction
from tidelog.coordinator.transactions.values import ProducerIdentity


def identity_of(transaction: Transaction) -> ProducerIdentity:
    epoch = transaction.producer_epoch
    invariant(epoch is not None, "transactional id {} has no epoch", transaction.transactional_id)
    assert epoch is not None
    return ProducerIdentity(transaction.producer_id, epoch)


def check_producer(transaction: Transaction, producer: ProducerIdentity) -> None:
    """Raises KafkaError unless a producer is neither another's nor fenced; it may be the next one's already."""
    if _is_next(transaction, producer):
        return
    if producer.producer_id != transaction.producer_id:
        raise _wrong_mapping(transaction, producer)
    if producer.producer_epoch != transaction.producer_epoch:
        raise fenced(transaction, producer)


def is_known(transaction: Transaction, expected: ProducerIdentity) -> bool:
    """Whether a producer that names itself is this id's: the present one, the next, or one whose epochs ran out."""
    if transaction.producer_epoch is None or expected.producer_id == transaction.producer_id:
        return True
    if _is_next(transaction, expected):
        return True
    return expected.producer_id == transaction.previous_producer_id and expected.producer_epoch >= EPOCH_MAX - 1


def _is_next(transaction: Transaction, producer: ProducerIdentity) -> bool:
    """Whether a producer goes on under the id that takes over once the prepared end is complete.

    The answer to EndTxn named it, and leaves before that.
    """
    return (
        transaction.state in PREPARED
        and producer.producer_id == transaction.next_producer_id
        and producer.producer_epoch == 0
    )


def is_ended_by(transaction: Transaction, producer: ProducerIdentity) -> bool:
    """Whether a producer of version 2 asks again for what was answered, in an answer that it has not seen.

    The end bumped its epoch; or, with the last one, gave the id to another producer id.
    """
    if not transaction.bumps_epochs or transaction.producer_epoch is None:
        return False
    if producer.producer_id == transaction.producer_id:
        if transaction.producer_epoch == EPOCH_MAX and transaction.next_producer_id is None:
            return False  # a time-out or a newer instance ended it: nobody is to produce with the last epoch
        return producer.producer_epoch + 1 == transaction.producer_epoch
    return (
        producer.producer_id == transaction.previous_producer_id
        and producer.producer_epoch == EPOCH_MAX - 1
        and transaction.producer_epoch == 0
    )


def _wrong_mapping(transaction: Transaction, producer: ProducerIdentity) -> KafkaError:
    return refusal(
        Code.INVALID_PRODUCER_ID_MAPPING,
        f"transactional id {transaction.transactional_id!r} belongs to producer {transaction.producer_id}, not to "
        f"{producer.producer_id}",
    )


def fenced(transaction: Transaction, producer: ProducerIdentity) -> KafkaError:
    return refusal(
        Code.PRODUCER_FENCED,
        f"transactional id {transaction.transactional_id!r}: producer {producer.producer_id} sent epoch "
        f"{producer.producer_epoch}, in force is {transaction.producer_epoch} of producer {transaction.producer_id}: a "
        "newer instance has taken over, or its transaction timed out",
    )


def wrong_state(transaction: Transaction, commits: bool) -> KafkaError:
    what = "committed" if commits else "aborted"
    return refusal(
        Code.INVALID_TXN_STATE,
        f"transactional id {transaction.transactional_id!r} is {transaction.state.label}: nothing is to be {what}",
    )

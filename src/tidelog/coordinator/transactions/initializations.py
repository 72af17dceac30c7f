"""How a producer begins under a transactional id that has been used before (InitProducerId).

A producer that names itself goes on from its own epoch, never from another's. If the answer is lost, the producer asks
again with the epoch that it had, so that epoch is remembered. If the producer has a transaction open, it is aborted
first. The abort bumps the epoch, so the identity that asked for it is remembered until its producer has begun. Another
coordinator remembers nothing: there, whoever asks again is fenced.

Kafka: `TransactionMetadata.prepareIncrementProducerEpoch`.
"""

from __future__ import annotations

from tidelog.base.ids import ProducerEpoch
from tidelog.coordinator.transactions.checks import fenced, identity_of
from tidelog.coordinator.transactions.transaction import Transaction
from tidelog.coordinator.transactions.values import InitProducer, ProducerIdentity, needed


class Initializations:
    """Those of one coordinator."""

    def __init__(self) -> None:
        self._last_epochs: dict[str, ProducerEpoch] = {}  # before the latest bump by InitProducerId: for its retry
        self._resuming: dict[str, ProducerIdentity] = {}  # had their own transaction aborted to begin again

    def on_own_abort(self, transactional_id: str, producer: ProducerIdentity) -> None:
        """A producer has its open transaction aborted, to begin again."""
        self._resuming[transactional_id] = producer

    def begun(self, request: InitProducer, transaction: Transaction, wall_ms: int) -> Transaction | None:
        """How the id stands once the producer has begun.

        Args:
            transaction: as the id stands; neither open nor being ended.

        Returns:
            None if the request is repeated, and the id stands as its answer said.

        Raises:
            KafkaError: PRODUCER_FENCED.
            ProducerIdNeededError: the epochs of the producer id have run out.
        """
        transactional_id, expected = request.transactional_id, request.expected
        producer_id, epoch = transaction.producer_id, transaction.producer_epoch
        is_current = expected is None or epoch is None or expected == (producer_id, epoch)
        if expected is not None and not is_current and not self._resumes(transaction, expected):
            is_repeated = expected.producer_id in (producer_id, transaction.previous_producer_id)
            if is_repeated and self._last_epochs.get(transactional_id) == expected.producer_epoch:
                return None
            raise fenced(transaction, expected)
        if transaction.is_epoch_exhausted:
            producer_id, next_epoch = needed(request.fresh_producer_id), ProducerEpoch(0)
        else:
            next_epoch = ProducerEpoch(0 if epoch is None else epoch + 1)
        self.forget(transactional_id)
        if expected is not None and epoch is not None:
            self._last_epochs[transactional_id] = expected.producer_epoch
        return transaction.initialized(producer_id, next_epoch, timeout_ms=request.timeout_ms, wall_ms=wall_ms)

    def forget(self, transactional_id: str) -> None:
        """Nobody asks again under this id."""
        self._last_epochs.pop(transactional_id, None)
        self._resuming.pop(transactional_id, None)

    def _resumes(self, transaction: Transaction, expected: ProducerIdentity) -> bool:
        """Whether the abort that a producer asked for, to begin again, is all that came after its epoch."""
        if self._resuming.get(transaction.transactional_id) != expected:
            return False
        return identity_of(transaction) == (expected.producer_id, expected.producer_epoch + 1)

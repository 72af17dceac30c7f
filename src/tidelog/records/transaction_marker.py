"""The marker that ends a producer's transaction on a partition, before it is a batch."""

from __future__ import annotations

from dataclasses import dataclass

from tidelog.base.ids import LeaderEpoch, ProducerEpoch, ProducerId
from tidelog.records.control import end_transaction_batch


@dataclass(frozen=True, slots=True)
class TransactionMarker:
    """What a partition is to write: a producer's transaction ended there.

    Attributes:
        coordinator_epoch: the leader epoch of the coordinator's partition; an older one is refused.
        transaction_version: of the producer: from 2 on the marker's epoch must be above that of the records.
        number: rises from each end of a transaction to the next in a coordinator epoch; None where nobody counts.

    Kafka: `TxnMarkerEntry`.
    """

    producer_id: ProducerId
    producer_epoch: ProducerEpoch
    is_commit: bool
    coordinator_epoch: LeaderEpoch
    transaction_version: int
    number: int | None = None

    def batch(self, now_ms: int) -> bytes:
        """The control batch.

        Args:
            now_ms: since 1970.
        """
        return end_transaction_batch(
            committed=self.is_commit,
            producer_id=self.producer_id,
            producer_epoch=self.producer_epoch,
            coordinator_epoch=self.coordinator_epoch,
            timestamp_ms=now_ms,
        )

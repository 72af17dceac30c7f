"""The markers of prepared ends: which are under way, and which partitions lack theirs.

Kafka: `TransactionMarkerChannelManager`.
"""

from __future__ import annotations

from collections.abc import Iterator

from tidelog.base.ids import LeaderEpoch, TopicPartition
from tidelog.coordinator.transactions.transaction import Transaction, TransactionState
from tidelog.journal import Send, SendId
from tidelog.records.transaction_marker import TransactionMarker


class Markers:
    """Those of one coordinator.

    Args:
        numbers: rising, of its prepared ends. A coordinator that is loaded anew has the same epoch, and markers of the
            one before may still be under way: so it goes on with the numbers of that one.
    """

    def __init__(self, numbers: Iterator[int]) -> None:
        self._numbers = numbers
        self._last_send_id = 0
        self._sends: dict[SendId, tuple[str, TopicPartition]] = {}
        self._unmarked: dict[str, set[TopicPartition]] = {}

    def __len__(self) -> int:
        """How many are not known to be written."""
        return len(self._sends)

    def begin(self, transaction: Transaction, coordinator_epoch: LeaderEpoch) -> Iterator[Send]:
        """What to send for a prepared end, to each of its partitions."""
        epoch = transaction.producer_epoch
        assert epoch is not None
        marker = TransactionMarker(
            transaction.producer_id,
            epoch,
            transaction.state is TransactionState.PREPARE_COMMIT,
            coordinator_epoch,
            transaction.client_version,
            next(self._numbers),
        )
        self._unmarked[transaction.transactional_id] = set(transaction.partitions)
        for partition in sorted(transaction.partitions):
            self._last_send_id += 1
            send_id = SendId(self._last_send_id)
            self._sends[send_id] = transaction.transactional_id, partition
            yield Send(send_id, partition, marker)

    def take(self, send_id: SendId) -> tuple[str, TopicPartition] | None:
        """A send has an outcome: of which id and partition it was; None if it was asked before, or forgotten."""
        return self._sends.pop(send_id, None)

    def on_written(self, transactional_id: str, partition: TopicPartition) -> bool:
        """A partition needs its marker no more. Returns whether that was the last one of a prepared end."""
        unmarked = self._unmarked.get(transactional_id)
        if unmarked is None:
            return False
        unmarked.discard(partition)
        if unmarked:
            return False
        del self._unmarked[transactional_id]
        return True

    def forget(self) -> None:
        """The coordinator resigned; whoever follows sends them."""
        self._sends.clear()

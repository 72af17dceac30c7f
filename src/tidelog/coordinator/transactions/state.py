"""What the log of one partition of `__transaction_state` says: every transactional id in it, as it stands.

Kafka: `TransactionStateManager`.
"""

from __future__ import annotations

import sys
from typing import cast

from tidelog.coordinator.memory import CoordinatorMemory
from tidelog.coordinator.transactions.records import decode_key, decode_transaction
from tidelog.coordinator.transactions.transaction import Transaction
from tidelog.journal import KeyValue

ID_BYTES = 1_024
"""About what an id takes beside its name, with what is only known here."""
PARTITION_BYTES = 256
"""About what a partition of its transaction takes, with its marker."""


class RecordedTransactions:
    """A state for `Journal`; its records are keys and values as bytes.

    Attributes:
        transactions: by transactional id.
        size_bytes: about what they take.
    """

    def __init__(self) -> None:
        self.transactions: dict[str, Transaction] = {}
        self.size_bytes = 0
        self._memory = CoordinatorMemory(sys.maxsize)  # its own, until there is a coordinator

    def apply(self, record: object) -> None:
        """Take a record in. What is of no known kind is skipped."""
        key, value = cast(KeyValue, record)
        transactional_id = decode_key(key)
        if transactional_id is None:
            return
        before, after = self.transactions.get(transactional_id), None
        if value is None:
            self.transactions.pop(transactional_id, None)
        else:
            after = self.transactions[transactional_id] = decode_transaction(transactional_id, value)
        self._resize(size_bytes(after) - size_bytes(before))

    def charge(self, memory: CoordinatorMemory) -> None:
        """Have what it takes count there from now on."""
        self._memory.used_bytes -= self.size_bytes
        self._memory = memory
        memory.used_bytes += self.size_bytes

    def _resize(self, more_bytes: int) -> None:
        self.size_bytes += more_bytes
        self._memory.used_bytes += more_bytes

    def clone(self) -> RecordedTransactions:
        """A copy down to the transactions, which nobody changes."""
        copy = RecordedTransactions()
        copy.transactions = dict(self.transactions)
        copy._resize(self.size_bytes)
        return copy


def size_bytes(transaction: Transaction | None) -> int:
    """About what an id takes in memory; nothing where there is none."""
    if transaction is None:
        return 0
    return ID_BYTES + len(transaction.transactional_id) + PARTITION_BYTES * len(transaction.partitions)

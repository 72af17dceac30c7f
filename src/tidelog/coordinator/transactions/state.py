"""What the log of one partition of `__transaction_state` says: every transactional id in it, as it stands."""

from __future__ import annotations

from typing import cast

from tidelog.coordinator.transactions.records import decode_key, decode_transaction
from tidelog.coordinator.transactions.transaction import Transaction
from tidelog.journal import KeyValue


class RecordedTransactions:
    """A state for `Journal`; its records are keys and values as bytes.

    Attributes:
        transactions: by transactional id.
    """

    def __init__(self) -> None:
        self.transactions: dict[str, Transaction] = {}

    def apply(self, record: object) -> None:
        """Take a record in. What is of no known kind is skipped."""
        key, value = cast(KeyValue, record)
        transactional_id = decode_key(key)
        if transactional_id is None:
            return
        if value is None:
            self.transactions.pop(transactional_id, None)
        else:
            self.transactions[transactional_id] = decode_transaction(transactional_id, value)

    def clone(self) -> RecordedTransactions:
        """A copy down to the transactions, which nobody changes."""
        copy = RecordedTransactions()
        copy.transactions = dict(self.transactions)
        return copy

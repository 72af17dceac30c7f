"""Which transactional ids nobody has used for long (`transactional.id.expiration.ms`), looked for a few at a time.

Kafka: `TransactionStateManager.removeExpiredTransactionalIds`.
"""

from __future__ import annotations

from collections.abc import Mapping

from tidelog.coordinator.transactions.settings import TransactionSettings
from tidelog.coordinator.transactions.transaction import EXPIRABLE, Transaction

EXPIRY_STEP_MAX = 5_000
"""Ids looked at in one go, some milliseconds; others have their turn in between."""


class Expiry:
    """That of one coordinator.

    Attributes:
        due_ms: when to look next; None before `begin`.
    """

    def __init__(self, settings: TransactionSettings) -> None:
        self.due_ms: int | None = None
        self._settings = settings
        self._to_look_at: list[str] = []

    def begin(self, now_ms: int) -> None:
        """The coordinator is active."""
        self.due_ms = now_ms + self._settings.expiry_check_interval_ms

    def is_due(self, now_ms: int) -> bool:
        return self.due_ms is not None and now_ms >= self.due_ms

    def take_expired(self, transactions: Mapping[str, Transaction], now_ms: int, wall_ms: int) -> list[str]:
        """Look at the next ids, or begin with all anew. Returns those to be forgotten."""
        if not self._to_look_at:
            self._to_look_at = list(transactions)
        oldest_ms = wall_ms - self._settings.expiration_ms
        looked_at, self._to_look_at = self._to_look_at[:EXPIRY_STEP_MAX], self._to_look_at[EXPIRY_STEP_MAX:]
        self.due_ms = now_ms if self._to_look_at else now_ms + self._settings.expiry_check_interval_ms
        return [
            one for one in looked_at if (found := transactions.get(one)) is not None and _is_expired(found, oldest_ms)
        ]


def _is_expired(transaction: Transaction, oldest_ms: int) -> bool:
    return transaction.state in EXPIRABLE and transaction.updated_ms <= oldest_ms

"""What a transaction coordinator is told to do by the broker's settings. Kafka: `TransactionConfig`."""

from __future__ import annotations

from dataclasses import dataclass

MINUTE_MS = 60_000


@dataclass(frozen=True, slots=True)
class TransactionSettings:
    """Kafka's settings of transactions, and their defaults there.

    Attributes:
        timeout_ms_max: `transaction.max.timeout.ms`, inclusive.
        expiration_ms: `transactional.id.expiration.ms`, after which an id that nobody used is forgotten.
        expiry_check_interval_ms: `transaction.remove.expired.transaction.cleanup.interval.ms`.
    """

    timeout_ms_max: int = 15 * MINUTE_MS
    expiration_ms: int = 7 * 24 * 60 * MINUTE_MS
    expiry_check_interval_ms: int = 60 * MINUTE_MS

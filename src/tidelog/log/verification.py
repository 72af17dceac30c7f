"""Who asks whether a producer's transaction is known to its coordinator, before its first batch is appended (KIP-890).

```
 a batch that begins a transaction here ──► begin: a guard ──► the coordinator is asked ──► append, with the guard
                                                     ▲
            a marker, a first batch, a newer epoch   │   takes the guard back: the answer is about what was before
```

An answer that comes late would let records in behind the marker that ended their transaction, and nothing would ever
end them. It is held in memory only: whoever leads next asks again.

Kafka: `VerificationStateEntry`, `VerificationGuard`.
"""

from __future__ import annotations

from typing import Final

from tidelog.base.errors import Code, refusal
from tidelog.base.ids import ProducerEpoch, ProducerId
from tidelog.records.batch import BatchHeader

VERIFICATIONS_MAX = 10_000
"""Of one log. The oldest goes beyond that; its producer is refused, and asks again."""


class VerificationGuard:
    """Stands for one verification. It equals nothing but itself."""

    __slots__ = ()


NOT_VERIFIED: Final = VerificationGuard()
"""For an append whose caller verifies nothing: any batch may begin a transaction."""


class _Verification:
    """One producer's."""

    __slots__ = ("begun_ms", "guard", "lowest_sequence", "producer_epoch", "supports_epoch_bump")

    def __init__(self, sequence: int, producer_epoch: int, *, supports_epoch_bump: bool, now_ms: int) -> None:
        self.guard = VerificationGuard()
        self.producer_epoch = producer_epoch
        self.lowest_sequence = sequence
        self.supports_epoch_bump = supports_epoch_bump
        self.begun_ms = now_ms


class Verifications(dict[int, _Verification]):
    """Those of one log, by producer; empty as a rule, and every append asks whether it is."""

    __slots__ = ()

    def begin(
        self,
        producer_id: ProducerId,
        sequence: int,
        producer_epoch: ProducerEpoch,
        *,
        supports_epoch_bump: bool,
        now_ms: int,
    ) -> VerificationGuard:
        """The guard of what is verified now; the same one while it goes on for this epoch."""
        verification = self.get(producer_id)
        if verification is None or verification.producer_epoch < producer_epoch:
            self.pop(producer_id, None)
            if len(self) >= VERIFICATIONS_MAX:
                del self[next(iter(self))]
            verification = _Verification(
                sequence, producer_epoch, supports_epoch_bump=supports_epoch_bump, now_ms=now_ms
            )
            self[producer_id] = verification
        elif verification.producer_epoch == producer_epoch:
            verification.lowest_sequence = min(verification.lowest_sequence, sequence)
        return verification.guard

    def check_guard(self, header: BatchHeader, guard: VerificationGuard | None) -> None:
        """Whether a batch may begin a transaction.

        Raises:
            KafkaError: INVALID_TXN_STATE: its guard is not the current one.
        """
        verification = self.get(header.producer_id)
        if (
            verification is None
            or verification.guard is not guard
            or verification.producer_epoch != header.producer_epoch
        ):
            raise refusal(
                Code.INVALID_TXN_STATE,
                f"producer {header.producer_id} at epoch {header.producer_epoch} has no transaction here, "
                "and its coordinator was not asked whether it has one, or was asked before the last one ended",
            )

    def check_sequence(self, header: BatchHeader, *, knows_sequences: bool) -> None:
        """Keep later batches of a producer from passing an earlier one that waits to be sent again.

        Args:
            header: of its batch.
            knows_sequences: a batch of the producer is remembered.

        Raises:
            KafkaError: OUT_OF_ORDER_SEQUENCE_NUMBER: a lower sequence was seen since the verification began; or
                sequences are not known, and the producer is one that starts each transaction in an epoch of its own.
        """
        verification = self.get(header.producer_id)
        if verification is None:
            return
        expected = verification.lowest_sequence
        if verification.supports_epoch_bump and not knows_sequences:
            expected = 0
        if header.base_sequence > expected:
            raise refusal(
                Code.OUT_OF_ORDER_SEQUENCE_NUMBER,
                f"producer {header.producer_id} at epoch {header.producer_epoch} "
                f"sent sequence {header.base_sequence}: {expected} has to come first",
            )

    def end(self, producer_id: int) -> None:
        """Its transaction has begun here, or ended: a guard that was given says nothing of what comes."""
        self.pop(producer_id, None)

    def forget_expired(self, now_ms: int, expiration_ms: int) -> None:
        """Take back the guards that are as old as `expiration_ms`."""
        expired = [
            producer_id for producer_id, verification in self.items() if now_ms - verification.begun_ms >= expiration_ms
        ]
        for producer_id in expired:
            del self[producer_id]

"""One transactional id: who produces under it, and where its transaction stands.

```
            ┌──────────────── partition added ─────────────────┐
            │                                                  ▼
   Empty ───┤                 ┌── commit ──► PrepareCommit ── all marked ──► CompleteCommit ──┐
            └──► Ongoing ─────┤                                                               ├── partition added ──►
                  ▲  │        └── abort ───► PrepareAbort ─── all marked ──► CompleteAbort ───┘        Ongoing
                  └──┘
```

Prepare is the decision: from then on the transaction ends that way, whoever coordinates. An abort also comes from a
time-out, from a newer instance of the producer, and from a partition that lost records of the transaction.

Producer epochs, by the version of transactions that the client speaks (KIP-890):

| | what its end does to the epoch |
|---|---|
| 0, 1 | nothing: a marker that comes twice may end the producer's next transaction |
| 2 | bumps it with Prepare: markers carry the new epoch, records of the next transaction too |

Kafka: `TransactionMetadata`, `TransactionState`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import IntEnum

from tidelog.base.ids import ProducerEpoch, ProducerId, TopicPartition
from tidelog.base.invariant import invariant

EPOCH_MAX = ProducerEpoch(0x7FFF)
EPOCH_BUMP_VERSION = 2
"""The version of transactions whose every end bumps the producer's epoch."""


class TransactionState(IntEnum):
    """The states, by their numbers in the log. `label` is the name that Describe and List show."""

    EMPTY = 0
    ONGOING = 1
    PREPARE_COMMIT = 2
    PREPARE_ABORT = 3
    COMPLETE_COMMIT = 4
    COMPLETE_ABORT = 5
    DEAD = 6
    PREPARE_EPOCH_FENCE = 7

    @property
    def label(self) -> str:
        return self.name.title().replace("_", "")


TRANSITIONS: dict[TransactionState, frozenset[TransactionState]] = {
    TransactionState.EMPTY: frozenset(
        {TransactionState.EMPTY, TransactionState.ONGOING, TransactionState.COMPLETE_ABORT}
    ),
    TransactionState.ONGOING: frozenset(
        {TransactionState.ONGOING, TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT}
    ),
    TransactionState.PREPARE_COMMIT: frozenset({TransactionState.COMPLETE_COMMIT}),
    TransactionState.PREPARE_ABORT: frozenset({TransactionState.COMPLETE_ABORT}),
    TransactionState.COMPLETE_COMMIT: frozenset(
        {TransactionState.EMPTY, TransactionState.ONGOING, TransactionState.COMPLETE_ABORT}
    ),
    TransactionState.COMPLETE_ABORT: frozenset(
        {TransactionState.EMPTY, TransactionState.ONGOING, TransactionState.COMPLETE_ABORT}
    ),
}
"""Which state may follow which; what is absent is a bug. An abort of a transaction without partitions, which clients of
version 2 may ask for at any time, completes at once."""

PREPARED = frozenset({TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT})
COMPLETE = frozenset({TransactionState.COMPLETE_COMMIT, TransactionState.COMPLETE_ABORT})
EXPIRABLE = COMPLETE | {TransactionState.EMPTY}


@dataclass(frozen=True, slots=True, kw_only=True)
class Transaction:
    """What the log says of a transactional id.

    Attributes:
        producer_id: that produces under it.
        producer_epoch: in force; None before the first InitProducerId was answered. While an end is prepared, the epoch
            that its markers carry.
        previous_producer_id: before its epochs ran out; None if they never did.
        next_producer_id: takes over with epoch 0 once the prepared end is complete; None unless epochs run out with it.
        timeout_ms: that the producer asked for.
        partitions: that records of the transaction may lie in.
        started_ms: of the wall clock, when the first partition was added; None while there is no transaction.
        updated_ms: of the wall clock, when this was written.
        client_version: of transactions, as the producer's last requests speak it: 0 (and 1), or 2.
        has_lost_records: whether a partition was taken over by a replica that may lack records of the transaction, so
            that it must not be committed (a field of ours in the log).
    """

    transactional_id: str
    producer_id: ProducerId
    producer_epoch: ProducerEpoch | None
    previous_producer_id: ProducerId | None = None
    next_producer_id: ProducerId | None = None
    timeout_ms: int
    state: TransactionState = TransactionState.EMPTY
    partitions: frozenset[TopicPartition] = frozenset()
    started_ms: int | None = None
    updated_ms: int
    client_version: int = 0
    has_lost_records: bool = False

    @property
    def bumps_epochs(self) -> bool:
        """Whether each end of a transaction bumps the epoch."""
        return self.client_version >= EPOCH_BUMP_VERSION

    @property
    def is_epoch_exhausted(self) -> bool:
        """Whether a producer gets no further epoch under this id: the last one is for the marker that fences it."""
        return self.producer_epoch is not None and self.producer_epoch >= EPOCH_MAX - 1

    def went(self, state: TransactionState, wall_ms: int, **changes: object) -> Transaction:
        """The same, in another state."""
        invariant(
            state in TRANSITIONS.get(self.state, ()),
            "transactional id {}: {} after {}",
            self.transactional_id,
            state.name,
            self.state.name,
        )
        return replace(self, state=state, updated_ms=wall_ms, **changes)  # type: ignore[arg-type]

    # What happens to it.

    def initialized(
        self, producer_id: ProducerId, producer_epoch: ProducerEpoch, *, timeout_ms: int, wall_ms: int
    ) -> Transaction:
        """A producer begins, or begins again: nothing is open."""
        previous = self.previous_producer_id if producer_id == self.producer_id else self.producer_id
        return self.went(
            TransactionState.EMPTY,
            wall_ms,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            previous_producer_id=previous,
            next_producer_id=None,
            timeout_ms=timeout_ms,
            started_ms=None,
            partitions=frozenset(),
            has_lost_records=False,
        )

    def with_partitions(
        self, partitions: frozenset[TopicPartition], *, client_version: int, wall_ms: int
    ) -> Transaction:
        """Records may come to further partitions. The first ones begin a transaction."""
        is_ongoing = self.state is TransactionState.ONGOING
        return self.went(
            TransactionState.ONGOING,
            wall_ms,
            partitions=self.partitions | partitions if is_ongoing else partitions,
            started_ms=self.started_ms if is_ongoing else wall_ms,
            client_version=client_version,
        )

    def that_lost_records(self, wall_ms: int) -> Transaction:
        """It can only be aborted from now on."""
        return self.went(TransactionState.ONGOING, wall_ms, has_lost_records=True)

    def prepared(
        self,
        *,
        commits: bool,
        bumps_epoch: bool,
        client_version: int,
        next_producer_id: ProducerId | None,
        wall_ms: int,
    ) -> Transaction:
        """Its end is decided.

        Args:
            bumps_epoch: its producer speaks version 2, or is fenced by this.
            next_producer_id: where the epochs of this one run out.
        """
        state = TransactionState.PREPARE_COMMIT if commits else TransactionState.PREPARE_ABORT
        return self.went(
            state,
            wall_ms,
            producer_epoch=self._bumped(bumps_epoch),
            next_producer_id=next_producer_id,
            client_version=client_version,
        )

    def completed(self, wall_ms: int) -> Transaction:
        """All partitions have its marker."""
        is_commit = self.state is TransactionState.PREPARE_COMMIT
        return self._complete(
            TransactionState.COMPLETE_COMMIT if is_commit else TransactionState.COMPLETE_ABORT,
            self.producer_epoch,
            self.next_producer_id,
            wall_ms,
        )

    def aborted_empty(self, *, client_version: int, next_producer_id: ProducerId | None, wall_ms: int) -> Transaction:
        """Nothing was open, so nothing is marked; the epoch is bumped all the same."""
        bumped = replace(self, client_version=client_version)
        return bumped._complete(TransactionState.COMPLETE_ABORT, self._bumped(True), next_producer_id, wall_ms)

    def _complete(
        self,
        state: TransactionState,
        producer_epoch: ProducerEpoch | None,
        next_producer_id: ProducerId | None,
        wall_ms: int,
    ) -> Transaction:
        producer_id, previous = self.producer_id, self.previous_producer_id
        if next_producer_id is not None:
            producer_id, previous, producer_epoch = next_producer_id, self.producer_id, ProducerEpoch(0)
        return self.went(
            state,
            wall_ms,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            previous_producer_id=previous,
            next_producer_id=None,
            partitions=frozenset(),
            started_ms=None,
            has_lost_records=False,
        )

    def _bumped(self, bumps_epoch: bool) -> ProducerEpoch | None:
        epoch = self.producer_epoch
        if not bumps_epoch or epoch is None:
            return epoch
        invariant(epoch < EPOCH_MAX, "transactional id {}: no epoch after {}", self.transactional_id, epoch)
        return ProducerEpoch(epoch + 1)

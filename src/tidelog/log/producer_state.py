"""The latest batches of each producer: they tell duplicates, gaps and open transactions.

Each idempotent producer numbers its records per partition, from 0 and back to 0 after 2^31 - 1. The last five batches
of each are remembered, since that many may be in flight.

    last batch      next accepted       answered as a duplicate      anything else
    7..9            base sequence 10    7..9 again, or one of the    OUT_OF_ORDER_SEQUENCE_NUMBER: something in
                                        four before it               between was lost, or is on its way

Kafka: `ProducerStateManager`, `ProducerStateEntry`, `ProducerAppendInfo`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from tidelog.base.errors import Code, refusal
from tidelog.base.ids import Offset, ProducerEpoch, ProducerId
from tidelog.log.files.transaction_index import AbortedEntry
from tidelog.records.batch import BatchHeader

BATCHES_REMEMBERED = 5
SEQUENCE_MASK = 0x7FFFFFFF


class RememberedBatch(NamedTuple):
    """One of a producer's last batches."""

    base_sequence: int
    last_sequence: int
    last_offset: Offset
    offset_delta: int
    """Last offset − first offset."""
    timestamp: int
    """The largest in the batch, ms since 1970."""

    @property
    def first_offset(self) -> Offset:
        return Offset(self.last_offset - self.offset_delta)


class ProducerState:
    """One producer, as this log knows it."""

    __slots__ = (
        "batches",
        "coordinator_epoch",
        "last_active_ms",
        "last_timestamp",
        "producer_epoch",
        "producer_id",
        "transaction_first_offset",
    )

    def __init__(
        self,
        producer_id: ProducerId,
        producer_epoch: ProducerEpoch,
        *,
        batches: Iterable[RememberedBatch] = (),
        last_timestamp: int = -1,
        coordinator_epoch: int | None = None,
        transaction_first_offset: Offset | None = None,
        last_active_ms: int = 0,
    ) -> None:
        self.producer_id = producer_id
        self.producer_epoch = producer_epoch
        self.batches = list(batches)
        """Oldest first; at most five, all of `producer_epoch`. After a restart only the last one is known."""
        self.last_timestamp = last_timestamp
        """The largest timestamp of the last batch: what snapshots hold, and no measure of silence."""
        self.last_active_ms = last_active_ms
        """When it appended here last, by the clock of this node; after a restart, when the log was opened."""
        self.coordinator_epoch = coordinator_epoch
        """Of the transaction coordinator that wrote the last marker."""
        self.transaction_first_offset = transaction_first_offset
        """Where the open transaction starts; None if there is none."""

    def clone(self) -> ProducerState:
        return ProducerState(
            self.producer_id,
            self.producer_epoch,
            batches=self.batches,
            last_timestamp=self.last_timestamp,
            coordinator_epoch=self.coordinator_epoch,
            transaction_first_offset=self.transaction_first_offset,
            last_active_ms=self.last_active_ms,
        )

    def __repr__(self) -> str:
        last = self.batches[-1] if self.batches else None
        return f"ProducerState({self.producer_id}@{self.producer_epoch} last={last})"

    def check(self, header: BatchHeader) -> RememberedBatch | None:
        """Decide about a client's batch; nothing is changed.

        Returns:
            None if the batch may be appended; the remembered one if it was appended before.

        Raises:
            KafkaError: INVALID_PRODUCER_EPOCH: a newer instance of the producer has taken over.
                OUT_OF_ORDER_SEQUENCE_NUMBER: the batch is not the next one.
        """
        base_sequence = header.base_sequence
        if header.producer_epoch != self.producer_epoch:
            if header.producer_epoch < self.producer_epoch:
                raise refusal(
                    Code.INVALID_PRODUCER_EPOCH,
                    f"producer {header.producer_id} sent epoch {header.producer_epoch}, "
                    f"here it is at {self.producer_epoch}: a newer instance has taken over",
                )
            if base_sequence != 0:
                raise self._out_of_order(header, f"a new producer epoch, {header.producer_epoch}, starts with 0")
            return None
        if not self.batches:
            if base_sequence != 0:
                raise self._out_of_order(header, "nothing was appended in this producer epoch, so 0 is expected")
            return None
        expected = (self.batches[-1].last_sequence + 1) & SEQUENCE_MASK
        if base_sequence == expected:
            return None
        last_sequence = header.last_sequence
        for batch in self.batches:
            if batch.base_sequence == base_sequence and batch.last_sequence == last_sequence:
                return batch
        raise self._out_of_order(header, f"{expected} is expected")

    @staticmethod
    def _out_of_order(header: BatchHeader, why: str) -> Exception:
        return refusal(
            Code.OUT_OF_ORDER_SEQUENCE_NUMBER,
            f"producer {header.producer_id} at epoch {header.producer_epoch} "
            f"sent sequence {header.base_sequence}: {why}",
        )

    def remember(self, header: BatchHeader, first_offset: int, last_offset: int, timestamp: int, now_ms: int) -> None:
        """Take in a batch that was appended."""
        if header.producer_epoch != self.producer_epoch:
            self.producer_epoch = ProducerEpoch(header.producer_epoch)
            self.batches.clear()
        self.batches.append(
            RememberedBatch(
                header.base_sequence, header.last_sequence, Offset(last_offset), last_offset - first_offset, timestamp
            )
        )
        if len(self.batches) > BATCHES_REMEMBERED:
            del self.batches[0]
        self.last_timestamp = timestamp
        self.last_active_ms = now_ms


class ProducerStates:
    """All producers of one log, as of `end_offset`; and the transactions that are not decided yet.

    It is derived from the log: `replay` is what recovery does, `remember` what an append does, and a snapshot file
    (producer_snapshot.py) is where a replay may start.
    """

    __slots__ = ("_completed", "_open_transactions", "_states", "end_offset")

    def __init__(self, states: Iterable[ProducerState] = (), *, end_offset: Offset = Offset(0)) -> None:  # noqa: B008
        self._states = {state.producer_id: state for state in states}
        starts = sorted(
            (state.transaction_first_offset, state.producer_id)
            for state in self._states.values()
            if state.transaction_first_offset is not None
        )
        self._open_transactions = {each[1]: each[0] for each in starts}  # the oldest first
        self._completed: list[tuple[Offset, Offset]] = []  # (first offset, offset of the marker), not replicated yet
        self.end_offset = end_offset
        """Exclusive: what was taken in lies below."""

    def __len__(self) -> int:
        return len(self._states)

    def __iter__(self) -> Iterator[ProducerState]:
        return iter(self._states.values())

    def clone(self) -> ProducerStates:
        """An independent copy."""
        copy = ProducerStates((state.clone() for state in self._states.values()), end_offset=self.end_offset)
        copy._completed = self._completed.copy()
        return copy

    def get(self, producer_id: int) -> ProducerState | None:
        """The producer, if it is known here."""
        return self._states.get(ProducerId(producer_id))

    @property
    def first_unstable_offset(self) -> Offset | None:
        """Where the oldest transaction starts that is open, or whose marker is not known to be replicated.

        None if there is none: then everything committed is stable.
        """
        if not self._open_transactions and not self._completed:
            return None
        starts = [first for first, _ in self._completed]
        starts += list(self._open_transactions.values())[:1]
        return min(starts)

    def on_high_watermark(self, high_watermark: Offset) -> None:
        """Transactions whose marker lies below the high watermark are decided for good."""
        if self._completed:
            self._completed = [entry for entry in self._completed if entry[1] >= high_watermark]

    def check(self, header: BatchHeader) -> RememberedBatch | None:
        """Decide about one batch of a client; see `ProducerState.check`.

        A producer that is not known here is accepted with any sequence: its state may have expired, or gone with
        deleted records, and a client could do nothing about that (as Kafka does since 2.5, KIP-360).
        """
        state = self._states.get(ProducerId(header.producer_id))
        return None if state is None else state.check(header)

    def check_all(self, headers: Iterable[BatchHeader]) -> list[RememberedBatch | None]:
        """Decide about several batches that come together, each as if those before it had been appended."""
        supposed: dict[int, ProducerState] = {}
        answers: list[RememberedBatch | None] = []
        for header in headers:
            if header.producer_id < 0:
                answers.append(None)
                continue
            state = supposed.get(header.producer_id)
            if state is None:
                known = self._states.get(ProducerId(header.producer_id))
                state = known.clone() if known is not None else None
            answer = None if state is None else state.check(header)
            if answer is None:
                if state is None:
                    state = ProducerState(ProducerId(header.producer_id), ProducerEpoch(header.producer_epoch))
                state.remember(header, 0, header.last_offset_delta, -1, 0)
            if state is not None:
                supposed[header.producer_id] = state
            answers.append(answer)
        return answers

    def remember(self, header: BatchHeader, first_offset: int, last_offset: int, timestamp: int, now_ms: int) -> None:
        """Take in a producer's batch of records that was appended.

        Args:
            header: with a producer id, and not a control batch.
            first_offset: that it was given.
            last_offset: inclusive.
            timestamp: the largest of its records, in ms.
            now_ms: since 1970.
        """
        producer_id = ProducerId(header.producer_id)
        state = self._states.get(producer_id)
        if state is None:
            state = ProducerState(producer_id, ProducerEpoch(header.producer_epoch))
            self._states[producer_id] = state
        state.remember(header, first_offset, last_offset, timestamp, now_ms)
        if header.is_transactional and state.transaction_first_offset is None:
            state.transaction_first_offset = Offset(first_offset)
            self._open_transactions[producer_id] = Offset(first_offset)
        self.end_offset = Offset(last_offset + 1)

    def end_transaction(
        self, header: BatchHeader, offset: int, coordinator_epoch: int, now_ms: int, *, committed: bool
    ) -> AbortedEntry | None:
        """Take in a commit or abort marker that was appended: the producer's transaction is decided.

        Args:
            header: of the control batch.
            offset: of the marker.
            coordinator_epoch: that the marker carries.
            now_ms: since 1970.
            committed: what the marker says.

        Returns:
            What the segment's transaction index is to hold, if records were aborted.
        """
        producer_id = ProducerId(header.producer_id)
        state = self._states.get(producer_id)
        if state is None:
            state = ProducerState(producer_id, ProducerEpoch(header.producer_epoch))
            self._states[producer_id] = state
        elif header.producer_epoch > state.producer_epoch:
            state.producer_epoch = ProducerEpoch(header.producer_epoch)
            state.batches.clear()
        state.coordinator_epoch = coordinator_epoch
        state.last_timestamp = header.max_timestamp
        state.last_active_ms = now_ms
        state.transaction_first_offset = None
        self.end_offset = Offset(offset + 1)
        first_offset = self._open_transactions.pop(producer_id, None)
        if first_offset is None:
            return None
        self._completed.append((first_offset, Offset(offset)))
        if committed:
            return None
        last_stable_offset = next(iter(self._open_transactions.values()), self.end_offset)
        return AbortedEntry(producer_id, first_offset, Offset(offset), last_stable_offset)

    def forget_expired(self, now_ms: int, expiration_ms: int) -> int:
        """Forget producers that have been silent for `expiration_ms` and have no open transaction. Returns how many."""
        expired = [
            state.producer_id
            for state in self._states.values()
            if state.transaction_first_offset is None and now_ms - state.last_active_ms >= expiration_ms
        ]
        for producer_id in expired:
            del self._states[producer_id]
        return len(expired)

    def forget_below(self, log_start_offset: Offset) -> None:
        """Records below were deleted: no transaction waits for what is gone."""
        self._completed = [entry for entry in self._completed if entry[1] >= log_start_offset]

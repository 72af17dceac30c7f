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
from itertools import islice
from typing import NamedTuple

from tidelog.base.errors import Code, refusal
from tidelog.base.ids import Offset, ProducerEpoch, ProducerId
from tidelog.log.files.transaction_index import AbortedEntry
from tidelog.log.verification import NOT_VERIFIED, VerificationGuard, Verifications
from tidelog.records.batch import BatchHeader
from tidelog.records.header import TRANSACTIONAL_FLAG

BATCHES_REMEMBERED = 5
SEQUENCE_MASK = 0x7FFFFFFF
EPOCH_BUMPING_VERSION = 2
"""The transaction version from which on each transaction of a producer has an epoch of its own (KIP-890)."""
PRODUCER_EPOCH_MAX = 0x7FFF
"""It cannot be bumped: its marker has the epoch of its records."""


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


class UndecidedTransaction(NamedTuple):
    """A transaction that is not decided here."""

    producer_id: ProducerId
    producer_epoch: ProducerEpoch
    coordinator_epoch: int | None
    """Of the last marker; None if there was none."""
    first_offset: Offset
    started_ms: int
    """When it was first seen, by the clock of this node: after a restart, when the log was opened."""
    last_timestamp: int
    """The largest of its last batch, ms since 1970."""


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
        "transaction_started_ms",
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
        transaction_started_ms: int = 0,
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
        self.transaction_started_ms = transaction_started_ms
        """When that was appended, by the clock of this node; after a restart, when the log was opened."""

    def clone(self) -> ProducerState:
        return ProducerState(
            self.producer_id,
            self.producer_epoch,
            batches=self.batches,
            last_timestamp=self.last_timestamp,
            coordinator_epoch=self.coordinator_epoch,
            transaction_first_offset=self.transaction_first_offset,
            transaction_started_ms=self.transaction_started_ms,
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
                INVALID_TXN_STATE: a transaction is open, and the batch is in none.
        """
        base_sequence = header.base_sequence
        if header.producer_epoch != self.producer_epoch:
            self.check_epoch(header.producer_epoch)
            if base_sequence != 0:
                raise self._out_of_order(header, f"a new producer epoch, {header.producer_epoch}, starts with 0")
        elif not self.batches:
            if base_sequence != 0:
                raise self._out_of_order(header, "nothing was appended in this producer epoch, so 0 is expected")
        else:
            expected = (self.batches[-1].last_sequence + 1) & SEQUENCE_MASK
            if base_sequence != expected:
                original = self.find_original(header)
                if original is not None:
                    return original
                raise self._out_of_order(header, f"{expected} is expected")
        if self.transaction_first_offset is not None:
            self.check_transactional(header)
        return None

    def check_epoch(self, producer_epoch: int) -> None:
        """Raises INVALID_PRODUCER_EPOCH: a newer instance of the producer has taken over."""
        if producer_epoch < self.producer_epoch:
            raise refusal(
                Code.INVALID_PRODUCER_EPOCH,
                f"producer {self.producer_id} sent epoch {producer_epoch}, "
                f"here it is at {self.producer_epoch}: a newer instance has taken over",
            )

    def find_original(self, header: BatchHeader) -> RememberedBatch | None:
        """The batch that was appended before, if it is one of the last."""
        if header.producer_epoch == self.producer_epoch:
            base_sequence, last_sequence = header.base_sequence, header.last_sequence
            for batch in self.batches:
                if batch.base_sequence == base_sequence and batch.last_sequence == last_sequence:
                    return batch
        return None

    def check_transactional(self, header: BatchHeader) -> None:
        """Raises INVALID_TXN_STATE: a transaction is open, and the batch is in none."""
        if self.transaction_first_offset is not None and not header.is_transactional:
            raise refusal(
                Code.INVALID_TXN_STATE,
                f"producer {self.producer_id} has had a transaction open since offset {self.transaction_first_offset}, "
                "and sent a batch that is in none",
            )

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

    __slots__ = ("_completed", "_open_transactions", "_states", "_verifications", "end_offset")

    def __init__(self, states: Iterable[ProducerState] = (), *, end_offset: Offset = Offset(0)) -> None:  # noqa: B008
        self._states = {state.producer_id: state for state in states}
        starts = sorted(
            (state.transaction_first_offset, state.producer_id)
            for state in self._states.values()
            if state.transaction_first_offset is not None
        )
        self._open_transactions = {each[1]: each[0] for each in starts}  # the oldest first
        self._completed: list[tuple[Offset, Offset]] = []  # (first offset, offset of the marker), not replicated yet
        self._verifications = Verifications()
        self.end_offset = end_offset
        """Exclusive: what was taken in lies below."""

    def __len__(self) -> int:
        return len(self._states)

    def __iter__(self) -> Iterator[ProducerState]:
        return iter(self._states.values())

    def clone(self) -> ProducerStates:
        """An independent copy, but for verifications: they are whose batches come here."""
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

    def take_completed(self, other: ProducerStates) -> None:
        """Know of the decided transactions that are not known to be replicated, as `other` does, where that is here."""
        self._completed = [entry for entry in other._completed if entry[1] < self.end_offset]

    def on_high_watermark(self, high_watermark: Offset) -> None:
        """Transactions whose marker lies below the high watermark are decided for good."""
        if self._completed:
            self._completed = [entry for entry in self._completed if entry[1] >= high_watermark]

    @property
    def oldest_transaction_started_ms(self) -> int | None:
        """When the open transaction was first seen here that was seen first, ms since 1970; None if none is open."""
        return min((self._states[one].transaction_started_ms for one in self._open_transactions), default=None)

    @property
    def open_transactions(self) -> list[UndecidedTransaction]:
        """All that are not decided here, the oldest first: for DescribeProducers, and to find those that hang."""
        states = [self._states[producer_id] for producer_id in self._open_transactions]
        return [
            UndecidedTransaction(
                state.producer_id,
                state.producer_epoch,
                state.coordinator_epoch,
                self._open_transactions[state.producer_id],
                state.transaction_started_ms,
                state.last_timestamp,
            )
            for state in states
        ]

    # Whether a batch may be appended.

    def check(
        self, header: BatchHeader, verification_guard: VerificationGuard | None = NOT_VERIFIED
    ) -> RememberedBatch | None:
        """Decide about one batch of a client; see `ProducerState.check`.

        A producer that is not known here is accepted with any sequence: its state may have expired, or gone with
        deleted records, and a client could do nothing about that (as Kafka does since 2.5, KIP-360).

        Args:
            header: of the batch, with a producer id.
            verification_guard: see `Log.append_as_leader`.
        """
        state = self._states.get(ProducerId(header.producer_id))
        begins_transaction = (
            verification_guard is not NOT_VERIFIED
            and header.attributes & TRANSACTIONAL_FLAG
            and not _continues_transaction(state, header.producer_epoch)
        )
        if begins_transaction or self._verifications:
            return self._check_verified(state, header, verification_guard)
        return None if state is None else state.check(header)

    def _check_verified(
        self, state: ProducerState | None, header: BatchHeader, guard: VerificationGuard | None
    ) -> RememberedBatch | None:
        if state is not None:
            state.check_epoch(header.producer_epoch)
            original = state.find_original(header)
            if original is not None:
                return original
        self._check_guard(state, header, guard)
        self._verifications.check_sequence(header, knows_sequences=state is not None and bool(state.batches))
        return None if state is None else state.check(header)

    def _check_guard(self, state: ProducerState | None, header: BatchHeader, guard: VerificationGuard | None) -> None:
        if guard is NOT_VERIFIED or not header.is_transactional or _continues_transaction(state, header.producer_epoch):
            return
        self._verifications.check_guard(header, guard)

    def check_all(
        self, headers: Iterable[BatchHeader], verification_guard: VerificationGuard | None = NOT_VERIFIED
    ) -> list[RememberedBatch | None]:
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
                answer = self._check_verified(state, header, verification_guard)
            else:
                answer = state.check(header)
            if answer is None:
                if state is None:
                    state = ProducerState(ProducerId(header.producer_id), ProducerEpoch(header.producer_epoch))
                state.remember(header, 0, header.last_offset_delta, -1, 0)
                if header.is_transactional:
                    state.transaction_first_offset = Offset(0)
            if state is not None:
                supposed[header.producer_id] = state
            answers.append(answer)
        return answers

    def is_next(self, header: BatchHeader, sequences: dict[int, tuple[int, int]]) -> bool:
        """Whether a batch of a producer simply continues what is known of it, and needs no other look.

        Args:
            header: of the batch, with a producer id.
            sequences: the epoch and the next sequence of each producer that has batches before this one which are not
                appended yet, all of them next. This one is added if it is.
        """
        if self._verifications or header.attributes & TRANSACTIONAL_FLAG:
            return False
        expected = sequences.get(header.producer_id)
        if expected is None:
            state = self._states.get(ProducerId(header.producer_id))
            if state is None or not state.batches or state.transaction_first_offset is not None:
                return False
            expected = state.producer_epoch, (state.batches[-1].last_sequence + 1) & SEQUENCE_MASK
        if expected != (header.producer_epoch, header.base_sequence):
            return False
        sequences[header.producer_id] = header.producer_epoch, (header.last_sequence + 1) & SEQUENCE_MASK
        return True

    def check_unsequenced(self, header: BatchHeader, verification_guard: VerificationGuard | None) -> None:
        """Decide about a batch that a coordinator writes for a producer: its epoch and its transaction count.

        Raises:
            KafkaError: INVALID_PRODUCER_EPOCH or INVALID_TXN_STATE, as for a client.
        """
        state = self._states.get(ProducerId(header.producer_id))
        if state is not None:
            state.check_epoch(header.producer_epoch)
        self._check_guard(state, header, verification_guard)
        if state is not None:
            state.check_transactional(header)

    def check_marker(
        self, producer_id: int, producer_epoch: int, coordinator_epoch: int, *, transaction_version: int
    ) -> None:
        """Decide whether a leader appends a marker; nothing is changed.

        One that comes again, because the answer to the first was lost, is appended again: it decides nothing, and what
        waits for it is answered once it is replicated, and with it the first. A producer that is not known here may
        have been forgotten: its marker is appended.

        Args:
            producer_id: whose transaction ends.
            producer_epoch: that the marker carries.
            coordinator_epoch: that the marker carries.
            transaction_version: of the transaction. From 2 on the marker has the epoch after that of the records
                (KIP-890), so that an old one is told from one that is due (KIP-1228).

        Raises:
            KafkaError: INVALID_PRODUCER_EPOCH: a later transaction has begun, or a newer instance has taken over.
                TRANSACTION_COORDINATOR_FENCED: a newer coordinator has written here.
        """
        state = self._states.get(ProducerId(producer_id))
        if state is None:
            return
        state.check_epoch(producer_epoch)
        is_of_records = producer_epoch == state.producer_epoch and state.transaction_first_offset is not None
        if transaction_version >= EPOCH_BUMPING_VERSION and is_of_records and producer_epoch != PRODUCER_EPOCH_MAX:
            raise refusal(
                Code.INVALID_PRODUCER_EPOCH,
                f"a marker has epoch {producer_epoch} of producer {producer_id}, as the records that it would decide "
                f"about; in transaction version {transaction_version} it is the marker of an earlier transaction",
            )
        if state.coordinator_epoch is not None and coordinator_epoch < state.coordinator_epoch:
            raise refusal(
                Code.TRANSACTION_COORDINATOR_FENCED,
                f"a marker of producer {producer_id} has coordinator epoch {coordinator_epoch}, "
                f"the last one here had {state.coordinator_epoch}",
            )

    def begin_verification(
        self,
        producer_id: int,
        sequence: int,
        producer_epoch: int,
        *,
        supports_epoch_bump: bool,
        now_ms: int,
    ) -> VerificationGuard | None:
        """Note that a coordinator is asked whether it knows of a producer's transaction on this partition (KIP-890).

        Args:
            producer_id: that sent a transactional batch.
            sequence: the base sequence of the batch.
            producer_epoch: of the batch.
            supports_epoch_bump: the producer starts each transaction in an epoch of its own (Produce 12 and later).
            now_ms: since 1970; `forget_expired` goes by it.

        Returns:
            What the append presents once the coordinator has said yes; None if a transaction of that epoch is open
            here, so that nobody has to be asked.
        """
        if _continues_transaction(self._states.get(ProducerId(producer_id)), producer_epoch):
            return None
        return self._verifications.begin(
            ProducerId(producer_id),
            sequence,
            ProducerEpoch(producer_epoch),
            supports_epoch_bump=supports_epoch_bump,
            now_ms=now_ms,
        )

    # What was appended.

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
        state = self._states.pop(producer_id, None)
        if state is None:
            state = ProducerState(producer_id, ProducerEpoch(header.producer_epoch))
        self._states[producer_id] = state  # who was quiet for longest is the first
        state.remember(header, first_offset, last_offset, timestamp, now_ms)
        if header.attributes & TRANSACTIONAL_FLAG:
            if self._verifications:
                self._verifications.end(producer_id)
            if state.transaction_first_offset is None:
                state.transaction_first_offset = Offset(first_offset)
                state.transaction_started_ms = now_ms
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
        self._verifications.end(producer_id)
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
        """Forget producers that have been silent for `expiration_ms` and have no open transaction. Returns how many.

        Verifications that were begun as long ago are given up.
        """
        self._verifications.forget_expired(now_ms, expiration_ms)
        expired = [
            state.producer_id
            for state in self._states.values()
            if state.transaction_first_offset is None and now_ms - state.last_active_ms >= expiration_ms
        ]
        for producer_id in expired:
            del self._states[producer_id]
        return len(expired)

    def forget_quietest(self, count: int) -> int:
        """Forget so many producers, those whose last batch is the oldest; none that has an open transaction.

        Returns how many.
        """
        chosen = [
            state.producer_id
            for state in islice(self._states.values(), count + len(self._open_transactions))
            if state.transaction_first_offset is None
        ][:count]
        for producer_id in chosen:
            del self._states[producer_id]
        return len(chosen)

    def forget_below(self, log_start_offset: Offset) -> None:
        """Records below were deleted: no transaction waits for what is gone."""
        self._completed = [entry for entry in self._completed if entry[1] >= log_start_offset]


def _continues_transaction(state: ProducerState | None, producer_epoch: int) -> bool:
    """Whether a transactional batch of this epoch belongs to a transaction that is open here."""
    return state is not None and state.transaction_first_offset is not None and state.producer_epoch == producer_epoch

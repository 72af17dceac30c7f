"""One transactional id, two instances of its producer, two partitions: all that may happen to their transactions.

The coordinator is production's, driven as its driver does it, and never changed: a step copies it, tells the copy what
happened, and freezes it again. Partitions, the network and the producers are modelled. A state is a few numbers, and no
clock is in it: a time-out may come whenever a transaction is open. A request that is lost is sent again, so one that is
on its way and one that is lost are the same; what comes twice, or when nobody waits for it any more, is a late copy.

Transactions are numbered by the ends that the log holds before them: that is what each record, and each marker, is of.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from copy import copy
from dataclasses import dataclass, replace
from types import CellType, FunctionType
from typing import Any, NamedTuple

from support.exhaustive.small_world_parts import Numbers
from support.exhaustive.small_world_search import Found, State
from tidelog.base.errors import Code, InvariantBrokenError, KafkaError, refusal
from tidelog.base.ids import LeaderEpoch, Offset, PartitionIndex, ProducerEpoch, ProducerId, TopicPartition
from tidelog.coordinator.deadlines import Deadlines
from tidelog.coordinator.transactions import (
    EndTransaction,
    InitProducer,
    ProducerIdentity,
    Transaction,
    TransactionCoordinator,
    TransactionSettings,
    TransactionState,
)
from tidelog.coordinator.transactions.records import decode_transaction, encode_transaction, transaction_key
from tidelog.coordinator.transactions.transaction import EPOCH_MAX, PREPARED
from tidelog.journal import RequestId, Send
from tidelog.records.transaction_marker import TransactionMarker

NAME = "t"
PARTITIONS = tuple(TopicPartition("small", PartitionIndex(index)) for index in range(2))
FIRST_PRODUCER_ID = 1_000
TIMEOUT_MS = 1
AFTER_TIMEOUT_MS = 500
AFTER_WAITING_MS = 1_500
SETTLED_STEPS_MAX = 16
RETRIABLE = frozenset({Code.CONCURRENT_TRANSACTIONS, Code.NOT_COORDINATOR, Code.COORDINATOR_LOAD_IN_PROGRESS})


@dataclass(frozen=True)
class TransactionBounds:
    """How small.

    Attributes:
        version: of transactions, that the producers speak.
        transactions: that each instance begins, the first instance first.
        leaders: coordinators, one after the other; each but the last may lose what is not committed.
        late_markers: that come when nobody waits for them, in all.
        late_requests: likewise; of version 2 the records that asked for them come late too.
        losses: of answers to producers.
        pending: batches that may be written and not committed before it is asked something else.
        epoch: that the first instance gets, for a world in which epochs run out.
        recovers: whether an instance may begin again with what it has, in the midst of a transaction (KIP-360).
        is_epoch_checked: whether partitions hold the epoch of a marker against that of the records; False is for a
            world that has to break.
    """

    version: int = 2
    transactions: tuple[int, ...] = (1, 1)
    leaders: int = 2
    late_markers: int = 1
    late_requests: int = 0
    losses: int = 0
    pending: int = 1
    epoch: int = 0
    recovers: bool = False
    is_epoch_checked: bool = True

    @property
    def text(self) -> str:
        """As the tables show it."""
        begun = " and ".join(map(str, self.transactions))
        said = [f"version {self.version}, {begun} transactions"]
        for count, one in (
            (self.leaders - 1, "failover"),
            (self.late_markers, "late marker"),
            (self.late_requests, "late request"),
            (self.losses, "lost answer"),
        ):
            said += [f"{count} {one}{'s' * (count > 1)}"] if count else []
        said += ["epochs run out"] if self.epoch else []
        said += ["begins again"] if self.recovers else []
        return ", ".join(said)


class Asked(NamedTuple):
    """A request at the coordinator. `what` is "init", "add" or "end".

    Attributes:
        argument: the partition's index, or whether the end is a commit.
        transaction: the number of the one that was open, or was to begin.
        is_late: whether the instance waits for no answer to this.
    """

    instance: int
    what: str
    producer: ProducerIdentity | None
    argument: int = 0
    transaction: int = 0
    is_late: bool = False


class Owed(NamedTuple):
    """A marker on its way, and of which transaction it is."""

    partition: int
    marker: TransactionMarker
    transaction: int


class Part(NamedTuple):
    """The coordinator with its log, never changed.

    Attributes:
        ends: that were prepared, in what is committed.
    """

    machine: TransactionCoordinator
    committed: Transaction | None
    pending: tuple[Transaction, ...] = ()
    ends: int = 0
    leader_epoch: int = 1
    asked: tuple[tuple[RequestId, Asked], ...] = ()
    owed: frozenset[Owed] = frozenset()

    @property
    def transaction(self) -> int:
        """The number of the one that is open, or is to begin."""
        return self.ends + sum(one.state in PREPARED for one in self.pending)

    @property
    def state(self) -> TransactionState | None:
        found = self.machine.transactions.get(NAME)
        return None if found is None else found.state


class Known(NamedTuple):
    """One producer id, as a partition knows it; `open_records` are transactions, with the instance that wrote."""

    epoch: int
    coordinator_epoch: int = 0
    open_records: frozenset[tuple[int, int]] = frozenset()


class Partition(NamedTuple):
    """What its log says.

    Attributes:
        asking: producers for whom the coordinator is being asked: their records are appended if that is answered before
            any marker comes.
    """

    known: tuple[tuple[int, Known], ...] = ()
    asking: frozenset[tuple[int, ProducerIdentity]] = frozenset()
    committed: frozenset[int] = frozenset()
    aborted: frozenset[int] = frozenset()

    def of(self, producer_id: int) -> Known:
        return dict(self.known).get(producer_id, Known(-1))

    def having(self, producer_id: int, known: Known) -> Partition:
        return self._replace(known=tuple(sorted((dict(self.known) | {producer_id: known}).items())))

    @property
    def open_records(self) -> frozenset[tuple[int, int]]:
        return frozenset(one for _, known in self.known for one in known.open_records)


class Producer(NamedTuple):
    """An instance, as it sees itself.

    Attributes:
        written: partitions that took a record of its transaction.
        transaction: its number, for what must hold.
        asked: what it waits for an answer to.
        must_ask_again: that answer does not come.
    """

    left: int
    identity: ProducerIdentity | None = None
    written: frozenset[int] = frozenset()
    transaction: int | None = None
    asked: Asked | None = None
    must_ask_again: bool = False
    is_fenced: bool = False


class Told(NamedTuple):
    """What of the bounds was used up, what must hold from now on, and what has been broken on the way.

    Attributes:
        late: what may still come.
        answered: how transactions ended, by what their producers were told.
        fenced: instances that were there when a newer one was answered.
        is_disturbed: whether a time-out, or another instance, gave reason to refuse a producer.
    """

    late: frozenset[Owed | Asked] = frozenset()
    late_markers: int = 0
    late_requests: int = 0
    losses: int = 0
    answered: frozenset[tuple[int, bool]] = frozenset()
    fenced: frozenset[int] = frozenset()
    is_disturbed: bool = False
    broken: str = ""


class Done(NamedTuple):
    """What came of an event at the coordinator."""

    part: int
    answers: tuple[tuple[Asked, Hashable], ...] = ()
    broken: str = ""


class Now(NamedTuple):
    """A state, by what is in it; the coordinator by its number."""

    part: int
    partitions: tuple[Partition, ...]
    producers: tuple[Producer, ...]
    told: Told


class SmallTransactions:
    """All that may happen, in any state."""

    def __init__(self, bounds: TransactionBounds) -> None:
        self.bounds = bounds
        self.parts: list[Part] = []
        self._known: dict[Hashable, int] = {}
        self._done: dict[tuple[int, Hashable], Done] = {}
        self._partitions: Numbers[Partition] = Numbers()
        self._producers: Numbers[Producer] = Numbers()
        self._told: Numbers[Told] = Numbers()
        self._settled: dict[State, str] = {}
        seeded = None
        if bounds.epoch:
            before = ProducerEpoch(bounds.epoch - 1)
            seeded = Transaction(
                transactional_id=NAME,
                producer_id=ProducerId(FIRST_PRODUCER_ID),
                producer_epoch=before,
                timeout_ms=TIMEOUT_MS,
                updated_ms=0,
            )
        first = self._part_number(Part(_loaded(seeded, 1), seeded))
        producers = tuple(Producer(left) for left in bounds.transactions)
        self.initial = self._state(Now(first, (Partition(),) * len(PARTITIONS), producers, Told()))

    def broken(self, state: State) -> str:
        """What does not hold, beginning with the name of the invariant; empty if all does."""
        told = self._told.values[state[-1]]
        return told.broken or self._broken_once_settled(state)

    def successors(self, state: State) -> Found:
        now = self._now(state)
        return [(action, self._state(after)) for action, after in self._successors(now)]

    def describe(self, state: State) -> str:
        """For whoever reads a failure."""
        now = self._now(state)
        part = self.parts[now.part]
        return "\n".join(
            [
                f"coordinator {part.leader_epoch}: {part.machine.transactions.get(NAME)}",
                f"  not committed: {len(part.pending)}; on their way: {sorted(part.owed)}",
                *(f"partition {index}: {one}" for index, one in enumerate(now.partitions)),
                *(f"instance {index}: {one}" for index, one in enumerate(now.producers)),
                f"{now.told}",
            ]
        )

    # What may happen.

    def _successors(self, now: Now) -> Iterator[tuple[tuple[object, ...], Now]]:
        part, told = self.parts[now.part], now.told
        if part.pending:
            yield from self._with_losses(now, ("commit",))
        if part.state is TransactionState.ONGOING:
            yield from self._with_losses(now, ("time",))
        if part.machine._waiting._requests:
            yield from self._with_losses(now, ("give up",))
        for owed in sorted(part.owed):
            yield ("mark", owed.partition), self._marked(now, owed)
            if told.late_markers < self.bounds.late_markers and owed not in told.late:
                late = told._replace(late=told.late | {owed}, late_markers=told.late_markers + 1)
                yield ("mark late", owed.partition), now._replace(told=late)
        for one in sorted(told.late, key=repr):
            without = now._replace(told=told._replace(late=told.late - {one}))
            if isinstance(one, Owed):
                yield ("late marker", one.partition), self._written(without, one)[0]
            else:
                yield ("late", *one[:4]), self._asks(without, one)
        if part.leader_epoch < self.bounds.leaders:
            yield ("fail over",), self._happen(now, ("fail over", False))
            if part.pending:
                yield ("fail over", "keeps"), self._happen(now, ("fail over", True))
        if len(part.pending) >= self.bounds.pending:
            return
        for instance, producer in enumerate(now.producers):
            for asked in self._may_ask(instance, producer):
                yield from self._asked(now, producer, asked)

    def _may_ask(self, instance: int, producer: Producer) -> Iterator[Asked]:
        if producer.is_fenced:
            return
        if producer.asked is not None:
            if producer.must_ask_again:
                yield producer.asked
            return
        if producer.identity is None:
            yield Asked(instance, "init", None)
            return
        if producer.left == 0:
            return
        for index in range(len(PARTITIONS)):
            if index not in producer.written:
                yield Asked(instance, "add", producer.identity, index)
        if producer.written:
            yield Asked(instance, "end", producer.identity, True)
            yield Asked(instance, "end", producer.identity, False)
            if self.bounds.recovers:
                yield Asked(instance, "init", producer.identity)

    def _asked(self, now: Now, producer: Producer, asked: Asked) -> Iterator[tuple[tuple[object, ...], Now]]:
        """A producer asks, and the request arrives; a copy of it may come again."""
        waiting = producer._replace(asked=asked, must_ask_again=False)
        producers = _with(now.producers, asked.instance, waiting)
        asking = now._replace(producers=producers)
        yield from self._with_losses(asking, ("ask", asked), then=self._asks)
        told = now.told
        if told.late_requests < self.bounds.late_requests and asked.what != "init":
            late = asked._replace(is_late=True)
            if late not in told.late:
                told = told._replace(late=told.late | {late}, late_requests=told.late_requests + 1)
                yield (*asked[:4], "and late"), self._asks(asking._replace(told=told), asked)

    def _asks(self, now: Now, asked: Asked, *, is_lost: bool = False) -> Now:
        if asked.what == "add" and self.bounds.version == 2:  # its leader asks, to append what came to it
            assert asked.producer is not None
            partition = now.partitions[asked.argument]
            asking = partition.asking | {(asked.instance, asked.producer)}
            partitions = _with(now.partitions, asked.argument, partition._replace(asking=asking))
            now = now._replace(partitions=partitions)
        return self._happen(now, ("ask", asked), is_lost=is_lost)

    def _with_losses(
        self, now: Now, event: tuple[Any, ...], then: Callable[..., Now] | None = None
    ) -> Iterator[tuple[tuple[object, ...], Now]]:
        """It happens; and, if that answers a producer, it may happen without that answer."""
        name = event if then is None else tuple(event[1][:4])
        argument = event if then is None else event[1]
        happen = then or self._happen
        yield name, happen(now, argument)
        answers = self._do(now.part, event).answers
        if now.told.losses < self.bounds.losses and any(not asked.is_late for asked, _ in answers):
            told = now.told._replace(losses=now.told.losses + 1)
            yield (*name, "answer lost"), happen(now._replace(told=told), argument, is_lost=True)

    def _happen(self, now: Now, event: tuple[Any, ...], *, is_lost: bool = False) -> Now:
        done = self._do(now.part, event)
        now = now._replace(part=done.part)
        if not now.told.is_disturbed and (event == ("time",) or _takes_over(now, event)):
            now = now._replace(told=now.told._replace(is_disturbed=True))
        if done.broken:
            return now._replace(told=now.told._replace(broken=done.broken))
        for asked, outcome in done.answers:
            now = self._answered(now, asked, outcome, is_lost=is_lost)
        return now

    def _answered(self, now: Now, asked: Asked, outcome: Hashable, *, is_lost: bool) -> Now:
        """Tell the producer; or, of a request to add a partition, that partition's leader first."""
        producer = now.producers[asked.instance]
        is_waiting = not asked.is_late and producer.asked is not None and not producer.must_ask_again
        if asked.what == "add" and not is_lost:
            now, outcome = self._appended(now, asked, outcome, is_waiting=is_waiting)
        if not is_waiting:
            return now
        if is_lost or (isinstance(outcome, Code) and outcome in RETRIABLE):
            return _told_producer(now, asked.instance, producer._replace(must_ask_again=True))
        producer = producer._replace(asked=None)
        if isinstance(outcome, Code) and outcome is not Code.NONE:
            if not now.told.is_disturbed:
                said = f"NobodyIsRefusedForNothing: instance {asked.instance} is told {outcome.name}"
                now = now._replace(told=now.told._replace(broken=said))
            return _told_producer(now, asked.instance, producer._replace(is_fenced=True))
        if asked.what == "add":
            return self._told_of_append(now, producer, asked)
        assert isinstance(outcome, ProducerIdentity)
        told = now.told
        if asked.what == "init":
            others = {one for one, other in enumerate(now.producers) if one != asked.instance and other.identity}
            told = told._replace(fenced=(told.fenced | others) - {asked.instance})
            left = producer.left - bool(producer.written)
            after = Producer(left, outcome)
        else:
            assert producer.transaction is not None
            told = told._replace(answered=told.answered | {(producer.transaction, bool(asked.argument))})
            after = Producer(producer.left - 1, outcome)
        return _told_producer(now._replace(told=_checked(told, now.partitions)), asked.instance, after)

    def _told_of_append(self, now: Now, producer: Producer, asked: Asked) -> Now:
        if producer.written and producer.transaction != asked.transaction:
            said = f"AllOrNothing: instance {asked.instance} writes to two transactions, and knows of one"
            return now._replace(told=now.told._replace(broken=said))
        written = producer.written | {asked.argument}
        after = producer._replace(written=written, transaction=asked.transaction)
        return _told_producer(now, asked.instance, after)

    # Partitions.

    def _appended(self, now: Now, asked: Asked, outcome: Hashable, *, is_waiting: bool) -> tuple[Now, Hashable]:
        """The record that the request was about, if the partition takes it; and what its producer is told."""
        assert asked.producer is not None
        partition, who = now.partitions[asked.argument], (asked.instance, asked.producer)
        if self.bounds.version == 2:
            is_asking = who in partition.asking
            partition = partition._replace(asking=partition.asking - {who})
            now = now._replace(partitions=_with(now.partitions, asked.argument, partition))
            if outcome is Code.NONE and not is_asking:
                return now, Code.CONCURRENT_TRANSACTIONS
        elif not is_waiting:  # who adds a partition is the client: it writes once it is told
            return now, outcome
        if outcome is not Code.NONE:
            return now, outcome
        known = partition.of(asked.producer.producer_id)
        if asked.producer.producer_epoch < known.epoch:
            return now, Code.INVALID_PRODUCER_EPOCH
        records = known.open_records | {(asked.transaction, asked.instance)}
        known = known._replace(epoch=asked.producer.producer_epoch, open_records=records)
        partition = partition.having(asked.producer.producer_id, known)
        return now._replace(partitions=_with(now.partitions, asked.argument, partition)), Code.NONE

    def _marked(self, now: Now, owed: Owed) -> Now:
        """A marker arrives, and its answer is taken back."""
        now, code = self._written(now, owed)
        return self._happen(now, ("sent", owed, code))

    def _written(self, now: Now, owed: Owed) -> tuple[Now, Code]:
        """What a partition makes of a marker: `ProducerStates.check_marker`."""
        marker, partition = owed.marker, now.partitions[owed.partition]
        known = partition.of(marker.producer_id)
        is_of_records = marker.producer_epoch == known.epoch and known.open_records
        bumps = marker.transaction_version == 2 and marker.producer_epoch != EPOCH_MAX
        if marker.producer_epoch < known.epoch or (bumps and is_of_records and self.bounds.is_epoch_checked):
            return now, Code.INVALID_PRODUCER_EPOCH
        if marker.coordinator_epoch < known.coordinator_epoch:
            return now, Code.TRANSACTION_COORDINATOR_FENCED
        told = now.told
        for transaction, instance in sorted(known.open_records):
            if transaction != owed.transaction and not told.broken:
                said = f"NoMarkerEndsALaterTransaction: that of {owed.transaction} ended {transaction}"
                told = told._replace(broken=said)
            if marker.is_commit and instance in told.fenced and not told.broken:
                told = told._replace(broken=f"FencedNeverCommits: what instance {instance} wrote")
        ended = {transaction for transaction, _ in known.open_records}
        if marker.is_commit:
            partition = partition._replace(committed=partition.committed | ended)
        else:
            partition = partition._replace(aborted=partition.aborted | ended)
        stay = frozenset(one for one in partition.asking if one[1].producer_id != marker.producer_id)
        partition = partition._replace(asking=stay)
        partition = partition.having(marker.producer_id, Known(marker.producer_epoch, marker.coordinator_epoch))
        partitions = _with(now.partitions, owed.partition, partition)
        return now._replace(partitions=partitions, told=_checked(told, partitions)), Code.NONE

    # What must come of it.

    def _broken_once_settled(self, state: State) -> str:
        """Nothing more is asked or lost, and all that is prepared or open comes to its end; late copies may wait."""
        key = (state[0], *state[1 : 1 + len(PARTITIONS)], state[-1])
        found = self._settled.get(key)
        if found is None:
            found = self._settled[key] = self._settle(self._now(state))
        return found

    def _settle(self, now: Now) -> str:
        for _ in range(SETTLED_STEPS_MAX):
            part = self.parts[now.part]
            if part.pending:
                now = self._happen(now, ("commit",))
            elif part.owed:
                now = self._marked(now, min(part.owed))
            elif part.state is TransactionState.ONGOING:
                now = self._happen(now, ("time",))
            else:
                break
            if now.told.broken:
                return now.told.broken
        part = self.parts[now.part]
        if part.state in PREPARED:
            return f"EveryEndCompletes: it stays {part.machine.transactions[NAME].state.label}"
        for index, partition in enumerate(now.partitions):
            if partition.open_records:
                return f"NothingStaysOpen: {sorted(partition.open_records)} on partition {index}"
        return ""

    # The coordinator.

    def _do(self, number: int, event: tuple[Any, ...]) -> Done:
        known = self._done.get((number, event))
        if known is None:
            known = self._done[number, event] = self._do_anew(number, event)
        return known

    def _do_anew(self, number: int, event: tuple[Any, ...]) -> Done:
        bench = _Bench(self.parts[number], self.bounds.version)
        try:
            getattr(bench, event[0].replace(" ", "_"))(*event[1:])
            bench.pump()
        except (InvariantBrokenError, AssertionError) as error:
            return Done(number, broken=f"Invariant: {error!r}")
        return Done(self._part_number(bench.part), tuple(bench.answers))

    def _part_number(self, part: Part) -> int:
        """Equal for coordinators that behave alike."""
        number = self._known.setdefault(_canonical(part), len(self.parts))
        if number == len(self.parts):
            self.parts.append(part)
        return number

    def _state(self, now: Now) -> State:
        return (
            now.part,
            *map(self._partitions.of, now.partitions),
            *map(self._producers.of, now.producers),
            self._told.of(now.told),
        )

    def _now(self, state: State) -> Now:
        at = 1 + len(PARTITIONS)
        return Now(
            state[0],
            tuple(self._partitions.values[one] for one in state[1:at]),
            tuple(self._producers.values[one] for one in state[at:-1]),
            self._told.values[state[-1]],
        )


class _Bench:
    """A copy of the coordinator, while something happens to it: its driver."""

    def __init__(self, part: Part, version: int) -> None:
        self.part = part._replace(machine=_copied(part.machine))
        self.answers: list[tuple[Asked, Hashable]] = []
        self._version = version

    def ask(self, asked: Asked) -> None:
        part, machine = self.part, self.part.machine
        asked = asked._replace(transaction=part.transaction)
        # Whoever asks again waits for the latest answer only.
        waiting = [
            (number, one._replace(is_late=True) if one.instance == asked.instance and not asked.is_late else one)
            for number, one in part.asked
        ]
        request_id = RequestId(max((number for number, _ in waiting), default=0) + 1)
        self.part = part._replace(asked=(*waiting, (request_id, asked)))
        used = [one.producer_id for one in (part.committed, *part.pending) if one is not None]
        used += [one.next_producer_id for one in (part.committed, *part.pending) if one and one.next_producer_id]
        fresh = ProducerId(max(used, default=FIRST_PRODUCER_ID - 1) + 1)
        if asked.what == "init":
            init = InitProducer(
                transactional_id=NAME, timeout_ms=TIMEOUT_MS, expected=asked.producer, fresh_producer_id=fresh
            )
            machine.on_init_producer_id(request_id, init, now_ms=0, wall_ms=0)
            return
        assert asked.producer is not None
        if asked.what == "add":
            partitions = (PARTITIONS[asked.argument],)
            machine.on_add_partitions(
                request_id, NAME, asked.producer, partitions, client_version=self._version, now_ms=0, wall_ms=0
            )
            return
        end = EndTransaction(
            transactional_id=NAME,
            producer=asked.producer,
            commits=bool(asked.argument),
            client_version=self._version,
            fresh_producer_id=fresh,
        )
        machine.on_end(request_id, end, now_ms=0, wall_ms=0)

    def commit(self) -> None:
        part = self.part
        self.part = part._replace(committed=part.pending[-1], pending=(), ends=part.transaction)
        part.machine.on_committed(part.machine._journal._journal.next_offset)

    def time(self) -> None:
        self.part.machine.on_time(now_ms=AFTER_TIMEOUT_MS, wall_ms=0)

    def give_up(self) -> None:
        self.part.machine.on_time(now_ms=AFTER_WAITING_MS, wall_ms=0)

    def sent(self, owed: Owed, code: Code) -> None:
        self.part = self.part._replace(owed=self.part.owed - {owed})
        machine, wanted = self.part.machine, (NAME, PARTITIONS[owed.partition])
        (send_id,) = (send_id for send_id, one in machine._markers._sends.items() if one == wanted)
        outcome = None if code is Code.NONE else refusal(code, "refused")
        machine.on_sent(send_id, outcome, now_ms=0, wall_ms=0)

    def fail_over(self, keeps: bool) -> None:
        """Another loads what is committed, and what was not if that came to it."""
        part = self.part
        part.machine.resign()
        self.pump()
        if keeps:
            part = part._replace(committed=part.pending[-1], ends=part.transaction)
        epoch = part.leader_epoch + 1
        self.part = Part(_loaded(part.committed, epoch), part.committed, ends=part.ends, leader_epoch=epoch)

    def pump(self) -> None:
        """Do what is owed."""
        while ready := self.part.machine.take_ready():
            part = self.part
            for batch in ready.batches:
                for _, value in batch.records:
                    assert value is not None
                    part = part._replace(pending=(*part.pending, decode_transaction(NAME, value)))
            asked = dict(part.asked)
            for answer in ready.answers:
                outcome = answer.outcome
                self.answers.append(
                    (asked.pop(answer.request_id), outcome.code if isinstance(outcome, KafkaError) else outcome)
                )
            owed = {_owed(send, part.transaction - 1) for send in ready.sends}
            self.part = part._replace(asked=tuple(asked.items()), owed=part.owed | owed)


def _owed(send: Send, transaction: int) -> Owed:
    assert isinstance(send.request, TransactionMarker)
    return Owed(send.destination.partition, send.request, transaction)


def _takes_over(now: Now, event: tuple[Any, ...]) -> bool:
    """Whether an instance begins while another is there."""
    if event[0] != "ask" or event[1].what != "init":
        return False
    others = (one for index, one in enumerate(now.producers) if index != event[1].instance)
    return any(one.identity is not None or one.asked is not None for one in others)


def _told_producer(now: Now, instance: int, producer: Producer) -> Now:
    return now._replace(producers=_with(now.producers, instance, producer))


def _with(values: tuple[Any, ...], index: int, value: object) -> tuple[Any, ...]:
    return (*values[:index], value, *values[index + 1 :])


def _checked(told: Told, partitions: tuple[Partition, ...]) -> Told:
    """Whatever was decided is decided the same everywhere, and as it was answered."""
    if told.broken:
        return told
    committed = frozenset().union(*(one.committed for one in partitions))
    aborted = frozenset().union(*(one.aborted for one in partitions))
    for transaction in sorted(committed & aborted):
        return told._replace(broken=f"AllOrNothing: {transaction} is committed here and aborted there")
    for transaction, is_commit in sorted(told.answered):
        if transaction in (aborted if is_commit else committed):
            said = "AnsweredCommitsAreCommitted" if is_commit else "AnsweredAbortsAreAborted"
            return told._replace(broken=f"{said}: not {transaction}")
    return told


def _loaded(transaction: Transaction | None, leader_epoch: int) -> TransactionCoordinator:
    """A coordinator that read this from its log."""
    machine = TransactionCoordinator(0, TransactionSettings(), value_version=1)
    if transaction is not None:
        machine.replay(transaction_key(NAME), encode_transaction(transaction, 1), Offset(0))
    machine.become_active(LeaderEpoch(leader_epoch), Offset(1), now_ms=0, wall_ms=0)
    return machine


def _copied(machine: TransactionCoordinator) -> TransactionCoordinator:
    """Another that goes its own way from here."""
    new, journal, runtime = copy(machine), copy(machine._journal), copy(machine._journal._journal)
    state = journal.state.clone()
    assert runtime._leadership is not None
    runtime.committed, runtime._leadership = state, (runtime._leadership[0], state)
    for name in ("_pending", "_unappended", "_waiting", "_applied", "_released"):
        setattr(runtime, name, copy(getattr(runtime, name)))
    journal.state, journal._journal = state, runtime
    journal._owed, journal._answers = dict(journal._owed), list(journal._answers)
    new._journal = journal
    begun = new._initializations = copy(new._initializations)
    begun._last_epochs, begun._resuming = dict(begun._last_epochs), dict(begun._resuming)
    new._expiry = copy(new._expiry)
    new._timeouts = _copied_deadlines(new._timeouts)
    markers = new._markers = copy(new._markers)
    markers._sends = dict(markers._sends)
    markers._unmarked = {name: set(partitions) for name, partitions in markers._unmarked.items()}
    waiting = new._waiting = copy(new._waiting)
    waiting._ids, waiting._deadlines = dict(waiting._ids), _copied_deadlines(waiting._deadlines)
    waiting._requests = {name: replace(one, run=_of(new, one.run)) for name, one in waiting._requests.items()}
    return new


def _copied_deadlines(deadlines: Deadlines[str]) -> Deadlines[str]:
    new = copy(deadlines)
    new._due_ms, new._queued_ms, new._heap = dict(new._due_ms), dict(new._queued_ms), list(new._heap)
    return new


def _of(machine: TransactionCoordinator, run: Callable[[int, int], None]) -> Callable[[int, int], None]:
    """A request that waits, at the copy in the place of the one that it was made to."""
    assert isinstance(run, FunctionType)
    cells = {name: CellType(machine if name == "self" else held) for name, held in _held(run)}
    moved = FunctionType(run.__code__, run.__globals__, run.__name__, run.__defaults__, tuple(cells.values()))
    cells[run.__name__].cell_contents = moved  # it names itself, to wait again
    return moved


def _held(run: Callable[[int, int], None]) -> list[tuple[str, Any]]:
    assert isinstance(run, FunctionType)
    return [
        (name, cell.cell_contents) for name, cell in zip(run.__code__.co_freevars, run.__closure__ or (), strict=True)
    ]


def _canonical(part: Part) -> Hashable:
    machine = part.machine
    journal, runtime = machine._journal, machine._journal._journal
    asked = dict(part.asked)
    waiting = []
    for reply in runtime._waiting:
        owed = journal._owed.get(reply.ticket)
        if owed is None:
            continue
        who = (owed.destination, owed.request) if isinstance(owed, Send) else asked[owed]
        outcome = reply.outcome.code if isinstance(reply.outcome, KafkaError) else reply.outcome
        waiting.append((who, outcome, reply.end_offset - runtime.committed_end_offset))
    parked = [
        (
            asked[one.request_id],
            *(held for name, held in _held(one.run) if name not in ("self", "request_id", one.run.__name__)),
        )
        for one in machine._waiting._requests.values()
    ]
    return (
        part[1:5],
        part.owed,
        tuple(waiting),
        tuple(parked),
        tuple(machine._initializations._last_epochs.items()),
        tuple(machine._initializations._resuming.items()),
        NAME in machine._timeouts,
        frozenset(machine._markers._sends.values()),
        frozenset(machine._markers._unmarked.get(NAME, ())),
    )

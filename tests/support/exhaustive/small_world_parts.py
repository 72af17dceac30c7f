"""What a small world is made of, each thing once: frozen replicas, and what each does when something happens to it.

A replica is never changed: a step copies it, tells the copy's machine what happened, does what it owes, and freezes it
again. Equal ones are one (by `canonical_key()`), so that a state of the world is a few small numbers, and a machine
that was in the same place before need not be asked again: machines are deterministic. `Replicas.do_anew` is there to
hold that against.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from dataclasses import dataclass, replace
from typing import Generic, NamedTuple, TypeVar

from support.worlds.replica_values import START, Rules, Stored
from tidelog.base.errors import Code, KafkaError
from tidelog.base.ids import BrokerEpoch, BrokerId, LeaderEpoch, Offset, PartitionEpoch, PartitionIndex, TopicPartition
from tidelog.metadata import PartitionImage
from tidelog.records.lineage import EpochEntry, LeaderEpochLineage
from tidelog.replica import (
    AcceptedFetch,
    EpochEndRequest,
    FetchOutcome,
    FollowerFetch,
    FollowerReplica,
    FollowerRequest,
    FollowerSettings,
    IsrProposal,
    LeaderReplica,
    LogBounds,
    LogStartRequest,
    RecordsRequest,
    ReplicationSettings,
    check_leader_epoch,
)

PARTITION = TopicPartition("small", PartitionIndex(0))
FETCH_RECORDS_MAX = 1
LAG_MS = 10
FIRST = PartitionEpoch(0)

T = TypeVar("T", bound=Hashable)
Log = tuple[Stored, ...]
Brokers = tuple[tuple[BrokerId, BrokerEpoch], ...]
"""Who is neither fenced nor shutting down, in which incarnation."""


class Numbers(Generic[T]):
    """A number for each value, equal values having the same."""

    def __init__(self) -> None:
        self._numbers: dict[T, int] = {}
        self.values: list[T] = []

    def of(self, value: T) -> int:
        number = self._numbers.get(value)
        if number is None:
            number = self._numbers[value] = len(self.values)
            self.values.append(value)
        return number


class Entry(NamedTuple):
    """What the metadata log says at one place. Its partition epoch counts from the one before, not from the first."""

    image: PartitionImage
    brokers: Brokers
    is_change: bool = True


class Proposal(NamedTuple):
    """AlterPartition on its way."""

    leader_epoch: LeaderEpoch
    isr: frozenset[BrokerId]
    broker_epochs: Brokers


class Answer(NamedTuple):
    """A leader's answer on its way."""

    outcome: Code | FetchOutcome | EpochEntry | Offset | None
    records: Log = ()


@dataclass(slots=True)
class Replica:
    """One broker with its log, and its machine if it is up. Copied, never changed, once it is frozen."""

    broker_id: BrokerId
    broker_epoch: BrokerEpoch
    log: Log
    lineage: LeaderEpochLineage
    high_watermark: Offset
    leader: LeaderReplica | None = None
    follower: FollowerReplica | None = None
    asked: FollowerRequest | None = None
    partition_epoch: PartitionEpoch = FIRST
    brokers: Brokers = ()
    has_lost_power: bool = False
    unwritten: Log = ()

    def copy(self) -> Replica:
        lineage = self.lineage.clone()
        return Replica(
            self.broker_id,
            self.broker_epoch,
            self.log,
            lineage,
            self.high_watermark,
            None if self.leader is None else self.leader.clone(lineage),
            None if self.follower is None else self.follower.clone(lineage),
            self.asked,
            self.partition_epoch,
            self.brokers,
            self.has_lost_power,
            self.unwritten,
        )

    @property
    def end_offset(self) -> Offset:
        return Offset(len(self.log))

    def key(self) -> Hashable:
        machine = self.leader or self.follower
        if machine is None:
            disk = (self.log, self.lineage.entries, self.high_watermark)
            return (self.broker_id, self.broker_epoch, *disk, self.has_lost_power)
        told = self.brokers if self.leader is not None else ()
        key = _since(machine.canonical_key(), self.partition_epoch)
        return (
            self.broker_id,
            self.broker_epoch,
            self.log,
            self.high_watermark,
            self.leader is not None,
            key,
            told,
            self.unwritten,
        )


class Part(NamedTuple):
    """A frozen replica, and what the rest of the world looks at again and again.

    Attributes:
        epoch: the leader epoch that it goes by; -1 while it is down.
        ask: the number of what it waits for an answer to; -1 if nothing.
        target: whom it asked.
        committed: what a leader has told to be committed.
        shown: what a follower gives to consumers.
        may_lag: the members of the ISR that a leader may find to lag.
    """

    replica: Replica
    epoch: int
    is_up: bool
    leads: bool
    log: Log
    high_watermark: int
    isr: frozenset[BrokerId]
    ask: int
    target: int
    committed: Log
    shown: Log
    may_lag: tuple[frozenset[BrokerId], ...]
    is_proposal_open: bool
    may_retry: bool
    lineage_is_wrong: bool
    has_unwritten: bool


class Done(NamedTuple):
    """What a step came to: the replica as it is now, and what it sent."""

    part: int
    proposals: tuple[Proposal, ...] = ()
    answer: int = -1


class Replicas:
    """All replicas that were seen, by number, and all steps that were tried.

    Attributes:
        done: what came of each step: the number of the replica, what happened to it, and with what.
    """

    def __init__(self, rules: Rules, *, min_insync: int, is_write_late: bool = False) -> None:
        self.rules = rules
        self.is_write_late = is_write_late
        self.settings = ReplicationSettings(min_insync, lag_ms_max=1, proposal_backoff_ms=0)
        self.parts: list[Part] = []
        self.asks: Numbers[FollowerRequest] = Numbers()
        self.answers: Numbers[Answer] = Numbers()
        self.entries: Numbers[Entry] = Numbers()
        self._numbers: dict[Hashable, int] = {}
        self.done: dict[tuple[int, ...], Done] = {}

    def freeze(self, replica: Replica) -> int:
        key = replica.key()
        number = self._numbers.get(key)
        if number is None:
            number = self._numbers[key] = len(self.parts)
            self.parts.append(self._part(replica))
        return number

    def do(self, *step: int) -> Done:
        """What comes of a step: the number of the replica, what happens to it, and with what."""
        done = self.done.get(step)
        if done is None:
            done = self.done[step] = self.do_anew(self.parts[step[0]].replica, *step[1:])
        return done

    # What may happen to a replica.

    LEARN, PRODUCE, SERVE, HEAR, LAG, UNANSWERED, RETRY, CRASH, LOSE_POWER, RESTART, WRITE = range(11)

    def do_anew(self, frozen: Replica, what: int, *args: int) -> Done:
        """The same, whether it was done before or not; the replica may be one that came about in another way."""
        replica = frozen.copy()
        fetched: Log = ()
        sent: list[Proposal] = []
        answer = -1
        leader = replica.leader
        if what == self.LEARN:
            self._learn(replica, self.entries.values[args[0]])
        elif what == self.RESTART:
            replica.broker_epoch = BrokerEpoch(replica.broker_epoch + 1)
            replica.has_lost_power = False
            self._learn(replica, self.entries.values[args[0]])
        elif what == self.SERVE:
            answer = self._serve(replica, sent, *args)
        elif what == self.HEAR:
            fetched = self._hear(replica, self.answers.values[args[0]])
        elif what == self.WRITE:
            assert replica.follower is not None
            fetched, replica.unwritten = replica.unwritten, ()
            self._append(replica, replica.follower, fetched)
        elif what == self.CRASH:
            _crash(replica)
        elif what == self.LOSE_POWER:
            _crash(replica)
            self._lose_power(replica, Offset(args[0]))
        elif leader is not None:
            if what == self.PRODUCE:
                replica.log += (Stored(leader.leader_epoch, f"m{args[0]}"),)
                leader.on_appended(replica.end_offset, 0)
            elif what == self.LAG:
                _let_lag(leader, {BrokerId(broker) for broker in args})
            elif what == self.UNANSWERED:
                leader.on_proposal_unanswered(0)
            elif what == self.RETRY:
                leader.on_tick(0)
        if replica.leader is not None:
            sent += self._lead(replica, replica.leader)
        if replica.follower is not None:
            self._follow(replica, replica.follower, fetched)
        return Done(self.freeze(replica), tuple(sent), answer)

    @staticmethod
    def _lead(replica: Replica, leader: LeaderReplica) -> tuple[Proposal, ...]:
        ready = leader.take_ready()
        replica.high_watermark = ready.high_watermark
        proposal = ready.isr_proposal
        if proposal is None:
            return ()
        told = tuple((broker, epoch) for broker, epoch in replica.brokers if broker in proposal.isr)
        return (Proposal(proposal.leader_epoch, proposal.isr, told),)

    def _follow(self, replica: Replica, follower: FollowerReplica, fetched: Log) -> None:
        """Do what the machine says is owed, in its order."""
        while True:
            owed = follower.take_ready()
            replica.high_watermark = owed.high_watermark
            if owed.truncation is not None:
                replica.log = replica.log[: owed.truncation.end_offset]
                replica.lineage.truncate_from_end(owed.truncation.end_offset)
                follower.on_truncated(replica.end_offset)
                continue
            if owed.ahead is not None:
                replica.asked = owed.ahead
                if self.is_write_late:
                    replica.unwritten = fetched
                    return
            if owed.append is not None:
                self._append(replica, follower, fetched)
                continue
            for epoch in owed.epochs:
                replica.lineage.assign(*epoch)
            if owed.request is not None:
                replica.asked = owed.request
            return

    @staticmethod
    def _append(replica: Replica, follower: FollowerReplica, records: Log) -> None:
        for record in records:
            replica.lineage.assign(record.leader_epoch, replica.end_offset)
            replica.log += (record,)
        follower.on_appended(replica.end_offset)

    def _learn(self, replica: Replica, entry: Entry) -> None:
        """Begin to lead or to follow, or go on, as the metadata says."""
        image, leader = entry.image, replica.leader
        machine = leader or replica.follower
        replica.brokers = entry.brokers
        if machine is not None and machine.leader_epoch == image.leader_epoch:
            if leader is not None:
                if entry.is_change:
                    replica.partition_epoch = PartitionEpoch(replica.partition_epoch + 1)
                    leader.on_state(replace(image, partition_epoch=replica.partition_epoch))
                leader.on_brokers(dict(entry.brokers))
            return
        bounds = LogBounds(START, replica.end_offset, replica.high_watermark)
        replica.leader = replica.follower = replica.asked = None
        replica.unwritten = ()
        replica.partition_epoch = image.partition_epoch
        if image.leader == replica.broker_id:
            replica.lineage.assign(image.leader_epoch, replica.end_offset)
            replica.leader = self.rules.leader(
                PARTITION,
                replica.broker_id,
                image,
                bounds,
                replica.lineage,
                settings=self.settings,
                now_ms=0,
                join=self.rules.join,
            )
            replica.leader.on_brokers(dict(entry.brokers))
        else:
            replica.follower = FollowerReplica(
                PARTITION,
                replica.broker_id,
                image,
                bounds,
                replica.lineage,
                settings=FollowerSettings(fetch_backoff_ms=0),
                truncation=self.rules.truncation,
                halts=self.rules.halts,
                ahead=self.rules.ahead,
            )

    def _serve(self, replica: Replica, sent: list[Proposal], ask: int, sender: int, broker_epoch: int) -> int:
        """Answer a follower's request. Returns the number of the answer; -1 for one that changes nothing there."""
        request, leader, rules = self.asks.values[ask], replica.leader, self.rules
        is_fenced = rules.is_fetch_fenced if isinstance(request, RecordsRequest) else rules.is_truncation_fenced
        if leader is None:
            return -1
        try:
            if is_fenced:
                check_leader_epoch(PARTITION, sent=request.current_leader_epoch, leader_epoch=leader.leader_epoch)
            if isinstance(request, EpochEndRequest):
                end = leader.offset_for_leader_epoch(request.leader_epoch)
                return -1 if end is None else self.answers.of(Answer(EpochEntry(*end)))
            if isinstance(request, LogStartRequest):
                return self.answers.of(Answer(leader.log_start_offset))
            accepted = leader.accept_fetch(
                FollowerFetch(
                    BrokerId(sender),
                    request.fetch_offset,
                    request.current_leader_epoch if is_fenced else None,
                    request.last_fetched_epoch if rules.compares_last_epoch else None,
                    BrokerEpoch(broker_epoch),
                    now_ms=0,
                )
            )
        except KafkaError as error:
            # Whatever else is refused is asked for again: as if the answer had been lost.
            return self.answers.of(Answer(error.code)) if error.code is Code.OFFSET_OUT_OF_RANGE else -1
        if not isinstance(accepted, AcceptedFetch):
            if rules.counts_diverging:
                counted = AcceptedFetch(BrokerId(sender), request.fetch_offset, BrokerEpoch(broker_epoch), 0)
                leader.on_fetch(counted)
                sent += self._lead(replica, leader)
            return self.answers.of(Answer(FetchOutcome(diverging=accepted)))
        leader.on_fetch(accepted)
        sent += self._lead(replica, leader)
        records = replica.log[request.fetch_offset : request.fetch_offset + FETCH_RECORDS_MAX]
        end_offset = Offset(request.fetch_offset + len(records)) if records else None
        last_leader_epoch = records[-1].leader_epoch if records else None
        outcome = FetchOutcome(
            end_offset, leader.high_watermark, leader.log_start_offset, last_leader_epoch=last_leader_epoch
        )
        return self.answers.of(Answer(outcome, records))

    def _hear(self, replica: Replica, answer: Answer) -> Log:
        follower, asked, outcome = replica.follower, replica.asked, answer.outcome
        assert follower is not None
        assert asked is not None
        if isinstance(outcome, Code):
            follower.on_refused(asked.number, outcome, 0)
        elif isinstance(outcome, FetchOutcome):
            follower.on_fetched(asked.number, outcome, 0)
        elif isinstance(asked, LogStartRequest):
            assert isinstance(outcome, int)
            follower.on_log_start(asked.number, Offset(outcome), 0)
        else:
            assert isinstance(outcome, EpochEntry)
            follower.on_epoch_end(asked.number, outcome, 0)
        follower.on_tick(0)
        return answer.records

    def _lose_power(self, replica: Replica, keeps: Offset) -> None:
        """Only the first records were on disk; epochs always are, and the high watermark is what it says at most."""
        replica.has_lost_power = True
        replica.log = replica.log[:keeps]
        if self.rules.trims_lineage:
            replica.lineage.truncate_from_end(Offset(keeps + 1))

    def _part(self, replica: Replica) -> Part:
        leader, follower = replica.leader, replica.follower
        machine = leader or follower
        asked = replica.asked
        is_shown = follower is not None and follower.is_reconciled
        isr = frozenset[BrokerId]() if leader is None else leader.isr
        return Part(
            replica,
            -1 if machine is None else machine.leader_epoch,
            machine is not None,
            leader is not None,
            replica.log,
            replica.high_watermark,
            isr,
            -1 if asked is None else self.asks.of(replace(asked, number=0)),
            -1 if asked is None else asked.leader,
            replica.log[: replica.high_watermark] if leader is not None else (),
            replica.log[: replica.high_watermark] if is_shown else (),
            () if leader is None else tuple(_some_of(_behind(leader))),
            leader is not None and leader.in_sync.is_proposal_open,
            leader is not None and leader._proposal_retry_ms is not None,
            machine is not None and not _tells(replica.lineage, replica.log),
            bool(replica.unwritten),
        )


def _crash(replica: Replica) -> None:
    replica.leader = replica.follower = replica.asked = None
    replica.brokers, replica.partition_epoch, replica.unwritten = (), FIRST, ()


def _tells(lineage: LeaderEpochLineage, log: Log) -> bool:
    """Whether it has the epochs of the records, and where each begins."""
    ours = LeaderEpochLineage()
    for offset, record in enumerate(log):
        ours.assign(record.leader_epoch, Offset(offset))
    return ours.entries == tuple(entry for entry in lineage.entries if entry.start_offset < len(log))


def _behind(leader: LeaderReplica) -> list[BrokerId]:
    if leader.in_sync.is_proposal_open:
        return []
    return [
        broker
        for broker, progress in sorted(leader.followers.progress.items())
        if broker in leader.isr and progress.end_offset != leader.log_end_offset
    ]


def _some_of(brokers: list[BrokerId]) -> Iterable[frozenset[BrokerId]]:
    for chosen in range(1, 1 << len(brokers)):
        yield frozenset(broker for at, broker in enumerate(brokers) if chosen >> at & 1)


def _let_lag(leader: LeaderReplica, lagging: set[BrokerId]) -> None:
    """There are no clocks here: anyone who is behind may have been so for too long, or for just a moment."""
    for broker, progress in leader.followers.progress.items():
        progress.caught_up_ms = 0 if broker in lagging else LAG_MS
    leader.on_tick(LAG_MS)
    for progress in leader.followers.progress.values():
        progress.caught_up_ms = 0


def _since(key: object, first: PartitionEpoch) -> Hashable:
    """The same key, with partition epochs counted from `first`: a leader compares them, and does nothing else."""
    if isinstance(key, PartitionImage):
        return replace(key, partition_epoch=PartitionEpoch(key.partition_epoch - first))
    if isinstance(key, IsrProposal):
        return replace(key, partition_epoch=PartitionEpoch(key.partition_epoch - first))
    if type(key) is tuple:
        return tuple(_since(one, first) for one in key)
    assert isinstance(key, Hashable)
    return key

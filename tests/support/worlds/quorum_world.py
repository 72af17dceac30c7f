"""Nodes of the metadata quorum on a virtual network and virtual disks, from one seed: what their driver does, in small.

The network delays, and so reorders; it drops, duplicates and cuts off. A crash forgets what was not synced. After every
step it is checked that nobody leads an epoch that another one leads, that what is committed stays so, and that nothing
is said that the disk could forget.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from heapq import heappop, heappush
from itertools import count
from typing import NamedTuple
from uuid import UUID

from tidelog.base.errors import Code
from tidelog.base.ids import BrokerId, LeaderEpoch, Offset
from tidelog.quorum import (
    Answer,
    EpochBegun,
    EpochEnded,
    FetchAnswer,
    LeaderChange,
    PeerRequest,
    QuorumFetch,
    QuorumLog,
    QuorumNode,
    QuorumRequest,
    QuorumSettings,
    QuorumState,
    ReplicaKey,
    Role,
    SnapshotId,
    VoteAnswer,
    Voter,
    VoteRequested,
    VoterSet,
)
from tidelog.quorum.recovering import PROBE_OFFSET
from tidelog.records.lineage import LeaderEpochLineage
from tidelog.sim.world.rng import SeededRng

OPENS = "leader"
"""The value of the record that opens an epoch."""

STEPS_MAX = 2_000_000


class Record(NamedTuple):
    """One record of the metadata log; a voter set is a value as well."""

    leader_epoch: LeaderEpoch
    value: object


@dataclass
class Conditions:
    """What network and disk are like.

    Attributes:
        delay_ms: of a message, at least and at most (inclusive).
        sync_ms: until what was written is on disk.
        drop, duplicate: how likely it is that a message is lost, or comes twice.
        cut: (from, to) between whom nothing passes, in silence.
        sends_high_watermark: Fetch 18; else 17, by which nobody tells (before KIP-1166).
        sends_pre_votes: else whoever tries takes an epoch at once (before KIP-996).
        compares_epochs: a log that lies beside a snapshot when a node starts goes on from it if it has its last record;
            else if it only reaches as far.
        copies_nodes: after every event a copy of the node goes on in its place.
    """

    delay_ms: tuple[int, int] = (1, 1)
    sync_ms: tuple[int, int] = (0, 0)
    drop: float = 0.0
    duplicate: float = 0.0
    cut: set[tuple[BrokerId, BrokerId]] = field(default_factory=set)
    sends_high_watermark: bool = True
    sends_pre_votes: bool = True
    compares_epochs: bool = True
    copies_nodes: bool = False


class Sent(NamedTuple):
    """A message, for whoever counts them."""

    at_ms: int
    sender: BrokerId
    receiver: BrokerId
    message: PeerRequest | Answer
    records: int


class BrokenError(AssertionError):
    """An invariant does not hold; its name comes first."""


class Machine:
    """A node with its disk. `node` is None while it is down."""

    def __init__(self, world: QuorumWorld, key: ReplicaKey, voters: VoterSet) -> None:
        self.world = world
        self.key = key
        self.configured = voters
        self.node: QuorumNode | None = None
        self.state: QuorumState | None = None
        self.records: list[Record] = []  # from offset 0, whatever a snapshot covers
        self.synced_end = 0
        self.log_start = 0
        self.snapshot: SnapshotId | None = None
        self.loaded: tuple[SnapshotId, list[Record]] | None = None  # on disk, and the log is not replaced yet
        self.crashes_loading = False
        self.lineage = LeaderEpochLineage()
        self.incarnation = 0
        self.high_watermark = 0  # the highest ever published by this incarnation
        self.told_at: dict[int, int] = {}  # when each high watermark came here
        self._arrived: dict[int, tuple[Record, ...]] = {}
        self._tick_ms: int | None = None
        self._left: tuple[QuorumNode, object] | None = None  # whom a copy took the place of, and its key

    @property
    def id(self) -> BrokerId:
        return self.key.node_id

    @property
    def leads(self) -> bool:
        return self.node is not None and self.node.standing.role is Role.LEADER

    @property
    def has_opened(self) -> bool:
        """Whether it leads, and its epoch has begun."""
        leading = None if self.node is None else self.node.leading
        return leading is not None and leading.epoch_start is not None

    # Starting and stopping.

    def start(self) -> None:
        assert self.node is None
        self.incarnation += 1
        self.high_watermark = 0
        self._tick_ms = None
        self._arrived.clear()
        self._settle_start()
        (voters, end), (previous, _) = self._voters_of_log(), self._voters_of_log(skip=1)
        log = QuorumLog(Offset(self.log_start), Offset(len(self.records)), self.lineage, self.snapshot)
        self.node = QuorumNode(
            self.key,
            voters,
            self.state,
            log,
            settings=self.world.settings,
            rng=SeededRng(f"{self.world.seed}/{self.id}/{self.incarnation}"),
            now_ms=self.world.now_ms,
            voters_end_offset=end,
            previous_voters=previous,
        )
        self.pump()

    def crash(self, *, loses_power: bool = True) -> None:
        """Its process ends; with its power goes what was not synced."""
        self.node = None
        self.incarnation += 1
        if loses_power:
            del self.records[self.synced_end :]
            self.lineage.truncate_from_end(Offset(len(self.records)))
        self.synced_end = len(self.records)

    def lose(self, what: str) -> None:
        """While it is down, its "log" goes from its disk, or its "votes", or "both"; the next start notices."""
        assert self.node is None
        if self.state is None:
            return
        if what != "votes":
            self.records, self.synced_end, self.log_start, self.snapshot, self.loaded = [], 0, 0, None, None
            self.lineage.clear()
        state = self.state if what == "log" else QuorumState(LeaderEpoch(0))
        self.state = replace(state, is_lost=True)

    # What the driver does.

    def pump(self) -> None:
        """Do what is owed, in its order, until nothing is."""
        if self.world.conditions.copies_nodes:
            self._go_on_as_copy()
        node = self.node
        while node is not None and node is self.node:
            ready = node.take_ready()
            published = ready.high_watermark
            if ready == (None, None, None, None, None, published, (), ()):
                self._publish(published)
                break
            if ready.state is not None:
                self.state = ready.state
            if ready.truncation is not None:
                self._truncate(ready.truncation, node)
            if ready.append is not None:
                self._append(self._arrived[ready.append], node)
            if ready.load is not None:
                self.world.fetch_snapshot(self, ready.load)
            if ready.leader_change is not None:
                self._open(ready.leader_change, node)
            self._publish(ready.high_watermark)
            for reply in ready.replies:
                self.world.reply(self, reply.ticket, reply.answer)
            for request in ready.requests:
                self.world.send(self, request)
        self.world.check(self)
        self._schedule_tick()

    def _go_on_as_copy(self) -> None:
        """A copy takes the place of the node, which nothing that happens to the copy must change."""
        node = self.node
        if node is None:
            return
        if self._left is not None:
            left, key = self._left
            assert left.canonical_key() == key, "what happened to a copy changed what it is a copy of"
        node.clone().take_ready()  # which takes nothing from the node
        lineage = self.lineage.clone()
        copy, key = node.clone(lineage), node.canonical_key()
        assert copy.canonical_key() == key
        self.node, self.lineage, self._left = copy, lineage, (node, key)

    def propose(self, value: object) -> int:
        """Append a record as the leader; returns its offset."""
        node = self.node
        assert node is not None
        assert self.has_opened, "it does not lead"
        offset = len(self.records)
        self._write([Record(node.standing.leader_epoch, value)], node)
        self.pump()
        return offset

    def take_snapshot(self, end_offset: int) -> None:
        """Of everything below a committed offset; the records go."""
        assert self.node is not None
        assert self.log_start < end_offset <= self.high_watermark
        self.snapshot = SnapshotId(Offset(end_offset), self.records[end_offset - 1].leader_epoch)
        self.log_start = end_offset
        self.lineage.truncate_from_start(Offset(end_offset))
        self.node.on_log_start_moved(Offset(end_offset), self.snapshot)
        self.pump()

    def on_request(self, ticket: int, message: PeerRequest) -> None:
        node, now_ms, incarnation = self.node, self.world.now_ms, self.incarnation
        assert node is not None
        if isinstance(message, VoteRequested):
            node.on_vote_request(ticket, message, now_ms)
        elif isinstance(message, EpochBegun):
            node.on_epoch_begun(ticket, message, now_ms)
        elif isinstance(message, EpochEnded):
            node.on_epoch_ended(ticket, message, now_ms)
        else:
            node.on_fetch_request(ticket, message, now_ms)
        self.pump()
        node = self.node
        if node is None or self.incarnation != incarnation:
            return
        is_probe = isinstance(message, QuorumFetch) and message.fetch_offset == PROBE_OFFSET
        if is_probe and node.is_active and node.high_watermark == node.log.log_end_offset:
            self.propose("nothing")

    def on_answer(self, number: int, answer: Answer, records: tuple[Record, ...]) -> None:
        if self.node is None:
            return
        if isinstance(answer, FetchAnswer) and records:
            self._arrived[number] = records
            end_offset = Offset(answer.fetch_offset + len(records))
            answer = FetchAnswer(
                answer.code,
                answer.leader_epoch,
                answer.leader_id,
                answer.fetch_offset,
                answer.high_watermark,
                end_offset=end_offset,
            )
        self.node.on_answered(number, answer, self.world.now_ms)
        self.pump()
        self._arrived.clear()

    def tell(self, event: Callable[[QuorumNode], None]) -> None:
        """Something else happened, unless it is down."""
        if self.node is not None:
            event(self.node)
            self.pump()

    def on_snapshot(self, snapshot: SnapshotId, records: list[Record] | None) -> None:
        node = self.node
        if node is None:
            return
        if records is None:
            node.on_snapshot_failed(self.world.now_ms)
            self.pump()
            return
        self.loaded = (snapshot, records)
        if self.crashes_loading:
            self.crashes_loading = False
            self.world.crash(self.id)
            return
        incarnation = self.incarnation

        def replace_log() -> None:
            if self.incarnation == incarnation and self.node is not None:
                self._start_at(snapshot, records)
                self.node.on_snapshot_loaded(snapshot, self.world.now_ms)
                self._publish_voters(self.node)
                self.pump()

        self.world.after(self.world.draw(self.world.conditions.sync_ms), replace_log)

    def _settle_start(self) -> None:
        """A crash may have left a snapshot beside the log that it was to replace."""
        if self.loaded is None:
            return
        (snapshot, records), self.loaded = self.loaded, None
        log = QuorumLog(Offset(self.log_start), Offset(len(self.records)), self.lineage, self.snapshot)
        is_long_enough = log.log_end_offset >= snapshot.end_offset
        if not (log.continues(snapshot) if self.world.conditions.compares_epochs else is_long_enough):
            self._start_at(snapshot, records)
        elif self.snapshot is None:  # the log starts at the oldest one
            self.log_start = snapshot.end_offset
            self.lineage.truncate_from_start(snapshot.end_offset)
        self.snapshot = snapshot

    def _start_at(self, snapshot: SnapshotId, records: list[Record]) -> None:
        self.loaded = None
        self.records = list(records)
        self.log_start = self.synced_end = snapshot.end_offset
        self.snapshot = snapshot
        self.lineage.clear()
        self.lineage.assign(snapshot.leader_epoch, snapshot.end_offset)

    def _truncate(self, end_offset: Offset, node: QuorumNode) -> None:
        if end_offset < self.high_watermark:
            raise BrokenError(f"CommittedStays: {self.id} truncates to {end_offset}")
        del self.records[end_offset:]
        self.lineage.truncate_from_end(end_offset)
        self.synced_end = end_offset
        node.on_truncated(end_offset, self.world.now_ms)
        self._publish_voters(node)

    def _append(self, records: tuple[Record, ...], node: QuorumNode) -> None:
        self._write(list(records), node)

    def _write(self, records: list[Record], node: QuorumNode) -> None:
        for record in records:
            self.lineage.assign(record.leader_epoch, Offset(len(self.records)))
            self.records.append(record)
        node.on_appended(Offset(len(self.records)), self.world.now_ms)
        if any(isinstance(record.value, VoterSet) for record in records):
            self._publish_voters(node)
        self._sync_later()

    def _open(self, change: LeaderChange, node: QuorumNode) -> None:
        start = Offset(len(self.records))
        self.world.on_leads(self, change)
        self.lineage.assign(change.leader_epoch, start)
        self.records.append(Record(change.leader_epoch, OPENS))
        node.on_epoch_opened(start, self.world.now_ms)
        self._sync_later()

    def _sync_later(self) -> None:
        """What was written is on disk some time later."""
        end, incarnation = len(self.records), self.incarnation

        def synced() -> None:
            if self.incarnation == incarnation and end <= len(self.records):
                self.synced_end = max(self.synced_end, end)
                self.tell(lambda node: node.on_synced(Offset(end), self.world.now_ms))

        self.world.after(self.world.draw(self.world.conditions.sync_ms), synced)

    def _publish(self, high_watermark: Offset | None) -> None:
        if high_watermark is None:
            return
        if high_watermark < self.high_watermark:
            raise BrokenError(f"HighWatermarkNeverGoesBack: {self.id} at {self.high_watermark}, now {high_watermark}")
        if high_watermark > self.high_watermark:
            self.high_watermark = high_watermark
            self.told_at[high_watermark] = self.world.now_ms
            self.world.on_committed(self, high_watermark)

    def _voters_of_log(self, skip: int = 0) -> tuple[VoterSet, Offset]:
        for offset in reversed(range(len(self.records))):
            value = self.records[offset].value
            if isinstance(value, VoterSet):
                skip -= 1
                if skip < 0:
                    return value, Offset(offset + 1)
        return self.configured, Offset(0)

    def _publish_voters(self, node: QuorumNode) -> None:
        voters, end = self._voters_of_log()
        if voters != node.voters.latest or end != node.voters.end_offset:
            node.on_voters(voters, self.world.now_ms, end_offset=end)

    def _schedule_tick(self) -> None:
        deadline_ms = None if self.node is None else self.node.next_deadline_ms()
        if deadline_ms is None or (self._tick_ms is not None and self._tick_ms <= deadline_ms):
            return
        incarnation = self.incarnation
        self._tick_ms = deadline_ms = max(deadline_ms, self.world.now_ms)

        def tick() -> None:
            if self.incarnation == incarnation:
                self._tick_ms = None
                self.tell(lambda node: node.on_tick(self.world.now_ms))

        self.world.at(deadline_ms, tick)


class QuorumWorld:
    """So many voters, and observers beside them; ids from 1. The clock is at 0 and nobody has been started."""

    def __init__(
        self,
        voters: int = 3,
        observers: int = 0,
        *,
        seed: object = 0,
        settings: QuorumSettings | None = None,
        conditions: Conditions | None = None,
        has_directories: bool = False,
        is_configured: bool = False,
    ) -> None:
        """A world that has not started.

        Args:
            has_directories: the voters are from the log (KIP-853), and can be changed.
            is_configured: nodes have directories, but the voters are from the settings, until the log says otherwise.
        """
        self.seed = seed
        self.rng = SeededRng(f"{seed}/network")
        self.settings = QuorumSettings() if settings is None else settings
        self.conditions = Conditions() if conditions is None else conditions
        self.now_ms = 0
        self.events: list[str] = []
        self.committed: list[Record] = []
        self.leaders: dict[LeaderEpoch, ReplicaKey] = {}
        self.sent: list[Sent] | None = None  # a list, to have all of them in it
        keys = [
            ReplicaKey(BrokerId(one), UUID(int=one) if has_directories or is_configured else None)
            for one in range(1, voters + observers + 1)
        ]
        named = [ReplicaKey(key.node_id) for key in keys] if is_configured else keys
        configured = VoterSet(tuple(map(Voter, named[:voters])), version=int(has_directories))
        self.machines = {key.node_id: Machine(self, key, configured) for key in keys}
        self._events: list[tuple[int, int, Callable[[], None]]] = []
        self._order = count()
        self._tickets = count(1)
        self._askers: dict[int, tuple[Machine, int, int, PeerRequest]] = {}

    def machine(self, number: int) -> Machine:
        return self.machines[BrokerId(number)]

    def start(self) -> None:
        for machine in self.machines.values():
            machine.start()

    @property
    def leader(self) -> Machine | None:
        """Of the newest epoch among those that lead."""
        leading = [machine for machine in self.machines.values() if machine.leads]
        return max(leading, key=_epoch, default=None)

    @property
    def active(self) -> Machine | None:
        """A leader that has committed a record of its epoch."""
        leader = self.leader
        leading = None if leader is None or leader.node is None else leader.node.leading
        if leader is None or leading is None or leading.epoch_start is None:
            return None
        return leader if leader.high_watermark > leading.epoch_start else None

    # Time.

    def at(self, at_ms: int, event: Callable[[], None]) -> None:
        heappush(self._events, (at_ms, next(self._order), event))

    def after(self, delay_ms: int, event: Callable[[], None]) -> None:
        self.at(self.now_ms + delay_ms, event)

    def run(self, for_ms: int) -> None:
        """Let so much time pass."""
        until = self.now_ms + for_ms
        while self._events and self._events[0][0] <= until:
            self._step()
        self.now_ms = until

    def run_until(self, condition: Callable[[], object], *, at_most_ms: int = 60_000) -> int:
        """Until it holds; returns how long that took. Raises AssertionError if it does not in time."""
        began, steps = self.now_ms, 0
        while not condition():
            assert self._events, "nothing happens any more"
            assert self._events[0][0] <= began + at_most_ms, f"not within {at_most_ms} ms: {self}"
            steps += 1
            assert steps < STEPS_MAX, "too many steps"
            self._step()
        return self.now_ms - began

    def _step(self) -> None:
        at_ms, _, event = heappop(self._events)
        self.now_ms = max(self.now_ms, at_ms)
        event()

    def draw(self, bounds: tuple[int, int]) -> int:
        return self.rng.randrange(bounds[0], bounds[1] + 1)

    # The network.

    def send(self, sender: Machine, request: QuorumRequest) -> None:
        message = request.message
        if isinstance(message, QuorumFetch):
            if sender.synced_end < message.fetch_offset != PROBE_OFFSET:
                raise BrokenError(f"SyncedBeforeSent: {sender.id} fetches from {message.fetch_offset}")
            if not self.conditions.sends_high_watermark:
                message = QuorumFetch(*_fields(message)[:-1], sends_high_watermark=False)
        elif message.leader_epoch > _saved_epoch(sender):
            raise BrokenError(f"SavedBeforeSent: {sender.id} speaks of leader epoch {message.leader_epoch}")
        elif isinstance(message, VoteRequested) and not message.is_pre_vote:
            assert sender.state is not None
            if sender.state.voted_id != sender.id:
                raise BrokenError(f"SavedBeforeSent: {sender.id} asks for votes, and did not vote for itself")
        receiver = self.machines.get(request.target)
        if isinstance(message, VoteRequested) and message.is_pre_vote and not self.conditions.sends_pre_votes:
            granted = VoteAnswer(Code.NONE, message.leader_epoch, None, is_granted=True)
            self.after(0, lambda: sender.on_answer(request.number, granted, ()))
            return
        self._note(sender.id, request.target, message)
        incarnation = sender.incarnation

        def failed() -> None:
            if sender.incarnation == incarnation:
                sender.tell(lambda node: node.on_unanswered(request.number, self.now_ms))

        def arrives() -> None:
            if receiver is None or receiver.node is None:
                self.after(self.draw(self.conditions.delay_ms), failed)  # the connection is refused
                return
            ticket = next(self._tickets)
            self._askers[ticket] = (sender, incarnation, request.number, message)
            receiver.on_request(ticket, message)

        self.after(self.settings.request_timeout_ms, failed)
        self._transport(sender.id, request.target, arrives)

    def reply(self, sender: Machine, ticket: int, answer: Answer) -> None:
        asker, incarnation, number, asked = self._askers.pop(ticket)
        records: tuple[Record, ...] = ()
        if isinstance(answer, VoteAnswer) and answer.is_granted and isinstance(asked, VoteRequested):
            state = sender.state
            if not asked.is_pre_vote and (
                state is None or (state.leader_epoch, state.voted_id) != (asked.leader_epoch, asked.candidate.node_id)
            ):
                raise BrokenError(f"SavedBeforeSent: {sender.id} votes for {asked.candidate.node_id}: {state}")
        is_served = isinstance(answer, FetchAnswer) and answer.code is Code.NONE
        if is_served and isinstance(answer, FetchAnswer) and answer.diverging is None and answer.snapshot is None:
            records = tuple(sender.records[answer.fetch_offset :])
        self._note(sender.id, asker.id, answer, len(records))

        def arrives() -> None:
            if asker.incarnation == incarnation:
                asker.on_answer(number, answer, records)

        self._transport(sender.id, asker.id, arrives)

    def _transport(self, sender: BrokerId, receiver: BrokerId, arrives: Callable[[], None]) -> None:
        conditions = self.conditions
        if (sender, receiver) in conditions.cut or self.rng.random() < conditions.drop:
            return
        self.after(self.draw(conditions.delay_ms), arrives)
        if conditions.duplicate and self.rng.random() < conditions.duplicate:
            self.after(self.draw(conditions.delay_ms), arrives)

    def fetch_snapshot(self, machine: Machine, snapshot: SnapshotId) -> None:
        node = machine.node
        assert node is not None
        leader = None if node.standing.leader_id is None else self.machines.get(node.standing.leader_id)
        incarnation, epoch = machine.incarnation, node.standing.leader_epoch

        def arrives() -> None:
            if machine.incarnation != incarnation:
                return
            records = None
            if leader is not None and leader.node is not None:
                code = leader.node.on_snapshot_request(machine.key, epoch, self.now_ms)
                leader.pump()
                if code is Code.NONE and leader.snapshot == snapshot:
                    records = leader.records[: snapshot.end_offset]
            machine.on_snapshot(snapshot, records)

        self.after(2 * self.draw(self.conditions.delay_ms), arrives)

    def _note(self, sender: BrokerId, receiver: BrokerId, message: PeerRequest | Answer, records: int = 0) -> None:
        if self.sent is not None:
            self.sent.append(Sent(self.now_ms, sender, receiver, message, records))

    # Faults.

    def lose_disk(self, number: int) -> None:
        """A process ends, and comes back with a new, empty directory."""
        old = self.machine(number)
        self.crash(number)
        key = ReplicaKey(old.id, UUID(int=self.rng.randrange(1 << 32, 1 << 64)))
        machine = self.machines[old.id] = Machine(self, key, old.configured)
        machine.start()

    def crash(self, number: int, *, is_noticed: bool = True, loses_power: bool = True) -> None:
        """A process ends; the others see its connections close, unless the whole host is gone."""
        gone = self.machine(number)
        gone.crash(loses_power=loses_power)
        if is_noticed:
            for machine in self.machines.values():
                self.close(machine, gone.id)

    def close(self, machine: Machine, node_id: BrokerId) -> None:
        """The connection of one to another closes."""
        incarnation = machine.incarnation

        def closed() -> None:
            if machine.incarnation == incarnation:
                machine.tell(lambda node: node.on_peer_closed(node_id, self.now_ms))

        self.after(self.draw(self.conditions.delay_ms), closed)

    def isolate(self, number: int) -> None:
        """Nothing passes between it and the others, and nobody is told."""
        one = BrokerId(number)
        self.conditions.cut |= {(one, other) for other in self.machines} | {(other, one) for other in self.machines}

    def heal(self) -> None:
        self.conditions.cut.clear()

    # What must hold.

    def on_leads(self, machine: Machine, change: LeaderChange) -> None:
        first = self.leaders.setdefault(change.leader_epoch, machine.key)
        if first != machine.key or machine.state is None or machine.state.leader_id != machine.id:
            raise BrokenError(f"OneLeaderAnEpoch: {first} and {machine.key} lead in {change.leader_epoch}")
        if any(record.leader_epoch == change.leader_epoch for record in machine.records):
            raise BrokenError(f"EpochOffsetUnique: {machine.id} opens {change.leader_epoch} again")
        is_newest = not self.committed or change.leader_epoch > self.committed[-1].leader_epoch
        if is_newest and machine.records[: len(self.committed)] != self.committed:
            raise BrokenError(f"CommittedStays: leader {machine.id} of {change.leader_epoch} lacks some of it")

    def on_committed(self, machine: Machine, high_watermark: int) -> None:
        if high_watermark > len(machine.records):
            raise BrokenError(f"CommittedIsThere: {machine.id} has {len(machine.records)}, committed {high_watermark}")
        known = len(self.committed)
        if machine.records[: min(known, high_watermark)] != self.committed[:high_watermark]:
            raise BrokenError(f"CommittedStays: at {machine.id} it is something else")
        self.committed += machine.records[known:high_watermark]

    def check(self, machine: Machine) -> None:
        """After each step of a machine."""
        node = machine.node
        if node is None or node.standing.role is not Role.LEADER:
            return
        if self.leaders.setdefault(node.standing.leader_epoch, machine.key) != machine.key:
            raise BrokenError(f"OneLeaderAnEpoch: {machine.key} leads in {node.standing.leader_epoch} as well")

    def check_logs(self) -> None:
        """Where two logs have the same epoch at the same offset they are the same up to there."""
        machines = list(self.machines.values())
        for one in machines:
            for other in machines:
                shared = min(len(one.records), len(other.records))
                last = next(
                    (at for at in reversed(range(shared)) if _same_epoch(one.records[at], other.records[at])), -1
                )
                if one.records[: last + 1] != other.records[: last + 1]:
                    raise BrokenError(f"LogsArePrefixes: {one.id} and {other.id}")

    def __str__(self) -> str:
        lines = [f"at {self.now_ms} ms, {len(self.committed)} committed"]
        for machine in self.machines.values():
            node = machine.node
            if node is None:
                lines.append(f"{machine.id} down, {len(machine.records)} records")
            else:
                standing = node.standing
                lines.append(
                    f"{machine.id} {standing.role.value} epoch={standing.leader_epoch} leader={standing.leader_id} "
                    f"end={len(machine.records)} synced={machine.synced_end} committed={node.high_watermark}"
                )
        return "\n".join(lines)


def _same_epoch(one: Record, other: Record) -> bool:
    return one.leader_epoch == other.leader_epoch


def _epoch(machine: Machine) -> LeaderEpoch:
    assert machine.node is not None
    return machine.node.standing.leader_epoch


def _saved_epoch(machine: Machine) -> int:
    return -1 if machine.state is None else machine.state.leader_epoch


def _fields(fetch: QuorumFetch) -> tuple[ReplicaKey, LeaderEpoch, Offset, LeaderEpoch, Offset | None, int, bool]:
    return (
        fetch.replica,
        fetch.leader_epoch,
        fetch.fetch_offset,
        fetch.last_fetched_epoch,
        fetch.high_watermark,
        fetch.wait_ms_max,
        fetch.sends_high_watermark,
    )

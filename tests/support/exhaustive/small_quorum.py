"""The metadata quorum, as small as it can be and still go wrong: what may happen next, in any state.

The nodes are those of production, driven as their driver does it. A state is a few numbers: of each node with its disk,
of the answers that are on their way, and of what was committed and who led. No clock and no counter is in it. A request
that is lost is sent again, so one that is on its way, one that is lost and one that comes twice are the same.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass, replace
from typing import NamedTuple, TypeVar
from uuid import UUID

from support.exhaustive.small_world_parts import Numbers
from support.exhaustive.small_world_search import Found, State
from tidelog.base.errors import Code, InvariantBrokenError
from tidelog.base.ids import BrokerId, LeaderEpoch, Offset
from tidelog.quorum import (
    Answer,
    EpochBegun,
    EpochEnded,
    FetchAnswer,
    PeerRequest,
    QuorumFetch,
    QuorumLog,
    QuorumNode,
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
from tidelog.records.lineage import LeaderEpochLineage

SETTINGS = QuorumSettings(
    election_timeout_ms=1, election_backoff_ms_max=1, retry_backoff_ms=0, fetch_wait_ms_max=0, fetch_timeout_ms=1_000
)
T = TypeVar("T", bound=Hashable)


@dataclass(frozen=True)
class QuorumBounds:
    """How small.

    Attributes:
        records: that are written in all, besides those that open epochs.
        epochs: of leaders; the first one leads when the world begins, and what opened its epoch is everywhere.
        candidates: nodes, the first ones, for which time passes: who leads may resign, the others may try to.
        losses: of power, which takes what is not synced.
        has_pre_votes: whether they are asked for; else everybody would grant one, always.
        is_told: whether who leads, or does no more, says so; else it is found out by fetching, which is no less safe.
        is_sync_late: whether what happens meanwhile may come between writing and syncing.
        late_answers: how many may be on their way at once, while something else happens.
        snapshots: that leaders make in all; the records below one go, and who lags loads it.
        amnesia: what one voter may lose, once: "log", "votes", or "" for nothing.
        forgets: what is wrong with the disks, for a world that has to break: "votes" or "syncs"; or "epochs", where a
            log counts as the snapshot's that lies beside it if it only reaches as far.
    """

    nodes: int = 3
    records: int = 1
    epochs: int = 3
    candidates: int = 3
    losses: int = 1
    has_pre_votes: bool = False
    is_told: bool = False
    is_sync_late: bool = False
    late_answers: int = 0
    snapshots: int = 0
    amnesia: str = ""
    forgets: str = ""

    @property
    def text(self) -> str:
        """As the tables show it."""
        said = [f"{self.nodes} voters, {self.epochs} epochs"]
        said += [f"{self.records} record{'s' * (self.records > 1)}"] if self.records else []
        said += [f"{self.candidates} of them try to lead"] if self.candidates < self.nodes else []
        said += ["a loss of power" if self.losses == 1 else f"{self.losses} losses of power"] if self.losses else []
        for is_so, what in (
            (self.has_pre_votes, "pre-votes"),
            (self.is_told, "epochs are announced"),
            (self.is_sync_late, "late syncs"),
            (self.late_answers == 1, "a late answer at a time"),
            (self.late_answers > 1, f"{self.late_answers} late answers at a time"),
            (self.snapshots == 1, "a snapshot"),
            (self.snapshots > 1, f"{self.snapshots} snapshots"),
            (self.amnesia == "log", "a voter loses its log"),
            (self.amnesia == "votes", "a voter forgets its votes"),
        ):
            said += [what] if is_so else []
        return ", ".join(said)


class Disk(NamedTuple):
    """What a loss of power leaves, and what it may take: the leader epoch of each record, by offset.

    Attributes:
        records: from offset 0, those that the snapshot covers included.
        start: of the log.
        snapshot: the latest.
        loaded: what a snapshot covers that came from the leader, and that the log is yet to be replaced by.
    """

    records: tuple[LeaderEpoch, ...] = ()
    synced: int = 0
    saved: QuorumState | None = None
    start: int = 0
    snapshot: SnapshotId | None = None
    loaded: tuple[LeaderEpoch, ...] = ()


class Asking(NamedTuple):
    target: int
    message: PeerRequest


class Part(NamedTuple):
    """A node with its disk; `node` is None while it is down. Never changed.

    Attributes:
        asks: what it waits for an answer to.
    """

    disk: Disk
    node: QuorumNode | None
    now_ms: int
    asks: tuple[Asking, ...] = ()

    @property
    def leads(self) -> bool:
        return self.node is not None and self.node.standing.role is Role.LEADER


class Sent(NamedTuple):
    """An answer on its way, with the epochs of the records that come with it."""

    asker: int
    asking: Asking
    answer: Answer
    records: tuple[LeaderEpoch, ...]


class Done(NamedTuple):
    """What came of an event at one node.

    Attributes:
        opened: the epoch that it began to lead in.
        committed: what it knows to be committed, if that is new.
    """

    part: int
    answer: Answer | None = None
    records: tuple[LeaderEpoch, ...] = ()
    opened: LeaderEpoch | None = None
    committed: tuple[LeaderEpoch, ...] = ()
    broken: str = ""


class Told(NamedTuple):
    """What of the bounds was used up, what must hold from now on, and what has been broken on the way."""

    records: int = 0
    losses: int = 0
    snapshots: int = 0
    amnesias: int = 0
    committed: tuple[LeaderEpoch, ...] = ()
    leaders: tuple[tuple[LeaderEpoch, int], ...] = ()
    broken: str = ""


class NoRng:
    """The longest time-outs: none of them is at once, and the world says when they are over."""

    def random(self) -> float:
        return 0.0

    def randrange(self, start: int, stop: int) -> int:
        return stop - 1

    def uuid(self) -> UUID:
        return UUID(int=0)


class Bench:
    """One node on its bench, while something happens to it: its driver."""

    def __init__(self, world: SmallQuorum, number: int, part: Part) -> None:
        self.world = world
        self.number = number
        self.records = list(part.disk.records)
        self.synced = part.disk.synced
        self.saved = part.disk.saved
        self.log_start = part.disk.start
        self.snapshot = part.disk.snapshot
        self.loaded = part.disk.loaded
        self.now_ms = part.now_ms
        self.answer: Answer | None = None
        self.opened: LeaderEpoch | None = None
        self.arrived: tuple[LeaderEpoch, ...] = ()
        self.lineage = LeaderEpochLineage()
        self.node: QuorumNode | None = None
        if part.node is not None:
            self.lineage = part.node.log.lineage.clone()
            self.node = part.node.clone(self.lineage)

    def start(self) -> None:
        self.lineage.clear()
        for offset, leader_epoch in enumerate(self.records):
            self.lineage.assign(leader_epoch, Offset(offset))
        self._trim(self.log_start)
        self.log_start = 0  # what says so comes last to the disk, after the snapshot and the lineage
        self._settle_start()
        log = QuorumLog(Offset(self.log_start), Offset(len(self.records)), self.lineage, self.snapshot)
        self.now_ms = 0
        self.node = QuorumNode(
            self.world.keys[self.number],
            self.world.voters,
            self.saved,
            log,
            settings=SETTINGS,
            rng=NoRng(),
            now_ms=0,
        )
        self.node._elections._is_fresh = False  # it is about time

    def take_snapshot(self) -> None:
        """As the leader, of all that it knows to be committed."""
        assert self.node is not None
        assert self.node.high_watermark is not None
        self._trim(self.node.high_watermark)
        self.snapshot = _snapshot_of(self.records[: self.log_start])
        self.node.on_log_start_moved(Offset(self.log_start), self.snapshot)

    def finish_load(self) -> None:
        """Start the log anew behind the snapshot; not if another node leads meanwhile, and the snapshot stays."""
        node = self.node
        assert node is not None
        if node.standing.role is Role.FOLLOWER:
            self._start_at_loaded()
            assert self.snapshot is not None
            node.on_snapshot_loaded(self.snapshot, self.now_ms)
        else:
            node.on_snapshot_failed(self.now_ms)

    def _trim(self, start: int) -> None:
        self.log_start = start
        if start:
            self.lineage.truncate_from_start(Offset(start))

    def _settle_start(self) -> None:
        """A loss of power may have left a snapshot beside the log that it was to replace."""
        snapshot = _snapshot_of(list(self.loaded)) or self.snapshot
        if snapshot is None:
            return
        self.loaded = self.loaded or tuple(self.records[: snapshot.end_offset])
        log = QuorumLog(Offset(self.log_start), Offset(len(self.records)), self.lineage)
        is_long_enough = log.log_end_offset >= snapshot.end_offset
        if not (is_long_enough if self.world.bounds.forgets == "epochs" else log.continues(snapshot)):
            self._start_at_loaded()
        elif self.log_start == 0:
            self._trim(snapshot.end_offset)
        self.snapshot, self.loaded = snapshot, ()

    def _start_at_loaded(self) -> None:
        self.records = list(self.loaded)
        self.log_start = self.synced = len(self.loaded)
        self.snapshot, self.loaded = _snapshot_of(self.records), ()
        self.lineage.clear()
        self.lineage.assign(self.records[-1], Offset(self.log_start))

    def lose_power(self) -> None:
        """And come back: who is down, and who is not heard of, are the same."""
        del self.records[self.synced :]
        if self.world.bounds.forgets == "votes" and self.saved is not None:
            self.saved = QuorumState(self.saved.leader_epoch)
        self.start()

    def forget(self, what: str) -> None:
        """Its process ends, its log or its votes go from its disk, and it comes back: it notices."""
        if what == "log":
            self.records, self.synced, self.log_start, self.snapshot, self.loaded = [], 0, 0, None, ()
        state = QuorumState(LeaderEpoch(0), has_records=True) if what == "votes" else self.saved
        assert state is not None
        self.saved = replace(state, is_lost=True)
        self.start()

    def write(self, leader_epochs: tuple[LeaderEpoch, ...]) -> None:
        assert self.node is not None
        for leader_epoch in leader_epochs:
            self.lineage.assign(leader_epoch, Offset(len(self.records)))
            self.records.append(leader_epoch)
        self.node.on_appended(Offset(len(self.records)), self.now_ms)
        self._written()

    def sync(self) -> None:
        assert self.node is not None
        self.synced = len(self.records)
        self.node.on_synced(Offset(self.synced), self.now_ms)

    def pump(self) -> None:
        """Do what is owed."""
        node = self.node
        while node is not None:
            ready = node.take_ready()
            if ready.state is not None:
                self.saved = ready.state
            if ready.truncation is not None:
                del self.records[ready.truncation :]
                self.synced = ready.truncation
                self.lineage.truncate_from_end(ready.truncation)
                node.on_truncated(ready.truncation, self.now_ms)
            if ready.append is not None:
                self.write(self.arrived)
            if ready.load is not None:
                self.loaded = self.arrived
            if ready.leader_change is not None:
                self._open(node, ready.leader_change.leader_epoch)
            for reply in ready.replies:
                self.answer = reply.answer
            if (ready.truncation, ready.append, ready.leader_change) == (None, None, None):
                return

    def part(self) -> Part:
        disk = Disk(tuple(self.records), self.synced, self.saved, self.log_start, self.snapshot, self.loaded)
        node = self.node
        if node is None:
            return Part(disk, None, 0)
        self._forget_what_is_of_no_effect(node)
        asking, awaited = node._elections.outstanding, node.following.awaited
        asks = []
        if awaited is not None:
            is_seeking = node.standing.leader_id is None or node.standing.is_leader_lost
            targets = [at for at in range(self.world.size) if at != self.number] if is_seeking else [awaited.target - 1]
            asks = [Asking(target, awaited.fetch) for target in targets]
        if asking is not None:
            asks += [Asking(one - 1, node._elections.message_for(one)) for one in asking._awaited.values()]
        return Part(disk, node, self.now_ms, tuple(asks))

    def _forget_what_is_of_no_effect(self, node: QuorumNode) -> None:
        """In this world: who seeks a leader may ask anybody, and who leads tells nobody."""
        following, elections = node.following, node._elections
        following._turn = following._failures = 0
        if following.awaited is not None and node.standing.leader_id is None:
            following.awaited = following.awaited._replace(target=BrokerId(0))
        told = following.leader_high_watermark
        if told is not None and told <= (node.high_watermark or 0):
            following.leader_high_watermark = None
        if not self.world.bounds.is_told and node.standing.role in (Role.LEADER, Role.RESIGNED):
            elections.outstanding, elections._preferred = None, ()

    def _open(self, node: QuorumNode, leader_epoch: LeaderEpoch) -> None:
        self.opened = leader_epoch
        start = Offset(len(self.records))
        self.lineage.assign(leader_epoch, start)
        self.records.append(leader_epoch)
        node.on_epoch_opened(start, self.now_ms)
        self._written()

    def _written(self) -> None:
        assert self.node is not None
        if not self.world.bounds.is_sync_late:
            self.sync()
        elif self.world.bounds.forgets == "syncs":
            self.node.on_synced(Offset(len(self.records)), self.now_ms)


class SmallQuorum:
    """All that may happen, in any state."""

    def __init__(self, bounds: QuorumBounds) -> None:
        self.bounds = bounds
        self.size = size = bounds.nodes
        self.keys = tuple(ReplicaKey(BrokerId(number)) for number in range(1, size + 1))
        self.voters = VoterSet(tuple(map(Voter, self.keys)))
        self.parts: list[Part] = []
        self.told: Numbers[Told] = Numbers()
        self.sent: Numbers[frozenset[Sent]] = Numbers()
        self.done: dict[tuple[int, int, Hashable], Done] = {}
        self._known: dict[object, int] = {}
        self.TOLD, self.SENT = size, size + 1
        self._nothing_sent = self.sent.of(frozenset())
        self.initial = self._initial()

    # What may happen.

    def successors(self, state: State) -> Found:
        found: Found = []
        told = self.told.values[state[self.TOLD]]
        if told.broken:
            return found
        for at in range(self.size):
            part = self.parts[state[at]]
            assert part.node is not None
            if told.losses < self.bounds.losses:
                spent = told._replace(losses=told.losses + 1)
                found.append((("lose-power", at + 1), self._happen(state, at, "lose-power", told=spent)))
            if told.amnesias < bool(self.bounds.amnesia):
                spent = told._replace(amnesias=told.amnesias + 1)
                found.append((("forget", at + 1), self._happen(state, at, ("forget", self.bounds.amnesia), told=spent)))
            if at < self.bounds.candidates and part.node.standing.leader_epoch < self.bounds.epochs:
                found.append((("time-out", at + 1), self._happen(state, at, "time-out")))
            if part.leads and told.records < self.bounds.records:
                spent = told._replace(records=told.records + 1)
                found.append((("write", at + 1), self._happen(state, at, "write", told=spent)))
            has_news = part.node.is_active and (part.node.high_watermark or 0) > part.disk.start
            if has_news and told.snapshots < self.bounds.snapshots:
                spent = told._replace(snapshots=told.snapshots + 1)
                found.append((("snapshot", at + 1), self._happen(state, at, "snapshot", told=spent)))
            if part.node.following.is_loading and part.node.following.load is None:
                found.append((("finish-load", at + 1), self._happen(state, at, "finish-load")))
            if part.disk.synced < len(part.disk.records):
                found.append((("sync", at + 1), self._happen(state, at, "sync")))
            for asking in part.asks:
                if self.bounds.is_told or isinstance(asking.message, QuorumFetch | VoteRequested):
                    self._ask(state, at, asking, found)
        for sent in self.sent.values[state[self.SENT]]:
            after = list(state)
            after[self.SENT] = self.sent.of(self.sent.values[state[self.SENT]] - {sent})
            arrived = self._happen(tuple(after), sent.asker, ("answer", sent))
            found.append((("arrive", sent.asker + 1, sent.asking.target + 1), arrived))
        return [(action, after) for action, after in found if after != state]

    def broken(self, state: State) -> str:
        return self.told.values[state[self.TOLD]].broken

    def describe(self, state: State) -> str:
        """One line a node, for whoever looks for what went wrong."""
        lines = []
        for at in range(self.size):
            part = self.parts[state[at]]
            node, disk = part.node, part.disk
            who = (
                "down"
                if node is None
                else f"{node.standing.role.value} epoch={node.standing.leader_epoch} hw={node.high_watermark}"
            )
            log = f"log={list(disk.records)} from {disk.start} synced={disk.synced}"
            lines.append(f"{at + 1} {who} {log}" + (f" loaded={list(disk.loaded)}" if disk.loaded else ""))
        return "\n".join(lines)

    # How it happens.

    def _initial(self) -> State:
        """Node 1 leads, and all of its log is everywhere, and committed as far as everybody knows."""
        parts = [self._part_number(at, Part(Disk(), None, 0)) for at in range(self.size)]
        state: State = (*parts, self.told.of(Told()), self._nothing_sent)
        for at in range(self.size):
            state = self._happen(state, at, "start")
        state = self._happen(state, 0, "time-out")
        for _ in range(8):
            for at in range(self.size):
                for asking in self.parts[state[at]].asks:
                    state = self._served(state, at, asking)
        assert self.parts[state[0]].leads
        assert all(self.parts[state[at]].disk.records == (1,) for at in range(self.size))
        return state

    def _served(self, state: State, at: int, asking: Asking) -> State:
        """It is asked and answered, with nothing in between."""
        done = self._do(asking.target, state[asking.target], ("request", at, asking.message))
        after = self._note(state, asking.target, done)
        if done.answer is None or asking not in self.parts[after[at]].asks:
            return after
        return self._happen(after, at, ("answer", Sent(at, asking, done.answer, done.records)))

    def _ask(self, state: State, at: int, asking: Asking, found: Found) -> None:
        target = self.parts[state[asking.target]]
        assert target.node is not None
        action = ("ask", at + 1, asking.target + 1, type(asking.message).__name__)
        found.append((action, self._served(state, at, asking)))
        waiting = self.sent.values[state[self.SENT]]
        if len(waiting) >= self.bounds.late_answers:
            return
        done = self._do(asking.target, state[asking.target], ("request", at, asking.message))
        after = list(self._note(state, asking.target, done))
        if done.answer is not None and asking in self.parts[after[at]].asks:
            sent = Sent(at, asking, done.answer, done.records)
            after[self.SENT] = self.sent.of(self.sent.values[after[self.SENT]] | {sent})
            found.append(((*action, "late"), tuple(after)))

    def _happen(self, state: State, at: int, event: Hashable, *, told: Told | None = None) -> State:
        if told is not None:
            state = (*state[: self.TOLD], self.told.of(told), *state[self.TOLD + 1 :])
        return self._note(state, at, self._do(at, state[at], event))

    def _note(self, state: State, at: int, done: Done) -> State:
        """What a node is now, and what follows from what it said."""
        after = list(state)
        after[at] = done.part
        told = self.told.values[state[self.TOLD]]
        if done.broken:
            told = told._replace(broken=done.broken)
        if done.opened is not None:
            told = self._opened(told, at, done)
        if done.committed:
            told = _committed(told, at, done.committed)
        after[self.TOLD] = self.told.of(told)
        waiting = self.sent.values[state[self.SENT]]
        if waiting:
            asks = self.parts[done.part].asks
            kept = frozenset(one for one in waiting if one.asker != at or one.asking in asks)
            after[self.SENT] = self.sent.of(kept)
        return tuple(after)

    def _opened(self, told: Told, at: int, done: Done) -> Told:
        assert done.opened is not None
        records = self.parts[done.part].disk.records[: len(told.committed)]
        if any(leader_epoch == done.opened for leader_epoch, _ in told.leaders):
            return told._replace(broken=f"OneLeaderAnEpoch: {at + 1} leads in {done.opened}, as another one did")
        is_newest = not told.committed or done.opened > told.committed[-1]  # else it can commit nothing any more
        if records != told.committed and is_newest:
            return told._replace(broken=f"CommittedStays: {at + 1} leads without some of it")
        return told._replace(leaders=tuple(sorted((*told.leaders, (done.opened, at)))))

    def _do(self, at: int, number: int, event: Hashable) -> Done:
        known = self.done.get((at, number, event))
        if known is None:
            known = self.done[at, number, event] = self._do_anew(at, self.parts[number], event)
        return known

    def _do_anew(self, at: int, part: Part, event: Hashable) -> Done:
        bench = Bench(self, at, part)
        before = None if part.node is None else part.node.high_watermark
        try:
            _events(bench)[event if isinstance(event, str) else event[0]](event)  # type: ignore[index]
            bench.pump()
        except InvariantBrokenError as error:
            return Done(self._part_number(at, part), broken=f"Invariant: {error}")
        records: tuple[LeaderEpoch, ...] = ()
        answer = bench.answer
        if isinstance(answer, FetchAnswer) and answer.code is Code.NONE and answer.diverging is None:
            in_reach = bench.records[answer.fetch_offset :]
            records = tuple(bench.records[: answer.snapshot.end_offset] if answer.snapshot else in_reach)
        high_watermark = None if bench.node is None else bench.node.high_watermark
        broken = ""
        if high_watermark is not None and before is not None and high_watermark < before:
            broken = f"HighWatermarkNeverGoesBack: {at + 1} was at {before}, and is at {high_watermark}"
        is_news = high_watermark is not None and high_watermark != before
        committed = tuple(bench.records[:high_watermark]) if is_news else ()
        return Done(self._part_number(at, bench.part()), answer, records, bench.opened, committed, broken)

    def _part_number(self, at: int, part: Part) -> int:
        """Equal for nodes that behave alike."""
        node = part.node
        key: tuple[object, ...] = (at, part.disk)
        if node is not None:
            standing = node.standing
            is_alive = standing.is_leader_alive(part.now_ms, SETTINGS.fetch_timeout_ms)
            key = (*key, node.canonical_key(), is_alive and self.bounds.has_pre_votes)
        number = self._known.setdefault(key, len(self.parts))
        if number == len(self.parts):
            self.parts.append(part)
        return number


def _snapshot_of(covered: list[LeaderEpoch]) -> SnapshotId | None:
    return SnapshotId(Offset(len(covered)), covered[-1]) if covered else None


def _committed(told: Told, at: int, committed: tuple[LeaderEpoch, ...]) -> Told:
    shared = min(len(committed), len(told.committed))
    if committed[:shared] != told.committed[:shared]:
        return told._replace(broken=f"CommittedStays: {at + 1} has something else in its place")
    return told if len(committed) <= len(told.committed) else told._replace(committed=committed)


def _events(bench: Bench) -> dict[str, Callable[..., None]]:
    """What each kind of event does to a node."""

    def time_out(_: object) -> None:
        assert bench.node is not None
        deadline_ms = bench.node.next_deadline_ms()
        if deadline_ms is not None:
            bench.now_ms = max(bench.now_ms, deadline_ms)
            bench.node.on_tick(bench.now_ms)
        while bench.node.standing.role is Role.PROSPECTIVE and not bench.world.bounds.has_pre_votes:
            asking, epoch = bench.node._elections.outstanding, bench.node.standing.leader_epoch
            assert asking is not None
            granted = VoteAnswer(Code.NONE, epoch, None, is_granted=True)
            bench.node.on_answered(next(iter(asking._awaited)), granted, bench.now_ms)

    def write(_: object) -> None:
        assert bench.node is not None
        bench.write((bench.node.standing.leader_epoch,))

    def request(event: tuple[str, int, PeerRequest]) -> None:
        node, message = bench.node, event[2]
        assert node is not None
        if isinstance(message, VoteRequested):
            node.on_vote_request(0, message, bench.now_ms)
        elif isinstance(message, EpochBegun):
            node.on_epoch_begun(0, message, bench.now_ms)
        elif isinstance(message, EpochEnded):
            node.on_epoch_ended(0, message, bench.now_ms)
        else:
            node.on_fetch_request(0, message, bench.now_ms)

    def answer(event: tuple[str, Sent]) -> None:
        assert bench.node is not None
        told, bench.arrived = event[1].answer, event[1].records
        if isinstance(told, FetchAnswer) and bench.arrived and told.snapshot is None:
            end_offset = Offset(told.fetch_offset + len(bench.arrived))
            told = FetchAnswer(*_heads(told), end_offset=end_offset)
        bench.node.on_answered(_number_of(bench.node, event[1].asking), told, bench.now_ms)

    return {
        "start": lambda _: bench.start(),
        "lose-power": lambda _: bench.lose_power(),
        "forget": lambda event: bench.forget(event[1]),
        "sync": lambda _: bench.sync(),
        "snapshot": lambda _: bench.take_snapshot(),
        "finish-load": lambda _: bench.finish_load(),
        "time-out": time_out,
        "write": write,
        "request": request,
        "answer": answer,
    }


def _heads(answer: FetchAnswer) -> tuple[Code, LeaderEpoch, BrokerId | None, Offset, Offset | None]:
    return answer.code, answer.leader_epoch, answer.leader_id, answer.fetch_offset, answer.high_watermark


def _number_of(node: QuorumNode, asking: Asking) -> int:
    """Under which number the node waits for that, on this way to its state."""
    awaited, others = node.following.awaited, node._elections.outstanding
    if isinstance(asking.message, QuorumFetch):
        return -1 if awaited is None else awaited.number
    found = [] if others is None else [number for number, to in others._awaited.items() if to == asking.target + 1]
    return found[0] if found else -1

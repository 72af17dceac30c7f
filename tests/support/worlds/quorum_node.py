"""One node of the quorum, asked and told by hand: what it says to each event."""

from __future__ import annotations

from typing import TypeVar
from uuid import UUID

from tidelog.base.errors import Code
from tidelog.base.ids import BrokerId, LeaderEpoch, Offset
from tidelog.base.ports import Rng
from tidelog.quorum import (
    Answer,
    EpochAnswer,
    EpochBegun,
    EpochEnded,
    FetchAnswer,
    PeerRequest,
    QuorumFetch,
    QuorumLog,
    QuorumNode,
    QuorumReady,
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
from tidelog.records.lineage import EpochEntry, LeaderEpochLineage
from tidelog.sim.world.rng import SeededRng

A = TypeVar("A", bound=Answer)
SETTINGS = QuorumSettings()


def key(number: int) -> ReplicaKey:
    return ReplicaKey(BrokerId(number))


def voter_set(*numbers: int, version: int = 0) -> VoterSet:
    return VoterSet(tuple(Voter(key(number)) for number in numbers), version)


def fetch(
    replica: int,
    epoch: int,
    offset: int,
    last_epoch: int,
    high_watermark: int | None = None,
    *,
    wait_ms: int = 500,
    tells: bool = True,
) -> QuorumFetch:
    """A fetch of a replica; `tells` its high watermark (Fetch 18)."""
    known = None if high_watermark is None else Offset(high_watermark)
    return QuorumFetch(key(replica), LeaderEpoch(epoch), Offset(offset), LeaderEpoch(last_epoch), known, wait_ms, tells)


def served(
    epoch: int,
    leader: int,
    offset: int,
    *,
    high_watermark: int | None = None,
    end: int | None = None,
    diverging: tuple[int, int] | None = None,
    snapshot: SnapshotId | None = None,
) -> FetchAnswer:
    """What a leader answers to a fetch."""
    return FetchAnswer(
        Code.NONE,
        LeaderEpoch(epoch),
        BrokerId(leader),
        Offset(offset),
        None if high_watermark is None else Offset(high_watermark),
        None if diverging is None else EpochEntry(LeaderEpoch(diverging[0]), Offset(diverging[1])),
        snapshot,
        None if end is None else Offset(end),
    )


class Drawn:
    """What is random is always the least that it may be, or always the most."""

    def __init__(self, *, is_most: bool) -> None:
        self._is_most = is_most

    def random(self) -> float:
        return 0.0

    def randrange(self, start: int, stop: int) -> int:
        return stop - 1 if self._is_most else start

    def uuid(self) -> UUID:
        return UUID(int=0)


LEAST, MOST = Drawn(is_most=False), Drawn(is_most=True)


class OneNode:
    """A node, and what it owed so far. The clock is at `now_ms`; what is to be saved is, at once."""

    def __init__(
        self,
        number: int = 1,
        voters: VoterSet | None = None,
        *,
        lineage: tuple[tuple[int, int], ...] = (),
        log_end: int = 0,
        log_start: int = 0,
        snapshot: SnapshotId | None = None,
        state: QuorumState | None = None,
        directory_id: UUID | None = None,
        rng: Rng | None = None,
        now_ms: int = 0,
    ) -> None:
        self.now_ms = now_ms
        self.lineage = LeaderEpochLineage((LeaderEpoch(epoch), Offset(start)) for epoch, start in lineage)
        self.saved = state
        self.node = QuorumNode(
            ReplicaKey(BrokerId(number), directory_id),
            voter_set(1, 2, 3) if voters is None else voters,
            state,
            QuorumLog(Offset(log_start), Offset(log_end), self.lineage, snapshot),
            settings=SETTINGS,
            rng=SeededRng(number) if rng is None else rng,
            now_ms=now_ms,
        )
        self.ready = self.node.take_ready()
        self._ticket = 0
        self.unanswered: dict[int, QuorumRequest] = {one.number: one for one in self.ready.requests}

    def is_in(self, role: Role) -> bool:
        return self.node.standing.role is role

    def take(self) -> QuorumReady:
        """What it owes now."""
        self.ready = self.node.take_ready()
        if self.ready.state is not None:
            self.saved = self.ready.state
        self.unanswered |= {one.number: one for one in self.ready.requests}
        return self.ready

    # What others ask.

    def ask(self, message: PeerRequest) -> Answer | None:
        """Its answer; None if it waits with that."""
        self._ticket += 1
        if isinstance(message, VoteRequested):
            self.node.on_vote_request(self._ticket, message, self.now_ms)
        elif isinstance(message, EpochBegun):
            self.node.on_epoch_begun(self._ticket, message, self.now_ms)
        elif isinstance(message, EpochEnded):
            self.node.on_epoch_ended(self._ticket, message, self.now_ms)
        else:
            self.node.on_fetch_request(self._ticket, message, self.now_ms)
        return self.answer_to(self._ticket)

    def answer_to(self, ticket: int) -> Answer | None:
        found = [reply.answer for reply in self.take().replies if reply.ticket == ticket]
        return found[0] if found else None

    @property
    def ticket(self) -> int:
        """Of what was asked last."""
        return self._ticket

    def ask_vote(self, candidate: int, epoch: int, last_epoch: int, end: int, *, is_pre_vote: bool = False) -> bool:
        asked = VoteRequested(
            LeaderEpoch(epoch), key(candidate), self.node.key, LeaderEpoch(last_epoch), Offset(end), is_pre_vote
        )
        answer = self.ask(asked)
        assert isinstance(answer, VoteAnswer)
        assert answer.code is Code.NONE
        return answer.is_granted

    def begin(self, epoch: int, leader: int) -> Code:
        answer = self.ask(EpochBegun(LeaderEpoch(epoch), BrokerId(leader), self.node.key))
        assert isinstance(answer, EpochAnswer)
        return answer.code

    def end(self, epoch: int, leader: int, *preferred: int) -> Code:
        answer = self.ask(EpochEnded(LeaderEpoch(epoch), BrokerId(leader), tuple(map(key, preferred))))
        assert isinstance(answer, EpochAnswer)
        return answer.code

    # What becomes of what it asked.

    def asked(self, target: int | None = None) -> list[QuorumRequest]:
        """What it waits for an answer to, of one or of all."""
        return [one for one in self.unanswered.values() if target in (None, one.target)]

    def fetches(self) -> list[QuorumFetch]:
        return [one.message for one in self.asked() if isinstance(one.message, QuorumFetch)]

    def answer(self, answer: Answer, target: int | None = None) -> QuorumReady:
        """Its last request, or the last to that one, is answered."""
        request = self.asked(target)[-1]
        del self.unanswered[request.number]
        self.node.on_answered(request.number, answer, self.now_ms)
        return self.take()

    def fail(self, target: int | None = None) -> QuorumReady:
        """Its last request is not answered."""
        request = self.asked(target)[-1]
        del self.unanswered[request.number]
        self.node.on_unanswered(request.number, self.now_ms)
        return self.take()

    # Its life.

    def wait(self, for_ms: int) -> QuorumReady:
        self.now_ms += for_ms
        self.node.on_tick(self.now_ms)
        return self.take()

    def wait_for(self, role: Role) -> None:
        """Until it has that role because of the time."""
        for _ in range(100):
            if self.node.standing.role is role:
                return
            deadline_ms = self.node.next_deadline_ms()
            assert deadline_ms is not None
            self.wait(deadline_ms - self.now_ms)
        raise AssertionError(f"it is {self.node.standing.role} for ever")

    def wait_for_request(self, target: int | None = None) -> int:
        """Until it has sent one, to that node or to any; returns how long that took, in steps of 10 ms."""
        for waited_ms in range(0, 10_000, 10):
            if any(target in (None, one.target) for one in self.ready.requests):
                return waited_ms
            self.wait(10)
        raise AssertionError("it sends nothing")

    def vote_for_it(self, *voters: int) -> None:
        """Those grant what it asks for now, a vote or a pre-vote."""
        role = self.node.standing.role
        for voter in voters:
            asked = self.asked(voter)
            if self.node.standing.role is role and asked and isinstance(asked[-1].message, VoteRequested):
                self.answer(VoteAnswer(Code.NONE, self.node.standing.leader_epoch, None, is_granted=True), voter)

    def lead(self, *, is_synced: bool = True) -> int:
        """It is elected by the others, and opens its epoch; returns where that starts."""
        others = [number for number in self.node.voters.latest.ids if number != self.node.key.node_id]
        self.wait_for(Role.PROSPECTIVE)
        self.vote_for_it(*others)
        self.vote_for_it(*others)
        assert self.node.standing.role is Role.LEADER
        return self.open(is_synced=is_synced)

    def open(self, *, is_synced: bool = True) -> int:
        start = self.node.log.log_end_offset
        self.lineage.assign(self.node.standing.leader_epoch, start)
        self.node.on_epoch_opened(start, self.now_ms)
        if is_synced:
            self.node.on_synced(Offset(start + 1), self.now_ms)
        self.take()
        return start

    def append(self, end: int, *, is_synced: bool = True) -> QuorumReady:
        """It wrote up to that offset."""
        self.node.on_appended(Offset(end), self.now_ms)
        if is_synced:
            self.node.on_synced(Offset(end), self.now_ms)
        return self.take()

    def follow(self, epoch: int, leader: int) -> None:
        assert self.begin(epoch, leader) is Code.NONE
        assert self.node.standing.role is Role.FOLLOWER

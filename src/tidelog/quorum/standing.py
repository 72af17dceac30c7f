"""Where a node stands: its role, its epoch, who leads in it, and for whom it voted, which must not be forgotten.

Kafka: `QuorumState`, `ElectionState`.
"""

from __future__ import annotations

from tidelog.base.errors import Code
from tidelog.base.ids import BrokerId, LeaderEpoch
from tidelog.base.invariant import invariant
from tidelog.quorum.ballot import is_same_replica
from tidelog.quorum.log import QuorumLog
from tidelog.quorum.roles import TRANSITIONS, RoleCause
from tidelog.quorum.state_file import QuorumState
from tidelog.quorum.values import FetchAnswer, QuorumFetch, ReplicaKey, Role


class Standing:
    """A node among the others.

    Attributes:
        voted: for whom it voted in this epoch; itself counts.
        last_contact_ms: when the leader of this epoch, as this node follows it, was last heard of; None if never.
        is_leader_lost: whether the connection to the leader closed, and nothing was heard of it since.
        ended: the latest leader that said it leads no more, and its epoch: nobody makes us follow it again.
        moves: how often the role changed.
        has_records: whether its log has a record, had one, or is about to have one.
        is_lost: whether it lost its log, or what it voted, and has not recovered (`recovering`).
    """

    __slots__ = (
        "ended",
        "has_records",
        "is_leader_lost",
        "is_lost",
        "key",
        "last_contact_ms",
        "leader_epoch",
        "leader_id",
        "moves",
        "role",
        "voted",
    )

    def __init__(self, key: ReplicaKey, state: QuorumState | None, log: QuorumLog) -> None:
        """Start where `state` left off, knowing no leader."""
        self.key = key
        self.role = Role.UNATTACHED
        self.leader_epoch, self.voted = _restored(key, state, log)
        self.leader_id: BrokerId | None = None
        self.last_contact_ms: int | None = None
        self.is_leader_lost = False
        self.ended: tuple[LeaderEpoch, BrokerId] | None = None
        self.moves = 0
        self.has_records = log.log_end_offset > 0 or (state is not None and state.has_records)
        self.is_lost = state is not None and state.is_lost

    # What is the case.

    @property
    def state(self) -> QuorumState:
        """What the quorum-state file has to say."""
        voted_id, directory_id = (None, None) if self.voted is None else self.voted
        return QuorumState(
            self.leader_epoch,
            self.leader_id,
            voted_id,
            directory_id,
            has_records=self.has_records,
            is_lost=self.is_lost,
        )

    @property
    def may_vote(self) -> bool:
        """Whether what it says of its log and of its votes can be counted on."""
        return not self.is_lost

    def is_leader_alive(self, now_ms: int, fetch_timeout_ms: int) -> bool:
        """Whether we follow a leader that was heard of within the fetch time-out."""
        if self.is_leader_lost or self.last_contact_ms is None:
            return False
        return now_ms < self.last_contact_ms + fetch_timeout_ms

    def check_sender(self, leader_epoch: LeaderEpoch, voter: ReplicaKey | None) -> Code:
        """Whether a request of that epoch, meant for that voter, is to be taken up."""
        if leader_epoch < self.leader_epoch:
            return Code.FENCED_LEADER_EPOCH
        return Code.NONE if voter is None or is_same_replica(voter, self.key) else Code.INVALID_VOTER_KEY

    def refusal_code(self, leader_epoch: LeaderEpoch) -> Code:
        """What who fetches in that epoch is told by who does not lead in it."""
        if leader_epoch == self.leader_epoch:
            return Code.NOT_LEADER_OR_FOLLOWER
        return Code.FENCED_LEADER_EPOCH if leader_epoch < self.leader_epoch else Code.UNKNOWN_LEADER_EPOCH

    def refusal(self, fetch: QuorumFetch) -> FetchAnswer:
        return FetchAnswer(self.refusal_code(fetch.leader_epoch), self.leader_epoch, self.leader_id, fetch.fetch_offset)

    # What happened.

    def learn(self, leader_epoch: LeaderEpoch, leader_id: BrokerId | None) -> bool:
        """Note an epoch, and its leader if that is known. Returns whether either was new."""
        moves = self.moves
        if leader_epoch > self.leader_epoch:
            self.move(RoleCause.NEWER_EPOCH)
            self.leader_epoch, self.voted = leader_epoch, None
        if leader_epoch < self.leader_epoch or leader_id in (None, self.key.node_id) or self.leader_id is not None:
            return self.moves > moves
        if (leader_epoch, leader_id) != self.ended and (self.role, RoleCause.LEADER_FOUND) in TRANSITIONS:
            self.move(RoleCause.LEADER_FOUND)
            self.leader_id = leader_id
        return self.moves > moves

    def note_leader_contact(self, now_ms: int) -> None:
        """The leader of this epoch said something."""
        if self.role is Role.PROSPECTIVE:
            self.move(RoleCause.LEADER_STANDS)
        self.last_contact_ms = now_ms
        self.is_leader_lost = False

    def move(self, cause: RoleCause) -> None:
        """Take another role."""
        invariant((self.role, cause) in TRANSITIONS, "node {}: {} while {}", self.key.node_id, cause, self.role)
        self.role = TRANSITIONS[self.role, cause]
        self.moves += 1
        if cause not in (RoleCause.TIMED_OUT, RoleCause.LEADER_STANDS):
            self.leader_id = self.last_contact_ms = None
            self.is_leader_lost = False

    def recover(self) -> None:
        """It has what was committed without it. Whoever it may have voted for in this epoch, that is the leader now."""
        self.is_lost = False
        if self.voted is None and self.leader_id is not None:
            self.voted = ReplicaKey(self.leader_id)

    def clone(self) -> Standing:
        copy = Standing.__new__(Standing)
        for name in Standing.__slots__:
            setattr(copy, name, getattr(self, name))
        return copy

    def canonical_key(self) -> tuple[object, ...]:
        """The state without its clocks, for comparisons."""
        return (
            self.role,
            self.leader_epoch,
            self.leader_id,
            self.voted,
            self.last_contact_ms is None,
            self.is_leader_lost,
            self.ended,
            (self.has_records, self.is_lost),
        )


def _restored(key: ReplicaKey, state: QuorumState | None, log: QuorumLog) -> tuple[LeaderEpoch, ReplicaKey | None]:
    """The epoch that a node starts in, and for whom it voted in it.

    Who led in it, or has records of an epoch that its file does not know, has voted: not to vote twice.
    """
    in_log = log.last_leader_epoch
    if state is None or state.leader_epoch < in_log:
        return in_log, key if in_log else None
    if state.voted_id is not None:
        return state.leader_epoch, ReplicaKey(state.voted_id, state.voted_directory_id)
    return state.leader_epoch, key if state.leader_id == key.node_id else None

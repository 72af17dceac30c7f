"""Elections: votes given and asked for, and when a node tries for itself (KIP-595, KIP-996).

Kafka: `CandidateState`, `ProspectiveState`.
"""

from __future__ import annotations

from collections.abc import Iterable

from tidelog.base.errors import Code
from tidelog.base.ids import BrokerId, LeaderEpoch
from tidelog.base.ports import Rng
from tidelog.quorum.ballot import Ballot, is_same_replica, may_grant, yields_to
from tidelog.quorum.log import QuorumLog
from tidelog.quorum.outstanding_requests import OutstandingRequests
from tidelog.quorum.roles import RoleCause
from tidelog.quorum.standing import Standing
from tidelog.quorum.values import (
    Answer,
    EpochAnswer,
    EpochBegun,
    EpochEnded,
    PeerRequest,
    QuorumSettings,
    ReplicaKey,
    Role,
    VoteAnswer,
    VoteRequested,
)
from tidelog.quorum.voters_in_force import VotersInForce

FIRST_ELECTION_MS = 150
"""After a start, a voter that reached another one, and heard of no leader, waits for so long at most."""

SUCCESSION_MS = 50
"""How long each of those whom a leader named as its successors waits for the one before it."""

YIELD_MS = 100
"""How long a node lets another one go first that asks for a pre-vote at the same time."""

WAITING = (Role.UNATTACHED, Role.FOLLOWER, Role.RESIGNED)


class Elections:
    """One node's part in electing, from its start on.

    Attributes:
        standing: what came of it.
        asking: whom the role asks something: for a vote, to follow, or to succeed; None if nobody.
        granting: who voted for us in this epoch, once we were elected.
        campaign_ms: when to ask for a pre-vote; while asking, when to give up.
    """

    __slots__ = (
        "_ballot",
        "_campaign_ms",
        "_defeats",
        "_is_fresh",
        "_is_stopping",
        "_log",
        "_preferred",
        "_rng",
        "_settings",
        "_voters",
        "_yield_ms",
        "granting",
        "outstanding",
        "standing",
    )

    def __init__(
        self,
        standing: Standing,
        voters: VotersInForce,
        log: QuorumLog,
        *,
        settings: QuorumSettings,
        rng: Rng,
        now_ms: int,
    ) -> None:
        """Begin. Who votes alone tries at once."""
        self.standing = standing
        self._voters = voters
        self.outstanding: OutstandingRequests | None = None
        self.granting: tuple[ReplicaKey, ...] = ()
        self._log = log
        self._settings = settings
        self._rng = rng
        self._ballot: Ballot | None = None
        self._preferred: tuple[ReplicaKey, ...] = ()
        self._is_fresh = True
        self._is_stopping = False
        self._defeats = 0
        self._yield_ms: int | None = None
        is_alone = voters.has_us and voters.latest.majority_size == 1
        self._campaign_ms = now_ms if is_alone else now_ms + self._election_timeout_ms()

    # What is the case.

    def next_deadline_ms(self, *, is_busy: bool) -> int | None:
        """When `proceed` has something to do because of the time."""
        known = [] if self.outstanding is None else [self.outstanding.next_deadline_ms()]
        if self._ballot is not None:
            known += [self._campaign_ms, self._yield_ms]
        elif self._may_campaign and not is_busy:
            known.append(self._campaign_ms)
        return min((one for one in known if one is not None), default=None)

    def message_for(self, target: BrokerId) -> PeerRequest:
        """The request that this role sends to each of the others."""
        standing = self.standing
        voter, key = self._voters.latest.voter(target), standing.key
        target_key = ReplicaKey(target) if voter is None else voter.key
        if standing.role is Role.LEADER:
            own = self._voters.latest.voter(key.node_id)
            endpoints = () if own is None else own.endpoints
            return EpochBegun(standing.leader_epoch, key.node_id, target_key, endpoints)
        if standing.role is Role.RESIGNED:
            return EpochEnded(standing.leader_epoch, key.node_id, self._preferred)
        return VoteRequested(
            standing.leader_epoch,
            key,
            target_key,
            self._log.last_leader_epoch,
            self._log.log_end_offset,
            is_pre_vote=standing.role is Role.PROSPECTIVE,
        )

    # What others ask.

    def on_vote_request(self, requested: VoteRequested, now_ms: int) -> VoteAnswer:
        standing = self.standing
        is_granted = False
        code = standing.check_sender(requested.leader_epoch, requested.voter)
        if code is Code.NONE:
            self.learn(requested.leader_epoch, None, now_ms)
            is_granted = standing.may_vote and may_grant(
                requested,
                role=standing.role,
                voted=standing.voted,
                leader_id=standing.leader_id,
                is_leader_alive=standing.is_leader_alive(now_ms, self._settings.fetch_timeout_ms),
                log=self._log,
            )
            if is_granted and not requested.is_pre_vote:
                standing.voted = requested.candidate
                self._campaign_ms = now_ms + self._election_timeout_ms()
            elif is_granted and standing.role is Role.PROSPECTIVE and yields_to(requested, standing.key, self._log):
                self._yield_ms = now_ms + YIELD_MS
        return VoteAnswer(code, standing.leader_epoch, standing.leader_id, is_granted)

    def on_epoch_begun(self, begun: EpochBegun, now_ms: int) -> EpochAnswer:
        standing = self.standing
        code = standing.check_sender(begun.leader_epoch, begun.voter)
        if code is Code.NONE:
            self.learn(begun.leader_epoch, begun.leader_id, now_ms)
            if standing.leader_id == begun.leader_id != standing.key.node_id:
                self.note_leader_contact(now_ms)
            elif standing.ended != (begun.leader_epoch, begun.leader_id):
                code = Code.INVALID_REQUEST  # another one leads in that epoch
        return EpochAnswer(code, standing.leader_epoch, standing.leader_id)

    def on_epoch_ended(self, ended: EpochEnded, now_ms: int, *, is_busy: bool) -> EpochAnswer:
        standing = self.standing
        code = standing.check_sender(ended.leader_epoch, None)
        if code is Code.NONE:
            self.learn(ended.leader_epoch, None, now_ms)
            if standing.role is Role.LEADER or standing.leader_id not in (None, ended.leader_id):
                code = Code.INVALID_REQUEST
            elif standing.ended != (ended.leader_epoch, ended.leader_id):
                self.on_leader_ended(ended.leader_id, now_ms)
                self._succeed(ended.preferred, now_ms, is_busy=is_busy)
        return EpochAnswer(code, standing.leader_epoch, standing.leader_id)

    # What else happened.

    def learn(self, leader_epoch: LeaderEpoch, leader_id: BrokerId | None, now_ms: int) -> None:
        """Somebody speaks of that epoch, and knows, or not, who leads in it."""
        was_waiting = self.standing.role is Role.UNATTACHED
        if not self.standing.learn(leader_epoch, leader_id):
            return
        self._leave()
        if self.standing.role is Role.FOLLOWER:
            self._defeats = 0
            self._campaign_ms = now_ms + self._settings.fetch_timeout_ms
        elif not was_waiting:  # else it waits on: newer epochs, one after the other, must not keep it from trying
            self._campaign_ms = now_ms + self._election_timeout_ms()

    def note_leader_contact(self, now_ms: int) -> None:
        """The leader that we follow said something."""
        if self.standing.role is Role.PROSPECTIVE:
            self._leave()
        self.standing.note_leader_contact(now_ms)
        self._campaign_ms = now_ms + self._settings.fetch_timeout_ms

    def on_reached(self, now_ms: int) -> None:
        """Somebody answered. The first one after a start, that knows of no leader, may have just started as well."""
        if self._is_fresh and self.standing.role is Role.UNATTACHED:
            self._campaign_ms = min(self._campaign_ms, now_ms + self._rng.randrange(0, FIRST_ELECTION_MS + 1))
        self._is_fresh = False

    def on_answered(self, voter: BrokerId, answer: Answer, now_ms: int) -> None:
        """A voter answered the request of this role."""
        standing = self.standing
        if isinstance(answer, VoteAnswer) and self._ballot is not None:
            is_granted = answer.code is Code.NONE and answer.is_granted
            self._ballot.on_answered(voter, is_granted=is_granted)
            if answer.leader_id == voter == standing.leader_id:
                self.note_leader_contact(now_ms)  # it says so itself
        elif answer.code is not Code.NONE and self.outstanding is not None:
            self.outstanding.put_off(voter, now_ms)

    def on_leader_lost(self, now_ms: int) -> None:
        """The connection to the leader closed, whether or not the leader died: begin a pre-vote at once."""
        self.standing.is_leader_lost = True
        self._campaign_ms = now_ms

    def on_leader_ended(self, leader_id: BrokerId, now_ms: int) -> None:
        """It said so: the others know as well, so a random moment passes."""
        standing = self.standing
        standing.ended = (standing.leader_epoch, leader_id)
        if standing.role in (Role.FOLLOWER, Role.PROSPECTIVE):
            self._move(RoleCause.LEADER_ENDED)
        self._campaign_ms = min(self._campaign_ms, now_ms + self._rng.randrange(0, SUCCESSION_MS + 1))

    def on_disk_done(self, now_ms: int) -> None:
        """While our disk was at work we asked for nothing: the leader could not be heard."""
        if self.standing.role is Role.FOLLOWER and not self.standing.is_leader_lost:
            self._campaign_ms = now_ms + self._settings.fetch_timeout_ms

    def on_voters_changed(self) -> None:
        """Another set counts: who was removed for good tries no more."""
        may_lead = self._voters.has_us or self._voters.is_leaving
        if self.standing.role in (Role.PROSPECTIVE, Role.CANDIDATE) and not may_lead:
            self._move(RoleCause.REMOVED)

    def on_stopping(self, now_ms: int) -> None:
        """Nothing is tried any more."""
        self._is_stopping = True
        if self.standing.role in (Role.PROSPECTIVE, Role.CANDIDATE):
            self._lose(now_ms)

    def resign(self, preferred: tuple[ReplicaKey, ...], now_ms: int) -> None:
        """Lead no more, and say so to whoever votes: the first of `preferred` should be next."""
        self._preferred = preferred
        self._move(RoleCause.RESIGNS)
        self._begin_requests((key.node_id for key in preferred), now_ms, self._settings.fetch_timeout_ms // 2)
        self._campaign_ms = now_ms + self._election_timeout_ms()

    def proceed(self, now_ms: int, *, is_busy: bool) -> None:
        """Try, if it is time to and the disk owes nothing, and see whether an election is over."""
        if self._may_campaign and not is_busy and now_ms >= self._campaign_ms:
            self._move(RoleCause.TIMED_OUT)
            self._request_votes(now_ms)
        if self._yield_ms is not None and now_ms >= self._yield_ms:
            self._yield_ms = None
        self._count(now_ms)

    def clone(self, standing: Standing, voters: VotersInForce, log: QuorumLog) -> Elections:
        """A copy over copies of what it looks at."""
        copy = Elections.__new__(Elections)
        for name in Elections.__slots__:
            setattr(copy, name, getattr(self, name))
        copy.standing, copy._voters, copy._log = standing, voters, log
        copy._ballot = None if self._ballot is None else self._ballot.clone()
        copy.outstanding = None if self.outstanding is None else self.outstanding.clone()
        return copy

    def canonical_key(self) -> tuple[object, ...]:
        """The state without its clocks, for comparisons."""
        return (
            None if self._ballot is None else self._ballot.canonical_key(),
            None if self.outstanding is None else self.outstanding.canonical_key(),
            (self._is_fresh, self._is_stopping, self._yield_ms is None),
            self._preferred,
        )

    # How it is done.

    @property
    def _may_campaign(self) -> bool:
        may_lead = (self._voters.has_us or self._voters.is_leaving) and self.standing.may_vote
        return self.standing.role in WAITING and may_lead and not self._is_stopping

    def _succeed(self, preferred: tuple[ReplicaKey, ...], now_ms: int, *, is_busy: bool) -> None:
        """The leader said who should be next: the first needs no pre-vote, the others wait for it."""
        if self.standing.role is not Role.UNATTACHED or not self._may_campaign:
            return
        key = self.standing.key
        at = next((at for at, one in enumerate(preferred) if is_same_replica(one, key)), len(preferred))
        if at > 0:
            self._campaign_ms = now_ms + SUCCESSION_MS * at + self._rng.randrange(0, SUCCESSION_MS)
        elif not is_busy:
            self._become_candidate(RoleCause.SUCCEEDS, now_ms)

    def _become_candidate(self, cause: RoleCause, now_ms: int) -> None:
        standing = self.standing
        self._move(cause)
        standing.leader_epoch, standing.voted = LeaderEpoch(standing.leader_epoch + 1), standing.key
        self._request_votes(now_ms)

    def _request_votes(self, now_ms: int) -> None:
        self._ballot = Ballot(self.standing.key.node_id)
        self._begin_requests(self._voters.others, now_ms, 5 * self._settings.retry_backoff_ms)
        self._campaign_ms = now_ms + self._election_timeout_ms()

    def _count(self, now_ms: int) -> None:
        ballot = self._ballot
        if ballot is None:
            return
        if not ballot.is_won(self._voters.latest):
            if ballot.is_lost(self._voters.latest) or now_ms >= self._campaign_ms:
                self._lose(now_ms)
        elif self.standing.role is Role.CANDIDATE:
            self._become_leader(ballot, now_ms)
        elif self._yield_ms is None or now_ms >= self._campaign_ms:
            self._become_candidate(RoleCause.PRE_VOTE_WON, now_ms)
            self._count(now_ms)

    def _become_leader(self, ballot: Ballot, now_ms: int) -> None:
        self._move(RoleCause.ELECTED)
        self.standing.leader_id = self.standing.key.node_id
        self.granting = tuple(voter.key for voter in self._voters.latest.voters if voter.key.node_id in ballot.granted)
        self._defeats = 0
        self._begin_requests(self._voters.others, now_ms, self._settings.fetch_timeout_ms // 2)

    def _lose(self, now_ms: int) -> None:
        """Too many refused, or too few answered: try again after a random while."""
        is_led = self.standing.role is Role.PROSPECTIVE and self.standing.leader_id is not None
        self._move(RoleCause.LEADER_STANDS if is_led else RoleCause.LOST)
        self._defeats = min(self._defeats + 1, 10)
        backoff_ms = min(self._settings.election_backoff_ms_max, SUCCESSION_MS << self._defeats)
        self._campaign_ms = now_ms + self._rng.randrange(0, backoff_ms + 1)

    def _move(self, cause: RoleCause) -> None:
        self.standing.move(cause)
        self._leave()

    def _leave(self) -> None:
        """Nothing of the role before goes on."""
        self._ballot = self.outstanding = self._yield_ms = None

    def _begin_requests(self, targets: Iterable[BrokerId], now_ms: int, backoff_ms_max: int) -> None:
        backoff_ms = self._settings.retry_backoff_ms
        self.outstanding = OutstandingRequests(targets, now_ms, backoff_ms=backoff_ms, backoff_ms_max=backoff_ms_max)

    def _election_timeout_ms(self) -> int:
        timeout_ms = self._settings.election_timeout_ms
        return timeout_ms + self._rng.randrange(0, timeout_ms + 1)

"""A node of the metadata quorum, voter or observer: who leads it, what is committed, what to fetch (KRaft, KIP-595).

It decides; its driver does. Events come in by `on_*`, with the time where time matters; `take_ready` says what is owed
to the world, in the order in which it must be done. What is handed out is done and told, whatever happens meanwhile.
"""

from __future__ import annotations

from typing import Self

from tidelog.base.errors import Code
from tidelog.base.ids import BrokerId, LeaderEpoch, Offset
from tidelog.base.invariant import invariant
from tidelog.base.ports import Rng
from tidelog.quorum.asking import Asking
from tidelog.quorum.election import Election, is_same_replica, may_grant, yields_to
from tidelog.quorum.following import Awaited, Following
from tidelog.quorum.leading import Leadership, Leading
from tidelog.quorum.log import QuorumLog
from tidelog.quorum.progress import QuorumDescription
from tidelog.quorum.roles import TRANSITIONS, Cause
from tidelog.quorum.state_file import QuorumState
from tidelog.quorum.values import (
    Answer,
    Asked,
    EpochAnswer,
    EpochBegun,
    EpochEnded,
    FetchAnswer,
    LeaderChange,
    QuorumFetch,
    QuorumReady,
    QuorumReply,
    QuorumRequest,
    QuorumSettings,
    ReplicaKey,
    Role,
    SnapshotId,
    VoteAnswer,
    VoteAsked,
    VoterSet,
)
from tidelog.records.lineage import LeaderEpochLineage

START = Offset(0)

FIRST_ELECTION_MS = 150
"""After a start, a voter that reached another one, and heard of no leader, waits for so long at most."""

SUCCESSION_MS = 50
"""How long each of those whom a leader named as its successors waits for the one before it."""

YIELD_MS = 100
"""How long a node lets another one go first that asks for a pre-vote at the same time."""


class QuorumNode:
    """One node of the quorum of the metadata log.

    Attributes:
        high_watermark: exclusive end of what is known to be committed. Never goes back, whoever leads.
        epoch_start: where the epoch that this node leads starts; None unless it leads, and the epoch is open.
        voters_end_offset: exclusive end of the record that the voter set comes from; 0 from the configuration.
    """

    def __init__(
        self,
        key: ReplicaKey,
        voters: VoterSet,
        state: QuorumState | None,
        log: QuorumLog,
        *,
        settings: QuorumSettings,
        rng: Rng,
        now_ms: int,
        voters_end_offset: Offset = START,
    ) -> None:
        """Start, knowing no leader: others are asked. A quorum of one elects itself at once.

        Args:
            voters: the latest of the log (committed or not), else of the configuration.
            state: what the quorum-state file says; None on the first start.
            log: as it was opened. Copied; but its lineage is the log's own.
            voters_end_offset: exclusive, of the record that `voters` come from; 0 from the configuration.
        """
        self.key = key
        self.voters = voters
        self.role = Role.UNATTACHED
        self.leader_epoch, self._voted = _restored(key, state, log)
        self.leader_id: BrokerId | None = None
        self.high_watermark: Offset | None = None
        self.voters_end_offset = voters_end_offset
        self._log = log.clone(log.lineage)
        self._settings = settings
        self._rng = rng
        self._saved = state
        self._number = 0
        self._replies: list[QuorumReply] = []
        self._requests: list[QuorumRequest] = []
        self._leading: Leading | None = None
        self._following = Following(rng.randrange(0, 1 << 16))
        self._election: Election | None = None
        self._asking: Asking | None = None
        self._leader_change: LeaderChange | None = None
        self._is_opening = False
        self._is_stopping = False
        self._is_fresh = True
        self._heard_ms: int | None = None  # when the leader of this epoch was heard of last
        self._is_leader_lost = False
        self._preferred: tuple[ReplicaKey, ...] = ()
        self._ended: tuple[LeaderEpoch, BrokerId] | None = None
        self._defeats = 0
        self._yield_ms: int | None = None
        self._campaign_ms = now_ms if self._is_alone else now_ms + self._election_timeout_ms()
        self._proceed(now_ms)

    # What is the case.

    @property
    def is_voter(self) -> bool:
        return self.voters.is_voter(self.key)

    @property
    def epoch_start(self) -> Offset | None:
        return None if self._leading is None else self._leading.epoch_start

    @property
    def is_voter_change_pending(self) -> bool:
        """Whether the voter set counts already and is not committed yet: no other change may be begun."""
        return self.voters_end_offset > (self.high_watermark or 0)

    @property
    def log_end_offset(self) -> Offset:
        return self._log.log_end_offset

    def describe(self, now_ms: int | None = None) -> QuorumDescription:
        """What DescribeQuorum shows. `now_ms` is when the leader itself fetched and was caught up."""
        voters, observers = ((), ()) if self._leading is None else self._leading.describe(now_ms)
        return QuorumDescription(self.leader_id, self.leader_epoch, self.high_watermark, voters, observers)

    # What others ask.

    def on_vote_asked(self, ticket: int, asked: VoteAsked, now_ms: int) -> None:
        """Vote (52). The vote is on disk before the answer is sent: `take_ready`."""
        is_granted = False
        code = self._check_sender(asked.leader_epoch, asked.voter)
        if code is Code.NONE:
            self._learn(asked.leader_epoch, None, now_ms)
            is_granted = may_grant(
                asked,
                role=self.role,
                voted=self._voted,
                leader_id=self.leader_id,
                is_leader_alive=self._is_leader_alive(now_ms),
                log=self._log,
            )
            if is_granted and not asked.is_pre_vote:
                self._voted = asked.candidate
                self._campaign_ms = now_ms + self._election_timeout_ms()
            elif is_granted and self.role is Role.PROSPECTIVE and yields_to(asked, self.key, self._log):
                self._yield_ms = now_ms + YIELD_MS
        self._reply(ticket, VoteAnswer(code, self.leader_epoch, self.leader_id, is_granted))
        self._proceed(now_ms)

    def on_epoch_begun(self, ticket: int, begun: EpochBegun, now_ms: int) -> None:
        """BeginQuorumEpoch (53): somebody leads."""
        code = self._check_sender(begun.leader_epoch, begun.voter)
        if code is Code.NONE:
            self._learn(begun.leader_epoch, begun.leader_id, now_ms)
            if self.leader_id == begun.leader_id:
                if self.role is Role.PROSPECTIVE:
                    self._move(Cause.LEADER_STANDS)
                self._hear(now_ms)
            elif self._ended != (begun.leader_epoch, begun.leader_id):
                code = Code.INVALID_REQUEST  # another one leads in that epoch
        self._reply(ticket, EpochAnswer(code, self.leader_epoch, self.leader_id))
        self._proceed(now_ms)

    def on_epoch_ended(self, ticket: int, ended: EpochEnded, now_ms: int) -> None:
        """EndQuorumEpoch (54): the leader leads no more. The first of those whom it prefers asks for votes at once."""
        code = self._check_sender(ended.leader_epoch, None)
        if code is Code.NONE:
            self._learn(ended.leader_epoch, None, now_ms)
            if self.role is Role.LEADER or self.leader_id not in (None, ended.leader_id):
                code = Code.INVALID_REQUEST
            elif self._ended != (ended.leader_epoch, ended.leader_id):
                self._on_leader_ended(ended.leader_id, now_ms)
                self._succeed(ended.preferred, now_ms)
        self._reply(ticket, EpochAnswer(code, self.leader_epoch, self.leader_id))
        self._proceed(now_ms)

    def on_fetch_asked(self, ticket: int, fetch: QuorumFetch, now_ms: int) -> None:
        """Fetch (1) of the metadata log. It may have to wait for its answer."""
        if self._leading is None or fetch.leader_epoch != self.leader_epoch:
            self._reply(ticket, self._refusal(fetch))
            return
        self._leading.on_fetch(ticket, fetch, now_ms)
        if self._asking is not None:
            self._asking.finish(fetch.replica.node_id)
        self._proceed(now_ms)

    def on_snapshot_asked(self, replica: ReplicaKey, leader_epoch: LeaderEpoch, now_ms: int) -> Code:
        """FetchSnapshot (59): whether this node serves it, as a leader in that epoch. Whoever loads one follows us."""
        if self._leading is None or leader_epoch != self.leader_epoch:
            return self._refusal_code(leader_epoch)
        self._leading.on_snapshot_asked(replica, now_ms)
        self._proceed(now_ms)
        return Code.NONE

    def on_asker_gone(self, ticket: int) -> None:
        """Its connection closed: nobody waits for that answer."""
        if self._leading is not None:
            self._leading.on_asker_gone(ticket)

    # What becomes of what we asked.

    def on_answered(self, number: int, answer: Answer, now_ms: int) -> None:
        """An answer. It tells who leads, late or not; else it counts only while it is waited for."""
        awaited = self._following.take_awaited(number)
        voter = None if self._asking is None else self._asking.on_answered(number)
        before, asking = (self.role, self.leader_epoch), self._asking
        self._learn(answer.leader_epoch, answer.leader_id, now_ms)
        if self._is_fresh and self.role is Role.UNATTACHED:
            self._campaign_ms = min(self._campaign_ms, now_ms + self._rng.randrange(0, FIRST_ELECTION_MS + 1))
        self._is_fresh = False
        if before != (self.role, self.leader_epoch):
            pass  # it was asked in another role
        elif isinstance(answer, FetchAnswer):
            if awaited is not None:
                self._on_fetch_answer(awaited, answer, now_ms)
        elif voter is not None and asking is not None:
            if isinstance(answer, VoteAnswer):
                self._on_vote_answer(voter, answer, now_ms)
            elif answer.code is not Code.NONE:
                asking.put_off(voter, now_ms)
        self._proceed(now_ms)

    def on_unanswered(self, number: int, now_ms: int) -> None:
        """It timed out, or could not be sent: it is sent again, later."""
        awaited = self._following.take_awaited(number)
        if awaited is not None:
            self._following.on_refused(now_ms, self._settings.retry_backoff_ms)
            if not self.is_voter and awaited.target == self.leader_id:
                self._is_leader_lost = True  # an observer asks the others; a voter waits for silence
        elif self._asking is not None:
            self._asking.on_failed(number, now_ms)
        self._proceed(now_ms)

    def on_peer_closed(self, node_id: BrokerId, now_ms: int) -> None:
        """Our connection to that node closed. If it leads, a pre-vote starts at once: it may be gone, or may not."""
        if self.role is Role.FOLLOWER and node_id == self.leader_id:
            self._is_leader_lost = True
            self._campaign_ms = now_ms
            self._following.awaited = None
        self._proceed(now_ms)

    # Our log.

    def on_epoch_opened(self, epoch_start: Offset, now_ms: int) -> None:
        """The leader change was appended at `epoch_start`, its epoch being in the lineage on disk; it is not synced."""
        invariant(self._is_opening and self._leader_change is None, "an epoch was opened that is not owed")
        self._is_opening = False
        self._log.on_appended(Offset(epoch_start + 1))
        if self._leading is not None:
            self._leading.on_epoch_opened(epoch_start, now_ms)
            self._leading.on_log_moved()
        self._proceed(now_ms)

    def on_appended(self, log_end_offset: Offset, now_ms: int) -> None:
        """Records were written, the leader's own or fetched ones, and the lineage has their epochs. End exclusive."""
        self._log.on_appended(log_end_offset)
        if self._following.append is None:
            self._following.is_appending = False
        if self._leading is not None:
            self._leading.on_log_moved()
        self._proceed(now_ms)

    def on_synced(self, end_offset: Offset, now_ms: int) -> None:
        """All below `end_offset` (exclusive) would survive a loss of power."""
        self._log.on_synced(end_offset)
        if self._leading is not None:
            self._leading.on_log_moved()
        self._on_disk_done(now_ms)

    def on_truncated(self, log_end_offset: Offset, now_ms: int) -> None:
        """The log and its lineage were cut, on disk too. It may end lower than asked for: a batch goes as a whole."""
        invariant(self._following.is_cutting and self._following.truncation is None, "truncated without need")
        invariant(log_end_offset >= (self.high_watermark or 0), "truncated to {}, committed", log_end_offset)
        self._log.on_truncated(log_end_offset)
        self._following.is_cutting = False
        self._on_disk_done(now_ms)

    def on_snapshot_loaded(self, snapshot: SnapshotId, now_ms: int) -> None:
        """The log starts anew at its end; the lineage has its epoch there, and nothing else."""
        self._log.on_snapshot_loaded(snapshot)
        self._following.is_loading = False
        self.high_watermark = max(self.high_watermark or Offset(0), snapshot.end_offset)
        self._on_disk_done(now_ms)

    def on_snapshot_failed(self, now_ms: int) -> None:
        """It could not be fetched, or there is none any more: the next fetch tells what to do."""
        self._following.is_loading = False
        self._following.on_refused(now_ms, self._settings.retry_backoff_ms)
        self._on_disk_done(now_ms)

    def on_log_start_moved(self, log_start_offset: Offset, snapshot: SnapshotId | None) -> None:
        """Records that a snapshot covers were deleted, or (with the same start) a newer snapshot was written."""
        self._log.on_log_start_moved(log_start_offset, snapshot)

    def on_voters(self, voters: VoterSet, now_ms: int, *, end_offset: Offset | None = None) -> None:
        """A voter set was appended, and counts at once; or it was truncated away, and the one before counts again.

        Args:
            end_offset: exclusive, of the record that it comes from; by default the log end: call it after
                `on_appended`, and before `on_synced`.
        """
        self.voters = voters
        self.voters_end_offset = self._log.log_end_offset if end_offset is None else end_offset
        if self._leading is not None:
            self._leading.on_voters(voters)
            if self._asking is not None:
                is_new = [one for one in self._others() if self._leading.progress_of(_key_of(voters, one)) is None]
                self._asking.keep(self._others(), is_new, now_ms)
        elif self.role in (Role.PROSPECTIVE, Role.CANDIDATE) and not self.is_voter:
            self._move(Cause.REMOVED)
        self._proceed(now_ms)

    # Time, and the end.

    def on_tick(self, now_ms: int) -> None:
        """Time has passed: call it at `next_deadline_ms`."""
        self._proceed(now_ms)

    def next_deadline_ms(self) -> int | None:
        """When to call `on_tick`; None while nothing waits for time."""
        known = [
            None if self._asking is None else self._asking.next_deadline_ms(),
            None if self._leading is None else self._leading.next_deadline_ms(),
            self._following.retry_ms if self._may_fetch else None,
            self._campaign_ms if self._may_campaign or self._election is not None else None,
            self._yield_ms if self._election is not None else None,
        ]
        return min((one for one in known if one is not None), default=None)

    def on_resign(self, now_ms: int) -> None:
        """The node stops, or its disk failed: it leads no more, nor tries to. Whoever votes is told."""
        self._is_stopping = True
        if self.role is Role.LEADER:
            self._resign(now_ms)
        elif self.role in (Role.PROSPECTIVE, Role.CANDIDATE):
            self._lose(now_ms)
        self._proceed(now_ms)

    # What to do about it.

    def take_ready(self) -> QuorumReady:
        """What is owed since the last call. All of it is done before anything of a later one."""
        voted = self._voted
        state = QuorumState(
            self.leader_epoch,
            self.leader_id,
            None if voted is None else voted.node_id,
            None if voted is None else voted.directory_id,
        )
        following = self._following
        ready = QuorumReady(
            None if state == self._saved else state,
            following.truncation,
            following.append,
            following.load,
            self._leader_change,
            self.high_watermark,
            tuple(self._replies),
            tuple(self._requests),
        )
        self._saved = state
        following.truncation = following.append = following.load = self._leader_change = None
        self._replies.clear()
        self._requests.clear()
        return ready

    def clone(self, lineage: LeaderEpochLineage | None = None) -> Self:
        """An independent copy, for the exhaustive checker; of the lineage too if none is given."""
        copy = type(self).__new__(type(self))
        copy.__dict__.update(self.__dict__)
        copy._log = self._log.clone(lineage)
        copy._following = self._following.clone()
        copy._leading = None if self._leading is None else self._leading.clone(copy._log)
        copy._election = None if self._election is None else self._election.clone()
        copy._asking = None if self._asking is None else self._asking.clone()
        copy._replies, copy._requests = self._replies.copy(), self._requests.copy()
        return copy

    def canonical_key(self) -> tuple[object, ...]:
        """Equal for nodes that behave alike, clocks, numbers and tickets aside."""
        parts = (self._following, self._leading, self._election, self._asking, self._log)
        return (
            self.key,
            self.voters,
            self.voters_end_offset,
            self.role,
            self.leader_epoch,
            self.leader_id,
            self._voted,
            self.high_watermark,
            self._leader_change,
            (self._is_opening, self._is_stopping, self._is_fresh, self._is_leader_lost, self._heard_ms is None),
            self._ended,
            self._yield_ms is None,
            *(None if part is None else part.canonical_key() for part in parts),
            len(self._replies),
            len(self._requests),
        )

    # Who leads.

    def _check_sender(self, leader_epoch: LeaderEpoch, voter: ReplicaKey | None) -> Code:
        if leader_epoch < self.leader_epoch:
            return Code.FENCED_LEADER_EPOCH
        return Code.NONE if voter is None or is_same_replica(voter, self.key) else Code.INVALID_VOTER_KEY

    def _learn(self, leader_epoch: LeaderEpoch, leader_id: BrokerId | None, now_ms: int) -> None:
        """Somebody speaks of that epoch, and knows, or not, who leads in it."""
        if leader_epoch > self.leader_epoch:
            self.leader_epoch, self._voted = leader_epoch, None
            self._move(Cause.NEWER_EPOCH)
            self._campaign_ms = now_ms + self._election_timeout_ms()
        is_news = leader_epoch == self.leader_epoch and self.leader_id is None
        if leader_id in (None, self.key.node_id) or (leader_epoch, leader_id) == self._ended:
            return
        if is_news and (self.role, Cause.LEADER_FOUND) in TRANSITIONS:
            self._move(Cause.LEADER_FOUND)
            self.leader_id = leader_id
            self._defeats = 0
            self._campaign_ms = now_ms + self._settings.fetch_timeout_ms

    def _hear(self, now_ms: int) -> None:
        """The leader of this epoch said something."""
        self._heard_ms = now_ms
        self._is_leader_lost = False
        self._campaign_ms = now_ms + self._settings.fetch_timeout_ms

    def _is_leader_alive(self, now_ms: int) -> bool:
        if self.role is not Role.FOLLOWER or self._is_leader_lost or self._heard_ms is None:
            return False
        return now_ms < self._heard_ms + self._settings.fetch_timeout_ms

    def _on_leader_ended(self, leader_id: BrokerId, now_ms: int) -> None:
        self._ended = (self.leader_epoch, leader_id)
        if self.role in (Role.FOLLOWER, Role.PROSPECTIVE):
            self._move(Cause.LEADER_ENDED)
        self._campaign_ms = min(self._campaign_ms, now_ms + self._rng.randrange(0, SUCCESSION_MS + 1))

    def _succeed(self, preferred: tuple[ReplicaKey, ...], now_ms: int) -> None:
        """The leader said who should be next: the first needs no pre-vote, the others wait for it."""
        if self.role is not Role.UNATTACHED or not self.is_voter or self._is_stopping:
            return
        at = next((at for at, key in enumerate(preferred) if is_same_replica(key, self.key)), len(preferred))
        if at > 0:
            self._campaign_ms = now_ms + SUCCESSION_MS * at + self._rng.randrange(0, SUCCESSION_MS)
        elif not self._is_busy:
            self._become_candidate(Cause.SUCCEEDS, now_ms)

    # Elections.

    def _campaign(self, now_ms: int) -> None:
        """Ask whether there would be votes for us."""
        self._move(Cause.TIMED_OUT)
        self._election = Election(self.key.node_id)
        self._ask_others(now_ms, self._settings.retry_backoff_ms * 5)
        self._campaign_ms = now_ms + self._election_timeout_ms()

    def _become_candidate(self, cause: Cause, now_ms: int) -> None:
        self._move(cause)
        self.leader_epoch = LeaderEpoch(self.leader_epoch + 1)
        self.leader_id, self._voted = None, self.key
        self._election = Election(self.key.node_id)
        self._ask_others(now_ms, self._settings.retry_backoff_ms * 5)
        self._campaign_ms = now_ms + self._election_timeout_ms()

    def _become_leader(self, granting: tuple[ReplicaKey, ...], now_ms: int) -> None:
        self._move(Cause.ELECTED)
        self.leader_id = self.key.node_id
        self._defeats = 0
        self._is_fresh = False
        who = Leadership(self.key, self.leader_epoch)
        self._leading = Leading(who, self.voters, self._log, settings=self._settings, now_ms=now_ms)
        voters = tuple(voter.key for voter in self.voters.voters)
        self._leader_change = LeaderChange(self.leader_epoch, self.key.node_id, voters, granting)
        self._is_opening = True
        self._ask_others(now_ms, self._settings.fetch_timeout_ms // 2)

    def _on_vote_answer(self, voter: BrokerId, answer: VoteAnswer, now_ms: int) -> None:
        if self._election is None:
            return
        is_granted = answer.code is Code.NONE and answer.is_granted
        self._election.on_answered(voter, is_granted=is_granted)
        if not is_granted and self.role is Role.PROSPECTIVE and answer.leader_id == voter == self.leader_id:
            self._move(Cause.LEADER_STANDS)  # it says so itself
            self._hear(now_ms)

    def _count(self, now_ms: int) -> None:
        """See whether the election is over."""
        election = self._election
        if election is None:
            return
        if self._yield_ms is not None and now_ms >= self._yield_ms:
            self._yield_ms = None
        if election.is_won(self.voters):
            if self.role is Role.CANDIDATE:
                granting = tuple(one.key for one in self.voters.voters if one.key.node_id in election.granted)
                self._become_leader(granting, now_ms)
            elif self._yield_ms is None:
                self._become_candidate(Cause.PRE_VOTE_WON, now_ms)
                self._count(now_ms)
        elif election.is_lost(self.voters) or now_ms >= self._campaign_ms:
            self._lose(now_ms)

    def _lose(self, now_ms: int) -> None:
        """Too many refused, or too few answered: try again after a random while."""
        if self.role is Role.PROSPECTIVE and self.leader_id is not None:
            self._move(Cause.LEADER_STANDS)
        else:
            self._move(Cause.LOST)
        self._defeats = min(self._defeats + 1, 10)
        backoff_ms = min(self._settings.election_backoff_ms_max, SUCCESSION_MS << self._defeats)
        self._campaign_ms = now_ms + self._rng.randrange(0, backoff_ms + 1)

    def _resign(self, now_ms: int) -> None:
        """Lead no more, and say so to whoever votes."""
        if self._leading is None:
            return
        preferred = self._leading.preferred()
        self._ended = (self.leader_epoch, self.key.node_id)
        self._move(Cause.RESIGNS)
        self._asking = Asking(
            (key.node_id for key in preferred),
            now_ms,
            backoff_ms=self._settings.retry_backoff_ms,
            backoff_ms_max=self._settings.fetch_timeout_ms // 2,
        )
        self._preferred = preferred
        self._campaign_ms = now_ms + self._election_timeout_ms()

    # What follows from what happened.

    def _proceed(self, now_ms: int) -> None:
        """Do what is due: elections, then what the role does, then ask who has to be asked."""
        if self._may_campaign and now_ms >= self._campaign_ms:
            self._campaign(now_ms)
        self._count(now_ms)
        if self._leading is not None:
            self._lead(self._leading, now_ms)
        elif self._following.leader_high_watermark is not None:
            self._commit(min(self._following.leader_high_watermark, self._log.log_end_offset))
        if self._asking is not None:
            for target in self._asking.due(now_ms):
                self._asking.on_sent(self._send(target, self._message_for(target)), target)
        self._fetch(now_ms)

    def _lead(self, leading: Leading, now_ms: int) -> None:
        leading.on_tick(now_ms)
        self._replies += leading.take_replies()
        if leading.high_watermark is not None:
            self._commit(leading.high_watermark)
        is_removed = not self.is_voter and not self.is_voter_change_pending
        if is_removed or not leading.is_followed(now_ms):
            self._resign(now_ms)

    def _commit(self, high_watermark: Offset) -> None:
        if self.high_watermark is None or high_watermark > self.high_watermark:
            self.high_watermark = high_watermark

    def _move(self, cause: Cause) -> None:
        """Take another role. Nothing of the one before goes on: who waits for us is told."""
        invariant((self.role, cause) in TRANSITIONS, "node {}: {} while {}", self.key.node_id, cause, self.role)
        self.role = TRANSITIONS[self.role, cause]
        if cause not in (Cause.TIMED_OUT, Cause.LEADER_STANDS):
            self.leader_id, self._heard_ms = None, None
            self._is_leader_lost = False
        if cause is not Cause.LEADER_STANDS:
            self._following.on_epoch_left()
        self._election = self._asking = self._yield_ms = None
        if self._leader_change is not None:
            self._leader_change, self._is_opening = None, False
        self._requests.clear()
        leading, self._leading = self._leading, None
        if leading is not None:
            self._replies += leading.take_replies()
            self._replies += [QuorumReply(ticket, self._refusal(fetch)) for ticket, fetch in leading.take_parked()]

    def _on_disk_done(self, now_ms: int) -> None:
        """While the disk was at work the leader could not be heard."""
        if self.role is Role.FOLLOWER and not self._is_leader_lost:
            self._campaign_ms = max(self._campaign_ms, now_ms + self._settings.fetch_timeout_ms)
        self._proceed(now_ms)

    # Fetching.

    @property
    def _is_busy(self) -> bool:
        return self._is_opening or self._following.is_disk_busy

    @property
    def _may_campaign(self) -> bool:
        is_waiting = self.role in (Role.UNATTACHED, Role.FOLLOWER, Role.RESIGNED)
        return is_waiting and self.is_voter and not self._is_stopping and not self._is_busy

    @property
    def _may_fetch(self) -> bool:
        is_asking = self.role in (Role.UNATTACHED, Role.FOLLOWER, Role.RESIGNED)
        return is_asking and self._following.awaited is None and not self._is_busy and self._log.is_synced

    @property
    def _is_alone(self) -> bool:
        return self.is_voter and self.voters.majority_size == 1

    def _fetch(self, now_ms: int) -> None:
        """Fetch from the leader; who knows of none, or lost it, asks one voter after the other."""
        following = self._following
        if not self._may_fetch or (following.retry_ms is not None and now_ms < following.retry_ms):
            return
        is_seeking = self.leader_id is None or self._is_leader_lost
        target = following.whom_to_ask(self._others()) if is_seeking else self.leader_id
        following.retry_ms = None
        if target is None:
            return
        fetch = QuorumFetch(
            self.key,
            self.leader_epoch,
            self._log.log_end_offset,
            self._log.last_leader_epoch,
            self.high_watermark,
            0 if is_seeking else self._settings.fetch_wait_ms_max,
        )
        following.awaited = Awaited(self._send(target, fetch), target, fetch)

    def _on_fetch_answer(self, awaited: Awaited, answer: FetchAnswer, now_ms: int) -> None:
        is_leaders = self.role is Role.FOLLOWER and awaited.target == self.leader_id
        is_of_epoch = awaited.fetch.leader_epoch == answer.leader_epoch == self.leader_epoch
        if answer.code is not Code.NONE or not is_leaders or not is_of_epoch:
            if is_leaders and is_of_epoch and answer.leader_id is None:
                self._on_leader_ended(awaited.target, now_ms)  # it says that it leads no more
            self._following.on_refused(now_ms, self._settings.retry_backoff_ms)
            return
        self._hear(now_ms)
        self._following.on_served()
        if awaited.fetch.fetch_offset != self._log.log_end_offset or self._is_busy:
            return  # the log moved meanwhile
        if answer.diverging is not None:
            self._cut(self._log.truncation_point(answer.diverging), now_ms)
        elif answer.snapshot is not None:
            self._following.owe_load(answer.snapshot)
        else:
            self._following.leader_high_watermark = answer.high_watermark
            if answer.end_offset is not None and answer.end_offset > self._log.log_end_offset:
                self._following.owe_append(awaited.number)

    def _cut(self, end_offset: Offset, now_ms: int) -> None:
        committed = max(self.high_watermark or Offset(0), self._log.log_start_offset)
        invariant(
            end_offset >= committed,
            "leader {} of epoch {} has the metadata log up to {} only, {} is committed",
            self.leader_id,
            self.leader_epoch,
            end_offset,
            committed,
        )
        if end_offset < self._log.log_end_offset:
            self._following.owe_truncation(end_offset)
        else:
            self._following.on_refused(now_ms, self._settings.retry_backoff_ms)

    # Messages.

    def _others(self) -> tuple[BrokerId, ...]:
        return tuple(voter for voter in self.voters.ids if voter != self.key.node_id)

    def _ask_others(self, now_ms: int, backoff_ms_max: int) -> None:
        backoff_ms = self._settings.retry_backoff_ms
        self._asking = Asking(self._others(), now_ms, backoff_ms=backoff_ms, backoff_ms_max=backoff_ms_max)

    def _message_for(self, target: BrokerId) -> Asked:
        """What the role asks of everybody."""
        voter = _key_of(self.voters, target)
        if self.role is Role.LEADER:
            own = self.voters.voter(self.key.node_id)
            return EpochBegun(self.leader_epoch, self.key.node_id, voter, () if own is None else own.endpoints)
        if self.role is Role.RESIGNED:
            return EpochEnded(self.leader_epoch, self.key.node_id, self._preferred)
        last, end = self._log.last_leader_epoch, self._log.log_end_offset
        return VoteAsked(self.leader_epoch, self.key, voter, last, end, is_pre_vote=self.role is Role.PROSPECTIVE)

    def _send(self, target: BrokerId, message: Asked) -> int:
        self._number += 1
        self._requests.append(QuorumRequest(self._number, target, message))
        return self._number

    def _reply(self, ticket: int, answer: Answer) -> None:
        self._replies.append(QuorumReply(ticket, answer))

    def _refusal(self, fetch: QuorumFetch) -> FetchAnswer:
        code = self._refusal_code(fetch.leader_epoch)
        return FetchAnswer(code, self.leader_epoch, self.leader_id, fetch.fetch_offset)

    def _refusal_code(self, leader_epoch: LeaderEpoch) -> Code:
        if leader_epoch == self.leader_epoch:
            return Code.NOT_LEADER_OR_FOLLOWER
        return Code.FENCED_LEADER_EPOCH if leader_epoch < self.leader_epoch else Code.UNKNOWN_LEADER_EPOCH

    def _election_timeout_ms(self) -> int:
        timeout_ms = self._settings.election_timeout_ms
        return timeout_ms + self._rng.randrange(0, timeout_ms + 1)


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


def _key_of(voters: VoterSet, node_id: BrokerId) -> ReplicaKey:
    voter = voters.voter(node_id)
    return ReplicaKey(node_id) if voter is None else voter.key

"""A node of the metadata quorum, voter or observer: who leads it, what is committed, what to fetch (KRaft, KIP-595).

It decides; its driver does. Events come in by `on_*`, with the time where time matters; `take_ready` says what is owed
to the world, in the order in which it must be done. What is handed out is done and told, whatever happens meanwhile.

Kafka: `KafkaRaftClient`.
"""

from __future__ import annotations

from typing import Self

from tidelog.base.errors import Code
from tidelog.base.ids import BrokerId, LeaderEpoch, Offset
from tidelog.base.invariant import invariant
from tidelog.base.ports import Rng
from tidelog.quorum.elections import WAITING, Elections
from tidelog.quorum.follower_state import Awaited, QuorumFollower
from tidelog.quorum.leader_state import Leadership, LeaderState
from tidelog.quorum.log import QuorumLog
from tidelog.quorum.progress import QuorumProgress
from tidelog.quorum.recovering import PROBE_OFFSET, Recovering
from tidelog.quorum.standing import Standing
from tidelog.quorum.state_file import QuorumState
from tidelog.quorum.values import (
    Answer,
    EpochBegun,
    EpochEnded,
    FetchAnswer,
    LeaderChange,
    PeerRequest,
    QuorumFetch,
    QuorumReady,
    QuorumReply,
    QuorumRequest,
    QuorumSettings,
    ReplicaKey,
    Role,
    SnapshotId,
    VoteRequested,
    VoterSet,
)
from tidelog.quorum.voters_in_force import START, VotersInForce
from tidelog.records.lineage import LeaderEpochLineage


class QuorumNode:
    """One node of the quorum of the metadata log.

    All that happens is told to the node. What is the case may be asked of its parts.

    Attributes:
        high_watermark: exclusive end of what is known to be committed. Never goes back, whoever leads.
        standing: its role, its epoch, and who leads in it, if that is known; maybe this node.
        voters: the set that counts.
        log: what it knows of its log.
        leading: the leader's side; None unless it leads.
        following: the follower's side.
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
        previous_voters: VoterSet | None = None,
    ) -> None:
        """Start, knowing no leader: others are asked. A quorum of one elects itself at once.

        Args:
            voters: the latest of the log (committed or not), else of the configuration.
            state: what the quorum-state file says; None on the first start.
            log: as it was opened. Copied; but its lineage is the log's own.
            voters_end_offset: exclusive, of the record that `voters` come from; 0 from the configuration.
            previous_voters: the set before `voters`, of the log or else of the configuration; None if there is none.
        """
        self.key = key
        self.high_watermark: Offset | None = None
        self._settings = settings
        self.log = log.clone(log.lineage)
        self.standing = Standing(key, state, self.log)
        self.voters = VotersInForce(key, voters, voters_end_offset, previous_voters)
        self._elections = Elections(self.standing, self.voters, self.log, settings=settings, rng=rng, now_ms=now_ms)
        self.following = QuorumFollower(rng.randrange(0, 1 << 16))
        self.leading: LeaderState | None = None
        self._recovering = Recovering()
        self._leader_change: LeaderChange | None = None
        self._is_opening = False
        self._moves = self.standing.moves
        self._saved = state
        self._number = 0
        self._replies: list[QuorumReply] = []
        self._requests: list[QuorumRequest] = []
        self._proceed(now_ms)

    # What is the case.

    @property
    def is_active(self) -> bool:
        """Whether this node leads, and has committed a record of its epoch: so it knows all that is committed."""
        return self.leading is not None and self.leading.high_watermark is not None

    @property
    def committed_end(self) -> Offset | None:
        """Exclusive end of what is committed, here or not, as far as the leader has said so."""
        return self.following.leader_high_watermark if self.leading is None else self.leading.high_watermark

    def describe(self, now_ms: int | None = None) -> QuorumProgress:
        """What DescribeQuorum shows. `now_ms` is when the leader itself fetched and was caught up."""
        voters, observers = ((), ()) if self.leading is None else self.leading.describe(now_ms)
        standing = self.standing
        return QuorumProgress(standing.leader_id, standing.leader_epoch, self.high_watermark, voters, observers)

    # What others ask.

    def on_vote_request(self, ticket: int, requested: VoteRequested, now_ms: int) -> None:
        """Vote (52). The vote is on disk before the answer is sent: `take_ready`."""
        self._reply(ticket, self._elections.on_vote_request(requested, now_ms))
        self._proceed(now_ms)

    def on_epoch_begun(self, ticket: int, begun: EpochBegun, now_ms: int) -> None:
        """BeginQuorumEpoch (53): somebody leads."""
        self._reply(ticket, self._elections.on_epoch_begun(begun, now_ms))
        self._proceed(now_ms)

    def on_epoch_ended(self, ticket: int, ended: EpochEnded, now_ms: int) -> None:
        """EndQuorumEpoch (54): the leader leads no more. The first of those whom it prefers asks for votes at once."""
        self._reply(ticket, self._elections.on_epoch_ended(ended, now_ms, is_busy=self._is_busy))
        self._proceed(now_ms)

    def on_fetch_request(self, ticket: int, fetch: QuorumFetch, now_ms: int) -> None:
        """Fetch (1) of the metadata log. It may have to wait for its answer."""
        if self.leading is None or fetch.leader_epoch != self.standing.leader_epoch:
            self._reply(ticket, self.standing.refusal(fetch))
            return
        self.leading.on_fetch(ticket, fetch, now_ms)
        if self._elections.outstanding is not None:
            self._elections.outstanding.finish(fetch.replica.node_id)
        self._proceed(now_ms)

    def on_snapshot_request(self, replica: ReplicaKey, leader_epoch: LeaderEpoch, now_ms: int) -> Code:
        """FetchSnapshot (59): whether we serve it, as the leader in that epoch. Whoever loads one follows us."""
        if self.leading is None or leader_epoch != self.standing.leader_epoch:
            return self.standing.refusal_code(leader_epoch)
        self.leading.on_snapshot_request(replica, now_ms)
        self._proceed(now_ms)
        return Code.NONE

    def on_requester_disconnected(self, ticket: int) -> None:
        """Its connection closed: nobody waits for that answer."""
        if self.leading is not None:
            self.leading.on_requester_disconnected(ticket)

    # What becomes of what we asked.

    def on_answered(self, number: int, answer: Answer, now_ms: int) -> None:
        """An answer. It tells who leads, late or not; else it counts only while it is waited for."""
        elections = self._elections
        awaited = self.following.take_awaited(number)
        voter = None if elections.outstanding is None else elections.outstanding.on_answered(number)
        elections.learn(answer.leader_epoch, answer.leader_id, now_ms)
        elections.on_reached(now_ms)
        if self.standing.moves != self._moves:
            pass  # it was asked in another role
        elif isinstance(answer, FetchAnswer):
            if awaited is not None:
                self._on_fetch_answer(awaited, answer, now_ms)
        elif voter is not None:
            elections.on_answered(voter, answer, now_ms)
        self._proceed(now_ms)

    def on_unanswered(self, number: int, now_ms: int) -> None:
        """It timed out, or could not be sent: it is sent again, later."""
        awaited = self.following.take_awaited(number)
        if awaited is not None:
            self.following.on_refused(now_ms, self._settings.retry_backoff_ms)
            is_observing = not self.standing.may_vote or not self.voters.has_us
            if is_observing and awaited.target == self.standing.leader_id:
                self.standing.is_leader_lost = True  # an observer asks the others; a voter waits for silence
        elif self._elections.outstanding is not None:
            self._elections.outstanding.on_failed(number, now_ms)
        self._proceed(now_ms)

    def on_peer_closed(self, node_id: BrokerId, now_ms: int) -> None:
        """Our connection to that node closed. If it leads, a pre-vote starts at once: it may be gone, or may not."""
        if self.standing.role is Role.FOLLOWER and node_id == self.standing.leader_id:
            self._elections.on_leader_lost(now_ms)
            self.following.awaited = None
        self._proceed(now_ms)

    # Our log.

    def on_epoch_opened(self, epoch_start: Offset, now_ms: int) -> None:
        """The leader change was appended at `epoch_start`, its epoch being in the lineage on disk; it is not synced."""
        invariant(self._is_opening and self._leader_change is None, "an epoch was opened that is not owed")
        self._is_opening = False
        self.log.on_appended(Offset(epoch_start + 1))
        if self.leading is not None:
            self.leading.on_epoch_opened(epoch_start, now_ms)
        self._on_log_moved(now_ms)

    def on_appended(self, log_end_offset: Offset, now_ms: int) -> None:
        """Records were written, the leader's own or fetched ones, and the lineage has their epochs. End exclusive."""
        self.log.on_appended(log_end_offset)
        self.following.on_appended()
        self._on_log_moved(now_ms)

    def on_synced(self, end_offset: Offset, now_ms: int) -> None:
        """All below `end_offset` (exclusive) would survive a loss of power."""
        self.log.on_synced(end_offset)
        self._elections.on_disk_done(now_ms)
        self._on_log_moved(now_ms)

    def on_truncated(self, log_end_offset: Offset, now_ms: int) -> None:
        """The log and its lineage were truncated, on disk too, maybe further than required: a batch goes as a whole."""
        invariant(log_end_offset >= (self.high_watermark or START), "truncated to {}: committed", log_end_offset)
        self.following.on_truncated()
        self.log.on_truncated(log_end_offset)
        self._elections.on_disk_done(now_ms)
        self._proceed(now_ms)

    def on_snapshot_loaded(self, snapshot: SnapshotId, now_ms: int) -> None:
        """The log starts anew at its end; the lineage has its epoch there, and nothing else."""
        self.following.on_loaded()
        self.log.on_snapshot_loaded(snapshot)
        self._commit(snapshot.end_offset)
        self._elections.on_disk_done(now_ms)
        self._proceed(now_ms)

    def on_snapshot_failed(self, now_ms: int) -> None:
        """It could not be fetched, or there is none any more: the next fetch tells what to do."""
        self.following.on_loaded()
        self.following.on_refused(now_ms, self._settings.retry_backoff_ms)
        self._elections.on_disk_done(now_ms)
        self._proceed(now_ms)

    def on_log_start_moved(self, log_start_offset: Offset, snapshot: SnapshotId | None) -> None:
        """Records that a snapshot covers were deleted, or (with the same start) a newer snapshot was written."""
        self.log.on_log_start_moved(log_start_offset, snapshot)

    def on_voters(self, voters: VoterSet, now_ms: int, *, end_offset: Offset | None = None) -> None:
        """A voter set was appended, and counts at once; or it was truncated away, and the one before counts again.

        Args:
            end_offset: exclusive, of the record that it comes from; by default the log end: call it after
                `on_appended`, and before `on_synced`.
        """
        elections = self._elections
        self.voters.on_voters(voters, self.log.log_end_offset if end_offset is None else end_offset)
        elections.on_voters_changed()
        if self.leading is not None:
            self.leading.on_voters(voters)
            is_new = [one.key.node_id for one in voters.voters if self.leading.progress_of(one.key) is None]
            if elections.outstanding is not None:
                elections.outstanding.keep(self.voters.others, set(is_new) & set(self.voters.others), now_ms)
        self._proceed(now_ms)

    # Time, and the end.

    def on_tick(self, now_ms: int) -> None:
        """Time has passed: call it at `next_deadline_ms`."""
        self._proceed(now_ms)

    def next_deadline_ms(self) -> int | None:
        """When to call `on_tick`; None while nothing waits for time."""
        known = (
            self._elections.next_deadline_ms(is_busy=self._is_busy),
            None if self.leading is None else self.leading.next_deadline_ms(),
            self.following.retry_ms if self._may_fetch else None,
        )
        return min((one for one in known if one is not None), default=None)

    def on_resign(self, now_ms: int) -> None:
        """The node stops, or its disk failed: it leads no more, nor tries to. Whoever votes is told."""
        self._elections.on_stopping(now_ms)
        if self.leading is not None:
            self._elections.resign(self.leading.preferred(), now_ms)
        self._proceed(now_ms)

    # What to do about it.

    def take_ready(self) -> QuorumReady:
        """What is owed since the last call. All of it is done before anything of a later one."""
        state, following = self.standing.state, self.following
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
        copy.log = self.log.clone(lineage)
        copy.standing, copy.voters = self.standing.clone(), self.voters.clone()
        copy._elections = self._elections.clone(copy.standing, copy.voters, copy.log)
        copy.following = self.following.clone()
        copy._recovering = self._recovering.clone()
        copy.leading = None if self.leading is None else self.leading.clone(copy.log)
        copy._replies, copy._requests = self._replies.copy(), self._requests.copy()
        return copy

    def canonical_key(self) -> tuple[object, ...]:
        """Equal for nodes that behave alike, clocks, numbers and tickets aside, once what they owe was taken."""
        return (
            self.key,
            self.high_watermark,
            self._is_opening,
            self.standing.canonical_key(),
            self.voters.canonical_key(),
            self._elections.canonical_key(),
            self.following.canonical_key(),
            self._recovering.canonical_key(),
            None if self.leading is None else self.leading.canonical_key(),
            self.log.canonical_key(),
        )

    # What follows from what happened.

    def _on_log_moved(self, now_ms: int) -> None:
        if self.leading is not None:
            self.leading.on_log_moved()
        self._proceed(now_ms)

    def _proceed(self, now_ms: int) -> None:
        """Do what is due: elections, then what the role does, then send the requests that are due."""
        self._elections.proceed(now_ms, is_busy=self._is_busy)
        self._note_moves(now_ms)
        if self.leading is not None:
            self._lead(self.leading, now_ms)
        elif self.following.leader_high_watermark is not None:
            self._commit(min(self.following.leader_high_watermark, self.log.log_end_offset))
            if not self.standing.may_vote and self._recovering.is_done(self.log, self.following.leader_high_watermark):
                self.standing.recover()
        outstanding = self._elections.outstanding
        if outstanding is not None:
            for target in outstanding.due(now_ms):
                outstanding.on_sent(self._send(target, self._elections.message_for(target)), target)
        self._fetch(now_ms)

    def _note_moves(self, now_ms: int) -> None:
        """After a change of roles nothing of the one before goes on, and who waits for us is told."""
        standing = self.standing
        if standing.moves == self._moves:
            return
        self._moves = standing.moves
        self._requests.clear()
        self.following.on_role_left()
        self._recovering = Recovering()
        if self._leader_change is not None:
            self._leader_change, self._is_opening = None, False
        leading, self.leading = self.leading, None
        if leading is not None:
            self._replies += leading.take_replies()
            self._replies += [QuorumReply(ticket, standing.refusal(fetch)) for ticket, fetch in leading.take_parked()]
        if standing.role is Role.LEADER:
            who = Leadership(self.key, self.standing.leader_epoch)
            self.leading = LeaderState(who, self.voters.latest, self.log, settings=self._settings, now_ms=now_ms)
            voters = tuple(voter.key for voter in self.voters.latest.voters)
            self._leader_change = LeaderChange(who.leader_epoch, self.key.node_id, voters, self._elections.granting)
            self._is_opening = standing.has_records = True

    def _lead(self, leading: LeaderState, now_ms: int) -> None:
        leading.on_tick(now_ms)
        self._replies += leading.take_replies()
        if leading.high_watermark is not None:
            self._commit(leading.high_watermark)
        is_removed = not self.voters.has_us and not self.voters.is_change_pending
        if is_removed or not leading.is_followed(now_ms):
            self._elections.resign(leading.preferred(), now_ms)
            self._note_moves(now_ms)

    def _commit(self, high_watermark: Offset) -> None:
        if self.high_watermark is None or high_watermark > self.high_watermark:
            self.high_watermark = high_watermark
            self.voters.on_committed(high_watermark)

    # Fetching.

    @property
    def _is_busy(self) -> bool:
        """Whether the disk owes something: nothing is fetched, and no election tried, before it is done."""
        return self._is_opening or self.following.is_disk_busy or not self.log.is_synced

    @property
    def _may_fetch(self) -> bool:
        return self.standing.role in WAITING and self.following.awaited is None and not self._is_busy

    def _fetch(self, now_ms: int) -> None:
        """Fetch from the leader; who knows of none, or lost it, asks one voter after the other."""
        following, standing = self.following, self.standing
        if not self._may_fetch or not following.is_due(now_ms):
            return
        is_seeking = standing.leader_id is None or standing.is_leader_lost
        target = following.request_target(self.voters.others) if is_seeking else standing.leader_id
        if target is None:
            return
        fetch_offset, last_fetched_epoch = self.log.log_end_offset, self.log.last_leader_epoch
        if not self.standing.may_vote:
            fetch_offset, last_fetched_epoch = self._recovering.next_fetch(self.log, standing.leader_epoch)
        fetch = QuorumFetch(
            self.key,
            standing.leader_epoch,
            fetch_offset,
            last_fetched_epoch,
            self.high_watermark,
            0 if is_seeking else self._settings.fetch_wait_ms_max,
        )
        following.awaited = Awaited(self._send(target, fetch), target, fetch)

    def _on_fetch_answer(self, awaited: Awaited, answer: FetchAnswer, now_ms: int) -> None:
        following = self.following
        is_leaders = self.standing.role is Role.FOLLOWER and awaited.target == self.standing.leader_id
        is_leaders = is_leaders and awaited.fetch.leader_epoch == answer.leader_epoch == self.standing.leader_epoch
        if answer.code is not Code.NONE or not is_leaders:
            if is_leaders and answer.leader_id is None:
                self._elections.on_leader_ended(awaited.target, now_ms)  # it says that it leads no more
                self._note_moves(now_ms)
            following.on_refused(now_ms, self._settings.retry_backoff_ms)
            return
        self._elections.note_leader_contact(now_ms)
        following.on_served()
        if awaited.fetch.fetch_offset == PROBE_OFFSET:
            self._on_probed(awaited.fetch, answer, now_ms)
            return
        if awaited.fetch.fetch_offset != self.log.log_end_offset or self._is_busy:
            return  # the log moved meanwhile
        if answer.diverging is not None:
            self._truncate(self.log.truncation_point(answer.diverging), now_ms)
        elif answer.snapshot is not None:
            self._owe_load(answer.snapshot)
        else:
            following.leader_high_watermark = answer.high_watermark
            self._recovering.on_high_watermark(answer.high_watermark)
            if answer.end_offset is not None and answer.end_offset > self.log.log_end_offset:
                self.standing.has_records = True
                following.owe_append(awaited.number)
            else:
                self._recovering.on_nothing_new(self.log)

    def _on_probed(self, fetch: QuorumFetch, answer: FetchAnswer, now_ms: int) -> None:
        """The leader told how its log ends, or an epoch of ours in it. What we have beyond that is not committed."""
        recovering, log = self._recovering, self.log
        recovering.on_probed(answer.diverging, answer.high_watermark, self.standing.leader_epoch)
        if self._is_busy or log.log_end_offset <= recovering.committed:
            return
        if answer.snapshot is not None:
            self._owe_load(answer.snapshot)
        elif answer.diverging is not None and fetch.last_fetched_epoch == log.last_leader_epoch:
            self._truncate(log.truncation_point(answer.diverging), now_ms)

    def _owe_load(self, snapshot: SnapshotId) -> None:
        self.standing.has_records = True
        self.following.owe_load(snapshot)

    def _truncate(self, end_offset: Offset, now_ms: int) -> None:
        committed = max(self.high_watermark or START, self.log.log_start_offset)
        invariant(
            end_offset >= committed,
            "leader {} of epoch {} has the metadata log up to {} only, {} is committed",
            self.standing.leader_id,
            self.standing.leader_epoch,
            end_offset,
            committed,
        )
        if end_offset < self.log.log_end_offset:
            self.following.owe_truncation(end_offset)
        else:
            self.following.on_refused(now_ms, self._settings.retry_backoff_ms)

    def _send(self, target: BrokerId, message: PeerRequest) -> int:
        self._number += 1
        self._requests.append(QuorumRequest(self._number, target, message))
        return self._number

    def _reply(self, ticket: int, answer: Answer) -> None:
        self._replies.append(QuorumReply(ticket, answer))

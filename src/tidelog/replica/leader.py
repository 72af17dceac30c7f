"""The leader's side of one partition: who holds what, hence what is committed, and who may ask.

```
 log start          high watermark       epoch start          log end
     ├───────────────────┼────────────────────┼──────────────────┤
       consumers read ───┘                     a replica joins the ISR only at or above
                                               both the high watermark and the epoch's start
```

One machine lives for one leader epoch: what a leader knows of its followers starts empty in each (rule 3).

All that happens is told to the machine. What is the case may be asked of its parts: the ISR (`in_sync`), the followers
(`followers`), and their silence (`silence`), which may leave the leader cut off.

Kafka: `Partition`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Self

from tidelog.base.errors import Code, KafkaError, OffsetOutOfRangeError, refusal
from tidelog.base.ids import BrokerEpoch, BrokerId, CorrelationId, LeaderEpoch, Offset, TopicPartition
from tidelog.base.invariant import invariant
from tidelog.metadata.image import PartitionImage
from tidelog.records.lineage import EpochEntry, LeaderEpochLineage
from tidelog.replica.followers import Followers
from tidelog.replica.isr import InSyncReplicas, JoinRule, join_point
from tidelog.replica.leader_epoch import check_leader_epoch
from tidelog.replica.produce_waits import ProduceWaits
from tidelog.replica.progress import FollowerProgress
from tidelog.replica.silence import Silence
from tidelog.replica.values import (
    AcceptedFetch,
    FollowerFetch,
    LeaderReady,
    LogBounds,
    ReplicationSettings,
)


class LeaderReplica:
    """Leads one partition in one leader epoch.

    Attributes:
        in_sync: the ISR, and what the controller may yet grant.
        followers: the other replicas.
        silence: of the followers; whether the leader is cut off.
        held_end_offset: exclusive; below it this replica counts as one that holds the records. It is the log end, or
            where the log is synced if `flush.messages` asks for that: a follower too fetches on once it has synced.
    """

    __slots__ = (
        "_join_rule",
        "_lineage",
        "_proposal_retry_ms",
        "_settings",
        "_waits",
        "broker_id",
        "epoch_start",
        "followers",
        "held_end_offset",
        "high_watermark",
        "in_sync",
        "leader_epoch",
        "log_end_offset",
        "log_start_offset",
        "partition",
        "silence",
    )

    def __init__(
        self,
        partition: TopicPartition,
        broker_id: BrokerId,
        state: PartitionImage,
        log: LogBounds,
        lineage: LeaderEpochLineage,
        *,
        settings: ReplicationSettings,
        now_ms: int,
        is_held: bool = True,
        join: JoinRule = join_point,
    ) -> None:
        """Begin to lead, in `state.leader_epoch`.

        Args:
            state: the partition as the metadata has it; `broker_id` is its leader and in its ISR.
            lineage: the log's, to which the leader epoch is assigned, on disk already (rule 1). Only read here.
            now_ms: monotonic; the members of the ISR count as caught up from here on.
            is_held: False where the log's end is to be synced before it counts; see `on_held`.
            join: from where on a follower may join the ISR. Tests pass the rules that were replaced.
        """
        leader_epoch = state.leader_epoch
        invariant(state.leader == broker_id, "{}: broker {} does not lead it", partition, broker_id)
        invariant(broker_id in state.isr, "{}: leader {} is not in its ISR", partition, broker_id)
        invariant(lineage.latest_leader_epoch == leader_epoch, "{} leads before its lineage says so", partition)
        self.partition = partition
        self.broker_id = broker_id
        self.leader_epoch = leader_epoch
        self.epoch_start = lineage.entries[-1].start_offset
        self.log_start_offset = log.log_start_offset
        self.log_end_offset = log.log_end_offset
        self.high_watermark = log.clamped_high_watermark
        self.held_end_offset = self.log_end_offset if is_held else self.high_watermark
        self.in_sync = InSyncReplicas(state, settings.min_insync_replicas)
        self.followers = Followers(broker_id, state.replicas, now_ms)
        self.silence = Silence(self.in_sync, self.followers, settings.silence_ms_max)
        self._waits = ProduceWaits()
        self._lineage = lineage
        self._settings = settings
        self._join_rule = join
        self._proposal_retry_ms: int | None = None
        self._propose(self.isr)  # after an unclean election: that the leader has recovered (rule 7)

    # What is the case.

    @property
    def isr(self) -> frozenset[BrokerId]:
        """The in-sync replicas, as the controller said last."""
        return self.in_sync.committed

    @property
    def high_watermark_is_known(self) -> bool:
        """Whether everything of earlier epochs is known to be committed; until then `latest` has no answer."""
        return self.high_watermark >= self.epoch_start

    def check_leader_epoch(self, sent: LeaderEpoch | None) -> None:
        """Refuse a sender that speaks of another epoch (KIP-320); None is not checked.

        Raises:
            FencedLeaderEpochError: the sender missed an election.
            UnknownLeaderEpochError: the sender knows of a newer one.
        """
        check_leader_epoch(self.partition, sent=sent, leader_epoch=self.leader_epoch)

    def check_enough_replicas(self) -> None:
        """Before an append with acks=all (rule 4).

        Raises:
            KafkaError: NOT_ENOUGH_REPLICAS, or NOT_LEADER_OR_FOLLOWER of a leader that is cut off; nothing was written.
        """
        size_min = self.in_sync.size_min
        if len(self.isr) < size_min:
            raise refusal(
                Code.NOT_ENOUGH_REPLICAS,
                f"{self.partition}: in sync are {sorted(self.isr)}, min.insync.replicas asks for {size_min}",
            )
        if self.silence.is_cut_off:
            raise refusal(
                Code.NOT_LEADER_OR_FOLLOWER,
                f"{self.partition}: of {sorted(self.isr)}, which are in sync, so few have fetched for "
                f"{self._settings.silence_ms_max} ms (broker.session.timeout.ms) that nothing can be committed here; "
                f"min.insync.replicas asks for {size_min}, this leader included",
            )

    def latest_offset(self) -> Offset:
        """What a consumer is told is the end.

        Raises:
            KafkaError: OFFSET_NOT_AVAILABLE while the high watermark is below the start of this epoch: an answer
                could lie below what was read already (rule 4).
        """
        if not self.high_watermark_is_known:
            raise refusal(
                Code.OFFSET_NOT_AVAILABLE,
                f"{self.partition}: high watermark {self.high_watermark} is below the start of leader epoch "
                f"{self.leader_epoch} at {self.epoch_start}",
            )
        return self.high_watermark

    def offset_for_leader_epoch(self, requested: LeaderEpoch) -> tuple[LeaderEpoch, Offset] | None:
        """Where the records of `requested` end: the largest epoch not above it, and its end (KIP-101, KIP-279).

        None, for an epoch above ours, is spelt (-1, -1) on the wire, and never is a reason to truncate.
        """
        return self._lineage.end_offset_for(requested, self.log_end_offset)

    def diverging(self, last_fetched_epoch: LeaderEpoch | None, fetch_offset: int) -> EpochEntry | None:
        """Where the log of whoever fetches ceased to be a prefix of ours; None if it still is one, or it does not say.

        Args:
            last_fetched_epoch: of the record before `fetch_offset`.

        Raises:
            OffsetOutOfRangeError: the epoch is newer than ours; nothing can be said of such a position.
        """
        if last_fetched_epoch is None:
            return None
        known = self.offset_for_leader_epoch(last_fetched_epoch)
        if known is None:
            raise self._out_of_range(fetch_offset)
        is_prefix = known[0] == last_fetched_epoch and known[1] >= fetch_offset
        return None if is_prefix else EpochEntry(*known)

    def accept_fetch(self, fetch: FollowerFetch) -> AcceptedFetch | EpochEntry:
        """Whether a follower's fetch proves anything (rule 3). Changes nothing.

        Returns:
            The accepted fetch; or, when the follower's log is no prefix of ours, the epoch and the exclusive end offset
            that DivergingEpoch tells it to truncate to.

        Raises:
            FencedLeaderEpochError: it follows an older leader epoch.
            UnknownLeaderEpochError: it follows a newer one.
            KafkaError: UNKNOWN_LEADER_EPOCH when it is no replica that we know of (the assignment has not come here
                yet), NOT_LEADER_OR_FOLLOWER if it does not say in which leader epoch it is one, either of us may be
                behind then; NOT_LEADER_OR_FOLLOWER also when an earlier incarnation of it sent this.
            OffsetOutOfRangeError: it asks for less than is kept, or for more than was written.
        """
        self.check_leader_epoch(fetch.leader_epoch)
        follower = self.followers.progress.get(fetch.follower)
        if follower is None:
            raise refusal(
                Code.NOT_LEADER_OR_FOLLOWER if fetch.leader_epoch is None else Code.UNKNOWN_LEADER_EPOCH,
                f"{self.partition}: broker {fetch.follower} is not among its replicas, as far as this leader knows",
            )
        registered = self.followers.active_brokers.get(fetch.follower)
        if follower.is_overtaken(fetch.broker_epoch, registered):
            raise refusal(
                Code.NOT_LEADER_OR_FOLLOWER,
                f"{self.partition}: broker {fetch.follower} fetched at broker epoch {fetch.broker_epoch}; "
                f"it is registered at {registered}, and fetched last at {follower.broker_epoch}",
            )
        diverging = self.diverging(fetch.last_fetched_epoch, fetch.fetch_offset)
        if diverging is not None:
            return diverging
        if not self.log_start_offset <= fetch.fetch_offset <= self.log_end_offset:
            raise self._out_of_range(fetch.fetch_offset)
        return AcceptedFetch(fetch.follower, fetch.fetch_offset, fetch.broker_epoch, fetch.now_ms)

    # What happened.

    def on_appended(self, log_end_offset: Offset, now_ms: int, *, is_held: bool = True) -> None:
        """Records were written here.

        Args:
            log_end_offset: exclusive.
            is_held: False where they are to be synced before they count; see `on_held`.
        """
        invariant(log_end_offset >= self.log_end_offset, "{}: the log end went back", self.partition)
        for follower in self.followers.progress.values():
            follower.on_appended(self.log_end_offset, now_ms)
        self.log_end_offset = log_end_offset
        if is_held:
            self.held_end_offset = log_end_offset

    def on_held(self, end_offset: Offset) -> None:
        """All below `end_offset` is synced here, or need not be any more."""
        invariant(end_offset <= self.log_end_offset, "{}: it holds more than was written", self.partition)
        self.held_end_offset = max(self.held_end_offset, end_offset)

    def on_log_start_moved(self, log_start_offset: Offset) -> None:
        """Retention or DeleteRecords removed what was below; both stop at the high watermark (rule 11)."""
        invariant(log_start_offset <= self.high_watermark, "{}: uncommitted records were deleted", self.partition)
        self.log_start_offset = max(self.log_start_offset, log_start_offset)

    def on_fetch(self, fetch: AcceptedFetch) -> None:
        """Asking for `fetch_offset` in our epoch proves that the follower holds every record below it.

        Below the high watermark it proves less: the last of these may be on their way to its disk (`fetch_ahead`).
        There it is counted for nothing but the follower's lag.
        """
        follower = self.followers.progress.get(fetch.follower)
        registered = self.followers.active_brokers.get(fetch.follower)
        if follower is None or follower.is_overtaken(fetch.broker_epoch, registered):
            return  # no replica any more, or overtaken by its next incarnation, since it was accepted
        follower.on_fetch(fetch, self.log_end_offset)
        silence = self.silence
        if fetch.follower in silence.silent:
            silence.on_contact(fetch.follower)
        if silence.cut_off_ms is not None:
            silence.look(self.log_end_offset, fetch.now_ms)
        isr = self.in_sync.committed
        if fetch.follower in isr:
            if fetch.fetch_offset < self.high_watermark:
                self._propose(isr - {fetch.follower})  # it lost what it once had
        elif self._may_join(fetch, follower):
            self._propose(isr | {fetch.follower})

    def on_state(self, state: PartitionImage) -> None:
        """The controller says something newer about this partition, within this leader epoch. Older news is dropped."""
        if not self.in_sync.on_state(state):
            return
        invariant(state.leader_epoch == self.leader_epoch, "{}: this is of another leader epoch", self.partition)
        self._proposal_retry_ms = None
        self.followers.on_replicas(state.replicas)
        self.silence.look_again(self.log_end_offset)
        self._propose(self.isr)  # newer state may have come from elsewhere, and not know yet that the leader recovered

    def on_proposal_unanswered(self, now_ms: int) -> None:
        """AlterPartition timed out or was refused, whatever the code. It may be granted all the same: it still counts.

        After a pause another is made, of the ISR as it is if nothing else is wanted: only newer state settles it.
        """
        if self.in_sync.is_proposal_open:
            self.in_sync.on_proposal_unanswered()
            self._proposal_retry_ms = now_ms + self._settings.proposal_backoff_ms

    def on_brokers(self, active: Mapping[BrokerId, BrokerEpoch]) -> None:
        """Who is neither fenced nor shutting down, in which incarnation: none else may join (KIP-841, KIP-903)."""
        self.followers.active_brokers = active

    def on_silent(self, follower: BrokerId, now_ms: int) -> None:
        """A follower has fetched nothing of any partition for a session: what is written here next need not wait for
        one of its own to find that out.
        """
        self.silence.on_silent(follower)
        self.on_tick(now_ms)

    def on_contact(self, follower: BrokerId, now_ms: int) -> None:
        """It fetches again, whatever that be."""
        self.silence.on_contact(follower)
        self.silence.look(self.log_end_offset, now_ms)

    def on_settings(self, settings: ReplicationSettings) -> None:
        """The topic's configuration changed."""
        self._settings = settings
        self.in_sync.on_settings(settings.min_insync_replicas)
        self.silence.silence_ms_max = settings.silence_ms_max
        self.silence.look_again(self.log_end_offset)

    def on_produced(self, correlation_id: CorrelationId, end_offset: Offset, deadline_ms: int) -> int:
        """A producer with acks=all waits until all below `end_offset` is committed; a duplicate waits for its original.

        With acks=0 and acks=1 nobody waits for more than the append.

        Returns:
            When to call `on_tick` for its sake: it is told by then, if all it waits for is time.
        """
        self._waits.add(correlation_id, end_offset, deadline_ms)
        cut_off_from_ms = self.silence.cut_off_from_ms(self.log_end_offset)
        return deadline_ms if cut_off_from_ms is None else min(deadline_ms, cut_off_from_ms)

    def on_tick(self, now_ms: int) -> None:
        """Time has passed: who waited too long is told, who lagged too long is proposed to leave (always safe).

        Who waits on a leader that is cut off is told to look for another: it may be committed there, or here yet.
        """
        self.silence.look(self.log_end_offset, now_ms)
        if self.silence.is_cut_off:
            is_enough = len(self.isr) >= self.in_sync.size_min
            self._waits.refuse(Code.NOT_LEADER_OR_FOLLOWER if is_enough else Code.NOT_ENOUGH_REPLICAS_AFTER_APPEND)
        self._waits.expire(now_ms)
        since_ms = now_ms - self._settings.lag_ms_max
        lagging = self.followers.lagging(self.isr, self.log_end_offset, since_ms=since_ms)
        is_pause_over = self._proposal_retry_ms is not None and now_ms >= self._proposal_retry_ms
        if is_pause_over:
            self._proposal_retry_ms = None
        if is_pause_over or lagging:
            self._propose(self.isr - lagging)

    def on_stopped(self) -> None:
        """The leadership is over; whoever waits is told to look for the next leader."""
        self._waits.refuse(Code.NOT_LEADER_OR_FOLLOWER)

    # What to do about it.

    def take_ready(self) -> LeaderReady:
        """Move the high watermark, and say what follows from it.

        It never retreats, and never moves while fewer are in sync than must be. Until the controller answers, each
        proposed ISR may be the true one: all of them must hold the record (rule 4).
        """
        in_sync, progress = self.in_sync, self.followers.progress
        held_by_all = self.held_end_offset
        for broker in in_sync.maximal:
            if broker != self.broker_id:
                held_by_all = min(held_by_all, progress[broker].end_offset or Offset(0))
        is_enough = len(in_sync.committed) >= in_sync.size_min
        if is_enough:
            self.high_watermark = max(self.high_watermark, held_by_all)
        code = Code.NONE if is_enough else Code.NOT_ENOUGH_REPLICAS_AFTER_APPEND
        acks = self._waits.take_acks(self.high_watermark, code)
        return LeaderReady(self.high_watermark, acks, in_sync.take_proposal())

    def next_deadline_ms(self) -> int | None:
        """When to call `on_tick`, unless something else comes first; None when nothing is waited for."""
        deadlines = self._waits.deadlines_ms
        if not self.silence.is_cut_off and (from_ms := self.silence.cut_off_from_ms(self.log_end_offset)) is not None:
            deadlines.append(from_ms)
        if self._proposal_retry_ms is not None:
            deadlines.append(self._proposal_retry_ms)
        elif not self.in_sync.is_proposal_open:  # who lags cannot be proposed to leave before that is answered
            progress = self.followers.progress
            deadlines += [
                progress[broker].caught_up_ms + self._settings.lag_ms_max + 1
                for broker in self.isr & progress.keys()
                if progress[broker].end_offset != self.log_end_offset
            ]
        return min(deadlines, default=None)

    def clone(self, lineage: LeaderEpochLineage | None = None) -> Self:
        """An independent copy, for the exhaustive checker.

        Args:
            lineage: of the copied log; None for a copy of this one's.
        """
        copy = type(self).__new__(type(self))
        for name in LeaderReplica.__slots__:
            setattr(copy, name, getattr(self, name))
        copy._lineage = self._lineage.clone() if lineage is None else lineage
        copy.in_sync = self.in_sync.clone()
        copy.followers = self.followers.clone()
        copy.silence = self.silence.clone(copy.in_sync, copy.followers)
        copy._waits = self._waits.clone()
        return copy

    def canonical_key(self) -> tuple[object, ...]:
        """Equal for machines that behave alike, clocks aside."""
        return (
            self.broker_id,
            self.leader_epoch,
            self.epoch_start,
            self.log_start_offset,
            self.log_end_offset,
            self.held_end_offset,
            self.high_watermark,
            self._lineage.entries,
            self._proposal_retry_ms is not None,
            self.in_sync.canonical_key(),
            self.followers.canonical_key(),
            self.silence.canonical_key(),
            self._waits.canonical_key(),
        )

    def _propose(self, isr: frozenset[BrokerId]) -> None:
        """Propose another ISR, but not at once after a refusal or no answer."""
        if self._proposal_retry_ms is None:
            self.in_sync.propose(isr, self.followers.active_brokers)

    def _may_join(self, fetch: AcceptedFetch, follower: FollowerProgress) -> bool:
        """At the high watermark and at the epoch's start, alive, and as the incarnation that is registered (rule 5).

        Nor does it lag behind the log's end: the high watermark stands still while too few are in sync, and whoever is
        no further would be proposed to leave at once, and to join with its next fetch.
        After an unclean election nobody does until the controller knows that the leader recovered: until then that is
        what it is asked, one question at a time.
        """
        return (
            fetch.fetch_offset >= self._join_rule(self.high_watermark, self.epoch_start)
            and fetch.broker_epoch is not None
            and self.followers.active_brokers.get(fetch.follower) == fetch.broker_epoch
            and not follower.lags(self.log_end_offset, since_ms=fetch.now_ms - self._settings.lag_ms_max)
        )

    def _out_of_range(self, offset: int) -> KafkaError:
        return OffsetOutOfRangeError(
            self.partition,
            offset=offset,
            log_start_offset=self.log_start_offset,
            end_offset=self.log_end_offset,
        )

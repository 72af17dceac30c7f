"""The leader's side of one partition: who holds what, hence what is committed, and who may ask.

```
 log start          high watermark       epoch start          log end
     ├───────────────────┼────────────────────┼──────────────────┤
       consumers read ───┘                     a replica joins the ISR only at or above
                                               both the high watermark and the epoch's start
```

One machine lives for one leader epoch: what a leader knows of its followers starts empty in each (rule 3).

A leader that too few fetch from for a session (`broker.session.timeout.ms`) is *cut off*: it can commit nothing, and a
controller that it cannot reach either has others lead by then. It refuses acks=all with NOT_LEADER_OR_FOLLOWER until
enough fetch again, since stock clients ask who leads on that code, and on NOT_ENOUGH_REPLICAS do not. Only fetches
count: whether a controller is there makes no difference.

Kafka: `Partition`.
"""

from __future__ import annotations

from collections.abc import Mapping
from heapq import heapify, heappop, heappush
from typing import Self

from tidelog.base.errors import Code, KafkaError, OffsetOutOfRangeError, refusal
from tidelog.base.ids import BrokerEpoch, BrokerId, CorrelationId, LeaderEpoch, Offset, TopicPartition
from tidelog.base.invariant import invariant
from tidelog.metadata.image import PartitionImage
from tidelog.records.lineage import EpochEntry, LeaderEpochLineage
from tidelog.replica.isr import InSyncReplicas, JoinRule, isr_size_min, join_point
from tidelog.replica.leader_epoch import check_leader_epoch
from tidelog.replica.progress import FollowerProgress
from tidelog.replica.values import (
    AcceptedFetch,
    Acknowledgement,
    FollowerFetch,
    LogBounds,
    Ready,
    ReplicationSettings,
)

NEVER_MS = -(1 << 62)
"""Longer ago than any time that is allowed."""


class LeaderReplica:
    """Leads one partition in one leader epoch.

    Attributes:
        held_end_offset: exclusive; below it this replica counts as one that holds the records. It is the log end, or
            where the log is synced if `flush.messages` asks for that: a follower too fetches on once it has synced.
    """

    __slots__ = (
        "_acks",
        "_active_brokers",
        "_cut_off_ms",
        "_followers",
        "_isr",
        "_join_rule",
        "_lineage",
        "_proposal_retry_ms",
        "_settings",
        "_silent",
        "_waiting",
        "broker_id",
        "epoch_start",
        "held_end_offset",
        "high_watermark",
        "leader_epoch",
        "log_end_offset",
        "log_start_offset",
        "partition",
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
        self._isr = InSyncReplicas(state)
        self._lineage = lineage
        self._settings = settings
        self._join_rule = join
        self._proposal_retry_ms: int | None = None
        self._followers = {broker: FollowerProgress(now_ms) for broker in state.replicas if broker != broker_id}
        self._active_brokers: Mapping[BrokerId, BrokerEpoch] = {}
        self._waiting: list[tuple[Offset, CorrelationId, int]] = []
        self._cut_off_ms: int | None = None  # when that was found out
        self._silent: frozenset[BrokerId] = frozenset()
        self._acks: list[Acknowledgement] = []
        self._propose(self._isr.committed)  # after an unclean election: that the leader has recovered (rule 7)

    # What is the case.

    @property
    def isr(self) -> frozenset[BrokerId]:
        """The in-sync replicas, as the controller said last."""
        return self._isr.committed

    @property
    def maximal_isr(self) -> frozenset[BrokerId]:
        """Everyone who is in an ISR that may be the true one: all of them must hold what is committed."""
        return self._isr.maximal

    @property
    def high_watermark_is_known(self) -> bool:
        """Whether everything of earlier epochs is known to be committed; until then `latest` has no answer."""
        return self.high_watermark >= self.epoch_start

    @property
    def is_isr_whole(self) -> bool:
        """Whether every replica is in sync, so that none is waited for to join."""
        return len(self._isr.committed) > len(self._followers)

    @property
    def active_followers(self) -> frozenset[BrokerId]:
        """Those that are neither fenced nor shutting down."""
        return frozenset(self._followers.keys() & self._active_brokers.keys())

    @property
    def lag_max(self) -> int:
        """How many records the follower lacks that has fewest, of those that have fetched in this epoch."""
        known = [each.end_offset for each in self._followers.values() if each.end_offset is not None]
        return self.log_end_offset - min(known, default=self.log_end_offset)

    @property
    def has_followers(self) -> bool:
        """Whether there is anybody else to wait for."""
        return bool(self._followers)

    def has_follower(self, broker_id: BrokerId) -> bool:
        """Whether a broker is to follow."""
        return broker_id in self._followers

    @property
    def isr_size_min(self) -> int:
        """How many must be in sync before anything is committed."""
        return isr_size_min(self._isr.state, self._settings.min_insync_replicas)

    @property
    def is_cut_off(self) -> bool:
        """Whether too few have fetched for so long that nothing is expected to be committed here."""
        return self._cut_off_ms is not None

    @property
    def cut_off_from_ms(self) -> int | None:
        """When this leader is cut off, unless somebody fetches before; None while enough have all that there is.

        Those count that may be in sync, or could be again where these are too few.
        """
        needed = self.isr_size_min - 1
        followers = self._followers
        if needed <= 0:
            return None
        counted = self._isr.maximal & followers.keys()
        silent_since_ms = []
        for broker in counted if len(counted) >= needed else followers:
            since_ms = followers[broker].silent_since_ms(self.log_end_offset)
            if broker in self._silent:
                silent_since_ms.append(NEVER_MS)
            elif since_ms is None:
                needed -= 1
            else:
                silent_since_ms.append(since_ms)
        if needed <= 0:
            return None
        silent_since_ms.sort()
        return silent_since_ms[-needed] + self._settings.silence_ms_max + 1

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
        if len(self.isr) < self.isr_size_min:
            raise refusal(
                Code.NOT_ENOUGH_REPLICAS,
                f"{self.partition}: in sync are {sorted(self.isr)}, min.insync.replicas asks for {self.isr_size_min}",
            )
        if self.is_cut_off:
            raise refusal(
                Code.NOT_LEADER_OR_FOLLOWER,
                f"{self.partition}: of {sorted(self.isr)}, which are in sync, so few have fetched for "
                f"{self._settings.silence_ms_max} ms (broker.session.timeout.ms) that nothing can be committed here; "
                f"min.insync.replicas asks for {self.isr_size_min}, this leader included",
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

    def in_sync_at(self, offset: int) -> dict[BrokerId, Offset]:
        """The followers in sync that are known to have everything below `offset`, with the exclusive ends of what they
        are known to have.
        """
        return {
            broker: follower.end_offset
            for broker, follower in self._followers.items()
            if broker in self.isr and follower.end_offset is not None and follower.end_offset >= offset
        }

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
        follower = self._followers.get(fetch.follower)
        if follower is None:
            raise refusal(
                Code.NOT_LEADER_OR_FOLLOWER if fetch.leader_epoch is None else Code.UNKNOWN_LEADER_EPOCH,
                f"{self.partition}: broker {fetch.follower} is not among its replicas, as far as this leader knows",
            )
        registered = self._active_brokers.get(fetch.follower)
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
        for follower in self._followers.values():
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
        """Asking for `fetch_offset` in our epoch proves that the follower holds every record below it."""
        follower = self._followers.get(fetch.follower)
        if follower is None or follower.is_overtaken(fetch.broker_epoch, self._active_brokers.get(fetch.follower)):
            return  # no replica any more, or overtaken by its next incarnation, since it was accepted
        follower.on_fetch(fetch, self.log_end_offset)
        if self._silent:
            self._silent -= {fetch.follower}
        if self._cut_off_ms is not None:
            self._look_who_fetches(fetch.now_ms)
        if fetch.follower in self.isr:
            if fetch.fetch_offset < self.high_watermark:
                self._propose(self.isr - {fetch.follower})  # it lost what it once had
        elif self._may_join(fetch, follower):
            self._propose(self.isr | {fetch.follower})

    def on_state(self, state: PartitionImage) -> None:
        """The controller says something newer about this partition, within this leader epoch. Older news is dropped."""
        if not self._isr.on_state(state):
            return
        invariant(state.leader_epoch == self.leader_epoch, "{}: this is of another leader epoch", self.partition)
        self._proposal_retry_ms = None
        known = self._followers
        others = (broker for broker in state.replicas if broker != self.broker_id)
        self._followers = {broker: known.get(broker) or FollowerProgress(0) for broker in others}
        if self._cut_off_ms is not None:
            self._look_who_fetches(self._cut_off_ms)
        self._propose(self.isr)  # newer state may have come from elsewhere, and not know yet that the leader recovered

    def on_proposal_unanswered(self, now_ms: int) -> None:
        """AlterPartition timed out or was refused, whatever the code. It may be granted all the same: it still counts.

        After a pause another is made, of the ISR as it is if nothing else is wanted: only newer state settles it.
        """
        if self._isr.is_proposal_open:
            self._isr.on_proposal_unanswered()
            self._proposal_retry_ms = now_ms + self._settings.proposal_backoff_ms

    def on_brokers(self, active: Mapping[BrokerId, BrokerEpoch]) -> None:
        """Who is neither fenced nor shutting down, in which incarnation: none else may join (KIP-841, KIP-903)."""
        self._active_brokers = active

    def on_silent(self, follower: BrokerId, now_ms: int) -> None:
        """A follower has fetched nothing of any partition for a session: what is written here next need not wait for
        one of its own to find that out.
        """
        self._silent |= {follower}
        self.on_tick(now_ms)

    def on_contact(self, follower: BrokerId, now_ms: int) -> None:
        """It fetches again, whatever that be."""
        self._silent -= {follower}
        self._look_who_fetches(now_ms)

    def on_settings(self, settings: ReplicationSettings) -> None:
        """The topic's configuration changed."""
        self._settings = settings
        if self._cut_off_ms is not None:
            self._look_who_fetches(self._cut_off_ms)

    def on_produced(self, correlation_id: CorrelationId, end_offset: Offset, deadline_ms: int) -> None:
        """A producer with acks=all waits until all below `end_offset` is committed; a duplicate waits for its original.

        With acks=0 and acks=1 nobody waits for more than the append.
        """
        heappush(self._waiting, (end_offset, correlation_id, deadline_ms))

    def on_tick(self, now_ms: int) -> None:
        """Time has passed: who waited too long is told, who lagged too long is proposed to leave (always safe).

        Who waits on a leader that is cut off is told to look for another: it may be committed there, or here yet.
        """
        self._look_who_fetches(now_ms)
        if self._cut_off_ms is not None and self._waiting:
            is_enough = len(self.isr) >= self.isr_size_min
            code = Code.NOT_LEADER_OR_FOLLOWER if is_enough else Code.NOT_ENOUGH_REPLICAS_AFTER_APPEND
            self._acks.extend(Acknowledgement(waiting[1], code) for waiting in self._waiting)
            self._waiting.clear()
        expired = [waiting for waiting in self._waiting if waiting[2] <= now_ms]
        if expired:
            self._acks.extend(Acknowledgement(waiting[1], Code.REQUEST_TIMED_OUT) for waiting in expired)
            self._waiting = [waiting for waiting in self._waiting if waiting[2] > now_ms]
            heapify(self._waiting)
        since_ms = now_ms - self._settings.lag_ms_max
        lagging = {
            broker
            for broker in self.isr & self._followers.keys()
            if self._followers[broker].lags(self.log_end_offset, since_ms=since_ms)
        }
        is_pause_over = self._proposal_retry_ms is not None and now_ms >= self._proposal_retry_ms
        if is_pause_over:
            self._proposal_retry_ms = None
        if is_pause_over or lagging:
            self._propose(self.isr - lagging)

    def on_stopped(self) -> None:
        """The leadership is over; whoever waits is told to look for the next leader."""
        self._acks.extend(Acknowledgement(waiting[1], Code.NOT_LEADER_OR_FOLLOWER) for waiting in self._waiting)
        self._waiting.clear()

    # What to do about it.

    def take_ready(self) -> Ready:
        """Move the high watermark, and say what follows from it.

        It never retreats, and never moves while fewer are in sync than must be. Until the controller answers, each
        proposed ISR may be the true one: all of them must hold the record (rule 4).
        """
        followers = self._followers
        held_by_all = self.held_end_offset
        for broker in self._isr.maximal:
            if broker != self.broker_id:
                held_by_all = min(held_by_all, followers[broker].end_offset or Offset(0))
        is_enough = len(self.isr) >= self.isr_size_min
        if is_enough:
            self.high_watermark = max(self.high_watermark, held_by_all)
        waiting = self._waiting
        while waiting and waiting[0][0] <= self.high_watermark:
            code = Code.NONE if is_enough else Code.NOT_ENOUGH_REPLICAS_AFTER_APPEND
            self._acks.append(Acknowledgement(heappop(waiting)[1], code))
        ready = Ready(self.high_watermark, tuple(self._acks), self._isr.take_proposal())
        self._acks.clear()
        return ready

    def next_deadline_ms(self) -> int | None:
        """When to call `on_tick`, unless something else comes first; None when nothing is waited for."""
        deadlines = [waiting[2] for waiting in self._waiting]
        if self._cut_off_ms is None and (cut_off_ms := self.cut_off_from_ms) is not None:
            deadlines.append(cut_off_ms)
        if self._proposal_retry_ms is not None:
            deadlines.append(self._proposal_retry_ms)
        elif not self._isr.is_proposal_open:  # who lags cannot be proposed to leave before that is answered
            deadlines += [
                self._followers[broker].caught_up_ms + self._settings.lag_ms_max + 1
                for broker in self.isr & self._followers.keys()
                if self._followers[broker].end_offset != self.log_end_offset
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
        copy._isr = self._isr.clone()
        copy._lineage = self._lineage.clone() if lineage is None else lineage
        copy._followers = {broker: follower.clone() for broker, follower in self._followers.items()}
        copy._waiting = self._waiting.copy()
        copy._acks = self._acks.copy()
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
            self._isr.canonical_key(),
            self._lineage.entries,
            frozenset((broker, f.end_offset, f.broker_epoch) for broker, f in self._followers.items()),
            frozenset(self._active_brokers.items()),
            self._proposal_retry_ms is not None,
            self.is_cut_off,
            self._silent,
            tuple(sorted((offset, waiting) for offset, waiting, _ in self._waiting)),
            tuple(self._acks),
        )

    def _propose(self, isr: frozenset[BrokerId]) -> None:
        """Propose another ISR, but not at once after a refusal or no answer."""
        if self._proposal_retry_ms is None:
            self._isr.propose(isr, self._active_brokers)

    def _look_who_fetches(self, now_ms: int) -> None:
        """Whether this leader is cut off."""
        from_ms = self.cut_off_from_ms
        if from_ms is None or now_ms < from_ms:
            self._cut_off_ms = None
        elif self._cut_off_ms is None:
            self._cut_off_ms = now_ms

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
            and self._active_brokers.get(fetch.follower) == fetch.broker_epoch
            and not follower.lags(self.log_end_offset, since_ms=fetch.now_ms - self._settings.lag_ms_max)
        )

    def _out_of_range(self, offset: int) -> KafkaError:
        return OffsetOutOfRangeError(
            str(self.partition),
            offset=offset,
            log_start_offset=self.log_start_offset,
            end_offset=self.log_end_offset,
        )

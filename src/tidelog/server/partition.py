"""One replica at this broker: its log, the machine that decides about it, and the requests that wait for it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from struct import Struct
from typing import TYPE_CHECKING, Protocol

from tidelog.base.errors import (
    Code,
    CorruptLogError,
    DiskError,
    KafkaError,
    OffsetOutOfRangeError,
    TidelogError,
    refusal,
)
from tidelog.base.ids import (
    BrokerEpoch,
    BrokerId,
    CorrelationId,
    LeaderEpoch,
    Offset,
    TopicId,
    TopicPartition,
)
from tidelog.log import AppendResult, Log, LogConfig, LogSlice, TimestampOffset, without_waiting
from tidelog.metadata import PartitionImage
from tidelog.metadata.topic_names import INTERNAL_TOPICS
from tidelog.records import split_batches
from tidelog.records.header import BATCH_OVERHEAD, TRANSACTIONAL_FLAG
from tidelog.records.lineage import EpochEntry
from tidelog.replica import (
    AcceptedFetch,
    Acknowledgement,
    FollowerFetch,
    IsrProposal,
    LeaderReplica,
    LogBounds,
    ReplicationSettings,
    check_leader_epoch,
)

if TYPE_CHECKING:
    from tidelog.server.following import Following

logger = logging.getLogger("tidelog.server.partition")

READ_UNCOMMITTED = 0

LENGTH_END = 12
_LENGTH_AND_ATTRIBUTES = Struct(">8xi9xh")


class Watcher(Protocol):
    """Who wants to know when a partition changes."""

    def on_changed(self) -> None: ...


class PartitionHost(Protocol):
    """The broker, as far as a partition that is led needs it."""

    def now_ms(self) -> int: ...

    def due_at(self, partition: Partition, due_ms: int) -> None:
        """Call `on_due` then, or a little later."""
        ...

    def propose(self, partition: Partition, replica: LeaderReplica, proposal: IsrProposal) -> None:
        """Put an ISR to the controller."""
        ...


class NoHost:
    """For a partition that has no other replica."""

    def now_ms(self) -> int:
        return 0

    def due_at(self, partition: Partition, due_ms: int) -> None:
        """Nobody looks at the time."""

    def propose(self, partition: Partition, replica: LeaderReplica, proposal: IsrProposal) -> None:
        """There is nobody to put it to."""


class Partition:
    """Serves one partition while this broker leads it, or follows its leader.

    The log holds the records; `LeaderReplica` says what is committed and who is fenced, `FollowerReplica` what is to be
    copied; `Partition` joins log and leader (`Following` does it for the follower), and tells those who watch when
    something changes that a fetch could be answered with: the high watermark, the log start, the leadership. Followers
    are told as well when the log grows.

    Attributes:
        is_internal: whether its records are its coordinator's.
        replica: the leader's machine; None while this broker does not lead.
        following: what drives the follower's machine; None while this broker does not follow.
        log_lock: held by whatever works on the log's files off the loop: a truncation has them for itself.
        produced_bytes: that producers had appended here since the node started, for whoever counts.
        opened_end_offset: the log end when the log was opened; `opened_start_offset` likewise its start.
    """

    __slots__ = (
        "_due_ms",
        "_follower_watchers",
        "_high_watermark",
        "_host",
        "_last_correlation_id",
        "_waiting",
        "_watchers",
        "following",
        "is_internal",
        "known_leader_epoch",
        "log",
        "log_lock",
        "on_read_error",
        "opened_end_offset",
        "opened_start_offset",
        "produced_batches",
        "produced_bytes",
        "replica",
        "topic_id",
        "topic_partition",
    )

    def __init__(
        self,
        topic_partition: TopicPartition,
        topic_id: TopicId,
        log: Log,
        *,
        high_watermark: Offset | None = None,
        host: PartitionHost | None = None,
    ) -> None:
        """Serve nothing yet.

        Args:
            high_watermark: as it was checkpointed; None if it was not.
        """
        self.topic_partition = topic_partition
        self.is_internal = topic_partition.topic in INTERNAL_TOPICS
        self.topic_id = topic_id
        self.log = log
        self.replica: LeaderReplica | None = None
        self.known_leader_epoch: LeaderEpoch | None = None  # as the metadata has it, whoever leads
        self.following: Following | None = None
        self.log_lock = asyncio.Lock()
        self._host: PartitionHost = NoHost() if host is None else host
        bounds = LogBounds(log.log_start_offset, log.log_end_offset, high_watermark)
        self._high_watermark = bounds.clamped_high_watermark  # while nobody is led
        self._watchers: dict[Watcher, None] = {}  # told in the order in which they came
        self._follower_watchers: dict[Watcher, None] = {}
        self._waiting: dict[CorrelationId, asyncio.Future[Code]] = {}
        self._last_correlation_id = 0
        self._due_ms: int | None = None
        self.on_read_error: Callable[[], None] = lambda: None  # told on the loop that the disk refused a read
        self.produced_batches = 0
        self.produced_bytes = 0
        self.opened_end_offset = log.log_end_offset
        self.opened_start_offset = log.log_start_offset

    # What the metadata says.
    def lead(self, replica: LeaderReplica) -> None:
        """Serve as the leader of `replica.leader_epoch`, which the lineage holds already (rule 1)."""
        self.replica = replica
        self.known_leader_epoch = replica.leader_epoch
        self._settle(replica)

    def follow(self, following: Following) -> None:
        """Follow the leader of an epoch. Ends with `stop`."""
        self.following = following
        self.known_leader_epoch = following.replica.leader_epoch
        following.run()

    @property
    def bounds(self) -> LogBounds:
        """Where the log stands, for the machine of the next role."""
        return LogBounds(self.log.log_start_offset, self.log.log_end_offset, self.high_watermark)

    def on_state(self, state: PartitionImage) -> None:
        """Something newer about the partition, within the epoch that this broker leads in."""
        replica = self.replica
        if replica is not None:
            replica.on_state(state)
            self._settle(replica)
            self._ask_who_may_join(replica)

    def on_brokers(self, active: Mapping[BrokerId, BrokerEpoch]) -> None:
        """Who is neither fenced nor shutting down, in which incarnation."""
        replica = self.replica
        if replica is not None:
            replica.on_brokers(active)
            self._ask_who_may_join(replica)

    def _ask_who_may_join(self, replica: LeaderReplica) -> None:
        """Look again at the fetches of followers: one that has nothing new to say may join the ISR by now."""
        if not replica.is_isr_whole:
            self._tell_followers()

    def on_proposal_unanswered(self, replica: LeaderReplica) -> None:
        """The controller refused an ISR, or did not answer."""
        if replica is self.replica:
            now_ms = self._host.now_ms()
            replica.on_proposal_unanswered(now_ms)
            self._settle(replica)
            self._mind_deadline(replica)

    def on_due(self, now_ms: int) -> None:
        """Time has passed."""
        if self._due_ms is None or now_ms < self._due_ms:
            return
        self._due_ms = None
        replica = self.replica
        if replica is not None:
            replica.on_tick(now_ms)
            self._settle(replica)
            self._ask_who_may_join(replica)

    def _mind_deadline(self, replica: LeaderReplica) -> None:
        due_ms = replica.next_deadline_ms()
        if due_ms is not None:
            self._due_at(due_ms)

    def _due_at(self, due_ms: int) -> None:
        """One deadline at a time: when it is over, the machine says what is next. They mostly move away."""
        if self._due_ms is None or due_ms < self._due_ms:
            self._due_ms = due_ms
            self._host.due_at(self, due_ms)

    def stop(self, leader_epoch: LeaderEpoch | None = None) -> None:
        """Serve no more: not the leader, or deleted. Whoever watches is told to look again.

        Args:
            leader_epoch: of which the metadata tells; None for no news.
        """
        if leader_epoch is not None:
            self.known_leader_epoch = leader_epoch
        replica, following = self.replica, self.following
        self._high_watermark = self.high_watermark
        self.replica = self.following = self._due_ms = None
        if replica is not None:
            replica.on_stopped()
            self._tell_producers(replica.take_ready().acks)
        elif following is not None:
            following.stop()
        self._tell_followers()
        self._tell_watchers()

    # Who waits for news.
    def watch(self, watcher: Watcher) -> None:
        """Tell of the next change, once: whoever wants to know of the one after it watches again.

        So a change costs nothing where those who once watched are gone, or have not looked since the last.
        """
        self._watchers[watcher] = None

    def watch_log_end(self, watcher: Watcher) -> None:
        """As `watch`, for a follower, which reads what is not committed too."""
        self._follower_watchers[watcher] = None

    def unwatch(self, watcher: Watcher) -> None:
        self._watchers.pop(watcher, None)
        self._follower_watchers.pop(watcher, None)

    def configure(self, config: LogConfig, settings: ReplicationSettings) -> None:
        """The settings of the topic, or those behind it, changed."""
        self.log.configure(config)
        replica = self.replica
        if replica is not None:
            replica.on_settings(settings)
            self._settle(replica)  # with fewer replicas to wait for, more may be committed

    def on_log_start_moved(self) -> None:
        """Retention or DeleteRecords removed records from the start of the log."""
        if self.replica is not None:
            self.replica.on_log_start_moved(self.log.log_start_offset)
        self._tell_followers()
        self._tell_watchers()

    def _tell_watchers(self) -> None:
        watchers = self._watchers
        if watchers:
            self._watchers = {}
            for watcher in watchers:
                watcher.on_changed()

    def _tell_followers(self) -> None:
        watchers = self._follower_watchers
        if watchers:
            self._follower_watchers = {}
            for watcher in watchers:
                watcher.on_changed()

    # What clients ask.
    def leader(self, sent_leader_epoch: int = -1) -> LeaderReplica:
        """The machine, if this broker leads and the sender agrees about the epoch (KIP-320).

        Args:
            sent_leader_epoch: the epoch that the sender believes is current; -1 skips the check.

        Raises:
            FencedLeaderEpochError: the sender missed an election.
            UnknownLeaderEpochError: the sender knows of a newer one.
            KafkaError: NOT_LEADER_OR_FOLLOWER, where the epochs agree: where they differ, that says more.
        """
        replica = self.replica
        if replica is None:
            known = self.known_leader_epoch
            if known is not None and 0 <= sent_leader_epoch != known:
                check_leader_epoch(self.topic_partition, sent=LeaderEpoch(sent_leader_epoch), leader_epoch=known)
            raise refusal(Code.NOT_LEADER_OR_FOLLOWER, f"{self.topic_partition}: this broker is not its leader")
        if sent_leader_epoch >= 0:
            replica.check_leader_epoch(LeaderEpoch(sent_leader_epoch))
        return replica

    def append(self, batch: memoryview, *, acks_all: bool, now_ms: int) -> AppendResult:
        """Append a producer's batch.

        Args:
            batch: one, as Produce 3+ takes it; stamped in place.
            acks_all: whether the answer must mean "committed", which needs `min.insync.replicas`.
            now_ms: since 1970.

        Raises:
            KafkaError: nothing was changed.
            DiskError: nothing was appended; the partition has to go offline.
        """
        replica = self.leader()
        if acks_all:
            replica.check_enough_replicas()
        self._check_batch(batch)
        result = self.log.append_as_leader(batch, leader_epoch=replica.leader_epoch, now_ms=now_ms)
        if not result.is_duplicate:
            self.produced_batches += 1
            self.produced_bytes += len(batch)
            self._on_appended(replica)
        return result

    def _on_appended(self, replica: LeaderReplica) -> None:
        replica.on_appended(self.log.log_end_offset, self._host.now_ms())
        self._settle(replica)
        if self._follower_watchers:
            self._tell_followers()

    def committed(self, end_offset: int, timeout_ms: int) -> asyncio.Future[Code]:
        """Tell when all below `end_offset` (exclusive), which was appended here, is committed, or why that is not to be
        waited for: see `Acknowledgement`. A duplicate's is that of its original (rule 10).
        """
        future: asyncio.Future[Code] = asyncio.get_running_loop().create_future()
        replica = self.replica
        if replica is None:
            future.set_result(Code.NOT_LEADER_OR_FOLLOWER)
            return future
        self._last_correlation_id += 1
        correlation_id = CorrelationId(self._last_correlation_id)
        self._waiting[correlation_id] = future
        deadline_ms = self._host.now_ms() + max(timeout_ms, 0)
        replica.on_produced(correlation_id, Offset(end_offset), deadline_ms)
        self._due_at(deadline_ms)
        return future

    def on_fetched(self, fetch: FollowerFetch) -> EpochEntry | None:
        """A follower asks for records, which proves what it has, if it is accepted (rule 3).

        Returns:
            None if it is; or where the follower's log ceased to be a prefix of ours.

        Raises:
            KafkaError: see `leader` and `LeaderReplica.accept_fetch`.
        """
        replica = self.leader(-1 if fetch.leader_epoch is None else fetch.leader_epoch)
        accepted = replica.accept_fetch(fetch)
        if not isinstance(accepted, AcceptedFetch):
            return accepted
        replica.on_fetch(accepted)
        self._settle(replica)
        return None

    def append_as_coordinator(self, batch: memoryview, *, leader_epoch: LeaderEpoch, now_ms: int) -> AppendResult:
        """Append what the coordinator on this partition wrote in `leader_epoch`.

        Raises:
            KafkaError: another epoch has begun; nothing was changed.
            DiskError: as `append`.
        """
        replica = self.leader(leader_epoch)
        result = self.log.append_as_leader(batch, leader_epoch=leader_epoch, now_ms=now_ms, origin="coordinator")
        self._on_appended(replica)
        return result

    def delete_records(self, offset: int | None) -> Offset:
        """Move the log start to `offset` (None: the high watermark), never back. The caller persists the log start.

        Returns:
            Where the log starts now.

        Raises:
            KafkaError: POLICY_VIOLATION where only compaction removes records; OFFSET_OUT_OF_RANGE beyond what is
                committed (rule 11), or below 0; NOT_LEADER_OR_FOLLOWER.
            DiskError: the log is out of use since an earlier failure; the partition has to go offline.
        """
        replica, log = self.leader(), self.log
        if "delete" not in log.config.cleanup_policy:
            raise refusal(
                Code.POLICY_VIOLATION,
                f"{self.topic_partition}: its records go by compaction alone (cleanup.policy=compact); "
                "to delete the oldest as well, set cleanup.policy=compact,delete",
            )
        high_watermark = replica.high_watermark
        if offset is None:
            offset = high_watermark
        if not 0 <= offset <= high_watermark:
            raise OffsetOutOfRangeError(
                str(self.topic_partition),
                offset=offset,
                log_start_offset=log.log_start_offset,
                end_offset=high_watermark,
            )
        if offset > log.log_start_offset:
            log.advance_log_start_offset(Offset(offset))
            self.on_log_start_moved()
        return log.log_start_offset

    @property
    def is_sync_awaited(self) -> bool:
        """Whether `flush.messages` asks for what was appended to be synced before it is acknowledged."""
        record_count = self.log.config.flush_messages
        return record_count is not None and self.log.log_end_offset - self.log.recovery_point >= record_count

    def _check_batch(self, batch: memoryview) -> None:
        """Refuse what the log would take, and a producer may not send: all else its header says, the log looks at.

        No coordinator here begins transactions, so none could ever end: committed readers would wait for ever.
        """
        if len(batch) < BATCH_OVERHEAD:
            return
        length, attributes = _LENGTH_AND_ATTRIBUTES.unpack_from(batch)
        if LENGTH_END + length < len(batch) and len(split_batches(batch)) > 1:
            raise refusal(Code.INVALID_RECORD, "more than one batch was sent to a partition; Produce 3+ takes one")
        if attributes & TRANSACTIONAL_FLAG:
            raise refusal(
                Code.INVALID_TXN_STATE,
                f"{self.topic_partition}: transactions are not served; produce without a transactional id",
            )

    def read(
        self,
        offset: int,
        *,
        sent_leader_epoch: int,
        size_bytes_max: int,
        isolation_level: int,
        at_least_one: bool,
        may_wait: bool = True,
        to_follower: bool = False,
    ) -> LogSlice | None:
        """What a consumer may see from `offset` on, or a follower; None when that is nothing yet.

        Args:
            may_wait: for the disk, to find the place in the log; the records are read later, by whoever sends them.
            to_follower: read on to the log end: what is not committed is what followers are for.

        Raises:
            NotCachedError: to find the place takes waiting, and it may not.
            OffsetOutOfRangeError: below the log start or above the log end. Between the high watermark and the log
                end there is nothing to see yet, which is no error (rule 4).
        """
        self.check_serves(sent_leader_epoch)
        log = self.log
        if not log.log_start_offset <= offset <= log.log_end_offset:
            raise self._out_of_range(offset)
        if to_follower:
            end_offset = log.log_end_offset
        else:
            end_offset = self.high_watermark if isolation_level == READ_UNCOMMITTED else self.last_stable_offset
        if offset >= end_offset or (size_bytes_max <= 0 and not at_least_one):
            return None

        def look_up() -> LogSlice:
            return log.read(
                Offset(offset), size_bytes_max=size_bytes_max, end_offset=end_offset, at_least_one=at_least_one
            )

        try:
            return look_up() if may_wait else without_waiting(look_up)
        except (CorruptLogError, DiskError) as error:
            raise self._unreadable(error) from error

    def at_timestamp(self, timestamp_ms: int, end_offset: Offset, *, may_wait: bool = True) -> TimestampOffset | None:
        """The first record at or after a time, below `end_offset`.

        Raises:
            KafkaError: KAFKA_STORAGE_ERROR where the log is damaged.
            NotCachedError: to find it takes waiting for the disk, and it may not.
        """

        def look_up() -> TimestampOffset | None:
            return self.log.offset_for_timestamp(timestamp_ms, end_offset)

        try:
            return look_up() if may_wait else without_waiting(look_up)
        except (CorruptLogError, DiskError) as error:
            raise self._unreadable(error) from error

    def newest(self, end_offset: Offset, *, may_wait: bool = True) -> TimestampOffset | None:
        """The record with the largest timestamp, below `end_offset`. Raises as `at_timestamp`."""

        def look_up() -> TimestampOffset | None:
            return self.log.max_timestamp_offset(end_offset)

        try:
            return look_up() if may_wait else without_waiting(look_up)
        except (CorruptLogError, DiskError) as error:
            raise self._unreadable(error) from error

    def _unreadable(self, error: TidelogError) -> KafkaError:
        """Damage at one place: who reads there is refused, with the place in the log; the rest is served."""
        logger.error("%s cannot be read: %s", self.topic_partition, error)
        if isinstance(error, DiskError):
            self.on_read_error()
        return refusal(Code.KAFKA_STORAGE_ERROR, str(error))

    def check_serves(self, sent_leader_epoch: int = -1) -> None:
        """Whether consumers may read here, up to the high watermark: from the leader, or from a follower that has
        reconciled with it (rule 9).

        Raises:
            KafkaError: as `leader`; NOT_LEADER_OR_FOLLOWER also while a follower may have records that are about to go.
        """
        following = self.following
        if following is None:
            self.leader(sent_leader_epoch)
        else:
            following.replica.check_serves(None if sent_leader_epoch < 0 else LeaderEpoch(sent_leader_epoch))

    def _out_of_range(self, offset: int) -> KafkaError:
        """A follower may merely not have come so far as its leader yet; who asks it may ask again."""
        log = self.log
        if self.following is not None and offset > log.log_end_offset:
            return refusal(
                Code.OFFSET_NOT_AVAILABLE, f"{self.topic_partition}: offset {offset} is not at this follower yet"
            )
        return OffsetOutOfRangeError(
            str(self.topic_partition),
            offset=offset,
            log_start_offset=log.log_start_offset,
            end_offset=log.log_end_offset,
        )

    @property
    def high_watermark(self) -> Offset:
        return self._high_watermark if self.replica is None else self.replica.high_watermark

    def on_high_watermark(self, high_watermark: Offset) -> None:
        """A follower learnt what is committed; or that what it thought is not."""
        if high_watermark != self._high_watermark:
            self._high_watermark = high_watermark
            self.log.producers.on_high_watermark(high_watermark)
            self._tell_watchers()

    @property
    def last_stable_offset(self) -> Offset:
        """Exclusive: below it every transaction is decided, and every record committed."""
        first_unstable = self.log.producers.first_unstable_offset
        high_watermark = self.high_watermark
        return high_watermark if first_unstable is None else min(high_watermark, first_unstable)

    def diverging(self, last_fetched_epoch: int, fetch_offset: int) -> tuple[LeaderEpoch, Offset] | None:
        """Where the fetcher's log ceased to be a prefix of ours, or None if it still is (KIP-320, KIP-595).

        Args:
            last_fetched_epoch: the leader epoch of the last record the fetcher has; -1 if it says nothing.
            fetch_offset: the offset after that record.

        Raises:
            KafkaError: OFFSET_OUT_OF_RANGE: the epoch is newer than any here; nothing can be said of such a position.
                OFFSET_NOT_AVAILABLE: this follower has not come so far yet.
        """
        if last_fetched_epoch < 0:
            return None
        if self.replica is not None:
            return self.replica.diverging(LeaderEpoch(last_fetched_epoch), fetch_offset)
        log = self.log
        known = log.lineage.end_offset_for(LeaderEpoch(last_fetched_epoch), log.log_end_offset)
        if known is None or fetch_offset > log.log_end_offset:
            raise self._out_of_range(max(fetch_offset, log.log_end_offset + 1))
        return known if known[0] < last_fetched_epoch or known[1] < fetch_offset else None

    def _settle(self, replica: LeaderReplica) -> None:
        """Do what the machine says is owed, in its order."""
        before = replica.high_watermark
        ready = replica.take_ready()
        high_watermark = ready.high_watermark
        if high_watermark != before:
            self.log.producers.on_high_watermark(high_watermark)
            self._tell_watchers()
        if ready.acks:
            self._tell_producers(ready.acks)
        if ready.isr_proposal is not None:
            self._host.propose(self, replica, ready.isr_proposal)
        if self._due_ms is None and replica.has_followers:
            self._mind_deadline(replica)

    def _tell_producers(self, acks: tuple[Acknowledgement, ...]) -> None:
        for ack in acks:
            future = self._waiting.pop(ack.correlation_id)
            if not future.done():
                future.set_result(ack.code)

"""One replica at this broker: its log, the machine that decides about it, and the requests that wait for it.

Kafka: `Partition`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from struct import Struct
from typing import TypeVar

from tidelog.base.errors import (
    Code,
    CorruptLogError,
    DiskError,
    KafkaError,
    MalformedBatchError,
    OffsetOutOfRangeError,
    TidelogError,
    refusal,
)
from tidelog.base.ids import LeaderEpoch, Offset, TopicId, TopicPartition
from tidelog.log import (
    AbortedTransaction,
    AppendResult,
    Checked,
    Log,
    LogConfig,
    LogSlice,
    Outcome,
    TimestampOffset,
    VerificationGuard,
    append_together,
    without_waiting,
)
from tidelog.log.config import INT64_MAX
from tidelog.log.damage import DamagedRecordsError
from tidelog.log.unreadable import is_unreadable
from tidelog.metadata.topic_names import INTERNAL_TOPICS
from tidelog.records import as_sent, split_batches
from tidelog.records.header import BATCH_OVERHEAD
from tidelog.records.lineage import EpochEntry
from tidelog.records.transaction_marker import TransactionMarker
from tidelog.replica import FollowerFetch, LeaderReplica, LogBounds, ReplicationSettings
from tidelog.server.replication.follower_driver import FollowerDriver
from tidelog.server.replication.leader_driver import LeaderDriver, NoHost, PartitionHost
from tidelog.server.replication.partition_listeners import LogEndListener, PartitionListener, PartitionListeners
from tidelog.server.replication.role import PartitionRole

logger = logging.getLogger("tidelog.server.partition")

T = TypeVar("T")

READ_UNCOMMITTED = 0

LENGTH_END = 12
_LENGTH = Struct(">8xi")


class Partition:
    """A replica: a log, and the role that this broker has for it.

    The log holds the records. The role drives the machine that decides about them (`LeaderDriver`, `FollowerDriver`).
    The partition answers requests from both, and notifies its listeners when something changes that a fetch could be
    answered with: the high watermark, the log start, the leadership. The listeners of followers are notified as well
    when the log grows.

    Attributes:
        listeners: told of the next change of what consumers see.
        follower_listeners: told of the next change of what followers see: they read what is not committed too.
        is_internal: whether its records are its coordinator's.
        role: what this broker is to the partition.
        log_lock: held by whatever works on the log's files off the loop: a truncation has them for itself.
        rewrite_lock: held by whatever writes segments of the log anew, for as long as that takes.
        suspected: the offsets (the end exclusive) among which somebody could not read, and nobody has looked since.
        produced_bytes: that producers had appended here since the node started, for whoever counts.
        opened_end_offset: the log end when the log was opened; `opened_start_offset` likewise its start.
    """

    __slots__ = (
        "_host",
        "follower_listeners",
        "is_internal",
        "listeners",
        "log",
        "log_lock",
        "opened_end_offset",
        "opened_start_offset",
        "produced_batches",
        "produced_bytes",
        "rewrite_lock",
        "role",
        "suspected",
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
        bounds = LogBounds(log.log_start_offset, log.log_end_offset, high_watermark)
        self.role = PartitionRole(topic_partition, bounds.clamped_high_watermark, None)
        self.log_lock = asyncio.Lock()
        self.rewrite_lock = asyncio.Lock()
        self.suspected: tuple[int, int] | None = None
        self._host: PartitionHost = NoHost() if host is None else host
        self.listeners: PartitionListeners[PartitionListener] = PartitionListeners()
        self.follower_listeners: PartitionListeners[LogEndListener] = PartitionListeners()
        self.produced_batches = 0
        self.produced_bytes = 0
        self.opened_end_offset = log.log_end_offset
        self.opened_start_offset = log.log_start_offset

    # Its role.
    def lead(self, replica: LeaderReplica) -> None:
        """Serve as the leader of `replica.leader_epoch`, which the lineage holds already (rule 1)."""
        leading = LeaderDriver(self, replica, self._host)
        self.role = leading
        leading.run()
        self.follower_listeners.notify()

    def follow(self, following: FollowerDriver) -> None:
        """Follow the leader of an epoch. Ends with `stop`."""
        self.role = following
        following.run()
        self.follower_listeners.notify()

    def stop(self, leader_epoch: LeaderEpoch | None = None) -> None:
        """Serve no more: not the leader, or deleted. Whoever watches is told to look again.

        Args:
            leader_epoch: of which the metadata tells; None for no news.
        """
        role = self.role
        known_epoch = role.leader_epoch if leader_epoch is None else leader_epoch
        self.role = PartitionRole(self.topic_partition, role.high_watermark, known_epoch)
        role.stop()
        self.follower_listeners.notify()
        self.listeners.notify()

    @property
    def replica(self) -> LeaderReplica | None:
        """The leader's machine; None while this broker does not lead."""
        return self.role.leader_replica

    @property
    def high_watermark(self) -> Offset:
        return self.role.high_watermark

    @property
    def bounds(self) -> LogBounds:
        """Where the log stands, for the machine of the next role."""
        return LogBounds(self.log.log_start_offset, self.log.log_end_offset, self.high_watermark)

    def configure(self, config: LogConfig, settings: ReplicationSettings) -> None:
        """The settings of the topic, or those behind it, changed."""
        self.log.configure(config)
        self.role.on_settings(settings)

    def on_log_start_moved(self) -> None:
        """Retention or DeleteRecords removed records from the start of the log."""
        self.role.on_log_start_moved()
        self.follower_listeners.notify()
        self.listeners.notify()

    def on_high_watermark(self, high_watermark: Offset) -> None:
        """The role moved the high watermark: as the leader's machine decided, or as a follower learnt."""
        self.log.producers.on_high_watermark(high_watermark)
        self.listeners.notify()
        for listener in self.follower_listeners.waiting:
            listener.on_committed()

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
        return self.role.leading(sent_leader_epoch).replica

    def append(
        self,
        batch: memoryview,
        *,
        acks_all: bool,
        now_ms: int,
        verification_guard: VerificationGuard | None = None,
        checked: Checked | None = None,
        at_once: bool = False,
    ) -> AppendResult:
        """Append a producer's batch.

        Args:
            batch: one, as Produce 3+ takes it; stamped in place.
            acks_all: whether the answer must mean "committed", which needs `min.insync.replicas`.
            now_ms: since 1970.
            verification_guard: of a batch that begins a transaction here: its coordinator knows of it (KIP-890).
                NOT_VERIFIED where nobody is asked.
            checked, at_once: see `Log.append_as_leader`.

        Raises:
            TakesLongError: `at_once`, and that is not possible; nothing was changed.
            KafkaError: nothing was changed. INVALID_TXN_STATE: the batch would begin a transaction that its coordinator
                was not asked for, or that has ended meanwhile.
            DiskError: nothing was appended; the partition has to go offline.
        """
        leading = self.role.leading()
        if acks_all:
            leading.replica.check_enough_replicas()
        check_is_one(batch)
        result = self.log.append_as_leader(
            batch,
            leader_epoch=leading.replica.leader_epoch,
            now_ms=now_ms,
            verification_guard=verification_guard,
            checked=checked,
            at_once=at_once,
        )
        if not result.is_duplicate:
            self.produced_batches += 1
            self.produced_bytes += len(batch)
            leading.on_appended()
        return result

    def answers_at_append(self, *, acks_all: bool) -> bool:
        """Whether what is appended now needs no more to be acknowledged: no sync, and no other replica."""
        replica = self.role.leader_replica
        if replica is None or self.log.config.flush_messages is not None:
            return False
        return not acks_all or len(replica.in_sync.maximal) == 1

    def check(self, batch: memoryview, *, acks_all: bool, now_ms: int) -> Checked:
        """All that `append` checks `at_once` before it looks at the producer: for `append_together`, in the same turn.

        Raises as `append` does.
        """
        leading = self.role.leading()
        if acks_all:
            leading.replica.check_enough_replicas()
        check_is_one(batch)
        return self.log.rules.check_for_leader(batch, now_ms=now_ms, origin="client", at_once=True)

    def append_together(self, batches: Sequence[Checked], *, now_ms: int) -> list[Outcome]:
        """Append batches of producers that came together, each as `append` does, with no transaction to begin.

        Args:
            batches: what `check` returned for each, in this turn of the event loop.

        Returns:
            The outcome of each: what `append` returns or raises.

        Raises:
            KafkaError: of all of them: the leadership is over.
        """
        leading = self.role.leading()
        outcomes = append_together(self.log, batches, leader_epoch=leading.replica.leader_epoch, now_ms=now_ms)
        count = size_bytes = 0
        for outcome in outcomes:
            if outcome.__class__ is AppendResult and not outcome[4]:
                count += 1
                size_bytes += outcome[7]
        if count:
            self.produced_batches += count
            self.produced_bytes += size_bytes
            leading.on_appended()
        return outcomes

    def committed(self, end_offset: int, timeout_ms: int) -> asyncio.Future[Code]:
        """Tell when all below `end_offset` (exclusive), which was appended here, is committed, or why that is not to be
        waited for: see `Acknowledgement`. A duplicate's is that of its original (rule 10).
        """
        return self.role.committed(end_offset, timeout_ms)

    def deleted(self, offset: int) -> asyncio.Future[bool]:
        """Tell when no replica that is up keeps anything below `offset`, where the log starts here; whoever leads next
        does not bring it back then. False: the leadership ended first.
        """
        return self.role.deleted(offset)

    def on_fetched(self, fetch: FollowerFetch, log_start_offset: int) -> EpochEntry | None:
        """A follower asks for records, which proves what it has, if it is accepted (rule 3).

        Args:
            log_start_offset: where the follower's log starts.

        Returns:
            None if it is; or where the follower's log ceased to be a prefix of ours.

        Raises:
            KafkaError: see `leader` and `LeaderReplica.accept_fetch`.
        """
        leading = self.role.leading(-1 if fetch.leader_epoch is None else fetch.leader_epoch)
        return leading.on_fetched(fetch, log_start_offset)

    def append_as_coordinator(self, batch: memoryview, *, leader_epoch: LeaderEpoch, now_ms: int) -> AppendResult:
        """Append what the coordinator on this partition wrote in `leader_epoch`.

        Raises:
            KafkaError: another epoch has begun; nothing was changed.
            DiskError: as `append`.
        """
        leading = self.role.leading(leader_epoch)
        result = self.log.append_as_leader(batch, leader_epoch=leader_epoch, now_ms=now_ms, origin="coordinator")
        leading.on_appended()
        return result

    def append_marker(self, marker: TransactionMarker, *, now_ms: int) -> Offset:
        """Append the marker that ends a producer's transaction here. One that comes again decides nothing.

        Returns:
            Where it ends, exclusive: once all below is committed, so is the marker.

        Raises:
            KafkaError: TRANSACTION_COORDINATOR_FENCED: a newer coordinator was here. INVALID_PRODUCER_EPOCH: a newer
                producer was. NOT_LEADER_OR_FOLLOWER, NOT_ENOUGH_REPLICAS.
            DiskError: as `append`.
        """
        leading = self.role.leading()
        leading.replica.check_enough_replicas()
        result = self.log.append_as_leader(
            memoryview(bytearray(marker.batch(now_ms))),
            leader_epoch=leading.replica.leader_epoch,
            now_ms=now_ms,
            origin="coordinator",
            transaction_version=marker.transaction_version,
        )
        leading.on_appended()
        return Offset(result.last_offset + 1)

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
        if log.config.cleanup_policy == {"compact"}:
            raise refusal(
                Code.POLICY_VIOLATION,
                f"{self.topic_partition}: its records go by compaction alone (cleanup.policy=compact); "
                "to delete the oldest as well, set cleanup.policy=compact,delete",
            )
        high_watermark = replica.high_watermark
        if offset is None:
            offset = high_watermark
        if not 0 <= offset <= high_watermark:
            start, end = log.log_start_offset, high_watermark
            raise OffsetOutOfRangeError(self.topic_partition, offset=offset, log_start_offset=start, end_offset=end)
        if offset > log.log_start_offset:
            log.advance_log_start_offset(Offset(offset))
            self.on_log_start_moved()
        return log.log_start_offset

    @property
    def is_sync_awaited(self) -> bool:
        """Whether `flush.messages` asks for what was appended to be synced before this replica counts as holding it."""
        record_count = self.log.config.flush_messages
        return record_count is not None and self.log.log_end_offset - self.log.recovery_point >= record_count

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
            OffsetOutOfRangeError: below the log start or above the log end, which at a follower may lie below the
                leader's. Between the high watermark and the log end there is nothing to see yet, which is no error
                (rule 4).
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

        return self.looked_up(look_up, may_wait=may_wait, offset=offset)

    def aborted_transactions(
        self, start_offset: int, records: LogSlice, *, may_wait: bool = True
    ) -> list[AbortedTransaction]:
        """The aborted transactions that have records from `start_offset` on, up to the end of what was read.

        Raises:
            NotCachedError: to find them takes waiting, and it may not.
        """

        def look_up() -> list[AbortedTransaction]:
            if not self.log.segments.has_aborted_transactions(Offset(start_offset)):
                return []
            return self.log.aborted_transactions(Offset(start_offset), records.next_offset)

        return self.looked_up(look_up, may_wait=may_wait)

    def at_timestamp(self, timestamp_ms: int, end_offset: Offset, *, may_wait: bool = True) -> TimestampOffset | None:
        """The first record at or after a time, below `end_offset`.

        Raises:
            KafkaError: KAFKA_STORAGE_ERROR where the log is damaged.
            NotCachedError: to find it takes waiting for the disk, and it may not.
        """

        def look_up() -> TimestampOffset | None:
            return self.log.offset_for_timestamp(timestamp_ms, end_offset)

        return self.looked_up(look_up, may_wait=may_wait)

    def newest(self, end_offset: Offset, *, may_wait: bool = True) -> TimestampOffset | None:
        """The record with the largest timestamp, below `end_offset`. Raises as `at_timestamp`."""

        def look_up() -> TimestampOffset | None:
            return self.log.max_timestamp_offset(end_offset)

        return self.looked_up(look_up, may_wait=may_wait)

    def looked_up(self, look_up: Callable[[], T], *, may_wait: bool, offset: int | None = None) -> T:
        """What is found in the log, or in a slice of it.

        Args:
            offset: the only one that is looked for.

        Raises:
            KafkaError: the log is damaged there, or the disk refuses.
            NotCachedError: to find it takes waiting for the disk, and it may not.
        """
        try:
            return look_up() if may_wait else without_waiting(look_up)
        except (CorruptLogError, DiskError) as error:
            raise self._unreadable(error, offset) from error

    def suspect(self, offset: int | None) -> None:
        """Somebody could not read this offset, or somewhere; whoever is told of it looks there."""
        start, end = (0, INT64_MAX) if offset is None else (offset, offset + 1)
        known = self.suspected
        self.suspected = (start, end) if known is None else (min(start, known[0]), max(end, known[1]))

    def _unreadable(self, error: TidelogError, offset: int | None) -> KafkaError:
        """Damage at one place: who reads there is refused, with the place in the log; the rest is served.

        KAFKA_STORAGE_ERROR has clients look for another leader, and try again: they wait for a repair. Where nobody can
        repair it any more, CORRUPT_MESSAGE has them tell whoever reads. No client passes over records at either.
        """
        if isinstance(error, DamagedRecordsError):
            if not error.is_located:
                self._host.on_damage(self)  # which says so, once
            return refusal(Code.CORRUPT_MESSAGE if error.is_lost else Code.KAFKA_STORAGE_ERROR, str(error))
        logger.error("%s cannot be read: %s", self.topic_partition, error)
        if isinstance(error, DiskError):
            self._host.on_read_error(self)
        if not isinstance(error, DiskError) or is_unreadable(error):
            self.suspect(offset)
            self._host.on_damage(self)
        return refusal(Code.KAFKA_STORAGE_ERROR, str(error))

    def check_serves(self, sent_leader_epoch: int = -1) -> None:
        """Whether consumers may read here, up to the high watermark: from the leader, or from a follower that has
        reconciled with it (rule 9).

        Raises:
            KafkaError: as `leader`; NOT_LEADER_OR_FOLLOWER also while a follower may have records that are about to go.
        """
        self.role.check_serves(sent_leader_epoch)

    def _out_of_range(self, offset: int) -> OffsetOutOfRangeError:
        """As in Kafka, a follower says so too of what it lacks yet: whoever reads there asks the leader then."""
        start, end = self.log.log_start_offset, self.log.log_end_offset
        return OffsetOutOfRangeError(self.topic_partition, offset=offset, log_start_offset=start, end_offset=end)

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
            OffsetOutOfRangeError: the epoch is newer than any here, or this follower has not come so far yet; nothing
                can be said of such a position.
        """
        if last_fetched_epoch < 0:
            return None
        return self.role.diverging(LeaderEpoch(last_fetched_epoch), fetch_offset)


def check_is_one(batch: memoryview) -> None:
    """Refuse what the log would take, and a producer may not send: all else its header says, the log looks at.

    Raises:
        KafkaError: INVALID_RECORD: there is more than one batch. CORRUPT_MESSAGE: see `as_sent`.
    """
    if len(batch) < BATCH_OVERHEAD:
        return
    (length,) = _LENGTH.unpack_from(batch)
    if LENGTH_END + length < len(batch):
        try:
            count = len(split_batches(batch))
        except MalformedBatchError as error:
            raise as_sent(error, batch) from None
        if count > 1:
            raise refusal(Code.INVALID_RECORD, "more than one batch was sent to a partition; Produce 3+ takes one")

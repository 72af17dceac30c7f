"""One partition's log: appended to at the end, read anywhere, cut where the leader says so.

    log start offset                       recovery point          log end offset
          |  segment 0   |  segment 1  |  segment 2  .  (active)        |
          |              |             |             .                  |
     records below       sealed: complete,     synced . not synced:     the next record
     may be gone         read only                    . flush()         gets this offset

Synchronous code against a `Disk`. Its methods belong to one thread, but for `flush`, and the reading of a `LogSlice`,
which may run on others. Offsets given and returned are exclusive where they are called `end`.

Kafka: `UnifiedLog`.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

from tidelog.base.errors import CorruptLogError, DiskError, OffsetOutOfRangeError
from tidelog.base.ids import LeaderEpoch, Offset, TopicId, TopicPartition
from tidelog.base.invariant import invariant
from tidelog.base.ports import Buffer, Disk, Rng
from tidelog.log.append import (
    AppendResult,
    AppendRules,
    Checked,
    Origin,
    appended,
    check_coordinators,
    find_originals,
    stamp_all,
)
from tidelog.log.config import LogConfig
from tidelog.log.files.transaction_index import AbortedTransaction
from tidelog.log.placed import Placed
from tidelog.log.producer_state import ProducerStates
from tidelog.log.recovery import PARTITION_METADATA_FILE, RecoveredLog, Recovery, resolve_topic_id
from tidelog.log.recovery_point import RecoveryPoint
from tidelog.log.recovery_report import RecoveryReport
from tidelog.log.retention import retention_end_offset
from tidelog.log.segments import Segments
from tidelog.log.slice import LogSlice
from tidelog.log.snapshots import end_transactions, replay
from tidelog.log.timestamps import TimestampOffset, first_at_or_after, newest
from tidelog.log.truncated_transactions import (
    NO_TRANSACTION_TRUNCATED,
    TruncatedTransactions,
    truncated_transactions,
)
from tidelog.log.verification import NOT_VERIFIED, VerificationGuard
from tidelog.records.lineage import EpochEntry, LeaderEpochLineage


class Log:
    """A log that is open. See `open`.

    Attributes:
        topic_partition: whose it is.
        topic_id: of the topic it belongs to; None for one that never had an id.
        directory: its path.
        config: may be replaced by `configure`, and with it `rules`: what a batch must satisfy before it is appended.
        log_start_offset: records below are gone, or about to be.
        lineage: of leader epochs; what it says is on the disk already, save where it starts. Only to be read.
        producers: the idempotent producers and open transactions.
        segments: its files. To be asked what there is, and whether the disk failed; the log alone writes and cuts them.
        compaction: what removes records that others supersede.
        recovery: what opening found.
    """

    __slots__ = (
        "_aborted_segments",
        "_lineage_file",
        "_recovery_point",
        "_snapshots",
        "_truncated",
        "compaction",
        "config",
        "directory",
        "lineage",
        "log_start_offset",
        "producers",
        "recovery",
        "rules",
        "segments",
        "topic_id",
        "topic_partition",
    )

    def __init__(
        self,
        directory: str,
        topic_partition: TopicPartition,
        config: LogConfig,
        *,
        topic_id: TopicId | None,
        parts: RecoveredLog,
    ) -> None:
        """Made by `open`."""
        self.directory = directory
        self.topic_partition = topic_partition
        self.topic_id = topic_id
        self.config = config
        self.rules = AppendRules(topic_partition, config)
        self.segments: Segments = parts.segments
        self.segments.on_written = self._on_written
        self.segments.on_roll = self._on_roll
        self._snapshots = parts.snapshots
        self._lineage_file = parts.lineage_file
        self.lineage: LeaderEpochLineage = parts.lineage_file.lineage
        self.producers: ProducerStates = parts.producers
        self.log_start_offset: Offset = parts.log_start_offset
        self._recovery_point = RecoveryPoint(parts.segments, parts.recovery_point)
        self.recovery: RecoveryReport = parts.report
        self._truncated = NO_TRANSACTION_TRUNCATED
        self._aborted_segments = parts.aborted_segments
        self.compaction = parts.compaction

    @staticmethod
    def open(
        disk: Disk,
        directory: str,
        topic_partition: TopicPartition,
        config: LogConfig,
        *,
        topic_id: TopicId | None,
        clean_shutdown: bool,
        recovery_point: Offset = Offset(0),  # noqa: B008
        now_ms: int,
        log_start_offset: Offset = Offset(0),  # noqa: B008
        high_watermark: Offset | None = None,
        rng: Rng | None = None,
        names: Sequence[str] | None = None,
    ) -> Log:
        """Open the log in `directory`, making it if there is none, and recover what the last stop left.

        Args:
            disk: where it lies.
            directory: of this log alone.
            topic_partition: whose it is; named in errors.
            config: of its topic.
            topic_id: of its topic; None takes what the directory says.
            clean_shutdown: the last stop was a `close`. If in doubt, False: it costs time only.
            recovery_point: the checkpointed one; 0 if there is none.
            now_ms: since 1970.
            log_start_offset: the checkpointed one.
            high_watermark: the checkpointed one: transactions whose marker lies above it are not stable. None if it is
                not known.
            rng: for `segment.jitter.ms`; None for no jitter.
            names: all that are in the directory, for who has just listed it; None to look.

        Raises:
            CorruptLogError: the directory belongs to another topic id.
            DiskError: the disk refused.
        """
        if names is None and not disk.exists(directory):
            disk.make_dirs(directory)
            disk.sync_dir(directory.rpartition("/")[0] or ".")
        is_noted = None if names is None else PARTITION_METADATA_FILE in names
        topic_id = resolve_topic_id(disk, directory, topic_id, is_noted=is_noted)
        recovery = Recovery(
            disk,
            directory,
            config,
            clean_shutdown=clean_shutdown,
            recovery_point=recovery_point,
            high_watermark=high_watermark,
            now_ms=now_ms,
            rng=rng,
            names=names,
        )
        return Log(directory, topic_partition, config, topic_id=topic_id, parts=recovery.run(log_start_offset))

    def configure(self, config: LogConfig) -> None:
        """Change the configuration. The segments that are there keep the index settings they were made with."""
        self.config = self.segments.config = config
        self.rules = AppendRules(self.topic_partition, config)

    @property
    def log_end_offset(self) -> Offset:
        """Exclusive: the offset that the next record gets."""
        return self.segments.active.end_offset

    @property
    def recovery_point(self) -> Offset:
        """Exclusive: below it everything is synced. To be checkpointed now and then, and at once after a truncation."""
        return self._recovery_point.offset

    # Appending.

    def assign_leader_epoch(self, leader_epoch: LeaderEpoch) -> None:
        """Persist that this epoch starts at the log end. A leader does so before it serves (rule 1); again is harmless.

        Raises:
            DiskError: the lineage is as it was.
        """
        self._check_usable()
        latest = self.lineage.latest_leader_epoch
        is_newest = latest is None or leader_epoch >= latest
        invariant(is_newest, "{}: leader epoch {} after {}", self.topic_partition, leader_epoch, latest)
        self._lineage_file.assign(leader_epoch, self.log_end_offset)

    def correct_lineage(self, entries: Sequence[EpochEntry]) -> None:
        """Persist what a follower learnt of its leader's lineage, in one write. Raises DiskError: it is as it was."""
        self._check_usable()
        self._lineage_file.assign_entries(entries)

    def append_as_leader(
        self,
        batches: Buffer,
        *,
        leader_epoch: LeaderEpoch,
        now_ms: int,
        origin: Origin = "client",
        verification_guard: VerificationGuard | None = NOT_VERIFIED,
        transaction_version: int = 0,
        checked: Checked | None = None,
        at_once: bool = False,
    ) -> AppendResult:
        """Give batches the next offsets and write them. They are not synced: see `maybe_flush`.

        Args:
            batches: whole ones, one at least. Writable: base offset and leader epoch are stamped in place, unless
                `compression.type` asks for another codec.
            leader_epoch: of this leader, not older than the lineage's latest.
            now_ms: since 1970.
            origin: `client` is checked more closely, and for its sequence numbers.
            verification_guard: what `ProducerStates.begin_verification` returned for the batch, and its coordinator
                has confirmed since; with None a transactional batch has to continue a transaction that is open here.
                NOT_VERIFIED lets any of them begin one.
            transaction_version: of the transaction that a marker ends; see `ProducerStates.check_marker`.
            checked: what `rules` said of them, on any thread; None where nobody asked.
            at_once: refuse what takes long to check (TakesLongError), with nothing changed.

        Returns:
            Where they are. If an idempotent producer sent what was appended before: where that is.

        Raises:
            KafkaError: refused, with nothing changed: what `AppendRules.check_for_leader` says, and
                OUT_OF_ORDER_SEQUENCE_NUMBER, INVALID_PRODUCER_EPOCH, DUPLICATE_SEQUENCE_NUMBER, INVALID_TXN_STATE or
                TRANSACTION_COORDINATOR_FENCED.
            DiskError: nothing of the batch that could not be written is in the log; earlier ones of the call may be.
        """
        self._check_usable()
        view = batches if isinstance(batches, memoryview) else memoryview(batches)
        rules = self.rules
        if checked is None or checked.rules is not rules:  # or the settings changed since
            _, view, accepted = rules.check_for_leader(view, now_ms=now_ms, origin=origin, at_once=at_once)
        else:
            view, accepted = checked.batches, rules.at(checked.accepted, now_ms)
        if origin == "client":
            originals = find_originals(self.producers, accepted, self.topic_partition, verification_guard)
            if originals is not None:
                return rules.answer_duplicate(originals, accepted, self.log_start_offset)
        elif origin == "coordinator":
            check_coordinators(
                self.producers,
                view,
                accepted,
                verification_guard=verification_guard,
                transaction_version=transaction_version,
            )
        if leader_epoch != self.lineage.latest_leader_epoch:
            self.assign_leader_epoch(leader_epoch)
        placed = stamp_all(view, accepted, self.segments.active.end_offset, leader_epoch)
        self.segments.append(view, placed, now_ms)
        return appended(placed, accepted[0].log_append_time, self.log_start_offset)

    def append_as_follower(self, batches: Buffer, *, now_ms: int) -> AppendResult | None:
        """Write batches as a leader stored them; new leader epochs go into the lineage first.

        Args:
            batches: as fetched; a last batch that is cut short is left out.
            now_ms: since 1970.

        Returns:
            None if there was no whole batch.

        Raises:
            CorruptLogError: they do not continue this log.
            KafkaError: CORRUPT_MESSAGE or UNSUPPORTED_FOR_MESSAGE_FORMAT.
            DiskError: as for a leader.
        """
        self._check_usable()
        view = batches if isinstance(batches, memoryview) else memoryview(batches)
        log_end_offset = self.log_end_offset
        accepted = self.rules.check_for_follower(view, log_end_offset=log_end_offset, lineage=self.lineage)
        if not accepted:
            return None
        placed = [
            Placed(position, header, header.base_offset, header.last_offset, max_timestamp)
            for position, header, max_timestamp, _, _ in accepted
        ]
        self.compaction.on_fetched(placed, log_end_offset)
        self._lineage_file.assign_all(batch.header for batch in placed)
        size_bytes = placed[-1].position + placed[-1].header.size_bytes
        self.segments.append(view[:size_bytes], placed, now_ms)
        return appended(placed, None, self.log_start_offset)

    def _on_written(self, written: list[Placed], view: memoryview, now_ms: int) -> None:
        producers = self.producers
        for position, header, base_offset, last_offset, max_timestamp in written:
            if header.producer_id >= 0:
                if header.is_control:
                    batch = view[position : position + header.size_bytes]
                    for entry in end_transactions(producers, batch, now_ms=now_ms):
                        self.segments.note_aborted(entry)
                else:
                    producers.remember(header, base_offset, last_offset, max_timestamp, now_ms)
        producers.end_offset = self.segments.active.end_offset

    def _on_roll(self, base_offset: Offset) -> None:
        self.producers.end_offset = base_offset
        self._snapshots.take(self.producers)

    def _check_usable(self) -> None:
        failure = self.segments.failure
        if failure is not None:
            raise DiskError(self.directory, f"out of use since an earlier failure: {failure}", errno=failure.errno)

    # Reading.

    def read(self, offset: Offset, *, size_bytes_max: int, end_offset: Offset, at_least_one: bool = True) -> LogSlice:
        """Whole batches, from the one that holds `offset` on, all of one segment.

        Args:
            offset: in [log start, log end].
            size_bytes_max: of the slice.
            end_offset: exclusive, at most the log end: what may be shown. A batch that reaches beyond is left out.
            at_least_one: the first batch is returned even if it is larger than `size_bytes_max`.

        Returns:
            Bytes that are yet to be read. Empty if there is nothing below `end_offset`.

        Raises:
            OffsetOutOfRangeError: below the log start or above the log end.
            CorruptLogError: the segment is damaged there.
        """
        self._check_usable()
        if not self.log_start_offset <= offset <= self.log_end_offset:
            raise self._out_of_range(offset)
        return self.segments.read(
            offset, size_bytes_max=size_bytes_max, end_offset=end_offset, at_least_one=at_least_one
        )

    def _out_of_range(self, offset: Offset) -> OffsetOutOfRangeError:
        start, end = self.log_start_offset, self.log_end_offset
        return OffsetOutOfRangeError(self.topic_partition, offset=offset, log_start_offset=start, end_offset=end)

    def aborted_transactions(self, start_offset: Offset, end_offset: Offset) -> list[AbortedTransaction]:
        """The transactions whose records in [start_offset, end_offset) a reader of committed records has to skip.

        Cheap where there are none: then nothing is read. May be looked up `without_waiting`.

        Args:
            start_offset: of what is read.
            end_offset: exclusive, at most the last stable offset: `next_offset` of the slice that is read.

        Raises:
            CorruptLogError: they are not known.
            DiskError: the disk refused.
        """
        self._check_usable()
        return self.segments.aborted_transactions(start_offset, end_offset)

    def offset_for_timestamp(self, timestamp: int, end_offset: Offset) -> TimestampOffset | None:
        """The first record of `timestamp` (ms since 1970) or later, below `end_offset`; None if there is none."""
        self._check_usable()
        return first_at_or_after(self.segments, timestamp, start_offset=self.log_start_offset, end_offset=end_offset)

    def timestamp_from(self, offset: Offset) -> int | None:
        """When the batch began that holds `offset`, or the first above it: the time of its first record, in ms.

        Only the batch's header is read. None where there is no such batch, or it has no time.

        Raises:
            CorruptLogError, DiskError: the place cannot be read.
        """
        header = self.segments.header_from(max(offset, self.log_start_offset))
        if header is None:
            return None
        timestamp = header.max_timestamp if header.is_log_append_time else header.base_timestamp
        return None if timestamp < 0 else timestamp

    def max_timestamp_offset(self, end_offset: Offset | None = None) -> TimestampOffset | None:
        """The first record with the largest timestamp below `end_offset` (the log end); None if there is none."""
        self._check_usable()
        if end_offset is None:
            end_offset = self.log_end_offset
        segments = self.segments.overlapping(self.log_start_offset, end_offset)
        return newest(segments, start_offset=self.log_start_offset, end_offset=end_offset)

    # Cutting.

    def truncate_to(self, end_offset: Offset) -> bool:
        """Forget all records from `end_offset` on, and leader epochs that start there or beyond.

        Producers and open transactions are what the remaining records say, before this returns (rule 10). The owner
        checkpoints `recovery_point` before it lets anything be appended, and reports `take_truncated_transactions`.

        Args:
            end_offset: exclusive. If it lies within a batch, all of that batch goes. At or beyond the log end, only
                the lineage is trimmed; below the first segment, the log starts anew there.

        Returns:
            Whether records were removed.

        Raises:
            DiskError: the log is out of use; open it anew.
        """
        self._check_usable()
        if end_offset < self.segments.first.base_offset:
            self.truncate_fully_and_start_at(end_offset)
            return True
        is_shorter = end_offset < self.log_end_offset
        try:
            if is_shorter:
                self.compaction.on_truncating()
                self._recovery_point.on_truncating(end_offset)
                self.segments.truncate(end_offset)
                end_offset = self.log_end_offset
                self.log_start_offset = min(self.log_start_offset, end_offset)
                self._recovery_point.on_truncating(end_offset)
                self.compaction.on_truncated(end_offset)
            self._lineage_file.truncate_from_end(end_offset)
            if is_shorter:
                self._recover_producers()
                if end_offset <= self.segments.mark.end_offset:
                    self.segments.keep_end()
                self.segments.remove_deleted_files()
        except (DiskError, CorruptLogError) as error:
            self._fail(error)
            raise
        return is_shorter

    def _fail(self, error: DiskError | CorruptLogError) -> None:
        self.segments.failure = error if isinstance(error, DiskError) else DiskError(self.directory, str(error))

    def _recover_producers(self) -> None:
        before, end_offset = self.producers, self.log_end_offset
        now_ms = max((state.last_active_ms for state in before), default=0)
        after, _ = self._snapshots.load_newest(end_offset, now_ms=now_ms)
        unseen = self.segments.overlapping(after.end_offset, end_offset)
        replay(after, unseen, end_offset=end_offset, now_ms=now_ms)
        for segment in unseen:
            if segment is not self.segments.active:
                segment.release()
        after.take_completed(before)  # of what a snapshot says nothing, and a replay too much
        self._replace_producers(after)

    def _replace_producers(self, after: ProducerStates) -> None:
        truncated = truncated_transactions(self.producers, after)
        if truncated != NO_TRANSACTION_TRUNCATED:
            self._truncated = self._truncated.and_then(truncated)
        self.producers = after

    def take_truncated_transactions(self) -> TruncatedTransactions:
        """What truncations did to transactions since the last call, for the owner to report (rule 10)."""
        truncated, self._truncated = self._truncated, NO_TRANSACTION_TRUNCATED
        return truncated

    def truncate_fully_and_start_at(self, offset: Offset, *, now_ms: int | None = None) -> None:
        """Forget everything; the log goes on, empty, at `offset`.

        Raises:
            DiskError: the log is out of use; open it anew.
        """
        self._check_usable()
        try:
            self.compaction.on_truncating()
            self._recovery_point.on_truncating(offset)
            self.segments.replace_all(offset, self.segments.active.created_ms if now_ms is None else now_ms)
            self.log_start_offset = offset
            self._snapshots.remove_all()
            self.compaction.on_started_anew()
            self._replace_producers(ProducerStates(end_offset=offset))
            self._lineage_file.clear()
            self.segments.remove_deleted_files()
        except DiskError as error:
            self._fail(error)
            raise

    # Deleting from the start.

    def advance_log_start_offset(self, offset: Offset) -> None:
        """Declare what lies below `offset` deleted. The owner checkpoints `log_start_offset`, then deletes segments.

        Args:
            offset: at most the high watermark (rule 11), which the caller knows. Below the log start: nothing to do.

        Raises:
            KafkaError: OFFSET_OUT_OF_RANGE: beyond the log end.
        """
        self._check_usable()
        if offset > self.log_end_offset:
            raise self._out_of_range(offset)
        if offset > self.log_start_offset:
            self._lineage_file.truncate_from_start(offset)
            self.log_start_offset = offset
            self.producers.forget_below(offset)

    def apply_retention(self, *, high_watermark: Offset, now_ms: int) -> bool:
        """Declare deleted what `retention.ms` and `retention.bytes` say, as `advance_log_start_offset` does.

        Producers that were silent for `producer.id.expiration.ms` are forgotten.

        Returns:
            Whether segments lie below the log start, be it of this or of before: checkpoint it, then delete them.
        """
        self._check_usable()
        self.producers.forget_expired(now_ms, self.config.producer_id_expiration_ms)
        end_offset = retention_end_offset(
            self.segments,
            self.config,
            log_start_offset=self.log_start_offset,
            high_watermark=high_watermark,
            now_ms=now_ms,
        )
        if end_offset is None:
            return False
        if end_offset == self.log_end_offset:  # even the last segment is past its time
            self.segments.roll(now_ms)
        self.advance_log_start_offset(end_offset)
        return True

    def delete_segments_before(self, offset: Offset) -> int:
        """Delete the segments that lie wholly below `offset`, which is at most the log start. Returns how many.

        They are renamed now, and removed by `Segments.remove_deleted_files`; who reads in one reads on.
        """
        self._check_usable()
        invariant(offset <= self.log_start_offset, "{}: {} is above the log start", self.topic_partition, offset)
        count = self.segments.delete_before(offset)
        if count:
            self._snapshots.remove_below(self.segments.first.base_offset)
        return count

    # Rolling, syncing, leaving.

    def roll(self, now_ms: int) -> None:
        """Start a new segment at the log end, unless the last one is empty."""
        self._check_usable()
        self.segments.roll(now_ms)

    def flush(self, up_to: Offset | None = None) -> None:
        """Return once all below `up_to` (the log end) would survive a loss of power, and move the recovery point.

        May run on another thread while this one appends; what is appended meanwhile may or may not be synced.

        Raises:
            DiskError: the log is out of use; open it anew.
        """
        self._check_usable()
        end_offset = min(self.log_end_offset, self.producers.end_offset)  # below it, what was aborted is known
        unwritten_offset = self.segments.active.indexes.transactions.unwritten_offset
        if unwritten_offset is not None:
            end_offset = min(end_offset, unwritten_offset)
        with suppress(DiskError):  # without room a lost index may go unnoticed, which is no reason to stop; tried again
            self._aborted_segments.keep(self.segments.with_aborted())
        try:
            self._recovery_point.flush(end_offset if up_to is None else min(up_to, end_offset))
        except DiskError as error:
            self._fail(error)  # what a failed sync left out, the next one would take for synced
            raise

    def is_flush_due(self, now_ms: int) -> bool:
        """Whether `flush.messages` or `flush.ms` asks for a sync, or a segment was closed and is not synced yet."""
        return self._recovery_point.flush_end_offset(self.config, now_ms) > self.recovery_point

    def maybe_flush(self, now_ms: int) -> bool:
        """Flush what is due. Returns whether anything was."""
        end_offset = self._recovery_point.flush_end_offset(self.config, now_ms)
        if end_offset <= self.recovery_point:
            return False
        self.flush(end_offset)
        return True

    def close(self) -> None:
        """Stop cleanly: sync what was changed, leave a producer snapshot at the log end. Nothing may be called after.

        Raises:
            DiskError: it is no clean stop; what is on the disk is for recovery to sort out.
        """
        self._check_usable()
        if self.segments.is_touched:
            self.producers.end_offset = self.log_end_offset
            self._snapshots.take(self.producers)
            self.segments.finish()
            self.flush()
        self.release()

    def release(self) -> None:
        """Let go of all files as they are."""
        self.segments.release()

    def retire(self) -> None:
        """The topic is deleted, or its log opened anew: nothing is done from now on to files that another may have."""
        if self.segments.failure is None:
            self.segments.failure = DiskError(self.directory, "its topic was deleted, or it was opened anew")
        self.segments.release()

"""From the files of a directory to a log that may be appended to, whatever happened to them.

After a clean stop the files are taken as they are. After any other, every segment from the one that holds the recovery
point on is read whole: each batch's CRC, and that offsets and leader epochs go on from batch to batch. At the first
place where something is wrong the log is cut, since nothing proves that what follows was ever acknowledged as a
continuation of what is left. What is cut is reported, and kept beside the log unless it is a torn last write.

What lies below the recovery point was synced and is not cut. If it is damaged all the same, that is reported, and
those who read there are refused.

Kafka: `LogLoader`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from tidelog.base.errors import CorruptLogError
from tidelog.base.ids import LeaderEpoch, Offset, TopicId, uuid_text
from tidelog.base.ports import Disk, File, Rng
from tidelog.log.compaction.cleaner_mark import MARK_FILE, CleanedMark
from tidelog.log.compaction.cleaner_swap import Compaction
from tidelog.log.config import INT64_MAX, LogConfig
from tidelog.log.continuity import (
    SCAN_PIECE_BYTES,
    BatchFaultError,
    Continuity,
    check_batch_crc,
    holds_whole_batch,
    whole_batches,
)
from tidelog.log.files.aborted_segments import ABORTED_SEGMENTS_FILE, AbortedSegments
from tidelog.log.files.checkpoint import format_partition_metadata, parse_partition_metadata
from tidelog.log.files.index_file import CorruptIndexError
from tidelog.log.files.leftovers import START_SUFFIX, SWAP_SUFFIX, clear_leftovers
from tidelog.log.files.lineage_file import LINEAGE_FILE, LineageFile, read_lineage
from tidelog.log.files.transaction_index import AbortedEntry
from tidelog.log.producer_state import ProducerStates
from tidelog.log.recovery_report import RecoveryReport, TailTruncation
from tidelog.log.segment import (
    INDEX_SUFFIXES,
    LOG_SUFFIX,
    OFFSET_DIGITS,
    TRANSACTION_INDEX_SUFFIX,
    Segment,
    file_name,
    parse_file_name,
)
from tidelog.log.segments import Segments
from tidelog.log.snapshots import ProducerSnapshots, replay
from tidelog.records.lineage import LeaderEpochLineage

PARTITION_METADATA_FILE = "partition.metadata"
TRUNCATED_SUFFIX = ".cut"


class RecoveredLog(NamedTuple):
    """The parts of a log, agreeing with each other."""

    segments: Segments
    lineage_file: LineageFile
    producers: ProducerStates
    snapshots: ProducerSnapshots
    log_start_offset: Offset
    log_end_offset: Offset
    recovery_point: Offset
    report: RecoveryReport
    compaction: Compaction
    aborted_segments: AbortedSegments


class Recovery:
    """Opens one log's directory, once: see `run`."""

    def __init__(
        self,
        disk: Disk,
        directory: str,
        config: LogConfig,
        *,
        clean_shutdown: bool,
        recovery_point: Offset,
        high_watermark: Offset | None,
        now_ms: int,
        rng: Rng | None,
        names: Sequence[str] | None = None,
    ) -> None:
        self._disk = disk
        self._rng = rng
        self._directory = directory
        self._config = config
        self._recovery_point = recovery_point
        self._high_watermark = high_watermark
        self._now_ms = now_ms
        self._report = RecoveryReport(was_clean=clean_shutdown)
        self._lineage: LeaderEpochLineage | None = None
        self._mark = CleanedMark(disk, directory)
        self._gaps_end_offset = Offset(0)
        self._with_transaction_index: set[Offset] = set()
        self._names = disk.list(directory) if names is None else names
        self._aborted_segments = AbortedSegments(disk, directory, is_there=ABORTED_SEGMENTS_FILE in self._names)
        self._walked: set[Segment] = set()  # whose transaction index is not to be taken as it is

    def run(self, log_start_offset: Offset) -> RecoveredLog:
        """Recover the log.

        Args:
            log_start_offset: the checkpointed one; the log starts there or at its first segment.

        Raises:
            DiskError: the disk refused.
        """
        report = self._report
        report.leftovers = clear_leftovers(self._disk, self._directory, self._names)
        if report.leftovers:
            self._names = self._disk.list(self._directory)
        self._read_mark()
        found = self._find_segments()
        try:
            self._lineage = read_lineage(self._disk, self._directory, is_there=LINEAGE_FILE in self._names)
        except CorruptLogError as error:
            report.lineage_rebuilt = str(error)
        for index, segment in enumerate(found):
            next_base = found[index + 1].base_offset if index + 1 < len(found) else None
            fault = self._take_over(segment, next_base)
            if fault is not None:
                self._truncate_at(segment, fault, found[index + 1 :])
                del found[index + 1 :]
                break
        if found and found[-1].end_offset < log_start_offset:  # all that is left was deleted long ago
            for segment in reversed(found):
                segment.remove()
            found.clear()
        snapshots = ProducerSnapshots(self._disk, self._directory, self._names)
        is_new = not found
        if is_new:
            snapshots.remove_all()
            found.append(Segment(self._disk, self._directory, log_start_offset, self._config, now_ms=self._now_ms))
            found[0].create()
        segments = Segments(self._disk, self._directory, self._config, found, self._mark, rng=self._rng)
        log_start_offset = max(log_start_offset, segments.first.base_offset)
        log_end_offset = segments.active.end_offset
        lineage = self._resolve_lineage(segments, log_start_offset, log_end_offset)
        self._advance_mark(log_end_offset)
        producers = self._know_producers(segments, snapshots, log_end_offset)
        if self._high_watermark is not None:
            self._recall_completed(producers, segments, snapshots, self._high_watermark)
        self._resolve_transaction_indexes(segments, snapshots)
        point = log_end_offset if report.was_clean else min(self._recovery_point, log_end_offset)
        segments.is_touched = is_new or not report.was_clean or bool(report.lines())
        compaction = Compaction(self._disk, self._directory, segments, snapshots, self._mark)
        return RecoveredLog(
            segments,
            lineage,
            producers,
            snapshots,
            log_start_offset,
            log_end_offset,
            point,
            report,
            compaction,
            self._aborted_segments,
        )

    def _read_mark(self) -> None:
        try:
            if MARK_FILE in self._names:
                self._mark.read()
        except CorruptLogError as error:
            self._report.mark_fault = str(error)
        is_unknown = self._report.mark_fault is not None or (self._config.is_compacted and not self._mark.is_known)
        self._gaps_end_offset = Offset(INT64_MAX) if is_unknown else self._mark.end_offset

    def _advance_mark(self, log_end_offset: Offset) -> None:
        """Nothing is missing beyond the log end; nor, if it was not known, from here on."""
        if self._gaps_end_offset > log_end_offset:
            self._mark.set(log_end_offset)

    def _find_segments(self) -> list[Segment]:
        bases = [offset for name in self._names if (offset := parse_file_name(name, LOG_SUFFIX)) is not None]
        for name in self._names:
            for suffix in INDEX_SUFFIXES:
                offset = parse_file_name(name, suffix)
                if offset is not None and offset not in bases:
                    self._disk.remove(f"{self._directory}/{name}")
                    self._report.leftovers.append(name)
                elif offset is not None and suffix == TRANSACTION_INDEX_SUFFIX:
                    self._with_transaction_index.add(offset)
        return [Segment(self._disk, self._directory, base, self._config, now_ms=self._now_ms) for base in bases]

    def _take_over(self, segment: Segment, next_base: Offset | None) -> BatchFaultError | None:
        """Make a segment usable. Returns what is wrong with it, if the log is to be cut there."""
        if not self._report.was_clean and (next_base is None or next_base > self._recovery_point):
            return self._scan(segment, next_base)
        try:
            segment.open_existing(segment.base_offset if next_base is None else next_base)
            if next_base is None:
                segment.resume()
        except CorruptLogError as error:
            if next_base is None:
                fault = self._scan(segment, next_base)
                if fault is None:
                    self._report.rebuilt_indexes.append(str(error))
                return fault
            self._report.rebuilt_indexes.append(str(error))
            self._walked.add(segment)
            try:
                segment.rebuild_indexes()
            except CorruptLogError as damage:
                self._report.damages.append(str(damage))
        if next_base is not None:
            segment.release()
        return None

    # Reading a segment whole.

    def _scan(self, segment: Segment, next_base: Offset | None) -> BatchFaultError | None:
        """Check every batch of a segment and derive its indexes, up to its end or the first fault."""
        file = segment.file
        self._walked.add(segment)
        segment.size_bytes = file.size()
        segment.indexes.begin()
        continuity = Continuity(segment.base_offset, next_base, self._lineage, cleaned_end_offset=self._gaps_end_offset)
        fault = None
        end = 0
        try:
            for position, header, window, at in whole_batches(file, segment.size_bytes):
                continuity.check(position, header)
                check_batch_crc(position, header, window, at)
                continuity.take_in(header)
                segment.indexes.note_header(position, header)
                end = position + header.size_bytes
            continuity.check_end(end)
        except BatchFaultError as found:
            fault = found
        self._report.scanned_segment_count += 1
        self._report.scanned_size_bytes += end
        if fault is None:
            segment.indexes.finish()
        segment.end_offset = continuity.next_offset if next_base is None or fault is not None else next_base
        if fault is None and next_base is not None:
            segment.release()
        return fault

    def _truncate_at(self, segment: Segment, fault: BatchFaultError, following: list[Segment]) -> None:
        """End the log where the fault is. What goes is kept beside it, unless that is nothing but one torn write."""
        tail_size_bytes = segment.size_bytes - fault.position
        lost_size_bytes = tail_size_bytes
        kept = []
        if self._is_worth_keeping(segment, fault):
            kept.append(self._keep_tail(segment, fault.position))
        for later in reversed(following):
            size_bytes = later.file.size()
            lost_size_bytes += size_bytes
            if size_bytes:
                target = free_truncated_name(self._disk, self._directory, later.base_offset)
                later.release()
                self._disk.rename(later.path, target)
                kept.append(target)
            later.remove()
        if kept:
            self._disk.sync_dir(self._directory)  # before the original may be gone
        segment.truncate(fault.position, segment.end_offset)
        segment.file.sync()  # the recovery point may lie at the cut: nobody would find what came back behind it
        segment.indexes.finish()
        self._report.truncation = TailTruncation(
            segment.path, fault.position, lost_size_bytes, segment.end_offset, fault.reason, tuple(reversed(kept))
        )

    def _is_worth_keeping(self, segment: Segment, fault: BatchFaultError) -> bool:
        size_bytes = segment.size_bytes - fault.position
        if _is_zero(segment.file, fault.position):
            return False
        if not fault.is_torn or size_bytes > self._config.message_size_bytes_max:
            return True
        # A length with a flipped bit looks as if the write was torn. Then others follow.
        return holds_whole_batch(segment.file.read_at(fault.position, size_bytes), segment.end_offset)

    def _keep_tail(self, segment: Segment, position: int) -> str:
        path = free_truncated_name(self._disk, self._directory, segment.end_offset)
        copy = self._disk.open(path, create=True)
        try:
            while data := segment.file.read_at(position, SCAN_PIECE_BYTES):
                copy.append(data)
                position += len(data)
            copy.sync()
        finally:
            copy.close()
        return path

    # What is derived.

    def _resolve_lineage(self, segments: Segments, log_start_offset: Offset, log_end_offset: Offset) -> LineageFile:
        """Make the lineage agree with the log. It is trusted if it could be read (rule 11), else derived."""
        lineage = self._lineage
        if lineage is None:
            lineage = self._derive_lineage(segments)
            if not lineage and not self._mark.end_offset:
                self._report.lineage_rebuilt = None  # a log in which nobody ever led has none
        elif lineage and log_start_offset < min(lineage.entries[0].start_offset, log_end_offset):
            # The log was to start where its lineage does, and that is not on the disk.
            lineage = self._with_beginning(lineage, segments)
        lineage_file = LineageFile(self._disk, self._directory, lineage)
        before = len(lineage)
        # A leader writes (epoch, log end) before it serves (rule 1): such an entry is legal; one beyond is not.
        is_changed = lineage.truncate_from_end(Offset(log_end_offset + 1))
        self._report.lineage_dropped_count = before - len(lineage)
        lineage.truncate_from_start(log_start_offset)  # which needs no write: the next one to open it does the same
        if is_changed or self._report.lineage_rebuilt is not None:
            lineage_file.write()
        return lineage_file

    def _with_beginning(self, lineage: LeaderEpochLineage, segments: Segments) -> LeaderEpochLineage:
        """The lineage, and that of the records before it. It is written with the next change; until then derived."""
        known = lineage.entries
        whole = self._derive_lineage(segments, below=known[0].start_offset)
        for entry in known:
            if whole.latest_leader_epoch is None or entry.leader_epoch > whole.latest_leader_epoch:
                whole.assign(entry.leader_epoch, entry.start_offset)
        return whole

    def _derive_lineage(self, segments: Segments, *, below: Offset | None = None) -> LeaderEpochLineage:
        """From the batches' headers; never from what compaction left (rule 11): where that is, nothing is known.

        Args:
            below: only from those that begin before this offset.
        """
        lineage = LeaderEpochLineage()
        known_from = self._mark.end_offset if self._mark.is_known else Offset(0)
        latest = -1
        for segment in segments:
            if below is not None and segment.base_offset >= below:
                break
            try:
                for _, header in segment.headers():
                    if below is not None and header.base_offset >= below:
                        break
                    if header.leader_epoch > latest and header.base_offset >= known_from:
                        latest = header.leader_epoch
                        lineage.assign(LeaderEpoch(latest), Offset(header.base_offset))
            except CorruptLogError as error:
                self._report.damages.append(f"leader epochs are not all known: {error}")
            if segment is not segments.active:
                segment.release()
        return lineage

    def _know_producers(
        self, segments: Segments, snapshots: ProducerSnapshots, log_end_offset: Offset
    ) -> ProducerStates:
        producers, self._report.unusable_snapshots = snapshots.load_newest(log_end_offset, now_ms=self._now_ms)
        unseen = segments.overlapping(producers.end_offset, log_end_offset)
        try:
            self._report.replayed_batch_count = replay(
                producers, unseen, end_offset=log_end_offset, now_ms=self._now_ms
            )
        except CorruptLogError as error:
            self._report.damages.append(f"producers are not all known: {error}")
            producers.end_offset = log_end_offset
        for segment in unseen:
            if segment is not segments.active:
                segment.release()
        return producers

    def _recall_completed(
        self, producers: ProducerStates, segments: Segments, snapshots: ProducerSnapshots, high_watermark: Offset
    ) -> None:
        """Know the transactions whose marker is not known to be replicated. Snapshots say nothing of them.

        Where one began is known from a snapshot below the high watermark, and the batches since.
        """
        end_offset = producers.end_offset
        if any(state.coordinator_epoch is not None for state in producers):
            above = segments.overlapping(high_watermark, end_offset)
            try:
                if any(_holds_marker(segment, high_watermark) for segment in above):
                    recalled = snapshots.newest_below(high_watermark, now_ms=self._now_ms)
                    passed = segments.overlapping(recalled.end_offset, end_offset)
                    replay(recalled, passed, end_offset=end_offset, now_ms=self._now_ms)
                    producers.take_completed(recalled)
            except CorruptLogError as error:
                self._report.damages.append(f"transactions that are not replicated are not all known: {error}")
            segments.release_closed()
        producers.on_high_watermark(high_watermark)

    def _resolve_transaction_indexes(self, segments: Segments, snapshots: ProducerSnapshots) -> None:
        """Know the aborted transactions of each segment: from its file, or, where that is in doubt, from its batches.

        What was aborted is known from where its producer's transaction began, which a snapshot before the segment says.
        """
        derived: dict[Segment, list[AbortedEntry]] = {}
        read: list[Segment] = []
        for segment in segments:
            has_file = segment.base_offset in self._with_transaction_index
            if segment in self._walked:
                if segment.indexes.holds_markers:
                    read.append(segment)
                if segment.indexes.holds_markers or has_file:
                    derived[segment] = []
            elif has_file:
                try:
                    segment.indexes.transactions.open_existing(segment.base_offset, segment.end_offset)
                except CorruptIndexError as error:
                    self._report.rebuilt_indexes.append(str(error))
                    read.append(segment)
                    derived[segment] = []
            elif segment.base_offset in self._aborted_segments.listed:
                self._report.rebuilt_indexes.append(segment.indexes.transactions.on_lost())
                read.append(segment)
                derived[segment] = []
        if read and not self._derive_aborted(read, derived, segments, snapshots):
            return
        for segment, entries in derived.items():
            segment.indexes.transactions.replace(entries)

    def _derive_aborted(
        self,
        read: list[Segment],
        derived: dict[Segment, list[AbortedEntry]],
        segments: Segments,
        snapshots: ProducerSnapshots,
    ) -> bool:
        """Collect the entries of the segments to be read. Returns whether that was possible; if not, the files stay."""
        producers = snapshots.newest_below(read[0].base_offset, now_ms=self._now_ms)
        end_offset = read[-1].end_offset

        def on_aborted(segment: Segment, entry: AbortedEntry) -> None:
            if segment in derived:
                derived[segment].append(entry)

        passed = segments.overlapping(producers.end_offset, end_offset)
        try:
            replay(producers, passed, end_offset=end_offset, now_ms=self._now_ms, on_aborted=on_aborted)
        except CorruptLogError as error:
            self._report.damages.append(f"aborted transactions are not all known: {error}")
            return False
        finally:
            segments.release_closed()
        return True


def lost_segments(names: Iterable[str]) -> list[Offset]:
    """The base offsets of segments of which an index is left alone, in order, before recovery removes it.

    Of a segment that is made the index comes last, and of one that goes it goes first: its log was lost. Of one that
    takes the place of others the log gets its name last.

    Args:
        names: all that are in the directory of the log.
    """
    indexed: set[Offset] = set()
    there: set[Offset] = set()
    for name in names:
        suffix = name[OFFSET_DIGITS:]
        if suffix in INDEX_SUFFIXES or suffix in (LOG_SUFFIX, LOG_SUFFIX + SWAP_SUFFIX):
            offset = parse_file_name(name, suffix)
            if offset is not None:
                (indexed if suffix in INDEX_SUFFIXES else there).add(offset)
    return sorted(indexed - there)


def first_segment(names: Iterable[str]) -> Offset | None:
    """The base offset of the first segment of a log that is not open; None if it has none.

    Args:
        names: all that are in its directory.
    """
    return min((base for name in names if (base := parse_file_name(name, LOG_SUFFIX)) is not None), default=None)


def has_segment(names: Iterable[str]) -> bool:
    """Whether a log that is not open has a file with records, or one that is about to be it.

    Args:
        names: all that are in its directory.
    """
    suffixes = LOG_SUFFIX, LOG_SUFFIX + SWAP_SUFFIX, LOG_SUFFIX + START_SUFFIX
    return any(parse_file_name(name, suffix) is not None for name in names for suffix in suffixes)


def set_aside_from(disk: Disk, directory: str, offset: Offset) -> list[str]:
    """Take the segments from one on out of a log that is not open: what follows a hole continues nothing.

    Returns:
        Where they are kept, in order.

    Raises:
        DiskError: the disk refused. Whatever was done, the next call goes on.
    """
    kept = []
    bases = [base for name in disk.list(directory) if (base := parse_file_name(name, LOG_SUFFIX)) is not None]
    for base in sorted(bases, reverse=True):  # from the end on: what a crash leaves has no further hole
        if base >= offset:
            kept.append(free_truncated_name(disk, directory, base))
            disk.rename(f"{directory}/{file_name(base, LOG_SUFFIX)}", kept[-1])
    disk.sync_dir(directory)
    return kept[::-1]


def free_truncated_name(disk: Disk, directory: str, offset: Offset) -> str:
    """A free name for what is truncated off a log at an offset."""
    path = f"{directory}/{file_name(offset, TRUNCATED_SUFFIX)}"
    while disk.exists(path):
        path += "+"
    return path


def is_truncated_end(disk: Disk, directory: str, end_offset: Offset) -> bool:
    """Whether something that came at the end of a log, or after it, was truncated and kept. Raises DiskError."""
    truncated = (parse_file_name(name.rstrip("+"), TRUNCATED_SUFFIX) for name in disk.list(directory))
    return any(offset is not None and offset >= end_offset for offset in truncated)


def _holds_marker(segment: Segment, offset: Offset) -> bool:
    """Whether there is a control batch at `offset` or beyond. Raises CorruptLogError."""
    if offset >= segment.end_offset:
        return False
    return any(header.is_control for _, header in segment.headers(segment.position_of(offset)))


def _is_zero(file: File, position: int) -> bool:
    while data := file.read_at(position, SCAN_PIECE_BYTES):
        if data.count(0) != len(data):
            return False
        position += len(data)
    return True


def resolve_topic_id(
    disk: Disk, directory: str, topic_id: TopicId | None, *, is_noted: bool | None = None
) -> TopicId | None:
    """Which topic a directory belongs to; one that belongs to none yet is given to `topic_id`.

    Args:
        is_noted: whether there is a file that says so, for who has listed the directory.

    Raises:
        CorruptLogError: it belongs to another, or its partition.metadata cannot be read.
    """
    path = f"{directory}/{PARTITION_METADATA_FILE}"
    if disk.exists(path) if is_noted is None else is_noted:
        found = parse_partition_metadata(disk.read_bytes(path), path)
        if topic_id is not None and topic_id != found:
            raise CorruptLogError(
                f"{path}: the directory belongs to topic id {uuid_text(found)}, not {uuid_text(topic_id)}: "
                "a topic of the same name was deleted; move the directory away"
            )
        return found
    if topic_id is not None:
        disk.write_atomically(path, format_partition_metadata(topic_id))
    return topic_id

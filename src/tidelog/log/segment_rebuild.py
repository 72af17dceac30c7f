"""Writes a damaged segment anew: what is right is copied, and what is not comes from another replica.

    the segment     [ right ][ damaged ][      right      ]
                        │         ╎               │
    the new one     [ copied ][ fetched ][     copied      ]     its indexes are built as it is written

A damage that nobody can repair stays in it as it is, so that another one in the same segment is repaired all the same;
but for what the disk cannot read.

The new one takes the place of the old as that of a compaction does (compaction/cleaner_swap.py): a stop at any moment
leaves one of the two. So nothing is overwritten before all that takes its place is known, whole, checked and synced;
and a replica that is repaired is never shorter than it was, and leaves no ISR.

What is fetched has to fit exactly: each batch with its checksum, of the leader epoch that this log's own lineage gives
its offset, one behind the other, from the end of what is right to where the next is. On a compacted topic another
replica may have removed more, which this log may lack too.

Kafka: none.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence

from tidelog.base.errors import CorruptLogError, DiskError, MalformedBatchError, TidelogError
from tidelog.base.ids import Offset
from tidelog.base.ports import Buffer, Disk
from tidelog.log.compaction.cleaner import SEGMENT_SIZE_BYTES_MAX, CleanedGroup
from tidelog.log.compaction.cleaner_mark import CleanedMark
from tidelog.log.config import LogConfig
from tidelog.log.continuity import BatchFaultError, Continuity, check_batch_crc, whole_batches
from tidelog.log.damage import Damage
from tidelog.log.files.leftovers import CLEANED_SUFFIX
from tidelog.log.files.transaction_index import AbortedFile
from tidelog.log.scrub import BATCH_WEIGHT, PIECE_BYTES, STEP_WEIGHT
from tidelog.log.segment import Segment
from tidelog.log.unreadable import PatientReads
from tidelog.records import split_whole_batches
from tidelog.records.batch import BatchHeader
from tidelog.records.lineage import LeaderEpochLineage


class SegmentFullError(TidelogError):
    """What is missing does not fit into the segment, as where one behind it is lost."""


class SegmentRebuild:
    """See the module. On another thread than the log's, one call at a time: for each damage, in order, `copy` until it
    says that nothing is left, then `fill` with what was fetched until `is_filled`, or `keep` until nothing is left;
    then `copy` again, and `finish`.

    Args:
        disk: where the log lies.
        directory: of the log.
        segment: closed.
        damages: of it; may be empty, to build its indexes anew.
        lineage: of leader epochs; the rebuild's own copy.
        mark: of the log; only staged here.
        config: of the log.
        aborted: the aborted transactions of the segment.
        log_start_offset: of the log; what is damaged below is not fetched.
        now_ms: since 1970.

    Raises:
        CorruptIndexError: its aborted transactions are not known.
        DiskError: the disk refused.

    Attributes:
        next_offset: what is to be fetched next, while a damage is to be filled.
        is_filled: whether all of the damage that `copy` came to was fetched.
        kept: the damages that the new segment has.
        end_offset_mark: to where the mark is to move, as offsets are missing that were not before; 0 for nowhere.
    """

    def __init__(
        self,
        disk: Disk,
        directory: str,
        segment: Segment,
        damages: Sequence[Damage],
        lineage: LeaderEpochLineage,
        *,
        mark: CleanedMark,
        config: LogConfig,
        aborted: AbortedFile,
        log_start_offset: Offset,
        now_ms: int,
    ) -> None:
        self._disk = disk
        self._segment = segment
        self._version = segment.version
        self._size_bytes = segment.size_bytes
        self._damages = list(damages)
        self._mark = mark
        self._aborted = aborted.read(disk)
        self.kept: tuple[Damage, ...] = ()
        cleaned_end_offset = segment.end_offset if config.is_compacted else mark.end_offset
        self._continuity = Continuity(
            segment.base_offset,
            segment.end_offset,
            lineage,
            cleaned_end_offset=Offset(max(cleaned_end_offset, mark.end_offset, log_start_offset)),
        )
        self._new = Segment(disk, directory, segment.base_offset, config, now_ms=now_ms, suffix=CLEANED_SUFFIX)
        self._new.create()
        self._new.indexes.begin()
        self._log_start_offset = log_start_offset
        self._position = 0
        self._work: Generator[None, None, None] | None = None
        self.end_offset_mark = Offset(0)
        self.is_filled = True

    @property
    def next_offset(self) -> Offset:
        return max(self._continuity.next_offset, self._log_start_offset)

    def copy(self) -> bool:
        """Copy a piece of what is right. Returns whether there is more, up to the next damage or the end.

        Raises:
            CorruptLogError: it has rotted since it was looked through.
            DiskError: the disk refused.
        """
        if self._work is None:
            self._work = self._copy(self._damages[0].position if self._damages else self._size_bytes)
        if next(self._work, self) is self:
            self._work = None
            self.is_filled = not self._damages
            return False
        return True

    def _copy(self, end: int) -> Generator[None, None, None]:
        if self._position >= end:
            return
        file = PatientReads(self._disk.open(self._segment.path))  # pieces reach beyond the end, into a damage
        try:
            weight, pieces = 0, []
            for position, header, window, at in whole_batches(
                file, end, position=self._position, piece_bytes=PIECE_BYTES
            ):
                self._check(position, header, window, at)
                pieces.append(window[at : at + header.size_bytes])
                weight += header.size_bytes + BATCH_WEIGHT
                if weight >= STEP_WEIGHT:
                    self._new.file.append(b"".join(pieces))
                    weight, pieces = 0, []
                    yield
            self._new.file.append(b"".join(pieces))
            self._position = end
        except BatchFaultError as fault:
            raise CorruptLogError(f"{self._segment.path}: at position {fault.position}: {fault.reason}") from None
        finally:
            file.close()

    def fill(self, batches: Buffer) -> None:
        """Take what was fetched from `next_offset` on; what lies beyond the damage is left out.

        Raises:
            CorruptLogError: it does not fit.
            SegmentFullError: the segment would become larger than one may be.
            DiskError: the disk refused.
        """
        damage = self._damages[0]
        data = bytes(batches)
        before_all = self.next_offset
        pieces: list[bytes] = []
        try:
            for position, header in split_whole_batches(data):
                if header.base_offset >= damage.end_offset:
                    self._pass_over(damage)
                    break
                if header.last_offset < self.next_offset:
                    continue  # the batch before, that holds what was asked for by another division
                if header.last_offset >= damage.end_offset:
                    raise CorruptLogError(f"a batch reaches up to offset {header.last_offset}")
                before = self._continuity.next_offset
                self._check(position, header, data, position)
                if header.base_offset > max(before, self._mark.end_offset):
                    self.end_offset_mark = Offset(header.base_offset)
                pieces.append(data[position : position + header.size_bytes])
            self._new.file.append(b"".join(pieces))
        except BatchFaultError as fault:
            raise CorruptLogError(fault.reason) from None
        except MalformedBatchError as error:
            raise CorruptLogError(str(error)) from None
        if self.next_offset == before_all:
            raise CorruptLogError(f"there is no batch from offset {self.next_offset} on")
        if self.next_offset >= damage.end_offset:
            self._position = self._damages.pop(0).end_position
            self.is_filled = True

    def keep(self) -> bool:
        """Copy a piece of a damage, none of which was filled, as it is. Returns whether there is more of it.

        Raises:
            CorruptLogError: the file is shorter than it was.
            DiskError: the disk refused.
        """
        damage = self._damages[0]
        left = damage.end_position - self._position
        if not left:
            end = self._new.size_bytes
            self.kept = (*self.kept, damage._replace(position=end - damage.size_bytes, end_position=end))
            self._continuity.next_offset = damage.end_offset
            del self._damages[0]
            return False
        file = PatientReads(self._disk.open(self._segment.path))
        try:
            data = file.read_at(self._position, min(left, STEP_WEIGHT))
        finally:
            file.close()
        if not data:
            raise CorruptLogError(f"{self._segment.path}: it ends at position {self._position}")
        self._new.file.append(data)
        self._new.size_bytes += len(data)
        self._position += len(data)
        return True

    def _pass_over(self, damage: Damage) -> None:
        """The other replica has nothing more below the end of the damage."""
        if self.next_offset >= damage.end_offset:
            return
        try:
            self._continuity.check_gap(damage.end_offset)
        except BatchFaultError as fault:
            raise CorruptLogError(fault.reason) from None
        if damage.end_offset > self._mark.end_offset:
            self.end_offset_mark = damage.end_offset
        self._continuity.next_offset = damage.end_offset

    def _check(self, position: int, header: BatchHeader, window: bytes, at: int) -> None:
        new = self._new
        self._continuity.check(position, header)
        if new.size_bytes + header.size_bytes > SEGMENT_SIZE_BYTES_MAX or header.last_offset > new.offset_max:
            raise SegmentFullError(f"{self._segment.path} has no room for offset {header.last_offset}")
        check_batch_crc(position, header, window, at)
        self._continuity.take_in(header)
        new.indexes.note_header(new.size_bytes, header)
        new.size_bytes += header.size_bytes

    def finish(self) -> CleanedGroup:
        """All is written: complete and sync the new segment.

        Raises:
            CorruptLogError: it lacks something.
            DiskError: the disk refused.
        """
        try:
            self._continuity.check_end(self._position)
        except BatchFaultError as fault:
            raise CorruptLogError(f"{self._segment.path}: {fault.reason}") from None
        for entry in self._aborted:
            self._new.indexes.transactions.note(entry)
        self._new.end_offset = self._segment.end_offset
        self._new.damages = self.kept
        self._new.indexes.finish()
        self._new.sync(with_indexes=True)
        self._new.release()
        if self.end_offset_mark:
            self._mark.stage(self.end_offset_mark)
        return CleanedGroup((self._segment,), (self._version,), self._new)

    def abandon(self) -> None:
        """Remove what was not put into its place. Raises nothing: what stays behind goes at the next start."""
        if self._work is not None:
            self._work.close()
        try:
            if self.end_offset_mark:
                self._mark.unstage()
            if self._new.path.endswith(CLEANED_SUFFIX):
                self._new.remove()
        except DiskError:
            pass

"""Looks through one closed segment for rot, in small steps: what a disk changed after it was written.

    header ──► follows the batch before, and the lineage of leader epochs      (continuity.py)
    batch  ──► has its checksum
    index  ──► names batches that are there

Where something is wrong, a damage begins. It ends where a batch starts that can be believed: where the damaged one says
that it ends, or else at an entry of the offset index. A batch is believed after a damage if it is whole, fits the
lineage, and the one behind it continues it: a base offset that rotted as well is not taken for the end of a damage.

What only the page cache has right is not found: the disk is not asked while its pages are in memory.

Kafka: none. ZFS calls it a scrub.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Generator, Iterator
from functools import partial

from tidelog.base.errors import DiskError, MalformedBatchError
from tidelog.base.ids import Offset
from tidelog.base.ports import Disk
from tidelog.log.continuity import BatchFaultError, Continuity, check_batch_crc, whole_batches
from tidelog.log.damage import Damage
from tidelog.log.files.offset_index import ENTRY
from tidelog.log.segment import Segment
from tidelog.log.unreadable import PatientReads
from tidelog.records.batch import BATCH_OVERHEAD, BatchHeader, read_header
from tidelog.records.lineage import LeaderEpochLineage

PIECE_BYTES = 256 * 1024
"""Read at once, unless a batch is larger."""
STEP_WEIGHT = 512 * 1024
"""What one step does, about a millisecond of computing: bytes, and"""
BATCH_WEIGHT = 2 * 1024
"""so much for each batch."""
CANDIDATES_PER_STEP = 16
"""Places where a damage may end, before others have their turn."""
CANDIDATE_BYTES = 16 * 1024
"""Read at once at such a place, unless a batch is larger: as a rule none is there."""
DAMAGES_MAX = 256
"""Of one segment. The last of so many is all that follows."""


class SegmentScrub:
    """Looks through one segment; on another thread than the log's, one step at a time.

    Args:
        disk: where it lies. The scrub opens the file itself.
        segment: closed. Whether it is still in the log in the end, its owner asks.
        lineage: of leader epochs; the scrub's own copy.
        cleaned_end_offset: up to here offsets may be missing, since compaction removed their records (exclusive).

    Attributes:
        damages: what was found so far.
        index_fault: what is wrong with the offset index; None for nothing.
        is_unreadable: whether the disk refused to read some place.
        size_bytes: of the segment when the scrub began; `version` likewise.
    """

    def __init__(
        self, disk: Disk, segment: Segment, lineage: LeaderEpochLineage, *, cleaned_end_offset: Offset
    ) -> None:
        self.segment = segment
        self.version = segment.version
        self.size_bytes = segment.size_bytes
        self.damages: tuple[Damage, ...] = ()
        self.index_fault: str | None = None
        self.is_unreadable = False
        self._disk = disk
        self._lineage = lineage
        self._cleaned_end_offset = cleaned_end_offset
        self._base_offset, self._end_offset = segment.base_offset, segment.end_offset
        self._path = segment.path
        self._index_path = segment.indexes.offsets.path
        self._indexed: tuple[array[int], array[int]] | None = None  # last offsets and positions, where that is needed
        self._work = self._run()

    def step(self) -> int | None:
        """Do a little. Returns how many bytes were read; None once all is done.

        Raises:
            DiskError: the disk refused, or the segment is gone.
        """
        return next(self._work, None)

    def abandon(self) -> None:
        """Let go of the file."""
        self._work.close()

    def new_continuity(self) -> Continuity:
        """What follows the batches of the segment from its start on."""
        return Continuity(
            self._base_offset, self._end_offset, self._lineage, cleaned_end_offset=self._cleaned_end_offset
        )

    def _run(self) -> Generator[int, None, None]:
        file = PatientReads(self._disk.open(self._path))
        try:
            yield from self._look_through(file, self._entries())
        finally:
            self.is_unreadable = bool(file.pages)
            file.close()

    def _look_through(self, file: PatientReads, entries: Iterator[tuple[int, int]]) -> Generator[int, None, None]:
        continuity = self.new_continuity()
        position = weight = read = 0
        before: tuple[int, Offset] | None = None  # a batch behind a gap, and what might have come in its place
        entry = next(entries, None)
        while True:
            try:
                for place, header, window, at in self._batches(file, position, PIECE_BYTES):
                    position = place
                    continuity.check(position, header)
                    check_batch_crc(position, header, window, at)
                    has_gap = header.base_offset > continuity.next_offset
                    before = (position, continuity.next_offset) if has_gap else None
                    continuity.take_in(header)
                    while entry is not None and entry[1] <= position:
                        if entry != (header.last_offset, position):
                            self._on_index_fault(entry)
                        entry = next(entries, None)
                    read += header.size_bytes
                    weight += header.size_bytes + BATCH_WEIGHT
                    if weight >= STEP_WEIGHT:
                        yield read
                        weight = read = 0
                position = self.size_bytes
                continuity.check_end(position)
            except BatchFaultError as fault:
                start, next_offset = fault.position, continuity.next_offset
                if before is not None:  # the gap may be none: its offset rotted, and this one is right
                    start, next_offset = before
                position = yield from self._note_damage(file, start, next_offset, fault.reason, continuity)
                before = None
                while entry is not None and entry[1] < position:
                    entry = next(entries, None)
                read += position - start
                yield read
                weight = read = 0
            if position >= self.size_bytes:
                break
        if entry is not None:
            self._on_index_fault(entry)
        yield read

    def _batches(
        self, file: PatientReads, position: int, piece_bytes: int
    ) -> Iterator[tuple[int, BatchHeader, bytes, int]]:
        """From `position` on. One whose length rotted is not read into memory up to the end of the segment."""

        return whole_batches(
            file,
            self.size_bytes,
            position=position,
            piece_bytes=piece_bytes,
            check_large=partial(self._check_large, file),
        )

    def _check_large(self, file: PatientReads, position: int, header: BatchHeader) -> None:
        """Raises `BatchFaultError` if the index names a batch within this one, and it is there."""
        if self._indexed is None:
            self._indexed = array("q"), array("q")
            for last_offset, indexed in self._entries():
                self._indexed[0].append(last_offset)
                self._indexed[1].append(indexed)
        last_offsets, positions = self._indexed
        for index in range(bisect_right(positions, position), bisect_left(positions, position + header.size_bytes)):
            try:
                within = read_header(file.read_at(positions[index], BATCH_OVERHEAD))
            except MalformedBatchError:
                continue
            if within.last_offset == last_offsets[index]:
                raise BatchFaultError(position, f"a batch of {header.size_bytes} bytes, over one at {positions[index]}")

    # Where a damage ends.

    def _note_damage(
        self, file: PatientReads, start: int, next_offset: Offset, reason: str, continuity: Continuity
    ) -> Generator[int, None, int]:
        """Returns where to go on."""
        end, end_offset = self.size_bytes, self._end_offset
        is_one_too_many = len(self.damages) + 1 >= DAMAGES_MAX
        for number, position in enumerate(() if is_one_too_many else self._candidates(file, start), start=1):
            if number % CANDIDATES_PER_STEP == 0:
                yield 0
            header = self._believed(file, position, next_offset, continuity)
            if header is not None:
                end, end_offset = position, Offset(header.base_offset)
                break
        continuity.next_offset = end_offset
        damage = Damage(start, end, next_offset, end_offset, reason, is_located=True)
        if file.is_unreadable(start, end):
            damage = damage._replace(reason="the disk cannot read it", is_unreadable=True)
        self.damages = (*self.damages, damage)
        return end

    def _candidates(self, file: PatientReads, start: int) -> Iterator[int]:
        """Where a batch may start that can be believed, in order."""
        position = start
        try:
            for position, header, _, _ in self._batches(file, start, PIECE_BYTES):
                if position > start:
                    yield position
                if header.size_bytes + position >= self.size_bytes or position > start:
                    break
        except BatchFaultError:
            pass
        for _, indexed in self._entries():
            if start < indexed < self.size_bytes:
                yield indexed

    def _believed(
        self, file: PatientReads, position: int, next_offset: Offset, continuity: Continuity
    ) -> BatchHeader | None:
        """The header of the batch at `position`, if it and the one behind it can be."""
        first: BatchHeader | None = None
        before, continuity.next_offset = continuity.next_offset, next_offset
        try:
            for at_position, header, window, at in self._batches(file, position, CANDIDATE_BYTES):
                if first is None:
                    if header.base_offset < next_offset:
                        return None
                    first = header
                    continuity.next_offset = Offset(header.base_offset)
                continuity.check(at_position, header)
                check_batch_crc(at_position, header, window, at)
                if header is not first:
                    return first
                continuity.next_offset = Offset(header.next_offset)
            continuity.check_end(self.size_bytes)
        except BatchFaultError:
            return None
        finally:
            continuity.next_offset = before
        return first

    # The offset index.

    def _entries(self) -> Iterator[tuple[int, int]]:
        """(last offset, position) of each entry."""
        try:
            data = self._disk.read_bytes(self._index_path)
        except DiskError as error:
            self.index_fault = str(error)
            return
        for relative, position in ENTRY.iter_unpack(data[: len(data) // ENTRY.size * ENTRY.size]):
            yield relative + self._base_offset, position

    def _on_index_fault(self, entry: tuple[int, int]) -> None:
        if self.index_fault is None:
            last_offset, position = entry
            self.index_fault = f"it names a batch up to offset {last_offset} at position {position}, which is not there"

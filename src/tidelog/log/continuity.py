"""What recovery demands of a batch: that it is whole, unchanged, and the next one.

A CRC covers a batch from its attributes on. The base offset, the length and the leader epoch in front of it are not
covered; they are held against the batch before, the next segment, and the lineage of leader epochs, which is written
before the first batch of an epoch. So a record that was truncated, but came back because the truncation was not synced
when the power failed, is found out by its epoch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from tidelog.base.errors import MalformedBatchError, TidelogError
from tidelog.base.ids import Offset
from tidelog.base.ports import Readable
from tidelog.records.batch import BATCH_OVERHEAD, BatchHeader, check_crc, read_header
from tidelog.records.lineage import LeaderEpochLineage

SCAN_PIECE_BYTES = 1024 * 1024
MAGIC = b"\x02"
OFFSETS_AHEAD_MAX = 2**31
SECTOR_SIZE_BYTES = 512
"""What a disk writes as a whole, at least."""
LENGTH_END = 12
MAGIC_AT = 16


class BatchFaultError(TidelogError):
    """Why the log cannot go on, and from which byte of the segment. Never leaves recovery."""

    def __init__(self, position: int, reason: str, *, is_torn: bool = False) -> None:
        super().__init__(reason)
        self.position = position
        self.reason = reason
        self.is_torn = is_torn
        """The bytes end before the batch does, as those of a write that was interrupted."""


def whole_batches(
    file: Readable,
    size_bytes: int,
    *,
    position: int = 0,
    piece_bytes: int = SCAN_PIECE_BYTES,
    check_large: Callable[[int, BatchHeader], None] | None = None,
) -> Iterator[tuple[int, BatchHeader, bytes, int]]:
    """Every batch of a segment as (position, header, buffer, where in the buffer it starts).

    Args:
        size_bytes: of the segment.
        position: where to begin; a batch starts there.
        piece_bytes: how much is read at once, unless a batch is larger.
        check_large: called with the place and the header of such a batch before it is read: its length may have rotted.

    Raises:
        BatchFaultError: at the first place where there is no batch, or not all of one.
    """
    window = b""
    start = position
    while position < size_bytes:
        at = position - start
        if at + BATCH_OVERHEAD > len(window):
            start, at = position, 0
            window = file.read_at(position, piece_bytes)
        try:
            header = read_header(window, at)
        except MalformedBatchError as error:
            raise BatchFaultError(position, str(error), is_torn=size_bytes - position < BATCH_OVERHEAD) from None
        if position + header.size_bytes > size_bytes:
            raise BatchFaultError(
                position,
                f"a batch of {header.size_bytes} bytes, of which {size_bytes - position} are there",
                is_torn=True,
            )
        if at + header.size_bytes > len(window):
            if check_large is not None and header.size_bytes > piece_bytes:
                check_large(position, header)
            start, at = position, 0
            window = file.read_at(position, max(piece_bytes, header.size_bytes))
        yield position, header, window, at
        position += header.size_bytes


def check_batch_crc(position: int, header: BatchHeader, window: bytes, at: int) -> None:
    """Raises `BatchFaultError` if the batch's bytes are not those its checksum was made of."""
    try:
        check_crc(window, at, header)
    except MalformedBatchError as error:
        raise BatchFaultError(position, str(error)) from None


def holds_whole_batch(data: bytes, after_offset: int) -> bool:
    """Whether somewhere in `data` there is a batch, whole and unchanged, with an offset above `after_offset`."""
    found = data.find(MAGIC, MAGIC_AT)
    while found >= 0:
        start = found - MAGIC_AT
        try:
            header = read_header(data, start)
            if after_offset < header.base_offset < after_offset + OFFSETS_AHEAD_MAX:
                check_crc(data, start, header)
                return True
        except MalformedBatchError:
            pass
        found = data.find(MAGIC, found + 1)
    return False


def is_unsynced(data: bytes, position: int) -> bool:
    """Whether the batch at the start of `data` is damaged because a part of it was never written to the disk.

    Where power failed before a sync, each sector is the old one or the new; one that was beyond the end of the file is
    zeros, to its own end. One that was synced and rotted is not. Nothing behind such a hole was synced either, for
    that would have synced this.

    Args:
        data: from the batch on, all that there is.
        position: of `data` in its file.
    """
    try:
        size_bytes = max(read_header(data).size_bytes, BATCH_OVERHEAD)
    except MalformedBatchError:
        size_bytes = BATCH_OVERHEAD
    start = 0
    while start < min(size_bytes, len(data)):
        stop = start + SECTOR_SIZE_BYTES - (position + start) % SECTOR_SIZE_BYTES
        is_telling = start > 0 or stop >= LENGTH_END  # an offset begins with zeros, and no length is zero
        if is_telling and not any(data[start:stop]):
            return True
        start = stop
    return False


class Continuity:
    """Follows the batches of one segment, in order.

    Attributes:
        next_offset: what the next batch has to start with, or, where records were compacted away, may.
    """

    __slots__ = (
        "_base_offset",
        "_cleaned_end_offset",
        "_epoch_end_offset",
        "_latest_epoch",
        "_lineage",
        "_next_base",
        "next_offset",
    )

    def __init__(
        self,
        base_offset: Offset,
        next_base: Offset | None,
        lineage: LeaderEpochLineage | None,
        *,
        cleaned_end_offset: Offset,
    ) -> None:
        """Begin at a segment's start.

        Args:
            base_offset: of the segment.
            next_base: of the segment after it, if there is one.
            lineage: None if it is lost: then epochs are only required not to go back.
            cleaned_end_offset: below it offsets may be missing, since compaction removed their records (exclusive).
        """
        self.next_offset = base_offset
        self._base_offset = base_offset
        self._next_base = next_base
        self._lineage = lineage
        self._latest_epoch = 0
        self._epoch_end_offset = 0  # below it, the lineage has no other epoch than the latest seen
        self._cleaned_end_offset = cleaned_end_offset

    def check(self, position: int, header: BatchHeader) -> None:
        """Raises `BatchFaultError` if the batch is not the next one."""
        if (
            header.base_offset != self.next_offset
            or header.leader_epoch != self._latest_epoch
            or header.base_offset + header.last_offset_delta >= self._epoch_end_offset
        ):
            self._check_closely(position, header)

    def take_in(self, header: BatchHeader) -> None:
        """The batch was found to be the next one, and whole."""
        self.next_offset = Offset(header.base_offset + header.last_offset_delta + 1)
        epoch = header.leader_epoch
        if epoch >= 0 and (epoch != self._latest_epoch or self.next_offset > self._epoch_end_offset):
            self._latest_epoch = epoch
            self._epoch_end_offset = self._find_epoch_end(header)

    def _check_closely(self, position: int, header: BatchHeader) -> None:
        expected = self.next_offset
        if header.base_offset < expected or header.base_offset > max(expected, self._cleaned_end_offset):
            raise BatchFaultError(position, f"the batch has offset {header.base_offset} where {expected} comes next")
        limit = self._base_offset + OFFSETS_AHEAD_MAX if self._next_base is None else self._next_base
        if header.last_offset >= limit:
            what = "its segment cannot" if self._next_base is None else f"the next segment starts at {limit}"
            raise BatchFaultError(position, f"the batch reaches up to offset {header.last_offset}, {what}")
        if header.leader_epoch != -1:
            self._check_epoch(position, header)

    def _check_epoch(self, position: int, header: BatchHeader) -> None:
        epoch = header.leader_epoch
        written_in = None if self._lineage is None else self._lineage.epoch_at(Offset(header.base_offset))
        if written_in is not None and epoch != written_in:
            raise BatchFaultError(
                position,
                f"the batch at offset {header.base_offset} says leader epoch {epoch}, "
                f"the leader epoch checkpoint {written_in}",
            )
        if epoch < self._latest_epoch:
            raise BatchFaultError(
                position,
                f"the batch at offset {header.base_offset} says leader epoch {epoch}, "
                f"those before it {self._latest_epoch}",
            )

    def _find_epoch_end(self, header: BatchHeader) -> int:
        """Up to where batches of the same epoch need not be looked at closely (exclusive)."""
        end = self._base_offset + OFFSETS_AHEAD_MAX if self._next_base is None else self._next_base
        if self._lineage is not None:
            starts = (entry.start_offset for entry in self._lineage.entries)
            end = min(end, min((start for start in starts if start > header.base_offset), default=end))
        return end

    def check_gap(self, offset: Offset) -> None:
        """Raises `BatchFaultError` if the offsets up to `offset` (exclusive) may not be missing."""
        if offset > max(self.next_offset, self._cleaned_end_offset):
            raise BatchFaultError(0, f"the offsets from {self.next_offset} to {offset - 1} are missing")

    def check_end(self, position: int) -> None:
        """Raises `BatchFaultError` if batches are missing before the next segment."""
        next_base = self._next_base
        if next_base is not None and not self.next_offset <= next_base <= max(
            self.next_offset, self._cleaned_end_offset
        ):
            raise BatchFaultError(
                position,
                f"the segment ends at offset {self.next_offset}, the next one starts at {self._next_base}: "
                "what lay between is lost",
            )

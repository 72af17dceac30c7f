"""Where in a segment's file an offset is, about: the .index file.

An entry is (last offset of a batch − base offset of the segment, int32; position of that batch, int32), big endian,
one for every `index.interval.bytes` of log or so. Nothing needs the first batch's entry: it is at position 0.

Kafka: `OffsetIndex`.
"""

from __future__ import annotations

from struct import Struct
from typing import NamedTuple

from tidelog.base.ids import Offset
from tidelog.base.ports import Disk
from tidelog.log.files.index_file import FIRST, SECOND, CorruptIndexError, IndexFile

ENTRY = Struct(">ii")


class OffsetPosition(NamedTuple):
    """A batch: its last offset, and where in the file it starts."""

    last_offset: int
    position: int


class OffsetIndex(IndexFile):
    """Sparse, sorted by offset and position alike."""

    __slots__ = ("_entries_max", "base_offset")

    def __init__(self, disk: Disk, path: str, base_offset: Offset, size_bytes_max: int) -> None:
        super().__init__(disk, path, ENTRY)
        self.base_offset = base_offset
        self._entries_max = size_bytes_max // ENTRY.size

    @property
    def is_full(self) -> bool:
        """Whether the segment has to be closed because of `segment.index.bytes`."""
        return len(self) >= self._entries_max

    def note(self, last_offset: int, position: int) -> None:
        """Add the batch that starts at `position`."""
        self.append(last_offset - self.base_offset, position)

    def batch_before(self, offset: int) -> OffsetPosition | None:
        """The last batch in the index whose last offset is at most `offset`."""
        entry = self.floor(FIRST, offset - self.base_offset)
        return None if entry is None else OffsetPosition(entry[0] + self.base_offset, entry[1])

    def boundary_before(self, position: int) -> int:
        """The last position, at most `position`, at which a batch is known to start; 0 if no entry lies before it."""
        entry = self.floor(SECOND, position)
        return 0 if entry is None else entry[1]

    def truncate_to(self, position: int) -> None:
        """Drop the batches that start at or beyond `position`."""
        self.truncate(self.count_up_to(SECOND, position - 1))

    def check(self, log_size_bytes: int) -> None:
        """Compare the last entry with the log's size.

        Raises:
            CorruptIndexError: it points outside: the index is too long for its log, or was never written so.
        """
        if self.last is not None and not (self.last[0] >= 0 and 0 <= self.last[1] < log_size_bytes):
            raise CorruptIndexError(
                f"{self.path}: its last entry points to {self.last[1]} in a log of {log_size_bytes} bytes"
            )

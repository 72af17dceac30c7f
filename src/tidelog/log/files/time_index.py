"""From which offset on records of a time can be: the .timeindex file.

An entry is (largest timestamp so far in ms, int64; last offset of the batch that brought it − base offset of the
segment, int32), big endian: before that batch every record is older. Timestamps grow from entry to entry, though
those of the records need not. The last entry of a closed segment holds its largest timestamp.

Kafka: `TimeIndex`.
"""

from __future__ import annotations

from struct import Struct
from typing import NamedTuple

from tidelog.base.ids import Offset
from tidelog.base.ports import Disk
from tidelog.log.files.index_file import FIRST, SECOND, CorruptIndexError, IndexFile

ENTRY = Struct(">qi")


class MaxTimestamp(NamedTuple):
    """The largest timestamp up to some place, and the last offset of the batch that brought it."""

    timestamp: int
    last_offset: int


class TimeIndex(IndexFile):
    """Sparse, sorted by timestamp and offset alike."""

    __slots__ = ("_entries_max", "base_offset")

    def __init__(self, disk: Disk, path: str, base_offset: Offset, size_bytes_max: int) -> None:
        super().__init__(disk, path, ENTRY)
        self.base_offset = base_offset
        self._entries_max = size_bytes_max // ENTRY.size

    @property
    def is_full(self) -> bool:
        """Whether the segment has to be closed; the last entry is kept free for its largest timestamp."""
        return len(self) >= self._entries_max - 1

    def note(self, timestamp: int, last_offset: int) -> None:
        """Add the largest timestamp so far, unless there is none (it is negative) or an entry says as much already."""
        last = self.last
        relative_offset = last_offset - self.base_offset
        if timestamp >= 0 if last is None else timestamp > last[0] and relative_offset > last[1]:
            self.append(timestamp, relative_offset)

    def newest(self) -> MaxTimestamp | None:
        """The last entry."""
        return None if self.last is None else MaxTimestamp(self.last[0], self.last[1] + self.base_offset)

    def entry_before(self, timestamp: int) -> MaxTimestamp | None:
        """The last entry whose timestamp is at most `timestamp`."""
        entry = self.floor(FIRST, timestamp)
        return None if entry is None else MaxTimestamp(entry[0], entry[1] + self.base_offset)

    def truncate_to(self, end_offset: int) -> None:
        """Drop the entries of batches that reach `end_offset` or beyond."""
        self.truncate(self.count_up_to(SECOND, end_offset - self.base_offset - 1))

    def check(self, end_offset: int) -> None:
        """Raises `CorruptIndexError` if the last entry is none that was ever written: not of [base, end_offset)."""
        if self.last is not None and not 0 <= self.last[1] < end_offset - self.base_offset:
            raise CorruptIndexError(
                f"{self.path}: its last entry is of offset {self.last[1] + self.base_offset}, "
                f"the segment holds {self.base_offset} to {end_offset}"
            )

"""Up to where offsets may be missing in a log, because compaction removed their records: the file `cleaned-end-offset`.

    version 0 | the exclusive offset, as text, a line each

It says so for this very directory, whatever the topic's policy is by now: below the mark a gap is what compaction
left, at or above it a gap is a loss. It is written before the first segment of a compaction is replaced, and goes back
only where records are truncated.

A log without the file was never compacted here. If its policy says compact, another release or another broker may have
done it before: whatever is missing then counts as removed, and the mark is set at the end.
"""

from __future__ import annotations

from tidelog.base.errors import CorruptLogError, DiskError
from tidelog.base.ids import Offset
from tidelog.base.ports import Disk

MARK_FILE = "cleaned-end-offset"
MARK_VERSION = 0
NEW_SUFFIX = ".cleaned"


def format_mark(end_offset: Offset) -> bytes:
    return f"{MARK_VERSION}\n{end_offset}\n".encode()


def parse_mark(data: bytes, path: str) -> Offset:
    """The inverse of `format_mark`. Raises `CorruptLogError`."""
    lines = data.decode("ascii", "replace").split("\n")
    if len(lines) != 3 or lines[0] != str(MARK_VERSION) or not lines[1].isdecimal() or lines[2]:
        raise CorruptLogError(f"{path}: version {MARK_VERSION} and an offset are expected, a line each")
    return Offset(int(lines[1]))


class CleanedMark:
    """The mark of one log.

    Attributes:
        end_offset: exclusive; 0 for a log that was never compacted.
        is_known: whether there is a file that says so.
    """

    __slots__ = ("_disk", "_path", "end_offset", "is_known")

    def __init__(self, disk: Disk, directory: str) -> None:
        """Nothing is known until `read`."""
        self._disk = disk
        self._path = f"{directory}/{MARK_FILE}"
        self.end_offset = Offset(0)
        self.is_known = False

    def read(self) -> None:
        """Take over the file, which is there. Raises `CorruptLogError`: it cannot be read."""
        self.end_offset = parse_mark(self._disk.read_bytes(self._path), self._path)
        self.is_known = True

    def set(self, end_offset: Offset) -> None:
        """Move it, and sync that. Raises `DiskError`: it is as it was."""
        self._disk.write_atomically(self._path, format_mark(end_offset))
        self.end_offset = end_offset
        self.is_known = True

    def stage(self, end_offset: Offset) -> None:
        """Write where it is to be, synced, beside the file. May run on another thread."""
        file = self._disk.open(self._path + NEW_SUFFIX, create=True)
        try:
            file.truncate(0)
            file.append(format_mark(end_offset))
            file.sync()
        finally:
            file.close()

    def take_staged(self, end_offset: Offset) -> None:
        """Put what was staged into its place. It counts once the directory is synced."""
        self._disk.rename(self._path + NEW_SUFFIX, self._path)
        self.end_offset = end_offset
        self.is_known = True

    def unstage(self) -> None:
        """Remove what was staged, if it still is there."""
        self._disk.remove(self._path + NEW_SUFFIX)

    def on_truncated(self, end_offset: Offset) -> None:
        """What lies beyond will be appended anew: there is no gap in it. Raises `DiskError`: it is as it was."""
        if self.end_offset > end_offset:
            self.set(end_offset)

    def remove(self) -> None:
        """Nothing is left of the log that was compacted."""
        if self.is_known:
            try:
                self._disk.remove(self._path)
            except DiskError:
                self.set(Offset(0))
        self.end_offset = Offset(0)
        self.is_known = False

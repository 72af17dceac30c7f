"""Which segments of a log have a transaction index: the file `.tidelog_aborted` beside them.

    0                  the version
    2                  the number of entries
    0                  base offsets
    42

Most segments have no such index, so one that is gone looks like one that never was, and readers of committed records
would be given aborted ones. Where one is listed and not there, recovery derives it anew. The list is synced before the
recovery point passes a marker, if the disk has room. An entry too many costs time only; a list that is gone is made
anew from the indexes.

Kafka has no counterpart, and takes an index that is absent for an empty one.
"""

from __future__ import annotations

from collections.abc import Iterable

from tidelog.base.ids import Offset
from tidelog.base.ports import Disk

ABORTED_SEGMENTS_FILE = ".tidelog_aborted"
VERSION = "0"


class AbortedSegments:
    """The list of one log.

    Attributes:
        listed: what the file says; empty if it is missing or cannot be read.
    """

    def __init__(self, disk: Disk, directory: str, *, is_there: bool) -> None:
        """Read it, if it is there. Raises DiskError."""
        self._disk = disk
        self._path = f"{directory}/{ABORTED_SEGMENTS_FILE}"
        self.listed: frozenset[Offset] = frozenset()
        if is_there:
            self.listed = _parse(disk.read_bytes(self._path))

    def keep(self, base_offsets: Iterable[Offset]) -> None:
        """Replace the file if it says something else; synced when this returns. On any thread. Raises DiskError."""
        wanted = frozenset(base_offsets)
        if wanted != self.listed:
            lines = VERSION, str(len(wanted)), *map(str, sorted(wanted)), ""
            self._disk.write_atomically(self._path, "\n".join(lines).encode())
            self.listed = wanted


def _parse(data: bytes) -> frozenset[Offset]:
    lines = data.decode(errors="replace").split("\n")
    version, count, *entries = lines if len(lines) > 1 else ("", "")
    is_whole = version == VERSION and entries[-1:] == [""] and count == str(len(entries) - 1)
    if not is_whole or not all(entry.isascii() and entry.isdigit() for entry in entries[:-1]):
        return frozenset()
    return frozenset(Offset(int(entry)) for entry in entries[:-1])

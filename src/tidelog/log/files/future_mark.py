"""The file `future-log` in a log's directory: it is a copy that is to take the place of the log in another directory.

    version 0 | what it is, as text, a line each

```
 copying   ──►   level        ──►   complete    ──►  no file
 a part of       held all that      it is the        an ordinary log
 the log, or     the log did, and   log; what lies
 all of it       one of the two     elsewhere goes
                 was written since
```

Whoever finds both logs after a stop goes by this file. While it says `level` neither log was truncated, so that one of
them is a prefix of the other: the longer one is the log.
"""

from __future__ import annotations

from enum import StrEnum

from tidelog.base.errors import CorruptLogError
from tidelog.base.ports import Disk

FUTURE_MARK_FILE = "future-log"
FUTURE_MARK_VERSION = 0


class FutureMark(StrEnum):
    """See the module."""

    COPYING = "copying"
    LEVEL = "level"
    COMPLETE = "complete"


def format_future_mark(mark: FutureMark) -> bytes:
    return f"{FUTURE_MARK_VERSION}\n{mark}\n".encode()


def parse_future_mark(data: bytes, path: str) -> FutureMark:
    """The inverse of `format_future_mark`. Raises `CorruptLogError`."""
    lines = data.decode("ascii", "replace").split("\n")
    marks = tuple(FutureMark)
    if len(lines) != 3 or lines[0] != str(FUTURE_MARK_VERSION) or lines[1] not in marks or lines[2]:
        raise CorruptLogError(f"{path}: version {FUTURE_MARK_VERSION} and one of {', '.join(marks)} are expected")
    return FutureMark(lines[1])


def read_future_mark(disk: Disk, directory: str) -> FutureMark | None:
    """None for an ordinary log. Raises `CorruptLogError`, DiskError."""
    path = f"{directory}/{FUTURE_MARK_FILE}"
    return parse_future_mark(disk.read_bytes(path), path) if disk.exists(path) else None


def is_unfinished(disk: Disk, directory: str) -> bool:
    """Whether a log is a copy that is being made. Raises `CorruptLogError`, DiskError."""
    return read_future_mark(disk, directory) not in (None, FutureMark.COMPLETE)


def write_future_mark(disk: Disk, directory: str, mark: FutureMark) -> None:
    """Synced when it returns. Raises DiskError: it is the former one, or this."""
    disk.write_atomically(f"{directory}/{FUTURE_MARK_FILE}", format_future_mark(mark))


def remove_future_mark(disk: Disk, directory: str) -> None:
    """From now on it is a log like any other; synced when it returns. Raises DiskError."""
    disk.remove(f"{directory}/{FUTURE_MARK_FILE}")
    disk.sync_dir(directory)

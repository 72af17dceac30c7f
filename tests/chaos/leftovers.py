"""Where a run keeps its files, and what is cleared up of runs that could not do it themselves.

A run holds the lock of its directory. Whoever finds a directory that nobody holds any more ends the processes that
speak of it, undoes what was noted there, and removes it.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

PREFIX = "tidelog-chaos-"
LOCK, UNDO = "lock", "undo.jsonl"


class Home:
    """The directory of one run."""

    def __init__(self, below: Path | None = None) -> None:
        new = Path(tempfile.mkdtemp(prefix=f".{PREFIX}", dir=below))
        self._lock = os.open(new / LOCK, os.O_CREAT | os.O_RDWR)
        fcntl.flock(self._lock, fcntl.LOCK_EX)
        self.path = new.rename(new.with_name(new.name[1:]))  # found by others only when it is held

    def clear(self) -> None:
        """Remove it, and all that was noted."""
        undo(self.path)
        shutil.rmtree(self.path, ignore_errors=True)
        os.close(self._lock)


def note_undoing(home: Path, *command: str) -> None:
    """Before something is made that outlives processes and namespaces: the command that removes it.

    Args:
        home: of the run, or anything below it.
    """
    root = next(one for one in (home, *home.parents) if one.name.startswith(PREFIX))
    with (root / UNDO).open("a") as file:
        file.write(json.dumps(command) + "\n")
        file.flush()
        os.fsync(file.fileno())


def undo(home: Path) -> None:
    """Run what was noted, the last first. It may be that it was undone already: failures are passed over."""
    with suppress(FileNotFoundError):
        for line in reversed((home / UNDO).read_text().splitlines()):
            with suppress(ValueError, OSError):
                subprocess.run(_command(line), capture_output=True, check=False, timeout=60)
        (home / UNDO).unlink()


def clear_leftovers(below: Path | None = None) -> list[str]:
    """What runs that were killed have left. Returns what was cleared up, for people."""
    found = []
    for path in sorted((below or Path(tempfile.gettempdir())).glob(f"{PREFIX}*")):
        with suppress(OSError):
            lock = os.open(path / LOCK, os.O_CREAT | os.O_RDWR)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                ended = _end_processes(path)
                undo(path)
                shutil.rmtree(path, ignore_errors=True)
                found.append(f"{path}, and {ended} processes")
            finally:
                os.close(lock)
    return found


def _end_processes(home: Path) -> int:
    """Those that were started with a file of this run."""
    mark, ended = f"{home}{os.sep}".encode(), 0
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if any(one.startswith(mark) for one in (process / "cmdline").read_bytes().split(b"\0")):
                os.kill(int(process.name), signal.SIGKILL)
                ended += 1
    return ended


def _command(line: str) -> Sequence[str]:
    command = json.loads(line)
    if not isinstance(command, list) or not command:
        raise ValueError(line)
    return command

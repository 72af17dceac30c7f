"""Whether the disk of one log directory can be relied on, and whether it is known to be full.

A full disk is no failure: what is there is served, and what finds no room is refused.
"""

from __future__ import annotations

import errno
import logging

from tidelog.base.errors import DiskError
from tidelog.base.ports import Disk
from tidelog.log.directory import META_PROPERTIES_FILE

logger = logging.getLogger("tidelog.server.log_files")

PROBE_FILE = ".tidelog-probe"
FULL = (errno.ENOSPC, errno.EDQUOT)


def is_full(error: DiskError) -> bool:
    """Whether there was no room, which is no fault of the disk."""
    return error.errno in FULL


def is_out_of_files(error: DiskError) -> bool:
    """Whether this process, or the system, has as many files open as it may: no fault of the disk either."""
    return error.errno in (errno.EMFILE, errno.ENFILE)


def is_passing(error: DiskError) -> bool:
    """Whether what was refused may be granted later, of a disk that works: it is to be tried again."""
    return is_full(error) or is_out_of_files(error)


class DiskHealth:
    """See the module. `probe` and `look_for_room` run on the executor's threads.

    Attributes:
        is_known_full: from the first write that found no room until there is room again.
    """

    def __init__(self, disk: Disk, path: str) -> None:
        self.is_known_full = False
        self._disk = disk
        self._path = path

    def probe(self) -> DiskError | None:
        """After an error: write, sync and read a small file. Returns how the disk refused, if it did."""
        path = f"{self._path}/{PROBE_FILE}"
        try:
            self._disk.list(self._path)
            if not self._disk.exists(f"{self._path}/{META_PROPERTIES_FILE}"):
                return DiskError(self._path, f"{META_PROPERTIES_FILE} is gone: it was unmounted, or removed")
            self._disk.write_atomically(path, b"tidelog\n")
            self._disk.read_bytes(path)
            self._disk.remove(path)
        except DiskError as error:
            return None if is_passing(error) else error
        return None

    def on_full(self) -> None:
        """Say so once, until there is room again."""
        if not self.is_known_full:
            self.is_known_full = True
            logger.error(
                "%s: the disk is full: what is there is served, producers are refused with KAFKA_STORAGE_ERROR until "
                "there is room: delete topics, shorten their retention, or enlarge the disk",
                self._path,
            )

    def look_for_room(self) -> None:
        """Whether a disk that was full has room again."""
        if self.is_known_full:
            self._disk.write_atomically(f"{self._path}/{PROBE_FILE}", bytes(65_536))
            self._disk.remove(f"{self._path}/{PROBE_FILE}")
            self.is_known_full = False
            logger.warning("%s: the disk has room again", self._path)

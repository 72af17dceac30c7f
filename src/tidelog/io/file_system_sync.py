"""Sync a whole file system: one commit of its journal, where each file and each directory would take one of its own."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable

REACH_THE_DISK = {
    0xEF53: "ext4",
    0x58465342: "xfs",
    0x9123683E: "btrfs",
    0xF2F52010: "f2fs",
    0x2FC12FC1: "zfs",
    0x794C7630: "overlay",
    0x01021994: "tmpfs",
}
"""File systems that are known to write all out at this call. FUSE hands the data to its server, and no more: that
keeps it in memory as it likes, and who syncs each file is safe there."""


class FileSystemSync:
    """The file systems that some directories lie on. To be made before anything is written: see `of`."""

    def __init__(self, syncfs: Callable[[int], int]) -> None:
        self._syncfs = syncfs
        self._descriptors: dict[int, tuple[int, str]] = {}

    @staticmethod
    def of(directories: Iterable[str]) -> FileSystemSync | None:
        """None where the system has no such call, or would not tell of errors by it (Linux before 5.8), or where one
        of the file systems is not known to heed it.

        A descriptor is told of the errors since it was opened: so open it first, then write, then `sync`.

        Raises:
            OSError: a directory cannot be opened.
        """
        syncfs = _find_syncfs()
        if syncfs is None:
            return None
        made = FileSystemSync(syncfs)
        try:
            for directory in directories:
                device = os.stat(directory).st_dev
                if device not in made._descriptors:
                    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
                    made._descriptors[device] = (descriptor, directory)
                    if _kind_of(descriptor) not in REACH_THE_DISK:
                        made.close()
                        return None
        except OSError:
            made.close()
            raise
        return made

    def sync(self) -> None:
        """Return once all that was written there, by whomever, would survive a loss of power. Raises OSError."""
        for descriptor, path in self._descriptors.values():
            number = self._syncfs(descriptor)
            if number:
                raise OSError(number, os.strerror(number), path)

    def close(self) -> None:
        for descriptor, _ in self._descriptors.values():
            os.close(descriptor)
        self._descriptors = {}


def _kind_of(descriptor: int) -> int | None:
    """The number of the kind of file system (statfs(2)); None if that cannot be told."""
    import ctypes

    facts = ctypes.create_string_buffer(512)  # the kind comes first; all of it takes 120 bytes
    if ctypes.CDLL(None).fstatfs(descriptor, facts):
        return None
    return int.from_bytes(facts.raw[: ctypes.sizeof(ctypes.c_long)], sys.byteorder)


def _find_syncfs() -> Callable[[int], int] | None:
    """Returns the error's number, 0 for none."""
    if not sys.platform.startswith("linux"):
        return None
    release = os.uname().release.split(".")
    if not (release[0].isdigit() and release[1].isdigit() and (int(release[0]), int(release[1])) >= (5, 8)):
        return None
    import ctypes  # for the few who write many

    syncfs = getattr(ctypes.CDLL(None, use_errno=True), "syncfs", None)
    if syncfs is None:
        return None
    return lambda descriptor: ctypes.get_errno() if syncfs(descriptor) else 0

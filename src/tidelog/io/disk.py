"""The real disk: descriptors with explicit positions, and every refusal a `DiskError` that names the path."""

from __future__ import annotations

import errno
import fcntl
import os
from asyncio import _get_running_loop
from collections.abc import Callable, Mapping
from time import perf_counter_ns, sleep
from typing import NoReturn

from tidelog.base.errors import DiskError
from tidelog.base.ports import Buffer
from tidelog.io.file_system_sync import FileSystemSync

_OPEN_FLAGS = os.O_RDWR | os.O_CLOEXEC
_NO_WAIT: int = getattr(os, "RWF_NOWAIT", 0)

BOOT_ID_PATH = "/proc/sys/kernel/random/boot_id"

SYNC_TOGETHER_MIN = 16
"""From so many files on it pays to sync all that the file system has to write, whoever wrote it."""


OUT_OF_FILES = (errno.EMFILE, errno.ENFILE)
FILE_AWAITED_SECONDS = 0.05
FILES_AWAITED_MAX = 20
"""So often a thread waits so long for others to close a file: a second is a few hundred truncations."""


OnSynced = Callable[[int], None]
"""Told how many nanoseconds a sync took, on the thread that did it."""


def _refused(path: str, error: OSError, doing: str) -> NoReturn:
    reason = error.strerror or str(error)
    if error.errno in OUT_OF_FILES:
        reason += "; raise the limit (ulimit -n, LimitNOFILE= of systemd, --ulimit nofile= of a container)"
    raise DiskError(path, f"cannot {doing}: {reason}", errno=error.errno) from error


def _open(path: str, flags: int) -> int:
    """As `os.open`. Where too many files are open, a thread waits for others to close some; an event loop does not."""
    for _ in range(FILES_AWAITED_MAX):
        try:
            return os.open(path, flags, 0o644)
        except OSError as error:
            if error.errno not in OUT_OF_FILES or _get_running_loop() is not None:
                raise
        sleep(FILE_AWAITED_SECONDS)
    return os.open(path, flags, 0o644)


class RealFile:
    """An open file. The end is tracked here, so that an append is one system call.

    One object may write to a path at a time; any number may read. A file that is dropped without `close` is closed
    when the last reader lets go of it, so a reader on another thread never finds its descriptor gone.
    """

    __slots__ = ("_descriptor", "_end", "_on_synced", "path")

    def __init__(self, path: str, descriptor: int, on_synced: OnSynced | None = None) -> None:
        self.path = path
        self._descriptor = descriptor
        self._on_synced = on_synced
        self._end = self._stat_size()

    def _stat_size(self) -> int:
        try:
            return os.fstat(self._descriptor).st_size
        except OSError as error:
            _refused(self.path, error, "tell the size")

    def size(self) -> int:
        """Bytes in the file now."""
        return self._end

    def read_at(self, position: int, size: int) -> bytes:
        """Up to `size` bytes from `position`; fewer only at the end of the file."""
        try:
            data = os.pread(self._descriptor, size, position)
            if len(data) == size or not data:
                return data
            pieces = [data]
            missing = size - len(data)
            while missing > 0:
                data = os.pread(self._descriptor, missing, position + size - missing)
                if not data:
                    break
                pieces.append(data)
                missing -= len(data)
            return b"".join(pieces)
        except OSError as error:
            _refused(self.path, error, f"read {size} bytes at {position}")

    def read_cached_at(self, position: int, size: int) -> Buffer | None:
        """As `read_at` if the page cache has all of it; None if it might have to wait for the disk.

        Where the system cannot tell (not Linux, or a file system without RWF_NOWAIT), it reads.
        """
        if not _NO_WAIT:
            return self.read_at(position, size)
        size = min(size, self._end - position)
        if size <= 0:
            return b""
        data = bytearray(size)
        try:
            read = os.preadv(self._descriptor, [data], position, _NO_WAIT)
        except BlockingIOError:
            return None
        except OSError as error:
            if error.errno in (errno.EOPNOTSUPP, errno.EINVAL):
                return self.read_at(position, size)
            _refused(self.path, error, f"read {size} bytes at {position}")
        return data if read == size else None

    def append(self, data: Buffer) -> None:
        """Write all of `data` at the end. After an error the file may hold a part of it."""
        size = len(data)
        try:
            written = os.pwrite(self._descriptor, data, self._end)
        except OSError as error:
            self._end = self._stat_size()
            _refused(self.path, error, f"append {size} bytes")
        self._end += written
        if written != size:
            self._write_rest(self._end, memoryview(data)[written:])

    def write_at(self, position: int, data: Buffer) -> None:
        """Write all of `data` at `position`, growing the file when needed."""
        self._write_rest(position, memoryview(data))

    def _write_rest(self, position: int, rest: memoryview) -> None:
        try:
            while rest:
                written = os.pwrite(self._descriptor, rest, position)
                if not written:
                    raise OSError(errno.EIO, "the disk took no bytes")
                position += written
                rest = rest[written:]
        except OSError as error:
            self._end = self._stat_size()
            _refused(self.path, error, f"write {len(rest)} bytes at {position}")
        self._end = max(self._end, position)

    def truncate(self, size: int) -> None:
        """Cut (or zero-extend) to `size` bytes."""
        try:
            os.ftruncate(self._descriptor, size)
        except OSError as error:
            self._end = self._stat_size()
            _refused(self.path, error, f"cut to {size} bytes")
        self._end = size

    def sync(self) -> None:
        """Return once the contents, and the size, would survive a loss of power."""
        started_ns = perf_counter_ns()
        try:
            os.fdatasync(self._descriptor)
        except OSError as error:
            _refused(self.path, error, "sync")
        if self._on_synced is not None:
            self._on_synced(perf_counter_ns() - started_ns)

    def close(self) -> None:
        """Close; a second call does nothing."""
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            try:
                os.close(descriptor)
            except OSError as error:
                _refused(self.path, error, "close")

    def __del__(self) -> None:
        descriptor = getattr(self, "_descriptor", -1)
        if descriptor >= 0:
            os.close(descriptor)


class RealLock:
    """An exclusive hold on a file, until `release` or the end of the process."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def release(self) -> None:
        """Let go; a second call does nothing. The file stays: removing it would let two hold it."""
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)


class RealDisk:
    """The `Disk` of a real node.

    Attributes:
        on_synced: told of each sync of a file that is opened from now on.
    """

    on_synced: OnSynced | None = None

    def open(self, path: str, *, create: bool = False) -> RealFile:
        """Open for reading and writing; with `create`, make an empty file if none is there.

        A file that this process may only read is opened for that: who looks into another's directory needs no more.
        """
        try:
            descriptor = _open(path, _OPEN_FLAGS | os.O_CREAT if create else _OPEN_FLAGS)
        except OSError as error:
            if create or error.errno not in (errno.EACCES, errno.EPERM, errno.EROFS):
                _refused(path, error, "create" if create else "open")
            try:
                descriptor = _open(path, os.O_RDONLY | os.O_CLOEXEC)
            except OSError as second:
                _refused(path, second, "open")
        return RealFile(path, descriptor, self.on_synced)

    def exists(self, path: str) -> bool:
        return os.path.lexists(path)

    def is_directory(self, path: str) -> bool:
        return os.path.isdir(path)

    def list_directories(self, path: str) -> list[str]:
        """The names of the directories in a directory, sorted. Asks nothing about each, where the system tells."""
        try:
            with os.scandir(path) as entries:
                return sorted(entry.name for entry in entries if entry.is_dir())
        except OSError as error:
            _refused(path, error, "list the directory")

    def list(self, path: str) -> list[str]:
        """The names in a directory, sorted."""
        try:
            return sorted(os.listdir(path))
        except OSError as error:
            _refused(path, error, "list the directory")

    def make_dirs(self, path: str) -> None:
        """Create the directory and its parents where missing."""
        try:
            os.makedirs(path, exist_ok=True)
        except OSError as error:
            _refused(path, error, "create the directory")

    def rename(self, source: str, target: str) -> None:
        """Rename a file or a directory, replacing a file that is there (atomic)."""
        try:
            os.rename(source, target)
        except OSError as error:
            _refused(source, error, f"rename to {target}")

    def remove(self, path: str) -> None:
        """Remove a file; it is no error if it is gone."""
        try:
            os.unlink(path)
        except FileNotFoundError:
            pass
        except OSError as error:
            _refused(path, error, "remove")

    def remove_tree(self, path: str) -> None:
        """Remove a directory and all in it; it is no error if it is gone."""
        import shutil  # brings every compressor along: not at start

        try:
            shutil.rmtree(path)
        except FileNotFoundError:
            pass
        except OSError as error:
            _refused(path, error, "remove the directory")

    def sync_dir(self, path: str) -> None:
        """Return once the names in the directory would survive a loss of power."""
        try:
            descriptor = _open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
        except OSError as error:
            _refused(path, error, "sync the directory")

    def read_bytes(self, path: str) -> bytes:
        """A whole (small) file."""
        file = self.open(path)
        try:
            return file.read_at(0, file.size())
        finally:
            file.close()

    def write_atomically(self, path: str, data: bytes) -> None:
        """Replace a whole (small) file: temporary file, sync, rename, sync of the directory.

        After a crash at any step the path holds the old contents or the new.
        """
        temporary = f"{path}.tmp"
        file = self.open(temporary, create=True)
        try:
            file.truncate(0)
            file.append(data)
            file.sync()
        finally:
            file.close()
        self.rename(temporary, path)
        self.sync_dir(os.path.dirname(path) or ".")

    def write_all_atomically(self, files: Mapping[str, bytes]) -> None:
        """As `write_atomically` for each of them, synced together: the contents before the first name changes."""
        directories = list(dict.fromkeys(os.path.dirname(path) or "." for path in files))
        together: FileSystemSync | None = None
        try:
            if len(files) >= SYNC_TOGETHER_MIN:
                together = FileSystemSync.of(directories)
            for path, data in files.items():
                file = self.open(f"{path}.tmp", create=True)
                try:
                    file.truncate(0)
                    file.append(data)
                    if together is None:
                        file.sync()
                finally:
                    file.close()
            if together is not None:
                together.sync()
            for path in files:
                self.rename(f"{path}.tmp", path)
            if together is not None:
                together.sync()
            else:
                for directory in directories:
                    self.sync_dir(directory)
        except OSError as error:
            _refused(error.filename or directories[0], error, "sync the file system")
        finally:
            if together is not None:
                together.close()

    def lock(self, path: str) -> RealLock:
        """Take an exclusive lock on a file until closed. Raises `DiskError` if another process holds it.

        Two kinds at once: `flock` also keeps a second holder in this process out, the record lock is the one that
        a Java process would see.
        """
        try:
            descriptor = os.open(path, _OPEN_FLAGS | os.O_CREAT, 0o644)
        except OSError as error:
            _refused(path, error, "create")
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(descriptor)
            if error.errno in (errno.EAGAIN, errno.EACCES):
                raise DiskError(
                    path,
                    "another process holds it: only one node may use a data directory; stop that one, or name another "
                    "directory",
                    errno=errno.EAGAIN,
                ) from error
            _refused(path, error, "lock")
        return RealLock(descriptor)

    def free_bytes(self, path: str) -> int:
        """What this process may still write there."""
        try:
            facts = os.statvfs(path)
        except OSError as error:
            _refused(path, error, "tell the free space")
        return facts.f_bavail * facts.f_frsize

    def total_bytes(self, path: str) -> int:
        """How large the file system is that the path lies on."""
        try:
            facts = os.statvfs(path)
        except OSError as error:
            _refused(path, error, "tell the size of the file system")
        return facts.f_blocks * facts.f_frsize

    def boot_id(self) -> str | None:
        """What Linux drew when it started; None on other systems."""
        try:
            with open(BOOT_ID_PATH, encoding="ascii") as file:
                return file.read().strip() or None
        except OSError:
            return None

"""A disk in memory: it forgets what was not synced when the power fails, rots, fills up, and refuses on demand.

a file         [ page | page | page | pa                what programs read
  synced       [ page | old                             what is on the platter: pages that were written over since
                        ^ synced size                   are kept as they were, until the next sync
a directory    names now, and names as of its last sync
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Mapping
from random import Random

from tidelog.base.errors import DiskError
from tidelog.base.ports import Buffer

PAGE_SIZE_BYTES = 512
"""What a disk writes wholly or not at all."""
ROOM_BYTES = 1 << 40

OnChange = Callable[[str, str, Buffer], None]
"""Told of each change before it is made: the operation, the path, what is written."""


class Contents:
    """What a file holds, whatever it is called, and what of it is synced.

    Attributes:
        data: as it is read. To change it here is what rot does: the disk does not know.
        bad_pages: those that the disk knows it cannot read any more, by number, until they are written anew.
    """

    __slots__ = ("_old_pages", "_synced_size", "bad_pages", "data")

    def __init__(self) -> None:
        self.data = bytearray()
        self.bad_pages: set[int] = set()
        self._synced_size = 0
        self._old_pages: dict[int, bytes] = {}

    @property
    def synced(self) -> bytes:
        """What is left if the power fails and nothing else was written."""
        held = bytearray(self.data[: self._synced_size])
        for page in sorted(self._old_pages):
            old, start = self._old_pages[page], page * PAGE_SIZE_BYTES
            if start > len(held):
                held.extend(bytes(start - len(held)))
            held[start : start + len(old)] = old
        return bytes(held)

    @synced.setter
    def synced(self, held: bytes) -> None:
        self._synced_size = len(held)
        self._old_pages = {
            start // PAGE_SIZE_BYTES: held[start : start + PAGE_SIZE_BYTES]
            for start in range(0, len(held), PAGE_SIZE_BYTES)
        }

    @property
    def synced_bytes(self) -> int:
        """How much of the file, from its start, is as it would be after a loss of power."""
        first = min(self._old_pages, default=None)
        return self._synced_size if first is None else min(first * PAGE_SIZE_BYTES, self._synced_size)

    def mark_synced(self) -> None:
        self._synced_size = len(self.data)
        self._old_pages.clear()

    def write_at(self, position: int, piece: Buffer) -> None:
        """Zeros fill what lies between the end and `position`."""
        self._keep_pages(min(position, len(self.data)), position + len(piece))
        if position > len(self.data):
            self.data.extend(bytes(position - len(self.data)))
        self.data[position : position + len(piece)] = piece
        if self.bad_pages:
            self.bad_pages.difference_update(
                range(position // PAGE_SIZE_BYTES, -(-(position + len(piece)) // PAGE_SIZE_BYTES))
            )

    def is_bad(self, start: int, stop: int) -> bool:
        """Whether any page of [start, stop) cannot be read."""
        return any(start < (page + 1) * PAGE_SIZE_BYTES and page * PAGE_SIZE_BYTES < stop for page in self.bad_pages)

    def truncate(self, size: int) -> None:
        """Cut, or extend with zeros."""
        self._keep_pages(min(size, len(self.data)), max(size, self._synced_size))
        if size < len(self.data):
            del self.data[size:]
        else:
            self.data.extend(bytes(size - len(self.data)))

    def _keep_pages(self, start: int, stop: int) -> None:
        """[start, stop) is about to change: what of it is synced stays known."""
        synced_size, old_pages = self._synced_size, self._old_pages
        stop = min(stop, synced_size)
        if start >= stop:
            return
        for page in range(start // PAGE_SIZE_BYTES, -(-stop // PAGE_SIZE_BYTES)):
            if page not in old_pages:
                first = page * PAGE_SIZE_BYTES
                old_pages[page] = bytes(self.data[first : min(first + PAGE_SIZE_BYTES, synced_size)])


class SimulatedFile:
    """An open file. It reads on after its name is gone."""

    def __init__(self, disk: SimulatedDisk, path: str, contents: Contents) -> None:
        self.path = path
        self._disk = disk
        self._contents = contents

    def size(self) -> int:
        """Bytes in the file now."""
        return len(self._contents.data)

    def read_at(self, position: int, size: int) -> bytes:
        """Up to `size` bytes from `position`; fewer only at the end of the file."""
        self._disk.read_count += 1
        self._disk.admit_anything(self.path, "read")
        if self._contents.is_bad(position, position + size):
            raise DiskError(self.path, f"cannot read {size} bytes at {position}", errno=errno.EIO)
        return bytes(memoryview(self._contents.data)[position : position + size])

    def read_cached_at(self, position: int, size: int) -> Buffer | None:
        """As `read_at`; None where the disk's `is_cold` says so."""
        if self._disk.is_cold():
            return None
        return self.read_at(position, size)

    def append(self, data: Buffer) -> None:
        """Write all of `data` at the end; when the disk is full, a part of it."""
        self._disk.append_count += 1
        self.write_at(len(self._contents.data), data)

    def write_at(self, position: int, data: Buffer) -> None:
        """Write all of `data` at `position`; when the disk is full, a part of it. What is replaced takes no room."""
        replaced = min(max(len(self._contents.data) - position, 0), len(data))
        written = replaced + self._disk.admit_write(self.path, len(data) - replaced)
        self._disk.on_change("write", self.path, data)
        self._contents.write_at(position, data if written == len(data) else memoryview(data)[:written])
        if written < len(data):
            raise DiskError(self.path, "no space left", errno=errno.ENOSPC)

    def truncate(self, size: int) -> None:
        """Cut (or zero-extend) to `size` bytes."""
        self._disk.admit(self.path, "truncate")
        self._disk.on_change(f"truncate to {size}", self.path, b"")
        self._contents.truncate(size)

    def sync(self) -> None:
        """What is in the file now survives a loss of power."""
        self._disk.admit(self.path, "sync")
        self._disk.on_change("sync", self.path, b"")
        self._disk.sync_count += 1
        self._contents.mark_synced()

    def close(self) -> None:
        """Nothing is held that would have to be let go."""


class SimulatedLock:
    """An exclusive hold on a file, until `release` or the end of the process."""

    def __init__(self, disk: SimulatedDisk, path: str) -> None:
        self._disk = disk
        self._path = path

    def release(self) -> None:
        """Let go; a second call does nothing."""
        self._disk.locked.discard(self._path)


class SimulatedDisk:
    """A directory tree in memory, as a `Disk`.

    Attributes:
        files: what is there now, by path.
        refusals: operations that fail: `truncate`, `sync`, `rename`, `remove`, `create`, or a path's ending.
        broken: directories in which everything fails, as on a disk that died.
        is_unplugged: whether everything fails everywhere.
        free_write_bytes: once used up, writes are cut short and fail; None is never.
        is_cold: asked whether the next read that must not wait would have to.
        on_change: told of each change before it is made.
        sync_count: how often a file was synced.
        append_count: calls of `append`.
        read_count: calls of `read_at`.
    """

    def __init__(self) -> None:
        self.files: dict[str, Contents] = {}
        self.directories: set[str] = {"", "."}
        self.locked: set[str] = set()
        self.refusals: set[str] = set()
        self.broken: set[str] = set()
        self.is_unplugged = False
        self.free_write_bytes: int | None = None
        self.is_cold: Callable[[], bool] = _never
        self.on_change: OnChange = _nobody_told
        self.sync_count = 0
        self.append_count = 0
        self.read_count = 0
        self._boots = 1
        self._synced_names: dict[str, Contents] = {}
        self._moved: list[tuple[str, str]] = []  # directories that were renamed and whose parents are not synced yet

    # Faults.

    def admit(self, path: str, operation: str) -> None:
        """Whether a change may be made. Raises `DiskError` if not."""
        self.admit_anything(path, operation)
        if operation in self.refusals or any(path.endswith(refused) for refused in self.refusals):
            raise DiskError(path, f"refused to {operation}", errno=errno.EIO)

    def admit_anything(self, path: str, operation: str) -> None:
        """What `refusals` let pass: only a broken disk refuses to look."""
        if self.is_unplugged or any(path == broken or path.startswith(f"{broken}/") for broken in self.broken):
            raise DiskError(path, f"refused to {operation}", errno=errno.EIO)

    def admit_write(self, path: str, size: int) -> int:
        """How many bytes of `size` find room."""
        self.admit(path, "write")
        if self.free_write_bytes is None:
            return size
        written = min(size, self.free_write_bytes)
        self.free_write_bytes -= written
        return written

    def rot(self, path: str, random: Random) -> int:
        """Flip one bit of a file for good. Returns at which byte; raises ValueError if there is none."""
        contents = self.files[path]
        position = random.randrange(len(contents.data))
        contents.data[position] ^= 1 << random.randrange(8)
        return position

    def synced_bytes(self, path: str) -> int:
        """How much of a file, from its start, survives a loss of power."""
        contents = self._synced_names.get(path)
        return 0 if contents is None or contents is not self.files.get(path) else contents.synced_bytes

    def boot_id(self) -> str:
        """Another one after each loss of power."""
        return f"boot-{self._boots}"

    def synced_data(self, path: str) -> bytes | None:
        """What of a file is left if the power fails and nothing else was written; None for no such file."""
        contents = self._synced_names.get(path)
        return None if contents is None else contents.synced

    def crash(self) -> None:
        """The process is gone, the machine is not: what was written is there."""
        self.locked.clear()

    def lose_power(self, random: Random) -> None:
        """Keep what was synced; of the rest a part of each file, and all or none of each directory's names."""
        self._boots += 1
        keeps_new = {directory: random.random() < 0.5 for directory in sorted({*self.directories, *self._parents()})}
        for source, target in reversed(self._moved):
            if keeps_new.get(_parent(target), False):
                self._synced_names = _moved_names(self._synced_names, source, target)
            else:
                self.files = _moved_names(self.files, target, source)
                self._move_directories(target, source)
                keeps_new[source] = keeps_new.get(target, False)
        self._moved = []
        survivors = {
            path: contents
            for names, is_new in ((self.files, True), (self._synced_names, False))
            for path, contents in names.items()
            if keeps_new.get(_parent(path), False) == is_new
        }
        for contents in {id(each): each for each in survivors.values()}.values():
            contents.data = bytearray(_torn(bytes(contents.data), contents.synced, random))
            contents.mark_synced()
        self.files = dict(survivors)
        self._synced_names = dict(survivors)
        for path in survivors:
            self._add_directories(_parent(path))
        self.locked.clear()

    def _parents(self) -> set[str]:
        return {_parent(target) for _, target in self._moved}

    # The port.

    def open(self, path: str, *, create: bool = False) -> SimulatedFile:
        """Open for reading and writing; with `create`, make an empty file if none is there."""
        self.admit_anything(path, "open")
        if path not in self.files:
            if not create:
                raise DiskError(path, "cannot open: no such file", errno=errno.ENOENT)
            self.admit(path, "create")
            if _parent(path) not in self.directories:
                raise DiskError(path, "cannot create: no such directory", errno=errno.ENOENT)
            self.on_change("create", path, b"")
            self.files[path] = Contents()
        return SimulatedFile(self, path, self.files[path])

    def exists(self, path: str) -> bool:
        """Whether a file or a directory is there."""
        return path in self.files or path in self.directories

    def is_directory(self, path: str) -> bool:
        """Whether a directory is there."""
        return path in self.directories

    def list_directories(self, path: str) -> list[str]:
        """The names of the directories in a directory, sorted."""
        return [name for name in self.list(path) if f"{path}/{name}" in self.directories]

    def list(self, path: str) -> list[str]:
        """The names in a directory, sorted."""
        self.admit_anything(path, "list")
        if path not in self.directories:
            raise DiskError(path, "cannot list: no such directory", errno=errno.ENOENT)
        inside = [each[len(path) + 1 :] for each in {*self.files, *self.directories} if each.startswith(f"{path}/")]
        return sorted(name for name in inside if "/" not in name)

    def make_dirs(self, path: str) -> None:
        """Create the directory and its parents where missing. They survive: only names of files can be lost."""
        self.admit_anything(path, "create the directory")
        if path not in self.directories:
            self.on_change("make", path, b"")
            self._add_directories(path)

    def rename(self, source: str, target: str) -> None:
        """Rename a file or a directory, replacing a file that is there (atomic)."""
        self.admit(source, "rename")
        if not self.exists(source):
            raise DiskError(source, "cannot rename: no such file", errno=errno.ENOENT)
        self.on_change(f"rename to {target}", source, b"")
        if source in self.files:
            self.files[target] = self.files.pop(source)
            return
        self.files = _moved_names(self.files, source, target)
        self._move_directories(source, target)
        self._moved.append((source, target))

    def remove(self, path: str) -> None:
        """Remove a file; it is no error if it is gone."""
        self.admit(path, "remove")
        self.on_change("remove", path, b"")
        self.files.pop(path, None)

    def remove_tree(self, path: str) -> None:
        """Remove a directory and all in it; it is no error if it is gone."""
        self.admit_anything(path, "remove the directory")
        self.on_change("remove", path, b"")
        for each in [each for each in self.files if each.startswith(f"{path}/")]:
            del self.files[each]
        self.directories = {each for each in self.directories if each != path and not each.startswith(f"{path}/")}

    def sync_dir(self, path: str) -> None:
        """The names in the directory survive a loss of power."""
        self.admit(path, "sync")
        self.on_change("sync", path, b"")
        still_moved = []
        for source, target in self._moved:
            if _parent(target) == path:
                self._synced_names = _moved_names(self._synced_names, source, target)
            else:
                still_moved.append((source, target))
        self._moved = still_moved
        for each in [each for each in self._synced_names if each.startswith(f"{path}/")]:
            child = f"{path}/{each[len(path) + 1 :].partition('/')[0]}"  # the file itself, or a directory on its way
            if child not in self.directories and child not in self.files:
                del self._synced_names[each]
        for each, contents in self.files.items():
            if _parent(each) == path:
                self._synced_names[each] = contents

    def read_bytes(self, path: str) -> bytes:
        """A whole (small) file."""
        return bytes(self.open(path)._contents.data)

    def write_atomically(self, path: str, data: bytes) -> None:
        """Replace a whole (small) file: temporary file, sync, rename, sync of the directory."""
        self.write_all_atomically({path: data})

    def write_all_atomically(self, files: Mapping[str, bytes]) -> None:
        """As `write_atomically` for each of them, synced together: the contents before the first name changes."""
        for path, data in files.items():
            file = self.open(f"{path}.tmp", create=True)
            file.truncate(0)
            file.append(data)
            file.sync()
        for path in files:
            self.rename(f"{path}.tmp", path)
        for directory in dict.fromkeys(_parent(path) for path in files):
            self.sync_dir(directory)

    def lock(self, path: str) -> SimulatedLock:
        """Take an exclusive lock on a file. Raises `DiskError` if another process holds it."""
        self.admit_anything(path, "lock")
        if path in self.locked:
            raise DiskError(path, "another process holds it", errno=errno.EAGAIN)
        self.locked.add(path)
        self.files.setdefault(path, Contents())
        return SimulatedLock(self, path)

    def free_bytes(self, path: str) -> int:
        """What may still be written."""
        self.admit_anything(path, "tell the free space")
        return ROOM_BYTES if self.free_write_bytes is None else self.free_write_bytes

    def total_bytes(self, path: str) -> int:
        """How large the disk is."""
        self.admit_anything(path, "tell the size")
        return 2 * ROOM_BYTES

    def _add_directories(self, path: str) -> None:
        parts = path.split("/")
        self.directories.update("/".join(parts[:count]) for count in range(1, len(parts) + 1))

    def _move_directories(self, source: str, target: str) -> None:
        inside = {each for each in self.directories if each == source or each.startswith(f"{source}/")}
        self.directories -= inside
        self.directories |= {target + each[len(source) :] for each in inside}


def _parent(path: str) -> str:
    return path.rpartition("/")[0]


def _moved_names(names: dict[str, Contents], source: str, target: str) -> dict[str, Contents]:
    """The same files, under another directory."""
    inside = f"{source}/"
    return {
        target + path[len(source) :] if path.startswith(inside) else path: contents for path, contents in names.items()
    }


def _never() -> bool:
    return False


def _nobody_told(operation: str, path: str, data: Buffer) -> None:
    pass


def _torn(data: bytes, synced: bytes, random: Random) -> bytes:
    """What a file holds after the power failed: its size and its pages, each of them the old one or the new."""
    if data == synced:
        return data
    shorter, longer = sorted((len(data), len(synced)))
    size = random.choice([shorter, longer, random.randint(shorter, longer)])
    result = bytearray(size)
    for start in range(0, size, PAGE_SIZE_BYTES):
        stop = min(start + PAGE_SIZE_BYTES, size)
        old, new = synced[start:stop], data[start:stop]
        if old == new[: len(old)] and (len(old) == stop - start or random.random() < 0.7):
            chosen = new if len(new) >= len(old) else old
        else:
            chosen = random.choice([old, new])
        result[start : start + len(chosen)] = chosen
    return bytes(result)

"""A small disk in memory, as a `Disk`: it forgets what was not synced when the power fails, and refuses on demand."""

from __future__ import annotations

from collections.abc import Mapping
from random import Random

from tidelog.base.errors import DiskError
from tidelog.base.ports import Buffer


class Contents:
    """What a file holds, whatever it is called, and what of it is synced."""

    def __init__(self) -> None:
        self.data = bytearray()
        self.synced = b""


class MemoryFile:
    """An open file. It reads on after its name is gone."""

    def __init__(self, disk: MemoryDisk, path: str, contents: Contents) -> None:
        self.path = path
        self._disk = disk
        self._contents = contents

    def size(self) -> int:
        return len(self._contents.data)

    def read_at(self, position: int, size: int) -> bytes:
        self._disk.read_count += 1
        self._disk.admit_anything(self.path, "read")
        return bytes(self._contents.data[position : position + size])

    def read_cached_at(self, position: int, size: int) -> bytes:
        return self.read_at(position, size)

    def append(self, data: Buffer) -> None:
        self._disk.append_count += 1
        self.write_at(len(self._contents.data), data)

    def write_at(self, position: int, data: Buffer) -> None:
        written = self._disk.admit_write(self.path, len(data))
        held = self._contents.data
        if position > len(held):
            held.extend(bytes(position - len(held)))
        held[position : position + written] = data[:written]
        if written < len(data):
            raise DiskError(self.path, "no space left", errno=28)

    def truncate(self, size: int) -> None:
        self._disk.admit(self.path, "truncate")
        held = self._contents.data
        if size < len(held):
            del held[size:]
        else:
            held.extend(bytes(size - len(held)))

    def sync(self) -> None:
        self._disk.admit(self.path, "sync")
        self._disk.sync_count += 1
        self._contents.synced = bytes(self._contents.data)

    def close(self) -> None:
        pass


class MemoryLock:
    def __init__(self, disk: MemoryDisk, path: str) -> None:
        self._disk = disk
        self._path = path

    def release(self) -> None:
        self._disk.locked.discard(self._path)


class MemoryDisk:
    """A directory tree in memory.

    Attributes:
        files: what is there now, by path.
        refusals: operations that fail: `truncate`, `sync`, `rename`, `remove`, `create`, or a path's ending.
        broken: directories in which everything fails, as on a disk that died.
        free_write_bytes: once used up, writes are cut short and fail; None is never.
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
        self.free_write_bytes: int | None = None
        self.sync_count = 0
        self.append_count = 0
        self.read_count = 0
        self._synced_names: dict[str, Contents] = {}

    # Faults.

    def admit(self, path: str, operation: str) -> None:
        self.admit_anything(path, operation)
        if operation in self.refusals or any(path.endswith(refused) for refused in self.refusals):
            raise DiskError(path, f"refused to {operation}", errno=5)

    def admit_anything(self, path: str, operation: str) -> None:
        """What `refusals` let pass: only a broken disk refuses to look."""
        if any(path == broken or path.startswith(f"{broken}/") for broken in self.broken):
            raise DiskError(path, f"refused to {operation}", errno=5)

    def admit_write(self, path: str, size: int) -> int:
        self.admit(path, "write")
        if self.free_write_bytes is None:
            return size
        written = min(size, self.free_write_bytes)
        self.free_write_bytes -= written
        return written

    def lose_power(self, random: Random) -> None:
        """Keep what was synced; of the rest a part of each file, and all or none of each directory's names."""
        names = {directory: random.random() < 0.5 for directory in sorted(self.directories)}
        survivors = {
            path: contents
            for source, keep_new in ((self.files, True), (self._synced_names, False))
            for path, contents in source.items()
            if names.get(path.rpartition("/")[0], False) == keep_new
        }
        for contents in {id(each): each for each in survivors.values()}.values():
            contents.data = bytearray(_torn(bytes(contents.data), contents.synced, random))
            contents.synced = bytes(contents.data)
        self.files = dict(survivors)
        self._synced_names = dict(survivors)
        self.locked.clear()

    # The port.

    def open(self, path: str, *, create: bool = False) -> MemoryFile:
        self.admit_anything(path, "open")
        if path not in self.files:
            if not create:
                raise DiskError(path, "cannot open: no such file", errno=2)
            self.admit(path, "create")
            if path.rpartition("/")[0] not in self.directories:
                raise DiskError(path, "cannot create: no such directory", errno=2)
            self.files[path] = Contents()
        return MemoryFile(self, path, self.files[path])

    def exists(self, path: str) -> bool:
        return path in self.files or path in self.directories

    def is_directory(self, path: str) -> bool:
        return path in self.directories

    def list(self, path: str) -> list[str]:
        self.admit_anything(path, "list")
        if path not in self.directories:
            raise DiskError(path, "cannot list: no such directory", errno=2)
        inside = [each[len(path) + 1 :] for each in {*self.files, *self.directories} if each.startswith(f"{path}/")]
        return sorted(name for name in inside if "/" not in name)

    def make_dirs(self, path: str) -> None:
        self.admit_anything(path, "create the directory")
        parts = path.split("/")
        for count in range(1, len(parts) + 1):
            self.directories.add("/".join(parts[:count]))

    def rename(self, source: str, target: str) -> None:
        self.admit(source, "rename")
        if source in self.files:
            self.files[target] = self.files.pop(source)
            return
        if source not in self.directories:
            raise DiskError(source, "cannot rename: no such file", errno=2)
        for path in [each for each in self.files if each.startswith(f"{source}/")]:
            self.files[target + path[len(source) :]] = self.files.pop(path)
        self.directories.discard(source)
        self.directories.add(target)

    def remove(self, path: str) -> None:
        self.admit(path, "remove")
        self.files.pop(path, None)

    def remove_tree(self, path: str) -> None:
        self.admit_anything(path, "remove the directory")
        for each in [each for each in self.files if each.startswith(f"{path}/")]:
            del self.files[each]
        self.directories = {each for each in self.directories if each != path and not each.startswith(f"{path}/")}

    def sync_dir(self, path: str) -> None:
        self.admit(path, "sync")
        gone = [each for each in self._synced_names if each.rpartition("/")[0] == path and each not in self.files]
        for each in gone:
            del self._synced_names[each]
        for each, contents in self.files.items():
            if each.rpartition("/")[0] == path:
                self._synced_names[each] = contents

    def read_bytes(self, path: str) -> bytes:
        return bytes(self.open(path)._contents.data)

    def write_atomically(self, path: str, data: bytes) -> None:
        file = self.open(f"{path}.tmp", create=True)
        file.truncate(0)
        file.append(data)
        file.sync()
        self.rename(f"{path}.tmp", path)
        self.sync_dir(path.rpartition("/")[0])

    def write_all_atomically(self, files: Mapping[str, bytes]) -> None:
        for path, data in files.items():
            file = self.open(f"{path}.tmp", create=True)
            file.truncate(0)
            file.append(data)
            file.sync()
        for path in files:
            self.rename(f"{path}.tmp", path)
        for directory in {path.rpartition("/")[0] for path in files}:
            self.sync_dir(directory)

    def lock(self, path: str) -> MemoryLock:
        if path in self.locked:
            raise DiskError(path, "another process holds it", errno=11)
        self.locked.add(path)
        self.files.setdefault(path, Contents())
        return MemoryLock(self, path)

    def free_bytes(self, path: str) -> int:
        self.admit_anything(path, "tell the free space")
        return 1 << 40 if self.free_write_bytes is None else self.free_write_bytes

    def total_bytes(self, path: str) -> int:
        self.admit_anything(path, "tell the size")
        return 1 << 41


def _torn(data: bytes, synced: bytes, random: Random) -> bytes:
    """What a file holds after the power failed: its size and its pages, each of them the old one or the new."""
    if data == synced:
        return data
    shorter, longer = sorted((len(data), len(synced)))
    size = random.choice([shorter, longer, random.randint(shorter, longer)])
    page = 512
    result = bytearray(size)
    for start in range(0, size, page):
        stop = min(start + page, size)
        old, new = synced[start:stop], data[start:stop]
        if old == new[: len(old)] and (len(old) == stop - start or random.random() < 0.7):
            chosen = new if len(new) >= len(old) else old
        else:
            chosen = random.choice([old, new])
        result[start : start + len(chosen)] = chosen
    return bytes(result)

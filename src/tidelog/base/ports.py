"""What the pure and the deterministic code may ask of the world, passed in rather than reached for.

`tidelog.io` holds the real ones and the simulator their twins, under the same file names.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Protocol, TypeVar
from uuid import UUID

from tidelog.base.certificates import Certificates

if TYPE_CHECKING:
    from asyncio import BufferedProtocol

T = TypeVar("T")
Buffer = bytes | bytearray | memoryview


class Clock(Protocol):
    """Two times, both in whole milliseconds; they are never compared with each other."""

    def now_ms(self) -> int:
        """Monotonic: for deadlines and time-outs."""
        ...

    def wall_ms(self) -> int:
        """Since 1970, UTC: for record timestamps and retention. May jump."""
        ...


class Rng(Protocol):
    """Randomness that a seed can reproduce."""

    def random(self) -> float: ...

    def randrange(self, start: int, stop: int) -> int:
        """A whole number in [start, stop)."""
        ...

    def uuid(self) -> UUID:
        """A random (version 4) id."""
        ...


class Executor(Protocol):
    """Where work goes that the event loop is not to wait for: a thread in production, a later step in simulation."""

    def run(self, work: Callable[[], T]) -> Awaitable[T]:
        """Do what may wait for a disk."""
        ...

    def compute(self, work: Callable[[], T]) -> Awaitable[T]:
        """Do what takes the processor for long, one at a time: no disk waits behind it, nor it behind a disk."""
        ...


class Readable(Protocol):
    """What bytes are read from. Raises `DiskError` when the disk refuses."""

    def read_at(self, position: int, size: int) -> bytes:
        """Up to `size` bytes from `position`; fewer only at the end."""
        ...


class File(Protocol):
    """An open file with explicit positions (there is no cursor), so that readers may share it.

    Every method raises `DiskError` naming the path when the disk refuses.
    """

    @property
    def path(self) -> str: ...

    def size(self) -> int:
        """Bytes in the file now."""
        ...

    def read_at(self, position: int, size: int) -> bytes:
        """Up to `size` bytes from `position`; fewer only at the end of the file."""
        ...

    def read_cached_at(self, position: int, size: int) -> Buffer | None:
        """As `read_at` if that needs no waiting for the disk; None if it might."""
        ...

    def append(self, data: Buffer) -> None:
        """Write all of `data` at the end. After an error the file may hold a part of it."""
        ...

    def write_at(self, position: int, data: Buffer) -> None:
        """Write all of `data` at `position`, growing the file when needed."""
        ...

    def truncate(self, size: int) -> None:
        """Cut (or zero-extend) to `size` bytes."""
        ...

    def sync(self) -> None:
        """Return once the contents would survive a loss of power."""
        ...

    def close(self) -> None:
        """Close; a second call does nothing."""
        ...


class Disk(Protocol):
    """A directory tree. Paths are strings with `/`, absolute or relative to the process.

    Every method raises `DiskError` naming the path when the disk refuses.
    """

    def open(self, path: str, *, create: bool = False) -> File:
        """Open for reading and writing; with `create`, make an empty file if none is there."""
        ...

    def exists(self, path: str) -> bool: ...

    def is_directory(self, path: str) -> bool: ...

    def list_directories(self, path: str) -> list[str]:
        """The names of the directories in a directory, sorted."""
        ...

    def list(self, path: str) -> list[str]:
        """The names in a directory, sorted."""
        ...

    def make_dirs(self, path: str) -> None:
        """Create the directory and its parents where missing."""
        ...

    def rename(self, source: str, target: str) -> None:
        """Rename a file or a directory, replacing a file that is there (atomic)."""
        ...

    def remove(self, path: str) -> None:
        """Remove a file; it is no error if it is gone."""
        ...

    def remove_tree(self, path: str) -> None:
        """Remove a directory and all in it; it is no error if it is gone."""
        ...

    def sync_dir(self, path: str) -> None:
        """Return once the names in the directory would survive a loss of power."""
        ...

    def read_bytes(self, path: str) -> bytes:
        """A whole (small) file."""
        ...

    def write_atomically(self, path: str, data: bytes) -> None:
        """Replace a whole (small) file: temporary file, sync, rename, sync of the directory.

        After a crash at any step the path holds the old contents or the new.
        """
        ...

    def lock(self, path: str) -> Lock:
        """Take an exclusive lock on a file until closed. Raises `DiskError` if another process holds it."""
        ...

    def write_all_atomically(self, files: Mapping[str, bytes]) -> None:
        """As `write_atomically` for each of them, but synced together: what takes long for many is done once.

        When it returns all of them are on disk. After a crash, or a `DiskError`, each holds the old contents or the
        new, in no order.
        """
        ...

    def free_bytes(self, path: str) -> int:
        """What this process may still write there."""
        ...

    def total_bytes(self, path: str) -> int:
        """How large the file system is that the path lies on."""
        ...

    def boot_id(self) -> str | None:
        """Names this run of the machine, from power to power: while it is the same, all that was written is there.

        A process that crashed has lost nothing then, synced or not. None where nobody can tell.
        """
        ...


class Lock(Protocol):
    def release(self) -> None: ...


class Network(Protocol):
    """Streams, out and in. Those that come in are served as the event loop serves them: see `Admit`."""

    async def connect(self, host: str, port: int, receiver: Receiver) -> Link:
        """Open a stream. Raises `NetworkError` naming the address."""
        ...

    async def refuses(self, host: str, port: int) -> bool:
        """Whether the machine is there, and says that nobody listens. It may take long to find that it does not."""
        ...

    def listen(
        self, host: str | None, port: int, *, backlog: int, admit: Admit, on_trouble: Callable[[OSError], None]
    ) -> Listening:
        """Take a port, so that it can be told; who connects is refused until it is started.

        Args:
            host: a name or address; None for every interface.
            port: 0 takes a free one.
            admit: decides about each connection that was accepted.
            on_trouble: told why nothing can be accepted at present; it is tried on and on.

        Raises:
            NetworkError: the reason, without the address.
        """
        ...

    def over_tls(self, certificates: Certificates, *, listens: bool) -> SecuredNetwork:
        """One that listens over TLS, or connects over it.

        Raises:
            ConfigError: the certificates cannot be used; names the setting.
        """
        ...

    def open_files(self) -> int:
        """About how many files and connections this process has open."""
        ...

    def file_limit(self) -> int | None:
        """How many it may have open at once; None where nobody says."""
        ...


class SecuredNetwork(Network, Protocol):
    """Streams over TLS."""

    def renew(self, certificates: Certificates) -> None:
        """Read the certificates anew, for streams from now on.

        Raises:
            ConfigError: they cannot be used; all stays as it was.
        """
        ...


class Admit(Protocol):
    """Given a peer's address without its port, and its connection's descriptor: who serves it; None to hang up."""

    def __call__(self, ip: str, descriptor: int, /) -> BufferedProtocol | None: ...


class Listening(Protocol):
    """A port that was taken, until it is closed."""

    @property
    def port(self) -> int: ...

    def start(self) -> None:
        """Accept from now on."""
        ...

    def pause(self) -> None:
        """Leave whoever connects in the queue."""
        ...

    def resume(self) -> None: ...

    def close(self) -> None:
        """Free the port; connections that are open stay so. A second call does nothing."""
        ...


class Receiver(Protocol):
    """The reading side of a stream, without copies: the network asks where to put bytes, then says how many."""

    def get_buffer(self, size_hint: int) -> memoryview: ...

    def on_bytes(self, size_bytes: int) -> None: ...

    def on_closed(self, error: Exception | None) -> None: ...


class Link(Protocol):
    """The writing side of a stream."""

    def write(self, pieces: list[Buffer]) -> None:
        """Queue the pieces in order. The caller leaves them unchanged afterwards."""
        ...

    async def drain(self) -> None:
        """Wait until the queue is short enough to write more."""
        ...

    def close(self) -> None: ...

"""Free ports for nodes that have to know each other's before any of them listens."""

from __future__ import annotations

import fcntl
import os
import socket
import tempfile
from collections.abc import Collection
from contextlib import ExitStack, suppress
from random import SystemRandom

LOWEST = 10_000
ATTEMPTS_MAX = 1_000
_EPHEMERAL_RANGE = "/proc/sys/net/ipv4/ip_local_port_range"


def free_ports(host: str, kept: Collection[int | None], *, avoid: Collection[int] = ()) -> list[int]:
    """Ports that nobody listens on, one for each of `kept`.

    They are taken from below the range that systems lend to outgoing connections: while a node is down, the others try
    to reach it again and again, and a port of that range would be lent to one of them in the end: to one that then
    talks to itself, on the very port that the node needs to come back.

    A process keeps a claim to each port that it was given until it ends. So the port of a node that is down for the
    moment is not given to the cluster of another process, if both belong to one user and it was not that one's before.

    Args:
        host: where they are to be free.
        kept: what each had before, to be kept if it is free still; None for one that had none.
        avoid: those that are somebody else's.

    Raises:
        OSError: there are none.
    """
    taken: list[int] = []
    with ExitStack() as held:  # all at once, so that none is taken twice
        for before in kept:
            port = None
            if before and before not in avoid:
                port = _bound(host, before, held)
                _claims.add(before)  # or not: its cluster had it before
            if port is None:
                port = _new(host, {*avoid, *taken, *(one for one in kept if one)}, held)
            taken.append(port)
    return taken


def _new(host: str, avoid: set[int], held: ExitStack) -> int:
    rng, below = SystemRandom(), _ephemeral_start()
    for _ in range(ATTEMPTS_MAX if below > LOWEST else 0):
        candidate = rng.randrange(LOWEST, below)
        if candidate in avoid or candidate in _claims.own or _bound(host, candidate, held) is None:
            continue
        if _claims.add(candidate):
            return candidate
    return held.enter_context(_server(host, 0)).getsockname()[1]  # type: ignore[no-any-return]


def _bound(host: str, port: int, held: ExitStack) -> int | None:
    try:
        held.enter_context(_server(host, port))
    except OSError:
        return None
    return port


def _server(host: str, port: int) -> socket.socket:
    family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    return socket.create_server(address[:2], family=family)


def _ephemeral_start() -> int:
    """The first port that the system lends: 32768 with Linux, 49152 with most others."""
    try:
        with open(_EPHEMERAL_RANGE, encoding="ascii") as file:
            return int(file.read().split()[0])
    except (OSError, ValueError, IndexError):
        return 32_768


class _Claims:
    """A byte for each port, locked in a file that the processes of a user share: a lock ends with its process.

    Attributes:
        own: the ports that this process was given.
    """

    def __init__(self) -> None:
        self.own: set[int] = set()
        self._file: int | None = None

    def add(self, port: int) -> bool:
        """Returns False if another process has it. Where there can be no such file, every claim is granted."""
        with suppress(OSError):
            if self._file is None:
                path = os.path.join(tempfile.gettempdir(), f"tidelog-ports-{os.getuid()}")
                self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
            try:
                fcntl.lockf(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, port)
            except (BlockingIOError, PermissionError):  # what systems say of a lock that another process holds
                return False
        self.own.add(port)
        return True


_claims = _Claims()

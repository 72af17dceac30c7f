"""Free ports for nodes that have to know each other's before any of them listens."""

from __future__ import annotations

import socket
from collections.abc import Collection
from contextlib import ExitStack
from random import SystemRandom

LOWEST = 10_000
ATTEMPTS_MAX = 1_000
_EPHEMERAL_RANGE = "/proc/sys/net/ipv4/ip_local_port_range"


def free_ports(host: str, kept: Collection[int | None], *, avoid: Collection[int] = ()) -> list[int]:
    """Ports that nobody listens on, one for each of `kept`.

    They are taken from below the range that systems lend to outgoing connections: while a node is down, the others try
    to reach it again and again, and a port of that range would be lent to one of them in the end: to one that then
    talks to itself, on the very port that the node needs to come back.

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
            if port is None:
                port = _new(host, {*avoid, *taken, *(one for one in kept if one)}, held)
            taken.append(port)
    return taken


def _new(host: str, avoid: set[int], held: ExitStack) -> int:
    rng, below = SystemRandom(), _ephemeral_start()
    for _ in range(ATTEMPTS_MAX if below > LOWEST else 0):
        candidate = rng.randrange(LOWEST, below)
        if candidate not in avoid:
            port = _bound(host, candidate, held)
            if port is not None:
                return port
    return held.enter_context(socket.create_server((host, 0))).getsockname()[1]  # type: ignore[no-any-return]


def _bound(host: str, port: int, held: ExitStack) -> int | None:
    try:
        held.enter_context(socket.create_server((host, port)))
    except OSError:
        return None
    return port


def _ephemeral_start() -> int:
    """The first port that the system lends: 32768 with Linux, 49152 with most others."""
    try:
        with open(_EPHEMERAL_RANGE, encoding="ascii") as file:
            return int(file.read().split()[0])
    except (OSError, ValueError, IndexError):
        return 32_768

"""The listening side of a port: accepts whom it is told to, and holds off while the system cannot accept.

The event loops' own servers cannot be told to wait, and run the process out of files before they say anything.
"""

from __future__ import annotations

import asyncio
import errno
import os
import socket
import sys
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any

from tidelog.base.errors import NetworkError
from tidelog.base.ports import Admit

ACCEPTS_PER_TURN = 100
"""A storm of connections must not keep those that are there from being served."""
HOLD_OFF_SECONDS = 0.5

_ADVICE = {
    errno.EADDRINUSE: "; give it another port, or stop what uses it",
    errno.EADDRNOTAVAIL: "; name an address of this machine",
    errno.EACCES: "; give it a port from 1024 on",
    socket.EAI_NONAME: "; give a name or an address of this machine",
}
_OUT_OF_RESOURCES = {errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM}


def bind_reason(error: OSError) -> str:
    """Why nobody can listen there, and what to do."""
    reason = os.strerror(error.errno) if error.errno and error.errno > 0 else error.strerror or str(error)
    return f"{reason}{_ADVICE.get(error.errno or 0, '')}"


class Acceptor:
    """One listener: its sockets, from `bind` to `close`.

    Args:
        admit: decides about each connection that was accepted.
        on_trouble: told why nothing can be accepted at present; it is tried again every HOLD_OFF_SECONDS.
        open_stream: has the protocol serve a stream that was accepted; raises OSError if that cannot be.
    """

    def __init__(
        self,
        *,
        admit: Admit,
        on_trouble: Callable[[OSError], None],
        open_stream: Callable[[socket.socket, asyncio.BufferedProtocol], Coroutine[Any, Any, None]] | None = None,
    ) -> None:
        self._admit = admit
        self._open_stream = open_stream or _open
        self._on_trouble = on_trouble
        self._sockets: list[socket.socket] = []
        self._opening: set[asyncio.Task[None]] = set()
        self._hold_off: asyncio.TimerHandle | None = None
        self._is_started = False
        self._is_paused = False
        self._backlog = 0

    @property
    def port(self) -> int:
        return int(self._sockets[0].getsockname()[1])

    def bind(self, host: str | None, port: int, *, backlog: int) -> None:
        """Take the port, so that it can be told; who connects is refused until `start`.

        Args:
            host: a name or address; None for every interface.
            port: 0 takes a free one.

        Raises:
            NetworkError: the reason, without the address.
        """
        self._backlog = backlog
        try:
            found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
            for family, kind, protocol, _, address in dict.fromkeys(found):
                try:
                    listening = socket.socket(family, kind, protocol)
                except OSError:
                    continue  # an address family that this machine's kernel does not have
                self._sockets.append(listening)
                listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                if family == socket.AF_INET6:
                    listening.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
                listening.setblocking(False)
                if port == 0 and len(self._sockets) > 1:
                    address = (address[0], self.port, *address[2:])  # one port for all families  # noqa: PLW2901
                listening.bind(address)
        except OSError as error:
            self.close()
            raise NetworkError(bind_reason(error)) from error
        if not self._sockets:
            raise NetworkError("this machine has none of the host's kinds of address")

    def start(self) -> None:
        """Accept from now on."""
        for listening in self._sockets:
            listening.listen(self._backlog)
        self._is_started = True
        self._listen()

    def pause(self) -> None:
        """Leave whoever connects in the system's queue."""
        self._is_paused = True
        self._look_away()

    def resume(self) -> None:
        if self._is_paused:
            self._is_paused = False
            self._listen()

    def close(self) -> None:
        """Free the port; connections that are open stay so. A second call does nothing."""
        if self._is_started:
            self._look_away()
            self._is_started = False
        if self._hold_off is not None:
            self._hold_off.cancel()
            self._hold_off = None
        for listening in self._sockets:
            listening.close()
        if self._open_stream is not _open:  # which takes no time; its connections are as good as open
            for opening in self._opening:
                opening.cancel()

    def _listen(self) -> None:
        if self._is_started and not self._is_paused and self._hold_off is None:
            loop = asyncio.get_running_loop()
            for listening in self._sockets:
                loop.add_reader(listening.fileno(), self._on_readable, listening)

    def _look_away(self) -> None:
        loop = asyncio.get_running_loop()
        for listening in self._sockets:
            loop.remove_reader(listening.fileno())

    def _on_readable(self, listening: socket.socket) -> None:
        for _ in range(ACCEPTS_PER_TURN):
            if self._is_paused:
                return
            try:
                stream, address = listening.accept()
            except (BlockingIOError, InterruptedError):
                return
            except OSError as error:
                if error.errno in _OUT_OF_RESOURCES:
                    # Whoever waits makes the socket readable on and on: to look again at once would be to spin.
                    self._look_away()
                    self._hold_off = asyncio.get_running_loop().call_later(HOLD_OFF_SECONDS, self._try_again)
                    self._on_trouble(error)
                    return
                continue  # that peer is gone already
            protocol = self._admit(str(address[0]), stream.fileno())
            if protocol is None:
                stream.close()
                continue
            stream.setblocking(False)
            stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            opening = asyncio.get_running_loop().create_task(self._open_stream(stream, protocol))
            self._opening.add(opening)
            opening.add_done_callback(partial(self._on_opened, stream, protocol))

    def _try_again(self) -> None:
        self._hold_off = None
        self._listen()

    def _on_opened(
        self, stream: socket.socket, protocol: asyncio.BufferedProtocol, opening: asyncio.Task[None]
    ) -> None:
        """Not within the task: one that is cancelled before its first step does nothing at all."""
        self._opening.discard(opening)
        error = None if opening.cancelled() else opening.exception()
        if opening.cancelled() or error is not None:
            stream.close()
            protocol.connection_lost(error if isinstance(error, OSError) else None)
        if not isinstance(error, OSError | None):
            raise error


async def _open(stream: socket.socket, protocol: asyncio.BufferedProtocol) -> None:
    await asyncio.get_running_loop().connect_accepted_socket(lambda: protocol, stream)


def open_files() -> int:
    """About how many files this process has open: the number that the next one would get."""
    descriptor = os.dup(2)
    os.close(descriptor)
    return descriptor


def file_limit() -> int | None:
    """How many files this process may have open at once; None where the system does not say."""
    if sys.platform == "win32":
        return None
    import resource

    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return None if soft == resource.RLIM_INFINITY else soft

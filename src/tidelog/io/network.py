"""Streams over asyncio: TCP, without copies on the way in."""

from __future__ import annotations

import asyncio
import errno
import socket
import sys
from collections.abc import Callable
from typing import cast

from tidelog.base.certificates import Certificates
from tidelog.base.errors import NetworkError
from tidelog.base.ports import Admit, Buffer, Link, Receiver, SecuredNetwork
from tidelog.io.acceptor import Acceptor, file_limit, open_files

_JOIN_SIZE_BYTES_MAX = 64 * 1024
_NOT_OURS = (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT)
"""What is said of an address of a family that this machine does not speak."""
_WRITE_BUFFER_BYTES_MAX = 1024 * 1024


class RealNetwork:
    """Connects and accepts with the running event loop, uvloop's or asyncio's own."""

    async def connect(self, host: str, port: int, receiver: Receiver) -> Link:
        """Open a TCP stream. `receiver.on_closed` is called once, whenever and whyever it ends.

        Raises:
            NetworkError: names the address and the reason.
        """
        loop = asyncio.get_running_loop()
        try:
            _, stream = await loop.create_connection(lambda: Stream(receiver, loop), host, port)
        except OSError as error:
            raise NetworkError(f"cannot connect to {host}:{port}: {connect_reason(error)}") from None
        return stream

    async def refuses(self, host: str, port: int) -> bool:
        """Whether every address of that name that this machine can ask refuses a connection to the port."""
        loop = asyncio.get_running_loop()
        refused = False
        try:
            for family, kind, protocol, _, address in await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM):
                try:
                    with socket.socket(family, kind, protocol) as asking:
                        asking.setblocking(False)
                        await loop.sock_connect(asking, address)
                        return False
                except ConnectionRefusedError:
                    refused = True
                except OSError as error:
                    if error.errno not in _NOT_OURS:
                        return False
        except OSError:  # the name cannot be resolved
            return False
        return refused

    def listen(
        self, host: str | None, port: int, *, backlog: int, admit: Admit, on_trouble: Callable[[OSError], None]
    ) -> Acceptor:
        """Take a port, as the `Network` says. Raises `NetworkError`: the reason, without the address."""
        acceptor = Acceptor(admit=admit, on_trouble=on_trouble)
        acceptor.bind(host, port, backlog=backlog)
        return acceptor

    def over_tls(self, certificates: Certificates, *, listens: bool) -> SecuredNetwork:
        """As the `Network` says. Raises ConfigError."""
        from tidelog.io.tls import TlsListeningNetwork, TlsNetwork

        return TlsListeningNetwork(certificates) if listens else TlsNetwork.to_nodes(certificates)

    def open_files(self) -> int:
        """About how many files this process has open."""
        return open_files()

    def file_limit(self) -> int | None:
        """How many files this process may have open at once; None where the system does not say."""
        return file_limit()


class Stream(asyncio.BufferedProtocol):
    """One outbound stream, over whatever transport: bytes go straight into the receiver's memory."""

    def __init__(self, receiver: Receiver, loop: asyncio.AbstractEventLoop) -> None:
        self._receiver = receiver
        self._loop = loop
        self._transport: asyncio.Transport | None = None
        self._resumed: asyncio.Future[None] | None = None
        self._gathers = not isinstance(loop, asyncio.SelectorEventLoop) or sys.version_info >= (3, 12)

    # From the event loop.
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._transport.set_write_buffer_limits(high=_WRITE_BUFFER_BYTES_MAX)
        opened = transport.get_extra_info("socket")
        if opened is not None and opened.family in (socket.AF_INET, socket.AF_INET6):
            opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            opened.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._receiver.get_buffer(sizehint)

    def buffer_updated(self, nbytes: int) -> None:
        self._receiver.on_bytes(nbytes)

    def eof_received(self) -> bool:
        return False  # the transport closes itself

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self.resume_writing()
        self._receiver.on_closed(exc)

    def pause_writing(self) -> None:
        self._resumed = self._loop.create_future()

    def resume_writing(self) -> None:
        resumed, self._resumed = self._resumed, None
        if resumed is not None and not resumed.done():
            resumed.set_result(None)

    # From the one who connected.
    def write(self, pieces: list[Buffer]) -> None:
        """Queue the pieces in order. Nothing happens once the stream is closed: `on_closed` tells."""
        transport = self._transport
        if transport is None or transport.is_closing():
            return
        if len(pieces) == 1:
            transport.write(pieces[0])
        elif self._gathers:
            transport.writelines(pieces)
        elif sum(map(len, pieces)) <= _JOIN_SIZE_BYTES_MAX:
            transport.write(b"".join(pieces))
        else:  # asyncio's own loop would join them before 3.12
            for piece in pieces:
                transport.write(piece)

    async def drain(self) -> None:
        """Wait until the queue is short enough to write more, or the stream is closed."""
        if self._resumed is not None:
            await asyncio.shield(self._resumed)

    def close(self) -> None:
        """Close at once: what is still queued is dropped."""
        if self._transport is not None:
            self._transport.abort()


def connect_reason(error: OSError) -> str:
    """Why a connection could not be made."""
    if isinstance(error, socket.gaierror):
        return f"the name cannot be resolved ({error.strerror})"
    if isinstance(error, ConnectionRefusedError):
        return "connection refused; is a broker listening there?"
    return error.strerror or str(error)

"""One request over HTTP that is done by a deadline, or given up: a peer that sends a byte now and then gains nothing.

`http.client` limits each wait at a socket alone. Here each wait is as long as what is left. Nothing is followed
elsewhere: a password is not meant for whoever that is.
"""

from __future__ import annotations

import io
import socket
import ssl
from http.client import HTTPConnection
from time import monotonic
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer, WriteableBuffer


class HttpAnswer(NamedTuple):
    """What came."""

    status: int
    location: str | None
    """Where it sends whoever asks."""
    body: bytes
    """At most as many bytes as were asked for, and one more if there are more."""


def exchange(
    method: str,
    url: str,
    headers: dict[str, str],
    body: bytes | None,
    *,
    timeout_s: float,
    size_bytes_max: int,
    ssl_context: ssl.SSLContext | None,
) -> HttpAnswer:
    """Ask, and have the answer. Only the look-up of the host's name has limits of its own, which are the system's.

    Raises:
        TimeoutError: the answer was not there in time.
        OSError, HTTPException: there was none.
    """
    parts = urlsplit(url)
    connection = _Connection(parts.hostname or "", parts.port, monotonic() + timeout_s)
    if parts.scheme == "https":
        connection.default_port = 443
        connection.ssl_context = ssl_context or ssl.create_default_context()
    try:
        path = parts.path + (f"?{parts.query}" if parts.query else "")
        connection.request(method, path, body, headers | {"Connection": "close"})
        with connection.getresponse() as response:
            return HttpAnswer(response.status, response.getheader("Location"), response.read(size_bytes_max + 1))
    finally:
        connection.close()


class _Connection(HTTPConnection):
    ssl_context: ssl.SSLContext | None = None

    def __init__(self, host: str, port: int | None, deadline: float) -> None:
        super().__init__(host, port)
        self._deadline = deadline

    def connect(self) -> None:
        found = _connected(self.host, self.port, self._deadline)
        if self.ssl_context is not None:
            found.settimeout(_left(self._deadline))
            found = self.ssl_context.wrap_socket(found, server_hostname=self.host)
        self.sock: Any = _Socket(found, self._deadline)


class _Socket:
    """What `http.client` needs of a socket."""

    def __init__(self, found: socket.socket, deadline: float) -> None:
        self._socket = found
        self._deadline = deadline
        self.close = found.close

    def sendall(self, data: ReadableBuffer) -> None:
        left = memoryview(data)
        while left:
            self._socket.settimeout(_left(self._deadline))
            left = left[self._socket.send(left) :]

    def makefile(self, _: str) -> io.BufferedReader:
        return io.BufferedReader(_Reader(self._socket, self._deadline))


class _Reader(io.RawIOBase):
    def __init__(self, found: socket.socket, deadline: float) -> None:
        self._socket = found
        self._file = found.makefile("rb", buffering=0)  # the socket stays open until this is closed
        self._deadline = deadline

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: WriteableBuffer) -> int | None:
        self._socket.settimeout(_left(self._deadline))
        return self._file.readinto(buffer)

    def close(self) -> None:
        self._file.close()
        super().close()


def _connected(host: str, port: int, deadline: float) -> socket.socket:
    """A connection to the first address of a host that takes one."""
    last = OSError(f"{host} has no address")
    for family, kind, protocol, _, address in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM):
        found = socket.socket(family, kind, protocol)
        try:
            found.settimeout(_left(deadline))
            found.connect(address)
            return found
        except OSError as error:
            found.close()
            last = error
    raise last


def _left(deadline: float) -> float:
    left = deadline - monotonic()
    if left <= 0:
        raise TimeoutError
    return left

"""The listening side of a port, on a real one; running out of files is played by a socket of the test's."""

from __future__ import annotations

import asyncio
import errno
import socket
from collections.abc import Awaitable, Callable

import pytest

from tidelog.base.errors import NetworkError
from tidelog.io import acceptor as acceptor_module
from tidelog.io.acceptor import Acceptor, open_files

SECONDS_MAX = 60.0


class Echo(asyncio.BufferedProtocol):
    def __init__(self) -> None:
        self.memory = bytearray(100)
        self.transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def get_buffer(self, sizehint: int) -> memoryview:
        return memoryview(self.memory)

    def buffer_updated(self, nbytes: int) -> None:
        assert self.transport is not None
        self.transport.write(bytes(self.memory[:nbytes]))


def run(scenario: Callable[[], Awaitable[None]]) -> None:
    async def bounded() -> None:
        await asyncio.wait_for(scenario(), SECONDS_MAX)

    asyncio.run(bounded())


async def say_hello(port: int, host: str = "127.0.0.1") -> bytes:
    reader, writer = await asyncio.open_connection(host, port)
    try:
        writer.write(b"hello")
        return await reader.read(5)
    except ConnectionError:
        return b""
    finally:
        writer.close()


def test_who_is_let_in_is_served_and_who_is_not_is_hung_up_on() -> None:
    async def scenario() -> None:
        seen: list[tuple[str, int]] = []

        def admit(ip: str, descriptor: int) -> Echo | None:
            seen.append((ip, descriptor))
            return None if len(seen) == 2 else Echo()

        listening = Acceptor(admit=admit, on_trouble=lambda _: None)
        listening.bind("127.0.0.1", 0, backlog=10)
        with pytest.raises(ConnectionRefusedError):
            await say_hello(listening.port)  # bound is not listening
        listening.start()
        assert await say_hello(listening.port) == b"hello"
        assert await say_hello(listening.port) == b""
        assert await say_hello(listening.port) == b"hello"
        assert [ip for ip, _ in seen] == ["127.0.0.1"] * 3
        assert all(descriptor <= open_files() + 10 for _, descriptor in seen)
        port = listening.port
        listening.close()
        with pytest.raises(ConnectionRefusedError):
            await say_hello(port)

    run(scenario)


def test_while_paused_who_connects_waits() -> None:
    async def scenario() -> None:
        listening = Acceptor(admit=lambda *_: Echo(), on_trouble=lambda _: None)
        listening.bind("127.0.0.1", 0, backlog=10)
        listening.start()
        listening.pause()
        waiting = asyncio.ensure_future(say_hello(listening.port))
        done, _ = await asyncio.wait({waiting}, timeout=0.1)
        assert not done
        listening.resume()
        assert await waiting == b"hello"
        listening.close()

    run(scenario)


def test_a_connection_that_is_made_as_the_port_is_freed_stays_open() -> None:
    """Its opening is not over yet. If that is cancelled, uvloop closes the transport below whoever reads on."""

    class Freeing(Echo):
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            super().connection_made(transport)
            listening.close()

    listening = Acceptor(admit=lambda *_: Freeing(), on_trouble=lambda _: None)

    async def scenario() -> None:
        listening.bind("127.0.0.1", 0, backlog=10)
        listening.start()
        assert await say_hello(listening.port) == b"hello"

    run(scenario)


class Exhausted:
    """A listening socket on a system that has no files left for a while."""

    def __init__(self, listening: socket.socket, failures: int) -> None:
        self._listening = listening
        self._failures = failures
        self.accepts = 0

    def accept(self) -> tuple[socket.socket, object]:
        self.accepts += 1
        if self.accepts <= self._failures:
            raise OSError(errno.EMFILE, "Too many open files")
        return self._listening.accept()

    def __getattr__(self, name: str) -> object:
        return getattr(self._listening, name)


def test_without_files_it_holds_off_rather_than_spin(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(acceptor_module, "HOLD_OFF_SECONDS", 0.05)

    async def scenario() -> None:
        troubles: list[OSError] = []
        listening = Acceptor(admit=lambda *_: Echo(), on_trouble=troubles.append)
        listening.bind("127.0.0.1", 0, backlog=10)
        exhausted = Exhausted(listening._sockets[0], failures=3)
        listening._sockets[0] = exhausted  # type: ignore[call-overload]
        listening.start()
        assert await say_hello(listening.port) == b"hello"
        assert [error.errno for error in troubles] == [errno.EMFILE] * 3
        assert exhausted.accepts <= 6  # it was readable all the time
        listening.close()

    run(scenario)


class Closed(Echo):
    """Notes when it is told that its connection is over."""

    def __init__(self) -> None:
        super().__init__()
        self.closed = asyncio.get_running_loop().create_future()

    def connection_lost(self, exc: Exception | None) -> None:
        if not self.closed.done():
            self.closed.set_result(exc)


def test_who_begins_a_handshake_in_the_moment_of_the_close_is_hung_up_on() -> None:
    async def shake_hands(_stream: socket.socket, _protocol: asyncio.BufferedProtocol) -> None:
        await asyncio.Event().wait()

    async def scenario() -> None:
        let_in: list[Closed] = []

        def admit(_ip: str, _descriptor: int) -> Closed:
            let_in.append(Closed())
            asyncio.get_running_loop().call_soon(listening.close)  # before the stream has a transport
            return let_in[-1]

        listening = Acceptor(admit=admit, on_trouble=lambda _: None, open_stream=shake_hands)
        listening.bind("127.0.0.1", 0, backlog=10)
        listening.start()
        assert await say_hello(listening.port) == b""
        assert await let_in[0].closed is None

    run(scenario)


def test_one_port_for_all_families() -> None:
    async def scenario() -> None:
        listening = Acceptor(admit=lambda *_: Echo(), on_trouble=lambda _: None)
        listening.bind(None, 0, backlog=10)
        listening.start()
        assert len({each.getsockname()[1] for each in listening._sockets}) == 1
        assert await say_hello(listening.port) == b"hello"
        listening.close()

    run(scenario)


def test_a_port_that_is_taken() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        listening = Acceptor(admit=lambda *_: None, on_trouble=lambda _: None)
        with pytest.raises(NetworkError, match="Address already in use"):
            listening.bind("127.0.0.1", taken.getsockname()[1], backlog=10)

"""Listening over TLS: peers that are slow, in either direction, and ends in the middle of a handshake."""

from __future__ import annotations

import asyncio
import socket
import ssl
import struct
import threading
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any, cast

import pytest

from support.fixtures.certificates import Authority, missing_openssl
from support.fixtures.waiting import until
from tidelog.base.certificates import Certificates
from tidelog.io import tls
from tidelog.io.acceptor import Acceptor
from tidelog.io.tls import READ_BUFFER_BYTES, RECEIVED_BYTES_MAX, TlsListeningNetwork

SECONDS_MAX = 15.0
HOSTS = "DNS:localhost,IP:127.0.0.1"
MUCH = 16 << 20
"""More than the buffers of two sockets take."""


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    if (reason := missing_openssl()) is not None:
        pytest.skip(reason)
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="module")
def network(authority: Authority) -> TlsListeningNetwork:
    return TlsListeningNetwork(Certificates(certificate_path=str(authority.sign("broker", hosts=HOSTS).both)))


@pytest.fixture(params=["asyncio", "uvloop"])
def run(request: pytest.FixtureRequest) -> Callable[[Coroutine[Any, Any, None]], None]:
    factory = asyncio.new_event_loop
    if request.param == "uvloop":
        factory = pytest.importorskip("uvloop").new_event_loop

    def run_bounded(work: Coroutine[Any, Any, None]) -> None:
        with asyncio.Runner(loop_factory=factory) as runner:
            runner.run(asyncio.wait_for(work, SECONDS_MAX))

    return run_bounded


class Served(asyncio.BufferedProtocol):
    """A connection at the listener."""

    def __init__(self) -> None:
        self.transport: asyncio.Transport | None = None
        self.received = 0
        self.is_paused = False
        self.ends: list[Exception | None] = []
        self._memory = bytearray(16 << 10)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        self.transport.set_write_buffer_limits(high=64 << 10)

    def get_buffer(self, sizehint: int) -> memoryview:
        return memoryview(self._memory)

    def buffer_updated(self, nbytes: int) -> None:
        self.received += nbytes

    def pause_writing(self) -> None:
        self.is_paused = True

    def resume_writing(self) -> None:
        self.is_paused = False

    def connection_lost(self, exc: Exception | None) -> None:
        self.ends.append(exc)


class Listening:
    """Whoever connects is one of `served`."""

    def __init__(self, network: TlsListeningNetwork, authority: Authority) -> None:
        self.served: list[Served] = []
        self.acceptor: Acceptor = network.listen("127.0.0.1", 0, backlog=10, admit=self._admit, on_trouble=print)
        self.acceptor.start()
        self._authorities = str(authority.certificate)

    def _admit(self, ip: str, descriptor: int) -> Served:
        self.served.append(Served())
        return self.served[-1]

    async def connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter, Served, asyncio.Transport]:
        context = ssl.create_default_context(cafile=self._authorities)
        reader, writer = await asyncio.open_connection("localhost", self.acceptor.port, ssl=context, family=2)
        served = self.served[-1]
        await until(lambda: served.transport is not None)
        assert served.transport is not None
        return reader, writer, served, served.transport


def test_a_peer_that_does_not_read_is_noticed_at_once_and_all_it_leaves_is_counted(
    run: Any, network: TlsListeningNetwork, authority: Authority
) -> None:
    async def work() -> None:
        listening = Listening(network, authority)
        reader, writer, served, transport = await listening.connect()
        assert not served.is_paused
        transport.write(bytes(MUCH))
        assert served.is_paused
        taken = MUCH - transport.get_write_buffer_size()
        assert taken < MUCH / 2, "what the system holds is all that is not counted"
        assert len(await reader.readexactly(MUCH)) == MUCH
        await until(lambda: not served.is_paused)
        # What was written before the end still goes out, and then the end is told.
        transport.write(bytes(MUCH))
        transport.close()
        assert len(await reader.read(-1)) == MUCH
        writer.close()
        await until(lambda: len(served.ends) == 1)
        listening.acceptor.close()

    run(work())


def test_a_peer_that_reads_nothing_is_hung_up_on_at_once(
    run: Any, network: TlsListeningNetwork, authority: Authority, caplog: pytest.LogCaptureFixture
) -> None:
    async def work() -> None:
        listening = Listening(network, authority)
        _, writer, served, transport = await listening.connect()
        transport.write(bytes(MUCH))
        transport.abort()
        transport.write(bytes(MUCH))
        await until(lambda: len(served.ends) == 1)
        writer.transport.abort()
        listening.acceptor.close()

    run(work())
    assert not caplog.records


def test_little_is_held_of_what_comes_while_nobody_reads(
    run: Any, network: TlsListeningNetwork, authority: Authority
) -> None:
    async def work() -> None:
        listening = Listening(network, authority)
        _, writer, served, transport = await listening.connect()
        transport.pause_reading()
        writer.write(bytes(MUCH))
        tls = cast(Any, transport)._ssl_protocol
        await until(lambda: tls._ssl_reading_paused)
        assert tls._incoming.pending <= READ_BUFFER_BYTES + RECEIVED_BYTES_MAX
        assert served.received == 0
        transport.resume_reading()
        await until(lambda: served.received == MUCH)
        transport.abort()
        writer.transport.abort()
        listening.acceptor.close()

    run(work())


def test_connections_that_send_by_turns_share_the_buffer_they_receive_to(
    run: Any, network: TlsListeningNetwork, authority: Authority
) -> None:
    """A record that another connection had overwritten would not be authentic: that connection would end."""
    size_bytes = 1 << 20

    async def work() -> None:
        listening = Listening(network, authority)
        peers = [await listening.connect() for _ in range(6)]
        for _, writer, _, _ in peers:
            writer.write(bytes(size_bytes))
        await until(lambda: all(served.received == size_bytes for _, _, served, _ in peers))
        for _, writer, served, transport in peers:
            assert not cast(Any, transport)._ssl_protocol._ssl_buffer, "it holds one of its own"
            assert not served.ends
            transport.abort()
            writer.transport.abort()
        listening.acceptor.close()

    run(work())


def test_who_shakes_hands_when_the_listener_closes_is_hung_up_on(
    run: Any, network: TlsListeningNetwork, authority: Authority, caplog: pytest.LogCaptureFixture
) -> None:
    async def work() -> None:
        listening = Listening(network, authority)
        reader, writer = await asyncio.open_connection("127.0.0.1", listening.acceptor.port)
        writer.write(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03")  # half a hello
        await until(lambda: len(listening.served) == 1)
        await until(lambda: bool(listening.acceptor._opening))
        listening.acceptor.close()
        with suppress(ConnectionResetError):
            assert await reader.read() == b""
        await until(lambda: listening.served[0].ends == [None])
        assert listening.served[0].transport is None
        writer.close()
        # Whoever has the number of its descriptor next is served.
        others = Listening(network, authority)
        _, writer, served, transport = await others.connect()
        writer.write(b"x")
        await until(lambda: served.received == 1)
        transport.abort()
        writer.transport.abort()
        others.acceptor.close()

    run(work())
    assert not caplog.records


def test_the_steps_of_a_handshake_are_taken_beside_the_event_loop(run: Any, authority: Authority) -> None:
    network = TlsListeningNetwork(Certificates(certificate_path=str(authority.sign("broker", hosts=HOSTS).both)))
    threads: list[threading.Thread] = []
    # OpenSSL asks this in the step that signs.
    network._context.sni_callback = lambda *_: threads.append(threading.current_thread())

    async def work() -> None:
        listening = Listening(network, authority)
        _, writer, _, transport = await listening.connect()
        transport.abort()
        writer.transport.abort()
        listening.acceptor.close()
        assert len(threads) == 1
        assert threads[0] is not threading.current_thread()

    run(work())


@pytest.mark.parametrize("whose_end", ["listener", "handshake"])
def test_a_step_whose_turn_comes_after_the_end_does_nothing(
    run: Any, authority: Authority, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, whose_end: str
) -> None:
    if whose_end == "handshake":
        monkeypatch.setattr(tls, "HANDSHAKE_SECONDS_MAX", 0.05)
    network = TlsListeningNetwork(Certificates(certificate_path=str(authority.sign("broker", hosts=HOSTS).both)))
    asked: list[Any] = []
    network._context.sni_callback = lambda *asked_with: asked.append(asked_with)
    others_are_done = threading.Event()

    async def work() -> None:
        listening = Listening(network, authority)
        others = network._handshakes.submit(others_are_done.wait)
        connecting = asyncio.ensure_future(listening.connect())
        await until(lambda: cast(Any, network._handshakes)._work_queue.qsize() == 1)
        if whose_end == "listener":
            listening.acceptor.close()
        await until(lambda: len(listening.served[0].ends) == 1)
        others_are_done.set()
        others.result()
        await asyncio.get_running_loop().run_in_executor(network._handshakes, id, None)  # after that step
        with suppress(OSError):
            await connecting
        listening.acceptor.close()

    run(work())
    assert not asked
    assert [record.message for record in caplog.records if record.levelname == "ERROR"] == []


@pytest.mark.skipif(not hasattr(socket, "TCP_INFO"), reason="the system does not say how a stream stands")
@pytest.mark.parametrize("end", ["closed", "reset"])
def test_no_step_is_taken_with_a_peer_that_left_while_it_waited(
    run: Any, authority: Authority, end: str, caplog: pytest.LogCaptureFixture
) -> None:
    """It would take a millisecond of everybody who waits behind: a flood of such peers locks others out."""
    network = TlsListeningNetwork(Certificates(certificate_path=str(authority.sign("broker", hosts=HOSTS).both)))
    asked: list[Any] = []
    network._context.sni_callback = lambda *asked_with: asked.append(asked_with)
    incoming, hello = ssl.MemoryBIO(), ssl.MemoryBIO()
    with suppress(ssl.SSLWantReadError):
        ssl.create_default_context().wrap_bio(incoming, hello, server_hostname="localhost").do_handshake()
    others_are_done = threading.Event()

    async def work() -> None:
        listening = Listening(network, authority)
        network._handshakes.submit(others_are_done.wait)
        with socket.create_connection(("127.0.0.1", listening.acceptor.port)) as stream:
            stream.sendall(hello.read())
            await until(lambda: cast(Any, network._handshakes)._work_queue.qsize() == 1)
            if end == "reset":
                stream.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        others_are_done.set()
        await until(lambda: len(listening.served[0].ends) == 1)
        listening.acceptor.close()

    run(work())
    assert not asked
    assert [record.message for record in caplog.records if record.levelname == "ERROR"] == []


class Outgoing:
    """What a step writes to, as the event loop sees it: notes who reads while the step may be writing."""

    def __init__(self, bio: ssl.MemoryBIO, is_stepping: threading.Event) -> None:
        self._bio = bio
        self._is_stepping = is_stepping
        self.read_meanwhile = 0

    @property
    def pending(self) -> int:
        return self._bio.pending

    def read(self) -> bytes:
        self.read_meanwhile += self._is_stepping.is_set()
        return self._bio.read()


def test_an_end_in_the_midst_of_a_step_leaves_alone_what_the_step_writes_to(
    run: Any, network: TlsListeningNetwork, authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    """OpenSSL writes there without the interpreter's lock, and its buffers bear no other reader."""
    is_stepping, may_end = threading.Event(), threading.Event()
    watched: list[Outgoing] = []
    step = tls._AcceptedTls._step

    def slow(self: Any) -> bool:
        watched.append(Outgoing(self._outgoing, is_stepping))
        self._outgoing = watched[-1]
        is_stepping.set()
        try:
            assert may_end.wait(SECONDS_MAX)
            return step(self)
        finally:
            is_stepping.clear()

    monkeypatch.setattr(tls._AcceptedTls, "_step", slow)

    async def work() -> None:
        is_stepping.clear()
        may_end.clear()
        watched.clear()
        listening = Listening(network, authority)
        connecting = asyncio.ensure_future(listening.connect())
        await until(is_stepping.is_set)
        listening.acceptor.close()
        await until(lambda: len(listening.served[0].ends) == 1)
        with suppress(OSError):
            await connecting
        assert is_stepping.is_set()
        assert watched[0].read_meanwhile == 0
        may_end.set()
        await until(lambda: not is_stepping.is_set())

    run(work())

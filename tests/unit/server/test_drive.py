"""The shell of a connection, on a real loopback socket, with answers made up by the test."""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager, suppress
from typing import Any

import pytest

from tidelog.base.errors import DiskError, MalformedMessageError
from tidelog.io.clock import SystemClock
from tidelog.io.executor import InlineExecutor, ThreadExecutor
from tidelog.server.transport.answer_sender import COALESCE_BYTES_MAX
from tidelog.server.transport.closed import Closed
from tidelog.server.transport.connection_memory import ConnectionMemory
from tidelog.server.transport.server_connection import Answer, ServerConnection

FRAME_SIZE_BYTES_MAX = 1 << 20
MEMORY_BYTES = 1 << 30
TIMEOUT_SECONDS = 60.0


class Stored:
    """An answer that lies on disk: counts what was read of it before anyone wanted it."""

    def __init__(self, size: int, *, fails_at: int | None = None, is_cached: bool = True) -> None:
        self.size = size
        self.is_cached = is_cached
        self.fails_at = fails_at
        self.read_bytes = 0
        self.largest_read = 0

    def __len__(self) -> int:
        return self.size

    def read(self, position: int, size: int) -> bytes:
        if self.fails_at is not None and position + size > self.fails_at:
            raise DiskError("00000000000000000000.log", "input/output error")
        self.read_bytes += size
        self.largest_read = max(self.largest_read, size)
        return bytes(size)

    def read_cached(self, position: int, size: int) -> bytes | None:
        return self.read(position, size) if self.is_cached else None


Server = tuple[asyncio.StreamReader, asyncio.StreamWriter, dict[ServerConnection, None]]


@asynccontextmanager
async def served_by(on_frame: Callable[[bytes], Answer | Awaitable[Answer]]) -> AsyncIterator[Server]:
    connections: dict[ServerConnection, None] = {}
    executor = ThreadExecutor()
    loop = asyncio.get_running_loop()
    server = await loop.create_server(
        lambda: ServerConnection(
            lambda frame, _: on_frame(bytes(frame)),
            listener_name="PLAINTEXT",
            frame_size_bytes_max=FRAME_SIZE_BYTES_MAX,
            connections=connections,
            executor=executor,
            memory=ConnectionMemory(MEMORY_BYTES, MEMORY_BYTES, SystemClock()),
        ),
        "127.0.0.1",
        0,
    )
    reader, writer = await asyncio.open_connection("127.0.0.1", server.sockets[0].getsockname()[1], limit=1 << 26)
    try:
        yield reader, writer, connections
    finally:
        writer.close()
        server.close()
        for connection in list(connections):
            connection.close()
        executor.close()


def run(scenario: Callable[[], Awaitable[None]]) -> None:
    async def bounded() -> None:
        await asyncio.wait_for(scenario(), TIMEOUT_SECONDS)

    asyncio.run(bounded())


def frame(body: bytes) -> bytes:
    return struct.pack(">i", len(body)) + body


def test_answers_keep_the_order_of_the_requests_though_one_waits() -> None:
    async def scenario() -> None:
        gate = asyncio.Event()
        seen: list[bytes] = []

        async def later() -> Answer:
            await gate.wait()
            return [b"slow;"]

        def on_frame(body: bytes) -> Answer | Awaitable[Answer]:
            seen.append(body)
            return later() if body == b"slow" else [body + b";"]

        async with served_by(on_frame) as (reader, writer, _):
            writer.write(frame(b"a") + frame(b"slow") + frame(b"b") + frame(b"c"))
            assert await reader.readexactly(2) == b"a;"
            assert seen == [b"a", b"slow"]  # those behind it are not even looked at
            gate.set()
            assert await reader.readexactly(9) == b"slow;b;c;"

    run(scenario)


def test_a_request_without_an_answer_holds_nobody_up() -> None:
    async def scenario() -> None:
        async with served_by(lambda body: None if body == b"acks=0" else [body]) as (reader, writer, _):
            writer.write(frame(b"acks=0") + frame(b"next"))
            assert await reader.readexactly(4) == b"next"

    run(scenario)


def test_a_peer_that_does_not_read_is_not_read_for() -> None:
    async def scenario() -> None:
        stored = Stored(64 << 20)
        answered: list[bytes] = []

        def on_frame(body: bytes) -> Answer:
            answered.append(body)
            return [b"head", stored] if body == b"big" else [body]

        async with served_by(on_frame) as (_, writer, _):
            address = writer.get_extra_info("peername")
            loop = asyncio.get_running_loop()
            with socket.socket() as peer:
                peer.setblocking(False)
                await loop.sock_connect(peer, address)
                await loop.sock_sendall(peer, frame(b"big") + frame(b"after"))
                while stored.read_bytes == 0:
                    await asyncio.sleep(0)
                for _ in range(200):
                    await asyncio.sleep(0)
                assert stored.read_bytes < 32 << 20  # what the sockets hold, and no more
                assert stored.largest_read <= 1 << 20
                assert answered == [b"big"]
                total = 4 + (64 << 20) + 5
                while total:
                    total -= len(await loop.sock_recv(peer, 1 << 20))
                assert stored.read_bytes == 64 << 20
                assert answered == [b"big", b"after"]

    run(scenario)


def test_a_peer_that_does_not_read_small_answers_is_not_read_for_either() -> None:
    count, size = 4_000, 16 << 10

    async def scenario() -> None:
        answered = 0

        def on_frame(_: bytes) -> Answer:
            nonlocal answered
            answered += 1
            return [bytes(size)]

        async with served_by(on_frame) as (_, writer, _):
            loop = asyncio.get_running_loop()
            with socket.socket() as peer:
                peer.setblocking(False)
                await loop.sock_connect(peer, writer.get_extra_info("peername"))
                sending = loop.create_task(loop.sock_sendall(peer, frame(bytes(1_000)) * count))
                seen = -1
                while seen != answered:
                    seen = answered
                    for _ in range(200):
                        await asyncio.sleep(0)
                assert answered * size < 32 << 20  # what the sockets hold, and no more
                left = count * size
                while left:
                    left -= len(await loop.sock_recv(peer, 1 << 20))
                await sending
                assert answered == count

    run(scenario)


def test_what_is_not_in_the_page_cache_is_read_off_the_loop_and_in_order() -> None:
    async def scenario() -> None:
        stored = Stored(3 << 20, is_cached=False)

        def on_frame(body: bytes) -> Answer:
            return [b"head", stored, b"tail"] if body == b"big" else [body]

        async with served_by(on_frame) as (reader, writer, _):
            writer.write(frame(b"big") + frame(b"after"))
            answer = await reader.readexactly(4 + (3 << 20) + 4 + 5)
            assert answer[:4] == b"head"
            assert answer[-9:] == b"tailafter"
            assert stored.largest_read <= 1 << 20

    run(scenario)


@pytest.mark.parametrize("is_cached", [True, False])
def test_an_answer_that_cannot_be_completed_closes_the_connection(is_cached: bool) -> None:
    async def scenario() -> None:
        stored = Stored(8 << 20, fails_at=5 << 20, is_cached=is_cached)
        async with served_by(lambda _: [b"head", stored]) as (reader, writer, connections):
            writer.write(frame(b"fetch"))
            try:
                while await reader.read(1 << 20):
                    pass
            except ConnectionError:
                pass
            while connections:
                await asyncio.sleep(0)

    run(scenario)


class Recorder(asyncio.Transport):
    """A transport that remembers what was done to it, in order."""

    def __init__(self) -> None:
        super().__init__()
        self.done: list[bytes | str] = []
        self.fails = False
        self.unsent_bytes = 0

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None: ...

    def get_write_buffer_size(self) -> int:
        return self.unsent_bytes

    def is_closing(self) -> bool:
        return "close" in self.done or "abort" in self.done

    def is_reading(self) -> bool:
        return True

    def pause_reading(self) -> None: ...

    def write(self, data: bytes | bytearray | memoryview[Any]) -> None:
        self.done.append(bytes(data))

    def writelines(self, list_of_data: Iterable[Any]) -> None:
        self.done.append(b"".join(list_of_data))
        if self.fails:
            self.abort()

    def close(self) -> None:
        self.done.append("close")

    def abort(self) -> None:
        self.done.append("abort")


class Held:
    """A connection without a loop: the test says what comes, and looks at what was done."""

    def __init__(self, on_frame: Callable[[bytes], Answer | Awaitable[Answer]]) -> None:
        self.transport = Recorder()
        self.closed: list[Closed] = []
        self.connections: dict[ServerConnection, None] = {}
        self.connection = ServerConnection(
            lambda frame, _: on_frame(bytes(frame)),
            listener_name="PLAINTEXT",
            frame_size_bytes_max=FRAME_SIZE_BYTES_MAX,
            connections=self.connections,
            executor=InlineExecutor(),
            memory=ConnectionMemory(MEMORY_BYTES, MEMORY_BYTES, SystemClock()),
            on_closed=lambda why, _: self.closed.append(why),
        )
        self.connection.connection_made(self.transport)

    def receive(self, data: bytes) -> None:
        view = self.connection.get_buffer(-1)
        view[: len(data)] = data
        self.connection.buffer_updated(len(data))

    def sweep_until_closed(self, sweeps_max: int) -> int:
        """How many sweeps it took."""
        for count in range(1, 100):
            self.connection.sweep(sweeps_max)
            if self.transport.done[-1:] == ["abort"]:
                self.connection.connection_lost(None)
                return count
        raise AssertionError("it stays open")


def test_garbage_closes_after_the_answers_that_came_before_it() -> None:
    def on_frame(body: bytes) -> Answer:
        if body == b"garbage":
            raise MalformedMessageError("not a request")
        return [body]

    held = Held(on_frame)
    held.receive(frame(b"fine") + frame(b"garbage") + frame(b"never"))
    assert held.transport.done == [b"fine", "close"]
    held.connection.connection_lost(None)
    assert held.closed == [Closed.REFUSED]
    assert not held.connections


def test_nothing_is_asked_of_us_once_a_write_has_failed() -> None:
    """Whoever asked is gone: an answer that was begun now would be given up before its first step."""
    asked = []

    def on_frame(body: bytes) -> Answer:
        asked.append(body)
        return [bytes(COALESCE_BYTES_MAX)]

    held = Held(on_frame)
    held.transport.fails = True
    held.receive(frame(b"first") + frame(b"second"))
    assert asked == [b"first"]


def test_one_who_does_not_take_the_answers_before_garbage_is_not_waited_for() -> None:
    held = Held(lambda _: [b"fine"])
    held.connection.refuse("garbage")
    held.sweep_until_closed(100)
    assert held.closed == [Closed.REFUSED]


def test_idle_connections_are_closed_after_so_many_sweeps_and_hold_no_buffer_before() -> None:
    held = Held(lambda body: [body])
    held.connection.sweep(3)
    held.receive(frame(b"a"))
    held.connection.sweep(3)
    with pytest.raises(IndexError):
        held.connection._receiver._view[0]
    held.receive(frame(b"b"))
    assert held.transport.done == [b"a", b"b"]
    assert held.sweep_until_closed(3) == 4
    assert held.closed == [Closed.IDLE]


def test_bytes_do_not_keep_a_request_alive_that_does_not_end() -> None:
    held = Held(lambda body: [body])
    whole = frame(bytes(50))
    for count in range(6):
        held.receive(whole[count : count + 1])
        held.connection.sweep(3)
        if held.transport.done:
            break
    held.connection.connection_lost(None)
    assert count == 4  # it is new to the first sweep
    assert held.closed == [Closed.UNFINISHED]


def test_a_request_that_ends_gives_the_next_one_its_time() -> None:
    held = Held(lambda body: [b"."])
    whole = frame(b"four")
    for _ in range(10):
        held.receive(whole[:5])
        held.connection.sweep(2)
        held.connection.sweep(2)
        held.receive(whole[5:])
    assert held.transport.done == [b"."] * 10


def test_an_answer_that_is_not_taken_is_given_up() -> None:
    held = Held(lambda _: [bytes(1 << 20), bytes(1 << 20)])
    held.connection.pause_writing()
    held.connection._sender.outbox.extend([b"more"])
    assert held.sweep_until_closed(3) == 4
    assert held.closed == [Closed.NOT_READING]


def test_a_request_that_waits_for_us_is_given_its_time() -> None:
    async def scenario() -> None:
        gate: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        held = Held(lambda _: gate)
        held.receive(frame(b"wait"))
        assert held.connection.is_waiting
        for _ in range(50):
            held.connection.sweep(3)
        assert held.transport.done == []
        gate.set_result([b"late"])
        while not held.transport.done:
            await asyncio.sleep(0)
        assert held.transport.done == [b"late"]
        assert held.sweep_until_closed(3) == 4

    run(scenario)


def test_one_who_is_held_back_has_its_answer_and_nothing_that_came_behind_until_then() -> None:
    """Nor is it taken for idle meanwhile, however long that is, and its peer's bytes wait in the socket."""

    async def scenario() -> None:
        held: Held

        def on_frame(body: bytes) -> Answer:
            if body == b"too much":
                held.connection.mute(1)
            return [bytes(COALESCE_BYTES_MAX)] if body == b"too much" else [body]

        held = Held(on_frame)
        held.receive(frame(b"first") + frame(b"too much") + frame(b"behind"))
        answered = [b"first", bytes(COALESCE_BYTES_MAX)]
        assert held.transport.done == answered
        for _ in range(50):
            held.connection.sweep(3)
        assert held.transport.done == answered
        while len(held.transport.done) == len(answered):
            await asyncio.sleep(0)
        assert held.transport.done == [*answered, b"behind"]
        assert held.sweep_until_closed(3) == 4

    run(scenario)


def test_one_who_is_held_back_and_leaves_is_forgotten() -> None:
    async def scenario() -> None:
        held = Held(lambda body: [body])
        held.connection.mute(1)
        held.receive(frame(b"behind"))
        timer = held.connection._muted
        assert timer is not None
        held.connection.connection_lost(None)
        assert timer.cancelled()
        assert held.transport.done == []

    run(scenario)


def test_a_bug_in_a_handler_closes_its_own_connection_only() -> None:
    async def scenario() -> None:
        async def fails() -> Answer:
            raise ZeroDivisionError

        async with served_by(lambda body: fails() if body == b"x" else [body]) as (reader, writer, connections):
            writer.write(frame(b"x"))
            with suppress(ConnectionError):
                assert await reader.read() == b""
            while connections:
                await asyncio.sleep(0)

    run(scenario)


def test_a_peer_that_hangs_up_while_its_request_waits_is_noticed() -> None:
    async def scenario() -> None:
        waiting = asyncio.Event()
        cancelled = asyncio.Event()

        async def waits() -> Answer:
            waiting.set()
            try:
                await asyncio.Event().wait()
            finally:
                cancelled.set()
            return None

        async with served_by(lambda _: waits()) as (_, writer, connections):
            writer.write(frame(b"wait"))
            await waiting.wait()
            writer.close()
            await cancelled.wait()
            assert not connections

    run(scenario)


def test_a_peer_that_leaves_while_its_request_waits_is_forgotten() -> None:
    async def scenario() -> None:
        waiting = asyncio.Event()
        cancelled = asyncio.Event()

        async def waits() -> Answer:
            waiting.set()
            try:
                await asyncio.Event().wait()
            finally:
                cancelled.set()
            return None

        async with served_by(lambda _: waits()) as (_, writer, connections):
            writer.write(frame(b"wait"))
            await waiting.wait()
            for connection in list(connections):
                connection.close()
            await cancelled.wait()

    run(scenario)

"""Who sends many requests at a time, or is sent much, is served for a turn of the event loop; then the others are."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Awaitable, Callable, Iterable
from contextlib import closing
from typing import Any

import pytest

from support.fixtures.loop_steps import Steps
from support.fixtures.ticking_clock import TickingClock
from tidelog.io.executor import InlineExecutor
from tidelog.server.transport.connection_memory import ConnectionMemory
from tidelog.server.transport.server_connection import Answer, ServerConnection
from tidelog.server.transport.turns import TURN_MS_MAX

TIMEOUT_SECONDS = 60.0
BUFFER_BYTES = 16 << 10


def connection(clock: TickingClock, answer: Callable[[bytes], Answer | Awaitable[Answer]]) -> ServerConnection:
    return ServerConnection(
        lambda frame, _: answer(bytes(frame)),
        listener_name="PLAINTEXT",
        frame_size_bytes_max=1 << 20,
        connections={},
        executor=InlineExecutor(),
        memory=ConnectionMemory(1 << 30, 1 << 30, clock),
    )


def frame(body: bytes) -> bytes:
    return struct.pack(">i", len(body)) + body


@pytest.fixture(params=["asyncio", "uvloop"])
def run(request: pytest.FixtureRequest) -> Callable[[Awaitable[None]], None]:
    factory = asyncio.new_event_loop
    if request.param == "uvloop":
        factory = pytest.importorskip("uvloop").new_event_loop

    def run_bounded(work: Awaitable[None]) -> None:
        with asyncio.Runner(loop_factory=factory) as runner:
            runner.run(asyncio.wait_for(work, TIMEOUT_SECONDS))

    return run_bounded


@pytest.mark.parametrize("tenths", [20, 10, 1])
def test_others_are_served_before_all_that_came_at_one_time(run: Any, tenths: int) -> None:
    """Each request takes so many tenths of a millisecond. With uvloop a socket is read 32 times in one step."""
    count = 1_000
    bodies = [b"%d" % number + bytes(2_000) for number in range(count)]

    async def scenario() -> None:
        clock, steps, answered = TickingClock(), Steps(), list[bytes]()

        def answer(body: bytes) -> Answer:
            steps.count()
            clock.tenths += tenths
            answered.append(body)
            return [body]

        loop = asyncio.get_running_loop()
        server = await loop.create_server(lambda: connection(clock, answer), "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        other_reader, other_writer = await asyncio.open_connection("127.0.0.1", port)
        with closing(writer), closing(other_writer), closing(server):
            writer.write(b"".join(map(frame, bodies)))
            other_writer.write(frame(b"other"))
            whole = b"".join(bodies)
            assert await reader.readexactly(len(whole)) == whole
            assert await other_reader.readexactly(5) == b"other"
        assert [body for body in answered if body != b"other"] == bodies
        one_buffer = BUFFER_BYTES // len(frame(bodies[0])) if tenths < 10 else 0
        assert max(steps.counts) <= TURN_MS_MAX * 10 // tenths + one_buffer + 2

    run(scenario())


def test_requests_behind_one_that_waits_are_answered_in_order_over_many_turns(run: Any) -> None:
    async def scenario() -> None:
        clock = TickingClock()

        async def later(body: bytes) -> Answer:
            await asyncio.sleep(0)
            return [body]

        def answer(body: bytes) -> Answer | Awaitable[Answer]:
            clock.tenths += 10
            if body.endswith(b"3"):
                return later(body)
            return None if body.endswith(b"4") else [body]

        loop = asyncio.get_running_loop()
        server = await loop.create_server(lambda: connection(clock, answer), "127.0.0.1", 0)
        reader, writer = await asyncio.open_connection("127.0.0.1", server.sockets[0].getsockname()[1])
        with closing(writer), closing(server):
            writer.write(b"".join(frame(b"%d" % number) for number in range(400)))
            expected = b"".join(b"%d" % number for number in range(400) if number % 10 != 4)
            assert await reader.readexactly(len(expected)) == expected

    run(scenario())


class Stored:
    """On disk, or as good as that: to read a piece takes a millisecond."""

    def __init__(self, size_bytes: int, clock: TickingClock, steps: Steps) -> None:
        self._size_bytes = size_bytes
        self._clock = clock
        self._steps = steps

    def __len__(self) -> int:
        return self._size_bytes

    def read(self, position: int, size: int) -> bytes:
        self._steps.count()
        self._clock.tenths += 10
        return bytes([position >> 20 & 0xFF]) * size

    read_cached = read


class Greedy(asyncio.Transport):
    """Its peer takes all at once."""

    def __init__(self) -> None:
        super().__init__()
        self.taken = bytearray()
        self.is_paused = self.is_closed = False

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None: ...

    def is_closing(self) -> bool:
        return self.is_closed

    def is_reading(self) -> bool:
        return not self.is_paused

    def pause_reading(self) -> None:
        self.is_paused = True

    def resume_reading(self) -> None:
        self.is_paused = False

    def write(self, data: bytes | bytearray | memoryview[Any]) -> None:
        self.taken += data

    def writelines(self, list_of_data: Iterable[Any]) -> None:
        self.taken += b"".join(list_of_data)

    def close(self) -> None:
        self.is_closed = True

    abort = close


def hear(connection: ServerConnection, data: bytes) -> None:
    view = connection.get_buffer(-1)
    view[: len(data)] = data
    connection.buffer_updated(len(data))


def test_others_are_served_before_all_of_an_answer_is_sent() -> None:
    async def scenario() -> None:
        clock, steps = TickingClock(), Steps()
        transport = Greedy()
        served = connection(clock, lambda body: [b"head", Stored(20 << 20, clock, steps)] if body == b"big" else [body])
        served.connection_made(transport)
        hear(served, frame(b"big") + frame(b"behind"))
        assert transport.is_paused
        while not transport.taken.endswith(b"behind"):
            await asyncio.sleep(0)
        assert len(transport.taken) == 4 + (20 << 20) + 6
        assert transport.taken[4 : -6 : 1 << 20] == bytes(range(20))
        assert max(steps.counts) <= TURN_MS_MAX
        while transport.is_paused:
            await asyncio.sleep(0)

    asyncio.run(scenario())


@pytest.mark.parametrize("end", ["lost", "stopped"])
def test_who_leaves_between_two_turns_is_served_no_more(end: str) -> None:
    async def scenario() -> None:
        clock, answered = TickingClock(), list[bytes]()

        def answer(body: bytes) -> Answer:
            clock.tenths += 100
            answered.append(body)
            return [body]

        transport = Greedy()
        served = connection(clock, answer)
        served.connection_made(transport)
        hear(served, frame(b"first") + frame(b"second"))
        if end == "lost":
            served.connection_lost(None)
        else:
            served.close_when_answered()
        for _ in range(3):
            await asyncio.sleep(0)
        assert answered == [b"first"]
        assert transport.is_closed is (end == "stopped")

    asyncio.run(scenario())

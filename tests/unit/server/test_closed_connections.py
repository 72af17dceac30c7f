"""What a connection held is free once it is closed: by reference counts, for the collector may look much later."""

from __future__ import annotations

import asyncio
import gc
import struct

import pytest

from support.fixtures.ticking_clock import TickingClock
from tidelog.io.executor import InlineExecutor
from tidelog.server.transport.connection_memory import ConnectionMemory
from tidelog.server.transport.server_connection import ServerConnection

FRAME_BYTES = 50 << 20
TIMEOUT_SECONDS = 30.0


def connections() -> int:
    return sum(isinstance(one, ServerConnection) for one in gc.get_objects())


async def until_gone(opened: dict[ServerConnection, None]) -> None:
    for _ in range(1_000):
        if not opened:
            return
        await asyncio.sleep(0.01)
    raise AssertionError("it is still open")


@pytest.mark.parametrize("closed_by", ["peer", "node"])
@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
def test_a_connection_leaves_nothing_behind(loop: str, closed_by: str) -> None:
    """Though half of a large request came on it."""
    factory = asyncio.new_event_loop if loop == "asyncio" else pytest.importorskip("uvloop").new_event_loop

    async def scenario() -> None:
        opened: dict[ServerConnection, None] = {}
        memory = ConnectionMemory(1 << 30, 1 << 30, TickingClock())

        def new() -> ServerConnection:
            return ServerConnection(
                lambda _, __: [b"\0\0\0\0"],
                listener_name="PLAINTEXT",
                frame_size_bytes_max=FRAME_BYTES,
                connections=opened,
                executor=InlineExecutor(),
                memory=memory,
            )

        server = await asyncio.get_running_loop().create_server(new, "127.0.0.1", 0)
        _, writer = await asyncio.open_connection("127.0.0.1", server.sockets[0].getsockname()[1])
        writer.write(struct.pack(">ihh", FRAME_BYTES, 0, 9) + bytes(FRAME_BYTES // 2))
        while memory.requests.used_bytes < FRAME_BYTES // 3:
            await asyncio.sleep(0.01)
        assert connections() == 1
        if closed_by == "node":
            next(iter(opened)).close_for_memory()
        else:
            writer.transport.abort()
        await until_gone(opened)
        await asyncio.sleep(0.05)
        assert memory.requests.used_bytes == 0
        assert connections() == 0
        writer.transport.abort()
        server.close()

    gc.collect()
    assert connections() == 0
    gc.disable()
    try:
        with asyncio.Runner(loop_factory=factory) as runner:
            runner.run(asyncio.wait_for(scenario(), TIMEOUT_SECONDS))
    finally:
        gc.enable()

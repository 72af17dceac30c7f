"""Streams in memory: order, back-pressure, refusals, resets, partitions one way and both, machines that vanish."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from typing import cast

import pytest

from tidelog.base.errors import NetworkError
from tidelog.base.ports import Link
from tidelog.sim.faults.network_faults import BlockedWays, ways
from tidelog.sim.world.network import LATE_SECONDS_MAX, RESEND_SECONDS_MAX, MachineNetwork, SimulatedListening
from tidelog.sim.world.transport import GIVE_UP_SECONDS, WINDOW_BYTES
from tidelog.sim.world.world import SimulatedWorld

PORT = 9092


class Sink(asyncio.BufferedProtocol):
    """The serving side: keeps all that comes, and echoes it if it is asked to."""

    def __init__(self, echoes: bool) -> None:
        self.received = bytearray()
        self.closed: list[Exception | None] = []
        self.paused = 0
        self.resumed = 0
        self.transport: asyncio.Transport | None = None
        self._echoes = echoes
        self._buffer = bytearray(1000)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)

    def get_buffer(self, sizehint: int) -> memoryview:
        return memoryview(self._buffer)

    def buffer_updated(self, nbytes: int) -> None:
        self.received += self._buffer[:nbytes]
        if self._echoes and self.transport is not None:
            self.transport.write(self._buffer[:nbytes])

    def connection_lost(self, exc: Exception | None) -> None:
        self.closed.append(exc)

    def pause_writing(self) -> None:
        self.paused += 1

    def resume_writing(self) -> None:
        self.resumed += 1


class Caller:
    """The reading side of the one who connects, as a `Receiver`."""

    def __init__(self) -> None:
        self.received = bytearray()
        self.closed: list[Exception | None] = []
        self._buffer = bytearray(500)

    def get_buffer(self, size_hint: int) -> memoryview:
        return memoryview(self._buffer)

    def on_bytes(self, size_bytes: int) -> None:
        self.received += self._buffer[:size_bytes]

    def on_closed(self, error: Exception | None) -> None:
        self.closed.append(error)


class Scene:
    """A server that listens, and a caller."""

    def __init__(self, world: SimulatedWorld) -> None:
        self.world = world
        self.server: MachineNetwork = world.machine("server").network
        self.client: MachineNetwork = world.machine("client").network
        self.sinks: list[Sink] = []
        self.callers: list[Caller] = []
        self.echoes = False
        self.refuses = False
        self.listening: SimulatedListening | None = None

    async def serve(self, backlog: int = 10) -> None:
        async def main() -> None:
            self.listening = self.server.listen(None, PORT, backlog=backlog, admit=self.admit, on_trouble=print)
            self.listening.start()
            await asyncio.Event().wait()

        self.world.machine("server").start(main)
        await asyncio.sleep(0)

    def admit(self, ip: str, descriptor: int) -> Sink | None:
        assert ip == self.client.ip
        if self.refuses:
            return None
        self.sinks.append(Sink(self.echoes))
        return self.sinks[-1]

    async def call(self) -> Link:
        self.callers.append(Caller())
        link = await self.client.connect("server", PORT, self.callers[-1])
        await asyncio.sleep(0.1)
        return link


@pytest.fixture
def world() -> Iterator[SimulatedWorld]:
    with SimulatedWorld(1) as made:
        yield made


def play(world: SimulatedWorld, story: Callable[[Scene], Awaitable[None]], limit_seconds: float = 300) -> None:
    async def main() -> None:
        await story(Scene(world))

    world.run(main(), limit_seconds=limit_seconds)


@asynccontextmanager
async def joined(scene: Scene, *, echoes: bool = False) -> AsyncIterator[tuple[Link, Caller, Sink]]:
    scene.echoes = echoes
    await scene.serve()
    link = await scene.call()
    yield link, scene.callers[0], scene.sinks[0]


def test_bytes_arrive_whole_and_in_order_though_in_pieces(world: SimulatedWorld) -> None:
    async def story(scene: Scene) -> None:
        world.network.faults.cut_rate = 0.9
        async with joined(scene, echoes=True) as (link, caller, sink):
            sent = b"".join(b"%d " % number for number in range(20_000))
            for start in range(0, len(sent), 1_999):
                link.write([sent[start : start + 1_000], sent[start + 1_000 : start + 1_999]])
            await asyncio.sleep(60)
            assert bytes(sink.received) == sent == bytes(caller.received)
            link.close()
            await asyncio.sleep(1)
            assert sink.closed == [None] == caller.closed

    play(world, story)


def test_two_streams_overtake_each_other(world: SimulatedWorld) -> None:
    async def story(scene: Scene) -> None:
        await scene.serve()
        links = [await scene.call() for _ in range(2)]
        firsts = set()
        for _ in range(30):
            for link in links:
                link.write([b"x"])
            while not any(sink.received for sink in scene.sinks):
                await asyncio.sleep(0.000_01)
            firsts.add(bool(scene.sinks[0].received))
            await asyncio.sleep(1)
            for sink in scene.sinks:
                sink.received.clear()
        assert firsts == {True, False}

    play(world, story)


def test_a_reader_that_stops_holds_up_the_writer_and_lets_it_go_on(world: SimulatedWorld) -> None:
    async def story(scene: Scene) -> None:
        async with joined(scene) as (link, caller, sink):
            assert sink.transport is not None
            transport = sink.transport
            link.write([b"hello"])
            await asyncio.sleep(1)
            # The other way round: the server writes, and the caller's side does not take it.
            assert transport.get_write_buffer_size() == 0
            peer = transport.peer  # type: ignore[attr-defined]
            peer.pause_reading()
            piece = bytes(64 * 1024)
            for _ in range(20):
                transport.write(piece)
            await asyncio.sleep(1)
            assert (sink.paused, sink.resumed, len(caller.received)) == (1, 0, 0)
            assert transport.get_write_buffer_size() >= 20 * len(piece) - 2 * WINDOW_BYTES
            peer.resume_reading()
            await asyncio.sleep(1)
            assert (sink.paused, sink.resumed, len(caller.received)) == (1, 1, 20 * len(piece))

    play(world, story)


def test_who_cannot_be_reached_is_told_why(world: SimulatedWorld) -> None:
    async def story(scene: Scene) -> None:
        with pytest.raises(NetworkError, match=r"server:9092: connection refused"):
            await scene.call()
        with pytest.raises(NetworkError, match=r"nobody:1: the name cannot be resolved"):
            await scene.client.connect("nobody", 1, Caller())
        await scene.serve()
        scene.refuses = True
        with pytest.raises(NetworkError, match="already in use"):
            scene.server.listen("server", PORT, backlog=1, admit=scene.admit, on_trouble=print)
        with pytest.raises(NetworkError, match="no such address"):
            scene.server.listen("client", PORT + 1, backlog=1, admit=scene.admit, on_trouble=print)
        link = await scene.call()
        await asyncio.sleep(1)
        assert len(scene.callers[-1].closed) == 1
        link.write([b"into the void"])
        world.network.partition("client", "server")
        with pytest.raises(NetworkError, match="timed out"):
            await scene.call()

    play(world, story)


def test_who_is_held_up_waits_in_the_queue(world: SimulatedWorld) -> None:
    async def story(scene: Scene) -> None:
        await scene.serve()
        assert scene.listening is not None
        scene.listening.pause()
        link = await scene.call()
        link.write([b"waiting"])
        await asyncio.sleep(5)
        assert scene.sinks == []
        scene.listening.resume()
        await asyncio.sleep(1)
        assert [bytes(sink.received) for sink in scene.sinks] == [b"waiting"]

    play(world, story)


def test_a_reset_ends_both_sides(world: SimulatedWorld) -> None:
    async def story(scene: Scene) -> None:
        async with joined(scene) as (link, caller, sink):
            world.network.faults.reset_rate = 1.0
            link.write([b"lost"])
            await asyncio.sleep(1)
            assert isinstance(sink.closed[0], ConnectionResetError)
            assert isinstance(caller.closed[0], ConnectionResetError)
            assert (len(sink.closed), len(caller.closed), bytes(sink.received)) == (1, 1, b"")

    play(world, story)


def test_a_half_reset_delivers_late_what_its_writer_takes_for_lost(world: SimulatedWorld) -> None:
    """So a request reaches its broker once it was asked anew on another connection: twice, and in another order."""

    async def story(scene: Scene) -> None:
        async with joined(scene) as (link, caller, sink):
            link.write([b"first "])
            world.network.faults.half_reset_rate = 1.0
            link.write([b"second"])
            world.network.faults.half_reset_rate = 0.0
            await asyncio.sleep(0.01)
            assert isinstance(caller.closed[0], ConnectionResetError)
            assert (bytes(sink.received), sink.closed) == (b"first ", [])
            again = await scene.call()
            again.write([b"second"])
            await asyncio.sleep(LATE_SECONDS_MAX + 0.1)
            assert [bytes(each.received) for each in scene.sinks] == [b"first second", b"second"]
            assert isinstance(sink.closed[0], ConnectionResetError)
            assert (len(caller.closed), len(sink.closed), scene.sinks[1].closed) == (1, 1, [])
            assert world.network.injected["network half reset"] == 1

    play(world, story)


def test_what_is_lost_is_sent_again_while_other_streams_go_on(world: SimulatedWorld) -> None:
    async def story(scene: Scene) -> None:
        async with joined(scene) as (link, _, sink):
            other = await scene.call()
            world.network.faults.loss_rate = 1.0
            link.write([b"lost "])
            world.network.faults.loss_rate = 0.0
            link.write([b"behind it"])
            other.write([b"beside it"])
            await asyncio.sleep(0.1)
            assert [bytes(each.received) for each in scene.sinks] == [b"", b"beside it"]
            await asyncio.sleep(2 * RESEND_SECONDS_MAX)
            assert bytes(sink.received) == b"lost behind it"

    play(world, story)


def test_a_machine_that_is_far_away_is_behind_the_others(world: SimulatedWorld) -> None:
    async def story(scene: Scene) -> None:
        async with joined(scene) as (link, _, sink):
            world.network.far_ms["server"] = 400.0
            link.write([b"late"])
            await asyncio.sleep(0.19)
            assert bytes(sink.received) == b""
            await asyncio.sleep(0.25)
            assert bytes(sink.received) == b"late"
            world.network.far_ms.clear()
            link.write([b"r"])
            await asyncio.sleep(0.1)
            assert bytes(sink.received) == b"later"

    play(world, story)


@pytest.mark.parametrize("both_ways", [False, True])
def test_a_partition_holds_back_and_healing_delivers(world: SimulatedWorld, both_ways: bool) -> None:
    async def story(scene: Scene) -> None:
        async with joined(scene) as (link, caller, sink):
            assert sink.transport is not None
            world.network.block("client", "server")
            if both_ways:
                world.network.block("server", "client")
            link.write([b"question "])
            link.write([b"asked"])
            sink.transport.write(b"answer")
            await asyncio.sleep(GIVE_UP_SECONDS / 2)
            assert (bytes(sink.received), bytes(caller.received)) == (b"", b"" if both_ways else b"answer")
            world.network.heal()
            await asyncio.sleep(1)
            assert (bytes(sink.received), bytes(caller.received)) == (b"question asked", b"answer")

    play(world, story)


def test_a_way_that_is_free_again_carries_what_was_held_on_it_and_nothing_else(world: SimulatedWorld) -> None:
    async def story(scene: Scene) -> None:
        async with joined(scene) as (link, caller, sink):
            assert sink.transport is not None
            world.network.partition("client", "server")
            link.write([b"question"])
            sink.transport.write(b"answer")
            await asyncio.sleep(1)
            world.network.unblock("client", "server")
            await asyncio.sleep(1)
            assert (bytes(sink.received), bytes(caller.received)) == (b"question", b"")
            world.network.unblock("server", "client")
            await asyncio.sleep(1)
            assert bytes(caller.received) == b"answer"

    play(world, story)


def test_a_way_that_several_block_is_free_when_the_last_of_them_is_done(world: SimulatedWorld) -> None:
    world.machine("client"), world.machine("server")
    blocked = BlockedWays(world.network)
    one_way, both = ways(["client"], ["server"]), ways(["client"], ["client", "server"], both=True)
    assert both == [("client", "server"), ("server", "client")]
    blocked.block(one_way)
    blocked.block(both)
    blocked.unblock(one_way)
    assert not world.network.passes("client", "server")
    blocked.unblock(both)
    assert world.network.passes("client", "server")
    blocked.block(both)
    blocked.heal()
    blocked.unblock(both)
    assert world.network.passes("server", "client")


def test_who_hears_nothing_for_long_gives_up(world: SimulatedWorld) -> None:
    async def story(scene: Scene) -> None:
        async with joined(scene) as (link, caller, _):
            world.network.partition("client", "server")
            link.write([b"anybody there?"])
            await asyncio.sleep(GIVE_UP_SECONDS + 1)
            assert isinstance(caller.closed[0], TimeoutError)

    play(world, story)


def test_a_kill_is_told_to_the_peer_and_a_loss_of_power_is_not(world: SimulatedWorld) -> None:
    async def story(scene: Scene) -> None:
        machine = world.machine("server")
        async with joined(scene) as (_, caller, sink):
            machine.kill()
            await asyncio.sleep(1)
            assert len(caller.closed) == 1
            assert sink.closed == []  # it is not there any more to be told

        await scene.serve()
        link = await scene.call()
        machine.lose_power()
        await asyncio.sleep(5)
        assert scene.callers[1].closed == []
        link.write([b"still there?"])
        await asyncio.sleep(GIVE_UP_SECONDS / 2)
        assert scene.callers[1].closed == []
        await scene.serve()  # the power is back, and whoever answers there knows nothing of this stream
        await asyncio.sleep(2)
        assert isinstance(scene.callers[1].closed[0], ConnectionResetError)

    play(world, story)

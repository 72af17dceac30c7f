"""Links that are cut hold what passes over them, and close nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path

import pytest

from support.fixtures.waiting import until
from tidelog.base.errors import NetworkError
from tidelog.base.ports import Link
from tidelog.io.acceptor import Acceptor
from tidelog.testing.cut_network import CutNetwork
from tidelog.testing.links import ALL, CLIENTS, REPLICATION, Links

SECONDS_MAX = 60.0
US, PEER, OTHER = 1, 2, 3
ROUNDS = 5
"""So many exchanges with somebody else go by before it is believed that nothing comes."""


class Echo(asyncio.BufferedProtocol):
    """The server's side of a connection."""

    def __init__(self) -> None:
        self.memory = bytearray(8)  # what is longer comes in pieces
        self.transport: asyncio.Transport | None = None
        self.heard = b""
        self.answers = True

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def get_buffer(self, sizehint: int) -> memoryview:
        return memoryview(self.memory)

    def buffer_updated(self, nbytes: int) -> None:
        assert self.transport is not None
        self.heard += self.memory[:nbytes]
        if self.answers:
            self.transport.writelines([bytes(self.memory[:nbytes])])


class Heard:
    """The receiver of a stream that was opened."""

    def __init__(self) -> None:
        self.memory = bytearray(8)
        self.heard = b""
        self.closed: list[Exception | None] = []

    def get_buffer(self, size_hint: int) -> memoryview:
        return memoryview(self.memory)

    def on_bytes(self, size_bytes: int) -> None:
        self.heard += self.memory[:size_bytes]

    def on_closed(self, error: Exception | None) -> None:
        self.closed.append(error)


def holds(heard: Heard, count: int) -> bool:
    return len(heard.heard) == count


class Stage:
    """A node and the others it is connected to, each of which echoes; and the clients' port of the node."""

    def __init__(self, links: Links) -> None:
        self.links = links
        self.served: dict[int, list[Echo]] = {CLIENTS: [], PEER: [], OTHER: []}
        plain = CutNetwork(links, US, brokers={}, controllers={}, clients_port=-1)
        self.acceptors = {one: self._listen(plain, one) for one in (PEER, OTHER)}
        self.network = CutNetwork(
            links,
            US,
            brokers={self.acceptors[PEER].port: PEER},
            controllers={self.acceptors[OTHER].port: OTHER},
            clients_port=0,
        )
        self.acceptors[CLIENTS] = self._listen(self.network, CLIENTS)

    def _listen(self, network: CutNetwork, who: int) -> Acceptor:
        def admit(_ip: str, _descriptor: int) -> Echo:
            self.served[who].append(Echo())
            return self.served[who][-1]

        acceptor = network.listen("127.0.0.1", 0, backlog=10, admit=admit, on_trouble=lambda _: None)
        acceptor.start()
        return acceptor

    async def connect(self, peer: int) -> tuple[Link, Heard]:
        receiver = Heard()
        return await self.network.connect("127.0.0.1", self.acceptors[peer].port, receiver), receiver

    async def let_others_talk(self) -> None:
        link, heard = await self.connect(OTHER)
        for number in range(ROUNDS):
            link.write([b"%d" % number])
            await until(partial(holds, heard, number + 1))
        link.close()


@pytest.fixture
def play(tmp_path: Path) -> Callable[[Callable[[Stage], Awaitable[None]]], None]:
    def run(story: Callable[[Stage], Awaitable[None]]) -> None:
        async def told() -> None:
            stage = Stage(Links(tmp_path / "links", 3, create=True))
            async with asyncio.timeout(SECONDS_MAX):
                await story(stage)
            for acceptor in stage.acceptors.values():
                acceptor.close()

        asyncio.run(told())

    return run


Play = Callable[[Callable[[Stage], Awaitable[None]]], None]


@pytest.mark.parametrize(("source", "target"), [(US, PEER), (PEER, US)])
@pytest.mark.parametrize("what", [ALL, REPLICATION])
def test_what_is_sent_over_a_cut_link_arrives_in_order_when_it_is_mended(
    play: Play, source: int, target: int, what: int
) -> None:
    async def story(stage: Stage) -> None:
        link, heard = await stage.connect(PEER)
        link.write([b"before "])
        await until(lambda: heard.heard == b"before ")
        stage.links.cut(source, target, what)
        link.write([b"first ", b"and second "])
        link.write([b"and third"])
        await stage.let_others_talk()
        assert heard.heard == b"before "
        (server,) = stage.served[PEER]
        if source == PEER:
            await until(lambda: server.heard == b"before first and second and third")  # that way is whole
        else:
            assert server.heard == b"before "
        stage.links.mend(what)
        link.write([b"!"])
        await until(lambda: heard.heard == b"before first and second and third!")
        link.close()

    play(story)


def test_replication_that_is_cut_leaves_controllers_alone(play: Play) -> None:
    async def story(stage: Stage) -> None:
        stage.links.cut(US, OTHER, REPLICATION)
        await stage.let_others_talk()

    play(story)


def test_a_connection_over_a_cut_link_is_made_when_it_is_mended(play: Play) -> None:
    async def story(stage: Stage) -> None:
        stage.links.cut(PEER, US)
        connecting = asyncio.ensure_future(stage.connect(PEER))
        await stage.let_others_talk()
        assert not connecting.done()
        assert not stage.served[PEER]
        port = stage.acceptors[PEER].port
        stage.acceptors[PEER].close()
        assert not await stage.network.refuses("127.0.0.1", port)  # nobody is heard to refuse
        stage.links.mend()
        assert await stage.network.refuses("127.0.0.1", port)
        with pytest.raises(NetworkError, match="refused"):
            await connecting

    play(story)


def test_an_end_is_heard_of_when_the_link_is_mended(play: Play) -> None:
    async def story(stage: Stage) -> None:
        link, heard = await stage.connect(PEER)
        link.write([b"hello"])
        await until(lambda: heard.heard == b"hello")
        stage.links.cut(PEER, US)
        (server,) = stage.served[PEER]
        assert server.transport is not None
        server.transport.write(b" and goodbye")
        server.transport.close()
        await stage.let_others_talk()
        assert (heard.heard, heard.closed) == (b"hello", [])
        stage.links.mend()
        await until(lambda: heard.closed)
        assert (heard.heard, heard.closed) == (b"hello and goodbye", [None])

    play(story)


def test_who_closes_a_cut_link_hears_of_it_once(play: Play) -> None:
    async def story(stage: Stage) -> None:
        for peer_closes in (False, True):
            link, heard = await stage.connect(PEER)
            await until(lambda: stage.served[PEER] and stage.served[PEER][-1].transport)
            stage.links.cut(US, PEER)
            stage.links.cut(PEER, US)
            link.write([b"never heard"])
            transport = stage.served[PEER][-1].transport
            assert transport is not None
            if peer_closes:
                transport.close()
                await stage.let_others_talk()
            link.close()
            await until(partial(getattr, heard, "closed"))
            stage.links.mend()
            await stage.let_others_talk()
            assert (heard.heard, heard.closed) == (b"", [None])
            assert stage.served[PEER][-1].heard == b""

    play(story)


@pytest.mark.parametrize(("source", "target"), [(CLIENTS, US), (US, CLIENTS)])
def test_a_client_that_is_cut_off_is_heard_and_answered_when_it_is_mended(play: Play, source: int, target: int) -> None:
    async def story(stage: Stage) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", stage.acceptors[CLIENTS].port)
        writer.write(b"before ")
        assert await reader.readexactly(7) == b"before "
        (server,) = stage.served[CLIENTS]
        stage.links.cut(source, target)
        writer.write(b"a request of many bytes")
        if source == CLIENTS:
            await stage.let_others_talk()
            assert server.heard == b"before "
        else:
            await until(lambda: server.heard == b"before a request of many bytes")
            assert server.transport is not None
            assert server.transport.get_write_buffer_size() >= len(b"a request of many bytes")
        stage.links.mend()
        assert await reader.readexactly(23) == b"a request of many bytes"
        writer.close()

    play(story)


def test_a_server_that_reads_no_further_is_not_made_to_by_a_link_that_is_mended(play: Play) -> None:
    async def story(stage: Stage) -> None:
        _, writer = await asyncio.open_connection("127.0.0.1", stage.acceptors[CLIENTS].port)
        await until(lambda: stage.served[CLIENTS] and stage.served[CLIENTS][0].transport)
        (server,) = stage.served[CLIENTS]
        transport = server.transport
        assert transport is not None
        stage.links.cut(CLIENTS, US)
        writer.write(b"01234567more")
        await stage.let_others_talk()
        transport.pause_reading()
        assert not transport.is_reading()
        stage.links.mend()
        await until(lambda: server.heard == b"01234567")  # what it had made room for
        await stage.let_others_talk()
        assert server.heard == b"01234567"
        transport.resume_reading()
        await until(lambda: server.heard == b"01234567more")
        writer.close()

    play(story)


def test_a_cut_holds_for_all_who_map_the_file(tmp_path: Path) -> None:
    ours = Links(tmp_path / "links", 3, create=True)
    theirs = Links(tmp_path / "links", 3)
    ours.cut(1, 2)
    ours.cut(2, CLIENTS, REPLICATION)
    ours.cut(3, 3)
    assert theirs.is_cut(1, 2)
    assert not theirs.is_cut(2, 1)
    assert not theirs.is_cut(3, 3)
    assert not theirs.is_cut(2, CLIENTS)
    assert theirs.is_cut(2, CLIENTS, ALL | REPLICATION)
    theirs.mend()
    assert not ours.is_cut(1, 2)
    assert not ours.are_whole
    theirs.mend(REPLICATION)
    assert ours.are_whole
    for one in (ours, theirs):
        one.close()

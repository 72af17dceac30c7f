"""The network of a node whose links can be cut: what is sent or arrives on a cut way is held, and nobody is told.

    another node <── Stream ──  HeldLink  ── who connected         a node opened it: the other node's end is as it is
          client ── transport ── HeldConnection ── the server      at the clients' port

So is it with a cable that is pulled: TCP resends, for as long as neither end gives up. When the way is mended, what was
held goes on, in its order.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple, cast

from tidelog.base.ports import Admit, Buffer, Link, Receiver
from tidelog.io.acceptor import Acceptor
from tidelog.io.network import RealNetwork
from tidelog.testing.links import ALL, CLIENTS, REPLICATION, Links

LOOK_SECONDS = 0.02
"""How often a way is looked at on which something waits."""


class Way(NamedTuple):
    """Between this node and a peer, as `links` has it now."""

    links: Links
    node_id: int
    peer: int
    what: int = ALL

    @property
    def holds_outgoing(self) -> bool:
        return self.links.is_cut(self.node_id, self.peer, self.what)

    @property
    def holds_incoming(self) -> bool:
        return self.links.is_cut(self.peer, self.node_id, self.what)

    @property
    def is_cut(self) -> bool:
        return self.holds_outgoing or self.holds_incoming


class CutNetwork(RealNetwork):
    """The network of one node.

    Args:
        brokers: the nodes by the ports of their listeners for brokers.
        controllers: the nodes by the ports of their listeners for controllers.
        clients_port: where clients reach this node.
    """

    def __init__(
        self,
        links: Links,
        node_id: int,
        *,
        brokers: Mapping[int, int],
        controllers: Mapping[int, int],
        clients_port: int,
    ) -> None:
        self._ways = {port: Way(links, node_id, peer) for port, peer in controllers.items()}
        self._ways |= {port: Way(links, node_id, peer, ALL | REPLICATION) for port, peer in brokers.items()}
        self._clients = Way(links, node_id, CLIENTS)
        self._clients_port = clients_port

    async def connect(self, host: str, port: int, receiver: Receiver) -> Link:
        """As it does without cuts; over a cut way it waits until that is mended, as long as the caller does."""
        way = self._ways.get(port)
        if way is None:
            return await super().connect(host, port, receiver)
        while way.is_cut:
            await asyncio.sleep(LOOK_SECONDS)
        link = HeldLink(way, receiver, asyncio.get_running_loop())
        link.connected(await super().connect(host, port, link))
        return link

    async def refuses(self, host: str, port: int) -> bool:
        """Nobody is heard to refuse over a cut way."""
        way = self._ways.get(port)
        return (way is None or not way.is_cut) and await super().refuses(host, port)

    def listen(
        self, host: str | None, port: int, *, backlog: int, admit: Admit, on_trouble: Callable[[OSError], None]
    ) -> Acceptor:
        """As it does without cuts; at the clients' port, whoever is admitted is heard as the links allow."""
        if port == self._clients_port:
            way, admitted = self._clients, admit

            def admit(ip: str, descriptor: int, /) -> asyncio.BufferedProtocol | None:
                protocol = admitted(ip, descriptor)
                return None if protocol is None else HeldConnection(way, protocol)

        return super().listen(host, port, backlog=backlog, admit=admit, on_trouble=on_trouble)


class HeldLink:
    """A stream that this node opened, from both sides: the receiver of what is real, and the link of who connected."""

    def __init__(self, way: Way, receiver: Receiver, loop: asyncio.AbstractEventLoop) -> None:
        self._way = way
        self._receiver = receiver
        self._loop = loop
        self._link: Link | None = None
        self._outgoing: list[list[Buffer]] = []
        self._unread_bytes = 0  # they lie in the receiver's own buffer
        self._incoming: list[bytes] = []
        self._room = bytearray()
        self._ended: tuple[Exception | None] | None = None
        self._is_closed = False
        self._looking: asyncio.TimerHandle | None = None

    def connected(self, link: Link) -> None:
        self._link = link

    # From the network.
    def get_buffer(self, size_hint: int) -> memoryview:
        if self._is_holding_incoming:
            if not self._room:
                self._room = bytearray(65_536)
            return memoryview(self._room)
        return self._receiver.get_buffer(size_hint)

    def on_bytes(self, size_bytes: int) -> None:
        if self._is_holding_incoming:
            self._incoming.append(bytes(self._room[:size_bytes]))
        elif self._way.holds_incoming:
            self._unread_bytes = size_bytes
            self._look_later()
        else:
            self._receiver.on_bytes(size_bytes)

    def on_closed(self, error: Exception | None) -> None:
        if not self._is_closed and (self._is_holding_incoming or self._way.holds_incoming):
            self._ended = (error,)
            self._look_later()
        else:
            self._end(error)

    # From the one who connected.
    def write(self, pieces: list[Buffer]) -> None:
        if self._outgoing or self._way.holds_outgoing:
            self._outgoing.append(pieces)
            self._look_later()
        elif self._link is not None:
            self._link.write(pieces)

    async def drain(self) -> None:
        if self._link is not None:
            await self._link.drain()

    def close(self) -> None:
        self._is_closed = True
        self._outgoing.clear()
        self._incoming.clear()
        self._unread_bytes = 0
        self._stop_looking()
        if self._ended is not None:
            self._end(*self._ended)
        elif self._link is not None:
            self._link.close()

    @property
    def _is_holding_incoming(self) -> bool:
        return bool(self._unread_bytes or self._incoming)

    def _end(self, error: Exception | None) -> None:
        self._ended = None
        self._stop_looking()
        self._receiver.on_closed(error)

    def _look_later(self) -> None:
        if self._looking is None:
            self._looking = self._loop.call_later(LOOK_SECONDS, self._look)

    def _stop_looking(self) -> None:
        if self._looking is not None:
            self._looking.cancel()
            self._looking = None

    def _look(self) -> None:
        self._looking = None
        if not self._way.holds_outgoing:
            outgoing, self._outgoing = self._outgoing, []
            for pieces in outgoing:
                if self._link is not None:
                    self._link.write(pieces)
        if not self._way.holds_incoming:
            self._hand_on()
            if self._ended is not None:
                self._end(*self._ended)
                return
        if self._outgoing or self._is_holding_incoming or self._ended is not None:
            self._look_later()

    def _hand_on(self) -> None:
        unread_bytes, self._unread_bytes = self._unread_bytes, 0
        incoming, self._incoming = self._incoming, []
        if unread_bytes:
            self._receiver.on_bytes(unread_bytes)
        for held in incoming:
            rest = memoryview(held)
            while rest and not self._is_closed:
                room = self._receiver.get_buffer(len(rest))
                size_bytes = min(len(room), len(rest))
                room[:size_bytes] = rest[:size_bytes]
                self._receiver.on_bytes(size_bytes)
                rest = rest[size_bytes:]


class HeldConnection(asyncio.BufferedProtocol):
    """A client's connection, between the event loop and the server."""

    def __init__(self, way: Way, protocol: asyncio.BufferedProtocol) -> None:
        self._way = way
        self._protocol = protocol
        self._transport: HeldTransport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = HeldTransport(self._way, cast("asyncio.Transport", transport), self._protocol)
        self._protocol.connection_made(self._transport)

    def get_buffer(self, sizehint: int) -> Any:
        return self._protocol.get_buffer(sizehint)

    def buffer_updated(self, nbytes: int) -> None:
        if self._way.holds_incoming and self._transport is not None:
            self._transport.hold_incoming(nbytes)
        else:
            self._protocol.buffer_updated(nbytes)

    def eof_received(self) -> bool | None:
        return self._protocol.eof_received()

    def connection_lost(self, exc: Exception | None) -> None:
        if self._transport is not None:
            self._transport.stop_looking()
        self._protocol.connection_lost(exc)

    def pause_writing(self) -> None:
        self._protocol.pause_writing()

    def resume_writing(self) -> None:
        self._protocol.resume_writing()


class HeldTransport(asyncio.Transport):
    """The server's side of a client's connection."""

    def __init__(self, way: Way, transport: asyncio.Transport, protocol: asyncio.BufferedProtocol) -> None:
        super().__init__()
        self._way = way
        self._transport = transport
        self._protocol = protocol
        self._loop = asyncio.get_running_loop()
        self._outgoing: list[Buffer] = []
        self._unread_bytes = 0  # they lie in the server's own buffer, and the transport reads no more meanwhile
        self._is_reading_wanted = True
        self._looking: asyncio.TimerHandle | None = None

    def hold_incoming(self, size_bytes: int) -> None:
        """These bytes arrived over a cut way."""
        self._unread_bytes = size_bytes
        self._transport.pause_reading()
        self._look_later()

    def stop_looking(self) -> None:
        if self._looking is not None:
            self._looking.cancel()
            self._looking = None

    # From the server.
    def write(self, data: Buffer) -> None:
        if self._outgoing or self._way.holds_outgoing:
            self._outgoing.append(data)
            self._look_later()
        else:
            self._transport.write(data)

    def writelines(self, list_of_data: Iterable[Buffer]) -> None:
        if self._outgoing or self._way.holds_outgoing:
            self._outgoing.extend(list_of_data)
            self._look_later()
        else:
            self._transport.writelines(list_of_data)

    def get_write_buffer_size(self) -> int:
        return self._transport.get_write_buffer_size() + sum(map(len, self._outgoing))

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self._transport.set_write_buffer_limits(high, low)

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return self._transport.get_extra_info(name, default)

    def is_reading(self) -> bool:
        return self._is_reading_wanted

    def pause_reading(self) -> None:
        self._is_reading_wanted = False
        if not self._unread_bytes:
            self._transport.pause_reading()

    def resume_reading(self) -> None:
        self._is_reading_wanted = True
        if not self._unread_bytes:
            self._transport.resume_reading()

    def is_closing(self) -> bool:
        return self._transport.is_closing()

    def close(self) -> None:
        self._transport.close()

    def abort(self) -> None:
        self._transport.abort()

    def _look_later(self) -> None:
        if self._looking is None and not self._transport.is_closing():
            self._looking = self._loop.call_later(LOOK_SECONDS, self._look)

    def _look(self) -> None:
        self._looking = None
        if self._outgoing and not self._way.holds_outgoing:
            outgoing, self._outgoing = self._outgoing, []
            self._transport.writelines(outgoing)
        if self._unread_bytes and not self._way.holds_incoming and not self._transport.is_closing():
            unread_bytes, self._unread_bytes = self._unread_bytes, 0
            if self._is_reading_wanted:
                self._transport.resume_reading()
            self._protocol.buffer_updated(unread_bytes)
        if self._outgoing or self._unread_bytes:
            self._look_later()

"""One end of a simulated stream, as asyncio's protocols know it: what is written arrives later, in order, or never.

write -> backlog -> [ window: under way, arrived ] -> protocol of the peer
         counts for pause_writing     a peer that does not read fills it
"""

from __future__ import annotations

import asyncio
import errno
from collections import deque
from collections.abc import Callable, Iterable
from contextvars import Context, copy_context
from typing import TYPE_CHECKING, Any, cast

from tidelog.base.ports import Buffer

if TYPE_CHECKING:
    from tidelog.sim.world.network import SimulatedNetwork

WINDOW_BYTES = 256 * 1024
"""What may be under way or unread in one direction: the buffers of two kernels."""
SEGMENT_BYTES_MAX = 64 * 1024
WRITE_BUFFER_BYTES_MAX = 64 * 1024
GIVE_UP_SECONDS = 20.0
"""A system that hears nothing from the other side takes the connection for lost after that."""

_END = b""


class SimulatedTransport(asyncio.Transport):
    """See the module. Its protocol's steps are those of the process that opened it.

    Args:
        network: decides when and whether something arrives.
        machine: the name of the machine this end is on.
        address: (ip, port) of this end.
        peer_address: (ip, port) of the other.
    """

    def __init__(
        self, network: SimulatedNetwork, machine: str, address: tuple[str, int], peer_address: tuple[str, int]
    ) -> None:
        super().__init__({"sockname": address, "peername": peer_address})
        self.machine = machine
        self.context: Context = copy_context()
        self.peer: SimulatedTransport | None = None  # until it is known to be gone
        self.is_dead = False  # its process is
        self._network = network
        self._name = f"{address[0]}:{address[1]}>{peer_address[0]}:{peer_address[1]}"
        self._sent, self._received = f"send {self._name}", f"recv {self._name}"
        self._protocol: asyncio.BaseProtocol | None = None
        self._backlog: deque[bytes] = deque()
        self._backlog_bytes = 0
        self._high_bytes = WRITE_BUFFER_BYTES_MAX
        self._low_bytes = WRITE_BUFFER_BYTES_MAX // 4
        self._window_bytes = 0
        self._under_way: deque[tuple[float, bytes]] = deque()
        self._last_arrival = 0.0
        self._held_since: float | None = None
        self._inbox: deque[bytes] = deque()
        self._is_paused_writing = False
        self._is_reading = True
        self._is_closing = False
        self._is_lost = False

    def __repr__(self) -> str:
        return f"<stream {self._name}{' closing' if self._is_closing else ''}>"

    # What protocols ask.

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        """Whom to tell from now on."""
        self._protocol = protocol

    def get_protocol(self) -> asyncio.BaseProtocol:
        """Who is told."""
        assert self._protocol is not None
        return self._protocol

    def is_closing(self) -> bool:
        """Whether nothing more is taken."""
        return self._is_closing

    def is_reading(self) -> bool:
        """Whether what arrives is handed on."""
        return self._is_reading and not self._is_closing

    def pause_reading(self) -> None:
        """Hand nothing on; the window fills up."""
        self._is_reading = False

    def resume_reading(self) -> None:
        """Hand on what has arrived meanwhile, from the next turn on."""
        if not self._is_reading:
            self._is_reading = True
            self._soon(self._hand_on)

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """When to tell the protocol to pause, and to resume."""
        if high is None:
            high = WRITE_BUFFER_BYTES_MAX if low is None else 4 * low
        self._high_bytes, self._low_bytes = high, high // 4 if low is None else low

    def get_write_buffer_size(self) -> int:
        """Bytes that were written and do not yet fit the window."""
        return self._backlog_bytes

    def can_write_eof(self) -> bool:
        """Nobody here half-closes."""
        return False

    def write(self, data: Buffer) -> None:
        """Send it. Nothing happens once the stream is closed."""
        if self._is_closing or not len(data):
            return
        held = bytes(data)
        network, size = self._network, len(held)
        network.tell(self._sent, held)
        if network.draws_reset():
            self.reset()
            return
        if network.draws_half_reset():
            self._leave_behind(held)
            return
        if not self._backlog and size <= SEGMENT_BYTES_MAX and self._window_bytes < WINDOW_BYTES and not self.is_dead:
            at_once = network.cut(size)
            self._window_bytes += at_once
            self._send(held if at_once == size else held[:at_once])
            if at_once == size:
                return
            held = held[at_once:]
        self._backlog.append(held)
        self._backlog_bytes += len(held)
        self._push()
        if self._backlog_bytes > self._high_bytes and not self._is_paused_writing:
            self._is_paused_writing = True
            self.get_protocol().pause_writing()

    def writelines(self, list_of_data: Iterable[Buffer]) -> None:
        """Send them all, as one write."""
        self.write(b"".join(list_of_data))

    def close(self) -> None:
        """Read no more; end the stream when all that was written is on its way."""
        if not self._is_closing:
            self._is_closing = True
            self._backlog.append(_END)
            self._push()

    def abort(self) -> None:
        """End the stream at once: what does not fit the window is dropped."""
        if self._is_lost:
            return
        self._is_closing = True
        self._backlog.clear()
        self._backlog_bytes = 0
        if self._inbox:
            self._break(None)  # as systems do when something was not read
            return
        self._send(_END)
        self._lose(None)

    # What the network does.

    def open(self, peer: SimulatedTransport, protocol: asyncio.BaseProtocol) -> None:
        """Begin, in the process that this end belongs to."""
        self.peer = peer
        self._protocol = protocol
        protocol.connection_made(self)
        self._soon(self._hand_on)

    def reset(self) -> None:
        """End the stream on both sides, and lose what is under way."""
        self._break(_reset())

    def _leave_behind(self, last: bytes) -> None:
        """End this side alone: the peer gets what is under way and what was written last, and is reset after that."""
        peer = self.peer
        if peer is None or peer.is_dead or self._backlog:
            self.reset()
            return
        under_way, held_since = self._under_way, self._held_since
        self._under_way = deque()
        self._lose(_reset())
        self._under_way, self._held_since = under_way, held_since
        if held_since is not None:
            self._network.held[self] = None
        when = max(self._network.now + self._network.late_seconds(), self._last_arrival)
        self._under_way.append((when, last))
        if len(self._under_way) == 1 and held_since is None:
            self._schedule_arrival(when)
        self._network.loop.call_at(when + self._network.delay_seconds(), peer._lose, _reset(), context=peer.context)

    def _break(self, error: OSError | None) -> None:
        peer = self.peer
        self._under_way.clear()
        self._lose(error)
        if peer is not None and not peer.is_dead:
            self._network.later(peer.context, peer._lose, _reset())

    def die(self, *, is_silent: bool) -> None:
        """The process is gone.

        Args:
            is_silent: the machine is gone as well: nobody tells the peer.
        """
        self.is_dead = self._is_lost = self._is_closing = True
        peer = self.peer
        self._backlog.clear()
        if peer is not None and not peer.is_dead:
            if is_silent:
                self._under_way.clear()
                if peer._under_way:
                    peer._mind_silence()
            elif later := self._network.end_seconds():
                self._network.loop.call_later(later, self._tell_dead, context=peer.context)
            else:
                self._tell_dead()

    def _tell_dead(self) -> None:
        peer = self.peer
        if peer is None or peer.is_dead:
            return
        if self._inbox or self._network.draws_half():
            self._under_way.clear()
            self._network.later(peer.context, peer._lose, _reset())
        else:
            self._send(_END)

    def leads(self, source: str, target: str) -> bool:
        """Whether it carries from one machine to another."""
        return self.machine == source and self.peer is not None and self.peer.machine == target

    def go_on(self) -> None:
        """The way to the peer is free again: send what was held once more."""
        if self._held_since is not None:
            self._held_since = None
            self._schedule_arrival(self._network.now + self._network.delay_seconds())

    def _push(self) -> None:
        """Fill the window from the backlog."""
        backlog = self._backlog
        while backlog and self._window_bytes < WINDOW_BYTES and not self.is_dead:
            piece = backlog.popleft()
            if piece is _END:
                self._send(_END)
                self._soon(self._lose, None)
                break
            size = min(self._network.cut(len(piece)), SEGMENT_BYTES_MAX)
            if size < len(piece):
                backlog.appendleft(piece[size:])
                piece = piece[:size]
            self._backlog_bytes -= len(piece)
            self._window_bytes += len(piece)
            self._send(piece)
        if self._is_paused_writing and self._backlog_bytes <= self._low_bytes and not self._is_lost:
            self._is_paused_writing = False
            self.get_protocol().resume_writing()

    def _send(self, piece: bytes) -> None:
        network = self._network
        takes = network.resend_seconds() + network.delay_seconds()
        if network.far_ms and self.peer is not None:
            takes += network.far_seconds(self.machine, self.peer.machine)
        when = self._last_arrival = max(network.now + takes, self._last_arrival)
        self._under_way.append((when, piece))
        if self.peer is not None and self.peer.is_dead:
            self._mind_silence()
        elif len(self._under_way) == 1 and self._held_since is None:
            self._schedule_arrival(when)

    def _schedule_arrival(self, when: float) -> None:
        if self.peer is not None and not self.peer.is_dead:
            self._network.loop.call_at(when, self._arrive, context=self.peer.context)

    def _arrive(self) -> None:
        """A step of the peer: what is due reaches it."""
        peer = self.peer
        if peer is None or not self._under_way or self._held_since is not None:
            return
        if not self._network.passes(self.machine, peer.machine):
            self._held_since = self._network.now
            self._network.held[self] = None
            if not self.is_dead:
                self._later(GIVE_UP_SECONDS, self._give_up, self._held_since)
            return
        now, under_way = self._network.loop.time(), self._under_way
        while under_way and under_way[0][0] <= now:
            peer._inbox.append(under_way.popleft()[1])
        if under_way:
            self._schedule_arrival(under_way[0][0])
        peer._hand_on()

    def _hand_on(self) -> None:
        """What has arrived goes to the protocol, as long as it reads."""
        inbox = self._inbox
        taken = 0
        while inbox and self._is_reading and not self._is_closing and self._protocol is not None:
            piece = inbox.popleft()
            if piece is _END:
                self._on_end()
                break
            fed = self._feed(piece)
            taken += fed
            self._network.tell(self._received, piece[:fed])
            if fed < len(piece):
                inbox.appendleft(piece[fed:])
        peer = self.peer
        if taken and peer is not None:
            peer._window_bytes -= taken
            if peer._backlog and not peer.is_dead:
                self._network.loop.call_soon(peer._push, context=peer.context)

    def _feed(self, piece: bytes) -> int:
        """Give it to the protocol, as long as it reads. Returns how much that was."""
        protocol = self._protocol
        if not isinstance(protocol, asyncio.BufferedProtocol):
            cast(asyncio.Protocol, protocol).data_received(piece)
            return len(piece)
        rest = piece
        while rest and self._is_reading and not self._is_lost:
            buffer = cast(memoryview, protocol.get_buffer(len(rest)))
            size = min(len(buffer), len(rest))
            buffer[:size] = rest if size == len(rest) else rest[:size]
            protocol.buffer_updated(size)
            rest = rest[size:]
        return len(piece) if self._is_lost else len(piece) - len(rest)

    def _on_end(self) -> None:
        keeps_open = cast(asyncio.Protocol, self._protocol).eof_received()
        if not keeps_open:
            self.close()

    def _mind_silence(self) -> None:
        """Nobody is there who would answer: the machine says so once it is back, or else the system gives up."""
        if self._held_since is None:
            self._held_since = self._network.now
            self._later(GIVE_UP_SECONDS, self._give_up, self._held_since)
            self._later(self._network.delay_seconds(), self._ask_again)

    def _ask_again(self) -> None:
        if self._is_lost or self.peer is None:
            return
        if self._network.is_up(self.peer.machine) and self._network.passes(self.machine, self.peer.machine):
            self._lose(_reset())
        else:
            self._later(1.0, self._ask_again)

    def _give_up(self, held_since: float) -> None:
        if self._held_since == held_since:
            self._break(TimeoutError(errno.ETIMEDOUT, "Connection timed out"))

    def _lose(self, error: OSError | None) -> None:
        """The end of this side: its protocol hears of it in the next turn."""
        if self._is_lost:
            return
        self._is_lost = self._is_closing = True
        self._held_since = None
        self._network.on_lost(self)
        if error is not None:
            self._under_way.clear()
        self._inbox.clear()
        self._soon(self._tell_lost, error)

    def _tell_lost(self, error: OSError | None) -> None:
        if self._protocol is not None:
            self._protocol.connection_lost(error)

    def _soon(self, step: Callable[..., object], *arguments: Any) -> None:
        self._network.loop.call_soon(step, *arguments, context=self.context)

    def _later(self, seconds: float, step: Callable[..., object], *arguments: Any) -> None:
        self._network.loop.call_later(seconds, step, *arguments, context=self.context)


def _reset() -> ConnectionResetError:
    return ConnectionResetError(errno.ECONNRESET, "Connection reset by peer")

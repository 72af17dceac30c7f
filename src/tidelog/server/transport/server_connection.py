"""The shell of one inbound connection: bytes from the loop into frames, frames to dispatch, answers back in order.

A request that waits holds those behind it on its connection, and no other. Who sends many at a time, or is sent much,
is served for a turn, and then the others are (`turns.py`). Who exceeds a quota is answered first, and held back then
(KIP-219). Reading stops when something comes behind a request that waits, or while its sender is held back; while the
peer is slow to take its answers; and while there is no memory for what has begun to come. So what a connection may hold
is one request, what came with the next one, one answer and the socket's buffers. How answers go out is
`answer_sender.py`.
What is more than its first 16 KiB is taken from what all have together (`connection_memory.py`).

Kafka: `Processor`, `RequestChannel`.
"""

from __future__ import annotations

import asyncio
import logging
import sys
from collections.abc import Awaitable, Callable
from time import perf_counter_ns
from typing import cast

from tidelog.base.errors import (
    AuthenticationError,
    InvariantBrokenError,
    MalformedMessageError,
    SslAuthenticationError,
    TidelogError,
)
from tidelog.base.ports import Buffer, Executor
from tidelog.base.principals import ANONYMOUS, USER, Principal, Requester
from tidelog.security.principal_mapping import Subject
from tidelog.server.tasks import start_kept
from tidelog.server.transport.answer_sender import COALESCE_BYTES_MAX, AnswerSender
from tidelog.server.transport.closed import Closed
from tidelog.server.transport.connection_memory import ConnectionMemory, Kept
from tidelog.server.transport.gathered import Gathered
from tidelog.server.transport.sasl_gate import NewGate
from tidelog.server.transport.turns import RestingTurn
from tidelog.wire import FrameReceiver, Piece
from tidelog.wire.connection import BUFFER_SIZE_BYTES_MIN
from tidelog.wire.limits import request_size_bytes_max

CLOSING_SWEEPS_MAX = 2
LOOKS_AT_TIME_EVERY = 8
"""Of the requests that are carried out together and are brief: see `Gathered`."""

logger = logging.getLogger("tidelog.server.connection")


Answer = list[Piece] | None
"""The pieces of a response, or None where the protocol has no answer (acks=0)."""


NameOf = Callable[[Subject], str]
"""Who shows a certificate of this subject. Raises SslAuthenticationError: nobody says."""


OnFrame = Callable[[memoryview, "ServerConnection"], "Answer | Gathered | Awaitable[Answer]"]
OnClosed = Callable[[Closed, Exception | None], None]


class ServerConnection(asyncio.BufferedProtocol):
    """One client's connection.

    Args:
        on_frame: decides the answer to a request; may return an awaitable for one that has to wait.
        frame_size_bytes_max: `socket.request.max.bytes`.
        connections: the open connections of the server; this one enters and leaves by itself.
        executor: reads what is not in the page cache.
        memory: what it has together with others.
        on_closed: told why, once, when the connection is gone; with the error, if it never opened or authenticated.
        new_gate: makes what finds out who sends; None where nobody is asked.
        is_timed: whether `received_ns` is kept.

    Attributes:
        gate: as above.
        is_closing: whether nothing more is served, and it is closed once all answers are out.
        memory: as above.
        on_disconnected: called when it closed, whoever closed it.
        requester: who sends on it.
        on_more: called while a request waits, when something came behind it that it holds up.
        received_ns: when the last bytes came, by `perf_counter_ns`.
    """

    __slots__ = (
        "_answering",
        "_charged_bytes",
        "_closed",
        "_connections",
        "_error",
        "_gathered",
        "_handed_over",
        "_idle_sweeps",
        "_is_filled",
        "_is_timed",
        "_is_unfinished",
        "_keeps_frame",
        "_muted",
        "_name_of",
        "_on_closed",
        "_on_frame",
        "_receiver",
        "_room_bytes",
        "_sender",
        "_transport",
        "_turn",
        "_wanted_bytes",
        "gate",
        "is_closing",
        "listener_name",
        "memory",
        "on_disconnected",
        "on_more",
        "peer",
        "received_ns",
        "requester",
    )

    def __init__(
        self,
        on_frame: OnFrame,
        *,
        listener_name: str,
        frame_size_bytes_max: int,
        connections: dict[ServerConnection, None],
        executor: Executor,
        memory: ConnectionMemory,
        on_closed: OnClosed | None = None,
        new_gate: NewGate | None = None,
        name_of: NameOf | None = None,
        is_timed: bool = False,
    ) -> None:
        self.listener_name = listener_name
        self.on_disconnected: Callable[[], None] | None = None
        self.on_more: Callable[[], None] | None = None
        self.peer = "?"
        self.requester = Requester(ANONYMOUS, "?")
        self._name_of = name_of
        self._on_frame = on_frame
        self._receiver = FrameReceiver(frame_size_bytes_max, request_size_bytes_max)
        self.gate = None if new_gate is None else new_gate(on_frame, frame_size_bytes_max)
        if self.gate is not None:
            self._on_frame = self.gate.on_frame
            self._receiver.frame_size_bytes_max = self.gate.request_size_bytes_max
        self._connections = connections
        self.memory = memory
        self._charged_bytes = 0  # of the buffer that requests come to
        self._wanted_bytes = 0  # of it, before more of a request can come; 0 unless it waits
        self._on_closed = on_closed
        self._is_timed = is_timed
        self._handed_over: Kept | None = None  # of the frame that is answered, or of one before
        self._transport: asyncio.Transport | None = None
        self._answering: asyncio.Future[None] | None = None
        self._gathered: Gathered | None = None  # to be answered before the turn of the loop ends
        self.is_closing = False
        self._closed: Closed | None = None
        self._error: Exception | None = None  # for which it is closed, where others log it
        self._keeps_frame = False
        self._muted: asyncio.TimerHandle | None = None  # while it is, nothing is served
        self._turn = RestingTurn(memory.clock, self._pause_or_resume_reading, self._go_on)
        self._sender = AnswerSender(self, self._turn, executor, memory)
        self._room_bytes = 0  # for what comes next
        self._is_filled = False  # that room, by what came last
        self._idle_sweeps = 0
        self._is_unfinished = False
        self.received_ns = 0

    # What the loop tells us.
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._sender.on_connected(self._transport)
        peer = transport.get_extra_info("peername")
        if isinstance(peer, tuple):
            self.peer = f"{peer[0]}:{peer[1]}"
            self.requester = Requester(ANONYMOUS, peer[0])
        else:
            self.peer = str(peer)
        self._connections[self] = None
        certificate = transport.get_extra_info("peercert")
        if certificate and self._name_of is not None and not self._identify(certificate["subject"], self._name_of):
            return
        if self.gate is not None:
            self.gate.on_connected(self)

    def _identify(self, subject: Subject, name_of: NameOf) -> bool:
        """Learn who shows a certificate. False where no rule says who that is: then they are hung up on."""
        try:
            self.requester = self.requester._replace(principal=Principal(USER, name_of(subject)))
        except SslAuthenticationError as error:
            self.hang_up(error)
            return False
        return True

    def connection_lost(self, exc: Exception | None) -> None:
        self._connections.pop(self, None)
        self.is_closing = True
        self._gathered = None
        self._sender.on_lost()
        self._turn.end()
        self._receiver.drop()
        if self.gate is not None:
            self.gate.on_closed()
        self.memory.forget(self)
        if self._handed_over is not None:
            self._handed_over.let_go()
        if self._answering is not None:
            self._answering.cancel()
        if self._muted is not None:
            self._muted.cancel()
        on_closed, self._on_closed = self._on_closed, None
        if on_closed is not None:
            if self._transport is None and exc is not None:
                on_closed(Closed.HANDSHAKE, exc)
            else:
                on_closed(self._closed or Closed.BY_PEER, self._error)
        on_disconnected, self.on_disconnected = self.on_disconnected, None
        if on_disconnected is not None:
            on_disconnected()

    def get_buffer(self, sizehint: int) -> memoryview:
        if self._gathered is not None:
            self.answer_gathered(self._gathered)
        room = self._receiver.get_buffer(sizehint)
        self._room_bytes = len(room)
        return room

    def buffer_updated(self, nbytes: int) -> None:
        """Some bytes came. More may follow in the same turn of the loop: libuv reads on, up to 32 times, as long as
        there is as much as there is room for.
        """
        if self._is_timed:
            self.received_ns = perf_counter_ns()
        if not self._is_filled or self._turn.is_over:
            self._turn.begin()
        self._is_filled = nbytes == self._room_bytes
        try:
            self._receiver.on_bytes(nbytes)
        except MalformedMessageError as error:
            self.refuse(str(error))
            return
        if self._answering is not None and self.on_more is not None:
            self.on_more()
        self._serve()
        if self._is_filled and self._turn.is_over:
            self._turn.rest()

    def pause_writing(self) -> None:
        self._sender.pause()

    def resume_writing(self) -> None:
        self._sender.resume()
        self._idle_sweeps = 0
        self._turn.begin()
        if self._sender.write_out():
            self._serve()

    # What we do about it.
    @property
    def is_waiting(self) -> bool:
        """Whether a request of this connection waits for its answer to be decided."""
        return self._answering is not None

    @property
    def has_more(self) -> bool:
        """Whether something has come behind the request that is being served."""
        return self._receiver.pending_bytes > 0

    def mute(self, delay_ms: int) -> None:
        """Serve nothing that comes for so long. What is being answered is sent."""
        if self._muted is not None:
            self._muted.cancel()
        self._muted = asyncio.get_running_loop().call_later(delay_ms / 1000, self._unmute)

    def _unmute(self) -> None:
        self._muted = None
        self._idle_sweeps = 0
        self._turn.begin()
        if self._transport is not None and not self._transport.is_closing() and not self._sender.outbox:
            self._serve()

    def _go_on(self) -> None:
        if self._transport is None or self._transport.is_closing():
            return
        self._turn.begin()
        if not self._sender.outbox or self._sender.write_out():
            self._serve()

    def keep_frame(self) -> Kept:
        """Leave the frame that is being served where it is until `let_frame_go`: nothing is read meanwhile.

        Returns:
            Its memory, to be given back then.
        """
        self._keeps_frame = True
        self._charged_bytes = 0
        return self.memory.keep_what_is_held(self)

    def let_frame_go(self) -> None:
        """The frame that was kept is done with, answered or not."""
        self._keeps_frame = False
        self._await_memory(has_served=True)
        self._pause_or_resume_reading()

    def hand_over(self, frame: memoryview) -> tuple[memoryview, Kept]:
        """The frame that is being served, for whoever keeps it longer than that, and its memory.

        It is to be given back by the answer that the frame gets; it is, too, if that never begins.
        """
        kept = self._handed_over = self.memory.kept()
        kept.count(len(frame))
        return self._receiver.hand_over(frame), kept

    def serve_by(self, on_frame: OnFrame) -> None:
        """Have this decide the answers to requests, from the next one on."""
        self._on_frame = on_frame

    def on_authenticated(self, principal: Principal, frame_size_bytes_max: int, *, by_token: bool) -> None:
        """It is known who sends: requests may be of this size."""
        self.requester = Requester(principal, self.requester.host, by_token)
        self._receiver.frame_size_bytes_max = frame_size_bytes_max

    def refuse(self, reason: str, why: Closed = Closed.REFUSED) -> None:
        """Read no more, with the reason in the log: what came is not the protocol, or cannot be answered in it.

        The answers that are written already go out first; a peer that takes none of them is seen to by `sweep`.
        """
        logger.warning("%s: connection closed: %s", self.peer, reason, extra={"peer": self.peer})
        self._end(why)

    def hang_up(self, error: AuthenticationError) -> None:
        """As `refuse`: it is not known who sends. `on_closed` is told why."""
        self._error = error
        self._end(Closed.AUTHENTICATION)

    def close_unauthenticated_when_answered(self, error: AuthenticationError) -> None:
        """Serve nothing behind the request that is being answered. `on_closed` is told why."""
        self._error = error
        self._closed = self._closed or Closed.AUTHENTICATION
        self.is_closing = True

    def _end(self, why: Closed) -> None:
        self.is_closing = True
        self._closed = self._closed or why
        self._sender.outbox.clear()
        if self._transport is not None:
            self._transport.close()

    def close(self, why: Closed = Closed.STOPPED) -> None:
        self.is_closing = True
        if self._closed is None:
            self._closed = why
        if self._transport is not None:
            self._transport.abort()

    def close_when_answered(self) -> None:
        """Let what is under way be answered, then close (a clean stop of the node)."""
        if self._gathered is not None:
            self.answer_gathered(self._gathered)
        self.is_closing = True
        if self._closed is None:
            self._closed = Closed.STOPPED
        if self._answering is None and not self._sender.outbox and self._transport is not None:
            self._transport.close()

    def on_memory_given(self) -> None:
        """There is memory for what has begun to come."""
        self._charged_bytes += self._wanted_bytes
        self._wanted_bytes = 0
        self._pause_or_resume_reading()

    def close_for_memory(self) -> None:
        """What it holds is needed by others, and it has stood still for longest."""
        if self._sender.is_paused:
            what = "it takes none of its answer, and answers for others wait (queued.max.response.bytes)"
        else:
            what = "a request that began went no further, and others wait for memory (queued.max.request.bytes)"
        logger.warning("%s: connection closed: %s", self.peer, what, extra={"peer": self.peer})
        self.close(Closed.MEMORY)

    def sweep(self, sweeps_max: int | None) -> None:
        """Called at steady intervals: close the connection if nothing came to its end on it during so many of them.

        A request that waits for us is given its time. One that has begun to come is given as long as an idle
        connection, however slowly it comes; and so is a peer that does not take its answers.

        Args:
            sweeps_max: None for no limit; what an idle connection need not hold is let go all the same.
        """
        if self._sender.has_progressed:
            self._sender.has_progressed, self._idle_sweeps = False, 0
        if self.is_closing and self._answering is None:
            self._idle_sweeps += 1
            if self._idle_sweeps > CLOSING_SWEEPS_MAX:
                self.close()
            return
        was_unfinished, self._is_unfinished = self._is_unfinished, self._receiver.pending_bytes > 0
        is_held_up = self._answering is not None or self._muted is not None
        if is_held_up or (self._is_unfinished and not was_unfinished):
            self._idle_sweeps = 0
            return
        self._idle_sweeps += 1
        if sweeps_max is not None and self._idle_sweeps > sweeps_max:
            self._close_idle()
        elif self._sender.reading is None and not self._sender.outbox:
            self._receiver.release()

    def _close_idle(self) -> None:
        if self._sender.outbox or self._sender.is_paused:
            level, why, what = logging.WARNING, Closed.NOT_READING, "it takes none of its answer"
        elif self._is_unfinished:
            level, why, what = logging.WARNING, Closed.UNFINISHED, "a request that began did not end"
        else:
            level, why, what = logging.INFO, Closed.IDLE, "it is idle"
        logger.log(
            level, "%s: connection closed: %s (connections.max.idle.ms)", self.peer, what, extra={"peer": self.peer}
        )
        self.close(why)

    def _serve(self) -> None:
        """Answer every whole frame that is here, until one waits, the peer is slow, or the turn is over."""
        if self._turn.resting is not None:
            return
        small: list[Buffer] = []
        small_bytes = 0
        gathered, self._gathered = self._gathered, None
        sender, receiver, turn = self._sender, self._receiver, self._turn
        to_send = sender.outbox.pieces
        served_count = 0
        try:
            while self._answering is None and self._muted is None and not self.is_closing and not sender.is_paused:
                if to_send or small_bytes >= COALESCE_BYTES_MAX:
                    sender.write_small(small)
                    small_bytes = 0
                    if not sender.write_out():
                        break
                looks_at_time = gathered is None or not gathered.is_brief or not served_count % LOOKS_AT_TIME_EVERY
                if looks_at_time and served_count and turn.is_over:
                    turn.rest()
                    break
                frame = receiver.next_frame()
                if frame is None:
                    break
                served_count += 1
                answer = self._on_frame(frame, self)
                if answer is gathered:
                    continue
                if gathered is not None:
                    # Whatever comes of those before, the next ones are known: they are dropped with the connection.
                    before, gathered = gathered, answer if isinstance(answer, Gathered) else None
                    small_bytes += self._take_all(before, small)
                if isinstance(answer, list):
                    small_bytes += sender.take(answer, small)
                elif answer is None:
                    pass
                elif isinstance(answer, Gathered):
                    gathered = answer
                else:
                    self._answering = start_kept(self._serve_later(answer))
            if gathered is not None:
                if gathered.waits:
                    self._gathered = gathered
                else:
                    self._take_all(gathered, small)
                gathered = None
        except (MalformedMessageError, AuthenticationError) as error:
            if self._finish(gathered, small):
                if isinstance(error, AuthenticationError):
                    self.hang_up(error)
                else:
                    self.refuse(str(error))
            return
        except Exception:
            self.on_bug(gathered)
            return
        if served_count:
            self._idle_sweeps = 0
        sender.write_small(small)
        if to_send:
            sender.write_out()  # who is held back has its answer first, and so has who sent nothing more
        if (self._charged_bytes or self._receiver.needs_bytes) and not self._keeps_frame:
            self._await_memory(served_count > 0)
        self._pause_or_resume_reading()

    def _finish(self, gathered: Gathered | None, small: list[Buffer]) -> bool:
        """Answer what came before something that ends the connection. False: that failed, and ended it."""
        try:
            if gathered is not None:
                self._take_all(gathered, small)
        except Exception:
            self.on_bug(gathered)
            return False
        self._sender.write_small(small)
        return True

    def answer_gathered(self, gathered: Gathered) -> None:
        """Answer these, if they are not answered yet: the turn of the loop in which they came is over."""
        if gathered is not self._gathered:
            return
        self._gathered = None
        small: list[Buffer] = []
        if not self._finish(gathered, small):
            return
        if self._sender.outbox and self._sender.write_out():
            self._serve()

    def _take_all(self, gathered: Gathered, small: list[Buffer]) -> int:
        return sum([self._sender.take(answer, small) for answer in gathered.take_answers()])

    def _await_memory(self, has_served: bool) -> None:
        """Give back what requests took that are done, and see to it that there is room for the one that comes."""
        receiver = self._receiver
        if has_served:
            if not receiver.needs_bytes:
                receiver.trim()
                self._charged_bytes = max(receiver.capacity_bytes - BUFFER_SIZE_BYTES_MIN, 0)
            self.memory.reduce(self, self._charged_bytes)
        if receiver.needs_bytes and not self._wanted_bytes and not self.is_closing:
            more_bytes = receiver.capacity_bytes + receiver.needs_bytes - BUFFER_SIZE_BYTES_MIN - self._charged_bytes
            if more_bytes > 0:
                if self.memory.take(self, more_bytes):
                    self._charged_bytes += more_bytes
                else:
                    self._wanted_bytes = more_bytes

    async def _serve_later(self, answer: Awaitable[Answer]) -> None:
        """Finish a request that waits, then go on with those behind it."""
        try:
            pieces = await answer
        except asyncio.CancelledError:
            return
        except TidelogError as error:
            self._answering = None
            self.refuse(str(error))
            return
        except Exception:
            self._answering = None
            self.on_bug()
            return
        self._answering = None
        self._idle_sweeps = 0
        if self._transport is None or self._transport.is_closing():
            return
        self._turn.begin()
        if pieces is not None:
            self._sender.add(pieces)
        if self._sender.write_out():
            if self.is_closing:
                self._transport.close()
            else:
                self._serve()

    def on_sent(self) -> None:
        """All that was to be sent is out, after the disk was waited for."""
        self._serve()

    def on_bug(self, gathered: Gathered | None = None) -> None:
        """While an error is handled: nobody but this connection feels it."""
        if gathered is not None:
            gathered.drop()
        is_ours = isinstance(sys.exception(), InvariantBrokenError)
        what = "a bug in Tidelog" if is_ours else "request failed in an unexpected way"
        logger.exception("%s: %s; this connection is closed", self.peer, what)
        self.close(Closed.FAILED)

    def cannot_complete(self, error: TidelogError) -> None:
        """The head of an answer is out: the only honest end is a closed connection; the client asks again."""
        self.refuse(f"an answer could not be completed: {error}", Closed.FAILED)

    def _pause_or_resume_reading(self) -> None:
        """Read on only when what was read is dealt with; and while a request waits, until something comes behind it.

        So a peer that hangs up is noticed at once, and the request that nobody waits for any more is given up.
        """
        transport = self._transport
        if transport is None or transport.is_closing():
            return
        is_held_up = self._answering is not None or self._muted is not None
        is_full = is_held_up and (self._keeps_frame or self._receiver.pending_bytes > 0)
        is_sending = self._sender.outbox or self._sender.is_paused
        is_held_up_here = is_sending or self._wanted_bytes or self._turn.resting is not None
        if is_full or is_held_up_here or self.is_closing:
            if transport.is_reading():
                transport.pause_reading()
        elif not transport.is_reading():
            transport.resume_reading()

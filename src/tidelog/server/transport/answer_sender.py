"""Sends the answers of one connection, in pieces, and in turns with the others.

```
 small answers ──► one write of all that were ready together ──────────────────────────┐
 others ──► outbox ──► a piece, from memory or the page cache, or read on a thread ──► socket
                       until the peer is slow, or the turn is over
```
So of a large answer no more is in memory than a piece and what the socket holds.

Kafka: `NetworkSend`, `KafkaChannel.write`.
"""

from __future__ import annotations

import asyncio
from typing import Protocol, cast

from tidelog.base.errors import TidelogError
from tidelog.base.ports import Buffer, Executor
from tidelog.server.tasks import start_kept
from tidelog.server.transport.connection_memory import ConnectionMemory, Holder
from tidelog.server.transport.outbox import Outbox
from tidelog.server.transport.turns import RestingTurn
from tidelog.wire import Piece

WRITE_SIZE_BYTES_MAX = 1 << 20
SCARCE_WRITE_SIZE_BYTES_MAX = 64 << 10
"""As `WRITE_SIZE_BYTES_MAX`, once half of the memory for answers is taken by peers that do not read theirs."""
WRITE_BUFFER_BYTES_MAX = 64 << 10
COALESCE_BYTES_MAX = 64 << 10


class Sends(Holder, Protocol):
    """Whose answers are sent. `ServerConnection` is one."""

    @property
    def is_closing(self) -> bool:
        """Whether the socket is to be closed once all is out."""
        ...

    def on_sent(self) -> None:
        """All is out after the disk was waited for: more can be served."""
        ...

    def cannot_complete(self, error: TidelogError) -> None:
        """What comes next cannot be read any more."""
        ...

    def on_bug(self) -> None:
        """While an error is handled, which is a bug of ours."""
        ...


class _Lost:
    """In the place of a connection that is gone."""

    is_closing = True

    def on_sent(self) -> None: ...

    def cannot_complete(self, error: TidelogError) -> None: ...

    def on_bug(self) -> None: ...

    def on_memory_given(self) -> None: ...

    def close_for_memory(self) -> None: ...


_LOST = _Lost()


class AnswerSender:
    """Of one connection. Nothing is sent before `on_connected`, nor after `on_lost`.

    Args:
        turn: of the connection; rests once it is over.
        executor: reads what is not in the page cache.
        memory: what peers have not taken is charged there.

    Attributes:
        outbox: what is not in the socket's hands yet.
        is_paused: whether the peer is slow to take what is.
        reading: from the disk; None while that is not waited for.
        has_progressed: whether anything went out since somebody set this to False.
    """

    __slots__ = (
        "_executor",
        "_memory",
        "_owner",
        "_transport",
        "_turn",
        "has_progressed",
        "is_paused",
        "outbox",
        "reading",
    )

    def __init__(self, owner: Sends, turn: RestingTurn, executor: Executor, memory: ConnectionMemory) -> None:
        self._owner = owner
        self._turn = turn
        self._executor = executor
        self._memory = memory
        self._transport: asyncio.Transport | None = None
        self.outbox = Outbox()
        self.reading: asyncio.Future[None] | None = None
        self.is_paused = False
        self.has_progressed = False

    # What the connection tells.
    def on_connected(self, transport: asyncio.Transport) -> None:
        """It is open."""
        self._transport = transport
        transport.set_write_buffer_limits(high=WRITE_BUFFER_BYTES_MAX)

    def on_lost(self) -> None:
        """It is gone, with all that was to be sent. Nothing of it is kept: its buffer may have a hundred megabytes."""
        self.outbox.clear()
        if self.reading is not None:
            self.reading.cancel()
        self.is_paused = False
        self._owner, self._transport = _LOST, None

    def pause(self) -> None:
        """The peer is slow to take its answers."""
        self.is_paused = True
        self._charge()

    def resume(self) -> None:
        """It has taken most of them."""
        self.is_paused = False
        self._memory.charge_answer(self._owner, 0)

    # What is to be sent.
    def take(self, answer: list[Piece], small: list[Buffer]) -> int:
        """Small answers are gathered into one write; what lies on disk waits its turn in the outbox.

        Returns:
            Bytes by which `small` has grown.
        """
        size_bytes = 0
        for piece in answer:
            size_bytes += len(piece)
            if type(piece) not in (bytes, bytearray) or size_bytes >= COALESCE_BYTES_MAX or self.outbox:
                self.outbox.extend(answer)
                return 0
        small.extend(cast("list[Buffer]", answer))
        return size_bytes

    def add(self, pieces: list[Piece]) -> None:
        """Send an answer that was waited for, behind all before it."""
        self.outbox.extend(pieces)
        if self.is_paused:
            self._charge()

    def write_small(self, small: list[Buffer]) -> None:
        """Write what was gathered, and empty it."""
        if small and self._transport is not None:
            self._transport.write(b"".join(small))
            small.clear()

    def write_out(self) -> bool:
        """Write what the socket takes, at most 1 MiB at a time, until the turn is over. True when nothing is left, and
        more can be served.
        """
        transport, turn = self._transport, self._turn
        if transport is None or self.reading is not None or turn.resting is not None:
            return False
        outbox, memory = self.outbox, self._memory
        pending: list[Buffer] = []
        pending_bytes = 0
        write_size_bytes_max = SCARCE_WRITE_SIZE_BYTES_MAX if memory.answers.is_scarce else WRITE_SIZE_BYTES_MAX
        try:
            while outbox and not self.is_paused:
                chunk = outbox.next_chunk(write_size_bytes_max)
                if chunk is None:
                    self.reading = start_kept(self._read_later(write_size_bytes_max))
                    break
                self.has_progressed = True
                outbox.advance(len(chunk))
                pending.append(chunk)
                pending_bytes += len(chunk)
                if pending_bytes >= COALESCE_BYTES_MAX:
                    transport.writelines(pending)
                    pending, pending_bytes = [], 0
                    if outbox and turn.is_over:
                        memory.sent = chunk
                        turn.rest()
                        break
        except TidelogError as error:
            self._owner.cannot_complete(error)
            return False
        if pending:
            transport.writelines(pending)
        if outbox or self.is_paused:
            return False
        if self._owner.is_closing:
            transport.close()
        return not transport.is_closing()  # a write that failed ended it: `connection_lost` comes in the next turn

    async def _read_later(self, size_bytes_max: int) -> None:
        """The next chunk has to come from the disk: wait for it off the loop, then go on."""
        try:
            chunk = await self._executor.run(self.outbox.chunk_on_disk(size_bytes_max))
        except TidelogError as error:
            self.reading = None
            self._owner.cannot_complete(error)
            return
        except Exception:
            self._owner.on_bug()
            return
        self.reading = None
        if self._transport is None or self._transport.is_closing():
            return
        self._turn.begin()
        self.has_progressed = True
        self.outbox.advance(len(chunk))
        self._transport.write(chunk)
        if not self.is_paused and self.write_out():
            self._owner.on_sent()

    def _charge(self) -> None:
        """What the peer has not taken, and is in memory."""
        assert self._transport is not None
        self._memory.charge_answer(self._owner, self._transport.get_write_buffer_size() + self.outbox.bytes_in_memory)

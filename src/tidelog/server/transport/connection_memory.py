"""What the connections of some listeners hold in memory: requests that have come in part, and answers not taken.

The shell of two shares: it keeps their clock, and tells connections what the shares decide. Clients have one of these,
and the nodes of the cluster another one, which no client can fill: see `listeners.py`.

Kafka: `SimpleMemoryPool`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Hashable, Mapping
from typing import Protocol

from tidelog.base.ports import Buffer, Clock
from tidelog.server.transport.memory_share import MemoryShare


class Holder(Hashable, Protocol):
    """A connection, or a request that is worked on."""

    def on_memory_given(self) -> None:
        """What it waited for is there."""
        ...

    def close_for_memory(self) -> None:
        """It stood still, and others need the memory."""
        ...


class ConnectionMemory:
    """The memory of the connections of some listeners.

    Args:
        request_bytes_max: of requests that have come in part, or are kept while they wait, beyond what every
            connection has anyway.
        answer_bytes_max: of answers that peers have not taken.

    Attributes:
        clock: by which who stands still is known.
        sent: the last piece that came from a file. While one is there, malloc gives none of their memory back to the
            system: to have it anew for each took as long as to copy the records.
    """

    def __init__(self, request_bytes_max: int, answer_bytes_max: int, clock: Clock) -> None:
        self.requests: MemoryShare[Holder] = MemoryShare(request_bytes_max)
        self.answers: MemoryShare[Holder] = MemoryShare(answer_bytes_max)
        self.clock = clock
        self.sent: Buffer | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._giving_way: dict[Kept, Callable[[], None]] = {}

    @property
    def shares(self) -> Mapping[str, MemoryShare[Holder]]:
        """The shares of memory, by what they are for."""
        return {"requests": self.requests, "answers": self.answers}

    def take(self, holder: Holder, size_bytes: int) -> bool:
        """Whether a connection may receive so much more of a request now; else it is told when it may."""
        is_given = self.requests.take(holder, size_bytes, self.clock.now_ms())
        if not is_given:
            self._on_wait()
        return is_given

    def take_to_keep(self, kept: Kept, size_bytes: int) -> bool:
        """Whether so much is kept for a request now; else it is told when it is."""
        is_given = self.requests.take_to_keep(kept, size_bytes, self.clock.now_ms())
        if not is_given:
            self._on_wait()
        return is_given

    def reduce(self, holder: Holder, held_bytes: int) -> None:
        """A request has come to its end, and its connection holds only so much from now on."""
        self.requests.reduce(holder, held_bytes, self.clock.now_ms())
        self._process_ready()

    def charge_answer(self, holder: Holder, size_bytes: int) -> None:
        """So much of an answer waits for its peer; 0 once it was taken."""
        if size_bytes:
            self.answers.charge(holder, size_bytes, self.clock.now_ms())
        else:
            self.answers.reduce(holder, 0, self.clock.now_ms())
        self._process_ready()

    def forget(self, holder: Holder) -> None:
        """Give back the memory of a connection that closed."""
        self.charge_answer(holder, 0)
        self.reduce(holder, 0)

    def kept(self) -> Kept:
        """For a request that waits; nothing at first."""
        return Kept(self)

    def keep_what_is_held(self, holder: Holder) -> Kept:
        """What the request of a connection took, while it is worked on: the connection is not closed for it."""
        kept = Kept(self, holder)
        kept.size_bytes = self.requests.keep_what_is_held(holder)
        return kept

    def keep_no_more(self, size_bytes: int, done: Holder | None) -> None:
        """So much of what was kept is free; by who is done with all of it, if anybody is."""
        self.requests.keep_no_more(size_bytes, self.clock.now_ms(), done)
        self._process_ready()

    def call_when_wanted(self, kept: Kept, call: Callable[[], None] | None) -> None:
        """Have it called once when somebody waits for memory; None to have it called no more."""
        self._giving_way.pop(kept, None)
        if call is not None:
            if self.requests.waiting_count:
                call()
            else:
                self._giving_way[kept] = call

    def _on_wait(self) -> None:
        calls = list(self._giving_way.values())
        self._giving_way.clear()
        for call in calls:
            call()
        self._reschedule_timer()

    def _process_ready(self) -> None:
        for share in (self.requests, self.answers):
            closed, given = share.take_ready()
            for holder in closed:
                holder.close_for_memory()
            for holder in given:
                holder.on_memory_given()
        if self.requests.waiting_count:
            self._reschedule_timer()

    def _reschedule_timer(self) -> None:
        if self._timer is not None:
            return
        deadline_ms = self.requests.next_deadline_ms()
        if deadline_ms is not None:
            seconds = max(deadline_ms - self.clock.now_ms(), 1) / 1000
            self._timer = asyncio.get_running_loop().call_later(seconds, self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        self.requests.on_time(self.clock.now_ms())
        self._process_ready()


class Kept:
    """What is counted for one request while it waits, until the end of a `with` block.

    Args:
        holder: whose it was; None if it is the request's own.

    Attributes:
        size_bytes: so much, now.
    """

    def __init__(self, memory: ConnectionMemory, holder: Holder | None = None) -> None:
        self.size_bytes = 0
        self._memory = memory
        self._holder = self if holder is None else holder
        self._wanted_bytes = 0
        self._given: asyncio.Future[None] | None = None

    def hold(self, size_bytes: int) -> bool:
        """Hold so much from now on. False, and nothing changes, if there is no room for more."""
        more_bytes = size_bytes - self.size_bytes
        if more_bytes > 0 and not self._memory.requests.keep(more_bytes):
            return False
        self.size_bytes = size_bytes
        if more_bytes < 0:
            self._memory.keep_no_more(-more_bytes, None if size_bytes else self._holder)
        return True

    def count(self, size_bytes: int) -> None:
        """Hold so much more, which is there already, whether there is room or not."""
        self._memory.requests.keep_at_once(size_bytes)
        self.size_bytes += size_bytes

    async def hold_in_line(self, size_bytes: int) -> None:
        """Hold so much from now on, as soon as there is room: whatever else comes waits in the same line."""
        more_bytes = size_bytes - self.size_bytes
        if more_bytes <= 0:
            self.hold(size_bytes)
        elif self._memory.take_to_keep(self, more_bytes):
            self.size_bytes = size_bytes
        else:
            self._wanted_bytes = more_bytes
            self._given = asyncio.get_running_loop().create_future()
            await self._given

    def give_way(self, call: Callable[[], None]) -> None:
        """Have it called once if others wait for memory, now or later, for as long as this holds some."""
        if self.size_bytes:
            self._memory.call_when_wanted(self, call)

    def on_memory_given(self) -> None:
        """What it waited for is there."""
        self.size_bytes += self._wanted_bytes
        self._wanted_bytes = 0
        if self._given is not None and not self._given.done():
            self._given.set_result(None)

    def close_for_memory(self) -> None:
        """Nobody is closed for what waits, or is kept."""

    def let_go(self) -> None:
        """Hold nothing, and wait for nothing any more."""
        if self._wanted_bytes:
            self._wanted_bytes = 0
            self._memory.reduce(self, 0)
        self._memory.call_when_wanted(self, None)
        self.hold(0)

    def __enter__(self) -> Kept:
        return self

    def __exit__(self, *_: object) -> None:
        self.let_go()

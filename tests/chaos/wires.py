"""What a network does to packets on their way: late, lost, twice, out of order, or not at all. No clock, no sockets."""

from __future__ import annotations

import heapq
import random
from dataclasses import dataclass, field
from itertools import count
from typing import NamedTuple

from chaos.resets import RST, Connection, broken_off, reset_of, segment_of

HELD_MAX = 20_000
"""Packets under way at once; what comes on top is lost, as in any queue."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Weather:
    """How one way from one peer to another is.

    Attributes:
        is_cut: nothing passes.
        delay_ms: for every packet, and up to `jitter_ms` on top. Packets keep their order.
        loss: the share of packets that are lost, from 0 to 1.
        duplication: the share of those that arrive twice.
        reordering: the share of those that are held back by `REORDERED_MS`, so that others overtake them.
        bytes_per_second: the width of the way; None for any.
        forgets: a box in the middle knows no connection that was opened before, and resets it at its next packet.
        tells_both: both ends of what is reset are told; else the one that was spoken to waits on.
    """

    is_cut: bool = False
    delay_ms: float = 0.0
    jitter_ms: float = 0.0
    loss: float = 0.0
    duplication: float = 0.0
    reordering: float = 0.0
    bytes_per_second: float | None = None
    forgets: bool = False
    tells_both: bool = False


FAIR = Weather()
CUT = Weather(is_cut=True)
REORDERED_MS = 30.0
QUEUE_SECONDS_MAX = 1.0
"""How long a packet waits for its turn on a narrow way; one that would wait longer is lost."""


class Way(NamedTuple):
    """From one peer to another."""

    source: int
    target: int


@dataclass(slots=True)
class Wires:
    """All ways between peers.

    Attributes:
        weather: of the ways that are not fair.
        passed, lost, repeated, overtaken, reset: how many packets.
        opened: the connections that those who forget know again.
    """

    rng: random.Random
    weather: dict[Way, Weather] = field(default_factory=dict)
    passed: int = 0
    lost: int = 0
    repeated: int = 0
    overtaken: int = 0
    reset: int = 0
    opened: set[Connection] = field(default_factory=set)
    _held: list[tuple[float, int, Way, bytes]] = field(default_factory=list)
    _last_due: dict[Way, float] = field(default_factory=dict)
    _free_at: dict[Way, float] = field(default_factory=dict)
    _number: count[int] = field(default_factory=count)

    def is_clear(self, way: Way) -> bool:
        """Whether a packet may be handed on as it comes: the way is fair, and nothing is on it."""
        return way not in self.weather and way not in self._last_due

    def on_packet(self, way: Way, packet: bytes, now: float) -> None:
        """A packet sets out, at `now` in seconds."""
        weather = self.weather.get(way, FAIR)
        if weather.is_cut or self.rng.random() < weather.loss or len(self._held) >= HELD_MAX:
            self.lost += 1
            return
        if weather.forgets and self._is_reset(way, packet, now, tells_both=weather.tells_both):
            return
        late = (weather.delay_ms + self.rng.random() * weather.jitter_ms) / 1_000
        if weather.bytes_per_second is not None:
            begin = max(now, self._free_at.get(way, now))
            if begin - now > QUEUE_SECONDS_MAX:
                self.lost += 1
                return
            self._free_at[way] = begin + len(packet) / weather.bytes_per_second
            late += self._free_at[way] - now
        due = now + late
        if self.rng.random() < weather.reordering:
            self.overtaken += 1
            self._hold(due + REORDERED_MS / 1_000, way, packet)
        else:
            due = max(due, self._last_due.get(way, due))
            self._last_due[way] = due
            self._hold(due, way, packet)
        if self.rng.random() < weather.duplication:
            self.repeated += 1
            self._hold(due + self.rng.random() * REORDERED_MS / 1_000, way, packet)

    def take_due(self, now: float) -> list[tuple[Way, bytes]]:
        """What arrives by now, in order. What was under way on a way that was cut meanwhile is lost."""
        found = []
        while self._held and self._held[0][0] <= now:
            due, _, way, packet = heapq.heappop(self._held)
            if self._last_due.get(way) == due:
                del self._last_due[way]
            if self.weather.get(way, FAIR).is_cut:
                self.lost += 1
                continue
            self.passed += 1
            found.append((way, packet))
        return found

    def next_due(self) -> float | None:
        """When the next packet arrives; None for never."""
        return self._held[0][0] if self._held else None

    def _is_reset(self, way: Way, packet: bytes, now: float, *, tells_both: bool) -> bool:
        """Whether its connection is not known any more; who is concerned is told so."""
        segment = segment_of(packet)
        if segment is None or segment.connection in self.opened:
            return False
        if segment.is_opening:
            self.opened.add(segment.connection)
            return False
        self.reset += 1
        if not segment.flags & RST:
            self._hold(now, Way(way.target, way.source), reset_of(segment))
            if tells_both:
                self._hold(now, way, broken_off(segment))
        return True

    def _hold(self, due: float, way: Way, packet: bytes) -> None:
        heapq.heappush(self._held, (due, next(self._number), way, packet))

"""The producers with acks=all that wait until what they sent is committed.

Kafka: `DelayedProduce`.
"""

from __future__ import annotations

from heapq import heapify, heappop, heappush
from typing import Self

from tidelog.base.errors import Code
from tidelog.base.ids import CorrelationId, Offset
from tidelog.replica.values import Acknowledgement


class ProduceWaits:
    """Those of one leader epoch. Whoever is told, in whatever words, waits no more."""

    __slots__ = ("_acks", "_waiting")

    def __init__(self) -> None:
        self._waiting: list[tuple[Offset, CorrelationId, int]] = []  # a heap
        self._acks: list[Acknowledgement] = []

    @property
    def deadlines_ms(self) -> list[int]:
        """When the time of each is up, in no order."""
        return [waiting[2] for waiting in self._waiting]

    def add(self, correlation_id: CorrelationId, end_offset: Offset, deadline_ms: int) -> None:
        """One more waits until all below `end_offset` is committed."""
        heappush(self._waiting, (end_offset, correlation_id, deadline_ms))

    def refuse(self, code: Code) -> None:
        """Tell all of them."""
        self._acks.extend(Acknowledgement(waiting[1], code) for waiting in self._waiting)
        self._waiting.clear()

    def expire(self, now_ms: int) -> None:
        """Tell those whose time is up."""
        expired = [waiting for waiting in self._waiting if waiting[2] <= now_ms]
        if expired:
            self._acks.extend(Acknowledgement(waiting[1], Code.REQUEST_TIMED_OUT) for waiting in expired)
            self._waiting = [waiting for waiting in self._waiting if waiting[2] > now_ms]
            heapify(self._waiting)

    def take_acks(self, high_watermark: Offset, code: Code) -> tuple[Acknowledgement, ...]:
        """What is to be told; out once. Those whose records lie below the high watermark are told `code`."""
        waiting = self._waiting
        while waiting and waiting[0][0] <= high_watermark:
            self._acks.append(Acknowledgement(heappop(waiting)[1], code))
        if not self._acks:
            return ()
        acks, self._acks = tuple(self._acks), []
        return acks

    def clone(self) -> Self:
        copy = type(self).__new__(type(self))
        copy._waiting, copy._acks = self._waiting.copy(), self._acks.copy()
        return copy

    def canonical_key(self) -> tuple[object, ...]:
        """Equal for those that are told alike, deadlines aside."""
        return (tuple(sorted((offset, waiting) for offset, waiting, _ in self._waiting)), tuple(self._acks))

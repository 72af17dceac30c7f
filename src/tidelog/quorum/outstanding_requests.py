"""One request to each of some nodes, sent again until each has answered.

Kafka: `RequestManager`.
"""

from __future__ import annotations

from collections.abc import Iterable

from tidelog.base.ids import BrokerId


class OutstandingRequests:
    """The voters that still have to get a request, or to answer it. One period of a role has one of these.

    Bounded by the number of nodes: each is asked one thing at a time.
    """

    __slots__ = ("_awaited", "_backoff_ms", "_backoff_ms_max", "_due_ms", "_failures")

    def __init__(self, targets: Iterable[BrokerId], now_ms: int, *, backoff_ms: int, backoff_ms_max: int) -> None:
        """Send to all now. Without an answer the request is sent again after the back-off, which doubles each time."""
        self._backoff_ms = backoff_ms
        self._backoff_ms_max = backoff_ms_max
        self._due_ms: dict[BrokerId, int] = dict.fromkeys(targets, now_ms)
        self._awaited: dict[int, BrokerId] = {}
        self._failures: dict[BrokerId, int] = {}

    def due(self, now_ms: int) -> list[BrokerId]:
        """The nodes that have to get the request now."""
        return [target for target, due_ms in self._due_ms.items() if now_ms >= due_ms]

    def keep(self, targets: Iterable[BrokerId], new: Iterable[BrokerId], now_ms: int) -> None:
        """The targets changed: drop those that are none any more, and send to the new ones."""
        kept = set(targets)
        self._due_ms = {target: due_ms for target, due_ms in self._due_ms.items() if target in kept}
        self._awaited = {number: target for number, target in self._awaited.items() if target in kept}
        for target in new:
            if target not in self._awaited.values():
                self._due_ms[target] = now_ms

    def on_sent(self, number: int, target: BrokerId) -> None:
        self._awaited[number] = target
        del self._due_ms[target]

    def on_answered(self, number: int) -> BrokerId | None:
        """Who answered; None if nobody waits for that answer: it came late, or twice."""
        return self._awaited.pop(number, None)

    def on_failed(self, number: int, now_ms: int) -> None:
        """No answer will come, or it was one that decides nothing: send again, later."""
        target = self._awaited.pop(number, None)
        if target is not None:
            self.put_off(target, now_ms)

    def put_off(self, target: BrokerId, now_ms: int) -> None:
        """Send to a target again after its back-off."""
        failures = self._failures.get(target, 0)
        self._failures[target] = min(failures + 1, 16)
        self._due_ms[target] = now_ms + min(self._backoff_ms << failures, self._backoff_ms_max)

    def finish(self, target: BrokerId) -> None:
        """Send no more requests to a target."""
        self._due_ms.pop(target, None)
        for number in [number for number, asked in self._awaited.items() if asked == target]:
            del self._awaited[number]

    def next_deadline_ms(self) -> int | None:
        return min(self._due_ms.values(), default=None)

    def clone(self) -> OutstandingRequests:
        copy = OutstandingRequests((), 0, backoff_ms=self._backoff_ms, backoff_ms_max=self._backoff_ms_max)
        copy._due_ms = self._due_ms.copy()
        copy._awaited = self._awaited.copy()
        copy._failures = self._failures.copy()
        return copy

    def canonical_key(self) -> tuple[object, ...]:
        """Clocks and numbers aside."""
        return tuple(sorted(self._due_ms)), tuple(sorted(self._awaited.values()))

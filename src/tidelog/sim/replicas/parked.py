"""Requests that wait at a broker until there is something to answer them with, or their time is over."""

from __future__ import annotations

from collections.abc import Callable

Attempt = Callable[[bool], bool]
"""Answer if there is something to say, or if it is told that the time is over. Returns whether it did."""


class Parked:
    """The waiting requests of one process, by what they wait for."""

    def __init__(self, later: Callable[[float, Callable[[], object]], None]) -> None:
        self._later = later
        self._waiting: dict[object, dict[Attempt, None]] = {}

    def wait(self, what: object, ms: float, attempt: Attempt) -> None:
        """Answer now, when `what` changes, or in so many milliseconds."""
        if attempt(False):
            return
        waiting = self._waiting.setdefault(what, {})
        waiting[attempt] = None

        def expire() -> None:
            if attempt in waiting:
                del waiting[attempt]
                attempt(True)

        self._later(ms, expire)

    def wake(self, what: object) -> None:
        """It changed."""
        waiting = self._waiting.get(what)
        if waiting:
            for attempt in list(waiting):
                if attempt in waiting and attempt(False):
                    waiting.pop(attempt, None)

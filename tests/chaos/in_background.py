"""What runs beside a round in a thread of its own, step by step."""

from __future__ import annotations

import threading
from collections.abc import Callable


class InBackground:
    """Does one thing again and again, with a pause before each.

    Args:
        step: what it does.
    """

    def __init__(self, step: Callable[[], None], pause_seconds: float) -> None:
        self._step = step
        self._pause_seconds = pause_seconds
        self._ended = threading.Event()
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run)

    def start(self) -> None:
        self._thread.start()

    def end(self) -> None:
        """Returns when the last step has ended. May be called again."""
        self._ended.set()
        if self._thread.ident is not None:
            self._thread.join()

    def check(self) -> None:
        """As `end`; and raises what a step raised."""
        self.end()
        if self._failure is not None:
            raise self._failure

    def _run(self) -> None:
        try:
            while not self._ended.wait(self._pause_seconds):
                self._step()
        except BaseException as error:
            self._failure = error

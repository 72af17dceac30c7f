"""Saying how far a command is: a bar on a terminal, plain lines elsewhere. On stderr: the result alone is output."""

from __future__ import annotations

import sys
import time
from types import TracebackType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

PLAIN_STEPS = 4
"""Lines for one long step, where there is no bar."""


class Reporter:
    """One step after the other. A step with a total has a bar.

    Use as a context, so that the terminal is left as it was.
    """

    def __init__(self) -> None:
        self._began = time.monotonic()
        self._bars: Progress | None = None
        self._bar: TaskID | None = None
        self._step = ""
        self._total = 0
        self._said = 0

    def __enter__(self) -> Reporter:
        if sys.stderr.isatty():
            from rich.console import Console
            from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn

            self._bars = Progress(
                SpinnerColumn(),
                TextColumn("{task.description}"),
                BarColumn(bar_width=36),
                MofNCompleteColumn(),
                console=Console(stderr=True),
            )
            self._bars.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bars is not None:
            self._bars.stop()

    def say(self, text: str) -> None:
        """A line of its own."""
        if self._bars is not None:
            self._bars.console.print(text, highlight=False)
        else:
            seconds = time.monotonic() - self._began
            print(f"[{seconds:5.1f} s] {text}", file=sys.stderr, flush=True)

    def begin(self, step: str, total: int) -> None:
        """A step that counts up to `total`."""
        self._step, self._total, self._said = step, total, 0
        if self._bars is not None:
            self._bar = self._bars.add_task(step, total=total)
        else:
            self.say(f"{step} ...")

    def advance(self, done: int) -> None:
        """So much of the step is done, in all."""
        if self._bars is not None and self._bar is not None:
            self._bars.update(self._bar, completed=done)
        elif done * PLAIN_STEPS // self._total > self._said and done < self._total:
            self._said = done * PLAIN_STEPS // self._total
            self.say(f"{self._step}: {done:,} of {self._total:,}")
        elif done >= self._total and self._said < PLAIN_STEPS:
            self._said = PLAIN_STEPS
            self.say(f"{self._step}: all {self._total:,}")

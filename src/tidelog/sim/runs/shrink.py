"""Make a failure short: leave out more and more of what was drawn to go wrong, while the same invariant still breaks.

Halves first, then smaller and smaller pieces (delta debugging). Every attempt is a whole run from the same seed.
"""

from __future__ import annotations

from collections.abc import Callable

from tidelog.sim.runs.report import Report

RunOnly = Callable[[list[int]], Report]
"""Runs a seed once more, with the faults at these places of its schedule and no others."""

ATTEMPTS_MAX = 100


class Shrunk:
    """The shortest failure that was found.

    Attributes:
        report: of its run.
        left: places in the schedule that it takes.
        attempts: runs that it took.
    """

    def __init__(self, report: Report, left: list[int]) -> None:
        self.report = report
        self.left = left
        self.attempts = 0

    @property
    def schedule(self) -> list[str]:
        """What has to go wrong, in words."""
        return [self.report.schedule[place] for place in self.left]


def shrink(
    failed: Report,
    run: RunOnly,
    *,
    left: list[int] | None = None,
    attempts_max: int = ATTEMPTS_MAX,
    on_progress: Callable[[Shrunk], None] = lambda _: None,
) -> Shrunk:
    """Find a run that breaks one of the same invariants with less.

    Args:
        failed: the run as it was drawn.
        run: see `RunOnly`.
        left: the places that it ran with; None for all.
        attempts_max: stop after so many runs, wherever that is.
        on_progress: told after each of them.
    """
    shrunk = Shrunk(failed, list(range(len(failed.schedule))) if left is None else left)
    size = len(shrunk.left)
    while size >= 1 and shrunk.left and shrunk.attempts < attempts_max:
        is_shorter = False
        for piece in _pieces(shrunk.left, size):
            if shrunk.attempts >= attempts_max:
                break
            fewer = [place for place in shrunk.left if place not in piece]
            report = run(fewer)
            shrunk.attempts += 1
            if report.broken_names & failed.broken_names:
                shrunk.report, shrunk.left, is_shorter = report, fewer, True
            on_progress(shrunk)
        if size > 1:
            size = (size + 1) // 2
        elif not is_shorter:
            break
    return shrunk


def _pieces(places: list[int], size: int) -> list[list[int]]:
    """From the end: what came after the failure goes at once."""
    return [places[start : start + size] for start in range(0, len(places), size)][::-1]

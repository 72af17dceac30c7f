"""How much work something is: a number that does not depend on the machine, so a test may assert it."""

from __future__ import annotations

import sys
from collections.abc import Callable, Generator
from types import FrameType
from typing import Any, TypeVar

T = TypeVar("T")


def executed_lines(work: Callable[[], object]) -> int:
    """How many lines of Python `work` executes; each turn of a loop counts. What C code does costs nothing."""
    count = 0

    def on_line(frame: FrameType, event: str, argument: Any) -> Any:
        nonlocal count
        count += 1
        return on_line

    before = sys.gettrace()
    sys.settrace(on_line)
    try:
        work()
    finally:
        sys.settrace(before)
    return count


def longest_piece(pieces: Generator[None, None, T]) -> tuple[int, T]:
    """The lines of the longest of the pieces that work is done in, and what comes of it."""
    longest, results = 0, []

    def piece() -> None:
        try:
            next(pieces)
        except StopIteration as end:
            results.append(end.value)

    while not results:
        longest = max(longest, executed_lines(piece))
    return longest, results[0]

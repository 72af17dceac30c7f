"""How much work something is: a number that does not depend on the machine, so a test may assert it."""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from types import CodeType, FrameType
from typing import Any, TypeVar

import pytest

from tidelog.coordinator.groups.consumer.assignment import Pace

T = TypeVar("T")


class Turns:
    """How often a `Pace` has said that it is others' turn."""

    def __init__(self) -> None:
        self.count = 0


def executed_lines(work: Callable[[], object], *, without: CodeType | None = None) -> int:
    """How many lines of Python `work` executes; each turn of a loop counts. What C code does costs nothing.

    Args:
        without: a function whose own lines do not count.
    """
    count = 0

    def on_line(frame: FrameType, event: str, argument: Any) -> Any:
        nonlocal count
        if frame.f_code is without:
            return None
        count += 1
        return on_line

    before = sys.gettrace()
    collects = gc.isenabled()
    gc.disable()  # the finalizers of what other work left behind are no part of this
    sys.settrace(on_line)
    try:
        work()
    finally:
        sys.settrace(before)
        if collects:
            gc.enable()
    return count


@contextmanager
def counted_turns() -> Iterator[tuple[Turns, CodeType]]:
    """Have every `Pace` tell when it is others' turn. Gives the function that is put in between too."""
    turns, counts = Turns(), Pace.counts

    def counting(pace: Pace, elements: int) -> bool:
        is_turn = counts(pace, elements)
        turns.count += is_turn
        return is_turn

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Pace, "counts", counting)
        yield turns, counting.__code__


def in_turn(pieces: Generator[None, None, T], turns: Turns, *, spare: int = 0) -> Generator[None, None, T]:
    """The same work. No piece of it ends before a `Pace` says so.

    Args:
        spare: how many may, of work that knows that it took long enough.
    """
    while True:
        before = turns.count
        try:
            next(pieces)
        except StopIteration as end:
            result: T = end.value
            return result
        if turns.count == before:
            spare -= 1
            assert spare >= 0, "it gave way before its pace said so"
        yield


def longest_piece(pieces: Generator[None, None, T]) -> tuple[int, T]:
    """The lines of the longest of the pieces that work is done in, and what comes of it.

    None ends before a `Pace` says so: whoever gives way at each element is done with much too late.
    """
    longest, results = 0, []

    def piece() -> None:
        try:
            next(pieces)
        except StopIteration as end:
            results.append(end.value)

    with counted_turns() as (turns, counting):
        while not results:
            before = turns.count
            longest = max(longest, executed_lines(piece, without=counting))
            assert results or turns.count > before, "it gave way before its pace said so"
    return longest, results[0]

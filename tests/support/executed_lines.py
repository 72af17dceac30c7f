"""How much work something is: a number that does not depend on the machine, so a test may assert it."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any


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

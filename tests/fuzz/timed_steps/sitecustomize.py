"""Times every step of the event loop of a process that has this folder in PYTHONPATH, and `TIMED_STEPS` set.

`TIMED_STEPS` names a file. A line goes there for each step that took half a millisecond of CPU or more: the
milliseconds, those of them that collected garbage, and what was called. asyncio's own loop is used, because
uvloop's steps cannot be timed from outside; what a step does is the same on either.
"""

from __future__ import annotations

import asyncio.events
import gc
import os
import sys
from threading import get_ident, main_thread
from time import thread_time_ns

NOTED_FROM_NS = 500_000


def time_steps(path: str) -> None:
    sys.modules["uvloop"] = None  # type: ignore[assignment]  # to import it raises ImportError
    noted = open(path, "a", buffering=1)  # noqa: SIM115  # until the process ends
    run = asyncio.events.Handle._run
    collecting_ns = 0

    def timed(handle: asyncio.Handle) -> None:
        nonlocal collecting_ns
        collecting_ns, before_ns = 0, thread_time_ns()
        run(handle)
        took_ns = thread_time_ns() - before_ns
        if took_ns >= NOTED_FROM_NS:
            noted.write(f"{took_ns / 1e6:.2f} {collecting_ns / 1e6:.2f} {handle!r}\n".replace("\n", " ")[:400] + "\n")

    def on_collection(phase: str, info: dict[str, int]) -> None:
        nonlocal collecting_ns
        if get_ident() == main_thread().ident:
            collecting_ns += thread_time_ns() * (1 if phase == "stop" else -1)

    gc.callbacks.append(on_collection)
    setattr(asyncio.events.Handle, "_run", timed)  # noqa: B010  # mypy knows it for a method


if "TIMED_STEPS" in os.environ:
    time_steps(os.environ["TIMED_STEPS"])

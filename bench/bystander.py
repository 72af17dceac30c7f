"""Another client beside what is measured: its longest wait bounds the longest step of a node's event loop."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from harness import WireClient

__all__ = ["waits_beside", "waits_during"]

ASK_EVERY_SECONDS = 0.005


def waits_during(port: int, topic: str, work: Callable[[], object]) -> list[float]:
    """How many milliseconds each request of the bystander took while `work` ran."""
    with waits_beside(port, topic) as waits:
        work()
    return waits


@contextmanager
def waits_beside(port: int, topic: str) -> Iterator[list[float]]:
    """The same, as long as the block lasts: it asks the node for the end of the topic's log again and again."""
    ended, waits = threading.Event(), list[float]()

    def ask() -> None:
        with WireClient(port) as client:
            while not ended.wait(ASK_EVERY_SECONDS):
                started = time.perf_counter()
                client.log_end_offset(topic)
                waits.append((time.perf_counter() - started) * 1e3)

    thread = threading.Thread(target=ask)
    thread.start()
    try:
        yield waits
    finally:
        ended.set()
        thread.join()

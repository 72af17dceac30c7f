"""What the demo's process sees to around its work: signals, the complaints of others, and a look now and then."""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

LOOK_PAUSE_SECONDS = 0.05


@contextmanager
def stderr_into(path: Path) -> Iterator[None]:
    """Have processes that are started now write their complaints to a file: Spark has many that mean nothing here."""
    sys.stderr.flush()
    saved = os.dup(2)
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    os.dup2(file, 2)
    try:
        yield
    finally:
        os.dup2(saved, 2)
        os.close(saved)
        os.close(file)


@contextmanager
def again_and_again(look: Callable[[], None]) -> Iterator[None]:
    """Have a thread look every now and then. (Spark stays in the main thread: others do not know its session.)"""
    done = threading.Event()

    def run() -> None:
        while not done.wait(LOOK_PAUSE_SECONDS):
            look()

    thread = threading.Thread(target=run, name="demo-look", daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


@contextmanager
def clients_in_silence() -> Iterator[None]:
    """Have our clients log nothing of what the demo does to them: it says itself what they are told."""
    clients = logging.getLogger("tidelog.client")
    before = clients.level
    clients.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        clients.setLevel(before)


@contextmanager
def termination_as_interrupt() -> Iterator[None]:
    """SIGTERM ends the demo as Ctrl-C does: in order."""

    def interrupt(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    def is_worth_logging(record: logging.LogRecord) -> bool:
        return "KeyboardInterrupt" not in record.getMessage()

    # The bridge to the JVM has tracebacks for an interrupt, and for a query that is stopped in the middle of a batch.
    bridge = logging.getLogger("py4j")
    bridge_level = bridge.level
    before = signal.signal(signal.SIGTERM, interrupt)
    logging.getLogger().addFilter(is_worth_logging)
    bridge.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        bridge.setLevel(bridge_level)
        logging.getLogger().removeFilter(is_worth_logging)
        signal.signal(signal.SIGTERM, before)

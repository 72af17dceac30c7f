"""What every copier is told. It copies until its stdin ends; where its client gives up, it ends with an error."""

from __future__ import annotations

import argparse
import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

__all__ = ["BATCH_RECORDS_MAX", "POLL_SECONDS", "SESSION_TIMEOUT_MS", "TIMEOUT_SECONDS", "Told", "listen", "watched"]

BATCH_RECORDS_MAX = 20
POLL_SECONDS = 0.2
SESSION_TIMEOUT_MS = 6_000
TIMEOUT_SECONDS = 30.0
TRANSACTION_SECONDS_MAX = 15.0


@dataclass(frozen=True, slots=True)
class Told:
    """The arguments of a copier."""

    bootstrap: str
    source: str
    target: str
    name: str
    """Its group, and its transactional id."""


def listen() -> Told:
    """The arguments. The process ends at once when its stdin does, whatever it is doing."""
    parser = argparse.ArgumentParser()
    for name in ("bootstrap", "source", "target", "name"):
        parser.add_argument(name)

    def wait_for_the_end() -> None:
        sys.stdin.buffer.read()
        os._exit(0)

    threading.Thread(target=wait_for_the_end, daemon=True).start()
    return Told(**vars(parser.parse_args()))


@contextmanager
def watched() -> Iterator[None]:
    """End the process if what is done in the context takes too long: its client may have forgotten a request."""
    timer = threading.Timer(TRANSACTION_SECONDS_MAX, os._exit, [1])
    timer.start()
    try:
        yield
    finally:
        timer.cancel()

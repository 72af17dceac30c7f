"""The process that nodes are forked from, whatever happens to who asks it."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from tidelog.testing.fork_server import ForkServer

SECONDS_MAX = 60.0


@contextmanager
def signalled() -> Iterator[None]:
    """This thread is sent signals all the time, which it handles."""
    asker = threading.get_ident()
    has_ended = threading.Event()

    def send() -> None:
        while not has_ended.wait(0.000_5):
            signal.pthread_kill(asker, signal.SIGUSR1)

    before = signal.signal(signal.SIGUSR1, lambda *_: None)
    sender = threading.Thread(target=send)
    sender.start()
    try:
        yield
    finally:
        has_ended.set()
        sender.join()
        signal.signal(signal.SIGUSR1, before)


def test_a_long_request_goes_out_whole_though_a_signal_interrupts_it() -> None:
    server = ForkServer(())
    nowhere = os.open(os.devnull, os.O_RDWR)
    try:
        for _ in range(5):
            with signalled():
                process = server.start("os:getpgrp", stdout=nowhere, stderr=2, environment={"LONG": "x" * 8_000_000})
            process.wait(time.monotonic() + SECONDS_MAX)
    finally:
        os.close(nowhere)
        server.close()

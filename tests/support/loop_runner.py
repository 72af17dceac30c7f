"""A scripted peer on an event loop in another thread, for clients that block."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TypeVar

from support.scripted_broker import ScriptedBroker

B = TypeVar("B", bound=ScriptedBroker)

START_SECONDS_MAX = 60.0


@contextmanager
def on_a_loop_of_its_own(broker: B) -> Iterator[B]:
    """Run `broker` in a thread until the end of the `with` block."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, name="scripted-broker", daemon=True)
    thread.start()
    try:
        asyncio.run_coroutine_threadsafe(broker.start(), loop).result(START_SECONDS_MAX)
        yield broker
        asyncio.run_coroutine_threadsafe(broker.stop(), loop).result(START_SECONDS_MAX)
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join(START_SECONDS_MAX)
        loop.close()

"""Something that changes now and then, and who waits for that."""

from __future__ import annotations

import asyncio


class Notifier:
    """Wakes everybody who waits, once for each `notify`."""

    __slots__ = ("_waiters",)

    def __init__(self) -> None:
        self._waiters: dict[asyncio.Future[None], None] = {}

    def notify(self) -> None:
        """Wake everybody who waits for a change."""
        waiters, self._waiters = self._waiters, {}
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)

    async def wait(self) -> None:
        """Return when it changes next."""
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiters[waiter] = None
        try:
            await waiter
        finally:
            self._waiters.pop(waiter, None)  # who waits no more is not kept until it happens

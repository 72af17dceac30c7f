"""Leaders that are in doubt: the connection on which this broker followed one closed, and it has not answered since.

Within some tens of milliseconds the controller finds out whether the process is gone, and another leads; or the leader
answers on a new connection. A client that asks meanwhile asks because its own connection closed. It would be sent back
to the same leader, and stock clients ask again a second later. So answers that name such a leader wait for the news.

A leader is in doubt once, until it has answered again: one that stays out of reach holds nobody up any more.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Set

from tidelog.base.ids import BrokerId
from tidelog.metadata import BrokerImage, MetadataImage
from tidelog.server.notifier import Notifier

GONE_SECONDS = 5.0
"""So long a broker that is gone is still shown to clients: see the handler of Metadata."""

NamesLeader = Callable[[MetadataImage, Set[BrokerId]], bool]
"""Whether an answer from this image would name one of these brokers."""


class LeaderDoubts:
    """Of one broker.

    Args:
        doubt_ms_max: for how long a leader is in doubt at most; 0 for never.
    """

    def __init__(self, doubt_ms_max: int) -> None:
        self._doubt_ms_max = doubt_ms_max
        self._silent: dict[BrokerId, float] = {}  # since when, by the loop's time
        self._doubted: dict[BrokerId, asyncio.TimerHandle] = {}  # of these
        self._told: dict[BrokerId, BrokerImage | None] = {}  # what the image said of them last
        self._news = Notifier()

    def on_hung_up(self, leader: BrokerId) -> None:
        """Its connection closed, and not from here."""
        if leader not in self._silent and self._doubt_ms_max:
            loop = asyncio.get_running_loop()
            self._silent[leader] = loop.time()
            self._doubted[leader] = loop.call_later(self._doubt_ms_max / 1000, self._on_time, leader)

    def _on_time(self, leader: BrokerId) -> None:
        del self._doubted[leader]
        self._news.notify()

    def on_answered(self, leader: BrokerId) -> None:
        """It lives."""
        if leader in self._silent:
            del self._silent[leader]
            timer = self._doubted.pop(leader, None)
            if timer is not None:
                timer.cancel()
                self._news.notify()

    def on_published(self, image: MetadataImage) -> None:
        """There is another image. Thousands may wait: they look at one that tells of whom they doubt."""
        if not self._doubted:
            return
        told = {leader: image.brokers.get(leader) for leader in self._doubted}
        if told != self._told:
            self._told = told
            self._news.notify()

    def stop(self) -> None:
        """Hold nobody up any more."""
        for leader in list(self._silent):
            self.on_answered(leader)

    @property
    def brokers(self) -> Set[BrokerId]:
        """Those that are in doubt now."""
        return self._doubted.keys()

    @property
    def just_gone(self) -> Set[BrokerId]:
        """Those whose connection closed within the last `GONE_SECONDS`, and that have not answered since."""
        if not self._silent:
            return self._silent.keys()
        now = asyncio.get_running_loop().time()
        return {leader for leader, since in self._silent.items() if now < since + GONE_SECONDS}

    async def settled(self, image: Callable[[], MetadataImage], names: NamesLeader) -> None:
        """Return once an answer from the published image names nobody who is in doubt."""
        while self._doubted and names(image(), self._doubted.keys()):
            await self._news.wait()

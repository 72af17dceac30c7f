"""Leaders that are in doubt: a connection to one broke, or it has not shown yet that it is there.

A client that asks who leads mostly asks because its own connection broke. If it is sent back to the same leader, it
asks again after its own pause: librdkafka after a second, franz-go after five.

A broker may be asked before it has noticed itself. A process that is killed closes its connections one after the other,
those that were opened last first: clients come before brokers, and in between others may have their turn of the
processor. So an answer that names another broker as a leader waits until that one has answered a question that was sent
after the request came. That takes a fraction of a millisecond, and thousands who ask share it.

If the connection is closed instead, or its port refuses, the leader is in doubt. Within some tens of milliseconds the
controller finds out whether the process is gone, and another leads; or the leader answers on a new connection, on which
it is asked once more. The answer waits for this news, and then for the new leader: one that has not heard of its
election yet would send clients away. So the question bears the token of the published metadata, and is answered by who
has published it as well.

A leader is in doubt once, until it has answered again: one that stays out of reach holds nobody up any more. Neither
does one that is there and does not answer in time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Set
from contextlib import suppress
from typing import Protocol

from tidelog.base.ids import BrokerId
from tidelog.metadata import BrokerImage, MetadataImage
from tidelog.server.notifier import Notifier
from tidelog.server.replication.leader_probes import OnProbed

GONE_SECONDS = 5.0
"""So long a broker that is gone is still shown to clients: see the handler of Metadata."""

ANSWER_SECONDS_MAX = 0.1
"""So long an answer waits for a leader to show that it is there. One that is busy takes some milliseconds."""

LeadersNamed = Callable[[MetadataImage], Set[BrokerId]]
"""Which leaders an answer from this image would name."""


class Probes(Protocol):
    """How to ask leaders whether they are there: `LeaderProbes` is one."""

    def probe(self, leader: BrokerId, told: OnProbed) -> asyncio.Task[None]: ...
    def on_published(self, image: MetadataImage) -> None: ...


class LeaderDoubts:
    """Of one broker.

    Args:
        broker_id: this broker, of which there is no doubt here.
        doubt_ms_max: for how long a leader is in doubt at most; 0 for never.
        probes: how to ask the others.
    """

    def __init__(self, broker_id: BrokerId, doubt_ms_max: int, probes: Probes) -> None:
        self._broker_id = broker_id
        self._doubt_ms_max = doubt_ms_max
        self._probes = probes
        self._silent: dict[BrokerId, float] = {}  # hung up: since when, by the loop's time
        self._doubted: dict[BrokerId, asyncio.TimerHandle] = {}  # of these
        self._late: set[BrokerId] = set()  # did not answer in time
        self._told: dict[BrokerId, BrokerImage | None] = {}  # what the image said of them last
        self._news = Notifier()

    def on_hung_up(self, leader: BrokerId) -> None:
        """Its connection closed, and not from here; or its port refuses."""
        if leader not in self._silent and self._doubt_ms_max:
            loop = asyncio.get_running_loop()
            self._silent[leader] = loop.time()
            self._told.pop(leader, None)  # that was told of an earlier doubt
            self._doubted[leader] = loop.call_later(self._doubt_ms_max / 1000, self._on_time, leader)

    def _on_time(self, leader: BrokerId) -> None:
        del self._doubted[leader]
        self._news.notify()

    def on_answered(self, leader: BrokerId, asked: float) -> None:
        """It lives, if it was asked after it hung up: an answer may be read after the end of another connection.

        Args:
            asked: when, by the loop's time.
        """
        self._late.discard(leader)
        since = self._silent.get(leader)
        if since is not None and asked >= since:
            self._settle(leader)

    def _settle(self, leader: BrokerId) -> None:
        del self._silent[leader]
        timer = self._doubted.pop(leader, None)
        if timer is not None:
            timer.cancel()
            self._news.notify()

    def on_published(self, image: MetadataImage) -> None:
        """There is another image. Thousands may wait: they look at one that tells of whom they doubt."""
        self._probes.on_published(image)
        if not self._doubted:
            return
        told = {leader: image.brokers.get(leader) for leader in self._doubted}
        if told != self._told:
            self._told = told
            self._news.notify()

    def stop(self) -> None:
        """Hold nobody up any more."""
        self._doubt_ms_max = 0
        for leader in list(self._silent):
            self._settle(leader)

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

    def concern(self, leaders: Set[BrokerId]) -> bool:
        """Whether an answer that names these leaders has to wait for anything."""
        return bool(self._doubt_ms_max and leaders - {self._broker_id})

    async def settled(self, image: Callable[[], MetadataImage], named: LeadersNamed) -> None:
        """Return once all leaders that an answer names have shown that they are there, or no doubt is left.

        That takes no longer than one doubt, however many leaders are doubted one after the other, or again.
        """
        if self._doubt_ms_max:
            with suppress(TimeoutError):
                async with asyncio.timeout(self._doubt_ms_max / 1000):
                    await self._wait_for_all(image, named)

    async def _wait_for_all(self, image: Callable[[], MetadataImage], named: LeadersNamed) -> None:
        heard = {self._broker_id}
        while self._doubt_ms_max:
            leaders = named(image())
            doubted = leaders & self._doubted.keys()
            if doubted:
                for leader in sorted(doubted):
                    self._probes.probe(leader, self)  # a connection alone may have broken
                await self._news.wait()
            elif leaders <= heard:
                return
            else:
                await self._hear_of(leaders - heard)
                heard |= leaders

    async def _hear_of(self, leaders: Set[BrokerId]) -> None:
        probed = {leader: self._probes.probe(leader, self) for leader in sorted(leaders)}
        gone = self.just_gone | self._late
        awaited = {leader: probe for leader, probe in probed.items() if leader not in gone}
        if not awaited:
            return  # whoever was silent is asked, for the next time
        await asyncio.wait(awaited.values(), timeout=ANSWER_SECONDS_MAX)
        self._late.update(leader for leader, probe in awaited.items() if not probe.done())

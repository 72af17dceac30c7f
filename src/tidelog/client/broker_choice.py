"""Which broker a client asks, where it may ask any.

A broker may be cut off from the others and not know it. A broker that has nothing new to say when something is missing,
or says nothing at all, was asked in vain: the others are asked before it. A broker that was behind what the client has
seen (STALE_METADATA) is asked after the others for a while. Once a broker has passed on a change that the client asked
for, it has seen that change, and is asked first.

Kafka: `NetworkClient.leastLoadedNode`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from contextvars import ContextVar

from tidelog.base.errors import NetworkError, TidelogError
from tidelog.base.ids import BrokerId
from tidelog.base.ports import Rng
from tidelog.client.core.metadata_cache import MetadataCache
from tidelog.net.address import Address
from tidelog.net.connection import Connection
from tidelog.net.pool import ConnectionPool

PATIENCE_MS_MIN = 1_000
"""After that another broker is asked as well; twice as long for each that was asked in vain."""
SILENT_SECONDS = 0.5
"""So often a client asks who leads while one that it asked is silent for longer than that patience."""
BEHIND_SECONDS = 10.0
"""So long a broker that was behind what this client has seen is asked after the others."""

_last_requested: ContextVar[Address | None] = ContextVar("tidelog.client.last_requested", default=None)

logger = logging.getLogger("tidelog.client")


class BrokerChoice:
    """See the module. Belongs to the event loop that it runs on.

    Args:
        bootstrap: brokers to ask before any is known.
        metadata: which brokers are known, by then.
        pool: connects to them.
        rng: brokers without a connection are tried in random order.
    """

    def __init__(self, bootstrap: tuple[Address, ...], metadata: MetadataCache, pool: ConnectionPool, rng: Rng) -> None:
        self._bootstrap = bootstrap
        self._metadata = metadata
        self._pool = pool
        self._rng = rng
        self._passed_on: Connection | None = None
        self._behind: dict[Address, float] = {}  # who was, and until when others are asked first, in the loop's time
        self._in_vain: set[Address] = set()
        self._foreign: set[Address] = set()  # who is of another cluster than the consistency context

    @property
    def last_requested(self) -> Address | None:
        """The broker that this task asked last: a refusal is of that one, whomever other tasks ask meanwhile."""
        return _last_requested.get()

    # What happened.
    def on_changes(self) -> None:
        """Metadata changed: what was missing may be there, whoever is asked."""
        self._in_vain.clear()

    def on_in_vain(self, address: Address) -> None:
        """A broker had nothing new to say of what is missing, or has not answered."""
        self._in_vain.add(address)

    def on_behind(self, address: Address) -> None:
        """A broker has older metadata than this client, or could not say what it was asked for."""
        self._behind[address] = asyncio.get_running_loop().time() + BEHIND_SECONDS

    def on_requested(self, address: Address) -> None:
        """This task asks a broker."""
        _last_requested.set(address)

    def on_last_behind(self) -> None:
        """The broker that this task asked last has older metadata than this client."""
        self._passed_on = None
        if self.last_requested is not None:
            self.on_behind(self.last_requested)

    def on_last_foreign(self) -> Address | None:
        """The broker that this task asked last is of another cluster than the consistency context: it is skipped.

        Returns:
            That broker; None if there is no other to ask.
        """
        asked = self.last_requested
        if asked is None or not {*self._by_address(), *self._bootstrap} - self._foreign - {asked}:
            self._foreign.clear()
            return None
        self._foreign.add(asked)
        return asked

    def on_change_requested(self, connection: Connection) -> None:
        """A broker was asked for a change, or to pass it on to the controller."""
        self._passed_on = connection

    # Whom to ask.
    async def any_broker(self) -> Connection:
        """The broker that passed on a change, or else as `ahead`, which see."""
        passed_on = self._passed_on
        connection = passed_on if passed_on is not None and passed_on.closed is None else await self.ahead()
        self.on_requested(connection.address)
        return connection

    async def ahead(self) -> Connection:
        """A broker that was not behind lately, if there is any that can be reached: one with a connection, if there is.

        Raises:
            NetworkError: none can be reached; names all addresses, and the last reason.
            UnsupportedVersionError: what answers is too old, or too new.
        """
        now = asyncio.get_running_loop().time()
        self._behind = {address: until for address, until in self._behind.items() if until > now}
        avoided = self._behind.keys() | self._foreign
        open_ones = [one for one in self._pool.open_connections() if one.address not in avoided]
        if open_ones:
            return min(open_ones, key=_in_flight)
        by_address = self._by_address()
        targets = self._shuffled(by_address) + self._shuffled(one for one in self._bootstrap if one not in by_address)
        targets = [address for address in targets if address not in self._foreign]
        targets.sort(key=self._behind.__contains__)
        last: TidelogError | None = None
        slow: list[Address] = []
        for address in targets:
            try:
                async with asyncio.timeout(PATIENCE_MS_MIN / 1000):
                    return await self._pool.connection(by_address.get(address, address))
            except NetworkError as error:
                last = error
            except TimeoutError:
                slow.append(address)  # it is tried on beside the next
        for address in slow:
            try:
                return await self._pool.connection(by_address.get(address, address))
            except NetworkError as error:
                last = error
        names = ", ".join(map(str, targets))
        foreign = f"; of another cluster: {', '.join(map(str, self._foreign))}" if self._foreign else ""
        raise NetworkError(f"no broker can be reached at {names}; last: {last}{foreign}")

    def is_behind(self, connection: Connection) -> bool:
        """Whether a broker was behind lately."""
        return connection.address in self._behind

    def is_foreign(self, connection: Connection) -> bool:
        """Whether a broker is of another cluster than the consistency context."""
        return connection.address in self._foreign

    async def controller(self) -> Connection | None:
        """The broker that metadata calls the controller; None if it cannot be reached, or there is none."""
        controller_id = self._metadata.controller_id
        if controller_id is not None and controller_id in self._metadata.brokers:
            try:
                self._passed_on = await self._pool.connection(controller_id)
                self.on_requested(self._passed_on.address)
                return self._passed_on
            except NetworkError as error:
                logger.debug("the controller cannot be reached: %s", error)
        self._passed_on = None
        return None

    async def informant(self) -> Connection | None:
        """A broker that was not asked in vain since metadata changed last; None if any is as good as another."""
        passed_on = self._passed_on
        if passed_on is not None and passed_on.closed is None and passed_on.address not in self._in_vain:
            return passed_on
        if not self._in_vain:
            return None
        avoided = self._in_vain | self._foreign
        open_ones = [one for one in self._pool.open_connections() if one.address not in avoided]
        if open_ones:
            return min(open_ones, key=_in_flight)
        by_address = self._by_address()
        for address in self._shuffled(one for one in by_address if one not in self._in_vain):
            if self._pool.is_failing(by_address[address]):
                continue  # it was away a moment ago: the others are asked again first
            try:
                async with asyncio.timeout(PATIENCE_MS_MIN / 1000):
                    return await self._pool.connection(by_address[address])
            except (NetworkError, TimeoutError) as error:
                logger.debug("broker %s at %s cannot be asked: %s", by_address[address], address, error)
        self._in_vain.clear()
        return None

    def _by_address(self) -> dict[Address, BrokerId]:
        return {Address(broker.host, broker.port): id_ for id_, broker in self._metadata.brokers.items()}

    def _shuffled(self, addresses: Iterable[Address]) -> list[Address]:
        left = list(addresses)
        taken = []
        while left:
            taken.append(left.pop(self._rng.randrange(0, len(left))))
        return taken


def _in_flight(connection: Connection) -> int:
    return connection.in_flight

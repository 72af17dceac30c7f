"""Connections to the brokers of one cluster, opened when first wanted, and again after they broke."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from tidelog.base.errors import AuthenticationError, NetworkError, TidelogError
from tidelog.base.ids import BrokerId
from tidelog.base.ports import Network
from tidelog.net.address import Address
from tidelog.net.backoff import Backoff
from tidelog.net.connection import Connection, ConnectionSettings, open_connection
from tidelog.wire import ApiKey

CONTROL_REQUESTS = ""
"""For requests that are answered at once. A long poll holds up what comes behind it, so it takes a lane of its own."""


class _Slot:
    """One connection to one broker, or the attempt at it."""

    __slots__ = ("connection", "failures", "not_before", "opening")

    def __init__(self) -> None:
        self.connection: Connection | None = None
        self.opening: asyncio.Task[Connection] | None = None
        self.failures = 0
        self.not_before = 0.0  # in the loop's time


class ConnectionPool:
    """See the module. Belongs to the event loop it is used in.

    Args:
        network: how to connect.
        settings: of each connection.
        backoff: between attempts at one broker.
        is_node: a node tries again whatever it was refused for: a certificate may be renewed, here or there. A client
            gives up, and its user is told.
    """

    def __init__(
        self, network: Network, settings: ConnectionSettings, backoff: Backoff, *, is_node: bool = False
    ) -> None:
        self._is_node = is_node
        self._network = network
        self._settings = settings
        self._backoff = backoff
        self._addresses: dict[BrokerId, Address] = {}
        self._slots: dict[tuple[BrokerId | Address, str], _Slot] = {}
        self._closed = False
        self._refused: AuthenticationError | None = None  # for which nobody is connected to any more

    def set_addresses(self, addresses: Mapping[BrokerId, Address]) -> None:
        """Where the brokers are now. Connections to one that moved are closed."""
        for (target, _), slot in self._slots.items():
            if isinstance(target, Address) or slot.connection is None:
                continue
            if addresses.get(target, slot.connection.address) != slot.connection.address:
                slot.connection.close(NetworkError(f"broker {target} moved away from {slot.connection.address}"))
        self._addresses = dict(addresses)

    def ready(self, target: BrokerId | Address, request_class: str = CONTROL_REQUESTS) -> Connection | None:
        """The connection if it is open now."""
        slot = self._slots.get((target, request_class))
        if slot is None or slot.connection is None or slot.connection.closed is not None:
            return None
        return slot.connection

    def is_failing(self, target: BrokerId | Address) -> bool:
        """Whether the last attempt to open one of its connections failed: the next one is held back."""
        return any(slot.failures > 0 for (of, _), slot in self._slots.items() if of == target)

    def open_connections(self) -> list[Connection]:
        """The connections for control requests that are open now."""
        found = [self.ready(target) for target, request_class in self._slots if request_class == CONTROL_REQUESTS]
        return [connection for connection in found if connection is not None]

    async def connection(self, target: BrokerId | Address, request_class: str = CONTROL_REQUESTS) -> Connection:
        """The connection, opened if need be; one attempt, after the back-off that earlier failures ask for.

        Raises:
            NetworkError: it cannot be opened, or nobody knows where the broker is.
            UnsupportedVersionError: the broker is not one that we can speak with.
            AuthenticationError: one side does not accept the other; a client is told so from then on at once, whatever
                broker it asks for.
        """
        if self._closed:
            raise NetworkError("the client is closed")
        open_one = self.ready(target, request_class)
        if open_one is not None:
            return open_one
        if self._refused is not None:
            raise self._refused.with_traceback(None)
        slot = self._slots.setdefault((target, request_class), _Slot())
        if slot.opening is None:
            slot.opening = asyncio.get_running_loop().create_task(self._open(target, slot))
            slot.opening.add_done_callback(_mark_retrieved)
        return await asyncio.shield(slot.opening)  # who stops waiting does not stop the others

    async def _open(self, target: BrokerId | Address, slot: _Slot) -> Connection:
        loop = asyncio.get_running_loop()
        try:
            if slot.not_before > loop.time():
                await asyncio.sleep(slot.not_before - loop.time())
            address = target if isinstance(target, Address) else self._addresses.get(target)
            if address is None:
                raise NetworkError(f"broker {target} is not in the cluster's metadata")
            before = slot.connection
            slot.connection = await open_connection(self._network, address, self._settings)
            if before is not None and before.was_unheard:
                await self._check_listener(slot.connection)
        except TidelogError as error:
            if isinstance(error, AuthenticationError) and not self._is_node:
                self._refused = error
            slot.failures += 1
            slot.not_before = loop.time() + self._backoff.delay_ms(slot.failures) / 1000
            raise
        finally:
            slot.opening = None
        slot.failures = 0
        return slot.connection

    async def _check_listener(self, connection: Connection) -> None:
        """It hung up on the connection before instead of answering: find out whether it waits for SASL."""
        security = self._settings.security
        if (security is not None and security.sasl is not None) or not connection.versions.serves(
            ApiKey.SASL_HANDSHAKE, 1
        ):
            return
        from tidelog.net.listener_probe import check_no_sasl

        try:
            await check_no_sasl(self._network, connection.address, self._settings)
        except AuthenticationError as error:
            connection.close(error)
            raise

    async def close(self) -> None:
        """Close all, and stop opening."""
        self._closed = True
        opening = [slot.opening for slot in self._slots.values() if slot.opening is not None]
        for task in opening:
            task.cancel()
        await asyncio.gather(*opening, return_exceptions=True)
        for slot in self._slots.values():
            if slot.connection is not None:
                slot.connection.close(NetworkError("the client is closed"))


def _mark_retrieved(task: asyncio.Task[Connection]) -> None:
    if not task.cancelled():
        task.exception()

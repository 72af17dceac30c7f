"""A network that forgets nothing: every StopReplica that was pushed comes again, late, more than once, in any order.

Half of them as they were, so that the epochs of controller and broker tell that they are late; the others with both
made the newest, so that nothing does but what they say of each partition.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from copy import copy

from tidelog.base.errors import TidelogError
from tidelog.base.ids import BrokerId
from tidelog.base.ports import Network
from tidelog.net.address import Address
from tidelog.net.connection import ConnectionSettings, open_connection
from tidelog.net.security import ConnectionSecurity
from tidelog.server.node import Node
from tidelog.sim.world.rng import SeededRng
from tidelog.wire.messages.api_05_stop_replica import StopReplicaRequest, StopReplicaResponse

KEPT_MAX = 100
TIMEOUT_MS = 2_000
PAUSE_SECONDS_MAX = 1.0
NEWEST_CONTROLLER_EPOCH = (1 << 31) - 1
NEWEST_BROKER_EPOCH = (1 << 63) - 1


class LateStops:
    """See the module.

    Args:
        addresses: of the brokers.
        rng: for what comes when.
        security: how nodes connect to each other.

    Attributes:
        delivered: how many came again and were answered.
    """

    def __init__(
        self,
        network: Network,
        addresses: Mapping[BrokerId, Address],
        rng: SeededRng,
        security: ConnectionSecurity | None = None,
    ) -> None:
        self.delivered = 0
        self._network = network
        self._addresses = addresses
        self._rng = rng
        self._security = security
        self._kept: list[tuple[BrokerId, StopReplicaRequest]] = []

    def listen_to(self, process: Node) -> None:
        """Keep what this node pushes from now on."""
        process.replica_stops.push_listeners.append(self._keep)

    async def run(self, is_over: Callable[[], bool] = lambda: False) -> None:
        """Deliver one after the other until it is over."""
        while not is_over():
            await asyncio.sleep(PAUSE_SECONDS_MAX * self._rng.random())
            if self._kept:
                to, request = self._kept[self._rng.randrange(0, len(self._kept))]
                await self.deliver(to, request, is_as_it_was=self._rng.random() < 0.5)

    async def deliver(self, to: BrokerId, request: StopReplicaRequest, *, is_as_it_was: bool = True) -> None:
        """Once more, if the broker can be reached."""
        if not is_as_it_was:
            request = copy(request)
            request.controller_epoch, request.broker_epoch = NEWEST_CONTROLLER_EPOCH, NEWEST_BROKER_EPOCH
        settings = ConnectionSettings("a late network", connect_timeout_ms=TIMEOUT_MS, security=self._security)
        try:
            connection = await open_connection(self._network, self._addresses[to], settings)
            try:
                await connection.request(request, StopReplicaResponse, timeout_ms=TIMEOUT_MS)
                self.delivered += 1
            finally:
                connection.close()
        except TidelogError:
            pass  # another one, another time

    def _keep(self, to: BrokerId, request: StopReplicaRequest) -> None:
        if len(self._kept) == KEPT_MAX:
            self._kept.pop(self._rng.randrange(0, KEPT_MAX))
        self._kept.append((to, request))

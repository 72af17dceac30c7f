"""How a client finds the coordinators of groups and of transactional ids, and asks them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from tidelog.base.errors import NetworkError, TidelogError
from tidelog.base.ids import BrokerId
from tidelog.client.broker_choice import PATIENCE_MS_MIN
from tidelog.client.cluster import Cluster
from tidelog.client.refusals import refused
from tidelog.net.connection import Connection
from tidelog.net.pool import CONTROL_REQUESTS
from tidelog.wire import ApiKey
from tidelog.wire.messages.api_10_find_coordinator import (
    KEY_TYPE_GROUP,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)

A = TypeVar("A")

_FIRST_WITH_SEVERAL_KEYS = 4
PATIENCE_MS_MAX = 8_000


class Coordinators:
    """Asks the coordinators of keys of one kind. Who coordinates a key is kept until that one refuses or is away.

    Args:
        key_type: of FindCoordinator, such as KEY_TYPE_GROUP.
        noun: what a key names, for errors, as in "group".
    """

    def __init__(self, cluster: Cluster, key_type: int, *, noun: str) -> None:
        self._cluster = cluster
        self._key_type = key_type
        self._noun = noun
        self._found: dict[str, BrokerId] = {}

    async def request(self, what: str, key: str, send_request: Callable[[BrokerId, Connection], Awaitable[A]]) -> A:
        """Find the coordinator of a key and ask it; again, with a new look, while a retry can help.

        Args:
            what: named in errors.
            send_request: gets the coordinator, and a connection to it.
        """

        async def attempt() -> A:
            try:
                return await send_request(*await self.connection(key))
            except TidelogError:
                self.forget(key)
                raise

        return await self._cluster.retrying(what, attempt)

    async def connection(self, key: str, request_class: str = CONTROL_REQUESTS) -> tuple[BrokerId, Connection]:
        """The coordinator of a key, and a connection to it; one attempt. Raises as `Cluster.broker` does.

        Raises:
            KafkaError: there is none at the moment, or nobody may ask.
        """
        coordinator = self._found.get(key)
        if coordinator is None or coordinator not in self._cluster.metadata.brokers:
            coordinator = self._found[key] = await self._find(key)
        return coordinator, await self._cluster.broker(coordinator, request_class)

    async def answer(
        self, key: str, ask: Callable[[Connection], asyncio.Future[A]], request_class: str = CONTROL_REQUESTS
    ) -> A:
        """Of the coordinator. If it is silent for a while, others are asked whether it still is the one.

        Args:
            ask: sends the request.

        Raises:
            NetworkError: it is not the one any more, or as `connection` does.
        """
        coordinator, connection = await self.connection(key, request_class)
        future = ask(connection)
        patience_ms = PATIENCE_MS_MIN
        try:
            while not (await asyncio.wait({future}, timeout=patience_ms / 1000))[0]:
                if await self._is_replaced(key, coordinator):
                    raise NetworkError(f"broker {coordinator} has not answered, and another coordinates by now")
                patience_ms = min(patience_ms * 2, PATIENCE_MS_MAX)
            return future.result()
        finally:
            future.cancel()

    async def _is_replaced(self, key: str, coordinator: BrokerId) -> bool:
        try:
            async with asyncio.timeout(PATIENCE_MS_MIN / 1000):
                return await self._find(key) != coordinator
        except (TidelogError, TimeoutError):
            return False

    def forget(self, key: str) -> None:
        """Look for the coordinator anew, the next time."""
        self._found.pop(key, None)

    async def _find(self, key: str) -> BrokerId:
        def request(connection: Connection) -> FindCoordinatorRequest:
            if connection.versions.version(ApiKey.FIND_COORDINATOR) >= _FIRST_WITH_SEVERAL_KEYS:
                return FindCoordinatorRequest(coordinator_keys=[key], key_type=self._key_type)
            return FindCoordinatorRequest(key=key, key_type=self._key_type)

        min_version = 0 if self._key_type == KEY_TYPE_GROUP else 1
        connection, response = await self._cluster.first_answer(
            request, FindCoordinatorResponse, min_version=min_version
        )
        row = response.coordinators[0] if response.coordinators else response
        error = refused(row.error_code, f"{self._noun} {key!r}", row.error_message)
        if error is not None:
            self._cluster.on_in_vain(connection)
            raise error
        found = BrokerId(row.node_id)
        if found not in self._cluster.metadata.brokers:
            await self._cluster.fetch_metadata([])
        return found

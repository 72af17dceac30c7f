"""How a client finds the coordinators of groups and of transactional ids, and asks them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

from tidelog.base.errors import TidelogError
from tidelog.base.ids import BrokerId
from tidelog.client.admin.admin_messages import raise_first, refused
from tidelog.client.cluster import Cluster
from tidelog.net.connection import Connection
from tidelog.net.pool import CONTROL_REQUESTS
from tidelog.wire import ApiKey
from tidelog.wire.messages.api_10_find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse

A = TypeVar("A")

_FIRST_WITH_SEVERAL_KEYS = 4


class Coordinators:
    """Asks the coordinators of keys of one kind. Who coordinates a key is kept until that one refuses or is away.

    Args:
        key_type: of FindCoordinator, such as KEY_TYPE_GROUP.
        noun: what a key names, for errors, as in "group".
        request_timeout_ms: of one request; `cluster` knows how long all attempts may take together.
    """

    def __init__(self, cluster: Cluster, key_type: int, *, noun: str, request_timeout_ms: int) -> None:
        self._cluster = cluster
        self._key_type = key_type
        self._noun = noun
        self._request_timeout_ms = request_timeout_ms
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
        if coordinator is None:
            coordinator = self._found[key] = await self._find(key)
        if coordinator not in self._cluster.metadata.brokers:
            await self._cluster.fetch_metadata([])
        return coordinator, await self._cluster.broker(coordinator, request_class)

    def forget(self, key: str) -> None:
        """Look for the coordinator anew, the next time."""
        self._found.pop(key, None)

    async def _find(self, key: str) -> BrokerId:
        connection = await self._cluster.any_broker()
        what = f"{self._noun} {key!r}"
        if connection.versions.version(ApiKey.FIND_COORDINATOR) >= _FIRST_WITH_SEVERAL_KEYS:
            response = await self._ask(
                connection, FindCoordinatorRequest(coordinator_keys=[key], key_type=self._key_type)
            )
            raise_first(refused(row.error_code, what, row.error_message) for row in response.coordinators)
            return BrokerId(response.coordinators[0].node_id)
        response = await self._ask(connection, FindCoordinatorRequest(key=key, key_type=self._key_type))
        raise_first([refused(response.error_code, what, response.error_message)])
        return BrokerId(response.node_id)

    async def _ask(self, connection: Connection, request: FindCoordinatorRequest) -> FindCoordinatorResponse:
        return await connection.request(request, FindCoordinatorResponse, timeout_ms=self._request_timeout_ms)

"""How clients of the simulator ask coordinators: one attempt at a time, after an error whoever coordinates by then."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from tidelog.base.errors import Code, TidelogError, refusal
from tidelog.base.ids import BrokerId
from tidelog.client.cluster import Cluster, World
from tidelog.client.core.values import code_of
from tidelog.client.options import AdminConfig
from tidelog.net.address import parse_bootstrap
from tidelog.net.connection import Connection
from tidelog.wire.messages.api_10_find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse

R = TypeVar("R")

REQUEST_MS = 4_000
"""After that a request has no answer, and its connection is closed."""
NAMES_OF_COORDINATORS = 4


class CoordinatorRequests:
    """See the module.

    Args:
        bootstrap: of each node, HOST:PORT.
        world: of the client.

    Attributes:
        cluster: of the client.
    """

    def __init__(self, bootstrap: Sequence[str], world: World) -> None:
        self.cluster = Cluster(parse_bootstrap(bootstrap), AdminConfig(), world)
        self._found: dict[tuple[str, int], BrokerId] = {}

    async def close(self) -> None:
        """Close all connections."""
        await self.cluster.close()

    def forget(self) -> None:
        """Look for coordinators anew."""
        self._found.clear()

    async def ask(
        self, key: str, key_type: int, request: object, response: type[R], version: int, *, timeout_ms: int = REQUEST_MS
    ) -> tuple[R, BrokerId]:
        """Ask the coordinator of a key. Returns its answer, and which broker it is.

        Raises:
            TidelogError: there is no answer, or no coordinator. The next request looks for it anew.
        """
        try:
            found, connection = await self._coordinator(key, key_type)
            return await connection.request(request, response, timeout_ms=timeout_ms, version=version), found
        except TidelogError:
            self.forget()
            raise

    async def _coordinator(self, key: str, key_type: int) -> tuple[BrokerId, Connection]:
        found = self._found.get((key, key_type))
        if found is None:
            request = FindCoordinatorRequest(coordinator_keys=[key], key_type=key_type)
            connection = await self.cluster.any_broker()
            answer = await connection.request(
                request, FindCoordinatorResponse, timeout_ms=REQUEST_MS, min_version=NAMES_OF_COORDINATORS
            )
            row = answer.coordinators[0]
            check_code(row.error_code, f"FindCoordinator: {row.error_message}")
            found = BrokerId(row.node_id)
        if found not in self.cluster.metadata.brokers:
            await self.cluster.fetch_metadata([])
        connection = await self.cluster.broker(found)
        self._found[key, key_type] = found
        return found, connection


def check_code(number: int, what: str) -> None:
    """Raise the refusal that a number of an answer stands for, if it stands for one."""
    code = code_of(number)
    if code is not Code.NONE:
        raise refusal(code, what)

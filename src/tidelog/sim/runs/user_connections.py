"""Connections of users to brokers: each request goes to the very broker that is meant, with a token (KIP-1243)."""

from __future__ import annotations

import asyncio
from base64 import b64encode
from typing import Any, NamedTuple

from tidelog.base.errors import NetworkError, TidelogError
from tidelog.base.ids import BrokerId, Offset
from tidelog.client.cluster import World
from tidelog.client.consistency import ConsistencyContextStore
from tidelog.net.address import Address
from tidelog.net.connection import Connection, ConnectionSettings, open_connection
from tidelog.net.logins import PlainLogin, ScramLogin
from tidelog.net.security import ConnectionSecurity, SaslLogin
from tidelog.security.scram import ScramSecret
from tidelog.sim.runs.security_plan import SCRAM, password_of
from tidelog.wire import ConsistencyState
from tidelog.wire.api import ApiKey, api
from tidelog.wire.schema import layout_of

REQUEST_MS = 8_000
"""After that a request has no answer, and its connection is closed: longer than brokers wait for metadata."""


class Answered(NamedTuple):
    """What a broker said.

    Attributes:
        token: the metadata offset that it reflects; None where it does not say.
    """

    response: Any
    token: Offset | None


class Peer(NamedTuple):
    """A node that is asked, as a broker or as a controller.

    Attributes:
        asks_who: whether its listener does.
    """

    node_id: BrokerId
    address: Address
    is_controller: bool = False
    asks_who: bool = True

    def __str__(self) -> str:
        return f"{'controller' if self.is_controller else 'broker'} {self.node_id}"


class UserConnections:
    """See the module.

    Args:
        world: of the client.
        store: what the users have seen, all of them together.
    """

    def __init__(self, world: World, store: ConsistencyContextStore) -> None:
        self._world = world
        self._store = store
        self._open: dict[tuple[Peer, str], Connection] = {}
        self._opening: dict[tuple[Peer, str], asyncio.Lock] = {}

    async def ask(self, peer: Peer, user: str, request: object, version: int | None = None) -> Answered:
        """Ask as a user of the files of the nodes, on a connection that stays.

        Raises:
            TidelogError: there is no answer. The connection is closed.
        """
        connection = await self.connect(peer, user)
        response: type[Any] = api(ApiKey(layout_of(type(request)).api_key)).response
        states: list[ConsistencyState | None] = []
        try:
            answer = await connection.send(
                request, response, timeout_ms=REQUEST_MS, version=version, on_state=states.append
            )
        except TidelogError:
            connection.close()
            raise
        state = states[-1] if states else None
        return Answered(answer, None if state is None or state.token is None else Offset(state.token))

    async def log_in(self, peer: Peer, user: str, password: str, *, by_token: bool = False) -> None:
        """Log in by SCRAM, and hang up.

        Raises:
            SaslAuthenticationError: the broker knows of no such user, or of another password.
            NetworkError: it says nothing.
        """
        secret = ScramSecret(SCRAM, user, password, by_token=by_token)
        (await self._connect(peer, ScramLogin(secret, self._world.rng))).close()

    async def connect(self, peer: Peer, user: str) -> Connection:
        """The connection of a user, which is logged in by now. Raises as `open_connection`."""
        async with self._opening.setdefault((peer, user), asyncio.Lock()):
            found = self._open.get((peer, user))
            if found is None or found.closed is not None:
                login = PlainLogin(user, password_of(user)) if peer.asks_who else None
                found = self._open[peer, user] = await self._connect(peer, login)
            return found

    async def _connect(self, peer: Peer, login: SaslLogin | None) -> Connection:
        security = None if login is None else ConnectionSecurity(None, login, self._world.rng)
        settings = ConnectionSettings(
            "security", connect_timeout_ms=REQUEST_MS, consistency=self._store, security=security
        )
        return await open_connection(self._world.network, peer.address, settings)

    def close(self) -> None:
        """All of them."""
        for connection in self._open.values():
            connection.close(NetworkError("the client is closed"))
        self._open.clear()


def token_password(hmac: bytes) -> str:
    """By which a delegation token logs in (KIP-48)."""
    return b64encode(hmac).decode()

"""Who logs in with a user and a password: clients, and nodes to each other."""

from __future__ import annotations

from tidelog.base.ports import Rng
from tidelog.security.sasl import PlainExchange, SaslExchange
from tidelog.security.scram import ScramExchange, ScramSecret


class PlainLogin:
    """A user with a password that is sent as it is."""

    mechanism = "PLAIN"

    def __init__(self, username: str, password: str) -> None:
        self._username = username
        self._password = password

    async def start(self) -> SaslExchange:
        return PlainExchange(self._username, self._password)


class ScramLogin:
    """A user with a password that is not sent."""

    def __init__(self, secret: ScramSecret, rng: Rng) -> None:
        self.mechanism = secret.mechanism
        self._secret = secret
        self._rng = rng

    async def start(self) -> SaslExchange:
        return ScramExchange(self._secret, self._rng.uuid().hex + self._rng.uuid().hex)

"""How the listeners of a node with SASL find out who connects: by what is set now, and what the metadata says of users.

Kafka: `SaslChannelBuilder`, `CredentialProvider`.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable, Mapping
from typing import Protocol

from tidelog.base.errors import ConfigError
from tidelog.base.ports import Clock, Rng
from tidelog.metadata.configs.sasl import CONNECTION_FAILED_AUTHENTICATION_DELAY_MS, PLAIN, SCRAM
from tidelog.security.sasl_listener import SaslListener, sasl_listener
from tidelog.security.sasl_server import PlainServerExchange, ServerExchange
from tidelog.security.scram_server import ScramCredential, ScramServerExchange
from tidelog.server.settings.in_force import SettingsInForce
from tidelog.server.transport.sasl_gate import SaslGate
from tidelog.server.transport.server_connection import OnFrame

logger = logging.getLogger("tidelog.server.authentication")


class KeptCredential(Protocol):
    """What the metadata keeps of a user's password."""

    @property
    def salt(self) -> bytes: ...

    @property
    def stored_key(self) -> bytes: ...

    @property
    def server_key(self) -> bytes: ...

    @property
    def iterations(self) -> int: ...


Credentials = Callable[[str, str], KeptCredential | None]
"""What is kept of a user's password, by mechanism and name; None for an unknown one."""


def no_users(mechanism: str, user: str) -> KeptCredential | None:
    """The `Credentials` of a node whose metadata keeps none: `SERVED_MECHANISMS` are those that need none."""
    return None


class Authentication:
    """Of one node.

    Args:
        static: its file, by Kafka's keys.
        credentials: of the users of SCRAM.
        cluster_id: of the cluster, once it is known: unknown users are asked alike by all of its brokers.
    """

    def __init__(
        self,
        static: Mapping[str, str],
        credentials: Credentials,
        cluster_id: Callable[[], str],
        *,
        clock: Clock,
        rng: Rng,
    ) -> None:
        self.texts = static
        self.credentials = credentials
        self.clock = clock
        self.rng = rng
        self._cluster_id = cluster_id
        self._listeners: dict[str, AuthenticatingListener] = {}

    def listener(self, name: str, *, of_controllers: bool) -> AuthenticatingListener:
        """What authenticates who connects to a listener. Raises ConfigError: its settings cannot be used."""
        listener = self._listeners[name] = AuthenticatingListener(self, name, of_controllers=of_controllers)
        return listener

    def on_settings(self, old: SettingsInForce | None, new: SettingsInForce) -> None:
        """A setting may say something else: who is connected stays."""
        texts = {**new.broker.static, **new.broker.dynamic_default, **new.broker.dynamic}
        if texts != self.texts:
            self.texts = texts
            for listener in self._listeners.values():
                listener.read_settings()

    def unknown_key(self) -> bytes:
        """See `unknown_credential`."""
        return hashlib.sha256(f"users that are not known in {self._cluster_id()}".encode()).digest()


class AuthenticatingListener:
    """One listener with SASL."""

    def __init__(self, node: Authentication, name: str, *, of_controllers: bool) -> None:
        self._node = node
        self._name = name
        self._of_controllers = of_controllers
        self._settings = self._read()

    def settings(self) -> SaslListener:
        return self._settings

    def failure_delay_seconds(self) -> float:
        key = CONNECTION_FAILED_AUTHENTICATION_DELAY_MS
        text = self._node.texts.get(key.name)
        return (key.fallback if text is None else key.parse(text)) / 1000

    def start_exchange(self, mechanism: str) -> ServerExchange | None:
        if mechanism not in self._settings.mechanisms:
            return None
        if mechanism == PLAIN:
            return PlainServerExchange(self._settings.passwords)
        if mechanism in SCRAM:
            node = self._node

            def find(user: str, by_token: bool) -> ScramCredential | None:
                kept = None if by_token else node.credentials(mechanism, user)
                if kept is None:
                    return None
                return ScramCredential(kept.salt, kept.stored_key, kept.server_key, kept.iterations)

            nonce = node.rng.uuid().hex + node.rng.uuid().hex
            return ScramServerExchange(mechanism, find, nonce, node.unknown_key())
        return None

    def new_gate(self, on_frame: OnFrame, frame_size_bytes_max: int) -> SaslGate:
        """For one connection."""
        return SaslGate(self, on_frame, frame_size_bytes_max, self._node.clock)

    def read_settings(self) -> None:
        """They may have changed. What cannot be used is told of in the log, and changes nothing."""
        try:
            self._settings = self._read()
        except ConfigError as error:
            logger.error("listener %s: %s; who may log in stays as it was", self._name, error)

    def _read(self) -> SaslListener:
        return sasl_listener(self._node.texts, self._name, of_controllers=self._of_controllers)

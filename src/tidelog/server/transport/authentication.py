"""How the listeners of a node with SASL find out who connects: by what is set now, and what the metadata says of users.

Kafka: `SaslChannelBuilder`, `CredentialProvider`.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Mapping
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Protocol

from tidelog.base.errors import ConfigError, SaslAuthenticationError
from tidelog.base.ids import ClusterId
from tidelog.base.ports import Clock, Rng
from tidelog.metadata import MetadataImage
from tidelog.metadata.configs.delegation_tokens import TOKEN_SECRET_KEY
from tidelog.metadata.configs.sasl import CONNECTION_FAILED_AUTHENTICATION_DELAY_MS, OAUTHBEARER, PLAIN, SCRAM
from tidelog.metadata.scram_credentials import ScramCredential
from tidelog.security.delegation_tokens import token_credentials, token_identity
from tidelog.security.sasl_listener import SaslListener, sasl_listener
from tidelog.security.sasl_server import Identity, OAuthBearerServerExchange, PlainServerExchange, ServerExchange
from tidelog.security.scram_server import ScramServerExchange
from tidelog.security.scram_stand_ins import ScramStandIns
from tidelog.server.quotas.failed_logins import FailedLogins
from tidelog.server.quotas.peer_limits import PeerLimits
from tidelog.server.settings.in_force import SettingsInForce
from tidelog.server.transport.sasl_gate import SaslGate
from tidelog.server.transport.server_connection import OnFrame

if TYPE_CHECKING:
    from tidelog.server.transport.oauth_keys import OAuthKeys

logger = logging.getLogger("tidelog.server.authentication")


INT32_MAX = 0x7FFF_FFFF
LOOKED_AT_MAX = 10_000
"""Credentials, for what stands in for an unknown user: some hundreds of microseconds."""


class KnowsUsers(Protocol):
    """What a node knows of its cluster."""

    @property
    def image(self) -> MetadataImage: ...

    @property
    def cluster_id(self) -> ClusterId: ...


class Authentication:
    """Of one node.

    Args:
        static: its file, by Kafka's keys.
        node: the metadata, with users of SCRAM and delegation tokens. By the id of the cluster unknown users are
            asked alike by all of its brokers.
        peers: what they may do.
    """

    def __init__(
        self,
        static: Mapping[str, str],
        node: KnowsUsers,
        peers: PeerLimits,
        *,
        clock: Clock,
        rng: Rng,
    ) -> None:
        self.texts = static
        self._node = node
        self.failed_logins = peers.failed_logins
        self.clock = clock
        self.rng = rng
        self._listeners: dict[str, AuthenticatingListener] = {}
        self._stand_ins: dict[str, tuple[object, str | None, ScramStandIns]] = {}

    def listener(self, name: str, *, of_controllers: bool, of_nodes: bool = False) -> AuthenticatingListener:
        """What authenticates who connects to a listener.

        Args:
            of_nodes: whether clients are not to connect there. Nodes may share an address with others, whose guesses
                must not keep them out: there guesses are slowed, and not counted.

        Raises:
            ConfigError: its settings cannot be used.
        """
        failed = FailedLogins(INT32_MAX, self.clock.now_ms) if of_nodes or of_controllers else self.failed_logins
        listener = AuthenticatingListener(self, name, failed, of_controllers=of_controllers)
        self._listeners[name] = listener
        return listener

    def on_settings(self, old: SettingsInForce | None, new: SettingsInForce) -> None:
        """A setting may say something else: who is connected stays."""
        texts = {**new.broker.static, **new.broker.dynamic_default, **new.broker.dynamic}
        if texts != self.texts:
            self.texts = texts
            for listener in self._listeners.values():
                listener.read_settings()

    def credential(self, mechanism: str, name: str, by_token: bool) -> ScramCredential | None:
        """What is kept of a user's password, or derived of a delegation token."""
        image = self._node.image
        if by_token:
            secret_key = self.texts.get(TOKEN_SECRET_KEY.name)
            return token_credentials(image, secret_key, mechanism, name, self.clock.wall_ms())
        return image.scram_credentials.get((mechanism, name))

    def identity(self, name: str, by_token: bool) -> Identity | None:
        """Who has shown the proof of that name: a delegation token is its owner."""
        return token_identity(self._node.image, name, self.clock.wall_ms()) if by_token else Identity(name)

    def stand_ins(self, mechanism: str) -> ScramStandIns:
        """What users are asked with that are not known. Brokers that share no secret go by what nodes alone know least
        badly: the id of the cluster."""
        secret_key, users = self.texts.get(TOKEN_SECRET_KEY.name), self._node.image.scram_credentials
        made = self._stand_ins.get(mechanism)
        if made is None or made[0] is not users or made[1] != secret_key:
            shared = self._node.cluster_id if secret_key is None else secret_key
            key = hashlib.sha256(f"users that are not known: {shared}".encode()).digest()
            known = (users[user] for user in islice(users, LOOKED_AT_MAX) if user[0] == mechanism)
            made = self._stand_ins[mechanism] = (users, secret_key, ScramStandIns(mechanism, known, key))
        return made[2]


class AuthenticatingListener:
    """One listener with SASL."""

    def __init__(self, node: Authentication, name: str, failed: FailedLogins, *, of_controllers: bool) -> None:
        self._node = node
        self._failed = failed
        self._name = name
        self._of_controllers = of_controllers
        self._oauth: OAuthKeys | None = None
        self._settings = self._read()
        if self._settings.oauth is not None:
            from tidelog.server.transport.oauth_keys import check_keys

            check_keys(self._settings.oauth.url, name)

    def settings(self) -> SaslListener:
        return self._settings

    def failure_delay_seconds(self) -> float:
        key = CONNECTION_FAILED_AUTHENTICATION_DELAY_MS
        text = self._node.texts.get(key.name)
        return (key.fallback if text is None else key.parse(text)) / 1000

    async def whose_token(self, token: str) -> Identity:
        """Whose a token of OAUTHBEARER is. Raises SaslAuthenticationError: it is not good; says why."""
        if self._oauth is None:
            raise SaslAuthenticationError("OAUTHBEARER is no longer offered")
        return await self._oauth.identity(token)

    def start_exchange(self, mechanism: str) -> ServerExchange | None:
        if mechanism not in self._settings.mechanisms:
            return None
        if mechanism == PLAIN:
            return PlainServerExchange(self._settings.passwords)
        if mechanism == OAUTHBEARER:
            return OAuthBearerServerExchange()
        if mechanism in SCRAM:
            nonce = self._node.rng.uuid().hex + self._node.rng.uuid().hex
            find, stand_in = partial(self._node.credential, mechanism), self._node.stand_ins(mechanism).of
            return ScramServerExchange(mechanism, find, nonce, stand_in, identify=self._node.identity)
        return None

    def new_gate(self, on_frame: OnFrame, frame_size_bytes_max: int) -> SaslGate:
        """For one connection."""
        return SaslGate(self, on_frame, frame_size_bytes_max, self._node.clock, self._failed)

    def read_settings(self) -> None:
        """They may have changed. What cannot be used is told of in the log, and changes nothing."""
        try:
            self._settings = self._read()
        except ConfigError as error:
            logger.error("listener %s: %s; who may log in stays as it was", self._name, error)

    def _read(self) -> SaslListener:
        listener = sasl_listener(self._node.texts, self._name, of_controllers=self._of_controllers)
        if listener.oauth is None:
            self._oauth = None
        elif self._oauth is None or self._oauth.settings != listener.oauth:
            from tidelog.io.json_web_keys import fetch_keys  # a client of HTTP, for few listeners
            from tidelog.server.transport.oauth_keys import OAuthKeys

            self._oauth = OAuthKeys(listener.oauth, fetch_keys, self._node.clock)
        return listener

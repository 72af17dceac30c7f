"""Who this node is to the nodes that it asks on listeners with SASL: what is set for those listeners here.

Kafka: `ChannelBuilders.clientChannelBuilder`, `JaasContext`.
"""

from __future__ import annotations

from collections.abc import Mapping

from tidelog.base.errors import ConfigError, SaslAuthenticationError
from tidelog.base.ports import Rng
from tidelog.metadata.configs.key import ConfigKey
from tidelog.metadata.configs.sasl import (
    PLAIN,
    SASL_MECHANISM_CONTROLLER_PROTOCOL,
    SASL_MECHANISM_INTER_BROKER_PROTOCOL,
)
from tidelog.metadata.listeners import has_sasl
from tidelog.net.logins import PlainLogin, ScramLogin
from tidelog.net.security import ConnectionSecurity, SaslLogin
from tidelog.security.sasl import SaslExchange
from tidelog.security.sasl_listener import NodeCredentials, node_credentials
from tidelog.security.scram import ScramSecret
from tidelog.server.settings.config import NodeConfig
from tidelog.server.settings.in_force import SettingsInForce


class NodeLogins:
    """See the module.

    Attributes:
        to_brokers: for what nodes ask brokers; None where their listener has no SASL.
        to_controllers: for what nodes ask controllers; likewise.
    """

    def __init__(self, config: NodeConfig, rng: Rng) -> None:
        self.texts: Mapping[str, str] = config.static
        self.rng = rng

        def security(listener_name: str, mechanism: ConfigKey[str]) -> ConnectionSecurity | None:
            if not has_sasl(config.protocols.get(listener_name, listener_name)):
                return None
            return ConnectionSecurity(None, NodeLogin(self, listener_name, mechanism), rng)

        self.to_brokers = security(config.inter_broker_listener_name, SASL_MECHANISM_INTER_BROKER_PROTOCOL)
        self.to_controllers = security(config.controller_listener_name, SASL_MECHANISM_CONTROLLER_PROTOCOL)

    def on_settings(self, old: SettingsInForce | None, new: SettingsInForce) -> None:
        """A setting may say something else, for connections from now on."""
        self.texts = {**new.broker.static, **new.broker.dynamic_default, **new.broker.dynamic}


class NodeLogin:
    """On the listeners of one name."""

    def __init__(self, node: NodeLogins, listener_name: str, mechanism: ConfigKey[str]) -> None:
        self._node = node
        self._listener_name = listener_name
        self._mechanism = mechanism
        self._login: tuple[str, NodeCredentials, SaslLogin] | None = None

    @property
    def mechanism(self) -> str:
        text = self._node.texts.get(self._mechanism.name)
        return self._mechanism.fallback if text is None else self._mechanism.parse(text)

    async def start(self) -> SaslExchange:
        """See `SaslLogin.start`."""
        mechanism = self.mechanism
        try:
            credentials = node_credentials(self._node.texts, self._listener_name, mechanism)
        except ConfigError as error:
            raise SaslAuthenticationError(str(error)) from None
        if self._login is None or self._login[:2] != (mechanism, credentials):
            self._login = mechanism, credentials, self._made(mechanism, credentials)
        return await self._login[2].start()

    def _made(self, mechanism: str, credentials: NodeCredentials) -> SaslLogin:
        if mechanism == PLAIN:
            return PlainLogin(credentials.username, credentials.password)
        return ScramLogin(ScramSecret(mechanism, credentials.username, credentials.password), self._node.rng)

"""What the listeners of a node with SASL need, what it logs in to other nodes with, and who it is there: checked before
it starts.

Kafka: `KafkaConfig`, `JaasContext`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from tidelog.base.errors import ConfigError
from tidelog.base.principals import ANONYMOUS, USER, Principal
from tidelog.metadata.configs.authorization import SUPER_USERS
from tidelog.metadata.configs.sasl import (
    GSSAPI,
    SASL_MECHANISM_CONTROLLER_PROTOCOL,
    SASL_MECHANISM_INTER_BROKER_PROTOCOL,
)
from tidelog.metadata.configs.tls import SSL_CLIENT_AUTH
from tidelog.metadata.listeners import SSL, has_sasl
from tidelog.security.acl_authorizer import AuthorizerSettings
from tidelog.security.sasl_listener import node_credentials, sasl_listener


def check_sasl(
    texts: Mapping[str, str],
    protocols: Mapping[str, str],
    *,
    of_brokers: Iterable[str],
    of_controllers: Iterable[str],
    broker_listener: str,
    controller_listener: str,
) -> None:
    """Check what is set for SASL.

    Args:
        texts: the node's file, by Kafka's keys.
        protocols: of listeners, by their names.
        of_brokers: the names of its listeners; `of_controllers` likewise.
        broker_listener: on which it asks brokers. A controller does so too: it tells them what to stop.
        controller_listener: on which it asks controllers.

    Raises:
        ConfigError: something is missing, or not served. Names the setting.
    """

    def asks_who(name: str) -> bool:
        return has_sasl(protocols.get(name, name))

    for name in filter(asks_who, of_brokers):
        sasl_listener(texts, name)
    for name in filter(asks_who, of_controllers):
        sasl_listener(texts, name, of_controllers=True)
    if asks_who(broker_listener):
        mechanism = SASL_MECHANISM_INTER_BROKER_PROTOCOL
        _check_login(texts, mechanism.name, texts.get(mechanism.name, GSSAPI), broker_listener)
        if broker_listener in of_brokers:
            _check_offered(texts, mechanism.name, texts[mechanism.name], broker_listener)
    if asks_who(controller_listener):
        of_controllers_too = SASL_MECHANISM_CONTROLLER_PROTOCOL
        _check_login(texts, of_controllers_too.name, texts.get(of_controllers_too.name, GSSAPI), controller_listener)


def check_super_users(
    texts: Mapping[str, str], protocols: Mapping[str, str], *, broker_listener: str, controller_listener: str
) -> None:
    """Check that nodes may ask each other what only nodes ask: before the access rules are known, no rule allows it.

    Args:
        texts, protocols, broker_listener, controller_listener: as in `check_sasl`, which was content.

    Raises:
        ConfigError: the principal of nodes is not among `super.users`.
    """
    settings = AuthorizerSettings.of(texts)
    if settings is None:
        return
    mechanisms = {
        controller_listener: SASL_MECHANISM_CONTROLLER_PROTOCOL,
        broker_listener: SASL_MECHANISM_INTER_BROKER_PROTOCOL,
    }
    for name, mechanism in mechanisms.items():
        who, protocol = ANONYMOUS, protocols.get(name, name)
        if protocol == SSL and _asks_for_certificates(texts, name):
            continue  # who a node is there, its certificate says
        if has_sasl(protocol):
            who = Principal(USER, node_credentials(texts, name, texts[mechanism.name]).username)
        if who not in settings.super_users:
            remedy = "on all nodes"
            if who == ANONYMOUS:
                remedy = (
                    "if nobody else reaches that listener, give it SASL, or name the listener on which brokers are "
                    "asked, on controllers too (inter.broker.listener.name)"
                )
            raise ConfigError(
                f"{SUPER_USERS.name}: nodes ask each other on listener {name} as {who}, who is not among them, so that "
                f"they would refuse each other: add {who} {remedy}"
            )


def _asks_for_certificates(texts: Mapping[str, str], name: str) -> bool:
    key = SSL_CLIENT_AUTH.name
    return texts.get(f"listener.name.{name.lower()}.{key}", texts.get(key, SSL_CLIENT_AUTH.default)) != "none"


def _check_login(texts: Mapping[str, str], key: str, mechanism: str, listener_name: str) -> None:
    if mechanism == GSSAPI:
        raise ConfigError(
            f"{key}: GSSAPI (Kerberos), which is Kafka's default, is not served, and this node asks others on listener "
            f"{listener_name}, which has SASL: set it to PLAIN"
        )
    node_credentials(texts, listener_name, mechanism)


def _check_offered(texts: Mapping[str, str], key: str, mechanism: str, listener_name: str) -> None:
    """Brokers ask each other on it."""
    offered = sasl_listener(texts, listener_name).mechanisms
    if mechanism not in offered:
        raise ConfigError(
            f"{key}: {mechanism} is not offered on listener {listener_name}, which is {', '.join(offered)}"
        )

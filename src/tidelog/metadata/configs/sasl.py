"""The settings of listeners with SASL. Some may be set for one listener, as `listener.name.NAME.sasl.…`, and some for
one mechanism of a listener too, as `listener.name.NAME.plain.sasl.…`: the strongest place is the most special one.

A node logs in to other nodes by the settings of the listener that it asks them on.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, TypeVar

from tidelog.metadata.configs import oauth
from tidelog.metadata.configs.key import INT, LIST, LONG, PASSWORD, STRING, ConfigKey, Support

T = TypeVar("T")

PLAIN, OAUTHBEARER, GSSAPI = "PLAIN", "OAUTHBEARER", "GSSAPI"
SCRAM = ("SCRAM-SHA-256", "SCRAM-SHA-512")
MECHANISMS = (PLAIN, *SCRAM, OAUTHBEARER)
"""What listeners may offer."""

SASL_ENABLED_MECHANISMS = ConfigKey(
    "sasl.enabled.mechanisms",
    LIST,
    GSSAPI,
    "The mechanisms that a listener with SASL offers. GSSAPI is Kafka's default, and is not served: a listener with "
    "SASL needs another value.",
    choices=(*MECHANISMS, GSSAPI),
    is_dynamic=True,
)
SASL_MECHANISM_INTER_BROKER_PROTOCOL = ConfigKey(
    "sasl.mechanism.inter.broker.protocol",
    STRING,
    GSSAPI,
    "How a node says to brokers who it is, where they are asked on a listener with SASL.",
    choices=(PLAIN, *SCRAM, GSSAPI),
    is_dynamic=True,
)
SASL_MECHANISM_CONTROLLER_PROTOCOL = ConfigKey(
    "sasl.mechanism.controller.protocol",
    STRING,
    GSSAPI,
    "How a node says to controllers who it is, where their listener has SASL.",
    choices=(PLAIN, GSSAPI),
)
SASL_SERVER_MAX_RECEIVE_SIZE = ConfigKey(
    "sasl.server.max.receive.size",
    INT,
    "524288",
    "The largest request, in bytes, of who has not said yet who they are.",
    minimum=1_024,
)
CONNECTIONS_MAX_REAUTH_MS = ConfigKey(
    "connections.max.reauth.ms",
    LONG,
    "0",
    "After so long a client has to authenticate again on its connection, or is hung up on (KIP-368); 0 for never.",
    minimum=0,
)
CONNECTION_FAILED_AUTHENTICATION_DELAY_MS = ConfigKey(
    "connection.failed.authentication.delay.ms",
    INT,
    "100",
    "How long whoever is refused waits for the answer, and for the end of the connection.",
    minimum=0,
)
_WHOSE = (
    "what it says is for one mechanism of one listener: set listener.name.NAME.MECHANISM.sasl.jaas.config, with both "
    "in small letters"
)
SASL_JAAS_CONFIG = ConfigKey(
    "sasl.jaas.config",
    PASSWORD.or_none,
    None,
    f"Refused but for its default: {_WHOSE}.",
    why=_WHOSE,
    is_dynamic=True,
    support=Support.REFUSED,
)

_JAAS_OF_MECHANISM = replace(
    SASL_JAAS_CONFIG,
    doc="A login module as Kafka spells it: username and password are what the node logs in with, user_NAME of PLAIN "
    "is the password of a client.",
    why="",
    support=Support.SERVED,
)
OF_LISTENER = frozenset(
    key.name
    for key in (
        SASL_ENABLED_MECHANISMS,
        SASL_SERVER_MAX_RECEIVE_SIZE,
        CONNECTIONS_MAX_REAUTH_MS,
        *oauth.OAUTH_CONFIGS,
    )
)
"""Those that a listener may have of its own."""
OF_MECHANISM: Mapping[str, ConfigKey[Any]] = {
    key.name: key
    for key in (
        _JAAS_OF_MECHANISM,
        CONNECTIONS_MAX_REAUTH_MS,
        oauth.SERVER_CALLBACK_HANDLER,
        *oauth.OAUTH_CONFIGS,
    )
}
"""Those that a mechanism of a listener may have of its own."""

SASL_CONFIGS: tuple[ConfigKey[Any], ...] = (
    SASL_ENABLED_MECHANISMS,
    SASL_MECHANISM_INTER_BROKER_PROTOCOL,
    SASL_MECHANISM_CONTROLLER_PROTOCOL,
    SASL_SERVER_MAX_RECEIVE_SIZE,
    CONNECTIONS_MAX_REAUTH_MS,
    CONNECTION_FAILED_AUTHENTICATION_DELAY_MS,
    SASL_JAAS_CONFIG,
    *oauth.OAUTH_CONFIGS,
)


def is_mechanism(name: str) -> bool:
    """Whether it is one that settings may be for, in whatever letters."""
    return name.upper() in MECHANISMS


def jaas_name(listener_name: str, mechanism: str) -> str:
    """The name of the setting with the login module of a mechanism."""
    return f"listener.name.{listener_name.lower()}.{mechanism.lower()}.{SASL_JAAS_CONFIG.name}"


def sasl_value(texts: Mapping[str, str], key: ConfigKey[T], listener_name: str, mechanism: str | None = None) -> T:
    """What is set for a listener, or for one of its mechanisms.

    Args:
        texts: what is in force at a node, by Kafka's keys.

    Raises:
        ConfigError: it cannot be read.
    """
    of_listener = f"listener.name.{listener_name.lower()}."
    names = [f"{of_listener}{key.name}", key.name]
    if mechanism is not None:
        names.insert(0, f"{of_listener}{mechanism.lower()}.{key.name}")
    text = next((texts[name] for name in names if name in texts), None)
    return key.fallback if text is None else key.parse(text)

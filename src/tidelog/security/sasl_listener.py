"""What the settings say of a listener with SASL: which mechanisms it offers, whom it knows, who this node is there.

Pure. Kafka: `JaasContext`, `SaslChannelBuilder`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from tidelog.base.errors import ConfigError
from tidelog.metadata.configs.sasl import (
    CONNECTIONS_MAX_REAUTH_MS,
    GSSAPI,
    MECHANISMS,
    OAUTHBEARER,
    PLAIN,
    SASL_ENABLED_MECHANISMS,
    SASL_JAAS_CONFIG,
    SASL_SERVER_MAX_RECEIVE_SIZE,
    SCRAM,
    jaas_name,
    sasl_value,
)
from tidelog.security.jaas import LoginModule, parse_jaas
from tidelog.security.oauth_listener import OAuthListener, oauth_listener

_MODULES = {
    PLAIN: "PlainLoginModule",
    **dict.fromkeys(SCRAM, "ScramLoginModule"),
    OAUTHBEARER: "OAuthBearerLoginModule",
}
_WHY_NOT = {
    **dict.fromkeys(
        SCRAM,
        "what it would be checked against lies in the metadata log, which they need each other's votes to read",
    ),
    OAUTHBEARER: "nodes log in to each other with a user and a password, and fetch no token",
}
"""Why controllers do not offer a mechanism."""
_OF_LISTENERS = "listener.name."
_USER = "user_"
"""How the options of PLAIN's module begin that are passwords of users."""


@dataclass(frozen=True, slots=True)
class SaslListener:
    """How a listener finds out who connects.

    Attributes:
        mechanisms: that it offers.
        passwords: of the users of PLAIN, by their names.
        session_ms_max: by mechanism, how long whoever authenticated by it may send requests; None for no end.
        request_size_bytes_max: of a request that comes before.
        oauth: how tokens of OAUTHBEARER are checked; None where that is not offered.
    """

    mechanisms: tuple[str, ...]
    passwords: Mapping[str, str] = field(repr=False)
    session_ms_max: Mapping[str, int | None]
    request_size_bytes_max: int
    oauth: OAuthListener | None = None


class NodeCredentials(NamedTuple):
    """What a node logs in to another one with."""

    username: str
    password: str

    def __repr__(self) -> str:
        return f"NodeCredentials({self.username!r})"


def sasl_listener(texts: Mapping[str, str], name: str, *, of_controllers: bool = False) -> SaslListener:
    """What is set for a listener.

    Args:
        texts: what is in force at a node, by Kafka's keys.
        of_controllers: whether controllers listen there.

    Raises:
        ConfigError: a mechanism is not served there, or nobody could log in by it; says what to set.
    """
    mechanisms = tuple(dict.fromkeys(sasl_value(texts, SASL_ENABLED_MECHANISMS, name)))
    key = f"listener.name.{name.lower()}.{SASL_ENABLED_MECHANISMS.name}"
    for mechanism in mechanisms:
        if mechanism == GSSAPI:
            raise ConfigError(
                f"{key}: GSSAPI (Kerberos), which is Kafka's default, is not served: listener {name} has SASL, so name "
                f"the mechanisms that it offers, of {', '.join(MECHANISMS)}"
            )
        if of_controllers and mechanism != PLAIN:
            raise ConfigError(
                f"{key}: controllers cannot offer {mechanism} on listener {name}: {_WHY_NOT[mechanism]}. Set it to "
                "PLAIN, or have the listener speak SSL with ssl.client.auth=required"
            )
        module_of(texts, name, mechanism)
    return SaslListener(
        mechanisms,
        _passwords(texts, name) if PLAIN in mechanisms else {},
        {one: sasl_value(texts, CONNECTIONS_MAX_REAUTH_MS, name, one) or None for one in mechanisms},
        sasl_value(texts, SASL_SERVER_MAX_RECEIVE_SIZE, name),
        oauth_listener(texts, name) if OAUTHBEARER in mechanisms else None,
    )


def node_credentials(texts: Mapping[str, str], name: str, mechanism: str) -> NodeCredentials:
    """What this node logs in with on a listener of other nodes.

    Raises:
        ConfigError: it is not set; says what to set.
    """
    module = module_of(texts, name, mechanism)
    options = {} if module is None else module.options
    username, password = options.get("username"), options.get("password")
    if not username or not password:
        raise ConfigError(
            f"{jaas_name(name, mechanism)}: it says no username and password for this node, which asks other nodes on "
            f'listener {name}: org.apache.kafka.common.security.….{_MODULES[mechanism]} required username="…" '
            'password="…";'
        )
    return NodeCredentials(username, password)


def check_login_modules(texts: Mapping[str, str]) -> None:
    """Raises ConfigError: the login module of a listener's mechanism cannot be read."""
    for key in texts:
        listener_name, _, rest = key.removeprefix(_OF_LISTENERS).partition(".")
        mechanism = rest.removesuffix(f".{SASL_JAAS_CONFIG.name}").upper()
        if key.startswith(_OF_LISTENERS) and rest.endswith(f".{SASL_JAAS_CONFIG.name}") and mechanism in _MODULES:
            module_of(texts, listener_name, mechanism)


def module_of(texts: Mapping[str, str], name: str, mechanism: str) -> LoginModule | None:
    """The login module that is set for a mechanism of a listener; None if there is none.

    Raises:
        ConfigError: it cannot be read, or is of another mechanism. No value is shown.
    """
    key = jaas_name(name, mechanism)
    text = texts.get(key)
    if text is None:
        return None
    try:
        module = parse_jaas(text)
    except ValueError as error:
        raise ConfigError(f"{key}: {error}") from None
    if module.name != _MODULES[mechanism]:
        raise ConfigError(
            f"{key}: {module.name} is not the login module of {mechanism}, which is {_MODULES[mechanism]}"
        )
    return module


def _passwords(texts: Mapping[str, str], name: str) -> dict[str, str]:
    module = module_of(texts, name, PLAIN)
    options = {} if module is None else module.options
    passwords = {option.removeprefix(_USER): text for option, text in options.items() if option.startswith(_USER)}
    key = jaas_name(name, PLAIN)
    if not passwords:
        raise ConfigError(
            f"{key}: listener {name} offers PLAIN, and knows no user: "
            f'org.apache.kafka.common.security.plain.{_MODULES[PLAIN]} required user_alice="…";'
        )
    for user, password in passwords.items():
        if not user or not password:
            raise ConfigError(f"{key}: user {user!r} has no name or no password, so nobody could log in")
    return passwords

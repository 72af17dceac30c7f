"""What `listeners` and `listener.security.protocol.map` spell: where a node listens, under which names."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from tidelog.base.errors import ConfigError

LISTENERS = "listeners"
PROTOCOL_MAP = "listener.security.protocol.map"
PLAINTEXT, SSL, SASL_PLAINTEXT, SASL_SSL = "PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"
PROTOCOLS = (PLAINTEXT, SSL, SASL_PLAINTEXT, SASL_SSL)
"""In the order of the numbers that registrations give them."""


@dataclass(frozen=True, slots=True)
class Listener:
    """Where to listen under one name. Port 0 takes a free one; an empty host is every interface."""

    name: str
    host: str
    port: int

    @property
    def is_local(self) -> bool:
        """Whether nobody reaches it from other machines."""
        return self.host in {"localhost", "::1"} or self.host.startswith("127.")


def parse_listeners(key: str, texts: Sequence[str]) -> tuple[Listener, ...]:
    """Each listener that a setting names.

    Raises:
        ConfigError: one is not spelled as it has to be, or a name is there twice.
    """
    listeners: dict[str, Listener] = {}
    for text in texts:
        name, separator, address = text.partition("://")
        host, colon, port = address.rpartition(":")
        if not separator or not name or not colon or not port.isdecimal() or int(port) > 65_535:
            raise ConfigError(f"{key}: {text!r} is not of the form NAME://HOST:PORT")
        if name in listeners:
            raise ConfigError(f"{key}: the name {name} stands there twice; every listener needs its own")
        listeners[name] = Listener(name, host.strip("[]"), int(port))
    return tuple(listeners.values())


def parse_protocols(text: str) -> dict[str, str]:
    """The protocol of each name in `listener.security.protocol.map`.

    Raises:
        ConfigError: an entry is none.
    """
    protocols: dict[str, str] = {}
    for entry in text.split(",") if text.strip() else ():
        name, colon, protocol = entry.strip().partition(":")
        if not name or not colon or protocol not in PROTOCOLS:
            raise ConfigError(
                f"{PROTOCOL_MAP}: {entry.strip()!r} is not of the form NAME:PROTOCOL, with a protocol of "
                f"{', '.join(PROTOCOLS)}"
            )
        protocols[name] = protocol
    return protocols


def has_tls(protocol: str) -> bool:
    """Whether a listener of this protocol encrypts what passes over it."""
    return protocol in (SSL, SASL_SSL)


def has_sasl(protocol: str) -> bool:
    """Whether a listener of this protocol asks who connects by SASL."""
    return protocol in (SASL_PLAINTEXT, SASL_SSL)


def check_protocols(protocols: Mapping[str, str], in_use: Iterable[str]) -> None:
    """Kafka's stock file maps names that no listener has; those are nobody's business.

    A name that is not in the map is that of a protocol: whoever calls a listener SSL must not be served without it.

    Raises:
        ConfigError: nobody knows what a listener is to speak.
    """
    for name in sorted(in_use):
        if protocols.get(name, name) not in PROTOCOLS:
            raise ConfigError(
                f"{PROTOCOL_MAP}: it does not say what listener {name} speaks: add {name}:PROTOCOL to it, with a "
                f"protocol of {', '.join(PROTOCOLS)}"
            )

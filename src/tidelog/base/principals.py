"""Who sends requests: a principal, as authentication found it, and the address that it connects from.

Kafka: `KafkaPrincipal`, `AuthorizableRequestContext`.
"""

from __future__ import annotations

from typing import NamedTuple

from tidelog.base.errors import ConfigError

USER = "User"
"""The type of all principals that authentication finds."""


class Principal(NamedTuple):
    """A user, as ACLs and quotas name it: `User:alice`."""

    type: str
    name: str

    def __str__(self) -> str:
        return f"{self.type}:{self.name}"


ANONYMOUS = Principal(USER, "ANONYMOUS")
"""Whoever sends over a listener that authenticates nobody."""


class Requester(NamedTuple):
    """Whose request it is.

    Attributes:
        host: the address that it connects from, without a port.
        by_token: whether a delegation token authenticated it (KIP-48).
    """

    principal: Principal
    host: str
    by_token: bool = False


def parse_principal(text: str) -> Principal:
    """A principal as Kafka spells it.

    Raises:
        ConfigError: it is not of the form TYPE:NAME.
    """
    kind, colon, name = text.strip().partition(":")
    if not kind or not colon or not name:
        raise ConfigError(f"{text.strip()!r} is no principal: the form is TYPE:NAME, such as User:alice")
    return Principal(kind, name)

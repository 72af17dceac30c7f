"""Whom a quota of clients is for, and the keys that there are, with the names of the protocol (KIP-13, 124, 546, 599,
612).

Kafka: `ClientQuotaEntity`, `QuotaConfig`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

USER = "user"
CLIENT_ID = "client-id"
IP = "ip"
ENTITY_TYPES = frozenset((USER, CLIENT_ID, IP))

PRODUCER_BYTE_RATE = "producer_byte_rate"
CONSUMER_BYTE_RATE = "consumer_byte_rate"
REQUEST_PERCENTAGE = "request_percentage"
CONTROLLER_MUTATION_RATE = "controller_mutation_rate"
CONNECTION_CREATION_RATE = "connection_creation_rate"

WHOLE_MAX: Mapping[str, int] = {
    PRODUCER_BYTE_RATE: (1 << 63) - 1,
    CONSUMER_BYTE_RATE: (1 << 63) - 1,
    CONNECTION_CREATION_RATE: (1 << 31) - 1,
}
"""The keys whose values are whole numbers, with the highest."""
CLIENT_KEYS = frozenset((PRODUCER_BYTE_RATE, CONSUMER_BYTE_RATE, REQUEST_PERCENTAGE, CONTROLLER_MUTATION_RATE))
IP_KEYS = frozenset((CONNECTION_CREATION_RATE,))

QuotaEntity = tuple[tuple[str, str | None], ...]
"""(type, name) of each part, in the order of the types. A name that is None is the default: whoever has no own."""


def quota_entity(parts: Iterable[tuple[str, str | None]]) -> QuotaEntity:
    """The entity of these parts, in whatever order they come."""
    return tuple(sorted(parts, key=lambda part: part[0]))


def canonical_name(kind: str, name: str | None) -> str | None:
    """A name as it is compared: an address has many spellings, and whoever connects from it is told by one of them."""
    if kind != IP or name is None:
        return name
    from ipaddress import IPv6Address, ip_address  # for those who need it

    try:
        address = ip_address(name)
    except ValueError:
        return name
    mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
    return str(mapped or address)


def canonical_parts(parts: Iterable[tuple[str, str | None]]) -> tuple[tuple[str, str | None], ...]:
    """The parts of an entity, as they are compared."""
    return tuple((kind, canonical_name(kind, name)) for kind, name in parts)


def called(entity: QuotaEntity) -> str:
    """As a person is told of it: `user 'alice', the default client-id`."""
    return ", ".join(f"the default {kind}" if name is None else f"{kind} {name!r}" for kind, name in entity)

"""Quotas of clients: setting them, and taking them back (KIP-546, KIP-612).

Each entity of a request stands for itself: what is refused of one leaves the others alone, and nothing of a refused
one is changed.

Kafka: `ClientQuotaControlManager`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from ipaddress import ip_address
from math import isfinite

from tidelog.base.errors import Code, KafkaError, refusal
from tidelog.controller.limits import Room
from tidelog.controller.values import ControllerSettings
from tidelog.journal import Decision
from tidelog.metadata.client_quotas import (
    CLIENT_KEYS,
    ENTITY_TYPES,
    IP,
    IP_KEYS,
    WHOLE_MAX,
    QuotaEntity,
    called,
    canonical_parts,
    quota_entity,
)
from tidelog.metadata.configs.limits import MAX_CLIENT_QUOTAS
from tidelog.metadata.difference import quota_record
from tidelog.metadata.image import MetadataView

NAME_LENGTH_MAX = 32_767
"""In bytes: what the oldest version of the protocol can say."""


@dataclass(frozen=True, slots=True)
class QuotasToAlter:
    """What is to be changed for one entity, as it was asked.

    Attributes:
        parts: (type, name) of each part of the entity; None for the default.
        changes: (key, value) of each change; None takes the quota back.
    """

    parts: tuple[tuple[str, str | None], ...]
    changes: tuple[tuple[str, float | None], ...]


@dataclass(frozen=True, slots=True)
class AlteredQuotas:
    """What became of one entity."""

    parts: tuple[tuple[str, str | None], ...]
    code: Code
    message: str | None = None


def decide_alter_client_quotas(
    metadata: MetadataView, settings: ControllerSettings, entries: Sequence[QuotasToAlter], *, validate_only: bool
) -> Decision[tuple[AlteredQuotas, ...]]:
    """Change quotas. The results are in the order of the request.

    Args:
        validate_only: say what would become of them, and do nothing.
    """
    entities = [canonical_parts(one.parts) for one in entries]
    counts = Counter(map(frozenset, entities))
    records: list[object] = []
    altered: list[AlteredQuotas] = []
    room = Room(metadata, settings, MAX_CLIENT_QUOTAS, len(metadata.client_quotas))
    for one, parts in zip(entries, entities, strict=True):
        try:
            _check_entity(one.parts)
            if counts[frozenset(parts)] > 1:
                raise _invalid(f"the request names {called(quota_entity(parts))} more than once")
            entity = quota_entity(parts)
            changed = _alter(metadata, entity, one.changes)
            if changed and entity not in metadata.client_quotas:
                room.take()
        except KafkaError as error:
            altered.append(AlteredQuotas(one.parts, error.code, str(error)))
            continue
        records += changed
        altered.append(AlteredQuotas(one.parts, Code.NONE))
    return Decision(() if validate_only else tuple(records), tuple(altered))


def _alter(metadata: MetadataView, entity: QuotaEntity, changes: Sequence[tuple[str, float | None]]) -> list[object]:
    """The records that make it so; none for what is so already. Raises KafkaError: INVALID_REQUEST."""
    before = metadata.client_quotas.get(entity, {})
    keys = IP_KEYS if entity[0][0] == IP else CLIENT_KEYS
    names = Counter(key for key, _ in changes)
    records: list[object] = []
    for key, value in changes:
        if key not in keys:
            raise _invalid(f"{called(entity)} has no quota {key!r}: there are {', '.join(sorted(keys))}")
        if names[key] > 1:
            raise _invalid(f"{called(entity)}: {key} is named more than once")
        if value is not None:
            _check_value(key, value)
        if before.get(key) != value:
            records.append(quota_record(entity, key, value))
    return records


def _check_entity(parts: Sequence[tuple[str, str | None]]) -> None:
    if not parts:
        raise _invalid("the entity is empty: name a user, a client-id, both, or an ip")
    types = [kind for kind, _ in parts]
    for kind, name in parts:
        if kind not in ENTITY_TYPES:
            raise _invalid(f"{kind!r} is no type of an entity: there are user, client-id and ip")
        if types.count(kind) > 1:
            raise _invalid(f"the entity names more than one {kind}")
        if name == "":
            raise _invalid(f"the {kind} has an empty name; the default of all is null")
        if name is not None and len(name.encode()) > NAME_LENGTH_MAX:
            raise _invalid(f"the name of the {kind} is longer than {NAME_LENGTH_MAX} bytes")
    if IP in types and len(types) > 1:
        raise _invalid("an ip cannot be combined with a user or a client-id: its quota is for whoever connects from it")
    if IP in types and parts[0][1] is not None and not is_address(parts[0][1]):
        raise _invalid(f"{parts[0][1]!r} is no IP address")


def is_address(text: str) -> bool:
    """Whether it is an IPv4 or IPv6 address. Names are not looked up: what they stand for differs by node and time."""
    try:
        ip_address(text)
    except ValueError:
        return False
    return True


def _check_value(key: str, value: float) -> None:
    if not isfinite(value) or value <= 0:
        raise _invalid(f"{key} is {value}; it must be a number above 0. To have no limit, remove the quota")
    highest = WHOLE_MAX.get(key)
    if highest is not None and value > highest:
        raise _invalid(f"{key} is {value}; the highest is {highest}")
    if highest is not None and abs(value - round(value)) > 1e-6:
        raise _invalid(f"{key} is {value}; it must be a whole number")


def _invalid(why: str) -> KafkaError:
    return refusal(Code.INVALID_REQUEST, why)

"""Access rules: making them, and taking them back (KIP-11, KIP-290). Each of a request stands for itself.

Kafka: `AclControlManager`.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from uuid import UUID

from tidelog.base.errors import Code, ConfigError, KafkaError, refusal
from tidelog.base.ports import Rng
from tidelog.base.principals import parse_principal
from tidelog.controller.limits import Room
from tidelog.controller.values import ControllerSettings
from tidelog.journal import Decision
from tidelog.metadata.acls import (
    CLUSTER_NAME,
    OPERATIONS_OF,
    WILDCARD,
    Acl,
    AclOperation,
    AclPermission,
    AclResourceType,
    PatternType,
)
from tidelog.metadata.configs.limits import MAX_ACLS
from tidelog.metadata.image import MetadataView
from tidelog.metadata.records.acls import RemoveAccessControlEntryRecord, record_of

NAME_LENGTH_MAX = 32_767
"""In bytes: what the oldest version of the protocol can say."""


def decide_create_acls(
    metadata: MetadataView, settings: ControllerSettings, acls: Sequence[Acl], *, there: Collection[Acl], rng: Rng
) -> Decision[tuple[KafkaError | None, ...]]:
    """Make rules. What is there already is made no second time, and is no error.

    Args:
        there: all rules of `metadata`.

    Returns:
        Why each was not made, in the order of the request; None where it is there.
    """
    made: dict[Acl, UUID] = {}
    results: list[KafkaError | None] = []
    room = Room(metadata, settings, MAX_ACLS, len(metadata.acls))
    for acl in acls:
        why = _wrong(acl)
        if why is None and acl not in there and acl not in made:
            try:
                room.take()
                made[acl] = _new_id(metadata, rng)
            except KafkaError as error:
                why = error
        results.append(why)
    return Decision(tuple(record_of(acl_id, acl) for acl, acl_id in made.items()), tuple(results))


def decide_remove_acls(metadata: MetadataView, acl_ids: Sequence[UUID]) -> Decision[None]:
    """Take rules back; those that have gone meanwhile are gone."""
    there = [one for one in dict.fromkeys(acl_ids) if one in metadata.acls]
    return Decision(tuple(RemoveAccessControlEntryRecord(id=one) for one in there), None)


def _new_id(metadata: MetadataView, rng: Rng) -> UUID:
    while True:
        acl_id = rng.uuid()
        if acl_id not in metadata.acls:
            return acl_id


def _wrong(acl: Acl) -> KafkaError | None:
    """Why a rule cannot be. Kafka: `AclControlManager.validateNewAcl`."""
    kind = acl.resource_type
    if kind in (AclResourceType.UNKNOWN, AclResourceType.ANY):
        return _invalid(f"a rule is about resources of one type, and {kind.name} is none")
    if acl.pattern_type not in (PatternType.LITERAL, PatternType.PREFIXED):
        return _invalid(f"a rule has a LITERAL or a PREFIXED pattern; {acl.pattern_type.name} is for filters")
    if acl.operation in (AclOperation.UNKNOWN, AclOperation.ANY):
        return _invalid(f"a rule is about one operation or ALL, and {acl.operation.name} is none")
    if acl.permission not in (AclPermission.ALLOW, AclPermission.DENY):
        return _invalid(f"a rule says ALLOW or DENY, and not {acl.permission.name}")
    if not acl.resource_name:
        return _invalid(f"the name of the resource is empty; {WILDCARD} is any")
    if kind is AclResourceType.CLUSTER and acl.resource_name != CLUSTER_NAME:
        return _invalid(f"the one resource of type CLUSTER is {CLUSTER_NAME}, and not {acl.resource_name!r}")
    if acl.operation is not AclOperation.ALL and acl.operation not in OPERATIONS_OF[kind]:
        known = ", ".join(sorted(one.name for one in OPERATIONS_OF[kind]))
        return _invalid(f"{acl.operation.name} is nothing that is done to a {kind.name}; there are ALL, {known}")
    if not acl.host:
        return _invalid(f"the host is empty; {WILDCARD} is any")
    if any(len(text.encode()) > NAME_LENGTH_MAX for text in (acl.resource_name, acl.principal, acl.host)):
        return _invalid(f"a text of the rule is longer than {NAME_LENGTH_MAX} bytes")
    try:
        parse_principal(acl.principal)
    except ConfigError as error:
        return refusal(Code.INVALID_PRINCIPAL_TYPE, str(error))
    return None


def _invalid(why: str) -> KafkaError:
    return refusal(Code.INVALID_REQUEST, why)

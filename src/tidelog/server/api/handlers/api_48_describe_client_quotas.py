"""DescribeClientQuotas 0-1: the quotas that are set, as the metadata of this node says (KIP-546).

Behaviour: every component must be met: by this name, by the default, or by any name, the default among them. `strict`
leaves out entities with further parts. An ip is compared as an address, however it is spelt.
"""

from __future__ import annotations

from collections.abc import Awaitable, Mapping
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from tidelog.base.errors import Code, KafkaError, refusal
from tidelog.metadata.client_quotas import CLIENT_ID, ENTITY_TYPES, IP, USER, QuotaEntity, canonical_name
from tidelog.server.api.request_context import RequestContext, code_of
from tidelog.wire.messages.api_48_describe_client_quotas import (
    MATCH_ANY,
    MATCH_DEFAULT,
    MATCH_EXACT,
    ComponentData,
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
    DescribedEntityData,
    DescribedEntryData,
    ValueData,
)

if TYPE_CHECKING:
    from tidelog.server.api.ports import MetadataApi

AT_ONCE_MAX = 128
"""Entities to look at on the event loop: a millisecond. More are looked at on another thread."""


class _Wanted(NamedTuple):
    """What the part of one type must be; any name of it where `is_any`."""

    name: str | None
    is_any: bool


def handle(
    node: MetadataApi, request: DescribeClientQuotasRequest, context: RequestContext
) -> DescribeClientQuotasResponse | Awaitable[DescribeClientQuotasResponse]:
    try:
        wanted = _wanted(request.components)
    except KafkaError as error:
        code = code_of(error, "DescribeClientQuotas")
        return DescribeClientQuotasResponse(error_code=code, error_message=str(error), entries=None)
    quotas = context.read(node).image.client_quotas
    if not context.is_long and len(quotas) <= AT_ONCE_MAX:
        return _described(quotas, wanted, request.strict)
    context.is_long = True  # so is the answer, perhaps
    return node.executor.compute(partial(_described, quotas, wanted, request.strict))


def _wanted(components: list[ComponentData]) -> dict[str, _Wanted]:
    """Raises KafkaError."""
    wanted: dict[str, _Wanted] = {}
    for one in components:
        kind = one.entity_type
        if not kind:
            raise _invalid("the type of an entity is empty")
        if kind not in ENTITY_TYPES:
            raise refusal(
                Code.UNSUPPORTED_VERSION, f"{kind[:100]!r} is no type of an entity: there are user, client-id and ip"
            )
        if kind in wanted:
            raise _invalid(f"the filter names {kind} more than once")
        if one.match_type not in (MATCH_EXACT, MATCH_DEFAULT, MATCH_ANY):
            raise _invalid(f"{one.match_type} is no type of a match: there are 0, 1 and 2")
        if (one.match is None) == (one.match_type == MATCH_EXACT):
            raise _invalid(f"a match of type {one.match_type} has {'no' if one.match is None else 'a'} name")
        wanted[kind] = _Wanted(canonical_name(kind, one.match), one.match_type == MATCH_ANY)
    if IP in wanted and (USER in wanted or CLIENT_ID in wanted):
        raise _invalid("an ip is in no entity with a user or a client-id")
    return wanted


def _invalid(why: str) -> KafkaError:
    return refusal(Code.INVALID_REQUEST, why)


def _described(
    quotas: Mapping[QuotaEntity, Mapping[str, float]], wanted: Mapping[str, _Wanted], strict: bool
) -> DescribeClientQuotasResponse:
    found = [(entity, values) for entity, values in quotas.items() if _is_wanted(dict(entity), wanted, strict=strict)]
    found.sort(key=lambda one: [(kind, name is not None, name or "") for kind, name in one[0]])
    return DescribeClientQuotasResponse(
        entries=[
            DescribedEntryData(
                [DescribedEntityData(kind, name) for kind, name in entity],
                [ValueData(key, value) for key, value in sorted(values.items())],
            )
            for entity, values in found
        ]
    )


def _is_wanted(parts: Mapping[str, str | None], wanted: Mapping[str, _Wanted], *, strict: bool) -> bool:
    if strict and len(parts) != len(wanted):
        return False
    return all(
        kind in parts and (one.is_any or canonical_name(kind, parts[kind]) == one.name) for kind, one in wanted.items()
    )

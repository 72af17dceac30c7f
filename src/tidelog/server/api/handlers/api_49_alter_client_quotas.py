"""AlterClientQuotas 0-1: set quotas of clients, and take them back; the active controller decides (KIP-546).

Behaviour: each entity on its own. One that the request names twice is refused, however much stands in between. Many
entities are decided in portions: where the controller changes meanwhile, some may be altered and others be refused.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial
from typing import TYPE_CHECKING

from tidelog.base.errors import Code, KafkaError
from tidelog.controller.client_quotas import AlteredQuotas, QuotasToAlter
from tidelog.metadata.client_quotas import CLIENT_KEYS, ENTITY_TYPES, canonical_parts
from tidelog.server.api.division import RECORDS_MAX
from tidelog.server.api.request_context import RequestContext, code_of
from tidelog.wire.messages.api_49_alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    QuotaEntryData,
    QuotaEntryResult,
)

if TYPE_CHECKING:
    from tidelog.server.api.ports import ControllerApi

PARTS_LOOKED_AT_MAX = len(ENTITY_TYPES) + 1
CHANGES_LOOKED_AT_MAX = len(CLIENT_KEYS) + 1
"""With so many one is named twice, or is none that there is: more of them say nothing else."""

Portion = list[tuple[QuotasToAlter, list[int]]]
"""What to decide, each with where it stands in the request."""


async def handle(
    node: ControllerApi, request: AlterClientQuotasRequest, context: RequestContext
) -> AlterClientQuotasResponse:
    read = partial(_portions, request.entries)
    portions = await node.executor.compute(read) if context.is_long else read()
    rows: list[QuotaEntryResult] = [QuotaEntryResult(entity=one.entity) for one in request.entries]
    for portion in portions:
        for row_numbers, code, message in await _decide(node, portion, validate_only=request.validate_only):
            for number in row_numbers:
                rows[number].error_code, rows[number].error_message = code, message
    await node.caught_up()
    return AlterClientQuotasResponse(entries=rows)


def refused(request: AlterClientQuotasRequest, context: RequestContext, error: KafkaError) -> AlterClientQuotasResponse:
    """The answer where nothing could be decided."""
    code = code_of(error, "AlterClientQuotas")
    return AlterClientQuotasResponse(
        entries=[QuotaEntryResult(code, str(error), one.entity) for one in request.entries]
    )


async def _decide(
    node: ControllerApi, portion: Portion, *, validate_only: bool
) -> list[tuple[list[int], Code, str | None]]:
    entries = [one for one, _ in portion]
    try:
        altered: tuple[AlteredQuotas, ...] = await node.controller.request(
            lambda state: state.decide_alter_client_quotas(entries, validate_only=validate_only)
        )
    except KafkaError as error:
        code = code_of(error, "AlterClientQuotas")
        return [(numbers, code, str(error)) for _, numbers in portion]
    return [(numbers, one.code, one.message) for one, (_, numbers) in zip(altered, portion, strict=True)]


def _portions(entries: list[QuotaEntryData]) -> list[Portion]:
    """What to decide, so that all that is about one entity is in one portion, and little is in each."""
    by_entity: dict[object, list[tuple[QuotasToAlter, int]]] = {}
    for number, entry in enumerate(entries):
        one = _to_alter(entry)
        by_entity.setdefault(frozenset(canonical_parts(one.parts)), []).append((one, number))
    portions: list[Portion] = []
    weight = RECORDS_MAX
    for same in _groups(by_entity.values()):
        added = sum(1 + len(one.changes) for one, _ in same)
        if weight + added > RECORDS_MAX:
            portions.append([])
            weight = 0
        portions[-1] += same
        weight += added
    return portions


def _groups(by_entity: Iterable[list[tuple[QuotasToAlter, int]]]) -> Iterator[Portion]:
    """Of an entity that is named more than once two suffice to tell."""
    for same in by_entity:
        numbers = [number for _, number in same]
        first = (same[0][0], numbers)
        yield [first] if len(same) == 1 else [first, (same[1][0], [])]


def _to_alter(entry: QuotaEntryData) -> QuotasToAlter:
    return QuotasToAlter(
        tuple((one.entity_type, one.entity_name) for one in entry.entity[:PARTS_LOOKED_AT_MAX]),
        tuple((op.key, None if op.remove else op.value) for op in entry.ops[:CHANGES_LOOKED_AT_MAX]),
    )

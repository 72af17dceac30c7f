"""ListTransactions 0-2: the transactional ids that this broker coordinates.

Behaviour: filtered by state and producer id, from 1 on by how long the transaction has been open at least (KIP-994),
from 2 on by a pattern of the whole id (KIP-1152); one that is none, or that takes too long, gets
INVALID_REGULAR_EXPRESSION. States that there are not are named in the answer, and find nothing. While a partition of
`__transaction_state` is only being loaded, the answer is COORDINATOR_LOAD_IN_PROGRESS, and while one cannot be read it
is COORDINATOR_NOT_AVAILABLE, where Kafka leaves its transactions out: a list that lacks some would be taken for all,
and who looks for hanging transactions would abort those that it lacks.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, Any

from tidelog.base.errors import Code, KafkaError
from tidelog.base.linear_pattern import LinearPattern
from tidelog.server.api.request_context import RequestContext, code_of
from tidelog.wire.messages.api_66_list_transactions import (
    ListedTransaction,
    ListTransactionsRequest,
    ListTransactionsResponse,
)

if TYPE_CHECKING:
    from tidelog.coordinator.transactions import Transaction
    from tidelog.server.api.ports import TransactionsApi


LISTED_AT_ONCE_MAX = 1_000
"""Transactional ids that are looked at on the event loop."""


async def handle(
    node: TransactionsApi, request: ListTransactionsRequest, context: RequestContext
) -> ListTransactionsResponse:
    from tidelog.coordinator.transactions import TransactionState as States

    labels = {state.label for state in States}
    unknown = [name for name in request.state_filters if name not in labels]
    pattern = None
    if request.transactional_id_pattern:
        try:
            pattern = LinearPattern(request.transactional_id_pattern)
        except KafkaError as error:
            return ListTransactionsResponse(error_code=code_of(error, "ListTransactions"))
    answers: list[Any] = node.transactions.submit_all(
        lambda machine, request_id, now_ms, wall_ms: machine.on_list(request_id, now_ms=now_ms, wall_ms=wall_ms)
    )
    found: list[Transaction] = []
    for answer in [await one if isinstance(one, asyncio.Future) else one for one in answers]:
        if not isinstance(answer, KafkaError):
            found += answer
        elif answer.code != Code.NOT_COORDINATOR:  # led elsewhere by now
            return ListTransactionsResponse(error_code=code_of(answer, "ListTransactions"))
    listed = partial(_listed, found, request, pattern, node.clock.wall_ms())
    context.is_long = len(found) > LISTED_AT_ONCE_MAX
    try:
        rows = await node.executor.compute(listed) if context.is_long else listed()
    except KafkaError as error:
        return ListTransactionsResponse(error_code=code_of(error, "ListTransactions"))
    return ListTransactionsResponse(unknown_state_filters=unknown, transaction_states=rows)


def _listed(
    found: list[Transaction], request: ListTransactionsRequest, pattern: LinearPattern | None, now_ms: int
) -> list[ListedTransaction]:
    """Raises KafkaError: INVALID_REGULAR_EXPRESSION where the pattern takes too long."""
    states, producer_ids = frozenset(request.state_filters), frozenset(request.producer_id_filters)
    return [
        ListedTransaction(
            transactional_id=one.transactional_id, producer_id=one.producer_id, transaction_state=one.state.label
        )
        for one in found
        if (not states or one.state.label in states)
        and (not producer_ids or one.producer_id in producer_ids)
        and (request.duration_filter < 0 or _is_open_longer(one, request.duration_filter, now_ms))
        and (pattern is None or pattern.matches(one.transactional_id))
    ]


def _is_open_longer(one: Transaction, duration_ms: int, now_ms: int) -> bool:
    return one.started_ms is not None and now_ms - one.started_ms > duration_ms

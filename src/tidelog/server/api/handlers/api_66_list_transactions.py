"""ListTransactions 0-2: the transactional ids that this broker coordinates.

Behaviour: filtered by state and producer id, from 1 on by how long the transaction has been open at least (KIP-994),
from 2 on by a pattern of the whole id (KIP-1152); one that is none, or that takes too long, gets
INVALID_REGULAR_EXPRESSION. States that there are not are named in the answer, and find nothing. While a partition of
`__transaction_state` is only being loaded, the answer is COORDINATOR_LOAD_IN_PROGRESS: a list that lacks some would be
taken for all.
"""

from __future__ import annotations

from collections.abc import Awaitable
from typing import TYPE_CHECKING, Any

from tidelog.base.errors import Code, KafkaError
from tidelog.base.linear_pattern import LinearPattern
from tidelog.server.api.dispatch import RequestContext, code_of
from tidelog.server.api.group_answers import when_all_answered
from tidelog.wire.messages.api_66_list_transactions import (
    ListedTransaction,
    ListTransactionsRequest,
    ListTransactionsResponse,
)

if TYPE_CHECKING:
    from tidelog.coordinator.transactions import Transaction
    from tidelog.server.api.ports import TransactionsApi


def handle(
    node: TransactionsApi, request: ListTransactionsRequest, context: RequestContext
) -> ListTransactionsResponse | Awaitable[ListTransactionsResponse]:
    from tidelog.coordinator.transactions import TransactionState as States

    labels = {state.label for state in States}
    unknown = [name for name in request.state_filters if name not in labels]
    now_ms = node.clock.wall_ms()
    pattern = None
    if request.transactional_id_pattern:
        try:
            pattern = LinearPattern(request.transactional_id_pattern)
        except KafkaError as error:
            return ListTransactionsResponse(error_code=code_of(error, "ListTransactions"))

    def respond(answers: list[Any]) -> ListTransactionsResponse:
        rows = []
        for answer in answers:
            if isinstance(answer, KafkaError):
                if answer.code == Code.COORDINATOR_LOAD_IN_PROGRESS:
                    return ListTransactionsResponse(error_code=code_of(answer, "ListTransactions"))
                continue  # led elsewhere by now, or damaged
            passing = [one for one in answer if _passes(one, request, now_ms)]
            if pattern is not None:
                try:
                    passing = [one for one in passing if pattern.matches(one.transactional_id)]
                except KafkaError as error:
                    return ListTransactionsResponse(error_code=code_of(error, "ListTransactions"))
            rows += [
                ListedTransaction(
                    transactional_id=one.transactional_id,
                    producer_id=one.producer_id,
                    transaction_state=one.state.label,
                )
                for one in passing
            ]
        return ListTransactionsResponse(unknown_state_filters=unknown, transaction_states=rows)

    answers = node.transactions.submit_all(
        lambda machine, request_id, now_ms, wall_ms: machine.on_list(request_id, now_ms=now_ms, wall_ms=wall_ms)
    )
    return when_all_answered(answers, respond)


def _passes(one: Transaction, request: ListTransactionsRequest, now_ms: int) -> bool:
    if request.state_filters and one.state.label not in request.state_filters:
        return False
    if request.producer_id_filters and one.producer_id not in request.producer_id_filters:
        return False
    return request.duration_filter < 0 or (
        one.started_ms is not None and now_ms - one.started_ms > request.duration_filter
    )

"""DescribeTransactions 0: where transactional ids stand that this broker coordinates.

Behaviour: an id that is not there gets TRANSACTIONAL_ID_NOT_FOUND; the partitions are those that the transaction has
records in, or is writing markers to.
"""

from __future__ import annotations

from collections.abc import Awaitable
from itertools import groupby
from typing import TYPE_CHECKING, Any

from tidelog.base.errors import KafkaError
from tidelog.server.api.dispatch import RequestContext, code_of
from tidelog.server.api.group_answers import when_all_answered
from tidelog.wire.messages.api_65_describe_transactions import (
    DescribedTransaction,
    DescribedTransactionTopic,
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
)

if TYPE_CHECKING:
    from tidelog.coordinator.transactions import Transaction
    from tidelog.server.api.ports import TransactionsApi


def handle(
    node: TransactionsApi, request: DescribeTransactionsRequest, context: RequestContext
) -> DescribeTransactionsResponse | Awaitable[DescribeTransactionsResponse]:
    names = list(dict.fromkeys(request.transactional_ids))

    def respond(answers: list[Any]) -> DescribeTransactionsResponse:
        rows = [_row(name, answer) for name, answer in zip(names, answers, strict=True)]
        return DescribeTransactionsResponse(transaction_states=rows)

    return when_all_answered([_ask(node, name) for name in names], respond)


def _ask(node: TransactionsApi, transactional_id: str) -> object:
    return node.transactions.submit(
        transactional_id,
        lambda machine, request_id, now_ms, wall_ms: machine.on_describe(
            request_id, transactional_id, now_ms=now_ms, wall_ms=wall_ms
        ),
    )


def _row(transactional_id: str, answer: Transaction | KafkaError) -> DescribedTransaction:
    if isinstance(answer, KafkaError):
        return DescribedTransaction(
            error_code=code_of(answer, "DescribeTransactions"), transactional_id=transactional_id
        )
    ordered = sorted(answer.partitions)
    return DescribedTransaction(
        transactional_id=transactional_id,
        transaction_state=answer.state.label,
        transaction_timeout_ms=answer.timeout_ms,
        transaction_start_time_ms=-1 if answer.started_ms is None else answer.started_ms,
        producer_id=answer.producer_id,
        producer_epoch=-1 if answer.producer_epoch is None else answer.producer_epoch,
        topics=[
            DescribedTransactionTopic(topic=topic, partitions=[one.partition for one in ones])
            for topic, ones in groupby(ordered, key=lambda one: one.topic)
        ],
    )

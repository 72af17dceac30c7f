"""DescribeTransactions 0: where transactional ids stand that this broker coordinates.

Behaviour: an id that is not there gets TRANSACTIONAL_ID_NOT_FOUND; the partitions are those that the transaction has
records in, or is writing markers to.
"""

from __future__ import annotations

import asyncio
from functools import partial
from itertools import groupby
from typing import TYPE_CHECKING, Any

from tidelog.base.errors import KafkaError
from tidelog.server.api.request_context import RequestContext, code_of
from tidelog.wire.messages.api_65_describe_transactions import (
    DescribedTransaction,
    DescribedTransactionTopic,
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
)

if TYPE_CHECKING:
    from tidelog.coordinator.transactions import Transaction
    from tidelog.server.api.ports import TransactionsApi


TOLD_AT_ONCE_MAX = 512
"""Partitions, of an answer that is made on the event loop."""


async def handle(
    node: TransactionsApi, request: DescribeTransactionsRequest, context: RequestContext
) -> DescribeTransactionsResponse:
    names = list(dict.fromkeys(request.transactional_ids))
    answers: list[Any] = [_ask(node, name) for name in names]
    answers = [await one if isinstance(one, asyncio.Future) else one for one in answers]
    if sum(0 if isinstance(one, KafkaError) else len(one.partitions) for one in answers) <= TOLD_AT_ONCE_MAX:
        return _response(names, answers)
    context.is_long = True
    return await node.executor.compute(partial(_response, names, answers))


def _response(names: list[str], answers: list[Any]) -> DescribeTransactionsResponse:
    rows = [_row(name, answer) for name, answer in zip(names, answers, strict=True)]
    return DescribeTransactionsResponse(transaction_states=rows)


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

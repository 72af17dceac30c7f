"""AddPartitionsToTxn 0-5: partitions join a transaction, before (0-3) or when (5) the first batch comes to them.

Behaviour: a producer asks before it writes (0-3). From 4 on the leader of a partition asks (KIP-890): whether the
partition is in the transaction (`verify_only`), or to have it added, for a producer of version 2 that announces
nothing. All partitions of a transaction are added, or none: then those that exist get OPERATION_NOT_ATTEMPTED beside
one that does not. A request that comes while the transaction before is still being ended waits for that, at most a
second. A fenced producer gets PRODUCER_FENCED, before version 2 INVALID_PRODUCER_EPOCH. No partitions begin nothing,
other than in Kafka.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from tidelog.base.errors import Code, KafkaError
from tidelog.base.ids import PartitionIndex, ProducerEpoch, ProducerId, TopicPartition
from tidelog.server.api.group_answers import when_all_answered
from tidelog.server.api.request_context import RequestContext, code_of
from tidelog.server.api.transaction_answers import fenced_code
from tidelog.server.transactions.verification import codes_of
from tidelog.wire.messages.api_24_add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTopicResult,
    AddPartitionsToTxnTransaction,
)

if TYPE_CHECKING:
    from tidelog.metadata import MetadataImage
    from tidelog.server.api.ports import TransactionsApi

LEADERS_FROM_VERSION = 4
ABORTABLE_FROM_VERSION = 5
PRODUCER_FENCED_FROM_VERSION = 2
EPOCH_BUMP_VERSION = 2

_Codes = dict[TopicPartition, Code]


def handle(
    node: TransactionsApi, request: AddPartitionsToTxnRequest, context: RequestContext
) -> AddPartitionsToTxnResponse | Awaitable[AddPartitionsToTxnResponse]:
    version = context.api_version
    if version >= LEADERS_FROM_VERSION:
        transactions = request.transactions
    else:
        transactions = [
            AddPartitionsToTxnTransaction(
                transactional_id=request.v3_and_below_transactional_id,
                producer_id=request.v3_and_below_producer_id,
                producer_epoch=request.v3_and_below_producer_epoch,
                topics=request.v3_and_below_topics,
            )
        ]
    if context.is_long:
        return _handle_long(node, transactions, version)
    asked = _asked(node.image, transactions)
    return when_all_answered([_ask(node, one, version) for one in asked], partial(_response, asked, version))


async def _handle_long(
    node: TransactionsApi, transactions: list[AddPartitionsToTxnTransaction], version: int
) -> AddPartitionsToTxnResponse:
    """A transaction counts as a whole, so one that lists much is looked through on another thread."""
    asked = await node.executor.compute(partial(_asked, node.image, transactions))
    answers: list[Any] = [_ask(node, one, version) for one in asked]
    answers = [await one if isinstance(one, asyncio.Future) else one for one in answers]
    return await node.executor.compute(partial(_response, asked, version, answers))


class _Asked(NamedTuple):
    """A transaction, with the partitions that are listed, and those of them that do not exist."""

    transaction: AddPartitionsToTxnTransaction
    partitions: frozenset[TopicPartition]
    unknown: frozenset[TopicPartition]


def _asked(image: MetadataImage, transactions: Sequence[AddPartitionsToTxnTransaction]) -> list[_Asked]:
    asked = []
    for one in transactions:
        partitions = frozenset(
            TopicPartition(topic.name, PartitionIndex(index)) for topic in one.topics for index in topic.partitions
        )
        unknown = frozenset(place for place in partitions if image.partition(place.topic, place.partition) is None)
        asked.append(_Asked(one, partitions, unknown))
    return asked


def _ask(node: TransactionsApi, asked: _Asked, version: int) -> object:
    """What becomes of one transaction: see `_codes`; or a future of it."""
    transaction, partitions, unknown = asked
    if unknown and not transaction.verify_only:
        return None
    from tidelog.coordinator.transactions import ProducerIdentity

    producer = ProducerIdentity(ProducerId(transaction.producer_id), ProducerEpoch(transaction.producer_epoch))
    transactional_id = transaction.transactional_id
    if transaction.verify_only:
        return node.transactions.submit(
            transactional_id,
            lambda machine, request_id, now_ms, wall_ms: machine.on_verify_partitions(
                request_id, transactional_id, producer, now_ms=now_ms, wall_ms=wall_ms
            ),
        )
    is_of_broker = version >= LEADERS_FROM_VERSION
    return node.transactions.submit(
        transactional_id,
        lambda machine, request_id, now_ms, wall_ms: machine.on_add_partitions(
            request_id,
            transactional_id,
            producer,
            partitions,
            client_version=EPOCH_BUMP_VERSION if is_of_broker else 0,
            may_wait=not is_of_broker,
            now_ms=now_ms,
            wall_ms=wall_ms,
        ),
    )


def _response(asked: Sequence[_Asked], version: int, answers: Sequence[object]) -> AddPartitionsToTxnResponse:
    results = [
        AddPartitionsToTxnResult(
            transactional_id=one.transaction.transactional_id,
            topic_results=_rows(one.transaction.topics, _codes(one, answer, version)),
        )
        for one, answer in zip(asked, answers, strict=True)
    ]
    if version >= LEADERS_FROM_VERSION:
        return AddPartitionsToTxnResponse(results_by_transaction=results)
    return AddPartitionsToTxnResponse(results_by_topic_v3_and_below=results[0].topic_results)


def _codes(asked: _Asked, answer: object, version: int) -> _Codes:
    """By partition, from the coordinator's answer or refusal; it was not asked (None) where some do not exist."""
    partitions, unknown = asked.partitions, asked.unknown
    if answer is None:
        return {
            one: Code.UNKNOWN_TOPIC_OR_PARTITION if one in unknown else Code.OPERATION_NOT_ATTEMPTED
            for one in partitions
        }
    if isinstance(answer, KafkaError):
        code = code_of(answer, "AddPartitionsToTxn")
        return dict.fromkeys(partitions, fenced_code(code) if version < PRODUCER_FENCED_FROM_VERSION else code)
    codes = codes_of(partitions, answer)
    if version < ABORTABLE_FROM_VERSION:
        abortable = Code.TRANSACTION_ABORTABLE
        return {one: Code.INVALID_TXN_STATE if code == abortable else code for one, code in codes.items()}
    return codes


def _rows(topics: Sequence[AddPartitionsToTxnTopic], codes: _Codes) -> list[AddPartitionsToTxnTopicResult]:
    return [
        AddPartitionsToTxnTopicResult(
            name=topic.name,
            results_by_partition=[
                AddPartitionsToTxnPartitionResult(
                    partition_index=index,
                    partition_error_code=codes[TopicPartition(topic.name, PartitionIndex(index))],
                )
                for index in topic.partitions
            ],
        )
        for topic in topics
    ]

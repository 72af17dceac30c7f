"""AddPartitionsToTxn 0-5: partitions join a transaction, before (0-3) or when (5) the first batch comes to them.

Behaviour: a producer asks before it writes (0-3). From 4 on the leader of a partition asks (KIP-890): whether the
partition is in the transaction (`verify_only`), or to have it added, for a producer of version 2 that announces
nothing. All partitions of a transaction are added, or none: then those that exist get OPERATION_NOT_ATTEMPTED beside
one that does not. A request that comes while the transaction before is still being ended waits for that, at most a
second. A fenced producer gets PRODUCER_FENCED, before version 2 INVALID_PRODUCER_EPOCH.
"""

from __future__ import annotations

from collections.abc import Awaitable, Sequence
from typing import TYPE_CHECKING, Any

from tidelog.base.errors import Code, KafkaError
from tidelog.base.ids import PartitionIndex, ProducerEpoch, ProducerId, TopicPartition
from tidelog.server.api.dispatch import RequestContext, code_of
from tidelog.server.api.group_answers import when_all_answered
from tidelog.server.api.transaction_answers import fenced_code
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
    answers = [_ask(node, one, version) for one in transactions]

    def respond(answered: Sequence[Any]) -> AddPartitionsToTxnResponse:
        results = [
            AddPartitionsToTxnResult(
                transactional_id=one.transactional_id,
                topic_results=_rows(one.topics, _codes(one, answer, version)),
            )
            for one, answer in zip(transactions, answered, strict=True)
        ]
        if version >= LEADERS_FROM_VERSION:
            return AddPartitionsToTxnResponse(results_by_transaction=results)
        return AddPartitionsToTxnResponse(results_by_topic_v3_and_below=results[0].topic_results)

    return when_all_answered(answers, respond)


def _ask(node: TransactionsApi, transaction: AddPartitionsToTxnTransaction, version: int) -> object:
    """What becomes of one transaction: codes by partition, one for all, a refusal; or a future of one of these."""
    partitions = _partitions(transaction.topics)
    unknown = {one for one in partitions if node.image.partition(one.topic, one.partition) is None}
    if unknown and not transaction.verify_only:
        return {
            one: Code.UNKNOWN_TOPIC_OR_PARTITION if one in unknown else Code.OPERATION_NOT_ATTEMPTED
            for one in partitions
        }
    from tidelog.coordinator.transactions import ProducerIdentity

    producer = ProducerIdentity(ProducerId(transaction.producer_id), ProducerEpoch(transaction.producer_epoch))
    transactional_id = transaction.transactional_id
    if transaction.verify_only:
        return node.transactions.submit(
            transactional_id,
            lambda machine, request_id, now_ms, wall_ms: machine.on_verify_partitions(
                request_id, transactional_id, producer, partitions, now_ms=now_ms, wall_ms=wall_ms
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


def _codes(transaction: AddPartitionsToTxnTransaction, answer: object, version: int) -> _Codes:
    if isinstance(answer, dict):
        if version >= ABORTABLE_FROM_VERSION:
            return answer
        abortable = Code.TRANSACTION_ABORTABLE
        return {one: Code.INVALID_TXN_STATE if code == abortable else code for one, code in answer.items()}
    code = code_of(answer, "AddPartitionsToTxn") if isinstance(answer, KafkaError) else Code.NONE
    if version < PRODUCER_FENCED_FROM_VERSION:
        code = fenced_code(code)
    return dict.fromkeys(_partitions(transaction.topics), code)


def _partitions(topics: Sequence[AddPartitionsToTxnTopic]) -> list[TopicPartition]:
    return [TopicPartition(topic.name, PartitionIndex(index)) for topic in topics for index in topic.partitions]


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

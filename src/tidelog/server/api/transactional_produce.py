"""The batches of a Produce that begin a transaction on their partition: their coordinator is asked first (KIP-890).

The marker of the transaction before may come while the coordinator is asked about the next one: EndTxn is answered as
soon as the end is decided. It takes the guard of the batch back, so the coordinator is asked once more.

Kafka: `ReplicaManager.handleProduceAppend`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from tidelog.base.errors import Code, KafkaError, MalformedBatchError, refusal
from tidelog.base.ids import TopicId, TopicPartition
from tidelog.log import NOT_VERIFIED, VerificationGuard
from tidelog.records import BatchHeader, read_header
from tidelog.server.api.request_context import RequestContext
from tidelog.server.replication.partition import Partition
from tidelog.wire.messages.api_00_produce import PartitionProduceData, ProduceRequest

if TYPE_CHECKING:
    from tidelog.server.api.ports import TransactionsApi

TOPIC_IDS_FROM_VERSION = 13
ADDS_FROM_VERSION = 12
"""A producer of version 2 of transactions, which announces no partition."""
ABORTABLE_FROM_VERSION = 11

ASKED_MAX = 3
"""How often a coordinator is asked for one batch. Each end of a transaction has one marker on a partition."""

UNREACHABLE = frozenset((Code.COORDINATOR_LOAD_IN_PROGRESS, Code.COORDINATOR_NOT_AVAILABLE, Code.NOT_COORDINATOR))


class Verification(NamedTuple):
    """What the coordinator said of a partition.

    Attributes:
        guard: the batch may be appended as long as this is in force.
        refusal: why it may not be.
    """

    guard: VerificationGuard | None
    refusal: KafkaError | None


UNASKED = Verification(NOT_VERIFIED, None)
"""Of all batches where coordinators are not asked (transaction.partition.verification.enable)."""

CONTINUES = Verification(None, None)
"""Of a batch whose transaction is open on its partition, or that is in none."""

Verdicts = dict[int, Verification]
"""By the `id` of a partition's data in the request."""


def no_room_to_wait() -> Verification:
    """Of a batch that would have to be kept while its coordinator is asked. Producers try again."""
    why = "requests that wait hold all the memory they may (queued.max.request.bytes): no coordinator is asked now"
    return Verification(None, refusal(Code.NOT_ENOUGH_REPLICAS, why))


class Beginning(NamedTuple):
    """A batch that begins a transaction on its partition, and what lets it be appended if its coordinator agrees."""

    data: PartitionProduceData
    partition: Partition
    header: BatchHeader
    guard: VerificationGuard


def beginnings(node: TransactionsApi, request: ProduceRequest, context: RequestContext) -> list[Beginning]:
    """The batches that the coordinator is to be asked for. What is wrong in another way the append finds out."""
    return list(_beginnings(node, request, context.api_version))


def _beginnings(node: TransactionsApi, request: ProduceRequest, version: int) -> Iterator[Beginning]:
    now_ms = node.clock.wall_ms()
    for topic in request.topic_data:
        for data in topic.partition_data:
            if not isinstance(data.records, memoryview):
                continue
            try:
                if version >= TOPIC_IDS_FROM_VERSION:
                    partition = node.broker.partition_by_id(TopicId(topic.topic_id), data.index)
                else:
                    partition = node.broker.partition(topic.name, data.index)
                partition.leader()
                header = read_header(data.records)
            except (KafkaError, MalformedBatchError):
                continue
            if header.is_transactional:
                guard = _guard(partition, header, version, now_ms)
                if guard is not None:
                    yield Beginning(data, partition, header, guard)


def _guard(partition: Partition, header: BatchHeader, version: int, now_ms: int) -> VerificationGuard | None:
    return partition.log.producers.begin_verification(
        header.producer_id,
        header.base_sequence,
        header.producer_epoch,
        supports_epoch_bump=version >= ADDS_FROM_VERSION,
        now_ms=now_ms,
    )


async def verified(
    node: TransactionsApi, request: ProduceRequest, context: RequestContext, asked: list[Beginning]
) -> Verdicts:
    """Ask the coordinator of the request's transactional id."""
    verdicts: Verdicts = {}
    for _ in range(ASKED_MAX):
        verdicts |= await _verified_once(node, request, context, asked)
        now_ms = node.clock.wall_ms()
        taken_back = []
        for one in asked:
            if verdicts[id(one.data)].refusal is None:
                guard = _guard(one.partition, one.header, context.api_version, now_ms)
                if guard is None:  # another of its batches has begun the transaction
                    verdicts[id(one.data)] = CONTINUES
                elif guard is not one.guard:
                    taken_back.append(one._replace(guard=guard))
        if not taken_back:
            break
        asked = taken_back
    return verdicts


async def _verified_once(
    node: TransactionsApi, request: ProduceRequest, context: RequestContext, asked: list[Beginning]
) -> Verdicts:
    adds = context.api_version >= ADDS_FROM_VERSION
    transactional_id = request.transactional_id
    assert transactional_id is not None
    producers: dict[tuple[int, int], list[Beginning]] = {}
    for one in asked:
        producers.setdefault((one.header.producer_id, one.header.producer_epoch), []).append(one)
    answers = await asyncio.gather(
        *(
            node.verification.verify(
                transactional_id, *producer, [one.partition.topic_partition for one in some], adds=adds
            )
            for producer, some in producers.items()
        )
    )
    verdicts: Verdicts = {}
    for some, codes in zip(producers.values(), answers, strict=True):
        for one in some:
            said = codes[one.partition.topic_partition]
            code = _producer_code(said, context.api_version)
            why = _refusal(transactional_id, one.partition.topic_partition, code, said) if code else None
            verdicts[id(one.data)] = Verification(one.guard, why)
    return verdicts


def _producer_code(code: Code, version: int) -> Code:
    """As producers understand it: what passes is NOT_ENOUGH_REPLICAS, which all of them try again."""
    if code in UNREACHABLE or (code == Code.CONCURRENT_TRANSACTIONS and version < ADDS_FROM_VERSION):
        return Code.NOT_ENOUGH_REPLICAS
    if code == Code.TRANSACTION_ABORTABLE and version < ABORTABLE_FROM_VERSION:
        return Code.INVALID_TXN_STATE
    return Code.INVALID_PRODUCER_EPOCH if code == Code.PRODUCER_FENCED else code


def _refusal(transactional_id: str, topic_partition: TopicPartition, code: Code, said: Code) -> KafkaError:
    return refusal(
        code, f"{topic_partition}: the coordinator of transactional id {transactional_id!r} says {said.name}"
    )

"""Requests of transactions out of what is due, and what their answers say."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from tidelog.base.errors import Code
from tidelog.base.ids import TopicPartition
from tidelog.client.core.transaction import (
    CERTAINLY_UNDONE,
    IMPLICIT_VERSION,
    AddOffsetsDue,
    AddPartitionsDue,
    CommitOffsetsDue,
    Due,
    InitDue,
    ProducerIdAndEpoch,
    ProducerTransactions,
)
from tidelog.client.core.values import code_of
from tidelog.wire.messages.api_22_init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from tidelog.wire.messages.api_24_add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
)
from tidelog.wire.messages.api_25_add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse
from tidelog.wire.messages.api_26_end_txn import EndTxnRequest, EndTxnResponse
from tidelog.wire.messages.api_28_txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
)

TRANSACTION_VERSION = "transaction.version"
"""The finalized feature that says which protocol of transactions a cluster speaks."""

_FIRST_THAT_BUMPS = 3  # of InitProducerId (KIP-360)
_LAST_OF_PRODUCERS = 3  # of AddPartitionsToTxn; later ones are for brokers
_FIRST_WITH_EPOCH = 5  # of EndTxn, whose answer has the next one (KIP-890)
_FIRST_THAT_ADDS_OFFSETS = 5  # of TxnOffsetCommit, which needs no AddOffsetsToTxn before (KIP-890)
_FIRST_WITH_MEMBERS = 3  # of TxnOffsetCommit (KIP-447)


class Question(NamedTuple):
    """A request, the class of its answer, and the versions that it may have."""

    request: object
    response: type
    min_version: int = 0
    max_version: int | None = None


class Verdict(NamedTuple):
    """What an answer says: a code, or what it tells the producer."""

    code: Code = Code.NONE
    producer: ProducerIdAndEpoch | None = None


def question(transactions: ProducerTransactions, due: Due, transaction_timeout_ms: int) -> Question:
    """The request that is due."""
    transactional_id = transactions.transactional_id
    producer_id, producer_epoch = transactions.producer or (-1, -1)
    is_implicit = transactions.version >= IMPLICIT_VERSION
    if isinstance(due, InitDue):
        of_id, of_epoch = due.producer or (-1, -1)
        return Question(
            InitProducerIdRequest(
                transactional_id=transactional_id,
                transaction_timeout_ms=transaction_timeout_ms,
                producer_id=of_id,
                producer_epoch=of_epoch,
            ),
            InitProducerIdResponse,
            0 if due.producer is None else _FIRST_THAT_BUMPS,
        )
    if isinstance(due, AddPartitionsDue):
        return Question(
            AddPartitionsToTxnRequest(
                v3_and_below_transactional_id=transactional_id,
                v3_and_below_producer_id=producer_id,
                v3_and_below_producer_epoch=producer_epoch,
                v3_and_below_topics=[
                    AddPartitionsToTxnTopic(topic, indexes) for topic, indexes in _by_topic(due.partitions).items()
                ],
            ),
            AddPartitionsToTxnResponse,
            max_version=_LAST_OF_PRODUCERS,
        )
    if isinstance(due, AddOffsetsDue):
        request = AddOffsetsToTxnRequest(
            transactional_id=transactional_id,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            group_id=due.group_id,
        )
        return Question(request, AddOffsetsToTxnResponse)
    if isinstance(due, CommitOffsetsDue):
        lowest = 0 if due.group.generation < 0 and not due.group.member_id else _FIRST_WITH_MEMBERS
        return Question(
            _commit(transactions, due),
            TxnOffsetCommitResponse,
            *((_FIRST_THAT_ADDS_OFFSETS, None) if is_implicit else (lowest, _FIRST_THAT_ADDS_OFFSETS - 1)),
        )
    return Question(
        EndTxnRequest(
            transactional_id=transactional_id,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            committed=due.commits,
        ),
        EndTxnResponse,
        *((_FIRST_WITH_EPOCH, None) if is_implicit else (0, _FIRST_WITH_EPOCH - 1)),
    )


def _commit(transactions: ProducerTransactions, due: CommitOffsetsDue) -> TxnOffsetCommitRequest:
    producer_id, producer_epoch = transactions.producer or (-1, -1)
    topics: dict[str, list[TxnOffsetCommitRequestPartition]] = {}
    for partition, (offset, leader_epoch) in due.offsets.items():
        row = TxnOffsetCommitRequestPartition(
            partition_index=partition.partition,
            committed_offset=offset,
            committed_leader_epoch=-1 if leader_epoch is None else leader_epoch,
        )
        topics.setdefault(partition.topic, []).append(row)
    return TxnOffsetCommitRequest(
        transactional_id=transactions.transactional_id,
        group_id=due.group.group_id,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        generation_id=due.group.generation,
        member_id=due.group.member_id,
        group_instance_id=due.group.group_instance_id,
        topics=[TxnOffsetCommitRequestTopic(name, rows) for name, rows in topics.items()],
    )


def verdict(answer: Any) -> Verdict:
    """What the answer says of the whole request: the code that decides most, of those of its partitions."""
    if isinstance(answer, AddPartitionsToTxnResponse):
        return Verdict(
            _worst(
                row.partition_error_code
                for topic in answer.results_by_topic_v3_and_below
                for row in topic.results_by_partition
            )
        )
    if isinstance(answer, TxnOffsetCommitResponse):
        return Verdict(_worst(row.error_code for topic in answer.topics for row in topic.partitions))
    code = code_of(answer.error_code)
    has_producer = code is Code.NONE and getattr(answer, "producer_id", -1) >= 0
    return Verdict(code, ProducerIdAndEpoch(answer.producer_id, answer.producer_epoch) if has_producer else None)


def _worst(numbers: Iterable[int]) -> Code:
    return max(map(code_of, numbers), key=_gravity, default=Code.NONE)


def _gravity(code: Code) -> int:
    if code is Code.NONE:
        return 0
    if code is Code.OPERATION_NOT_ATTEMPTED:  # another partition says why
        return 1
    if code in CERTAINLY_UNDONE:
        return 2
    return 3 if code.retriable else 4


def _by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for topic, index in partitions:
        found.setdefault(topic, []).append(index)
    return found

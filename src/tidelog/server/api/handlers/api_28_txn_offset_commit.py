"""TxnOffsetCommit 0-5: how far a group has read, to count once the producer's transaction commits (KIP-98).

Behaviour: pending until the marker comes, also over a change of the leader; members are fenced by generation, member id
and static name (3+, KIP-447); the leader epoch of the last record read is kept beside the offset (2+, KIP-320). The
transaction's coordinator is asked first whether the group's partition is in the transaction, or to add it (5), unless
the transaction is open here already (KIP-890). A partition that does not exist gets UNKNOWN_TOPIC_OR_PARTITION.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from tidelog.base.errors import Code, KafkaError
from tidelog.base.ids import ProducerEpoch, ProducerId, TopicPartition
from tidelog.server.api.existing_partitions import merged, take_out_missing
from tidelog.server.api.request_context import RequestContext, code_of
from tidelog.server.groups.transactional_commits import as_known, commit
from tidelog.wire.messages.api_28_txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)

if TYPE_CHECKING:
    from tidelog.server.api.ports import TransactionsApi


async def handle(
    node: TransactionsApi, request: TxnOffsetCommitRequest, context: RequestContext
) -> TxnOffsetCommitResponse:
    request.topics, unknown = take_out_missing(node.image, request.topics)
    topics: list[TxnOffsetCommitResponseTopic] = []
    if request.topics:
        answer = await _answer(node, request, context.api_version)
        if isinstance(answer, KafkaError):
            code = as_known(code_of(answer, "TxnOffsetCommit"), context.api_version)
            topics = _rows(request.topics, code)
        else:
            topics = answer.topics
    if unknown:
        topics = merged(topics + _rows(unknown, Code.UNKNOWN_TOPIC_OR_PARTITION))
    return TxnOffsetCommitResponse(topics=topics)


async def _answer(
    node: TransactionsApi, request: TxnOffsetCommitRequest, api_version: int
) -> TxnOffsetCommitResponse | KafkaError:
    async def verify(place: TopicPartition, adds: bool) -> Code:
        codes = await node.verification.verify(
            request.transactional_id,
            ProducerId(request.producer_id),
            ProducerEpoch(request.producer_epoch),
            [place],
            adds=adds,
        )
        return codes[place]

    try:
        answer = await commit(node.groups, request, api_version=api_version, verify=verify, now_ms=node.clock.wall_ms())
    except KafkaError as error:
        return error
    if isinstance(answer, asyncio.Future):
        answer = await answer
    assert isinstance(answer, TxnOffsetCommitResponse | KafkaError)
    return answer


def _rows(topics: list[TxnOffsetCommitRequestTopic], code: Code) -> list[TxnOffsetCommitResponseTopic]:
    return [
        TxnOffsetCommitResponseTopic(
            topic.name, [TxnOffsetCommitResponsePartition(one.partition_index, code) for one in topic.partitions]
        )
        for topic in topics
    ]

"""WriteTxnMarkers 1-2: a transaction ended; the leaders of its partitions write that down.

Behaviour: sent by transaction coordinators, and by tools that abort a hanging transaction. Each partition stands for
itself, and is answered once its marker is committed. An older coordinator gets TRANSACTION_COORDINATOR_FENCED, an older
producer epoch INVALID_PRODUCER_EPOCH; from transaction version 2 on (2+) the marker's epoch must be above that of the
records. Before, a marker that was written already, and comes when the producer's next transaction has begun, is told by
its number, a field of ours. One that was sent to an earlier leader gets FENCED_LEADER_EPOCH.
"""

from __future__ import annotations

import asyncio
from itertools import chain, repeat
from typing import TYPE_CHECKING

from tidelog.base.errors import Code, KafkaError
from tidelog.base.ids import LeaderEpoch, PartitionIndex, ProducerEpoch, ProducerId, TopicPartition
from tidelog.records.transaction_marker import TransactionMarker
from tidelog.server.api.request_context import RequestContext, code_of
from tidelog.wire.messages.api_27_write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)

if TYPE_CHECKING:
    from tidelog.server.api.ports import TransactionsApi


async def handle(
    node: TransactionsApi, request: WriteTxnMarkersRequest, context: RequestContext
) -> WriteTxnMarkersResponse:
    results = await asyncio.gather(*(_result(node, one) for one in request.markers))
    return WriteTxnMarkersResponse(markers=list(results))


async def _result(node: TransactionsApi, sent: WritableTxnMarker) -> WritableTxnMarkerResult:
    marker = TransactionMarker(
        ProducerId(sent.producer_id),
        ProducerEpoch(sent.producer_epoch),
        sent.transaction_result,
        LeaderEpoch(sent.coordinator_epoch),
        sent.transaction_version,
        None if sent.number < 0 else sent.number,
    )
    places = [
        (TopicPartition(one.name, PartitionIndex(index)), leader_epoch)
        for one in sent.topics
        for index, leader_epoch in zip(one.partition_indexes, chain(one.leader_epochs, repeat(-1)), strict=False)
    ]
    codes = iter(await asyncio.gather(*(_write(node, *place, marker) for place in places)))
    return WritableTxnMarkerResult(
        producer_id=sent.producer_id,
        topics=[
            WritableTxnMarkerTopicResult(
                name=topic.name,
                partitions=[
                    WritableTxnMarkerPartitionResult(partition_index=index, error_code=next(codes))
                    for index in topic.partition_indexes
                ],
            )
            for topic in sent.topics
        ],
    )


async def _write(node: TransactionsApi, place: TopicPartition, leader_epoch: int, marker: TransactionMarker) -> Code:
    try:
        await node.marker_writer.write(place, marker, leader_epoch)
    except KafkaError as error:
        return code_of(error, f"WriteTxnMarkers {place}")
    return Code.NONE

"""Fetch 4-18: committed records from the partitions that this broker leads.

Behaviour: waits up to MaxWaitMs for MinBytes; answers whole batches, the first of them whole however large. The
leader epoch is checked (KIP-320); whoever sends LastFetchedEpoch learns where its log diverged. Full fetches only: the
session id answered is 0, on which every client falls back. The HighWatermark field (KIP-1166) is for the metadata
quorum and means nothing here.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import TYPE_CHECKING

from tidelog.base.errors import Code, KafkaError
from tidelog.base.ids import TopicId
from tidelog.server.dispatch import RequestContext, code_of
from tidelog.server.partition import Partition
from tidelog.wire.messages.api_01_fetch import (
    EpochEndOffset,
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    LeaderIdAndEpoch,
    PartitionData,
)

if TYPE_CHECKING:
    from tidelog.server.node import Node

TOPIC_IDS_FROM_VERSION = 13


def handle(node: Node, request: FetchRequest, context: RequestContext) -> FetchResponse | Awaitable[FetchResponse]:
    if request.session_id != 0:
        return FetchResponse(error_code=Code.FETCH_SESSION_ID_NOT_FOUND)
    by_id = context.header.api_version >= TOPIC_IDS_FROM_VERSION
    reading = _Reading(node, request, by_id)
    response = reading.read()
    if reading.size_bytes >= request.min_bytes or reading.must_answer or request.max_wait_ms <= 0:
        return response
    return _wait(reading, request)


async def _wait(reading: _Reading, request: FetchRequest) -> FetchResponse:
    """Read again whenever a high watermark moves, until there is enough or the time is up."""
    loop = asyncio.get_running_loop()
    moved = asyncio.Event()
    partitions = reading.partitions
    for partition in partitions:
        partition.waiting.add(moved.set)
    is_late = False

    def on_deadline() -> None:
        nonlocal is_late
        is_late = True
        moved.set()

    timer = loop.call_later(request.max_wait_ms / 1000, on_deadline)
    moved.set()  # something may have come since the first look
    try:
        while True:
            await moved.wait()
            moved.clear()
            response = reading.read()
            if is_late or reading.must_answer or reading.size_bytes >= request.min_bytes:
                return response
    finally:
        timer.cancel()
        for partition in partitions:
            partition.waiting.discard(moved.set)


class _Reading:
    """One fetch request, read as often as it takes."""

    def __init__(self, node: Node, request: FetchRequest, by_id: bool) -> None:
        self._node = node
        self._request = request
        self._by_id = by_id
        self.partitions: list[Partition] = []
        self.size_bytes = 0
        self.must_answer = False  # an error or a divergence: the fetcher has to know now

    def read(self) -> FetchResponse:
        self.size_bytes = 0
        self.must_answer = False
        self.partitions = []
        topics = []
        for topic in self._request.topics:
            rows = [self._read_partition(topic, wanted) for wanted in topic.partitions]
            topics.append(FetchableTopicResponse(topic=topic.topic, topic_id=topic.topic_id, partitions=rows))
        return FetchResponse(responses=topics)

    def _read_partition(self, topic: FetchTopic, wanted: FetchPartition) -> PartitionData:
        broker = self._node.broker
        partition = None
        try:
            if self._by_id:
                partition = broker.partition_by_id(TopicId(topic.topic_id), wanted.partition)
            else:
                partition = broker.partition(topic.topic, wanted.partition)
            row = self._read_from(partition, wanted)
        except KafkaError as error:
            self.must_answer = True
            code = code_of(error, f"Fetch {topic.topic or topic.topic_id}-{wanted.partition}")
            # No records are empty, never null: librdkafka drops the connection over a null.
            row = PartitionData(partition_index=wanted.partition, error_code=code, high_watermark=-1, records=b"")
            if partition is not None and code in (Code.NOT_LEADER_OR_FOLLOWER, Code.FENCED_LEADER_EPOCH):
                leader_id, leader_epoch = broker.leader_of(partition.topic_partition)
                row.current_leader = LeaderIdAndEpoch(leader_id=leader_id, leader_epoch=leader_epoch)
        return row

    def _read_from(self, partition: Partition, wanted: FetchPartition) -> PartitionData:
        request = self._request
        partition.leader(wanted.current_leader_epoch)
        self.partitions.append(partition)
        row = PartitionData(
            partition_index=wanted.partition, error_code=0, high_watermark=-1, aborted_transactions=None
        )
        diverging = partition.diverging(wanted.last_fetched_epoch, wanted.fetch_offset)
        if diverging is not None:
            self.must_answer = True
            row.diverging_epoch = EpochEndOffset(epoch=diverging[0], end_offset=diverging[1])
            records = None
        else:
            left = min(request.max_bytes, self._node.config.fetch_size_bytes_max) - self.size_bytes
            records = partition.read(
                wanted.fetch_offset,
                sent_leader_epoch=wanted.current_leader_epoch,
                size_bytes_max=min(wanted.partition_max_bytes, left),
                isolation_level=request.isolation_level,
                at_least_one=self.size_bytes == 0,
            )
        if records is not None:
            self.size_bytes += len(records)
        row.records = b"" if records is None else records
        row.high_watermark = partition.high_watermark
        row.last_stable_offset = partition.last_stable_offset
        row.log_start_offset = partition.log.log_start_offset
        if request.isolation_level:
            row.aborted_transactions = []
        return row

"""A partition at a broker whose followers have not fetched all: what is not committed is neither seen nor deleted."""

from __future__ import annotations

import asyncio
from inspect import isawaitable
from types import SimpleNamespace
from typing import cast

import pytest

from support.fixtures.logs import FLIGHTS, NOW_MS, make_batch, open_log
from support.fixtures.memory_disk import MemoryDisk
from tidelog.base.errors import Code, KafkaError, OffsetOutOfRangeError
from tidelog.base.ids import BrokerId, LeaderEpoch, PartitionEpoch, TopicId
from tidelog.log import LogSlice
from tidelog.metadata import PartitionImage
from tidelog.replica import LeaderReplica, LogBounds, ReplicationSettings
from tidelog.server.api.handlers import api_02_list_offsets
from tidelog.server.api.request_context import RequestContext
from tidelog.server.node import Node
from tidelog.server.replication.partition import READ_UNCOMMITTED, Partition
from tidelog.wire.messages.api_02_list_offsets import (
    EARLIEST_TIMESTAMP,
    LATEST_TIMESTAMP,
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from tidelog.wire.primitives import ZERO_UUID

ONE, TWO = BrokerId(1), BrokerId(2)
BOTH = (ONE, TWO)
EPOCH = LeaderEpoch(4)
READ_COMMITTED = 1


def lead(partition: Partition, leader_epoch: LeaderEpoch, isr: tuple[BrokerId, ...]) -> None:
    log = partition.log
    log.assign_leader_epoch(leader_epoch)
    state = PartitionImage(BOTH, isr, ONE, leader_epoch, PartitionEpoch(9))
    settings = ReplicationSettings(min_insync_replicas=2)
    bounds = LogBounds(log.log_start_offset, log.log_end_offset)
    partition.lead(LeaderReplica(FLIGHTS, ONE, state, bounds, log.lineage, settings=settings, now_ms=0))


def led_with_two_records(*, isr: tuple[BrokerId, ...]) -> Partition:
    """Two replicas, of which both must be in sync; none of the records is committed."""
    log = open_log(MemoryDisk())
    partition = Partition(FLIGHTS, TopicId(ZERO_UUID), log)
    lead(partition, EPOCH, isr)
    partition.append(memoryview(make_batch("a")), acks_all=False, now_ms=NOW_MS)
    partition.append(memoryview(make_batch("b")), acks_all=False, now_ms=NOW_MS)
    assert (partition.high_watermark, log.log_end_offset) == (0, 2)
    return partition


def read(partition: Partition, offset: int, isolation_level: int) -> LogSlice | None:
    return partition.read(
        offset, sent_leader_epoch=EPOCH, size_bytes_max=1_000, isolation_level=isolation_level, at_least_one=True
    )


def list_offset(partition: Partition, timestamp: int, *, version: int = 5) -> ListOffsetsPartitionResponse:
    """What the handler answers, at a node that has this partition alone."""
    node = SimpleNamespace(broker=SimpleNamespace(partition=lambda name, index: partition))
    asked = ListOffsetsPartition(partition_index=0, timestamp=timestamp)
    request = ListOffsetsRequest(topics=[ListOffsetsTopic(name=FLIGHTS.topic, partitions=[asked])])

    async def answered() -> ListOffsetsResponse:
        context = cast(RequestContext, SimpleNamespace(api_version=version))
        response = api_02_list_offsets.handle(cast(Node, node), request, context)
        return await response if isawaitable(response) else response

    return asyncio.run(answered()).topics[0].partitions[0]


@pytest.mark.parametrize("isolation_level", [READ_UNCOMMITTED, READ_COMMITTED])
def test_between_the_high_watermark_and_the_log_end_there_is_nothing_to_see_and_no_error(isolation_level: int) -> None:
    partition = led_with_two_records(isr=BOTH)
    for offset in (0, 1, 2):
        assert read(partition, offset, isolation_level) is None
    with pytest.raises(OffsetOutOfRangeError):
        read(partition, 3, isolation_level)


def test_what_is_not_committed_is_not_deleted() -> None:
    partition = led_with_two_records(isr=BOTH)
    with pytest.raises(OffsetOutOfRangeError):
        partition.delete_records(1)
    assert partition.delete_records(None) == partition.log.log_start_offset == 0


def test_without_enough_in_sync_nothing_is_written_that_all_are_to_have() -> None:
    partition = led_with_two_records(isr=(ONE,))
    with pytest.raises(KafkaError) as refused:
        partition.append(memoryview(make_batch("c")), acks_all=True, now_ms=NOW_MS)
    assert refused.value.code is Code.NOT_ENOUGH_REPLICAS
    assert partition.log.log_end_offset == 2


@pytest.mark.parametrize("timestamp", [LATEST_TIMESTAMP, NOW_MS + 1])
def test_a_new_leader_tells_no_end_that_could_lie_below_what_was_read_already(timestamp: int) -> None:
    partition = led_with_two_records(isr=BOTH)
    assert (list_offset(partition, LATEST_TIMESTAMP).error_code, list_offset(partition, timestamp).error_code) == (0, 0)
    lead(partition, LeaderEpoch(EPOCH + 1), BOTH)
    assert list_offset(partition, timestamp).error_code == Code.OFFSET_NOT_AVAILABLE
    assert list_offset(partition, timestamp, version=4).error_code == Code.LEADER_NOT_AVAILABLE
    assert list_offset(partition, EARLIEST_TIMESTAMP).offset == 0

"""A partition at a broker: who is let in, and what is read, where nobody leads or the epochs differ."""

from __future__ import annotations

import time

import pytest

from support.fixtures.memory_disk import MemoryDisk
from tidelog.base.errors import Code, FencedLeaderEpochError, KafkaError, OffsetOutOfRangeError, UnknownLeaderEpochError
from tidelog.base.ids import BrokerId, LeaderEpoch, Offset, PartitionEpoch, PartitionIndex, TopicId, TopicPartition
from tidelog.log import Log, LogConfig
from tidelog.metadata import PartitionImage
from tidelog.records import BatchBuilder
from tidelog.replica import LeaderReplica, LogBounds, ReplicationSettings
from tidelog.server.replication.partition import Partition
from tidelog.wire.primitives import ZERO_UUID

PARTITION = TopicPartition("flights", PartitionIndex(0))
BROKER = BrokerId(1)
NOW_MS = 1_700_000_000_000


def stopped_partition() -> Partition:
    disk = MemoryDisk()
    log = Log.open(disk, "logs/flights-0", PARTITION, LogConfig(), topic_id=None, clean_shutdown=True, now_ms=NOW_MS)
    return Partition(PARTITION, TopicId(ZERO_UUID), log)


def lead(partition: Partition, leader_epoch: int) -> None:
    epoch = LeaderEpoch(leader_epoch)
    log = partition.log
    log.assign_leader_epoch(epoch)
    state = PartitionImage((BROKER,), (BROKER,), BROKER, epoch, PartitionEpoch(leader_epoch))
    bounds = LogBounds(log.log_start_offset, log.log_end_offset)
    partition.lead(
        LeaderReplica(PARTITION, BROKER, state, bounds, log.lineage, settings=ReplicationSettings(), now_ms=0)
    )


def append(partition: Partition, *values: bytes) -> None:
    builder = BatchBuilder()
    for value in values:
        builder.append(NOW_MS, None, value)
    partition.append(memoryview(bytearray(builder.build())), acks_all=True, now_ms=NOW_MS)


def test_without_a_leader_here_epochs_that_differ_say_more_than_not_leader() -> None:
    partition = stopped_partition()
    partition.stop(LeaderEpoch(5))
    with pytest.raises(FencedLeaderEpochError):
        partition.leader(4)
    with pytest.raises(UnknownLeaderEpochError):
        partition.leader(6)
    for agreeing in (5, -1):
        with pytest.raises(KafkaError) as refused:
            partition.leader(agreeing)
        assert refused.value.code is Code.NOT_LEADER_OR_FOLLOWER


def test_the_high_watermark_outlives_the_leadership() -> None:
    partition = stopped_partition()
    lead(partition, 0)
    append(partition, b"a", b"b")
    assert partition.high_watermark == 2
    partition.stop()
    assert partition.high_watermark == 2  # what the checkpoint is written from


def test_where_a_fetcher_diverged() -> None:
    partition = stopped_partition()
    lead(partition, 0)
    append(partition, b"a", b"b", b"c")
    lead(partition, 2)
    append(partition, b"d")
    assert partition.diverging(-1, 100) is None  # it says nothing of its epoch
    assert partition.diverging(0, 3) is None
    assert partition.diverging(2, 4) is None
    assert partition.diverging(0, 4) == (0, 3)  # its fourth record of epoch 0 is not ours
    assert partition.diverging(1, 2) == (0, 3)  # we never had epoch 1
    with pytest.raises(OffsetOutOfRangeError):
        partition.diverging(3, 4)  # from the future: nothing can be said


class Watching:
    """Counts what it is told."""

    def __init__(self) -> None:
        self.count = 0

    def on_changed(self) -> None:
        self.count += 1


def test_those_who_watch_are_told_once_and_have_to_watch_again() -> None:
    partition = stopped_partition()
    lead(partition, 0)
    first, gone = Watching(), Watching()
    partition.listeners.add(first)
    partition.listeners.add(gone)
    partition.listeners.remove(gone)
    append(partition, b"a")
    append(partition, b"b")
    assert first.count == 1
    partition.listeners.add(first)
    partition.log.advance_log_start_offset(Offset(1))
    partition.on_log_start_moved()
    assert first.count == 2
    partition.listeners.add(first)
    partition.stop()
    assert first.count == 3
    assert gone.count == 0


def test_lengths_that_cannot_be_are_not_walked_one_by_one() -> None:
    """Thirty megabytes of zeros are two and a half million batches of no bytes, for whoever believes it."""
    partition = stopped_partition()
    lead(partition, 1)
    zeros = memoryview(bytearray(30_000_000))
    started = time.process_time()
    with pytest.raises(KafkaError):
        partition.append(zeros, acks_all=True, now_ms=NOW_MS)
    assert time.process_time() - started < 0.3

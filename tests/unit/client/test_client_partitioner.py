"""Partitions for records without a key, and routes for all."""

from __future__ import annotations

import random
from itertools import pairwise

import pytest

from tidelog.base.errors import KafkaError
from tidelog.base.ids import BrokerId, LeaderEpoch, PartitionIndex, TopicPartition
from tidelog.client.core.accumulator import PartitionQueue
from tidelog.client.core.metadata_cache import CachedPartition, TopicView
from tidelog.client.core.partitioner import StickyPartitioner
from tidelog.client.core.route import Route
from tidelog.records.keys import partition_for_key


class SeededRng(random.Random):
    """The `Rng` port over a seed."""

    def uuid(self) -> None:
        raise NotImplementedError


def test_records_without_a_key_stick_to_a_partition_for_a_batch_then_move() -> None:
    partitioner = StickyPartitioner(1_000, SeededRng(1))  # type: ignore[arg-type]
    chosen = [partitioner.partition(100, [0, 1, 2]) for _ in range(100)]
    runs = [chosen[start : start + 10] for start in range(0, 100, 10)]
    assert all(len(set(run)) == 1 for run in runs)
    assert all(before[0] != after[0] for before, after in pairwise(runs))
    assert set(chosen) == {0, 1, 2}


def view(index: int, leader: int | None) -> CachedPartition:
    return CachedPartition(PartitionIndex(index), None if leader is None else BrokerId(leader), LeaderEpoch(0))


def test_a_route_prefers_partitions_that_have_a_leader_but_keys_go_where_they_must() -> None:
    topic = TopicView("t", None, False, {PartitionIndex(i): view(i, None if i == 1 else 1) for i in range(3)})
    made: list[TopicPartition] = []

    def queue(partition: TopicPartition) -> PartitionQueue:
        made.append(partition)
        return PartitionQueue(partition)

    route = Route(topic, queue, sticky_bytes=1, rng=SeededRng(2))  # type: ignore[arg-type]
    for _ in range(50):
        assert route.queue(None, None, 10).topic_partition.partition != 1
    key = next(key for key in (b"%d" % i for i in range(100)) if partition_for_key(key, 3) == 1)
    assert route.queue(None, key, 10).topic_partition == ("t", 1)
    assert route.queue(2, key, 10) is route.queue(2, None, 1)
    assert len(made) == len(set(made))
    with pytest.raises(KafkaError, match="topic 't' has no partition 3: it has 3, counted from 0"):
        route.queue(3, None, 1)

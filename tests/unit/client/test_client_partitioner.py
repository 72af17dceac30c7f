"""Partitions for keys as every other client chooses them, and for records without."""

from __future__ import annotations

import random
import warnings
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.base.errors import KafkaError
from tidelog.base.ids import BrokerId, LeaderEpoch, PartitionIndex, TopicPartition
from tidelog.client.core.accumulator import PartitionQueue
from tidelog.client.core.metadata_cache import PartitionView, TopicView
from tidelog.client.core.partitioner import KeyPartitioner, StickyPartitioner, murmur2, partition_for_key
from tidelog.client.core.route import Route

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # of how it loads its schemas
    from kafka.partitioner.default import murmur2 as reference_murmur2


class SeededRng(random.Random):
    """The `Rng` port over a seed."""

    def uuid(self) -> None:
        raise NotImplementedError


# Published with Kafka's own hash, as signed numbers.
@pytest.mark.parametrize(
    ("key", "signed"),
    [
        (b"21", -973932308),
        (b"foobar", -790332482),
        (b"a-little-bit-long-string", -985981536),
        (b"a-little-bit-longer-string", -1486304829),
        (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
        (b"abc", 479470107),
    ],
)
def test_the_hash_is_kafkas(key: bytes, signed: int) -> None:
    assert murmur2(key) == signed & 0xFFFFFFFF


@given(st.binary(max_size=70))
def test_the_hash_is_the_same_as_another_clients(key: bytes) -> None:
    assert murmur2(key) == reference_murmur2(key) & 0xFFFFFFFF


def test_a_key_always_has_one_partition_and_all_are_used() -> None:
    keys = [b"%d" % number for number in range(1_000)]
    partitioner = KeyPartitioner(7)
    first = [partitioner.partition(key) for key in keys]
    assert first == [partitioner.partition(key) for key in keys] == [partition_for_key(key, 7) for key in keys]
    assert set(first) == set(range(7))


def test_the_memory_of_keys_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(KeyPartitioner, "SEEN_COUNT_MAX", 10)
    partitioner = KeyPartitioner(3)
    for number in range(100):
        partitioner.partition(b"%d" % number)
    assert len(partitioner._seen) <= 10


def test_records_without_a_key_stick_to_a_partition_for_a_batch_then_move() -> None:
    partitioner = StickyPartitioner(1_000, SeededRng(1))  # type: ignore[arg-type]
    chosen = [partitioner.partition(100, [0, 1, 2]) for _ in range(100)]
    runs = [chosen[start : start + 10] for start in range(0, 100, 10)]
    assert all(len(set(run)) == 1 for run in runs)
    assert all(before[0] != after[0] for before, after in pairwise(runs))
    assert set(chosen) == {0, 1, 2}


def view(index: int, leader: int | None) -> PartitionView:
    return PartitionView(PartitionIndex(index), None if leader is None else BrokerId(leader), LeaderEpoch(0))


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

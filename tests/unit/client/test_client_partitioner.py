"""Partitions for records without a key, and routes for all."""

from __future__ import annotations

import random
from array import array
from itertools import pairwise
from typing import Any

import pytest

from tidelog.base.errors import KafkaError
from tidelog.base.ids import BrokerId, LeaderEpoch, PartitionIndex, TopicPartition
from tidelog.client.core.accumulator import PartitionQueue
from tidelog.client.core.metadata_cache import CachedPartition, TopicView
from tidelog.client.core.partitioner import ChoosePartition, Partitioner, StickyPartitioner
from tidelog.client.core.route import Route
from tidelog.client.producer_arguments import rows_by_target
from tidelog.records.columns import ColumnBuffers
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


def partitioner(given: str | ChoosePartition, available: list[int] | None = None) -> Partitioner:
    rng: Any = SeededRng(3)
    return Partitioner(given, "t", 4, available or [0, 1, 2, 3], sticky_bytes=1_000, rng=rng)


def test_a_key_without_bytes_is_none_to_crc32_alone() -> None:
    for given, is_key in (("murmur2", True), ("fnv1a", True), ("crc32", False)):
        named = partitioner(given)
        assert (len({named.partition(b"", 1_000) for _ in range(50)}) == 1) == is_key, given


def test_round_robin_takes_one_partition_after_the_other_whatever_the_keys() -> None:
    in_turns = partitioner("round_robin", [0, 2, 3])
    assert [in_turns.partition(key, 10) for key in (b"a", None, b"a", b"a")] == [0, 2, 3, 0]


def test_sticky_does_not_look_at_keys() -> None:
    sticky = partitioner("sticky")
    assert len({sticky.partition(b"%d" % number, 10) for number in range(100)}) == 1


def test_a_function_is_asked_for_the_key_with_all_partitions_and_those_that_can_be_written() -> None:
    asked: list[tuple[bytes | None, list[int], list[int]]] = []

    def choose(key: bytes | None, partitions: list[int], available: list[int]) -> int:
        asked.append((key, partitions, available))
        return available[-1]

    users = partitioner(choose, [0, 2])
    assert (users.ask(b"k"), users.ask(None)) == (2, 2)
    assert asked == [(b"k", [0, 1, 2, 3], [0, 2]), (None, [0, 1, 2, 3], [0, 2])]
    assert users.of_row() == users.ask


def test_what_a_function_returns_is_a_partition_of_the_topic() -> None:
    with pytest.raises(KafkaError, match="topic 't' has no partition 4: it has 4, counted from 0"):
        partitioner(lambda key, partitions, available: 4).ask(b"k")
    nothing: Any = lambda key, partitions, available: None  # noqa: E731
    with pytest.raises(TypeError, match="the partitioner returned None for topic 't', which is no whole number"):
        partitioner(nothing).ask(b"k")
    fraction: Any = lambda key, partitions, available: 1.0  # noqa: E731
    with pytest.raises(TypeError, match=r"returned 1\.0 for topic 't', which is no whole number"):
        partitioner(fraction).ask(b"k")


class Whole:
    """A whole number that is no int, as numpy's are."""

    def __index__(self) -> int:
        return 3


def test_a_function_may_compute_with_numpy() -> None:
    found: Any = Whole()
    partition = partitioner(lambda key, partitions, available: found).ask(b"k")
    assert (partition, type(partition)) == (3, int)


def test_a_function_that_says_true_names_a_partition_by_its_number() -> None:
    """Else a future would be of partition True, and so would an error's text."""
    assert repr(partitioner(lambda key, partitions, available: key is not None).ask(b"k")) == "1"


@pytest.mark.parametrize("given", ["murmur2", "crc32", "fnv1a", "sticky", "round_robin"])
def test_rows_of_columns_go_where_records_go(given: str) -> None:
    keys = [None, b"", b"a", b"bb", b"ccc", b"a", None, b"d" * 40]
    rows, records = partitioner(given), partitioner(given)
    of_row = rows.of_row() or (lambda key: None if key is None else partition_for_key(key, 4))
    found = [of_row(key) for key in keys]
    expected = [records.partition(key, 10) for key in keys]
    keyless = given == "sticky"
    assert [one for one in found if one is not None] == [
        one for one, key, row in zip(expected, keys, found, strict=True) if row is not None
    ]
    assert [row is None for row in found] == [
        keyless or (given != "round_robin" and (key is None or (given == "crc32" and not key))) for key in keys
    ]


def test_rows_of_a_topic_with_one_partition_go_there_even_if_it_grows_meanwhile() -> None:
    """Else rows with a key would go where those without one go."""
    led = CachedPartition(PartitionIndex(0), BrokerId(1), LeaderEpoch(0))
    topic = TopicView("t", None, False, {PartitionIndex(0): led})
    columns = ColumnBuffers(1, key_offsets=memoryview(array("i", [0, 1])), key_data=b"k")
    rng: Any = SeededRng(2)
    assert rows_by_target(columns, Route(topic, PartitionQueue, sticky_bytes=1, rng=rng)) == [(0, None)]
    second = Route(topic, PartitionQueue, lambda key, partitions, available: 1, sticky_bytes=1, rng=rng)
    with pytest.raises(KafkaError, match="topic 't' has no partition 1: it has 1, counted from 0"):
        rows_by_target(columns, second)

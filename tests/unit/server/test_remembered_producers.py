"""How many producers the logs of a node remember, and which are forgotten first."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.fixtures.logs import make_batch
from tidelog.log.producer_state import ProducerStates
from tidelog.records.header import read_header
from tidelog.server.broker import remembered_producers
from tidelog.server.broker.remembered_producers import RememberedProducers


def partition_of(producer_ids: Sequence[int], in_transaction: Sequence[int] = ()) -> Any:
    producers = ProducerStates()
    for offset, producer_id in enumerate(producer_ids):
        batch = make_batch(
            "v",
            producer_id=producer_id,
            producer_epoch=0,
            base_sequence=0,
            transactional=producer_id in in_transaction,
        )
        producers.remember(read_header(batch), offset, offset, 0, 0)
    return SimpleNamespace(log=SimpleNamespace(producers=producers), topic_partition="a-0")


def ids(partition: Any) -> list[int]:
    return [state.producer_id for state in partition.log.producers]


def forget(count_max: int, *partitions: Any) -> RememberedProducers:
    remembered = RememberedProducers(lambda: cast(Any, partitions))
    remembered.count_max = count_max
    asyncio.run(remembered.forget_excess())
    return remembered


def test_those_that_were_quiet_for_longest_go_first() -> None:
    partition = partition_of([1, 2, 3, 4, 1])
    remembered = forget(2, partition)
    assert ids(partition) == [4, 1]
    assert (remembered.count, remembered.forgotten) == (2, 2)


def test_producers_with_open_transactions_stay() -> None:
    partition = partition_of([1, 2, 3, 4], in_transaction=[1, 2])
    forget(1, partition)
    assert ids(partition) == [1, 2]


def test_partitions_with_few_producers_keep_theirs() -> None:
    few, many = partition_of([1, 2]), partition_of(range(100))
    forget(10, few, many)
    assert (ids(few), ids(many)) == ([1, 2], list(range(92, 100)))


@given(st.lists(st.integers(0, 30), max_size=8), st.integers(1, 60))
def test_there_are_no_more_than_the_limit_and_no_fewer_than_must_go(sizes: list[int], count_max: int) -> None:
    partitions = [partition_of(range(size)) for size in sizes]
    remembered = forget(count_max, *partitions)
    assert remembered.count <= count_max
    assert remembered.count >= min(sum(sizes), count_max - len(sizes))


def test_many_are_forgotten_in_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remembered_producers, "FORGOTTEN_AT_ONCE_MAX", 3)
    partition = partition_of(range(20))
    assert forget(5, partition).forgotten == 15
    assert ids(partition) == list(range(15, 20))

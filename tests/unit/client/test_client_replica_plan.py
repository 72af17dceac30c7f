"""Plans of who is to hold what: even, over racks, and with no move that is not needed."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.base.errors import ConfigError
from tidelog.base.ids import PartitionIndex, TopicPartition
from tidelog.client.core.replica_plan import plan

NO_RACKS: dict[int, str | None] = {1: None, 2: None, 3: None, 4: None}
RACKS: dict[int, str | None] = {1: "a", 2: "a", 3: "b", 4: "b", 5: "c"}


def partitions(*replicas: tuple[int, ...]) -> dict[TopicPartition, tuple[int, ...]]:
    return {TopicPartition("t", PartitionIndex(index)): each for index, each in enumerate(replicas)}


def test_what_is_spread_already_stays() -> None:
    current = partitions((1, 2), (2, 3), (3, 4), (4, 1))
    assert plan(current, NO_RACKS) == {}


def test_a_new_broker_takes_its_share_and_nothing_else_moves() -> None:
    current = partitions((1, 2), (2, 3), (3, 1), (1, 2), (2, 3), (3, 1))
    planned = plan(current, NO_RACKS)
    moved = [set(after) - set(current[partition]) for partition, after in planned.items()]
    assert [each for each in moved if each] == [{4}] * 3
    assert Counter(broker for each in (current | planned).values() for broker in each) == {1: 3, 2: 3, 3: 3, 4: 3}


def test_who_may_hold_nothing_more_gives_all_away() -> None:
    current = partitions((1, 2), (2, 1), (1, 3))
    planned = plan(current, {2: None, 3: None})
    assert all(set(each) == {2, 3} for each in (current | planned).values())


def test_each_rack_before_any_twice() -> None:
    planned = plan(partitions((1, 2, 3)), RACKS)
    (after,) = planned.values()
    assert {RACKS[broker] for broker in after} == {"a", "b", "c"}
    assert len(set(after) & {1, 2, 3}) == 2


def test_another_replication_factor() -> None:
    assert plan(partitions((1, 2, 3)), RACKS, replication_factor=2) == partitions((1, 3))
    (after,) = plan(partitions((3,)), RACKS, replication_factor=3).values()
    assert 3 in after
    assert {RACKS[broker] for broker in after} == {"a", "b", "c"}


def test_first_replicas_change_places() -> None:
    planned = plan(partitions((1, 2), (1, 2), (1, 2), (1, 2)), {1: None, 2: None})
    assert list(planned.values()) == [(2, 1), (2, 1)]


@pytest.mark.parametrize(("brokers", "told"), [({}, "no broker is left"), ({1: None}, "2 replicas.* by 1 brokers: 1")])
def test_too_few_brokers(brokers: dict[int, str | None], told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        plan(partitions((1, 2)), brokers)


@given(st.data())
def test_every_plan_is_even_and_uses_racks_and_is_final(data: st.DataObject) -> None:
    brokers = data.draw(st.lists(st.integers(1, 8), min_size=1, max_size=6, unique=True))
    racks = {broker: data.draw(st.sampled_from(["a", "b", "c", None])) for broker in brokers}
    factor = data.draw(st.integers(1, len(brokers)))
    replicas = st.lists(st.integers(1, 8), min_size=1, max_size=4, unique=True).map(tuple)
    current = partitions(*data.draw(st.lists(replicas, min_size=1, max_size=12)))
    planned = current | plan(current, racks, replication_factor=factor)
    assert all(len(each) == len(set(each)) == factor and set(each) <= set(brokers) for each in planned.values())
    held = Counter(dict.fromkeys(brokers, 0))
    held.update(broker for each in planned.values() for broker in each)
    if len(set(racks.values())) == 1:
        assert max(held.values()) - min(held.values()) <= 1
    for each in planned.values():
        assert len({racks[broker] for broker in each}) == min(factor, len(set(racks.values())))
    assert plan(planned, racks, replication_factor=factor) == {}, "nothing is left to do"

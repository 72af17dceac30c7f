"""Leaderships go back to the preferred replicas where that costs nothing."""

from __future__ import annotations

from dataclasses import replace
from uuid import UUID

from tidelog.base.ids import TopicId
from tidelog.controller import ControllerSettings, ControllerState
from tidelog.metadata.records import PartitionRecord, RegisterBrokerRecord, TopicRecord

TOPIC = TopicId(UUID(int=77))


def cluster(*partitions: tuple[list[int], list[int], int], fenced: tuple[int, ...] = ()) -> ControllerState:
    """Partitions as (replicas, ISR, leader)."""
    state = ControllerState(ControllerSettings())
    for number in (1, 2, 3):
        state.apply(
            RegisterBrokerRecord(
                broker_id=number,
                incarnation_id=UUID(int=number),
                broker_epoch=number,
                end_points=[],
                features=[],
                fenced=number in fenced,
            )
        )
    state.apply(TopicRecord(name="flights", topic_id=TOPIC))
    for index, (replicas, isr, leader) in enumerate(partitions):
        state.apply(
            PartitionRecord(
                partition_id=index,
                topic_id=TOPIC,
                replicas=replicas,
                isr=isr,
                leader=leader,
                leader_epoch=3,
                partition_epoch=4,
                adding_replicas=[replicas[0]] if len(replicas) > 3 else [],
            )
        )
    return state


def balanced(state: ControllerState) -> list[tuple[int | None, int]]:
    for record in state.decide_balance_leaders().records:
        state.apply(record)
    return [(one.leader, one.leader_epoch) for one in state.metadata.topics_by_id[TOPIC].partitions]


def test_only_where_the_preferred_replica_is_in_sync_and_alive() -> None:
    state = cluster(
        ([1, 2, 3], [1, 2, 3], 2),
        ([1, 2, 3], [2, 3], 2),
        ([2, 1, 3], [1, 2, 3], 2),
        ([3, 1, 2], [1, 3], 1),
        ([1, 2, 3], [], -1),
        fenced=(3,),
    )
    assert balanced(state) == [(1, 4), (2, 3), (2, 3), (1, 3), (None, 3)]
    assert state.decide_balance_leaders().reply == 0


def test_what_is_on_its_way_waits() -> None:
    assert balanced(cluster(([3, 1, 2, 4], [1, 2, 3], 1))) == [(1, 3)]


def test_some_at_a_time() -> None:
    state = cluster(*[([1, 2, 3], [1, 2, 3], 2)] * 3)
    state.settings = replace(state.settings, partition_changes_max=2)
    assert balanced(state) == [(1, 4), (1, 4), (2, 3)]
    assert balanced(state) == [(1, 4), (1, 4), (1, 4)]

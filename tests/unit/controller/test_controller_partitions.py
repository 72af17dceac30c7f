"""Topics that grow: counts, assignments, and who may lead."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

import pytest

from tidelog.base.errors import Code
from tidelog.base.ids import BrokerId, Offset
from tidelog.controller import (
    BrokerToRegister,
    ControllerSettings,
    ControllerState,
    GrownTopic,
    TopicToCreate,
    TopicToGrow,
)
from tidelog.controller.partitions import PARTITIONS_PER_REQUEST_MAX
from tidelog.metadata import RegisteredEndpoint
from tidelog.metadata.records import PartitionChangeRecord, PartitionRecord


class FirstRng:
    """Takes the first of whatever there is; ids are counted."""

    def __init__(self, next_id: int = 77) -> None:
        self._next_id = next_id

    def random(self) -> float:
        return 0.0

    def randrange(self, start: int, stop: int) -> int:
        return start

    def uuid(self) -> UUID:
        self._next_id += 1
        return UUID(int=self._next_id)


def cluster(brokers: int = 3, fenced: Sequence[int] = (), replicas: int = 2, partitions: int = 2) -> ControllerState:
    """A cluster with topic t; those in `fenced` are fenced after it was made."""
    state = ControllerState(ControllerSettings())
    epochs = {}
    for number in range(1, brokers + 1):
        broker = BrokerToRegister(
            BrokerId(number),
            UUID(int=number),
            (RegisteredEndpoint("PLAINTEXT", "h", 9092),),
            log_dirs=(UUID(int=100 + number),),
        )
        registered = state.decide_register_broker(broker, next_offset=Offset(number))
        apply(state, registered.records)
        epochs[number] = registered.reply.broker_epoch
        apply(state, state.decide_unfence_broker(BrokerId(number), epochs[number]).records)
    new = TopicToCreate("t", num_partitions=partitions, replication_factor=replicas)
    apply(state, state.decide_create_topics([new], rng=FirstRng()).records)
    for number in fenced:
        apply(state, state.decide_fence_broker(BrokerId(number), epochs[number]).records)
    return state


def apply(state: ControllerState, records: Sequence[object]) -> None:
    for record in records:
        state.apply(record)


def grow(state: ControllerState, *topics: TopicToGrow, validate_only: bool = False) -> tuple[GrownTopic, ...]:
    decision = state.decide_create_partitions(topics, rng=FirstRng(), validate_only=validate_only)
    apply(state, decision.records)
    return decision.reply


def to(count: int, *assignments: Sequence[int]) -> TopicToGrow:
    return TopicToGrow("t", count, [tuple(map(BrokerId, one)) for one in assignments] or None)


def test_the_new_partitions_are_led_and_as_many_times_there_as_the_others() -> None:
    state = cluster()
    decision = state.decide_create_partitions([to(5)], rng=FirstRng())
    assert [one.partition_id for one in decision.records if isinstance(one, PartitionRecord)] == [2, 3, 4]
    apply(state, decision.records)
    for partition in state.metadata.topics_by_name["t"].partitions:
        assert len(partition.replicas) == 2
        assert partition.leader == partition.replicas[0]
        assert partition.leader_epoch == 0


def test_by_hand() -> None:
    state = cluster()
    (result,) = grow(state, to(4, (3, 1), (2, 3)))
    assert result.code == Code.NONE
    assert [one.replicas for one in state.metadata.topics_by_name["t"].partitions[2:]] == [(3, 1), (2, 3)]
    assert state.metadata.topics_by_name["t"].partitions[2].directories == (UUID(int=103), UUID(int=101))


def test_a_fenced_broker_gets_a_replica_and_does_not_lead() -> None:
    state = cluster(fenced=[3])
    (result,) = grow(state, to(3, (3, 1)))
    assert result.code == Code.NONE
    added = state.metadata.topics_by_name["t"].partitions[2]
    assert (added.replicas, added.isr, added.leader) == ((3, 1), (1,), 1)


def test_validating_adds_nothing() -> None:
    state = cluster()
    assert grow(state, to(3), validate_only=True) == (GrownTopic("t", Code.NONE),)
    assert len(state.metadata.topics_by_name["t"].partitions) == 2


@pytest.mark.parametrize(
    ("topic", "code", "says"),
    [
        (to(2), Code.INVALID_PARTITIONS, "has 2 partitions already"),
        (to(1), Code.INVALID_PARTITIONS, "cannot shrink to 1"),
        (to(-1), Code.INVALID_PARTITIONS, "cannot shrink"),
        (to(PARTITIONS_PER_REQUEST_MAX + 3), Code.POLICY_VIOLATION, "10000 is the limit"),
        (TopicToGrow("t", 3, []), Code.INVALID_REPLICA_ASSIGNMENT, "takes 1 assignments"),
        (to(4, (1, 2)), Code.INVALID_REPLICA_ASSIGNMENT, "takes 2 assignments"),
        (to(3, (1, 2), (2, 3)), Code.INVALID_REPLICA_ASSIGNMENT, "not 2"),
        (to(3, (1,)), Code.INVALID_REPLICA_ASSIGNMENT, "partition 2 has 1 replicas, partition 0 has 2"),
        (to(3, ()), Code.INVALID_REPLICA_ASSIGNMENT, "partition 2 has no replicas"),
        (to(3, (1, 1)), Code.INVALID_REPLICA_ASSIGNMENT, "twice"),
        (to(3, (1, 9)), Code.INVALID_REPLICA_ASSIGNMENT, "broker 9, which is not registered"),
        (TopicToGrow("nowhere", 3), Code.UNKNOWN_TOPIC_OR_PARTITION, "nowhere"),
        (TopicToGrow("__consumer_offsets", 60), Code.INVALID_TOPIC_EXCEPTION, "belongs to the cluster"),
        (TopicToGrow("__cluster_metadata", 60), Code.INVALID_TOPIC_EXCEPTION, "belongs to the cluster"),
    ],
)
def test_what_is_wrong_is_refused(topic: TopicToGrow, code: Code, says: str) -> None:
    state = cluster()
    before = state.metadata.image(None)
    (result,) = grow(state, topic)
    assert result.code == code
    assert says in (result.message or "")
    assert state.metadata.image(None) == before


def test_nobody_to_lead() -> None:
    state = cluster(fenced=[1, 2, 3])
    assert grow(state, to(3, (1, 2)))[0].code == Code.INVALID_REPLICA_ASSIGNMENT
    assert grow(state, to(3))[0].code == Code.INVALID_REPLICATION_FACTOR


def test_a_topic_whose_replicas_move_waits() -> None:
    state = cluster()
    topic_id = state.metadata.topics_by_name["t"].topic_id
    state.apply(PartitionChangeRecord(partition_id=1, topic_id=topic_id, adding_replicas=[3]))
    assert grow(state, to(3))[0].code == Code.REASSIGNMENT_IN_PROGRESS
    state.apply(PartitionChangeRecord(partition_id=1, topic_id=topic_id, adding_replicas=[], removing_replicas=[2]))
    assert grow(state, to(3))[0].code == Code.REASSIGNMENT_IN_PROGRESS


def test_each_topic_stands_for_itself_and_a_repeated_one_is_refused() -> None:
    state = cluster()
    results = grow(state, TopicToGrow("nowhere", 2), to(3))
    assert [one.code for one in results] == [Code.UNKNOWN_TOPIC_OR_PARTITION, Code.NONE]
    assert [one.code for one in grow(state, to(4), to(5))] == [Code.INVALID_REQUEST] * 2
    assert len(state.metadata.topics_by_name["t"].partitions) == 3


def test_a_request_adds_so_many_partitions_at_most_in_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tidelog.controller.partitions.PARTITIONS_PER_REQUEST_MAX", 3)
    state = cluster()
    apply(state, state.decide_create_topics([TopicToCreate("u", num_partitions=1)], rng=FirstRng(90)).records)
    assert [one.code for one in grow(state, to(4), TopicToGrow("u", 2))] == [Code.NONE] * 2
    results = grow(state, to(6), TopicToGrow("u", 4))
    assert [one.code for one in results] == [Code.NONE, Code.POLICY_VIOLATION]


def test_a_new_partition_has_as_many_replicas_as_the_first_one() -> None:
    state = cluster(replicas=1)
    topic_id = state.metadata.topics_by_name["t"].topic_id
    state.apply(PartitionChangeRecord(partition_id=1, topic_id=topic_id, replicas=[1, 2, 3]))
    grow(state, to(3))
    assert len(state.metadata.topics_by_name["t"].partitions[2].replicas) == 1

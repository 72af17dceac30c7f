"""Creating and deleting topics: every rule, one by one and several in a request."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from typing import TypeVar
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.base.errors import Code
from tidelog.base.ids import BrokerId, ClusterId, Offset, PartitionIndex, TopicId
from tidelog.controller import (
    BrokerToRegister,
    ControllerSettings,
    ControllerState,
    CreateTopicResult,
    DeletedTopic,
    TopicToCreate,
    TopicToDelete,
)
from tidelog.controller.placement import place
from tidelog.journal import Decision
from tidelog.metadata import BrokerImage, RegisteredEndpoint
from tidelog.metadata.configs import ConfigSource
from tidelog.metadata.records import ConfigRecord, PartitionRecord, RemoveTopicRecord, TopicRecord
from tidelog.metadata.topic_names import TOPIC_NAME_LENGTH_MAX

T = TypeVar("T")
CLUSTER = ClusterId("AAAAAAAAAAAAAAAAAAAAAA")


class SeededRng:
    """Reproducible; `uuids` come first, if there are any."""

    def __init__(self, seed: int = 0, uuids: Sequence[UUID] = ()) -> None:
        self._random = random.Random(seed)
        self._uuids = list(uuids)

    def random(self) -> float:
        return self._random.random()

    def randrange(self, start: int, stop: int) -> int:
        return self._random.randrange(start, stop)

    def uuid(self) -> UUID:
        return self._uuids.pop(0) if self._uuids else UUID(int=self._random.getrandbits(128), version=4)


def cluster(brokers: int = 1, fenced: Sequence[int] = (), **settings: object) -> ControllerState:
    state = ControllerState(ControllerSettings(cluster_id=CLUSTER, **settings))  # type: ignore[arg-type]
    offset = 0
    for number in range(1, brokers + 1):
        broker = BrokerToRegister(
            BrokerId(number),
            UUID(int=number),
            (RegisteredEndpoint("PLAINTEXT", "h", 9092),),
            log_dirs=(UUID(int=100 + number),),
        )
        registered = run(state, state.decide_register_broker(broker, next_offset=Offset(offset)))
        offset += 1
        if number not in fenced:
            run(state, state.decide_unfence_broker(BrokerId(number), registered.broker_epoch))
            offset += 1
    return state


def run(state: ControllerState, decision: Decision[T]) -> T:
    for record in decision.records:
        state.apply(record)
    return decision.reply


def create(
    state: ControllerState, *topics: TopicToCreate, validate_only: bool = False
) -> tuple[CreateTopicResult, ...]:
    return run(state, state.decide_create_topics(topics, rng=SeededRng(), validate_only=validate_only))


def refused(state: ControllerState, topic: TopicToCreate) -> tuple[Code, str]:
    before = state.metadata.image(None)
    decision = state.decide_create_topics([topic], rng=SeededRng())
    assert decision.records == ()
    (result,) = decision.reply
    assert result.topic_id is None
    assert result.configs == ()
    assert state.metadata.image(None) == before
    return result.code, result.message or ""


def test_a_topic_is_created_with_its_partitions_led() -> None:
    state = cluster(1)
    decision = state.decide_create_topics(
        [TopicToCreate("a", num_partitions=2, configs=[("retention.ms", "5")])], rng=SeededRng()
    )
    (result,) = decision.reply
    topic, config, first, second = decision.records
    assert result.topic_id is not None
    assert topic == TopicRecord(name="a", topic_id=result.topic_id)
    assert config == ConfigRecord(resource_type=2, resource_name="a", name="retention.ms", value="5")
    assert first == PartitionRecord(
        partition_id=0,
        topic_id=result.topic_id,
        replicas=[1],
        isr=[1],
        leader=1,
        leader_epoch=0,
        partition_epoch=0,
        directories=[UUID(int=101)],
    )
    assert isinstance(second, PartitionRecord)
    assert second.partition_id == 1
    assert (result.code, result.num_partitions, result.replication_factor) == (Code.NONE, 2, 1)
    told = {entry.name: (entry.value, entry.source) for entry in result.configs}
    assert told["retention.ms"] == ("5", ConfigSource.DYNAMIC_TOPIC)
    assert told["segment.bytes"] == ("1073741824", ConfigSource.DEFAULT)


def test_defaults_are_the_clusters() -> None:
    state = cluster(3, num_partitions=4, replication_factor=2)
    (result,) = create(state, TopicToCreate("a"))
    assert (result.num_partitions, result.replication_factor) == (4, 2)


def test_topics_that_set_the_same_are_told_the_same_settings() -> None:
    """Looked up once: it takes longer than all else about a topic."""
    of = {"a": [], "b": [], "c": [("retention.ms", "1")], "d": [("retention.ms", "1")]}
    a, b, c, d = (one.configs for one in create(cluster(), *(TopicToCreate(name, configs=of[name]) for name in of)))
    assert a is b
    assert c is d
    assert {one.name: one.value for one in c}["retention.ms"] == "1"
    assert {one.name: one.value for one in a}["retention.ms"] != "1"


def test_validating_does_nothing() -> None:
    state = cluster(1)
    decision = state.decide_create_topics([TopicToCreate("a")], rng=SeededRng(), validate_only=True)
    (result,) = decision.reply
    assert decision.records == ()
    assert (result.code, result.topic_id, result.num_partitions) == (Code.NONE, None, 1)
    assert result.configs


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("", "empty"),
        (".", "directory"),
        ("..", "directory"),
        ("x" * (TOPIC_NAME_LENGTH_MAX + 1), "250 characters; at most 249"),
        ("a b", "letters, digits"),
        ("a/b", "'/'"),
        ("ä", "'ä'"),
        ("__cluster_metadata", "cluster's own log"),
    ],
)
def test_names_that_are_not_legal(name: str, says: str) -> None:
    code, message = refused(cluster(), TopicToCreate(name))
    assert code == Code.INVALID_TOPIC_EXCEPTION
    assert says in message


def test_names_that_are_legal() -> None:
    state = cluster()
    names = ["a", "A.b", "-", "_", "...", "x" * TOPIC_NAME_LENGTH_MAX, "__consumer_offsets"]
    assert all(result.code == Code.NONE for result in create(state, *map(TopicToCreate, names)))


def test_a_name_can_be_had_once() -> None:
    state = cluster()
    create(state, TopicToCreate("a.b"))
    assert refused(state, TopicToCreate("a.b"))[0] == Code.TOPIC_ALREADY_EXISTS
    code, message = refused(state, TopicToCreate("a_b"))
    assert code == Code.INVALID_TOPIC_EXCEPTION
    assert "differs from a.b" in message
    run(state, state.decide_delete_topics([TopicToDelete(name="a.b")]))
    create(state, TopicToCreate("a_b"))
    assert "a_b" in state.metadata.topics_by_name


def test_names_that_collide_within_a_request() -> None:
    first, second = create(cluster(), TopicToCreate("a.b"), TopicToCreate("a_b"))
    assert (first.code, second.code) == (Code.NONE, Code.INVALID_TOPIC_EXCEPTION)


def test_a_name_given_twice_in_a_request_is_refused_both_times() -> None:
    results = create(cluster(), TopicToCreate("a"), TopicToCreate("b"), TopicToCreate("a"))
    assert [result.code for result in results] == [Code.INVALID_REQUEST, Code.NONE, Code.INVALID_REQUEST]
    assert [result.name for result in results] == ["a", "b", "a"]


def test_an_id_is_new_and_no_command_line_option() -> None:
    dash = UUID(bytes=bytes([0b11111000]) + bytes(15))
    good = UUID(int=1 << 64)
    state = cluster()
    rng = SeededRng(uuids=[UUID(int=0), UUID(int=1), dash, good, good, UUID(int=2 << 64)])
    results = [run(state, state.decide_create_topics([TopicToCreate(name)], rng=rng))[0] for name in ("a", "b")]
    assert [result.topic_id for result in results] == [good, UUID(int=2 << 64)]


@pytest.mark.parametrize("count", [0, -1, -5])
def test_partitions_must_be_some(count: int) -> None:
    assert refused(cluster(), TopicToCreate("a", num_partitions=count))[0] == Code.INVALID_PARTITIONS


def test_a_request_may_not_ask_for_too_many_partitions() -> None:
    results = create(cluster(), TopicToCreate("a", num_partitions=9_999), TopicToCreate("b", num_partitions=2))
    assert [result.code for result in results] == [Code.POLICY_VIOLATION] * 2


@pytest.mark.parametrize("factor", [0, -1, 2, 40_000])
def test_a_replication_factor_needs_as_many_brokers(factor: int) -> None:
    code, message = refused(cluster(1), TopicToCreate("a", replication_factor=factor))
    assert code == Code.INVALID_REPLICATION_FACTOR
    assert str(factor) in message


def test_without_an_active_broker_there_is_nobody_to_lead() -> None:
    code, message = refused(cluster(1, fenced=[1]), TopicToCreate("a"))
    assert code == Code.INVALID_REPLICATION_FACTOR
    assert "fenced" in message


def test_fenced_brokers_hold_replicas_only_where_others_are_too_few() -> None:
    state = cluster(3, fenced=[2])
    create(state, TopicToCreate("two", num_partitions=9, replication_factor=2))
    assert all(2 not in p.replicas for p in state.metadata.topics_by_name["two"].partitions)
    create(state, TopicToCreate("three", num_partitions=9, replication_factor=3))
    for state_of in state.metadata.topics_by_name["three"].partitions:
        assert state_of.replicas[-1] == 2
        assert set(state_of.isr) == {1, 3}
        assert state_of.leader == state_of.replicas[0]


def assigned(*replicas: Sequence[int]) -> TopicToCreate:
    return TopicToCreate(
        "a", assignments=[(index, [BrokerId(b) for b in brokers]) for index, brokers in enumerate(replicas)]
    )


def test_an_assignment_is_followed() -> None:
    state = cluster(3, fenced=[2])
    (result,) = create(state, assigned([3, 2], [2, 1]))
    assert (result.code, result.num_partitions, result.replication_factor) == (Code.NONE, 2, 2)
    first, second = state.metadata.topics_by_name["a"].partitions
    assert (first.replicas, first.isr, first.leader) == ((3, 2), (3,), 3)
    assert (second.replicas, second.isr, second.leader) == ((2, 1), (1,), 1)


@pytest.mark.parametrize(
    ("topic", "code", "says"),
    [
        (assigned([]), Code.INVALID_REPLICA_ASSIGNMENT, "has no replicas"),
        (assigned([1, 1]), Code.INVALID_REPLICA_ASSIGNMENT, "twice"),
        (assigned([1, 3], [1]), Code.INVALID_REPLICA_ASSIGNMENT, "has 1 replicas, partition 0 has 2"),
        (assigned([4]), Code.INVALID_REPLICA_ASSIGNMENT, "broker 4, which is not registered"),
        (assigned([-1]), Code.INVALID_REPLICA_ASSIGNMENT, "broker -1, which is not registered"),
        (assigned([2]), Code.INVALID_REPLICA_ASSIGNMENT, "all of them fenced"),
        (
            TopicToCreate("a", assignments=[(1, [BrokerId(1)])]),
            Code.INVALID_REPLICA_ASSIGNMENT,
            "0, 1, 2 and so on",
        ),
        (
            TopicToCreate("a", assignments=[(0, [BrokerId(1)]), (0, [BrokerId(3)])]),
            Code.INVALID_REPLICA_ASSIGNMENT,
            "assigned twice",
        ),
        (
            TopicToCreate("a", num_partitions=1, assignments=[(0, [BrokerId(1)])]),
            Code.INVALID_REQUEST,
            "must both be -1",
        ),
        (
            TopicToCreate("a", replication_factor=1, assignments=[(0, [BrokerId(1)])]),
            Code.INVALID_REQUEST,
            "must both be -1",
        ),
    ],
)
def test_assignments_that_cannot_be_followed(topic: TopicToCreate, code: Code, says: str) -> None:
    found, message = refused(cluster(3, fenced=[2]), topic)
    assert found == code
    assert says in message


@pytest.mark.parametrize(
    ("key", "value", "says"),
    [
        ("retention.sm", "1", "closest is retention.ms"),
        ("retention.ms", "soon", "whole number"),
        ("retention.ms", None, "needs a value"),
        ("remote.storage.enable", "true", "tiered storage"),
    ],
)
def test_settings_are_checked(key: str, value: str | None, says: str) -> None:
    code, message = refused(cluster(), TopicToCreate("a", configs=[(key, value)]))
    assert code == Code.INVALID_CONFIG
    assert says in message


def test_topics_of_a_request_stand_on_their_own() -> None:
    state = cluster()
    results = create(state, TopicToCreate("a"), TopicToCreate("b", num_partitions=0), TopicToCreate("c"))
    assert [result.code for result in results] == [Code.NONE, Code.INVALID_PARTITIONS, Code.NONE]
    assert set(state.metadata.topics_by_name) == {"a", "c"}


# Deleting.


def delete(state: ControllerState, *topics: TopicToDelete) -> tuple[DeletedTopic, ...]:
    return run(state, state.decide_delete_topics(topics))


def test_topics_are_deleted_by_name_and_by_id() -> None:
    state = cluster()
    a, b = create(state, TopicToCreate("a", configs=[("retention.ms", "1")]), TopicToCreate("b"))
    assert a.topic_id is not None
    assert b.topic_id is not None
    decision = state.decide_delete_topics([TopicToDelete(name="a"), TopicToDelete(topic_id=b.topic_id)])
    assert decision.records == (RemoveTopicRecord(topic_id=a.topic_id), RemoveTopicRecord(topic_id=b.topic_id))
    assert run(state, decision) == (
        DeletedTopic("a", a.topic_id, Code.NONE),
        DeletedTopic("b", b.topic_id, Code.NONE),
    )
    assert state.metadata.image(None).topics_by_id == {}
    assert state.metadata.image(None).configs == {}


def test_a_name_that_is_free_again_gets_another_id() -> None:
    state = cluster()
    rng = SeededRng()
    ids = set()
    for _ in range(3):
        (result,) = run(state, state.decide_create_topics([TopicToCreate("a")], rng=rng))
        ids.add(result.topic_id)
        delete(state, TopicToDelete(name="a"))
    assert len(ids) == 3


def test_what_is_not_there_cannot_be_deleted() -> None:
    unknown = TopicId(UUID(int=7))
    by_name, by_id = delete(cluster(), TopicToDelete(name="a"), TopicToDelete(topic_id=unknown))
    assert (by_name.code, by_name.name) == (Code.UNKNOWN_TOPIC_OR_PARTITION, "a")
    assert (by_id.code, by_id.topic_id) == (Code.UNKNOWN_TOPIC_ID, unknown)


def test_deletions_that_contradict_themselves() -> None:
    state = cluster()
    (a,) = create(state, TopicToCreate("a"))
    create(state, TopicToCreate("b"))
    decision = state.decide_delete_topics(
        [
            TopicToDelete(name="a"),
            TopicToDelete(topic_id=a.topic_id),
            TopicToDelete(name="b"),
            TopicToDelete(),
            TopicToDelete(name="b", topic_id=a.topic_id),
            TopicToDelete(name="none"),
            TopicToDelete(name="none"),
        ]
    )
    codes = [result.code for result in decision.reply]
    assert codes[0] == codes[1] == codes[3] == codes[4] == codes[5] == codes[6] == Code.INVALID_REQUEST
    assert codes[2] == Code.NONE
    assert len(decision.records) == 1


def test_the_clusters_own_topics_are_kept() -> None:
    state = cluster()
    create(state, TopicToCreate("__consumer_offsets"))
    codes = [
        r.code
        for r in delete(state, TopicToDelete(name="__consumer_offsets"), TopicToDelete(name="__cluster_metadata"))
    ]
    assert codes == [Code.INVALID_TOPIC_EXCEPTION] * 2
    assert "__consumer_offsets" in state.metadata.topics_by_name


def test_deletion_can_be_switched_off() -> None:
    state = cluster(delete_topic_enable=False)
    create(state, TopicToCreate("a"))
    (result,) = delete(state, TopicToDelete(name="a"))
    assert result.code == Code.TOPIC_DELETION_DISABLED


# Placement.


def brokers(racks: Sequence[str | None]) -> list[BrokerImage]:
    return [
        BrokerImage(BrokerId(number), 0, UUID(int=number), (), rack, is_fenced=False)  # type: ignore[arg-type]
        for number, rack in enumerate(racks, start=1)
    ]


@given(
    racks=st.lists(st.sampled_from((None, "r", "s", "t")), min_size=1, max_size=7),
    factor=st.integers(1, 7),
    partitions=st.integers(1, 40),
    seed=st.integers(0, 9),
)
def test_replicas_are_spread(racks: list[str | None], factor: int, partitions: int, seed: int) -> None:
    active = brokers(racks)
    factor = min(factor, len(active))
    assignments = place(active, partitions, factor, rng=SeededRng(seed))
    leaders = Counter(replicas[0] for replicas in assignments)
    counts = [leaders[broker.broker_id] for broker in active]
    assert max(counts) - min(counts) <= 1
    rack_of = {broker.broker_id: broker.rack for broker in active}
    for replicas in assignments:
        assert len(set(replicas)) == len(replicas) == factor
        assert len({rack_of[broker] for broker in replicas}) == min(factor, len(set(racks)))


@given(
    names=st.sampled_from(((None,), ("r",), ("r", "s"), ("r", "s", "t"), ("r", "s", "t", "u"))),
    size=st.integers(1, 4),
    factor=st.integers(1, 5),
    partitions=st.integers(1, 60),
    seed=st.integers(0, 9),
)
def test_where_racks_are_of_one_size_every_broker_holds_as_much(
    names: tuple[str | None, ...], size: int, factor: int, partitions: int, seed: int
) -> None:
    active = brokers(names * size)
    factor = min(factor, len(active))
    held = Counter(broker for one in place(active, partitions, factor, rng=SeededRng(seed)) for broker in one)
    counts = [held[broker.broker_id] for broker in active]
    assert max(counts) - min(counts) <= factor


def test_followers_are_spread_too() -> None:
    assignments = place(brokers([None] * 4), 12, 2, rng=SeededRng(1))
    followers_of_first = {replicas[1] for replicas in assignments if replicas[0] == 1}
    assert len(followers_of_first) == 3


def test_where_it_begins_is_random() -> None:
    first = {place(brokers([None] * 4), 1, 1, rng=SeededRng(seed))[0] for seed in range(20)}
    assert len(first) == 4


def test_an_image_of_ten_thousand_topics_is_quick_to_change() -> None:
    state = cluster()
    for start in range(0, 10_000, 1000):
        results = create(state, *(TopicToCreate(f"t{number}") for number in range(start, start + 1000)))
        assert all(result.code == Code.NONE for result in results)
    base = state.metadata.image(None)
    create(state, TopicToCreate("one-more"))
    following = state.metadata.image(None)
    assert len(following.topics_by_name) == len(base.topics_by_name) + 1
    assert following.topics_by_name["t77"] is base.topics_by_name["t77"]
    assert following.partition("t9999", PartitionIndex(0)) is base.partition("t9999", PartitionIndex(0))

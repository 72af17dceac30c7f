"""Reassignments: begun, replaced, cancelled, and done when all that shall hold a partition are in sync."""

from __future__ import annotations

from dataclasses import replace
from uuid import UUID

import pytest

from tidelog.base.errors import Code, KafkaError
from tidelog.base.ids import BrokerEpoch, BrokerId, LeaderEpoch, PartitionEpoch, PartitionIndex, TopicId, TopicPartition
from tidelog.controller import (
    ControllerSettings,
    ControllerState,
    IsrChange,
    IsrMember,
    OngoingReassignment,
    PartitionToAlter,
    PartitionToReassign,
)
from tidelog.controller.reassignments import reassignments
from tidelog.controller.replica_moves import cancelled, completed, origin_of, target_of
from tidelog.journal import Decision
from tidelog.metadata import PartitionImage
from tidelog.metadata.records import (
    BrokerRegistrationChangeRecord,
    ConfigRecord,
    FeatureLevelRecord,
    PartitionRecord,
    RegisterBrokerRecord,
    TopicRecord,
)
from tidelog.replica import isr_size_min

TOPIC = TopicId(UUID(int=77))
FLIGHTS = TopicPartition("flights", PartitionIndex(0))


def brokers(*numbers: int) -> tuple[BrokerId, ...]:
    return tuple(map(BrokerId, numbers))


def cluster(*, dead: tuple[int, ...] = (), min_insync: int = 2) -> ControllerState:
    """Six brokers, each with one directory."""
    state = ControllerState(ControllerSettings())
    state.apply(FeatureLevelRecord(name="metadata.version", feature_level=25))
    state.apply(FeatureLevelRecord(name="eligible.leader.replicas.version", feature_level=1))
    for number in range(1, 7):
        state.apply(
            RegisterBrokerRecord(
                broker_id=number,
                incarnation_id=UUID(int=number),
                broker_epoch=100 + number,
                end_points=[],
                features=[],
                fenced=number in dead,
                log_dirs=[UUID(int=1000 + number)],
            )
        )
    state.apply(ConfigRecord(resource_type=4, resource_name="", name="min.insync.replicas", value=str(min_insync)))
    return state


def add(state: ControllerState, *replicas: int, isr: tuple[int, ...] = (), leader: int | None = None) -> None:
    """The topic, with one partition."""
    in_sync = list(isr or replicas)
    state.apply(TopicRecord(name="flights", topic_id=TOPIC))
    state.apply(
        PartitionRecord(
            partition_id=0,
            topic_id=TOPIC,
            replicas=list(replicas),
            isr=in_sync,
            leader=in_sync[0] if leader is None else leader,
            leader_epoch=5,
            partition_epoch=9,
            directories=[UUID(int=1000 + broker) for broker in replicas],
        )
    )


def flights(state: ControllerState) -> PartitionImage:
    return state.metadata.topics_by_id[TOPIC].partitions[0]


def run(state: ControllerState, decision: Decision[object]) -> None:
    for record in decision.records:
        state.apply(record)


def reassign(state: ControllerState, *target: int, allows_factor_change: bool = True) -> tuple[Code, str | None]:
    decision = state.decide_alter_reassignments(
        [PartitionToReassign(FLIGHTS, brokers(*target))], allows_factor_change=allows_factor_change
    )
    run(state, decision)
    return decision.reply[0].code, decision.reply[0].message


def cancel(state: ControllerState) -> tuple[Code, str | None]:
    decision = state.decide_alter_reassignments([PartitionToReassign(FLIGHTS, None)])
    run(state, decision)
    return decision.reply[0].code, decision.reply[0].message


def in_sync(state: ControllerState, *members: int) -> Code:
    """The leader asks for this ISR."""
    before = flights(state)
    assert before.leader is not None
    change = IsrChange(
        before.leader_epoch, before.partition_epoch, tuple(IsrMember(BrokerId(one), None) for one in members)
    )
    decision = state.decide_alter_partitions(
        before.leader, BrokerEpoch(100 + before.leader), [PartitionToAlter(TOPIC, PartitionIndex(0), change)]
    )
    run(state, decision)
    return decision.reply[0].code


def epochs(state: ControllerState) -> tuple[LeaderEpoch, PartitionEpoch]:
    return flights(state).leader_epoch, flights(state).partition_epoch


def test_a_partition_moves_when_all_that_shall_hold_it_are_in_sync() -> None:
    state = cluster()
    add(state, 1, 2, 3)
    assert reassign(state, 3, 4, 5) == (Code.NONE, None)
    moving = flights(state)
    assert moving.replicas == brokers(1, 2, 3, 4, 5)
    assert (moving.adding_replicas, moving.removing_replicas) == (brokers(4, 5), brokers(1, 2))
    assert (moving.isr, moving.leader) == (brokers(1, 2, 3), 1)
    assert moving.directories == tuple(UUID(int=1000 + broker) for broker in (1, 2, 3, 4, 5))
    assert epochs(state) == (6, 10), "those that come move the leader epoch (rule 8)"
    assert in_sync(state, 1, 2, 3, 4) is Code.NONE
    assert (flights(state).isr, epochs(state)) == (brokers(1, 2, 3, 4), (6, 11))
    assert in_sync(state, 1, 2, 3, 4, 5) is Code.NONE
    moved = flights(state)
    assert (moved.replicas, moved.isr, moved.leader) == (brokers(3, 4, 5), brokers(3, 4, 5), 3)
    assert (moved.adding_replicas, moved.removing_replicas) == ((), ())
    assert moved.directories == tuple(UUID(int=1000 + broker) for broker in (3, 4, 5))
    assert epochs(state) == (7, 12), "those that go do so again, in the same change that lets the last one in"


def test_who_leads_and_stays_leads_on() -> None:
    state = cluster()
    add(state, 1, 2)
    reassign(state, 3, 1)
    in_sync(state, 1, 2, 3)
    assert (flights(state).replicas, flights(state).leader, epochs(state)) == (brokers(3, 1), 1, (7, 11))


def test_what_is_to_stay_must_be_in_sync_as_well() -> None:
    state = cluster()
    add(state, 1, 2, 3, isr=(1, 3))
    reassign(state, 4, 2)
    in_sync(state, 1, 3, 4)
    assert flights(state).removing_replicas == brokers(1, 3), "what 1 and 3 acknowledged together, 4 alone would hold"
    in_sync(state, 1, 2, 3, 4)
    assert (flights(state).replicas, flights(state).leader) == (brokers(4, 2), 4)


def test_fewer_of_those_that_are_in_sync_are_enough_at_once() -> None:
    state = cluster()
    add(state, 1, 2, 3)
    assert reassign(state, 2, 1) == (Code.NONE, None)
    assert (flights(state).replicas, flights(state).isr, flights(state).leader) == (brokers(2, 1), brokers(1, 2), 1)
    assert epochs(state) == (6, 10)
    assert reassign(state, 2) == (Code.NONE, None)
    assert (flights(state).replicas, flights(state).isr, flights(state).leader) == (brokers(2), brokers(2), 2)


def test_another_order_is_no_other_set() -> None:
    state = cluster()
    add(state, 1, 2, 3)
    reassign(state, 3, 1, 2)
    moved = flights(state)
    assert (moved.replicas, moved.leader, epochs(state)) == (brokers(3, 1, 2), 1, (5, 10))
    assert moved.directories == tuple(UUID(int=1000 + broker) for broker in (3, 1, 2))
    assert reassign(state, 3, 1, 2) == (Code.NONE, None)
    assert epochs(state) == (5, 10), "nothing changes"


def test_a_second_copy_stops_nobody_who_writes_with_one() -> None:
    state = cluster(min_insync=2)
    add(state, 1)
    reassign(state, 1, 2)
    assert isr_size_min(flights(state), 2) == 1
    in_sync(state, 1, 2)
    assert (isr_size_min(flights(state), 2), flights(state).adding_replicas) == (2, ())
    assert epochs(state) == (6, 11), "the set changed when 2 came"


def test_the_second_takes_the_place_of_the_first() -> None:
    state = cluster()
    add(state, 1, 2, 3)
    reassign(state, 1, 4, 5)
    in_sync(state, 1, 2, 3, 4)
    assert reassign(state, 1, 6, 2) == (Code.NONE, None)
    moving = flights(state)
    assert (target_of(moving), origin_of(moving)) == (brokers(1, 6, 2), brokers(1, 2, 3))
    assert (moving.adding_replicas, moving.removing_replicas, moving.isr) == (brokers(6), brokers(3), brokers(1, 2, 3))
    assert cancel(state) == (Code.NONE, None)
    assert flights(state).replicas == brokers(1, 2, 3)


def test_who_holds_what_few_hold_is_not_dropped_by_the_second() -> None:
    state = cluster()
    add(state, 1, 2, 3)
    reassign(state, 4, 5, 6)
    in_sync(state, 1, 4, 5)
    reassign(state, 2, 3, 6)
    moving = flights(state)
    assert (set(moving.isr), target_of(moving)) == ({1, 4, 5}, brokers(2, 3, 6))
    assert (moving.adding_replicas, set(moving.removing_replicas)) == (brokers(6), {1, 4, 5})
    in_sync(state, 1, 2, 3, 4, 5, 6)
    assert (flights(state).replicas, flights(state).leader) == (brokers(2, 3, 6), 2)


def test_back_to_where_it_was_by_a_second_is_done_at_once() -> None:
    state = cluster()
    add(state, 1, 2, 3)
    reassign(state, 4, 5, 6)
    reassign(state, 1, 2, 3)
    assert (flights(state).replicas, flights(state).adding_replicas, epochs(state)) == (brokers(1, 2, 3), (), (7, 11))


def test_a_cancel_brings_back_what_was() -> None:
    state = cluster()
    add(state, 1, 2, 3)
    before = flights(state)
    reassign(state, 2, 3, 4)
    assert target_of(flights(state)) == brokers(2, 3, 4)
    assert cancel(state) == (Code.NONE, None)
    after = flights(state)
    assert (after.replicas, after.isr, after.leader, after.directories) == (
        before.replicas,
        before.isr,
        before.leader,
        before.directories,
    )
    assert epochs(state) == (7, 11), "an order to stop 4 is newer than the order to copy (rule 8)"
    code, message = cancel(state)
    assert (code, message) == (Code.NO_REASSIGNMENT_IN_PROGRESS, "it stays with [1, 2, 3]")


def test_a_cancel_moves_the_leadership_back() -> None:
    state = cluster()
    add(state, 1, 2)
    reassign(state, 3, 4)
    in_sync(state, 1, 2, 3)
    run(state, state.decide_fence_broker(BrokerId(1), BrokerEpoch(101)))
    run(state, state.decide_fence_broker(BrokerId(2), BrokerEpoch(102)))
    assert flights(state).leader == 3
    run(state, state.decide_unfence_broker(BrokerId(1), BrokerEpoch(101)))
    run(state, state.decide_unfence_broker(BrokerId(2), BrokerEpoch(102)))
    in_sync(state, 1, 2, 3)
    assert cancel(state) == (Code.NONE, None)
    assert (flights(state).replicas, flights(state).leader) == (brokers(1, 2), 1)


def test_a_cancel_that_would_lose_what_is_committed_is_refused() -> None:
    state = cluster()
    add(state, 1, 2, 3)
    reassign(state, 4, 5, 6)
    in_sync(state, 1, 4, 5)
    before = flights(state)
    code, message = cancel(state)
    assert code is Code.INVALID_REPLICA_ASSIGNMENT
    assert message is not None
    assert "of the replicas [1, 2, 3] that it would go back to, [1] are in sync" in message
    assert flights(state) == before
    in_sync(state, 1, 2, 4, 5)
    assert cancel(state) == (Code.NONE, None)
    assert (flights(state).isr, flights(state).replicas) == (brokers(1, 2), brokers(1, 2, 3))


def test_a_cancel_where_too_few_are_in_sync_anyhow_loses_nothing() -> None:
    state = cluster()
    add(state, 1, 2, 3)
    reassign(state, 4, 5, 6)
    in_sync(state, 1)
    assert (flights(state).isr, set(flights(state).eligible_leader_replicas)) == (brokers(1), {2, 3})
    assert cancel(state) == (Code.NONE, None)
    assert set(flights(state).eligible_leader_replicas) == {2, 3}


@pytest.mark.parametrize(
    ("target", "told"),
    [
        ((), "at least one replica"),
        ((1, 2, 2), "a broker stands twice in [1, 2, 2]"),
        ((1, 2, 9), "broker 9 is not registered"),
        ((1, 2, -1), "broker -1 is not registered"),
    ],
)
def test_what_cannot_be_is_refused(target: tuple[int, ...], told: str) -> None:
    state = cluster()
    add(state, 1, 2, 3)
    code, message = reassign(state, *target)
    assert code is Code.INVALID_REPLICA_ASSIGNMENT
    assert message is not None
    assert told in message
    assert epochs(state) == (5, 9)


def test_more_replicas_or_fewer_only_where_that_was_meant() -> None:
    state = cluster()
    add(state, 1, 2, 3)
    for target in ((1, 2), (1, 2, 3, 4)):
        code, message = reassign(state, *target, allows_factor_change=False)
        assert code is Code.INVALID_REPLICATION_FACTOR
        assert message is not None
        assert "the partition has 3" in message
    assert reassign(state, 4, 5, 6, allows_factor_change=False) == (Code.NONE, None)
    assert reassign(state, 4, 5, 2, allows_factor_change=False) == (Code.NONE, None)


def test_partitions_that_are_not_there_and_those_named_twice() -> None:
    state = cluster()
    add(state, 1, 2, 3)
    unknown = [TopicPartition("flights", PartitionIndex(index)) for index in (1, -1)]
    unknown.append(TopicPartition("none", PartitionIndex(0)))
    asked = [PartitionToReassign(one, brokers(1)) for one in unknown]
    asked += [PartitionToReassign(FLIGHTS, brokers(1, 2, 4)), PartitionToReassign(FLIGHTS, None)]
    decision = state.decide_alter_reassignments(asked)
    assert [one.code for one in decision.reply] == [Code.UNKNOWN_TOPIC_OR_PARTITION] * 3 + [Code.INVALID_REQUEST] * 2
    assert decision.records == ()


def test_one_onto_a_dead_broker_waits_for_it_and_says_so() -> None:
    state = cluster(dead=(5, 6))
    add(state, 1, 2, 3)
    assert reassign(state, 1, 5, 6) == (Code.NONE, "waits for broker 5, broker 6, not alive at present")
    assert flights(state).adding_replicas == brokers(5, 6)
    assert in_sync(state, 1, 2, 3, 5) is Code.INELIGIBLE_REPLICA


def test_a_broker_that_dies_midway_is_waited_for() -> None:
    state = cluster()
    add(state, 1, 2, 3)
    reassign(state, 1, 2, 4)
    in_sync(state, 1, 2, 3)
    run(state, state.decide_fence_broker(BrokerId(4), BrokerEpoch(104)))
    assert flights(state).adding_replicas == brokers(4)
    run(state, state.decide_unfence_broker(BrokerId(4), BrokerEpoch(104)))
    in_sync(state, 1, 2, 3, 4)
    assert flights(state).replicas == brokers(1, 2, 4)


def test_an_election_can_be_the_end_of_it() -> None:
    state = cluster()
    add(state, 1, 4)
    run(state, state.decide_fence_broker(BrokerId(4), BrokerEpoch(104)))
    assert reassign(state, 4) == (Code.NONE, "waits for broker 4, not alive at present")
    run(state, state.decide_fence_broker(BrokerId(1), BrokerEpoch(101)))
    assert set(flights(state).eligible_leader_replicas) == {1, 4}
    before = flights(state)
    run(state, state.decide_unfence_broker(BrokerId(4), BrokerEpoch(104)))
    after = flights(state)
    assert (after.replicas, after.isr, after.leader, after.removing_replicas) == (brokers(4), brokers(4), 4, ())
    assert (after.directories, after.eligible_leader_replicas) == ((UUID(int=1004),), ())
    assert after.leader_epoch == before.leader_epoch + 1


def test_the_next_controller_goes_on_with_it() -> None:
    state = cluster()
    add(state, 1, 2, 3)
    reassign(state, 4, 5, 6)
    successor = state.clone()
    in_sync(successor, 1, 2, 3, 4, 5, 6)
    assert flights(successor).replicas == brokers(4, 5, 6)


def test_who_shuts_down_counts_no_more() -> None:
    state = cluster()
    add(state, 1, 2, 3)
    reassign(state, 1, 2, 4)
    state.apply(BrokerRegistrationChangeRecord(broker_id=4, broker_epoch=104, in_controlled_shutdown=1))
    assert in_sync(state, 1, 2, 3, 4) is Code.INELIGIBLE_REPLICA


def test_which_are_under_way() -> None:
    state = cluster()
    add(state, 1, 2, 3)
    assert reassignments(state.metadata) == ()
    reassign(state, 3, 4, 5)
    expected = (OngoingReassignment(FLIGHTS, brokers(1, 2, 3, 4, 5), brokers(4, 5), brokers(1, 2)),)
    assert reassignments(state.metadata) == expected
    named = [FLIGHTS, FLIGHTS, TopicPartition("flights", PartitionIndex(7)), TopicPartition("none", PartitionIndex(0))]
    assert reassignments(state.metadata, named) == expected
    assert reassignments(state.metadata, []) == ()
    assert reassignments(state.metadata, [TopicPartition("flights", PartitionIndex(-1))]) == ()


def test_they_are_listed_by_topic_and_partition() -> None:
    state = cluster()
    for number, (name, count) in enumerate((("b", 1), ("a", 2))):
        topic_id = TopicId(UUID(int=90 + number))
        state.apply(TopicRecord(name=name, topic_id=topic_id))
        for index in range(count):
            moves = PartitionRecord(
                partition_id=index, topic_id=topic_id, replicas=[1, 2], isr=[1], leader=1, adding_replicas=[2]
            )
            state.apply(moves)
    found = [one.topic_partition for one in reassignments(state.metadata)]
    assert [(one.topic, one.partition) for one in found] == [("a", 0), ("a", 1), ("b", 0)]
    assert [one.topic_partition for one in reassignments(state.metadata, found[::-1])] == found


def test_what_is_in_sync_may_be_all_that_is_left_at_once() -> None:
    state = cluster()
    add(state, 1, 2, 3, isr=(1, 2))
    assert reassign(state, 1, 2) == (Code.NONE, None)
    assert (flights(state).replicas, flights(state).removing_replicas) == ((1, 2), ())


def moving(leader: int | None, *, isr: tuple[int, ...], target: int = 2) -> PartitionImage:
    """From broker 1 to another one."""
    return PartitionImage(
        brokers(1, target),
        brokers(*isr),
        None if leader is None else BrokerId(leader),
        LeaderEpoch(5),
        PartitionEpoch(9),
        adding_replicas=brokers(target),
        removing_replicas=brokers(1),
    )


@pytest.mark.parametrize(
    ("partition", "alive", "is_done"),
    [
        (moving(1, isr=(1, 2)), (1, 2), True),
        (moving(1, isr=(1, 2)), (1,), False),  # nobody of those that stay could lead
        (moving(2, isr=(1, 2)), (1,), True),  # who stays leads already
        (moving(1, isr=(1,)), (1, 2), False),
        (replace(moving(2, isr=(2,)), is_recovering=True), (2,), False),
    ],
)
def test_one_is_done_once_those_that_stay_are_in_sync_and_one_of_them_leads(
    partition: PartitionImage, alive: tuple[int, ...], *, is_done: bool
) -> None:
    done = completed(partition, min_insync_replicas=1, is_active=lambda broker: broker in alive)
    assert (done is not None) == is_done
    if done is not None:
        assert (done.replicas, done.isr, done.leader, done.directories) == ((2,), (2,), 2, ())


@pytest.mark.parametrize(
    ("partition", "alive", "is_possible"),
    [
        (moving(2, isr=(2, 1)), (1, 2), True),
        (moving(2, isr=(2, 1)), (2,), False),  # nobody could lead there
        (moving(1, isr=(1, 2)), (), True),  # it leads: what it is about to do is its own matter
        (moving(2, isr=(2,)), (1, 2), False),  # it lacks what is committed
    ],
)
def test_one_is_cancelled_only_where_somebody_that_was_there_before_can_lead(
    partition: PartitionImage, alive: tuple[int, ...], *, is_possible: bool
) -> None:
    def cancel_it() -> PartitionImage:
        return cancelled(partition, min_insync_replicas=None, is_active=lambda broker: broker in alive)

    if is_possible:
        assert (cancel_it().replicas, cancel_it().leader) == ((1,), 1)
    else:
        with pytest.raises(KafkaError):
            cancel_it()


def test_one_is_cancelled_where_fewer_held_it_before_than_need_to_be_in_sync() -> None:
    back = cancelled(moving(1, isr=(1, 2)), min_insync_replicas=3, is_active=lambda _: True)
    assert (back.replicas, back.isr, back.leader) == ((1,), (1,), 1)


def test_what_is_done_at_once_waits_for_nobody() -> None:
    state = cluster(dead=(3,))
    add(state, 1, 2, 3)
    assert reassign(state, 2, 1, 3) == (Code.NONE, None)

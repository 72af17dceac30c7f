"""Large decisions in portions: what is left to do is found in the metadata, by whoever is the active controller."""

from __future__ import annotations

from dataclasses import replace

import pytest

from support.controlled_cluster import ONE, THREE, TWO, Cluster, leadership, refused
from tidelog.base.errors import Code
from tidelog.base.ids import BrokerId, Offset, PartitionIndex, TopicId
from tidelog.controller import (
    ConfigChange,
    ConfigsToAlter,
    ControllerState,
    ElectionType,
    IsrChange,
    IsrMember,
    PartitionToAlter,
    Suspicions,
)
from tidelog.controller.sessions import SESSION_TIMEOUT_MS
from tidelog.metadata import ConfigResource, PartitionImage, ResourceType
from tidelog.metadata.records import BrokerRegistrationChangeRecord, PartitionChangeRecord, RegisterBrokerRecord

PORTION = 2
COUNT = 7
ALL = [ONE, TWO, THREE]


def cluster_of(*replicas: list[BrokerId], portion: int = PORTION) -> Cluster:
    """Three brokers, and one topic with these partitions."""
    cluster = Cluster()
    settle_in_portions(cluster, portion)
    cluster.start(*ALL)
    cluster.create("a", *replicas)
    return cluster


def settle_in_portions(cluster: Cluster, portion: int) -> None:
    for state in (cluster.state, cluster.journal.committed):
        state.settings = replace(state.settings, partition_changes_max=portion)


def partitions(cluster: Cluster) -> list[PartitionImage]:
    return [cluster.partition("a", index) for index in range(len(cluster.image.topics_by_name["a"].partitions))]


def leaders(cluster: Cluster) -> list[int | None]:
    return [one.leader for one in partitions(cluster)]


def settle(cluster: Cluster) -> list[int]:
    """Each portion, as the shell has it decided."""
    counts = []
    while count := cluster.run(cluster.state.decide_settle()):
        assert count <= PORTION
        counts.append(count)
    return counts


def as_a_new_controller(cluster: Cluster) -> None:
    """All that was speculation, or is in nobody's log, is gone."""
    state = ControllerState(cluster.state.settings, cluster.image)
    assert state.decide_settle().records == cluster.state.decide_settle().records
    cluster.journal._leadership = (cluster.journal.leader_epoch, state)  # type: ignore[assignment]
    cluster.begin_sessions()


def test_a_fence_comes_first_and_the_rest_follows_in_portions() -> None:
    cluster = cluster_of(*[ALL] * COUNT)
    decision = cluster.state.decide_fence_broker(ONE, cluster.epochs[ONE])
    assert [type(one) for one in decision.records] == [BrokerRegistrationChangeRecord] + [PartitionChangeRecord] * 2
    cluster.run(decision)
    assert leaders(cluster) == [TWO] * 2 + [ONE] * 5
    as_a_new_controller(cluster)
    assert settle(cluster) == [2, 2, 1]
    assert all(leadership(one) == (TWO, 1, (TWO, THREE)) for one in partitions(cluster))
    assert cluster.state.decide_settle().records == ()


def test_a_small_fence_is_one_batch() -> None:
    cluster = cluster_of([ONE, TWO])
    cluster.fence(ONE)
    assert leadership(cluster.partition("a")) == (TWO, 1, (TWO,))
    assert cluster.state.decide_settle().records == ()


def test_all_who_fell_silent_leave_each_partition_at_once_and_stay_eligible() -> None:
    cluster = cluster_of(*[ALL] * COUNT)
    resource = ConfigResource(ResourceType.TOPIC, "a")
    cluster.run(
        cluster.state.decide_alter_configs([ConfigsToAlter(resource, [ConfigChange("min.insync.replicas", 0, "2")])])
    )
    cluster.begin_sessions()
    cluster.now_ms += SESSION_TIMEOUT_MS
    cluster.hear(THREE)
    assert set(cluster.expire()) == {ONE, TWO}
    assert all(cluster.image.brokers[one].is_fenced for one in (ONE, TWO))
    settle(cluster)
    for one in partitions(cluster):
        assert leadership(one) == (THREE, 1, (THREE,))
        assert set(one.eligible_leader_replicas) == {ONE, TWO}, "no record was committed without them"


def test_where_one_in_sync_is_enough_the_last_of_all_who_lost_power_leads_again() -> None:
    """Nobody was promised that a loss of its power is survived; of several, none might lead, without an operator."""
    cluster = cluster_of(ALL)
    cluster.begin_sessions()
    cluster.now_ms += SESSION_TIMEOUT_MS
    assert set(cluster.expire()) == {ONE, TWO, THREE}
    settle(cluster)
    (fenced,) = partitions(cluster)
    assert (fenced.isr, fenced.eligible_leader_replicas, fenced.leader) == ((), (ONE,), None)
    assert fenced.partition_epoch == 1
    for broker in ALL:
        cluster.start(broker)
    settle(cluster)
    assert partitions(cluster)[0].leader == ONE


def test_who_is_let_in_again_midway_has_never_ceased_to_lead_the_rest() -> None:
    cluster = cluster_of(*[ALL] * COUNT)
    cluster.fence(ONE)
    cluster.unfence(ONE)
    assert settle(cluster) == []
    assert [leadership(one) for one in partitions(cluster)] == [(TWO, 1, (TWO, THREE))] * 2 + [
        (ONE, 0, (ONE, TWO, THREE))
    ] * 5


def test_a_fenced_leader_changes_no_isr_until_another_is_elected() -> None:
    cluster = cluster_of(*[ALL] * COUNT)
    cluster.fence(ONE)
    topic_id = TopicId(cluster.image.topics_by_name["a"].topic_id)
    state = cluster.partition("a", 6)
    assert state.leader == ONE
    alone = IsrChange(state.leader_epoch, state.partition_epoch, (IsrMember(ONE, cluster.epochs[ONE]),))
    asked = [PartitionToAlter(topic_id, PartitionIndex(6), alone)]
    decision = cluster.state.decide_alter_partitions(ONE, cluster.epochs[ONE], asked)
    assert decision.records == ()
    assert decision.reply[0].code is Code.INELIGIBLE_REPLICA
    settle(cluster)
    assert leadership(cluster.partition("a", 6)) == (TWO, 1, (TWO, THREE))


def test_who_comes_back_is_elected_in_portions() -> None:
    cluster = cluster_of(*[[ONE]] * COUNT)
    cluster.fence(ONE)
    settle(cluster)
    assert leaders(cluster) == [None] * COUNT
    cluster.unfence(ONE)
    assert leaders(cluster) == [ONE] * 2 + [None] * 5
    as_a_new_controller(cluster)
    assert settle(cluster) == [2, 2, 1]
    assert leaders(cluster) == [ONE] * COUNT


@pytest.mark.parametrize("is_lost", [False, True])
def test_a_new_incarnation_takes_its_place_when_nothing_is_left_to_the_old_one(is_lost: bool) -> None:
    cluster = cluster_of(*[ALL] * COUNT)
    resource = ConfigResource(ResourceType.TOPIC, "a")
    cluster.run(
        cluster.state.decide_alter_configs([ConfigsToAlter(resource, [ConfigChange("min.insync.replicas", 0, "3")])])
    )
    old = cluster.epochs[ONE]
    registration = cluster.registration(ONE)
    if not is_lost:
        registration = replace(registration, previous_broker_epoch=old)
    decision = cluster.decide_register(registration)
    assert [type(one) for one in decision.records] == [BrokerRegistrationChangeRecord] + [PartitionChangeRecord] * 2
    rounds = 0
    while cluster.run(decision).has_more:
        assert cluster.image.brokers[ONE].broker_epoch == old
        assert cluster.image.brokers[ONE].is_fenced
        decision = cluster.decide_register(registration)
        rounds += 1
    assert rounds >= (COUNT - PORTION) // PORTION
    (registered, *rest) = decision.records
    assert isinstance(registered, RegisterBrokerRecord)
    assert len(rest) <= PORTION, "and what was left went with it"
    for one in partitions(cluster):
        assert leadership(one) == (TWO, 1, (TWO, THREE))
        assert one.eligible_leader_replicas == (() if is_lost else (ONE,))


def test_a_registration_is_refused_before_anything_is_done() -> None:
    cluster = cluster_of(*[ALL] * COUNT)
    cluster.begin_sessions()
    assert refused(cluster.register_beside, cluster.registration(ONE)) is Code.DUPLICATE_BROKER_REGISTRATION
    assert leaders(cluster) == [ONE] * COUNT


def test_a_broker_is_forgotten_when_it_leads_little() -> None:
    cluster = cluster_of(*[ALL] * COUNT)
    rounds = 0
    while cluster.run(cluster.state.decide_unregister_broker(ONE)).has_more:
        assert cluster.image.brokers[ONE].is_fenced
        rounds += 1
    assert rounds == 3
    assert ONE not in cluster.image.brokers
    assert all(leadership(one) == (TWO, 1, (TWO, THREE)) for one in partitions(cluster))


def test_a_controlled_shutdown_moves_a_portion_a_heartbeat() -> None:
    cluster = cluster_of(*[ALL] * COUNT)
    for moved in (2, 4, 6, 7):
        assert not cluster.hear(ONE, wants_shut_down=True).should_shut_down
        assert leaders(cluster).count(TWO) == moved
    assert not cluster.hear(ONE, wants_shut_down=True).should_shut_down, "the others do not know of it yet"
    cluster.hear(TWO)
    cluster.hear(THREE)
    assert cluster.hear(ONE, wants_shut_down=True).should_shut_down


def test_an_early_fence_comes_first_where_others_can_lead_everything() -> None:
    cluster = cluster_of(*[ALL] * COUNT)
    cluster.begin_sessions()
    cluster.now_ms += SESSION_TIMEOUT_MS - 1
    for broker in ALL:
        cluster.hear(broker)
    suspicions = Suspicions(cluster.sessions)
    suspect = suspicions.on_closed(ONE, cluster.epochs[ONE], cluster.now_ms)
    assert suspect is not None
    outcome = cluster.run(cluster.state.decide_fence_early(suspicions, suspect, now_ms=cluster.now_ms))
    assert (outcome.moved, outcome.is_fenced, outcome.has_more) == (COUNT, True, False)
    settle(cluster)
    assert leaders(cluster) == [TWO] * COUNT


def test_an_early_fence_moves_in_portions_what_it_can() -> None:
    cluster = cluster_of(*[ALL] * COUNT)
    cluster.create("alone", [ONE])
    cluster.begin_sessions()
    for broker in ALL:
        cluster.hear(broker)
    suspicions = Suspicions(cluster.sessions)
    suspect = suspicions.on_closed(ONE, cluster.epochs[ONE], cluster.now_ms)
    assert suspect is not None
    moved, has_more = [], True
    while has_more:
        outcome = cluster.run(cluster.state.decide_fence_early(suspicions, suspect, now_ms=cluster.now_ms))
        assert outcome.doubt is None
        moved.append(outcome.moved)
        has_more = outcome.has_more
    assert moved == [7, 5, 3, 1]
    assert not cluster.image.brokers[ONE].is_fenced
    assert leaders(cluster) == [TWO] * COUNT
    assert cluster.partition("alone").leader == ONE


def test_unclean_elections_that_a_setting_allows_are_held_in_portions() -> None:
    cluster = cluster_of(*[[ONE, TWO]] * COUNT)
    cluster.fence(TWO)
    settle(cluster)
    cluster.fence(ONE)
    settle(cluster)
    cluster.unfence(TWO)
    assert leaders(cluster) == [None] * COUNT
    allowed = ConfigsToAlter(
        ConfigResource(ResourceType.TOPIC, "a"), [ConfigChange("unclean.leader.election.enable", 0, "true")]
    )
    cluster.run(cluster.state.decide_alter_configs([allowed]))
    assert leaders(cluster) == [TWO] * 2 + [None] * 5
    as_a_new_controller(cluster)
    assert settle(cluster) == [2, 2, 1]
    assert all(one.leader == TWO and one.is_recovering for one in partitions(cluster))


def test_an_order_for_all_is_decided_in_pieces() -> None:
    cluster = cluster_of(*[ALL] * COUNT)
    cluster.fence(ONE)
    settle(cluster)
    cluster.unfence(ONE)
    pieces = list(cluster.state.pieces_to_elect(ElectionType.UNCLEAN))
    assert [len(piece) for piece in pieces] == [2, 2, 2, 1]
    for piece in pieces:
        decision = cluster.state.decide_elect_leaders(ElectionType.UNCLEAN, piece, is_of_all=True)
        assert (decision.records, decision.reply) == ((), ()), "none needs one"
    assert Offset(cluster.journal.next_offset) == cluster.journal.committed_end_offset

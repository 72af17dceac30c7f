"""Large decisions in portions: what is left to do is found in the metadata, by whoever is the active controller."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from types import ModuleType
from typing import Any
from uuid import UUID

import pytest

from support.fixtures.controlled_cluster import ONE, THREE, TWO, Cluster, leadership, refused
from tidelog.base.errors import Code
from tidelog.base.ids import BrokerEpoch, BrokerId, Offset, PartitionIndex, TopicId
from tidelog.controller import (
    BrokerChange,
    BrokerToRegister,
    ConfigChange,
    ConfigsToAlter,
    ControllerState,
    EarlyFence,
    ElectionType,
    Heartbeat,
    IsrChange,
    IsrMember,
    PartitionScan,
    PartitionToAlter,
    ReplicaInDirectory,
    Suspect,
    Suspicions,
    TopicToDelete,
    pieces_to_elect,
)
from tidelog.controller import early_fencing as early_fencing_module
from tidelog.controller import leaders as leaders_module
from tidelog.controller import partition_scan as scan_module
from tidelog.controller import pending_changes as pending_changes_module
from tidelog.controller.partition_scan import LOOKS_PER_CHANGE
from tidelog.controller.sessions import SESSION_TIMEOUT_MS
from tidelog.journal import Decision
from tidelog.metadata import PartitionImage, ResourceKey, ResourceType
from tidelog.metadata.records import (
    BrokerRegistrationChangeRecord,
    ConfigRecord,
    PartitionChangeRecord,
    RegisterBrokerRecord,
    decode_record,
)

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
    scan = PartitionScan(cluster.state.metadata)
    while not scan.is_done:
        count = cluster.run(cluster.state.decide_pending_changes(scan))
        assert count <= PORTION
        counts += [count] if count else []
    return counts


def as_a_new_controller(cluster: Cluster) -> None:
    """All that was speculation, or is in nobody's log, is gone."""
    state = ControllerState(cluster.state.settings, cluster.image)
    assert state.decide_pending_changes().records == cluster.state.decide_pending_changes().records
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
    assert cluster.state.decide_pending_changes().records == ()


@pytest.mark.parametrize(
    ("record", "is_so"),
    [
        (ConfigRecord(resource_type=2, resource_name="a", name="unclean.leader.election.enable", value="true"), True),
        (ConfigRecord(resource_type=2, resource_name="a", name="min.insync.replicas", value="1"), False),
        (BrokerRegistrationChangeRecord(broker_id=ONE, broker_epoch=1, fenced=1), True),
        (PartitionChangeRecord(partition_id=0, topic_id=UUID(int=500), leader=1), False),
    ],
)
def test_more_may_be_to_do_where_brokers_change_or_who_may_lead(record: object, *, is_so: bool) -> None:
    assert pending_changes_module.leaves_pending_changes(record) is is_so


def test_no_session_begins_before_the_last_portion_of_a_registration() -> None:
    cluster = cluster_of(*[ALL] * COUNT)
    cluster.run(cluster.state.decide_alter_configs([needs("3")]))
    while cluster.run(cluster.state.decide_unregister_broker(ONE)).has_more:
        pass
    cluster.begin_sessions()
    registration = cluster.registration(ONE)
    while cluster.register_beside(registration).has_more:
        assert not cluster.sessions.is_alive(ONE, cluster.now_ms)
    assert cluster.sessions.is_alive(ONE, cluster.now_ms)


def test_a_small_fence_is_one_batch() -> None:
    cluster = cluster_of([ONE, TWO])
    cluster.fence(ONE)
    assert leadership(cluster.partition("a")) == (TWO, 1, (TWO,))
    assert cluster.state.decide_pending_changes().records == ()


def test_all_who_fell_silent_leave_each_partition_at_once_and_stay_eligible() -> None:
    cluster = cluster_of(*[ALL] * COUNT)
    resource = ResourceKey(ResourceType.TOPIC, "a")
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
    resource = ResourceKey(ResourceType.TOPIC, "a")
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
    suspicions, suspect = suspected(cluster)
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
    assert moved == [2, 4, 6, 7]
    assert not cluster.image.brokers[ONE].is_fenced
    assert leaders(cluster) == [TWO] * COUNT
    assert cluster.partition("alone").leader == ONE


class Looks:
    """Counts the partitions for which a module works out what becomes of them."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, module: ModuleType, *, name: str = "without") -> None:
        self.count = 0
        monkeypatch.setattr(module, name, partial(self._call, getattr(module, name)))

    def _call(self, work_out: Any, *arguments: Any, **how: Any) -> Any:
        self.count += 1
        return work_out(*arguments, **how)

    def take(self) -> int:
        count, self.count = self.count, 0
        return count


class PartitionsRead:
    """Counts the partitions that decisions look at, one after the other."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.count = 0
        monkeypatch.setattr(PartitionScan, "portion", self._counted(PartitionScan.portion))

    def _counted(self, each: Callable[..., Iterator[Any]]) -> Callable[..., Iterator[Any]]:
        def counted(*arguments: Any) -> Iterator[Any]:
            for one in each(*arguments):
                self.count += 1
                yield one

        return counted

    def take(self) -> int:
        count, self.count = self.count, 0
        return count


Portions = Iterator[tuple[Decision[Any], Callable[[Any], bool]]]


def registering(cluster: Cluster) -> Portions:
    scan, registration = PartitionScan(), cluster.registration(ONE)
    while True:
        yield (
            cluster.state.decide_register_broker(registration, next_offset=cluster.journal.next_offset, scan=scan),
            lambda reply: reply.has_more,
        )


def unregistering(cluster: Cluster) -> Portions:
    scan = PartitionScan()
    while True:
        yield cluster.state.decide_unregister_broker(ONE, scan=scan), lambda reply: reply.has_more


def shutting_down(cluster: Cluster) -> Portions:
    scan = PartitionScan()
    while True:
        heartbeat = Heartbeat(ONE, cluster.epochs[ONE], Offset(cluster.journal.next_offset - 1), wants_shut_down=True)
        decision = cluster.state.decide_heartbeat(
            heartbeat, cluster.sessions, next_offset=cluster.journal.next_offset, now_ms=cluster.now_ms, scan=scan
        )
        yield decision, lambda reply: reply.has_more


def needing_fewer(cluster: Cluster) -> Portions:
    cluster.write(
        *(ConfigRecord(resource_type=2, resource_name=name, name="min.insync.replicas", value="2") for name in "ab"),
        BrokerRegistrationChangeRecord(broker_id=TWO, broker_epoch=cluster.epochs[TWO], fenced=1),
        BrokerRegistrationChangeRecord(broker_id=THREE, broker_epoch=cluster.epochs[THREE], fenced=1),
    )
    settle(cluster)
    scan = PartitionScan()
    while True:
        yield (
            cluster.state.decide_alter_configs([needs("1", topic="a"), needs("1", topic="b")], scan=scan),
            lambda reply: reply[0].has_more,
        )


def test_that_a_broker_shuts_down_is_said_once_however_many_portions_it_takes() -> None:
    cluster = cluster_of(*[ALL] * COUNT)
    cluster.begin_sessions()
    before = len(cluster.log)
    for decision, has_more in shutting_down(cluster):
        if not has_more(cluster.run(decision)):
            break
    said = [one for one in decoded(cluster, before) if isinstance(one, BrokerRegistrationChangeRecord)]
    assert [one.in_controlled_shutdown for one in said] == [1]
    assert leaders(cluster) == [TWO] * COUNT


def test_who_is_fenced_may_go_at_once_however_many_partitions_there_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scan_module, "LOOKS_PER_CHANGE", 1)
    cluster = cluster_of(*[[TWO, THREE]] * COUNT)
    cluster.begin_sessions()
    cluster.fence(ONE)
    assert cluster.hear(ONE, wants_shut_down=True).should_shut_down


def test_a_broker_that_shuts_down_gives_to_one_that_is_eligible_what_nobody_in_sync_can_take() -> None:
    cluster = cluster_of([ONE, TWO], [ONE, TWO])
    topic_id = TopicId(cluster.image.topics_by_name["a"].topic_id)
    cluster.run(cluster.state.decide_alter_configs([needs("2")]))
    cluster.write(PartitionChangeRecord(partition_id=0, topic_id=topic_id, isr=[ONE], eligible_leader_replicas=[TWO]))
    cluster.write(PartitionChangeRecord(partition_id=1, topic_id=topic_id, isr=[ONE]))
    cluster.begin_sessions()
    cluster.hear(ONE, wants_shut_down=True)
    assert leaders(cluster) == [TWO, ONE]


def fencing_early(cluster: Cluster) -> Portions:
    suspicions, suspect = suspected(cluster)
    while True:
        yield (
            cluster.state.decide_fence_early(suspicions, suspect, now_ms=cluster.now_ms),
            lambda reply: reply.has_more,
        )


@pytest.mark.parametrize("begin", [registering, unregistering, shutting_down, needing_fewer, fencing_early])
def test_what_is_done_in_portions_looks_at_each_partition_once(
    begin: Callable[[Cluster], Portions], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once, again if it has changed, and a portion's look at what is pending: never at all of them for each portion."""
    monkeypatch.setattr(scan_module, "LOOKS_PER_CHANGE", 3)
    monkeypatch.setattr(early_fencing_module, "LOOKS_PER_HELD", 2)
    cluster = cluster_of(*[ALL] * 20)
    cluster.create("others", *[[TWO]] * 40)
    cluster.create("b", *[ALL] * 20)
    cluster.begin_sessions()
    count_before = len(cluster.log)
    portions = begin(cluster)
    decision, has_more = next(portions)
    read = PartitionsRead(monkeypatch)
    reads = []
    while has_more(cluster.run(decision)):
        decision, _ = next(portions)
        reads.append(read.take())
    assert max(reads) <= 2 * PORTION * 3, "a portion, and what a fence takes along"
    changed = sum(isinstance(one, PartitionChangeRecord) for one in decoded(cluster, count_before))
    assert 80 - 3 * PORTION <= sum(reads) <= 80 + changed + 2 * PORTION * 3


def decoded(cluster: Cluster, start: int) -> list[object]:
    return [decode_record(data) for _, data in cluster.log[start:]]


def suspected(cluster: Cluster) -> tuple[Suspicions, Suspect]:
    """Broker ONE hung up; all others are there."""
    cluster.now_ms += SESSION_TIMEOUT_MS - 1
    for broker in ALL:
        cluster.hear(broker)
    suspicions = Suspicions(cluster.sessions)
    suspect = suspicions.on_closed(ONE, cluster.epochs[ONE], cluster.now_ms)
    assert suspect is not None
    return suspicions, suspect


def test_a_registration_takes_what_became_its_own_behind_the_pass() -> None:
    """No heartbeat kept the old incarnation out for longer than a session, and it leads some of what it led again."""
    cluster = cluster_of(*[ALL] * COUNT)
    cluster.run(cluster.state.decide_alter_configs([needs("3")]))
    portions = registering(cluster)
    decision, _ = next(portions)
    assert cluster.run(decision).has_more
    assert leaders(cluster)[:3] == [TWO, TWO, ONE]
    cluster.unfence(ONE)
    topic_id = TopicId(cluster.image.topics_by_name["a"].topic_id)
    cluster.write(PartitionChangeRecord(partition_id=0, topic_id=topic_id, leader=ONE, isr=[ONE, TWO, THREE]))
    cluster.create("made-since", ALL)
    rounds = 0
    while True:
        decision, has_more = next(portions)
        if not has_more(cluster.run(decision)):
            break
        rounds += 1
    assert rounds < COUNT
    for one in (*partitions(cluster), cluster.partition("made-since")):
        assert (one.leader, one.isr, one.eligible_leader_replicas) == (TWO, (TWO, THREE), ())


def test_a_pass_of_another_leadership_begins_anew() -> None:
    cluster = cluster_of(*[ALL] * COUNT)
    scan = PartitionScan()
    decision = cluster.state.decide_unregister_broker(ONE, scan=scan)
    assert cluster.run(decision).has_more
    state = ControllerState(cluster.state.settings, cluster.image)
    topic_id = TopicId(cluster.image.topics_by_name["a"].topic_id)
    state.apply(PartitionChangeRecord(partition_id=0, topic_id=topic_id, leader=ONE, isr=[ONE, TWO, THREE]))
    (change, *_) = state.decide_unregister_broker(ONE, scan=scan).records
    assert isinstance(change, PartitionChangeRecord)
    assert change.partition_id == 0


def test_an_early_fence_looks_again_where_another_broker_went_meanwhile(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(early_fencing_module, "LOOKS_PER_HELD", 1)
    cluster = cluster_of(*[[ONE, TWO]] * COUNT)
    suspicions, suspect = suspected(cluster)
    for _ in range(2):
        outcome = cluster.run(cluster.state.decide_fence_early(suspicions, suspect, now_ms=cluster.now_ms))
        assert (outcome.moved, outcome.has_more) == (0, True)
    cluster.write(BrokerRegistrationChangeRecord(broker_id=TWO, broker_epoch=cluster.epochs[TWO], fenced=1))
    cluster.hear(TWO)
    cluster.write(BrokerRegistrationChangeRecord(broker_id=TWO, broker_epoch=cluster.epochs[TWO], fenced=1))
    while outcome.has_more:
        outcome = cluster.run(cluster.state.decide_fence_early(suspicions, suspect, now_ms=cluster.now_ms))
    assert not outcome.is_fenced, "nobody else could lead"


def test_an_early_fence_that_looks_again_counts_each_partition_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(early_fencing_module, "LOOKS_PER_HELD", 1)
    cluster = cluster_of(*[ALL] * COUNT)
    suspicions, suspect = suspected(cluster)
    for _ in range(2):
        assert cluster.run(cluster.state.decide_fence_early(suspicions, suspect, now_ms=cluster.now_ms)).has_more
    cluster.fence(THREE)
    outcome = EarlyFence(None, has_more=True)
    while outcome.has_more:
        outcome = cluster.run(cluster.state.decide_fence_early(suspicions, suspect, now_ms=cluster.now_ms))
    assert outcome == EarlyFence(None, COUNT, is_fenced=True)


def test_what_an_early_fence_moves_is_worked_out_once(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = cluster_of(*[ALL] * COUNT)
    cluster.create("alone", *[[ONE]] * COUNT)
    cluster.begin_sessions()
    for broker in ALL:
        cluster.hear(broker)
    suspicions = Suspicions(cluster.sessions)
    suspect = suspicions.on_closed(ONE, cluster.epochs[ONE], cluster.now_ms)
    assert suspect is not None
    looks = Looks(monkeypatch, leaders_module)
    worked_out, has_more = [], True
    while has_more:
        decision = cluster.state.decide_fence_early(suspicions, suspect, now_ms=cluster.now_ms)
        worked_out.append(looks.take())
        has_more = cluster.run(decision).has_more
    assert worked_out == [2, 2, 2, 1]


def test_a_pass_works_out_each_partition_once(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = cluster_of(*[[ONE]] * COUNT)
    cluster.create("b", *[ALL] * COUNT)
    looks = Looks(monkeypatch, pending_changes_module)
    cluster.fence(ONE)
    assert looks.take() == PORTION
    assert settle(cluster) == [2, 2, 2, 2, 2, 2]
    assert looks.take() == 2 * COUNT - PORTION
    assert settle(cluster) == []
    assert looks.take() == 0


def test_what_nobody_may_lead_counts_as_part_of_a_portion(monkeypatch: pytest.MonkeyPatch) -> None:
    """To find that out costs as much as an election."""
    cluster = cluster_of(*[[ONE]] * COUNT)
    cluster.fence(ONE)
    settle(cluster)
    looks = Looks(monkeypatch, pending_changes_module, name="elected")
    scan = PartitionScan(cluster.state.metadata)
    worked_out = []
    while not scan.is_done:
        assert cluster.state.decide_pending_changes(scan).records == ()
        worked_out.append(looks.take())
    assert worked_out == [2, 2, 2, 1]


def test_a_portion_passes_over_so_many_and_the_next_goes_on_behind_them() -> None:
    cluster = cluster_of(*[[TWO]] * (PORTION * LOOKS_PER_CHANGE + 1), portion=1_000)
    cluster.create("b", [ONE, TWO])
    cluster.write(BrokerRegistrationChangeRecord(broker_id=ONE, broker_epoch=cluster.epochs[ONE], fenced=1))
    settle_in_portions(cluster, PORTION)
    scan = PartitionScan(cluster.state.metadata)
    counts = []
    while not scan.is_done:
        counts.append(cluster.run(cluster.state.decide_pending_changes(scan)))
    assert counts == [0, 1]


def test_a_pass_sees_partitions_as_they_are_when_their_turn_comes() -> None:
    cluster = cluster_of(*[ALL] * COUNT)
    cluster.create("gone", ALL)
    cluster.create("last", ALL)
    cluster.fence(ONE)
    scan = PartitionScan(cluster.state.metadata)
    cluster.run(cluster.state.decide_pending_changes(scan))
    cluster.run(cluster.state.decide_delete_topics([TopicToDelete(name="gone")]))
    cluster.create("new", [TWO])
    while not scan.is_done:
        cluster.run(cluster.state.decide_pending_changes(scan))
    assert leaders(cluster) == [TWO] * COUNT
    assert cluster.partition("last").leader == TWO


D, E, F = UUID(int=1_000), UUID(int=1_001), UUID(int=1_002)


def with_directories(cluster: Cluster, broker: BrokerId, *directories: UUID) -> None:
    """A broker registers anew, and is let in."""
    cluster.epochs[broker] = cluster.run(
        cluster.decide_register(replace(cluster.registration(broker), log_dirs=directories))
    ).broker_epoch
    cluster.unfence(broker)


def tell_directories(cluster: Cluster, broker: BrokerId, *directories: UUID) -> None:
    """Of each partition of topic a, in turn."""
    topic_id = cluster.image.topics_by_name["a"].topic_id
    replicas = [ReplicaInDirectory(topic_id, PartitionIndex(i), one) for i, one in enumerate(directories)]
    cluster.run(cluster.state.decide_assign_directories(broker, cluster.epochs[broker], replicas))


def cluster_in_directories(*replicas: list[BrokerId]) -> Cluster:
    """Broker ONE has all of topic a in directory D."""
    cluster = Cluster()
    settle_in_portions(cluster, 1_000)
    cluster.start(TWO, THREE)
    with_directories(cluster, ONE, D, E)
    cluster.create("a", *replicas)
    cluster.write(ConfigRecord(resource_type=2, resource_name="a", name="min.insync.replicas", value="2"))
    tell_directories(cluster, ONE, *[D] * len(replicas))
    settle_in_portions(cluster, PORTION)
    return cluster


def test_what_lay_in_a_directory_that_failed_others_lead_in_portions() -> None:
    cluster = cluster_in_directories(*[[ONE, TWO]] * COUNT)
    assert set(leaders(cluster)) == {ONE}
    end_offset = cluster.journal.next_offset
    cluster.hear(ONE, failed=(D,))
    assert cluster.journal.next_offset - end_offset == 1 + PORTION, "the directories that are left, and a portion"
    assert cluster.image.brokers[ONE].log_dirs == (E,)
    as_a_new_controller(cluster)
    assert settle(cluster) == [2, 2, 1]
    for one in partitions(cluster):
        assert (one.leader, one.isr, one.eligible_leader_replicas) == (TWO, (TWO,), ())
    assert settle(cluster) == []


def test_where_nobody_knows_what_a_failed_directory_held_no_more_than_a_portion_leaves() -> None:
    cluster = cluster_in_directories(*[[ONE, TWO]] * PORTION)
    cluster.create("b", *[[ONE, TWO]] * COUNT)
    cluster.hear(ONE, failed=(D,))
    assert leaders(cluster) == [TWO] * PORTION
    assert cluster.partition("b").leader == ONE, "and its broker tells where it lies"


def test_a_fence_and_a_failed_directory_leave_whoever_lost_nothing_eligible() -> None:
    cluster = cluster_in_directories(*[[ONE, TWO]] * COUNT)
    cluster.write(
        BrokerRegistrationChangeRecord(broker_id=ONE, broker_epoch=cluster.epochs[ONE], log_dirs=[E]),
        BrokerRegistrationChangeRecord(broker_id=TWO, broker_epoch=cluster.epochs[TWO], fenced=1),
    )
    assert settle(cluster) == [2, 2, 2, 1]
    for one in partitions(cluster):
        assert (one.leader, one.leader_epoch, one.isr, one.eligible_leader_replicas) == (None, 1, (), (TWO,))


def test_who_comes_back_with_a_directory_that_had_failed_is_not_eligible_by_it() -> None:
    """Its turn had not come when the broker registered: what the disk lost is lost all the same."""
    cluster = cluster_in_directories(*[[ONE, TWO]] * COUNT)
    cluster.fence(TWO)
    settle(cluster)
    assert {(one.leader, one.isr) for one in partitions(cluster)} == {(ONE, (ONE,))}
    cluster.hear(ONE, failed=(D,))
    registration = replace(
        cluster.registration(ONE), log_dirs=(D, E), previous_broker_epoch=cluster.image.brokers[ONE].broker_epoch
    )
    while cluster.run(cluster.decide_register(registration)).has_more:
        pass
    for one in partitions(cluster):
        assert (one.leader, one.isr, one.eligible_leader_replicas) == (None, (), (TWO,))


def test_a_new_directory_takes_the_place_of_another_in_portions() -> None:
    cluster = cluster_in_directories(*[[TWO, ONE]] * COUNT)
    registration = replace(cluster.registration(ONE), log_dirs=(F,))
    counts, has_more = [], True
    while has_more:
        decision = cluster.decide_register(registration)
        counts.append(sum(isinstance(one, PartitionChangeRecord) for one in decision.records))
        has_more = cluster.run(decision).has_more
    assert counts == [2, 2, 2, 1]
    for one in partitions(cluster):
        assert (one.leader, one.isr, one.directories[1]) == (TWO, (TWO,), F)


def test_what_is_spared_after_an_unclean_shutdown_is_done_once() -> None:
    cluster = cluster_of(*[[ONE]] * COUNT)
    registration = cluster.registration(ONE)
    counts, has_more = [], True
    while has_more:
        decision = cluster.decide_register(registration)
        counts.append(sum(isinstance(one, PartitionChangeRecord) for one in decision.records))
        has_more = cluster.run(decision).has_more
    assert counts == [2, 2, 2, 1]
    for one in partitions(cluster):
        assert (one.leader, one.eligible_leader_replicas, one.partition_epoch) == (None, (ONE,), 1)
        assert one.unclean_epoch is not None
        assert one.unclean_epoch >= one.leader_epoch


@pytest.mark.parametrize("is_lost", [False, True])
def test_a_registration_works_out_each_partition_once(is_lost: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = cluster_of(*[ALL] * COUNT)
    cluster.create("b", *[[ONE]] * COUNT)
    cluster.run(cluster.state.decide_alter_configs([needs("3", topic="a")]))
    registration = cluster.registration(ONE)
    if not is_lost:
        registration = replace(registration, previous_broker_epoch=cluster.epochs[ONE])
    looks = Looks(monkeypatch, leaders_module)
    worked_out, has_more = [], True
    while has_more:
        decision = cluster.decide_register(registration)
        worked_out.append(looks.take())
        has_more = cluster.run(decision).has_more
    assert worked_out == [PORTION] * COUNT


def needs(count: str, *, topic: str = "a") -> ConfigsToAlter:
    """How many must be in sync, from now on."""
    return ConfigsToAlter(ResourceKey(ResourceType.TOPIC, topic), [ConfigChange("min.insync.replicas", 0, count)])


def test_where_fewer_need_to_be_in_sync_nobody_is_eligible_before_the_setting_says_so() -> None:
    cluster = cluster_of(*[[ONE, TWO]] * COUNT)
    cluster.run(cluster.state.decide_alter_configs([needs("2")]))
    cluster.fence(TWO)
    settle(cluster)
    assert all(one.eligible_leader_replicas == (TWO,) for one in partitions(cluster))
    counts = []
    has_more = True
    while has_more:
        assert not changed_settings(cluster)
        decision = cluster.state.decide_alter_configs([needs("1")])
        counts.append(sum(isinstance(one, PartitionChangeRecord) for one in decision.records))
        (altered,) = cluster.run(decision)
        has_more = altered.has_more
    assert counts == [2, 2, 2, 1]
    assert changed_settings(cluster)
    assert all(leadership(one) == (ONE, 0, (ONE,)) for one in partitions(cluster))
    assert not any(one.eligible_leader_replicas for one in partitions(cluster))


def test_to_validate_a_setting_changes_nothing_before_it() -> None:
    cluster = cluster_of(*[[ONE, TWO]] * COUNT)
    cluster.run(cluster.state.decide_alter_configs([needs("2")]))
    cluster.fence(TWO)
    settle(cluster)
    decision = cluster.state.decide_alter_configs([needs("1")], validate_only=True)
    assert (decision.records, [one.has_more for one in decision.reply]) == ((), [False])


def changed_settings(cluster: Cluster) -> bool:
    return cluster.image.configs[ResourceKey(ResourceType.TOPIC, "a")]["min.insync.replicas"] == "1"


def test_no_heartbeat_lets_a_broker_in_while_it_is_unregistered() -> None:
    cluster = cluster_of(*[ALL] * COUNT)
    cluster.begin_sessions()
    rounds, has_more = 0, True
    while has_more:
        has_more = unregister(cluster, ONE).has_more
        rounds += 1
        if has_more:
            assert cluster.hear(ONE).is_fenced
            assert leaders(cluster) == [TWO] * rounds * PORTION + [ONE] * (COUNT - rounds * PORTION)
    assert rounds == 4
    assert ONE not in cluster.image.brokers


def test_who_was_not_unregistered_after_all_is_let_in_when_a_session_has_passed() -> None:
    cluster = cluster_of(*[ALL] * COUNT)
    cluster.begin_sessions()
    assert unregister(cluster, ONE).has_more
    cluster.now_ms += SESSION_TIMEOUT_MS - 1
    assert cluster.hear(ONE).is_fenced
    cluster.now_ms += 1
    assert not cluster.hear(ONE).is_fenced


def test_an_incarnation_that_comes_meanwhile_is_not_the_one_to_unregister() -> None:
    cluster = cluster_of(*[ALL] * COUNT)
    cluster.begin_sessions()
    decided = unregister(cluster, ONE)
    registration = replace(cluster.registration(ONE), previous_broker_epoch=cluster.epochs[ONE])
    while cluster.register_beside(registration).has_more:
        pass
    assert not unregister(cluster, ONE, decided.broker_epoch).has_more
    assert cluster.image.brokers[ONE].incarnation_id == registration.incarnation_id
    cluster.epochs[ONE] = cluster.image.brokers[ONE].broker_epoch
    assert not cluster.hear(ONE).is_fenced, "and nothing keeps it out"


def test_no_heartbeat_lets_the_old_incarnation_in_between_the_portions_of_a_new_one() -> None:
    cluster = cluster_of(*[ALL] * COUNT)
    cluster.begin_sessions()
    registration = replace(cluster.registration(ONE), previous_broker_epoch=cluster.epochs[ONE])
    rounds = 1
    while (registered := cluster.register_beside(registration)).has_more:
        assert cluster.hear(ONE).is_fenced
        assert leaders(cluster).count(TWO) == rounds * PORTION
        rounds += 1
    assert rounds == 4
    cluster.epochs[ONE] = registered.broker_epoch
    assert not cluster.hear(ONE).is_fenced


def test_of_two_that_register_by_turns_one_is_registered_and_the_other_is_told() -> None:
    cluster = cluster_of(*[ALL] * COUNT)
    cluster.begin_sessions()
    cluster.now_ms += SESSION_TIMEOUT_MS
    one, other = (cluster.registration(ONE) for _ in range(2))
    registered: list[BrokerToRegister] = []
    asking = [one, other]
    while not registered:
        for asks in asking:
            if not cluster.register_beside(asks).has_more:
                registered.append(asks)
                break
    (first,) = registered
    second = other if first is one else one
    assert refused(cluster.register_beside, second) is Code.DUPLICATE_BROKER_REGISTRATION
    assert cluster.image.brokers[ONE].incarnation_id == first.incarnation_id
    assert all(leadership(each) == (TWO, 1, (TWO, THREE)) for each in partitions(cluster))


def unregister(cluster: Cluster, broker: BrokerId, broker_epoch: BrokerEpoch | None = None) -> BrokerChange:
    decided: BrokerChange = cluster.run(
        cluster.state.decide_unregister_broker(broker, broker_epoch, sessions=cluster.sessions, now_ms=cluster.now_ms)
    )
    return decided


def test_unclean_elections_that_a_setting_allows_are_held_in_portions() -> None:
    cluster = cluster_of(*[[ONE, TWO]] * COUNT)
    cluster.fence(TWO)
    settle(cluster)
    cluster.fence(ONE)
    settle(cluster)
    cluster.unfence(TWO)
    assert leaders(cluster) == [None] * COUNT
    allowed = ConfigsToAlter(
        ResourceKey(ResourceType.TOPIC, "a"), [ConfigChange("unclean.leader.election.enable", 0, "true")]
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
    pieces = list(pieces_to_elect(cluster.state.metadata, cluster.state.settings, ElectionType.UNCLEAN))
    assert [len(piece) for piece in pieces] == [2, 2, 2, 1]
    for piece in pieces:
        decision = cluster.state.decide_elect_leaders(ElectionType.UNCLEAN, piece, is_of_all=True)
        assert (decision.records, decision.reply) == ((), ()), "none needs one"
    assert Offset(cluster.journal.next_offset) == cluster.journal.committed_end_offset

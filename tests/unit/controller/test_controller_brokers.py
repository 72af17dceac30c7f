"""Brokers come and go: registrations, elections, and what moves the leader epoch."""

from __future__ import annotations

from dataclasses import replace
from uuid import UUID

from hypothesis import given
from hypothesis import strategies as st

from support.fixtures.controlled_cluster import CLUSTER, ONE, THREE, TWO, Cluster, leadership, refused
from tidelog.base.errors import Code
from tidelog.base.ids import BrokerEpoch, BrokerId, ClusterId, Offset, PartitionIndex
from tidelog.controller import (
    METADATA_VERSION,
    PRODUCER_ID_BLOCK_SIZE,
    BrokerChange,
    ControllerSettings,
    ControllerState,
)
from tidelog.journal import Decision, Journal
from tidelog.metadata import RegisteredEndpoint
from tidelog.metadata.records import (
    BrokerRegistrationChangeRecord,
    ConfigRecord,
    FeatureLevelRecord,
    PartitionChangeRecord,
    ProducerIdsRecord,
    RegisterBrokerRecord,
    decode_record,
)


def test_a_broker_registers_fenced_and_is_let_in() -> None:
    cluster = Cluster()
    registration = replace(
        cluster.registration(ONE), rack="r", log_dirs=(UUID(int=9),), features=(("metadata.version", 7, 21),)
    )
    decision = cluster.decide_register(registration)
    assert decision.reply == BrokerChange(BrokerEpoch(cluster.journal.next_offset))
    (record,) = decision.records
    assert isinstance(record, RegisterBrokerRecord)
    assert record.fenced
    cluster.run(decision)
    broker = cluster.image.brokers[ONE]
    assert (broker.rack, broker.log_dirs, broker.endpoints) == ("r", (UUID(int=9),), registration.endpoints)
    assert broker.features == registration.features
    assert not broker.is_active
    cluster.epochs[ONE] = broker.broker_epoch
    cluster.unfence(ONE)
    assert cluster.image.brokers[ONE].is_active
    assert cluster.state.decide_unfence_broker(ONE, broker.broker_epoch).records == ()


def test_the_sole_leader_returns_in_a_new_epoch() -> None:
    cluster = Cluster()
    cluster.start(ONE)
    cluster.create("a", [ONE], [ONE])
    assert leadership(cluster.partition("a")) == (1, 0, (1,))

    decision = cluster.decide_register(cluster.registration(ONE))
    assert [type(record) for record in decision.records] == [RegisterBrokerRecord] + [PartitionChangeRecord] * 2
    cluster.epochs[ONE] = cluster.run(decision).broker_epoch
    assert leadership(cluster.partition("a")) == (None, 1, ())

    cluster.unfence(ONE)
    assert leadership(cluster.partition("a", 1)) == (1, 2, (1,))


def test_a_new_incarnation_loses_its_leaderships_and_seats_to_others() -> None:
    cluster = Cluster()
    cluster.start(ONE, TWO, THREE)
    cluster.create("a", [ONE, TWO, THREE], [TWO, ONE, THREE])
    cluster.register(ONE)
    assert leadership(cluster.partition("a", 0)) == (2, 1, (2, 3))
    assert leadership(cluster.partition("a", 1)) == (2, 0, (2, 3))
    unfencing = cluster.state.decide_unfence_broker(ONE, cluster.epochs[ONE])
    assert not any(isinstance(record, PartitionChangeRecord) for record in unfencing.records)


def test_the_last_in_sync_replica_may_lead_when_it_is_back() -> None:
    cluster = Cluster()
    cluster.start(ONE, TWO)
    cluster.create("a", [ONE, TWO])
    cluster.fence(ONE)
    assert leadership(cluster.partition("a")) == (2, 1, (2,))
    cluster.fence(TWO)
    assert leadership(cluster.partition("a")) == (None, 2, ())
    assert cluster.partition("a").eligible_leader_replicas == (2,)
    cluster.unfence(ONE)
    assert leadership(cluster.partition("a")) == (None, 2, ()), "who was not in sync must not lead"
    cluster.unfence(TWO)
    assert leadership(cluster.partition("a")) == (2, 3, (2,))


def test_who_falls_silent_stays_eligible_for_it_may_have_lost_nothing() -> None:
    cluster = Cluster()
    cluster.start(ONE, TWO)
    cluster.create("a", [ONE, TWO])
    two = ConfigRecord(resource_type=2, resource_name="a", name="min.insync.replicas", value="2")
    cluster.run(Decision((two,), None))
    cluster.fence(TWO)
    cluster.fence(ONE)
    assert leadership(cluster.partition("a")) == (None, 1, ())
    assert set(cluster.partition("a").eligible_leader_replicas) == {ONE, TWO}
    cluster.register(ONE)
    assert cluster.partition("a").eligible_leader_replicas == (TWO,), "its last shutdown was unclean"


def test_a_partition_that_begins_with_too_few_in_sync_outlives_a_loss_of_their_power() -> None:
    """The others are fenced while it is created. Nothing can be committed without one of them."""
    cluster = Cluster()
    cluster.start(ONE, TWO, THREE)
    cluster.fence(TWO)
    cluster.fence(THREE)
    cluster.create("a", [ONE, TWO, THREE], configs=[("min.insync.replicas", "2")])
    state = cluster.partition("a")
    assert (leadership(state), state.eligible_leader_replicas) == ((1, 0, (1,)), (TWO, THREE))
    cluster.register(ONE)
    assert leadership(cluster.partition("a")) == (None, 1, ()), "its last shutdown was unclean"
    cluster.unfence(THREE)
    assert leadership(cluster.partition("a")) == (3, 2, (3,))


def test_a_partition_that_begins_with_enough_in_sync_has_nobody_else_eligible() -> None:
    cluster = Cluster()
    cluster.start(ONE, TWO, THREE)
    cluster.fence(THREE)
    cluster.create("a", [ONE, TWO, THREE], configs=[("min.insync.replicas", "2")])
    assert cluster.partition("a").isr == (ONE, TWO)
    assert cluster.partition("a").eligible_leader_replicas == ()


def test_who_is_not_in_sync_does_not_lead_however_alive() -> None:
    cluster = Cluster()
    cluster.start(ONE, TWO)
    cluster.create("a", [ONE, TWO])
    cluster.fence(ONE)
    cluster.unfence(ONE)
    assert leadership(cluster.partition("a")) == (2, 1, (2,))
    cluster.fence(TWO)
    assert leadership(cluster.partition("a")) == (None, 2, ())


def test_the_same_process_registers_again() -> None:
    cluster = Cluster()
    registration = cluster.registration(ONE)
    cluster.epochs[ONE] = cluster.run(cluster.decide_register(registration)).broker_epoch
    cluster.unfence(ONE)
    cluster.create("a", [ONE])
    end_offset = cluster.journal.next_offset
    cluster.begin_sessions()
    for _ in range(2):
        assert cluster.register_beside(registration) == BrokerChange(cluster.epochs[ONE])
    assert cluster.journal.next_offset == end_offset
    moved = replace(registration, endpoints=(RegisteredEndpoint("PLAINTEXT", "elsewhere", 9092),))
    cluster.run(cluster.decide_register(moved))
    broker = cluster.image.brokers[ONE]
    assert (broker.endpoints, broker.broker_epoch, broker.is_active) == (moved.endpoints, cluster.epochs[ONE], True)
    assert leadership(cluster.partition("a")) == (1, 0, (1,))


def test_registrations_that_are_refused() -> None:
    cluster = Cluster()
    cluster.start(ONE)
    broker = cluster.registration(ONE)
    assert refused(cluster.decide_register, replace(broker, cluster_id=ClusterId("x"))) == Code.INCONSISTENT_CLUSTER_ID
    assert refused(cluster.decide_register, replace(broker, endpoints=())) == Code.INVALID_REQUEST
    assert cluster.decide_register(replace(broker, cluster_id=CLUSTER)).records


def test_who_speaks_for_an_old_incarnation_is_refused() -> None:
    cluster = Cluster()
    cluster.start(ONE)
    old = cluster.epochs[ONE]
    cluster.register(ONE)
    for decide in (
        cluster.state.decide_unfence_broker,
        cluster.state.decide_fence_broker,
        cluster.state.decide_allocate_producer_ids,
    ):
        assert refused(decide, ONE, old) == Code.STALE_BROKER_EPOCH
        assert refused(decide, TWO, old) == Code.BROKER_ID_NOT_REGISTERED
    assert cluster.state.decide_fence_broker(ONE, cluster.epochs[ONE]).records == ()


def test_a_broker_is_forgotten() -> None:
    cluster = Cluster()
    cluster.start(ONE, TWO)
    cluster.begin_sessions()
    cluster.create("a", [ONE, TWO], [TWO, ONE])
    cluster.create("b", [ONE])
    assert refused(cluster.state.decide_unregister_broker, THREE) == Code.BROKER_ID_NOT_REGISTERED
    cluster.run(cluster.state.decide_unregister_broker(ONE, sessions=cluster.sessions))
    assert set(cluster.image.brokers) == {TWO}
    assert leadership(cluster.partition("a", 0)) == (2, 1, (2,))
    assert leadership(cluster.partition("a", 1)) == (2, 0, (2,))
    assert cluster.partition("a").replicas == (1, 2), "its seats wait for it, or for a reassignment"
    assert cluster.partition("b").eligible_leader_replicas == (ONE,)
    assert not cluster.sessions.is_alive(ONE, cluster.now_ms)
    assert refused(cluster.hear, ONE) == Code.BROKER_ID_NOT_REGISTERED
    cluster.register(ONE)
    assert cluster.hear(ONE).is_fenced is False
    assert cluster.partition("b").leader == ONE


def test_a_broker_that_shuts_down_is_not_elected() -> None:
    cluster = Cluster()
    cluster.start(ONE)
    cluster.create("a", [ONE])
    cluster.fence(ONE)
    leaving = BrokerRegistrationChangeRecord(broker_id=1, broker_epoch=cluster.epochs[ONE], in_controlled_shutdown=1)
    cluster.run(Decision((leaving,), None))
    cluster.unfence(ONE)
    assert not cluster.image.brokers[ONE].is_active
    known = cluster.image.brokers[ONE]
    again = replace(cluster.registration(ONE), incarnation_id=known.incarnation_id, rack="told late")
    cluster.run(cluster.decide_register(again))
    assert cluster.image.brokers[ONE] == replace(known, endpoints=again.endpoints, rack="told late")
    assert not cluster.image.brokers[ONE].is_active
    assert leadership(cluster.partition("a")) == (None, 1, ())
    assert cluster.partition("a").eligible_leader_replicas == (1,)


def test_producer_ids_are_given_once() -> None:
    cluster = Cluster()
    cluster.start(ONE, TWO)
    decision = cluster.state.decide_allocate_producer_ids(ONE, cluster.epochs[ONE])
    (record,) = decision.records
    assert record == ProducerIdsRecord(
        broker_id=1, broker_epoch=cluster.epochs[ONE], next_producer_id=PRODUCER_ID_BLOCK_SIZE
    )
    first = cluster.run(decision)
    second = cluster.run(cluster.state.decide_allocate_producer_ids(TWO, cluster.epochs[TWO]))
    assert (first.first, first.end, second.first) == (0, PRODUCER_ID_BLOCK_SIZE, PRODUCER_ID_BLOCK_SIZE)


def test_producer_ids_end() -> None:
    cluster = Cluster()
    cluster.start(ONE)
    last = ProducerIdsRecord(broker_id=1, broker_epoch=1, next_producer_id=(1 << 63) - 1000)
    cluster.run(Decision((last,), None))
    assert refused(cluster.state.decide_allocate_producer_ids, ONE, cluster.epochs[ONE]) == Code.UNKNOWN_SERVER_ERROR


def test_a_new_log_begins_with_the_level_of_its_records() -> None:
    cluster = Cluster()
    decision = cluster.state.decide_bootstrap()
    assert decision.records == (
        FeatureLevelRecord(name="metadata.version", feature_level=METADATA_VERSION),
        FeatureLevelRecord(name="transaction.version", feature_level=2),
        FeatureLevelRecord(name="group.version", feature_level=1),
        FeatureLevelRecord(name="eligible.leader.replicas.version", feature_level=1),
        FeatureLevelRecord(name="share.version", feature_level=1),
    )
    cluster.run(decision)
    assert cluster.image.features == {
        "metadata.version": METADATA_VERSION,
        "transaction.version": 2,
        "group.version": 1,
        "eligible.leader.replicas.version": 1,
        "share.version": 1,
    }
    assert cluster.state.decide_bootstrap().records == ()


@given(st.data())
def test_leaders_are_in_sync_and_alive_and_every_leadership_has_its_own_epoch(data: st.DataObject) -> None:
    cluster = Cluster()
    cluster.start(*data.draw(st.sampled_from(((), (ONE, TWO, THREE)))))
    seen: dict[tuple[str, int, int], int | None] = {}
    names: list[str] = []
    for _ in range(data.draw(st.integers(1, 25))):
        broker_id = BrokerId(data.draw(st.integers(1, 3)))
        step = data.draw(st.sampled_from(("register", "unfence", "unfence", "fence", "create")))
        before = cluster.image
        if step == "register":
            cluster.register(broker_id)
            for topic in cluster.image.topics_by_id.values():
                assert all(state.leader != broker_id for state in topic.partitions)
        elif step == "create" and any(broker.is_active for broker in cluster.image.brokers.values()):
            active = [broker.broker_id for broker in cluster.image.brokers.values() if broker.is_active]
            others = [broker for broker in cluster.image.brokers if broker not in active]
            name = f"t{len(names)}"
            cluster.create(name, [*active, *others], [*others, *reversed(active)])
            names.append(name)
        elif broker_id in cluster.epochs and step != "create":
            cluster.unfence(broker_id) if step == "unfence" else cluster.fence(broker_id)
        else:
            continue
        image = cluster.image
        for name in names:
            for index, state in enumerate(image.topics_by_name[name].partitions):
                active_isr = [b for b in state.isr if image.brokers[b].is_active]
                assert tuple(active_isr) == state.isr
                assert state.isr or state.eligible_leader_replicas, "one in sync is enough here: who was last may lead"
                assert not set(state.isr) & set(state.eligible_leader_replicas)
                assert (state.leader in active_isr) if state.leader is not None else not active_isr
                key = (name, index, state.leader_epoch)
                assert seen.setdefault(key, state.leader) == state.leader, "an epoch had two leaders"
                was = before.partition(name, PartitionIndex(index))
                if was is not None and was.leader_epoch != state.leader_epoch:
                    assert state.leader_epoch == was.leader_epoch + 1

    recovered = Journal(Cluster.empty(), not_active=Code.NOT_CONTROLLER)
    for offset, value in cluster.log:
        recovered.replay(decode_record(value), Offset(offset))
    assert recovered.committed.metadata.image(None) == cluster.image


def test_a_controller_that_knows_no_cluster_id_lets_every_broker_register() -> None:
    state = ControllerState(ControllerSettings(cluster_id=None))
    stranger = replace(Cluster().registration(ONE), cluster_id=ClusterId("B" * 22))
    assert len(state.decide_register_broker(stranger, next_offset=Offset(0)).records) == 1


def test_the_incarnation_that_is_meant_is_unregistered_and_no_other_one() -> None:
    cluster = Cluster()
    cluster.start(ONE)
    old = cluster.epochs[ONE]
    cluster.register(ONE)
    cluster.unfence(ONE)
    cluster.begin_sessions()
    assert cluster.state.decide_unregister_broker(ONE, old, sessions=cluster.sessions, now_ms=0).records == ()
    assert cluster.sessions.is_alive(ONE, 0)
    cluster.run(cluster.state.decide_unregister_broker(ONE, cluster.epochs[ONE]))
    assert ONE not in cluster.image.brokers
    assert cluster.state.decide_unregister_broker(ONE, old).records == (), "it is gone already"


def test_who_is_unregistered_is_eligible_to_lead_until_it_comes_back_without_its_log() -> None:
    cluster = Cluster()
    cluster.start(ONE, TWO)
    cluster.write(ConfigRecord(resource_type=4, resource_name="", name="min.insync.replicas", value="2"))
    cluster.create("a", [ONE, TWO])
    cluster.run(cluster.state.decide_unregister_broker(ONE))
    assert cluster.partition("a").eligible_leader_replicas == (ONE,)
    cluster.register(ONE)
    assert cluster.partition("a").eligible_leader_replicas == ()

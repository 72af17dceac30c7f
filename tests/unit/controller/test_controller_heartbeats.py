"""Heartbeats: who is let in, who falls silent, and who may go without anyone waiting for it."""

from __future__ import annotations

from dataclasses import replace
from uuid import UUID

import pytest

from support.fixtures.controlled_cluster import ONE, THREE, TWO, Cluster, leadership, refused
from tidelog.base.errors import Code, KafkaError
from tidelog.base.ids import BrokerEpoch, BrokerId, Offset
from tidelog.controller import Heartbeat, HeartbeatReply
from tidelog.controller.sessions import SESSION_TIMEOUT_MS
from tidelog.metadata.records import (
    BrokerRegistrationChangeRecord,
    ConfigRecord,
    PartitionChangeRecord,
    UnregisterBrokerRecord,
)

IN, OUT, MAY_GO = (
    HeartbeatReply(is_caught_up=True, is_fenced=False),
    HeartbeatReply(is_caught_up=True, is_fenced=True),
    HeartbeatReply(is_caught_up=True, is_fenced=True, should_shut_down=True),
)


def three(*replicas: list[BrokerId]) -> Cluster:
    """Three brokers, all in, with a topic of these partitions."""
    cluster = Cluster()
    cluster.start(ONE, TWO, THREE)
    cluster.begin_sessions()
    cluster.create("a", *replicas)
    return cluster


def hear_all(cluster: Cluster) -> None:
    for broker in (ONE, TWO, THREE):
        cluster.hear(broker)


# Letting in.


def test_a_broker_is_let_in_once_it_has_seen_its_own_registration() -> None:
    cluster = Cluster()
    epoch = cluster.register(ONE).broker_epoch
    assert cluster.hear(ONE, at=None) == HeartbeatReply(is_caught_up=False, is_fenced=True)
    assert cluster.hear(ONE, at=epoch - 1) == HeartbeatReply(is_caught_up=False, is_fenced=True)
    assert cluster.hear(ONE, at=epoch) == IN
    assert cluster.image.brokers[ONE].is_active
    end_offset = cluster.journal.next_offset
    assert cluster.hear(ONE) == IN
    assert cluster.journal.next_offset == end_offset, "what is so already takes no record"


def test_who_wants_to_be_fenced_is() -> None:
    cluster = three([ONE, TWO])
    assert cluster.hear(ONE, wants_fence=True) == OUT
    assert leadership(cluster.partition("a")) == (2, 1, (2,))
    assert cluster.hear(ONE, wants_fence=True) == OUT
    assert cluster.hear(ONE) == IN


def test_who_is_not_registered_is_told_so() -> None:
    cluster = three([ONE])
    heartbeat = Heartbeat(ONE, BrokerEpoch(cluster.epochs[ONE] - 1), Offset(100))
    times = {"next_offset": cluster.journal.next_offset, "now_ms": 0}
    assert refused(cluster.state.decide_heartbeat, heartbeat, cluster.sessions, **times) == Code.STALE_BROKER_EPOCH
    stranger = replace(heartbeat, broker_id=BrokerId(9))
    assert refused(cluster.state.decide_heartbeat, stranger, cluster.sessions, **times) == Code.BROKER_ID_NOT_REGISTERED


# Falling silent.


def test_who_falls_silent_is_fenced_when_its_session_ends() -> None:
    cluster = three([ONE, TWO, THREE], [TWO, ONE, THREE])
    assert cluster.sessions.next_deadline_ms() == SESSION_TIMEOUT_MS
    cluster.now_ms = SESSION_TIMEOUT_MS - 1
    cluster.hear(TWO)
    cluster.hear(THREE)
    assert cluster.expire() == ()
    cluster.now_ms += 1
    assert cluster.expire() == (ONE,)
    assert leadership(cluster.partition("a")) == (2, 1, (2, 3))
    assert leadership(cluster.partition("a", 1)) == (2, 0, (2, 3))
    assert cluster.sessions.next_deadline_ms() == 2 * SESSION_TIMEOUT_MS - 1
    assert cluster.expire() == ()
    assert cluster.hear(ONE) == IN, "it was only slow"


def test_all_who_fell_silent_are_fenced_in_one_batch() -> None:
    cluster = three([ONE, TWO, THREE])
    cluster.now_ms = SESSION_TIMEOUT_MS
    cluster.hear(THREE)
    assert set(cluster.expire()) == {ONE, TWO}
    state = cluster.partition("a")
    assert (state.leader, state.isr) == (THREE, (THREE,))


def test_who_is_registered_no_longer_or_anew_is_not_fenced_for_its_silence() -> None:
    cluster = three([TWO])
    cluster.write(UnregisterBrokerRecord(broker_id=ONE, broker_epoch=cluster.epochs[ONE]))
    cluster.register(TWO)
    cluster.unfence(TWO)
    cluster.now_ms += SESSION_TIMEOUT_MS
    assert cluster.expire() == (THREE,)


def test_who_was_never_let_in_ends_unnoticed() -> None:
    cluster = Cluster()
    cluster.epochs[ONE] = cluster.register_beside(cluster.registration(ONE)).broker_epoch
    cluster.hear(ONE, at=None)
    cluster.now_ms = SESSION_TIMEOUT_MS
    end_offset = cluster.journal.next_offset
    assert cluster.expire() == ()
    assert (cluster.journal.next_offset, cluster.sessions.next_deadline_ms()) == (end_offset, None)


def test_a_new_controller_grants_everybody_a_session() -> None:
    cluster = three([ONE])
    cluster.now_ms = SESSION_TIMEOUT_MS - 1
    cluster.begin_sessions()
    cluster.now_ms += SESSION_TIMEOUT_MS - 1
    assert cluster.expire() == ()
    cluster.now_ms += 1
    assert set(cluster.expire()) == {ONE, TWO, THREE}


# One id, two processes.


def test_another_process_with_the_same_id_waits_for_the_session_of_the_first() -> None:
    cluster = three([ONE])
    other = cluster.registration(ONE)
    with pytest.raises(KafkaError, match="another process serves as broker 1") as refusal:
        cluster.register_beside(other)
    assert refusal.value.code == Code.DUPLICATE_BROKER_REGISTRATION
    assert cluster.hear(ONE) == IN
    cluster.now_ms = SESSION_TIMEOUT_MS
    epoch = cluster.register_beside(other).broker_epoch
    assert epoch > cluster.epochs[ONE]
    with pytest.raises(KafkaError) as stale:
        cluster.hear(ONE)
    assert stale.value.code == Code.STALE_BROKER_EPOCH
    assert ONE not in cluster.expire(), "the session of the new one has begun"


def test_who_holds_the_directory_of_the_last_one_need_not_wait() -> None:
    """It presents the broker epoch that lies there: nothing of the logs was lost, and nobody else has them open."""
    cluster = three([ONE, TWO])
    heir = replace(cluster.registration(ONE), previous_broker_epoch=cluster.epochs[ONE])
    cluster.epochs[ONE] = cluster.register_beside(heir).broker_epoch
    assert leadership(cluster.partition("a")) == (2, 1, (2,))
    assert cluster.hear(ONE) == IN


def test_the_process_that_lost_its_directories_to_another_is_gone_and_not_waited_for() -> None:
    """A process locks its directories: whoever has one of them now came after it."""
    cluster = three([TWO])
    first = replace(cluster.registration(ONE), log_dirs=(UUID(int=1), UUID(int=2)))
    cluster.epochs[ONE] = cluster.run(cluster.decide_register(first)).broker_epoch
    cluster.hear(ONE)
    elsewhere = replace(cluster.registration(ONE), log_dirs=(UUID(int=3),))
    assert refused(cluster.register_beside, elsewhere) == Code.DUPLICATE_BROKER_REGISTRATION
    there = replace(elsewhere, log_dirs=(UUID(int=2), UUID(int=3)))
    assert cluster.register_beside(there).broker_epoch > cluster.epochs[ONE]


def test_a_request_of_a_process_that_is_no_more_comes_late_and_takes_nothing() -> None:
    """It was sent again, and its first copy was on its way: the logs are those of the process that lives."""
    cluster = three([ONE])
    first = replace(cluster.registration(ONE), previous_broker_epoch=cluster.epochs[ONE])
    epoch = cluster.register_beside(first).broker_epoch
    heir = replace(cluster.registration(ONE), previous_broker_epoch=epoch)
    cluster.epochs[ONE] = cluster.register_beside(heir).broker_epoch
    assert cluster.hear(ONE) == IN
    led = leadership(cluster.partition("a"))
    assert led[0] == ONE
    cluster.now_ms = SESSION_TIMEOUT_MS
    assert refused(cluster.register_beside, first) == Code.DUPLICATE_BROKER_REGISTRATION
    assert leadership(cluster.partition("a")) == led
    assert cluster.register_beside(heir).broker_epoch == cluster.epochs[ONE]


def test_who_comes_back_with_an_empty_disk_is_not_elected_though_it_was_the_last() -> None:
    """The others hold less than it did, and more than it does."""
    cluster = three([TWO])
    first = replace(cluster.registration(ONE), log_dirs=(UUID(int=1),))
    cluster.epochs[ONE] = cluster.run(cluster.decide_register(first)).broker_epoch
    cluster.hear(ONE)
    cluster.create("b", [ONE, TWO], [TWO, ONE])
    cluster.fence(TWO)
    cluster.fence(ONE)
    emptied = replace(cluster.registration(ONE), log_dirs=(UUID(int=3),))
    cluster.epochs[ONE] = cluster.run(cluster.decide_register(emptied)).broker_epoch
    cluster.hear(ONE)
    state = cluster.partition("b")
    assert (state.leader, state.isr, state.eligible_leader_replicas) == (None, (), ())
    assert state.last_known_eligible_leader_replicas == ()
    assert [one.directories[one.replicas.index(ONE)].int for one in (state, cluster.partition("b", 1))] == [3, 3]
    again = replace(cluster.registration(ONE), log_dirs=(UUID(int=3),), previous_broker_epoch=cluster.epochs[ONE])
    assert len(cluster.decide_register(again).records) == 1, "what it has since begun is known to lie there"


def test_who_lacks_one_of_the_directories_has_lost_what_lay_there() -> None:
    cluster = three([TWO])
    first = replace(cluster.registration(ONE), log_dirs=(UUID(int=1), UUID(int=2)))
    cluster.epochs[ONE] = cluster.run(cluster.decide_register(first)).broker_epoch
    cluster.hear(ONE)
    cluster.create("b", [ONE, TWO])
    cluster.write(ConfigRecord(resource_type=2, resource_name="b", name="min.insync.replicas", value="2"))
    again = replace(
        cluster.registration(ONE), log_dirs=(UUID(int=1), UUID(int=3)), previous_broker_epoch=cluster.epochs[ONE]
    )
    cluster.run(cluster.decide_register(again))
    assert cluster.partition("b").eligible_leader_replicas == ()
    assert cluster.partition("b").last_known_eligible_leader_replicas == (ONE,)


# Going.


def test_what_it_leads_goes_to_others_before_it_may_go() -> None:
    cluster = three([ONE, TWO, THREE], [TWO, THREE, ONE])
    cluster.create("alone", [ONE])
    hear_all(cluster)
    before = cluster.journal.next_offset
    assert cluster.hear(ONE, wants_shut_down=True) == IN
    assert cluster.journal.next_offset == before + 3, "that it goes, and the two that others have: in one batch"
    assert cluster.image.brokers[ONE].in_controlled_shutdown
    assert leadership(cluster.partition("a", 0)) == (2, 1, (2, 3))
    assert leadership(cluster.partition("a", 1)) == (2, 0, (2, 3))
    assert leadership(cluster.partition("alone")) == (1, 0, (1,)), "nobody else could"

    assert cluster.hear(ONE, wants_shut_down=True) == IN, "nobody has seen that yet"
    cluster.hear(TWO)
    cluster.hear(THREE, at=before + 1)
    assert cluster.hear(ONE, wants_shut_down=True) == IN, "one has seen half of it"
    cluster.hear(THREE, at=before + 2)
    assert cluster.hear(ONE, wants_shut_down=True) == MAY_GO
    assert leadership(cluster.partition("alone")) == (None, 1, ())
    assert cluster.partition("alone").eligible_leader_replicas == (ONE,)
    assert cluster.hear(ONE, wants_shut_down=True) == MAY_GO, "the answer may have been lost"
    assert not cluster.sessions.is_alive(ONE, cluster.now_ms), "its next incarnation has not to wait"


def test_who_leads_nothing_may_go_at_once() -> None:
    cluster = three([TWO])
    assert cluster.hear(ONE, wants_shut_down=True) == MAY_GO
    alone = Cluster()
    alone.start(ONE)
    alone.create("a", [ONE])
    assert alone.hear(ONE, wants_shut_down=True) == MAY_GO, "nobody could take over"
    assert alone.partition("a").eligible_leader_replicas == (ONE,)


def test_who_is_fenced_or_wants_it_may_go_at_once() -> None:
    cluster = three([ONE, TWO])
    assert cluster.hear(ONE, wants_fence=True, wants_shut_down=True) == MAY_GO
    assert leadership(cluster.partition("a")) == (2, 1, (2,))
    assert cluster.hear(ONE, wants_shut_down=True) == MAY_GO


def test_all_go_at_once() -> None:
    cluster = three([ONE, TWO, THREE])
    hear_all(cluster)
    going = [ONE, TWO, THREE]
    for _ in range(4):
        going = [one for one in going if not cluster.hear(one, wants_shut_down=True).should_shut_down]
    assert going == []
    state = cluster.partition("a")
    assert (state.leader, state.isr) == (None, ())
    assert state.eligible_leader_replicas == (THREE,), "who was in sync last"


def test_what_comes_to_be_in_sync_meanwhile_is_moved_too() -> None:
    cluster = three([ONE, TWO])
    cluster.fence(TWO)
    cluster.create("b", [ONE, THREE])
    cluster.hear(ONE, wants_shut_down=True)
    assert leadership(cluster.partition("a")) == (1, 0, (1,))
    cluster.hear(TWO)
    joins = PartitionChangeRecord(partition_id=0, topic_id=cluster.image.topics_by_name["a"].topic_id, isr=[1, 2])
    cluster.write(joins)
    assert cluster.hear(ONE, wants_shut_down=True) == IN
    assert leadership(cluster.partition("a")) == (2, 1, (2,))
    cluster.hear(TWO)
    cluster.hear(THREE)
    assert cluster.hear(ONE, wants_shut_down=True) == MAY_GO


def test_an_eligible_leader_takes_over_where_nobody_else_is_in_sync() -> None:
    cluster = three([ONE, TWO])
    cluster.write(ConfigRecord(resource_type=2, resource_name="a", name="min.insync.replicas", value="2"))
    cluster.fence(TWO)
    cluster.hear(TWO)
    assert cluster.partition("a").eligible_leader_replicas == (TWO,)
    cluster.hear(ONE, wants_shut_down=True)
    assert leadership(cluster.partition("a")) == (2, 1, (2,))
    assert cluster.partition("a").eligible_leader_replicas == (ONE,)


def test_who_goes_is_not_elected_and_does_not_join() -> None:
    cluster = three([ONE, TWO], [TWO, ONE])
    cluster.hear(ONE, wants_shut_down=True)
    cluster.fence(TWO)
    assert leadership(cluster.partition("a")) == (None, 2, ())
    assert cluster.hear(ONE) == IN, "it changed its mind, which changes nothing: it has to register anew"
    assert cluster.image.brokers[ONE].in_controlled_shutdown
    cluster.register(ONE)
    assert not cluster.image.brokers[ONE].in_controlled_shutdown


def test_after_a_failover_it_goes_when_all_have_seen_where_the_new_controller_began() -> None:
    cluster = three([ONE, TWO])
    hear_all(cluster)
    cluster.hear(ONE, wants_shut_down=True)
    moved = cluster.journal.next_offset
    cluster.begin_sessions()
    cluster.hear(TWO, at=moved - 1)
    assert not cluster.hear(ONE, wants_shut_down=True).should_shut_down
    cluster.hear(THREE, at=moved - 1)
    assert cluster.hear(ONE, wants_shut_down=True).should_shut_down


def test_who_is_silenced_while_it_goes_may_go() -> None:
    cluster = three([ONE, TWO])
    cluster.hear(ONE, wants_shut_down=True)
    cluster.now_ms = SESSION_TIMEOUT_MS
    cluster.expire()
    assert cluster.hear(ONE, wants_shut_down=True) == MAY_GO


# Losing a directory.


def with_directories(*ids: int) -> Cluster:
    """Three brokers, the first of which has these directories."""
    cluster = three([TWO])
    first = replace(cluster.registration(ONE), log_dirs=tuple(UUID(int=number) for number in ids))
    cluster.epochs[ONE] = cluster.run(cluster.decide_register(first)).broker_epoch
    cluster.hear(ONE)
    return cluster


def test_what_lies_in_a_directory_that_failed_others_lead() -> None:
    cluster = with_directories(7)
    cluster.create("b", [ONE, TWO], [TWO, ONE])
    cluster.create("alone", [ONE])
    cluster.write(
        BrokerRegistrationChangeRecord(
            broker_id=ONE, broker_epoch=cluster.epochs[ONE], log_dirs=[UUID(int=7), UUID(int=8)]
        )
    )
    assert cluster.hear(ONE, failed=(UUID(int=7), UUID(int=99))) == IN
    assert cluster.image.brokers[ONE].log_dirs == (UUID(int=8),)
    assert leadership(cluster.partition("b", 0)) == (2, 1, (2,))
    assert leadership(cluster.partition("b", 1)) == (2, 0, (2,))
    assert leadership(cluster.partition("alone")) == (None, 1, ()), "who asks is told that it is offline"
    end_offset = cluster.journal.next_offset
    assert cluster.hear(ONE, failed=(UUID(int=7), UUID(int=99))) == IN
    assert cluster.journal.next_offset == end_offset, "all is said"


@pytest.mark.parametrize("wants_shut_down", [False, True])
def test_who_has_no_directory_left_is_about_to_stop_and_nothing_is_said_of_directories(
    *, wants_shut_down: bool
) -> None:
    cluster = with_directories(7)
    before = cluster.image.brokers[ONE].log_dirs
    cluster.hear(ONE, failed=(UUID(int=7),), wants_shut_down=wants_shut_down)
    assert cluster.image.brokers[ONE].log_dirs == before


def test_a_directory_that_fails_changes_nothing_where_its_broker_holds_nothing_that_counts() -> None:
    cluster = with_directories(7, 8)
    cluster.create("b", [TWO, ONE])
    topic_id = cluster.image.topics_by_name["b"].topic_id
    cluster.write(PartitionChangeRecord(partition_id=0, topic_id=topic_id, isr=[TWO]))
    before = cluster.partition("b")
    cluster.hear(ONE, failed=(UUID(int=8),))
    assert cluster.partition("b") == before


def test_who_goes_says_nothing_more_of_its_directories() -> None:
    cluster = with_directories(7, 8)
    assert cluster.hear(ONE, failed=(UUID(int=7),), wants_shut_down=True) == MAY_GO
    assert cluster.image.brokers[ONE].log_dirs == (UUID(int=7), UUID(int=8))


def test_where_nobody_knows_what_lay_there_it_leaves_what_others_can_lead() -> None:
    cluster = with_directories(7, 8)
    cluster.create("b", [ONE, TWO])
    cluster.create("alone", [ONE])
    cluster.hear(ONE, failed=(UUID(int=8),))
    assert leadership(cluster.partition("b")) == (2, 1, (2,))
    assert leadership(cluster.partition("alone")) == (1, 0, (1,)), "it may lie in the other"


def test_it_is_a_record_of_the_format_that_kafka_reads() -> None:
    cluster = three([ONE, TWO])
    heartbeat = Heartbeat(ONE, cluster.epochs[ONE], None, wants_shut_down=True)
    records = cluster.state.decide_heartbeat(
        heartbeat, cluster.sessions, next_offset=cluster.journal.next_offset, now_ms=0
    ).records
    assert records[0] == BrokerRegistrationChangeRecord(
        broker_id=ONE, broker_epoch=cluster.epochs[ONE], in_controlled_shutdown=1
    )

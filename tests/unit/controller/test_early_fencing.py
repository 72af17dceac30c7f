"""Who is fenced before its session ends: what has to be so, and that it never costs more than a moment."""

from __future__ import annotations

import random

import pytest

from support.examples import examples
from support.fixtures.controlled_cluster import ONE, THREE, TWO, Cluster, leadership
from tidelog.base.ids import BrokerEpoch, BrokerId
from tidelog.controller import EarlyFence, Suspect, Suspicions
from tidelog.controller.early_fencing import Doubt
from tidelog.controller.sessions import SESSION_TIMEOUT_MS
from tidelog.metadata.image import PartitionImage
from tidelog.metadata.records import BrokerRegistrationChangeRecord, ConfigRecord, PartitionChangeRecord

FOUR = BrokerId(4)
TOPIC = 2


class Watched:
    """A cluster whose controller has been active for a session, and heard of everybody."""

    def __init__(self, *replicas: list[BrokerId], brokers: int = 3, is_new: bool = False) -> None:
        self.cluster = Cluster()
        self.brokers = [BrokerId(number) for number in range(1, brokers + 1)]
        self.cluster.start(*self.brokers)
        self.cluster.begin_sessions()
        self.suspicions = Suspicions(self.cluster.sessions)
        self.topics = [f"t{index}" for index in range(max(len(replicas), 1))]
        for name, one in zip(self.topics, replicas or ([ONE, TWO, THREE],), strict=True):
            self.cluster.create(name, one)
        if not is_new:
            self.cluster.now_ms += SESSION_TIMEOUT_MS
            self.hear(*self.brokers)

    def hear(self, *brokers: BrokerId) -> None:
        for broker in brokers:
            self.cluster.hear(broker)

    def close(self, broker: BrokerId) -> Suspect:
        suspect = self.suspicions.on_closed(broker, self.cluster.epochs[broker], self.cluster.now_ms)
        assert suspect is not None
        return suspect

    def refuse(self, suspect: Suspect) -> EarlyFence:
        """Its port refused a connection just now."""
        outcome: EarlyFence = self.cluster.run(
            self.cluster.state.decide_fence_early(self.suspicions, suspect, now_ms=self.cluster.now_ms)
        )
        return outcome

    def state(self, index: int = 0) -> PartitionImage:
        return self.cluster.partition(self.topics[index])

    def set(self, name: str, value: str) -> None:
        """A setting of every topic."""
        self.cluster.write(
            *(ConfigRecord(resource_type=TOPIC, resource_name=one, name=name, value=value) for one in self.topics)
        )


def test_whose_port_refuses_is_fenced_and_others_lead() -> None:
    watched = Watched([ONE, TWO, THREE], [TWO, THREE], [TWO, ONE])
    assert watched.refuse(watched.close(ONE)) == EarlyFence(None, 2, is_fenced=True)
    assert watched.cluster.image.brokers[ONE].is_fenced
    assert leadership(watched.state(0)) == (TWO, 1, (TWO, THREE))
    assert leadership(watched.state(1)) == (TWO, 0, (TWO, THREE))
    assert leadership(watched.state(2)) == (TWO, 0, (TWO,))


def test_what_nobody_else_can_lead_stays_until_the_session_ends() -> None:
    watched = Watched([ONE, TWO], [ONE])
    assert watched.refuse(watched.close(ONE)) == EarlyFence(None, 1, is_fenced=False)
    assert not watched.cluster.image.brokers[ONE].is_fenced
    assert leadership(watched.state(0)) == (TWO, 1, (TWO,))
    assert leadership(watched.state(1)) == (ONE, 0, (ONE,))
    watched.cluster.now_ms += SESSION_TIMEOUT_MS
    assert ONE in watched.cluster.expire()
    assert leadership(watched.state(1)) == (None, 1, ())


def test_where_nobody_else_can_lead_anything_nothing_is_done() -> None:
    watched = Watched([ONE])
    end_offset = watched.cluster.journal.next_offset
    assert watched.refuse(watched.close(ONE)) == EarlyFence(Doubt.NO_OTHER)
    assert watched.cluster.journal.next_offset == end_offset


@pytest.mark.parametrize("is_fenced", [False, True])
def test_one_that_is_eligible_leads_what_nobody_in_sync_can_if_it_is_there(*, is_fenced: bool) -> None:
    watched = Watched([ONE, TWO])
    watched.set("min.insync.replicas", "2")
    topic_id = watched.cluster.image.topics_by_name[watched.topics[0]].topic_id
    watched.cluster.write(
        PartitionChangeRecord(partition_id=0, topic_id=topic_id, isr=[ONE], eligible_leader_replicas=[TWO])
    )
    if is_fenced:
        watched.cluster.fence(TWO)
        assert watched.refuse(watched.close(ONE)) == EarlyFence(Doubt.NO_OTHER)
    else:
        assert watched.refuse(watched.close(ONE)) == EarlyFence(None, 1, is_fenced=True)
    assert watched.state().leader == (ONE if is_fenced else TWO)


def test_a_suspicion_is_followed_once() -> None:
    watched = Watched([ONE])
    suspect = watched.close(ONE)
    assert watched.refuse(suspect) == EarlyFence(Doubt.NO_OTHER)
    assert watched.refuse(suspect) == EarlyFence(Doubt.MISTAKEN_BEFORE)


def test_what_another_leads_that_is_about_to_go_has_a_leader_still() -> None:
    watched = Watched([THREE, ONE])
    in_shutdown = BrokerRegistrationChangeRecord(
        broker_id=THREE, broker_epoch=watched.cluster.epochs[THREE], in_controlled_shutdown=1
    )
    watched.cluster.write(in_shutdown)
    assert watched.refuse(watched.close(ONE)) == EarlyFence(None, 1, is_fenced=True)
    assert leadership(watched.state()) == (THREE, 0, (THREE,))


def test_it_never_elects_uncleanly_though_that_is_allowed() -> None:
    watched = Watched([ONE, TWO])
    watched.set("unclean.leader.election.enable", "true")
    watched.cluster.fence(TWO)
    watched.cluster.hear(TWO)
    assert watched.state().isr == (ONE,)
    assert watched.refuse(watched.close(ONE)) == EarlyFence(Doubt.NO_OTHER)
    assert watched.state().leader == ONE
    watched.cluster.now_ms += SESSION_TIMEOUT_MS - 1
    watched.hear(TWO, THREE)
    watched.cluster.now_ms += 1
    assert watched.cluster.expire() == (ONE,)
    assert watched.state().leader == TWO
    assert watched.state().is_recovering, "the price, which the session alone decides about"


def test_a_connection_of_an_older_incarnation_proves_nothing() -> None:
    watched = Watched()
    suspect = watched.close(ONE)
    watched.cluster.start(ONE)
    assert watched.refuse(suspect) == EarlyFence(Doubt.ANOTHER)
    unknown = Suspect(ONE, BrokerEpoch(watched.cluster.epochs[ONE] + 1), watched.cluster.now_ms, 0)
    assert watched.refuse(unknown) == EarlyFence(Doubt.ANOTHER)
    gone = Suspect(BrokerId(9), BrokerEpoch(1), watched.cluster.now_ms, 0)
    assert watched.refuse(gone) == EarlyFence(Doubt.ANOTHER)


def test_who_was_heard_of_since_is_there() -> None:
    watched = Watched()
    suspect = watched.close(ONE)
    watched.hear(ONE)
    assert watched.refuse(suspect) == EarlyFence(Doubt.SEEN_SINCE)
    assert watched.refuse(watched.close(ONE)).is_fenced, "that was another connection"


def test_who_is_fenced_already_is_left_alone() -> None:
    watched = Watched()
    suspect = watched.close(ONE)
    watched.cluster.fence(ONE)
    assert watched.refuse(suspect) == EarlyFence(Doubt.FENCED)


def test_whoever_was_taken_for_dead_by_mistake_is_not_again() -> None:
    """A middle box refuses in its name. It would flap for as long as that goes on."""
    watched = Watched()
    first = watched.close(ONE)
    assert watched.refuse(first).is_fenced
    watched.hear(ONE)
    assert not watched.cluster.image.brokers[ONE].is_fenced
    assert watched.suspicions.on_closed(ONE, watched.cluster.epochs[ONE], watched.cluster.now_ms) is None
    watched.cluster.start(ONE)
    assert watched.refuse(watched.close(ONE)).is_fenced, "its next incarnation may die as any other"


def test_a_new_controller_suspects_nobody_before_it_has_heard_of_all_others() -> None:
    """The victim led the quorum: nobody was heard of by this controller yet."""
    watched = Watched(is_new=True)
    suspect = watched.close(ONE)
    assert watched.refuse(suspect) == EarlyFence(Doubt.TOO_NEW)
    watched.hear(TWO)
    assert watched.refuse(suspect) == EarlyFence(Doubt.TOO_NEW)
    watched.hear(THREE)
    assert watched.refuse(suspect).is_fenced


def test_a_controller_that_was_active_for_a_session_need_not_have_heard_of_all() -> None:
    watched = Watched(is_new=True)
    suspect = watched.close(ONE)
    watched.cluster.now_ms += SESSION_TIMEOUT_MS
    assert watched.refuse(suspect).is_fenced


def test_who_is_fenced_need_not_be_heard_of() -> None:
    watched = Watched(is_new=True)
    watched.cluster.fence(THREE)
    watched.hear(TWO)
    assert watched.refuse(watched.close(ONE)).is_fenced


@pytest.mark.parametrize(("brokers", "at_once"), [(2, 1), (3, 1), (5, 1), (6, 2), (9, 3)])
def test_where_many_are_gone_at_once_the_fault_may_be_our_own(brokers: int, at_once: int) -> None:
    watched = Watched([ONE, TWO], brokers=brokers)
    gone = watched.brokers[-1 : -at_once - 2 : -1]
    suspects = [watched.close(broker) for broker in gone]
    for suspect in suspects:
        assert watched.refuse(suspect) == EarlyFence(Doubt.TOO_MANY)
    watched.hear(gone[0])
    for suspect in suspects[1:]:
        assert watched.refuse(suspect).is_fenced


def test_those_that_were_fenced_count_among_those_that_are_gone_at_once() -> None:
    watched = Watched()
    assert watched.refuse(watched.close(ONE)).is_fenced
    second = watched.close(TWO)
    assert watched.refuse(second) == EarlyFence(Doubt.TOO_MANY)
    watched.cluster.now_ms += SESSION_TIMEOUT_MS - 1
    watched.cluster.sessions.on_contact(THREE, watched.cluster.epochs[THREE], None, watched.cluster.now_ms)
    assert watched.refuse(second) == EarlyFence(Doubt.TOO_MANY)
    watched.cluster.now_ms += 1
    assert watched.refuse(second).is_fenced


def test_doubts_that_pass_are_those_about_ourselves() -> None:
    assert [one for one in Doubt if one.may_pass] == [Doubt.TOO_NEW, Doubt.TOO_MANY]


@pytest.mark.parametrize("seed", range(examples(40)))
def test_whatever_led_is_led_afterwards_by_one_that_has_it_all(seed: int) -> None:
    rng = random.Random(seed)
    replicas = [rng.sample([ONE, TWO, THREE, FOUR], rng.randrange(1, 5)) for _ in range(12)]
    watched = Watched(*replicas, brokers=4)
    cluster = watched.cluster
    watched.set("unclean.leader.election.enable", "true")
    watched.set("min.insync.replicas", str(rng.randrange(1, 4)))
    for broker in rng.sample([TWO, THREE, FOUR], 2):
        cluster.fence(broker)
        if rng.random() < 0.6:
            cluster.hear(broker)
    before = [watched.state(index) for index in range(len(replicas))]
    outcome = watched.refuse(watched.close(ONE))
    after = [watched.state(index) for index in range(len(replicas))]
    assert outcome.is_fenced == cluster.image.brokers[ONE].is_fenced
    for was, now in zip(before, after, strict=True):
        assert now.is_recovering == was.is_recovering
        assert (now.leader is None) == (was.leader is None)
        if now.leader != was.leader:
            assert was.leader == ONE
            assert now.leader in was.isr or now.leader in was.eligible_leader_replicas
        if outcome.is_fenced:
            assert ONE not in now.isr

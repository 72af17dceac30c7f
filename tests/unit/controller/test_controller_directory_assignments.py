"""Where replicas lie, as their brokers say (KIP-858), and what a directory that failed then costs."""

from __future__ import annotations

from dataclasses import replace
from typing import TypeVar
from uuid import UUID

import pytest

from tidelog.base.errors import Code, KafkaError
from tidelog.base.ids import (
    BrokerEpoch,
    BrokerId,
    LeaderEpoch,
    Offset,
    PartitionEpoch,
    PartitionIndex,
    TopicId,
    TopicPartition,
)
from tidelog.controller import (
    BrokerSessions,
    BrokerToRegister,
    ControllerSettings,
    ControllerState,
    ElectionType,
    Heartbeat,
    TopicToCreate,
)
from tidelog.controller.directory_assignments import ReplicaInDirectory, pieces_to_assign
from tidelog.controller.leaders import LOST_DIRECTORY, lies_online
from tidelog.journal import Decision
from tidelog.metadata import PartitionImage, RegisteredEndpoint
from tidelog.metadata.features import own_features
from tidelog.metadata.records import ConfigRecord, PartitionChangeRecord
from tidelog.metadata.records.cluster import FeatureLevelRecord

T = TypeVar("T")
ONE, TWO = BrokerId(1), BrokerId(2)
A, B, OTHER = UUID(int=1_001), UUID(int=1_002), UUID(int=2_000)


class Cluster:
    """Two brokers with two directories each; broker 1 has `A` and `B`. Topic `flights` lies on both of them."""

    def __init__(self) -> None:
        self.state = ControllerState(ControllerSettings(cluster_id=None))
        self.offset = 0
        self.epochs: dict[BrokerId, BrokerEpoch] = {}
        for broker_id in (ONE, TWO):
            log_dirs = (A, B) if broker_id == ONE else (UUID(int=1_003), UUID(int=1_004))
            broker = BrokerToRegister(
                broker_id, UUID(int=broker_id), (RegisteredEndpoint("PLAINTEXT", "h", 9092),), log_dirs=log_dirs
            )
            change = self.run(self.state.decide_register_broker(broker, next_offset=Offset(self.offset)))
            self.epochs[broker_id] = change.broker_epoch
            self.run(self.state.decide_unfence_broker(broker_id, change.broker_epoch))
        new = TopicToCreate("flights", assignments=tuple((index, (ONE, TWO)) for index in range(3)))
        (created,) = self.run(self.state.decide_create_topics([new], rng=Uuids()))
        assert created.code == Code.NONE, created.message
        self.topic_id = self.state.metadata.topics_by_name["flights"].topic_id

    def run(self, decision: Decision[T]) -> T:
        for record in decision.records:
            self.state.apply(record)
            self.offset += 1
        self.records: tuple[object, ...] = decision.records
        return decision.reply

    def assign(self, *where: tuple[int, UUID], broker: BrokerId = ONE, epoch: int | None = None) -> tuple[Code, ...]:
        replicas = [ReplicaInDirectory(self.topic_id, PartitionIndex(index), each) for index, each in where]
        broker_epoch = self.epochs[broker] if epoch is None else BrokerEpoch(epoch)
        codes: tuple[Code, ...] = self.run(self.state.decide_assign_directories(broker, broker_epoch, replicas))
        return codes

    def alone(self) -> PartitionImage:
        """Of a topic that broker 1 alone has."""
        return self.state.metadata.topics_by_name["alone"].partitions[0]

    def create_alone(self, directory: UUID) -> None:
        new = TopicToCreate("alone", assignments=((0, (ONE,)),))
        self.run(self.state.decide_create_topics([new], rng=Others()))
        self.assign_alone(directory)

    def assign_alone(self, directory: UUID) -> None:
        one = ReplicaInDirectory(self.state.metadata.topics_by_name["alone"].topic_id, PartitionIndex(0), directory)
        codes = self.run(self.state.decide_assign_directories(ONE, self.epochs[ONE], [one]))
        assert codes == (Code.NONE,)

    def restart(self, *log_dirs: UUID) -> None:
        """Broker 1, with these directories, and let in again."""
        broker = BrokerToRegister(
            ONE,
            UUID(int=100 + self.offset),
            (RegisteredEndpoint("PLAINTEXT", "h", 9092),),
            log_dirs=log_dirs,
            features=own_features(),
        )
        change = self.run(self.state.decide_register_broker(broker, next_offset=Offset(self.offset)))
        self.epochs[ONE] = change.broker_epoch
        self.run(self.state.decide_unfence_broker(ONE, change.broker_epoch))

    def fail(self, directory: UUID) -> None:
        """Broker 1 is heard of, without it."""
        sessions = BrokerSessions(
            self.state.metadata, end_offset=Offset(self.offset), now_ms=0, session_timeout_ms=9_000
        )
        heartbeat = Heartbeat(ONE, self.epochs[ONE], Offset(self.offset), offline_log_dirs=(directory,))
        self.run(self.state.decide_heartbeat(heartbeat, sessions, next_offset=Offset(self.offset), now_ms=1))

    def partition(self, index: int = 0) -> PartitionImage:
        return self.state.metadata.topics_by_id[self.topic_id].partitions[index]


class Uuids:
    def random(self) -> float:
        return 0.5

    def randrange(self, start: int, stop: int) -> int:
        return start

    def uuid(self) -> UUID:
        return UUID(int=1 << 100, version=4)


def test_what_a_broker_says_is_noted_without_another_leader_epoch() -> None:
    cluster = Cluster()
    before = cluster.partition()
    assert before.directories == ()
    assert cluster.assign((0, A), (1, B)) == (Code.NONE, Code.NONE)
    after = cluster.partition()
    assert after.directories == (A, UUID(int=0))
    assert after == replace(
        before, directories=after.directories, partition_epoch=PartitionEpoch(before.partition_epoch + 1)
    )
    assert cluster.partition(1).directories == (B, UUID(int=0))
    assert all(isinstance(record, PartitionChangeRecord) for record in cluster.records)
    assert cluster.assign((0, UUID(int=1_003)), broker=TWO) == (Code.NONE,)
    assert cluster.partition().directories == (A, UUID(int=1_003))


def test_what_is_known_already_writes_nothing() -> None:
    cluster = Cluster()
    cluster.assign((0, A))
    assert cluster.assign((0, A)) == (Code.NONE,)
    assert cluster.records == ()


def test_a_directory_that_fails_costs_what_lay_in_it_and_nothing_else() -> None:
    cluster = Cluster()
    cluster.assign((0, A), (1, B))
    cluster.fail(A)
    assert (cluster.partition(0).leader, cluster.partition(0).isr) == (TWO, (TWO,))
    assert (cluster.partition(1).leader, cluster.partition(1).isr) == (ONE, (ONE, TWO))
    assert cluster.partition(2).leader == TWO, "nobody said where it lies: others lead it, to be sure"


def test_a_replica_that_is_said_to_lie_in_a_directory_that_failed_is_lost_with_it() -> None:
    """The broker had not come to say so when it failed."""
    cluster = Cluster()
    cluster.assign((0, B), (1, B))
    cluster.fail(A)
    assert cluster.partition(0).leader == ONE
    assert cluster.assign((0, A), (1, B)) == (Code.NONE, Code.NONE)
    lost = cluster.partition(0)
    assert (lost.leader, lost.leader_epoch, lost.isr) == (TWO, LeaderEpoch(1), (TWO,))
    assert lost.directories == (A, UUID(int=0))
    assert cluster.partition(1).leader == ONE
    assert cluster.assign((0, A)) == (Code.NONE,)
    assert cluster.records == ()


def test_what_cannot_be_is_refused_one_by_one() -> None:
    cluster = Cluster()
    unknown = ReplicaInDirectory(TopicId(UUID(int=99)), PartitionIndex(0), A)
    replicas = [unknown, ReplicaInDirectory(cluster.topic_id, PartitionIndex(0), A)]
    decision = cluster.state.decide_assign_directories(ONE, cluster.epochs[ONE], replicas)
    assert decision.reply == (Code.UNKNOWN_TOPIC_ID, Code.NONE)
    assert len(decision.records) == 1
    assert cluster.assign((3, A), (-1, A)) == (Code.UNKNOWN_TOPIC_OR_PARTITION,) * 2
    assert cluster.assign((0, UUID(int=0)), (0, UUID(int=1))) == (Code.INVALID_REQUEST,) * 2
    new = TopicToCreate("alone", assignments=((0, (TWO,)),))
    cluster.run(cluster.state.decide_create_topics([new], rng=Others()))
    alone = cluster.state.metadata.topics_by_name["alone"].topic_id
    one = ReplicaInDirectory(alone, PartitionIndex(0), A)
    refused = cluster.state.decide_assign_directories(ONE, cluster.epochs[ONE], [one])
    assert (refused.reply, refused.records) == ((Code.NOT_LEADER_OR_FOLLOWER,), ())


class Others(Uuids):
    def uuid(self) -> UUID:
        return UUID(int=2 << 100, version=4)


def test_who_is_not_registered_and_what_has_no_words_is_refused_as_a_whole() -> None:
    cluster = Cluster()
    with pytest.raises(KafkaError) as raised:
        cluster.assign((0, A), epoch=cluster.epochs[ONE] + 1)
    assert raised.value.code == Code.STALE_BROKER_EPOCH
    with pytest.raises(KafkaError) as raised:
        cluster.assign((0, A), broker=BrokerId(3), epoch=0)
    assert raised.value.code == Code.BROKER_ID_NOT_REGISTERED
    cluster.state.apply(FeatureLevelRecord(name="metadata.version", feature_level=16))
    with pytest.raises(KafkaError) as raised:
        cluster.assign((0, A))
    assert raised.value.code == Code.UNSUPPORTED_VERSION


def test_the_last_word_in_a_request_stands() -> None:
    cluster = Cluster()
    assert cluster.assign((0, A), (0, B)) == (Code.NONE, Code.NONE)
    assert cluster.partition().directories == (B, UUID(int=0))
    assert cluster.partition().partition_epoch == 2


def test_a_broker_that_registered_before_there_were_words_for_directories_has_lost_none() -> None:
    cluster = Cluster()
    cluster.state.apply(FeatureLevelRecord(name="metadata.version", feature_level=16))
    broker = BrokerToRegister(
        ONE, UUID(int=9), (RegisteredEndpoint("PLAINTEXT", "h", 9092),), log_dirs=(A, B), features=own_features()
    )
    change = cluster.run(cluster.state.decide_register_broker(broker, next_offset=Offset(cluster.offset)))
    cluster.epochs[ONE] = change.broker_epoch
    cluster.run(cluster.state.decide_unfence_broker(ONE, change.broker_epoch))
    cluster.state.apply(FeatureLevelRecord(name="metadata.version", feature_level=17))
    before = cluster.partition()
    assert cluster.assign((0, A)) == (Code.NONE,)
    after = cluster.partition()
    assert after.directories == (A, UUID(int=0))
    assert (after.leader, after.leader_epoch, after.isr) == (before.leader, before.leader_epoch, before.isr)


@pytest.mark.parametrize("is_failed_before", [True, False])
def test_a_directory_that_is_away_takes_no_log_with_it_for_good(is_failed_before: bool) -> None:
    """Nobody leads from it until it is back, with the only copy there is."""
    cluster = Cluster()
    cluster.create_alone(B)
    if is_failed_before:
        cluster.fail(B)
        assert cluster.alone().leader is None
    cluster.restart(A)
    assert (cluster.alone().leader, cluster.alone().eligible_leader_replicas) == (None, (ONE,))
    cluster.run(cluster.state.decide_elect_leaders(ElectionType.UNCLEAN))
    assert cluster.alone().leader is None
    cluster.restart(A)
    cluster.restart(A, B)
    assert cluster.alone().leader == ONE
    assert cluster.alone().directories == (B,)


def test_where_another_directory_is_in_its_place_what_lay_in_it_is_gone() -> None:
    cluster = Cluster()
    cluster.create_alone(B)
    cluster.restart(A, OTHER)
    assert (cluster.alone().leader, cluster.alone().eligible_leader_replicas) == (None, ())
    cluster.assign_alone(OTHER)
    assert (cluster.alone().leader, cluster.alone().directories) == (None, (OTHER,))


def test_what_is_made_anew_elsewhere_than_in_a_directory_that_is_away_is_gone() -> None:
    """An operator took the directory out of the configuration."""
    cluster = Cluster()
    cluster.create_alone(B)
    cluster.restart(A)
    cluster.assign_alone(A)
    lost = cluster.alone()
    assert (lost.leader, lost.eligible_leader_replicas, lost.directories) == (None, (), (A,))
    cluster.restart(A)
    assert cluster.alone().leader is None
    cluster.run(cluster.state.decide_elect_leaders(ElectionType.UNCLEAN))
    assert cluster.alone().leader == ONE, "an operator says so"


def test_what_moves_between_directories_that_are_there_loses_nothing() -> None:
    cluster = Cluster()
    cluster.create_alone(B)
    before = cluster.alone()
    cluster.assign_alone(A)
    after = cluster.alone()
    assert (after.leader, after.leader_epoch, after.directories) == (ONE, before.leader_epoch, (A,))


# What is lost.


def test_a_lost_replica_loses_its_seat_and_cannot_be_elected_before_it_begins_anew() -> None:
    cluster = Cluster()
    cluster.assign((0, A), (1, A))
    before = cluster.partition(1)
    assert cluster.assign((0, LOST_DIRECTORY)) == (Code.NONE,)
    state = cluster.partition()
    assert (state.leader, state.isr, state.directories[0]) == (TWO, (TWO,), LOST_DIRECTORY)
    assert cluster.partition(1) == before, "the others keep theirs"
    assert cluster.assign((0, LOST_DIRECTORY)) == (Code.NONE,)
    assert cluster.records == (), "it is lost already"
    assert not lies_online(state, cluster.state.metadata.brokers[ONE])
    assert cluster.assign((0, B)) == (Code.NONE,)
    assert cluster.partition().directories[0] == B
    assert cluster.partition().isr == (TWO,)


@pytest.mark.parametrize("level", [10, 22, 27])
def test_who_was_the_last_in_sync_is_not_elected_once_it_is_lost(level: int) -> None:
    """Nor where the level of metadata.version has no words for who is eligible: the ISR becomes empty all the same."""
    cluster = Cluster()
    cluster.state.apply(FeatureLevelRecord(name="metadata.version", feature_level=level))
    new = TopicToCreate("alone", assignments=((0, (ONE,)),))
    cluster.run(cluster.state.decide_create_topics([new], rng=Others()))
    cluster.assign_alone(LOST_DIRECTORY)
    state = cluster.alone()
    assert (state.leader, state.isr, state.eligible_leader_replicas) == (None, (), ())
    assert state.last_known_eligible_leader_replicas == ()
    cluster.restart(A, B)
    assert cluster.alone().leader is None
    if level > 10:
        cluster.assign_alone(B)
    partition = TopicPartition("alone", PartitionIndex(0))
    (elected,) = cluster.run(cluster.state.decide_elect_leaders(ElectionType.UNCLEAN, [partition]))
    assert elected.code == Code.NONE
    assert cluster.alone().is_recovering


def test_other_reserved_ids_are_no_directories() -> None:
    assert Cluster().assign((0, UUID(int=1)), (1, UUID(int=99))) == (Code.INVALID_REQUEST, Code.INVALID_REQUEST)
    assert Cluster().assign((0, UUID(int=100))) == (Code.NONE,)


def test_a_long_request_is_decided_in_portions_and_an_empty_one_in_one() -> None:
    settings = ControllerSettings(cluster_id=None, partition_changes_max=2)
    replicas = [ReplicaInDirectory(TopicId(UUID(int=7)), PartitionIndex(index), A) for index in range(5)]
    assert list(pieces_to_assign(settings, replicas)) == [replicas[:2], replicas[2:4], replicas[4:]]
    one_each = ControllerSettings(cluster_id=None, partition_changes_max=1)
    assert list(pieces_to_assign(one_each, [])) == [[]]


def test_a_replica_that_is_lost_for_the_second_time_leaves_again() -> None:
    cluster = Cluster()
    cluster.assign((0, LOST_DIRECTORY))
    assert cluster.partition().isr == (TWO,)
    cluster.state.apply(PartitionChangeRecord(topic_id=cluster.topic_id, partition_id=0, isr=[ONE, TWO]))
    cluster.assign((0, LOST_DIRECTORY))
    assert cluster.partition().isr == (TWO,)


def test_a_directory_that_fails_costs_nothing_of_what_other_brokers_have() -> None:
    cluster = Cluster()
    new = TopicToCreate("others", assignments=((0, (TWO,)),))
    cluster.run(cluster.state.decide_create_topics([new], rng=Others()))
    topic_id = cluster.state.metadata.topics_by_name["others"].topic_id
    lies = ReplicaInDirectory(topic_id, PartitionIndex(0), UUID(int=1_003))
    cluster.run(cluster.state.decide_assign_directories(TWO, cluster.epochs[TWO], [lies]))
    before = cluster.state.metadata.topics_by_name["others"].partitions[0]
    assert before.directories == (lies.directory_id,)
    cluster.fail(A)
    assert cluster.state.metadata.topics_by_name["others"].partitions[0] == before


def test_a_replica_in_a_directory_that_failed_is_not_eligible_to_lead() -> None:
    cluster = Cluster()
    cluster.state.apply(ConfigRecord(resource_type=4, resource_name="", name="min.insync.replicas", value="2"))
    cluster.assign((0, B))
    cluster.fail(A)
    cluster.assign((0, A))
    lost = cluster.partition(0)
    assert (lost.leader, lost.isr, lost.eligible_leader_replicas) == (TWO, (TWO,), ())
    assert lost.last_known_eligible_leader_replicas == (ONE,)


def test_a_replica_that_is_said_to_lie_in_one_failed_directory_after_the_other_is_known_to_have_been_eligible() -> None:
    cluster = Cluster()
    cluster.state.apply(ConfigRecord(resource_type=4, resource_name="", name="min.insync.replicas", value="2"))
    cluster.assign((0, A))
    cluster.fail(A)
    assert cluster.partition(0).last_known_eligible_leader_replicas == (ONE,)
    cluster.assign((0, OTHER))
    assert cluster.partition(0).directories[0] == OTHER
    assert cluster.partition(0).last_known_eligible_leader_replicas == (ONE,)


def test_a_broker_without_a_replica_has_none_that_could_have_failed() -> None:
    cluster = Cluster()
    cluster.create_alone(B)
    cluster.fail(B)
    brokers = cluster.state.metadata.brokers
    assert [lies_online(cluster.alone(), brokers[one]) for one in (ONE, TWO)] == [False, True]
    assert lies_online(cluster.alone(), replace(brokers[ONE], log_dirs=())), "it said nothing of any"


def test_a_directory_that_was_replaced_changes_what_lay_in_it_in_sync_or_not_and_nothing_else() -> None:
    cluster = Cluster()
    new = TopicToCreate("others", assignments=((0, (TWO,)),))
    cluster.run(cluster.state.decide_create_topics([new], rng=Others()))
    others = cluster.state.metadata.topics_by_name["others"].topic_id
    lies = ReplicaInDirectory(others, PartitionIndex(0), UUID(int=1_003))
    cluster.run(cluster.state.decide_assign_directories(TWO, cluster.epochs[TWO], [lies]))
    before = cluster.state.metadata.topics_by_name["others"].partitions[0]
    cluster.assign((0, B), (1, A))
    cluster.state.apply(PartitionChangeRecord(topic_id=cluster.topic_id, partition_id=0, isr=[TWO], leader=TWO))
    was = cluster.partition(0)
    cluster.restart(A, OTHER)
    now = cluster.partition(0)
    assert (now.isr, now.leader, now.leader_epoch) == (was.isr, was.leader, was.leader_epoch)
    assert now.partition_epoch == was.partition_epoch + 1
    assert now.directories == (), "its broker has to choose one"
    assert cluster.partition(1).directories[0] == A
    assert cluster.state.metadata.topics_by_name["others"].partitions[0] == before


def test_a_broker_that_is_registered_no_longer_has_no_directory_that_could_have_failed() -> None:
    cluster = Cluster()
    cluster.state.apply(ConfigRecord(resource_type=4, resource_name="", name="min.insync.replicas", value="2"))
    cluster.assign((0, A))
    cluster.run(cluster.state.decide_unregister_broker(ONE))
    assert cluster.partition(0).eligible_leader_replicas == (ONE,)
    assert cluster.run(cluster.state.decide_pending_changes()) == 0

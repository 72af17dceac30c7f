"""The other way round: our admin client, and the cluster administration of Apache Kafka."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from support.clients.kafka_peer import KafkaPeer
from support.fixtures.waiting import wait_until
from tidelog import Admin, KafkaError, NewTopic, TopicPartition
from tidelog.base.errors import Code
from tidelog.base.ids import PartitionIndex
from tidelog.client.admin.cluster_descriptions import Endpoint, FeatureUpdate

DIRECTORY_ID = "k3p9yTn3S2m6S9Qb0r0KQQ"


@pytest.fixture
def admin(kafka_peer: KafkaPeer) -> Iterator[Admin]:
    with Admin(kafka_peer.bootstrap) as opened:
        yield opened


def make_topic(admin: Admin, topic: str, partitions: int) -> None:
    """Return when Kafka's broker has heard of it: the controller answers before."""
    admin.create_topics([NewTopic(topic, partitions, 1)])
    wait_until(lambda: any(one.name == topic for one in admin.list_topics()), "Kafka shows its topic")


def test_the_quorum_is_described(admin: Admin, kafka_peer: KafkaPeer) -> None:
    found = admin.describe_quorum()
    assert found.leader_id == 1
    [leader] = found.voters
    assert leader.log_end_offset is not None
    assert found.high_watermark is not None
    assert found.high_watermark <= leader.log_end_offset
    assert found.endpoints == {1: (Endpoint("CONTROLLER", "127.0.0.1", kafka_peer.controller_port),)}


def test_voters_of_a_configuration_are_not_changed(admin: Admin) -> None:
    with pytest.raises(KafkaError) as raised:
        admin.add_raft_voter(2, DIRECTORY_ID, [Endpoint("CONTROLLER", "127.0.0.1", 9)])
    assert raised.value.code is Code.UNSUPPORTED_VERSION
    with pytest.raises(KafkaError) as raised:
        admin.remove_raft_voter(1, DIRECTORY_ID)
    assert raised.value.code is Code.UNSUPPORTED_VERSION


def test_leaders_are_elected_where_that_is_needed(admin: Admin, topic: str) -> None:
    make_topic(admin, topic, 1)
    partition = TopicPartition(topic, PartitionIndex(0))
    nowhere = TopicPartition("nowhere", PartitionIndex(0))
    for election_type in ("preferred", "unclean"):
        found = admin.elect_leaders(election_type, [partition, nowhere])
        assert [error and error.code for error in (found[partition], found[nowhere])] == [
            Code.ELECTION_NOT_NEEDED,
            Code.UNKNOWN_TOPIC_OR_PARTITION,
        ]
        assert admin.elect_leaders(election_type) == {}


def test_reassignments_are_answered_in_the_same_way(admin: Admin, topic: str) -> None:
    make_topic(admin, topic, 1)
    partition = TopicPartition(topic, PartitionIndex(0))
    nowhere = TopicPartition("nowhere", PartitionIndex(0))
    asked: dict[TopicPartition, list[int] | None] = {partition: [1], nowhere: [1]}
    found = admin.alter_partition_reassignments(asked)
    assert (found[partition].error, found[partition].waits_for) == (None, None)
    for target, code in (
        ([9], Code.INVALID_REPLICA_ASSIGNMENT),
        ([], Code.INVALID_REPLICA_ASSIGNMENT),
        ([1, 1], Code.INVALID_REPLICA_ASSIGNMENT),
        (None, Code.NO_REASSIGNMENT_IN_PROGRESS),
    ):
        error = admin.alter_partition_reassignments({partition: target})[partition].error
        assert error is not None
        assert error.code is code
    error = found[nowhere].error
    assert error is not None
    assert error.code is Code.UNKNOWN_TOPIC_OR_PARTITION
    assert admin.list_partition_reassignments() == {}
    assert admin.list_partition_reassignments([partition, nowhere]) == {}


def test_features_are_described_and_an_update_that_cannot_be_is_refused(admin: Admin) -> None:
    found = admin.describe_features()["metadata.version"]
    assert found.level is not None
    assert found.supported is not None
    assert found.supported[0] <= found.level <= found.supported[1]
    with pytest.raises(KafkaError, match=r"metadata\.version") as raised:
        admin.update_features({"metadata.version": FeatureUpdate(found.supported[0])}, validate_only=True)
    assert raised.value.code is Code.INVALID_UPDATE_VERSION


def test_a_broker_that_is_not_there_is_not_unregistered(admin: Admin) -> None:
    with pytest.raises(KafkaError) as raised:
        admin.unregister_broker(77)
    assert raised.value.code is Code.BROKER_ID_NOT_REGISTERED


def test_partitions_are_described_with_who_may_lead_and_what_their_logs_hold(admin: Admin, topic: str) -> None:
    make_topic(admin, topic, 2)
    described = admin.describe_topics([topic], include_eligible_leaders=True)[topic]
    assert [(each.leader, each.isr, each.eligible_leader_replicas) for each in described.partitions] == [
        (1, (1,), ()),
        (1, (1,), ()),
    ]
    partition = TopicPartition(topic, PartitionIndex(0))
    assert admin.describe_lineages([partition])[partition].replicas[1].spans == ((0, 0, 0),)

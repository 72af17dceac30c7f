"""confluent-kafka's admin client: topics, configurations, the cluster; and what is refused, with its reason."""

from __future__ import annotations

from typing import Any

import pytest
from confluent_kafka import ElectionType, KafkaError, KafkaException, TopicCollection, TopicPartition
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ConfigResource,
    ConfigSource,
    NewTopic,
    ResourcePatternType,
    ResourceType,
)

from support.clients.confluent import Refused, Sent, create_topic, new_producer, produce, read_from
from support.fixtures.waiting import wait_until
from support.nodes.node import NodeProcess

TIMEOUT_SECONDS = 10


@pytest.fixture(scope="module")
def admin(shared_node: NodeProcess) -> AdminClient:
    return AdminClient({"bootstrap.servers": shared_node.bootstrap})


def error_of(future: Any) -> str:
    with pytest.raises(KafkaException) as raised:
        future.result(TIMEOUT_SECONDS)
    return str(raised.value.args[0].name())


def test_create_describe_and_delete(shared_node: NodeProcess, admin: AdminClient, topic: str) -> None:
    create_topic(admin, topic, 3)
    known = admin.list_topics(timeout=TIMEOUT_SECONDS).topics[topic]
    assert sorted(known.partitions) == [0, 1, 2]
    described = admin.describe_topics(TopicCollection([topic]))[topic].result(TIMEOUT_SECONDS)
    assert len(described.partitions) == 3
    assert {partition.leader.id for partition in described.partitions} == {1}
    assert {node.id for partition in described.partitions for node in partition.isr} == {1}
    assert not described.is_internal

    produce(new_producer(shared_node.bootstrap), topic, [Sent(b"old")])
    admin.delete_topics([topic])[topic].result(TIMEOUT_SECONDS)
    assert topic not in admin.list_topics(timeout=TIMEOUT_SECONDS).topics
    assert error_of(admin.delete_topics([topic])[topic]) == "UNKNOWN_TOPIC_OR_PART"
    assert error_of(admin.describe_topics(TopicCollection([topic]))[topic]) == "UNKNOWN_TOPIC_OR_PART"

    # Created anew it is another topic: nothing of the old one is in it, and its id differs.
    create_topic(admin, topic)
    assert read_from(shared_node.bootstrap, topic) == []
    again = admin.describe_topics(TopicCollection([topic]))[topic].result(TIMEOUT_SECONDS)
    assert str(again.topic_id) != str(described.topic_id)


def test_creating_twice_is_refused(admin: AdminClient, topic: str) -> None:
    create_topic(admin, topic)
    assert error_of(admin.create_topics([NewTopic(topic, 1, 1)])[topic]) == "TOPIC_ALREADY_EXISTS"


@pytest.mark.parametrize(
    ("new", "expected"),
    [
        (NewTopic("with/slash", 1, 1), "TOPIC_EXCEPTION"),
        (NewTopic("..", 1, 1), "TOPIC_EXCEPTION"),
        (NewTopic("n" * 250, 1, 1), "TOPIC_EXCEPTION"),
        (NewTopic("grüße", 1, 1), "TOPIC_EXCEPTION"),
        (NewTopic("confluent-no-partitions", 0, 1), "INVALID_PARTITIONS"),
        (NewTopic("confluent-too-many-replicas", 1, 3), "INVALID_REPLICATION_FACTOR"),
        (NewTopic("confluent-bad-value", 1, 1, config={"segment.bytes": "many"}), "INVALID_CONFIG"),
        (NewTopic("confluent-bad-range", 1, 1, config={"retention.ms": "-7"}), "INVALID_CONFIG"),
        (NewTopic("confluent-bad-key", 1, 1, config={"segment.byte": "1"}), "INVALID_CONFIG"),
    ],
    ids=lambda value: value.topic[:30] if isinstance(value, NewTopic) else None,
)
def test_illegal_topics_are_refused(admin: AdminClient, new: NewTopic, expected: str) -> None:
    assert error_of(admin.create_topics([new])[new.topic]) == expected
    assert new.topic not in admin.list_topics(timeout=TIMEOUT_SECONDS).topics


def test_the_refusal_of_a_setting_names_the_closest_one(admin: AdminClient) -> None:
    future = admin.create_topics([NewTopic("confluent-typo", 1, 1, config={"retention.m": "1"})])["confluent-typo"]
    with pytest.raises(KafkaException) as raised:
        future.result(TIMEOUT_SECONDS)
    assert "retention.ms" in raised.value.args[0].str()


def test_one_bad_topic_does_not_spoil_the_others(admin: AdminClient, topic: str) -> None:
    futures = admin.create_topics([NewTopic(topic, 1, 1), NewTopic("bad name", 1, 1)])
    futures[topic].result(TIMEOUT_SECONDS)
    assert error_of(futures["bad name"]) == "TOPIC_EXCEPTION"


def test_validating_creates_nothing(admin: AdminClient, topic: str) -> None:
    admin.create_topics([NewTopic(topic, 1, 1)], validate_only=True)[topic].result(TIMEOUT_SECONDS)
    assert topic not in admin.list_topics(timeout=TIMEOUT_SECONDS).topics
    assert error_of(admin.create_topics([NewTopic(topic, 1, 9)], validate_only=True)[topic]) == (
        "INVALID_REPLICATION_FACTOR"
    )


def test_replicas_assigned_by_hand(admin: AdminClient, topic: str) -> None:
    new = NewTopic(topic, 2, replica_assignment=[[1], [1]])
    admin.create_topics([new])[topic].result(TIMEOUT_SECONDS)
    assert len(admin.list_topics(timeout=TIMEOUT_SECONDS).topics[topic].partitions) == 2
    bad = NewTopic(topic + "-bad", 1, replica_assignment=[[77]])
    assert error_of(admin.create_topics([bad])[bad.topic]) == "INVALID_REPLICA_ASSIGNMENT"


def test_describe_configs_of_a_topic(admin: AdminClient, topic: str) -> None:
    create_topic(admin, topic, retention_ms="3600000", cleanup_policy="compact,delete")
    resource = ConfigResource(ResourceType.TOPIC, topic)
    configs = admin.describe_configs([resource])[resource].result(TIMEOUT_SECONDS)
    assert configs["retention.ms"].value == "3600000"
    assert configs["retention.ms"].source == ConfigSource.DYNAMIC_TOPIC_CONFIG.value
    assert not configs["retention.ms"].is_default
    assert configs["cleanup.policy"].value == "compact,delete"
    assert configs["segment.bytes"].value == "1073741824"
    assert configs["segment.bytes"].source == ConfigSource.DEFAULT_CONFIG.value
    assert configs["segment.bytes"].is_default
    assert configs["max.message.bytes"].value == "1048588"
    assert not any(entry.is_read_only or entry.is_sensitive for entry in configs.values())
    assert "message.max.bytes" in configs["max.message.bytes"].synonyms


def test_describe_configs_of_a_broker(admin: AdminClient) -> None:
    resource = ConfigResource(ResourceType.BROKER, "1")
    configs = admin.describe_configs([resource])[resource].result(TIMEOUT_SECONDS)
    assert configs["node.id"].value == "1"
    assert configs["node.id"].is_read_only
    assert configs["node.id"].source == ConfigSource.STATIC_BROKER_CONFIG.value
    assert int(configs["num.partitions"].value) >= 1
    assert configs["log.segment.bytes"].value == "1073741824"


def test_describe_configs_of_what_is_not_there(admin: AdminClient) -> None:
    resource = ConfigResource(ResourceType.TOPIC, "confluent-no-such-topic")
    assert error_of(admin.describe_configs([resource])[resource]) == "UNKNOWN_TOPIC_OR_PART"


def test_describe_cluster(shared_node: NodeProcess, admin: AdminClient) -> None:
    cluster = admin.describe_cluster().result(TIMEOUT_SECONDS)
    assert len(cluster.cluster_id) == 22
    assert [(node.id, node.port) for node in cluster.nodes] == [(1, shared_node.port)]
    assert cluster.controller.id == 1
    assert admin.list_topics(timeout=TIMEOUT_SECONDS).cluster_id == cluster.cluster_id


def test_producing_creates_a_topic(shared_node: NodeProcess, topic: str) -> None:
    assert produce(new_producer(shared_node.bootstrap), topic, [Sent(b"first")]) == [0]
    assert [record.value for record in read_from(shared_node.bootstrap, topic)] == [b"first"]


def test_producing_to_an_illegal_name_is_refused(shared_node: NodeProcess) -> None:
    producer = new_producer(shared_node.bootstrap, message_timeout_ms=3_000)
    (answer,) = produce(producer, "no spaces please", [Sent(b"x")])
    assert isinstance(answer, Refused)
    assert answer.code in ("TOPIC_EXCEPTION", "_UNKNOWN_TOPIC", "_MSG_TIMED_OUT")


def test_producing_to_a_partition_that_is_not_there(shared_node: NodeProcess, admin: AdminClient, topic: str) -> None:
    create_topic(admin, topic)
    (answer,) = produce(new_producer(shared_node.bootstrap), topic, [Sent(b"x")], partition=5)
    assert answer == Refused("_UNKNOWN_PARTITION")


def test_producing_while_the_topic_is_deleted(shared_node: NodeProcess, admin: AdminClient, topic: str) -> None:
    create_topic(admin, topic)
    producer = new_producer(shared_node.bootstrap, topic_metadata_refresh_interval_ms=200)
    assert produce(producer, topic, [Sent(b"x")]) == [0]
    admin.delete_topics([topic])[topic].result(TIMEOUT_SECONDS)
    create_topic(admin, topic)
    answers: list[int | Refused] = []

    def taken() -> bool:
        answers.extend(produce(producer, topic, [Sent(b"y")]))
        return answers[-1] != Refused("_UNKNOWN_TOPIC")

    wait_until(taken, "the producer finds the new topic")
    assert answers[-1] == 0


def test_a_node_without_an_authorizer_says_so(admin: AdminClient) -> None:
    rule = AclBinding(
        ResourceType.TOPIC, "t", ResourcePatternType.LITERAL, "User:u", "*", AclOperation.READ, AclPermissionType.ALLOW
    )
    assert error_of(admin.create_acls([rule])[rule]) == "SECURITY_DISABLED"


def test_an_election_that_nobody_needs_is_told_as_that(admin: AdminClient, topic: str) -> None:
    create_topic(admin, topic)
    electing: Any = admin.elect_leaders(ElectionType.PREFERRED, [TopicPartition(topic, 0)])
    (outcome,) = electing.result(TIMEOUT_SECONDS).values()
    assert outcome.code() == KafkaError.ELECTION_NOT_NEEDED

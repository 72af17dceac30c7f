"""The other way round: our clients with a consistency context (KIP-1243), and Apache Kafka, which ignores it."""

from __future__ import annotations

import pytest

from support.clients.kafka_peer import KafkaPeer
from tidelog import (
    ConsistencyContext,
    ConsistencyContextStore,
    Factory,
    KafkaError,
    NewTopic,
    OffsetAndEpoch,
    Producer,
    TopicPartition,
)
from tidelog.base.errors import Code


def test_clients_of_a_factory_work_as_without_one(kafka_peer: KafkaPeer, topic: str) -> None:
    factory = Factory(kafka_peer.bootstrap)
    partition = TopicPartition(topic, 0)
    with factory.admin() as admin, factory.producer(linger_ms=0) as producer:
        admin.create_topics([NewTopic(topic, 1, 1)])
        assert producer.send(topic, b"seen").result().offset == 0
        assert admin.describe_topics([topic], include_eligible_leaders=True).keys() == {topic}
        assert admin.describe_features()["metadata.version"].level
        assert isinstance(admin.list_offsets({partition: "latest"})[partition], OffsetAndEpoch)
        admin.create_partitions({topic: 2})
        assert producer.send(topic, b"added", partition=1).result().partition == 1
        with factory.consumer(group_id=topic, auto_offset_reset="earliest") as member:
            member.subscribe([topic])
            values: list[bytes | None] = []
            while len(values) < 2:
                values += [record.value for record in member.poll(5_000)]
            member.commit()
            assert set(values) == {b"added", b"seen"}
        assert topic in admin.describe_groups([topic])
        admin.delete_group_offsets(topic, [partition])
    assert factory.store.read().is_unknown


def test_a_context_of_another_cluster_is_told_of(kafka_peer: KafkaPeer, topic: str) -> None:
    """Kafka does not look at it; the answer to Metadata names Kafka's own cluster."""
    store = ConsistencyContextStore(ConsistencyContext("a-cluster-of-tidelog", 5))
    with (
        Producer(kafka_peer.bootstrap, consistency_context_store=store) as producer,
        pytest.raises(KafkaError, match=r"this consistency context is of a-cluster-of-tidelog") as error,
    ):
        producer.send(topic, b"")
    assert error.value.code is Code.INCONSISTENT_CLUSTER_ID

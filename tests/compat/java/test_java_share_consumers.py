"""Java's KafkaShareConsumer (KIP-932), against a node and against Apache Kafka, both with their default features."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from confluent_kafka.admin import AdminClient

from support.clients.confluent import create_topic
from support.clients.kafka_peer import TOOL_FLAGS, KafkaPeer
from support.clients.kafka_tools import KafkaTools
from support.nodes.node import NodeProcess, StartNode

CONFIG = {
    "offsets.topic.num.partitions": "1",
    "share.coordinator.state.topic.num.partitions": "1",
    "group.share.heartbeat.interval.ms": "500",
    "group.share.min.heartbeat.interval.ms": "500",
    "group.share.assignment.interval.ms": "0",
    "group.share.record.lock.duration.ms": "2000",
    "group.share.min.record.lock.duration.ms": "1000",
    "group.share.delivery.count.limit": "3",
}
Broker = NodeProcess | KafkaPeer


@pytest.fixture(scope="module", params=["node", "Kafka"])
def sharing(
    request: pytest.FixtureRequest,
    needs_kafka: None,
    start_node: StartNode,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Broker]:
    """A broker whose members send heartbeats often, and lose records soon."""
    broker: Broker
    if request.param == "node":
        broker = start_node(config=CONFIG)
        yield broker
        broker.close()
        return
    broker = KafkaPeer(tmp_path_factory.mktemp("kafka"), config=CONFIG, flags=TOOL_FLAGS)
    try:
        broker.start()
        yield broker
    finally:
        broker.close()


@pytest.fixture
def told(sharing: Broker, java_clients: KafkaTools, topic: str) -> Callable[[str], list[str]]:
    """`told(name)` is what a story of ShareClients.java says, line by line."""
    create_topic(AdminClient({"bootstrap.servers": sharing.bootstrap}), topic, 1)

    def tell(name: str) -> list[str]:
        return java_clients.run("ShareClients", name, sharing.bootstrap, topic).output.splitlines()

    return tell


Told = Callable[[str], list[str]]


def test_records_that_the_next_poll_accepts_are_not_delivered_again(told: Told) -> None:
    assert told("implicit") == ["committed true", "read [v0*1, v1*1, v2*1, v3*1]", "then [v0*1]"]


def test_a_record_is_accepted_rejected_or_released(told: Told) -> None:
    assert told("explicit") == [
        "read [v0*1, v1*1, v2*1, v3*1]",
        "again [v2*2], committed true, errors []",
    ]


def test_two_members_share_one_partition(told: Told) -> None:
    assert told("two") == ["every record once true"]


def test_a_record_is_delivered_again_after_its_lock_has_timed_out(told: Told) -> None:
    first, again, *commits = told("time-out")
    assert first == "slow has v0*1"
    assert again in ("fast has v0*2", "fast has v0*3"), "on a busy machine the second lock may time out, too"
    assert commits == ["fast commits true", "slow commits true []"]  # nothing: the client forgets what it has no more


def test_a_record_that_nobody_accepts_is_archived(told: Told) -> None:
    assert told("limit") == ["read [v0*1, v0*2, v0*3, 1:v0*1, 2:v1*1]"]


def test_who_closes_gives_back_what_it_has(told: Told) -> None:
    assert told("closed") == ["first has v0*1", "second has v0*2"]

"""Java's clients in one JVM."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from support.clients.kafka_peer import KafkaPeer
from support.clients.kafka_tools import KafkaTools
from support.nodes.node import NodeProcess, StartNode

Story = Callable[..., list[str]]
HEARTBEATS = ("group.consumer.min.heartbeat.interval.ms", "group.consumer.heartbeat.interval.ms")


@pytest.fixture(scope="session")
def java_clients(needs_kafka: None) -> Iterator[KafkaTools]:
    with KafkaTools(*(Path(__file__).parent / name for name in ("Clients.java", "ShareClients.java"))) as jvm:
        yield jvm


@pytest.fixture(scope="session")
def shared_node(start_node: StartNode) -> NodeProcess:
    """As that of all tests, but members of groups are heard, and learn what they have, ten times as often."""
    return start_node(config=dict.fromkeys(HEARTBEATS, "500"))


@pytest.fixture(params=["shared_node", pytest.param("kafka_peer", marks=pytest.mark.slow)])
def broker(needs_kafka: None, request: pytest.FixtureRequest) -> NodeProcess | KafkaPeer:
    """A node, and (which no change of ours can alter) Apache Kafka: the same stories end in the same way."""
    found: NodeProcess | KafkaPeer = request.getfixturevalue(request.param)
    return found


@pytest.fixture
def story(java_clients: KafkaTools) -> Story:
    """`story(name, bootstrap, topic, ...)` is what a story of Clients.java says, line by line."""
    return lambda *arguments: java_clients.run("Clients", *map(str, arguments)).output.splitlines()

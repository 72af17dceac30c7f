"""Java's clients in one JVM."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from support.clients.kafka_peer import KafkaPeer, shared_peer
from support.clients.kafka_tools import KafkaTools
from support.nodes.node import NodeProcess, running_node

Story = Callable[..., list[str]]
HEARTBEATS = ("group.consumer.min.heartbeat.interval.ms", "group.consumer.heartbeat.interval.ms")


@pytest.fixture(scope="package")
def java_clients(needs_kafka: None) -> Iterator[KafkaTools]:
    with KafkaTools(*(Path(__file__).parent / name for name in ("Clients.java", "ShareClients.java"))) as jvm:
        yield jvm


@pytest.fixture(scope="package")
def shared_node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeProcess]:
    """As that of all tests, but members of groups are heard, and learn what they have, ten times as often."""
    with running_node(tmp_path_factory.mktemp("shared"), config=dict.fromkeys(HEARTBEATS, "500")) as node:
        yield node


@pytest.fixture(scope="package")
def kafka_peer(needs_kafka: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaPeer]:
    """A broker of Apache Kafka, running."""
    with shared_peer(tmp_path_factory.mktemp("kafka")) as peer:
        yield peer


@pytest.fixture(params=["shared_node", pytest.param("kafka_peer", marks=pytest.mark.slow)])
def broker(needs_kafka: None, request: pytest.FixtureRequest) -> NodeProcess | KafkaPeer:
    """A node, and (which no change of ours can alter) Apache Kafka: the same stories end in the same way."""
    found: NodeProcess | KafkaPeer = request.getfixturevalue(request.param)
    return found


@pytest.fixture
def story(java_clients: KafkaTools) -> Story:
    """`story(name, bootstrap, topic, ...)` is what a story of Clients.java says, line by line."""
    return lambda *arguments: java_clients.run("Clients", *map(str, arguments)).output.splitlines()

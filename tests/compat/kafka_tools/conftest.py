"""Kafka's own tools in one JVM, for the tests of this directory."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from support.clients.kafka_peer import KafkaPeer, shared_peer
from support.clients.kafka_tools import KafkaTools
from support.nodes.node import NodeProcess


@pytest.fixture(scope="package")
def tools(needs_kafka: None) -> Iterator[KafkaTools]:
    with KafkaTools() as jvm:
        yield jvm


@pytest.fixture(scope="package")
def kafka_peer(needs_kafka: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaPeer]:
    """A broker of Apache Kafka, running."""
    with shared_peer(tmp_path_factory.mktemp("kafka")) as peer:
        yield peer


@pytest.fixture
def at(shared_node: NodeProcess) -> tuple[str, str]:
    """The arguments that name our node."""
    return "--bootstrap-server", shared_node.bootstrap

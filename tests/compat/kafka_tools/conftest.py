"""Kafka's own tools in one JVM, and its own broker, for the tests of this directory."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from support.kafka_peer import KafkaPeer, missing_peers
from support.kafka_tools import KafkaTools
from support.node import NodeProcess


@pytest.fixture(autouse=True, scope="session")
def _needs_peers() -> None:
    if (reason := missing_peers()) is not None:
        pytest.skip(reason)


@pytest.fixture(scope="session")
def tools(_needs_peers: None) -> Iterator[KafkaTools]:
    with KafkaTools() as jvm:
        yield jvm


@pytest.fixture(scope="session")
def kafka_peer(_needs_peers: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaPeer]:
    """A broker of Apache Kafka, running. Tests take topic names of their own; one that stops it starts it again."""
    config = {"offsets.topic.num.partitions": "1", "transaction.state.log.num.partitions": "1"}
    peer = KafkaPeer(tmp_path_factory.mktemp("kafka"), config=config)
    try:
        peer.start()
        yield peer
    finally:
        peer.close()


@pytest.fixture
def at(shared_node: NodeProcess) -> tuple[str, str]:
    """The arguments that name our node."""
    return "--bootstrap-server", shared_node.bootstrap

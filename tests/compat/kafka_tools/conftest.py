"""Kafka's own tools in one JVM, for the tests of this directory."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from support.clients.kafka_tools import KafkaTools
from support.nodes.node import NodeProcess


@pytest.fixture(scope="session")
def tools(needs_kafka: None) -> Iterator[KafkaTools]:
    with KafkaTools() as jvm:
        yield jvm


@pytest.fixture
def at(shared_node: NodeProcess) -> tuple[str, str]:
    """The arguments that name our node."""
    return "--bootstrap-server", shared_node.bootstrap

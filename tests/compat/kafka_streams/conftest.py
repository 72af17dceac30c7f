"""Kafka Streams, which `make peers` fetches since a later list than the rest of Kafka."""

from __future__ import annotations

import pytest

from support.clients.kafka_peer import KAFKA_JARS


@pytest.fixture(autouse=True)
def needs_streams(needs_kafka: None) -> None:
    if not any(KAFKA_JARS.glob("kafka-streams-*.jar")):
        pytest.skip("peers/kafka has no Kafka Streams: `make peers` fetches it")

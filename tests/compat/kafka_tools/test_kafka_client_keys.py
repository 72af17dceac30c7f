"""Every setting of Kafka's consumers and producers is one that the options of the Spark source and sink know."""

from __future__ import annotations

import re
import subprocess

import pytest

from support.clients.kafka_peer import java_command
from tidelog.client.kafka_security import SECURITY_KEYS
from tidelog.client.kafka_settings import every_key


@pytest.mark.parametrize("name", ["consumer.ConsumerConfig", "producer.ProducerConfig"])
def test_every_key_has_its_place(name: str, needs_kafka: None) -> None:
    command = java_command([f"org.apache.kafka.clients.{name}"])
    page = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout
    keys = set(re.findall(r'id="\w+configs_([a-z0-9.]+)"', page))
    assert len(keys) > 100
    assert not keys - every_key() - SECURITY_KEYS

"""The facts about Kafka's settings that the table is compared with are those of its own jars."""

from __future__ import annotations

import subprocess
from pathlib import Path

from support.clients.java_classes import compiled
from support.clients.kafka_peer import java_command
from support.clients.kafka_tools import RUNNER

TESTS = Path(__file__).parents[2]


def test_the_committed_facts_are_kafkas(needs_kafka: None) -> None:
    program = RUNNER.with_name("ConfigKeys.java")
    command = java_command([program.stem], classes=compiled(program))
    printed = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    committed = (TESTS / "unit" / "metadata" / "kafka-4.3-configs.tsv").read_text(encoding="utf-8")
    assert printed.stdout == committed

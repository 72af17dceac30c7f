"""What nodes say, transactions, newer groups and their logs, against what Apache Kafka's classes read and write."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from support.clients.kafka_json import kafka_json
from support.clients.kafka_peer import java_command
from support.clients.kafka_records import RECORD_MESSAGES
from support.clients.wire_samples import READ_BY_KAFKA_MESSAGES, sample
from tidelog.security.principal_data import DefaultPrincipalData
from tidelog.wire import decode, encode

VECTORS = Path(__file__).parents[2] / "vectors" / "wire_apache_kafka.txt"
READER = Path(__file__).parents[2] / "support" / "clients" / "java" / "MessageReader.java"

MESSAGES: list[tuple[str, type[Any], int]] = [
    *((f"org.apache.kafka.common.message.{cls.__name__}Data", cls, version) for cls, version in READ_BY_KAFKA_MESSAGES),
    ("org.apache.kafka.common.message.DefaultPrincipalData", DefaultPrincipalData, 0),
    *RECORD_MESSAGES,
]
IDS = [f"{name.rpartition('.')[2].removesuffix('Data')}-v{version}" for name, _, version in MESSAGES]
CASES = [(one, cls, version) for one, (_, cls, version) in zip(IDS, MESSAGES, strict=True)]


def vectors() -> dict[str, tuple[bytes, Any]]:
    parts = (line.split(" ", 2) for line in VECTORS.read_text().splitlines() if not line.startswith("#"))
    return {name: (bytes.fromhex(raw), json.loads(read)) for name, raw, read in parts}


def test_every_message_has_its_vector() -> None:
    assert list(vectors()) == IDS


@pytest.mark.parametrize(("name", "cls", "version"), CASES, ids=IDS)
def test_kafka_writes_the_same_bytes(name: str, cls: type[Any], version: int) -> None:
    theirs, _ = vectors()[name]
    message = sample(cls, version)
    assert encode(message, version) == theirs
    assert decode(cls, theirs, version) == message


@pytest.mark.parametrize(("name", "cls", "version"), CASES, ids=IDS)
def test_kafka_reads_the_same_values(name: str, cls: type[Any], version: int) -> None:
    _, read = vectors()[name]
    assert kafka_json(sample(cls, version), version) == read


def write_vectors() -> None:
    """Make the file anew with the jars of `make peers`, in the manner of test_wire_kafka_python.py."""
    asked = "".join(
        f"{name} {version} {encode(sample(cls, version), version).hex()}\n" for name, cls, version in MESSAGES
    )
    ran = subprocess.run(java_command([str(READER)]), input="".join(asked), capture_output=True, text=True, check=True)
    lines = [
        "# One message a line, with every field set (clients/wire_samples.py), as Apache Kafka 4.3.1 writes it,",
        "# and as JSON, as it reads it.",
    ]
    lines += [f"{name} {answer}" for name, answer in zip(IDS, ran.stdout.splitlines(), strict=True)]
    VECTORS.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    write_vectors()

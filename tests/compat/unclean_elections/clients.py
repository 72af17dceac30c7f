"""The six clients: how to start a program of each, and why it cannot be started here."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from support.clients.go_program import build_go, missing_go
from support.clients.java_classes import compiled
from support.clients.kafka_peer import java_command, missing_peers

__all__ = ["CLIENTS", "Client"]

HERE = Path(__file__).parent
TESTS = HERE.parents[1]


@dataclass(frozen=True, slots=True)
class Client:
    """One of them.

    Attributes:
        name: as its users call it.
        missing: why it cannot run here, or None.
        build: what it needs to be started, made in a directory; returns the command, which takes the arguments of
            lines.py. Raises AssertionError: it cannot be built.
    """

    name: str
    missing: Callable[[], str | None]
    build: Callable[[Path], list[str]]


def environment() -> dict[str, str]:
    """Of every program: it imports what this process imports."""
    path = os.pathsep.join([str(TESTS), *(one for one in sys.path if one)])
    return os.environ | {"PYTHONPATH": path, "PYTHONUNBUFFERED": "1"}


def in_python(name: str, module: str, package: str) -> Client:
    return Client(
        name,
        lambda: None if find_spec(package) else f"{package} is not installed: `make setup` installs it",
        lambda _: [sys.executable, "-m", f"compat.unclean_elections.programs.{module}"],
    )


def build_java(_: Path) -> list[str]:
    source = HERE / "UncleanElection.java"
    return java_command([source.stem], classes=compiled(source))


CLIENTS = {
    client.name: client
    for client in (
        in_python("Tidelog", "with_tidelog", "tidelog"),
        Client("Java", missing_peers, build_java),
        Client(
            "franz-go",
            lambda: missing_go(HERE / "franz_go"),
            lambda directory: [str(build_go(HERE / "franz_go", directory))],
        ),
        in_python("kafka-python", "with_kafka_python", "kafka"),
        in_python("confluent-kafka", "with_confluent", "confluent_kafka"),
        in_python("aiokafka", "with_aiokafka", "aiokafka"),
    )
}

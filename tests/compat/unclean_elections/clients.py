"""The six clients: how to start a program of each, and why it cannot be started here."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from support.clients.java_classes import compiled
from support.clients.kafka_peer import java_command, missing_peers

__all__ = ["CLIENTS", "Client"]

HERE = Path(__file__).parent
TESTS = HERE.parents[1]
BUILD_SECONDS_MAX = 600.0
DOWNLOAD_SECONDS_MAX = 120.0


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
    return os.environ | {"PYTHONPATH": path, "PYTHONUNBUFFERED": "1", "GOTOOLCHAIN": "local"}


def in_python(name: str, module: str, package: str) -> Client:
    return Client(
        name,
        lambda: None if find_spec(package) else f"{package} is not installed: `make setup` installs it",
        lambda _: [sys.executable, "-m", f"compat.unclean_elections.programs.{module}"],
    )


def build_java(_: Path) -> list[str]:
    source = HERE / "UncleanElection.java"
    return java_command([source.stem], classes=compiled(source))


def missing_go() -> str | None:
    """The modules come from Go's module cache, or from wherever the `go` of this machine fetches modules."""
    if (go := shutil.which("go")) is None:
        return "there is no go on the PATH: franz-go needs one as new as franz_go/go.mod says"
    try:
        fetched = subprocess.run(
            [go, "mod", "download"],
            cwd=HERE / "franz_go",
            env=environment(),
            capture_output=True,
            text=True,
            check=False,
            timeout=DOWNLOAD_SECONDS_MAX,
        )
    except subprocess.TimeoutExpired:
        return f"go mod download has not ended after {DOWNLOAD_SECONDS_MAX:.0f} s"
    return None if fetched.returncode == 0 else f"go mod download: {fetched.stderr.strip()[-300:]}"


def build_go(directory: Path) -> list[str]:
    program = directory / "franz_go"
    run(["go", "build", "-trimpath", "-o", str(program), "."], HERE / "franz_go")
    return [str(program)]


def run(command: list[str], directory: Path = HERE) -> None:
    ran = subprocess.run(
        command,
        cwd=directory,
        env=environment(),
        capture_output=True,
        text=True,
        check=False,
        timeout=BUILD_SECONDS_MAX,
    )
    assert ran.returncode == 0, f"{' '.join(command)}: {ran.stdout}{ran.stderr}"


CLIENTS = {
    client.name: client
    for client in (
        in_python("Tidelog", "with_tidelog", "tidelog"),
        Client("Java", missing_peers, build_java),
        Client("franz-go", missing_go, build_go),
        in_python("kafka-python", "with_kafka_python", "kafka"),
        in_python("confluent-kafka", "with_confluent", "confluent_kafka"),
        in_python("aiokafka", "with_aiokafka", "aiokafka"),
    )
}

"""The clients of the matrix: what each can, how its program is run, and why it cannot be run here."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import pytest

from compat.secured.task import Task
from compat.unclean_elections.clients import environment
from support.clients.go_program import build_go, missing_go
from support.clients.kafka_peer import missing_peers
from support.clients.kafka_tools import KafkaTools
from support.nodes.secured_cluster import OAUTHBEARER

__all__ = ["CLIENTS", "SERVED", "TOKEN", "Client", "Run"]

HERE = Path(__file__).parent
BUILD_SECONDS_MAX = 600.0
STORY_SECONDS_MAX = 60.0

TOKEN = "delegation token"
PASSWORDS = frozenset({"PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"})
SERVED = PASSWORDS | {TOKEN, OAUTHBEARER}
"""What the listener of the tests has."""

Run = Callable[[Task], list[str]]
"""Runs a task; returns what its program says, line by line."""


@dataclass(frozen=True, slots=True)
class Client:
    """One of them.

    Attributes:
        missing: why it cannot run here, or None.
        prepare: gives what runs its tasks, and what is to be called in the end.
        mechanisms: what it can.
        quick: the one of them that is tried in each run of the tests; None where even that takes long, as a build does.
        unknown: the client's own name of the error when the password is wrong.
        unknown_token: likewise, when another key signed the token; None if the name is the same.
        denied: likewise, when alice may not do something with a topic.
        renews: whether it authenticates again on its connections.
    """

    missing: Callable[[], str | None]
    prepare: Callable[[Path], tuple[Run, Callable[[], None]]]
    mechanisms: frozenset[str]
    quick: str | None
    unknown: str
    denied: str
    renews: bool = True
    unknown_token: str | None = None


def nothing() -> None:
    """Is left to do."""


def in_python(
    package: str, module: str, function: str = "run"
) -> tuple[Callable[[], str | None], Callable[[Path], tuple[Run, Callable[[], None]]]]:
    def prepare(_: Path) -> tuple[Run, Callable[[], None]]:
        return getattr(import_module(f"compat.secured.programs.{module}"), function), nothing

    return lambda: None if find_spec(package) else f"{package} is not installed: `make setup` installs it", prepare


def prepare_java(_: Path) -> tuple[Run, Callable[[], None]]:
    jvm = KafkaTools(HERE / "SecuredClients.java")
    return lambda task: jvm.run("SecuredClients", *task.arguments).output.splitlines(), jvm.close


def prepare_go(directory: Path) -> tuple[Run, Callable[[], None]]:
    return in_process([str(build_go(HERE / "franz_go", directory))]), nothing


def missing_node() -> str | None:
    for program in ("node", "npm"):
        if shutil.which(program) is None:
            return f"there is no {program} on the PATH: kafkajs needs one"
    return None


def prepare_node(directory: Path) -> tuple[Run, Callable[[], None]]:
    """The package comes from npm's cache, or from wherever the `npm` of this machine fetches packages."""
    home = directory / "kafkajs"
    shutil.copytree(HERE / "kafkajs", home)
    install = ["npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--prefer-offline"]
    if (failed := why_failed(install, home)) is not None:
        pytest.skip(failed)
    return in_process(["node", str(home / "main.js")]), nothing


def in_process(command: list[str]) -> Run:
    def run(task: Task) -> list[str]:
        ran = subprocess.run(
            [*command, *task.arguments],
            env=environment(),
            capture_output=True,
            text=True,
            check=False,
            timeout=STORY_SECONDS_MAX,
        )
        assert ran.returncode == 0, ran.stdout + ran.stderr
        return ran.stdout.splitlines()

    return run


def why_failed(command: list[str], directory: Path) -> str | None:
    """Run what prepares a program. Returns why it did not work, or None."""
    try:
        ran = subprocess.run(
            command,
            cwd=directory,
            env=environment(),
            capture_output=True,
            text=True,
            check=False,
            timeout=BUILD_SECONDS_MAX,
        )
    except subprocess.TimeoutExpired:
        return f"{' '.join(command)} has not ended after {BUILD_SECONDS_MAX:.0f} s"
    return None if ran.returncode == 0 else f"{' '.join(command)}: {(ran.stdout + ran.stderr).strip()[-300:]}"


SASL_ERROR, TOPIC_ERROR = "SaslAuthenticationError", "TopicAuthorizationFailedError"
TIDELOG = {"unknown": SASL_ERROR, "denied": "TOPIC_AUTHORIZATION_FAILED", "mechanisms": SERVED}
CLIENTS = {
    "Tidelog": Client(*in_python("tidelog", "with_tidelog"), quick=TOKEN, **TIDELOG),  # type: ignore[arg-type]
    "Tidelog's aio": Client(*in_python("tidelog", "with_tidelog", "run_aio"), quick="SCRAM-SHA-256", **TIDELOG),  # type: ignore[arg-type]
    "confluent-kafka": Client(
        *in_python("confluent_kafka", "with_confluent"),
        mechanisms=PASSWORDS | {OAUTHBEARER},
        quick="SCRAM-SHA-512",
        unknown="_AUTHENTICATION",
        denied="TOPIC_AUTHORIZATION_FAILED",
    ),
    "kafka-python": Client(
        *in_python("kafka", "with_kafka_python"),
        mechanisms=PASSWORDS | {OAUTHBEARER},
        quick=OAUTHBEARER,
        unknown="KafkaTimeoutError",
        denied=TOPIC_ERROR,
    ),
    "aiokafka": Client(
        *in_python("aiokafka", "with_aiokafka"),
        mechanisms=PASSWORDS | {OAUTHBEARER},
        quick="PLAIN",
        unknown="KafkaConnectionError",
        denied=TOPIC_ERROR,
        renews=False,
    ),
    "Java": Client(
        missing_peers,
        prepare_java,
        mechanisms=SERVED,
        quick=TOKEN,
        unknown="SaslAuthenticationException",
        denied="TopicAuthorizationException",
    ),
    "franz-go": Client(
        lambda: missing_go(HERE / "franz_go"),
        prepare_go,
        mechanisms=SERVED,
        quick=None,
        unknown="SASL_AUTHENTICATION_FAILED",
        denied="TOPIC_AUTHORIZATION_FAILED",
    ),
    "kafkajs": Client(
        missing_node,
        prepare_node,
        mechanisms=PASSWORDS | {OAUTHBEARER},
        quick="SCRAM-SHA-512",
        unknown="KafkaJSSASLAuthenticationError",
        unknown_token="KafkaJSConnectionClosedError",
        denied="TOPIC_AUTHORIZATION_FAILED",
    ),
}

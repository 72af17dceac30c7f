"""The programs of `bench_failover.py`: what writes and reads records with each client, in a process of its own.

`failover_clients/lines.py` says what they are told, and what they say.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.util import find_spec
from pathlib import Path
from typing import IO

from harness import ROOT

from support.clients.go_program import build_go, missing_go
from support.clients.java_classes import compiled
from support.clients.kafka_peer import TOOL_FLAGS, java_command, missing_peers
from support.fixtures.waiting import wait_until

__all__ = ["CLIENTS", "Client", "Program"]

HERE = Path(__file__).parent / "failover_clients"
JAVA_DEBUG = [
    "-Dorg.slf4j.simpleLogger.showDateTime=true",
    "-Dorg.slf4j.simpleLogger.dateTimeFormat=HH:mm:ss.SSS",
    "-Dorg.slf4j.simpleLogger.log.org.apache.kafka.clients=debug",
]
BEGIN_SECONDS_MAX = 60.0
FRANZ_GO_WARM_SECONDS = 12.0
"""Within five seconds of an answer to Metadata it does not ask again (`MetadataMinAge`); as it begins it asks twice."""
WAIT_SECONDS_MAX = 60.0


@dataclass(frozen=True, slots=True)
class Client:
    """One of them.

    Attributes:
        name: as its users call it.
        missing: why it cannot run here, or None.
        build: its command, made in a directory, which its arguments follow; whether it is to say what it does is the
            second argument.
        warm_seconds: how long it runs before the strike.
        protocols: of groups that it speaks.
    """

    name: str
    missing: Callable[[], str | None]
    build: Callable[[Path, bool], list[str]]
    warm_seconds: float = 1.0
    protocols: tuple[str, ...] = ("classic",)


class Program:
    """A program that runs, as a context.

    Args:
        command: of the client, with all its arguments.
        log_path: where what it says on stderr goes.
    """

    def __init__(self, command: list[str], log_path: Path) -> None:
        self._command = command
        self._log_path = log_path
        self._sent_ns = 0  # only records that were sent later count: at the strike, when that was
        self._first_ns: dict[str, int] = {}  # of each event, when it came first for such a record

    def __enter__(self) -> Program:
        path = os.pathsep.join([str(HERE), str(ROOT / "tests"), *(one for one in sys.path if one)])
        with self._log_path.open("wb") as log:
            self._process = subprocess.Popen(
                self._command,
                env=os.environ | {"PYTHONPATH": path},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
            )
        assert self._process.stdout is not None
        self._reading = threading.Thread(target=self._read, args=(self._process.stdout,))
        self._reading.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait()
        self._reading.join()

    def _read(self, said: IO[bytes]) -> None:
        with said:
            for line in said:
                event, sent_ns, at_ns = line.decode().split()
                if int(sent_ns) > self._sent_ns:
                    self._first_ns.setdefault(event, int(at_ns))

    def wait_until_both(self, seconds: float) -> None:
        """Until a record that counts is acknowledged, and one is read. Raises AssertionError: not in time."""

        def are_there() -> bool:
            assert self._process.poll() is None, f"the program ended: {self._said}"
            return len(self._first_ns) == 2

        wait_until(
            are_there, lambda: f"acknowledged and read, but {set(self._first_ns)}: {self._said}", seconds=seconds
        )

    @property
    def struck(self) -> str:
        """When it was struck, as logs write times."""
        return datetime.fromtimestamp(self._sent_ns / 1e9, UTC).strftime("%H:%M:%S.%f")

    @property
    def _said(self) -> str:
        return self._log_path.read_text(errors="replace")[-4_000:]

    def waits_ms(self, strike: Callable[[], None], warm_seconds: float) -> tuple[float, float]:
        """From a strike to the first acknowledgement of what was sent after it, and to the first such record read."""
        self.wait_until_both(BEGIN_SECONDS_MAX)
        time.sleep(warm_seconds + random.random())  # clients have timers of a second that began with the program
        strike()
        self._sent_ns = time.time_ns()
        self._first_ns.clear()
        self.wait_until_both(WAIT_SECONDS_MAX)
        return (
            (self._first_ns["acknowledged"] - self._sent_ns) / 1e6,
            (self._first_ns["read"] - self._sent_ns) / 1e6,
        )


def _in_python(
    name: str, module: str, package: str, *options: str, protocols: tuple[str, ...] = ("classic",)
) -> Client:
    return Client(
        name,
        lambda: None if find_spec(package) else f"{package} is not installed: `make setup` installs it",
        lambda _, is_debugged: [sys.executable, str(HERE / f"{module}.py"), *options],
        protocols=protocols,
    )


def _build_java(_: Path, is_debugged: bool) -> list[str]:
    source = HERE / "Failover.java"
    flags = [*TOOL_FLAGS, *(JAVA_DEBUG if is_debugged else ())]
    return java_command([source.stem], flags=flags, classes=compiled(source))


BOTH = ("classic", "consumer")
TIDELOG = _in_python("Tidelog", "with_tidelog", "tidelog", protocols=BOTH)
CLIENTS = (
    _in_python("librdkafka", "with_librdkafka", "confluent_kafka", protocols=BOTH),
    _in_python(
        "librdkafka-connected-to-all", "with_librdkafka", "confluent_kafka", "--all-connections", protocols=BOTH
    ),
    Client("Java", missing_peers, _build_java, protocols=BOTH),
    Client(
        "franz-go",
        lambda: missing_go(HERE / "franz_go"),
        lambda directory, _: [str(build_go(HERE / "franz_go", directory))],
        warm_seconds=FRANZ_GO_WARM_SECONDS,
    ),
    _in_python("kafka-python", "with_kafka_python", "kafka"),
    _in_python("aiokafka", "with_aiokafka", "aiokafka"),
    TIDELOG,
)

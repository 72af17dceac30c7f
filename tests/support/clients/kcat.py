"""kcat as a user types it: arguments in, lines out, with a deadline, and without what the user's shell says."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from typing import IO, Any

__all__ = ["Kcat", "missing_kcat"]

SECONDS_MAX = 60.0


def missing_kcat() -> str | None:
    """Why kcat cannot be run here, or None when it can."""
    return None if shutil.which("kcat") else "there is no kcat on the PATH: Debian's package has its name"


class Kcat:
    """kcat against one cluster.

    Args:
        bootstrap: `HOST:PORT`.
    """

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap
        self._environment = {key: value for key, value in os.environ.items() if key != "KCAT_CONFIG"}
        self._environment["HOME"] = "/nonexistent"  # where its settings would be

    def command(self, *arguments: str) -> list[str]:
        return ["kcat", "-b", self.bootstrap, "-X", "reconnect.backoff.max.ms=200", *arguments]

    def run(self, *arguments: str, stdin: bytes = b"") -> bytes:
        """What it prints.

        Raises:
            subprocess.CalledProcessError: it ended with another status than 0; `stderr` says why.
            subprocess.TimeoutExpired: it did not end.
        """
        ran = subprocess.run(
            self.command(*arguments),
            input=stdin,
            capture_output=True,
            check=True,
            timeout=SECONDS_MAX,
            env=self._environment,
        )
        return ran.stdout

    def start(self, *arguments: str, output: IO[bytes]) -> subprocess.Popen[bytes]:
        """A kcat that goes on until somebody ends it."""
        return subprocess.Popen(
            self.command(*arguments),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.DEVNULL,
            env=self._environment,
        )

    def produce(self, topic: str, lines: bytes, *arguments: str) -> None:
        self.run("-P", "-t", topic, *arguments, stdin=lines)

    def consume(self, topic: str, *arguments: str) -> list[bytes]:
        """The values of what is there, in order, one a line."""
        return self.run("-C", "-q", "-e", "-t", topic, *arguments).splitlines()

    def consume_json(self, topic: str, *arguments: str) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.consume(topic, "-J", *arguments)]

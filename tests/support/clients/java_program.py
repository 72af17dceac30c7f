"""A program in Java in a process of its own, killed and started anew as often as a test wants."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path

from support.clients.kafka_peer import java_command

__all__ = ["JavaProgram"]


class JavaProgram:
    """One process at a time. Use as a context: it starts with that, and ends with it.

    Args:
        arguments: of `java`, from the class on.
        said: where all that it says is kept, over all its processes.
        classes: a directory of classes that are not Kafka's.
    """

    def __init__(self, arguments: Sequence[str], said: Path, *, classes: Path | None = None) -> None:
        self._command = java_command(arguments, classes=classes)
        self._said = said
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> JavaProgram:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._process is not None:
            self.kill()

    def start(self) -> None:
        """Start it, and do not wait for it."""
        assert self._process is None, "it runs already"
        with self._said.open("ab") as said:
            self._process = subprocess.Popen(self._command, stdin=subprocess.DEVNULL, stdout=said, stderr=said)

    def kill(self) -> None:
        """`kill -9`; returns when it is gone."""
        assert self._process is not None, "it does not run"
        self._process.kill()
        self._process.wait()
        self._process = None

    def check(self) -> None:
        """Raises AssertionError if it has ended by itself."""
        status = None if self._process is None else self._process.poll()
        assert status is None, f"it ended with status {status}:\n{self.said}"

    @property
    def said(self) -> str:
        """The end of what it said."""
        return self._said.read_text(errors="replace")[-4_000:]

"""A real node behind `tidelog server FILE`, in a process of its own."""

from __future__ import annotations

import os
import re
import selectors
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import IO

from support.nodes.forked_command import ForkedCommand

START_SECONDS_MAX = 60.0
STOP_SECONDS_MAX = 60.0


class NodeFailedError(AssertionError):
    """The node did not do what the test needs to go on. Carries the end of its log."""


class ServerProcess:
    """One node, in a process of its own.

    Attributes:
        settings: Kafka's keys, written to a file at each start; may be changed before.
        host: where it listens.
        port: the clients' port, after each start.
        wrapper: a command that runs the node's command line, which follows it, and becomes it; may be changed between
            starts. Without it, and without a `program`, the node is forked from a process that has loaded Tidelog.
        log_path: what it writes to stderr, over all starts.
        properties_path: where the settings are written.
        program: Python that runs the command line in its own way; None for the command line as it is.
    """

    def __init__(self, home: Path, *directories: Path, node_id: int = 1, **settings: str) -> None:
        self.settings = {
            "node.id": str(node_id),
            "process.roles": "broker,controller",
            "listeners": "PLAINTEXT://127.0.0.1:0,CONTROLLER://127.0.0.1:0",
            "controller.listener.names": "CONTROLLER",
            "controller.quorum.voters": f"{node_id}@127.0.0.1:0",
            "log.dirs": ",".join(map(str, directories)),
            **{key.replace("_", "."): value for key, value in settings.items()},
        }
        self.host = "127.0.0.1"
        self.port = 0
        self.wrapper: tuple[str, ...] = ()
        self.log_path = home / f"node-{node_id}.log"
        self.properties_path = home / f"node-{node_id}.properties"
        self.program: str | None = None
        self._process: subprocess.Popen[bytes] | ForkedCommand | None = None
        self._lifeline: int | None = None

    @property
    def bootstrap(self) -> str:
        return f"{self.host}:{self.port}"

    @property
    def log(self) -> str:
        return self.log_path.read_text(errors="replace") if self.log_path.exists() else ""

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def start(self) -> None:
        """Return when it serves. Raises NodeFailedError if it ends instead."""
        self.start_soon()
        self.wait_until_serving()

    def start_soon(self, *, program: str | None = None) -> None:
        """Start it, and do not wait for it: a node may need others to serve.

        Args:
            program: in place of the attribute, for this start.
        """
        assert not self.is_running, "it runs already"
        self.write_settings()
        program = program or self.program
        arguments = ["server", str(self.properties_path)]
        with self.log_path.open("ab") as log:
            if program is None and not self.wrapper:
                self._process = ForkedCommand(arguments, stderr=log)
            else:
                self._process = self._spawned(program, arguments, log)

    def _spawned(self, program: str | None, arguments: list[str], log: IO[bytes]) -> subprocess.Popen[bytes]:
        # It stops when the write end closes, so it cannot outlive this process, however that ends.
        read_end, self._lifeline = os.pipe()
        tidelog = ("-m", "tidelog") if program is None else ("-c", program)
        command = [*self.wrapper, sys.executable, *tidelog, *arguments, "--parent-fd", str(read_end)]
        try:
            return subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=log, pass_fds=(read_end,)
            )
        finally:
            os.close(read_end)

    def write_settings(self) -> None:
        self.properties_path.write_text("".join(f"{key}={value}\n" for key, value in self.settings.items()))

    def wait_until_serving(self, seconds: float = START_SECONDS_MAX) -> None:
        """After `start_soon`. Raises NodeFailedError if it ends instead, or does not come to serve in time."""
        assert self._process is not None
        assert self._process.stdout is not None
        said = b""
        deadline = time.monotonic() + seconds
        with selectors.DefaultSelector() as selector:
            selector.register(self._process.stdout, selectors.EVENT_READ)
            while not (found := re.search(rb"^ready bootstrap=\S+:(\d+)\n", said, re.MULTILINE)):
                if not selector.select(max(0.0, deadline - time.monotonic())):
                    raise self._failed("not ready in time")
                piece = self._process.stdout.read1(65_536)  # type: ignore[attr-defined]
                if not piece:
                    status = self._process.wait(STOP_SECONDS_MAX)
                    raise self._failed(f"ended with status {status} before it was ready")
                said += piece
        self.port = int(found[1])

    def end(self, number: signal.Signals = signal.SIGTERM) -> int:
        """Send it a signal; returns the exit status when it has ended."""
        self.signal(number)
        return self.wait()

    def signal(self, number: signal.Signals) -> None:
        """Send it a signal, and do not wait for what comes of it."""
        assert self._process is not None
        self._process.send_signal(number)

    def wait(self) -> int:
        """Wait until it has ended; returns the exit status."""
        assert self._process is not None
        status = self._process.wait(STOP_SECONDS_MAX)
        self.close()
        return status

    def close(self) -> None:
        """Leave nothing running."""
        if self._process is None:
            return
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait()
        if self._process.stdout is not None:
            self._process.stdout.close()
        if self._lifeline is not None:
            os.close(self._lifeline)
            self._lifeline = None

    def _failed(self, how: str) -> NodeFailedError:
        self.close()
        return NodeFailedError(f"{self.log_path.stem}: {how}: {self.log[-2_000:]}")

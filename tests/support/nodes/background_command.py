"""A `tidelog` command in the background that serves, as whoever starts it sees it."""

from __future__ import annotations

import os
import re
import selectors
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

START_SECONDS_MAX = 60.0
STOP_SECONDS_MAX = 60.0


class BackgroundCommand:
    """A `tidelog` command in the background, up to its `ready` line."""

    def __init__(self, log: Path, *arguments: str) -> None:
        self.log_path = log
        with log.open("ab") as stderr:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "tidelog", *arguments],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=stderr,
            )
        self.said = self._read_until_ready()

    @property
    def log(self) -> str:
        return self.log_path.read_text(errors="replace")

    @property
    def bootstrap(self) -> str:
        match = re.search(r"^ready bootstrap=(\S+)$", self.said, re.MULTILINE)
        assert match is not None, self.said
        return match[1]

    @property
    def pids(self) -> dict[int, int]:
        """Of the nodes, by their ids."""
        return {int(node): int(pid) for node, pid in re.findall(r"^node id=(\d+) pid=(\d+)", self.said, re.MULTILINE)}

    def stop(self) -> int:
        """SIGTERM; returns the exit status."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(STOP_SECONDS_MAX)

    def close(self) -> None:
        """Leave nothing running: nodes go with `up`, when it is told, or dies."""
        if self.process.poll() is None:
            self.process.terminate()
            with suppress(subprocess.TimeoutExpired):
                self.process.wait(STOP_SECONDS_MAX)
            self.process.kill()
            self.process.wait()
        assert self.process.stdout is not None
        self.process.stdout.close()

    def _read_until_ready(self) -> str:
        assert self.process.stdout is not None
        said, deadline = b"", time.monotonic() + START_SECONDS_MAX
        with selectors.DefaultSelector() as selector:
            selector.register(self.process.stdout, selectors.EVENT_READ)
            while not re.search(rb"^ready bootstrap=\S+\n", said, re.MULTILINE):
                piece = b""
                if selector.select(max(0.0, deadline - time.monotonic())):
                    piece = os.read(self.process.stdout.fileno(), 65_536)
                if not piece:
                    self.close()
                    raise AssertionError(f"not ready: {said.decode()}{self.log[-2_000:]}")
                said += piece
        return said.decode()

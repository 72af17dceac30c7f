"""A broker to be killed: `tidelog up` in a process of its own, which ends when this one does."""

from __future__ import annotations

import os
import re
import selectors
import signal
import subprocess
import sys
import time
from pathlib import Path

from tidelog.base.errors import TidelogError

START_SECONDS_MAX = 30.0
STOP_SECONDS_MAX = 20.0


class BrokerFailedError(TidelogError):
    """The demo's broker did not start. Carries the end of its log."""


class DemoBroker:
    """One node on files and a port of its own, both kept over restarts.

    Args:
        directory: for the node's files; its log is `broker.log` beside them.
        port: for clients; 0 for a free one.
    """

    def __init__(self, directory: Path, port: int) -> None:
        self.directory = directory
        self.port = port
        self.pid = 0
        self._log = directory.parent / "broker.log"
        self._up: subprocess.Popen[bytes] | None = None
        self._lifeline: int | None = None

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self.port}"

    def start(self) -> float:
        """Return when the node serves. Returns: the seconds that took.

        Raises:
            BrokerFailedError: it ended, or took too long.
        """
        began = time.monotonic()
        # The node stops when the other end closes, so it cannot outlive this process, however that ends.
        read_end, self._lifeline = os.pipe()
        command = [sys.executable, "-m", "tidelog", "up", "--nodes", "1", "--port", str(self.port)]
        command += ["--data", str(self.directory), "--parent-fd", str(read_end)]
        with self._log.open("ab") as log:
            # In a group of its own: Ctrl-C is for the demo, which stops the broker in its own time.
            self._up = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
                pass_fds=(read_end,),
                start_new_session=True,
            )
        os.close(read_end)
        said = self._read_until_ready(began + START_SECONDS_MAX)
        match = re.search(r"^node id=1 pid=(\d+) port=(\d+)$", said, re.MULTILINE)
        if match is None:
            raise self._failed(f"`tidelog up` said {said!r}")
        self.pid, self.port = int(match[1]), int(match[2])
        return time.monotonic() - began

    def kill(self) -> None:
        """`kill -9` of the node."""
        assert self._up is not None
        os.kill(self.pid, signal.SIGKILL)
        self._up.wait(STOP_SECONDS_MAX)
        self._hang_up()

    def close(self) -> None:
        """Leave nothing running, whatever state it is in."""
        if self._up is not None and self._up.poll() is None:
            self._up.terminate()
            try:
                self._up.wait(STOP_SECONDS_MAX)
            except subprocess.TimeoutExpired:
                self._up.kill()  # its node notices that the lifeline is cut
                self._up.wait()
        self._hang_up()

    def _hang_up(self) -> None:
        if self._lifeline is not None:
            os.close(self._lifeline)
            self._lifeline = None
        if self._up is not None and self._up.stdout is not None:
            self._up.stdout.close()

    def _read_until_ready(self, deadline: float) -> str:
        assert self._up is not None
        assert self._up.stdout is not None
        said = b""
        with selectors.DefaultSelector() as selector:
            selector.register(self._up.stdout, selectors.EVENT_READ)
            while not re.search(rb"^ready bootstrap=\S+\n", said, re.MULTILINE):
                if not selector.select(max(0.0, deadline - time.monotonic())):
                    raise self._failed(f"not ready after {START_SECONDS_MAX:.0f} s")
                piece = os.read(self._up.stdout.fileno(), 65_536)
                if not piece:
                    raise self._failed(f"`tidelog up` ended with status {self._up.wait()} before it was ready")
                said += piece
        return said.decode()

    def _failed(self, what: str) -> BrokerFailedError:
        self.close()
        log = self._log.read_text(errors="replace") if self._log.exists() else ""
        return BrokerFailedError(f"the broker did not start: {what}; the end of {self._log}:\n{log[-2_000:]}")

"""A real node in a process of its own, as a user starts it: `tidelog up`."""

from __future__ import annotations

import os
import re
import selectors
import signal
import subprocess
import sys
import time
from pathlib import Path

from support.nodes.server_process import START_SECONDS_MAX, STOP_SECONDS_MAX, NodeFailedError


class UpProcess:
    """A broker and controller behind `tidelog up --nodes 1`.

    Attributes:
        bootstrap: `HOST:PORT` for clients. The same after every restart.
        port: the clients' port.
        pid: of the node itself (not of the `tidelog up` above it).
        data_dir: what `--data` was given; the node's files are in `data_dir/node-1`.
        log_path: what the node and `tidelog up` write to stderr.
        config: what `--config` is given at each start; may be changed before `restart()`.
    """

    def __init__(self, data_dir: Path, *, config: dict[str, str], port: int = 0) -> None:
        self.data_dir = data_dir
        self.config = config
        self.port = port
        self.pid = 0
        self.log_path = data_dir.parent / f"{data_dir.name}.log"
        self._up: subprocess.Popen[bytes] | None = None
        self._lifeline: int | None = None

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def log(self) -> str:
        """Everything the node has logged so far."""
        return self.log_path.read_text(errors="replace") if self.log_path.exists() else ""

    @property
    def is_running(self) -> bool:
        return self._up is not None and self._up.poll() is None

    def start(self) -> None:
        """Return when the node serves.

        Raises:
            NodeFailedError: it ended, or was not ready in time.
        """
        assert not self.is_running, "the node runs already"
        # The node stops when the write end closes, so it cannot outlive this process, however that ends.
        read_end, self._lifeline = os.pipe()
        arguments = [sys.executable, "-m", "tidelog", "up", "--nodes", "1"]
        arguments += ["--port", str(self.port), "--data", str(self.data_dir), "--parent-fd", str(read_end)]
        for key, value in self.config.items():
            arguments += ["--config", f"{key}={value}"]
        with self.log_path.open("ab") as log:
            self._up = subprocess.Popen(
                arguments, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=log, pass_fds=(read_end,)
            )
        os.close(read_end)
        said = self._read_until_ready(time.monotonic() + START_SECONDS_MAX)
        match = re.search(r"^node id=1 pid=(\d+) port=(\d+)$", said, re.MULTILINE)
        if match is None:
            raise self._failed(f"`tidelog up` said {said!r}")
        self.pid, self.port = int(match[1]), int(match[2])

    def stop(self, number: signal.Signals = signal.SIGTERM) -> int:
        """Stop it as an operator would; returns the exit status when all has ended.

        Raises:
            NodeFailedError: it did not end in time, or not with status 0.
        """
        assert self._up is not None, "the node was never started"
        self._up.send_signal(number)
        try:
            status = self._up.wait(STOP_SECONDS_MAX)
        except subprocess.TimeoutExpired:
            raise self._failed(f"still there {STOP_SECONDS_MAX:.0f} s after SIGTERM") from None
        self._hang_up()
        if status != 0:
            raise self._failed(f"`tidelog up` ended with status {status}")
        return status

    def kill(self) -> int:
        """`kill -9` of the node; returns the status of the `tidelog up` above it when both are gone."""
        assert self._up is not None, "the node was never started"
        os.kill(self.pid, signal.SIGKILL)
        status = self._up.wait(STOP_SECONDS_MAX)
        self._hang_up()
        return status

    def kill_up(self) -> None:
        """`kill -9` of `tidelog up`, which leaves its node alone; returns when `up` is gone."""
        assert self._up is not None, "the node was never started"
        self._up.kill()
        self._up.wait(STOP_SECONDS_MAX)
        self._hang_up()

    def restart(self) -> None:
        """Start again on the same files and the same port, after `stop` or `kill` (stops first if neither was)."""
        if self.is_running:
            self.stop()
        self.start()

    def close(self) -> None:
        """Leave nothing running, whatever state it is in."""
        if self._up is not None and self._up.poll() is None:
            self._up.terminate()
            try:
                self._up.wait(STOP_SECONDS_MAX)
            except subprocess.TimeoutExpired:
                self._up.kill()  # its node notices by the closed pipe
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

    def _failed(self, what: str) -> NodeFailedError:
        self.close()
        return NodeFailedError(f"{what}; the end of {self.log_path}:\n{self.log[-4_000:]}")

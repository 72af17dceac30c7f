"""Nodes to be killed: `tidelog up` with three of them, and whatever is started again by hand; all end with the demo."""

from __future__ import annotations

import os
import re
import selectors
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tidelog.base.errors import TidelogError

START_SECONDS_MAX = 30.0
STOP_SECONDS_MAX = 40.0
LOOK_PAUSE_SECONDS = 0.02
SETTINGS = {"broker.session.timeout.ms": "2000", "broker.heartbeat.interval.ms": "500"}
"""Silence is noticed sooner than by default: in a minute there is not much time to wait for it."""


class NodeFailedError(TidelogError):
    """A node of the demo did not start, or not end. Carries the end of the log."""


class DemoCluster:
    """Three nodes on files and ports of their own, both kept over restarts.

    Args:
        directory: for the nodes' files; their log is `nodes.log` beside them.
        port: for clients, the first node's; 0 for free ones.

    Attributes:
        bootstrap: of all nodes.
        pids: of the nodes, by their ids.
    """

    NODES = 3

    def __init__(self, directory: Path, port: int) -> None:
        self.directory = directory
        self.bootstrap = ""
        self.pids: dict[int, int] = {}
        self._port = port
        self._log = directory.parent / "nodes.log"
        self._processes: list[_Process] = []
        # Linux tells a child of the end of the thread that started it, not of the process: it has to be one that stays.
        self._starter = ThreadPoolExecutor(max_workers=1, thread_name_prefix="demo-starter")

    def start(self) -> float:
        """Return when all nodes serve. Returns: the seconds that took.

        Raises:
            NodeFailedError: one ended, or they took too long.
        """
        began = time.monotonic()
        arguments = ["up", "--nodes", str(self.NODES), "--port", str(self._port), "--data", str(self.directory)]
        for key, value in SETTINGS.items():
            arguments += ["--config", f"{key}={value}"]
        said = self._run(*arguments)
        self.pids = {int(node_id): int(pid) for node_id, pid in re.findall(r"^node id=(\d+) pid=(\d+) ", said, re.M)}
        self.bootstrap = _bootstrap(said)
        return time.monotonic() - began

    def kill(self, node_id: int) -> str:
        """`kill -9` of a node. Returns what `up` said of it, if it still watched over it."""
        pid = self.pids[node_id]
        os.kill(pid, signal.SIGKILL)
        for process in self._processes[1:]:
            if process.pid == pid:  # started by hand: nobody says anything
                process.wait()
                return ""
        return self._wait_for_line(rf"node {node_id} \(pid {pid}\) .*")

    def start_again(self, node_id: int) -> float:
        """Start a node that was killed, as `up` says. Returns: the seconds until it serves. Raises as `start`."""
        began = time.monotonic()
        said = self._run("server", str(self.directory / f"node-{node_id}.properties"))
        match = re.search(r"^node id=\d+ pid=(\d+) ", said, re.M)
        if match is None:
            raise self._failed(f"`tidelog server` said {said!r}")
        self.pids[node_id] = int(match[1])
        return time.monotonic() - began

    def close(self) -> None:
        """Leave nothing running, whatever state it is in."""
        for process in self._processes:
            process.terminate()
        for process in self._processes:
            process.close()
        self._starter.shutdown()

    def _run(self, *arguments: str) -> str:
        process = self._starter.submit(_Process, arguments, self._log).result()
        self._processes.append(process)
        try:
            return process.read_until_ready()
        except TimeoutError:
            raise self._failed(f"not ready after {START_SECONDS_MAX:.0f} s") from None
        except EOFError:
            status = process.wait()
            raise self._failed(f"`tidelog {arguments[0]}` ended with status {status} before it was ready") from None

    def _wait_for_line(self, pattern: str) -> str:
        found: list[str] = []

        def is_there() -> bool:
            found.extend(re.findall(pattern, self._log.read_text(errors="replace")))
            return bool(found)

        if not _wait_until(is_there):
            raise self._failed(f"nobody said {pattern!r}")
        return found[-1]

    def _failed(self, what: str) -> NodeFailedError:
        self.close()
        log = self._log.read_text(errors="replace") if self._log.exists() else ""
        return NodeFailedError(
            f"the nodes are not as the demo needs them: {what}; the end of {self._log}:\n{log[-2_000:]}"
        )


class _Process:
    """A `tidelog` command that stops when this process ends, however that comes about."""

    def __init__(self, arguments: tuple[str, ...], log: Path) -> None:
        read_end, self._lifeline = os.pipe()
        with log.open("ab") as stderr:
            # In a group of its own: Ctrl-C is for the demo, which stops its nodes in its own time.
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tidelog", *arguments, "--parent-fd", str(read_end)],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=stderr,
                pass_fds=(read_end,),
                start_new_session=True,
            )
        os.close(read_end)

    @property
    def pid(self) -> int:
        return self._process.pid

    def read_until_ready(self) -> str:
        """What it printed. Raises TimeoutError, or EOFError: it ended instead."""
        deadline = time.monotonic() + START_SECONDS_MAX
        assert self._process.stdout is not None
        said = b""
        with selectors.DefaultSelector() as selector:
            selector.register(self._process.stdout, selectors.EVENT_READ)
            while not re.search(rb"^ready bootstrap=\S+\n", said, re.MULTILINE):
                if not selector.select(max(0.0, deadline - time.monotonic())):
                    raise TimeoutError
                piece = os.read(self._process.stdout.fileno(), 65_536)
                if not piece:
                    raise EOFError
                said += piece
        return said.decode()

    def wait(self) -> int:
        return self._process.wait(STOP_SECONDS_MAX)

    def terminate(self) -> None:
        if self._process.poll() is None:
            self._process.terminate()

    def close(self) -> None:
        try:
            self._process.wait(STOP_SECONDS_MAX)
        except subprocess.TimeoutExpired:
            self._process.kill()  # what it started notices that the lifeline is cut
            self._process.wait()
        if self._lifeline >= 0:
            os.close(self._lifeline)
            self._lifeline = -1
        if self._process.stdout is not None:
            self._process.stdout.close()


def _bootstrap(said: str) -> str:
    match = re.search(r"^ready bootstrap=(\S+)$", said, re.M)
    return "" if match is None else match[1]


def _wait_until(is_so: Callable[[], bool]) -> bool:
    deadline = time.monotonic() + STOP_SECONDS_MAX
    while not is_so():
        if time.monotonic() > deadline:
            return False
        time.sleep(LOOK_PAUSE_SECONDS)
    return True

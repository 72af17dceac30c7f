"""Nodes to be ruined: `tidelog up` with three of them, and whatever is started again by hand; all end with the demo."""

from __future__ import annotations

import os
import re
import signal
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tidelog.base.errors import TidelogError
from tidelog.base.ids import TopicPartition
from tidelog.demo.commands import START_SECONDS_MAX, STOP_SECONDS_MAX, ServingCommand

LOOK_PAUSE_SECONDS = 0.02
SETTINGS = {
    "broker.session.timeout.ms": "2000",
    "broker.heartbeat.interval.ms": "500",
    "replica.high.watermark.checkpoint.interval.ms": "500",
}
"""Silence, and a disk that is gone, are noticed sooner than by default: there is not much time to wait for it."""
TORN_AWAY = ".torn-away"


class NodeFailedError(TidelogError):
    """A node of the demo did not start, or not end. Carries the end of the log."""


class DemoCluster:
    """Three nodes on files and ports of their own, both kept over restarts.

    Each has two log directories, as though each were a disk, and its metadata log in a third: a node whose disk fails
    goes on voting.

    Args:
        directory: for the nodes' files; their log is `nodes.log` beside them.
        port: for clients, the first node's; 0 for free ones.

    Attributes:
        bootstrap: of all nodes.
        pids: of the nodes, by their ids.
    """

    NODES = 3
    DISKS = 2

    def __init__(self, directory: Path, port: int) -> None:
        self.directory = directory
        self.bootstrap = ""
        self.pids: dict[int, int] = {}
        self._port = port
        self._log = directory.parent / "nodes.log"
        self._serving: list[ServingCommand] = []
        # Linux tells a child of the end of the thread that started it, not of the process: it has to be one that stays.
        self._starter = ThreadPoolExecutor(max_workers=1, thread_name_prefix="demo-starter")

    def start(self) -> float:
        """Return when all nodes serve. Returns: the seconds that took.

        Raises:
            NodeFailedError: one ended, or they took too long.
        """
        began = time.monotonic()
        arguments = ["up", "--nodes", str(self.NODES), "--disks", str(self.DISKS)]
        arguments += ["--port", str(self._port), "--data", str(self.directory)]
        for key, value in SETTINGS.items():
            arguments += ["--config", f"{key}={value}"]
        said = self._run(*arguments)
        self.pids = {int(node_id): int(pid) for node_id, pid in re.findall(r"^node id=(\d+) pid=(\d+) ", said, re.M)}
        self.bootstrap = _bootstrap(said)
        return time.monotonic() - began

    def kill(self, node_id: int) -> str:
        """`kill -9` of a node. Returns what `up` said of it, if it still watched over it."""
        return self._end(node_id, signal.SIGKILL)

    def stop(self, node_id: int) -> str:
        """Have a node stop cleanly. Returns as `kill`."""
        return self._end(node_id, signal.SIGTERM)

    def _end(self, node_id: int, how: signal.Signals) -> str:
        pid = self.pids[node_id]
        os.kill(pid, how)
        for command in self._serving[1:]:
            if command.pid == pid:  # started by hand: nobody says anything
                command.wait()
                return ""
        return self._wait_for_line(rf"node {node_id} \(pid {pid}\) .*")

    def start_again(self, node_id: int) -> float:
        """Start a node that ended, as `up` says. Returns: the seconds until it serves. Raises as `start`."""
        began = time.monotonic()
        said = self._run("server", str(self.directory / f"node-{node_id}.properties"))
        match = re.search(r"^node id=\d+ pid=(\d+) ", said, re.M)
        if match is None:
            raise self._failed(f"`tidelog server` said {said!r}")
        self.pids[node_id] = int(match[1])
        return time.monotonic() - began

    # Disks.

    def disk_of(self, node_id: int, partition: TopicPartition) -> Path:
        """The log directory that a replica lies in. Raises NodeFailedError: it is in none."""
        for number in range(1, self.DISKS + 1):
            disk = self.directory / f"node-{node_id}.disk-{number}"
            if (disk / str(partition)).is_dir():
                return disk
        raise self._failed(f"node {node_id} has no {partition}")

    def torn_disk_of(self, node_id: int) -> Path:
        """The log directory that was torn away, by the name that it had. Raises NodeFailedError: there is none."""
        for torn in self.directory.glob(f"node-{node_id}.disk-*{TORN_AWAY}"):
            return torn.with_name(torn.name.removesuffix(TORN_AWAY))
        raise self._failed(f"node {node_id} has all its disks")

    def log_of(self, node_id: int, partition: TopicPartition) -> Path:
        """The directory of a replica, be its disk torn away or not."""
        for disk in sorted(self.directory.glob(f"node-{node_id}.disk-*")):
            if (disk / str(partition)).is_dir():
                return disk / str(partition)
        raise self._failed(f"node {node_id} has no {partition}")

    @staticmethod
    def tear_away(disk: Path) -> None:
        """Take a log directory from under the node that uses it: what it opens there next is not there any more."""
        disk.rename(disk.with_name(disk.name + TORN_AWAY))

    @staticmethod
    def put_back(disk: Path) -> None:
        """As it was torn away. The node takes it into use when it starts again."""
        disk.with_name(disk.name + TORN_AWAY).rename(disk)

    # The end.

    def close(self) -> None:
        """Leave nothing running, whatever state it is in."""
        for command in self._serving:
            command.terminate()
        for command in self._serving:
            command.close()
        self._starter.shutdown()

    def _run(self, *arguments: str) -> str:
        command = self._starter.submit(ServingCommand, arguments, self._log).result()
        self._serving.append(command)
        try:
            return command.read_until_ready()
        except TimeoutError:
            raise self._failed(f"not ready after {START_SECONDS_MAX:.0f} s") from None
        except EOFError:
            status = command.wait()
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

"""Real nodes that know each other, each behind `tidelog server FILE`, in a process of its own."""

from __future__ import annotations

import re
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from support.waiting import wait_until

CLUSTER_ID = "jtxwXpv4Sgyz09Nvdi2SYg"
START_SECONDS_MAX = 30.0
STOP_SECONDS_MAX = 30.0
QUICK = {
    "broker.heartbeat.interval.ms": "100",
    "broker.session.timeout.ms": "1500",
    "controller.quorum.election.timeout.ms": "300",
    "controller.quorum.fetch.timeout.ms": "1500",
    "default.replication.factor": "3",
    "offsets.topic.replication.factor": "3",
}
"""Less patience than is good for a cluster under load, so that tests need not wait."""


def free_port() -> int:
    """One that nobody has at this moment."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port: int = taken.getsockname()[1]
        return port


class ClusterNode:
    """One node of a cluster.

    Attributes:
        settings: Kafka's keys, written to a file at each start; may be changed before.
        port: for clients.
        log_path: what it writes to stderr, over all starts.
    """

    def __init__(self, home: Path, node_id: int, controller_ports: Mapping[int, int], **settings: str) -> None:
        self.node_id = node_id
        self.port = free_port()
        self.directory = home / f"data-{node_id}"
        self.log_path = home / f"node-{node_id}.log"
        self.settings = {
            "node.id": str(node_id),
            "process.roles": "broker,controller",
            "listeners": f"PLAINTEXT://127.0.0.1:{self.port},CONTROLLER://127.0.0.1:{controller_ports.get(node_id, 0)}",
            "controller.listener.names": "CONTROLLER",
            "controller.quorum.voters": ",".join(f"{one}@127.0.0.1:{port}" for one, port in controller_ports.items()),
            "log.dirs": str(self.directory),
            **QUICK,
            **{key.replace("_", "."): value for key, value in settings.items()},
        }
        self._file = home / f"node-{node_id}.properties"
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self.port}"

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

    def format(self, cluster_id: str = CLUSTER_ID) -> None:
        """As an operator does before the first start."""
        self._write()
        arguments = ["storage", "format", "--cluster-id", cluster_id, "--config-file", str(self._file)]
        subprocess.run([sys.executable, "-m", "tidelog", *arguments], check=True, capture_output=True)

    def begin(self, *, program: str | None = None) -> None:
        """Start it, and wait for nothing.

        Args:
            program: Python that runs the command line in its own way; None for the command line as it is.
        """
        assert not self.is_running, "it runs"
        self._write()
        command = ("-m", "tidelog") if program is None else ("-c", program)
        self._said = self._file.with_suffix(".out")
        with self.log_path.open("ab") as log, self._said.open("wb") as said:
            self._process = subprocess.Popen(
                [sys.executable, *command, "server", str(self._file)],
                stdin=subprocess.DEVNULL,
                stdout=said,
                stderr=log,
            )

    def wait_ready(self) -> None:
        """Return when it serves clients."""
        wait_until(
            lambda: not self.is_running or re.search(r"^ready bootstrap=\S+\n", self._said.read_text(), re.MULTILINE),
            lambda: f"node {self.node_id} serves:\n{self.log[-4_000:]}",
            seconds=START_SECONDS_MAX,
        )
        assert self.is_running, f"node {self.node_id} ended:\n{self.log[-4_000:]}"

    def wait_ended(self) -> int:
        """Its exit status, when it has ended by itself."""
        assert self._process is not None
        return self._process.wait(STOP_SECONDS_MAX)

    def stop(self) -> int:
        """As an operator does; returns the exit status."""
        return self._end(signal.SIGTERM)

    def kill(self) -> None:
        self._end(signal.SIGKILL)

    def close(self) -> None:
        """Leave nothing running."""
        if self.is_running:
            self._end(signal.SIGKILL)

    def _end(self, number: signal.Signals) -> int:
        assert self._process is not None
        self._process.send_signal(number)
        return self._process.wait(STOP_SECONDS_MAX)

    def _write(self) -> None:
        self._file.write_text("".join(f"{key}={value}\n" for key, value in self.settings.items()))


class ClusterProcesses:
    """Nodes 1 to `count`, brokers and controllers all of them. They end with the `with` block.

    Attributes:
        nodes: by their ids.
    """

    def __init__(self, home: Path, count: int = 3, **settings: str) -> None:
        self.home = home
        self.settings = settings
        self.controller_ports = {node_id: free_port() for node_id in range(1, count + 1)}
        self.nodes = {one: ClusterNode(home, one, self.controller_ports, **settings) for one in self.controller_ports}

    def __enter__(self) -> ClusterProcesses:
        try:
            for node in self.nodes.values():
                node.format()
            self.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def bootstrap(self) -> str:
        return ",".join(node.bootstrap for node in self.nodes.values())

    def start(self) -> None:
        """Start those that do not run, and return when all serve."""
        for node in self.nodes.values():
            if not node.is_running:
                node.begin()
        for node in self.nodes.values():
            node.wait_ready()

    def add(self, node_id: int, **settings: str) -> ClusterNode:
        """One more node, not started yet."""
        node = self.nodes[node_id] = ClusterNode(self.home, node_id, self.controller_ports, **self.settings, **settings)
        return node

    def close(self) -> None:
        """Leave nothing running."""
        for node in self.nodes.values():
            node.close()

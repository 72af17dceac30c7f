"""Real nodes that know each other, each behind `tidelog server FILE`, in a process of its own."""

from __future__ import annotations

import signal
from collections.abc import Mapping
from pathlib import Path

from support.nodes.forked_command import run_command
from support.nodes.server_process import START_SECONDS_MAX, ServerProcess
from tidelog.cli.ports import free_ports

HOST = "127.0.0.1"
CLUSTER_ID = "jtxwXpv4Sgyz09Nvdi2SYg"
QUICK = {
    "broker.heartbeat.interval.ms": "200",
    "broker.session.timeout.ms": "4000",
    "default.replication.factor": "3",
    "offsets.topic.replication.factor": "3",
}
"""Less patience than is good for a cluster under load, so that tests need not wait."""


class ClusterNode(ServerProcess):
    """One node of a cluster."""

    def __init__(self, home: Path, node_id: int, controller_ports: Mapping[int, int], **settings: str) -> None:
        self.node_id = node_id
        self.directory = home / f"data-{node_id}"
        super().__init__(home, self.directory, node_id=node_id)
        (self.port,) = free_ports(HOST, [None], avoid=controller_ports.values())
        self.settings |= {
            "listeners": f"PLAINTEXT://{HOST}:{self.port},CONTROLLER://{HOST}:{controller_ports.get(node_id, 0)}",
            "controller.quorum.voters": ",".join(f"{one}@{HOST}:{port}" for one, port in controller_ports.items()),
            **QUICK,
            **{key.replace("_", "."): value for key, value in settings.items()},
        }

    def format(self, cluster_id: str = CLUSTER_ID, *, features: Mapping[str, int] | None = None) -> None:
        """As an operator does before the first start, who may say at which levels the cluster begins."""
        self.write_settings()
        arguments = ["storage", "format", "--cluster-id", cluster_id, "--config-file", str(self.properties_path)]
        for name, level in (features or {}).items():
            arguments += ["--feature", f"{name}={level}"]
        run_command(arguments, timeout=START_SECONDS_MAX).check_returncode()

    @property
    def directory_id(self) -> str:
        """Of its only directory, as it was formatted."""
        lines = (self.directory / "meta.properties").read_text().splitlines()
        return dict(line.split("=", 1) for line in lines if "=" in line)["directory.id"]

    def stop(self) -> int:
        """As an operator does; returns the exit status."""
        return self.end(signal.SIGTERM)

    def kill(self) -> None:
        self.end(signal.SIGKILL)


class ClusterProcesses:
    """Nodes 1 to `count`, brokers and controllers all of them. They end with the `with` block.

    Args:
        features: the levels that the cluster begins at, but for those of this release.

    Attributes:
        nodes: by their ids.
    """

    def __init__(
        self, home: Path, count: int = 3, *, features: Mapping[str, int] | None = None, **settings: str
    ) -> None:
        self.home = home
        self.settings = settings
        self._features = features
        self.controller_ports = dict(enumerate(free_ports(HOST, [None] * count), start=1))
        self.nodes = {one: ClusterNode(home, one, self.controller_ports, **settings) for one in self.controller_ports}

    def __enter__(self) -> ClusterProcesses:
        try:
            for node in self.nodes.values():
                node.format(features=self._features)
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
                node.start_soon()
        for node in self.nodes.values():
            node.wait_until_serving()

    def add(self, node_id: int, **settings: str) -> ClusterNode:
        """One more node, not started yet."""
        node = self.nodes[node_id] = ClusterNode(self.home, node_id, self.controller_ports, **self.settings, **settings)
        return node

    def close(self) -> None:
        """Leave nothing running."""
        for node in self.nodes.values():
            node.close()

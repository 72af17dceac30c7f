"""`tidelog up`: a local cluster in the foreground."""

from __future__ import annotations

import os
from dataclasses import dataclass

from tidelog.cli.command import (
    FAILED,
    USAGE,
    UsageError,
    complain,
    config_option,
    log_format_option,
    log_level_option,
    option,
)
from tidelog.cli.properties import format_properties
from tidelog.cli.supervision import NodeEndedError, Supervision

HOST = "127.0.0.1"
OWN_KEYS = {
    "node.id", "broker.id", "process.roles", "listeners", "advertised.listeners", "controller.listener.names",
    "controller.quorum.voters", "log.dirs", "log.dir",
}  # fmt: skip
"""What `up` must say itself, so that its nodes find each other and their files."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Up:
    """Run a local cluster in the foreground, until Ctrl-C.

    Prints `node id=I pid=PID port=PORT` for each node and then `ready bootstrap=HOST:PORT` when all of them serve.
    Each node is a process of its own that keeps its files in DATA/node-I, over restarts, and dies with this command.

    Examples:

        tidelog up
        tidelog up --port 0 --data /tmp/try --config log.segment.bytes=1048576
    """

    nodes: int = option("--nodes", "-n", default=1, metavar="N", help="How many nodes; this version runs one.")
    port: int = option(
        "--port", "-p", default=9092, metavar="PORT", help="The first node's port for clients; 0 takes a free one."
    )
    data: str = option("--data", "-d", default="tidelog-data", metavar="DIR", help="Where the nodes keep their files.")
    config: tuple[tuple[str, str], ...] = config_option("A setting for every node, by Kafka's key. May be repeated.")
    metrics_port: int | None = option(
        "--metrics-port",
        type=int,
        default=None,
        metavar="PORT",
        help="Where /metrics (for Prometheus) and /ready are served; nowhere unless given.",
    )
    log_level: str = log_level_option("info")
    log_format: str | None = log_format_option()
    parent_fd: int | None = option(
        "--parent-fd", type=int, default=None, hidden=True, help="Stop when this reaches its end: the parent is gone."
    )

    def run(self) -> int:
        self._check()
        for node_id in range(1, self.nodes + 1):
            self._check_not_running(node_id)
        try:
            files = [self._write_properties(node_id) for node_id in range(1, self.nodes + 1)]
        except OSError as error:
            raise UsageError(
                f"--data {self.data}: {error.filename} cannot be written: {error.strerror}; "
                "name a directory that you may write to, on a disk with room"
            ) from error
        try:
            with Supervision(parent_fd=self.parent_fd) as supervision:
                for node_id, file in enumerate(files, start=1):
                    supervision.start(node_id, [file, "--log-level", self.log_level])
                if supervision.wait_until_ready():
                    for node in supervision.nodes:
                        print(f"node id={node.node_id} pid={node.pid} port={node.port}")
                    addresses = ",".join(f"{HOST}:{node.port}" for node in supervision.nodes)
                    print(f"ready bootstrap={addresses}", flush=True)
                    supervision.wait_until_told()
        except NodeEndedError as error:
            complain(str(error))
            return USAGE if error.status == USAGE else FAILED
        return 0

    def _check(self) -> None:
        if self.nodes != 1:
            raise UsageError(f"--nodes {self.nodes}: this version runs one node; leave --nodes out, or give 1")
        if not 0 <= self.port <= 65_535:
            raise UsageError(f"--port {self.port} is no port; give one from 1 to 65535, or 0 for a free one")
        if self.metrics_port is not None and not 0 <= self.metrics_port <= 65_535:
            raise UsageError(f"--metrics-port {self.metrics_port} is no port; give one from 1 to 65535, such as 9464")
        for key, _ in self.config:
            if key in OWN_KEYS:
                raise UsageError(
                    f"--config {key}: `up` sets this key itself; use --port and --data, or `tidelog server FILE`"
                )

    def _check_not_running(self, node_id: int) -> None:
        """The settings of a node that runs are not to be written over. Raises DiskError, which says so."""
        directory = os.path.join(os.path.abspath(self.data), f"node-{node_id}")
        if os.path.isdir(directory):
            from tidelog.io.disk import RealDisk
            from tidelog.log.directory import LOCK_FILE

            RealDisk().lock(os.path.join(directory, LOCK_FILE)).release()

    def _write_properties(self, node_id: int) -> str:
        """The node's settings, written anew at each start. Returns the file's path."""
        directory = os.path.abspath(self.data)
        os.makedirs(directory, exist_ok=True)
        pairs = {
            "process.roles": "broker,controller",
            "node.id": str(node_id),
            "listeners": f"PLAINTEXT://{HOST}:{self.port},CONTROLLER://{HOST}:0",
            "controller.listener.names": "CONTROLLER",
            "controller.quorum.voters": f"{node_id}@{HOST}:0",
            "log.dirs": os.path.join(directory, f"node-{node_id}"),
            "offsets.topic.replication.factor": str(min(self.nodes, 3)),
            "group.initial.rebalance.delay.ms": "0",  # members that try things out should not wait for others
        }
        if self.metrics_port is not None:
            pairs["metrics.listener"] = f"HTTP://{HOST}:{self.metrics_port}"
        if self.log_format is not None:
            pairs["logging.format"] = self.log_format
        path = os.path.join(directory, f"node-{node_id}.properties")
        with open(path, "w", encoding="utf-8") as file:
            file.write(
                format_properties(
                    pairs | dict(self.config),
                    comment="Written by `tidelog up` at each start: give it --config KEY=VALUE to change a setting.",
                )
            )
        return path

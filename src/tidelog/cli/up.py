"""`tidelog up`: a local cluster in the foreground."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tidelog.cli.command import (
    FAILED,
    USAGE,
    UsageError,
    WholeNumber,
    complain,
    config_option,
    log_format_option,
    log_level_option,
    option,
)
from tidelog.cli.local_certificates import LOOPBACK
from tidelog.cli.local_cluster import LocalCluster
from tidelog.cli.local_security import LocalSecurity
from tidelog.cli.reach import reach_of
from tidelog.cli.supervision import NodeChild, NodeEndedError, Supervision
from tidelog.net.address import Address

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

PORT_MAX = 65_535
OWN_KEYS = {
    "node.id", "broker.id", "process.roles", "listeners", "advertised.listeners", "controller.listener.names",
    "controller.quorum.voters", "controller.quorum.bootstrap.servers", "log.dirs", "log.dir",
    "listener.security.protocol.map", "inter.broker.listener.name", "security.inter.broker.protocol",
}  # fmt: skip
"""What `up` must say itself, so that its nodes find each other and their files."""
METADATA_DIRECTORY = "metadata.log.dir"
"""As well, where there are several nodes or disks; one node that has none may be told."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Up:
    """Run a local cluster in the foreground, until Ctrl-C.

    Prints `node id=I pid=PID port=PORT` for each node and then `ready bootstrap=HOST:PORT,…` when all of them serve.
    It listens on this machine alone, and asks clients nothing; --host lets other machines in.
    With --secure, clients log in over TLS; `admin --command-config FILE` is printed before `ready`, with what a client
    needs to be the first user, and after `profile` the command that gives it a name for --profile.
    In any case nodes log in to each other with a secret: nobody else does what nodes do.
    Each node is a process of its own that keeps its files in DATA/node-I, over restarts, and dies with this command.
    With --disks, partitions lie in DATA/node-I.disk-1 and so on, each of which may fail by itself.

    With three nodes or more, topics get three replicas, and acks=all means two of them (min.insync.replicas). A node
    that ends is told of, and not started again: the others serve on, and `tidelog server DATA/node-I.properties`
    brings it back.

    Examples:

        tidelog up
        tidelog up --nodes 3
        tidelog up --nodes 3 --secure
        tidelog up --secure --host 0.0.0.0
        tidelog up --port 0 --data /tmp/try --config log.segment.bytes=1048576
    """

    nodes: int | None = option(
        "--nodes",
        "-n",
        type=WholeNumber(1),
        default=None,
        metavar="N",
        help="How many nodes; else as many as DATA holds, or one.",
    )
    port: int = option(
        "--port",
        "-p",
        default=9092,
        metavar="PORT",
        help="The first node's port for clients, the others' follow; 0 takes free ones.",
    )
    host: str = option(
        "--host",
        default=LOOPBACK,
        metavar="HOST",
        help="The address or name to listen on for clients, 0.0.0.0 for all of this machine's; with one that other "
        "machines reach, --secure is needed, or --insecure.",
    )
    advertised_host: str | None = option(
        "--advertised-host",
        default=None,
        metavar="HOST",
        help="What clients are told to connect to, where they call this machine by another name than --host; with "
        "0.0.0.0 the name that it has for itself unless given.",
    )
    data: str = option("--data", "-d", default="tidelog-data", metavar="DIR", help="Where the nodes keep their files.")
    config: tuple[tuple[str, str], ...] = config_option("A setting for every node, by Kafka's key. May be repeated.")
    disks: int | None = option(
        "--disks",
        type=WholeNumber(),
        default=None,
        metavar="N",
        help="How many log directories each node has beside that of its metadata log, which outlives them; "
        "else as many as DATA holds, or one directory for everything.",
    )
    racks: int | None = option(
        "--racks",
        type=WholeNumber(1),
        default=None,
        metavar="N",
        help="Say that the nodes stand in N racks, r1 to rN in turns.",
    )
    secure: bool = option(
        "--secure",
        is_flag=True,
        help="TLS, users and access rules: makes certificates and a first user, admin, in DATA/security.",
    )
    insecure: bool = option(
        "--insecure",
        is_flag=True,
        help="With --host and without --secure: let whoever reaches this machine read, write and delete everything.",
    )
    metrics_port: int | None = option(
        "--metrics-port",
        type=int,
        default=None,
        metavar="PORT",
        help="Where the first node serves /metrics (for Prometheus) and /ready, the others following; "
        "nowhere unless given.",
    )
    log_level: str = log_level_option("info")
    log_format: str | None = log_format_option()
    parent_fd: int | None = option(
        "--parent-fd", type=int, default=None, hidden=True, help="Stop when this reaches its end: the parent is gone."
    )

    def run(self) -> int:
        files = self.write_files()
        try:
            self._supervise(files)
        except NodeEndedError as error:
            complain(str(error))
            return USAGE if error.status == USAGE else FAILED
        return 0

    def write_files(self) -> list[str]:
        """Write the settings of every node, none of which may be running; returns their files."""
        reach = reach_of(self.host, self.advertised_host)
        if not (reach.is_local or self.secure or self.insecure):
            raise UsageError(
                f"--host {self.host}: other machines reach it, and whoever does could read, write and delete "
                "everything: give --secure, so that clients log in over TLS; or, if everybody in that network may, "
                "--insecure"
            )
        if not self.data:
            raise UsageError("--data is empty: name a directory for the nodes' files, such as tidelog-data")
        cluster = LocalCluster(self.data, self.nodes, self.disks)
        self._check_settings({*OWN_KEYS, METADATA_DIRECTORY} if cluster.nodes > 1 or cluster.disks else OWN_KEYS)
        self._check_ports(cluster.nodes)
        if cluster.security.is_there and not self.secure:
            raise UsageError(
                f"--data {self.data}: the cluster there is secured, and without --secure everybody could do "
                f"everything: give --secure, or remove {cluster.security.directory} if that is meant"
            )
        cluster.check_not_running()
        try:
            return cluster.write(
                port=self.port,
                racks=self.racks,
                metrics_port=self.metrics_port,
                log_format=self.log_format,
                reach=reach,
                is_secured=self.secure,
                config=dict(self.config),
            )
        except OSError as error:
            raise UsageError(
                f"--data {self.data}: {error.filename or self.data} cannot be written: {error.strerror}; "
                "name a directory that you may write to, on a disk with room"
            ) from error

    def _supervise(self, files: Sequence[str]) -> None:
        def on_ended(node: NodeChild, error: NodeEndedError) -> None:
            complain(f"{error}; the others serve on; start it again with: tidelog server {files[node.node_id - 1]}")

        with Supervision(parent_fd=self.parent_fd) as supervision:
            for node_id, file in enumerate(files, start=1):
                supervision.start(node_id, [file, "--log-level", self.log_level])
            if supervision.wait_until_ready():
                told, addresses = reach_of(self.host, self.advertised_host).advertised_host, []
                for node in supervision.nodes:
                    assert node.port is not None
                    print(f"node id={node.node_id} pid={node.pid} port={node.port}")
                    addresses.append(str(Address(told, node.port)))
                if self.secure:
                    admin_file = LocalSecurity(self.data).admin_file
                    print(f"admin --command-config {admin_file}")
                    print(
                        f"profile tidelog profiles add local --command-config {shlex.quote(admin_file)} "
                        f"--config bootstrap.servers={','.join(addresses)}"
                    )
                print(f"ready bootstrap={','.join(addresses)}", flush=True)
                supervision.wait_until_told(on_ended)

    def _check_settings(self, own_keys: Collection[str]) -> None:
        for key, _ in self.config:
            if key in own_keys:
                raise UsageError(
                    f"--config {key}: `up` sets this key itself; use --port and --data, or `tidelog server FILE`"
                )

    def _check_ports(self, nodes: int) -> None:
        if not 0 <= self.port <= PORT_MAX:
            raise UsageError(f"--port {self.port} is no port; give one from 1 to {PORT_MAX}, or 0 for a free one")
        if self.metrics_port is not None and not 0 <= self.metrics_port <= PORT_MAX:
            raise UsageError(
                f"--metrics-port {self.metrics_port} is no port; give one from 1 to {PORT_MAX}, such as 9464"
            )
        for flag, first in (("--port", self.port), ("--metrics-port", self.metrics_port or 0)):
            if first + nodes - 1 > PORT_MAX:
                raise UsageError(f"{flag} {first}: {nodes} nodes need as many ports; the last is {PORT_MAX}")

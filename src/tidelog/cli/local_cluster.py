"""The files of a local cluster, all below one directory, and what its nodes are told.

node-1.properties    the settings of node 1, written anew at each start; its ports are kept. It has the secret of the
                     start, with which nodes log in to each other, so its owner alone may read it
node-1/              its log directory; with disks, that of the metadata log alone
node-1.disk-1/ …     with disks: its log directories
node-2.properties …
security/            of a secured cluster; see local_security.py
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from uuid import uuid4

from tidelog.base.errors import ConfigError
from tidelog.base.ids import BrokerId, ClusterId, uuid_text
from tidelog.cli.command import UsageError
from tidelog.cli.local_certificates import LOOPBACK, write_secret
from tidelog.cli.local_security import (
    CLIENTS,
    CONTROLLER,
    NODES,
    PLAINTEXT,
    LocalSecurity,
    node_secret,
    settings_with_secret,
)
from tidelog.cli.node_directories import format_directory, owner_of
from tidelog.cli.ports import free_ports
from tidelog.cli.properties import format_properties, parse_properties
from tidelog.cli.reach import AT_LOOPBACK, EVERY_ADDRESS, Reach
from tidelog.net.address import Address

REPLICATION_FACTOR = 3
MIN_INSYNC_REPLICAS = 2
_VOTER_STATE = os.path.join("__cluster_metadata-0", "quorum-state")


class LocalCluster:
    """The nodes 1 to N below a directory.

    Args:
        data: the directory.
        nodes: how many; None for as many as are there, or one.
        disks: how many log directories each has beside that of the metadata log; None for as many as are there; 0 for
            one that holds everything.

    Raises:
        UsageError: another number is there.
    """

    def __init__(self, data: str, nodes: int | None, disks: int | None = None) -> None:
        self.data = os.path.abspath(data)
        found = self._found()
        if nodes is not None and found and nodes != found:
            there = "one node (node-1)" if found == 1 else f"{found} nodes (node-1 to node-{found})"
            raise UsageError(
                f"--nodes {nodes}: {data} holds the files of {there}, which all its voters count on: "
                f"start it with --nodes {found}, or name another directory by --data"
            )
        self.nodes = nodes or found or 1
        found_disks = self._found_disks() if found else None
        if disks is not None and found_disks is not None and disks != found_disks:
            raise UsageError(
                f"--disks {disks}: the nodes in {data} ran with {found_disks}, and what they hold lies there: start "
                f"them with --disks {found_disks}, or name another directory by --data"
            )
        self.disks = disks or found_disks or 0
        self.security = LocalSecurity(data)

    @property
    def node_ids(self) -> range:
        return range(1, self.nodes + 1)

    def directory(self, node_id: int) -> str:
        return os.path.join(self.data, f"node-{node_id}")

    def log_directories(self, node_id: int) -> list[str]:
        """Where its partitions lie."""
        directory = self.directory(node_id)
        return [f"{directory}.disk-{number}" for number in range(1, self.disks + 1)] or [directory]

    def properties_file(self, node_id: int) -> str:
        return f"{self.directory(node_id)}.properties"

    def check_not_running(self) -> None:
        """The settings of a node that runs are not to be written over. Raises DiskError, which says so."""
        for node_id in self.node_ids:
            directory = self.directory(node_id)
            if os.path.isdir(directory):
                from tidelog.io.disk import RealDisk
                from tidelog.log.directory import LOCK_FILE

                RealDisk().lock(os.path.join(directory, LOCK_FILE)).release()

    def write(
        self,
        *,
        port: int,
        racks: int | None = None,
        metrics_port: int | None = None,
        log_format: str | None = None,
        reach: Reach = AT_LOOPBACK,
        is_secured: bool = False,
        config: Mapping[str, str],
    ) -> list[str]:
        """Write the settings of every node, and format their directories where that was never done.

        Args:
            port: the first node's for clients; 0 for free ones.
            racks: how many racks they stand in, in turns.
            metrics_port: the first node's; None for none.
            reach: where clients reach them.
            is_secured: whether clients have to log in, over TLS. Nodes do in any case.
            config: for every node; wins over what is decided here. Its super users are added to the nodes.

        Returns:
            The files.

        Raises:
            ConfigError: a directory is another node's or cluster's, or has gone.
            MissingExtraError: the library that makes certificates is not installed.
            OSError: cannot be written.
        """
        os.makedirs(self.data, exist_ok=True)
        clients, between, controllers = self._ports(port, reach.host, metrics_port)
        voters = ",".join(f"{node_id}@{LOOPBACK}:{controllers[node_id - 1]}" for node_id in self.node_ids)
        name = CLIENTS if is_secured else PLAINTEXT
        if is_secured:
            secured = self.security.settings({LOOPBACK, reach.host, reach.advertised_host} - {*EVERY_ADDRESS})
        else:
            secured = settings_with_secret(node_secret())
        if config.get("super.users"):
            config = {**config, "super.users": f"{secured['super.users']};{config['super.users']}"}
        for node_id in self.node_ids:
            client = clients[node_id - 1]
            listeners = {
                name: Address(reach.host, client),
                NODES: Address(LOOPBACK, between[node_id - 1]),
                CONTROLLER: Address(LOOPBACK, controllers[node_id - 1]),
            }
            pairs = {
                "process.roles": "broker,controller",
                "node.id": str(node_id),
                "listeners": ",".join(f"{one}://{address}" for one, address in listeners.items()),
                "controller.listener.names": CONTROLLER,
                "controller.quorum.voters": voters,
                "log.dirs": ",".join(self.log_directories(node_id)),
                "offsets.topic.replication.factor": str(min(self.nodes, REPLICATION_FACTOR)),
                "group.initial.rebalance.delay.ms": "0",  # members that try things out should not wait for others
                **secured,
            }
            if reach.advertised_host != reach.host:
                told = {**listeners, name: Address(reach.advertised_host, client)}
                del told[CONTROLLER]
                pairs["advertised.listeners"] = ",".join(f"{one}://{address}" for one, address in told.items())
            if self.nodes > 1:
                pairs["default.replication.factor"] = str(min(self.nodes, REPLICATION_FACTOR))
            if self.nodes >= REPLICATION_FACTOR:
                pairs["min.insync.replicas"] = str(MIN_INSYNC_REPLICAS)
            if self.disks:
                pairs["metadata.log.dir"] = self.directory(node_id)
            if racks is not None:
                pairs["broker.rack"] = f"r{(node_id - 1) % racks + 1}"
            if metrics_port is not None:
                pairs["metrics.listener"] = f"HTTP://{LOOPBACK}:{metrics_port and metrics_port + node_id - 1}"
            if log_format is not None:
                pairs["logging.format"] = log_format
            self._write_properties(node_id, pairs | dict(config))
        if self.nodes > 1 or self.disks:
            self._format()
        return [self.properties_file(node_id) for node_id in self.node_ids]

    def _found(self) -> int | None:
        """How many nodes the cluster has that ran here; None if none did: what was only formatted counts on nobody."""
        ran = self._ran()
        if not ran:
            return None
        voters = self._written(ran[0]).get("controller.quorum.voters", "")
        return len(voters.split(",")) if voters else max(ran)

    def _found_disks(self) -> int:
        """How many each of the nodes has, by what is there of them."""
        disks = (re.fullmatch(r"node-[1-9][0-9]*\.disk-([1-9][0-9]*)", name) for name in os.listdir(self.data))
        return max((int(match[1]) for match in disks if match is not None), default=0)

    def _ran(self) -> list[int]:
        """The nodes that have taken part in the quorum."""
        if not os.path.isdir(self.data):
            return []
        matches = (re.fullmatch(r"node-([1-9][0-9]*)", name) for name in os.listdir(self.data))
        node_ids = sorted(int(match[1]) for match in matches if match is not None)
        return [node_id for node_id in node_ids if os.path.exists(os.path.join(self.directory(node_id), _VOTER_STATE))]

    def _written(self, node_id: int) -> dict[str, str]:
        """What a node's file says; nothing if it is not there, or was spoilt: it is written anew."""
        path = self.properties_file(node_id)
        try:
            with open(path, encoding="utf-8") as file:
                return parse_properties(file.read(), source=path)
        except (OSError, UnicodeDecodeError, ConfigError):
            return {}

    def _ports(self, port: int, host: str, metrics_port: int | None) -> tuple[list[int], list[int], list[int]]:
        """Those for clients, between brokers, and for controllers: they are kept, as long as nobody has taken them.

        A node alone takes whatever is free when it starts: there is nobody who must know.
        """
        if self.nodes == 1:
            return [port], [0], [0]
        kept = [_ports_of(self._written(node_id)) for node_id in self.node_ids]
        taken = {first + index for first in (port, metrics_port or 0) if first for index in range(self.nodes)}
        controllers = free_ports(LOOPBACK, [of.get(CONTROLLER) for of in kept], avoid=taken)
        taken |= {*controllers}
        between = free_ports(LOOPBACK, [of.get(NODES) for of in kept], avoid=taken)
        if port:
            return [port + index for index in range(self.nodes)], between, controllers
        before = [of.get(PLAINTEXT, of.get(CLIENTS)) for of in kept]
        try:
            return free_ports(host, before, avoid={*taken, *between}), between, controllers
        except OSError as error:
            from tidelog.io.acceptor import bind_reason

            raise UsageError(f"--host {host}: nodes cannot listen there: {bind_reason(error)}") from None

    def _write_properties(self, node_id: int, pairs: Mapping[str, str]) -> None:
        comment = (
            "Written by `tidelog up` at each start: give it --config KEY=VALUE to change a setting.\n"
            "The passwords are of this cluster's nodes: whoever has them is one."
        )
        write_secret(self.properties_file(node_id), format_properties(pairs, comment=comment))

    def _format(self) -> None:
        """One cluster id for all; a directory that has gone from a cluster which ran is not made up for.

        Its node would come back without what it promised to keep: votes, and records that others count it for.
        """
        owners = {node_id: owner_of(self.directory(node_id)) for node_id in self.node_ids}
        cluster_id = None
        for node_id, owner in owners.items():
            if owner is None:
                continue
            if owner.node_id != node_id:
                raise ConfigError(
                    f"{self.directory(node_id)} belongs to node {owner.node_id}: were directories swapped? "
                    "Put each back where it was"
                )
            if cluster_id is not None and owner.cluster_id != cluster_id:
                raise ConfigError(
                    f"{self.directory(node_id)} belongs to cluster {owner.cluster_id}, the nodes before it to cluster "
                    f"{cluster_id}: put back the directory that was here, or name another by --data"
                )
            cluster_id = owner.cluster_id
        ran = self._ran()
        for node_id, owner in owners.items():
            if owner is not None:
                continue
            if ran:
                path = self.directory(node_id)
                raise ConfigError(
                    f"{path} is missing, or has no meta.properties, though node {ran[0]} has run: was it moved, or a "
                    "disk not mounted? Put it back; or, if it is lost, let the node begin anew: "
                    f"tidelog storage format --cluster-id {cluster_id} --node-id {node_id} --data {path} --lost"
                )
            cluster_id = cluster_id or ClusterId(uuid_text(uuid4()))
            format_directory(self.directory(node_id), BrokerId(node_id), cluster_id)
        if cluster_id is not None and not ran:  # a node that ran does without a disk that is missing, and says so
            self._format_disks(cluster_id)

    def _format_disks(self, cluster_id: ClusterId) -> None:
        for node_id in self.node_ids if self.disks else ():
            for path in self.log_directories(node_id):
                format_directory(path, BrokerId(node_id), cluster_id, ignore_formatted=True)


def _ports_of(properties: Mapping[str, str]) -> dict[str, int]:
    """The ports of a node's listeners, by their names."""
    found = {}
    for listener in properties.get("listeners", "").split(","):
        name, _, address = listener.partition("://")
        port = address.rpartition(":")[2]
        if port.isdecimal():
            found[name] = int(port)
    return found

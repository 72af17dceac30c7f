"""The cluster that is hurt: nodes as processes, each in a network of its own where the machine lets them have one."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path

from chaos.network import Network
from chaos.secured import Secured
from support.nodes.cluster import ASK_SECONDS_MAX, PROMPT, Cluster, ClusterNode
from tidelog.client.admin.admin import Admin
from tidelog.client.admin.descriptions import PartitionDescription

CLIENT_PORT, CONTROLLER_PORT = 9092, 9093
SHORT_SESSIONS = {
    "group.consumer.min.session.timeout.ms": "6000",
    "group.consumer.session.timeout.ms": "6000",
    "group.consumer.min.heartbeat.interval.ms": "200",
    "group.consumer.heartbeat.interval.ms": "200",
    "group.share.min.session.timeout.ms": "6000",
    "group.share.session.timeout.ms": "6000",
    "group.share.min.heartbeat.interval.ms": "200",
    "group.share.heartbeat.interval.ms": "200",
    "group.share.min.record.lock.duration.ms": "6000",
    "group.share.record.lock.duration.ms": "6000",
    "group.share.delivery.count.limit": "10",
}
"""Of groups whose members are killed, as classic members ask for them."""
SOON_COMPACTED = {
    "log.cleaner.backoff.ms": "500",
    "log.cleaner.min.cleanable.ratio": "0.1",
    "offsets.topic.segment.bytes": "65536",
    "transaction.state.log.segment.bytes": "65536",
    "share.coordinator.state.topic.segment.bytes": "65536",
}
"""The coordinators' topics are compacted all the time, so that faults hit what is being compacted."""


class ChaosCluster(Cluster):
    """Nodes 1 to `size`.

    Args:
        network: None for ports of this machine.
        config: Kafka's keys, for every node.

    Attributes:
        home: where its files are.
        at_close: what is to be done when all nodes have ended.
        secured: its secrets, if it has any.
    """

    def __init__(self, home: Path, size: int, network: Network | None, config: Mapping[str, str]) -> None:
        super().__init__(home, size, config={**PROMPT, **SHORT_SESSIONS, **SOON_COMPACTED, **config})
        self.home = home
        self.at_close = ExitStack()
        self.secured: Secured | None = None
        if network is not None:
            for node in self.nodes.values():
                self.place(node, network)

    def place(self, node: ClusterNode, network: Network) -> None:
        """In a namespace of its own."""
        node.host = network.address_of(node.node_id)
        node.port, node.controller_port = CLIENT_PORT, CONTROLLER_PORT
        node.wrapper = network.wrapper_of(node.node_id)
        node.settings["listeners"] = f"PLAINTEXT://{node.host}:{CLIENT_PORT},CONTROLLER://{node.host}:{CONTROLLER_PORT}"
        node.settings["controller.quorum.voters"] = ",".join(
            f"{one}@{network.address_of(one)}:{CONTROLLER_PORT}" for one in self.nodes
        )

    def close(self) -> None:
        """Leave nothing running, and nothing of what the nodes stood on."""
        super().close()
        self.at_close.close()

    def describe(self, topic: str, *, through: ClusterNode | None = None) -> list[PartitionDescription]:
        """As any node knows it, by default: the first ones may be what is hurt."""
        bootstrap = self.bootstrap if through is None else through.bootstrap
        with Admin(bootstrap, default_api_timeout_ms=int(ASK_SECONDS_MAX * 1_000)) as admin:
            return sorted(admin.describe_topics([topic])[topic].partitions, key=lambda one: one.partition)

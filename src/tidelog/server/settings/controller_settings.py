"""What a node's file says about the cluster that its controller would lead. Kafka: `QuorumController.Builder`."""

from __future__ import annotations

from tidelog.base.ids import ClusterId
from tidelog.controller import ControllerSettings
from tidelog.metadata.configs import BrokerSettings
from tidelog.server.settings.config import NodeConfig


def controller_settings(config: NodeConfig, cluster_id: ClusterId) -> ControllerSettings:
    """Those of the controller on a node of this cluster."""
    return ControllerSettings(
        cluster_id=cluster_id,
        num_partitions=config.num_partitions,
        replication_factor=config.default_replication_factor,
        delete_topic_enable=config.delete_topic_enable,
        broker=BrokerSettings.of(config.static),
        node_id=config.node_id,
        partition_changes_max=config.controller_partition_changes_max,
    )

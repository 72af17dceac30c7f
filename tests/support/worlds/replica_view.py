"""How replicas joined in memory look from outside."""

from __future__ import annotations

from support.worlds.replica_values import START, Node, Rules, name_of
from tidelog.base.ids import BrokerId
from tidelog.metadata import PartitionImage
from tidelog.sim.checkers.views import PartitionView, ReplicaView


def view_of(state: PartitionImage, nodes: dict[BrokerId, Node], rules: Rules) -> PartitionView:
    """The partition as it is now.

    Args:
        state: as the controller has it.
        rules: what they go by; it decides who serves consumers.
    """
    return PartitionView(state, {broker: replica_view(node, rules) for broker, node in nodes.items()})


def replica_view(node: Node, rules: Rules) -> ReplicaView:
    machine = node.leader or node.follower
    follower = node.follower
    return ReplicaView(
        node.broker_id,
        is_up=node.is_up,
        leads=node.leader is not None,
        leader_epoch=None if machine is None else machine.leader_epoch,
        log_start_offset=START,
        records=node.log.records,
        lineage=node.log.lineage.entries,
        high_watermark=node.log.high_watermark if machine is None else machine.high_watermark,
        isr=frozenset() if node.leader is None else node.leader.isr,
        serves_consumers=machine is not None
        and (follower is None or follower.is_reconciled or rules.serves_unreconciled),
        name=name_of(node.broker_id),
    )

"""How somebody outside sees the nodes of a cluster: what each says of itself, beside what its disk has."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

from tidelog.base.ids import CLUSTER_METADATA, BrokerId, Offset, TopicPartition
from tidelog.log.segment import LOG_SUFFIX
from tidelog.metadata.image import MetadataImage, PartitionImage
from tidelog.quorum import QuorumState, parse_quorum_state
from tidelog.server.node import Node
from tidelog.server.quorum.metadata_quorum import MetadataQuorum
from tidelog.server.replication.partition import Partition
from tidelog.sim.checkers.quorum import QuorumView
from tidelog.sim.checkers.views import PartitionView, ReplicaView
from tidelog.sim.node import LOGS, SimulatedNode
from tidelog.sim.runs.stored import StoredRecords

METADATA_NAME = str(CLUSTER_METADATA)
METADATA_DIRECTORY = f"{LOGS}/{METADATA_NAME}"
QUORUM_STATE = f"{METADATA_DIRECTORY}/quorum-state"


def running(node: SimulatedNode) -> Node | None:
    """The production code's own, while its process lives."""
    return node.node if node.machine.is_alive else None


def quorum_of(node: SimulatedNode) -> MetadataQuorum | None:
    """Its part in the metadata quorum, once it has one."""
    process = running(node)
    return None if process is None or process.member is None else process.member.quorum


def hosted(node: SimulatedNode, partition: TopicPartition) -> Partition | None:
    """Its replica of a partition, once its log is open."""
    process = running(node)
    return None if process is None else process.broker.replica_of(partition)


def is_registered(node: SimulatedNode, node_id: BrokerId, latest: MetadataImage) -> bool:
    """Whether the controller has heard of this very process."""
    process, registered = running(node), latest.brokers.get(node_id)
    return process is not None and registered is not None and registered.incarnation_id == process.broker.incarnation_id


def quorum_view(node_id: BrokerId, node: SimulatedNode, stored: StoredRecords) -> QuorumView:
    """One node of the metadata quorum."""
    quorum = quorum_of(node)
    return QuorumView(
        node_id,
        is_up=quorum is not None,
        leads=quorum is not None and quorum.is_leader,
        leader_epoch=None if quorum is None else quorum.leader_epoch,
        leader_id=None if quorum is None else quorum.leader_id,
        high_watermark=None if quorum is None else quorum.high_watermark,
        log_start_offset=stored.start_offset,
        records=stored.records,
        synced_end_offset=stored.synced_end_offset(),
        state=_quorum_state(node),
    )


def _quorum_state(node: SimulatedNode) -> QuorumState | None:
    data = node.machine.disk.synced_data(QUORUM_STATE)
    return _parsed(bytes(data)) if data else None


_parsed = lru_cache(maxsize=64)(parse_quorum_state)  # the quorum is viewed after each change, its files rarely change


def has_lost_metadata(node: SimulatedNode) -> bool:
    """Whether its metadata log, or what it voted, is not on its disk, or was not, and it has not recovered."""
    files = node.machine.disk.files
    data = bytes(node.machine.disk.read_bytes(QUORUM_STATE)) if QUORUM_STATE in files else b""
    has_log = any(path.startswith(f"{METADATA_DIRECTORY}/") and path.endswith(LOG_SUFFIX) for path in files)
    return not data or not has_log or parse_quorum_state(data).is_lost


def partition_view(
    partition: TopicPartition,
    state: PartitionImage,
    nodes: Mapping[BrokerId, SimulatedNode],
    stored: Mapping[BrokerId, StoredRecords],
    latest: MetadataImage,
) -> PartitionView:
    """All replicas of a partition.

    Args:
        state: the committed truth.
        stored: what the disks have, read by now.
        latest: the committed metadata.
    """
    views = {}
    for node_id in state.replicas:
        node = nodes[node_id]
        replica = hosted(node, partition)
        is_up = replica is not None and is_registered(node, node_id, latest)
        views[node_id] = _replica_view(node_id, replica if is_up else None, stored[node_id])
    return PartitionView(state, views)


def _replica_view(node_id: BrokerId, replica: Partition | None, stored: StoredRecords) -> ReplicaView:
    leader = None if replica is None else replica.replica
    return ReplicaView(
        node_id,
        is_up=replica is not None,
        leads=leader is not None,
        leader_epoch=None if replica is None else replica.role.leader_epoch,
        log_start_offset=stored.start_offset,
        records=stored.records,
        lineage=() if replica is None else replica.log.lineage.entries,
        high_watermark=Offset(stored.start_offset) if replica is None else replica.high_watermark,
        isr=frozenset() if leader is None else leader.isr,
        serves_consumers=leader is not None,
        name=f"node {node_id}",
        starts_at=Offset(0) if replica is None else replica.log.log_start_offset,
    )

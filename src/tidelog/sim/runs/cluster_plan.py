"""What is drawn for a run of a whole cluster before it begins: how large, how patient, how much it may lose."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import partial

from tidelog.base.ids import BrokerId, PartitionIndex, TopicPartition
from tidelog.sim.node import CLIENT_PORT, CONTROLLER_PORT, INTERNAL_PORT
from tidelog.sim.runs.group_plan import GroupPlan, draw_group_plan
from tidelog.sim.runs.security_plan import USERS, USERS_PORT, SecurityPlan, draw_security_plan
from tidelog.sim.runs.share_plan import SHARE_STATE, SharePlan, draw_share_plan
from tidelog.sim.runs.transaction_plan import LATEST, TRANSACTION_STATE, TransactionPlan, draw_transaction_plan
from tidelog.sim.runs.workload import WorkloadPlan, draw_plan
from tidelog.sim.world.rng import SeededRng

OFFSETS = TopicPartition("__consumer_offsets", PartitionIndex(0))
NODES_MIN = 3
NODES_MAX = 7
TRANSACTIONAL_SHARE = 0.3
"""Of runs: one with transactions takes longer than one without."""
GROUP_SHARE = 0.2
"""Of runs, likewise."""
SHARE_GROUP_SHARE = 0.1
"""Of runs, likewise."""
SECURITY_SHARE = 0.3
"""Of runs, likewise."""
PARTED_MIN = 6
"""So many nodes are enough for controllers and brokers apart."""


@dataclass(frozen=True, slots=True)
class ClusterPlan:
    """The settings of one run.

    Attributes:
        nodes: how many there are.
        voters: how many of them, the first, vote on the metadata log; the others are brokers alone.
        is_parted: whether the voters are controllers alone.
        clients: what clients do, and what holds for every topic.
        session_ms: a broker that is silent for so long is fenced.
        lag_ms_max: who has not caught up for so long leaves the ISR.
        fetch_timeout_ms: a node of the quorum that hears nothing of its leader for so long asks for an election.
        election_timeout_ms: a candidate waits for so long.
        segment_bytes: of the logs of records; None for one segment in a run.
        fetch_bytes: what a follower asks for of one partition; with little, it is behind for long.
        checkpoint_ms: how often high watermarks and recovery points are written.
        snapshot_bytes: of the metadata log, after which there is a snapshot; None for never in a run.
        allows_unclean: whether an operator lets anybody lead where nobody else may, and power may be lost beyond what
            the promise covers.
        transactions: what clients do in transactions; None for nothing.
        group: what members of a consumer group do; None for nothing.
        share: what members of a share group do; None for nothing.
        security: what an operator of users and rights does; None for nothing.
        partition_changes_max: of one decision of the controller; with few, controllers are deposed midway.
    """

    nodes: int = NODES_MIN
    voters: int = 3
    is_parted: bool = False
    clients: WorkloadPlan = field(default_factory=partial(WorkloadPlan, replication_factor=3, min_insync_replicas=2))
    session_ms: int = 3_000
    lag_ms_max: int = 2_000
    fetch_timeout_ms: int = 1_000
    election_timeout_ms: int = 500
    segment_bytes: int | None = None
    fetch_bytes: int = 1 << 20
    checkpoint_ms: int = 5_000
    snapshot_bytes: int | None = None
    allows_unclean: bool = False
    partition_changes_max: int = 1_000
    transactions: TransactionPlan | None = None
    group: GroupPlan | None = None
    share: SharePlan | None = None
    security: SecurityPlan | None = None

    @property
    def node_ids(self) -> list[BrokerId]:
        return [BrokerId(number) for number in range(1, self.nodes + 1)]

    @property
    def voter_ids(self) -> list[BrokerId]:
        return self.node_ids[: self.voters]

    @property
    def broker_ids(self) -> list[BrokerId]:
        return self.node_ids[self.voters :] if self.is_parted else self.node_ids

    @property
    def power_losses_max(self) -> int | None:
        """Of so many replicas power may be lost at a time, and all that was acknowledged stands; None: of any."""
        return None if self.clients.syncs_each else self.clients.min_insync_replicas - 1

    @property
    def partitions(self) -> list[TopicPartition]:
        """Whose leaders are to be met: of records, and of what coordinators know of transactions and of groups."""
        of_transactions = [] if self.transactions is None else [LATEST, TRANSACTION_STATE]
        has_groups = not (self.transactions is None and self.group is None and self.share is None)
        of_groups = [OFFSETS] if has_groups else []
        of_share_groups = [] if self.share is None else [SHARE_STATE]
        return [*self.watched, *of_transactions, *of_groups, *of_share_groups]

    @property
    def watched(self) -> list[TopicPartition]:
        """Whose replicas may lose their logs one at a time."""
        return [*self.clients.topic_partitions, *([] if self.transactions is None else self.transactions.outputs)]

    def properties(self, node_id: BrokerId) -> dict[str, str]:
        """Of one node."""
        host = machine_of(node_id)
        clients_and_brokers = f"PLAINTEXT://{host}:{CLIENT_PORT},INTERNAL://{host}:{INTERNAL_PORT}"
        protocols = dict.fromkeys(("PLAINTEXT", "INTERNAL", "CONTROLLER"), "PLAINTEXT")
        if self.security is not None:
            clients_and_brokers += f",{USERS}://{host}:{USERS_PORT}"
            protocols |= self.security.protocols
        of_brokers = ("broker", clients_and_brokers) if node_id in self.broker_ids else None
        of_voters = ("controller", f"CONTROLLER://{host}:{CONTROLLER_PORT}") if node_id in self.voter_ids else None
        roles, listeners = zip(*filter(None, (of_brokers, of_voters)), strict=True)
        properties = {
            "process.roles": ",".join(roles),
            "listeners": ",".join(listeners),
            "inter.broker.listener.name": "INTERNAL",
            "listener.security.protocol.map": ",".join(map(":".join, protocols.items())),
            "controller.quorum.voters": ",".join(
                f"{voter}@{machine_of(voter)}:{CONTROLLER_PORT}" for voter in self.voter_ids
            ),
            "controller.quorum.fetch.timeout.ms": str(self.fetch_timeout_ms),
            "controller.quorum.election.timeout.ms": str(self.election_timeout_ms),
            "controller.partition.changes.max": str(self.partition_changes_max),
            "broker.session.timeout.ms": str(self.session_ms),
            "broker.heartbeat.interval.ms": str(self.session_ms // 4),
            "replica.lag.time.max.ms": str(self.lag_ms_max),
            "replica.fetch.max.bytes": str(self.fetch_bytes),
            "replica.high.watermark.checkpoint.interval.ms": str(self.checkpoint_ms),
            "log.flush.offset.checkpoint.interval.ms": str(self.checkpoint_ms),
            **self.clients.properties,
        }
        if self.segment_bytes is not None:
            properties["log.segment.bytes"] = str(self.segment_bytes)
        factor, minimum = self.clients.replication_factor, self.clients.min_insync_replicas
        if self.transactions is not None:
            properties |= self.transactions.properties(factor, minimum)
        if self.group is not None:
            properties |= self.group.properties
        if self.share is not None:
            properties |= self.share.properties(factor, minimum)
        if self.security is not None:
            properties |= self.security.properties(is_broker=of_brokers is not None)
        if self.snapshot_bytes is not None:
            properties["metadata.log.max.record.bytes.between.snapshots"] = str(self.snapshot_bytes)
        return properties


def machine_of(node_id: BrokerId) -> str:
    """The name of a node's machine, by which the others reach it."""
    return f"node-{node_id}"


def draw_cluster_plan(rng: SeededRng, nodes: int) -> ClusterPlan:
    """What one run goes by."""

    def one_of(*choices: int) -> int:
        return choices[rng.randrange(0, len(choices))]

    factor = one_of(2, 3, 3, 3)
    minimum = min(factor, one_of(1, 1, 2, 2, 2, 3, 3))
    clients = replace(
        draw_plan(rng),
        interval_ms=one_of(20, 50, 50, 100, 100, 200),
        replication_factor=factor,
        min_insync_replicas=minimum,
        syncs_each=rng.random() < 0.2,
        acks=("all", "1") if rng.random() < 0.2 else (),
    )
    is_parted = nodes >= PARTED_MIN and rng.random() < 0.4
    plan = ClusterPlan(
        nodes=nodes,
        voters=3 if nodes == 4 or is_parted else min(nodes, one_of(3, 3, 5)),
        is_parted=is_parted,
        clients=clients,
        session_ms=one_of(1_000, 1_000, 3_000, 9_000),
        lag_ms_max=one_of(500, 500, 500, 500, 2_000, 10_000),
        fetch_timeout_ms=one_of(500, 1_000, 2_000),
        election_timeout_ms=one_of(300, 1_000),
        segment_bytes=(None, 700, 5_000)[rng.randrange(0, 3)],
        fetch_bytes=one_of(1 << 20, 1 << 20, 500),
        checkpoint_ms=one_of(500, 5_000),
        snapshot_bytes=(None, None, 1_500, 6_000)[rng.randrange(0, 4)],
        allows_unclean=rng.random() < 0.25,
        partition_changes_max=one_of(1, 2, 1_000),
    )
    if rng.random() < TRANSACTIONAL_SHARE:
        plan = replace(plan, transactions=draw_transaction_plan(rng, clients.partitions))
    rng_of_groups = rng.stream("group")  # the other plans of a seed stay as they are
    if rng_of_groups.random() < GROUP_SHARE:
        plan = replace(plan, group=draw_group_plan(rng_of_groups))
    rng_of_share_groups = rng.stream("share group")
    if rng_of_share_groups.random() < SHARE_GROUP_SHARE:
        plan = replace(plan, share=draw_share_plan(rng_of_share_groups))
    rng_of_security = rng.stream("security")
    if rng_of_security.random() < SECURITY_SHARE:
        plan = replace(plan, security=draw_security_plan(rng_of_security))
    return plan

"""Who may lead when replicas of a partition go one by one: who has all; on an operator's order, who lacks some."""

from __future__ import annotations

from collections.abc import Iterator

from chaos.fault import Cost, Fault, Hurt, Stage
from support.fixtures.waiting import wait_until
from support.nodes.cluster import ClusterNode
from tidelog.base.errors import TidelogError
from tidelog.base.ids import PartitionIndex, TopicPartition
from tidelog.client.admin.admin import Admin

NODES = 5
"""As many as it takes for the quorum to decide while two of the three replicas of a partition are away."""


def elect_stale(stage: Stage) -> Iterator[str]:
    """The replicas of a partition go one by one; the one that went first comes back alone, and is elected.

    The others wrote on without it. What it lacks is overwritten, and the others cut theirs off when they return.
    """
    partition = stage.dice.randrange(stage.partitions)
    leader = stage.cluster.leader_of(stage.topic, partition)
    followers = [node for node in _replicas(stage, partition) if node is not leader]
    stale, other = stage.dice.sample(followers, 2)
    stale.kill()
    _until_isr(stage, partition, {leader.node_id, other.node_id})
    stage.go_on()
    yield f"partition {partition}: {stale} is killed"
    other.kill()
    _until_isr(stage, partition, {leader.node_id})
    stage.go_on()
    yield f"{other} is killed"
    leader.kill()
    stale.start()
    yield f"{leader} is killed, {stale} is back"
    elect(stage, partition, stale)
    yield f"{stale} is elected"
    stage.go_on()
    for node in stage.dice.sample([leader, other], 2):
        node.start()
        yield f"{node} is back"


def lead_eligible(stage: Stage) -> Iterator[str]:
    """Two replicas stop cleanly, then the leader is killed. Those two come back without it: one may lead (KIP-966).

    Nothing is acknowledged while one replica is left, so whoever left last but one has all that ever was.
    """
    partition = stage.dice.randrange(stage.partitions)
    leader = stage.cluster.leader_of(stage.topic, partition)
    followers = [node for node in _replicas(stage, partition) if node is not leader]
    for node in stage.dice.sample(followers, 2):
        node.stop()
        yield f"partition {partition}: {node} stops"
    leader.kill()
    for node in stage.dice.sample(followers, 2):
        node.start_soon()
    for node in followers:
        node.wait_until_serving()
    yield f"{leader} is killed, the others are back"
    stage.go_on()
    leader.start()


def _replicas(stage: Stage, partition: int) -> list[ClusterNode]:
    return [stage.cluster.nodes[one] for one in stage.cluster.describe(stage.topic)[partition].replicas]


def _until_isr(stage: Stage, partition: int, wanted: set[int]) -> None:
    def is_so() -> bool:
        try:
            return set(stage.cluster.describe(stage.topic)[partition].isr) == wanted
        except TidelogError:
            return False

    wait_until(is_so, lambda: f"the ISR of partition {partition} is {wanted}: {stage.cluster.logs()}")


def elect(stage: Stage, partition: int, node: ClusterNode | None = None) -> None:
    """As an operator does, for all partitions that nobody leads; again while the controller finds nobody alive."""
    asked = [TopicPartition(stage.topic, PartitionIndex(index)) for index in range(stage.partitions)]

    def is_led() -> bool:
        try:
            with Admin(stage.cluster.bootstrap) as admin:
                admin.elect_leaders("unclean", asked)
            found = stage.cluster.describe(stage.topic)
            is_wanted = node is None or found[partition].leader == node.node_id
            return is_wanted and all(one.leader is not None for one in found)
        except TidelogError:
            return False

    wait_until(is_led, lambda: f"{node or 'somebody'} leads partition {partition}: {stage.cluster.logs()}")


FAULTS = (
    Fault(
        kind="eligible replicas alone",
        strike=lead_eligible,
        hurts=Hurt.OPERATOR,
        seconds=(0.0, 2.0),
        nodes=NODES,
        is_mixed=False,
    ),
    Fault(
        kind="unclean election",
        strike=elect_stale,
        hurts=Hurt.OPERATOR,
        seconds=(0.0, 2.0),
        cost=Cost.TOLD_LOSSES,
        nodes=NODES,
        topic={"min_insync_replicas": "1"},
        is_mixed=False,
    ),
)

"""Nodes are killed under load, by what they are to it: what was acknowledged is there, and readers miss nothing."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from support.load.verifying import VerifyingLoad, verifying_load
from support.nodes.cluster import Cluster, ClusterNode
from support.nodes.cluster_files import check_replicas_agree

PARTITIONS = 2
RECORDS = 200  # of each producer, between one event and the next
ROUNDS = 4

ROLES: dict[str, Callable[[Cluster, str], ClusterNode]] = {
    "the-leader-of-a-partition": lambda cluster, topic: cluster.leader_of(topic),
    "the-active-controller": lambda cluster, _: cluster.active_controller(),
    "a-follower": lambda cluster, topic: cluster.follower_of(topic),
}


def check_at_the_end(load: VerifyingLoad, cluster: Cluster) -> None:
    """Everything is there, in order and once, for every reader, and on every disk."""
    history = load.finish()
    history.check()
    assert not history.failed, history.failed_lines()
    assert not history.reported
    cluster.wait_until_in_sync(load.topic)
    check_replicas_agree(cluster, load.topic, PARTITIONS)


@pytest.mark.timeout(180)
@pytest.mark.parametrize(
    "role", ["the-leader-of-a-partition", "the-active-controller", pytest.param("a-follower", marks=pytest.mark.slow)]
)
def test_a_node_is_killed_and_comes_back(cluster: Cluster, topic: str, role: str) -> None:
    cluster.create_topic(topic, PARTITIONS)
    with verifying_load(cluster.bootstrap, topic, PARTITIONS) as load:
        load.until_acknowledged(RECORDS)
        node = ROLES[role](cluster, topic)
        node.kill()
        load.until_acknowledged(RECORDS)
        node.start()
        cluster.wait_until_in_sync(topic)
        load.until_acknowledged(RECORDS)
        check_at_the_end(load, cluster)


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_one_node_after_the_other_is_killed(cluster: Cluster, topic: str) -> None:
    """Each by its part at that moment, in an order that was drawn once."""
    rng = random.Random(53)
    cluster.create_topic(topic, PARTITIONS)
    with verifying_load(cluster.bootstrap, topic, PARTITIONS) as load:
        for _ in range(ROUNDS):
            load.until_acknowledged(rng.randrange(1, RECORDS))
            node = ROLES[rng.choice(sorted(ROLES))](cluster, topic)
            node.kill()
            load.until_acknowledged(rng.randrange(1, RECORDS))
            node.start()
            cluster.wait_until_in_sync(topic)
        load.until_acknowledged(RECORDS)
        check_at_the_end(load, cluster)


@pytest.mark.timeout(180)
def test_all_nodes_are_killed_at_once(cluster: Cluster, topic: str) -> None:
    """The processes die, the machine does not: what they had written is there, and whoever was in sync still is."""
    cluster.create_topic(topic, PARTITIONS)
    with verifying_load(cluster.bootstrap, topic, PARTITIONS) as load:
        load.until_acknowledged(RECORDS)
        cluster.kill()
        cluster.start()
        load.until_acknowledged(RECORDS)
        check_at_the_end(load, cluster)


@pytest.mark.timeout(180)
def test_nothing_is_lost_while_there_is_no_majority(cluster: Cluster, topic: str) -> None:
    """Two of three are killed. The third alone can be sure of nothing, until one of them is back."""
    cluster.create_topic(topic, PARTITIONS)
    with verifying_load(cluster.bootstrap, topic, PARTITIONS) as load:
        load.until_acknowledged(RECORDS)
        first, second = cluster.leader_of(topic), cluster.follower_of(topic)
        first.kill()
        second.kill()
        second.start()
        load.until_acknowledged(RECORDS)
        first.start()
        check_at_the_end(load, cluster)


@pytest.mark.timeout(180)
def test_a_leader_that_was_paused_is_no_leader_any_more(cluster: Cluster, topic: str) -> None:
    """It knows nothing of the election that it slept through: what it still takes or shows must be nobody's loss."""
    cluster.create_topic(topic, PARTITIONS)
    with verifying_load(cluster.bootstrap, topic, PARTITIONS) as load:
        load.until_acknowledged(RECORDS)
        sleeper = cluster.leader_of(topic)
        sleeper.pause()
        try:
            cluster.wait_until_led_by_another(topic, sleeper)
        finally:
            sleeper.resume()
        load.until_acknowledged(RECORDS)
        check_at_the_end(load, cluster)

"""Nodes are killed under load, by what they are to it: what was acknowledged is there, and readers miss nothing."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from support.cluster import Cluster, ClusterNode
from support.cluster_files import check_replicas_agree
from support.verifying import VerifyingLoad, verifying_load

TOPIC = "verified"
PARTITIONS = 2
RECORDS = 500  # of each producer, between one event and the next
ROUNDS = 4

ROLES: dict[str, Callable[[Cluster], ClusterNode]] = {
    "the-leader-of-a-partition": lambda cluster: cluster.leader_of(TOPIC),
    "the-active-controller": lambda cluster: cluster.active_controller(),
    "a-follower": lambda cluster: cluster.follower_of(TOPIC),
}


def check_at_the_end(load: VerifyingLoad, cluster: Cluster) -> None:
    """Everything is there, in order and once, for every reader, and on every disk."""
    cluster.wait_until_in_sync(TOPIC)
    history = load.finish()
    history.check()
    assert not history.failed, history.failed_lines()
    assert not history.reported
    cluster.stop()
    check_replicas_agree(cluster, TOPIC, PARTITIONS)


@pytest.mark.timeout(180)
@pytest.mark.parametrize("role", ROLES)
def test_a_node_is_killed_and_comes_back(cluster: Cluster, role: str) -> None:
    cluster.create_topic(TOPIC, PARTITIONS)
    with verifying_load(cluster.bootstrap, TOPIC, PARTITIONS) as load:
        load.until_acknowledged(RECORDS)
        node = ROLES[role](cluster)
        node.kill()
        load.until_acknowledged(RECORDS)
        node.start()
        cluster.wait_until_in_sync(TOPIC)
        load.until_acknowledged(RECORDS)
        check_at_the_end(load, cluster)


@pytest.mark.timeout(300)
def test_one_node_after_the_other_is_killed(cluster: Cluster) -> None:
    """Each by its part at that moment, in an order that was drawn once."""
    rng = random.Random(53)
    cluster.create_topic(TOPIC, PARTITIONS)
    with verifying_load(cluster.bootstrap, TOPIC, PARTITIONS) as load:
        for _ in range(ROUNDS):
            load.until_acknowledged(rng.randrange(1, RECORDS))
            node = ROLES[rng.choice(sorted(ROLES))](cluster)
            node.kill()
            load.until_acknowledged(rng.randrange(1, RECORDS))
            node.start()
            cluster.wait_until_in_sync(TOPIC)
        load.until_acknowledged(RECORDS)
        check_at_the_end(load, cluster)


@pytest.mark.timeout(180)
def test_all_nodes_are_killed_at_once(cluster: Cluster) -> None:
    """The processes die, the machine does not: what they had written is there, and whoever was in sync still is."""
    cluster.create_topic(TOPIC, PARTITIONS)
    with verifying_load(cluster.bootstrap, TOPIC, PARTITIONS) as load:
        load.until_acknowledged(RECORDS)
        cluster.kill()
        cluster.start()
        load.until_acknowledged(RECORDS)
        check_at_the_end(load, cluster)


@pytest.mark.timeout(180)
def test_nothing_is_lost_while_there_is_no_majority(cluster: Cluster) -> None:
    """Two of three are killed. The third alone can be sure of nothing, until one of them is back."""
    cluster.create_topic(TOPIC, PARTITIONS)
    with verifying_load(cluster.bootstrap, TOPIC, PARTITIONS) as load:
        load.until_acknowledged(RECORDS)
        first, second = cluster.leader_of(TOPIC), cluster.follower_of(TOPIC)
        first.kill()
        second.kill()
        second.start()
        load.until_acknowledged(RECORDS)
        first.start()
        check_at_the_end(load, cluster)


@pytest.mark.timeout(180)
def test_a_leader_that_was_paused_is_no_leader_any_more(cluster: Cluster) -> None:
    """It knows nothing of the election that it slept through: what it still takes or shows must be nobody's loss."""
    cluster.create_topic(TOPIC, PARTITIONS)
    with verifying_load(cluster.bootstrap, TOPIC, PARTITIONS) as load:
        load.until_acknowledged(RECORDS)
        sleeper = cluster.leader_of(TOPIC)
        sleeper.pause()
        try:
            cluster.wait_until_led_by_another(TOPIC, sleeper)
        finally:
            sleeper.resume()
        load.until_acknowledged(RECORDS)
        check_at_the_end(load, cluster)

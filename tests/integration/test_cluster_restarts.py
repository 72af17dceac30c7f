"""What an operator does to a cluster under load: restart its nodes in turn, and give one of them a new disk."""

from __future__ import annotations

import pytest

from support.load.verifying import verifying_load
from support.nodes.cluster import Cluster
from support.nodes.cluster_files import check_replicas_agree

PARTITIONS = 3
RECORDS = 200  # of each producer, between one event and the next


@pytest.mark.timeout(180)
def test_the_nodes_are_restarted_in_turn(cluster: Cluster, topic: str) -> None:
    cluster.create_topic(topic, PARTITIONS)
    with verifying_load(cluster.bootstrap, topic, PARTITIONS) as load:
        for node in cluster.nodes.values():
            load.until_acknowledged(RECORDS)
            node.restart()
            cluster.wait_until_in_sync(topic)
        load.until_acknowledged(RECORDS)
        history = load.finish()
    history.check()
    assert not history.failed, history.failed_lines()
    assert not history.reported
    cluster.wait_until_in_sync(topic)
    check_replicas_agree(cluster, topic, PARTITIONS)


@pytest.mark.timeout(180)
def test_a_node_that_lost_its_disk_gets_everything_anew(cluster: Cluster, topic: str) -> None:
    """It votes and serves again once it has fetched the metadata and its replicas; the next to go may be any other."""
    cluster.create_topic(topic, PARTITIONS)
    with verifying_load(cluster.bootstrap, topic, PARTITIONS) as load:
        load.until_acknowledged(RECORDS)
        node = cluster.leader_of(topic)
        node.kill()
        node.lose_disk()
        load.until_acknowledged(RECORDS)
        node.start()
        cluster.wait_until_in_sync(topic)
        load.until_acknowledged(RECORDS)
        other = cluster.leader_of(topic)
        other.kill()
        load.until_acknowledged(RECORDS)
        other.start()
        history = load.finish()
    history.check()
    assert not history.failed, history.failed_lines()
    assert not history.reported
    cluster.wait_until_in_sync(topic)
    check_replicas_agree(cluster, topic, PARTITIONS)

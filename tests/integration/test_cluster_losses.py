"""Where an operator would rather have a leader than all records: what is lost by it is told to all who were there."""

from __future__ import annotations

import pytest

from support.load.histories import Fault
from support.load.verifying import verifying_load
from support.nodes.cluster import Cluster

RECORDS = 300


@pytest.mark.timeout(180)
def test_an_unclean_election_is_told_to_readers_and_writers(cluster: Cluster, topic: str) -> None:
    """Two replicas, one of which is to be enough. It writes alone for a while and dies; the other one comes back.

    What nobody has any more is lost. Whoever had read it is told from where on, and goes on there; whoever had written
    it is told as well.
    """
    cluster.create_topic(topic, replication_factor=2, min_insync_replicas="1", unclean_leader_election_enable="true")
    with verifying_load(cluster.bootstrap, topic, 1, producers=["ours"], readers=["ours"]) as load:
        load.until_acknowledged(RECORDS)
        leader, follower = cluster.leader_of(topic), cluster.follower_of(topic)
        follower.kill()
        cluster.wait_until_in_sync(topic, without=[follower.node_id])
        load.until_acknowledged(RECORDS)
        leader.kill()
        follower.start()
        load.until_acknowledged(RECORDS)
        leader.start()
        cluster.wait_until_in_sync(topic)
        load.until_acknowledged(RECORDS)
        history = load.finish()
    assert Fault.LOST in {finding.fault for finding in history.findings()}
    history.check(Fault.LOST, Fault.MOVED, Fault.REORDERED)
    assert history.reported

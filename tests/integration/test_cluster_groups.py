"""A group goes on wherever its coordinator is: no record is given to nobody, and no acknowledged commit is gone."""

from __future__ import annotations

import pytest

from support.load.verifying import verifying_load
from support.load.verifying_groups import verifying_group
from support.nodes.cluster import Cluster

PARTITIONS = 4
RECORDS = 150
COMMITS = 10


@pytest.mark.timeout(240)
def test_a_group_survives_its_coordinator(cluster: Cluster, topic: str) -> None:
    """The coordinator is killed, comes back, and is stopped: each time another node takes its groups over."""
    cluster.create_topic(topic, PARTITIONS)
    with (
        verifying_load(cluster.bootstrap, topic, PARTITIONS, producers=["librdkafka"], readers=[]) as load,
        verifying_group(cluster.bootstrap, "verifiers", topic) as group,
    ):
        coordinator = cluster.coordinator_of("verifiers")
        coordinator.kill()
        load.until_acknowledged(RECORDS)
        group.until_committed(COMMITS)
        coordinator.start()
        cluster.wait_until_in_sync("__consumer_offsets")
        next_one = cluster.coordinator_of("verifiers")
        next_one.stop()
        load.until_acknowledged(RECORDS)
        group.until_committed(COMMITS)
        next_one.start()
        cluster.wait_until_in_sync("__consumer_offsets")
        history = load.finish()
        history.check()
        assert not history.failed, history.failed_lines()
        group.check(history, PARTITIONS)

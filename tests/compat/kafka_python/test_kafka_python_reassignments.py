"""kafka-python's admin client moves partitions of three nodes."""

from __future__ import annotations

from pathlib import Path

from support.cluster import PROMPT, Cluster
from support.kafka_python_client import TopicPartition, admin_of
from support.waiting import wait_until
from tidelog import Admin, NewTopic


def test_partitions_are_reassigned(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path / "data", config=PROMPT)
    try:
        cluster.start()
        with Admin(cluster.bootstrap) as ours:
            ours.create_topics([NewTopic("moved", replica_assignments={0: [1, 2]})])
        cluster.wait_until_in_sync("moved")
        with admin_of(cluster.bootstrap) as client:
            partition = TopicPartition("moved", 0)
            refused = client.alter_partition_reassignments({partition: [2, 9]})
            assert refused[partition].errno == 39, "INVALID_REPLICA_ASSIGNMENT"
            refused = client.alter_partition_reassignments({partition: None})
            assert refused[partition].errno == 85, "NO_REASSIGNMENT_IN_PROGRESS"
            assert client.alter_partition_reassignments({partition: [2, 3]}) == {partition: None}
            wait_until(lambda: not client.list_partition_reassignments(), "it has moved")
            assert client.list_partition_reassignments([partition]) == {}
            wait_until(lambda: cluster.describe("moved")[0].replicas == (2, 3), "every node has heard of it")
        cluster.check_logs()
    finally:
        cluster.close()

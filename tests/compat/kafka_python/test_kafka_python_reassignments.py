"""kafka-python's admin client asks for reassignments; a node alone can refuse them, or have them done at once."""

from __future__ import annotations

from support.clients.kafka_python_client import TopicPartition, admin_of
from support.nodes.node import NodeProcess
from tidelog import Admin, NewTopic
from tidelog.base.errors import Code


def test_reassignments_are_asked_for(shared_node: NodeProcess) -> None:
    with Admin(shared_node.bootstrap) as ours:
        ours.create_topics([NewTopic("moved", 1, 1)])
    partition = TopicPartition("moved", 0)
    with admin_of(shared_node.bootstrap) as client:
        for replicas, code in (([1, 9], Code.INVALID_REPLICA_ASSIGNMENT), (None, Code.NO_REASSIGNMENT_IN_PROGRESS)):
            assert client.alter_partition_reassignments({partition: replicas})[partition].errno == code
        assert client.alter_partition_reassignments({partition: [1]}) == {partition: None}
        assert client.list_partition_reassignments() == {}
        assert client.list_partition_reassignments([partition]) == {}

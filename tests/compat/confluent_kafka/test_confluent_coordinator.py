"""confluent-kafka where the coordinator of its group moves."""

from __future__ import annotations

from pathlib import Path

from confluent_kafka import TopicPartition

from support.clients.confluent import DEADLINE_SECONDS, Sent, consumer_of, new_producer, produce
from support.fixtures.waiting import wait_until
from support.nodes.cluster import PROMPT, Cluster, ClusterNode
from tidelog.base import ids
from tidelog.base.errors import Code
from tidelog.client.admin.admin import Admin
from tidelog.metadata.topic_names import CONSUMER_OFFSETS_TOPIC
from tidelog.wire import ApiKey
from tidelog.wire.messages.api_09_offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup, OffsetFetchResponse

GROUP = "readers"
OFFSETS = ids.TopicPartition(CONSUMER_OFFSETS_TOPIC, ids.PartitionIndex(0))


def test_what_is_assigned_is_read_though_the_coordinator_moved(tmp_path: Path, topic: str) -> None:
    cluster = Cluster(tmp_path / "data", config=PROMPT | {"offsets.topic.num.partitions": "1"})
    try:
        cluster.start()
        cluster.create_topic(topic)
        produce(new_producer(cluster.bootstrap), topic, [Sent(b"%d" % number) for number in range(3)])
        with consumer_of(cluster.bootstrap, group_id=GROUP) as consumer:
            consumer.commit(offsets=[TopicPartition(topic, 0, 2)], asynchronous=False)  # it knows the coordinator
            before = cluster.coordinator_of(GROUP)
            with Admin(cluster.bootstrap) as admin:
                admin.alter_partition_reassignments({OFFSETS: [one for one in cluster.nodes if one != before.node_id]})
            wait_until(lambda: _refusal_of(before) is Code.NOT_COORDINATOR, "the group has another coordinator")
            consumer.assign([TopicPartition(topic, 0)])
            message = consumer.poll(DEADLINE_SECONDS)
            assert message is not None
            error = message.error()
            assert error is None, error.str()
            assert (message.offset(), message.value()) == (2, b"2")
    finally:
        cluster.close()


def _refusal_of(node: ClusterNode) -> Code:
    """Why it tells no offsets of the group; NONE if it does."""
    request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=GROUP, topics=None)])
    with node.ask(node.port) as client:
        answer = client.ask(ApiKey.OFFSET_FETCH, 9, request, OffsetFetchResponse)
    return Code(answer.groups[0].error_code)

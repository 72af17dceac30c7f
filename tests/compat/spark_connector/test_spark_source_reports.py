"""What the Spark source reports of itself after a loss: Tidelog notes it, Apache Kafka is not bothered with it."""

from __future__ import annotations

import logging
from contextlib import closing

import pytest

from support.clients.kafka_peer import KafkaPeer
from support.nodes.node import NodeProcess
from tidelog import Admin, NewTopic
from tidelog.base.ids import LeaderEpoch, Offset, PartitionIndex, TopicPartition
from tidelog.spark.cluster import RealCluster
from tidelog.spark.offsets import Loss, ReadPosition
from tidelog.spark.options import source_options
from tidelog.spark.planner import Resumption


def test_a_report_never_disturbs(
    broker_to_kill: NodeProcess | KafkaPeer, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    given = {"kafka.bootstrap.servers": broker_to_kill.bootstrap, "subscribe": topic}
    with Admin(broker_to_kill.bootstrap) as admin:
        admin.create_topics([NewTopic(topic, num_partitions=1, replication_factor=1)])
        topic_id = str(admin.describe_topics([topic])[topic].topic_id)
    loss = Loss("truncated", ReadPosition(Offset(60), LeaderEpoch(0)), Offset(40), topic_id)
    key = TopicPartition(topic, PartitionIndex(0))
    with closing(RealCluster(source_options(given, streaming=True))) as cluster, caplog.at_level(logging.WARNING):
        cluster.report({key: Resumption(loss, Offset(40))}, "rewind")
        assert caplog.messages == []
        # What is wrong with a report is said, and no more.
        cluster.report({TopicPartition(topic, PartitionIndex(9)): Resumption(loss, Offset(40))}, "rewind")
    (said,) = caplog.messages
    assert said.startswith("the account of losses was not told that this query went on: ")

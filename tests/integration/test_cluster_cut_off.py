"""A leader whose followers stand still: it commits nothing, and says so long before its producers give up."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from support.clients.wire_client import WireClient
from support.fixtures.logs import make_batch
from support.fixtures.waiting import wait_until
from support.load.verifying import verifying_load
from support.nodes.cluster import Cluster, ClusterNode
from support.nodes.cluster_files import check_replicas_agree
from tidelog.base.errors import Code
from tidelog.wire import ApiKey
from tidelog.wire.messages.api_00_produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from tidelog.wire.messages.api_08_offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)

RECORDS = 300
REQUEST_TIMEOUT_MS = 60_000
"""Of a producer; whoever waits it out is told REQUEST_TIMED_OUT."""
TOLD = "this leader is cut off"


@contextmanager
def standing_still(nodes: list[ClusterNode]) -> Iterator[None]:
    for node in nodes:
        node.pause()
    try:
        yield
    finally:
        for node in nodes:
            node.resume()


def produce(client: WireClient, topic: str, batch: bytearray) -> PartitionProduceResponse:
    """With acks=all, of the version from which on an answer says where the leader is."""
    data = TopicProduceData(name=topic, partition_data=[PartitionProduceData(index=0, records=memoryview(batch))])
    request = ProduceRequest(acks=-1, timeout_ms=REQUEST_TIMEOUT_MS, topic_data=[data])
    answer = client.ask(ApiKey.PRODUCE, 10, request, ProduceResponse)
    return answer.responses[0].partition_responses[0]


def produce_where_it_is_led(cluster: Cluster, topic: str, batch: bytearray) -> PartitionProduceResponse:
    """Those that stood still are fenced yet, and leaders change meanwhile."""

    def answer() -> PartitionProduceResponse | None:
        leader = cluster.leader_of(topic)
        with WireClient(leader.port, host=leader.host) as client:
            found = produce(client, topic, batch)
        return None if found.error_code == Code.NOT_LEADER_OR_FOLLOWER else found

    found = wait_until(answer, cluster.logs)
    assert found is not None
    return found


@pytest.mark.timeout(180)
def test_producers_are_refused_within_a_session_and_what_they_retry_is_there_once(cluster: Cluster, topic: str) -> None:
    cluster.create_topic(topic)
    leader = cluster.leader_of(topic)
    with WireClient(leader.port, timeout_seconds=2 * REQUEST_TIMEOUT_MS / 1_000, host=leader.host) as client:
        producer_id, producer_epoch = client.new_producer_id()

        def batch(sequence: int) -> bytearray:
            return make_batch(
                f"m{sequence}", producer_id=producer_id, producer_epoch=producer_epoch, base_sequence=sequence
            )

        first = produce(client, topic, batch(0))
        assert (first.error_code, first.base_offset) == (Code.NONE, 0)
        with standing_still([node for node in cluster.running if node is not leader]):
            for sequence in (1, 1, 2):  # written, and refused; sent again, and refused; refused at once
                refused = produce(client, topic, batch(sequence))
                assert refused.error_code == Code.NOT_LEADER_OR_FOLLOWER
                assert refused.current_leader is None, "it knows of no other"
            wait_until(lambda: TOLD in leader.log, lambda: leader.log)
            assert leader.log.count(TOLD) == 1, "one line, however many are refused"
    cluster.wait_until_in_sync(topic)
    for sequence in (1, 2):
        taken = produce_where_it_is_led(cluster, topic, batch(sequence))
        assert (taken.error_code, taken.base_offset) == (Code.NONE, sequence)
    cluster.wait_until_in_sync(topic)
    check_replicas_agree(cluster, topic, 1)


@pytest.mark.timeout(240)
def test_idempotent_producers_go_on_when_they_were_refused(cluster: Cluster, topic: str) -> None:
    """Ours and librdkafka's: what they had under way is there once, and in order."""
    cluster.create_topic(topic)
    with verifying_load(cluster.bootstrap, topic, 1) as load:
        for _ in range(2):
            load.until_acknowledged(RECORDS)
            leader = cluster.leader_of(topic)
            told = leader.log.count(TOLD)
            with standing_still([node for node in cluster.running if node is not leader]):
                wait_until(lambda: leader.log.count(TOLD) > told, lambda: leader.log)  # noqa: B023
            cluster.wait_until_in_sync(topic)
        load.until_acknowledged(RECORDS)
        history = load.finish()
        history.check()
        assert not history.failed, history.failed_lines()
        assert not history.reported
        cluster.wait_until_in_sync(topic)
        check_replicas_agree(cluster, topic, 1)


def commit_offset(client: WireClient, group: str, topic: str, offset: int) -> int:
    """By nobody in particular, as a tool does. Returns the error's code."""
    rows = [OffsetCommitRequestPartition(partition_index=0, committed_offset=offset)]
    request = OffsetCommitRequest(group_id=group, topics=[OffsetCommitRequestTopic(name=topic, partitions=rows)])
    answer = client.ask(ApiKey.OFFSET_COMMIT, 8, request, OffsetCommitResponse)
    return answer.topics[0].partitions[0].error_code


@pytest.mark.timeout(180)
def test_groups_are_sent_elsewhere_within_a_session_and_lose_nothing(cluster: Cluster, topic: str) -> None:
    cluster.create_topic(topic)
    group = f"{topic}-group"
    coordinator = cluster.coordinator_of(group)
    with WireClient(coordinator.port, timeout_seconds=2 * REQUEST_TIMEOUT_MS / 1_000, host=coordinator.host) as client:
        wait_until(lambda: commit_offset(client, group, topic, 1) == Code.NONE, lambda: coordinator.log)
        with standing_still([node for node in cluster.running if node is not coordinator]):
            for offset in (2, 3):  # waits until it is refused; refused at once
                assert commit_offset(client, group, topic, offset) == Code.NOT_COORDINATOR
    coordinator = cluster.coordinator_of(group)
    with WireClient(coordinator.port, host=coordinator.host) as client:
        wait_until(lambda: commit_offset(client, group, topic, 4) == Code.NONE, lambda: coordinator.log)

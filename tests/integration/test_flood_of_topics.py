"""Topics by the thousand, in few requests: the quorum goes on as it was, and so it does when a broker of all dies."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from support.clients.wire_client import WireClient
from support.fixtures.waiting import wait_until
from support.nodes.cluster import Cluster, ClusterNode
from tidelog.client.admin.admin import Admin
from tidelog.wire import ApiKey
from tidelog.wire.messages.api_03_metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponsePartition,
)
from tidelog.wire.messages.api_19_create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse

TOPICS = [f"flood-{number}" for number in range(2_000)]
PER_REQUEST = 500
SECONDS_MAX = 60.0


def election(cluster: Cluster) -> tuple[int | None, int]:
    """Who leads the quorum, and in which epoch."""
    with Admin(cluster.bootstrap) as admin:
        quorum = admin.describe_quorum()
    return quorum.leader_id, quorum.leader_epoch


def create_topics(node: ClusterNode) -> None:
    with WireClient(node.port, timeout_seconds=SECONDS_MAX) as client:
        for start in range(0, len(TOPICS), PER_REQUEST):
            topics = [CreatableTopic(name, 1, 3) for name in TOPICS[start : start + PER_REQUEST]]
            request = CreateTopicsRequest(topics=topics, timeout_ms=int(SECONDS_MAX * 1_000))
            answer = client.ask(ApiKey.CREATE_TOPICS, 7, request, CreateTopicsResponse)
            assert not [(one.name, one.error_code) for one in answer.topics if one.error_code]


def wait_until_all(
    cluster: Cluster, node: ClusterNode, is_so: Callable[[MetadataResponsePartition], bool], what: str
) -> None:
    """Until it is so of the partition of every topic, as the node knows it."""
    with WireClient(node.port, timeout_seconds=SECONDS_MAX) as client:
        for start in range(0, len(TOPICS), PER_REQUEST):
            names = [MetadataRequestTopic(name=name) for name in TOPICS[start : start + PER_REQUEST]]
            request = MetadataRequest(topics=names, allow_auto_topic_creation=False)

            def others(request: MetadataRequest = request) -> list[str | None]:
                answer = client.ask(ApiKey.METADATA, 9, request, MetadataResponse)
                return [one.name for one in answer.topics if not (one.partitions and is_so(one.partitions[0]))]

            wait_until(
                lambda others=others: not others(),  # type: ignore[misc]
                lambda others=others: f"{what}: not so of {others()[:5]}\n{cluster.logs()}",  # type: ignore[misc]
            )


@pytest.mark.timeout(180)
def test_a_flood_of_topics_and_the_death_of_a_broker_of_them_elect_no_controller(cluster: Cluster) -> None:
    before = election(cluster)
    controller = cluster.active_controller()
    assert before[0] == controller.node_id
    victim = next(node for node in cluster.nodes.values() if node is not controller)
    create_topics(controller)
    for node in cluster.nodes.values():
        wait_until_all(cluster, node, lambda one: len(one.replica_nodes) == 3, f"{node} knows it")
    wait_until_all(cluster, controller, lambda one: len(one.isr_nodes) == 3, "all are in sync")
    assert election(cluster) == before
    victim.kill()
    wait_until_all(
        cluster,
        controller,
        lambda one: one.leader_id not in (-1, victim.node_id) and victim.node_id not in one.isr_nodes,
        f"others than {victim} lead",
    )
    with Admin(controller.bootstrap) as admin:
        assert set(TOPICS) <= set(admin.describe_topics())
    assert election(cluster) == before

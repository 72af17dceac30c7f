"""What three nodes show of their cluster: who fetches, who votes, what moves, how groups lag, who is ready."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from support.clients.wire_client import batch_of
from support.fixtures.waiting import wait_until
from support.nodes.cli import tidelog
from support.nodes.cluster import PROMPT, Cluster
from support.nodes.metrics import samples, why_not_ready
from tidelog import Factory
from tidelog.base.ids import PartitionIndex, TopicPartition
from tidelog.client.admin.admin import Admin
from tidelog.client.admin.descriptions import NewTopic

SESSION_MS = int(PROMPT["broker.session.timeout.ms"])


@pytest.fixture(scope="module")
def module_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    config = {**PROMPT, "metrics.listener": "HTTP://127.0.0.1:0"}
    started = Cluster(tmp_path_factory.mktemp("signals") / "data", config=config)
    try:
        yield started
    finally:
        started.close()


def test_what_followers_fetch_is_counted_apart(cluster: Cluster, topic: str) -> None:
    cluster.create_topic(topic)
    leader, batch = cluster.leader_of(topic), batch_of(b"x" * 1_000)
    name = "tidelog_topic_fetched_bytes_total"
    with leader.ask(leader.port) as client:
        assert client.produce(topic, batch, acks=-1).error_code == 0
        # A follower that was cut short asks again.
        wait_until(lambda: samples(leader)[name, ("follower", topic)] >= 2 * len(batch), "both followers are counted")
        assert samples(leader)[name, ("consumer", topic)] == 0
        assert client.fetch(topic, 0).records
    assert samples(leader)[name, ("consumer", topic)] == len(batch)


def test_the_active_controller_knows_how_the_voters_are(cluster: Cluster) -> None:
    controller = cluster.active_controller()

    def shown() -> tuple[float, float, list[float]]:
        found = samples(controller)
        lags = [found["tidelog_quorum_voter_lag_records", (str(voter),)] for voter in cluster.nodes]
        return found["tidelog_quorum_voters", ()], found["tidelog_quorum_voters_living", ()], lags

    wait_until(lambda: shown() == (3, 3, [0, 0, 0]), lambda: f"all voters live, and have all: {shown()}")
    for node in cluster.running:
        if node is not controller:
            found = samples(node)
            assert found["tidelog_quorum_voters", ()] == 3
            assert ("tidelog_quorum_voters_living", ()) not in found
            assert not any(name == "tidelog_quorum_voter_lag_records" for name, _ in found)


def test_what_a_reassignment_has_to_copy_is_told_until_it_is_done(cluster: Cluster, topic: str) -> None:
    name = "tidelog_reassignment_bytes_left", ()
    leader, batch = cluster.active_controller(), batch_of(b"x" * 10_000)
    other = next(node for node in cluster.running if node is not leader)
    with Admin(leader.bootstrap) as admin:
        admin.create_topics([NewTopic(topic, replica_assignments={0: [leader.node_id]})])
        cluster.wait_until_in_sync(topic)
        with leader.ask(leader.port) as client:
            for _ in range(20):
                assert client.produce(topic, batch).error_code == 0
        other.pause()
        try:
            replicas = [leader.node_id, other.node_id]
            admin.alter_partition_reassignments({TopicPartition(topic, PartitionIndex(0)): replicas})
            wait_until(
                lambda: samples(leader)[name] == 20 * len(batch), lambda: f"all is left: {samples(leader)[name]}"
            )
        finally:
            other.resume()
    cluster.wait_until_in_sync(topic)
    wait_until(lambda: samples(leader)[name] == 0, "nothing is left")


@pytest.mark.timeout(180)
def test_without_a_quorum_nodes_are_not_ready_and_commands_say_who_answers(cluster: Cluster) -> None:
    """Of three voters one is left: it serves what it leads, and says what is wrong."""
    assert [why_not_ready(node) for node in cluster.running] == [None] * 3
    left, *lost = sorted(cluster.running, key=lambda node: node is cluster.active_controller())
    for node in lost:
        node.kill()
    wait_until(lambda: why_not_ready(left) is not None, left.log[-1_000:], seconds=60)
    heard = f"1 of the 3 voters of the metadata quorum answers node {left.node_id} ({left.node_id}), and 2 are needed"
    wait_until(lambda: heard in (why_not_ready(left) or ""), lambda: f"{why_not_ready(left)}")
    why = why_not_ready(left) or ""
    assert "no active controller has been heard of for " in why
    for node in lost:
        assert f"node {node.node_id} does not answer (" in why
    found = samples(left)
    assert (found["tidelog_quorum_voters", ()], found["tidelog_quorum_voters_living", ()]) == (3, 1)
    assert found["tidelog_node_ready", ()] == 0
    for command in (["topics", "create", "never"], ["quorum", "describe"], ["elect", "--type", "preferred", "--all"]):
        said = tidelog(left, *command, status=1)
        assert heard in said
        assert f"node {lost[0].node_id} does not answer (" in said
    for node in lost:
        node.start_soon()
    for node in lost:
        node.wait_until_serving()
    wait_until(lambda: [why_not_ready(node) for node in cluster.running] == [None] * 3, "all are ready again")


def test_the_lag_of_groups_is_known_wherever_their_partitions_are(cluster: Cluster, topic: str) -> None:
    """One replica of each partition: two of three coordinators have to ask another node."""
    nodes = list(cluster.nodes)
    with Admin(cluster.bootstrap) as admin:
        admin.create_topics([NewTopic(topic, replica_assignments={index: [node] for index, node in enumerate(nodes)})])
    cluster.wait_until_in_sync(topic)
    for index in range(len(nodes)):
        leader = cluster.leader_of(topic, index)
        with leader.ask(leader.port) as client:
            for _ in range(5):
                assert client.produce(topic, batch_of(b"v"), partition=index).error_code == 0
    group = f"{topic}-group"
    with Factory(cluster.bootstrap).consumer(group_id=group, enable_auto_commit=False) as consumer:
        places = [TopicPartition(topic, PartitionIndex(index)) for index in range(len(nodes))]
        consumer.assign(places)
        consumer.commit(dict.fromkeys(places, 3))
    coordinator = cluster.coordinator_of(group)

    def shown() -> dict[str, float]:
        found = samples(coordinator)
        keys = [name for name, labels in found if labels == (group, topic)]
        return {name.removeprefix("tidelog_group_lag_"): found[name, (group, topic)] for name in keys}

    wait_until(lambda: shown().get("records") == 2 * len(nodes), lambda: f"all partitions count: {shown()}")
    wait_until(lambda: shown().get("seconds", 0) > 1_000_000, "batches are of 2023")
    for node in cluster.running:
        if node is not coordinator:
            assert not any(labels == (group, topic) for _, labels in samples(node))
    unknown = "tidelog_group_lag_unknown_partitions", ("records",)
    wait_until(lambda: samples(coordinator)[unknown] == 0, "every leader has answered")

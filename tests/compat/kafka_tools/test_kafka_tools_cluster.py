"""Kafka's tools that ask the controller, against three nodes: they go to any broker, which asks in their place."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.clients.kafka_tools import KafkaTools
from support.clients.wire_client import WireClient
from support.fixtures.waiting import wait_until
from support.nodes.cluster_process import ClusterNode, ClusterProcesses
from tidelog.base.errors import Code
from tidelog.base.ids import PartitionIndex, TopicPartition
from tidelog.cli.reassignment_plan import read_plan, write_plan


@pytest.fixture(scope="module")
def cluster(tools: KafkaTools, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClusterProcesses]:
    with ClusterProcesses(tmp_path_factory.mktemp("cluster")) as started:
        yield started


@pytest.fixture(params=[1, 2, 3])
def at(cluster: ClusterProcesses, request: pytest.FixtureRequest) -> tuple[str, str]:
    """Each node in turn: two of them are not the controller."""
    return "--bootstrap-server", cluster.nodes[request.param].bootstrap


def knows(node: ClusterNode, topic: str) -> bool:
    with WireClient(node.port) as client:
        return client.describe_topic(topic).error_code == Code.NONE


def test_leaders_are_elected(tools: KafkaTools, at: tuple[str, str]) -> None:
    topic = f"elected-{at[1].rpartition(':')[2]}"
    tools.run("kafka-topics", *at, "--create", "--topic", topic, "--partitions", "3", "--replication-factor", "3")
    tools.run("kafka-leader-election", *at, "--election-type", "preferred", "--all-topic-partitions")
    one = ("--election-type", "unclean", "--topic", topic, "--partition", "0")
    assert "Valid replica already elected" in tools.run("kafka-leader-election", *at, *one).output


def test_levels_of_features_go_down_safely_and_up_again(tools: KafkaTools, at: tuple[str, str]) -> None:
    def run(*arguments: str, status: int = 0) -> str:
        return tools.run("kafka-features", *at, *arguments, status=status).output

    assert "4.3-IV0" in run("describe")
    refused = run("downgrade", "--feature", "metadata.version=29", status=1)
    assert "only an unsafe downgrade" in refused
    assert "downgraded to 29" in run("downgrade", "--unsafe", "--feature", "metadata.version=29")
    assert "downgraded to 25" in run("downgrade", "--feature", "metadata.version=25")
    assert "upgraded to 30" in run("upgrade", "--feature", "metadata.version=30")
    assert "the active controller supports" in run("upgrade", "--feature", "metadata.version=99", status=1)
    assert "was disabled" in run("disable", "--feature", "transaction.version")
    told = run("downgrade", "--unsafe", "--dry-run", "--release-version", "3.8")
    assert "group.version can be downgraded to 0" in told
    assert "the active controller does not serve it" in run("upgrade", "--feature", "streams.version=1", status=1)
    assert "was disabled" in run("disable", "--feature", "group.version")
    assert "upgraded to 1" in run("upgrade", "--feature", "group.version=1", "--feature", "transaction.version=1")


def test_every_release_from_4_0_on_can_be_asked_for(tools: KafkaTools, cluster: ClusterProcesses) -> None:
    at = ("--bootstrap-server", cluster.nodes[2].bootstrap)

    def levels() -> dict[str, str]:
        rows = (row.split() for row in tools.run("kafka-features", *at, "describe").output.splitlines() if row)
        return {row[1]: row[7] for row in rows}

    def ask(which: str, release: str, *flags: str) -> dict[str, str]:
        tools.run("kafka-features", *at, which, *flags, "--release-version", release)
        return levels()

    eligible = "eligible.leader.replicas.version"
    assert ask("downgrade", "4.2", "--unsafe")["metadata.version"] == "4.2-IV1"
    assert ask("downgrade", "4.1") | {eligible: "1"} == levels()
    lowest = ask("downgrade", "4.0")
    assert lowest["kraft.version"] == "0", "a downgrade raises nothing"
    assert (lowest["metadata.version"], lowest[eligible]) == ("4.0-IV3", "0")
    for release, name in (("4.0", "4.0-IV3"), ("4.1", "4.1-IV1"), ("4.2", "4.2-IV1"), ("4.3", "4.3-IV0")):
        found = ask("upgrade", release)
        assert found["metadata.version"] == name
        assert found[eligible] == ("0" if release == "4.0" else "1")
        assert (found["group.version"], found["transaction.version"]) == ("1", "2")
        assert found["kraft.version"] == "1", "the voters stand in the log, and stay there"
        assert found["share.version"] == ("1" if release in {"4.2", "4.3"} else "0")
        assert found["streams.version"] == "0", "it is not served"


def test_the_quorum_and_the_endpoints_are_described(tools: KafkaTools, cluster: ClusterProcesses) -> None:
    at = ("--bootstrap-server", cluster.nodes[2].bootstrap)
    said = tools.run("kafka-metadata-quorum", *at, "describe", "--status").output
    assert all(f'"id": {node_id}' in said for node_id in cluster.nodes)
    brokers = tools.run("kafka-cluster", "list-endpoints", *at).output
    assert all(str(node.port) in brokers for node in cluster.nodes.values())
    controller = ("--bootstrap-controller", f"127.0.0.1:{cluster.controller_ports[3]}")
    controllers = tools.run("kafka-cluster", "list-endpoints", *controller).output
    assert all(str(port) in controllers for port in cluster.controller_ports.values())


def test_partitions_are_reassigned(
    tools: KafkaTools, cluster: ClusterProcesses, at: tuple[str, str], tmp_path: Path
) -> None:
    topic = f"moved-{at[1].rpartition(':')[2]}"
    tools.run("kafka-topics", *at, "--create", "--topic", topic, "--replica-assignment", "1:2,2:1")
    topics, plan = tmp_path / "topics.json", tmp_path / "plan.json"
    topics.write_text(json.dumps({"version": 1, "topics": [{"topic": topic}]}))
    asked = ("--generate", "--topics-to-move-json-file", str(topics), "--broker-list", "2,3")
    # The tool asks any broker, and another one than made the topic may hear of it a moment later.
    wait_until(lambda: all(knows(node, topic) for node in cluster.nodes.values()), "all know the topic")
    said = tools.run("kafka-reassign-partitions", *at, *asked).output
    plan.write_text(said.strip().splitlines()[-1])
    assert {broker for replicas in read_plan(str(plan)).values() for broker in replicas} == {2, 3}
    run = ("--reassignment-json-file", str(plan))
    throttle = ("--throttle", "10000000", "--replica-alter-log-dirs-throttle", "10000000")
    begun = tools.run("kafka-reassign-partitions", *at, *run, "--execute", *throttle).output
    assert "Successfully started partition reassignments" in begun

    def verified() -> str:
        return tools.run("kafka-reassign-partitions", *at, *run, "--verify").output

    wait_until(lambda: verified().count("is completed") == 2, verified)
    assert "No partition reassignments found" in tools.run("kafka-reassign-partitions", *at, "--list").output
    assert "throttled" not in tools.run("kafka-configs", *at, "--describe", "--topic", topic).output

    write_plan(str(plan), {TopicPartition(topic, PartitionIndex(0)): (1, 2, 3)})
    insists = (*run, "--execute", "--disallow-replication-factor-change")
    kept = tools.run("kafka-reassign-partitions", *at, *insists, status=None)
    assert "that was not to change" in kept.output + kept.errors
    assert "reassignments are active" in tools.run("kafka-reassign-partitions", *at, *run, "--cancel").output
    write_plan(str(plan), {TopicPartition(topic, PartitionIndex(0)): (9, 1)})
    refused = tools.run("kafka-reassign-partitions", *at, *run, "--execute", status=1)
    assert "Unknown broker id 9" in refused.output + refused.errors


def test_a_broker_that_is_gone_is_unregistered(tools: KafkaTools, cluster: ClusterProcesses) -> None:
    at = ("--bootstrap-server", cluster.nodes[1].bootstrap)
    refused = tools.run("kafka-cluster", "unregister", *at, "--id", "77", status=1)
    assert "broker 77 is not registered" in refused.output + refused.errors
    gone = cluster.nodes[3]
    gone.stop()
    listed = (*at, "--include-fenced-brokers")
    wait_until(lambda: " fenced" in tools.run("kafka-cluster", "list-endpoints", *listed).output, "it is fenced")
    assert "no longer registered" in tools.run("kafka-cluster", "unregister", *at, "--id", "3").output
    assert str(gone.port) not in tools.run("kafka-cluster", "list-endpoints", *listed).output
    gone.start()
    assert str(gone.port) in tools.run("kafka-cluster", "list-endpoints", *at).output

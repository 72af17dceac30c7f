"""The cluster itself from the command line: as far as one node can show it, and three of which one is killed."""

from __future__ import annotations

from contextlib import suppress

from support.fixtures.waiting import wait_until
from support.nodes.cli import rows, tidelog
from support.nodes.cluster import Cluster
from support.nodes.node import NodeProcess
from tidelog.base.errors import TidelogError


def test_partitions_are_filtered_by_their_state(shared_node: NodeProcess) -> None:
    topic = "cli-filters"
    tidelog(shared_node, "topics", "create", topic, "--partitions", "2", "--config", "min.insync.replicas=2")
    [first, second] = rows(tidelog(shared_node, "topics", "describe", topic, "-o", "json"))
    assert (first["leader"], first["isr"], first["eligible"], first["last_known_eligible"]) == (1, [1], None, None)
    assert second["partition"] == 1
    # A topic with one replica cannot ask for two in sync.
    at_min = rows(tidelog(shared_node, "topics", "describe", topic, "--at-min-isr", "-o", "json"))
    assert [row["partition"] for row in at_min] == [0, 1]
    others = ("--under-min-isr", "--under-replicated", "--offline")
    said = tidelog(shared_node, "topics", "describe", topic, *others)
    assert said == "no partition is under-replicated or offline or under its min.insync.replicas\n"


def test_the_lineage_of_a_log_shows_each_start_of_its_leader(node: NodeProcess) -> None:
    tidelog(node, "topics", "create", "life", "--partitions", "1")
    tidelog(node, "produce", "life", stdin="a\nb\n")
    node.restart()
    tidelog(node, "produce", "life", stdin="c\n")
    asked = rows(tidelog(node, "log", "lineage", "life", "-o", "json"))
    assert [(row["partition"], row["node_1"], row["differs"]) for row in asked] == [(0, "0-2", None), (0, "2-3", None)]
    assert asked[0]["leader_epoch"] < asked[1]["leader_epoch"]
    assert rows(tidelog(node, "log", "lineage", "life", "--data", str(node.data_dir), "-o", "json")) == asked
    assert "(leader 1 in epoch" in tidelog(node, "log", "lineage", "life", "--partition", "0")


def test_brokers_and_features_are_described(shared_node: NodeProcess) -> None:
    [broker] = rows(tidelog(shared_node, "cluster", "describe", "-o", "json"))
    assert (broker["broker"], broker["port"], broker["fenced"]) == (1, shared_node.port, False)
    features = {row["feature"]: row for row in rows(tidelog(shared_node, "features", "describe", "-o", "json"))}
    version = features["metadata.version"]
    assert version["supported_min"] <= version["level"] <= version["supported_max"]


def test_a_release_is_gone_to_and_back(node: NodeProcess) -> None:
    def levels(*arguments: str) -> dict[str, int | None]:
        tidelog(node, "features", *arguments)
        return {row["feature"]: row["level"] for row in rows(tidelog(node, "features", "describe", "-o", "json"))}

    eligible, kraft = "eligible.leader.replicas.version", "kraft.version"
    newest = levels("upgrade", "--release-version", "4.3")
    assert (newest["metadata.version"], newest[eligible], newest[kraft]) == (30, 1, 1)
    refused = tidelog(node, "features", "downgrade", "--release-version", "4.1", status=1)
    assert "only an unsafe downgrade" in refused
    older = {**newest, "metadata.version": 27, "share.version": None}
    assert levels("downgrade", "--release-version", "4.1", "--unsafe") == older
    oldest = levels("downgrade", "--release-version", "3.9", "--unsafe")
    assert {name: level for name, level in oldest.items() if level} == {"metadata.version": 21, kraft: 1}
    assert levels("upgrade", "--release-version", "4.3", "--dry-run") == oldest
    planned = tidelog(node, "features", "upgrade", "--feature", "metadata.version=30", "--dry-run", "-o", "json")
    assert rows(planned) == [{"feature": "metadata.version", "from": 21, "to": 30, "done": False}]
    assert levels("upgrade", "--release-version", "4.3") == newest


def test_a_cluster_is_watched_through_the_end_of_a_node(cluster: Cluster) -> None:
    topic = "cli-watched"
    tidelog(cluster, "topics", "create", topic, "--partitions", "3", "--config", "min.insync.replicas=2")
    cluster.wait_until_in_sync(topic)
    tidelog(cluster, "produce", topic, "--partition", "0", stdin="a\nb\n")
    [quorum] = rows(tidelog(cluster, "quorum", "describe", "-o", "json"))
    assert (quorum["voters"], quorum["observers"]) == ([1, 2, 3], [])
    replication = rows(tidelog(cluster, "quorum", "describe", "--replication", "-o", "json"))
    assert [(row["node"], row["role"]) for row in replication] == [
        (node_id, "leader" if node_id == quorum["leader"] else "voter") for node_id in (1, 2, 3)
    ]
    assert tidelog(cluster, "topics", "describe", "--offline") == "no partition is offline\n"

    node = cluster.leader_of(topic)
    node.kill()
    cluster.wait_until_led_by_another(topic, node)
    cluster.wait_until_in_sync(topic, without=[node.node_id])
    tidelog(cluster, "produce", topic, "--partition", "0", stdin="c\n")
    at_min = rows(tidelog(cluster, "topics", "describe", topic, "--at-min-isr", "-o", "json"))
    assert [row["partition"] for row in at_min] == [0, 1, 2]
    assert all(node.node_id not in row["isr"] for row in at_min)
    brokers = rows(tidelog(cluster, "cluster", "describe", "-o", "json"))
    assert [row["broker"] for row in brokers if row["fenced"]] == [node.node_id]
    told = tidelog(cluster, "log", "lineage", topic, "--partition", "0")
    assert f"node {node.node_id} does not tell: " in told
    from_disk = ("--data", str(node.directory.parent))
    on_disk = rows(tidelog(cluster, "log", "lineage", topic, "--partition", "0", *from_disk, "-o", "json"))
    assert len(on_disk) == 2
    assert str(node.node_id) not in on_disk[1]["replicas"]
    assert [row["differs"] for row in on_disk] == [None, None]

    node.start()
    cluster.wait_until_in_sync(topic)
    elected = rows(tidelog(cluster, "elect", "--type", "preferred", "--all", "-o", "json"))
    assert (topic, 0, node.node_id, "elected") in [
        (row["topic"], row["partition"], row["leader"], row["outcome"]) for row in elected
    ]
    for kind in ("preferred", "unclean"):
        said = tidelog(cluster, "elect", "--type", kind, "--topic", topic, "--partition", "9", status=2)
        assert f"topic {topic} has no partition 9: it has 3, from 0 on" in said
    again = rows(tidelog(cluster, "elect", "--type", "preferred", "--topic", topic, "-o", "json"))
    assert {row["outcome"] for row in again} == {"ELECTION_NOT_NEEDED"}


def test_what_nobody_alive_holds_cannot_be_elected(cluster: Cluster) -> None:
    cluster.create_topic("cli-lost", 3, replication_factor=1)
    node = cluster.leader_of("cli-lost")
    partition = next(one.partition for one in cluster.describe("cli-lost") if one.leader == node.node_id)
    node.kill()
    other = cluster.running[0]

    def is_led_by_nobody() -> bool:
        with suppress(TidelogError):  # it may not have heard of the topic yet
            return cluster.describe("cli-lost", through=other)[partition].leader is None
        return False

    wait_until(is_led_by_nobody, "nobody leads it", seconds=60)
    [offline] = rows(tidelog(cluster, "topics", "describe", "--offline", "-o", "json"))
    assert (offline["topic"], offline["partition"]) == ("cli-lost", partition)
    arguments = ("elect", "--type", "unclean", "--topic", "cli-lost", "--partition", str(partition))
    unasked = tidelog(cluster, *arguments, status=2)
    assert "say --yes to elect" in unasked
    assert "ELIGIBLE_LEADERS_NOT_AVAILABLE" in tidelog(cluster, *arguments, "--yes", status=1)
    tidelog(cluster, "cluster", "unregister", "--broker", str(node.node_id))
    brokers = rows(tidelog(cluster, "cluster", "describe", "-o", "json"))
    assert node.node_id not in [row["broker"] for row in brokers]


def test_what_the_quorum_does_not_do_is_refused_in_words(cluster: Cluster) -> None:
    voters = tidelog(cluster, "quorum", "remove-voter", "--node-id", "9", status=2)
    assert "no voter has this id; there are 1, 2, 3" in voters
    file = str(cluster.nodes[2].directory) + ".properties"
    refused = tidelog(cluster, "quorum", "add-voter", "--config-file", file, status=1)
    assert "voter 2: " in refused
    features = {row["feature"]: row for row in rows(tidelog(cluster, "features", "describe", "-o", "json"))}
    version = features["metadata.version"]
    beyond = f"metadata.version={version['supported_max'] + 1}"
    assert "metadata.version" in tidelog(cluster, "features", "upgrade", "--feature", beyond, status=1)
    same = f"metadata.version={version['level']}"
    assert rows(tidelog(cluster, "features", "upgrade", "--feature", same, "-o", "json")) == [version]

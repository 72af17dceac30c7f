"""The cluster itself from the command line, as far as one node can show it."""

from __future__ import annotations

from support.cli import rows, tidelog
from support.node import NodeProcess


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
    assert tidelog(shared_node, "topics", "describe", topic, *others) == "no such partition\n"


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

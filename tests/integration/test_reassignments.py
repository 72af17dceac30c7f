"""Partitions move between real nodes: with their records, past the deaths of nodes, and back where they came from."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from support.fixtures.waiting import wait_until
from support.load.verifying import verifying_load
from support.nodes.cli import rows, tidelog
from support.nodes.cluster import Cluster
from support.nodes.cluster_files import check_replicas_agree
from tidelog.base.errors import Code
from tidelog.base.ids import PartitionIndex, TopicPartition
from tidelog.client.admin.admin import Admin
from tidelog.client.admin.descriptions import ConfigResource, NewTopic
from tidelog.client.admin.reassignment import PartitionReassignment

RECORDS = 300


@pytest.fixture
def admin(cluster: Cluster) -> Iterator[Admin]:
    with Admin(cluster.bootstrap) as connected:
        yield connected


def partition_of(topic: str, index: int = 0) -> TopicPartition:
    return TopicPartition(topic, PartitionIndex(index))


def create(cluster: Cluster, admin: Admin, topic: str, *assigned: Sequence[int]) -> None:
    """With the replicas of each partition."""
    assignments = {index: list(replicas) for index, replicas in enumerate(assigned)}
    admin.create_topics([NewTopic(topic, replica_assignments=assignments)])
    cluster.wait_until_in_sync(topic)


def wait_until_moved(cluster: Cluster, admin: Admin, topic: str, *held: Sequence[int]) -> None:
    """Until nothing moves, and the partitions are held so."""

    def is_moved() -> bool:
        found = cluster.describe(topic)
        names = [partition_of(topic, index) for index in range(len(held))]
        is_still = not admin.list_partition_reassignments(names)
        return is_still and [one.replicas for one in found] == [tuple(each) for each in held]

    wait_until(is_moved, lambda: f"{topic} has moved\n{cluster.describe(topic)}\n{cluster.logs()}", seconds=60)
    cluster.wait_until_in_sync(topic)


@pytest.mark.timeout(180)
def test_all_records_move_while_more_are_written(cluster: Cluster, admin: Admin, topic: str) -> None:
    """The leader of each partition goes; nothing is lost, and nothing of it stays behind."""
    create(cluster, admin, topic, [1, 2], [2, 3])
    with verifying_load(cluster.bootstrap, topic, 2) as load:
        load.until_acknowledged(RECORDS)
        outcomes = admin.alter_partition_reassignments({partition_of(topic): [2, 3], partition_of(topic, 1): [1, 3]})
        assert [(one.error, one.waits_for) for one in outcomes.values()] == [(None, None)] * 2
        load.until_acknowledged(RECORDS)
        wait_until_moved(cluster, admin, topic, [2, 3], [1, 3])
        load.until_acknowledged(RECORDS)
        history = load.finish()
    history.check()
    assert not history.failed, history.failed_lines()
    assert not history.reported
    cluster.wait_until_in_sync(topic)
    left = [cluster.nodes[node_id].directory / f"{topic}-{index}" for node_id, index in ((1, 0), (2, 1))]
    wait_until(lambda: not any(map(Path.exists, left)), f"{left} are deleted")
    check_replicas_agree(cluster, topic, 2, count=2)


@pytest.mark.timeout(180)
def test_one_onto_a_dead_node_waits_for_it_through_the_death_of_the_controller(
    cluster: Cluster, admin: Admin, topic: str
) -> None:
    controller = cluster.active_controller()
    dead = next(node for node in cluster.nodes.values() if node is not controller)
    (third,) = (node.node_id for node in cluster.nodes.values() if node not in (controller, dead))
    create(cluster, admin, topic, [third])
    dead.kill()
    wait_until(lambda: _is_fenced(admin, dead.node_id), f"{dead} is fenced")
    wanted = {partition_of(topic): [dead.node_id, third]}
    (outcome,) = admin.alter_partition_reassignments(wanted).values()
    assert outcome.error is None
    assert outcome.waits_for == f"waits for broker {dead.node_id}, not alive at present"
    moving = PartitionReassignment((dead.node_id, third), (dead.node_id,), ())
    assert admin.list_partition_reassignments() == {partition_of(topic): moving}
    controller.kill()
    controller.start()
    cluster.leader_of(topic)
    assert admin.list_partition_reassignments() == {partition_of(topic): moving}, "the next controller knows of it"
    dead.start()
    wait_until_moved(cluster, admin, topic, [dead.node_id, third])


def test_what_cannot_be_is_refused_by_its_code_and_in_words(cluster: Cluster, admin: Admin, topic: str) -> None:
    create(cluster, admin, topic, [1, 2])
    partition = partition_of(topic)

    def refused(replicas: Sequence[int] | None, asked: TopicPartition = partition) -> tuple[Code, str]:
        (outcome,) = admin.alter_partition_reassignments({asked: replicas}).values()
        assert outcome.error is not None
        return outcome.error.code, str(outcome.error)

    assert refused([1, 9]) == (
        Code.INVALID_REPLICA_ASSIGNMENT,
        f"{partition}: broker 9 is not registered (INVALID_REPLICA_ASSIGNMENT)",
    )
    assert refused([1, 1])[0] is Code.INVALID_REPLICA_ASSIGNMENT
    assert refused([])[0] is Code.INVALID_REPLICA_ASSIGNMENT
    assert refused([1, 2], partition_of(topic, 7))[0] is Code.UNKNOWN_TOPIC_OR_PARTITION
    assert refused([1, 2], partition_of("nothing-of-this-name"))[0] is Code.UNKNOWN_TOPIC_OR_PARTITION
    assert refused(None)[0] is Code.NO_REASSIGNMENT_IN_PROGRESS
    (outcome,) = admin.alter_partition_reassignments({partition: [1]}, allow_replication_factor_change=False).values()
    assert outcome.error is not None
    assert outcome.error.code is Code.INVALID_REPLICATION_FACTOR
    assert cluster.describe(topic)[0].replicas == (1, 2)


@pytest.mark.timeout(180)
def test_a_cancel_leaves_nothing_behind(cluster: Cluster, admin: Admin, topic: str) -> None:
    dead = cluster.nodes[3] if cluster.active_controller().node_id != 3 else cluster.nodes[2]
    (other,) = {2, 3} - {dead.node_id}
    create(cluster, admin, topic, [1, other])
    dead.kill()
    assert admin.alter_partition_reassignments({partition_of(topic): [other, dead.node_id]})
    (outcome,) = admin.alter_partition_reassignments({partition_of(topic): None}).values()
    assert outcome.error is None
    assert admin.list_partition_reassignments([partition_of(topic)]) == {}
    wait_until(lambda: cluster.describe(topic)[0].replicas == (1, other), "every node has heard of it")
    dead.start()
    wait_until_moved(cluster, admin, topic, [1, other])
    assert not (dead.directory / f"{topic}-0").exists()


def _is_fenced(admin: Admin, node_id: int) -> bool:
    brokers = admin.describe_cluster(include_fenced_brokers=True).brokers
    return any(one.broker_id == node_id and one.is_fenced for one in brokers)


@pytest.mark.timeout(180)
def test_the_commands_plan_and_move_and_say_how_far_it_is(
    cluster: Cluster, admin: Admin, topic: str, tmp_path: Path
) -> None:
    create(cluster, admin, topic, [1, 2], [2, 1])
    file = str(tmp_path / "plan.json")
    asked = ("--topic", topic, "--without", "1")
    by_hand = ConfigResource("topic", topic), {"follower.replication.throttled.replicas": "*"}
    admin.alter_configs(dict([by_hand]))
    assert tidelog(cluster, "reassign", "status") == "nothing is on its way\n"
    kept = admin.describe_configs([by_hand[0]])[by_hand[0]]["follower.replication.throttled.replicas"]
    assert kept.value == "*", "nobody's reassignment set that"
    planned = rows(tidelog(cluster, "reassign", "plan", *asked, "--file", file, "-o", "json"))
    assert [(sorted(row["target"]), row["adds"], row["drops"]) for row in planned] == [([2, 3], [3], [1])] * 2
    elsewhere = json.loads(Path(file).read_text())
    elsewhere["partitions"][0]["log_dirs"] = ["any", "/nowhere"]
    (tmp_path / "elsewhere.json").write_text(json.dumps(elsewhere))
    assert "LOG_DIR_NOT_FOUND" in tidelog(cluster, "reassign", "run", str(tmp_path / "elsewhere.json"), status=1)
    (before, _) = rows(tidelog(cluster, "reassign", "status", file, "-o", "json"))
    assert (before["state"], before["replicas"]) == ("elsewhere", [1, 2])
    begun = rows(tidelog(cluster, "reassign", "run", file, "--throttle", "50000000", "--wait", "-o", "json"))
    assert [row["outcome"] for row in begun] == ["begun", "begun"]
    after = rows(tidelog(cluster, "reassign", "status", file, "-o", "json"))
    assert [(row["state"], sorted(row["replicas"])) for row in after] == [("there", [2, 3])] * 2
    entries = admin.describe_configs([ConfigResource("topic", topic), ConfigResource("broker", "2")])
    settings = [one for each in entries.values() for one in each.values()]
    assert not [one.name for one in settings if "throttled" in one.name and not one.is_default]


@pytest.mark.timeout(180)
def test_a_command_takes_back_what_waits_for_a_dead_node(cluster: Cluster, admin: Admin, topic: str) -> None:
    dead = cluster.nodes[3] if cluster.active_controller().node_id != 3 else cluster.nodes[2]
    (other,) = {2, 3} - {dead.node_id}
    create(cluster, admin, topic, [1, other])
    dead.kill()
    wait_until(lambda: _is_fenced(admin, dead.node_id), f"{dead} is fenced")
    target = f"{dead.node_id},{other}"
    (begun,) = rows(
        tidelog(cluster, "reassign", "run", "--topic", topic, "--brokers", target, "--throttle", "9", "-o", "json")
    )
    assert begun["outcome"] == f"begun, waits for broker {dead.node_id}, not alive at present"
    (status,) = rows(tidelog(cluster, "reassign", "status", "-o", "json"))
    assert (status["state"], status["waits_for"], status["removing"]) == ("on its way", [dead.node_id], [1])
    (back,) = rows(tidelog(cluster, "reassign", "cancel", "--topic", topic, "-o", "json"))
    assert (back["outcome"], back["replicas"]) == ("cancelled", [1, other])
    assert tidelog(cluster, "reassign", "cancel", "--all") == "cancelled reassignments\nnothing is on its way\n"
    refused = tidelog(cluster, "reassign", "cancel", "--topic", f"{topic}:0", status=1)
    assert "it stays with" in refused
    assert "NO_REASSIGNMENT_IN_PROGRESS" in refused

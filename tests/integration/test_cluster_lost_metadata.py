"""A voter's metadata log is gone from its disk while its node is down: it never passes for one that has it."""

from __future__ import annotations

import shutil

import pytest

from support.fixtures.waiting import wait_until
from support.nodes.cluster import Cluster, ClusterNode
from tidelog.client.admin.admin import Admin
from tidelog.client.admin.descriptions import NewTopic

METADATA = "__cluster_metadata-0"
SECONDS_WITHOUT_LEADER = 4.0
"""Two voters that could elect one of them do so within one or two."""
VOTES_AGAIN = "it votes again"
LEADERLESS = "nobody has led the metadata quorum for "


def lose_metadata(node: ClusterNode, what: str) -> None:
    assert not node.is_running
    directory = node.directory / METADATA
    if what == "directory":
        shutil.rmtree(directory)
    elif what == "quorum-state":
        (directory / "quorum-state").unlink()
    else:
        for path in directory.glob("*.log"):
            path.unlink()


def topics(node: ClusterNode) -> set[str]:
    with Admin(node.bootstrap) as admin:
        return set(admin.describe_topics())


def elections(*nodes: ClusterNode) -> int:
    return sum(node.log.count("is the active controller") for node in nodes)


@pytest.mark.timeout(180)
@pytest.mark.parametrize("what", [pytest.param("directory", marks=pytest.mark.slow), "segments", "quorum-state"])
def test_what_was_committed_is_neither_lost_nor_replaced(cluster: Cluster, topic: str, what: str) -> None:
    """One of two that know of a topic loses its log; the third, which does not, is no majority with it."""
    keeper, loser, absent = cluster.nodes.values()
    absent.kill()
    with Admin(keeper.bootstrap) as admin:  # not by number: the absent one may not be fenced yet
        admin.create_topics([NewTopic(topic, replica_assignments={0: [keeper.node_id, loser.node_id]})])
    wait_until(lambda: topic in topics(loser), cluster.logs)
    keeper.kill()
    loser.kill()
    lose_metadata(loser, what)
    said, elected = loser.log.count("is LOST"), elections(loser, absent)
    loser.start_soon()
    absent.start_soon()
    wait_until(lambda: loser.log.count("is LOST") > said, cluster.logs)
    with pytest.raises(AssertionError, match="still not so"):
        wait_until(lambda: elections(loser, absent) > elected, "", seconds=SECONDS_WITHOUT_LEADER)
    recovered = loser.log.count(VOTES_AGAIN)
    keeper.start_soon()
    for node in (keeper, loser, absent):
        node.wait_until_serving()
        wait_until(lambda node=node: topic in topics(node), cluster.logs)  # type: ignore[misc]
    wait_until(lambda: loser.log.count(VOTES_AGAIN) > recovered, cluster.logs)
    # And it is a voter again: the one that kept everything may go.
    keeper.kill()
    with Admin(loser.bootstrap) as admin:
        admin.create_topics([NewTopic(f"{topic}-more", replica_assignments={0: [loser.node_id]})])
    wait_until(lambda: {topic, f"{topic}-more"} <= topics(absent), cluster.logs)


@pytest.mark.timeout(180)
@pytest.mark.parametrize("what", [pytest.param("directory", marks=pytest.mark.slow), "quorum-state"])
def test_a_node_waits_for_the_quorum_that_needs_a_node_that_is_away(
    cluster: Cluster, topic: str, what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A node and one that lost its vote elect nobody. Both are there when the third comes, however late."""
    intact, loser, late = cluster.nodes.values()
    cluster.create_topic(topic)
    cluster.kill()
    lose_metadata(loser, what)
    for node in (intact, loser):
        monkeypatch.setitem(node.settings, "initial.broker.registration.timeout.ms", "1000")
    recovered = loser.log.count(VOTES_AGAIN)
    said = {node: len(node.log) for node in (intact, loser)}
    intact.start_soon()
    loser.start_soon()
    for node, begin in said.items():
        line = wait_until(
            lambda node=node, begin=begin: [  # type: ignore[misc]
                line for line in node.log[begin:].splitlines() if LEADERLESS in line
            ],
            cluster.logs,
        )[0]
        assert " WARNING " in line
        assert f"node {late.node_id} " in line
        assert "does not answer" in line
        assert node.is_running
    late.start()
    for node in (intact, loser):
        node.wait_until_serving()
    wait_until(lambda: loser.log.count(VOTES_AGAIN) > recovered, cluster.logs)
    cluster.wait_until_in_sync(topic)

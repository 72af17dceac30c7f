"""A replica's log is gone from its disk while its node is down: that node never passes for one that has it."""

from __future__ import annotations

import shutil
import signal
from collections.abc import Iterable
from contextlib import suppress

import pytest

from support.clients.wire_client import batch_of
from support.fixtures.waiting import wait_until
from support.nodes.cluster import Cluster, ClusterNode
from tidelog.base.errors import Code
from tidelog.client.admin.admin import Admin

RECORDS = 400
VALUES = [b"%d" % number for number in range(RECORDS)]


def fill(cluster: Cluster, topic: str, *, segment_bytes: int = 1 << 30) -> ClusterNode:
    """All is acknowledged by all who are in sync. Returns who leads."""
    cluster.create_topic(topic, segment_bytes=str(segment_bytes))
    leader = cluster.leader_of(topic)
    with leader.ask(leader.port) as client:
        for start in range(0, RECORDS, 20):
            batch = batch_of(*VALUES[start : start + 20])

            def is_acknowledged(batch: bytes = batch) -> bool:
                answer = client.produce(topic, batch, acks=-1)
                # At first it may not know yet that it leads.
                assert answer.error_code in (0, Code.UNKNOWN_TOPIC_OR_PARTITION, Code.NOT_LEADER_OR_FOLLOWER)
                return answer.error_code == 0

            wait_until(is_acknowledged, cluster.logs)
    return leader


def end(cluster: Cluster, how: str) -> None:
    if how == "kill":
        cluster.kill()
    else:
        cluster.stop()


def lose_log(node: ClusterNode, topic: str) -> None:
    assert not node.is_running
    shutil.rmtree(node.directory / f"{topic}-0")


def log_is_gone(node: ClusterNode, topic: str) -> str:
    """What the node says when it starts without it."""
    return f"{topic}-0: A REPLICA IS LOST: its log is gone from {node.directory}, where it was"


def start_together(nodes: Iterable[ClusterNode]) -> None:
    started = list(nodes)
    for node in started:
        node.start_soon()
    for node in started:
        node.wait_until_serving()


def wait_until_read(cluster: Cluster, topic: str, values: list[bytes]) -> None:
    """Until whoever leads has these records, and no others."""

    def read() -> list[bytes | None] | None:
        leader = cluster.leader_of(topic)
        with suppress(OSError, AssertionError), leader.ask(leader.port) as client:
            return [record.value for record in client.read_all(topic)]
        return None

    wait_until(lambda: read() == values, lambda: f"{read()}\n{cluster.logs()}", seconds=30)


@pytest.mark.timeout(180)
@pytest.mark.parametrize("how", ["stop", "kill"])
def test_whoever_lost_its_log_is_not_elected_and_gets_it_again(cluster: Cluster, topic: str, how: str) -> None:
    """The other one that was in sync leads, though the one that lost its log was in sync too, and is there again."""
    leader = fill(cluster, topic)
    first, second = (node for node in cluster.nodes.values() if node is not leader)
    (second.kill if how == "kill" else second.stop)()
    cluster.wait_until_in_sync(topic, without=[second.node_id])
    end(cluster, how)
    lose_log(leader, topic)
    said = len(leader.log)
    start_together([leader, first])
    assert log_is_gone(leader, topic) in leader.log[said:]
    assert cluster.leader_of(topic) is first
    cluster.wait_until_in_sync(topic, without=[second.node_id])
    wait_until_read(cluster, topic, VALUES)
    second.start()
    cluster.wait_until_in_sync(topic)
    assert cluster.leader_of(topic) is first
    for node in cluster.nodes.values():
        log = node.directory / f"{topic}-0" / "00000000000000000000.log"
        assert log.stat().st_size == (first.directory / f"{topic}-0" / log.name).stat().st_size


@pytest.mark.timeout(180)
@pytest.mark.parametrize("how", ["kill", pytest.param("stop", marks=pytest.mark.slow)])
def test_whoever_lost_its_log_is_not_elected_while_another_that_was_in_sync_is_away(
    cluster: Cluster, topic: str, how: str
) -> None:
    """The one that is there leads, or left the ISR by its registration: then the partition waits for the third."""
    leader = fill(cluster, topic)
    first, second = (node for node in cluster.nodes.values() if node is not leader)
    end(cluster, how)
    lose_log(leader, topic)
    start_together([leader, first])
    (state,) = cluster.describe(topic)
    assert leader.node_id not in (state.leader, *state.isr)
    second.start()
    cluster.wait_until_in_sync(topic)
    assert cluster.leader_of(topic) in (first, second)
    wait_until_read(cluster, topic, VALUES)


@pytest.mark.timeout(180)
@pytest.mark.parametrize("how", ["stop", pytest.param("kill", marks=pytest.mark.slow)])
def test_a_log_may_go_while_its_node_runs(cluster: Cluster, topic: str, how: str) -> None:
    """What is open is read and written on; the loss is found at the next start. A stop is not a clean one then."""
    leader = fill(cluster, topic)
    shutil.rmtree(leader.directory / f"{topic}-0")
    leader.end(signal.SIGTERM if how == "stop" else signal.SIGKILL)
    end(cluster, how)
    said = len(leader.log)
    cluster.start()
    assert log_is_gone(leader, topic) in leader.log[said:]
    cluster.wait_until_in_sync(topic)
    wait_until_read(cluster, topic, VALUES)


@pytest.mark.timeout(180)
@pytest.mark.parametrize("how", ["stop", pytest.param("kill", marks=pytest.mark.slow)])
def test_a_log_whose_beginning_went_without_a_trace_is_no_log_that_begins_later(
    cluster: Cluster, topic: str, how: str
) -> None:
    leader = fill(cluster, topic, segment_bytes=2000)
    end(cluster, how)
    for suffix in ("log", "index", "timeindex"):
        (leader.directory / f"{topic}-0" / f"{0:020d}.{suffix}").unlink()
    said = len(leader.log)
    start_together(cluster.nodes.values())
    lost = f"{topic}-0: A REPLICA IS LOST: its log in {leader.directory} is not what it was: the file of records from"
    assert f"{lost} offset 0 on is gone" in leader.log[said:]
    cluster.wait_until_in_sync(topic)
    wait_until_read(cluster, topic, VALUES)
    other = next(node for node in cluster.nodes.values() if node is not leader)
    beginning, original = (node.directory / f"{topic}-0" / f"{0:020d}.log" for node in (leader, other))
    wait_until(lambda: beginning.read_bytes() == original.read_bytes(), cluster.logs)


@pytest.mark.timeout(180)
def test_where_all_logs_are_gone_nobody_leads_until_somebody_decides(cluster: Cluster, topic: str) -> None:
    fill(cluster, topic)
    cluster.stop()
    for node in cluster.nodes.values():
        lose_log(node, topic)
    cluster.start()
    for node in cluster.nodes.values():
        assert f"{topic}-0: A REPLICA IS LOST" in node.log
    (state,) = cluster.describe(topic)
    assert (state.leader, state.isr) == (None, ())
    with Admin(cluster.bootstrap) as admin:
        wait_until(lambda: all(one is None for one in admin.elect_leaders("unclean").values()), cluster.logs)
    cluster.wait_until_in_sync(topic)
    wait_until_read(cluster, topic, [])


@pytest.mark.timeout(180)
def test_a_directory_of_an_older_release_is_listed_as_it_is(cluster: Cluster, topic: str) -> None:
    """From then on what is missing is missed."""
    leader = fill(cluster, topic)
    cluster.stop()
    listed = (leader.directory / ".tidelog_replicas").read_text()
    (leader.directory / ".tidelog_replicas").unlink()
    properties = leader.directory / "meta.properties"
    properties.write_text(properties.read_text().replace("tidelog.replica.list=1\n", ""))
    cluster.start()
    assert "A REPLICA IS LOST" not in leader.log.rpartition("serves on port")[0].rpartition("serves on port")[2]
    cluster.stop()
    assert (leader.directory / ".tidelog_replicas").read_text() == listed
    lose_log(leader, topic)
    cluster.start()
    cluster.wait_until_in_sync(topic)
    wait_until_read(cluster, topic, VALUES)

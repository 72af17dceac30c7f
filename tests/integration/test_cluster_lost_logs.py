"""A replica's log is gone from its disk while its node is down: that node never passes for one that has it."""

from __future__ import annotations

import shutil
from collections.abc import Iterable
from contextlib import suppress

import pytest

from support.cluster import Cluster, ClusterNode
from support.waiting import wait_until
from support.wire_client import batch_of
from tidelog.base.errors import Code

RECORDS = 400
VALUES = [b"%d" % number for number in range(RECORDS)]


def fill(cluster: Cluster, topic: str) -> ClusterNode:
    """All is acknowledged by all who are in sync. Returns who leads."""
    cluster.create_topic(topic)
    leader = cluster.leader_of(topic)
    with leader.ask(leader.port) as client:
        for start in range(0, RECORDS, 20):
            answer = client.produce(topic, batch_of(*VALUES[start : start + 20]), acks=-1)
            assert answer.error_code == 0, Code(answer.error_code).name
    return leader


def end(cluster: Cluster, how: str) -> None:
    if how == "kill":
        cluster.kill()
    else:
        cluster.stop()


def lose_log(node: ClusterNode, topic: str) -> None:
    assert not node.is_running
    shutil.rmtree(node.directory / f"{topic}-0")


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
    leader = fill(cluster, topic)
    first, second = (node for node in cluster.nodes.values() if node is not leader)
    end(cluster, how)
    lose_log(leader, topic)
    start_together([leader, first])
    wait_until_read(cluster, topic, VALUES)
    second.start()
    cluster.wait_until_in_sync(topic)
    wait_until_read(cluster, topic, VALUES)
    assert "is gone" in leader.log
    for node in cluster.nodes.values():
        log = node.directory / f"{topic}-0" / "00000000000000000000.log"
        assert log.stat().st_size == (first.directory / f"{topic}-0" / log.name).stat().st_size

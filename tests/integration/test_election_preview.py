"""An unclean election on a cluster is shown before it is done, and waits for a yes."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys

import pytest

from support.fixtures.waiting import wait_until
from support.nodes.cluster import Cluster
from support.nodes.forked_command import run_command
from tidelog import Admin, CommittedOffset, Producer, TopicPartition
from tidelog.base.ids import PartitionIndex


def produce(cluster: Cluster, topic: str, count: int) -> None:
    with Producer(cluster.bootstrap) as producer:
        for future in [producer.send(topic, b"%d" % number, partition=0) for number in range(count)]:
            future.result()


def answered(arguments: list[str], answer: bytes) -> subprocess.CompletedProcess[str]:
    """A command at a terminal, where somebody types an answer."""
    ours, theirs = pty.openpty()
    try:
        os.write(ours, answer)
        return subprocess.run(
            [sys.executable, "-m", "tidelog", *arguments],
            stdin=theirs,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
    finally:
        os.close(ours)
        os.close(theirs)


@pytest.mark.timeout(180)
def test_an_unclean_election_is_shown_before_it_is_done(cluster: Cluster, topic: str) -> None:
    """Two replicas, one of which is enough. The leader writes alone and dies; the other one lacks ten records."""
    partition = TopicPartition(topic, PartitionIndex(0))
    cluster.create_topic(topic, replication_factor=2, min_insync_replicas="1")
    produce(cluster, topic, 10)
    leader, follower = cluster.leader_of(topic), cluster.follower_of(topic)
    follower.kill()
    cluster.wait_until_in_sync(topic, without=[follower.node_id])
    produce(cluster, topic, 10)
    with Admin(cluster.bootstrap) as admin:
        admin.alter_group_offsets("shop", {partition: CommittedOffset(18)})
        admin.alter_group_offsets("slow", {partition: CommittedOffset(10)})
    leader.kill()
    follower.start()

    def states() -> bool:
        state = cluster.describe(topic, through=follower)[0]
        return state.leader is None and state.offline_replicas == (leader.node_id,)

    wait_until(states, "nobody leads, and the follower is alive", seconds=60)
    elect = ["elect", "--type", "unclean", "--topic", topic, "--bootstrap", cluster.bootstrap]

    def preview() -> list[dict[str, object]]:
        done = run_command([*elect, "--output", "json"], timeout=60)
        assert done.returncode == 2, done.stderr
        assert "say --yes to elect" in done.stderr
        return [json.loads(line) for line in done.stdout.splitlines()]

    def whole() -> list[dict[str, object]]:
        found = preview()
        return found if found[0]["groups_unknown"] is None else []

    rows = wait_until(whole, "the coordinators of all groups are found again", seconds=60)
    by_broker = {row["broker"]: row for row in rows}
    stale, away = by_broker[follower.node_id], by_broker[leader.node_id]
    assert (stale["alive"], stale["elected"], stale["log_end"]) == (True, True, 10)
    assert stale["unknown_replicas"] == [leader.node_id]
    assert stale["would_lose"] == f"nothing known; unknown of {leader.node_id}"
    assert stale["groups"] == {"shop": 18}
    assert (away["alive"], away["elected"], away["log_end"], away["groups"]) == (False, False, None, None)

    refused = answered(elect, b"n\n")
    assert refused.returncode == 1
    assert "nothing was elected" in refused.stderr
    assert f"broker {follower.node_id} would lead, UNCLEANLY" in refused.stdout
    assert "shop at 18" in refused.stdout
    assert cluster.describe(topic, through=follower)[0].leader is None

    elected = answered(elect, b"y\n")
    assert elected.returncode == 0, elected.stderr
    assert "UNCLEANLY" in elected.stdout
    assert cluster.leader_of(topic) is follower
    again = run_command([*elect, "--output", "json"], timeout=60)
    assert [json.loads(line)["outcome"] for line in again.stdout.splitlines()] == ["ELECTION_NOT_NEEDED"]
    leader.start()

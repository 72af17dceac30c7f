"""`tidelog up --nodes 3` as whoever starts it sees it: its lines, a node that is killed, and all started again."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from support.fixtures.waiting import wait_until
from support.nodes.background_command import START_SECONDS_MAX, STOP_SECONDS_MAX, BackgroundCommand
from tidelog import Consumer, Factory, NewTopic, Producer, TopicPartition, UnknownTopicError
from tidelog.base.ids import PartitionIndex

TOPIC = "of-three"
PARTITION = TopicPartition(TOPIC, PartitionIndex(0))
PROMPT = ("--config", "broker.session.timeout.ms=4000", "--config", "broker.heartbeat.interval.ms=500")


@pytest.fixture
def up(tmp_path: Path) -> Iterator[BackgroundCommand]:
    started = BackgroundCommand(
        tmp_path / "up.log", "up", "--nodes", "3", "--port", "0", "--data", str(tmp_path / "data"), *PROMPT
    )
    yield started
    started.close()


def write(bootstrap: str, *values: bytes) -> None:
    with Producer(bootstrap) as producer:
        for value in values:
            producer.send(TOPIC, value, partition=0).result()


def read(bootstrap: str, count: int) -> list[bytes | None]:
    found: list[bytes | None] = []
    with Consumer(bootstrap, auto_offset_reset="earliest") as consumer:
        consumer.assign([PARTITION])
        consumer.seek_to_beginning()
        wait_until(lambda: bool(_take(consumer, found)) and len(found) >= count, f"{count} records were read")
    return found


def _take(consumer: Consumer, found: list[bytes | None]) -> list[bytes | None]:
    found += [record.value for record in consumer.poll(timeout_ms=200)]
    return found


def test_three_nodes_are_one_cluster_that_lives_through_the_end_of_each_and_of_all(
    tmp_path: Path, up: BackgroundCommand
) -> None:
    assert re.fullmatch(r"(node id=\d pid=\d+ port=\d+\n){3}ready bootstrap=\S+:\d+,\S+:\d+,\S+:\d+\n", up.said)
    with Factory(up.bootstrap).admin() as admin:
        wait_until(lambda: len(admin.describe_cluster().brokers) == 3, "whoever is asked knows all three")
        (made,) = admin.create_topics([NewTopic(TOPIC, 1)])
        assert made.replication_factor == 3
        write(up.bootstrap, b"a")

        def leader() -> int | None:
            with suppress(UnknownTopicError):  # one node may hear of it a moment after another
                return admin.describe_topics([TOPIC])[TOPIC].partitions[0].leader
            return None

        killed = wait_until(leader, "somebody leads")
        assert killed is not None
        os.kill(up.pids[killed], signal.SIGKILL)
        wait_until(lambda: leader() not in (None, killed), "another node leads")
        write(up.bootstrap, b"b")
        told = re.compile(
            rf"^error: node {killed} \(pid {up.pids[killed]}\) was killed by SIGKILL; (.*)$", re.MULTILINE
        )
        line = wait_until(lambda: told.search(up.log), "up tells of it")
        assert line is not None
        file = tmp_path / "data" / f"node-{killed}.properties"
        assert line[1] == f"the others serve on; start it again with: tidelog server {file}"

        again = BackgroundCommand(tmp_path / f"node-{killed}.log", "server", str(file))
        try:
            wait_until(
                lambda: set(admin.describe_topics([TOPIC])[TOPIC].partitions[0].isr) == {1, 2, 3}, "all are in sync"
            )
            lineages = admin.describe_lineages([PARTITION])[PARTITION]
            # An epoch in which nothing was written yet may be known to its leader alone.
            written = {
                node_id: [span for span in each.spans if span.end_offset > span.start_offset]
                for node_id, each in lineages.replicas.items()
            }
            assert [[span[1:] for span in written[node_id]] for node_id in (1, 2, 3)] == [[(0, 1), (1, 2)]] * 3
            assert written[1] == written[2] == written[3]
            assert admin.elect_leaders("preferred", [PARTITION])[PARTITION] is None
            wait_until(lambda: leader() == killed, "it leads again")
            assert again.stop() == 0
        finally:
            again.close()
    assert up.stop() == 0
    ports = up.bootstrap
    once_more = BackgroundCommand(tmp_path / "up.log", "up", "--port", "0", "--data", str(tmp_path / "data"), *PROMPT)
    try:
        assert once_more.bootstrap == ports
        assert read(ports, 2) == [b"a", b"b"]
        write(ports, b"c")
        assert once_more.stop() == 0
    finally:
        once_more.close()


def test_the_end_of_all_nodes_is_the_end_of_up(up: BackgroundCommand) -> None:
    for pid in up.pids.values():
        os.kill(pid, signal.SIGKILL)
    assert up.process.wait(STOP_SECONDS_MAX) == 1
    assert up.log.count("was killed by SIGKILL; the others serve on") == 2


def test_a_node_that_cannot_start_ends_them_all(tmp_path: Path, up: BackgroundCommand) -> None:
    port = up.bootstrap.split(",")[1].rpartition(":")[2]
    data = tmp_path / "other"
    ran = subprocess.run(
        [sys.executable, "-m", "tidelog", "up", "-n", "3", "--port", str(int(port) - 1), "--data", str(data)],
        capture_output=True,
        text=True,
        timeout=START_SECONDS_MAX,
        check=False,
    )
    assert ran.returncode == 1
    assert f"cannot listen on 127.0.0.1:{port}" in ran.stderr
    errors = [line for line in ran.stderr.splitlines() if line.startswith("error: ")]
    assert errors == [
        f"error: node 2: listener PLAINTEXT: cannot listen on 127.0.0.1:{port}: Address already in use; "
        "give it another port, or stop what uses it"
    ]

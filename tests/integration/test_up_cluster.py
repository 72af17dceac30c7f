"""`tidelog up --nodes 3` as whoever starts it sees it: its lines, a node that is killed, and all started again."""

from __future__ import annotations

import os
import re
import selectors
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from support.fixtures.waiting import wait_until
from tidelog import Consumer, Factory, NewTopic, Producer, TopicPartition, UnknownTopicError
from tidelog.base.ids import PartitionIndex

START_SECONDS_MAX = 60.0
STOP_SECONDS_MAX = 60.0
TOPIC = "of-three"
PARTITION = TopicPartition(TOPIC, PartitionIndex(0))
PROMPT = ("--config", "broker.session.timeout.ms=4000", "--config", "broker.heartbeat.interval.ms=500")


class Command:
    """A `tidelog` command in the background, up to its `ready` line."""

    def __init__(self, log: Path, *arguments: str) -> None:
        self.log_path = log
        with log.open("ab") as stderr:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "tidelog", *arguments],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=stderr,
            )
        self.said = self._read_until_ready()

    @property
    def log(self) -> str:
        return self.log_path.read_text(errors="replace")

    @property
    def bootstrap(self) -> str:
        match = re.search(r"^ready bootstrap=(\S+)$", self.said, re.MULTILINE)
        assert match is not None, self.said
        return match[1]

    @property
    def pids(self) -> dict[int, int]:
        """Of the nodes, by their ids."""
        return {int(node): int(pid) for node, pid in re.findall(r"^node id=(\d+) pid=(\d+)", self.said, re.MULTILINE)}

    def stop(self) -> int:
        """SIGTERM; returns the exit status."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(STOP_SECONDS_MAX)

    def close(self) -> None:
        """Leave nothing running: nodes go with `up`, when it is told, or dies."""
        if self.process.poll() is None:
            self.process.terminate()
            with suppress(subprocess.TimeoutExpired):
                self.process.wait(STOP_SECONDS_MAX)
            self.process.kill()
            self.process.wait()
        assert self.process.stdout is not None
        self.process.stdout.close()

    def _read_until_ready(self) -> str:
        assert self.process.stdout is not None
        said, deadline = b"", time.monotonic() + START_SECONDS_MAX
        with selectors.DefaultSelector() as selector:
            selector.register(self.process.stdout, selectors.EVENT_READ)
            while not re.search(rb"^ready bootstrap=\S+\n", said, re.MULTILINE):
                piece = b""
                if selector.select(max(0.0, deadline - time.monotonic())):
                    piece = os.read(self.process.stdout.fileno(), 65_536)
                if not piece:
                    self.close()
                    raise AssertionError(f"not ready: {said.decode()}{self.log[-2_000:]}")
                said += piece
        return said.decode()


@pytest.fixture
def up(tmp_path: Path) -> Iterator[Command]:
    started = Command(
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


def test_three_nodes_are_one_cluster_that_lives_through_the_end_of_each_and_of_all(tmp_path: Path, up: Command) -> None:
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

        again = Command(tmp_path / f"node-{killed}.log", "server", str(file))
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
    once_more = Command(tmp_path / "up.log", "up", "--port", "0", "--data", str(tmp_path / "data"), *PROMPT)
    try:
        assert once_more.bootstrap == ports
        assert read(ports, 2) == [b"a", b"b"]
        write(ports, b"c")
        assert once_more.stop() == 0
    finally:
        once_more.close()


def test_the_end_of_all_nodes_is_the_end_of_up(up: Command) -> None:
    for pid in up.pids.values():
        os.kill(pid, signal.SIGKILL)
    assert up.process.wait(STOP_SECONDS_MAX) == 1
    assert up.log.count("was killed by SIGKILL; the others serve on") == 2


def test_a_node_that_cannot_start_ends_them_all(tmp_path: Path, up: Command) -> None:
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
    assert re.search(r"^error: node \d \(pid \d+\) ended with status 1; .* before it was ready$", ran.stderr, re.M)

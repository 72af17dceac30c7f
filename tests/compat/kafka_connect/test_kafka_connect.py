"""Kafka Connect writes each line of a file exactly once (`exactly.once.source.support`), though all are killed."""

from __future__ import annotations

import http.client
import json
from collections.abc import Callable
from contextlib import ExitStack
from http import HTTPStatus
from pathlib import Path
from typing import Any, TypeVar

import pytest

from support.clients.committed_reader import CommittedReader
from support.clients.java_program import JavaProgram
from support.clients.kafka_peer import KafkaPeer
from support.fixtures.waiting import wait_until
from support.nodes.cluster import PROMPT, Cluster, ClusterNode
from support.nodes.node import NodeProcess
from tidelog.cli.ports import free_ports
from tidelog.client.admin.admin import Admin
from tidelog.client.admin.descriptions import NewTopic
from tidelog.wire.messages.api_10_find_coordinator import KEY_TYPE_TRANSACTION

T = TypeVar("T")

HOST = "127.0.0.1"
GROUP, CONNECTOR, TARGET, OFFSETS = "connect-workers", "lines-of-a-file", "lines", "connect-offsets"
TRANSACTIONAL_ID = f"{GROUP}-{CONNECTOR}-0"
"""Of the producer of the connector's only task."""

LINES_PER_ACT = 2_000
LINE_LENGTH = 200
"""The connector reads a kilobyte at a time, of which it keeps what is beyond a batch until the file grows."""
BATCH_LINES_MAX = "20"
ENDED_TOO_SOON = "errors.InvalidTxnStateException"
"""Kills a task where Kafka's producer asks for the end of a transaction before it has sent its records."""
WRITE_SECONDS_MAX = 240.0
ASK_SECONDS_MAX = 30.0

SETTINGS = {
    "group.id": GROUP,
    "exactly.once.source.support": "enabled",
    "config.storage.topic": "connect-configs",
    "offset.storage.topic": OFFSETS,
    "status.storage.topic": "connect-status",
    "offset.storage.partitions": "2",
    "status.storage.partitions": "2",
    "key.converter": "org.apache.kafka.connect.storage.StringConverter",
    "value.converter": "org.apache.kafka.connect.storage.StringConverter",
    "scheduled.rebalance.max.delay.ms": "0",
    "plugin.discovery": "service_load",
}


class Worker(JavaProgram):
    """A distributed worker.

    Attributes:
        port: of its REST API; its name in the group is `127.0.0.1:PORT`.
    """

    def __init__(self, home: Path, settings: dict[str, str]) -> None:
        (self.port,) = free_ports(HOST, [None])
        properties = home / f"worker-{self.port}.properties"
        given = SETTINGS | settings | {"listeners": f"http://{HOST}:{self.port}"}
        properties.write_text("".join(f"{key}={value}\n" for key, value in given.items()))
        arguments = ["org.apache.kafka.connect.cli.ConnectDistributed", str(properties)]
        super().__init__(arguments, home / f"worker-{self.port}.log")

    def ask(self, method: str, path: str, body: dict[str, str] | None = None) -> Any:
        """What its REST API answers; None while it has no answer, or none yet."""
        connection = http.client.HTTPConnection(HOST, self.port, timeout=ASK_SECONDS_MAX)
        try:
            connection.request(method, path, json.dumps(body) if body else None, {"Content-Type": "application/json"})
            answer = connection.getresponse()
            return json.loads(answer.read()) if answer.status in (HTTPStatus.OK, HTTPStatus.CREATED) else None
        except (OSError, http.client.HTTPException):
            return None
        finally:
            connection.close()


class Lines:
    """Workers that write the lines of a file into a topic. Use as a context: they end with that.

    Args:
        home: where the file is, and what the workers say.
        settings: of the workers, on top of those of all tests.

    Attributes:
        written: how many lines the file has.
        reader: of the topic, all the time.
    """

    def __init__(self, bootstrap: str, home: Path, workers: int, **settings: str) -> None:
        self._bootstrap = bootstrap
        own = {"bootstrap.servers": bootstrap} | {key.replace("_", "."): value for key, value in settings.items()}
        self.workers = [Worker(home, own) for _ in range(workers)]
        self.written = 0
        self.reader = CommittedReader(bootstrap, TARGET)
        self._file = home / "lines.txt"
        self._all = ExitStack()

    def __enter__(self) -> Lines:
        with self._all:
            for worker in self.workers:
                self._all.enter_context(worker)
            self._all.enter_context(self.reader)
            self._file.touch()
            self._all = self._all.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._all.close()

    def configure(self, **settings: str) -> None:
        """Create the connector, or give it other settings (with `_` for `.`), by the first worker."""
        configured = {
            "connector.class": "FileStreamSource",
            "file": str(self._file),
            "topic": TARGET,
            "tasks.max": "1",
            "exactly.once.support": "required",
        } | {key.replace("_", "."): value for key, value in settings.items()}
        path = f"/connectors/{CONNECTOR}/config"
        self._wait(lambda: self.workers[0].ask("PUT", path, configured), lambda: "the worker takes no connector")

    def append(self) -> None:
        """Append the lines of an act to the file."""
        with self._file.open("ab") as file:
            file.writelines(b"%s\n" % _line(self.written + number) for number in range(LINES_PER_ACT))
        self.written += LINES_PER_ACT

    def append_until_open(self) -> None:
        """Append lines until a transaction with some of them is open, and more are to come."""
        is_open = False
        while not is_open:
            self.append()
            self._wait(lambda: self.reader.is_open() or self.is_written(), self._how_many)
            is_open = not self.is_written()

    def is_written(self) -> bool:
        """Whether all lines are committed in the topic."""
        return self.reader.count() >= self.written

    def wait_until_written(self) -> None:
        self._wait(self.is_written, self._how_many)

    def worker_of_the_task(self) -> Worker:
        """Which worker runs it, as some worker says; waits until one does."""

        def running() -> Worker | None:
            for asked in self.workers:
                for task in (asked.ask("GET", f"/connectors/{CONNECTOR}/status") or {"tasks": []})["tasks"]:
                    if task["state"] == "RUNNING":
                        port = int(task["worker_id"].rpartition(":")[2])
                        return next(worker for worker in self.workers if worker.port == port)
            return None

        worker = self._wait(running, lambda: "the task does not run")
        assert worker is not None
        return worker

    def check(self) -> None:
        """Raises AssertionError unless the topic has each line of the file once, in order."""
        self.wait_until_written()
        (records,) = self.reader.read_again()
        assert [record.value for record in records] == [_line(number) for number in range(self.written)]
        with Admin(self._bootstrap) as admin:
            assert not admin.find_hanging_transactions(idle_ms_min=None)

    def _restart_what_ended_too_soon(self, asked: Worker) -> None:
        """Restart the task if its producer ended a transaction before its records were sent (FINDINGS.md)."""
        for task in (asked.ask("GET", f"/connectors/{CONNECTOR}/status") or {"tasks": []})["tasks"]:
            if task["state"] == "FAILED" and ENDED_TOO_SOON in task["trace"]:
                asked.ask("POST", f"/connectors/{CONNECTOR}/tasks/{task['id']}/restart")

    def _how_many(self) -> str:
        return f"{self.reader.count()} of {self.written} lines are written"

    def _wait(self, condition: Callable[[], T], what: Callable[[], str]) -> T:
        def is_so() -> T:
            for worker in self.workers:
                worker.check()
                if ENDED_TOO_SOON in worker.said:
                    self._restart_what_ended_too_soon(worker)
            return condition()

        def how_it_is() -> str:
            return "\n".join([what(), *(worker.said for worker in self.workers)])

        return wait_until(is_so, how_it_is, seconds=WRITE_SECONDS_MAX)


def _line(number: int) -> bytes:
    return b"%d" % number + b" " * LINE_LENGTH


ROLES: dict[str, Callable[[Cluster], ClusterNode]] = {
    "the leader of the output": lambda cluster: cluster.leader_of(TARGET),
    "the leader of the offsets": lambda cluster: cluster.leader_of(OFFSETS),
    "the coordinator of the transaction": lambda cluster: cluster.coordinator_of(
        TRANSACTIONAL_ID, key_type=KEY_TYPE_TRANSACTION
    ),
    "the coordinator of the workers": lambda cluster: cluster.coordinator_of(GROUP),
}


@pytest.mark.timeout(600)
def test_each_line_is_written_once_though_all_are_killed(
    broker_to_kill: NodeProcess | KafkaPeer, tmp_path: Path
) -> None:
    """In short: one worker, which fences its task's producer when the connector gets other settings."""
    broker = broker_to_kill
    with Admin(broker.bootstrap) as admin:
        admin.create_topics([NewTopic(TARGET, 1, 1)])
    factors = {f"{topic}_storage_replication_factor": "1" for topic in ("config", "offset", "status")}
    times = {"session_timeout_ms": "3000", "heartbeat_interval_ms": "300"}
    with Lines(broker.bootstrap, tmp_path, 1, **factors, **times) as lines:
        lines.configure(batch_size=BATCH_LINES_MAX)
        lines.append_until_open()
        broker.kill()
        broker.start()
        lines.wait_until_written()
        lines.configure(transaction_boundary="interval", transaction_boundary_interval_ms="500")
        lines.append_until_open()
        (worker,) = lines.workers
        worker.kill()
        worker.start()
        lines.append()
        lines.check()


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_each_line_is_written_once_whoever_dies(tmp_path: Path) -> None:
    """Two workers on three nodes."""
    config = PROMPT | {"transaction.state.log.num.partitions": "4", "group.initial.rebalance.delay.ms": "0"}
    cluster = Cluster(tmp_path / "data", config=config)
    try:
        cluster.start()
        cluster.create_topic(TARGET)
        with Lines(cluster.bootstrap, tmp_path, 2, session_timeout_ms="6000") as lines:
            lines.configure(batch_size=BATCH_LINES_MAX)
            lines.append()
            lines.wait_until_written()
            for found in ROLES.values():
                node = found(cluster)
                lines.append_until_open()
                node.kill()
                lines.wait_until_written()
                node.start()
                for topic in (TARGET, OFFSETS):
                    cluster.wait_until_in_sync(topic)
            lines.configure(transaction_boundary="interval", transaction_boundary_interval_ms="500")
            lines.append_until_open()
            worker = lines.worker_of_the_task()
            worker.kill()
            worker.start()
            lines.append()
            lines.check()
        cluster.check_logs()
    finally:
        cluster.close()

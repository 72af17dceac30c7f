"""A node that does everything at once is killed at random moments, and at last stopped: what it acknowledged is so."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Protocol

import pytest

from support.clients.admin_requests import change as change_configs
from support.clients.admin_requests import delete_records, described, grow, set_to
from support.clients.wire_client import WireClient, batch_of
from support.load.group_member import GroupMember, commit, commit_request, committed_of, wait_for_coordinator
from support.nodes.node import NodeProcess
from tidelog.base.errors import Code
from tidelog.wire import ApiKey
from tidelog.wire.messages.api_20_delete_topics import DeleteTopicsRequest, DeleteTopicsResponse, DeleteTopicState

KILLS = 4
PARTITIONS = 4
TOPICS_KEPT = 4
SESSION_TIMEOUT_MS = 300
BATCHES_MAX = 2_000  # between one kill and the next
WORK_SECONDS_MAX = 60.0
UNDECIDED = frozenset({Code.NOT_COORDINATOR, Code.COORDINATOR_LOAD_IN_PROGRESS, Code.COORDINATOR_NOT_AVAILABLE})


Until = Callable[[Callable[[], bool]], None]


class Worker(Protocol):
    """Asks one thing after the other, and remembers what was acknowledged."""

    def step(self, client: WireClient) -> None:
        """Ask once more. A `ConnectionError` may come of it: then nobody knows whether it was done."""
        ...

    def check(self, client: WireClient) -> None: ...


class Appends:
    """Single batches with acks=all, and now and then a deletion of the oldest."""

    def __init__(self, topic: str, partition: int) -> None:
        self.topic, self.partition = topic, partition
        self.kept: dict[int, bytes] = {}
        self.count = 0
        self.log_start = 0

    def step(self, client: WireClient) -> None:
        self.count += 1
        value = b"%d of %d" % (self.count, self.partition)
        row = client.produce(self.topic, batch_of(value), partition=self.partition, acks=-1)
        if row.error_code == 0:
            self.kept[row.base_offset] = value
        if self.count % 200 == 0:
            deleted = delete_records(client, self.topic, max(self.kept) - 100, partition=self.partition)
            if deleted.error_code == 0:
                self.log_start = deleted.low_watermark

    def check(self, client: WireClient) -> None:
        start = client.list_offset(self.topic, -2, partition=self.partition).offset
        assert start >= self.log_start
        found = {one.offset: one.value for one in client.read_all(self.topic, partition=self.partition, start=start)}
        for offset, value in self.kept.items():
            assert offset < start or found.get(offset) == value, f"{self.topic}-{self.partition} offset {offset}"


class Commits:
    """Offsets of one group, each larger than the one before."""

    def __init__(self, group: str, topic: str) -> None:
        self.group, self.topic = group, topic
        self.asked = 0
        self.kept = 0

    def step(self, client: WireClient) -> None:
        self.asked += 1
        offsets = {(self.topic, index): self.asked for index in range(PARTITIONS)}
        if set(commit(client, commit_request(self.group, offsets)).values()) == {Code.NONE}:
            self.kept = self.asked

    def check(self, client: WireClient) -> None:
        rows = committed_of(client, self.group)
        assert not isinstance(rows, Code), rows.name
        assert self.kept
        for index in range(PARTITIONS):
            assert self.kept <= rows[self.topic, index].committed_offset <= self.asked


class Members:
    """A group that people join and leave all the time."""

    def __init__(self, group: str) -> None:
        self.group = group
        self.count = 0

    def step(self, client: WireClient) -> None:
        member = GroupMember(client.stream.getpeername()[1], self.group, session_timeout_ms=SESSION_TIMEOUT_MS)
        try:
            member.send_join()
            code = member.receive_join()
            assert code in UNDECIDED | {Code.NONE, Code.UNKNOWN_MEMBER_ID}, code.name
            if code == Code.NONE:
                self.count += 1
                member.leave()
        finally:
            member.close()

    def check(self, client: WireClient) -> None:
        assert self.count


class Changes:
    """Topics that come, grow, change and go."""

    def __init__(self) -> None:
        self.count = 0
        self.retention_ms: dict[str, set[int]] = {}
        self.partitions: dict[str, set[int]] = {}
        self.gone: set[str] = set()

    def step(self, client: WireClient) -> None:
        self.count += 1
        topic = f"changed-{self.count}"
        if client.create_topic(topic).error_code:
            return
        self.partitions[topic], self.retention_ms[topic] = {1}, {7 * 86_400_000}
        self.partitions[topic].add(3)
        if grow(client, topic, 3).error_code == 0:
            self.partitions[topic] = {3}
        self.retention_ms[topic].add(self.count)
        change_configs(client, topic, {"retention.ms": set_to(str(self.count))})
        self.retention_ms[topic] = {self.count}
        if self.count > TOPICS_KEPT:
            self._delete(client, f"changed-{self.count - TOPICS_KEPT}")

    def _delete(self, client: WireClient, topic: str) -> None:
        self.partitions.pop(topic, None)
        self.retention_ms.pop(topic, None)
        request = DeleteTopicsRequest(topics=[DeleteTopicState(name=topic)], timeout_ms=10_000)
        (row,) = client.ask(ApiKey.DELETE_TOPICS, 6, request, DeleteTopicsResponse).responses
        if row.error_code in (0, Code.UNKNOWN_TOPIC_OR_PARTITION):
            self.gone.add(topic)

    def check(self, client: WireClient) -> None:
        for topic in self.partitions:
            assert len(client.describe_topic(topic).partitions) in self.partitions[topic], topic
            assert int(described(client, topic)["retention.ms"].value or 0) in self.retention_ms[topic], topic
        assert self.gone
        for topic in self.gone:
            assert client.describe_topic(topic).error_code == Code.UNKNOWN_TOPIC_OR_PARTITION, topic


@contextmanager
def at_work(node: NodeProcess, workers: list[Worker]) -> Iterator[Until]:
    """All of them at once, each on a connection of its own, until the block ends.

    The block gets a function that waits until they have done enough. What failed is raised by it, or at the end.
    """
    ended = threading.Event()
    stepped = threading.Condition()
    failures: list[BaseException] = []

    def work(worker: Worker) -> None:
        while not ended.is_set():
            try:
                with WireClient(node.port) as client:
                    while not ended.is_set():
                        worker.step(client)
                        with stepped:
                            stepped.notify()
            except (ConnectionError, TimeoutError):
                ended.wait(0.01)  # it is killed just now
            except BaseException as error:
                with stepped:
                    failures.append(error)
                    stepped.notify()
                return

    def until(is_enough: Callable[[], bool]) -> None:
        with stepped:
            in_time = stepped.wait_for(lambda: bool(failures) or is_enough(), WORK_SECONDS_MAX)
        if failures:
            raise failures[0]
        assert in_time, f"they did not do enough in {WORK_SECONDS_MAX:.0f} s"

    threads = [threading.Thread(target=work, args=(worker,)) for worker in workers]
    for thread in threads:
        thread.start()
    try:
        yield until
    finally:
        ended.set()
        for thread in threads:
            thread.join()
    if failures:
        raise failures[0]


def for_a_moment(
    until: Until, rng: random.Random, appends: list[Appends], commits: list[Commits], changes: Changes
) -> None:
    """A random number of acknowledged batches, and then until each group's offsets and the topics moved."""
    batches = sum(len(one.kept) for one in appends) + rng.randrange(BATCHES_MAX)
    before, gone = [one.kept for one in commits], len(changes.gone)
    until(
        lambda: (
            sum(len(one.kept) for one in appends) > batches
            and all(one.kept > kept for one, kept in zip(commits, before, strict=True))
            and len(changes.gone) > gone
        )
    )


@pytest.mark.timeout(120)
def test_what_a_busy_node_acknowledged_survives_kills_and_a_stop(node: NodeProcess) -> None:
    node.config |= {"offsets.topic.num.partitions": "4", "group.min.session.timeout.ms": str(SESSION_TIMEOUT_MS)}
    node.restart()
    rng = random.Random(3)
    with WireClient(node.port) as client:
        assert client.create_topic("busy", partitions=PARTITIONS).error_code == 0
        wait_for_coordinator(client, "committing-0")
    appends = [Appends("busy", index) for index in range(PARTITIONS)]
    commits = [Commits(f"committing-{index}", "busy") for index in range(2)]
    changes = Changes()
    workers: list[Worker] = [*appends, *commits, Members("moving"), Members("moving"), changes]
    with at_work(node, workers) as until:
        for _ in range(KILLS):
            for_a_moment(until, rng, appends, commits, changes)
            node.kill()
            node.start()
        for_a_moment(until, rng, appends, commits, changes)
        node.stop()
    assert (node.data_dir / "node-1" / ".kafka_cleanshutdown").exists()
    node.start()
    with WireClient(node.port) as client:
        for commit_worker in commits:
            wait_for_coordinator(client, commit_worker.group)
        for worker in workers:
            worker.check(client)
    assert "Traceback" not in node.log

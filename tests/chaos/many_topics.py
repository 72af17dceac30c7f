"""Hundreds of topics, made, written to and read while a fault is on. The idea is Kafka's `replica_scale_test`."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress

from chaos.nodes import ChaosCluster
from support.fixtures.waiting import wait_until
from support.nodes.cluster import ASK_SECONDS_MAX
from tidelog import Consumer, Producer, TopicPartition
from tidelog.base.errors import TidelogError
from tidelog.base.ids import PartitionIndex
from tidelog.client.admin.admin import Admin
from tidelog.client.admin.descriptions import NewTopic

PARTITIONS = 2
RECORDS = 3
"""In each partition."""
PORTION = 10
"""Topics that are made, and then written to, at a time."""
SECONDS_MAX = 600.0
RETRY_SECONDS = 0.1


class ManyTopics:
    """A thread that makes topics and writes to them; a reader that is to find all that was acknowledged.

    Args:
        name: the beginning of their names.
        count: how many topics.
        replication_factor: of each.

    Attributes:
        done: topics that were made and written to so far.
    """

    def __init__(self, cluster: ChaosCluster, name: str, count: int, *, replication_factor: int) -> None:
        self.done = 0
        self._cluster = cluster
        self._names = [f"{name}-{number}" for number in range(count)]
        self._replication_factor = replication_factor
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def until_done(self, count: int) -> None:
        """Until so many topics are done. Raises what went wrong."""
        deadline = time.monotonic() + SECONDS_MAX
        while self.done < min(count, len(self._names)):
            if self._failure is not None:
                raise self._failure
            assert time.monotonic() < deadline, f"{self.done} of {len(self._names)} topics\n{self._cluster.logs()}"
            time.sleep(0.05)

    def check(self) -> None:
        """Every partition gives what was acknowledged, once and in order. Raises AssertionError."""
        self.until_done(len(self._names))
        self._thread.join()
        partitions = [
            TopicPartition(name, PartitionIndex(index)) for name in self._names for index in range(PARTITIONS)
        ]
        found: dict[TopicPartition, list[bytes | None]] = {one: [] for one in partitions}
        with Consumer(self._cluster.bootstrap, auto_offset_reset="earliest") as consumer:
            consumer.assign(partitions)
            for record in consumer.until_end():
                found[TopicPartition(record.topic, record.partition)].append(record.value)
        wrong = {str(one): values for one, values in found.items() if values != values_of(one)}
        assert not wrong, f"{len(wrong)} of {len(partitions)} partitions, such as {list(wrong.items())[:3]}"

    def delete(self) -> None:
        """Delete all of them. Returns when no node has a log of one."""
        for names in self._portions():
            self._until(names, are_there=False)
        directories = [one for node in self._cluster.nodes.values() for one in node.directories]
        logs = {f"{name}-{index}" for name in self._names for index in range(PARTITIONS)}

        def left() -> set[str]:
            return logs.intersection(one.name for directory in directories for one in directory.iterdir())

        wait_until(lambda: not left(), lambda: f"deleted, and still there: {left()}\n{self._cluster.logs()}")

    def _portions(self) -> Iterator[list[str]]:
        return (self._names[first : first + PORTION] for first in range(0, len(self._names), PORTION))

    def _run(self) -> None:
        try:
            with Producer(self._cluster.bootstrap, delivery_timeout_ms=int(SECONDS_MAX * 1_000)) as producer:
                for names in self._portions():
                    self._until(names, are_there=True)
                    partitions = [
                        TopicPartition(name, PartitionIndex(index)) for name in names for index in range(PARTITIONS)
                    ]
                    futures = [
                        producer.send(one.topic, value, partition=one.partition)
                        for one in partitions
                        for value in values_of(one)
                    ]
                    for future in futures:
                        future.result(SECONDS_MAX)
                    self.done += len(names)
        except BaseException as error:
            self._failure = error

    def _until(self, names: Sequence[str], *, are_there: bool) -> None:
        """Have them made, or deleted: whatever answers are lost, and as soon as somebody decides."""
        deadline = time.monotonic() + SECONDS_MAX
        while True:
            with suppress(TidelogError), self._admin() as admin:
                there = {listing.name for listing in admin.list_topics()}
                wanted = [name for name in names if (name in there) != are_there]
                if not wanted:
                    return
                if are_there:
                    admin.create_topics([NewTopic(name, PARTITIONS, self._replication_factor) for name in wanted])
                else:
                    admin.delete_topics(wanted)
            assert time.monotonic() < deadline, f"{names}: nobody decides\n{self._cluster.logs()}"
            time.sleep(RETRY_SECONDS)

    def _admin(self) -> Admin:
        return Admin(self._cluster.bootstrap, default_api_timeout_ms=int(ASK_SECONDS_MAX * 1_000))


def values_of(partition: TopicPartition) -> list[bytes]:
    """What is written to it, in this order."""
    return [f"{partition} {number}".encode() for number in range(RECORDS)]

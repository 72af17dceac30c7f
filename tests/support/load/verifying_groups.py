"""Members of a group that remember: what they were given, and which of their commits were acknowledged."""

from __future__ import annotations

import json
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial

import confluent_kafka
from confluent_kafka import KafkaError, KafkaException, TopicPartition

from support.load.group_members.told import WITHOUT_OFFSETS
from support.load.histories import History, RecordId
from support.load.verifying_clients import PASSING, POLL_SECONDS

READ_SECONDS_MAX = 60.0
SESSION_MS = 6_000
STATISTICS_MS = 2_000
ELSEWHERE = (
    KafkaError.NOT_COORDINATOR,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
)
"""librdkafka tells of a coordinator that moved, and looks for the new one."""


class VerifyingGroup:
    """Members that subscribe to one topic, read, and commit after everything they were given. Each has a thread.

    Attributes:
        given: every record that any member was given.
        committed: per partition, the highest offset of which the commit was acknowledged.
        commits: how many were.
        stalls: what each member was told that had to join again, since librdkafka asks for offsets only once.
        ended: is set when the members are to leave.
    """

    def __init__(self, bootstrap: str, group: str, topic: str, members: int) -> None:
        self.given: set[RecordId] = set()
        self.committed: dict[int, int] = {}
        self.commits = 0
        self.stalls: list[str] = []
        self._config = {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "session.timeout.ms": SESSION_MS,
            "heartbeat.interval.ms": 200,
            "fetch.wait.max.ms": 100,
            "reconnect.backoff.max.ms": 200,
        }
        self._topic = topic
        self.ended = threading.Event()
        self._progress = threading.Condition()
        self._failures: list[BaseException] = []
        self._members: dict[int, dict[str, str]] = {}  # what each last said of its states
        self._threads = [threading.Thread(target=self._run, args=(index,)) for index in range(members)]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def until_committed(self, count: int) -> None:
        """Wait for so many more acknowledged commits, from now on. Raises AssertionError if they do not come."""
        wanted = self.commits + count
        self._wait(lambda: self.commits >= wanted, f"{wanted} commits")

    def check(self, history: History, partitions: int, *, seconds: float = READ_SECONDS_MAX) -> None:
        """Wait until the members were given every acknowledged record; then compare what the coordinator has kept.

        A record may have been given more than once: whoever takes over goes on from the last commit.

        Raises:
            AssertionError: a record is missing, or a commit that was acknowledged is gone.
        """
        try:
            self._wait(lambda: self.given >= history.acknowledged.keys(), "every acknowledged record", seconds)
        except AssertionError as error:
            missing = sorted(history.acknowledged.keys() - self.given)
            by_partition = dict(Counter(record.partition for record in missing))
            raise AssertionError(
                f"{len(missing)} records were given to nobody, by partition {by_partition}, as {missing[:3]}; "
                f"committed {self.committed}; members {self._members}; members that joined again {self.stalls}"
            ) from error
        self.end()
        consumer = confluent_kafka.Consumer(self._config)
        try:
            asked = [TopicPartition(self._topic, index) for index in range(partitions)]
            kept = {one.partition: one.offset for one in consumer.committed(asked, timeout=READ_SECONDS_MAX)}
        finally:
            consumer.close()
        lost = {index: (offset, kept[index]) for index, offset in self.committed.items() if kept[index] < offset}
        assert not lost, f"acknowledged commits are gone: partition to (acknowledged, kept) {lost}"

    def end(self) -> None:
        """Let the members leave."""
        self.ended.set()
        for thread in self._threads:
            thread.join()

    def _run(self, member: int) -> None:
        try:
            self._consume(member)
        except BaseException as error:
            with self._progress:
                self._failures.append(error)
                self._progress.notify_all()

    def _consume(self, member: int) -> None:
        statistics = {"statistics.interval.ms": STATISTICS_MS, "stats_cb": partial(self._note_states, member)}
        consumer = confluent_kafka.Consumer(self._config | statistics)
        consumer.subscribe([self._topic])
        try:
            while not self.ended.is_set():
                found = consumer.consume(1_000, timeout=POLL_SECONDS)
                for message in found:
                    error = message.error()
                    if error is None:
                        record = RecordId.of(message.value())
                        assert record is not None, message.value()
                        self.given.add(record)
                    elif error.str().startswith(WITHOUT_OFFSETS):
                        self.stalls.append(error.str())
                        consumer.unsubscribe()
                        consumer.subscribe([self._topic])
                    elif not (error.retriable() or error.code() in (*PASSING, *ELSEWHERE)):
                        raise KafkaException(error)
                if found:
                    self._commit(consumer)
        finally:
            consumer.close()

    def _note_states(self, member: int, statistics: str) -> None:
        """Of its group, and of each partition that it reads, as librdkafka calls them."""
        known = json.loads(statistics)
        partitions = known["topics"].get(self._topic, {"partitions": {}})["partitions"]
        self._members[member] = {"group": f"{known['cgrp']['state']}, {known['cgrp']['join_state']}"} | {
            index: f"{one['fetch_state']} at {one['next_offset']}"
            for index, one in partitions.items()
            if one["fetch_state"] != "none"
        }

    def _commit(self, consumer: confluent_kafka.Consumer) -> None:
        """What is refused, or not answered, promises nothing: the records are given again, to whoever is next."""
        try:
            places = consumer.commit(asynchronous=False)
        except KafkaException:
            return
        with self._progress:
            for place in places or ():
                if place.error is None:
                    self.committed[place.partition] = max(self.committed.get(place.partition, 0), place.offset)
            self.commits += 1
            self._progress.notify_all()

    def _wait(self, is_so: Callable[[], bool], what: str, seconds: float = READ_SECONDS_MAX) -> None:
        deadline = time.monotonic() + seconds
        with self._progress:
            while not self._failures and not is_so():
                left = deadline - time.monotonic()
                assert left > 0, f"not after {seconds:.0f} s: {what}; commits: {self.commits}"
                self._progress.wait(min(left, 0.2))
        if self._failures:
            raise self._failures[0]


@contextmanager
def verifying_group(bootstrap: str, group: str, topic: str, *, members: int = 2) -> Iterator[VerifyingGroup]:
    """A group that has begun to commit. It ends with the block."""
    running = VerifyingGroup(bootstrap, group, topic, members)
    running.start()
    try:
        running.until_committed(1)
        yield running
    finally:
        running.end()

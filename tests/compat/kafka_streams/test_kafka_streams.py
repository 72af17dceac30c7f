"""Kafka Streams counts exactly once (`exactly_once_v2`), though nodes and instances are killed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import confluent_kafka
import pytest

from support.clients.committed_reader import CommittedReader
from support.clients.confluent import DEADLINE_SECONDS
from support.clients.java_classes import compiled
from support.clients.java_program import JavaProgram
from support.clients.kafka_peer import KafkaPeer
from support.fixtures.waiting import wait_until
from support.nodes.cluster import PROMPT, Cluster, ClusterNode
from support.nodes.node import NodeProcess
from tidelog.client.admin.admin import Admin
from tidelog.client.admin.descriptions import NewTopic
from tidelog.wire.messages.api_10_find_coordinator import KEY_TYPE_TRANSACTION

PROGRAM = Path(__file__).parent / "WordCounts.java"
NAME, SOURCE, TARGET, CHANGELOG = "word-counts", "words", "counts", "word-counts-counts-changelog"
PARTITIONS = 3
WORDS = 40
WORDS_PER_ACT = 600
COUNT_SECONDS_MAX = 240.0

SETTINGS = {
    "application.id": NAME,
    "processing.guarantee": "exactly_once_v2",
    "statestore.cache.max.bytes": "0",  # it would keep counts back that others follow within a transaction
    "commit.interval.ms": "500",
}
IN_MEMORY = "org.apache.kafka.streams.state.BuiltInDslStoreSuppliers$InMemoryDslStoreSuppliers"


class WordCounts:
    """Instances of one application that counts the words of a topic. Use as a context: they end with that.

    Args:
        home: where their states are, and what they say.
        settings: of Streams, on top of those of all tests.

    Attributes:
        instances: JVMs of their own.
        written: how often each word was written.
        reader: of the counts, all the time.
    """

    def __init__(self, bootstrap: str, home: Path, instances: int, **settings: str) -> None:
        self._bootstrap = bootstrap
        own = {"bootstrap.servers": bootstrap} | {key.replace("_", "."): value for key, value in settings.items()}
        self.instances = []
        for number in range(instances):
            given = SETTINGS | own | {"state.dir": str(home / f"state-{number}")}
            libraries = f"-Djava.io.tmpdir={home}"  # where RocksDB unpacks its own; a killed process leaves it there
            arguments = [libraries, PROGRAM.stem, SOURCE, TARGET, *(f"{key}={value}" for key, value in given.items())]
            self.instances.append(JavaProgram(arguments, home / f"instance-{number}.log", classes=compiled(PROGRAM)))
        self.written: Counter[bytes] = Counter()
        self.reader = CommittedReader(bootstrap, TARGET, PARTITIONS)
        self._producer = confluent_kafka.Producer(
            {"bootstrap.servers": bootstrap, "enable.idempotence": True, "linger.ms": 5, "log_level": 0}
        )
        self._all = ExitStack()

    def __enter__(self) -> WordCounts:
        with self._all:
            for instance in self.instances:
                self._all.enter_context(instance)
            self._all.enter_context(self.reader)
            self._all = self._all.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._all.close()

    def write(self) -> None:
        """Write the words of an act; returns when all are acknowledged."""
        failed: list[object] = []
        for number in range(WORDS_PER_ACT):
            word = b"word %d" % (number % WORDS)
            self.written[word] += 1
            self._producer.produce(SOURCE, word, on_delivery=lambda error, _: failed.append(error) if error else None)
        assert self._producer.flush(DEADLINE_SECONDS) == 0
        assert not failed, failed

    def write_until_open(self) -> None:
        """Write words until a transaction that holds counts is open."""
        is_open = False
        while not is_open:
            self.write()
            self._wait(lambda: self.reader.is_open() or self.is_counted())
            is_open = not self.is_counted()

    def is_counted(self) -> bool:
        """Whether all counts are committed."""
        return self.reader.count() >= self.written.total()

    def wait_until_counted(self) -> None:
        self._wait(self.is_counted)

    def _wait(self, condition: Callable[[], bool]) -> None:
        def is_so() -> bool:
            for instance in self.instances:
                instance.check()
            return condition()

        def how_it_is() -> str:
            counted = f"{self.reader.count()} of {self.written.total()} words are counted"
            return "\n".join([counted, *(instance.said for instance in self.instances)])

        wait_until(is_so, how_it_is, seconds=COUNT_SECONDS_MAX)

    def check(self) -> None:
        """Raises AssertionError unless each word was counted 1, 2, 3 and so on, and every one of it."""
        self.wait_until_counted()
        found: dict[bytes, list[int]] = {}
        for records in self.reader.read_again():
            for record in records:
                assert record.key is not None
                assert record.value is not None
                found.setdefault(record.key, []).append(int(record.value))
        assert found == {word: list(range(1, count + 1)) for word, count in self.written.items()}
        with Admin(self._bootstrap) as admin:
            assert not admin.find_hanging_transactions(idle_ms_min=None)


def a_transaction(cluster: Cluster) -> str:
    """The transactional id of a thread of some instance: it has the process's number in it."""
    with Admin(cluster.bootstrap) as admin:
        return admin.list_transactions()[0].transactional_id


ROLES: dict[str, Callable[[Cluster], ClusterNode]] = {
    "the leader of an output": lambda cluster: cluster.leader_of(TARGET),
    "the leader of a changelog": lambda cluster: cluster.leader_of(CHANGELOG),
    "the coordinator of a transaction": lambda cluster: cluster.coordinator_of(
        a_transaction(cluster), key_type=KEY_TYPE_TRANSACTION
    ),
    "the coordinator of the group": lambda cluster: cluster.coordinator_of(NAME),
}


@pytest.mark.timeout(600)
def test_each_word_counts_once_though_all_are_killed(broker_to_kill: NodeProcess | KafkaPeer, tmp_path: Path) -> None:
    """In short: one instance, whose state is in memory."""
    broker = broker_to_kill
    with Admin(broker.bootstrap) as admin:
        admin.create_topics([NewTopic(SOURCE, PARTITIONS, 1), NewTopic(TARGET, PARTITIONS, 1)])
    settings = {"dsl_store_suppliers_class": IN_MEMORY, "session_timeout_ms": "3000", "heartbeat_interval_ms": "300"}
    with WordCounts(broker.bootstrap, tmp_path, 1, **settings) as counts:
        counts.write_until_open()
        broker.kill()
        broker.start()
        counts.wait_until_counted()
        counts.write_until_open()
        (instance,) = counts.instances
        instance.kill()
        instance.start()
        counts.write()
        counts.check()


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_each_word_counts_once_whoever_dies(tmp_path: Path) -> None:
    """Two instances on three nodes, with states on disk."""
    config = PROMPT | {"transaction.state.log.num.partitions": "4", "group.initial.rebalance.delay.ms": "0"}
    cluster = Cluster(tmp_path / "data", config=config)
    try:
        cluster.start()
        for topic in (SOURCE, TARGET):
            cluster.create_topic(topic, PARTITIONS)
        with WordCounts(cluster.bootstrap, tmp_path, 2, session_timeout_ms="6000") as counts:
            counts.write()
            counts.wait_until_counted()
            for found in ROLES.values():
                node = found(cluster)
                counts.write_until_open()
                node.kill()
                counts.wait_until_counted()
                node.start()
                for topic in (SOURCE, TARGET, CHANGELOG):
                    cluster.wait_until_in_sync(topic)
            counts.write_until_open()
            counts.instances[0].kill()
            counts.instances[0].start()
            counts.write()
            counts.check()
        cluster.check_logs()
    finally:
        cluster.close()

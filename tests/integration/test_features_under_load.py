"""Features go up, release by release, and down again, while clients write, read, commit and hold transactions."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import confluent_kafka
import pytest

from support.clients.confluent import learn_topic, new_producer, read_from
from support.clients.wire_client import WireClient
from support.fixtures.waiting import wait_until
from support.load.verifying import PAUSE_SECONDS, verifying_load
from support.load.verifying_groups import verifying_group
from support.nodes.cluster_process import ClusterProcesses
from tidelog import Admin
from tidelog.base.errors import Code
from tidelog.client.admin.cluster_descriptions import FeatureUpdate
from tidelog.metadata.features import METADATA_VERSION_FEATURE, metadata_version_named, release_levels

PARTITIONS = 2
RECORDS = 30  # of each producer, between one change and the next
FIRST = {"metadata.version": 22, "transaction.version": 0, "group.version": 0}


class Transactions:
    """Transactions of one record in each partition; every third one is aborted.

    Attributes:
        committed: the numbers of those whose commit was acknowledged.
        aborted: of those whose abort was.
    """

    def __init__(self, bootstrap: str, topic: str) -> None:
        self.committed: list[int] = []
        self.aborted: list[int] = []
        self._topic = topic
        self._producer = new_producer(bootstrap, **{"transactional.id": "under-load", "transaction.timeout.ms": 30_000})
        self._moved = threading.Condition()
        self._failure: BaseException | None = None
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._run)

    @contextmanager
    def running(self) -> Iterator[None]:
        self._producer.init_transactions(30)
        learn_topic(self._producer, self._topic)
        self._thread.start()
        try:
            yield
        finally:
            self._ends.set()
            self._thread.join()
        if self._failure is not None:
            raise self._failure

    def until_committed(self, count: int) -> None:
        """So many more."""
        wanted = len(self.committed) + count
        with self._moved:
            in_time = self._moved.wait_for(lambda: self._failure is not None or len(self.committed) >= wanted, 60)
        assert in_time, f"{len(self.committed)} of {wanted} transactions were committed"
        assert self._failure is None

    def _run(self) -> None:
        number = 0
        try:
            while not self._ends.is_set():
                self._once(number)
                number += 1
                self._ends.wait(PAUSE_SECONDS)
        except BaseException as error:
            self._failure = error
        with self._moved:
            self._moved.notify_all()

    def _once(self, number: int) -> None:
        self._producer.begin_transaction()
        for partition in range(PARTITIONS):
            self._producer.produce(self._topic, b"%d" % number, partition=partition)
        is_committed = number % 3 != 0
        end = self._producer.commit_transaction if is_committed else self._producer.abort_transaction
        while True:
            try:
                end(30)
                break
            except confluent_kafka.KafkaException as error:
                if not error.args[0].retriable():
                    raise
        with self._moved:
            (self.committed if is_committed else self.aborted).append(number)
            self._moved.notify_all()


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[ClusterProcesses]:
    """At a level of before eligible leaders, directories aside, and with none of the features that came later."""
    with ClusterProcesses(tmp_path, features=FIRST) as cluster:
        yield cluster


def set_levels(bootstrap: str, levels: dict[str, int], *, is_upgrade: bool) -> None:
    kind = "upgrade" if is_upgrade else "unsafe downgrade"
    with Admin(bootstrap) as admin:
        admin.update_features({name: FeatureUpdate(level, kind) for name, level in levels.items()})  # type: ignore[arg-type]
        found = {name: one.level or 0 for name, one in admin.describe_features().items()}
    assert levels.items() <= found.items()


def of_release(name: str) -> dict[str, int]:
    level = metadata_version_named(name)
    assert level is not None
    return release_levels(level)


def test_no_client_notices_that_levels_change(cluster: ClusterProcesses) -> None:
    bootstrap = cluster.bootstrap
    with WireClient(cluster.nodes[1].port) as client:
        for topic in ("records", "transactions"):
            created = client.create_topic(
                topic, partitions=PARTITIONS, replication_factor=3, configs={"min.insync.replicas": "2"}
            )
            assert created.error_code == Code.NONE
            wait_until(lambda topic=topic: client.describe_topic(topic).error_code == 0, "it is there")  # type: ignore[misc]
    transactions = Transactions(bootstrap, "transactions")
    lowered = {"metadata.version": 25, "eligible.leader.replicas.version": 0, "transaction.version": 0}
    steps = [
        *((of_release(name), True) for name in ("4.0", "4.1", "4.2", "4.3")),
        (lowered, False),
        ({**of_release("4.3"), "kraft.version": 1}, True),
    ]
    with (
        verifying_load(bootstrap, "records", PARTITIONS) as load,
        verifying_group(bootstrap, "readers", "records") as group,
        transactions.running(),
    ):
        for levels, is_upgrade in steps:
            set_levels(cluster.nodes[2].bootstrap, levels, is_upgrade=is_upgrade)
            load.until_acknowledged(RECORDS)
            transactions.until_committed(3)
            group.until_committed(3)
            if levels[METADATA_VERSION_FEATURE] in (27, 30):
                node = cluster.nodes[3]
                node.stop()
                node.start()
        history = load.finish()
        group.check(history, PARTITIONS)
    history.check()
    assert not history.failed
    assert not history.reported
    for partition in range(PARTITIONS):
        found = read_from(bootstrap, "transactions", partition=partition, isolation_level="read_committed")
        assert Counter(int(one.value or b"") for one in found) == Counter(transactions.committed)

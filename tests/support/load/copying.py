"""A topic is copied into another in transactions, while nodes and the copier are killed: each input counts once."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from pathlib import Path

import confluent_kafka

from support.clients.confluent import read_from
from support.fixtures.waiting import wait_until
from support.nodes.cluster import PROMPT, Cluster, ClusterNode
from tidelog.base.errors import TidelogError
from tidelog.client.admin.admin import Admin
from tidelog.wire.messages.api_10_find_coordinator import KEY_TYPE_TRANSACTION

__all__ = ["ROLES", "Copying", "copy_while_nodes_are_killed", "python_copier"]

PARTITIONS = 3
INPUTS_PER_ACT = 600
INPUTS_BEFORE_A_KILL = 60
COPY_SECONDS_MAX = 120.0
COPIERS_THAT_END_MAX = 12
"""A copier may end where its client cannot go on, and another one takes over; but not for ever."""
WRITE_SECONDS_MAX = 120.0

TESTS = Path(__file__).parents[2]
SOURCE = TESTS.parent / "src"


def python_copier(client: str) -> list[str]:
    """The command of `support/load/copiers/<client>_copier.py`."""
    return [sys.executable, "-W", "ignore", "-m", f"support.load.copiers.{client}_copier"]


class Copying:
    """One copier at a time, in a process of its own. Use as a context: it ends with that.

    Args:
        command: of the copier, without its arguments.
        name: of the group and of the transactional id, and the beginning of the names of both topics.
        home: where what it says is kept.

    Attributes:
        written: the inputs, by partition.
        copiers: how many there were.
        ended: how many of them ended by themselves.
    """

    def __init__(self, cluster: Cluster, command: Sequence[str], name: str, home: Path) -> None:
        self.name, self.source, self.target = name, f"{name}-source", f"{name}-target"
        self.written: list[list[bytes]] = [[] for _ in range(PARTITIONS)]
        self.copiers = 0
        self.ended = 0
        self._cluster = cluster
        self._command = [*command, cluster.bootstrap, self.source, self.target, name]
        self._said = home / f"{name}-copier.log"
        self._process: subprocess.Popen[bytes] | None = None
        self._producer = confluent_kafka.Producer(
            {"bootstrap.servers": cluster.bootstrap, "enable.idempotence": True, "linger.ms": 5}
        )

    def __enter__(self) -> Copying:
        for topic in (self.source, self.target):
            self._cluster.create_topic(topic, PARTITIONS)
        self.replace_ended()
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    def kill(self) -> None:
        """`kill -9` of the copier, if it runs."""
        if self._process is not None:
            self._process.kill()
            self._process.communicate()
            self._process = None

    def write(self, count: int) -> None:
        """Write inputs; returns when all are acknowledged."""
        failed: list[object] = []
        for number in range(count):
            partition = number % PARTITIONS
            value = b"%d-%d" % (partition, len(self.written[partition]))
            self.written[partition].append(value)
            self._producer.produce(
                self.source,
                value,
                partition=partition,
                on_delivery=lambda error, _: failed.append(error) if error else None,
            )
        assert self._producer.flush(WRITE_SECONDS_MAX) == 0
        assert not failed, failed

    def copied(self) -> int:
        """How many inputs the group has committed, at least; a copier that has ended is replaced."""
        self.replace_ended()
        with suppress(TidelogError), Admin(self._cluster.bootstrap, default_api_timeout_ms=5_000) as admin:
            return sum(position.offset for position in admin.list_group_offsets(self.name).values())
        return 0

    def wait_until_copied(self, count: int | None = None) -> None:
        """Until so many inputs are copied (all, by default)."""
        wanted = sum(map(len, self.written)) if count is None else count
        wait_until(
            lambda: self.copied() >= wanted,
            lambda: (
                f"{self.copied()} of {wanted} inputs are copied, by {self.copiers} copiers; the last one:\n"
                f"{self._said.read_text()[-3_000:]}\n{self._cluster.logs()}"
            ),
            seconds=COPY_SECONDS_MAX,
        )

    def check(self) -> None:
        """Raises AssertionError unless readers of what is committed find each input once, in order, and all of them."""
        self.wait_until_copied()
        for partition, wanted in enumerate(self.written):
            found = read_from(
                self._cluster.bootstrap, self.target, partition=partition, isolation_level="read_committed"
            )
            assert [record.value for record in found] == wanted, f"partition {partition} of {self.target}"
        with Admin(self._cluster.bootstrap) as admin:
            assert not admin.find_hanging_transactions(idle_ms_min=None)

    def replace_ended(self) -> None:
        """Start a copier, unless one runs."""
        if self._process is not None:
            if self._process.poll() is None:
                return
            self.kill()
            self.ended += 1
        self.copiers += 1
        assert self.ended <= COPIERS_THAT_END_MAX, f"every copier ends:\n{self._said.read_text()[-3_000:]}"
        with self._said.open("ab") as said:
            self._process = subprocess.Popen(
                self._command,
                stdin=subprocess.PIPE,
                stdout=said,
                stderr=said,
                cwd=TESTS,
                env={**os.environ, "PYTHONPATH": f"{TESTS}{os.pathsep}{SOURCE}"},
            )


ROLES: dict[str, Callable[[Cluster, Copying], ClusterNode]] = {
    "the leader of an output": lambda cluster, copying: cluster.leader_of(copying.target),
    "the coordinator of the transaction": lambda cluster, copying: cluster.coordinator_of(
        copying.name, key_type=KEY_TYPE_TRANSACTION
    ),
    "the coordinator of the group": lambda cluster, copying: cluster.coordinator_of(copying.name),
}


def copy_while_nodes_are_killed(home: Path, command: Sequence[str], name: str, roles: Collection[str] = ROLES) -> None:
    """Three nodes. Those that have these parts in the copy are killed during it, and start again; then the copier is.

    Args:
        roles: some of `ROLES`.
    """
    config = PROMPT | {"transaction.state.log.num.partitions": "4", "group.initial.rebalance.delay.ms": "0"}
    cluster = Cluster(home / "data", config=config)
    try:
        cluster.start()
        with Copying(cluster, command, name, home) as copying:
            copying.write(INPUTS_PER_ACT)
            copying.wait_until_copied(INPUTS_BEFORE_A_KILL)
            for role in roles:
                node, before = ROLES[role](cluster, copying), copying.copied()
                copying.write(INPUTS_PER_ACT)
                copying.wait_until_copied(before + INPUTS_BEFORE_A_KILL)
                node.kill()
                copying.wait_until_copied()
                node.start()
                for topic in (copying.source, copying.target):
                    cluster.wait_until_in_sync(topic)
            before = copying.copied()
            copying.write(INPUTS_PER_ACT)
            copying.wait_until_copied(before + INPUTS_BEFORE_A_KILL)
            copying.kill()
            copying.check()
        cluster.check_logs()
    finally:
        cluster.close()

"""Groups of real processes that share a topic while records come: they join, leave, are killed, and the node too."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from confluent_kafka.admin import AdminClient

from support.clients.confluent import create_topic, new_producer
from support.clients.wire_client import WireClient
from support.fixtures.waiting import wait_until
from support.load.group_members.told import CLASSIC
from support.nodes.node import NodeProcess

__all__ = ["PARTITIONS", "Group", "Load", "Member", "live_through_everything", "wait_until_all"]

PARTITIONS = 6
RECORDS_PER_TURN = 30
TURN_SECONDS = 0.05
WAIT_SECONDS = 40.0
TESTS = Path(__file__).parents[2]
SOURCE = TESTS.parent / "src"


class Load:
    """A producer that writes small records to all partitions until it is told to stop.

    Attributes:
        acknowledged: the offsets that were acknowledged, by partition.
    """

    def __init__(self, node: NodeProcess, topic: str) -> None:
        self.acknowledged: dict[int, set[int]] = {partition: set() for partition in range(PARTITIONS)}
        self._topic = topic
        self._producer = new_producer(
            node.bootstrap, enable_idempotence=True, linger_ms=5, message_timeout_ms=60_000, retry_backoff_ms=50
        )
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._produce)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Return when everything was acknowledged."""
        self._stopping.set()
        self._thread.join()

    def _produce(self) -> None:
        number = 0
        while not self._stopping.is_set():
            for _ in range(RECORDS_PER_TURN):
                self._producer.produce(
                    self._topic, b"%d" % number, partition=number % PARTITIONS, on_delivery=self._on_delivery
                )
                number += 1
            self._producer.poll(0)
            self._stopping.wait(TURN_SECONDS)
        assert self._producer.flush(WAIT_SECONDS) == 0, "records were never acknowledged"

    def _on_delivery(self, error: Any, message: Any) -> None:
        if error is None:
            self.acknowledged[message.partition()].add(message.offset())


def python_member(client: str) -> list[str]:
    """The command of `support/load/group_members/<client>_member.py`."""
    return [sys.executable, "-W", "ignore", "-m", f"support.load.group_members.{client}_member"]


class Member:
    """One member in a process of its own, which speaks as `support/load/group_members/told.py` says.

    Args:
        command: with its arguments.
        said_path: where what it says is kept.
    """

    def __init__(self, command: Sequence[str], said_path: Path) -> None:
        self.said_path = said_path
        with said_path.open("wb") as said, said_path.with_suffix(".err").open("wb") as errors:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=said,
                stderr=errors,
                cwd=TESTS,
                env={**os.environ, "PYTHONPATH": f"{TESTS}{os.pathsep}{SOURCE}"},
            )

    def lines(self) -> list[list[str]]:
        """What it has said so far, in words; a line that is not whole yet is left out."""
        text, _, _ = self.said_path.read_text().rpartition("\n")
        return [line.split() for line in text.splitlines()]

    def errors(self) -> str:
        """Its stderr."""
        return self.said_path.with_suffix(".err").read_text()

    @property
    def owned(self) -> set[int]:
        """The partitions that it has, by what it said last."""
        for words in reversed(self.lines()):
            if words[0] == "owns":
                return {int(one) for one in words[1].split(",")} if len(words) > 1 else set()
        return set()

    @property
    def revocations(self) -> int:
        """How often partitions were taken from it."""
        return sum(words[0] == "revoked" for words in self.lines())

    def read(self) -> list[tuple[int, range]]:
        """(partition, offsets), in the order in which they came."""
        return self.told("read")

    def told(self, what: str) -> list[tuple[int, range]]:
        """(partition, offsets) of which it said this."""
        return [(int(words[1]), range(int(words[2]), int(words[3]) + 1)) for words in self.lines() if words[0] == what]

    def leave(self) -> None:
        """Have it leave its group, and return when it has ended."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        status = self._process.wait(WAIT_SECONDS)
        assert status == 0, f"a member ended with status {status}: {self.errors()}"
        assert self.lines()[-1] == ["closed"]

    @property
    def has_ended(self) -> bool:
        """Whether the process has, by itself or killed."""
        return self._process.poll() is not None

    def kill(self) -> None:
        """`kill -9`, as often as one likes."""
        self._process.kill()
        self._process.wait()
        if self._process.stdin is not None:
            self._process.stdin.close()


@dataclass(slots=True)
class Group:
    """The members of one group, those that have gone included."""

    client: str
    strategy: str
    is_static: bool
    topic: str
    bootstrap: str
    directory: Path
    partitions: int = PARTITIONS
    protocol: str = CLASSIC
    members: list[Member] = field(default_factory=list)
    gone: list[Member] = field(default_factory=list)

    @property
    def name(self) -> str:
        return f"{self.topic}-{self.strategy}{'-static' if self.is_static else ''}"

    def join(self, *, instance: str | None = None) -> Member:
        number = len(self.members) + len(self.gone)
        arguments = [self.bootstrap, self.topic, self.name, self.strategy, "--protocol", self.protocol]
        if self.is_static:
            arguments += ["--instance", instance or f"instance-{number}"]
        command = [*python_member(self.client), *arguments]
        self.members.append(Member(command, self.directory / f"{self.name}-{number}.txt"))
        return self.members[-1]

    def leave(self, member: Member) -> None:
        self._remove(member)
        member.leave()

    def kill(self, member: Member) -> None:
        self._remove(member)
        member.kill()

    def _remove(self, member: Member) -> None:
        self.members.remove(member)
        self.gone.append(member)

    def is_shared(self) -> bool:
        """Whether each partition has one owner, and none has two more than another."""
        parts = [member.owned for member in self.members]
        sizes = [len(part) for part in parts]
        return (
            sum(sizes) == self.partitions
            and set().union(*parts) == set(range(self.partitions))
            and max(sizes) - min(sizes) <= 1
        )

    def read(self) -> dict[int, dict[int, int]]:
        """How often each offset of each partition was read."""
        counts: dict[int, dict[int, int]] = {partition: {} for partition in range(self.partitions)}
        for member in (*self.members, *self.gone):
            for partition, offsets in member.read():
                for offset in offsets:
                    counts[partition][offset] = counts[partition].get(offset, 0) + 1
        return counts

    def read_twice(self) -> list[tuple[int, int]]:
        """(partition, offset) of what was read more than once."""
        return [
            (partition, offset) for partition, counts in self.read().items() for offset, n in counts.items() if n > 1
        ]

    def has_read(self, end_offsets: Mapping[int, int]) -> bool:
        """Whether everything below these offsets was read."""
        counts = self.read()
        return all(counts[partition].keys() >= set(range(end)) for partition, end in end_offsets.items())

    def close(self) -> None:
        for member in (*self.members, *self.gone):
            member.kill()


def wait_until_all(groups: list[Group], condition: Callable[[Group], bool], what: str) -> None:
    """Ask every group until it is so of all of them."""

    def stories() -> str:
        lines = [
            f"{member.said_path.name}: owns {member.owned}, {member.lines()[-3:]}"
            for group in groups
            if not condition(group)
            for member in group.members
        ]
        return "\n".join([what, *lines])

    wait_until(lambda: all(condition(group) for group in groups), stories, seconds=WAIT_SECONDS)


def end_offsets(node: NodeProcess, topic: str) -> dict[int, int]:
    with WireClient(node.port) as client:
        return {one: client.log_end_offset(topic, partition=one) for one in range(PARTITIONS)}


@contextmanager
def under_load(
    node: NodeProcess, topic: str, directory: Path, plans: list[tuple[str, str, bool]]
) -> Iterator[tuple[Load, list[Group]]]:
    """A topic that is written to, and groups of it: (client, strategy, whether its members are static)."""
    create_topic(AdminClient({"bootstrap.servers": node.bootstrap}), topic, PARTITIONS)
    groups = [
        Group(client, strategy, is_static, topic, node.bootstrap, directory) for client, strategy, is_static in plans
    ]
    load = Load(node, topic)
    load.start()
    try:
        yield load, groups
    finally:
        load.stop()
        for group in groups:
            group.close()


def live_through_everything(
    node: NodeProcess, topic: str, directory: Path, plans: list[tuple[str, str, bool]]
) -> list[Group]:
    """Members come, go and die, the node dies, and records come all the while: nothing is lost in any group.

    While all is done in good order nothing is read twice either, and a static member that comes back in time takes
    nothing from the others.
    """
    with under_load(node, topic, directory, plans) as (load, groups):
        for group in groups:
            group.join()
            group.join()
        wait_until_all(groups, Group.is_shared, "two share the partitions")
        for group in groups:
            group.join()
        wait_until_all(groups, Group.is_shared, "three share the partitions")
        _go_on(node, topic, groups)

        before = {group.name: [member.revocations for member in group.members] for group in groups}
        for group in groups:
            group.leave(group.members[2])
            if group.is_static:
                group.join(instance="instance-2")
        wait_until_all(groups, Group.is_shared, "one has gone, or is back")
        _go_on(node, topic, groups)
        for group in groups:
            assert group.read_twice() == [], f"{group.name} read twice, though all was done in good order"
            if group.is_static:
                assert [member.revocations for member in group.members[:2]] == before[group.name][:2]

        node.kill()
        node.start()
        _go_on(node, topic, groups)
        wait_until_all(groups, Group.is_shared, "all partitions have an owner after the node was killed")

        for group in groups:
            group.kill(group.members[0])
        wait_until_all(groups, Group.is_shared, "those that are left share what a dead member had")
        for group in groups:
            group.join()
        wait_until_all(groups, Group.is_shared, "a new member has its share")
        load.stop()
        ends = end_offsets(node, topic)
        wait_until_all(groups, lambda group: group.has_read(ends), "everything is read")
        for partition, offsets in load.acknowledged.items():
            assert offsets == set(range(ends[partition])), "what was acknowledged is what is there"
        for group in groups:
            for member in list(group.members):
                group.leave(member)
            assert group.has_read(ends)
            assert all(offset < ends[partition] for partition, offset in group.read_twice())
        return groups


def _go_on(node: NodeProcess, topic: str, groups: list[Group]) -> None:
    """Each group reads everything that is there now; more comes meanwhile."""
    ends = end_offsets(node, topic)
    wait_until_all(groups, lambda group: group.has_read(ends), f"what was there is read: {ends}")

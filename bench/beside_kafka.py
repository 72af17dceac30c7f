"""What the benchmarks beside Apache Kafka share: both brokers on empty directories, and rounds in turns."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import NamedTuple, Protocol, TypeVar

from harness import LONG, UpProcess, WireClient, cpu_seconds, figure, median, new_node, say, skip

from support.clients.kafka_peer import KafkaPeer, missing_peers
from tidelog.wire import ApiKey
from tidelog.wire.messages.api_20_delete_topics import DeleteTopicsRequest, DeleteTopicsResponse

__all__ = [
    "PEER",
    "QUICK",
    "ROUNDS",
    "HasBootstrap",
    "Ran",
    "Target",
    "both_brokers",
    "compare",
    "in_turns",
    "need_kafka",
    "new_kafka",
    "topic_on",
    "values_of",
]

T = TypeVar("T")

PEER = "Apache Kafka"
QUICK = "--quick" in sys.argv[1:]
"""Whether to look only for the order of magnitude: one round, fewer records."""

ROUNDS = 1 if QUICK else 7 if LONG else 5

# Deleted topics must not fill the disk while the next are written, in either.
CONFIG = {"log.segment.delete.delay.ms": "100", "log.retention.check.interval.ms": "1000"}


class HasBootstrap(Protocol):
    """Whatever clients can be pointed at."""

    @property
    def bootstrap(self) -> str: ...


class Target(NamedTuple):
    """A broker to measure."""

    name: str
    pid: int
    port: int

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self.port}"


class Ran(NamedTuple):
    """One run against one of them."""

    per_second: float
    cpu_seconds_per_million: float


def need_kafka() -> None:
    """End here, and say why, where Kafka was not fetched."""
    if (reason := missing_peers()) is not None:
        skip(reason)


@contextmanager
def new_kafka(config: dict[str, str] | None = None) -> Iterator[KafkaPeer]:
    """A broker of Apache Kafka on an empty directory, formatted and not started; all gone afterwards."""
    directory = Path(tempfile.mkdtemp(prefix="kafka-bench-"))
    peer = KafkaPeer(directory, config=CONFIG | (config or {}))
    try:
        peer.format()
        yield peer
    finally:
        peer.close()
        shutil.rmtree(directory, ignore_errors=True)


@contextmanager
def both_brokers(config: dict[str, str] | None = None) -> Iterator[list[Target]]:
    """A node and a Kafka, both serving."""
    with ExitStack() as stack:
        node: UpProcess = stack.enter_context(new_node(CONFIG | (config or {})))
        peer = stack.enter_context(new_kafka(config))
        peer.start()
        yield [Target("node", node.pid, node.port), Target("peer", peer.pid, peer.port)]


def in_turns(targets: list[Target], run: Callable[[Target], T], *, warm_up: bool = True) -> dict[str, list[T]]:
    """ROUNDS results of each, in which no one always comes first; after one that does not count.

    Args:
        warm_up: whether there is one that does not count. A JVM compiles what it runs often: without it Kafka's first
            round would be half as fast as the others.
    """
    results: dict[str, list[T]] = {target.name: [] for target in targets}
    for number in range(-1 if warm_up and not QUICK else 0, ROUNDS):
        for target in targets if number % 2 == 0 else targets[::-1]:
            os.sync()  # what a run left to be written must not burden the next one, which is the other's
            result = run(target)
            if number >= 0:
                results[target.name].append(result)
    return results


def compare(
    name: str, unit: str, targets: list[Target], run: Callable[[Target], float], *, count: int, at_least: float
) -> None:
    """Rate and CPU of both, in turns, as two figures.

    Args:
        run: returns what was done in a second.
        count: how much is done in one run.
        at_least: the wanted ratio of the rates. The CPU is wanted at most 0.7 of Kafka's.
    """

    def measured(target: Target) -> Ran:
        before = cpu_seconds(target.pid)
        per_second = run(target)
        return Ran(per_second, (cpu_seconds(target.pid) - before) * 1e6 / count)

    results = in_turns(targets, measured)
    node, peer = results["node"], results["peer"]
    rates = [f"{ours.per_second:,.0f} beside {theirs.per_second:,.0f}" for ours, theirs in zip(node, peer, strict=True)]
    say(f"{name}: {'; '.join(rates)}")
    figure(
        name,
        median([ran.per_second for ran in node]),
        f"{unit}/s",
        peer=PEER,
        peer_value=median([ran.per_second for ran in peer]),
        at_least=at_least,
        of_ratio=True,
    )
    figure(
        f"{name}: CPU of the broker",
        median([ran.cpu_seconds_per_million for ran in node]),
        f"CPU-s/million {unit}",
        peer=PEER,
        peer_value=median([ran.cpu_seconds_per_million for ran in peer]),
        at_most=0.7,
        of_ratio=True,
    )


@contextmanager
def topic_on(targets: list[Target], topic: str, partitions: int, **configs: str) -> Iterator[str]:
    """The same topic on both, deleted afterwards; settings have `_` for `.`."""
    for target in targets:
        with WireClient(target.port) as client:
            created = client.create_topic(
                topic, partitions=partitions, configs={key.replace("_", "."): value for key, value in configs.items()}
            )
            assert created.error_code == 0, created
    try:
        yield topic
    finally:
        for target in targets:
            with WireClient(target.port) as client:
                request = DeleteTopicsRequest(topic_names=[topic], timeout_ms=10_000)
                deleted = client.ask(ApiKey.DELETE_TOPICS, 5, request, DeleteTopicsResponse)
                assert deleted.responses[0].error_code == 0, deleted


def values_of(size_bytes: int, count: int) -> list[bytes]:
    """Values that compress as log lines do, about three to one; no two alike."""
    values = []
    for number in range(count):
        line = b'{"event":"departure","carrier":"UA","flight":%d,"delay":%d,"tail":"%s",' % (
            number,
            number * 7919 % 1000,
            os.urandom(4).hex().encode(),
        )
        line *= size_bytes // len(line) + 1
        noise = os.urandom(size_bytes // 4)
        values.append((noise + line)[:size_bytes])
    return values

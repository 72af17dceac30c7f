"""Three nodes with 30,000 replicas: 10,000 topics of one partition, each of which has a replica at every node.

How fast they are made; what each node holds and does while idle; who waits for a Metadata of all topics and for a
scrape; how long a third of the partitions have no leader after `kill -9` of a broker; and how the nodes start again.

The kill: a client asks a node that stays for the leaders of the victim's partitions, and writes with acks=all to each
of them. The time ends with the acknowledgement of the last first write. Seconds of the processor are of one node's
process each.

`--steps=DIRECTORY` lets each node note there which steps of its event loop took long (`tests/fuzz/timed_steps`).
"""

from __future__ import annotations

import os
import re
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from urllib.request import urlopen

from bystander import waits_beside, waits_during
from harness import MEGABYTE, ROOT, WireClient, cpu_seconds, figure, resident_bytes, resident_bytes_peak, say

from support.clients.wire_client import batch_of
from support.fixtures.waiting import wait_until
from support.nodes.cluster import Cluster, ClusterNode
from tidelog import Admin
from tidelog.client.admin.descriptions import NewTopic
from tidelog.wire import ApiKey
from tidelog.wire.messages.api_00_produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from tidelog.wire.messages.api_03_metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from tidelog.wire.messages.api_19_create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse

__all__ = ["measure"]

SIZE = 3
PER_REQUEST = 500
PER_LOOK = 250
SETTLED_SECONDS = 10.0
IDLE_SECONDS = 20.0
LOOK_EVERY_SECONDS = 0.1
ROUNDS = 5
CREATE_TIMEOUT_MS = 300_000
SECONDS_MAX = 600.0
BYSTANDER = "bystander-{}"
BATCH = bytes(batch_of(b"v"))
CONFIG = {
    "metrics.listener": "HTTP://127.0.0.1:0",
    "default.replication.factor": "3",
    "min.insync.replicas": "2",
    "auto.leader.rebalance.enable": "false",
    "log.retention.ms": "-1",
    "initial.broker.registration.timeout.ms": "600000",
}


def measure(count: int) -> None:
    with _started() as cluster:
        say(f"{count} partitions, {count * SIZE} replicas")
        controller = cluster.active_controller()
        other, victim = (node for node in cluster.nodes.values() if node is not controller)
        add_bystanders(cluster, controller, other)
        name = f"{count * SIZE:,} replicas on three nodes"
        measure_creation(name, cluster, controller, other, count)
        measure_idle(name, cluster, controller)
        measure_answers(name, other, count)
        measure_death(name, cluster, controller, victim, count)
        measure_return(name, victim, controller, count)
        victim.stop()
        measure_start(f"{name}: start of one after a clean stop", [victim], at_most=5)
        until_in_sync(controller, count)
        say_cpu(cluster)
        began_at = time.perf_counter()
        cluster.stop()
        say(f"stop of all: {time.perf_counter() - began_at:.2f} s")
        measure_start(f"{name}: start of all at once after a clean stop", list(cluster.nodes.values()))
        began_at = time.perf_counter()
        until_in_sync(cluster.nodes[1], count)
        figure("… all of them are in sync", time.perf_counter() - began_at, "s after")
        say_cpu(cluster)
        cluster.check_logs()


@contextmanager
def _started() -> Iterator[Cluster]:
    home = Path(tempfile.mkdtemp(prefix="tidelog-bench-"))
    cluster = Cluster(home, SIZE, config=CONFIG)
    for node in cluster.nodes.values():
        node.wrapper = ("/usr/bin/env", *_timed(node))  # a process of its own, which shares no memory with another
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.close()
        shutil.rmtree(home, ignore_errors=True)


def _timed(node: ClusterNode) -> tuple[str, ...]:
    """For `env`: what has a node note its longest steps, if that is wanted."""
    into = next((Path(one[8:]) for one in sys.argv[1:] if one.startswith("--steps=")), None)
    if into is None:
        return ()
    into.mkdir(parents=True, exist_ok=True)
    path = os.pathsep.join([str(ROOT / "tests" / "fuzz" / "timed_steps"), str(ROOT / "src")])
    return (f"TIMED_STEPS={into / f'node-{node.node_id}'}", f"PYTHONPATH={path}")


def add_bystanders(cluster: Cluster, *nodes: ClusterNode) -> None:
    """A topic for each, which it alone has. The victim has none: what nobody else can lead delays its end."""
    with Admin(cluster.bootstrap) as admin:
        for node in nodes:
            admin.create_topics([NewTopic(BYSTANDER.format(node.node_id), replica_assignments={0: [node.node_id]})])
    for node in nodes:
        with WireClient(node.port) as client:
            topic = BYSTANDER.format(node.node_id)
            wait_until(lambda: client.produce(topic, BATCH).error_code == 0, f"{node} leads {topic}")  # noqa: B023


def say_cpu(cluster: Cluster) -> None:
    used = ", ".join(f"{node}: {cpu_seconds(node.pid):.1f} s" for node in cluster.running)
    say(f"CPU so far: {used}")


def measure_creation(name: str, cluster: Cluster, controller: ClusterNode, other: ClusterNode, count: int) -> None:
    """By CreateTopics in requests of PER_REQUEST topics, one after the other, to the active controller."""
    before = {node: cpu_seconds(node.pid) for node in cluster.running}
    with (
        WireClient(controller.port, timeout_seconds=SECONDS_MAX) as client,
        waits_beside(controller.port, BYSTANDER.format(controller.node_id)) as waits,
        waits_beside(other.port, BYSTANDER.format(other.node_id)) as other_waits,
    ):
        began_at = time.perf_counter()
        for first in range(0, count, PER_REQUEST):
            create_topics(client, range(first, min(first + PER_REQUEST, count)))
        seconds = time.perf_counter() - began_at
    until_in_sync(controller, count)
    figure(f"{name}: topics created a second", count / seconds, "1/s")
    for node, cpu in before.items():
        what = "controller" if node is controller else "another node"
        figure(f"… CPU of the {what} for each", (cpu_seconds(node.pid) - cpu) / count * 1e3, "ms")
    for what, found in (("controller", waits), ("another node", other_waits)):
        p99 = statistics.quantiles(found, n=100)[-1]
        figure(f"… longest wait of another client at the {what}", max(found), "ms", note=f"p99 {p99:.1f} ms")


def create_topics(client: WireClient, numbers: range) -> None:
    topics = [CreatableTopic(name=topic_name(one), num_partitions=1, replication_factor=SIZE) for one in numbers]
    request = CreateTopicsRequest(topics=topics, timeout_ms=CREATE_TIMEOUT_MS)
    answer = client.ask(ApiKey.CREATE_TOPICS, 7, request, CreateTopicsResponse)
    refused = [(topic.name, topic.error_code) for topic in answer.topics if topic.error_code]
    assert not refused, refused[:3]


def topic_name(number: int) -> str:
    return f"topic-{number:05d}"


def measure_idle(name: str, cluster: Cluster, controller: ClusterNode) -> None:
    """What each takes while nobody asks anything."""
    time.sleep(SETTLED_SECONDS)
    before, began_at = {node: cpu_seconds(node.pid) for node in cluster.running}, time.perf_counter()
    time.sleep(IDLE_SECONDS)
    for node, cpu in before.items():
        what = f"{node}{', the controller' if node is controller else ''}"
        share = (cpu_seconds(node.pid) - cpu) / (time.perf_counter() - began_at)
        figure(f"{name}, idle: CPU of {what}", share * 100, "% of a core", at_most=5)
        note = f"the most so far: {resident_bytes_peak(node.pid) / MEGABYTE:.0f} MB"
        figure("… RSS", resident_bytes(node.pid) / MEGABYTE, "MB", at_most=200, note=note)


def measure_answers(name: str, node: ClusterNode, count: int) -> None:
    """Metadata of all topics, and a scrape of the metrics; and who waits for them."""
    port, topic = re.findall(r"served on http://127\.0\.0\.1:(\d+)", node.log)[-1], BYSTANDER.format(node.node_id)

    def scrape() -> None:
        with urlopen(f"http://127.0.0.1:{port}/metrics") as answer:
            answer.read()

    with WireClient(node.port) as client:

        def ask() -> None:
            found = client.ask(ApiKey.METADATA, 12, MetadataRequest(topics=None), MetadataResponse)
            assert len(found.topics) >= count

        for what, work in (("Metadata of all topics", ask), ("a scrape of the metrics", scrape)):
            work()  # the first one loads what answers it
            alone = waits_during(node.port, topic, lambda: time.sleep(1.0))
            before = cpu_seconds(node.pid)
            waits = waits_during(node.port, topic, lambda work=work: [work() for _ in range(ROUNDS)])  # type: ignore[misc]
            cpu = (cpu_seconds(node.pid) - before) / ROUNDS
            figure(f"{name}: {what}, CPU of the node", cpu * 1e3, "ms")
            figure("… longest wait of another client meanwhile", max(waits), "ms", peer="alone", peer_value=max(alone))


def measure_death(name: str, cluster: Cluster, controller: ClusterNode, victim: ClusterNode, count: int) -> None:
    """`kill -9` of a broker that leads a third of the partitions, and is no controller."""
    names = [topic for topic, leader in leaders(controller, map(topic_name, range(count))) if leader == victim.node_id]
    staying = {node.node_id: node for node in cluster.running if node is not victim}
    with waits_beside(controller.port, BYSTANDER.format(controller.node_id)) as waits:
        before = {node: cpu_seconds(node.pid) for node in staying.values()}
        began_at = time.perf_counter()
        victim.kill()
        recovery = Recovery(names, staying, began_at)
        recovery.observe(controller)
        cpu = {node: cpu_seconds(node.pid) - used for node, used in before.items()}
    note = f"of {len(names)} partitions"
    for what, found in (("another leads", recovery.led_s), ("it takes writes", recovery.written_s)):
        took = sorted(found.values())
        figure(f"{name}: kill -9 of a leader, until {what}, p50", took[len(took) // 2], "s", note=note)
        figure("… the last one", took[-1], "s", at_most=2, note=note)
    figure("… longest wait of another client at the controller", max(waits), "ms")
    for node, used in cpu.items():
        figure(f"… CPU of the {'controller' if node is controller else 'other'} until then", used, "s")
    until_in_sync(controller, count, without=victim.node_id)
    cpus = ", ".join(f"{cpu_seconds(node.pid) - used:.1f} s at {node}" for node, used in before.items())
    figure("… the victim is in no ISR", time.perf_counter() - began_at, "s", note=f"CPU: {cpus}")


class Recovery:
    """What clients see of partitions whose leader died: seconds after its death.

    One client asks who leads, and one writes to each of the nodes that stay: nobody waits for another.

    Attributes:
        led_s: when each was first known to be led by another.
        written_s: when the first write to each was acknowledged.
    """

    def __init__(self, names: list[str], staying: dict[int, ClusterNode], began_at: float) -> None:
        self._began_at = began_at
        self._staying = staying
        self._names = names
        self._led_by: dict[int, dict[str, None]] = {node_id: {} for node_id in staying}
        self.led_s = dict[str, float]()
        self.written_s = dict[str, float]()

    def observe(self, node: ClusterNode) -> None:
        """Ask a node for the leaders, and write, until each was written to."""
        deadline = time.monotonic() + SECONDS_MAX
        with ThreadPoolExecutor() as threads:
            work = [threads.submit(self._ask, node, deadline)]
            work += [threads.submit(self._write, node_id, deadline) for node_id in self._staying]
            for one in work:
                one.result()

    def _ask(self, node: ClusterNode, deadline: float) -> None:
        remaining = dict.fromkeys(self._names)
        with WireClient(node.port) as client:
            while remaining:
                assert time.monotonic() < deadline, f"{len(remaining)} partitions have no leader"
                chosen = list(remaining)[:PER_LOOK]
                led = {topic: leader for topic, leader in asked_leaders(client, chosen) if leader in self._staying}
                now = self._since()
                for topic in chosen:
                    del remaining[topic]
                    if topic in led:
                        self.led_s[topic] = now
                        self._led_by[led[topic]][topic] = None
                    else:
                        remaining[topic] = None  # behind the others
                if not led:
                    time.sleep(LOOK_EVERY_SECONDS)

    def _write(self, node_id: int, deadline: float) -> None:
        led = self._led_by[node_id]
        with WireClient(self._staying[node_id].port) as client:
            while len(self.written_s) < len(self._names):
                assert time.monotonic() < deadline, f"{len(led)} partitions take no writes"
                chosen = list(led)[:PER_LOOK]
                written = list(write(client, chosen)) if chosen else []
                now = self._since()
                for topic in written:
                    del led[topic]
                    self.written_s[topic] = now
                if not written:
                    time.sleep(LOOK_EVERY_SECONDS)

    def _since(self) -> float:
        return time.perf_counter() - self._began_at


def write(client: WireClient, topics: list[str]) -> Iterator[str]:
    """One record to each, with acks=all. Yields the topics that acknowledged it."""
    data = [TopicProduceData(name=topic, partition_data=[PartitionProduceData(0, BATCH)]) for topic in topics]
    request = ProduceRequest(acks=-1, timeout_ms=1_000, topic_data=data)
    for row in client.ask(ApiKey.PRODUCE, 9, request, ProduceResponse).responses:
        if not row.partition_responses[0].error_code:
            yield row.name


def asked_leaders(client: WireClient, names: list[str]) -> Iterator[tuple[str, int]]:
    request = MetadataRequest(topics=[MetadataRequestTopic(name=one) for one in names], allow_auto_topic_creation=False)
    for topic in client.ask(ApiKey.METADATA, 9, request, MetadataResponse).topics:
        yield str(topic.name), topic.partitions[0].leader_id


def leaders(node: ClusterNode, names: Iterator[str]) -> Iterator[tuple[str, int]]:
    with WireClient(node.port) as client:
        yield from asked_leaders(client, list(names))


def measure_return(name: str, victim: ClusterNode, controller: ClusterNode, count: int) -> None:
    began_at = time.perf_counter()
    measure_start(f"{name}: start of one after kill -9", [victim], at_most=7)
    until_in_sync(controller, count)
    cpu = f"{cpu_seconds(victim.pid):.1f} s of CPU"
    figure("… it is in every ISR again", time.perf_counter() - began_at, "s after", note=cpu)


def measure_start(name: str, nodes: list[ClusterNode], *, at_most: float | None = None) -> None:
    """Until all serve."""
    began_at = time.perf_counter()
    for node in nodes:
        node.start_soon()
    for node in nodes:
        node.wait_until_serving(SECONDS_MAX)
    figure(name, time.perf_counter() - began_at, "s", at_most=at_most)
    for node in nodes:
        figure(f"… CPU of {node}", cpu_seconds(node.pid), "s", at_most=at_most)
        figure("… RSS then", resident_bytes(node.pid) / MEGABYTE, "MB", at_most=200)


def until_in_sync(node: ClusterNode, count: int, *, without: int | None = None) -> None:
    """Wait until every ISR is whole, but for one node. Few are asked for at a time."""
    size = SIZE - (without is not None)

    def is_so(isr: list[int], leader_id: int) -> bool:
        return len(isr) == size and without not in isr and leader_id not in (-1, without)

    _until(node, count, is_so)


def _until(node: ClusterNode, count: int, is_so: Callable[[list[int], int], bool]) -> None:
    deadline = time.monotonic() + SECONDS_MAX
    with WireClient(node.port) as client:
        for first in range(0, count, PER_LOOK):
            topics = [MetadataRequestTopic(name=topic_name(one)) for one in range(first, min(first + PER_LOOK, count))]
            request = MetadataRequest(topics=topics, allow_auto_topic_creation=False)
            while True:
                found = client.ask(ApiKey.METADATA, 9, request, MetadataResponse).topics
                with suppress(IndexError):  # it does not know the partition yet
                    if all(is_so(one.partitions[0].isr_nodes, one.partitions[0].leader_id) for one in found):
                        break
                assert time.monotonic() < deadline, "it never came to that"
                time.sleep(0.2)

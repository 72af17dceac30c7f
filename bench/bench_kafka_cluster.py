"""Three nodes beside three of Apache Kafka, with the same settings: RF 3, min.insync.replicas=2, on the same two cores.

Rounds are in turns; the cluster whose turn it is not is up and idle, but where both start, or hold many topics.

python bench/bench_kafka_cluster.py [--only start,visibility,produce,shutdown,topics]
"""

from __future__ import annotations

import os
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import confluent_kafka
from bench_kafka_produce import produce
from beside_kafka import CONFIG, PEER, QUICK, ROUNDS, need_kafka, values_of
from confluent_kafka.admin import AdminClient, NewTopic
from harness import WireClient, cpu_seconds, figure, median, resident_bytes, say

from support.clients.kafka_peer import KafkaCluster
from support.fixtures.waiting import wait_until
from support.nodes.cluster import Cluster as OurCluster
from tidelog.wire import ApiKey
from tidelog.wire.messages.api_03_metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse

SIZE = 3
REPLICATED = CONFIG | {
    "default.replication.factor": "3",
    "min.insync.replicas": "2",
    "offsets.topic.replication.factor": "3",
    "group.initial.rebalance.delay.ms": "0",
}
BYTES_A_RUN = 10_000_000 if QUICK else 60_000_000
VISIBLE_TOPICS = 20 if QUICK else 100
LATENCY_SECONDS = 2.0 if QUICK else 8.0
MANY_TOPICS, PARTITIONS_EACH, TOPICS_A_REQUEST = (100, 3, 50) if QUICK else (1_000, 3, 100)
SHUTDOWN_ROUNDS = 1 if QUICK else 5


Cluster = OurCluster | KafkaCluster


@contextmanager
def ours() -> Iterator[OurCluster]:
    directory = Path(tempfile.mkdtemp(prefix="tidelog-bench-"))
    cluster = OurCluster(directory, SIZE, config=REPLICATED)
    for node in cluster.nodes.values():
        node.wrapper = ("/usr/bin/env",)  # each loads what it needs, as a user's does: it is not forked
    try:
        yield cluster
    finally:
        cluster.close()
        shutil.rmtree(directory, ignore_errors=True)


@contextmanager
def theirs() -> Iterator[KafkaCluster]:
    directory = Path(tempfile.mkdtemp(prefix="kafka-bench-"))
    cluster = KafkaCluster(directory, SIZE, config=REPLICATED)
    try:
        cluster.format()
        yield cluster
    finally:
        cluster.close()
        shutil.rmtree(directory, ignore_errors=True)


def create(cluster: Cluster, *topics: NewTopic) -> None:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    for future in admin.create_topics(list(topics), request_timeout=60).values():
        future.result(60)


def timed(work: Callable[[], object]) -> float:
    """Seconds."""
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def each(name: str, node: list[float], peer: list[float]) -> None:
    say(f"{name}: {[round(value, 3) for value in node]} beside {[round(value, 3) for value in peer]}")


# Start and memory.


def measure_start() -> None:
    """Both on directories that were used before; from the start of all three until every one serves."""
    with ours() as node, theirs() as peer:
        clusters: dict[str, Cluster] = {"node": node, "peer": peer}
        seconds: dict[str, list[float]] = {"node": [], "peer": []}
        for number in range(-1, ROUNDS):
            for name, cluster in clusters.items():
                took = timed(cluster.start)
                if number >= 0:
                    seconds[name].append(took)
                if number == ROUNDS - 1:
                    memory = [resident_bytes(one.pid) / 1e6 for one in cluster.nodes.values()]
                    seconds[f"{name} RSS"] = memory
                cluster.stop()
    each("start", seconds["node"], seconds["peer"])
    figure(
        "three nodes ready, started at once",
        median(seconds["node"]),
        "s",
        peer=PEER,
        peer_value=median(seconds["peer"]),
        at_most=1.5,
    )
    figure(
        "RSS of a node of three, idle",
        max(seconds["node RSS"]),
        "MB",
        peer=PEER,
        peer_value=max(seconds["peer RSS"]),
        at_most=80,
    )


# A topic is visible.


def visibilities_ms(cluster: Cluster) -> tuple[list[float], list[float]]:
    """From the request, and from its answer, until every other node shows the topic with a leader for its partition."""
    from_request: list[float] = []
    from_answer: list[float] = []
    with ExitStack() as stack:
        first, *others = [stack.enter_context(WireClient(one.port)) for one in cluster.nodes.values()]
        for number in range(VISIBLE_TOPICS):
            name = f"visible-{number}"
            started = time.perf_counter()
            row = first.create_topic(name, replication_factor=SIZE)
            answered = time.perf_counter()
            assert row.error_code == 0, row
            waiting = list(others)
            while waiting:
                waiting = [one for one in waiting if not _shows(one, name)]
            now = time.perf_counter()
            from_request.append((now - started) * 1e3)
            from_answer.append((now - answered) * 1e3)
            time.sleep(0.05)  # as changes come: one by one, to nodes that wait for news
    return sorted(from_request), sorted(from_answer)


def _shows(client: WireClient, topic: str) -> bool:
    request = MetadataRequest(topics=[MetadataRequestTopic(name=topic)], allow_auto_topic_creation=False)
    found = client.ask(ApiKey.METADATA, 9, request, MetadataResponse).topics[0]
    return found.error_code == 0 and all(one.leader_id >= 0 for one in found.partitions)


def measure_visibility(clusters: dict[str, Cluster]) -> None:
    results = {name: visibilities_ms(cluster) for name, cluster in clusters.items()}
    for place, since in enumerate(("its request", "its answer")):
        for quantile, share in (("p50", 0.5), ("p99", 0.99)):
            node, peer = (sorted_[int(len(sorted_) * share)] for sorted_ in (results[n][place] for n in clusters))
            figure(
                f"a new topic is visible at every other node, since {since}, {quantile}",
                node,
                "ms",
                peer=PEER,
                peer_value=peer,
                at_most=20 if quantile == "p99" else None,
            )


# Producing with acks=all.


def measure_produce(clusters: dict[str, Cluster], size_bytes: int) -> None:
    size = "1 KB" if size_bytes == 1_000 else f"{size_bytes}-byte"
    topic = f"replicated-{size_bytes}"
    count = BYTES_A_RUN // size_bytes // 10_000 * 10_000
    values = values_of(size_bytes, 10_000)
    rates: dict[str, list[float]] = {name: [] for name in clusters}
    cpus: dict[str, list[float]] = {name: [] for name in clusters}
    for cluster in clusters.values():
        create(cluster, NewTopic(topic, num_partitions=3, replication_factor=SIZE))
    for number in range(-1, ROUNDS):
        for name, cluster in clusters.items():
            before = sum(cpu_seconds(one.pid) for one in cluster.nodes.values())
            rate = produce(cluster, topic, values, count=count, partitions=3, compression="none", acks="all")
            used = sum(cpu_seconds(one.pid) for one in cluster.nodes.values()) - before
            if number >= 0:
                rates[name].append(rate)
                cpus[name].append(used * 1e6 / count)
    case = f"acks=all, RF 3, min ISR 2, librdkafka, {size} records, 3 partitions"
    each(case, *rates.values())
    node, peer = (median(values) for values in rates.values())
    figure(case, node, "records/s", peer=PEER, peer_value=peer, at_least=0.8, of_ratio=True)
    node_cpu, peer_cpu = (median(values) for values in cpus.values())
    figure(f"{case}: CPU of the three", node_cpu, "CPU-s/million records", peer=PEER, peer_value=peer_cpu)
    tenth = round(peer / 10)
    latency = {name: latencies_ms(cluster, topic, values, tenth) for name, cluster in clusters.items()}
    for quantile, share in (("p50", 0.5), ("p99", 0.99)):
        ours_ms, peers_ms = (found[int(len(found) * share)] for found in latency.values())
        figure(
            f"acks=all, {size} records, {tenth:,}/s (a tenth of {PEER}'s rate): {quantile}",
            ours_ms,
            "ms",
            peer=PEER,
            peer_value=peers_ms,
            at_most=1.0,
            of_ratio=True,
        )


def latencies_ms(cluster: Cluster, topic: str, values: list[bytes], per_second: int) -> list[float]:
    """From the call that produces a record to its acknowledgement; librdkafka's default linger is within it."""
    found: list[float] = []

    def on_delivery(error: confluent_kafka.KafkaError | None, message: confluent_kafka.Message) -> None:
        assert error is None, error
        latency = message.latency()
        assert latency is not None
        found.append(latency * 1e3)

    producer = confluent_kafka.Producer({"bootstrap.servers": cluster.bootstrap, "acks": "all"})
    producer.list_topics(topic, timeout=10)
    started = time.perf_counter()
    sent, count = 0, int(per_second * LATENCY_SECONDS)
    while sent < count:
        due = min(count, int((time.perf_counter() - started) * per_second))
        for number in range(sent, due):
            producer.produce(topic, values[number % len(values)], on_delivery=on_delivery)
        sent = due
        producer.poll(0.001)
    assert producer.flush(60) == 0
    return sorted(found[len(found) // 10 :])  # the first are those of connections that are being made


# A leader stops.


def longest_wait_ms(cluster: Cluster, topic: str) -> float:
    """How long the slowest record of a steady stream waited while the leader of its partition stopped cleanly."""
    worst = 0.0

    def on_delivery(error: confluent_kafka.KafkaError | None, message: confluent_kafka.Message) -> None:
        nonlocal worst
        assert error is None, error
        latency = message.latency()
        assert latency is not None
        worst = max(worst, latency * 1e3)

    producer = confluent_kafka.Producer(
        {"bootstrap.servers": cluster.bootstrap, "acks": "all", "linger.ms": 0, "enable.idempotence": True}
    )
    metadata = producer.list_topics(topic, timeout=10)
    leader = metadata.topics[topic].partitions[0].leader
    started = time.perf_counter()
    stopped = False
    while (elapsed := time.perf_counter() - started) < 6.0:
        if elapsed > 2.0 and not stopped:
            stopped = True
            worst = 0.0
            os.kill(cluster.nodes[leader].pid, signal.SIGTERM)
        producer.produce(topic, b"x" * 100, partition=0, on_delivery=on_delivery)
        producer.poll(0.002)
    assert producer.flush(60) == 0
    wait_until(lambda: not cluster.nodes[leader].is_running, "the leader has stopped", seconds=60)
    return worst


def measure_shutdown(clusters: dict[str, Cluster]) -> None:
    waits: dict[str, list[float]] = {name: [] for name in clusters}
    for number in range(SHUTDOWN_ROUNDS):
        for name, cluster in clusters.items():
            topic = f"stopping-{number}"
            create(cluster, NewTopic(topic, num_partitions=1, replication_factor=SIZE))

            waits[name].append(longest_wait_ms(cluster, topic))
            for node in cluster.nodes.values():
                if not node.is_running:
                    node.start()
            wait_until(lambda: _in_sync(cluster, topic) == SIZE, "all are in sync again", seconds=60)  # noqa: B023
    each("controlled shutdown, longest wait of a write in ms", *waits.values())
    node_ms, peer_ms = (max(values) for values in waits.values())
    figure(
        f"a leader stops cleanly: the longest that a write waited, worst of {SHUTDOWN_ROUNDS}",
        node_ms,
        "ms",
        peer=PEER,
        peer_value=peer_ms,
        at_most=300,
    )


def _in_sync(cluster: Cluster, topic: str) -> int:
    with WireClient(cluster.nodes[1].port) as client:
        request = MetadataRequest(topics=[MetadataRequestTopic(name=topic)], allow_auto_topic_creation=False)
        found = client.ask(ApiKey.METADATA, 9, request, MetadataResponse).topics[0]
        return min(len(one.isr_nodes) for one in found.partitions)


# Many topics.


def measure_topics() -> None:
    seconds: dict[str, tuple[float, float]] = {}
    for name, new in (("node", ours), ("peer", theirs)):
        with new() as cluster:
            cluster.start()
            created = timed(lambda: create_many(cluster))
            cluster.stop()
            seconds[name] = created, timed(cluster.start)
            cluster.stop()
    what = f"{MANY_TOPICS:,} topics of {PARTITIONS_EACH} partitions, RF 3"
    for place, (did, aim) in enumerate((("created, and every partition led", 10.0), ("started again", 3.0))):
        node, peer = (seconds[name][place] for name in ("node", "peer"))
        figure(f"{what}: {did}", node, "s", peer=PEER, peer_value=peer, at_most=aim)


def create_many(cluster: Cluster) -> None:
    names = [f"many-{number}" for number in range(MANY_TOPICS)]
    for start in range(0, MANY_TOPICS, TOPICS_A_REQUEST):
        some = names[start : start + TOPICS_A_REQUEST]
        create(cluster, *(NewTopic(name, num_partitions=PARTITIONS_EACH, replication_factor=SIZE) for name in some))
    wait_until(lambda: all(_all_led(cluster, one) for one in (names[0], names[-1])), "all are led", seconds=60)


def _all_led(cluster: Cluster, topic: str) -> bool:
    found = []
    for node in cluster.nodes.values():
        with WireClient(node.port) as client:
            found.append(_shows(client, topic))
    return all(found)


def main() -> None:
    need_kafka()
    only = sys.argv[sys.argv.index("--only") + 1].split(",") if "--only" in sys.argv else None

    def wanted(name: str) -> bool:
        return only is None or name in only

    if wanted("start"):
        measure_start()
    if any(map(wanted, ("visibility", "produce", "shutdown"))):
        with ours() as node, theirs() as peer:
            node.start()
            peer.start()
            clusters: dict[str, Cluster] = {"node": node, "peer": peer}
            if wanted("visibility"):
                measure_visibility(clusters)
            if wanted("produce"):
                for size_bytes in (100, 1_000):
                    measure_produce(clusters, size_bytes)
            if wanted("shutdown"):
                measure_shutdown(clusters)
    if wanted("topics"):
        measure_topics()


if __name__ == "__main__":
    main()

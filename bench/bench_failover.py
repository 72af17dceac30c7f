"""A leader is killed: how long until the next write with acks=all is acknowledged. Three nodes beside three of Kafka.

Both with the default sessions (`broker.session.timeout.ms`), RF 3, min.insync.replicas=2; a record every 5 ms.
A round counts from `kill -9` to the acknowledgement of the first record that was sent after it. Our consumer reads
beside our producer: the round counts to the first such record that it hands over, too. The victim leads the
partition; in half of the rounds it is the active controller as well. Stock clients have their defaults, but for acks.

python bench/bench_failover.py [--quick | --long] [--only-ours | --without-kafka]

--only-ours: neither Kafka nor stock clients.
--without-kafka: stock clients at Tidelog, and no Kafka beside it.
"""

from __future__ import annotations

import asyncio
import logging
import os
import shutil
import signal
import struct
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import confluent_kafka
from aiokafka import AIOKafkaProducer
from aiokafka.errors import KafkaError as AiokafkaError
from beside_kafka import PEER, QUICK, need_kafka
from harness import LONG, WireClient, figure, say
from kafka import KafkaProducer

from support.clients.kafka_peer import KafkaCluster
from support.fixtures.waiting import wait_until
from support.nodes.cluster import Cluster as OurCluster
from tidelog import TopicPartition
from tidelog.base.errors import TidelogError
from tidelog.client.admin.admin import Admin
from tidelog.client.admin.descriptions import NewTopic
from tidelog.client.async_consumer import AsyncConsumer
from tidelog.client.factory import AsyncFactory
from tidelog.wire import ApiKey
from tidelog.wire.messages.api_03_metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse

SIZE = 3
REPLICATED = {
    "default.replication.factor": "3",
    "min.insync.replicas": "2",
    "offsets.topic.replication.factor": "3",
}
OUR_ROUNDS = 3 if QUICK else 100 if LONG else 20
PEER_ROUNDS = 1 if QUICK else 20 if LONG else 5
ONLY_OURS = "--only-ours" in sys.argv[1:]
WITHOUT_KAFKA = "--without-kafka" in sys.argv[1:]
RECORD_EVERY_SECONDS = 0.005
OUR_ACKNOWLEDGED_MS_MAX = 150
OUR_READ_MS_MAX = 300
STOCK_MS_MAX = 600
SENT_AT = struct.Struct("<d")
WARM_SECONDS = 1.0
WAIT_SECONDS_MAX = 60.0
ISR_SECONDS_MAX = 120.0

Cluster = OurCluster | KafkaCluster
Failover = Callable[[Cluster, str, Callable[[], None]], tuple[float, ...]]
"""A round's time to the next acknowledgement, in milliseconds; then that to the next record read, if one reads."""


@contextmanager
def started(new: Callable[[Path], Cluster]) -> Iterator[Cluster]:
    directory = Path(tempfile.mkdtemp(prefix="failover-bench-"))
    cluster = new(directory)
    try:
        if isinstance(cluster, KafkaCluster):
            cluster.format()
        cluster.start()
        yield cluster
    finally:
        cluster.close()
        shutil.rmtree(directory, ignore_errors=True)


# What clients see.


def failover_ms_of_librdkafka(cluster: Cluster, topic: str, strike: Callable[[], None]) -> tuple[float, ...]:
    """From the strike to the first acknowledgement of what was sent after it, at a client with its defaults."""
    producer = confluent_kafka.Producer({"bootstrap.servers": cluster.bootstrap, "acks": "all"})
    struck_at = acknowledged_at = 0.0

    def on_delivery(sent_at: float, error: confluent_kafka.KafkaError | None, _: confluent_kafka.Message) -> None:
        nonlocal acknowledged_at
        if error is None and struck_at and sent_at > struck_at and not acknowledged_at:
            acknowledged_at = time.perf_counter()

    began_at = time.perf_counter()
    while not acknowledged_at:
        now = time.perf_counter()
        if not struck_at and now > began_at + WARM_SECONDS:
            strike()
            struck_at = time.perf_counter()
        assert now < began_at + WAIT_SECONDS_MAX, f"{topic}: nothing is acknowledged"
        producer.produce(topic, b"x" * 100, partition=0, on_delivery=partial(on_delivery, time.perf_counter()))
        producer.poll(RECORD_EVERY_SECONDS)
    producer.purge()
    return ((acknowledged_at - struck_at) * 1e3,)


def failover_ms_of_kafka_python(cluster: Cluster, topic: str, strike: Callable[[], None]) -> tuple[float, ...]:
    """The same at kafka-python."""
    producer = KafkaProducer(bootstrap_servers=cluster.bootstrap.split(","), acks="all")
    struck_at = acknowledged_at = 0.0

    def on_acknowledged(sent_at: float, _: object) -> None:
        nonlocal acknowledged_at
        if struck_at and sent_at > struck_at and not acknowledged_at:
            acknowledged_at = time.perf_counter()

    began_at = time.perf_counter()
    while not acknowledged_at:
        now = time.perf_counter()
        if not struck_at and now > began_at + WARM_SECONDS:
            strike()
            struck_at = time.perf_counter()
        assert now < began_at + WAIT_SECONDS_MAX, f"{topic}: nothing is acknowledged"
        outcome = producer.send(topic, b"x" * 100, partition=0)
        outcome.add_callback(partial(on_acknowledged, time.perf_counter()))
        time.sleep(RECORD_EVERY_SECONDS)
    producer.close(timeout=1)
    return ((acknowledged_at - struck_at) * 1e3,)


def failover_ms_of_aiokafka(cluster: Cluster, topic: str, strike: Callable[[], None]) -> tuple[float, ...]:
    """The same at aiokafka."""
    return asyncio.run(_failover_ms_of_aiokafka(cluster, topic, strike))


async def _failover_ms_of_aiokafka(cluster: Cluster, topic: str, strike: Callable[[], None]) -> tuple[float, ...]:
    acknowledged_at = struck_at = 0.0

    async def heed(sent_at: float, outcome: Awaitable[object]) -> None:
        nonlocal acknowledged_at
        try:
            await outcome
        except AiokafkaError:
            return
        if struck_at and sent_at > struck_at and not acknowledged_at:
            acknowledged_at = time.perf_counter()

    logging.getLogger("aiokafka").setLevel(logging.CRITICAL)  # it reports each attempt
    producer = AIOKafkaProducer(bootstrap_servers=cluster.bootstrap, acks="all")
    async with producer, asyncio.TaskGroup() as group:
        began_at = time.perf_counter()
        while not acknowledged_at:
            now = time.perf_counter()
            if not struck_at and now > began_at + WARM_SECONDS:
                strike()
                struck_at = time.perf_counter()
            assert now < began_at + WAIT_SECONDS_MAX, f"{topic}: nothing is acknowledged"
            sent_at = time.perf_counter()
            outcome = await producer.send(topic, b"x" * 100, partition=0)
            group.create_task(heed(sent_at, outcome))
            await asyncio.sleep(RECORD_EVERY_SECONDS)
    return ((acknowledged_at - struck_at) * 1e3,)


STOCK_CLIENTS = {
    "librdkafka": failover_ms_of_librdkafka,
    "kafka-python": failover_ms_of_kafka_python,
    "aiokafka": failover_ms_of_aiokafka,
}


def failover_ms_of_ours(cluster: Cluster, topic: str, strike: Callable[[], None]) -> tuple[float, float]:
    """The same at our own producer, and at our consumer."""
    return asyncio.run(_failover_ms_of_ours(cluster, topic, strike))


async def _failover_ms_of_ours(cluster: Cluster, topic: str, strike: Callable[[], None]) -> tuple[float, float]:
    acknowledged_at = read_at = struck_at = 0.0

    async def heed(sent_at: float, outcome: Awaitable[object]) -> None:
        nonlocal acknowledged_at
        try:
            await outcome
        except TidelogError:
            return
        if struck_at and sent_at > struck_at and not acknowledged_at:
            acknowledged_at = time.perf_counter()

    async def read(consumer: AsyncConsumer[bytes | None, bytes | None]) -> None:
        nonlocal read_at
        async for record in consumer:
            if struck_at and SENT_AT.unpack_from(record.value or b"")[0] > struck_at:
                read_at = time.perf_counter()
                return

    factory = AsyncFactory(cluster.bootstrap.split(","))
    async with factory.producer() as producer, factory.consumer() as consumer, asyncio.TaskGroup() as group:
        consumer.assign([TopicPartition(topic, 0)])
        consumer.seek_to_end()
        reading = group.create_task(read(consumer))
        began_at = time.perf_counter()
        while not (acknowledged_at and reading.done()):
            now = time.perf_counter()
            if not struck_at and now > began_at + WARM_SECONDS:
                strike()
                struck_at = time.perf_counter()
            assert now < began_at + WAIT_SECONDS_MAX, f"{topic}: nothing is acknowledged, or read"
            sent_at = time.perf_counter()
            outcome = await producer.send(topic, SENT_AT.pack(sent_at).ljust(100, b"x"), partition=0)
            group.create_task(heed(sent_at, outcome))
            await asyncio.sleep(RECORD_EVERY_SECONDS)
    return (acknowledged_at - struck_at) * 1e3, (read_at - struck_at) * 1e3


# Rounds.


def play(cluster: Cluster, number: int, failover: Failover, *, of_controller: bool) -> tuple[float, ...]:
    """One round, and all of it mended again."""
    with Admin(cluster.bootstrap) as admin:
        controller_id = admin.describe_quorum().leader_id
        assert controller_id is not None
        ids = sorted(cluster.nodes, key=lambda one: ((one == controller_id) != of_controller, one))
        topic = f"killed-{number}-{failover.__name__}"
        admin.create_topics([NewTopic(topic, replica_assignments={0: ids})])
    victim = cluster.nodes[ids[0]]
    wait_until(lambda: _in_sync(cluster, topic) == SIZE, "all are in sync", seconds=ISR_SECONDS_MAX)
    waited_ms = failover(cluster, topic, lambda: os.kill(victim.pid, signal.SIGKILL))
    victim.close()
    victim.start()
    wait_until(lambda: _in_sync(cluster, topic) == SIZE, "all are in sync again", seconds=ISR_SECONDS_MAX)
    with Admin(cluster.bootstrap) as admin:
        admin.delete_topics([topic])
    return waited_ms


def _in_sync(cluster: Cluster, topic: str) -> int:
    """As the node that knows of the fewest says."""
    request = MetadataRequest(topics=[MetadataRequestTopic(name=topic)], allow_auto_topic_creation=False)
    found = []
    for node in cluster.nodes.values():
        try:
            with WireClient(node.port) as client:
                answer = client.ask(ApiKey.METADATA, 9, request, MetadataResponse).topics[0]
        except (OSError, TidelogError):
            return 0
        found.append(min((len(one.isr_nodes) for one in answer.partitions if one.leader_id >= 0), default=0))
    return min(found)


def waits_ms(cluster: Cluster, failover: Failover, rounds: int, *, of_controller: bool) -> list[list[float]]:
    """What the rounds took, from the shortest to the longest: to the acknowledgement; to the record read."""
    found = [play(cluster, number, failover, of_controller=of_controller) for number in range(rounds)]
    whose = "leader and controller" if of_controller else "leader"
    columns = [list(column) for column in zip(*found, strict=True)]
    say(f"{type(cluster).__name__}, {failover.__name__}, {whose}: {[list(map(round, column)) for column in columns]}")
    return [sorted(column) for column in columns]


def quantile(values: list[float], share: float) -> float:
    return values[min(int(len(values) * share), len(values) - 1)]


def measure(node: Cluster, peer: Cluster | None) -> None:
    for of_controller, p99_ms_max in ((False, STOCK_MS_MAX), (True, 2_500)):
        whose = "leader that is the active controller" if of_controller else "leader"
        struck = f"kill -9 of a {whose}, to the next"
        for name, failover in () if ONLY_OURS else STOCK_CLIENTS.items():
            theirs = None
            if peer is not None:
                [theirs] = waits_ms(peer, failover, PEER_ROUNDS, of_controller=of_controller)
            [ours] = waits_ms(node, failover, OUR_ROUNDS, of_controller=of_controller)
            _tell(f"{struck} acknowledged write, {name}", ours, p99_ms_max, theirs)
        written, read = waits_ms(node, failover_ms_of_ours, OUR_ROUNDS, of_controller=of_controller)
        _tell(f"{struck} acknowledged write, our producer", written, OUR_ACKNOWLEDGED_MS_MAX)
        _tell(f"{struck} record read, our consumer", read, OUR_READ_MS_MAX)


def _tell(name: str, ours: list[float], p99_ms_max: int, theirs: list[float] | None = None) -> None:
    for quantile_name, share in (("p50", 0.5), ("p99", 0.99)):
        figure(
            f"{name}, {quantile_name} of {len(ours)}",
            quantile(ours, share),
            "ms",
            peer=None if theirs is None else PEER,
            peer_value=None if theirs is None else quantile(theirs, share),
            at_most=p99_ms_max if quantile_name == "p99" else None,
        )


def main() -> None:
    if ONLY_OURS or WITHOUT_KAFKA:
        with started(lambda home: OurCluster(home, SIZE, config=REPLICATED)) as node:
            measure(node, None)
        return
    need_kafka()
    with (
        started(lambda home: OurCluster(home, SIZE, config=REPLICATED)) as node,
        started(lambda home: KafkaCluster(home, SIZE, config=REPLICATED)) as peer,
    ):
        measure(node, peer)


if __name__ == "__main__":
    main()

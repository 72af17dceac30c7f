"""How exactly quotas are kept beside Apache Kafka: of bytes produced and fetched, of a client id and of a user.

librdkafka produces, and another one fetches, as fast as they are let, for half a minute. What came in the first seconds
does not count. Whoever did nothing before may do at once, at both, what all windows hold together, and again when those
are over: with two windows in place of eleven that is two seconds' worth, and half a minute has many such rounds.

python bench/bench_quotas.py [--quick]
"""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import confluent_kafka
from bench_kafka_produce import produce
from beside_kafka import PEER, QUICK, Target, both_brokers, need_kafka, topic_on, values_of
from harness import figure, say

from tidelog import Admin
from tidelog.client.admin.quota_descriptions import ClientQuotaEntity

BYTES_PER_SECOND = 2_000_000
WINDOWS = {"quota.window.num": "2", "quota.window.size.seconds": "1"}
SETTLE_SECONDS = 5.0
SECONDS = 6.0 if QUICK else 30.0
VALUE_SIZE_BYTES = 10_000
REQUEST_SIZE_BYTES = 100_000
"""Of one request and one answer: what is counted at the ends of the time is off by no more."""
OFF_PERCENT_MAX = 5
CLIENT_ID = "limited"
QUOTAS = ("producer_byte_rate", "consumer_byte_rate")
ENTITIES = {
    "a client id": ClientQuotaEntity(client_id=CLIENT_ID),
    "a user": ClientQuotaEntity(user="ANONYMOUS"),
}


def rate(step: Callable[[], int]) -> float:
    """Bytes per second, once settled.

    Args:
        step: does a little, and returns the bytes of values that were done in all so far.
    """
    began = time.monotonic()
    while time.monotonic() < began + SETTLE_SECONDS:
        step()
    before, began = step(), time.monotonic()
    while time.monotonic() < began + SECONDS:
        step()
    return (step() - before) / (time.monotonic() - began)


def produced_per_second(target: Target, topic: str) -> float:
    value = values_of(VALUE_SIZE_BYTES, 1)[0]
    acknowledged = 0

    def on_delivery(error: object, _: object) -> None:
        nonlocal acknowledged
        if error is None:  # it is one for those that are given up at the end
            acknowledged += VALUE_SIZE_BYTES

    producer = confluent_kafka.Producer(
        {
            "bootstrap.servers": target.bootstrap,
            "client.id": CLIENT_ID,
            "batch.size": REQUEST_SIZE_BYTES,
            "linger.ms": 5,
            "queue.buffering.max.kbytes": 2_000,
        }
    )

    def step() -> int:
        try:
            producer.produce(topic, value, on_delivery=on_delivery)
            producer.poll(0)
        except BufferError:
            producer.poll(0.01)
        return acknowledged

    try:
        return rate(step)
    finally:
        producer.purge()
        producer.flush(10)


def fetched_per_second(target: Target, topic: str) -> float:
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": target.bootstrap,
            "client.id": CLIENT_ID,
            "group.id": "assigned",
            "enable.auto.commit": False,
            "auto.offset.reset": "error",
            "fetch.message.max.bytes": REQUEST_SIZE_BYTES,
            "fetch.queue.backoff.ms": 10,
        }
    )
    fetched = 0

    def step() -> int:
        nonlocal fetched
        for message in consumer.consume(1_000, timeout=0.01):
            assert message.error() is None, message.error()
            fetched += VALUE_SIZE_BYTES
        return fetched

    try:
        consumer.assign([confluent_kafka.TopicPartition(topic, 0, 0)])
        return rate(step)
    finally:
        consumer.close()


def set_quotas(targets: list[Target], entity: ClientQuotaEntity, value: float | None) -> None:
    for target in targets:
        with Admin(target.bootstrap) as admin:
            admin.alter_client_quotas({entity: dict.fromkeys(QUOTAS, value)})


def main() -> None:
    need_kafka()
    needed_bytes = int(BYTES_PER_SECOND * (SECONDS + 3 * SETTLE_SECONDS))
    values = values_of(VALUE_SIZE_BYTES, 100)
    count = needed_bytes // VALUE_SIZE_BYTES // len(values) * len(values)
    with (
        both_brokers(WINDOWS) as targets,
        topic_on(targets, "quota-produced", 1) as produced,
        topic_on(targets, "quota-fetched", 1) as fetched,
        ThreadPoolExecutor() as pool,
    ):
        for target in targets:
            produce(target, fetched, values, count=count, partitions=1, compression="none")
        for called, entity in ENTITIES.items():
            say(f"{called}: {SETTLE_SECONDS + SECONDS:.0f} s")
            set_quotas(targets, entity, BYTES_PER_SECOND)
            runs = {
                what: [pool.submit(run, target, topic) for target in targets]
                for what, run, topic in (
                    ("produce", produced_per_second, produced),
                    ("fetch", fetched_per_second, fetched),
                )
            }
            for what, (node, peer) in runs.items():
                off, peer_off = ((run.result() / BYTES_PER_SECOND - 1) * 100 for run in (node, peer))
                figure(
                    f"{what} quota of {called}: off by",
                    abs(off),
                    "%",
                    peer=PEER,
                    peer_value=abs(peer_off),
                    at_most=OFF_PERCENT_MAX,
                    note=f"{off:+.1f} % beside {peer_off:+.1f} %, of values in {SECONDS:.0f} s",
                )
            set_quotas(targets, entity, None)


if __name__ == "__main__":
    main()

"""What clients tell Prometheus of themselves."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import threading
import warnings
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from prometheus_client import CollectorRegistry, generate_latest

from support.fixtures.loop_runner import on_a_loop_of_its_own
from support.fixtures.model_cluster import ModelCluster
from support.fixtures.scripted_broker import HANG_UP
from tidelog import Consumer, Producer, TidelogError, TopicPartition, aio
from tidelog.client.core.values import ProducerStatistics
from tidelog.prometheus import ClientCollector
from tidelog.wire import ApiKey

FAST: dict[str, Any] = {"retry_backoff_ms": 5, "retry_backoff_max_ms": 20, "linger_ms": 0}
WHERE = TopicPartition("t", 0)


@pytest.fixture
def cluster() -> Iterator[ModelCluster]:
    with on_a_loop_of_its_own(ModelCluster()) as cluster:
        cluster.create("t", 1)
        yield cluster


def values_of(collector: ClientCollector) -> dict[str, float]:
    """The samples that have a value other than 0."""
    registry = CollectorRegistry()
    collector.register(registry)
    lines = generate_latest(registry).decode().splitlines()
    pairs = [line.rpartition(" ") for line in lines if line and not line.startswith("#") and "_created" not in line]
    return {name: float(value) for name, _, value in pairs if float(value)}


def test_a_producer_counts_what_became_of_its_records(cluster: ModelCluster) -> None:
    with Producer(cluster.address, client_id="writer", **FAST) as producer:
        for _ in range(3):
            producer.send("t", b"x" * 10, partition=0).result(10)
        found = values_of(ClientCollector(producer))
        assert producer.statistics().records_delivered == 3
    assert found['tidelog_producer_records_delivered_total{client_id="writer"}'] == 3
    assert found['tidelog_producer_batches_delivered_total{client_id="writer"}'] == 3
    assert found['tidelog_producer_bytes_delivered_total{client_id="writer"}'] >= 30
    assert not [name for name in found if "failed" in name or "waiting" in name or "buffered" in name]


def test_records_that_fail_are_counted_and_those_that_wait_are_seen(cluster: ModelCluster) -> None:
    cluster.on(ApiKey.PRODUCE, lambda request, version: HANG_UP)
    producer = Producer(cluster.address, delivery_timeout_ms=500, **FAST)
    sent = producer.send("t", b"x", partition=0)
    waiting = producer.statistics()
    assert waiting.batches_waiting + waiting.batches_in_flight == 1
    assert waiting.buffered_bytes > 0
    with pytest.raises(TidelogError):
        sent.result(10)
    statistics = producer.statistics()
    assert (statistics.records_failed, statistics.records_delivered, statistics.buffered_bytes) == (1, 0, 0)
    assert statistics.batches_retried >= 1
    producer.close()


def test_a_consumer_shows_its_positions_and_its_lag(cluster: ModelCluster) -> None:
    with Producer(cluster.address, **FAST) as producer:
        for _ in range(5):
            producer.send("t", b"x", partition=0).result(10)
    with Consumer(cluster.address, auto_offset_reset="earliest", client_id="reader") as consumer:
        consumer.assign([WHERE])
        assert len(consumer.poll(5_000, max_records=2)) == 2
        found = values_of(ClientCollector(consumer))
    labels = 'client_id="reader",partition="0",topic="t"'
    assert found[f"tidelog_consumer_position{{{labels}}}"] == 2
    assert found[f"tidelog_consumer_lag{{{labels}}}"] == 3
    assert found['tidelog_consumer_assigned_partitions{client_id="reader"}'] == 1


def test_clients_of_an_event_loop_are_asked_on_it_from_wherever_the_scrape_comes(cluster: ModelCluster) -> None:
    async def work() -> None:
        async with aio.Producer(cluster.address, **FAST) as producer:
            await (await producer.send("t", b"x", partition=0))
            async with aio.Consumer(cluster.address, auto_offset_reset="earliest") as consumer:
                consumer.assign([WHERE])
                assert await consumer.poll(5_000)
                collector = ClientCollector(producer, consumer)
                here = values_of(collector)
                there = await asyncio.to_thread(values_of, collector)
        assert here == there
        assert here['tidelog_consumer_position{client_id="tidelog",partition="0",topic="t"}'] == 1
        assert here['tidelog_producer_records_delivered_total{client_id="tidelog"}'] == 1

    asyncio.run(work())


def test_who_is_closed_or_gone_is_left_out_and_gives_its_name_away(cluster: ModelCluster) -> None:
    first = Consumer(cluster.address, client_id="a")
    collector = ClientCollector(first)
    assert values_of(collector) == {}
    first.assign([WHERE])
    assert values_of(collector) != {}
    with pytest.raises(ValueError, match="two consumers have client_id='a': give each one of its own"):
        collector.add(Consumer(cluster.address, client_id="a"))
    first.close()
    assert values_of(collector) == {}
    with Consumer(cluster.address, client_id="a") as second:
        second.assign([WHERE])
        collector.add(second)
        assert values_of(collector) != {}
    del second
    gc.collect()
    assert values_of(collector) == {}


def test_what_is_no_client_is_refused() -> None:
    wrong: Any = threading
    with pytest.raises(TypeError, match="is no consumer and no producer of Tidelog"):
        ClientCollector(wrong)


def test_a_client_may_be_added_while_prometheus_asks_the_others(cluster: ModelCluster) -> None:
    collector = ClientCollector()

    class Adding(Producer):
        def statistics(self) -> ProducerStatistics:
            collector.add(other)
            return super().statistics()

    with Producer(cluster.address, client_id="other") as other, Adding(cluster.address, client_id="adds") as adding:
        collector.add(adding)
        values_of(collector)
        assert collector.client_ids() == {("producer", "adds"), ("producer", "other")}
    values_of(collector)
    assert collector.client_ids() == set()  # who makes clients for ever keeps none of them


@pytest.mark.parametrize("is_over", [True, False])
def test_a_loop_that_is_over_or_stands_still_is_left_out(cluster: ModelCluster, is_over: bool) -> None:
    loop = asyncio.new_event_loop()

    async def make() -> tuple[aio.Consumer, ClientCollector]:
        consumer = aio.Consumer(cluster.address)
        return consumer, ClientCollector(consumer, ask_seconds_max=0.05)

    consumer, collector = loop.run_until_complete(make())
    if not is_over:
        assert values_of(collector) == {}
        loop.run_until_complete(consumer.close())
    loop.close()
    assert values_of(collector) == {}
    gc.collect()  # nothing that was to be awaited is left


def test_a_consumer_that_deserializes_for_long_is_left_out(cluster: ModelCluster) -> None:
    begun, may_end = threading.Event(), threading.Event()

    def slow(data: bytes | None) -> bytes | None:
        begun.set()
        may_end.wait(60)
        return data

    with Producer(cluster.address, **FAST) as producer:
        producer.send("t", b"x", partition=0).result(10)
    with Consumer(cluster.address, auto_offset_reset="earliest", value_deserializer=slow) as consumer:
        consumer.assign([WHERE])
        collector = ClientCollector(consumer, ask_seconds_max=0.05)
        with ThreadPoolExecutor(1) as pool:
            polled = pool.submit(consumer.poll, 10_000)
            assert begun.wait(10)
            assert values_of(collector) == {}
            may_end.set()
            assert len(polled.result(10)) == 1
        assert values_of(collector) != {}


def test_a_forked_process_does_not_ask_the_clients_of_its_parent(cluster: ModelCluster) -> None:
    """They have no threads there, and their locks may be held by one."""
    with Producer(cluster.address) as producer, Consumer(cluster.address) as consumer:
        consumer.assign([WHERE])
        collector = ClientCollector(producer, consumer)
        with producer._sender_task.lock, warnings.catch_warnings():  # as one of its threads may hold it
            warnings.simplefilter("ignore", DeprecationWarning)  # newer Pythons advise against what is tested here
            child = os.fork()
            if child == 0:
                status = 1
                try:
                    signal.signal(signal.SIGALRM, signal.SIG_DFL)
                    signal.alarm(30)
                    status = int(values_of(collector) != {})
                finally:
                    os._exit(status)
        assert os.waitpid(child, 0)[1] == 0
        assert values_of(collector) != {}

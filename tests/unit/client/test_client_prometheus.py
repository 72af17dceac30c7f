"""What clients tell Prometheus of themselves."""

from __future__ import annotations

import asyncio
import gc
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from prometheus_client import CollectorRegistry, generate_latest

from support.fixtures.loop_runner import on_a_loop_of_its_own
from support.fixtures.model_cluster import ModelCluster
from support.fixtures.scripted_broker import HANG_UP
from tidelog import Consumer, Producer, TidelogError, TopicPartition, aio
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

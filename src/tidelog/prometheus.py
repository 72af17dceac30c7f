"""Metrics of the clients of a process, for Prometheus.

    from prometheus_client import start_http_server
    from tidelog.prometheus import ClientCollector

    ClientCollector(consumer, producer).register()
    start_http_server(9400)

Kafka's clients have them as JMX beans: `consumer-fetch-manager-metrics`, `producer-metrics`.
"""

from __future__ import annotations

import asyncio
import os
import weakref
from collections.abc import Iterable
from concurrent.futures import Future
from typing import Any

from prometheus_client import REGISTRY, CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from tidelog.base.errors import TidelogError
from tidelog.base.ids import TopicPartition
from tidelog.client.async_consumer import AsyncConsumer
from tidelog.client.async_producer import AsyncProducer
from tidelog.client.consumer import Consumer
from tidelog.client.core.values import PartitionStatistics, ProducerStatistics
from tidelog.client.producer import Producer

AnyClient = Consumer[Any, Any] | AsyncConsumer[Any, Any] | Producer[Any, Any] | AsyncProducer[Any, Any]

ASK_SECONDS_MAX = 5.0

_PARTITION_GAUGES = (
    ("position", "Offset of the next record to deliver."),
    ("lag", "Offsets from the position to the end of what may be read."),
    ("log_start_offset", "Of the first record of the log."),
    ("high_watermark", "As the leader said it last."),
    ("last_stable_offset", "As the leader said it last."),
)
_PARTITION_COUNTERS = (
    ("high_watermark_regressions", "How often a leader said a lower high watermark than was said before."),
    ("truncations", "How often the log was found to lack what was read, or stood past."),
)
_PRODUCER_COUNTERS = (
    ("records_delivered", "Records that brokers acknowledged."),
    ("batches_delivered", "Batches that brokers acknowledged."),
    ("bytes_delivered", "Bytes of acknowledged records, before compression; at the most."),
    ("records_failed", "Records that were not delivered."),
    ("batches_retried", "Batches that were sent again."),
    ("losses", "How often it showed that acknowledged records are gone."),
)
_PRODUCER_GAUGES = (
    ("batches_waiting", "Batches that are not sent yet."),
    ("batches_in_flight", "Batches that are sent and not answered."),
    ("buffered_bytes", "Bytes of what is neither delivered nor has failed."),
)


class ClientCollector(Collector):
    """Reads the statistics of clients whenever Prometheus asks.

    A client that is closed or gone is left out, as is each in a process that was forked. A consumer is asked on its
    event loop: one whose deserializer takes longer than `ask_seconds_max` is left out once.

    Args:
        clients: consumers and producers, blocking or of `tidelog.aio`. Those of `tidelog.aio` are given on their loop.
        ask_seconds_max: how long to wait for the loop of a consumer.

    Raises:
        ValueError: two of one kind have the same `client_id`, by which their metrics are told apart.
        TypeError: no client of Tidelog.
    """

    def __init__(self, *clients: AnyClient, ask_seconds_max: float = ASK_SECONDS_MAX) -> None:
        self._ask_seconds_max = ask_seconds_max
        self._clients: dict[tuple[str, str], _Watched] = {}
        self._pid = os.getpid()
        for client in clients:
            self.add(client)

    def add(self, client: AnyClient) -> None:
        """One more. Raises as the constructor does."""
        if not isinstance(client, (Consumer, AsyncConsumer, Producer, AsyncProducer)):
            raise TypeError(f"{client!r} is no consumer and no producer of Tidelog")
        kind = "consumer" if isinstance(client, (Consumer, AsyncConsumer)) else "producer"
        key = (kind, client.client_id)
        there = self._clients.get(key)
        if there is not None and there.client() not in (None, client) and there.is_there:
            raise ValueError(f"two {kind}s have client_id={client.client_id!r}: give each one of its own")
        self._clients[key] = _Watched(client)

    def client_ids(self) -> set[tuple[str, str]]:
        """The kind ("consumer", "producer") and the client id of each that is asked."""
        return set(self._clients)

    def register(self, registry: CollectorRegistry | None = None) -> ClientCollector:
        """Have a registry collect from here; by default the one that `prometheus_client` serves."""
        (REGISTRY if registry is None else registry).register(self)
        return self

    def describe(self) -> Iterable[Metric]:
        """No metric is named beforehand: the clients are not asked before there is a scrape."""
        return ()

    def collect(self) -> Iterable[Metric]:
        """What `prometheus_client` asks for."""
        found = {}
        watched = self._clients.copy() if self._pid == os.getpid() else {}  # clients have no threads in a fork
        for key, one in watched.items():
            found[key] = one.statistics(self._ask_seconds_max)
            if not one.is_there and self._clients.get(key) is one:
                self._clients.pop(key, None)
        partitions = {name: each for (kind, name), each in found.items() if kind == "consumer" and each is not None}
        producers = {name: each for (kind, name), each in found.items() if kind == "producer" and each is not None}
        yield from _of_partitions(partitions)
        yield from _of_producers(producers)


class _Watched:
    """A client, which may end and be forgotten at any time."""

    def __init__(self, client: AnyClient) -> None:
        self.client = weakref.ref(client)
        self._loop: asyncio.AbstractEventLoop | None = None  # a producer's statistics are for any thread
        if isinstance(client, Consumer):
            self._loop = client._thread.loop
        elif isinstance(client, AsyncConsumer):
            self._loop = asyncio.get_running_loop()

    @property
    def is_there(self) -> bool:
        """Whether it is neither closed nor gone, and its loop is not over."""
        client = self.client()
        return client is not None and not client.is_closed and (self._loop is None or not self._loop.is_closed())

    def statistics(self, seconds_max: float) -> Any:
        """None: it is closed, or gone, or cannot say in time."""
        client = self.client()
        if client is None or not self.is_there:
            return None
        source = client._async if isinstance(client, Consumer) else client
        try:
            if self._loop is None or self._loop is _running_loop():
                return source.statistics()
            asked: Future[Any] = Future()
            self._loop.call_soon_threadsafe(_answer, source, asked)
            return asked.result(seconds_max)
        except (TidelogError, RuntimeError, TimeoutError):  # closed meanwhile, or its loop is, or that is busy
            return None


def _answer(client: AnyClient, asked: Future[Any]) -> None:
    try:
        asked.set_result(client.statistics())
    except Exception as error:
        asked.set_exception(error)


def _running_loop() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None


def _of_partitions(found: dict[str, dict[TopicPartition, PartitionStatistics]]) -> Iterable[Metric]:
    labels = ("client_id", "topic", "partition")
    for kind, rows in ((GaugeMetricFamily, _PARTITION_GAUGES), (CounterMetricFamily, _PARTITION_COUNTERS)):
        for name, meaning in rows:
            family = kind(f"tidelog_consumer_{name}", meaning, labels=labels)
            for client_id, partitions in found.items():
                for (topic, partition), statistics in partitions.items():
                    value = getattr(statistics, name)
                    if value is not None:
                        family.add_metric((client_id, topic, str(partition)), value)
            yield family
    assigned = GaugeMetricFamily("tidelog_consumer_assigned_partitions", "Partitions that are read.", labels=labels[:1])
    for client_id, partitions in found.items():
        assigned.add_metric((client_id,), len(partitions))
    yield assigned


def _of_producers(found: dict[str, ProducerStatistics]) -> Iterable[Metric]:
    labels = ("client_id",)
    for kind, rows in ((CounterMetricFamily, _PRODUCER_COUNTERS), (GaugeMetricFamily, _PRODUCER_GAUGES)):
        for name, meaning in rows:
            family = kind(f"tidelog_producer_{name}", meaning, labels=labels)
            for client_id, statistics in found.items():
                family.add_metric((client_id,), getattr(statistics, name))
            yield family
    age = GaugeMetricFamily(
        "tidelog_producer_oldest_batch_seconds", "How long the oldest batch that is not done has waited.", labels=labels
    )
    for client_id, statistics in found.items():
        age.add_metric((client_id,), statistics.oldest_batch_ms / 1000)
    yield age

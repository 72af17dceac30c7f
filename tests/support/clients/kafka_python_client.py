"""kafka-python as its users use it, with deadlines. Codecs it finds no library for are lent to it.

kafka-python leaves snappy, lz4 and zstd to libraries that users install beside it. Where they are missing, cramjam does
the compressing; the framing around it, which is what brokers get wrong, stays kafka-python's own.
"""

from __future__ import annotations

import selectors
import socket
import time
import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from io import BytesIO
from types import SimpleNamespace, TracebackType
from typing import Any

import cramjam

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # it reads its schemas in a way that Python 3.11 deprecates
    import kafka
    import kafka.codec
    import kafka.record.default_records
    from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition
    from kafka.admin import ConfigResource, ConfigResourceType, OffsetSpec

__all__ = [
    "ConfigResource",
    "ConfigResourceType",
    "OffsetSpec",
    "TopicPartition",
    "admin_of",
    "consumer_of",
    "kafka",
    "lend_codecs",
    "produce",
    "producer_of",
    "read_to_end",
]

DEADLINE_SECONDS = 60.0
DEADLINE_MS = 20_000


class _ZstdReader(BytesIO):
    def __enter__(self) -> _ZstdReader:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()


class _ZstdDecompressor:
    def stream_reader(self, source: BytesIO, *, read_across_frames: bool) -> _ZstdReader:
        return _ZstdReader(bytes(cramjam.zstd.decompress(source.read())))


def lend_codecs() -> None:
    """Give kafka-python the codecs that it has no library for."""
    codec = kafka.codec
    if codec.snappy is None:
        codec.snappy = SimpleNamespace(
            compress=lambda data: bytes(cramjam.snappy.compress_raw(data)),
            decompress=lambda data: bytes(cramjam.snappy.decompress_raw(data)),
        )
    if codec.zstd is None:
        codec.zstd = SimpleNamespace(
            ZstdCompressor=lambda: SimpleNamespace(compress=lambda data: bytes(cramjam.zstd.compress(data))),
            ZstdDecompressor=_ZstdDecompressor,
        )
    if not codec.has_lz4():
        codec.lz4 = SimpleNamespace()
        for module in (codec, kafka.record.default_records):
            module.lz4_encode = lambda data: bytes(cramjam.lz4.compress(bytes(data)))
            module.lz4_decode = lambda data: bytes(cramjam.lz4.decompress(data))


class _Sockets:
    """Every socket that a client waited on: it leaves some open when it is closed, which a later test would be told."""

    def __init__(self) -> None:
        self.seen: list[socket.socket] = []
        seen = self.seen

        class Selector(selectors.DefaultSelector):
            def register(self, fileobj: Any, events: int, data: Any = None) -> selectors.SelectorKey:
                if isinstance(fileobj, socket.socket):
                    seen.append(fileobj)
                return super().register(fileobj, events, data)

        self.selector = Selector

    def close(self) -> None:
        for each in self.seen:
            each.close()


@contextmanager
def _closing(client_class: Any, settings: dict[str, Any]) -> Iterator[Any]:
    sockets = _Sockets()
    try:
        client = client_class(**settings, selector=sockets.selector)
        try:
            yield client
        finally:
            client.close()
    finally:
        sockets.close()


@contextmanager
def producer_of(bootstrap: str, **settings: Any) -> Iterator[Any]:
    defaults = {"bootstrap_servers": bootstrap, "max_block_ms": DEADLINE_MS}
    with _closing(KafkaProducer, defaults | settings) as producer:
        yield producer


@contextmanager
def consumer_of(bootstrap: str, **settings: Any) -> Iterator[Any]:
    """A consumer without a group, which is how kafka-python wants to be given partitions by hand."""
    defaults = {
        "bootstrap_servers": bootstrap,
        "group_id": None,
        "auto_offset_reset": "none",
        "enable_auto_commit": False,
        "fetch_max_wait_ms": 100,
    }
    with _closing(KafkaConsumer, defaults | settings) as consumer:
        yield consumer


@contextmanager
def admin_of(bootstrap: str, **settings: Any) -> Iterator[Any]:
    with _closing(KafkaAdminClient, {"bootstrap_servers": bootstrap} | settings) as admin:
        yield admin


def produce(producer: Any, topic: str, records: Iterable[dict[str, Any]], *, partition: int = 0) -> list[int]:
    """Send in order (each record the arguments of `send`) and wait: the offset of each.

    Raises:
        kafka.errors.KafkaError: the first refusal.
    """
    futures = [producer.send(topic, partition=partition, **record) for record in records]
    producer.flush(timeout=DEADLINE_SECONDS)
    return [future.get(timeout=DEADLINE_SECONDS).offset for future in futures]


def read_to_end(consumer: Any, partition: TopicPartition) -> list[Any]:
    """What comes until the position is the end offset that the broker tells beforehand."""
    end_offset = consumer.end_offsets([partition])[partition]
    found: list[Any] = []
    deadline = time.monotonic() + DEADLINE_SECONDS
    while consumer.position(partition) < end_offset:
        assert time.monotonic() < deadline, f"{len(found)} records came, then no more"
        for records in consumer.poll(timeout_ms=200, max_records=100_000).values():
            found += records
    return found

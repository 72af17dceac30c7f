"""The clients of a verifying load: what one thread does, for each kind of them."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import confluent_kafka
from confluent_kafka import OFFSET_BEGINNING, KafkaError

import tidelog
from support.clients.confluent import consumer_of
from support.load.histories import Given, RecordId, Told
from support.load.ways import Way
from tidelog.base.errors import LogTruncatedError, OffsetOutOfRangeError, RecordsLostError
from tidelog.base.ids import PartitionIndex, TopicPartition
from tidelog.client.core.values import RecordMetadata
from tidelog.client.futures import Future

if TYPE_CHECKING:
    from support.load.verifying import VerifyingLoad

DELIVERY_MS_MAX = 60_000
UNDER_WAY_MAX = 40  # records of one producer
BURST = 10
POLL_SECONDS = 0.05
PASSING = frozenset({KafkaError._ALL_BROKERS_DOWN, KafkaError._TRANSPORT, KafkaError._TIMED_OUT})

Work = Callable[["VerifyingLoad", str], None]
_UnderWay = deque[tuple[RecordId, Future[RecordMetadata]]]


def produce_with_ours(load: VerifyingLoad, name: str) -> None:
    """Tidelog's producer; another one after each that was told of a loss, and stopped for it."""
    while not load.producing_ended.is_set():
        way = load.begin_on_way("write", name)
        producer = tidelog.Producer(
            way.bootstrap,
            client_id=name,
            enable_idempotence=name not in PLAIN,
            max_in_flight_requests_per_connection=1 if name in PLAIN else 5,
            linger_ms=1,
            compression_type=load.codec,
            delivery_timeout_ms=DELIVERY_MS_MAX,
            retry_backoff_ms=20,
            retry_backoff_max_ms=200,
            reconnect_backoff_ms=10,
            reconnect_backoff_max_ms=200,
            on_records_lost=lambda error: load.history.reported.append(f"{name}: {error}"),
            **way.of_ours,
        )
        under_way: _UnderWay = deque()
        try:
            _send_with_ours(load, name, way, producer, under_way)
        except RecordsLostError as error:
            load.history.reported.append(f"{name}: {error}")
        finally:
            _settle(load, under_way, 0)
            producer.close()


def _send_with_ours(load: VerifyingLoad, name: str, way: Way, producer: tidelog.Producer, under_way: _UnderWay) -> None:
    while load.way is way and not load.producing_ended.is_set():
        for partition in range(load.partitions):
            for _ in range(BURST):
                record = load.next_record(name, partition)
                under_way.append((record, producer.send(load.topic, record.value, partition=partition)))
            _settle(load, under_way, UNDER_WAY_MAX)
        if load.pause_seconds:
            _settle(load, under_way, 0)
            load.producing_ended.wait(load.pause_seconds)


def _settle(load: VerifyingLoad, under_way: _UnderWay, count_left: int) -> None:
    """The outcomes come in the order in which the records were sent."""
    while len(under_way) > count_left:
        record, future = under_way.popleft()
        error = future.exception()
        load.on_outcome(record, None if error else future.result().offset, str(error) if error else None)


def produce_with_theirs(load: VerifyingLoad, name: str) -> None:
    """librdkafka's producer; another one for each way there."""
    while not load.producing_ended.is_set():
        _produce_with_theirs(load, name, load.begin_on_way("write", name))


def _produce_with_theirs(load: VerifyingLoad, name: str, way: Way) -> None:
    producer = confluent_kafka.Producer(
        {
            "bootstrap.servers": way.bootstrap,
            "client.id": name,
            "enable.idempotence": name not in PLAIN,
            "acks": "all",
            "max.in.flight.requests.per.connection": 1 if name in PLAIN else 5,
            "linger.ms": 1,
            "compression.type": load.codec,
            "message.timeout.ms": DELIVERY_MS_MAX,
            "socket.timeout.ms": 20_000,  # so long it waits for a leader that is paused; by default 60 s
            "request.timeout.ms": 15_000,
            "retry.backoff.ms": 20,
            "retry.backoff.max.ms": 200,
            "reconnect.backoff.ms": 10,
            "reconnect.backoff.max.ms": 200,
            **way.of_theirs,
        }
    )

    def noting(record: RecordId) -> Callable[[KafkaError | None, Any], None]:
        def note(error: KafkaError | None, message: Any) -> None:
            offset = message.offset() if error is None and message.offset() >= 0 else None
            load.on_outcome(record, offset, None if error is None else str(error))

        return note

    while load.way is way and not load.producing_ended.is_set():
        for partition in range(load.partitions):
            for _ in range(BURST):
                record = load.next_record(name, partition)
                producer.produce(load.topic, record.value, partition=partition, on_delivery=noting(record))
            while len(producer) > UNDER_WAY_MAX:
                producer.poll(POLL_SECONDS)
        if load.pause_seconds:
            load.producing_ended.wait(load.pause_seconds)
            producer.poll(0)
    assert producer.flush(2 * DELIVERY_MS_MAX / 1_000) == 0, f"{name}: neither acknowledged nor given up in time"


def read_with_ours(load: VerifyingLoad, name: str) -> None:
    """Tidelog's consumer; another one for each way there. Where it is told of a loss, it goes on from there."""
    positions: dict[int, int] = {}
    while not load.has_read_all(positions):
        _read_with_ours(load, name, load.begin_on_way("read", name), positions)


def _read_with_ours(load: VerifyingLoad, name: str, way: Way, positions: dict[int, int]) -> None:
    given = load.history.given[name]
    partitions = [TopicPartition(load.topic, PartitionIndex(index)) for index in range(load.partitions)]
    with tidelog.Consumer(
        way.bootstrap,
        auto_offset_reset="none",
        reconnect_backoff_ms=10,
        reconnect_backoff_max_ms=200,
        **way.of_ours,
    ) as consumer:
        consumer.assign(partitions)
        consumer.seek_to_beginning(partitions)
        for index, position in positions.items():
            consumer.seek(TopicPartition(load.topic, PartitionIndex(index)), position)
        while load.way is way and not load.has_read_all(positions):
            try:
                records = consumer.poll(int(POLL_SECONDS * 1_000), 10_000)
            except LogTruncatedError as error:
                going_on = error.divergent_offset or 0
                given.append(Told(error.partition.partition, error.divergent_offset, going_on))
                consumer.seek(error.partition, going_on, error.divergent_leader_epoch)
                positions[error.partition.partition] = going_on
                continue
            except OffsetOutOfRangeError as error:
                end_offset = error.end_offset
                assert end_offset is not None
                given.append(Told(error.partition.partition, end_offset, end_offset))
                consumer.seek(error.partition, end_offset)
                positions[error.partition.partition] = end_offset
                continue
            for one in records:
                given.append(Given(one.partition, one.offset, one.value, one.leader_epoch))
                positions[one.partition] = one.offset + 1


def read_with_theirs(load: VerifyingLoad, name: str) -> None:
    """librdkafka's consumer; another one for each way there. It is to be told of no loss: then it fails."""
    positions: dict[int, int] = {}
    while not load.has_read_all(positions):
        _read_with_theirs(load, name, load.begin_on_way("read", name), positions)


def _read_with_theirs(load: VerifyingLoad, name: str, way: Way, positions: dict[int, int]) -> None:
    given = load.history.given[name]
    with consumer_of(way.bootstrap, enable_partition_eof=False, **way.of_theirs) as consumer:
        consumer.assign(
            [
                confluent_kafka.TopicPartition(load.topic, index, positions.get(index, OFFSET_BEGINNING))
                for index in range(load.partitions)
            ]
        )
        while load.way is way and not load.has_read_all(positions):
            for message in consumer.consume(10_000, timeout=POLL_SECONDS):
                error = message.error()
                if error is not None:
                    if error.retriable() or error.code() in PASSING:
                        continue
                    raise confluent_kafka.KafkaException(error)
                partition, offset = message.partition(), message.offset()
                assert partition is not None
                assert offset is not None
                given.append(Given(partition, offset, message.value(), message.leader_epoch()))
                positions[partition] = offset + 1


PLAIN = frozenset({"ours-plain", "librdkafka-plain"})
"""Producers without idempotence: one request at a time, which they may write twice."""

PRODUCERS: Mapping[str, Work] = MappingProxyType(
    {
        "ours": produce_with_ours,
        "ours-plain": produce_with_ours,
        "librdkafka": produce_with_theirs,
        "librdkafka-plain": produce_with_theirs,
    }
)
READERS: Mapping[str, Work] = MappingProxyType({"ours": read_with_ours, "librdkafka": read_with_theirs})

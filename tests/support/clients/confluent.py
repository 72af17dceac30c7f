"""confluent-kafka (librdkafka) as its users use it, with deadlines, and records as plain tuples."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import confluent_kafka
from confluent_kafka import TIMESTAMP_NOT_AVAILABLE, KafkaError
from confluent_kafka.admin import AdminClient, NewTopic

DEADLINE_SECONDS = 60.0

Headers = tuple[tuple[str, bytes | None], ...]


class Sent(NamedTuple):
    """A record as it goes in."""

    value: bytes | None
    key: bytes | None = None
    headers: Headers = ()
    timestamp_ms: int = 1_700_000_000_000


class Read(NamedTuple):
    """A record as it comes out."""

    offset: int
    value: bytes | None
    key: bytes | None
    headers: Headers
    timestamp_ms: int
    leader_epoch: int | None


class Refused(NamedTuple):
    """A record that was not taken."""

    code: str


def new_producer(bootstrap: str, **settings: Any) -> confluent_kafka.Producer:
    """Settings with `_` for `.`, on top of some that make it give up in reasonable time."""
    config: dict[str, Any] = {
        "bootstrap.servers": bootstrap,
        "message.timeout.ms": 15_000,
        "reconnect.backoff.max.ms": 200,
        "retry.backoff.max.ms": 100,
    }
    return confluent_kafka.Producer(config | {key.replace("_", "."): value for key, value in settings.items()})


def learn_topic(producer: confluent_kafka.Producer, topic: str) -> None:
    """Let the producer learn the topic's partitions before its records come.

    Records of a topic not known yet wait in another queue, from which librdkafka moves them one by one once the
    metadata is there: a `flush` meanwhile sends whatever has been moved so far, in batches of any size.
    """
    producer.list_topics(topic, timeout=DEADLINE_SECONDS)


def produce(
    producer: confluent_kafka.Producer, topic: str, records: Iterable[Sent], *, partition: int = 0
) -> list[int | Refused]:
    """Produce in order and flush: the offset of each record, or why it was refused."""
    answers: dict[int, int | Refused] = {}

    def noting(number: int) -> Callable[[KafkaError | None, Any], None]:
        def note(error: KafkaError | None, message: Any) -> None:
            answers[number] = message.offset() if error is None else Refused(error.name())

        return note

    for number, record in enumerate(records):
        producer.produce(
            topic,
            value=record.value,
            key=record.key,
            headers=list(record.headers) or None,
            timestamp=record.timestamp_ms,
            partition=partition,
            on_delivery=noting(number),
        )
    assert producer.flush(DEADLINE_SECONDS) == 0, "records were neither acknowledged nor refused in time"
    return [answers[number] for number in sorted(answers)]


@contextmanager
def consumer_of(bootstrap: str, **settings: Any) -> Iterator[confluent_kafka.Consumer]:
    """A consumer that is given its partitions by hand. librdkafka asks for a group id all the same."""
    config: dict[str, Any] = {
        "bootstrap.servers": bootstrap,
        "group.id": "none",
        "enable.auto.commit": False,
        "enable.partition.eof": True,
        "auto.offset.reset": "error",
        "reconnect.backoff.max.ms": 200,
        "fetch.wait.max.ms": 100,
    }
    consumer = confluent_kafka.Consumer(config | {key.replace("_", "."): value for key, value in settings.items()})
    try:
        yield consumer
    finally:
        consumer.close()


def read_to_end(consumer: confluent_kafka.Consumer, partitions: int = 1) -> list[Read]:
    """What comes until each of the partitions says that it has reached its end.

    Raises:
        confluent_kafka.KafkaException: the consumer reported anything else.
    """
    found: list[Read] = []
    ended = 0
    deadline = time.monotonic() + DEADLINE_SECONDS
    while ended < partitions:
        assert time.monotonic() < deadline, f"{len(found)} records came, then no more and no end"
        for message in consumer.consume(10_000, timeout=0.05):
            error = message.error()
            if error is None:
                found.append(as_read(message))
            elif error.code() == KafkaError._PARTITION_EOF:
                ended += 1
            else:
                raise confluent_kafka.KafkaException(error)
    return found


def as_read(message: Any) -> Read:
    kind, timestamp_ms = message.timestamp()
    return Read(
        offset=message.offset(),
        value=message.value(),
        key=message.key(),
        headers=tuple(message.headers() or ()),
        timestamp_ms=-1 if kind == TIMESTAMP_NOT_AVAILABLE else timestamp_ms,
        leader_epoch=message.leader_epoch(),
    )


def read_from(bootstrap: str, topic: str, offset: int = 0, *, partition: int = 0, **settings: Any) -> list[Read]:
    """Everything in one partition from `offset` (or OFFSET_BEGINNING and so on) to its end."""
    with consumer_of(bootstrap, **settings) as consumer:
        consumer.assign([confluent_kafka.TopicPartition(topic, partition, offset)])
        return read_to_end(consumer)


def create_topic(admin: AdminClient, topic: str, partitions: int = 1, **config: str) -> None:
    """Create it, with settings that have `_` for `.`; returns when it is there."""
    new = NewTopic(topic, partitions, 1, config={key.replace("_", "."): value for key, value in config.items()})
    admin.create_topics([new])[topic].result(DEADLINE_SECONDS)


def as_sent(records: Sequence[Read]) -> list[Sent]:
    """What was read, without what the broker added to it."""
    return [Sent(record.value, record.key, record.headers, record.timestamp_ms) for record in records]

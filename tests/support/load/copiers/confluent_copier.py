"""A copier by confluent-kafka. It ends where a transaction does not: librdkafka may forget a coordinator that died."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaException, Message, Producer

from support.load.copiers.told import (
    BATCH_RECORDS_MAX,
    POLL_SECONDS,
    SESSION_TIMEOUT_MS,
    TIMEOUT_SECONDS,
    Told,
    listen,
    watched,
)


def insist(call: Callable[..., Any], *arguments: Any) -> None:
    """Repeat a call while its failure passes."""
    while True:
        try:
            call(*arguments, TIMEOUT_SECONDS)
            return
        except KafkaException as error:
            if not error.args[0].retriable():
                raise


def main() -> None:
    told = listen()
    consumer = Consumer(
        {
            "bootstrap.servers": told.bootstrap,
            "group.id": told.name,
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "session.timeout.ms": SESSION_TIMEOUT_MS,
        }
    )
    producer = Producer({"bootstrap.servers": told.bootstrap, "transactional.id": told.name, "linger.ms": 0})
    with watched():
        insist(producer.init_transactions)
    consumer.subscribe([told.source])
    while True:
        found = consumer.consume(BATCH_RECORDS_MAX, POLL_SECONDS)
        records = [message for message in found if message.error() is None]
        if not records:
            continue
        with watched():
            copy(told, consumer, producer, records)


def copy(told: Told, consumer: Consumer, producer: Producer, records: list[Message]) -> None:
    try:
        producer.begin_transaction()
        for record in records:
            producer.produce(told.target, record.value(), partition=record.partition() or 0)
        positions = consumer.position(consumer.assignment())
        insist(producer.send_offsets_to_transaction, positions, consumer.consumer_group_metadata())
        insist(producer.commit_transaction)
    except KafkaException as error:
        if not error.args[0].txn_requires_abort():
            raise
        insist(producer.abort_transaction)
        for position in consumer.committed(consumer.assignment(), TIMEOUT_SECONDS):
            position.offset = position.offset if position.offset >= 0 else OFFSET_BEGINNING
            consumer.seek(position)


if __name__ == "__main__":
    main()

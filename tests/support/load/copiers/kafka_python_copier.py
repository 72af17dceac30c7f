"""A copier by kafka-python. It ends where a transaction does not: a request of its producer can be forgotten."""

from __future__ import annotations

from typing import Any

from kafka import KafkaConsumer, KafkaProducer
from kafka.errors import KafkaError, ProducerFencedError
from kafka.structs import OffsetAndMetadata

from support.load.copiers.told import BATCH_RECORDS_MAX, POLL_SECONDS, SESSION_TIMEOUT_MS, Told, listen, watched


def go_back(consumer: Any) -> None:
    """Read again from the last committed transaction."""
    for place in consumer.assignment():
        committed = consumer.committed(place)
        if committed is None:
            consumer.seek_to_beginning(place)
        else:
            consumer.seek(place, committed)


def main() -> None:
    told = listen()
    consumer: Any = KafkaConsumer(
        told.source,
        bootstrap_servers=told.bootstrap.split(","),
        group_id=told.name,
        isolation_level="read_committed",
        enable_auto_commit=False,
        auto_offset_reset="earliest",
        session_timeout_ms=SESSION_TIMEOUT_MS,
    )
    producer = new_producer(told)
    while True:
        found = consumer.poll(timeout_ms=int(POLL_SECONDS * 1_000), max_records=BATCH_RECORDS_MAX)
        if not found:
            continue
        with watched():
            producer = copy(told, consumer, producer, found)


def new_producer(told: Told) -> Any:
    producer: Any = KafkaProducer(bootstrap_servers=told.bootstrap.split(","), transactional_id=told.name)
    with watched():
        producer.init_transactions()
    return producer


def copy(told: Told, consumer: Any, producer: Any, found: dict[Any, Any]) -> Any:
    """Returns the producer of the next transaction: another one after an abort, as FINDINGS.md says."""
    try:
        producer.begin_transaction()
        for place, records in found.items():
            for record in records:
                producer.send(told.target, record.value, partition=place.partition)
        offsets = {
            place: OffsetAndMetadata(records[-1].offset + 1, "", records[-1].leader_epoch)
            for place, records in found.items()
        }
        producer.send_offsets_to_transaction(offsets, consumer.group_metadata())
        producer.commit_transaction()
    except ProducerFencedError:
        raise
    except KafkaError:
        producer.abort_transaction()
        producer.close()
        go_back(consumer)
        return new_producer(told)
    return producer


if __name__ == "__main__":
    main()

"""kafka-python: `auto_offset_reset="none"`; the producer as it is, which is idempotent."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from compat.unclean_elections.programs.lines import Arguments, Reader, Send, arguments, say, write_all
from support.clients.kafka_python_client import TopicPartition, kafka


def consumer_of(given: Arguments, reset: str, **settings: Any) -> Any:
    return kafka.KafkaConsumer(
        bootstrap_servers=given.bootstrap.split(","),
        auto_offset_reset=reset,
        enable_auto_commit=False,
        **settings,
    )


def place_of(error: BaseException, partition: TopicPartition) -> int | None:
    offsets = getattr(error, "divergent_offsets", {})
    found = offsets.get(partition)
    return None if found is None else found.offset


def read(consumer: Any, given: Arguments) -> None:
    reader = Reader(given.last)
    while not reader.is_done:
        try:
            records = consumer.poll(timeout_ms=500)
        except kafka.errors.KafkaError as error:
            reader.on_error(type(error).__name__, place_of(error, TopicPartition(given.topic, 0)), error)
            continue
        for record in (record for of_partition in records.values() for record in of_partition):
            reader.on_record(record.offset, record.value.decode())
        if not records:
            reader.on_nothing()


def write(given: Arguments) -> None:
    def new_producer() -> Send:
        producer = kafka.KafkaProducer(bootstrap_servers=given.bootstrap.split(","))

        def send(value: str) -> Callable[[], int]:
            future = producer.send(given.topic, value.encode(), partition=0)
            return lambda: int(future.get(30).offset)

        return send

    write_all(new_producer)


def main() -> None:
    given = arguments()
    say("version", "kafka-python", kafka.__version__)
    if given.role == "write":
        write(given)
        return
    if given.role == "read":
        consumer = consumer_of(given, "none")
        consumer.assign([TopicPartition(given.topic, 0)])
        consumer.seek(TopicPartition(given.topic, 0), 0)
    else:
        consumer = consumer_of(given, "earliest" if given.role == "commit" else "none", group_id=given.group)
        consumer.subscribe([given.topic])
    read(consumer, given)
    if given.role == "commit":
        consumer.commit()
        say("committed")
        consumer.close()


if __name__ == "__main__":
    main()

"""Tidelog's own clients: `auto_offset_reset="none"`; the producer as it is, which is idempotent."""

from __future__ import annotations

from importlib.metadata import version

from compat.unclean_elections.programs.lines import Arguments, Reader, Send, arguments, say, say_error, write_all
from tidelog import Consumer, Producer, TopicPartition
from tidelog.base.errors import OffsetOutOfRangeError, RecordsLostError, TidelogError


def read(consumer: Consumer[bytes | None, bytes | None], last: str) -> None:
    reader = Reader(last)
    while not reader.is_done:
        try:
            records = consumer.poll(timeout_ms=200)
        except OffsetOutOfRangeError as error:
            place = None if error.seek_to is None else error.seek_to.offset
            reader.on_error(type(error).__name__, place, error)
            continue
        except TidelogError as error:
            reader.on_error(type(error).__name__, None, error)
            continue
        for record in records:
            reader.on_record(record.offset, (record.value or b"").decode())
        if not records:
            reader.on_nothing()


def commit(given: Arguments) -> None:
    with Consumer(
        given.bootstrap, group_id=given.group, auto_offset_reset="none", enable_auto_commit=False
    ) as consumer:
        consumer.subscribe([given.topic], start="earliest")
        read(consumer, given.last)
        consumer.commit()
        say("committed")


def write(given: Arguments) -> None:
    def on_lost(error: RecordsLostError) -> None:
        say_error("lost", type(error).__name__, error.first_offset, error)

    def new_producer() -> Send:
        producer = Producer(given.bootstrap, on_records_lost=on_lost)
        return lambda value: lambda: producer.send(given.topic, value.encode(), partition=0).result(30).offset or 0

    write_all(new_producer)


def main() -> None:
    given = arguments()
    say("version", "tidelog", version("tidelog"))
    if given.role == "write":
        write(given)
    elif given.role == "commit":
        commit(given)
    elif given.role == "resume":
        with Consumer(
            given.bootstrap, group_id=given.group, auto_offset_reset="none", enable_auto_commit=False
        ) as consumer:
            consumer.subscribe([given.topic])
            read(consumer, given.last)
    else:
        with Consumer(given.bootstrap, auto_offset_reset="none") as consumer:
            consumer.assign([TopicPartition(given.topic, 0)])
            consumer.seek_to_beginning()
            read(consumer, given.last)


if __name__ == "__main__":
    main()

"""aiokafka: `auto_offset_reset="none"`; the producer with `enable_idempotence`."""

from __future__ import annotations

import asyncio

import aiokafka
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.errors import KafkaError

from compat.unclean_elections.programs.lines import Arguments, Reader, arguments, commands, say, say_error


async def read(consumer: AIOKafkaConsumer, last: str) -> None:
    reader = Reader(last)
    while not reader.is_done:
        try:
            records = await consumer.getmany(timeout_ms=200)
        except KafkaError as error:
            reader.on_error(type(error).__name__, None, error)
            continue
        for record in (record for of_partition in records.values() for record in of_partition):
            reader.on_record(record.offset, record.value.decode())
        if not records:
            reader.on_nothing()


async def consume(given: Arguments) -> None:
    consumer = AIOKafkaConsumer(
        bootstrap_servers=given.bootstrap,
        group_id=None if given.role == "read" else given.group,
        auto_offset_reset="earliest" if given.role == "commit" else "none",
        enable_auto_commit=False,
    )
    partition = TopicPartition(given.topic, 0)
    if given.role == "read":
        consumer.assign([partition])
    else:
        consumer.subscribe([given.topic])
    await consumer.start()
    if given.role == "read":
        consumer.seek(partition, 0)
    await read(consumer, given.last)
    if given.role == "commit":
        await consumer.commit()
        say("committed")
    await consumer.stop()


async def write(given: Arguments) -> None:
    producers: dict[str, AIOKafkaProducer] = {}
    waiting = commands()
    while (command := await asyncio.to_thread(next, waiting, None)) is not None:
        name, values = command
        if name not in producers:
            producers[name] = AIOKafkaProducer(bootstrap_servers=given.bootstrap, enable_idempotence=True, acks="all")
            await producers[name].start()
        for value in values:
            try:
                sending = producers[name].send_and_wait(given.topic, value.encode(), partition=0)
                say("acked", (await asyncio.wait_for(sending, 30)).offset, value)
            except (KafkaError, TimeoutError) as error:
                say_error("failed", type(error).__name__, None, error)
        say("done")


def main() -> None:
    given = arguments()
    say("version", "aiokafka", aiokafka.__version__)
    asyncio.run(write(given) if given.role == "write" else consume(given))


if __name__ == "__main__":
    main()

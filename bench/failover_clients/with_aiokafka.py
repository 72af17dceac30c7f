"""aiokafka."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.errors import KafkaError
from lines import EVERY_SECONDS, Arguments, arguments, say_acknowledged, say_read, value_of


async def read(given: Arguments) -> None:
    topics, group_id = ((), None) if given.group_protocol is None else ((given.topic,), given.topic)
    async with AIOKafkaConsumer(
        *topics, bootstrap_servers=given.bootstrap, client_id="reader", group_id=group_id
    ) as consumer:
        if group_id is None:
            partition = TopicPartition(given.topic, 0)
            consumer.assign([partition])
            await consumer.seek_to_end(partition)
        async for record in consumer:
            say_read(record.value)


async def heed(sent_ns: int, outcome: Awaitable[object]) -> None:
    try:
        await outcome
    except KafkaError:
        return
    say_acknowledged(sent_ns)


async def run(given: Arguments) -> None:
    producer = AIOKafkaProducer(bootstrap_servers=given.bootstrap, acks="all", client_id="writer")
    async with producer, asyncio.TaskGroup() as group:
        group.create_task(read(given))
        while True:
            sent_ns = time.time_ns()
            outcome = await producer.send(given.topic, value_of(sent_ns), partition=0)
            group.create_task(heed(sent_ns, outcome))
            await asyncio.sleep(EVERY_SECONDS)


def main() -> None:
    given = arguments()
    logging.basicConfig(
        level=logging.DEBUG if given.is_debugged else logging.CRITICAL, format="%(asctime)s %(name)s %(message)s"
    )
    asyncio.run(run(given))


if __name__ == "__main__":
    main()

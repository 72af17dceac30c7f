"""Tidelog's own clients."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable

from lines import EVERY_SECONDS, Arguments, arguments, say_acknowledged, say_read, value_of

from tidelog import TopicPartition
from tidelog.base.errors import TidelogError
from tidelog.client.async_consumer import AsyncConsumer
from tidelog.client.factory import AsyncFactory
from tidelog.client.options import GroupProtocol


async def read(consumer: AsyncConsumer[bytes | None, bytes | None], given: Arguments) -> None:
    if given.group_protocol is None:
        consumer.assign([TopicPartition(given.topic, 0)])
        consumer.seek_to_end()
    else:
        consumer.subscribe([given.topic])
    async for record in consumer:
        say_read(record.value)


async def heed(sent_ns: int, outcome: Awaitable[object]) -> None:
    try:
        await outcome
    except TidelogError:
        return
    say_acknowledged(sent_ns)


async def run(given: Arguments) -> None:
    factory = AsyncFactory(given.bootstrap.split(","))
    protocol: GroupProtocol = "consumer" if given.group_protocol == "consumer" else "classic"
    group_id = None if given.group_protocol is None else given.topic
    reader = factory.consumer(group_id=group_id, group_protocol=protocol)
    async with factory.producer() as producer, reader as consumer, asyncio.TaskGroup() as group:
        group.create_task(read(consumer, given))
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

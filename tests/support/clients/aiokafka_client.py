"""aiokafka as its users use it, with deadlines: clients as contexts, and one event loop for each story."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine, Iterable
from contextlib import asynccontextmanager
from typing import Any, TypeVar

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient

__all__ = ["TopicPartition", "admin_of", "consumer_of", "produce", "producer_of", "read_to_end", "told"]

T = TypeVar("T")
DEADLINE_SECONDS = 60.0


def told(story: Coroutine[Any, Any, T]) -> T:
    """Run it to its end, which has to come."""

    async def within_time() -> T:
        return await asyncio.wait_for(story, DEADLINE_SECONDS)

    return asyncio.run(within_time())


@asynccontextmanager
async def _running(client: Any) -> AsyncIterator[Any]:
    try:
        await client.start()
        yield client
    finally:
        await (client.close() if isinstance(client, AIOKafkaAdminClient) else client.stop())


def producer_of(bootstrap: str, **settings: Any) -> Any:
    """A producer as a context."""
    return _running(AIOKafkaProducer(bootstrap_servers=bootstrap, **settings))


def consumer_of(bootstrap: str, *topics: str, **settings: Any) -> Any:
    """A consumer as a context; without topics it is given its partitions by `assign`."""
    defaults = {"enable_auto_commit": False, "auto_offset_reset": "earliest", "fetch_max_wait_ms": 100}
    return _running(AIOKafkaConsumer(*topics, bootstrap_servers=bootstrap, **defaults | settings))


def admin_of(bootstrap: str, **settings: Any) -> Any:
    """An admin client as a context."""
    return _running(AIOKafkaAdminClient(bootstrap_servers=bootstrap, **settings))


async def produce(producer: Any, topic: str, records: Iterable[dict[str, Any]], *, partition: int = 0) -> list[int]:
    """Send in order (each record the arguments of `send`) and wait: the offset of each.

    Raises:
        aiokafka.errors.KafkaError: the first refusal.
    """
    sent = [await producer.send(topic, partition=partition, **record) for record in records]
    return [(await one).offset for one in sent]


async def read_to_end(consumer: Any, *partitions: TopicPartition) -> list[Any]:
    """What comes until each position is the end offset that the broker tells beforehand."""
    ends = await consumer.end_offsets(partitions)
    found: list[Any] = []
    while any([await consumer.position(one) < end for one, end in ends.items()]):
        for records in (await consumer.getmany(*partitions, timeout_ms=200)).values():
            found += records
    return found

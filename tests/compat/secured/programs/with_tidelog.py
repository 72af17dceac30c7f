"""Tidelog's clients: those for threads, and those for event loops."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from typing import Any

from compat.secured.task import ABORTED, IN_TRANSACTION, PAUSE_SECONDS, SECONDS_MAX, VALUES, Task
from support.nodes.secured_cluster import Login
from tidelog import Factory, KafkaError, TidelogError, aio

__all__ = ["run", "run_aio"]


def options(task: Task) -> dict[str, Any]:
    login = Login(task.mechanism, task.username, task.password, task.tokenauth)
    return login.options | {"ssl_truststore_location": task.authority}


def name_of(error: TidelogError) -> str:
    return error.code.name if type(error) is KafkaError else type(error).__name__


def run(task: Task) -> list[str]:
    stories: dict[str, Callable[[Task, Factory], Iterator[str]]] = {
        "work": work,
        "send": stay,
        "stay": stay,
        "list": described,
    }
    said: list[str] = []
    try:
        said += stories[task.story](task, Factory(task.bootstrap, **options(task)))
    except TidelogError as error:
        said.append(f"error {name_of(error)}")
    return said


def described(task: Task, factory: Factory) -> Iterator[str]:
    with factory.admin() as admin:
        yield f"partitions {len(admin.describe_topics([task.topic])[task.topic].partitions)}"


def work(task: Task, factory: Factory) -> Iterator[str]:
    yield from described(task, factory)
    with factory.producer() as producer:
        for value in VALUES:
            producer.send(task.topic, value).result(timeout=SECONDS_MAX)
    with factory.producer(transactional_id=task.topic) as producer:
        transaction = producer.transaction()
        with transaction:
            transaction.send(task.topic, ABORTED)
            transaction.abort()
        with producer.transaction() as transaction:
            transaction.send(task.topic, IN_TRANSACTION)
    with factory.consumer(group_id=task.topic, isolation_level="read_committed", enable_auto_commit=False) as consumer:
        consumer.subscribe([task.topic], start="earliest")
        for record in consumer:
            value = (record.value or b"").decode()
            yield f"read {value}"
            if value == task.values[-1]:
                consumer.commit(record)
                break
    yield "committed"


def stay(task: Task, factory: Factory) -> Iterator[str]:
    count = 0
    with factory.producer() as producer:
        deadline = time.monotonic() + task.seconds
        while not count or time.monotonic() < deadline:
            producer.send(task.topic, "x").result(timeout=SECONDS_MAX)
            count += 1
            time.sleep(PAUSE_SECONDS)
    yield f"sent {count}"


def run_aio(task: Task) -> list[str]:
    stories = {"work": work_aio, "send": stay_aio, "stay": stay_aio, "list": describe_aio}
    said: list[str] = []
    try:
        asyncio.run(stories[task.story](task, said))
    except TidelogError as error:
        said.append(f"error {name_of(error)}")
    return said


async def describe_aio(task: Task, said: list[str]) -> None:
    async with aio.Admin(task.bootstrap, **options(task)) as admin:
        found = await admin.describe_topics([task.topic])
    said.append(f"partitions {len(found[task.topic].partitions)}")


async def work_aio(task: Task, said: list[str]) -> None:
    await describe_aio(task, said)
    async with aio.Producer(task.bootstrap, **options(task)) as producer:
        for value in VALUES:
            await (await producer.send(task.topic, value))
    async with aio.Producer(task.bootstrap, transactional_id=task.topic, **options(task)) as producer:
        async with producer.transaction() as transaction:
            await transaction.send(task.topic, ABORTED)
            await transaction.abort()
        async with producer.transaction() as transaction:
            await transaction.send(task.topic, IN_TRANSACTION)
    reading: Any = aio.Consumer(
        task.bootstrap,
        group_id=task.topic,
        isolation_level="read_committed",
        enable_auto_commit=False,
        **options(task),
    )
    async with reading as consumer:
        consumer.subscribe([task.topic], start="earliest")
        async for record in consumer:
            value = (record.value or b"").decode()
            said.append(f"read {value}")
            if value == task.values[-1]:
                await consumer.commit(record)
                break
    said.append("committed")


async def stay_aio(task: Task, said: list[str]) -> None:
    count = 0
    async with aio.Producer(task.bootstrap, **options(task)) as producer:
        deadline = time.monotonic() + task.seconds
        while not count or time.monotonic() < deadline:
            await (await producer.send(task.topic, "x"))
            count += 1
            await asyncio.sleep(PAUSE_SECONDS)
    said.append(f"sent {count}")

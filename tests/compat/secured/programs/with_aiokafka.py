"""aiokafka."""

from __future__ import annotations

import asyncio
import ssl
import time
from typing import Any

from aiokafka.abc import AbstractTokenProvider
from aiokafka.errors import KafkaError, for_code

from compat.secured.task import ABORTED, IN_TRANSACTION, PAUSE_SECONDS, VALUES, Task
from support.clients.aiokafka_client import admin_of, consumer_of, producer_of, told

__all__ = ["run"]


class Tokens(AbstractTokenProvider):  # type: ignore[misc]
    """Always the same."""

    def __init__(self, token: str) -> None:
        self._token = token

    async def token(self) -> str:
        return self._token


def settings(task: Task) -> dict[str, Any]:
    return {
        "security_protocol": "SASL_SSL",
        "ssl_context": ssl.create_default_context(cafile=task.authority),
        "sasl_mechanism": task.mechanism,
        "sasl_plain_username": task.username,
        "sasl_plain_password": task.password,
        "sasl_oauth_token_provider": Tokens(task.password) if task.mechanism == "OAUTHBEARER" else None,
    }


async def describe(task: Task, said: list[str]) -> None:
    async with admin_of(task.bootstrap, **settings(task)) as admin:
        (found,) = await admin.describe_topics([task.topic])
    if found["error_code"]:
        raise for_code(found["error_code"])
    said.append(f"partitions {len(found['partitions'])}")


async def work(task: Task, said: list[str]) -> None:
    await describe(task, said)
    async with producer_of(task.bootstrap, **settings(task)) as producer:
        for value in VALUES:
            await producer.send_and_wait(task.topic, value.encode())
    async with producer_of(task.bootstrap, transactional_id=task.topic, **settings(task)) as producer:
        await producer.begin_transaction()
        await producer.send_and_wait(task.topic, ABORTED.encode())
        await producer.abort_transaction()
        async with producer.transaction():
            await producer.send_and_wait(task.topic, IN_TRANSACTION.encode())
    group = {"group_id": task.topic, "isolation_level": "read_committed"}
    async with consumer_of(task.bootstrap, task.topic, **group, **settings(task)) as consumer:
        async for record in consumer:
            value = record.value.decode()
            said.append(f"read {value}")
            if value == task.values[-1]:
                await consumer.commit()
                break
    said.append("committed")


async def stay(task: Task, said: list[str]) -> None:
    count = 0
    async with producer_of(task.bootstrap, **settings(task)) as producer:
        deadline = time.monotonic() + task.seconds
        while not count or time.monotonic() < deadline:
            await producer.send_and_wait(task.topic, b"x")
            count += 1
            await asyncio.sleep(PAUSE_SECONDS)
    said.append(f"sent {count}")


def run(task: Task) -> list[str]:
    stories = {"work": work, "send": stay, "stay": stay, "list": describe}
    said: list[str] = []
    try:
        told(stories[task.story](task, said))
    except KafkaError as error:
        said.append(f"error {type(error).__name__}")
    return said

"""kafka-python."""

from __future__ import annotations

import gc
import time
import warnings
from typing import Any

from compat.secured.task import ABORTED, IN_TRANSACTION, PAUSE_SECONDS, SECONDS_MAX, VALUES, Task
from support.clients.kafka_python_client import admin_of, consumer_of, kafka, producer_of

__all__ = ["run"]

BOOTSTRAP_MS_MAX = 5_000
"""How long it tries to log in: it does not end at the first refusal."""


class Tokens(kafka.net.sasl.oauth.AbstractTokenProvider):  # type: ignore[misc]
    """Always the same."""

    def __init__(self, token: str) -> None:
        super().__init__()
        self._token = token

    def token(self) -> str:
        return self._token


def settings(task: Task) -> dict[str, Any]:
    return {
        "bootstrap_timeout_ms": BOOTSTRAP_MS_MAX,
        "security_protocol": "SASL_SSL",
        "ssl_cafile": task.authority,
        "sasl_mechanism": task.mechanism,
        "sasl_plain_username": task.username,
        "sasl_plain_password": task.password,
        "sasl_oauth_token_provider": Tokens(task.password),
    }


def describe(task: Task, said: list[str]) -> None:
    with admin_of(task.bootstrap, **settings(task)) as admin:
        (found,) = admin.describe_topics([task.topic])
    if found["error_code"]:
        raise kafka.errors.for_code(found["error_code"])
    said.append(f"partitions {len(found['partitions'])}")


def work(task: Task, said: list[str]) -> None:
    describe(task, said)
    with producer_of(task.bootstrap, **settings(task)) as producer:
        for value in VALUES:
            producer.send(task.topic, value.encode()).get(SECONDS_MAX)
    with producer_of(task.bootstrap, transactional_id=task.topic, **settings(task)) as producer:
        producer.init_transactions()
        producer.begin_transaction()
        producer.send(task.topic, ABORTED.encode()).get(SECONDS_MAX)
        producer.abort_transaction()
        producer.begin_transaction()
        producer.send(task.topic, IN_TRANSACTION.encode()).get(SECONDS_MAX)
        producer.commit_transaction()
    group = {"group_id": task.topic, "auto_offset_reset": "earliest", "isolation_level": "read_committed"}
    with consumer_of(task.bootstrap, **group, **settings(task)) as consumer:
        consumer.subscribe([task.topic])
        for record in consumer:
            value = record.value.decode()
            said.append(f"read {value}")
            if value == task.values[-1]:
                consumer.commit()
                break
    said.append("committed")


def stay(task: Task, said: list[str]) -> None:
    count = 0
    with producer_of(task.bootstrap, **settings(task)) as producer:
        deadline = time.monotonic() + task.seconds
        while not count or time.monotonic() < deadline:
            producer.send(task.topic, b"x").get(SECONDS_MAX)
            count += 1
            time.sleep(PAUSE_SECONDS)
    said.append(f"sent {count}")


def run(task: Task) -> list[str]:
    stories = {"work": work, "send": stay, "stay": stay, "list": describe}
    said: list[str] = []
    try:
        stories[task.story](task, said)
    except kafka.errors.KafkaError as error:
        said.append(f"error {type(error).__name__}")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)  # a client that could not be made leaves sockets open
        gc.collect()
    return said

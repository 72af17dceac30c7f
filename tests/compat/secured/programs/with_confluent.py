"""confluent-kafka (librdkafka)."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicCollection
from confluent_kafka.admin import AdminClient

from compat.secured.task import ABORTED, IN_TRANSACTION, PAUSE_SECONDS, SECONDS_MAX, VALUES, Task

__all__ = ["run"]

TOKEN_SECONDS = 300
"""After which it is to ask for another token."""


class Story:
    """What a task says. An error of authentication is told to a callback alone, while librdkafka goes on to try."""

    def __init__(self, task: Task) -> None:
        self.task = task
        self.said: list[str] = []
        self._refused: KafkaError | None = None
        self.settings: dict[str, Any] = {
            "bootstrap.servers": task.bootstrap,
            "security.protocol": "SASL_SSL",
            "ssl.ca.location": task.authority,
            "sasl.mechanism": task.mechanism,
            "error_cb": self._on_error,
        }
        if task.mechanism == "OAUTHBEARER":
            self.settings["oauth_cb"] = lambda _: (task.password, time.time() + TOKEN_SECONDS)
        else:
            self.settings |= {"sasl.username": task.username, "sasl.password": task.password}

    def _on_error(self, error: KafkaError) -> None:
        if error.code() == KafkaError._AUTHENTICATION:
            self._refused = error

    def until(self, is_done: Callable[[], bool]) -> None:
        deadline = time.monotonic() + SECONDS_MAX
        while not is_done():
            if self._refused is not None:
                raise KafkaException(self._refused)
            if time.monotonic() > deadline:
                raise KafkaException(KafkaError(KafkaError._TIMED_OUT))

    def describe(self) -> None:
        admin = AdminClient(self.settings)
        (future,) = admin.describe_topics(TopicCollection([self.task.topic])).values()

        def is_told() -> bool:
            admin.poll(0.1)
            return future.done()

        self.until(is_told)
        self.said.append(f"partitions {len(future.result().partitions)}")

    def send(self, producer: Producer, value: str) -> None:
        fates: list[KafkaError | None] = []
        producer.produce(self.task.topic, value, on_delivery=lambda error, _: fates.append(error))

        def is_told() -> bool:
            producer.poll(0.1)
            return bool(fates)

        self.until(is_told)
        if fates[0] is not None:
            raise KafkaException(fates[0])

    def work(self) -> None:
        self.describe()
        producer = Producer(self.settings)
        for value in VALUES:
            self.send(producer, value)
        producer = Producer(self.settings | {"transactional.id": self.task.topic})
        producer.init_transactions(SECONDS_MAX)
        producer.begin_transaction()
        self.send(producer, ABORTED)
        producer.abort_transaction(SECONDS_MAX)
        producer.begin_transaction()
        self.send(producer, IN_TRANSACTION)
        producer.commit_transaction(SECONDS_MAX)
        self.read()

    def read(self) -> None:
        group = {"group.id": self.task.topic, "enable.auto.commit": False, "auto.offset.reset": "earliest"}
        consumer = Consumer(self.settings | group)
        consumer.subscribe([self.task.topic])
        found: list[str] = []

        def read_all() -> bool:
            message = consumer.poll(0.1)
            if message is not None:
                if (error := message.error()) is not None:
                    raise KafkaException(error)
                found.append((message.value() or b"").decode())
            return self.task.values[-1] in found

        self.until(read_all)
        consumer.commit(asynchronous=False)
        consumer.close()
        self.said += [*(f"read {value}" for value in found), "committed"]

    def stay(self) -> None:
        producer = Producer(self.settings)
        count = 0
        deadline = time.monotonic() + self.task.seconds
        while not count or time.monotonic() < deadline:
            self.send(producer, "x")
            count += 1
            time.sleep(PAUSE_SECONDS)
        self.said.append(f"sent {count}")


def run(task: Task) -> list[str]:
    story = Story(task)
    stories = {"work": story.work, "send": story.stay, "stay": story.stay, "list": story.describe}
    try:
        stories[task.story]()
    except KafkaException as error:
        story.said.append(f"error {error.args[0].name()}")
    return story.said

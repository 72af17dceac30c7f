"""A reader of what is committed in a topic that reads on while brokers die."""

from __future__ import annotations

from contextlib import suppress

import confluent_kafka
from confluent_kafka import OFFSET_BEGINNING, KafkaError

from support.clients.confluent import Read, as_read, read_from
from tidelog.base.errors import TidelogError
from tidelog.base.ids import PartitionIndex, TopicPartition
from tidelog.client.admin.admin import Admin

__all__ = ["CommittedReader"]

POLL_SECONDS = 0.1


class CommittedReader:
    """Reads one topic from its beginning. Use as a context.

    Attributes:
        found: what came so far, by partition.
    """

    def __init__(self, bootstrap: str, topic: str, partitions: int = 1) -> None:
        self._bootstrap, self._topic = bootstrap, topic
        self.found: list[list[Read]] = [[] for _ in range(partitions)]
        self._consumer = confluent_kafka.Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": "none",
                "enable.auto.commit": False,
                "auto.offset.reset": "error",
                "isolation.level": "read_committed",
                "reconnect.backoff.max.ms": 200,
                "fetch.wait.max.ms": 100,
                "log_level": 0,
            }
        )

    def __enter__(self) -> CommittedReader:
        partitions = range(len(self.found))
        self._consumer.assign(
            [confluent_kafka.TopicPartition(self._topic, partition, OFFSET_BEGINNING) for partition in partitions]
        )
        return self

    def __exit__(self, *_: object) -> None:
        self._consumer.close()

    def count(self) -> int:
        """How many records were found, with those that come now."""
        for message in self._consumer.consume(10_000, timeout=POLL_SECONDS):
            error, partition = message.error(), message.partition()
            if error is None:
                assert partition is not None
                self.found[partition].append(as_read(message))
            elif error.code() not in (KafkaError._ALL_BROKERS_DOWN, KafkaError._TRANSPORT):
                raise confluent_kafka.KafkaException(error)
        return sum(map(len, self.found))

    def is_open(self) -> bool:
        """Whether a transaction is open in the topic now: whoever dies of those that take part dies in the middle."""
        partitions = [TopicPartition(self._topic, PartitionIndex(partition)) for partition in range(len(self.found))]
        with suppress(TidelogError), Admin(self._bootstrap, default_api_timeout_ms=5_000) as admin:
            described = admin.describe_producers(partitions).values()
            return any(one.transaction_start_offset is not None for producers in described for one in producers)
        return False

    def read_again(self) -> list[list[Read]]:
        """The whole topic by another reader, which has to find the same. Raises AssertionError if it does not."""
        again = [
            read_from(self._bootstrap, self._topic, partition=partition, isolation_level="read_committed")
            for partition in range(len(self.found))
        ]
        assert again == self.found
        return again

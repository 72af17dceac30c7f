"""Records that an iteration hands to its caller one by one, some of which it may never take."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from operator import length_hint
from typing import Generic

from tidelog.base.ids import Offset, Position, TopicPartition
from tidelog.client.core.reader import PartitionReader
from tidelog.client.core.values import ConsumerRecord, ConsumerRecords, K, V


class Handing(Generic[K, V]):
    """What one poll gave, while a `for` goes through it. Whoever leaves it goes on behind the last record it was given.

    Attributes:
        records: all of them.
        iterator: the same, one by one.
    """

    __slots__ = ("iterator", "records")

    def __init__(self, records: ConsumerRecords[K, V]) -> None:
        self.records = records
        self.iterator: Iterator[ConsumerRecord[K, V]] = iter(records)

    def take_all(self) -> ConsumerRecords[K, V]:
        """What was not given back meanwhile, to another thread."""
        left = list(self.iterator)
        return self.records if len(left) == len(self.records) else ConsumerRecords(left)

    def position(self, reader: PartitionReader) -> Position | None:
        """Where the caller stands: behind the last record that it was handed."""
        left = self.records[len(self.records) - length_hint(self.iterator) :]
        for record in left:
            if (record.topic, record.partition) == reader.topic_partition:
                return reader.position_before(Offset(record.offset))
        return reader.position

    def give_back(self, readers: Mapping[TopicPartition, PartitionReader]) -> None:
        """The caller wants something else: what it was not handed is delivered again. The `for` has nothing left."""
        first: dict[tuple[str, int], int] = {}
        for record in self.iterator:
            first.setdefault((record.topic, record.partition), record.offset)
        for key, offset in first.items():
            reader = readers.get(TopicPartition(*key))
            if reader is not None:
                reader.give_back(Offset(offset))

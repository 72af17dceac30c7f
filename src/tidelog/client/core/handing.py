"""Records on their way to the caller, who may never take them: Ctrl-C comes first, or a loop is left."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from operator import length_hint
from typing import Generic, TypeVar

from tidelog.base.ids import Offset, TopicPartition
from tidelog.client.core.positions import PositionStatus
from tidelog.client.core.reader import PartitionReader
from tidelog.client.core.subscription import Begins
from tidelog.client.core.values import ConsumerRecord, ConsumerRecords, K, V

T = TypeVar("T")


class Delivered(Generic[T]):
    """What was delivered in one piece, of which nobody knows by then whether the caller will have it.

    Args:
        result: it.
        begins: where each reader stood before, and of which topic it was.
    """

    __slots__ = ("_begins", "_result", "_unclaimed")

    def __init__(self, result: T, begins: Begins) -> None:
        self._result: T | None = result
        self._begins = begins
        self._unclaimed = [True]

    def take(self) -> T | None:
        """The result, which is held no longer; None if it was given back."""
        if not self._claim():
            return None
        result, self._result = self._result, None
        return result

    def places(self) -> dict[TopicPartition, PositionStatus]:
        """See `Handing.places`."""
        return {key: place for key, (place, _) in self._begins.items()} if self._unclaimed else {}

    def place_in(self, partition: TopicPartition) -> PositionStatus | None:
        """See `Handing.place_in`."""
        found = self._begins.get(partition) if self._unclaimed else None
        return None if found is None else found[0]

    def done_places(self) -> Begins:
        """See `Handing.done_places`."""
        return self._begins

    @property
    def left_count(self) -> int:
        """See `Handing.left_count`."""
        return 0

    def give_back(self, readers: Mapping[TopicPartition, PartitionReader]) -> bool:
        """See `Handing.give_back`."""
        if not self._claim():
            return False
        found = [(readers.get(key), place, topic_id) for key, (place, topic_id) in self._begins.items()]
        changes = [reader.give_back(place, topic_id) for reader, place, topic_id in found if reader is not None]
        return any(changes)

    def _claim(self) -> bool:
        return _popped(self._unclaimed)


class Handing(Generic[K, V]):
    """What one poll gave: to be taken at once, or one by one. What is not taken can be given back to the readers.

    The caller's thread takes, the event loop gives back: each step of either is one operation on a list, so that no
    record goes both ways.

    Args:
        records: that were polled.
        is_loop: whether they are taken one by one.
    """

    __slots__ = ("_given_back", "_iterator", "_records", "_unclaimed", "is_loop")

    def __init__(self, records: ConsumerRecords[K, V], *, is_loop: bool) -> None:
        self._records = records
        self.is_loop = is_loop
        self._iterator = iter(records)
        self._unclaimed = [True]
        self._given_back = 0

    def take_all(self) -> ConsumerRecords[K, V]:
        """All of them; none if they were given back."""
        return self._records if self._claim() else ConsumerRecords()

    def one_by_one(self) -> Iterator[ConsumerRecord[K, V]]:
        """Those that were not given back by the time that it is their turn."""
        return self._iterator if self._claim() else iter(())

    def place_in(self, partition: TopicPartition) -> PositionStatus | None:
        """Where the caller stands in a partition of which records are left to be taken; None if none are."""
        return self.places().get(partition)

    def places(self) -> dict[TopicPartition, PositionStatus]:
        """Where the caller stands in each partition of which records are left to be taken."""
        return self._places(self.left_count)

    @property
    def left_count(self) -> int:
        """How many are left to be taken."""
        return len(self._records) if self._unclaimed else length_hint(self._iterator) if self.is_loop else 0

    def done_places(self) -> Begins:
        """In each partition: behind what the caller took and came back from, as long as it has not come back for more.

        Of those taken one by one the last is being worked on; of those taken at once all are.
        """
        count = len(self._records)
        left = min(self.left_count + self._given_back + 1, count) if self.is_loop else count
        return {key: (place, self._records.topic_ids[key]) for key, place in self._places(left).items()}

    def give_back(self, readers: Mapping[TopicPartition, PartitionReader]) -> bool:
        """What is left is delivered again, from behind the last record that was taken. Returns whether anything was."""
        left = len(self._records) if self._claim() else len(list(self._iterator)) if self.is_loop else 0
        self._given_back += left
        is_changed = False
        for key, place in self._places(left).items():
            reader = readers.get(key)
            if reader is not None:
                is_changed = reader.give_back(place, self._records.topic_ids[key]) or is_changed
        return is_changed

    def _claim(self) -> bool:
        return _popped(self._unclaimed)

    def _places(self, left_count: int) -> dict[TopicPartition, PositionStatus]:
        """Where the caller stands in each partition of which records are left."""
        if not left_count:
            return {}
        taken_count = len(self._records) - left_count
        keys = {TopicPartition(record.topic, record.partition) for record in self._records[taken_count:]}
        places = {key: self._records.begins[key].clone() for key in keys if key in self._records.begins}
        for record in self._records[:taken_count]:
            place = places.get(TopicPartition(record.topic, record.partition))
            if place is not None:
                place.on_record(Offset(record.offset), record.leader_epoch, record.timestamp)
        return places


def _popped(unclaimed: list[bool]) -> bool:
    """Whether it was there: one of two threads finds it so."""
    try:
        return unclaimed.pop()
    except IndexError:
        return False

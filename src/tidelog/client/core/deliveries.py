"""Where a consumer's caller stands: behind what it took of what it was given, and what of that it has come back from.

readers  --records-->  on their way  --taken-->  the caller works on them  --it asks for more-->  done
   ^                        |
   +------given back--------+

Readers stand behind all that was delivered. The caller may stand before that: it has not taken everything yet, or
still works on it. `position` is where it stands by what it took; what is done is what auto-commit may commit.
"""

from __future__ import annotations

from typing import Any, Generic, TypeVar

from tidelog.base.ids import Position, TopicPartition
from tidelog.client.core.handing import Delivered, Handing
from tidelog.client.core.positions import PositionStatus
from tidelog.client.core.reader import PartitionReader
from tidelog.client.core.subscription import Begins, Subscription
from tidelog.client.core.values import ConsumerRecords, K, V

T = TypeVar("T")


class Deliveries(Generic[K, V]):
    """See the module.

    Args:
        subscription: whose readers the records are of.
    """

    def __init__(self, subscription: Subscription) -> None:
        self._subscription = subscription
        self._handing: Handing[K, V] | Delivered[Any] | None = None
        self._unfinished: Handing[K, V] | Delivered[Any] | None = None  # what the caller has not come back from

    # What the caller is given.
    def hand(self, records: ConsumerRecords[K, V], *, is_loop: bool) -> Handing[K, V]:
        """Records on their way to the caller. What was on its way before has been given back."""
        self._handing = self._unfinished = handing = Handing(records, is_loop=is_loop)
        return handing

    def deliver(self, result: T, begins: Begins) -> Delivered[T]:
        """As `hand`, of what is taken in one piece."""
        self._handing = self._unfinished = delivered = Delivered(result, begins)
        return delivered

    def on_taken(self, taken: Handing[K, V] | Delivered[Any]) -> None:
        """The caller has all of this, which was never on its way."""
        self._unfinished = taken

    def on_back(self) -> None:
        """The caller has come back from all that it was given."""
        self._unfinished = None

    def give_back(self) -> bool:
        """Have what is on its way delivered again, to whoever reads next. Returns whether there was anything."""
        handing, self._handing = self._handing, None
        return handing is not None and handing.give_back(self._subscription.readers)

    @property
    def is_loop(self) -> bool:
        """Whether the caller takes records one by one."""
        return isinstance(self._handing, Handing) and self._handing.is_loop

    @property
    def left_count(self) -> int:
        """How many records are left to be taken."""
        return 0 if self._handing is None else self._handing.left_count

    # Where it stands.
    def place_in(self, partition: TopicPartition) -> Position | None:
        """Where the caller stands in a partition of which records are left to be taken; None if none are."""
        place = None if self._handing is None else self._handing.place_in(partition)
        return None if place is None else place.position

    def position(self, reader: PartitionReader) -> Position | None:
        """Where the caller stands, who may not have taken all that was delivered."""
        return _behind(reader, None if self._handing is None else self._handing.place_in(reader.topic_partition))

    def positions(self) -> dict[TopicPartition, Position]:
        """As `position`, of all that have one; the records on their way are looked at once."""
        places = {} if self._handing is None else self._handing.places()
        found = {key: _behind(reader, places.get(key)) for key, reader in self._subscription.readers.items()}
        return {key: position for key, position in found.items() if position is not None}

    def done(self) -> dict[TopicPartition, Position]:
        """Where the caller stands in each partition, behind what it was given and came back from."""
        readers = self._subscription.readers
        found = self.positions()
        for key, (place, topic_id) in ({} if self._unfinished is None else self._unfinished.done_places()).items():
            # A place in a topic that was made anew since, or behind one that a truncation led to, is none any more.
            if key in found and topic_id == readers[key].topic_id and place.offset <= found[key].offset:
                found[key] = place.position
        return found


def _behind(reader: PartitionReader, place: PositionStatus | None) -> Position | None:
    """The reader's position, or a place before it."""
    is_behind = place is not None and reader.offset is not None and place.offset < reader.offset
    return place.position if place is not None and is_behind else reader.position

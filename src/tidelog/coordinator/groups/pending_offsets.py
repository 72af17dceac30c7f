"""Offsets that were committed in transactions whose markers have not come: what they may become, by producer.

```
 log:  commit by 7, t-0: 5 ──► commit by 8, t-0: 6 ──► plain commit, t-0: 9 ──► marker of 8 ──► marker of 7
 t-0:        7 → 5                 7 → 5, 8 → 6              nothing              9 stays         9 stays
```

Of all that is said of a position, what stands last in the log counts, if its transaction is committed. So whatever
comes to count takes those before it away; each that is left here counts as soon as its marker says so. A compacted log,
which keeps the last record of a key, leads to the same.

Kafka: `OffsetMetadataManager.pendingTransactionalOffsets`, `OpenTransactions`; it compares offsets in the log when the
marker comes, and calls a position unstable until then, though its outcome is known.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from tidelog.coordinator.memory import Charge

PENDING_BYTES = 1_024
"""About what a pending offset takes beside its names and its value: 560 to 1,170 bytes were measured."""

PendingPositions = dict[int, dict[int, bytes]]
"""Those of one group in one topic: values by partition, then producer id, in the order of the log."""


class OffsetKey(NamedTuple):
    """What a group commits an offset for."""

    group_id: str
    topic: str
    partition: int


def size_bytes(group_id: str, topic: str, value: bytes) -> int:
    """About what a pending offset takes in memory."""
    return PENDING_BYTES + 2 * (len(group_id) + len(topic)) + len(value)


class PendingOffsets:
    """Those of all open transactions of one log.

    Attributes:
        groups: by group id and topic; neither is there without an offset.
        charge: what all of it takes in memory.
    """

    def __init__(self) -> None:
        self.groups: dict[str, dict[str, PendingPositions]] = {}
        self.charge = Charge()
        self._positions: dict[int, dict[OffsetKey, None]] = {}  # of each open transaction, in order

    def __bool__(self) -> bool:
        return bool(self.groups)

    @property
    def size_bytes(self) -> int:
        """About what all of it takes in memory."""
        return self.charge.size_bytes

    @property
    def producer_ids(self) -> frozenset[int]:
        """Whose transactions hold offsets here."""
        return frozenset(self._positions)

    def has(self, group_id: str, topic: str, partition: int) -> bool:
        """Whether a transaction may yet move a position."""
        return bool(self.groups) and partition in self.groups.get(group_id, {}).get(topic, ())

    def positions_of(self, group_id: str) -> Iterator[tuple[str, int]]:
        """The topic and partition of each offset of a group."""
        for topic, positions in self.groups.get(group_id, {}).items():
            for partition in positions:
                yield topic, partition

    def values(self, group_id: str, topic: str, partition: int) -> Iterable[bytes]:
        """What a position may become, in the order of the log."""
        return self.groups.get(group_id, {}).get(topic, {}).get(partition, {}).values()

    # What changes it.

    def add(self, producer_id: int, position: OffsetKey, value: bytes) -> None:
        """A transaction commits an offset, whose record is the last one of the log."""
        by_producer = (
            self.groups.setdefault(position.group_id, {})
            .setdefault(position.topic, {})
            .setdefault(position.partition, {})
        )
        before = by_producer.pop(producer_id, None)  # to stand behind the others
        by_producer[producer_id] = value
        self._positions.setdefault(producer_id, {})[position] = None
        if before is None:
            self.charge.resize(size_bytes(position.group_id, position.topic, value))
        else:
            self.charge.resize(len(value) - len(before))

    def drop(self, position: OffsetKey) -> None:
        """Something was said of a position that counts, and is newer than all that is pending."""
        by_producer = self.groups.get(position.group_id, {}).get(position.topic, {}).get(position.partition)
        if by_producer is not None:
            for producer_id in list(by_producer):
                self._remove(producer_id, position)

    def end(self, producer_id: int, *, is_committed: bool) -> list[tuple[OffsetKey, bytes]]:
        """The transaction of a producer ended. Returns what counts from now on."""
        counting = []
        for position in list(self._positions.get(producer_id, ())):
            by_producer = self.groups[position.group_id][position.topic][position.partition]
            if is_committed:
                for earlier_id in list(by_producer):
                    if earlier_id == producer_id:
                        break
                    self._remove(earlier_id, position)
                counting.append((position, by_producer[producer_id]))
            self._remove(producer_id, position)
        return counting

    def clone(self) -> PendingOffsets:
        """A copy down to the values, which nobody changes."""
        copy = PendingOffsets()
        copy.groups = {
            group_id: {
                topic: {partition: dict(by_producer) for partition, by_producer in positions.items()}
                for topic, positions in topics.items()
            }
            for group_id, topics in self.groups.items()
        }
        copy._positions = {producer_id: dict(positions) for producer_id, positions in self._positions.items()}
        copy.charge = Charge(self.size_bytes)
        return copy

    def _remove(self, producer_id: int, position: OffsetKey) -> None:
        topics = self.groups[position.group_id]
        positions = topics[position.topic]
        by_producer = positions[position.partition]
        self.charge.resize(-size_bytes(position.group_id, position.topic, by_producer.pop(producer_id)))
        if not by_producer:
            del positions[position.partition]
            if not positions:
                del topics[position.topic]
                if not topics:
                    del self.groups[position.group_id]
        mine = self._positions[producer_id]
        del mine[position]
        if not mine:
            del self._positions[producer_id]

"""For which partitions the share coordinator keeps a state of a group, as the group's coordinator knows it.

```
 subscribed ──► initializing ──► initialized ──► deleting ──► nothing
                asked to begin    has begun       asked to delete
```

A partition is assigned once it is initialized: before that, its leader finds no state to go by. It may be both, where
the group is to begin elsewhere in it: then it is not assigned until that is settled.

Kafka: `ShareGroupStatePartitionMetadataInfo`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

from tidelog.base.ids import PartitionIndex, TopicId
from tidelog.coordinator.groups.consumer.assignment import Pace, Pieces, finished
from tidelog.coordinator.groups.share_group_records import (
    ShareGroupStatePartitionMetadataValue,
    ShareGroupStatePartitions,
    ShareGroupStateTopic,
)

StateId = tuple[TopicId, PartitionIndex]
"""Names a state of a group."""

STATE_BYTES = 80
"""About what a partition takes in memory."""
TOPIC_BYTES = 400
TOPIC_RECORD_BYTES = 32
"""More than a topic takes in a record, without its name and its partitions."""
PARTITION_RECORD_BYTES = 4
PARTITIONS_PER_TOPIC_WORK = 16
"""That sets of partitions are joined in while one topic is looked at."""
NO_PARTITIONS: frozenset[int] = frozenset()


class TopicStates(NamedTuple):
    """Partitions of one topic, whose name is for those who read the log."""

    name: str
    partitions: frozenset[int]


Topics = Mapping[TopicId, TopicStates]


@dataclass(frozen=True)
class RecordedStates:
    """Of one group; nobody changes it. No topic is there without a partition.

    A group may have thousands of topics, so what is made of it is made in pieces, and what it takes is counted once.

    Attributes:
        deleting: the names of topics whose states are to go.
    """

    initializing: Topics = field(default_factory=dict)
    initialized: Topics = field(default_factory=dict)
    deleting: Mapping[TopicId, str] = field(default_factory=dict)

    @property
    def size_bytes(self) -> int:
        """About what it takes in memory."""
        names_bytes, partition_count = self._counts
        return names_bytes + STATE_BYTES * partition_count + TOPIC_BYTES * self.topic_count

    @property
    def record_bytes(self) -> int:
        """More than its record takes."""
        names_bytes, partition_count = self._counts
        return names_bytes + PARTITION_RECORD_BYTES * partition_count + TOPIC_RECORD_BYTES * self.topic_count

    @property
    def partition_count(self) -> int:
        """How many partitions there are, those twice that are both."""
        return self._counts[1]

    @property
    def topic_count(self) -> int:
        """Of how many topics there is something, those counted again that are in several parts."""
        return len(self.initializing) + len(self.initialized) + len(self.deleting)

    @cached_property
    def _counts(self) -> tuple[int, int]:
        return finished(self.counted(Pace()))

    def counted(self, pace: Pace) -> Pieces[tuple[int, int]]:
        """The bytes of all names, and how many partitions there are."""
        names_bytes = partition_count = 0
        for part in (self.initializing, self.initialized):
            for one in part.values():
                names_bytes += len(one.name)
                partition_count += len(one.partitions)
                if pace.counts(1):
                    yield
        for name in self.deleting.values():
            names_bytes += len(name)
            if pace.counts(1):
                yield
        return names_bytes, partition_count

    @property
    def topic_ids(self) -> frozenset[TopicId]:
        """All that there is something of."""
        return frozenset((*self.initializing, *self.initialized, *self.deleting))

    def has(self, topic_id: TopicId) -> bool:
        """Whether there is something of a topic."""
        return topic_id in self.initializing or topic_id in self.initialized or topic_id in self.deleting

    def of_topic(self, topic_id: TopicId) -> frozenset[int]:
        """The partitions of a topic that there may be a state of."""
        parts = (one.get(topic_id) for one in (self.initializing, self.initialized))
        return NO_PARTITIONS.union(*(one.partitions for one in parts if one is not None))

    def is_initialized(self, topic_id: TopicId, partition: int) -> bool:
        """Whether a partition has a state."""
        found = self.initialized.get(topic_id)
        return found is not None and partition in found.partitions

    def assignable_of(self, topic_id: TopicId) -> frozenset[int]:
        """The partitions of a topic that have a state which nobody begins anew."""
        found, again = self.initialized.get(topic_id), self.initializing.get(topic_id)
        if found is None:
            return NO_PARTITIONS
        return found.partitions if again is None else found.partitions - again.partitions

    # What becomes of it.

    def beginning(self, topics: Topics, pace: Pace) -> Pieces[RecordedStates]:
        """States are asked for."""
        initializing = yield from _merged(self.initializing, topics, pace)
        deleting = dict(self.deleting)
        if deleting:
            for topic_id in topics:
                deleting.pop(topic_id, None)
                if pace.counts(1):
                    yield
        return (yield from _counted(RecordedStates(initializing, self.initialized, deleting), pace))

    def begun(self, ids: Iterable[StateId], pace: Pace) -> Pieces[RecordedStates]:
        """States that were asked for are there."""
        left, done = yield from _divided(self.initializing, ids, pace)
        initialized = yield from _merged(self.initialized, done, pace)
        return (yield from _counted(RecordedStates(left, initialized, self.deleting), pace))

    def not_begun(self, ids: Iterable[StateId], pace: Pace) -> Pieces[RecordedStates]:
        """States that were asked for are not there."""
        left, _ = yield from _divided(self.initializing, ids, pace)
        return (yield from _counted(RecordedStates(left, self.initialized, self.deleting), pace))

    def lost(self, ids: Iterable[StateId], pace: Pace) -> Pieces[RecordedStates]:
        """States that were there are not, and are to be asked for anew."""
        left, gone = yield from _divided(self.initialized, ids, pace)
        initializing = yield from _merged(self.initializing, gone, pace)
        return (yield from _counted(RecordedStates(initializing, left, self.deleting), pace))

    def ending(self, topics: Mapping[TopicId, str], pace: Pace) -> Pieces[RecordedStates]:
        """All states of topics are to go."""
        left = yield from self.without(topics, pace)
        deleting = dict(left.deleting)
        for topic_id, name in topics.items():
            deleting[topic_id] = name
            if pace.counts(1):
                yield
        return (yield from _counted(RecordedStates(left.initializing, left.initialized, deleting), pace))

    def without(self, topic_ids: Iterable[TopicId], pace: Pace) -> Pieces[RecordedStates]:
        """Nothing is left of topics."""
        initializing, initialized, deleting = dict(self.initializing), dict(self.initialized), dict(self.deleting)
        for topic_id in topic_ids:
            initializing.pop(topic_id, None)
            initialized.pop(topic_id, None)
            deleting.pop(topic_id, None)
            if pace.counts(3):
                yield
        return (yield from _counted(RecordedStates(initializing, initialized, deleting), pace))

    # The log.

    def value(self) -> ShareGroupStatePartitionMetadataValue:
        """What the log is to say of it."""
        return ShareGroupStatePartitionMetadataValue(
            initializing_topics=recorded_topics(self.initializing.items()),
            initialized_topics=recorded_topics(self.initialized.items()),
            deleting_topics=[ShareGroupStateTopic(topic_id, self.deleting[topic_id]) for topic_id in self.deleting],
        )


NO_STATES = RecordedStates()


def states_of(value: ShareGroupStatePartitionMetadataValue) -> RecordedStates:
    """What a record tells."""
    return RecordedStates(
        _topics(value.initializing_topics),
        _topics(value.initialized_topics),
        {TopicId(one.topic_id): one.topic_name for one in value.deleting_topics},
    )


def record_bytes_of(name: str, partition_count: int) -> int:
    """More than partitions of a topic add to a record."""
    return TOPIC_RECORD_BYTES + len(name) + PARTITION_RECORD_BYTES * partition_count


def partitions_in(room_bytes: int, name: str) -> int:
    """How many partitions of a topic find room in a record that has so much left."""
    return (room_bytes - record_bytes_of(name, 0)) // PARTITION_RECORD_BYTES


def ids_of(topics: Topics) -> Iterator[StateId]:
    """All of them."""
    for topic_id, one in topics.items():
        for partition in sorted(one.partitions):
            yield topic_id, PartitionIndex(partition)


def _counted(states: RecordedStates, pace: Pace) -> Pieces[RecordedStates]:
    """The same, once it is known what it takes."""
    states.__dict__["_counts"] = yield from states.counted(pace)
    return states


def _merged(one: Topics, other: Topics, pace: Pace) -> Pieces[Topics]:
    merged = dict(one)
    for topic_id, more in other.items():
        before = merged.get(topic_id)
        merged[topic_id] = more if before is None else TopicStates(more.name, before.partitions | more.partitions)
        if pace.counts(2 + len(more.partitions) // PARTITIONS_PER_TOPIC_WORK):
            yield
    return merged


def _divided(topics: Topics, ids: Iterable[StateId], pace: Pace) -> Pieces[tuple[Topics, Topics]]:
    """What is left without some, and these as far as they were there."""
    taken: dict[TopicId, set[int]] = {}
    for topic_id, partition in ids:
        taken.setdefault(topic_id, set()).add(partition)
        if pace.counts(1):
            yield
    left = dict(topics)
    done: dict[TopicId, TopicStates] = {}
    for topic_id, its in taken.items():
        one = left.get(topic_id)
        gone = NO_PARTITIONS if one is None else one.partitions & its
        if one is not None and gone:
            done[topic_id] = TopicStates(one.name, gone)
            kept = one.partitions - gone
            if kept:
                left[topic_id] = TopicStates(one.name, kept)
            else:
                del left[topic_id]
        if pace.counts(4 + len(its) // PARTITIONS_PER_TOPIC_WORK):
            yield
    return left, done


def recorded_topics(topics: Iterable[tuple[TopicId, TopicStates]]) -> list[ShareGroupStatePartitions]:
    """As the log says them."""
    return [ShareGroupStatePartitions(topic_id, one.name, sorted(one.partitions)) for topic_id, one in topics]


def _topics(recorded: Iterable[ShareGroupStatePartitions]) -> Topics:
    return {
        TopicId(one.topic_id): TopicStates(one.topic_name, frozenset(one.partitions))
        for one in recorded
        if one.partitions
    }

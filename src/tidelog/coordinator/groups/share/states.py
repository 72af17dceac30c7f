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

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from tidelog.base.ids import PartitionIndex, TopicId
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
NO_PARTITIONS: frozenset[int] = frozenset()


class TopicStates(NamedTuple):
    """Partitions of one topic, whose name is for those who read the log."""

    name: str
    partitions: frozenset[int]


Topics = Mapping[TopicId, TopicStates]


@dataclass(frozen=True, slots=True)
class RecordedStates:
    """Of one group; nobody changes it. No topic is there without a partition.

    Attributes:
        deleting: the names of topics whose states are to go.
    """

    initializing: Topics = field(default_factory=dict)
    initialized: Topics = field(default_factory=dict)
    deleting: Mapping[TopicId, str] = field(default_factory=dict)

    @property
    def size_bytes(self) -> int:
        """About what it takes in memory."""
        topics = (*self.initializing.values(), *self.initialized.values())
        names_bytes = sum(len(one.name) for one in topics) + sum(map(len, self.deleting.values()))
        states_bytes = STATE_BYTES * sum(len(one.partitions) for one in topics)
        return states_bytes + names_bytes + TOPIC_BYTES * (len(topics) + len(self.deleting))

    @property
    def topic_ids(self) -> frozenset[TopicId]:
        """All that there is something of."""
        return frozenset((*self.initializing, *self.initialized, *self.deleting))

    def of_topic(self, topic_id: TopicId) -> frozenset[int]:
        """The partitions of a topic that there may be a state of."""
        parts = (one.get(topic_id) for one in (self.initializing, self.initialized))
        return NO_PARTITIONS.union(*(one.partitions for one in parts if one is not None))

    def is_initialized(self, topic_id: TopicId, partition: int) -> bool:
        """Whether a partition has a state."""
        found = self.initialized.get(topic_id)
        return found is not None and partition in found.partitions

    @property
    def assignable(self) -> Topics:
        """The partitions that have a state which nobody begins anew."""
        if self.initializing.keys().isdisjoint(self.initialized):
            return self.initialized
        return _divided(self.initialized, tuple(ids_of(self.initializing)))[0]

    # What becomes of it.

    def beginning(self, topics: Topics) -> RecordedStates:
        """States are asked for."""
        deleting = {topic_id: name for topic_id, name in self.deleting.items() if topic_id not in topics}
        return RecordedStates(_merged(self.initializing, topics), self.initialized, deleting)

    def begun(self, ids: Collection[StateId]) -> RecordedStates:
        """States that were asked for are there."""
        left, done = _divided(self.initializing, ids)
        return RecordedStates(left, _merged(self.initialized, done), self.deleting)

    def not_begun(self, ids: Collection[StateId]) -> RecordedStates:
        """States that were asked for are not there."""
        left, _ = _divided(self.initializing, ids)
        return RecordedStates(left, self.initialized, self.deleting)

    def lost(self, ids: Collection[StateId]) -> RecordedStates:
        """States that were there are not, and are to be asked for anew."""
        left, gone = _divided(self.initialized, ids)
        return RecordedStates(_merged(self.initializing, gone), left, self.deleting)

    def ending(self, topics: Mapping[TopicId, str]) -> RecordedStates:
        """All states of topics are to go."""
        return RecordedStates(
            {topic_id: one for topic_id, one in self.initializing.items() if topic_id not in topics},
            {topic_id: one for topic_id, one in self.initialized.items() if topic_id not in topics},
            {**self.deleting, **topics},
        )

    def without(self, topic_ids: Collection[TopicId]) -> RecordedStates:
        """Nothing is left of topics."""
        return RecordedStates(
            {topic_id: one for topic_id, one in self.initializing.items() if topic_id not in topic_ids},
            {topic_id: one for topic_id, one in self.initialized.items() if topic_id not in topic_ids},
            {topic_id: name for topic_id, name in self.deleting.items() if topic_id not in topic_ids},
        )

    # The log.

    def value(self) -> ShareGroupStatePartitionMetadataValue:
        """What the log is to say of it."""
        return ShareGroupStatePartitionMetadataValue(
            initializing_topics=_recorded(self.initializing),
            initialized_topics=_recorded(self.initialized),
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


def ids_of(topics: Topics) -> Iterator[StateId]:
    """All of them."""
    for topic_id, one in topics.items():
        for partition in sorted(one.partitions):
            yield topic_id, PartitionIndex(partition)


def _merged(one: Topics, other: Topics) -> Topics:
    merged = dict(one)
    for topic_id, more in other.items():
        before = merged.get(topic_id)
        merged[topic_id] = more if before is None else TopicStates(more.name, before.partitions | more.partitions)
    return merged


def _divided(topics: Topics, ids: Collection[StateId]) -> tuple[Topics, Topics]:
    """What is left without some, and these as far as they were there."""
    taken: dict[TopicId, set[int]] = {}
    for topic_id, partition in ids:
        taken.setdefault(topic_id, set()).add(partition)
    left: dict[TopicId, TopicStates] = {}
    done: dict[TopicId, TopicStates] = {}
    for topic_id, one in topics.items():
        gone = one.partitions & taken.get(topic_id, NO_PARTITIONS)
        for part, kept in ((left, one.partitions - gone), (done, gone)):
            if kept:
                part[topic_id] = TopicStates(one.name, kept)
    return left, done


def _recorded(topics: Topics) -> list[ShareGroupStatePartitions]:
    return [ShareGroupStatePartitions(topic_id, one.name, sorted(one.partitions)) for topic_id, one in topics.items()]


def _topics(recorded: Iterable[ShareGroupStatePartitions]) -> Topics:
    return {
        TopicId(one.topic_id): TopicStates(one.topic_name, frozenset(one.partitions))
        for one in recorded
        if one.partitions
    }

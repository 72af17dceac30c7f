"""One pass over all partitions, in portions: each goes on where the one before stopped.

```
 topics as the pass began   t1 t2 t3 t4 …          portion by portion: a decision each
                            ──┤───┤───────┤──▶     every partition is looked at as it is when its turn comes
                                            └──▶   and again, at the end, what changed behind the pass since
```
So what is to be done to many partitions costs as much as there are of them, in however many decisions. A pass of a
state (`PartitionScans.pass_over`) is told what its records change behind it: when it is done, every partition was
looked at as it is now. Any other pass does not see that: whoever needs it makes another one.

Its counterpart in Kafka: `BrokersToIsrs`, an index of partitions by broker.
"""

from __future__ import annotations

from collections.abc import Iterator
from weakref import ref

from tidelog.base.ids import PartitionIndex, TopicId
from tidelog.metadata.image import MetadataView, PartitionImage
from tidelog.metadata.records.brokers import (
    BrokerRegistrationChangeRecord,
    RegisterBrokerRecord,
    UnregisterBrokerRecord,
)
from tidelog.metadata.records.topics import PartitionChangeRecord, PartitionRecord

LOOKS_PER_CHANGE = 50
"""Partitions that a portion may pass over, for each that it may change. A look takes some tenths of a microsecond."""


class PartitionScan:
    """See the module. It belongs to one leadership of the controller, and is in no log.

    Args:
        metadata: to begin with at once.

    Attributes:
        is_done: every partition had its turn, and nothing changed since, as far as the pass is told.
        has_brokers_changed: whether it was told that a broker came or went since it began.
    """

    def __init__(self, metadata: MetadataView | None = None) -> None:
        self._of: MetadataView | None = metadata
        self._ids: list[TopicId] | None = None
        self._positions: dict[TopicId, int] | None = None
        self._next_topic = 0
        self._next_index = 0
        self._changed: dict[tuple[TopicId, PartitionIndex], None] = {}
        self.has_brokers_changed = False

    @property
    def is_done(self) -> bool:
        return self._next_topic == len(self._topic_ids) and not self._changed

    @property
    def _topic_ids(self) -> list[TopicId]:
        """Of all topics with partitions, as the pass began: when it was first asked. O(topics) then."""
        if self._ids is None:
            topics = {} if self._of is None else self._of.topics_by_id
            self._ids = [topic_id for topic_id, topic in topics.items() if topic.partitions]
        return self._ids

    def is_of(self, metadata: MetadataView) -> bool:
        """Whether it passes over the partitions of that state, whatever has become of them."""
        return self._of is metadata

    def begin(self, metadata: MetadataView) -> None:
        """Begin, or begin anew, with all the partitions there are."""
        self._of = metadata
        self._ids = self._positions = None
        self._next_topic = self._next_index = 0
        self._changed.clear()
        self.has_brokers_changed = False

    def portion(
        self, metadata: MetadataView, changes_max: int
    ) -> Iterator[tuple[str, TopicId, PartitionIndex, PartitionImage]]:
        """Each partition from where the last portion stopped, with its topic's name. Whoever stops reading stops it.

        Args:
            metadata: the state as it is, or as it is about to be.
            changes_max: of the portion, to which the number of looks is in proportion.
        """
        looks_left = changes_max * LOOKS_PER_CHANGE
        topic_ids = self._topic_ids
        while looks_left and self._next_topic < len(topic_ids):
            topic_id = topic_ids[self._next_topic]
            topic = metadata.topics_by_id.get(topic_id)
            if topic is None:
                self._step(0, 0)
                continue
            partitions = topic.partitions
            for index in range(self._next_index, min(len(partitions), self._next_index + looks_left)):
                looks_left -= 1
                self._step(index + 1, len(partitions))
                yield topic.name, topic_id, PartitionIndex(index), partitions[index]
        while looks_left and self._changed:
            looks_left -= 1
            (topic_id, changed), _ = self._changed.popitem()
            topic = metadata.topics_by_id.get(topic_id)
            if topic is not None:
                yield topic.name, topic_id, changed, topic.partitions[changed]

    def _step(self, next_index: int, count: int) -> None:
        """On to the next partition; of the last one, to the next topic."""
        if next_index < count:
            self._next_index = next_index
        else:
            self._next_topic, self._next_index = self._next_topic + 1, 0

    # What it is told.

    def on_changed(self, topic_id: TopicId, index: PartitionIndex) -> None:
        """A partition was made, or changed: it is looked at again if its turn is over."""
        if self._ids is None:
            return
        if self._positions is None:
            self._positions = {topic_id: position for position, topic_id in enumerate(self._ids)}
        position = self._positions.get(topic_id, -1)
        if (position, index) < (self._next_topic, self._next_index):
            self._changed[topic_id, index] = None

    def on_broker_changed(self) -> None:
        """A broker came or went."""
        self.has_brokers_changed = True


class PartitionScans:
    """The passes over one state that are told what its records change, each as long as somebody keeps it."""

    def __init__(self, metadata: MetadataView) -> None:
        self._metadata = metadata
        self._scans: list[ref[PartitionScan]] = []  # a WeakSet takes longer than the rest of a change

    def pass_over(self, scan: PartitionScan | None) -> PartitionScan:
        """A pass that is told what changes behind it.

        Args:
            scan: goes on with it; one that is of another state begins anew.
        """
        if scan is None:
            scan = PartitionScan()
        if not scan.is_of(self._metadata):
            scan.begin(self._metadata)
        if all(known() is not scan for known in self._scans):
            self._scans.append(ref(scan, self._scans.remove))
        return scan

    def on_applied(self, record: object) -> None:
        """The state has taken in a record."""
        if not self._scans:
            return
        if isinstance(record, PartitionRecord | PartitionChangeRecord):
            for scan in self._known():
                scan.on_changed(TopicId(record.topic_id), PartitionIndex(record.partition_id))
        elif isinstance(record, RegisterBrokerRecord | BrokerRegistrationChangeRecord | UnregisterBrokerRecord):
            for scan in self._known():
                scan.on_broker_changed()

    def _known(self) -> Iterator[PartitionScan]:
        for known in tuple(self._scans):  # one that ends meanwhile leaves the list
            scan = known()
            if scan is not None:
                yield scan

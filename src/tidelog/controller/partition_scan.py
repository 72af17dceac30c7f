"""One pass over all partitions, in portions: each goes on where the one before stopped.

```
 topics as the pass began   t1 t2 t3 t4 …          portion by portion: a decision each
                            ──┤───┤───────┤──▶     every partition is looked at as it is when its turn comes
```
So what is to be done to many partitions costs as much as there are of them, in however many decisions. A pass does not
see the topics that are made after it began, nor what becomes of a partition behind it: whoever needs that makes
another pass.

Its counterpart in Kafka: `BrokersToIsrs`, an index of partitions by broker.
"""

from __future__ import annotations

from collections.abc import Iterator

from tidelog.base.ids import PartitionIndex, TopicId
from tidelog.metadata.image import MetadataView, PartitionImage

LOOKS_PER_CHANGE = 100
"""Partitions that a portion may pass over, for each that it may change. A look is some tenth of a microsecond."""


class PartitionScan:
    """See the module. It belongs to one leadership of the controller, and is in no log.

    Attributes:
        is_done: every partition had its turn.
    """

    def __init__(self, metadata: MetadataView) -> None:
        """O(topics), references only."""
        self.is_done = False
        self._topic_ids = list(metadata.topics_by_id)
        self._next_topic = 0
        self._next_index = 0

    def portion(
        self, metadata: MetadataView, changes_max: int
    ) -> Iterator[tuple[str, TopicId, PartitionIndex, PartitionImage]]:
        """Each partition from where the last portion stopped, with its topic's name. Whoever stops reading stops it.

        Args:
            changes_max: of the portion, to which the number of looks is in proportion.
        """
        looks_left = changes_max * LOOKS_PER_CHANGE
        while self._next_topic < len(self._topic_ids):
            topic_id = self._topic_ids[self._next_topic]
            topic = metadata.topics_by_id.get(topic_id)
            if topic is not None:
                for partition in topic.partitions[self._next_index :]:
                    if not looks_left:
                        return
                    looks_left -= 1
                    index = self._next_index
                    self._next_index = index + 1
                    yield topic.name, topic_id, PartitionIndex(index), partition
            self._next_topic, self._next_index = self._next_topic + 1, 0
        self.is_done = True

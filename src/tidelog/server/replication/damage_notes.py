"""What is known of rot in the logs of this broker, and which logs are suspected of it.

Readers come upon it, and so do the chores that look through logs; `DamageRepair` sees to it.

Kafka: none.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from tidelog.base.ids import TopicPartition

if TYPE_CHECKING:
    from tidelog.log.damage import Damage
    from tidelog.server.replication.partition import Partition


class DamageNotes:
    """See the module. To be used on one event loop.

    Attributes:
        open: what is damaged and not repaired, of each log that has any.
        found: stretches that were found damaged since the node started.
        repaired: stretches that were repaired.
        scrubbed_bytes: of segments that were looked through, damaged or not.
    """

    def __init__(self) -> None:
        self.open: dict[TopicPartition, tuple[Damage, ...]] = {}
        self.found = 0
        self.repaired = 0
        self.scrubbed_bytes = 0
        self._suspected: dict[TopicPartition, Partition] = {}
        self._has_suspected = asyncio.Event()

    @property
    def open_count(self) -> int:
        """Stretches that are damaged and not repaired."""
        return sum(map(len, self.open.values()))

    @property
    def lost_count(self) -> int:
        """Those of them that no replica has as they were written."""
        return sum(damage.is_lost for damages in self.open.values() for damage in damages)

    def suspect(self, partition: Partition) -> None:
        """A log is damaged, or somebody could not read in it: it is to be looked at soon."""
        self._suspected[partition.topic_partition] = partition
        self._has_suspected.set()

    async def next_suspected(self) -> Partition:
        """Wait for one, and forget it."""
        while not self._suspected:
            self._has_suspected.clear()
            await self._has_suspected.wait()
        return self._suspected.pop(next(iter(self._suspected)))

    def set_open(self, topic_partition: TopicPartition, damages: tuple[Damage, ...]) -> None:
        """What is damaged in a log, all of it."""
        if damages:
            self.open[topic_partition] = damages
        else:
            self.open.pop(topic_partition, None)

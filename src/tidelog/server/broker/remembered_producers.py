"""Of how many producers the logs of a node remember the sequence numbers: a limit for all partitions together.

Anybody who may produce can send batches of producers that nobody heard of, and each is remembered for
`producer.id.expiration.ms`, in every partition that it sends to. Looked at once a second:

```
 more than count_max in all ──► the partitions that have most forget ──► those that were quiet for longest go first
```

A producer that was forgotten goes on: its next batch is taken whatever its sequence number (KIP-360). A batch that it
sends again in that moment may be there twice. One with an open transaction is not forgotten.

Kafka: none; `ProducerStateManager` knows `producer.id.expiration.ms` alone.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence

from tidelog.metadata.configs.limits import MAX_PRODUCER_IDS
from tidelog.server.replication.partition import Partition
from tidelog.server.settings.in_force import SettingsInForce
from tidelog.server.settings.log_lines import Seldom

logger = logging.getLogger("tidelog.server.limits")

FORGOTTEN_AT_ONCE_MAX = 2_000
"""Producers, before others have their turn: about a millisecond."""
LOG_INTERVAL_SECONDS = 10.0


class RememberedProducers:
    """Those of one node.

    Args:
        partitions: those that are here.

    Attributes:
        count_max: `max.producer.ids`.
        forgotten: how many went because there were too many.
    """

    def __init__(self, partitions: Callable[[], Sequence[Partition]]) -> None:
        self.count_max = MAX_PRODUCER_IDS.fallback
        self.forgotten = 0
        self._partitions = partitions
        self._log = Seldom(LOG_INTERVAL_SECONDS)

    def on_settings(self, old: SettingsInForce | None, new: SettingsInForce) -> None:
        """Another limit may be in force."""
        self.count_max = new.broker[MAX_PRODUCER_IDS]

    @property
    def count(self) -> int:
        """How many are remembered, once for each partition that they sent to."""
        return sum(len(partition.log.producers) for partition in self._partitions())

    async def forget_excess(self) -> None:
        """Forget those that are too many."""
        partitions = self._partitions()
        excess = sum(len(one.log.producers) for one in partitions) - self.count_max
        if excess <= 0:
            return
        before = self.forgotten
        largest = sorted(partitions, key=lambda one: len(one.log.producers), reverse=True)
        share = self._share_left([len(one.log.producers) for one in largest], excess)
        for partition in largest:
            while True:
                producers = partition.log.producers
                left = len(producers) - share
                if left <= 0:
                    break
                count = producers.forget_quietest(min(left, FORGOTTEN_AT_ONCE_MAX))
                self.forgotten += count
                if not count or left <= FORGOTTEN_AT_ONCE_MAX:
                    break
                await asyncio.sleep(0)
            if left <= 0:
                break  # the rest have no more
            await asyncio.sleep(0)
        forgotten = self.forgotten - before
        suppressed = self._log.suppressed() if forgotten else None
        if suppressed is not None:
            logger.warning(
                "%d producers are forgotten, %s had most: more than %d were remembered (max.producer.ids)",
                forgotten,
                largest[0].topic_partition,
                self.count_max,
            )

    @staticmethod
    def _share_left(sizes: Sequence[int], excess: int) -> int:
        """What each partition may keep, so that the largest ones give up the excess together.

        Args:
            sizes: the largest first.
        """
        above = 0
        for count, size in enumerate(sizes, start=1):
            above += size
            following = sizes[count] if count < len(sizes) else 0
            if above - following * count >= excess:
                return max((above - excess) // count, 0)
        return 0

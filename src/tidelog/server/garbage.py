"""When the node looks for garbage that only a collector finds: cycles of objects that nothing else refers to.

A collection holds the event loop, and takes as long as the objects that it looks at are many. So objects that have
outlived three looks are frozen: no later look meets them again, and none takes longer than a few milliseconds, however
many partitions there are. What dies among the frozen is freed by its reference count: partitions, sessions and
connections part with what knows them. Cycles would not be; so all is looked at, once the memory that is in use has
grown so much, beyond what the partitions take, that there may be some.

Its counterpart in Kafka: the collector of the JVM.
"""

from __future__ import annotations

import asyncio
import gc
import sys
from collections.abc import Callable
from time import process_time

LOOKED_AT_TOGETHER = 5_000
"""New objects that are looked at together, and again with those of the next two times: each takes up to 0.3 µs."""
GROWN_BLOCKS = 1_000_000
"""Blocks of memory (of some 70 bytes, mostly) that may become garbage before all is looked at, at a busy node."""
GROWN_QUIETLY_BLOCKS = 100_000
LOOK_INTERVAL_SECONDS = 10.0
LOCAL_PARTITION_BLOCKS = 55
"""That a replica of this node takes, once it was made; and the next, that any partition of the cluster takes."""
KNOWN_PARTITION_BLOCKS = 14
BLOCK_BYTES = 70
QUIET_PART = 0.05
"""Of a core, with all threads: a node that takes less is quiet."""


class GarbageCollection:
    """The collector of this process, and when it looks at what.

    From `begin` to `end`, nothing else is to set the collector.

    Args:
        allocated_blocks: how many blocks of memory are in use.
    """

    def __init__(self, allocated_blocks: Callable[[], int] = sys.getallocatedblocks) -> None:
        self._allocated_blocks = allocated_blocks
        self._blocks_alive = 0  # after the last look at all
        self._expected_blocks = 0  # then
        self._was_due = False
        self._thresholds = gc.get_threshold()

    def begin(self) -> None:
        """Look at little at a time from now on, and never again at what there is now."""
        gc.set_threshold(LOOKED_AT_TOGETHER, 0, 0)  # each generation with what the younger one has left
        gc.callbacks.append(_on_collection)
        self.freeze()

    def end(self) -> None:
        """Leave the collector as it was found."""
        gc.callbacks.remove(_on_collection)
        gc.set_threshold(*self._thresholds)
        gc.unfreeze()

    def freeze(self, expected_blocks: int = 0) -> None:
        """What there is now is there to stay: a start, say, has come to its end.

        Args:
            expected_blocks: see `is_due`.
        """
        gc.freeze()
        gc.collect()  # of nothing: it would put off others until there is a quarter more than the last one left
        self._blocks_alive = self._allocated_blocks()
        self._expected_blocks = expected_blocks

    def is_due(self, *, is_quiet: bool, expected_blocks: int = 0) -> bool:
        """Whether all is to be looked at, for what may have become garbage: a quiet node does so sooner.

        Args:
            expected_blocks: that are known to be in use. What they grew by is no garbage.
        """
        grown = self._allocated_blocks() - self._blocks_alive - (expected_blocks - self._expected_blocks)
        if is_quiet:
            return grown > max(GROWN_QUIETLY_BLOCKS, self._blocks_alive // 4)
        return grown > max(GROWN_BLOCKS, self._blocks_alive)

    def on_interval(self, *, is_quiet: bool, expected_blocks: int = 0) -> None:
        """Look at all if that is due, and was an interval ago: what a long request takes comes and goes."""
        is_due = self.is_due(is_quiet=is_quiet, expected_blocks=expected_blocks)
        if is_due and self._was_due:
            self.look_at_all(expected_blocks)
        self._was_due = is_due

    def look_at_all(self, expected_blocks: int = 0) -> None:
        """Takes some hundred milliseconds for a million objects: 25 µs for each replica."""
        gc.unfreeze()
        gc.collect()
        self.freeze(expected_blocks)

    async def run(self, expected_blocks: Callable[[], int]) -> None:
        """Look at all whenever it is due; never returns."""
        while True:
            before = process_time()
            await asyncio.sleep(LOOK_INTERVAL_SECONDS)
            is_quiet = process_time() - before < QUIET_PART * LOOK_INTERVAL_SECONDS
            self.on_interval(is_quiet=is_quiet, expected_blocks=expected_blocks())


def expected_blocks(local_partitions: int, known_partitions: int, counted_bytes: int = 0) -> int:
    """About how many blocks of memory are known to be in use.

    Args:
        local_partitions: replicas of this node; `known_partitions`: all that the metadata knows.
        counted_bytes: by those who bound what they take: long requests that are under way, groups, transactions.
    """
    partitions = LOCAL_PARTITION_BLOCKS * local_partitions + KNOWN_PARTITION_BLOCKS * known_partitions
    return partitions + counted_bytes // BLOCK_BYTES


def _on_collection(phase: str, info: dict[str, int]) -> None:
    if phase == "stop" and info["generation"] == 2:
        gc.freeze()

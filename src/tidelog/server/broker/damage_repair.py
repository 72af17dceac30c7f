"""Repairs what rotted in the logs of a broker, with what another replica has.

```
 suspected ──► looked through: where it is damaged ──► refused to readers, told ──► fetched from the leader,
                                                                                    or else from another replica
                                       kept, and tried again every minute ◄── none has it │ one has it
                                                                                          ▼
                                                     the segment is written anew, and takes the place of the old
```

A leader and a follower do the same. Neither leaves the ISR or the leadership: a repair takes nothing away, and whoever
is elected meanwhile refuses the damaged records as this one does. Compare a follower that truncates its log and
fetches it anew: until it has, it cannot lead, and where the others are gone, nothing is served at all.

Kafka: none.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from functools import partial
from typing import TypeVar

from tidelog.base.errors import Code, CorruptLogError, DiskError, KafkaError, NetworkError, TidelogError
from tidelog.base.ids import BrokerId, TopicPartition
from tidelog.base.ports import Buffer, Clock, Disk, Executor
from tidelog.log import Log
from tidelog.log.damage import Damage
from tidelog.log.scrub import SegmentScrub
from tidelog.log.segment import Segment
from tidelog.log.segment_rebuild import SegmentRebuild
from tidelog.server.broker.broker import Broker
from tidelog.server.broker.scrubber import cold_segments, is_ours, take_in
from tidelog.server.replication.partition import Partition
from tidelog.server.replication.record_fetch import fetch_records
from tidelog.server.storage.disk_health import is_passing
from tidelog.server.tasks import to_its_end

logger = logging.getLogger("tidelog.server.scrubber")

T = TypeVar("T")

RETRY_MS = 60_000
"""After this long what could not be repaired is tried again."""
DAMAGED_THERE_TOO = frozenset((Code.KAFKA_STORAGE_ERROR, Code.CORRUPT_MESSAGE, Code.OFFSET_OUT_OF_RANGE))


class _NotThereError(TidelogError):
    """A replica has not what is damaged here, and said so."""


def _has_new(partition: Partition) -> bool:
    """Whether a reader came upon something, and nobody has looked yet where it ends."""
    return any(not damage.is_located for segment in cold_segments(partition) for damage in segment.damages)


class DamageRepair:
    """The chore."""

    def __init__(self, broker: Broker, *, disk: Disk, clock: Clock, executor: Executor) -> None:
        self._broker = broker
        self._notes = broker.replication.damage_notes
        self._disk = disk
        self._clock = clock
        self._executor = executor
        self._retried: dict[Partition, int] = {}  # when
        self._not_before: dict[TopicPartition, int] = {}  # whoever cannot read there asks again and again

    async def run(self) -> None:
        """Repair what is suspected, for as long as the node runs."""
        while True:
            try:
                async with asyncio.timeout(self._wait_seconds()):
                    partition = await self._notes.next_suspected()
            except TimeoutError:
                now_ms = self._clock.now_ms()
                for one in [one for one, due_ms in self._retried.items() if due_ms <= now_ms]:
                    del self._retried[one]
                    self._not_before.pop(one.topic_partition, None)
                    self._notes.suspect(one)
                continue
            due_ms = self._not_before.get(partition.topic_partition, 0)
            if self._clock.now_ms() < due_ms and not _has_new(partition):
                self._retried.setdefault(partition, due_ms)
                continue
            await self.see_to(partition)
            self._not_before[partition.topic_partition] = self._clock.now_ms() + RETRY_MS

    def _wait_seconds(self) -> float | None:
        if not self._retried:
            return None
        return max(min(self._retried.values()) - self._clock.now_ms(), 0) / 1000

    async def see_to(self, partition: Partition) -> None:
        """Look where a log is damaged, and repair what can be."""
        self._retried.pop(partition, None)
        if not is_ours(self._broker, partition):
            if self._broker.replica_of(partition.topic_partition) is partition:  # between two roles
                self._retried[partition] = self._clock.now_ms() + RETRY_MS
            else:
                self._notes.set_open(partition.topic_partition, ())
            return
        async with partition.rewrite_lock:
            log = partition.log
            try:
                segments = await self._suspected(partition)
            except DiskError as error:
                segments = []
                self._broker.failures.on_disk_error(partition, error)
            for segment in segments:
                if is_ours(self._broker, partition) and log.segments.holds_side_by_side([segment]):
                    try:
                        await self._see_to_segment(partition, segment)
                    except DiskError as error:
                        if not segment.is_retired and partition.log is log:  # else it was deleted: nobody's fault
                            self._on_refused(partition, error)
        log_start_offset = partition.log.log_start_offset
        every = (damage for segment in partition.log.segments for damage in segment.damages)
        left = tuple(damage for damage in every if damage.end_offset > log_start_offset)
        self._notes.set_open(partition.topic_partition, left)
        if (left or partition.is_suspect) and is_ours(self._broker, partition):
            self._retried[partition] = self._clock.now_ms() + RETRY_MS

    def _on_refused(self, partition: Partition, error: DiskError) -> None:
        """The log is as it was, unless it says that it failed: what is right in it is served on."""
        logger.error("%s: damaged records are not repaired: %s", partition.topic_partition, error)
        if partition.log.segments.failure is not None or is_passing(error):
            self._broker.failures.on_disk_error(partition, error)
        elif is_ours(self._broker, partition):
            self._broker.failures.on_read_error(partition)

    async def _suspected(self, partition: Partition) -> list[Segment]:
        """The segments to look at: those that are known to be damaged; else, where a reader failed, all."""
        log = partition.log
        active = log.segments.active
        if active.damages and partition.role.is_active:
            async with partition.log_lock:
                if is_ours(self._broker, partition) and active is log.segments.active:
                    log.roll(self._clock.wall_ms())  # what is closed can be written anew
                    await self._off_the_loop(partial(log.maybe_flush, self._clock.now_ms()))
        is_suspect, partition.is_suspect = partition.is_suspect, False
        found = [each for each in cold_segments(partition) if each.damages or each.has_index_fault or is_suspect]
        if any(each.damages for each in log.segments if each not in found):
            partition.is_suspect = True  # not all of it is committed yet
        return found

    async def _see_to_segment(self, partition: Partition, segment: Segment) -> None:
        if not segment.has_index_fault and not (
            segment.damages and all(damage.is_located for damage in segment.damages)
        ):
            await self._locate(partition, segment)
        damages = tuple(one for one in segment.damages if one.end_offset > partition.log.log_start_offset)
        if not damages and not segment.has_index_fault:
            return
        known = self._notes.open.get(partition.topic_partition, ())
        for damage in damages:
            if not any(damage.start_offset == one.start_offset for one in known):
                self._notes.found += 1
                logger.error(
                    "%s: RECORDS ARE DAMAGED at this broker, offsets %d to %d in %s: %s. They are refused to readers "
                    "until they are repaired from another replica",
                    *(partition.topic_partition, damage.start_offset, damage.end_offset - 1, segment.path),
                    damage.reason,
                )
        self._notes.set_open(partition.topic_partition, (*known, *(one for one in damages if one not in known)))
        await self._repair(partition, segment, damages)

    async def _locate(self, partition: Partition, segment: Segment) -> None:
        log = partition.log
        scrub = SegmentScrub(
            self._disk, segment, log.lineage.clone(), cleaned_end_offset=log.compaction.mark.end_offset
        )
        try:
            while (size_bytes := await self._off_the_loop(scrub.step)) is not None:
                self._notes.scrubbed_bytes += size_bytes
        finally:
            await self._executor.run(scrub.abandon)
        async with partition.log_lock:
            if is_ours(self._broker, partition) and partition.log is log:
                take_in(partition, scrub)

    # From whom.

    def _sources(self, partition: Partition) -> list[BrokerId]:
        """The other replicas that are up: the leader first, then those in sync."""
        state = self._broker.image.partition(*partition.topic_partition)
        if state is None:
            return []
        ranked = [*(() if state.leader is None else (state.leader,)), *state.isr, *state.replicas]
        active = self._broker.replication.active_brokers
        return [one for one in dict.fromkeys(ranked) if one != self._broker.broker_id and one in active]

    async def _repair(self, partition: Partition, segment: Segment, damages: tuple[Damage, ...]) -> None:
        state = self._broker.image.partition(*partition.topic_partition)
        others = set() if state is None else {*state.replicas} - {self._broker.broker_id}
        refused: dict[BrokerId, str] = {}
        sources = self._sources(partition) if damages else [self._broker.broker_id]
        for source in sources:
            try:
                if await self._rebuild(partition, segment, source):
                    self._on_repaired(partition, segment, damages, source)
                    return
            except _NotThereError as error:
                others.discard(source)
                refused[source] = str(error)
            except (NetworkError, KafkaError) as error:
                refused[source] = str(error)
            if not is_ours(self._broker, partition) or not partition.log.segments.holds_side_by_side([segment]):
                return
        is_lost = state is not None and not others
        if damages and any(one.is_lost != is_lost or one not in segment.damages for one in damages):
            self._say_not_repaired(partition, damages, refused, is_lost=is_lost)
        segment.damages = tuple(one._replace(is_lost=is_lost) for one in segment.damages)

    def _say_not_repaired(
        self, partition: Partition, damages: tuple[Damage, ...], refused: dict[BrokerId, str], *, is_lost: bool
    ) -> None:
        reasons = "; ".join(f"broker {source}: {reason}" for source, reason in refused.items()) or "there is no other"
        what = ", ".join(f"{one.start_offset} to {one.end_offset - 1}" for one in damages)
        if is_lost:
            logger.error(
                "%s: DAMAGED RECORDS ARE LOST, offsets %s: no other replica has them. Readers there get "
                "CORRUPT_MESSAGE, and nothing is deleted. To have readers pass over them, seek or commit behind them; "
                "to remove them, delete records up to there. (%s)",
                *(partition.topic_partition, what, reasons),
            )
        else:
            logger.warning(
                "%s: damaged records are not repaired yet, offsets %s; tried again every minute: %s",
                *(partition.topic_partition, what, reasons),
            )

    def _on_repaired(
        self, partition: Partition, segment: Segment, damages: tuple[Damage, ...], source: BrokerId
    ) -> None:
        self._notes.repaired += len(damages)
        if not damages:
            logger.warning("%s: the indexes of %s are built anew", partition.topic_partition, segment.path)
        for damage in damages:
            logger.warning(
                "%s: the damaged records are repaired, offsets %d to %d: broker %d had them",
                *(partition.topic_partition, damage.start_offset, damage.end_offset - 1, source),
            )

    # How.

    async def _rebuild(self, partition: Partition, segment: Segment, source: BrokerId) -> bool:
        """Write the segment anew. Returns whether it is; not if the log changed meanwhile.

        Raises:
            _NotThereError: the source has not what is damaged here.
            NetworkError, KafkaError: it cannot be asked now.
            DiskError: the disk refused.
        """
        log, damages = partition.log, segment.damages
        rebuild = await self._off_the_loop(
            partial(
                SegmentRebuild,
                self._disk,
                log.directory,
                segment,
                damages,
                log.lineage.clone(),
                mark=log.compaction.mark,
                config=log.config,
                aborted=segment.indexes.transactions.file_now(),
                now_ms=self._clock.wall_ms(),
            )
        )
        try:
            for _ in damages:
                while await self._off_the_loop(rebuild.copy):
                    pass
                await self._fill(partition, rebuild, source)
            while await self._off_the_loop(rebuild.copy):
                pass
            group = await self._off_the_loop(rebuild.finish)
            async with partition.log_lock:
                if not is_ours(self._broker, partition) or partition.log is not log:
                    return False
                if not log.compaction.announce(group, rebuild.end_offset_mark):
                    return False
                await self._off_the_loop(log.compaction.sync_names)
                if not is_ours(self._broker, partition) or not log.compaction.complete(group):
                    return False
                await self._off_the_loop(log.compaction.sync_names)
                await self._off_the_loop(log.segments.remove_deleted_files)
            return True
        except CorruptLogError as error:
            raise _NotThereError(str(error)) from None
        finally:
            await self._off_the_loop(rebuild.abandon)
            async with partition.log_lock:
                self._withdraw(partition, log)

    def _withdraw(self, partition: Partition, log: Log) -> None:
        """What was announced and is not complete would take its place at the next start, whatever is there by then."""
        try:
            log.compaction.withdraw()
        except DiskError as error:
            if partition.log is log:
                self._broker.failures.on_disk_error(partition, error)

    async def _fill(self, partition: Partition, rebuild: SegmentRebuild, source: BrokerId) -> None:
        while not rebuild.is_filled:
            try:
                records = await self._fetch(partition, rebuild, source)
            except KafkaError as error:
                if error.code in DAMAGED_THERE_TOO:
                    raise _NotThereError(str(error)) from None
                raise
            await self._off_the_loop(partial(rebuild.fill, records))

    async def _fetch(self, partition: Partition, rebuild: SegmentRebuild, source: BrokerId) -> Buffer:
        """Again, once, where there is no answer: who finds damage while it answers has to close the connection."""
        peers = self._broker.replication.peers
        try:
            return await fetch_records(peers, source, partition, rebuild.next_offset)
        except NetworkError:
            return await fetch_records(peers, source, partition, rebuild.next_offset)

    async def _off_the_loop(self, work: Callable[[], T]) -> T:
        """Run work on a thread. Cancelled, this waits for the end of it: nobody is to come in between."""
        return await to_its_end(self._executor.run(work))

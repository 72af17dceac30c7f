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
from collections.abc import Callable, Container, Mapping
from functools import partial
from typing import NamedTuple, TypeVar

from tidelog.base.errors import Code, CorruptLogError, DiskError, KafkaError, NetworkError, TidelogError
from tidelog.base.ids import BrokerId, Offset, TopicPartition
from tidelog.base.ports import Buffer, Clock, Disk, Executor
from tidelog.log import Log
from tidelog.log.config import INT64_MAX
from tidelog.log.damage import Damage
from tidelog.log.files.index_file import CorruptIndexError
from tidelog.log.scrub import STEP_WEIGHT, SegmentScrub
from tidelog.log.segment import Segment
from tidelog.log.segment_rebuild import SegmentFullError, SegmentRebuild
from tidelog.log.unreadable import can_read
from tidelog.records import split_whole_batches
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
    """A replica has not what is damaged here, or not all of it."""

    def __init__(self, start_offset: Offset, source: BrokerId) -> None:
        super().__init__(f"broker {source} has not what is damaged from offset {start_offset} on")
        self.start_offset = start_offset
        self.source = source


class _Asked(NamedTuple):
    """Who has a damaged stretch: a replica that serves its beginning, or none, and what they answered."""

    source: BrokerId | None
    is_lost: bool
    """All others answered, and none has it."""
    answers: str


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
        self._said: dict[tuple[TopicPartition, Offset], _Asked] = {}  # of what is not repaired
        self._too_large: dict[tuple[TopicPartition, Offset], str] = {}  # what finds no room in its segment
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
            now_ms = self._clock.now_ms()
            for over in [name for name, due_ms in self._not_before.items() if due_ms <= now_ms]:
                del self._not_before[over]
            self._not_before[partition.topic_partition] = now_ms + RETRY_MS

    def _wait_seconds(self) -> float | None:
        if not self._retried:
            return None
        return max(min(self._retried.values()) - self._clock.now_ms(), 0) / 1000

    async def see_to(self, partition: Partition) -> None:
        """Look where a log is damaged, and repair what can be."""
        self._retried.pop(partition, None)
        if not is_ours(self._broker, partition):
            served = self._broker.replica_of(partition.topic_partition)
            if served is partition:  # between two roles
                self._retried[partition] = self._clock.now_ms() + RETRY_MS
            elif served is None:  # else what is known is of another, of the same name
                self._note_left(partition.topic_partition, ())
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
        self._note_left(partition.topic_partition, left)
        is_here = self._broker.replica_of(partition.topic_partition) is partition  # it may be between two roles
        if is_here and (left or partition.suspected is not None):
            self._retried[partition] = self._clock.now_ms() + RETRY_MS

    def _note_left(self, topic_partition: TopicPartition, left: tuple[Damage, ...]) -> None:
        self._notes.set_open(topic_partition, left)
        starts = {(topic_partition, damage.start_offset) for damage in left}
        for known in (self._said, self._too_large):
            for one in [one for one in known if one[0] == topic_partition and one not in starts]:
                del known[one]

    def _on_refused(self, partition: Partition, error: DiskError) -> None:
        """The log is as it was, unless it says that it failed: what is right in it is served on."""
        logger.error("%s: damaged records are not repaired: %s", partition.topic_partition, error)
        if partition.log.segments.failure is not None or is_passing(error):
            self._broker.failures.on_disk_error(partition, error)
        elif is_ours(self._broker, partition):
            self._broker.failures.on_read_error(partition)

    async def _suspected(self, partition: Partition) -> list[Segment]:
        """The segments to look at: those that are known to be damaged, and those where a reader failed."""
        log = partition.log
        suspected, partition.suspected = partition.suspected, None
        start, end = (INT64_MAX, 0) if suspected is None else suspected
        active = log.segments.active
        is_active = active.base_offset <= start < active.end_offset
        if (active.damages or is_active) and partition.role.is_active:
            async with partition.log_lock:
                if is_ours(self._broker, partition) and active is log.segments.active:
                    log.roll(self._clock.wall_ms())  # what is closed can be written anew
                    await self._off_the_loop(partial(log.maybe_flush, self._clock.now_ms()))
        return [
            each
            for each in cold_segments(partition)
            if each.damages or each.has_index_fault or (each.base_offset < end and start < each.end_offset)
        ]

    async def _see_to_segment(self, partition: Partition, segment: Segment) -> None:
        is_known = segment.has_index_fault or bool(segment.damages)
        is_located = is_known and all(damage.is_located for damage in segment.damages)
        if not is_located or await self._is_read_again(segment):
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

    async def _is_read_again(self, segment: Segment) -> bool:
        """Whether the disk reads by now what it could not. No more than that is asked for, up to the first refusal."""
        for damage in segment.damages:
            if damage.is_unreadable:
                for position in range(damage.position, damage.end_position, STEP_WEIGHT):
                    size = min(damage.end_position - position, STEP_WEIGHT)
                    if not await self._off_the_loop(partial(can_read, self._disk, segment.path, position, size)):
                        break
                else:
                    return True
        return False

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

    async def _ask(
        self, partition: Partition, segment: Segment, damage: Damage, wrong: Container[tuple[Offset, BrokerId]]
    ) -> _Asked:
        """Look for a replica that serves the beginning of a damaged stretch, and is compacted as this one there.

        Args:
            segment: the damage is in it.
            wrong: what was served did not fit, by where the damage starts and whose it was.
        """
        too_large = self._too_large.get((partition.topic_partition, damage.start_offset))
        if too_large is not None:
            return _Asked(None, is_lost=False, answers=too_large)
        state = self._broker.image.partition(*partition.topic_partition)
        silent = set() if state is None else {*state.replicas} - {self._broker.broker_id}
        answers: list[str] = []
        for source in self._sources(partition):
            answer = "what it has does not fit"
            if (damage.start_offset, source) not in wrong:
                offset = max(damage.start_offset, partition.log.log_start_offset)
                try:
                    records = await self._fetch(partition, source, offset)
                    is_alike = await self._is_alike(partition, segment, damage, source, records)
                    if not is_alike:
                        answers.append(
                            f"broker {source}: it is compacted otherwise, and what was deleted could come back"
                        )
                        continue
                except (NetworkError, KafkaError) as error:
                    if isinstance(error, NetworkError) or not self._has_not(partition, source, error):
                        answers.append(f"broker {source}: {error}")
                        continue
                    answer = str(error)
                else:
                    return _Asked(source, is_lost=False, answers="")
            silent.discard(source)
            answers.append(f"broker {source}: {answer}")
        return _Asked(None, state is not None and not silent, "; ".join(answers) or "there is no other")

    async def _is_alike(
        self, partition: Partition, segment: Segment, damage: Damage, source: BrokerId, records: Buffer
    ) -> bool:
        """Whether what another replica has for a damaged stretch may be taken, as far as compaction goes.

        It may where it has as many bytes as are damaged here. Where it has not, one of the two has removed more. Then a
        record comes back for good if the mark of its deletion is gone here, and stays if its mark was damaged here and
        is gone there. A mark goes `delete.retention.ms` after a compaction first came by it, which is after its segment
        was closed. What is known of aborted transactions may go sooner.

        Args:
            records: from its beginning on; the rest is fetched.
        """
        log = partition.log
        if not log.config.is_compacted and log.compaction.mark.end_offset <= segment.base_offset:
            return True
        size_bytes, has_transactions = 0, False
        while True:
            batches = split_whole_batches(records)
            within = [header for _, header in batches if header.base_offset < damage.end_offset]
            size_bytes += sum(header.size_bytes for header in within)
            has_transactions |= any(header.is_transactional for header in within)
            if len(within) < len(batches) or not within or within[-1].next_offset >= damage.end_offset:
                break
            records = await self._fetch(partition, source, Offset(within[-1].next_offset))
        newest = segment.indexes.max_timestamp
        is_young = newest is not None and self._clock.wall_ms() - newest.timestamp < log.config.delete_retention_ms
        return size_bytes == damage.size_bytes or (is_young and not has_transactions)

    def _has_not(self, partition: Partition, source: BrokerId, error: KafkaError) -> bool:
        """Whether a refusal says that a replica has not what was asked for. One that is in no ISR may be offline, with
        its disk, and have it.
        """
        state = self._broker.image.partition(*partition.topic_partition)
        is_offline = error.code == Code.KAFKA_STORAGE_ERROR and (state is None or source not in state.isr)
        return error.code in DAMAGED_THERE_TOO and not is_offline

    async def _repair(self, partition: Partition, segment: Segment, damages: tuple[Damage, ...]) -> None:
        log = partition.log
        wrong: set[tuple[Offset, BrokerId]] = set()
        while True:
            asked = {damage: await self._ask(partition, segment, damage, wrong) for damage in damages}
            if not is_ours(self._broker, partition) or not log.segments.holds_side_by_side([segment]):
                return
            if not segment.has_index_fault and all(one.source is None for one in asked.values()):
                break
            try:
                rebuilt = await self._rebuild(partition, segment, asked)
            except _NotThereError as error:
                wrong.add((error.start_offset, error.source))
            except CorruptIndexError as error:
                if segment.has_index_fault:
                    logger.warning("%s: %s cannot be written anew: %s", partition.topic_partition, segment.path, error)
                self._say_not_repaired(partition, {damage: _Asked(None, False, str(error)) for damage in damages})
                return
            except CorruptLogError as error:  # it rotted further
                logger.warning("%s: looked through once more: %s", partition.topic_partition, error)
                await self._locate(partition, segment)
                return
            except (NetworkError, KafkaError, SegmentFullError) as error:
                self._say_not_repaired(partition, {damage: _Asked(None, False, str(error)) for damage in damages})
                return
            else:
                if rebuilt is None:
                    return
                self._say_repaired(partition, segment, asked)
                segment = rebuilt
                break
        left = {damage: one for damage, one in asked.items() if one.source is None}
        self._say_not_repaired(partition, left)
        lost = {damage.start_offset for damage, one in left.items() if one.is_lost}
        segment.damages = tuple(one._replace(is_lost=one.start_offset in lost) for one in segment.damages)

    def _say_not_repaired(self, partition: Partition, left: dict[Damage, _Asked]) -> None:
        """Once, until the answers are others."""
        topic_partition = partition.topic_partition
        for damage, one in left.items():
            if self._said.get((topic_partition, damage.start_offset)) == one:
                continue
            self._said[topic_partition, damage.start_offset] = one
            if one.is_lost:
                logger.error(
                    "%s: DAMAGED RECORDS ARE LOST, offsets %d to %d: no other replica has them. Readers there get "
                    "CORRUPT_MESSAGE, and nothing is deleted. To have readers pass over them, seek or commit behind "
                    "them; to remove them, delete records up to there. (%s)",
                    *(topic_partition, damage.start_offset, damage.end_offset - 1, one.answers),
                )
            else:
                logger.warning(
                    "%s: damaged records are not repaired yet, offsets %d to %d; tried again every minute: %s",
                    *(topic_partition, damage.start_offset, damage.end_offset - 1, one.answers),
                )

    def _say_repaired(self, partition: Partition, segment: Segment, asked: dict[Damage, _Asked]) -> None:
        if segment.has_index_fault:
            logger.warning("%s: the indexes of %s are built anew", partition.topic_partition, segment.path)
        for damage, one in asked.items():
            if one.source is not None:
                self._notes.repaired += 1
                logger.warning(
                    "%s: the damaged records are repaired, offsets %d to %d: broker %d had them",
                    *(partition.topic_partition, damage.start_offset, damage.end_offset - 1, one.source),
                )

    # How.

    async def _rebuild(self, partition: Partition, segment: Segment, asked: Mapping[Damage, _Asked]) -> Segment | None:
        """Write the segment anew. A damage that nobody can repair stays as it is.

        Returns:
            The new one; None if the log changed meanwhile, or is damaged at places that are not looked at yet.

        Raises:
            _NotThereError: the source has not what is damaged here.
            NetworkError, KafkaError: it cannot be asked now.
            CorruptIndexError: the aborted transactions of the segment are not known.
            CorruptLogError: the segment rotted further.
            DiskError: the disk refused.
        """
        log, damages = partition.log, segment.damages
        if not all(damage.is_located for damage in damages):
            return None
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
                log_start_offset=log.log_start_offset,
                now_ms=self._clock.wall_ms(),
            )
        )
        try:
            for damage in damages:
                while await self._off_the_loop(rebuild.copy):
                    pass
                source = asked[damage].source if damage in asked else None
                if source is not None:
                    await self._fill(partition, rebuild, damage, source)
                else:
                    while await self._off_the_loop(rebuild.keep):
                        pass
            while await self._off_the_loop(rebuild.copy):
                pass
            group = await self._off_the_loop(rebuild.finish)
            async with partition.log_lock:
                if not is_ours(self._broker, partition) or partition.log is not log:
                    return None
                if not log.compaction.announce(group, rebuild.end_offset_mark):
                    return None
                await self._off_the_loop(log.compaction.sync_names)
                if not is_ours(self._broker, partition) or not log.compaction.complete(group):
                    return None
                await self._off_the_loop(log.compaction.sync_names)
                await self._off_the_loop(log.segments.remove_deleted_files)
            return group.cleaned
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

    async def _fill(self, partition: Partition, rebuild: SegmentRebuild, damage: Damage, source: BrokerId) -> None:
        while not rebuild.is_filled:
            try:
                records = await self._fetch(partition, source, rebuild.next_offset)
                await self._off_the_loop(partial(rebuild.fill, records))
            except CorruptLogError:
                raise _NotThereError(damage.start_offset, source) from None
            except SegmentFullError as error:
                self._too_large[partition.topic_partition, damage.start_offset] = str(error)
                raise _NotThereError(damage.start_offset, source) from None
            except KafkaError as error:
                if self._has_not(partition, source, error):
                    raise _NotThereError(damage.start_offset, source) from None
                raise

    async def _fetch(self, partition: Partition, source: BrokerId, offset: Offset) -> Buffer:
        """Again, once, where there is no answer: who finds damage while it answers has to close the connection."""
        peers = self._broker.replication.peers
        try:
            return await fetch_records(peers, source, partition, offset)
        except NetworkError:
            return await fetch_records(peers, source, partition, offset)

    async def _off_the_loop(self, work: Callable[[], T]) -> T:
        """Run work on a thread. Cancelled, this waits for the end of it: nobody is to come in between."""
        return await to_its_end(self._executor.run(work))

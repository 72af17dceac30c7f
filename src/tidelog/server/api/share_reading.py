"""One ShareFetch, from what is due in its session to its answer.

It looks at what is due, waits until there is enough, and looks again at what has become due meanwhile. What it finds
is the member's from then on. Nothing here waits for a disk: a place in a log that is not in memory is named, for a
thread to bring it there.

Kafka: `DelayedShareFetch`, `ShareFetchUtils`.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from itertools import islice

from tidelog.base.errors import Code, InvariantBrokenError, KafkaError, refusal
from tidelog.base.ids import TopicId
from tidelog.log import LogSlice, NotCachedError
from tidelog.server.api.rights import ReadableTopics
from tidelog.server.replication.partition import READ_UNCOMMITTED, Partition
from tidelog.server.share_fetching.log_batches import LogBatches
from tidelog.server.share_fetching.share_driver import ShareDriver
from tidelog.server.share_fetching.share_fetching import ShareFetching
from tidelog.server.share_fetching.share_sessions import PartitionId, SharedPartition, ShareSession
from tidelog.share import AcquiredRecords, SharePartition
from tidelog.wire.messages.api_78_share_fetch import ACQUIRE_AT_MOST, ShareFetchRequest

READ_COMMITTED = 1

PARTITIONS_AT_ONCE_MAX = 32
"""That are looked at before others have their turn."""
BATCHES_AT_ONCE_MAX = 512
"""Of the log, likewise. A partition has its turn if there is room for one more."""
STEPS_AT_ONCE_MAX = 4
"""How often a partition is read on in one turn, while all that is read is markers, or was acquired by others."""
LOOK_UPS_MAX = 8
"""How often a place is looked up without waiting. After that it waits: memory is so short that nothing stays in it."""


@dataclass(slots=True)
class ReadForMember:
    """What a member is told of a partition.

    Attributes:
        records: whole batches.
        acquired: which of their records it has now.
        error: why nothing can be read.
    """

    records: LogSlice | None = None
    acquired: list[AcquiredRecords] | None = None
    error: KafkaError | None = None


class ShareReading:
    """Reads for one request.

    Args:
        session: up to date with the request.
        size_bytes_max: `fetch.max.bytes`, whatever the request asks for.
        readable: the topics that the member may read; None for all.

    Attributes:
        found: what the member is to be told, by partition.
        not_cached: what a thread has to bring into memory before `read_due` can go on.
        is_partway: more is due than one turn allows.
    """

    def __init__(
        self,
        fetching: ShareFetching,
        session: ShareSession,
        request: ShareFetchRequest,
        size_bytes_max: int,
        readable: ReadableTopics | None = None,
    ) -> None:
        self.found: dict[PartitionId, ReadForMember] = {}
        self.not_cached: list[NotCachedError] = []
        self.is_partway = False
        self._fetching = fetching
        self._session = session
        self._readable = readable
        self._epoch = session.epoch
        self._left_bytes = min(request.max_bytes, size_bytes_max)
        self._left_records = request.max_records
        self._min_bytes = min(request.min_bytes, self._left_bytes)
        self._is_strict = request.share_acquire_mode == ACQUIRE_AT_MOST
        self._batch_size = request.batch_size
        self._has_records = False
        self._is_full = self._left_records <= 0 or self._left_bytes <= 0
        self._held_back: dict[SharedPartition, int] = {}  # what they have, while it is not enough
        self._look_ups = 0
        self._batch_count = 0  # in this turn

    @property
    def is_overtaken(self) -> bool:
        """Whether a later request of the session came, or its end."""
        session = self._session
        return (
            session.epoch != self._epoch
            or self._fetching.sessions.find(session.group_id, session.member_id) is not session
        )

    @property
    def has_enough(self) -> bool:
        """Whether to answer: what is found is found, for it is the member's."""
        return bool(self.found) or self._is_full

    def on_late(self) -> None:
        """Whatever there is has to be enough."""
        self._min_bytes = 0
        self._session.due.update(dict.fromkeys(self._held_back))
        self._held_back.clear()

    def read_due(self) -> None:
        """Look at what is due, as far as the limits of the request allow, and as one turn of the loop allows."""
        session, found = self._session, self.found
        self._look_ups += 1
        self.not_cached.clear()
        due = (one for one in session.due if (one.topic_id, one.index) not in found)
        now_due = list(islice(due, PARTITIONS_AT_ONCE_MAX))
        self.is_partway = len(now_due) == PARTITIONS_AT_ONCE_MAX
        self._batch_count = 0
        for one in now_due:
            if self._is_full:
                break
            if self._batch_count >= BATCHES_AT_ONCE_MAX:
                self.is_partway = True
                break
            try:
                self._look_at(one)
            except NotCachedError as missing:
                self.not_cached.append(missing)
            except KafkaError as error:
                found[one.topic_id, one.index] = ReadForMember(error=error)
                self._to_the_end(one)

    def _look_at(self, one: SharedPartition) -> None:
        fetching, session = self._fetching, self._session
        if self._readable is not None:
            self._readable.check(one.topic_id)
        partition = fetching.broker.partition_by_id(TopicId(one.topic_id), one.index)
        if one.driver is not None and one.driver.error is not None:
            ended, one.driver = one.driver, None
            assert ended.error is not None
            raise ended.error  # the next look loads it anew
        driver = one.driver = fetching.driver(session.group_id, partition)
        machine = driver.serving
        if machine is None or not machine.is_ready:
            one.watch(driver.listeners, partition.listeners)
            return
        try:
            self._acquire(one, partition, driver, machine)
        except InvariantBrokenError as error:
            driver.on_bug(error)
            raise refusal(Code.UNKNOWN_SERVER_ERROR, f"a bug in Tidelog: {error}") from error

    def _acquire(
        self, one: SharedPartition, partition: Partition, driver: ShareDriver, machine: SharePartition
    ) -> None:
        """Acquire what can be had of a partition; watch it where that is nothing."""
        may_wait = self._look_ups > LOOK_UPS_MAX
        isolation_level = READ_COMMITTED if driver.settings.is_read_committed else READ_UNCOMMITTED
        for _ in range(STEPS_AT_ONCE_MAX):
            machine.on_log_start_moved(partition.log.log_start_offset)
            offset = machine.next_offset()
            records = None
            if offset is not None:
                records = partition.read(
                    offset,
                    sent_leader_epoch=-1,
                    size_bytes_max=self._left_bytes,
                    isolation_level=isolation_level,
                    at_least_one=not self._has_records,
                    may_wait=may_wait,
                )
            if offset is None or records is None:
                one.watch(driver.listeners, partition.listeners)
                return
            if not len(records):
                self._is_full = True  # no more fits
                return
            if self._is_held_back(one, len(records)):
                one.watch(driver.listeners, partition.listeners)
                return
            aborted = partition.aborted_transactions(offset, records, may_wait=may_wait) if isolation_level else ()
            look_up = partial(LogBatches, records, offset, self._left_records, aborted)
            batches = partition.looked_up(look_up, may_wait=may_wait)
            self._batch_count += len(batches.batches)
            acquired = machine.on_acquire(
                self._session.member_id,
                offset,
                batches.batches,
                records_max=self._left_records,
                is_strict=self._is_strict,
                now_ms=self._fetching.clock.now_ms(),
            )
            driver.process_ready()
            if acquired:
                self._add(one, batches, acquired)
                return
            if self._batch_count >= BATCHES_AT_ONCE_MAX:
                break
        self.is_partway = True

    def _is_held_back(self, one: SharedPartition, size_bytes: int) -> bool:
        """Whether all that there is does not make an answer yet. Nothing is acquired before it does."""
        if self._min_bytes <= 1:
            return False
        self._held_back[one] = size_bytes
        if sum(self._held_back.values()) < self._min_bytes:
            return True
        self.on_late()
        return False

    def _add(self, one: SharedPartition, batches: LogBatches, acquired: list[AcquiredRecords]) -> None:
        records = batches.part(acquired[0].first, acquired[-1].last)
        self.found[one.topic_id, one.index] = ReadForMember(records, batches.grouped(acquired, self._batch_size))
        self._has_records = True
        self._left_bytes -= len(records)
        self._left_records -= sum(last - first + 1 for first, last, _ in acquired)
        self._is_full = self._left_records <= 0 or self._left_bytes <= 0
        self._to_the_end(one)

    def _to_the_end(self, one: SharedPartition) -> None:
        """There may be more: it is due again once others had their turn."""
        self._session.due.pop(one, None)
        if self._session.partitions.get((one.topic_id, one.index)) is one:
            self._session.due[one] = None

"""One fetch, from what is due in its session to its answer.

It reads what is due, waits until there is enough, and reads again what has become due meanwhile: all else that it found
stands. Nothing here waits for a disk: a place in a log that is not in memory is named, for a thread to bring it there.

Kafka: `ReplicaManager.fetchMessages`, `DelayedFetch`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from itertools import islice
from typing import Any

from tidelog.base.errors import Code, InvariantBrokenError, KafkaError, refusal
from tidelog.base.ids import BrokerEpoch, BrokerId, LeaderEpoch, Offset, TopicId
from tidelog.log import NotCachedError
from tidelog.records.compression import ZSTD
from tidelog.replica import FollowerFetch
from tidelog.server.api.fetch_sessions import INT32_MAX, FetchedPartition, FetchSession
from tidelog.server.api.leader_hints import WRONG_LEADER, leader_of
from tidelog.server.api.request_context import code_of
from tidelog.server.api.rights import ReadableTopics
from tidelog.server.broker.broker import Broker
from tidelog.server.replication.partition import Partition
from tidelog.wire.messages.api_01_fetch import (
    AbortedTransaction,
    EpochEndOffset,
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    LeaderIdAndEpoch,
    PartitionData,
)

ZSTD_FROM_VERSION = 10

READ_AT_ONCE_MAX = 200
"""Partitions, before others have their turn: they take some microseconds each."""

LOOK_UPS_MAX = 8
"""How often a place is looked up without waiting. After that it waits: memory is so short that nothing stays in it."""


class FetchReading:
    """Reads for one request.

    Args:
        session: up to date with the request.
        size_bytes_max: `fetch.max.bytes`, whatever the request asks for.
        reads_zstd: whether the version of the request says that the reader does.
        reads_from_followers: likewise.
        now_ms: the clock: a fetch of a follower that is read again proves once more what it has.
        fetched_bytes: counts what is answered, by topic; None where nobody counts.
        readable: the topics that the reader may read; None for all. A follower was looked at before.

    Attributes:
        must_answer: something was found that the reader has to know at once.
        leaders: whom those are told of that asked the wrong broker.
        told: partitions of which a consumer is told that its position is none of theirs, and how far it agrees.
        not_cached: what a thread has to bring into memory before `read_due` can go on with what is due.
    """

    def __init__(
        self,
        broker: Broker,
        session: FetchSession,
        request: FetchRequest,
        size_bytes_max: int,
        *,
        reads_zstd: bool,
        reads_from_followers: bool,
        now_ms: Callable[[], int],
        fetched_bytes: dict[Any, int] | None = None,
        readable: ReadableTopics | None = None,
    ) -> None:
        self.must_answer = not session.partitions
        self.not_cached: list[NotCachedError] = []
        self.leaders: list[int] = []
        self.told: list[tuple[Partition, tuple[LeaderEpoch, Offset]]] = []
        self._broker = broker
        self._session = session
        self._now_ms = now_ms
        state = request.replica_state
        self._replica_id = request.replica_id if state is None else state.replica_id
        self._rack = request.rack_id
        self._replica_epoch = -1 if state is None else state.replica_epoch
        self._epoch = session.epoch
        self._reads_zstd = reads_zstd
        self._reads_from_followers = reads_from_followers
        self._isolation_level = request.isolation_level
        self._size_bytes_max = min(request.max_bytes, size_bytes_max)
        self._min_bytes = min(request.min_bytes, self._size_bytes_max)
        self._look_ups = 0
        self._throttle = broker.replication.leader_throttle
        self._fetched_bytes = fetched_bytes
        self._readable = None if self._replica_id >= 0 else readable
        if self._replica_id >= 0:
            broker.replication.on_follower_fetched(BrokerId(self._replica_id), request.max_wait_ms)

    @property
    def is_overtaken(self) -> bool:
        """Whether a later request of the session came, from a reader that does not wait for this one."""
        return self._session.epoch != self._epoch

    @property
    def has_enough(self) -> bool:
        return self.must_answer or self._session.found_bytes >= self._min_bytes

    def read_due(self) -> None:
        """Read what is due, as far as the limits of the request allow, and as one turn of the loop allows."""
        if not self._session.is_partway:
            self._look_ups += 1
            self.not_cached.clear()
        self._session.read_due(self._read, READ_AT_ONCE_MAX)

    @property
    def is_long(self) -> bool:
        """Whether so much was found that to tell it takes more than one turn of the loop."""
        return self._session.found_count > READ_AT_ONCE_MAX

    def answer(self) -> FetchResponse:
        """What the reader is told: in a session, what it does not know yet."""
        topics: dict[object, FetchableTopicResponse] = {}
        self._add_rows(self._session.take_updates(), topics)
        return self._response(topics)

    async def answer_in_turns(self) -> FetchResponse:
        """As `answer`, with turns for others in between."""
        topics: dict[object, FetchableTopicResponse] = {}
        updates = self._session.take_updates()
        while self._add_rows(islice(updates, READ_AT_ONCE_MAX), topics):
            await asyncio.sleep(0)
        return self._response(topics)

    def _response(self, topics: dict[object, FetchableTopicResponse]) -> FetchResponse:
        return FetchResponse(session_id=self._session.session_id, responses=list(topics.values()))

    def _add_rows(
        self, rows: Iterable[tuple[FetchedPartition, PartitionData]], topics: dict[object, FetchableTopicResponse]
    ) -> int:
        """Add rows to the response. Returns how many."""
        session, fetched_bytes, count = self._session, self._fetched_bytes, 0
        for fetched, row in rows:
            count += 1
            if fetched.is_throttled and row.records:
                self._throttle.record(len(row.records))
            if row.current_leader is not None:
                self.leaders.append(row.current_leader.leader_id)
            of_topic = fetched.topic_id if session.is_by_id else fetched.topic
            if fetched_bytes is not None and row.records:
                fetched_bytes[of_topic] = fetched_bytes.get(of_topic, 0) + len(row.records)
            topic = topics.get(of_topic)
            if topic is None:
                topic = FetchableTopicResponse(topic=fetched.topic, topic_id=fetched.topic_id, partitions=[])
                topics[of_topic] = topic
            topic.partitions.append(row)
        return count

    def _read(self, fetched: FetchedPartition) -> PartitionData | None:
        """What is there; None if that cannot be told yet, be it for lack of room or of the disk."""
        broker, wanted = self._broker, fetched.wanted
        partition = None
        try:
            if self._readable is not None:
                self._readable.check(fetched.topic_id if self._session.is_by_id else fetched.topic)
            if self._session.is_by_id:
                partition = broker.partition_by_id(TopicId(fetched.topic_id), wanted.partition)
            else:
                partition = broker.partition(fetched.topic, wanted.partition)
            return self._read_from(partition, fetched)
        except NotCachedError as error:
            self.not_cached.append(error)
            self._session.keep_due(fetched)
            return None
        except InvariantBrokenError as error:
            if partition is not None:
                broker.failures.on_bug(partition, error)
            raise
        except KafkaError as error:
            self.must_answer = True
            code = code_of(error, f"Fetch {fetched.topic or fetched.topic_id}-{wanted.partition}")
            # No records are empty, never null: librdkafka drops the connection over a null.
            row = PartitionData(partition_index=wanted.partition, error_code=code, high_watermark=-1, records=b"")
            if code in WRONG_LEADER:
                leader_id, leader_epoch = leader_of(broker.image, fetched.topic or fetched.topic_id, wanted.partition)
                row.current_leader = LeaderIdAndEpoch(leader_id=leader_id, leader_epoch=leader_epoch)
            return row

    def _read_from(self, partition: Partition, fetched: FetchedPartition) -> PartitionData | None:
        if self._replica_id >= 0:
            return self._read_to_follower(partition, fetched)
        broker, wanted = self._broker, fetched.wanted
        if self._reads_from_followers:
            partition.check_serves(wanted.current_leader_epoch)
        else:
            partition.leader(wanted.current_leader_epoch)
        log = partition.log
        if not self._reads_zstd and log.config.compression_codec == ZSTD:
            raise refusal(
                Code.UNSUPPORTED_COMPRESSION_TYPE,
                f"{partition.topic_partition} has compression.type=zstd, which readers know from Fetch "
                f"{ZSTD_FROM_VERSION} on",
            )
        row = PartitionData(
            partition_index=wanted.partition,
            high_watermark=partition.high_watermark,
            last_stable_offset=partition.last_stable_offset,
            log_start_offset=log.log_start_offset,
            aborted_transactions=[] if self._isolation_level else None,
            records=b"",
        )
        fetched.watch(partition)
        if self._rack and partition.replica is not None:
            preferred = broker.replication.preferred_read_replica(partition.replica, self._rack, wanted.fetch_offset)
            if preferred is not None:
                self.must_answer = True
                row.preferred_read_replica = preferred
                return row
        if wanted.last_fetched_epoch < 0 and wanted.fetch_offset == row.high_watermark:
            return row  # at the end, as most are
        diverging = partition.diverging(wanted.last_fetched_epoch, wanted.fetch_offset)
        if diverging is not None:
            self.told.append((partition, diverging))
            return self._diverged(row, diverging)
        end_offset = row.last_stable_offset if self._isolation_level else row.high_watermark
        return self._read_records(partition, fetched, row, end_offset, to_follower=False)

    def _read_to_follower(self, partition: Partition, fetched: FetchedPartition) -> PartitionData | None:
        """All up to the log end; and what the follower asks for says what it has (rule 3).

        None where the follower asked before this broker leads in the epoch that it names: it is told once the epoch
        has begun here. It knows so, as it was told nothing of the partition in this session yet.
        """
        wanted = fetched.wanted
        is_untold = self._session.session_id and fetched.high_watermark is None
        if is_untold and partition.role.may_lead_soon(wanted.current_leader_epoch):
            fetched.watch(partition)
            return None
        epoch, last_epoch = wanted.current_leader_epoch, wanted.last_fetched_epoch
        fetch = FollowerFetch(
            BrokerId(self._replica_id),
            Offset(wanted.fetch_offset),
            None if epoch < 0 else LeaderEpoch(epoch),
            None if last_epoch < 0 else LeaderEpoch(last_epoch),
            None if self._replica_epoch < 0 else BrokerEpoch(self._replica_epoch),
            self._now_ms(),
        )
        diverging = partition.on_fetched(fetch, wanted.log_start_offset)
        log = partition.log
        row = PartitionData(
            partition_index=wanted.partition,
            high_watermark=partition.high_watermark,
            last_stable_offset=partition.last_stable_offset,
            log_start_offset=log.log_start_offset,
            records=b"",
        )
        fetched.watch(partition)
        if diverging is not None:
            return self._diverged(row, diverging)
        if fetched.log_start_offset is not None and row.log_start_offset != fetched.log_start_offset:
            self.must_answer = True  # whoever deletes records waits until followers have deleted them
        if wanted.fetch_offset == log.log_end_offset:
            return row
        room_bytes = self._room_bytes(partition, fetched, fetch.follower)
        if room_bytes <= 0:
            fetched.hold_back(self._throttle)
            return row
        return self._read_records(
            partition, fetched, row, log.log_end_offset, to_follower=True, size_bytes_max=room_bytes
        )

    def _room_bytes(self, partition: Partition, fetched: FetchedPartition, follower: BrokerId) -> int:
        """How much a follower may be sent. Who is in sync is not held back, but what it is sent counts (KIP-73)."""
        throttle = self._throttle
        fetched.is_throttled = throttle.covers(partition.topic_partition)
        if not fetched.is_throttled or follower in partition.leader().isr:
            return self._size_bytes_max
        return throttle.room_bytes - self._session.throttled_bytes

    def _diverged(self, row: PartitionData, diverging: tuple[int, int]) -> PartitionData:
        self.must_answer = True
        row.diverging_epoch = EpochEndOffset(epoch=diverging[0], end_offset=diverging[1])
        return row

    def _read_records(
        self,
        partition: Partition,
        fetched: FetchedPartition,
        row: PartitionData,
        end_offset: int,
        *,
        to_follower: bool,
        size_bytes_max: int = INT32_MAX,
    ) -> PartitionData | None:
        wanted, found_bytes = fetched.wanted, self._session.found_bytes
        left = min(self._size_bytes_max - found_bytes, size_bytes_max)
        may_wait = self._look_ups > LOOK_UPS_MAX
        records = partition.read(
            wanted.fetch_offset,
            sent_leader_epoch=-1,
            size_bytes_max=min(wanted.partition_max_bytes, left),
            isolation_level=self._isolation_level,
            at_least_one=found_bytes == 0,
            may_wait=may_wait,
            to_follower=to_follower,
        )
        if records is not None and (size_bytes := len(records)):
            row.records = records
            if self._isolation_level and not to_follower:
                row.aborted_transactions = [
                    AbortedTransaction(producer_id, first_offset)
                    for producer_id, first_offset in partition.aborted_transactions(
                        wanted.fetch_offset, records, may_wait=may_wait
                    )
                ]
            is_enough = found_bytes + size_bytes >= self._min_bytes
            if not is_enough and wanted.fetch_offset < partition.log.segments.base_offsets[-1]:
                self.must_answer = True  # there is more than one segment can give
        elif wanted.fetch_offset < end_offset:
            self.must_answer = True  # no more fits
            self._session.keep_due(fetched)  # the first in turn at the next fetch
            return row if fetched.is_update(row) else None
        return row

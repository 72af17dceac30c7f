"""Real partitions on a disk in memory, behind the handler of Fetch, and a reader that keeps a fetch session with it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

from support.memory_disk import MemoryDisk
from tidelog.base.errors import Code, refusal
from tidelog.base.ids import BrokerId, LeaderEpoch, PartitionEpoch, PartitionIndex, TopicId, TopicPartition
from tidelog.io.executor import InlineExecutor
from tidelog.io.rng import SystemRng
from tidelog.log import Log, LogConfig, LogSlice
from tidelog.metadata import MetadataImage, PartitionImage
from tidelog.records import BatchBuilder, read_records, split_whole_batches
from tidelog.replica import LeaderReplica, LogBounds, ReplicationSettings
from tidelog.server.api.dispatch import RequestContext
from tidelog.server.api.fetch_sessions import FetchSessions
from tidelog.server.api.handlers import api_01_fetch
from tidelog.server.replication.partition import Partition
from tidelog.server.transport.listener_roles import BROKER
from tidelog.wire import ApiKey, RequestHeader
from tidelog.wire.messages.api_01_fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    ForgottenTopic,
    PartitionData,
)
from tidelog.wire.primitives import ZERO_UUID

THIS_BROKER = BrokerId(1)
NOW_MS = 1_700_000_000_000
TOPIC = "flights"


class ToyBroker:
    """The partitions of one topic, as far as a fetch asks for them. It counts what is looked up."""

    def __init__(self, partitions: int) -> None:
        self.disk = MemoryDisk()
        self.image = MetadataImage.empty()
        self.replication = None  # nothing is throttled
        self.epochs = [0] * partitions
        self.look_ups = 0
        self.partitions: dict[int, Partition] = {}
        for index in range(partitions):
            where = TopicPartition(TOPIC, PartitionIndex(index))
            log = Log.open(
                self.disk, f"logs/{where}", where, LogConfig(), topic_id=None, clean_shutdown=True, now_ms=NOW_MS
            )
            self.partitions[index] = Partition(where, TopicId(ZERO_UUID), log)
            self.lead(index)

    def partition(self, topic: str, index: int) -> Partition:
        self.look_ups += 1
        found = self.partitions.get(index) if topic == TOPIC else None
        if found is None:
            raise refusal(Code.UNKNOWN_TOPIC_OR_PARTITION, "it is not there")
        return found

    def partition_by_id(self, topic_id: TopicId, index: int) -> Partition:
        return self.partition(TOPIC, index)

    def lead(self, index: int) -> None:
        partition = self.partitions[index]
        log = partition.log
        self.epochs[index] += 1
        epoch = LeaderEpoch(self.epochs[index])
        partition.stop(epoch)
        log.assign_leader_epoch(epoch)
        state = PartitionImage((THIS_BROKER,), (THIS_BROKER,), THIS_BROKER, epoch, PartitionEpoch(int(epoch)))
        bounds = LogBounds(log.log_start_offset, log.log_end_offset, log.log_end_offset)
        partition.lead(
            LeaderReplica(
                partition.topic_partition,
                THIS_BROKER,
                state,
                bounds,
                log.lineage,
                settings=ReplicationSettings(),
                now_ms=0,
            )
        )

    def append(self, index: int, count: int = 1) -> None:
        """Batches of one record each, whose value is its offset."""
        partition = self.partitions[index]
        for _ in range(count):
            builder = BatchBuilder()
            builder.append(NOW_MS, None, str(partition.log.log_end_offset).encode())
            partition.append(memoryview(bytearray(builder.build())), acks_all=True, now_ms=NOW_MS)

    def delete_before(self, index: int, offset: int) -> None:
        partition = self.partitions[index]
        partition.log.advance_log_start_offset(offset)  # type: ignore[arg-type]
        partition.on_log_start_moved()


class ToyNode:
    """What the handler of Fetch asks of a node.

    Attributes:
        is_long: whether every request counts as one that lists much.
    """

    def __init__(self, partitions: int, *, slots: int = 10, size_bytes_max: int = 1 << 20) -> None:
        self.broker = ToyBroker(partitions)
        self.fetch_sessions = FetchSessions(slots, 1_000, SystemRng())
        self.clock = SimpleNamespace(now_ms=lambda: 0)
        self.config = SimpleNamespace(fetch_size_bytes_max=size_bytes_max)
        self.executor = InlineExecutor()
        self.is_long = False

    def fetch(self, request: FetchRequest, *, version: int = 12) -> Any:
        header = RequestHeader(ApiKey.FETCH, version, 1, None, None)
        context = RequestContext(header, None, BROKER, is_long=self.is_long)  # type: ignore[arg-type]
        return api_01_fetch.handle(self, request, context)  # type: ignore[arg-type]

    def fetch_now(self, request: FetchRequest, *, version: int = 12) -> FetchResponse:
        response = self.fetch(request, version=version)
        if self.is_long:
            return asyncio.run(response)  # type: ignore[no-any-return]
        assert not isinstance(response, Awaitable)
        return response  # type: ignore[no-any-return]


@dataclass
class View:
    """What a reader was told of one partition last."""

    error_code: int = -1
    high_watermark: int = -1
    log_start_offset: int = -1
    position: int = 0
    sent_position: int | None = None  # as the session has it; None if it does not know the partition


@dataclass
class SessionReader:
    """A consumer that keeps a session, as Java's does: whatever is in doubt, it starts anew."""

    session_id: int = 0
    epoch: int = 0
    followed: dict[int, View] = field(default_factory=dict)
    in_session: set[int] = field(default_factory=set)
    read: dict[int, list[int]] = field(default_factory=dict)

    def request(self, *, max_bytes: int = 1 << 20, wait_ms: int = 0, min_bytes: int = 1) -> FetchRequest:
        changed = [i for i, view in self.followed.items() if self.epoch == 0 or view.sent_position != view.position]
        gone = sorted(self.in_session - self.followed.keys()) if self.epoch else []
        for index in changed:
            self.followed[index].sent_position = self.followed[index].position
        self.in_session = set(self.followed)
        wanted = [
            FetchPartition(partition=i, fetch_offset=self.followed[i].position, partition_max_bytes=1 << 20)
            for i in changed
        ]
        return FetchRequest(
            max_wait_ms=wait_ms,
            min_bytes=min_bytes,
            max_bytes=max_bytes,
            session_id=self.session_id,
            session_epoch=self.epoch,
            topics=[FetchTopic(topic=TOPIC, partitions=wanted)] if wanted else [],
            forgotten_topics_data=[ForgottenTopic(topic=TOPIC, partitions=gone)] if gone else [],
        )

    def on_answer(self, response: FetchResponse) -> bool:
        """Returns whether it was an answer, rather than a refusal of the session."""
        if response.error_code:
            self.start_anew()
            if response.error_code == Code.FETCH_SESSION_ID_NOT_FOUND:
                self.session_id = 0
            return False
        is_full = self.epoch == 0
        rows = {row.partition_index: row for topic in response.responses for row in topic.partitions}
        assert not is_full or rows.keys() == self.followed.keys()  # Java drops an answer that leaves one out
        for index, row in rows.items():
            self._take(index, row)
        if not response.session_id:
            self.session_id = self.epoch = 0
        else:
            assert is_full or response.session_id == self.session_id
            self.session_id, self.epoch = response.session_id, self.epoch + 1
        return True

    def on_lost(self) -> None:
        """The connection broke: nobody knows what the session knows."""
        self.start_anew()

    def start_anew(self) -> None:
        self.epoch = 0

    def _take(self, index: int, row: PartitionData) -> None:
        view = self.followed[index]
        view.error_code = row.error_code
        if row.error_code:
            return
        view.high_watermark, view.log_start_offset = row.high_watermark, row.log_start_offset
        records = row.records
        data = records.read_all() if isinstance(records, LogSlice) else b""
        for position, header in split_whole_batches(memoryview(data)):
            for record in read_records(memoryview(data), position, header):
                if record.offset >= view.position:
                    assert record.offset == view.position, "a record was skipped"
                    self.read.setdefault(index, []).append(record.offset)
                    view.position = record.offset + 1

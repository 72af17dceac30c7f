"""A cluster of one broker in memory, with real leader epochs: elections, truncation and recreation at a test's word."""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from support.scripted_broker import HANG_UP, SILENT, ScriptedBroker
from tidelog.base.errors import Code
from tidelog.base.ids import LeaderEpoch, Offset
from tidelog.records.batch import BatchBuilder, check_crc, read_header, read_records
from tidelog.records.lineage import LeaderEpochLineage
from tidelog.wire import ApiKey
from tidelog.wire.messages import api_00_produce as produce
from tidelog.wire.messages import api_01_fetch as fetch
from tidelog.wire.messages import api_02_list_offsets as list_offsets
from tidelog.wire.messages import api_03_metadata as metadata
from tidelog.wire.messages import api_22_init_producer_id as init_producer_id
from tidelog.wire.messages import api_23_offset_for_leader_epoch as epoch_end

BROKER_ID = 1


@dataclass(slots=True)
class Stored:
    """One record of a model log."""

    leader_epoch: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()


@dataclass(slots=True)
class ModelPartition:
    """A log as a list; its offsets start at `log_start_offset`."""

    leader_epoch: int = 0
    has_leader: bool = True
    log_start_offset: int = 0
    records: list[Stored] = field(default_factory=list)
    lineage: LeaderEpochLineage = field(default_factory=lambda: LeaderEpochLineage([(LeaderEpoch(0), Offset(0))]))
    sequences: dict[int, tuple[int, int, int]] = field(default_factory=dict)  # last batch: first, next, base offset
    batch_records_max: int = 10

    @property
    def end_offset(self) -> int:
        return self.log_start_offset + len(self.records)

    def append(self, *values: bytes, timestamp: int = 1_000) -> None:
        """Write records in the leader's epoch."""
        self.records += [Stored(self.leader_epoch, timestamp, None, value) for value in values]

    def elect(self) -> None:
        """Another leadership begins at the end of the log."""
        self.leader_epoch += 1
        self.lineage.assign(LeaderEpoch(self.leader_epoch), Offset(self.end_offset))

    def truncate(self, end_offset: int) -> None:
        """Lose what is at and above an offset; an election must follow, as it would."""
        del self.records[end_offset - self.log_start_offset :]
        self.lineage.truncate_from_end(Offset(end_offset))

    def delete_before(self, offset: int) -> None:
        """What retention does."""
        del self.records[: offset - self.log_start_offset]
        self.log_start_offset = offset

    def check_epoch(self, sent: int) -> Code:
        """Fence whoever missed an election, or knows of a later one."""
        if sent < 0 or sent == self.leader_epoch:
            return Code.NONE
        return Code.FENCED_LEADER_EPOCH if sent < self.leader_epoch else Code.UNKNOWN_LEADER_EPOCH

    def batches_from(self, offset: int, size_bytes_max: int) -> bytes:
        """Whole batches, from the one that holds `offset`; at least one."""
        start = offset - offset % self.batch_records_max
        out = b""
        while start < self.end_offset:
            builder = BatchBuilder()
            first = max(start, self.log_start_offset)
            epoch = self.records[first - self.log_start_offset].leader_epoch
            at = first
            while at < min(start + self.batch_records_max, self.end_offset):
                record = self.records[at - self.log_start_offset]
                if record.leader_epoch != epoch:
                    break
                builder.append(record.timestamp, record.key, record.value, record.headers)
                at += 1
            if at > offset:
                batch = builder.build(first, epoch)
                if out and len(out) + len(batch) > size_bytes_max:
                    break
                out += batch
            start = at
        return out


@dataclass(slots=True)
class ModelTopic:
    topic_id: UUID
    partitions: list[ModelPartition]


class ModelCluster(ScriptedBroker):
    """A broker that holds topics in memory.

    Attributes:
        topics: by name.
        faults: what befalls the next Produce requests, one each: None for nothing, a Code (refused before anything is
            written), "lose request", or "lose answer".
        auto_create: whether asking for a topic makes it.
        has_topic_ids: whether Metadata tells them.
    """

    def __init__(self) -> None:
        super().__init__()
        self.topics: dict[str, ModelTopic] = {}
        self.faults: deque[Code | str | None] = deque()
        self.has_topic_ids = True
        self.auto_create = False
        self._ids = 0
        self._producer_ids = 1_000
        self._appended = asyncio.Event()
        self.on(ApiKey.METADATA, self._metadata)
        self.on(ApiKey.PRODUCE, self._produce)
        self.on(ApiKey.FETCH, self._fetch)
        self.on(ApiKey.LIST_OFFSETS, self._list_offsets)
        self.on(ApiKey.OFFSET_FOR_LEADER_EPOCH, self._epoch_end)
        self.on(ApiKey.INIT_PRODUCER_ID, self._init_producer_id)

    def create(self, name: str, partitions: int = 1) -> ModelPartition:
        """Make a topic, or make it anew. Returns its first partition."""
        self._ids += 1
        self.topics[name] = ModelTopic(UUID(int=self._ids), [ModelPartition() for _ in range(partitions)])
        return self.topics[name].partitions[0]

    def tell(self) -> None:
        """Wake fetches that wait: something changed."""
        self._appended.set()
        self._appended = asyncio.Event()

    def _metadata(self, request: metadata.MetadataRequest, version: int) -> metadata.MetadataResponse:
        names = list(self.topics) if request.topics is None else [topic.name for topic in request.topics]
        rows = []
        for name in names:
            assert name is not None
            if name not in self.topics and self.auto_create and request.allow_auto_topic_creation:
                self.create(name)
            topic = self.topics.get(name)
            if topic is None:
                rows.append(metadata.MetadataResponseTopic(name=name, error_code=Code.UNKNOWN_TOPIC_OR_PARTITION))
                continue
            parts = [
                metadata.MetadataResponsePartition(
                    error_code=0 if found.has_leader else Code.LEADER_NOT_AVAILABLE,
                    partition_index=index,
                    leader_id=BROKER_ID if found.has_leader else -1,
                    leader_epoch=found.leader_epoch,
                    replica_nodes=[BROKER_ID],
                    isr_nodes=[BROKER_ID],
                )
                for index, found in enumerate(topic.partitions)
            ]
            topic_id = topic.topic_id if self.has_topic_ids else UUID(int=0)
            rows.append(metadata.MetadataResponseTopic(name=name, topic_id=topic_id, partitions=parts))
        broker = metadata.MetadataResponseBroker(BROKER_ID, "127.0.0.1", self.port)
        return metadata.MetadataResponse(brokers=[broker], cluster_id="model", controller_id=BROKER_ID, topics=rows)

    def _find(self, name: str, topic_id: UUID, index: int) -> tuple[ModelPartition | None, Code]:
        if topic_id.int:
            found = [topic for topic in self.topics.values() if topic.topic_id == topic_id]
            if not found:
                return None, Code.UNKNOWN_TOPIC_ID
            return found[0].partitions[index], Code.NONE
        if name not in self.topics:
            return None, Code.UNKNOWN_TOPIC_OR_PARTITION
        return self.topics[name].partitions[index], Code.NONE

    def _produce(self, request: produce.ProduceRequest, version: int) -> Any:
        fault = self.faults.popleft() if self.faults else None
        if fault == "lose request":
            return HANG_UP
        topics = []
        for topic in request.topic_data:
            rows = []
            for data in topic.partition_data:
                partition, code = self._find(topic.name, topic.topic_id, data.index)
                if isinstance(fault, Code):
                    rows.append(produce.PartitionProduceResponse(data.index, fault))
                elif partition is None:
                    rows.append(produce.PartitionProduceResponse(data.index, code))
                else:
                    rows.append(_append(partition, data))
            answer = produce.TopicProduceResponse(name=topic.name, topic_id=topic.topic_id, partition_responses=rows)
            topics.append(answer)
        self.tell()
        if fault == "lose answer" or not request.acks:
            return HANG_UP if fault else SILENT
        return produce.ProduceResponse(responses=topics)

    async def _fetch(self, request: fetch.FetchRequest, version: int) -> fetch.FetchResponse:
        deadline = asyncio.get_running_loop().time() + request.max_wait_ms / 1000
        while True:
            answer, is_worth_it = self._read(request)
            left = deadline - asyncio.get_running_loop().time()
            if is_worth_it or left <= 0:
                return answer
            try:
                async with asyncio.timeout(left):
                    await self._appended.wait()
            except TimeoutError:
                return answer

    def _read(self, request: fetch.FetchRequest) -> tuple[fetch.FetchResponse, bool]:
        topics = []
        is_worth_it = False
        for topic in request.topics:
            rows = []
            for asked in topic.partitions:
                row = self._read_partition(topic.topic, topic.topic_id, asked)
                is_worth_it = is_worth_it or bool(row.error_code) or bool(row.records)
                rows.append(row)
            topics.append(fetch.FetchableTopicResponse(topic=topic.topic, topic_id=topic.topic_id, partitions=rows))
        return fetch.FetchResponse(responses=topics), is_worth_it

    def _read_partition(self, name: str, topic_id: UUID, asked: fetch.FetchPartition) -> fetch.PartitionData:
        partition, code = self._find(name, topic_id, asked.partition)
        if partition is not None:
            code = partition.check_epoch(asked.current_leader_epoch)
            if code is Code.NONE and not partition.log_start_offset <= asked.fetch_offset <= partition.end_offset:
                code = Code.OFFSET_OUT_OF_RANGE
        if partition is None or code is not Code.NONE:
            return fetch.PartitionData(asked.partition, code, records=b"")
        return fetch.PartitionData(
            asked.partition,
            high_watermark=partition.end_offset,
            last_stable_offset=partition.end_offset,
            log_start_offset=partition.log_start_offset,
            records=partition.batches_from(asked.fetch_offset, asked.partition_max_bytes),
        )

    def _list_offsets(self, request: list_offsets.ListOffsetsRequest, version: int) -> list_offsets.ListOffsetsResponse:
        topics = []
        for topic in request.topics:
            rows = []
            for asked in topic.partitions:
                partition, code = self._find(topic.name, UUID(int=0), asked.partition_index)
                if partition is not None:
                    code = partition.check_epoch(asked.current_leader_epoch)
                row = list_offsets.ListOffsetsPartitionResponse(asked.partition_index, code)
                if partition is not None and code is Code.NONE:
                    row.offset, row.timestamp, row.leader_epoch = _look_up(partition, asked.timestamp)
                rows.append(row)
            topics.append(list_offsets.ListOffsetsTopicResponse(topic.name, rows))
        return list_offsets.ListOffsetsResponse(topics=topics)

    def _epoch_end(
        self, request: epoch_end.OffsetForLeaderEpochRequest, version: int
    ) -> epoch_end.OffsetForLeaderEpochResponse:
        topics = []
        for topic in request.topics:
            rows = []
            for asked in topic.partitions:
                partition, code = self._find(topic.topic, UUID(int=0), asked.partition)
                if partition is not None:
                    code = partition.check_epoch(asked.current_leader_epoch)
                row = epoch_end.EpochEndOffset(partition=asked.partition, error_code=code)
                if partition is not None and code is Code.NONE:
                    end = partition.lineage.end_offset_for(
                        LeaderEpoch(asked.leader_epoch), Offset(partition.end_offset)
                    )
                    row.leader_epoch, row.end_offset = end or (-1, -1)
                rows.append(row)
            topics.append(epoch_end.OffsetForLeaderTopicResult(topic.topic, rows))
        return epoch_end.OffsetForLeaderEpochResponse(topics=topics)

    def _init_producer_id(
        self, request: init_producer_id.InitProducerIdRequest, version: int
    ) -> init_producer_id.InitProducerIdResponse:
        self._producer_ids += 1
        return init_producer_id.InitProducerIdResponse(producer_id=self._producer_ids, producer_epoch=0)


def _append(partition: ModelPartition, data: produce.PartitionProduceData) -> produce.PartitionProduceResponse:
    assert isinstance(data.records, memoryview)
    header = read_header(data.records)
    check_crc(data.records, 0, header)
    assert header.size_bytes == len(data.records), "a Produce request carries one batch a partition"
    base_offset = partition.end_offset
    if header.producer_id >= 0:
        last = partition.sequences.get(header.producer_id)
        if last is not None and header.base_sequence == last[0]:
            return produce.PartitionProduceResponse(data.index, base_offset=last[2])
        if header.base_sequence != (0 if last is None else last[1]):
            return produce.PartitionProduceResponse(data.index, Code.OUT_OF_ORDER_SEQUENCE_NUMBER)
        next_sequence = header.base_sequence + header.record_count
        partition.sequences[header.producer_id] = (header.base_sequence, next_sequence, base_offset)
    partition.records += [
        Stored(partition.leader_epoch, record.timestamp, record.key, record.value, record.headers)
        for record in read_records(data.records, 0, header)
    ]
    return produce.PartitionProduceResponse(data.index, base_offset=base_offset)


def _look_up(partition: ModelPartition, timestamp: int) -> tuple[int, int, int]:
    """(offset, timestamp, leader epoch) as ListOffsets answers them."""
    if timestamp == list_offsets.LATEST_TIMESTAMP:
        return partition.end_offset, -1, partition.leader_epoch
    start = partition.log_start_offset
    if timestamp == list_offsets.EARLIEST_TIMESTAMP:
        epoch = partition.records[0].leader_epoch if partition.records else partition.leader_epoch
        return start, -1, epoch
    for index, record in enumerate(partition.records):
        if record.timestamp >= timestamp:
            return start + index, record.timestamp, record.leader_epoch
    return -1, -1, -1

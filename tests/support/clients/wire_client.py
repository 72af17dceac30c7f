"""A client that says exactly what a test tells it to: one socket, our own codecs, no retries, no checks."""

from __future__ import annotations

import socket
import struct
from types import TracebackType
from typing import Any, TypeVar

from tidelog.base.errors import Code
from tidelog.base.ports import Buffer
from tidelog.records import BatchBuilder, Record, read_records, split_whole_batches
from tidelog.wire import ApiKey, api, decode, decode_response_header, encode_request
from tidelog.wire.messages.api_00_produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from tidelog.wire.messages.api_01_fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic, PartitionData
from tidelog.wire.messages.api_02_list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from tidelog.wire.messages.api_03_metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseTopic,
)
from tidelog.wire.messages.api_19_create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from tidelog.wire.messages.api_22_init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from tidelog.wire.messages.api_23_offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)

R = TypeVar("R")

TIMEOUT_SECONDS = 60.0
PRODUCE_VERSION = 9
FETCH_VERSION = 12


class WireClient:
    """One connection to a node. Use as a context; the methods ask and return the answer as it came.

    Args:
        port: on this machine.
        timeout_seconds: of each send and receive.
        host: another one, where the port is.
    """

    def __init__(self, port: int, *, timeout_seconds: float = TIMEOUT_SECONDS, host: str = "127.0.0.1") -> None:
        self.stream = socket.create_connection((host, port), timeout=timeout_seconds)
        self.stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._correlation_id = 0

    def __enter__(self) -> WireClient:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        self.stream.close()

    def ask(self, key: ApiKey, version: int, request: object, response: type[R]) -> R:
        """Send a request and return the answer to it.

        Raises:
            ConnectionError: the node hung up.
        """
        self.send(key, version, request)
        return self.receive(key, version, response)

    def send(self, key: ApiKey, version: int, request: object, *, size_bytes_max: int | None = None) -> None:
        """Send a request, or no more than its first `size_bytes_max` bytes; `receive` is for its answer."""
        self._correlation_id += 1
        pieces: list[Any] = encode_request(key, version, self._correlation_id, "tidelog-test", request)
        self.stream.sendall(b"".join(pieces)[:size_bytes_max])

    def receive(self, key: ApiKey, version: int, response: type[R]) -> R:
        """The next answer, taken for the answer to a request of this API and version."""
        assert api(key).response is response
        return decode(response, self.receive_body(key, version), version, 0)

    def receive_body(self, key: ApiKey, version: int) -> Buffer:
        """The bytes of the next answer behind its header."""
        (size,) = struct.unpack(">i", receive_exactly(self.stream, 4))
        frame = receive_exactly(self.stream, size)
        _, _, position = decode_response_header(frame, key, version)
        return frame[position:]

    # Requests about one partition, which is what most tests are about.

    def create_topic(
        self, topic: str, *, partitions: int = 1, replication_factor: int = 1, configs: dict[str, str] | None = None
    ) -> CreatableTopicResult:
        request = CreateTopicsRequest(
            topics=[
                CreatableTopic(
                    name=topic,
                    num_partitions=partitions,
                    replication_factor=replication_factor,
                    configs=[CreatableTopicConfig(name=key, value=value) for key, value in (configs or {}).items()],
                )
            ],
            timeout_ms=10_000,
        )
        return self.ask(ApiKey.CREATE_TOPICS, 7, request, CreateTopicsResponse).topics[0]

    def describe_topic(self, topic: str, *, create: bool = False) -> MetadataResponseTopic:
        request = MetadataRequest(topics=[MetadataRequestTopic(name=topic)], allow_auto_topic_creation=create)
        return self.ask(ApiKey.METADATA, 12, request, MetadataResponse).topics[0]

    def produce(
        self,
        topic: str,
        batches: Buffer | None,
        *,
        partition: int = 0,
        acks: int = 1,
        version: int = PRODUCE_VERSION,
        transactional_id: str | None = None,
    ) -> PartitionProduceResponse:
        request = ProduceRequest(
            transactional_id=transactional_id,
            acks=acks,
            timeout_ms=10_000,
            topic_data=[
                TopicProduceData(name=topic, partition_data=[PartitionProduceData(index=partition, records=batches)])
            ],
        )
        answer = self.ask(ApiKey.PRODUCE, version, request, ProduceResponse)
        return answer.responses[0].partition_responses[0]

    def fetch(
        self,
        topic: str,
        offset: int,
        *,
        partition: int = 0,
        leader_epoch: int = -1,
        last_fetched_epoch: int = -1,
        wait_ms: int = 0,
        size_bytes_max: int = 50 * 1024 * 1024,
        version: int = FETCH_VERSION,
    ) -> PartitionData:
        request = FetchRequest(
            max_wait_ms=wait_ms,
            min_bytes=1,
            max_bytes=size_bytes_max,
            topics=[
                FetchTopic(
                    topic=topic,
                    partitions=[
                        FetchPartition(
                            partition=partition,
                            current_leader_epoch=leader_epoch,
                            fetch_offset=offset,
                            last_fetched_epoch=last_fetched_epoch,
                            partition_max_bytes=size_bytes_max,
                        )
                    ],
                )
            ],
        )
        return self.ask(ApiKey.FETCH, version, request, FetchResponse).responses[0].partitions[0]

    def list_offset(
        self, topic: str, timestamp: int, *, partition: int = 0, leader_epoch: int = -1, version: int = 7
    ) -> ListOffsetsPartitionResponse:
        asked = ListOffsetsPartition(partition_index=partition, current_leader_epoch=leader_epoch, timestamp=timestamp)
        request = ListOffsetsRequest(topics=[ListOffsetsTopic(name=topic, partitions=[asked])])
        return self.ask(ApiKey.LIST_OFFSETS, version, request, ListOffsetsResponse).topics[0].partitions[0]

    def end_of_epoch(
        self, topic: str, leader_epoch: int, *, partition: int = 0, current_leader_epoch: int = -1
    ) -> EpochEndOffset:
        asked = OffsetForLeaderPartition(
            partition=partition, current_leader_epoch=current_leader_epoch, leader_epoch=leader_epoch
        )
        request = OffsetForLeaderEpochRequest(
            replica_id=-1, topics=[OffsetForLeaderTopic(topic=topic, partitions=[asked])]
        )
        answer = self.ask(ApiKey.OFFSET_FOR_LEADER_EPOCH, 4, request, OffsetForLeaderEpochResponse)
        return answer.topics[0].partitions[0]

    def new_producer_id(self) -> tuple[int, int]:
        """(producer id, producer epoch) for an idempotent producer."""
        answer = self.ask(ApiKey.INIT_PRODUCER_ID, 4, InitProducerIdRequest(), InitProducerIdResponse)
        assert answer.error_code == 0, Code(answer.error_code).name
        return answer.producer_id, answer.producer_epoch

    # What stands in the log.

    def log_end_offset(self, topic: str, *, partition: int = 0) -> int:
        """The high watermark, which is the log end where a replica is alone."""
        row = self.list_offset(topic, -1, partition=partition)
        assert row.error_code == 0, Code(row.error_code).name
        return row.offset

    def read_all(self, topic: str, *, partition: int = 0, start: int = 0) -> list[Record]:
        """Every record from `start` to the log end."""
        found: list[Record] = []
        offset = start
        while True:
            row = self.fetch(topic, offset, partition=partition)
            assert row.error_code == 0, Code(row.error_code).name
            if offset >= row.high_watermark:
                return found
            data: Any = row.records
            batches = split_whole_batches(data)
            assert batches, f"nothing came from offset {offset}, below the high watermark {row.high_watermark}"
            for position, header in batches:
                found += [record for record in read_records(data, position, header) if record.offset >= offset]
                offset = header.next_offset


def receive_exactly(stream: socket.socket, size: int) -> memoryview:
    """Raises ConnectionError when the node hangs up before."""
    data = memoryview(bytearray(size))
    filled = 0
    while filled < size:
        count = stream.recv_into(data[filled:])
        if not count:
            raise ConnectionError(f"the node hung up after {filled} of {size} bytes")
        filled += count
    return data


def batch_of(
    *values: bytes | None,
    compression: str = "none",
    timestamp_ms: int = 1_700_000_000_000,
    producer: tuple[int, int] = (-1, -1),
    base_sequence: int = -1,
    transactional: bool = False,
    control: bool = False,
) -> bytes:
    """A well-formed batch of these values, without keys; record i has the timestamp `timestamp_ms` + i."""
    builder = BatchBuilder(
        compression=compression,
        producer_id=producer[0],
        producer_epoch=producer[1],
        base_sequence=base_sequence,
        transactional=transactional,
        control=control,
    )
    for index, value in enumerate(values):
        builder.append(timestamp_ms + index, None, value)
    return builder.build()

"""What encoding refuses, what it leaves out, and how it cuts pieces."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest

from tidelog.base.errors import Code, KafkaError
from tidelog.wire import decode, encode, encode_pieces
from tidelog.wire.messages.api_00_produce import PartitionProduceData, ProduceRequest, TopicProduceData
from tidelog.wire.messages.api_01_fetch import (
    HIGH_WATERMARK_UNSENT,
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
    ReplicaState,
)
from tidelog.wire.messages.api_02_list_offsets import ListOffsetsRequest
from tidelog.wire.messages.api_03_metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from tidelog.wire.messages.api_10_find_coordinator import FindCoordinatorResponse


class StillOnDisk:
    """What a slice of a log looks like to the wire: a length, and no bytes yet."""

    def __init__(self, size_bytes: int) -> None:
        self.size_bytes = size_bytes

    def __len__(self) -> int:
        return self.size_bytes


def fetch_response(*records: Any) -> FetchResponse:
    partitions = [PartitionData(index, records=held) for index, held in enumerate(records)]
    return FetchResponse(responses=[FetchableTopicResponse(topic="t", partitions=partitions)])


def fetch_request(**fields: Any) -> FetchRequest:
    partition = FetchPartition(partition=0, fetch_offset=7, partition_max_bytes=100, **fields)
    return FetchRequest(max_wait_ms=1, min_bytes=1, topics=[FetchTopic(topic="t", partitions=[partition])])


def test_records_become_pieces_of_their_own_as_they_are() -> None:
    on_disk, in_memory = StillOnDisk(1 << 30), memoryview(bytearray(b"batch"))
    pieces = encode_pieces(fetch_response(on_disk, None, b"", in_memory), 12)
    assert len(pieces) == 5
    assert pieces[1] is on_disk
    assert pieces[3] is in_memory
    heads = [piece for piece in pieces if isinstance(piece, bytes)]
    assert len(heads) == 3
    assert heads[0].endswith(b"\x81\x80\x80\x80\4")  # the length on disk, plus one


def test_bytes_that_are_still_on_disk_cannot_be_joined() -> None:
    with pytest.raises(TypeError):
        encode(fetch_response(StillOnDisk(10)), 12)


def test_tagged_fields_that_hold_their_default_are_left_out() -> None:
    plain = encode(fetch_request(), 18)
    assert len(plain) == len(encode(fetch_request(), 16))
    known = encode(fetch_request(high_watermark=-1), 18)
    assert len(known) == len(plain) + 2 + 8
    found = decode(FetchRequest, plain, 18).topics[0].partitions[0]
    assert found.high_watermark == HIGH_WATERMARK_UNSENT == 2**63 - 1


def test_tagged_fields_are_written_in_the_order_of_their_tags() -> None:
    directory = UUID(int=1)
    raw = encode(fetch_request(high_watermark=5, replica_directory_id=directory), 18)
    assert b"\2" + b"\0\x10" + directory.bytes + b"\1\x08" + (5).to_bytes(8) in raw


def test_a_field_that_an_old_version_lacks_may_not_be_dropped_silently() -> None:
    request = fetch_request()
    request.replica_state = ReplicaState(1, 2)
    with pytest.raises(KafkaError, match="FetchRequest v14 cannot carry replica_state") as caught:
        encode(request, 14)
    assert caught.value.code is Code.UNSUPPORTED_VERSION
    assert decode(FetchRequest, encode(request, 15), 15).replica_state == ReplicaState(1, 2)


def test_an_ignorable_field_is_dropped() -> None:
    request = fetch_request(current_leader_epoch=5)
    assert encode(request, 8) == encode(fetch_request(), 8)
    assert encode(request, 9) != encode(fetch_request(), 9)


@pytest.mark.parametrize(
    ("message", "version", "expected"),
    [
        pytest.param(
            ProduceRequest(acks=1 << 20, timeout_ms=1, topic_data=[]),
            12,
            "ProduceRequest v12 cannot be encoded: acks, timeout_ms: ",
            id="too-large-a-number",
        ),
        pytest.param(
            ProduceRequest(acks=1, timeout_ms=1, topic_data=[TopicProduceData(name=None, partition_data=[])]),  # type: ignore[arg-type]
            12,
            r"cannot be encoded: topic_data\[\]\.name: ",
            id="none-for-a-string",
        ),
        pytest.param(
            ListOffsetsRequest(topics=None),  # type: ignore[arg-type]
            6,
            "cannot be encoded: topics: ",
            id="none-for-a-list",
        ),
        pytest.param(MetadataRequest(), 0, "cannot be encoded: topics: ", id="null-before-it-was-allowed"),
        pytest.param(
            MetadataRequest(topics=[MetadataRequestTopic(name="x" * 40_000)]),
            8,
            r"cannot be encoded: topics\[\]\.name: ",
            id="too-long-for-an-old-string",
        ),
        pytest.param(
            MetadataResponse(cluster_id="\ud800"), 9, "cannot be encoded: cluster_id: ", id="half-a-character"
        ),
    ],
)
def test_a_value_that_does_not_fit_is_refused_by_name(message: object, version: int, expected: str) -> None:
    with pytest.raises(ValueError, match=expected):
        encode(message, version)


def test_long_strings_and_lists_take_longer_varints() -> None:
    for size in (126, 127, 16_382, 16_383, 2_097_151):
        answer = FindCoordinatorResponse(error_message="x" * size)  # a string of a request is bounded
        assert decode(FindCoordinatorResponse, encode(answer, 3), 3) == answer
    topics = [TopicProduceData(name="t", partition_data=[PartitionProduceData(index) for index in range(200)])] * 200
    request = ProduceRequest(acks=1, timeout_ms=1, topic_data=topics)
    assert decode(ProduceRequest, encode(request, 9), 9) == request

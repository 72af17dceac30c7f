"""What the kernel takes for a Produce that may repeat another is what the decoder reads in it."""

from __future__ import annotations

import random
from typing import Any
from uuid import UUID

import pytest

from support.fixtures.codec_twins import GuardedMemory
from tidelog.wire import (
    ApiKey,
    ConsistencyState,
    compiled_split_produce,
    decode,
    decode_request_header,
    encode_request,
)
from tidelog.wire.messages.api_00_produce import PartitionProduceData, ProduceRequest, TopicProduceData

pytestmark = pytest.mark.skipif(compiled_split_produce is None, reason="the kernel is not compiled")

TOPIC_ID = UUID(int=7)
SENT_BATCH = bytes(range(200))


def framed(request: ProduceRequest, version: int, state: ConsistencyState | None = None) -> bytes:
    pieces: list[Any] = encode_request(ApiKey.PRODUCE, version, 77, "söme", request, consistency_state=state)
    return b"".join(pieces)[4:]


def request(
    acks: int = 1, *, transactional_id: str | None = None, partitions: int = 1, topics: int = 1
) -> ProduceRequest:
    rows = [PartitionProduceData(index, SENT_BATCH) for index in range(partitions)]
    data = [TopicProduceData(name=f"t{number}", topic_id=TOPIC_ID, partition_data=rows) for number in range(topics)]
    return ProduceRequest(acks=acks, timeout_ms=9, topic_data=data, transactional_id=transactional_id)


def split(raw: bytes) -> tuple[bytes, int, memoryview] | None:
    assert compiled_split_produce is not None
    return compiled_split_produce(memoryview(bytearray(raw)))


@pytest.mark.parametrize("acks", [1, -1])
@pytest.mark.parametrize("version", range(5, 14))
def test_one_batch_is_found(version: int, acks: int) -> None:
    raw = framed(request(acks), version)
    found = split(raw)
    assert found is not None
    same, correlation_id, batch = found
    assert correlation_id == 77
    assert bytes(batch) == SENT_BATCH
    assert len(same) < len(raw) - 4 - len(SENT_BATCH)


@pytest.mark.parametrize("version", range(3, 14))
def test_any_other_request_is_left_to_the_decoder(version: int) -> None:
    others = [request(0), request(2), request(transactional_id=""), request(partitions=2), request(topics=2)]
    others += [request(partitions=0), request(topics=0)]
    for other in others:
        assert split(framed(other, version)) is None
    plain = framed(request(), version)
    assert split(plain + b"\0") is None
    if version >= 9:
        assert split(framed(request(), version, ConsistencyState("c", 1))) is None
    if version < 5:
        assert split(plain) is None


@pytest.mark.parametrize("version", [5, 8, 9, 12, 13])
def test_requests_with_the_same_bytes_say_the_same(version: int) -> None:
    """Damaged at any place: what is still taken says what the decoder reads, and nothing beyond its end is read."""
    assert compiled_split_produce is not None
    rng = random.Random(version)
    raw = framed(request(), version)
    memory = GuardedMemory(len(raw) + 1)
    seen: dict[bytes, Any] = {}
    taken = 0
    for at in range(len(raw)):
        assert compiled_split_produce(memory.view(raw[:at])) is None
        for _ in range(8):
            damaged = bytearray(raw)
            damaged[at] = rng.choice((0, 1, 2, 0x7F, 0x80, 0xFF, rng.randrange(256)))
            found = compiled_split_produce(memory.view(bytes(damaged)))
            if found is None:
                continue
            taken += 1
            same, correlation_id, batch = found
            header, position = decode_request_header(bytes(damaged))
            read = decode(ProduceRequest, bytes(damaged), header.api_version, position)
            assert header.correlation_id == correlation_id
            (topic,) = read.topic_data
            (data,) = topic.partition_data
            assert data.records is not None
            assert bytes(data.records) == bytes(batch)
            said = header._replace(correlation_id=0), read.acks, read.timeout_ms, topic.name, topic.topic_id, data.index
            assert read.transactional_id is None
            assert seen.setdefault(same, said) == said
    assert taken > len(SENT_BATCH)

"""Batches that lie: each is refused with a code that says why, nothing of it is stored, and the node serves on."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from uuid import UUID

import pytest

from support.clients.wire_client import WireClient, batch_of
from support.fixtures.doctored import FIELDS, batch_around, bombs, doctored, message_of_format, record
from support.nodes.node import NodeProcess
from tidelog.base.errors import Code
from tidelog.records import BatchBuilder
from tidelog.wire import ApiKey
from tidelog.wire.messages.api_00_produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)

TOPIC = "bad-batches"
SMALL_TOPIC = "bad-batches-small"
MESSAGE_SIZE_BYTES_MAX = 2_000
WHOLE = batch_of(b"one", b"two", b"three")
PACKED = {
    codec: batch_of(*[b"value %d" % i for i in range(50)], compression=codec)
    for codec in ("gzip", "snappy", "lz4", "zstd")
}

CORRUPT = {Code.CORRUPT_MESSAGE}
INVALID = {Code.INVALID_RECORD}
EITHER = CORRUPT | INVALID
OLD_FORMAT = {Code.UNSUPPORTED_FOR_MESSAGE_FORMAT}


def flipped(batch: bytes, position: int, bits: int = 0x40) -> bytes:
    changed = bytearray(batch)
    changed[position] ^= bits
    return bytes(changed)


def cut_inside(batch: bytes, size: int) -> bytes:
    """Fewer records bytes than the codec needs, with a length and a CRC that agree with that."""
    return doctored(batch[:-size], length=len(batch) - 12 - size)


BAD: dict[str, tuple[bytes, set[Code]]] = {
    # The envelope.
    "a flipped bit in a value": (flipped(WHOLE, len(WHOLE) - 3), CORRUPT),
    "a flipped bit in the CRC": (flipped(WHOLE, 18), CORRUPT),
    "a flipped bit in the attributes": (flipped(WHOLE, 22), CORRUPT),
    "magic 0": (doctored(WHOLE, magic=0), OLD_FORMAT),
    "magic 1": (doctored(WHOLE, magic=1), OLD_FORMAT),
    "magic 3": (doctored(WHOLE, magic=3), CORRUPT),
    "magic -1": (doctored(WHOLE, magic=-1), CORRUPT),
    "a message of format 0": (message_of_format(0), OLD_FORMAT),
    "a message of format 1": (message_of_format(1), OLD_FORMAT),
    "cut short": (WHOLE[:-1], INVALID),
    "cut in the header": (WHOLE[:40], INVALID),
    "one byte": (b"\0", INVALID),
    "a byte too many": (WHOLE + b"\0", INVALID),
    "a length of zero": (doctored(WHOLE, length=0), CORRUPT),
    "a negative length": (doctored(WHOLE, length=-1), CORRUPT),
    "a length without its header": (doctored(WHOLE, length=48), CORRUPT),
    "a length one too small": (doctored(WHOLE, length=len(WHOLE) - 13), CORRUPT),
    "a length one too large": (doctored(WHOLE, length=len(WHOLE) - 11), INVALID),
    "a length of two gigabytes": (doctored(WHOLE, length=2**31 - 1), INVALID),
    "nothing but zeros": (bytes(200), EITHER | OLD_FORMAT),
    # The header against the records.
    "one record announced too many": (doctored(WHOLE, count=4, last_offset_delta=3), INVALID),
    "one record announced too few": (doctored(WHOLE, count=2, last_offset_delta=1), INVALID),
    "count and last offset disagree": (doctored(WHOLE, count=3, last_offset_delta=7), INVALID),
    "two billion records announced": (doctored(WHOLE, count=2**31 - 1, last_offset_delta=2**31 - 2), INVALID),
    "a negative count": (doctored(WHOLE, count=-1), INVALID),
    "a negative last offset": (doctored(WHOLE, last_offset_delta=-1), INVALID),
    "a negative count that nobody sent": (flipped(WHOLE, 57, 0x80), CORRUPT),
    "no records": (batch_around(b"", count=0), INVALID),
    "no records, but announced": (batch_around(b"", count=1), INVALID),
    "records, but none announced": (doctored(WHOLE, count=0, last_offset_delta=0), INVALID),
    "a base offset": (doctored(WHOLE, base_offset=5), INVALID),
    # The records themselves.
    "offset deltas in the wrong order": (
        batch_around(record(offset_delta=1) + record(offset_delta=0), count=2),
        INVALID,
    ),
    "offset deltas with a gap": (
        batch_around(record(offset_delta=0) + record(offset_delta=2), count=2, last_offset_delta=2),
        INVALID,
    ),
    "a record longer than the batch": (batch_around(record(length=10_000)), INVALID),
    "a record shorter than its fields": (batch_around(record(length=5)), INVALID),
    "a record of negative length": (batch_around(record(length=-3)), INVALID),
    "a value longer than its record": (batch_around(record(value_length=1_000)), INVALID),
    "a value shorter than its record": (batch_around(record(value_length=1)), INVALID),
    "a value of length -2": (batch_around(record(value_length=-2)), INVALID),
    "a key longer than its record": (batch_around(record(key_length=2**30)), INVALID),
    "headers that are not there": (batch_around(record(header_count=3)), INVALID),
    "a negative header count": (batch_around(record(header_count=-1)), INVALID),
    "a header without a name": (batch_around(record(header_count=1, rest=b"\x01\x00")), INVALID),
    "an endless varint": (batch_around(b"\xff" * 40), INVALID),
    "bytes behind the last record": (batch_around(record() + b"more"), INVALID),
    "random records": (batch_around(bytes(range(7, 207))), INVALID),
    "a timestamp that overflows": (
        batch_around(record(timestamp_delta=2**62), base_timestamp=2**62, max_timestamp=2**62),
        INVALID | {Code.INVALID_TIMESTAMP},
    ),
    # Compression.
    **{
        f"{codec} that is cut short": (cut_inside(batch, 12), EITHER | {Code.INVALID_RECORD})
        for codec, batch in PACKED.items()
    },
    **{
        f"plain records that say they are {codec}": (doctored(WHOLE, attributes=number), EITHER)
        for number, codec in enumerate(PACKED, start=1)
    },
    "gzip that says it is plain": (doctored(PACKED["gzip"], attributes=0), INVALID),
    "compression 5": (doctored(WHOLE, attributes=5), EITHER | {Code.UNSUPPORTED_COMPRESSION_TYPE}),
    "compression 7": (doctored(WHOLE, attributes=7), EITHER | {Code.UNSUPPORTED_COMPRESSION_TYPE}),
    # What only brokers may write.
    "a control batch": (batch_of(b"\0\0\0\0\0\0", control=True), INVALID),
    "a control batch in a transaction": (
        batch_of(b"\0\0\0\0\0\0", control=True, transactional=True, producer=(7, 0), base_sequence=0),
        INVALID | {Code.INVALID_TXN_STATE},
    ),
    "a time of the broker's own": (doctored(WHOLE, attributes=8), INVALID | {Code.INVALID_TIMESTAMP}),
    "a transactional batch of nobody": (batch_of(b"x", transactional=True), INVALID | {Code.INVALID_TXN_STATE}),
    "a transaction that nobody began": (
        batch_of(b"x", transactional=True, producer=(7, 0), base_sequence=0),
        INVALID | {Code.INVALID_TXN_STATE, Code.INVALID_PRODUCER_ID_MAPPING},
    ),
    "a producer without a sequence": (batch_of(b"x", producer=(7, 0), base_sequence=-1), INVALID),
    "a producer without an epoch": (batch_of(b"x", producer=(7, -1), base_sequence=0), INVALID),
    # One of two.
    "a good batch, then a bad one": (WHOLE + flipped(WHOLE, len(WHOLE) - 3), INVALID),
    "a bad batch, then half a good one": (flipped(WHOLE, len(WHOLE) - 3) + WHOLE[:-9], CORRUPT),
}


@pytest.fixture(scope="module")
def client(shared_node: NodeProcess) -> Iterator[WireClient]:
    with WireClient(shared_node.port) as client:
        client.create_topic(TOPIC)
        client.create_topic(SMALL_TOPIC, configs={"max.message.bytes": str(MESSAGE_SIZE_BYTES_MAX)})
        assert client.produce(TOPIC, batch_of(b"before")).error_code == 0
        yield client


def test_the_table_builds_good_batches_too(client: WireClient) -> None:
    """What the lies are made of is accepted, so that each is refused for its lie."""
    for good in (WHOLE, doctored(WHOLE), batch_around(record(b"hand-made")), *PACKED.values()):
        answer = client.produce(TOPIC, good)
        assert answer.error_code == 0, answer.error_message
    two = client.produce(TOPIC, batch_around(record(offset_delta=0) + record(offset_delta=1), count=2))
    assert two.error_code == 0, two.error_message
    assert set(FIELDS) >= {"length", "count"}


@pytest.mark.parametrize("name", BAD)
def test_a_bad_batch_is_refused(client: WireClient, shared_node: NodeProcess, name: str) -> None:
    batch, expected = BAD[name]
    end_offset = client.log_end_offset(TOPIC)
    answer = client.produce(TOPIC, batch)
    assert Code(answer.error_code) in expected, answer.error_message
    assert answer.error_message, "a refusal says what is wrong"
    assert answer.base_offset == -1
    assert client.log_end_offset(TOPIC) == end_offset
    assert client.produce(TOPIC, batch_of(b"after")).base_offset == end_offset
    assert shared_node.is_running


@pytest.mark.parametrize("name", bombs())
def test_a_decompression_bomb_is_defused(client: WireClient, shared_node: NodeProcess, name: str) -> None:
    codec, records = bombs()[name]
    end_offset = client.log_end_offset(TOPIC)
    peak_before = resident_bytes_peak(shared_node.pid)
    answer = client.produce(TOPIC, batch_around(records, attributes=codec))
    assert Code(answer.error_code) in EITHER | {Code.MESSAGE_TOO_LARGE}, answer.error_message
    assert resident_bytes_peak(shared_node.pid) - peak_before < 150 * 1024 * 1024
    assert client.log_end_offset(TOPIC) == end_offset


def resident_bytes_peak(pid: int) -> int:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    raise AssertionError("no VmHWM")


def test_a_batch_larger_than_the_topic_allows(client: WireClient) -> None:
    largest = batch_of(b"v" * (MESSAGE_SIZE_BYTES_MAX - len(batch_of(b"v" * 1_900)) + 1_900))
    assert len(largest) == MESSAGE_SIZE_BYTES_MAX
    assert client.produce(SMALL_TOPIC, largest).error_code == 0
    answer = client.produce(SMALL_TOPIC, batch_of(b"v" * MESSAGE_SIZE_BYTES_MAX))
    assert Code(answer.error_code) is Code.MESSAGE_TOO_LARGE
    assert "max.message.bytes" in (answer.error_message or "")
    assert client.log_end_offset(SMALL_TOPIC) == 1


def test_records_without_a_key_are_named_where_each_needs_one(client: WireClient) -> None:
    client.create_topic("bad-batches-compacted", configs={"cleanup.policy": "compact"})
    builder = BatchBuilder(compression="lz4")
    for index in range(6):
        builder.append(1_700_000_000_000, None if index in (1, 4) else b"k%d" % index, b"v")
    answer = client.produce("bad-batches-compacted", builder.build())
    assert Code(answer.error_code) is Code.INVALID_RECORD
    why = "it has no key, and a compacted topic needs one"
    assert [(each.batch_index, each.batch_index_error_message) for each in answer.record_errors] == [(1, why), (4, why)]
    assert client.log_end_offset("bad-batches-compacted") == 0


def test_several_batches_in_one_request(client: WireClient) -> None:
    """Refused whole, as Kafka does since Produce 3: half an append could not be told from a duplicate."""
    end_offset = client.log_end_offset(TOPIC)
    answer = client.produce(TOPIC, batch_of(b"a", b"b") + batch_of(b"c", compression="lz4"))
    assert Code(answer.error_code) is Code.INVALID_RECORD
    assert client.log_end_offset(TOPIC) == end_offset


@pytest.mark.parametrize("records", [None, b""], ids=["null", "empty"])
def test_no_batch_at_all(client: WireClient, records: bytes | None) -> None:
    answer = client.produce(TOPIC, records)
    assert Code(answer.error_code) in EITHER, answer.error_message


@pytest.mark.parametrize("acks", [5, 2, -2, 32_767])
def test_acks_that_do_not_exist(client: WireClient, acks: int) -> None:
    end_offset = client.log_end_offset(TOPIC)
    answer = client.produce(TOPIC, WHOLE, acks=acks)
    assert Code(answer.error_code) is Code.INVALID_REQUIRED_ACKS
    assert client.log_end_offset(TOPIC) == end_offset


@pytest.mark.parametrize(
    ("topic", "partition"),
    [("bad-batches-no-such-topic", 0), (TOPIC, 1), (TOPIC, -1), (TOPIC, 2**31 - 1), ("", 0), ("a/b", 0), ("..", 0)],
)
def test_partitions_that_are_not_there(client: WireClient, topic: str, partition: int) -> None:
    answer = client.produce(topic, WHOLE, partition=partition)
    assert Code(answer.error_code) in {Code.UNKNOWN_TOPIC_OR_PARTITION, Code.INVALID_TOPIC_EXCEPTION}


def test_topic_ids_that_nobody_has(client: WireClient) -> None:
    data = [PartitionProduceData(index=0, records=WHOLE)]
    request = ProduceRequest(
        acks=1, timeout_ms=1_000, topic_data=[TopicProduceData(topic_id=UUID(int=42), partition_data=data)]
    )
    answer = client.ask(ApiKey.PRODUCE, 13, request, ProduceResponse)
    assert Code(answer.responses[0].partition_responses[0].error_code) is Code.UNKNOWN_TOPIC_ID


def test_a_refusal_without_acknowledgement_closes_the_connection(client: WireClient, shared_node: NodeProcess) -> None:
    end_offset = client.log_end_offset(TOPIC)
    with WireClient(shared_node.port) as other:
        data = [PartitionProduceData(index=0, records=flipped(WHOLE, 70))]
        request = ProduceRequest(
            acks=0, timeout_ms=1_000, topic_data=[TopicProduceData(name=TOPIC, partition_data=data)]
        )
        other.send(ApiKey.PRODUCE, 9, request)
        with pytest.raises(ConnectionError):
            other.receive(ApiKey.PRODUCE, 9, ProduceResponse)
    assert client.log_end_offset(TOPIC) == end_offset


def test_every_batch_between_the_bad_ones_is_there(client: WireClient) -> None:
    values = [record.value for record in client.read_all(TOPIC)]
    assert values[0] == b"before"
    assert None not in values
    assert len(values) == client.log_end_offset(TOPIC)

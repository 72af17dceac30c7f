"""Bytes that are no message: refused with the field and the position, before anything large is allocated."""

from __future__ import annotations

import tracemalloc
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support.clients.wire_samples import ALL_MESSAGE_IDS, ALL_MESSAGES, sample
from support.examples import examples
from tidelog.base.errors import Code, KafkaError, MalformedMessageError, TooManyElementsError
from tidelog.wire import decode, encode
from tidelog.wire.limits import ELEMENTS_MAX
from tidelog.wire.messages.api_00_produce import PartitionProduceData, ProduceRequest, TopicProduceData
from tidelog.wire.messages.api_01_fetch import FetchRequest, FetchResponse
from tidelog.wire.messages.api_03_metadata import MetadataRequest, MetadataRequestTopic
from tidelog.wire.messages.api_10_find_coordinator import FindCoordinatorRequest
from tidelog.wire.messages.api_18_api_versions import ApiVersionsRequest
from tidelog.wire.primitives import STRING_SIZE_BYTES_MAX, TAGGED_FIELDS_MAX, uvarint
from tidelog.wire.schema import array, field, int32, message, string, struct


@struct
class Nothing:
    """A struct that takes no bytes before version 1."""

    number: int = field(int32, versions="1+", default=0)


@message(api_key=-1, versions="0-1", kind="data")
class Hollow:
    """Elements of no size: a count says nothing about what must be left."""

    items: list[Nothing] = field(array(Nothing))
    name: str = field(string, default="")


@message(api_key=-1, versions="0", kind="request")
class Numbers:
    items: list[int] = field(array(int32))


def produce(version: int) -> bytes:
    topic = TopicProduceData(name="orders", partition_data=[PartitionProduceData(0, b"batch")])
    request = ProduceRequest(acks=-1, timeout_ms=30_000, topic_data=[topic, topic])
    return encode(request, version)


@pytest.mark.parametrize(("cls", "version"), ALL_MESSAGES, ids=ALL_MESSAGE_IDS)
def test_a_message_cut_short_anywhere_is_malformed(cls: type[Any], version: int) -> None:
    raw = encode(sample(cls, version), version)
    for size in range(0, len(raw), max(1, len(raw) // 40)):
        with pytest.raises(MalformedMessageError):
            decode(cls, raw[:size], version)


@pytest.mark.parametrize(("cls", "version"), ALL_MESSAGES, ids=ALL_MESSAGE_IDS)
def test_bytes_after_a_message_are_malformed(cls: type[Any], version: int) -> None:
    raw = encode(sample(cls, version), version)
    with pytest.raises(MalformedMessageError, match="1 more bytes follow"):
        decode(cls, raw + b"\0", version)


@settings(max_examples=examples(300))
@given(raw=st.binary(max_size=200), which=st.sampled_from(ALL_MESSAGES))
def test_random_bytes_are_malformed_or_a_message(raw: bytes, which: tuple[type[Any], int]) -> None:
    cls, version = which
    try:
        found = decode(cls, raw, version)
    except MalformedMessageError:
        return
    assert decode(cls, encode(found, version), version) == found


@pytest.mark.parametrize(
    ("raw", "version", "expected"),
    [
        pytest.param(b"", 12, "transactional_id, at byte 0: it is cut short: the message ends at byte 0", id="empty"),
        pytest.param(b"\0\0", 12, "acks, at byte 1: it is cut short", id="first-of-a-stretch"),
        pytest.param(b"\0\0\1\0\0", 12, "timeout_ms, at byte 1: it is cut short", id="second-of-a-stretch"),
        pytest.param(
            b"\0\0\1\0\0\0\0\xff\xff\xff\xff\x0f",
            12,
            "topic_data, at byte 12: its length is 4294967294, but only 0 bytes are left",
            id="count-of-four-billion",
        ),
        pytest.param(
            b"\0\0\1\0\0\0\0\0", 12, "topic_data, at byte 8: its length is -1, and it may not be null", id="null"
        ),
        pytest.param(
            b"\x80\x80\x80\x80\x80\x01", 12, "transactional_id, at byte 1: a varint is longer than 5 bytes", id="6"
        ),
        pytest.param(
            b"\x80\x80\x80\x80\x10", 12, "transactional_id, at byte 1: a varint is longer than 5", id="33-bits"
        ),
        pytest.param(b"\xff\xfe", 3, "transactional_id, at byte 2: its length is -2", id="length-minus-two"),
        pytest.param(b"\x7f\xff", 3, "transactional_id, at byte 2: its length is 32767, but only 0", id="old-string"),
    ],
)
def test_the_error_says_what_where_and_why(raw: bytes, version: int, expected: str) -> None:
    with pytest.raises(MalformedMessageError) as caught:
        decode(ProduceRequest, raw, version)
    assert str(caught.value).startswith(f"ProduceRequest v{version}: {expected}")


def test_the_error_names_the_element_of_each_array() -> None:
    raw = bytearray(produce(9))
    at = raw.rindex(b"orders") + len(b"orders") + 1 + 4  # the size of the second topic's records
    raw[at] = 100
    with pytest.raises(
        MalformedMessageError, match=r"topic_data\[1\]\.partition_data\[0\]\.records, at byte \d+: its "
    ):
        decode(ProduceRequest, raw, 9)


@pytest.mark.parametrize(
    ("tags", "expected"),
    [
        pytest.param(b"\2\5\1a\5\1b", "tag 5 comes after tag 5", id="twice"),
        pytest.param(b"\2\5\1a\4\1b", "tag 4 comes after tag 5", id="descending"),
        pytest.param(b"\1\5\3ab", "its length is 3, but only 2 bytes are left", id="too-long"),
        pytest.param(b"\x7f\5\1a", "there are 127 tagged fields, but only 3 bytes are left", id="too-many"),
        pytest.param(
            b"\1\0\3\2a\0",
            "cluster_id, at byte 33: its tag announces 3 bytes, but it takes 2",
            id="size-of-a-known-tag",
        ),
        pytest.param(b"\1\0", "a varint is cut short", id="cut-short"),
    ],
)
def test_tagged_fields_must_be_in_order_and_in_bounds(tags: bytes, expected: str) -> None:
    raw = encode(FetchRequest(max_wait_ms=1, min_bytes=1, topics=[]), 12)
    assert raw.endswith(b"\0")
    with pytest.raises(MalformedMessageError, match=r"FetchRequest v12: .*" + expected):
        decode(FetchRequest, raw[:-1] + tags, 12)


@pytest.mark.parametrize("tags", [b"\1\5\1a", b"\2\5\1a\x80\1\0", b"\1\xff\xff\xff\xff\x0f\2ab"])
def test_unknown_tagged_fields_are_passed_over(tags: bytes) -> None:
    for cls in (ApiVersionsRequest, MetadataRequest):
        version = 3 if cls is ApiVersionsRequest else 12
        plain = encode(sample(cls, version), version)
        assert decode(cls, plain[:-1] + tags, version) == sample(cls, version)


def test_unknown_tagged_fields_among_known_ones_are_passed_over() -> None:
    request = FetchRequest(cluster_id="c", max_wait_ms=1, min_bytes=1, topics=[])
    raw = encode(request, 12)
    assert raw.endswith(b"\1\0\2\2c")
    assert decode(FetchRequest, raw[:-5] + b"\2\0\2\2c\x09\1z", 12) == request


def test_a_count_buys_no_memory() -> None:
    # 40,000 topics are announced, and there are the bytes for them; then they turn out to be something else.
    raw = b"\0\0\1\0\0\0\0" + b"\xc1\xb8\2" + b"\x03ab" + b"\xff" * 200_000
    with pytest.raises(MalformedMessageError):
        decode(ProduceRequest, raw, 12)
    tracemalloc.start()
    with pytest.raises(MalformedMessageError):
        decode(ProduceRequest, raw, 12)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 100_000


def test_a_request_has_so_many_elements_and_no_more() -> None:
    # Partitions without records: seven bytes each on the wire, a hundred times that as objects.
    partition = b"\0\0\0\7" + b"\0" + b"\0"
    for count in (2_000, ELEMENTS_MAX):
        head = b"\0" + b"\0\1" + b"\0\0\0\0" + b"\2" + b"\2t" + uvarint(count + 1)
        raw = head + partition * count + b"\0" + b"\0"
        if count == 2_000:
            assert len(decode(ProduceRequest, raw, 9).topic_data[0].partition_data) == count
        else:
            with pytest.raises(MalformedMessageError, match="more than 262144 values"):
                decode(ProduceRequest, raw, 9)


def test_who_reads_less_at_once_says_how_much() -> None:
    raw = encode(MetadataRequest(topics=[MetadataRequestTopic(name=f"t{index}") for index in range(20)]), 13)
    assert len(decode(MetadataRequest, raw, 13, elements_max=20).topics or ()) == 20
    with pytest.raises(TooManyElementsError, match=r"topics.*: the request lists more than 19 values, or as much text"):
        decode(MetadataRequest, raw, 13, elements_max=19)


@pytest.mark.parametrize(("count", "is_read"), [(TAGGED_FIELDS_MAX, True), (TAGGED_FIELDS_MAX + 1, False)])
@pytest.mark.parametrize(  # without tags of its own in this version, and with
    "request_", [MetadataRequest(), FetchRequest(max_wait_ms=1, min_bytes=1, topics=[])], ids=["unknown", "known"]
)
def test_few_tagged_fields_are_read_in_one_place(request_: object, count: int, is_read: bool) -> None:
    cls = type(request_)
    raw = encode(request_, 13)[:-1] + uvarint(count) + b"".join(uvarint(100 + tag) + b"\0" for tag in range(count))
    if is_read:
        decode(cls, raw, 13)
        with pytest.raises(TooManyElementsError):
            decode(cls, raw, 13, elements_max=count - 1)
    else:
        with pytest.raises(MalformedMessageError, match=f"{count} tagged fields; {TAGGED_FIELDS_MAX} are the most"):
            decode(cls, raw, 13)


@pytest.mark.parametrize("letter", [b"a", b"\xff"])
def test_long_strings_count_as_several(letter: bytes) -> None:
    """A megabyte that is not UTF-8 takes five milliseconds, and eight may come in a request."""
    name = (10_240).to_bytes(2) + letter * 10_240
    raw = (100).to_bytes(4) + name * 100 + b"\0\0\0"
    with pytest.raises(TooManyElementsError, match="or as much text"):
        decode(MetadataRequest, raw, 8, elements_max=1_024)
    assert len(decode(MetadataRequest, raw, 8, elements_max=100 + 100 * 20).topics or ()) == 100
    with pytest.raises(TooManyElementsError):
        decode(MetadataRequest, raw, 8, elements_max=100 + 100 * 20 - 1)


def test_numbers_in_arrays_are_elements_too() -> None:
    with pytest.raises(TooManyElementsError):
        decode(Numbers, b"\0\0\0\3" + bytes(12), 0, elements_max=2)
    assert decode(Numbers, b"\0\0\0\3" + bytes(12), 0, elements_max=3).items == [0, 0, 0]


def test_a_compact_string_is_no_longer_than_a_string_may_be() -> None:
    longest = b"\x02" + b"\0" * 16 + uvarint(STRING_SIZE_BYTES_MAX + 1) + b"x" * STRING_SIZE_BYTES_MAX
    rest = b"\0" + b"\1\1" + b"\0"
    assert len(decode(MetadataRequest, longest + rest, 13).topics[0].name or "") == STRING_SIZE_BYTES_MAX  # type: ignore[index]
    longer = b"\x02" + b"\0" * 16 + uvarint(STRING_SIZE_BYTES_MAX + 2) + b"x" * (STRING_SIZE_BYTES_MAX + 1)
    with pytest.raises(MalformedMessageError, match="more than a string may have, 32767"):
        decode(MetadataRequest, longer + rest, 13)


def test_elements_of_no_size_are_bounded_by_what_is_left() -> None:
    assert len(decode(Hollow, b"\0\0\0\2\0\0", 0).items) == 2
    with pytest.raises(MalformedMessageError, match="items, at byte 4: its length is 2147483647"):
        decode(Hollow, b"\x7f\xff\xff\xff\0\0", 0)


@pytest.mark.parametrize("version", [-1, 14, 32767])
def test_a_version_that_there_is_not_is_refused(version: int) -> None:
    decode(MetadataRequest, encode(MetadataRequest(), 13), 13)
    for _ in range(2):
        with pytest.raises(KafkaError, match=r"MetadataRequest has no version .*; known: 0 to 13") as caught:
            decode(MetadataRequest, b"", version)
        assert caught.value.code is Code.UNSUPPORTED_VERSION
        with pytest.raises(KafkaError):
            encode(MetadataRequest(), version)


def test_records_are_views_of_the_buffer() -> None:
    frame = bytearray(produce(9))
    found = decode(ProduceRequest, frame, 9).topic_data[1].partition_data[0].records
    assert isinstance(found, memoryview)
    found[:1] = b"B"
    assert frame.endswith(b"Batch\0\0\0")
    assert decode(FetchResponse, encode(FetchResponse(), 12), 12) == FetchResponse()


@pytest.mark.parametrize(
    ("raw", "text"),
    [
        (b"\xff", "\ufffd"),
        (b"a\xe9b", "a\ufffdb"),
        (b"\xe2\x82", "\ufffd"),
        (b"\xf0\x9f\x98z", "\ufffdz"),
        (b"\xc0\x80", "\ufffd\ufffd"),
    ],
)
def test_text_that_is_not_utf_8_is_read_with_replacement_characters(raw: bytes, text: str) -> None:
    """As Java's decoder does, which Kafka's brokers use."""
    group = FindCoordinatorRequest(key="x")
    whole = encode(group, 0).replace(b"\0\1x", len(raw).to_bytes(2) + raw)
    assert decode(FindCoordinatorRequest, whole, 0).key == text
    assert decode(FindCoordinatorRequest, encode(FindCoordinatorRequest(key="x"), 0), 0).key == "x"


def test_text_that_could_not_be_sent_again_is_malformed() -> None:
    with pytest.raises(MalformedMessageError, match=r"key, .*more than 32767 bytes of UTF-8"):
        decode(FindCoordinatorRequest, b"\x40\0" + b"\xff" * 0x4000, 0)

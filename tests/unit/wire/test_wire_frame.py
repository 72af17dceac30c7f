"""Headers and whole frames, KIP-1243's consistency state included."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support.clients.kafka_python_messages import decode_response_with_kafka_python, encode_request_with_kafka_python
from support.clients.wire_samples import SHARED_MESSAGE_IDS, SHARED_MESSAGES, sample
from support.examples import examples
from tidelog.base.errors import MalformedMessageError
from tidelog.wire import (
    ApiKey,
    ConsistencyState,
    RequestHeader,
    decode,
    decode_request_header,
    decode_response_header,
    encode_request,
    encode_response,
)
from tidelog.wire.messages.api_01_fetch import FetchableTopicResponse, FetchResponse, PartitionData
from tidelog.wire.messages.api_03_metadata import MetadataRequest, MetadataResponse
from tidelog.wire.messages.api_18_api_versions import ApiVersionsRequest, ApiVersionsResponse
from tidelog.wire.schema import layout_of

REQUESTS = [which for which in SHARED_MESSAGES if layout_of(which[0]).kind == "request"]
RESPONSES = [which for which in SHARED_MESSAGES if layout_of(which[0]).kind == "response"]
REQUEST_IDS = [name for name in SHARED_MESSAGE_IDS if "Request" in name]
RESPONSE_IDS = [name for name in SHARED_MESSAGE_IDS if "Response" in name]

STATES = st.builds(
    ConsistencyState, st.one_of(st.none(), st.text(max_size=30)), st.one_of(st.none(), st.integers(0, 2**63 - 1))
)


def joined(pieces: list[Any]) -> bytes:
    return b"".join(pieces)


def without_size(pieces: list[Any]) -> memoryview:
    """The frame after its size, which is checked."""
    whole = joined(pieces)
    assert int.from_bytes(whole[:4]) == len(whole) - 4
    return memoryview(whole)[4:]


@pytest.mark.parametrize(("cls", "version"), REQUESTS, ids=REQUEST_IDS)
def test_request_frames_are_those_of_kafka_python(cls: type[Any], version: int) -> None:
    message, key = sample(cls, version, with_ours=False), layout_of(cls).api_key
    for client_id in ("a-client", ""):
        pieces = encode_request(key, version, 77, client_id, message)
        assert joined(pieces) == encode_request_with_kafka_python(message, version, 77, client_id)
        frame = without_size(pieces)
        header, position = decode_request_header(frame)
        assert header == RequestHeader(key, version, 77, client_id, None)
        assert decode(cls, frame, version, position) == message


@pytest.mark.parametrize(("cls", "version"), RESPONSES, ids=RESPONSE_IDS)
def test_response_frames_are_read_by_kafka_python(cls: type[Any], version: int) -> None:
    message, key = sample(cls, version, with_ours=False), layout_of(cls).api_key
    if isinstance(message, ApiVersionsResponse):
        message.error_code = 0  # kafka-python reads one with an error as version 0, whatever the version
    pieces = encode_response(key, version, 77, message)
    assert decode_response_with_kafka_python(cls, joined(pieces), version) == (77, message)
    frame = without_size(pieces)
    correlation_id, state, position = decode_response_header(frame, key, version)
    assert (correlation_id, state) == (77, None)
    assert decode(cls, frame, version, position) == message


def test_a_request_without_a_client_id() -> None:
    frame = without_size(encode_request(ApiKey.METADATA, 9, 1, None, MetadataRequest()))
    assert decode_request_header(frame)[0].client_id is None


@settings(max_examples=examples(60))
@given(state=STATES, client_id=st.one_of(st.none(), st.text(max_size=20)))
def test_the_consistency_state_travels_in_flexible_headers(state: ConsistencyState, client_id: str | None) -> None:
    request = MetadataRequest(topics=[])
    frame = without_size(encode_request(ApiKey.METADATA, 9, 5, client_id, request, consistency_state=state))
    header, position = decode_request_header(frame)
    assert header == RequestHeader(ApiKey.METADATA, 9, 5, client_id, state)
    assert decode(MetadataRequest, frame, 9, position) == request

    frame = without_size(encode_response(ApiKey.METADATA, 9, 5, MetadataResponse(), state))
    correlation_id, found, position = decode_response_header(frame, ApiKey.METADATA, 9)
    assert (correlation_id, found) == (5, state)
    assert decode(MetadataResponse, frame, 9, position) == MetadataResponse()


def test_the_consistency_state_is_tag_0_with_a_compact_string_and_an_int64() -> None:
    frame = without_size(encode_response(ApiKey.METADATA, 9, 5, MetadataResponse(), ConsistencyState("ab", 258)))
    assert frame[:19].tobytes() == b"\0\0\0\5" + b"\1\0\x0c" + b"\3ab" + (258).to_bytes(8) + b"\0"
    frame = without_size(encode_response(ApiKey.METADATA, 9, 5, MetadataResponse(), ConsistencyState(None, None)))
    assert frame[4:17].tobytes() == b"\1\0\x0a" + b"\0" + b"\xff" * 8 + b"\0"


def test_older_headers_drop_the_consistency_state() -> None:
    state = ConsistencyState("ab", 258)
    plain = encode_request(ApiKey.METADATA, 8, 5, "c", MetadataRequest())
    assert encode_request(ApiKey.METADATA, 8, 5, "c", MetadataRequest(), consistency_state=state) == plain
    response = ApiVersionsResponse()
    plain = encode_response(ApiKey.API_VERSIONS, 4, 5, response)
    assert encode_response(ApiKey.API_VERSIONS, 4, 5, response, state) == plain


def test_an_api_versions_response_has_header_0_always() -> None:
    for version in range(5):
        frame = without_size(encode_response(ApiKey.API_VERSIONS, version, 5, ApiVersionsResponse()))
        assert decode_response_header(frame, ApiKey.API_VERSIONS, version) == (5, None, 4)


def test_a_request_of_an_unknown_version_or_api_has_a_readable_header() -> None:
    newer = b"\0\x12\0\x63\0\0\0\7\0\1c\0" + b"whatever"
    assert decode_request_header(newer) == (RequestHeader(18, 99, 7, "c", None), 12)
    unknown = b"\x03\xe8\0\0\0\0\0\7\0\1c" + b"whatever"
    assert decode_request_header(unknown) == (RequestHeader(1000, 0, 7, "c", None), 11)
    negative = b"\xff\xff\xff\xff\0\0\0\7\xff\xff"
    assert decode_request_header(negative) == (RequestHeader(-1, -1, 7, None, None), 10)


def test_other_tagged_fields_in_a_header_are_passed_over() -> None:
    plain = joined(encode_request(ApiKey.API_VERSIONS, 3, 5, "c", ApiVersionsRequest()))[4:]
    assert plain[:12] == b"\0\x12\0\3\0\0\0\5\0\1c\0"
    state = b"\0\x0c\3ab" + (258).to_bytes(8) + b"\0"
    for tags, expected in (
        (b"\1\1\2xy", None),
        (b"\2" + state + b"\1\2xy", ConsistencyState("ab", 258)),
        (b"\1\0\x0f\3ab" + (258).to_bytes(8) + b"\1\5\1z", ConsistencyState("ab", 258)),  # a tag inside the state
    ):
        frame = plain[:11] + tags + plain[12:]
        header, position = decode_request_header(frame)
        assert header.consistency_state == expected
        assert decode(ApiVersionsRequest, frame, 3, position) == ApiVersionsRequest()


@pytest.mark.parametrize(
    ("frame", "expected"),
    [
        pytest.param(b"", "the frame ends after 0 bytes", id="empty"),
        pytest.param(b"\0\x12\0\0\0\0\0", "the frame ends after 7 bytes", id="short"),
        pytest.param(b"\0\x12\0\0\0\0\0\5\0\5ab", "client id of 5 bytes does not fit in the 2", id="client-id"),
        pytest.param(b"\0\x12\0\0\0\0\0\5\xff\xfe", "the client id's length is -2", id="client-id-length"),
        pytest.param(b"\0\x12\0\3\0\0\0\5\0\1c", "the frame ends after 11 bytes", id="no-tags"),
        pytest.param(b"\0\x12\0\3\0\0\0\5\0\1c\1", "1 tagged fields, but only 0 bytes", id="tag-count"),
        pytest.param(b"\0\x12\0\3\0\0\0\5\0\1c\2\3\0\3\0", "tag 3 comes after tag 3", id="tag-twice"),
        pytest.param(b"\0\x12\0\3\0\0\0\5\0\1c\1\0\3\0ab", "does not fit in its 3 bytes", id="state-short"),
        pytest.param(b"\0\x12\0\3\0\0\0\5\0\1c\1\0\3\x09ab", "cluster id of 8 bytes", id="state-cluster-id"),
        pytest.param(b"\0\x12\0\3\0\0\0\5\0\1c\1\0\2\2\xff", "cluster id is not UTF-8", id="state-text"),
        pytest.param(
            b"\0\x12\0\3\0\0\0\5\0\1c\1\0\x0b\0" + bytes(10), "1 bytes follow the consistency", id="state-long"
        ),
    ],
)
def test_what_is_no_header_is_malformed(frame: bytes, expected: str) -> None:
    with pytest.raises(MalformedMessageError, match=r"^request header: .*" + expected):
        decode_request_header(frame)


@pytest.mark.parametrize("frame", [b"\0\0\0", b"\0\0\0\5", b"\0\0\0\5\1\0\5", b"\0\0\0\5\1\0\1\0"])
def test_what_is_no_response_header_is_malformed(frame: bytes) -> None:
    with pytest.raises(MalformedMessageError, match=r"^response header: "):
        decode_response_header(frame, ApiKey.METADATA, 9)


def test_a_client_id_too_long_for_its_length_is_refused() -> None:
    with pytest.raises(ValueError, match="the client id has 40000 bytes; at most 32767 fit"):
        encode_request(ApiKey.METADATA, 9, 1, "x" * 40_000, MetadataRequest())


def test_the_size_counts_bytes_that_are_still_on_disk() -> None:
    on_disk = range(1_000_000)  # something with a length
    topic = FetchableTopicResponse(topic="t", partitions=[PartitionData(0, records=on_disk)])
    pieces: list[Any] = encode_response(ApiKey.FETCH, 12, 1, FetchResponse(responses=[topic]))
    assert pieces[1] is on_disk
    assert int.from_bytes(pieces[0][:4]) == sum(map(len, pieces)) - 4


def test_headers_that_came_before_mean_the_same_and_nothing_else_does() -> None:
    """They are remembered by their bytes; however many there were, and whatever follows them."""
    for number in range(300):
        state = ConsistencyState(f"cluster-{number % 70}", number % 90)
        for client_id in ("one", None, "x" * (number % 300)):
            for _ in range(2):
                pieces = encode_request(
                    ApiKey.METADATA, 12, number, client_id, MetadataRequest(topics=[]), consistency_state=state
                )
                header, position = decode_request_header(without_size(pieces))
                assert header == RequestHeader(ApiKey.METADATA, 12, number, client_id, state)
                assert decode(MetadataRequest, without_size(pieces), 12, position) == MetadataRequest(topics=[])


def test_a_client_id_that_is_not_utf_8_is_read_as_kafka_reads_it() -> None:
    header, position = decode_request_header(b"\0\x12\0\0\0\0\0\5\0\4caf\xe9")
    assert (header.client_id, position) == ("caf\ufffd", 14)


def test_a_client_id_that_could_not_be_sent_again_is_malformed() -> None:
    with pytest.raises(MalformedMessageError, match="request header: its text takes more than 32767 bytes of UTF-8"):
        decode_request_header(b"\0\x12\0\0\0\0\0\5\x40\0" + b"\xff" * 0x4000)

"""Responses out of a stream: whole whatever the pieces, and never written into again."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.base.errors import MalformedMessageError
from tidelog.net.receiver import SMALL_SIZE_BYTES, ResponseReceiver


def feed(receiver: ResponseReceiver, data: bytes, piece_size: int) -> list[memoryview]:
    """Hand over `data` in pieces of up to `piece_size`, as a socket would; returns the frames."""
    frames = []
    position = 0
    while position < len(data):
        buffer = receiver.get_buffer()
        assert len(buffer) > 0
        size = min(len(buffer), piece_size, len(data) - position)
        buffer[:size] = data[position : position + size]
        receiver.on_bytes(size)
        position += size
        while (frame := receiver.next_frame()) is not None:
            frames.append(frame)
    return frames


def framed(body: bytes) -> bytes:
    return struct.pack(">i", len(body)) + body


@given(
    st.lists(
        st.one_of(
            st.binary(max_size=50),
            st.integers(SMALL_SIZE_BYTES - 8, SMALL_SIZE_BYTES + 8).map(lambda size: bytes([size & 0xFF]) * size),
            st.just(b"x" * 100_000),
        ),
        max_size=6,
    ),
    st.one_of(st.integers(1, 7), st.integers(1_000, 200_000)),
)
def test_frames_come_out_whole_and_stay_as_they_are(bodies: list[bytes], piece_size: int) -> None:
    if sum(map(len, bodies)) // piece_size > 20_000:
        piece_size = 1_000
    frames = feed(ResponseReceiver(1 << 20), b"".join(map(framed, bodies)), piece_size)
    # Compared only now, after all that came later was received: a frame is the caller's to keep.
    assert [bytes(frame) for frame in frames] == bodies


def test_a_large_frame_is_received_in_place() -> None:
    receiver = ResponseReceiver(10 << 20)
    [frame] = feed(receiver, framed(b"y" * (3 << 20)), 1 << 16)
    assert isinstance(frame.obj, bytearray)
    assert len(frame.obj) == 3 << 20


def test_announcing_a_huge_frame_gets_little_memory_until_it_comes() -> None:
    receiver = ResponseReceiver(1 << 30)
    head = struct.pack(">i", 1 << 30) + b"z" * 10
    assert feed(receiver, head, 100) == []
    assert len(receiver.get_buffer()) <= 4 << 20


def test_a_frame_of_more_than_four_mebibytes_grows_as_it_comes() -> None:
    receiver = ResponseReceiver(1 << 30)
    body = bytes(range(256)) * (20 << 12)
    frames = feed(receiver, framed(body) * 2, 1 << 20)
    assert [bytes(frame) == body for frame in frames] == [True, True]


@pytest.mark.parametrize("size", [-1, 1 << 20, 0x48545450])
def test_a_size_that_cannot_be_is_an_error(size: int) -> None:
    with pytest.raises(MalformedMessageError, match="is this a Kafka port"):
        feed(ResponseReceiver(1000), struct.pack(">i", size) + b"P/1.1 400 Bad", 100)

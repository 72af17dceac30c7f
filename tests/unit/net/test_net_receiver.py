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


def memory_of(frame: memoryview) -> int:
    return id(frame.obj)


def test_large_frames_are_received_into_memory_that_nobody_holds_any_more() -> None:
    receiver = ResponseReceiver(1 << 20)
    seen = set()
    before = memoryview(b"")
    for number in range(6):
        (frame,) = feed(receiver, framed(bytes([number]) * 100_000), 30_000)
        seen.add(memory_of(frame))
        assert bytes(before) == bytes([max(number - 1, 0)]) * len(before), "the one before is still at its reader's"
        before = frame[10:20]
        del frame
    assert len(seen) == 2


def test_memory_that_somebody_holds_is_never_received_into() -> None:
    receiver = ResponseReceiver(1 << 20)
    held = []
    for number in range(6):
        (frame,) = feed(receiver, framed(bytes([number]) * 100_000), 30_000)
        held.append(frame[99_000:])
        del frame
    assert [bytes(one) for one in held] == [bytes([number]) * 1_000 for number in range(6)]


def test_memory_is_not_kept_for_small_frames_nor_used_for_much_smaller_ones() -> None:
    receiver = ResponseReceiver(1 << 20)
    (large,) = feed(receiver, framed(b"x" * 200_000), 30_000)
    first = memory_of(large)
    del large
    (smaller,) = feed(receiver, framed(b"y" * 90_000), 30_000)
    assert memory_of(smaller) != first, "one small frame that is held would hold all of it"
    (alike,) = feed(receiver, framed(b"z" * 150_000), 30_000)
    assert (memory_of(alike), bytes(alike)) == (first, b"z" * 150_000)
    assert len(receiver._kept) == 2
    feed(receiver, framed(b"small"), 30_000)
    assert receiver._kept == []

"""Frames out of a stream, however it is cut, and the memory that it takes."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support.examples import examples
from tidelog.base.errors import MalformedMessageError
from tidelog.wire.api import ApiKey
from tidelog.wire.connection import BUFFER_SIZE_BYTES_MIN, FrameReceiver
from tidelog.wire.limits import FEW_BYTES_MAX, LISTED_BYTES_MAX, request_size_bytes_max

LARGE_BYTES = 8 << 20
LIMIT = 4 << 20
SIZES_OF_NOTE = (16_379, 16_380, 16_381, 65_532, 1 << 20)  # around the steps in which the buffer grows


def frame_of(content: bytes) -> bytes:
    return len(content).to_bytes(4) + content


def receive(receiver: FrameReceiver, stream: bytes, chunk_sizes: list[int]) -> list[bytes]:
    """Put the stream in, in chunks of the sizes given, over and over; what came out."""
    frames, position, turn = [], 0, 0
    while position < len(stream):
        buffer = receiver.get_buffer(65_536)
        assert len(buffer) > 0
        size = min(len(buffer), chunk_sizes[turn % len(chunk_sizes)], len(stream) - position)
        buffer[:size] = stream[position : position + size]
        receiver.on_bytes(size)
        position, turn = position + size, turn + 1
        while (frame := receiver.next_frame()) is not None:
            frames.append(frame.tobytes())
    return frames


def test_frames_come_out_of_a_stream_that_comes_byte_by_byte() -> None:
    contents = [b"first", b"", b"second" * 50, b"x"]
    assert receive(FrameReceiver(LIMIT), b"".join(map(frame_of, contents)), [1]) == contents


@settings(max_examples=examples(60))
@given(
    sizes=st.lists(
        st.one_of(st.integers(0, 200), st.integers(0, 300_000), st.sampled_from(SIZES_OF_NOTE)),
        max_size=6,
    ),
    chunk_sizes=st.lists(st.one_of(st.integers(1, 50), st.integers(1, 1 << 20)), min_size=1, max_size=5),
)
def test_frames_come_out_of_a_stream_in_any_chunks(sizes: list[int], chunk_sizes: list[int]) -> None:
    if sum(sizes) / (sum(chunk_sizes) / len(chunk_sizes)) > 20_000:
        chunk_sizes = [size * 1000 for size in chunk_sizes]
    contents = [bytes([number]) * size for number, size in enumerate(sizes)]
    receiver = FrameReceiver(LIMIT)
    assert receive(receiver, b"".join(map(frame_of, contents)), chunk_sizes) == contents
    receiver.get_buffer()
    assert receiver.capacity_bytes == BUFFER_SIZE_BYTES_MIN


def test_a_frame_is_a_writable_view_of_the_buffer() -> None:
    receiver = FrameReceiver(LIMIT)
    buffer = receiver.get_buffer()
    buffer[:9] = frame_of(b"batch")
    receiver.on_bytes(9)
    frame = receiver.next_frame()
    assert frame is not None
    frame[0:1] = b"B"
    assert buffer[4:9].tobytes() == b"Batch"
    assert receiver.next_frame() is None


def test_pending_bytes_are_those_of_the_frame_that_has_begun() -> None:
    receiver = FrameReceiver(LIMIT)
    receive(receiver, frame_of(b"batch") + b"\0\0\0\7ab", [100])
    assert receiver.pending_bytes == 6


@pytest.mark.parametrize(
    ("start", "expected"),
    [
        (b"\xff\xff\xff\xff", "size is -1, which is negative"),
        (b"\x80\0\0\0", "size is -2147483648, which is negative"),
        (b"\0\x40\0\1", "size is 4194305 bytes, above the limit of 4194304"),
        (b"GET / HTTP/1.1\r\n", "above the limit .* look like HTTP"),
        (b"\x16\x03\x01\x02\0\1", "above the limit .* look like the start of TLS"),
    ],
)
def test_a_size_that_cannot_be_is_refused(start: bytes, expected: str) -> None:
    receiver = FrameReceiver(LIMIT)
    for _ in range(2):  # and it stays refused
        with pytest.raises(MalformedMessageError, match=expected):
            receive(receiver, start, [100])


def test_the_largest_frame_allowed_is_accepted() -> None:
    content = b"x" * LIMIT
    assert receive(FrameReceiver(LIMIT), frame_of(content), [1 << 20]) == [content]


def test_a_request_is_measured_by_its_api_as_soon_as_that_is_known() -> None:
    receiver = FrameReceiver(100 << 20, request_size_bytes_max)
    for api_key, limit in ((ApiKey.HEARTBEAT, FEW_BYTES_MAX), (ApiKey.FETCH, LISTED_BYTES_MAX), (999, FEW_BYTES_MAX)):
        for size, is_read in ((limit, True), (limit + 1, False)):
            receiver = FrameReceiver(100 << 20, request_size_bytes_max)
            start = size.to_bytes(4) + api_key.to_bytes(2)
            assert receive(receiver, start[:5], [5]) == []
            if is_read:
                assert receive(receiver, start[5:], [1]) == []
            else:
                with pytest.raises(MalformedMessageError, match=f"API {api_key} has {size} bytes; {limit} are"):
                    receive(receiver, start[5:], [1])
    receiver = FrameReceiver(100 << 20, request_size_bytes_max)
    assert receive(receiver, (90 << 20).to_bytes(4) + ApiKey.PRODUCE.to_bytes(2), [6]) == []


def test_announcing_a_large_frame_buys_no_memory() -> None:
    receiver = FrameReceiver(LIMIT)
    stream = frame_of(bytes(LIMIT))
    for sent in (4, 1000, 15_000, 60_000, 250_000, 1_000_000):
        receive(receiver, stream[receiver.pending_bytes : sent], [sent])
        receiver.get_buffer()
        assert receiver.capacity_bytes <= max(BUFFER_SIZE_BYTES_MIN, 4 * sent)


def test_the_buffer_shrinks_after_a_large_frame() -> None:
    receiver = FrameReceiver(LIMIT)
    receive(receiver, frame_of(bytes(1 << 20)), [1 << 20])
    assert receiver.capacity_bytes >= 1 << 20
    receiver.get_buffer()
    assert receiver.capacity_bytes == BUFFER_SIZE_BYTES_MIN


def test_the_buffer_shrinks_although_the_next_frame_has_begun() -> None:
    receiver = FrameReceiver(LIMIT)
    frames = receive(receiver, frame_of(bytes(1 << 20)) + frame_of(b"small")[:6], [1 << 16])
    assert len(frames) == 1
    assert len(receiver.get_buffer()) > 0
    assert receiver.capacity_bytes == BUFFER_SIZE_BYTES_MIN
    assert receive(receiver, b"all", [3]) == [b"small"]


def test_a_peer_that_sends_large_frames_gets_room_for_the_next_at_once() -> None:
    receiver = FrameReceiver(LIMIT)
    stream = frame_of(bytes(1 << 20))
    receive(receiver, stream, [1 << 20])
    receive(receiver, stream[:100], [100])
    assert len(receiver.get_buffer()) >= len(stream) - 100


def test_bytes_that_nobody_took_are_kept() -> None:
    receiver = FrameReceiver(LIMIT)
    contents = [bytes([number]) * 5000 for number in range(40)]
    stream = b"".join(map(frame_of, contents))
    position = 0
    while position < len(stream):  # nobody asks for frames in between
        buffer = receiver.get_buffer()
        size = min(len(buffer), len(stream) - position)
        assert size > 0
        buffer[:size] = stream[position : position + size]
        receiver.on_bytes(size)
        position += size
    for content in contents:
        frame = receiver.next_frame()
        assert frame is not None
        assert frame.tobytes() == content


@pytest.mark.parametrize("behind_bytes", [0, 2])
@pytest.mark.parametrize("size", [100, 300_000, 3 << 20])
def test_a_frame_that_is_handed_over_stays_whatever_comes(size: int, behind_bytes: int) -> None:
    receiver, frame = FrameReceiver(LIMIT), None
    first, second = frame_of(bytes([7]) * size), frame_of(bytes([9]) * size)
    stream = first + second[:behind_bytes]
    while frame is None:
        buffer = receiver.get_buffer()
        taken, stream = stream[: len(buffer)], stream[len(buffer) :]
        buffer[: len(taken)] = taken
        receiver.on_bytes(len(taken))
        frame = receiver.next_frame()
    is_alone = size > 100 and not receiver.pending_bytes
    kept = receiver.hand_over(frame)
    assert (kept.obj is frame.obj) == is_alone, "a large one is copied only if something came behind it"
    assert receive(receiver, stream + second[behind_bytes:], [1 << 20]) == [bytes([9]) * size]
    assert kept == bytes([7]) * size


def test_a_stream_that_is_over_leaves_its_frames_and_nothing_else() -> None:
    """Whoever answers the first frame may keep the connection, and with it half of a large one behind it."""
    receiver = FrameReceiver(LARGE_BYTES)
    frames = []
    stream = frame_of(b"first") + LARGE_BYTES.to_bytes(4) + bytes(LARGE_BYTES // 2)
    while stream:
        buffer = receiver.get_buffer()
        size = min(len(buffer), len(stream))
        buffer[:size], stream = stream[:size], stream[size:]
        receiver.on_bytes(size)
        if (frame := receiver.next_frame()) is not None:
            frames.append(receiver.hand_over(frame))
            assert receiver.next_frame() is None
    assert receiver.capacity_bytes > LARGE_BYTES // 2
    receiver.drop()
    assert (receiver.capacity_bytes, receiver.pending_bytes) == (0, 0)
    assert [frame.tobytes() for frame in frames] == [b"first"]

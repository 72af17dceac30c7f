"""Feed damaged requests to what reads requests: `python tests/fuzz/fuzz_requests.py SECONDS [SEED]`.

Valid frames (of tests/vectors/wire_*.txt) are damaged in a few places and read as a node reads them: out of a
stream in chunks, header, body. Whatever comes in, only MalformedMessageError or a KafkaError may come out, memory stays
within a multiple of the frame, and what is accepted can be encoded and read again.
"""

from __future__ import annotations

import random
import struct
import sys
import time
import tracemalloc
from collections.abc import Callable
from pathlib import Path

from tidelog.base.errors import KafkaError, MalformedMessageError
from tidelog.wire import APIS, FrameReceiver, api, decode, decode_request_header, encode

VECTORS = Path(__file__).parents[1] / "vectors"
FRAME_SIZE_BYTES_MAX = 1 << 20

MEMORY_BYTES_BASE = 64 * 1024
MEMORY_PER_BYTE = 100  # the smallest struct, of two bytes, becomes an object, its fields and a place in a list

_INTERESTING = (b"\0", b"\1", b"\x7f", b"\x80", b"\xff", b"\xff\xff\xff\xff\x0f", b"\x7f\xff\xff\xff", b"\x80\0\0\0")
_TAGGED_FIELDS = (b"\0", b"\1\0\x0c\3ab\0\0\0\0\0\0\0\5\0", b"\1\7\2xy")

Mutation = Callable[[random.Random, bytearray, list[bytes]], None]


def valid_frames() -> list[bytes]:
    """Requests of every API and version, with headers of every kind, without their sizes."""
    known = {f"{declared.name}Request": declared for declared in APIS.values()}
    frames = []
    for line in (line for path in sorted(VECTORS.glob("wire_*.txt")) for line in path.read_text().splitlines()):
        label, body, *_ = line.split(" ", 2)
        name, _, version = label.rpartition("-v")
        if name not in known:
            continue
        declared = known[name]
        for number, client_id in enumerate((None, b"", b"a client")):
            size = -1 if client_id is None else len(client_id)
            header = struct.pack(">hhih", declared.key, int(version), number, size) + (client_id or b"")
            if declared.is_flexible(int(version)):
                header += _TAGGED_FIELDS[number]
            frames.append(header + bytes.fromhex(body))
    return frames


def _flip(rng: random.Random, frame: bytearray, _: list[bytes]) -> None:
    frame[rng.randrange(len(frame))] ^= 1 << rng.randrange(8)


def _overwrite(rng: random.Random, frame: bytearray, _: list[bytes]) -> None:
    at, value = rng.randrange(len(frame)), rng.choice(_INTERESTING)
    frame[at : at + len(value)] = value


def _insert(rng: random.Random, frame: bytearray, _: list[bytes]) -> None:
    at = rng.randrange(len(frame))
    frame[at:at] = rng.choice(_INTERESTING)


def _delete(rng: random.Random, frame: bytearray, _: list[bytes]) -> None:
    at = rng.randrange(len(frame))
    del frame[at : at + rng.randrange(1, 9)]


def _cut(rng: random.Random, frame: bytearray, _: list[bytes]) -> None:
    del frame[rng.randrange(len(frame)) :]


def _repeat(rng: random.Random, frame: bytearray, _: list[bytes]) -> None:
    at = rng.randrange(len(frame))
    frame[at:at] = frame[at : at + rng.randrange(1, 40)] * rng.randrange(1, 30)


def _splice(rng: random.Random, frame: bytearray, frames: list[bytes]) -> None:
    other = rng.choice(frames)
    frame[rng.randrange(len(frame)) :] = other[rng.randrange(len(other)) :]


def _randomise(rng: random.Random, frame: bytearray, _: list[bytes]) -> None:
    at = rng.randrange(len(frame))
    frame[at:] = rng.randbytes(rng.randrange(64))


_MUTATIONS: tuple[Mutation, ...] = (
    _flip, _flip, _flip, _overwrite, _overwrite, _insert, _delete, _cut, _repeat, _splice, _randomise,
)  # fmt: skip


def damaged(rng: random.Random, frames: list[bytes]) -> bytes:
    """A frame with one to four damages."""
    frame = bytearray(rng.choice(frames))
    for _ in range(rng.randrange(1, 5)):
        if frame:
            damage(rng, frame, frames)
    return bytes(frame[:FRAME_SIZE_BYTES_MAX])


def damage(rng: random.Random, frame: bytearray, frames: list[bytes]) -> None:
    """Damage a frame that is not empty in one place."""
    rng.choice(_MUTATIONS)(rng, frame, frames)


def read_request(frame: memoryview) -> bool:
    """Read one request as a node does; whether it was accepted. Whatever is accepted survives another round."""
    try:
        header, position = decode_request_header(frame)
        cls = api(header.api_key).request
        message = decode(cls, frame, header.api_version, position)
    except (MalformedMessageError, KafkaError):
        return False
    again = encode(message, header.api_version)
    once_more = encode(decode(cls, again, header.api_version), header.api_version)
    assert once_more == again, f"{message!r} became {again.hex()}, and that {once_more.hex()}"
    return True


def read_stream(rng: random.Random, stream: bytes) -> None:
    """Read a stream of frames that comes in chunks of any size."""
    receiver = FrameReceiver(FRAME_SIZE_BYTES_MAX)
    position = 0
    while position < len(stream):
        buffer = receiver.get_buffer()
        chunk = stream[position : position + min(len(buffer), rng.randrange(1, 4000))]
        buffer[: len(chunk)] = chunk
        receiver.on_bytes(len(chunk))
        position += len(chunk)
        try:
            while (frame := receiver.next_frame()) is not None:
                read_request(frame)
        except MalformedMessageError:
            return


def main(seconds: float, seed: int) -> int:
    """Damage and read for that long; return how many frames were read.

    Raises:
        AssertionError: a finding; it shows the frame as hex, and the seed.
    """
    rng = random.Random(seed)
    frames = valid_frames()
    for frame in frames:
        assert read_request(memoryview(frame)), f"a valid frame was refused: {frame.hex()}"
    deadline = time.monotonic() + seconds
    count = 0
    while time.monotonic() < deadline:
        for _ in range(50):
            frame = damaged(rng, frames)
            try:
                read_request(memoryview(frame))
            except Exception as error:
                raise AssertionError(f"seed {seed}, frame {count}: {frame.hex()}") from error
            count += 1
        _check_memory(frame)
        stream = b"".join(struct.pack(">i", len(frame)) + frame for frame in (damaged(rng, frames), rng.choice(frames)))
        read_stream(rng, stream if rng.random() < 0.7 else damaged(rng, [stream]))
    return count


def _check_memory(frame: bytes) -> None:
    """Reading takes no more memory than a multiple of the frame, however large the counts that it claims."""
    tracemalloc.start()
    try:
        read_request(memoryview(frame))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    limit = MEMORY_BYTES_BASE + MEMORY_PER_BYTE * len(frame)
    assert peak <= limit, f"{peak} bytes of memory for a frame of {len(frame)}: {frame.hex()}"


if __name__ == "__main__":
    given = [float(argument) for argument in sys.argv[1:]]
    run_seconds = given[0] if given else 10.0
    run_seed = int(given[1]) if len(given) > 1 else random.SystemRandom().randrange(1 << 32)
    print(f"{main(run_seconds, run_seed)} frames, seed {run_seed}: nothing found")

"""Answers that are sent from a file while something happens to it, or to who reads them: no byte of them is wrong."""

from __future__ import annotations

import random
import socket
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from support.clients.wire_client import WireClient, batch_of, receive_exactly
from support.fixtures.log_files import cut, segments
from support.nodes.node import NodeProcess, StartNode
from tidelog.base.errors import Code
from tidelog.wire import ApiKey
from tidelog.wire.messages.api_01_fetch import FetchPartition, FetchRequest, FetchTopic

BATCH_BYTES, BATCHES = 900_000, 40
SEGMENT_BYTES = 28_000_000
ANSWER_BYTES_MAX = 50_000_000
LOOKED_AT_BYTES = 1_000_000
OTHER = "files-other"
HONEST = {Code.KAFKA_STORAGE_ERROR, Code.CORRUPT_MESSAGE}


@pytest.fixture(scope="module")
def filled(start_node: StartNode) -> Iterator[NodeProcess]:
    node = start_node()
    with WireClient(node.port) as client:
        client.create_topic(OTHER)
    yield node
    assert node.is_running
    assert "Traceback" not in node.log, node.log[-6000:]


def fill(node: NodeProcess, topic: str) -> None:
    """One segment that is closed, and another one, with bytes of which no two stretches are alike."""
    rng = random.Random(topic)
    with WireClient(node.port) as client:
        client.create_topic(topic, configs={"segment.bytes": str(SEGMENT_BYTES)})
        for _ in range(BATCHES):
            assert client.produce(topic, batch_of(rng.randbytes(BATCH_BYTES))).error_code == 0
    assert len(segments(node, topic)) == 2


class Reader:
    """Asks for a whole segment, and reads when it is told to."""

    def __init__(self, node: NodeProcess, topic: str) -> None:
        self._client = WireClient(node.port)
        self._client.stream.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 64 << 10)
        partition = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=ANSWER_BYTES_MAX)
        request = FetchRequest(
            max_wait_ms=0,
            min_bytes=1,
            max_bytes=ANSWER_BYTES_MAX,
            topics=[FetchTopic(topic=topic, partitions=[partition])],
        )
        self._client.send(ApiKey.FETCH, 12, request)
        self.size_bytes = int.from_bytes(receive_exactly(self._client.stream, 4), "big")

    def read(self, size_bytes: int) -> bytes:
        return bytes(receive_exactly(self._client.stream, size_bytes))

    def read_to_its_end(self, size_bytes: int) -> bytes:
        """So much, or less if the node hangs up."""
        found = bytearray()
        with suppress(ConnectionError):
            while len(found) < size_bytes and (data := self._client.stream.recv(1 << 20)):
                found += data
        return bytes(found)

    def close(self) -> None:
        self._client.close()


def serve_others(node: NodeProcess) -> None:
    with WireClient(node.port) as neighbour:
        for _ in range(30):
            end_offset = neighbour.log_end_offset(OTHER)
            assert neighbour.produce(OTHER, batch_of(b"x")).base_offset == end_offset
            assert neighbour.fetch(OTHER, end_offset).records


def whole_answer(node: NodeProcess, topic: str) -> bytes:
    reader = Reader(node, topic)
    whole = reader.read(reader.size_bytes)
    reader.close()
    assert len(whole) > SEGMENT_BYTES * 9 // 10
    return whole


def test_a_reader_that_stalls_in_the_middle_has_every_byte_later(filled: NodeProcess) -> None:
    topic = "files-stalled"
    fill(filled, topic)
    whole = whole_answer(filled, topic)
    readers = [Reader(filled, topic) for _ in range(5)]
    found = [bytearray() for _ in readers]
    while any(len(have) < len(whole) for have in found):
        for reader, have in zip(readers, found, strict=True):
            have.extend(reader.read(min(8 * LOOKED_AT_BYTES, len(whole) - len(have))))
        serve_others(filled)
    for reader, have in zip(readers, found, strict=True):
        assert have == whole
        reader.close()


def remove(path: Path, _: int) -> None:
    path.unlink()


@pytest.mark.parametrize(("what", "damage"), [("cut", cut), ("removed", remove)])
def test_a_file_that_is_lost_while_it_is_sent(
    filled: NodeProcess, what: str, damage: Callable[[Path, int], None]
) -> None:
    topic = f"files-{what}"
    fill(filled, topic)
    whole = whole_answer(filled, topic)
    reader = Reader(filled, topic)
    found = reader.read(LOOKED_AT_BYTES)
    damage(segments(filled, topic)[0], SEGMENT_BYTES // 2)
    serve_others(filled)
    found += reader.read_to_its_end(len(whole) - len(found))
    assert found == whole[: len(found)]
    assert len(found) == len(whole) or what == "cut"
    serve_others(filled)
    reader.close()
    with WireClient(filled.port) as client:
        codes = {Code(client.fetch(topic, offset, size_bytes_max=1).error_code) for offset in range(BATCHES)}
        assert codes <= {Code.NONE, *HONEST}
        assert len(codes) > 1 or what == "removed"
        assert client.fetch(topic, 0).error_code == 0  # of all that is before it
        assert client.fetch(topic, BATCHES - 1, size_bytes_max=1).error_code == 0

"""Fetch of a log that is in the page cache, over one connection: bytes per second, and what the node holds meanwhile.

The client is this process: it asks for as much as a fetch may carry, receives into one large buffer, looks at the
headers of the batches, and asks for what follows. The peer is a plain loop of pread and send over the same file, read
by the same client code without any protocol.
"""

from __future__ import annotations

import os
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from harness import LONG, UpProcess, WireClient, figure, median, new_node, resident_bytes_peak, say

from support.clients.wire_client import batch_of
from tidelog.records import split_whole_batches
from tidelog.wire import ApiKey, decode, decode_response_header, encode_request
from tidelog.wire.messages.api_01_fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic

LOG_SIZE_BYTES = 1_000_000_000
ROUNDS = 9 if LONG else 5
FETCH_SIZE_BYTES_MAX = 50 * 1024 * 1024
PARTITION_SIZES_BYTES_MAX = (50 * 1024 * 1024, 1024 * 1024)
BUFFER_SIZE_BYTES = FETCH_SIZE_BYTES_MAX + 2 * 1024 * 1024
VERSION = 12
TOPIC = "bench-fetch"


def fill(node: UpProcess) -> int:
    """Produce LOG_SIZE_BYTES of 100-byte records, in batches of about a megabyte. Returns the log end offset."""
    values = [os.urandom(100) for _ in range(9_300)]
    batch = batch_of(*values)
    count = LOG_SIZE_BYTES // len(batch)
    with WireClient(node.port) as client:
        client.create_topic(TOPIC, configs={"segment.bytes": str(256 * 1024 * 1024)})
        for _ in range(count):
            row = client.produce(TOPIC, batch)
            assert row.error_code == 0, row.error_message
    return count * len(values)


def read_log(port: int, end_offset: int, partition_size_bytes_max: int, buffer: memoryview) -> float:
    """Bytes per second of one reader from the log's start to its end."""
    with socket.create_connection(("127.0.0.1", port), timeout=30) as stream:
        stream.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 << 20)
        offset = total = 0
        started = time.perf_counter()
        while offset < end_offset:
            stream.sendall(fetch_request(offset, partition_size_bytes_max))
            size = receive_frame(stream, buffer)
            _, _, position = decode_response_header(buffer[:size], ApiKey.FETCH, VERSION)
            row = decode(FetchResponse, buffer[:size], VERSION, position).responses[0].partitions[0]
            assert row.error_code == 0
            records: Any = row.records
            offset = split_whole_batches(records)[-1][1].next_offset
            total += size
        return total / (time.perf_counter() - started)


def fetch_request(offset: int, partition_size_bytes_max: int) -> bytes:
    partition = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=partition_size_bytes_max)
    request = FetchRequest(
        max_wait_ms=500,
        min_bytes=1,
        max_bytes=FETCH_SIZE_BYTES_MAX,
        topics=[FetchTopic(topic=TOPIC, partitions=[partition])],
    )
    pieces: list[Any] = encode_request(ApiKey.FETCH, VERSION, 1, "bench", request)
    return b"".join(pieces)


def receive_frame(stream: socket.socket, buffer: memoryview) -> int:
    """Receive one frame into the start of `buffer`, without its size, which is returned."""
    head = b""
    while len(head) < 4:
        head += stream.recv(4 - len(head))
    (size,) = struct.unpack(">i", head)
    filled = 0
    while filled < size:
        count = stream.recv_into(buffer[filled:size])
        assert count, "the node hung up"
        filled += count
    return int(size)


@contextmanager
def plain_sender(path: Path) -> Iterator[int]:
    script = Path(__file__).parent / "plain_sender.py"
    server = subprocess.Popen([sys.executable, str(script), str(path)], stdout=subprocess.PIPE)
    try:
        assert server.stdout is not None
        yield int(dict(field.split("=") for field in server.stdout.readline().decode().split())["port"])
    finally:
        server.kill()
        server.communicate()


def read_plain(port: int, buffer: memoryview) -> float:
    with socket.create_connection(("127.0.0.1", port), timeout=30) as stream:
        stream.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 << 20)
        total = at = 0
        started = time.perf_counter()
        while count := stream.recv_into(buffer[at:]):
            total += count
            at = (at + count) % FETCH_SIZE_BYTES_MAX  # the same memory as a reader of frames goes through
        return total / (time.perf_counter() - started)


def main() -> None:
    buffer = memoryview(bytearray(BUFFER_SIZE_BYTES))
    rates: dict[int, list[float]] = {size: [] for size in PARTITION_SIZES_BYTES_MAX}
    plain = []
    with new_node() as node:
        end_offset = fill(node)
        say(f"filled; the node's peak so far: {resident_bytes_peak(node.pid) / 1e6:.0f} MB")
        segment = next((node.data_dir / "node-1" / f"{TOPIC}-0").glob("*.log"))
        with plain_sender(segment) as plain_port:
            for number in range(ROUNDS):
                for size in PARTITION_SIZES_BYTES_MAX:
                    rates[size].append(read_log(node.port, end_offset, size, buffer))
                plain.append(read_plain(plain_port, buffer))
                fetched = ", ".join(f"{rate[-1] / 1e9:.2f} GB/s" for rate in rates.values())
                say(f"round {number + 1}: {fetched}, plain {plain[-1] / 1e9:.2f} GB/s")
        peak = resident_bytes_peak(node.pid)
    peer, peer_value = "pread and send, no protocol", median(plain) / 1e6
    for size, at_least in zip(PARTITION_SIZES_BYTES_MAX, (1_000.0, None), strict=True):
        figure(
            f"fetch of a cached log, {size >> 20} MB a partition",
            median(rates[size]) / 1e6,
            "MB/s",
            peer=peer,
            peer_value=peer_value,
            at_least=at_least,
        )
    figure("fetch: peak RSS of the node", peak / 1e6, "MB", at_most=100)


if __name__ == "__main__":
    main()

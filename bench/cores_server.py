"""A prototype of a broker's produce path, in the ways in which it could use more than one core.

    python bench/cores_server.py WAY DIRECTORY [CERTIFICATE]        prints pid=PID port=PORT

It takes each Produce request as a broker does: it decodes the request, checks the checksum of its batch, writes the
batch to a file of the partition, and answers. It keeps no offsets, epochs or high watermarks: what a real broker does
besides is work under the interpreter's lock, so that the ways with threads look better here than they would be.

| way | |
|---|---|
| loop | one event loop does everything, as Tidelog's does |
| threads-write | the loop receives and answers; two threads check and write |
| threads | a thread for each connection does everything; for a free-threaded CPython as well |

Two processes, each with its own port and partitions, are two of these with the way `loop`.
"""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import ssl
import sys
import threading
from concurrent.futures import Executor, ThreadPoolExecutor
from pathlib import Path
from typing import Any, cast

from tidelog.records.header import check_crc, read_header
from tidelog.wire import ApiKey, decode, decode_request_header, encode_response
from tidelog.wire.messages.api_00_produce import (
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)

BUFFER_SIZE_BYTES = 1 << 20
WRAP_BYTES = 64 << 20
"""Where a file begins anew: the disk is not what is measured."""


class Partitions:
    """The files that batches are written to."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._files: dict[int, int] = {}
        self._positions: dict[int, int] = {}

    def produce(self, frame: memoryview) -> bytes:
        """The framed answer to a request."""
        header, position = decode_request_header(frame)
        request = decode(ProduceRequest, frame, header.api_version, position)
        (topic,) = request.topic_data
        (partition,) = topic.partition_data
        records = memoryview(cast(bytes, partition.records))
        check_crc(records, 0, read_header(records))
        file = self._files.get(partition.index)
        if file is None:
            path = self._directory / f"{partition.index}.log"
            file = self._files[partition.index] = os.open(path, os.O_RDWR | os.O_CREAT)
        begin = self._positions.get(partition.index, 0)
        os.pwrite(file, records, begin)
        self._positions[partition.index] = (begin + len(records)) % WRAP_BYTES
        row = PartitionProduceResponse(index=partition.index, base_offset=begin)
        response = ProduceResponse(responses=[TopicProduceResponse(name=topic.name, partition_responses=[row])])
        pieces: list[Any] = encode_response(ApiKey.PRODUCE, header.api_version, header.correlation_id, response)
        return b"".join(pieces)


class Frames:
    """What came on a connection: whole requests, and the beginning of the next."""

    def __init__(self) -> None:
        self._buffer = memoryview(bytearray(BUFFER_SIZE_BYTES))
        self._end = 0

    def room(self) -> memoryview:
        """Where the next bytes go."""
        return self._buffer[self._end :]

    def take(self, received_bytes: int) -> tuple[list[memoryview], int]:
        """The whole requests, and where they end; they are valid until `keep_from` that."""
        self._end += received_bytes
        frames, position = [], 0
        while self._end - position >= 4:
            end = position + 4 + int.from_bytes(self._buffer[position : position + 4])
            if end > self._end:
                break
            frames.append(self._buffer[position + 4 : end])
            position = end
        return frames, position

    def keep_from(self, position: int) -> None:
        """Keep what is behind the whole requests, and make room."""
        left = self._end - position
        if position and left:
            self._buffer[:left] = bytes(self._buffer[position : self._end])
        self._end = left


class Connection(asyncio.BufferedProtocol):
    """One of an event loop.

    Args:
        executor: takes requests; None for the loop itself.
    """

    def __init__(self, partitions: Partitions, executor: Executor | None) -> None:
        self._partitions = partitions
        self._executor = executor
        self._frames = Frames()
        self._transport: Any = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._frames.room()

    def buffer_updated(self, nbytes: int) -> None:
        frames, position = self._frames.take(nbytes)
        if self._executor is None:
            for frame in frames:
                self._transport.write(self._partitions.produce(frame))
            self._frames.keep_from(position)
        elif frames:
            self._transport.pause_reading()
            working = asyncio.get_running_loop().run_in_executor(self._executor, self._work, frames)
            working.add_done_callback(lambda done: self._on_done(done.result(), position))

    def _work(self, frames: list[memoryview]) -> bytes:
        return b"".join(map(self._partitions.produce, frames))

    def _on_done(self, answers: bytes, position: int) -> None:
        self._frames.keep_from(position)
        self._transport.write(answers)
        self._transport.resume_reading()


def serve_by_threads(listener: socket.socket, partitions: Partitions, context: ssl.SSLContext | None) -> None:
    """Until the process ends."""

    def serve(stream: socket.socket) -> None:
        if context is not None:
            stream = context.wrap_socket(stream, server_side=True)
        stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        received = Frames()
        try:
            while count := stream.recv_into(received.room()):
                frames, position = received.take(count)
                if frames:
                    stream.sendall(b"".join(map(partitions.produce, frames)))
                received.keep_from(position)
        except OSError:
            pass
        stream.close()

    while True:
        stream, _ = listener.accept()
        threading.Thread(target=serve, args=(stream,), daemon=True).start()


async def serve_by_loop(
    listener: socket.socket, partitions: Partitions, context: ssl.SSLContext | None, executor: Executor | None
) -> None:
    """Until the process is told to end."""
    loop = asyncio.get_running_loop()
    await loop.create_server(lambda: Connection(partitions, executor), sock=listener, ssl=context)
    told = asyncio.Event()
    loop.add_signal_handler(signal.SIGTERM, told.set)
    await told.wait()


def main(way: str, directory: str, certificate: str | None = None) -> None:
    partitions = Partitions(Path(directory))
    context = None
    if certificate is not None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate)
    listener = socket.create_server(("127.0.0.1", 0), backlog=100)
    print(f"pid={os.getpid()} port={listener.getsockname()[1]}", flush=True)
    if way == "threads":
        serve_by_threads(listener, partitions, context)
    import uvloop  # which a free-threaded CPython may not have

    executor = ThreadPoolExecutor(max_workers=2) if way == "threads-write" else None
    uvloop.run(serve_by_loop(listener, partitions, context, executor))


if __name__ == "__main__":
    main(*sys.argv[1:])

"""A server that only acknowledges: the peer of the produce benchmarks.

    python bench/acknowledge_only.py        prints pid=PID port=PORT

It reads each Produce request off the socket, looks at nothing but the names in front of the batch, and answers that all
is well. It checks nothing and stores nothing, so what a producer reaches against it is what producer, protocol, kernel
and event loop allow: the most that a broker in Python could reach.
"""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import struct
import sys
from typing import Any, cast
from uuid import UUID

import uvloop

from tidelog.wire import ApiKey, decode, decode_request_header, encode_response
from tidelog.wire.messages.api_03_metadata import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from tidelog.wire.messages.api_18_api_versions import ApiVersion, ApiVersionsResponse
from tidelog.wire.messages.api_22_init_producer_id import InitProducerIdResponse

BUFFER_SIZE_BYTES = 256 * 1024
HEAD_SIZE_BYTES_MAX = 512
"""In front of a batch: header, names and lengths. What comes behind is dropped as it arrives."""

SERVED = {
    ApiKey.PRODUCE: (0, 10),
    ApiKey.METADATA: (0, 12),
    ApiKey.API_VERSIONS: (0, 3),
    ApiKey.INIT_PRODUCER_ID: (0, 4),
}
PRODUCE_VERSION_MIN = 9

_SIZE = struct.Struct(">i")
_HEADER = struct.Struct(">hhih")


class AcknowledgeOnly(asyncio.BufferedProtocol):
    """One connection: frames are recognised by their sizes, and all but their heads thrown away."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._buffer = memoryview(bytearray(BUFFER_SIZE_BYTES))
        self._end = 0
        self._to_drop = 0  # bytes of the current frame that are still to come
        self._answer_after_drop = b""
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._buffer[self._end :]

    def buffer_updated(self, nbytes: int) -> None:
        buffer, position, end = self._buffer, 0, self._end + nbytes
        answers = []
        while True:
            if self._to_drop:
                dropped = min(self._to_drop, end - position)
                self._to_drop -= dropped
                position += dropped
                if self._to_drop:
                    break
                answers.append(self._answer_after_drop)
            if end - position < 4:
                break
            (size,) = _SIZE.unpack_from(buffer, position)
            if end - position < 4 + min(size, HEAD_SIZE_BYTES_MAX):
                break
            self._answer_after_drop = self._answer(buffer[position + 4 : min(end, position + 4 + size)])
            position += 4
            self._to_drop = size
        left = end - position
        if left and position:
            buffer[:left] = buffer[position:end]
        self._end = left
        if answers:
            assert self._transport is not None
            self._transport.write(b"".join(answers))

    def _answer(self, head: memoryview) -> bytes:
        key, version, correlation_id, client_id_size = _HEADER.unpack_from(head)
        if key == ApiKey.PRODUCE:
            position = _HEADER.size + max(client_id_size, 0)
            if version < PRODUCE_VERSION_MIN:
                raise ValueError(f"Produce version {version} is not served here")
            answer = _SIZE.pack(correlation_id) + _produced(head, position)
            return _SIZE.pack(len(answer)) + answer
        header, position = decode_request_header(head)
        if key == ApiKey.API_VERSIONS:
            rows = [ApiVersion(api, lowest, highest) for api, (lowest, highest) in SERVED.items()]
            known = SERVED[ApiKey.API_VERSIONS][1] >= version
            response: Any = ApiVersionsResponse(error_code=0 if known else 35, api_keys=rows)
            version = version if known else 0
        elif key == ApiKey.METADATA:
            response = self._metadata(decode(MetadataRequest, head, version, position))
        elif key == ApiKey.INIT_PRODUCER_ID:
            response = InitProducerIdResponse(producer_id=1, producer_epoch=0)
        else:
            raise ValueError(f"API {key} is not served here")
        pieces: list[Any] = encode_response(key, version, header.correlation_id, response)
        return b"".join(pieces)

    def _metadata(self, request: MetadataRequest) -> MetadataResponse:
        partition = MetadataResponsePartition(
            partition_index=0, leader_id=1, leader_epoch=0, replica_nodes=[1], isr_nodes=[1]
        )
        names = [topic.name for topic in request.topics or []]
        return MetadataResponse(
            brokers=[MetadataResponseBroker(node_id=1, host="127.0.0.1", port=self._port)],
            cluster_id="acknowledge-only",
            controller_id=1,
            topics=[MetadataResponseTopic(name=name, topic_id=UUID(int=1), partitions=[partition]) for name in names],
        )


def _produced(head: memoryview, position: int) -> bytes:
    """The answer in versions 9 and 10, for one topic with a short name and one partition, as librdkafka asks."""
    position += 1  # no tagged fields
    position += max(head[position], 1) + 2 + 4 + 1  # transactional id, acks, time-out, one topic
    size = head[position]
    name = head[position : position + size]
    position += size + 1
    index = head[position : position + 4]
    partition = b"".join((index, bytes(10), b"\xff" * 8, bytes(8), b"\1\0\0"))
    return b"".join((b"\0\2", name, b"\2", partition, bytes(1 + 4 + 1)))


async def serve() -> None:
    loop = asyncio.get_running_loop()
    listener = socket.create_server(("127.0.0.1", 0))
    port = listener.getsockname()[1]
    await loop.create_server(lambda: AcknowledgeOnly(port), sock=listener)
    print(f"pid={os.getpid()} port={port}", flush=True)
    told = asyncio.Event()
    loop.add_signal_handler(signal.SIGTERM, told.set)
    loop.add_signal_handler(signal.SIGINT, told.set)
    await told.wait()


if __name__ == "__main__":
    uvloop.run(serve())
    sys.exit(0)

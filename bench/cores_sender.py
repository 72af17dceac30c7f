"""Produces the same request over and over on many connections: the load of the benchmark of cores.

    python bench/cores_sender.py SECONDS VALUES VALUE_BYTES AUTHORITY PORT/PARTITION...

A connection for each PORT/PARTITION, over TLS unless AUTHORITY is `-`. Two blocks of requests are under way on each.
It prints how many bytes of records were acknowledged in how many seconds, and its own CPU seconds.
"""

from __future__ import annotations

import json
import socket
import ssl
import sys
import threading
import time
from typing import Any

from harness import receive_exactly

from support.clients.wire_client import batch_of
from tidelog.wire import ApiKey, encode_request
from tidelog.wire.messages.api_00_produce import PartitionProduceData, ProduceRequest, TopicProduceData

HOST = "127.0.0.1"
VERSION = 9
BLOCK_BYTES = 100_000
TOPIC = "cores"


def main(seconds: str, values: str, value_bytes: str, authority: str, *places: str) -> None:
    context = None if authority == "-" else ssl.create_default_context(cafile=authority)
    batch = batch_of(*(bytes(int(value_bytes)) for _ in range(int(values))))
    streams = []
    for place in places:
        port, partition = map(int, place.split("/"))
        stream = socket.create_connection((HOST, port), timeout=60)
        stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if context is not None:
            stream = context.wrap_socket(stream, server_hostname=HOST)
        data = PartitionProduceData(index=partition, records=batch)
        message = ProduceRequest(
            acks=1, timeout_ms=10_000, topic_data=[TopicProduceData(name=TOPIC, partition_data=[data])]
        )
        pieces: list[Any] = encode_request(ApiKey.PRODUCE, VERSION, 1, "cores", message)
        streams.append((stream, b"".join(pieces)))
    counts = [0] * len(streams)
    ends_at = time.monotonic() + float(seconds)

    def send(number: int, stream: socket.socket, request: bytes) -> None:
        stream.sendall(request)
        answer_bytes = 4 + int.from_bytes(receive_exactly(stream, 4))
        receive_exactly(stream, answer_bytes - 4)
        in_block = max(BLOCK_BYTES // len(request), 1)
        block = request * in_block
        stream.sendall(block)
        while time.monotonic() < ends_at:
            stream.sendall(block)
            receive_exactly(stream, answer_bytes * in_block)
            counts[number] += in_block
        receive_exactly(stream, answer_bytes * in_block)

    began, cpu = time.monotonic(), time.process_time()
    threads = [threading.Thread(target=send, args=(number, *each)) for number, each in enumerate(streams)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    told = {
        "bytes": sum(counts) * len(batch),
        "requests": sum(counts),
        "seconds": time.monotonic() - began,
        "cpu": time.process_time() - cpu,
    }
    print(json.dumps(told))


if __name__ == "__main__":
    main(*sys.argv[1:])

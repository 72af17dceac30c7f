"""5,000 clients of which 500 are busy: what the node holds and does, and how long the busy ones wait, beside 500 alone.

A busy client sends one record and waits for its acknowledgement, ten times a second. The others have asked for the
versions and for a topic's metadata, as a client does when it starts, and are idle since. All of them are sockets of
this process, which shares the machine with the node, and does the same in both cases.
"""

from __future__ import annotations

import heapq
import resource
import select
import socket
import statistics
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

from harness import LONG, MEGABYTE, WireClient, cpu_seconds, figure, new_node, resident_bytes, say

from support.clients.wire_client import batch_of
from tidelog.wire import ApiKey, encode_request
from tidelog.wire.messages.api_00_produce import PartitionProduceData, ProduceRequest, TopicProduceData
from tidelog.wire.messages.api_03_metadata import MetadataRequest, MetadataRequestTopic
from tidelog.wire.messages.api_18_api_versions import ApiVersionsRequest

CLIENTS, BUSY = 5_000, 500
TOPIC = "busy"
PARTITIONS = 12
EVERY_SECONDS = 0.1
SECONDS = 60.0 if LONG else 15.0
WARM_SECONDS = 2.0
PER_ADDRESS = 2_500
IDLE_MS = 600_000
SWEPT_SECONDS = 40.0  # the node has looked at each connection twice, and let go what an idle one need not hold


def main() -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    if hard < CLIENTS + 500:
        sys.exit(f"the hard limit of open files is {hard}; {CLIENTS + 500} are needed")
    with new_node({"connections.max.idle.ms": str(IDLE_MS)}) as node:
        with WireClient(node.port) as client:
            client.create_topic(TOPIC, partitions=PARTITIONS)
        with connected(node.port, BUSY) as busy:
            greet(busy)
            alone = waits(node.pid, busy)
            before = resident_bytes(node.pid)
            with connected(node.port, CLIENTS - BUSY) as others:
                greet(others)
                greeted_at, at_once = time.monotonic(), resident_bytes(node.pid) - before
                beside = waits(node.pid, busy)
                time.sleep(max(greeted_at + SWEPT_SECONDS - time.monotonic(), 0))
                added = resident_bytes(node.pid) - before
        name = f"{CLIENTS:,} clients, {BUSY} busy"
        figure(f"{name}: RSS", (before + added) / MEGABYTE, "MB", at_most=100)
        note = f"{at_once / MEGABYTE:.0f} MB before they were idle for a while"
        figure("… added by those that are not busy", added / MEGABYTE, "MB", note=note)
        for number, (what, unit) in enumerate((("p50", "ms"), ("p99", "ms"), ("CPU of the node", "µs a record"))):
            figure(f"{name}: {what}", beside[number], unit, peer=f"{BUSY} alone", peer_value=alone[number])


@contextmanager
def connected(port: int, count: int) -> Iterator[list[socket.socket]]:
    streams: list[socket.socket] = []
    try:
        for number in range(count):
            stream = socket.socket()
            streams.append(stream)
            stream.bind((f"127.0.0.{2 + number // PER_ADDRESS}", 0))
            stream.connect(("127.0.0.1", port))
        yield streams
    finally:
        for stream in streams:
            stream.close()


def greet(streams: list[socket.socket]) -> None:
    """Each asks for what a client asks for first."""
    versions = ApiVersionsRequest(client_software_name="bench", client_software_version="1")
    metadata = MetadataRequest(topics=[MetadataRequestTopic(name=TOPIC)], allow_auto_topic_creation=False)
    for key, version, message in ((ApiKey.API_VERSIONS, 3, versions), (ApiKey.METADATA, 9, metadata)):
        request = encoded(key, version, message)
        for stream in streams:
            stream.sendall(request)
            receive(stream)


def waits(pid: int, streams: list[socket.socket]) -> tuple[float, float, float]:
    """The p50 and the p99 of what the busy ones waited, in ms; and what the node used for a record, in µs."""
    write(streams, WARM_SECONDS)
    before = cpu_seconds(pid)
    took = write(streams, SECONDS)
    cpu = (cpu_seconds(pid) - before) / len(took) * 1e6
    quantiles = statistics.quantiles(took, n=100)
    say(f"{len(took):,} records: p50 {quantiles[49]:.2f} ms, p99 {quantiles[98]:.2f} ms, {cpu:.0f} µs each")
    return quantiles[49], quantiles[98], cpu


def write(streams: list[socket.socket], seconds: float) -> list[float]:
    """Each writes again and again, none of them at the same moment as another. Returns the milliseconds of each."""
    poll = select.epoll()
    by_descriptor = {stream.fileno(): (number, stream) for number, stream in enumerate(streams)}
    for descriptor in by_descriptor:
        poll.register(descriptor, select.EPOLLIN)
    requests = [produce_request(number % PARTITIONS) for number in range(len(streams))]
    took: list[float] = []
    sent_at: dict[int, float] = {}
    start = time.perf_counter()
    due = [(start + EVERY_SECONDS * number / len(streams), number) for number in range(len(streams))]
    while due or sent_at:
        now = time.perf_counter()
        while due and due[0][0] <= now:
            planned, number = heapq.heappop(due)
            sent_at[number] = planned
            streams[number].sendall(requests[number])
        until = due[0][0] - time.perf_counter() if due else 1.0
        for descriptor, _ in poll.poll(max(until, 0.0)):
            number, stream = by_descriptor[descriptor]
            receive(stream)
            planned, now = sent_at.pop(number), time.perf_counter()
            took.append((now - planned) * 1e3)
            if now < start + seconds:
                heapq.heappush(due, (max(planned + EVERY_SECONDS, now), number))
    poll.close()
    return took


def produce_request(partition: int) -> bytes:
    data = [PartitionProduceData(index=partition, records=bytes(batch_of(b"x" * 100)))]
    request = ProduceRequest(acks=1, timeout_ms=30_000, topic_data=[TopicProduceData(name=TOPIC, partition_data=data)])
    return encoded(ApiKey.PRODUCE, 9, request)


def encoded(key: ApiKey, version: int, message: object) -> bytes:
    return b"".join(encode_request(key, version, 1, "bench", message))  # type: ignore[arg-type]


def receive(stream: socket.socket) -> None:
    """An answer, whole."""
    data = stream.recv(65_536)
    while len(data) < 4 or len(data) < 4 + int.from_bytes(data[:4]):
        more = stream.recv(65_536)
        assert more, "the node hung up"
        data += more


if __name__ == "__main__":
    main()

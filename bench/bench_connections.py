"""Ten thousand connections that do nothing: how fast they are accepted, what each holds, and who is served beside them.

Each connection is a few system calls of the client, which shares the machine.
"""

from __future__ import annotations

import resource
import socket
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

from harness import MEGABYTE, WireClient, figure, median, new_node, resident_bytes, say

from tidelog.wire import ApiKey, encode_request
from tidelog.wire.messages.api_18_api_versions import ApiVersionsRequest

CONNECTIONS = 10_000
PER_ADDRESS = 5_000  # one address has no more ports than these twice
BATCH = 500
IDLE_MS = 40_000
RELEASED_SECONDS_MAX = 30
STEADY_SECONDS = 11  # a sweep


def main() -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    if hard < CONNECTIONS + 500:
        sys.exit(f"the hard limit of open files is {hard}; {CONNECTIONS + 500} are needed")
    with new_node({"connections.max.idle.ms": str(IDLE_MS)}) as node:
        before = resident_bytes(node.pid)
        with WireClient(node.port) as client:
            client.create_topic("beside")
            alone = median([ask_ms(client) for _ in range(200)])
            with connected(node.port) as (streams, seconds):
                client.log_end_offset("beside")  # the node has seen all that came before
                added = resident_bytes(node.pid) - before
                rate = CONNECTIONS / seconds
                figure("connections accepted", rate, "1/s")
                figure("10,000 idle connections: RSS added", added / MEGABYTE, "MB", at_most=160)
                beside = median([ask_ms(client) for _ in range(200)])
                figure("one question beside 10,000 idle connections", beside, "ms", peer="alone", peer_value=alone)
                ask_all(streams)
                spoken = resident_bytes(node.pid) - before
                figure("10,000 connections that have asked ApiVersions: RSS added", spoken / MEGABYTE, "MB")
                released = wait_for_release(node.pid, before)
                figure("the same once they are idle: RSS added", released / MEGABYTE, "MB", at_most=160)


@contextmanager
def connected(port: int) -> Iterator[tuple[list[socket.socket], float]]:
    """The connections, and how long it took until the last was established."""
    streams: list[socket.socket] = []
    started = time.perf_counter()
    try:
        for number in range(CONNECTIONS):
            stream = socket.socket()
            streams.append(stream)
            stream.bind((f"127.0.0.{2 + number // PER_ADDRESS}", 0))
            stream.connect(("127.0.0.1", port))
        yield streams, time.perf_counter() - started
    finally:
        for stream in streams:
            stream.close()


def ask_all(streams: list[socket.socket]) -> None:
    """Each asks something once, and takes the answer."""
    message = ApiVersionsRequest(client_software_name="bench", client_software_version="1")
    request = b"".join(encode_request(ApiKey.API_VERSIONS, 3, 1, "bench", message))  # type: ignore[arg-type]
    for first in range(0, len(streams), BATCH):
        for stream in streams[first : first + BATCH]:
            stream.sendall(request)
        for stream in streams[first : first + BATCH]:
            assert len(stream.recv(4_096)) > 100


def ask_ms(client: WireClient) -> float:
    started = time.perf_counter()
    client.log_end_offset("beside")
    return (time.perf_counter() - started) * 1_000


def wait_for_release(pid: int, before: int) -> int:
    """The resident bytes added, when they fall no more."""
    deadline = time.monotonic() + RELEASED_SECONDS_MAX
    least = resident_bytes(pid)
    least_at = time.monotonic()
    while time.monotonic() < min(deadline, least_at + STEADY_SECONDS):
        time.sleep(1)
        now = resident_bytes(pid)
        if now < least - MEGABYTE:
            least, least_at = now, time.monotonic()
            say(f"{now / MEGABYTE:.0f} MB")
    return least - before


if __name__ == "__main__":
    main()

"""Reassignments: how fast new replicas are filled, beside a plain fetch of the same records, and under throttles.

Three nodes on this host; their logs lie on one disk, and their processes share its cores. A topic of replication factor
1 is filled at node 1. The plain fetch: a reader on one connection asks node 1 for as much as a follower does, and
writes what comes to files as it is, for a replica has to. What it is without the writing is told beside it; nobody who
keeps the records comes near, for most of the time of a move is the kernel's copying into the page cache. Then all
partitions are moved to node 2: without a throttle, with one at the leader, and with one at the follower. The time ends
when the controller says that the reassignment is done.

python bench/bench_reassign.py [--long]
"""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from io import FileIO
from pathlib import Path
from typing import cast

from harness import LONG, MEGABYTE, WireClient, figure, median, say

from support.clients.wire_client import batch_of
from support.fixtures.waiting import wait_until
from support.nodes.cluster import Cluster
from tidelog import Admin, TopicPartition
from tidelog.base.ids import PartitionIndex
from tidelog.client.admin.descriptions import ConfigResource, NewTopic
from tidelog.wire import ApiKey
from tidelog.wire.messages.api_01_fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic

PARTITIONS = 4
BYTES = (800 if LONG else 200) * MEGABYTE
ROUNDS = 5 if LONG else 3
THROTTLED_SECONDS = 20 if LONG else 10
RECORDS, VALUE_SIZE_BYTES = 9_300, 100
BATCH = batch_of(*([b"x" * VALUE_SIZE_BYTES] * RECORDS))
PARTITION_SIZE_BYTES_MAX, RESPONSE_SIZE_BYTES_MAX = 1 << 20, 10 << 20
"""What followers ask for by default."""
FETCH_VERSION = 12
LOOK_AGAIN_SECONDS = 0.02
SIZE = 3
CONFIG = {"num.partitions": "1", "log.segment.bytes": str(256 << 20)}


@contextmanager
def cluster() -> Iterator[Cluster]:
    home = Path(tempfile.mkdtemp(prefix="tidelog-bench-"))
    found = Cluster(home, SIZE, config=CONFIG)
    try:
        found.start()
        yield found
    finally:
        found.close()
        shutil.rmtree(home, ignore_errors=True)


def fill(admin: Admin, port: int, topic: str, size_bytes: int) -> int:
    """A topic at node 1. Returns how many bytes its batches have."""
    admin.create_topics([NewTopic(topic, replica_assignments={index: [1] for index in range(PARTITIONS)})])
    count = max(size_bytes // len(BATCH) // PARTITIONS, 1)
    with WireClient(port) as client:
        for index in range(PARTITIONS):
            wait_until(lambda: client.produce(topic, BATCH, partition=index).error_code == 0, "it leads")  # noqa: B023
            for _ in range(count - 1):
                assert client.produce(topic, BATCH, partition=index).error_code == 0
    return count * len(BATCH) * PARTITIONS


def plain_fetch(port: int, topic: str, size_bytes: int, *, writes: bool) -> float:
    """Bytes a second that one reader gets, who asks as a follower does."""
    with tempfile.TemporaryDirectory(prefix="tidelog-bench-") as home:
        files = [open(f"{home}/{index}", "wb", buffering=0) for index in range(PARTITIONS)]  # noqa: SIM115
        try:
            return _fetch_all(port, topic, size_bytes, files if writes else None)
        finally:
            for file in files:
                file.close()


def _fetch_all(port: int, topic: str, size_bytes: int, files: list[FileIO] | None) -> float:
    offsets = [0] * PARTITIONS
    got = 0
    started = time.perf_counter()
    with WireClient(port) as client:
        while got < size_bytes:
            partitions = [
                FetchPartition(partition=index, fetch_offset=offset, partition_max_bytes=PARTITION_SIZE_BYTES_MAX)
                for index, offset in enumerate(offsets)
            ]
            request = FetchRequest(
                max_wait_ms=500,
                min_bytes=1,
                max_bytes=RESPONSE_SIZE_BYTES_MAX,
                topics=[FetchTopic(topic=topic, partitions=partitions)],
            )
            answer = client.ask(ApiKey.FETCH, FETCH_VERSION, request, FetchResponse)
            for row in answer.responses[0].partitions:
                records = cast(memoryview, row.records or b"")
                if files is not None:
                    files[row.partition_index].write(records)
                got += len(records)
                offsets[row.partition_index] += len(records) // len(BATCH) * RECORDS
    return got / (time.perf_counter() - started)


def move(admin: Admin, topic: str, size_bytes: int) -> float:
    """Bytes a second with which all of it comes to node 2."""
    partitions = [TopicPartition(topic, PartitionIndex(index)) for index in range(PARTITIONS)]
    started = time.perf_counter()
    outcomes = admin.alter_partition_reassignments({each: [2] for each in partitions})
    for outcome in outcomes.values():
        if outcome.error is not None:
            raise outcome.error
    while admin.list_partition_reassignments(partitions):
        time.sleep(LOOK_AGAIN_SECONDS)
    return size_bytes / (time.perf_counter() - started)


def configure(admin: Admin, kind: str, name: str, values: Mapping[str, str | None]) -> None:
    admin.alter_configs({ConfigResource(kind, name): dict(values)})  # type: ignore[arg-type]


def throttled(admin: Admin, topic: str, side: str, size_bytes: int) -> tuple[float, float]:
    """(the rate, bytes a second that were reached)."""
    rate = size_bytes // THROTTLED_SECONDS
    broker = "1" if side == "leader" else "2"
    configure(admin, "topic", topic, {f"{side}.replication.throttled.replicas": "*"})
    configure(admin, "broker", broker, {f"{side}.replication.throttled.rate": str(rate)})
    try:
        return rate, move(admin, topic, size_bytes)
    finally:
        configure(admin, "broker", broker, {f"{side}.replication.throttled.rate": None})


def main() -> None:
    with cluster() as nodes, Admin(nodes.bootstrap) as admin:
        port = nodes.nodes[1].port
        plain, written, moved = [], [], []
        for number in range(ROUNDS):
            topic = f"plain-{number}"
            size_bytes = fill(admin, port, topic, BYTES)
            plain.append(plain_fetch(port, topic, size_bytes, writes=False))
            plain_fetch(port, topic, size_bytes, writes=True)  # its files go: whoever writes next takes their memory
            os.sync()  # what waits for the disk slows whoever writes next
            written.append(plain_fetch(port, topic, size_bytes, writes=True))
            os.sync()
            moved.append(move(admin, topic, size_bytes))
            speeds = ", ".join(f"{each[-1] / MEGABYTE:.0f}" for each in (plain, written, moved))
            say(f"plain fetch, plain fetch to files, move: {speeds} MB/s")
            admin.delete_topics([topic])
        figure(
            "reassignment",
            median(moved) / MEGABYTE,
            "MB/s",
            peer="plain fetch to files",
            peer_value=median(written) / MEGABYTE,
            at_least=0.9,
            of_ratio=True,
        )
        figure("plain fetch without writing", median(plain) / MEGABYTE, "MB/s")
        for side in ("leader", "follower"):
            topic = f"throttled-{side}"
            rate, reached = throttled(admin, topic, side, fill(admin, port, topic, BYTES))
            say(f"throttled at the {side} to {rate / MEGABYTE:.1f} MB/s: {reached / MEGABYTE:.1f} MB/s")
            figure(
                f"reassignment throttled at the {side}",
                reached / MEGABYTE,
                "MB/s",
                peer="the rate that was set",
                peer_value=rate / MEGABYTE,
                at_least=0.9,
                of_ratio=True,
            )
            figure(f"excess over the throttle of the {side}", max(reached / rate - 1, 0), "of the rate", at_most=0.1)


if __name__ == "__main__":
    main()

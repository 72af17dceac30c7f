"""Consumer groups: commits on the wire, a start with a million committed offsets, and a rebalance of fifty members.

Commits are pipelined on one connection, one partition in each, and built beforehand, as a busy client would send them
over several. The offsets to load are written by the node itself, in requests of a thousand partitions.
"""

from __future__ import annotations

import socket
import time
from functools import partial
from typing import Any

from harness import (
    LONG,
    UpProcess,
    WireClient,
    cpu_seconds,
    figure,
    median,
    new_node,
    receive_exactly,
    resident_bytes,
    say,
)

from support.fixtures.waiting import wait_until
from support.load.group_member import (
    GroupMember,
    commit,
    commit_request,
    committed,
    committed_of,
    form,
    rebalance,
    wait_for_coordinator,
)
from tidelog.base.errors import Code
from tidelog.wire import ApiKey, decode, decode_response_header, encode_request
from tidelog.wire.messages.api_08_offset_commit import OffsetCommitResponse

COMMITS = 50_000 if LONG else 20_000
ROUNDS = 7 if LONG else 5
IN_FLIGHT = 32
VERSION = 7  # what librdkafka sends
TOPIC = "bench-groups"

OFFSETS = 1_000_000
GROUPS = 1_000
PARTITIONS = 1_000

MEMBERS = 50
NO_DELAY = {"group.initial.rebalance.delay.ms": "0"}


def commit_rate(port: int, group: str) -> float:
    """Commits per second of one partition each, with up to IN_FLIGHT of them unanswered."""
    built = []
    for number in range(COMMITS):
        request = commit_request(group, {(TOPIC, 0): number}, leader_epoch=0)
        pieces: list[Any] = encode_request(ApiKey.OFFSET_COMMIT, VERSION, number, "bench", request)
        built.append(b"".join(pieces))
    with socket.create_connection(("127.0.0.1", port), timeout=30) as stream:
        stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        started = time.perf_counter()
        for first in range(0, len(built), IN_FLIGHT):
            if first:
                receive(stream, IN_FLIGHT // 2)
            stream.sendall(b"".join(built[first : first + IN_FLIGHT]))
            receive(stream, min(IN_FLIGHT, len(built) - first) - IN_FLIGHT // 2)
        receive(stream, IN_FLIGHT // 2)
        return len(built) / (time.perf_counter() - started)


def receive(stream: socket.socket, count: int) -> None:
    """So many answers, each looked at."""
    for _ in range(count):
        frame = receive_exactly(stream, int.from_bytes(receive_exactly(stream, 4)))
        _, _, position = decode_response_header(frame, ApiKey.OFFSET_COMMIT, VERSION)
        assert bytes(frame[-2:]) == b"\0\0", decode(OffsetCommitResponse, frame, VERSION, position)


def bench_commits() -> None:
    rates, cpu = [], []
    with new_node() as node:
        with WireClient(node.port) as client:
            client.create_topic(TOPIC)
            wait_for_coordinator(client, "commits")
        for number in range(ROUNDS):
            before = cpu_seconds(node.pid)
            rates.append(commit_rate(node.port, "commits"))
            cpu.append((cpu_seconds(node.pid) - before) * 1e6 / COMMITS)
            say(f"round {number + 1}: {rates[-1]:,.0f} commits/s")
        with WireClient(node.port) as client:
            assert committed(client, "commits", TOPIC).committed_offset == COMMITS - 1
    figure("commits of one partition each", median(rates), "commits/s", at_least=10_000)
    figure("commits: CPU of the broker", median(cpu), "µs/commit")


def bench_load() -> None:
    """All in one partition of `__consumer_offsets`, so that one coordinator has them all."""
    with new_node({"offsets.topic.num.partitions": "1"}) as node:
        with WireClient(node.port, timeout_seconds=60) as client:
            client.create_topic(TOPIC, partitions=PARTITIONS)
            wait_for_coordinator(client, "load-0")
            for number in range(OFFSETS // PARTITIONS):
                offsets = {(TOPIC, partition): number for partition in range(PARTITIONS)}
                codes = commit(client, commit_request(f"load-{number % GROUPS}", offsets, leader_epoch=0))
                assert set(codes.values()) == {Code.NONE}
        before = resident_bytes(node.pid)
        node.stop()
        seconds, slowest = timed_load(node)
        after = resident_bytes(node.pid)
        with WireClient(node.port) as client:
            assert committed(client, f"load-{GROUPS - 1}", TOPIC, PARTITIONS - 1).committed_offset >= GROUPS - 1
    figure("load 1,000,000 committed offsets", seconds, "s from the start", at_most=10)
    figure("longest wait of another request meanwhile", slowest * 1000, "ms")
    figure("a coordinator of 1,000,000 offsets: memory", after / 1e6, "MB resident", note=f"{before / 1e6:.0f} written")


def timed_load(node: UpProcess) -> tuple[float, float]:
    """Seconds from the start of the process until the coordinator answers; the longest that metadata took meanwhile."""
    started = time.perf_counter()
    node.start()
    slowest = 0.0
    with WireClient(node.port) as client, WireClient(node.port) as other:
        while True:
            asked = time.perf_counter()
            other.describe_topic("bench-none")
            slowest = max(slowest, time.perf_counter() - asked)
            if not isinstance(committed_of(client, "load-0", {TOPIC: [0]}), Code):
                return time.perf_counter() - started, slowest


def bench_rebalance() -> None:
    """A member more in a stable group: everybody is told by heartbeat, joins again, and is given its part."""
    times = []
    with new_node(NO_DELAY) as node:
        with WireClient(node.port) as client:
            client.create_topic(TOPIC, partitions=MEMBERS)
            wait_for_coordinator(client, "rebalance")
        members = [GroupMember(node.port, "rebalance", session_timeout_ms=30_000) for _ in range(MEMBERS)]
        try:
            form(members[:-1])
            for number in range(ROUNDS):
                started = time.perf_counter()
                members[-1].take_id()
                members[-1].send_join()
                for member in members[:-1]:
                    wait_until(partial(is_told, member), "it is told to join again")
                rejoin(members)
                times.append(time.perf_counter() - started)
                say(f"round {number + 1}: {times[-1] * 1000:.1f} ms")
                assert members[-1].leave() == Code.NONE
                members[-1].member_id = ""
                rebalance(members[:-1])
        finally:
            for member in members:
                member.close()
    figure("rebalance of 50 members", median(times), "s", at_most=1)


def is_told(member: GroupMember) -> bool:
    return member.heartbeat() == Code.REBALANCE_IN_PROGRESS


def rejoin(members: list[GroupMember]) -> None:
    """As `rebalance`, where the last member has sent its part already."""
    for member in members[:-1]:
        member.send_join()
    for member in members:
        assert member.receive_join() == Code.NONE
    for member in members:
        member.send_sync({one: one.encode() for one in member.members} if member.is_leader else None)
    for member in members:
        assert member.receive_sync() == (Code.NONE, member.member_id.encode())


def main() -> None:
    bench_commits()
    bench_rebalance()
    bench_load()


if __name__ == "__main__":
    main()

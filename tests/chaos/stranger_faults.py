"""What a stranger who reaches a port can do without any right: slow frames, half frames, floods of topics, vast groups.

Nobody is fenced for it, the quorum keeps its leader, other clients are served, and the node's memory stays bounded.
"""

from __future__ import annotations

import contextlib
import socket
import struct
from collections.abc import Iterator
from pathlib import Path

from chaos.fault import Fault, Hurt, Stage
from support.clients.wire_client import WireClient
from support.nodes.cluster import ClusterNode
from tidelog.base.errors import TidelogError
from tidelog.client.admin.admin import Admin
from tidelog.client.admin.descriptions import NewTopic
from tidelog.wire import ApiKey
from tidelog.wire.messages.api_03_metadata import MetadataRequest, MetadataRequestTopic
from tidelog.wire.messages.api_11_join_group import JoinGroupRequest, JoinGroupRequestProtocol

RSS_BYTES_MAX = 512 << 20
FRAME_BYTES = (1 << 20, 13_500_000, 100_000_000)
HALF_FRAMES = 30
HALF_FRAME_BYTES = 60_000_000
FLOOD_TOPICS = (200, 1_000, 3_000)
TOPICS_AT_ONCE = 500
GROUPS = 40
METADATA_BYTES = 4_000_000
HEADER = struct.Struct(">hhih")
METADATA_VERSION, JOIN_VERSION = 12, 9


def send_tagged_fields(stage: Stage) -> Iterator[str]:
    """Headers of nothing but tagged fields, with ascending tags, to the ports of clients and of controllers."""
    node = stage.victim()
    size = stage.dice.choice(FRAME_BYTES)
    port = stage.dice.choice([node.port, node.controller_port])
    frame = tagged_header(size)
    yield f"{node}, port {port}, {len(frame)} bytes"
    _send(node, port, frame)
    stage.go_on()
    _check_memory(node)


def tagged_header(size_bytes: int) -> bytes:
    """A frame of Metadata whose header has empty tagged fields, each a tag above the last, in about that many bytes."""
    run = bytearray(128 * 5)  # tags that differ in their lowest seven bits: each a varint of four bytes, and no data
    run[0::5] = range(128, 256)
    fields, first = bytearray(), 1 << 14  # above tags that anybody knows
    count = -(-size_bytes // len(run))
    for above in range(first, first + count):
        run[1::5] = bytes([above & 127 | 128]) * 128
        run[2::5] = bytes([above >> 7 & 127 | 128]) * 128
        run[3::5] = bytes([above >> 14]) * 128
        fields += run
    header = HEADER.pack(ApiKey.METADATA, METADATA_VERSION, 1, -1) + _varint(128 * count) + fields
    return struct.pack(">i", len(header)) + header


def _varint(value: int) -> bytes:
    found = bytearray()
    while value > 127:
        found.append(value & 127 | 128)
        value >>= 7
    found.append(value)
    return bytes(found)


def half_send(stage: Stage) -> Iterator[str]:
    """Many connections that each send half of a large request, and stay."""
    node = stage.victim()
    frame = struct.pack(">i", HALF_FRAME_BYTES) + HEADER.pack(ApiKey.PRODUCE, 9, 1, -1) + b"\0"
    half = bytes(HALF_FRAME_BYTES // 2)
    with contextlib.ExitStack() as ends:
        with _until_it_takes_no_more():
            for _ in range(HALF_FRAMES):
                stream = ends.enter_context(socket.create_connection((node.host, node.port), timeout=2.0))
                stream.sendall(frame + half)
        yield f"{node}, {HALF_FRAMES} of {HALF_FRAME_BYTES // 2} bytes"
        stage.go_on()
        _check_memory(node)


def ask_for_topics(stage: Stage) -> Iterator[str]:
    """One request for metadata of thousands of topics that do not exist: each is to be made by itself."""
    node, names = stage.victim(), _names(stage)
    with _quorum_stays(stage):
        with contextlib.suppress(OSError), node.ask(node.port) as client:
            topics = [MetadataRequestTopic(name=name) for name in names]
            client.send(
                ApiKey.METADATA, METADATA_VERSION, MetadataRequest(topics=topics, allow_auto_topic_creation=True)
            )
            yield f"{node}, {len(names)} names"
        stage.go_on()
    _delete(stage)


def create_topics(stage: Stage) -> Iterator[str]:
    """An operator's script: thousands of topics, in large requests, and their deletion."""
    names = _names(stage)
    with _quorum_stays(stage), Admin(stage.cluster.bootstrap) as admin:
        for first in range(0, len(names), TOPICS_AT_ONCE):
            with contextlib.suppress(TidelogError):
                admin.create_topics([NewTopic(name, 1, 3) for name in names[first : first + TOPICS_AT_ONCE]])
        yield f"{len(names)} topics"
        stage.go_on()
    _delete(stage)


def join_with_much(stage: Stage) -> Iterator[str]:
    """Members of groups of their own, each with megabytes of metadata."""
    node = stage.victim()
    protocol = JoinGroupRequestProtocol(name="range", metadata=bytes(METADATA_BYTES))
    with contextlib.ExitStack() as ends:
        with _until_it_takes_no_more():
            for number in range(GROUPS):
                client = ends.enter_context(node.ask(node.port))
                client.send(
                    ApiKey.JOIN_GROUP,
                    JOIN_VERSION,
                    JoinGroupRequest(
                        group_id=f"stranger-{number}",
                        session_timeout_ms=10_000,
                        rebalance_timeout_ms=10_000,
                        group_instance_id=f"stranger-{number}",
                        protocol_type="consumer",
                        protocols=[protocol],
                    ),
                )
        yield f"{node}, {GROUPS} members of {METADATA_BYTES} bytes"
        stage.go_on()
        _check_memory(node)


def _until_it_takes_no_more() -> contextlib.AbstractContextManager[None]:
    """Ends at the first connection that fails.

    A node that is stopped (SIGSTOP) by the fault beside this one would have a stranger wait once for each connection.
    """
    return contextlib.suppress(OSError)


def _send(node: ClusterNode, port: int, data: bytes) -> None:
    """As much of it as the node takes."""
    with contextlib.suppress(OSError), WireClient(port, timeout_seconds=10.0, host=node.host) as client:
        client.stream.sendall(data)
        client.stream.recv(1)


def _names(stage: Stage) -> list[str]:
    return [f"stranger-{number}" for number in range(stage.dice.choice(FLOOD_TOPICS))]


@contextlib.contextmanager
def _quorum_stays(stage: Stage) -> Iterator[None]:
    """Raises AssertionError if the quorum has another leader, or the same in another epoch, in the end."""
    with Admin(stage.cluster.bootstrap) as admin:
        before = admin.describe_quorum()
        yield
        after = admin.describe_quorum()
    assert (before.leader_id, before.leader_epoch) == (after.leader_id, after.leader_epoch), (
        f"a request deposed a controller: {before} became {after}"
    )


def _delete(stage: Stage) -> None:
    with Admin(stage.cluster.bootstrap) as admin:
        names = [topic.name for topic in admin.list_topics() if topic.name.startswith("stranger-")]
        for first in range(0, len(names), TOPICS_AT_ONCE):
            admin.delete_topics(names[first : first + TOPICS_AT_ONCE])


def _check_memory(node: ClusterNode) -> None:
    """Of the moment: what was let go is no harm, nor is a node that another fault has killed."""
    if not node.is_running:
        return
    found = dict(line.split(":", 1) for line in Path(f"/proc/{node.pid}/status").read_text().splitlines())
    rss_bytes = int(found["VmRSS"].split()[0]) * 1024
    assert rss_bytes <= RSS_BYTES_MAX, f"{node} has {rss_bytes} bytes in memory"


FAULTS = tuple(
    Fault(kind=kind, strike=strike, hurts=Hurt.STRANGER, seconds=seconds, is_alone=is_alone)
    for kind, strike, seconds, is_alone in (
        ("headers of tagged fields", send_tagged_fields, (0.0, 3.0), False),
        ("half-sent frames", half_send, (0.5, 5.0), False),
        ("flood of unknown topics", ask_for_topics, (0.5, 5.0), True),
        ("flood of new topics", create_topics, (0.0, 2.0), True),
        ("members with much metadata", join_with_much, (0.5, 5.0), False),
    )
)

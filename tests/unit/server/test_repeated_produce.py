"""A Produce that repeats another is served as if each had been decoded, whatever happens between the two.

The same story is told to a node that knows requests by their form, and to one that decodes each: what is written on
every connection, the logs, the producers and what is counted are compared.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Callable, Coroutine
from contextlib import suppress
from struct import pack_into
from typing import Any, NamedTuple
from uuid import UUID

import pytest

from support.clients.token_client import OneNode, play
from support.clients.wire_client import batch_of
from support.fixtures.heard_connection import Peer, framed
from tidelog.base.errors import Code, KafkaError
from tidelog.base.ids import PartitionIndex, TopicPartition
from tidelog.controller import (
    ConfigChange,
    ConfigOperation,
    ConfigsToAlter,
    TopicToCreate,
    TopicToDelete,
)
from tidelog.metadata import ResourceKey, ResourceType
from tidelog.records.crc32c import crc32c
from tidelog.server.api import dispatch
from tidelog.server.api.repeated_produce import RepeatedProduce
from tidelog.server.settings.metrics import RequestMetrics
from tidelog.wire import ApiKey, ConsistencyState, compiled_split_produce, decode, decode_response_header
from tidelog.wire.messages.api_00_produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from tidelog.wire.messages.api_02_list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic

pytestmark = pytest.mark.skipif(compiled_split_produce is None, reason="the kernel is not compiled")

TOPICS = ("flights", "delays")
ZERO = UUID(int=0)
BY_ID_SINCE = 13
STEPS = 120
PLAIN = 20


def topic_id(one: OneNode, name: str) -> UUID:
    return one.node.image.topics_by_name[name].topic_id


def by_id(number: int, batch: bytes, wanted: UUID, *, acks: int = 1) -> bytes:
    data = [TopicProduceData(topic_id=wanted, partition_data=[PartitionProduceData(0, batch)])]
    return framed(number, ProduceRequest(acks=acks, timeout_ms=1_000, topic_data=data), version=BY_ID_SINCE)


async def settled(*peers: Peer) -> None:
    """Return once all is answered that came."""
    while any(peer.connection.is_waiting or peer.connection._turn.resting is not None for peer in peers):
        await asyncio.sleep(0.001)


def answers(peer: Peer) -> list[ProduceResponse]:
    """All of version 13."""
    found, written = [], memoryview(bytes(peer.transport.written))
    while written:
        size = int.from_bytes(written[:4])
        frame = written[4 : 4 + size]
        _, _, position = decode_response_header(frame, ApiKey.PRODUCE, BY_ID_SINCE)
        found.append(decode(ProduceResponse, frame, BY_ID_SINCE, position))
        written = written[4 + size :]
    return found


# What happens between two requests.


async def alter(one: OneNode, topic: str, key: str, value: str | None) -> None:
    operation = ConfigOperation.DELETE if value is None else ConfigOperation.SET
    wanted = ConfigsToAlter(ResourceKey(ResourceType.TOPIC, topic), (ConfigChange(key, operation, value),))
    (altered,) = await one.node.controller.request(lambda state: state.decide_alter_configs([wanted]))
    assert altered.code == Code.NONE, altered.message
    await one.node.caught_up()


async def delete(one: OneNode, topic: str) -> None:
    await one.node.controller.request(lambda state: state.decide_delete_topics([TopicToDelete(topic)]))
    await one.node.caught_up()


async def make(one: OneNode, topic: str) -> None:
    await one.node.create_topics([TopicToCreate(topic, 1, 1)])


SETTINGS = (
    ("max.message.bytes", "150"),
    ("message.timestamp.type", "LogAppendTime"),
    ("compression.type", "zstd"),
    ("min.insync.replicas", "2"),
    ("cleanup.policy", "compact"),
    ("flush.messages", "1"),
    ("message.timestamp.before.max.ms", "1000"),
    ("message.timestamp.after.max.ms", "1000"),
    ("segment.bytes", "1048576"),
)


async def change(one: OneNode, rng: random.Random) -> None:
    """Something that a request which is known by its form must not miss."""
    topic, kind = rng.choice(TOPICS), rng.randrange(8)
    known = one.node.image.topics_by_name.get(topic)
    partition = one.node.broker.replica_of(TopicPartition(topic, PartitionIndex(0)))
    if known is None:
        await make(one, topic)
    elif partition is None or partition.replica is None:
        await delete(one, topic)
    elif kind < 4:
        key, value = rng.choice(SETTINGS)
        await alter(one, topic, key, value)
        if rng.randrange(2):
            await alter(one, topic, key, None)
    elif kind == 4:
        await delete(one, topic)
        if rng.randrange(2):
            await make(one, topic)
    elif kind == 5:
        with suppress(KafkaError):  # compaction alone removes its records
            partition.delete_records(None)
    elif kind == 6:
        partition.stop()
    else:
        await asyncio.sleep(1)


# What comes.


def doctored(batch: bytes, at: int, layout: str, value: int) -> bytes:
    """With another value in its header, and the checksum of that."""
    changed = bytearray(batch)
    pack_into(layout, changed, at, value)
    pack_into(">I", changed, 17, crc32c(memoryview(changed)[21:]))
    return bytes(changed)


def any_batch(rng: random.Random, sequences: Counter[tuple[str, int]], topic: str, now_ms: int) -> bytes:
    kind = rng.randrange(48)
    plain = batch_of(*[b"%d" % rng.randrange(100)] * rng.choice((1, 1, 2, 9)), timestamp_ms=now_ms)
    if kind < 8 or kind > 32:
        producer = rng.randrange(2)
        sequence = sequences[topic, producer]
        sequences[topic, producer] += 1
        if kind == 6:
            sequence = max(sequence - rng.randrange(8), 0)
        return batch_of(
            b"x",
            producer=(4_000 + producer, rng.randrange(30) // 29),
            base_sequence=sequence + (kind == 7),
            timestamp_ms=now_ms,
        )
    if kind == 8:
        return plain[:-1] + bytes([plain[-1] ^ 1])
    if kind == 9:
        return plain[: rng.randrange(1, len(plain))]
    if kind == 10:
        return plain * 2
    if kind == 11:
        return batch_of(*[b"x"] * 20, compression=rng.choice(("gzip", "zstd", "lz4", "snappy")), timestamp_ms=now_ms)
    if kind == 12:
        return batch_of(b"y", producer=(5_000, 0), base_sequence=0, transactional=True, timestamp_ms=now_ms)
    if kind == 13:
        at, layout, values = rng.choice(
            (
                (0, ">q", (1, -1)),  # base offset
                (12, ">i", (7,)),  # leader epoch
                (16, ">b", (0, 1, 3)),  # magic
                (21, ">h", (8, 0x20, 0x40, 5)),  # attributes
                (23, ">i", (-1, 3)),  # last offset delta
                (35, ">q", (-1, 0, now_ms + 10**9)),  # largest timestamp
                (43, ">q", (-2, 9)),  # producer id
                (57, ">i", (0, 2, -1)),  # record count
            )
        )
        return doctored(plain, at, layout, rng.choice(values))
    if kind == 14:
        return batch_of(b"late", timestamp_ms=now_ms + rng.choice((-(10**7), 10**7)))
    return plain


def any_request(
    one: OneNode,
    rng: random.Random,
    number: int,
    sequences: Counter[tuple[str, int]],
    now_ms: int,
    *,
    is_plain: bool,
) -> bytes:
    topic, kind = rng.choice(TOPICS), PLAIN if is_plain else rng.randrange(40)
    version = rng.choice((9, 13)) if is_plain else rng.choice((7, 9, 12, 13))
    known = one.node.image.topics_by_name.get(topic)
    wanted = ZERO if known is None else known.topic_id
    if kind == 0:
        rows = [ListOffsetsTopic(name=topic, partitions=[ListOffsetsPartition(partition_index=0, timestamp=-1)])]
        return framed(number, ListOffsetsRequest(replica_id=-1, topics=rows), ApiKey.LIST_OFFSETS, 7)
    index = 1 if kind == 1 else 0
    partitions = [PartitionProduceData(index, any_batch(rng, sequences, topic, now_ms))]
    if kind == 2:
        partitions.append(PartitionProduceData(0, any_batch(rng, sequences, topic, now_ms)))
    data = TopicProduceData(name=topic, topic_id=wanted, partition_data=partitions)
    if kind == 3:
        data.name, data.topic_id = "__consumer_offsets", UUID(int=rng.randrange(2))
    acks = rng.choice((1, 1, 1, -1))
    if kind == 4:
        acks = rng.choice((0, 2, -2))
    request = ProduceRequest(acks=acks, timeout_ms=500 if kind < 35 else rng.choice((0, -1)), topic_data=[data])
    if kind == 5:
        request.transactional_id = rng.choice(("", "t"))
    client_id = "tests" if kind > 3 else rng.choice(("other", "__admin_client", ""))
    state = ConsistencyState(one.node.cluster_id, 0) if kind == 6 and version >= 9 else None
    frame = bytearray(framed(number, request, version=version, client_id=client_id, state=state))
    if kind == 7:
        frame += b"\0"
        pack_into(">i", frame, 0, len(frame) - 4)
    if kind == 8:
        frame[rng.randrange(4, 40)] ^= 1 << rng.randrange(8)
    return bytes(frame)


class Seen(NamedTuple):
    """All that a story leaves behind."""

    written: list[tuple[bytes, bool]]
    stored: list[bytes]
    producers: list[str]
    counted: dict[int, tuple[int, int, dict[int, int]]]
    produced: list[tuple[int, int]]


async def told(one: OneNode, seed: int) -> Seen:
    rng, sequences, metrics = random.Random(seed), Counter[tuple[str, int]](), RequestMetrics()
    clock = one.simulated.machine.clock
    first = Peer(one, metrics)
    peers = every = [first, Peer(one, metrics, beside=first)]
    for step in range(STEPS):
        if rng.randrange(3) == 0:
            await change(one, rng)
        peer = rng.choice(peers)
        now_ms = clock.wall_ms()
        is_plain = rng.randrange(3) > 0
        frames = [
            any_request(one, rng, 100 * step + number, sequences, now_ms, is_plain=is_plain)
            for number in range(rng.choice((1, 2, 12)))
        ]
        peer.hear(*frames)
        await settled(*peers)
        if peer.transport.is_closed:
            peer.connection.connection_lost(None)
            anew = Peer(one, metrics, beside=peer)
            peers = [anew if other is peer else other for other in peers]
            every = [*every, anew]
    stored, producers, produced = [], [], []
    for partition in one.node.broker.partitions:
        files = [segment.file for segment in partition.log.segments]
        stored.append(b"".join(bytes(file.read_at(0, file.size())) for file in files))
        producers.append(repr([partition.log.producers.get(id_) for id_ in (4_000, 4_001, 5_000)]))
        produced.append((partition.produced_batches, partition.produced_bytes))
    counted = {
        version: (times.count, times.unanswered, times.errors)
        for version, times in metrics.by_api[ApiKey.PRODUCE][1].items()
    }
    return Seen(
        [(bytes(x.transport.written), x.transport.is_closed) for x in every], stored, producers, counted, produced
    )


def seen(seed: int) -> Seen:
    found: list[Seen] = []

    async def story(one: OneNode) -> None:
        async def run() -> None:
            found.append(await told(one, seed))

        await one.make("delays")
        await one.simulated.machine.do(run)

    play(story)
    return found[0]


@pytest.mark.parametrize("seed", range(6))
def test_known_by_its_form_or_decoded_each_is_served_alike(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    taken = Counter[bool]()
    take = RepeatedProduce.take

    def counting(*args: Any) -> Any:
        run = take(*args)
        taken[run is not None] += 1
        return run

    monkeypatch.setattr(RepeatedProduce, "take", counting)
    by_form = seen(seed)
    assert taken[True] > STEPS // 4
    monkeypatch.setattr(dispatch, "compiled_split_produce", None)
    taken.clear()
    decoded = seen(seed)
    assert not taken
    for one, other in zip(by_form, decoded, strict=True):
        assert one == other


def told_alone(story: Callable[[OneNode], Coroutine[Any, Any, None]]) -> None:
    async def run(one: OneNode) -> None:
        await one.simulated.machine.do(lambda: story(one))

    play(run)


@pytest.mark.parametrize("acks", [1, -1])
def test_requests_that_name_a_topic_by_its_id_are_known_too(acks: int, monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(one: OneNode) -> None:
        wanted = topic_id(one, "flights")
        peer = Peer(one)
        for number in range(2):
            peer.hear(by_id(number, batch_of(b"x"), wanted, acks=acks))
        monkeypatch.setattr(dispatch, "decode", None)
        peer.hear(*(by_id(number, batch_of(b"y"), wanted, acks=acks) for number in range(2, 6)))
        peer.hear(by_id(6, batch_of(b"z"), wanted, acks=acks))
        found = [(answer.responses[0].topic_id, answer.responses[0].partition_responses[0]) for answer in answers(peer)]
        assert [(id_, row.error_code, row.base_offset) for id_, row in found] == [(wanted, 0, n) for n in range(7)]

    told_alone(story)


def test_the_id_of_a_topic_that_was_deleted_reaches_no_other_of_its_name() -> None:
    async def story(one: OneNode) -> None:
        old = topic_id(one, "flights")
        peer = Peer(one)
        for number in range(3):
            peer.hear(by_id(number, batch_of(b"x"), old))
        await delete(one, "flights")
        peer.hear(by_id(3, batch_of(b"gone"), old))
        await one.node.create_topics([TopicToCreate("flights", 1, 1)])
        new = topic_id(one, "flights")
        assert new != old
        for number in range(4, 7):
            peer.hear(by_id(number, batch_of(b"gone"), old), by_id(number, batch_of(b"y"), new))
        rows = [answer.responses[0].partition_responses[0] for answer in answers(peer)]
        assert [(row.error_code, row.base_offset) for row in rows] == [
            *((0, number) for number in range(3)),
            (Code.UNKNOWN_TOPIC_ID, -1),
            *((Code.UNKNOWN_TOPIC_ID, -1), (0, 0)),
            *((Code.UNKNOWN_TOPIC_ID, -1), (0, 1)),
            *((Code.UNKNOWN_TOPIC_ID, -1), (0, 2)),
        ]
        assert peer.partition("flights").log.log_end_offset == 3

    told_alone(story)

"""Files of a partition that crashes and disks leave behind: everything before the damage is served, and appends go on.

Each damage has a topic of its own, so that one start of the node meets all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from support.clients.wire_client import WireClient, batch_of
from support.fixtures.doctored import FIELDS
from support.fixtures.log_files import append, batches, change, cut, last_segment, partition_dir
from support.fixtures.waiting import wait_until
from support.nodes.node import NodeProcess
from tidelog.base.errors import Code
from tidelog.client.admin.admin import Admin
from tidelog.wire.messages.api_02_list_offsets import MAX_TIMESTAMP

BATCHES, PER_BATCH = 6, 10
COUNT = BATCHES * PER_BATCH
START_MS = 1_700_000_000_000
SEGMENT_BYTES = 1_200
"""Two batches a segment, so that there are older ones."""

Damage = Callable[[Path, Path], object]
"""What is done to a partition: (its directory, its last segment)."""


@dataclass(frozen=True)
class Case:
    """A damage, and what is left of COUNT records."""

    damage: Damage
    survivors: int = COUNT
    said: str = ""
    """Part of what the log says about this partition; empty: it need not say anything."""


def last_batch(log: Path) -> int:
    """Where the last batch of a segment starts."""
    return batches(log)[-1][0]


def torn(size_left: int) -> Case:
    """The last batch is cut so that this many of its bytes are left; from its end if negative."""

    def damage(_: Path, log: Path) -> None:
        position, header = batches(log)[-1]
        cut(log, position + (size_left if size_left >= 0 else header.size_bytes + size_left))

    return Case(damage, COUNT - PER_BATCH, "cut off" if size_left else "")


def flipped(position: int) -> Case:
    """A bit of the last batch is another one."""
    return Case(
        lambda _, log: change(log, last_batch(log) + position, lambda byte: byte ^ 0x10), COUNT - PER_BATCH, "cut off"
    )


def garbled(name: str, data: bytes) -> Damage:
    """Every file of the partition that matches `name` holds `data` instead."""

    def damage(directory: Path, _: Path) -> None:
        found = list(directory.glob(name))
        assert found, f"there is no {name}"
        for path in found:
            path.write_bytes(data)

    return damage


def longer(name: str, data: bytes) -> Damage:
    def damage(directory: Path, _: Path) -> None:
        for path in directory.glob(name):
            append(path, data)

    return damage


def missing(name: str) -> Damage:
    def damage(directory: Path, _: Path) -> None:
        found = list(directory.glob(name))
        assert found, f"there is no {name}"
        for path in found:
            path.unlink()

    return damage


def repeated_batch(_: Path, log: Path) -> None:
    append(log, log.read_bytes()[last_batch(log) :])


def zeroed_last_batch(_: Path, log: Path) -> None:
    position, header = batches(log)[-1]
    cut(log, position)
    cut(log, position + header.size_bytes)


def zeroed_from_within_last_batch(_: Path, log: Path) -> None:
    position, header = batches(log)[-1]
    cut(log, position + 100)
    cut(log, position + header.size_bytes)


def damaged_older_segment(directory: Path, _: Path) -> None:
    first = min(directory.glob("*.log"))
    change(first, batches(first)[1][0] + 80, lambda byte: byte ^ 1)


# After a kill. Nothing was synced, so recovery reads everything.
AFTER_KILL: dict[str, Case] = {
    "nothing": Case(lambda *_: None),
    "torn at its very start": torn(0),
    "torn after one byte": torn(1),
    "torn in the base offset": torn(7),
    "torn after the length": torn(12),
    "torn in the header": torn(30),
    "torn after the header": torn(61),
    "torn in the records": torn(100),
    "torn at the last byte": torn(-1),
    **{f"a flipped bit in the {name}": flipped(position) for name, (position, _) in FIELDS.items()},
    "a flipped bit in the crc": flipped(19),
    "a flipped bit in a record": flipped(90),
    "a zero-filled tail": Case(lambda _, log: cut(log, log.stat().st_size + 4_096), said="cut off"),
    "one zero too many": Case(lambda _, log: append(log, b"\0"), said="cut off"),
    "a tail of garbage": Case(lambda _, log: append(log, bytes(range(1, 200))), said="cut off"),
    "the last batch zeroed": Case(zeroed_last_batch, COUNT - PER_BATCH, "cut off"),
    "the last batch zeroed in part": Case(zeroed_from_within_last_batch, COUNT - PER_BATCH, "cut off"),
    "the last batch twice": Case(repeated_batch, said="cut off"),
    "a flipped bit long before the end": Case(damaged_older_segment, PER_BATCH, "cut off"),
    "the last segment empty": Case(lambda _, log: cut(log, 0), COUNT - 2 * PER_BATCH),
    "no offset indexes": Case(missing("*.index")),
    "no time indexes": Case(missing("*.timeindex")),
    "offset indexes too long": Case(longer("*.index", bytes(10_000))),
    "time indexes of garbage": Case(longer("*.timeindex", b"garbage!" * 100)),
    "no leader epochs": Case(missing("leader-epoch-checkpoint"), said="leader epoch"),
    "garbled leader epochs": Case(garbled("leader-epoch-checkpoint", b"0\nmany\nx y\n"), said="leader epoch"),
    "leader epochs cut short": Case(garbled("leader-epoch-checkpoint", b"0\n3\n0 0\n"), said="leader epoch"),
    "empty leader epochs": Case(garbled("leader-epoch-checkpoint", b""), said="leader epoch"),
    "a leader epoch beyond the end": Case(
        garbled("leader-epoch-checkpoint", b"0\n2\n0 0\n1 100000\n"), said="beyond the log end"
    ),
    "no producer snapshots": Case(missing("*.snapshot")),
    "garbled producer snapshots": Case(garbled("*.snapshot", b"not a snapshot"), said="snapshot"),
    "empty producer snapshots": Case(garbled("*.snapshot", b""), said="snapshot"),
    "no partition.metadata": Case(missing("partition.metadata")),
    "files of something unfinished": Case(
        lambda directory, _: [
            (directory / name).write_bytes(b"x")
            for name in ("leader-epoch-checkpoint.tmp", "00000000000000000099.log.deleted")
        ]
    ),
    "an index without its log": Case(lambda directory, _: (directory / f"{10**6:020}.index").write_bytes(bytes(8))),
}

# After a clean stop. Nothing is scanned then; what can be seen without that is seen to.
AFTER_STOP: dict[str, Case] = {
    "nothing": Case(lambda *_: None),
    "no offset indexes": Case(missing("*.index"), said="index"),
    "no time indexes": Case(missing("*.timeindex"), said="index"),
    "offset indexes too long": Case(longer("*.index", b"\x7f" * 800), said="index"),
    "time indexes too long": Case(longer("*.timeindex", b"\x7f" * 1_200), said="index"),
    "offset indexes of odd size": Case(longer("*.index", b"odd"), said="index"),
    "garbled offset indexes": Case(garbled("*.index", b"\xff" * 80), said="index"),
    "garbled time indexes": Case(garbled("*.timeindex", b"\xff" * 120), said="index"),
    "no leader epochs": Case(missing("leader-epoch-checkpoint"), said="leader epoch"),
    "garbled leader epochs": Case(garbled("leader-epoch-checkpoint", b"0\n1\n7\n"), said="leader epoch"),
    "no producer snapshots": Case(missing("*.snapshot")),
    "garbled producer snapshots": Case(garbled("*.snapshot", b"\0\1\xff\xff\xff\xff"), said="snapshot"),
    "a tail of garbage": Case(lambda _, log: append(log, bytes(range(1, 200))), said="cut off"),
    "a zero-filled tail": Case(lambda _, log: cut(log, log.stat().st_size + 4_096), said="cut off"),
    "torn in the header": torn(30),
    "torn in the records": torn(100),
}

PARTITION_METADATA_GARBLED = "damaged-logs-offline"
NO_LOG_LEFT = "damaged-logs-gone"


def topic_of(phase: str, name: str) -> str:
    return f"damaged-{phase}-{name.replace(' ', '-')}"


@dataclass
class Damaged:
    """A node that was damaged, and is up again."""

    node: NodeProcess
    producers: dict[str, tuple[int, int]]
    said: str


def fill(node: NodeProcess, topics: list[str]) -> dict[str, tuple[int, int]]:
    """COUNT records in each topic, by an idempotent producer each, a second between records."""
    producers = {}
    with WireClient(node.port) as client:
        for topic in topics:
            created = client.create_topic(
                topic, configs={"segment.bytes": str(SEGMENT_BYTES), "index.interval.bytes": "1"}
            )
            assert created.error_code == 0, created.error_message
            producers[topic] = client.new_producer_id()
            for number in range(BATCHES):
                first = number * PER_BATCH
                values = [b"value %d of a record that is long enough" % i for i in range(first, first + PER_BATCH)]
                batch = batch_of(*values, timestamp_ms=START_MS + first, producer=producers[topic], base_sequence=first)
                row = client.produce(topic, batch)
                assert (row.error_code, row.base_offset) == (0, first), row.error_message
    return producers


def damage(node: NodeProcess, phase: str, cases: dict[str, Case]) -> None:
    for name, case in cases.items():
        topic = topic_of(phase, name)
        case.damage(partition_dir(node, topic), last_segment(node, topic))


@pytest.fixture(scope="module")
def after_kill(start_node: Callable[..., NodeProcess]) -> Iterator[Damaged]:
    node = start_node()
    producers = fill(node, [*(topic_of("kill", name) for name in AFTER_KILL), PARTITION_METADATA_GARBLED, NO_LOG_LEFT])
    node.kill()
    damage(node, "kill", AFTER_KILL)
    garbled("partition.metadata", b"version: 0\ntopic_id: ?\n")(partition_dir(node, PARTITION_METADATA_GARBLED), Path())
    missing("*.log")(partition_dir(node, NO_LOG_LEFT), Path())
    before = len(node.log)
    node.restart()
    yield Damaged(node, producers, node.log[before:])
    node.close()


@pytest.fixture(scope="module")
def after_stop(start_node: Callable[..., NodeProcess]) -> Iterator[Damaged]:
    node = start_node()
    producers = fill(node, [topic_of("stop", name) for name in AFTER_STOP])
    node.stop()
    damage(node, "stop", AFTER_STOP)
    before = len(node.log)
    node.restart()
    yield Damaged(node, producers, node.log[before:])
    node.close()


@pytest.mark.parametrize("name", AFTER_KILL)
def test_a_partition_damaged_while_the_node_was_killed(after_kill: Damaged, name: str) -> None:
    check(after_kill, topic_of("kill", name), AFTER_KILL[name])


@pytest.mark.parametrize("name", AFTER_STOP)
def test_a_partition_damaged_while_the_node_was_stopped(after_stop: Damaged, name: str) -> None:
    check(after_stop, topic_of("stop", name), AFTER_STOP[name])


def check(damaged: Damaged, topic: str, case: Case) -> None:
    left = case.survivors
    said = [line for line in damaged.said.splitlines() if f"{topic}-0" in line]
    if case.said:
        assert any(case.said in line for line in said), said
    if left == COUNT:
        assert not [line for line in said if "cut off" in line] or case.said == "cut off", said
    with WireClient(damaged.node.port) as client:
        # Everything before the damage, from the first offset and from any other.
        assert client.log_end_offset(topic) == left
        values = [record.value for record in client.read_all(topic)]
        assert values == [b"value %d of a record that is long enough" % i for i in range(left)]
        for offset in range(0, left, 7):
            first = client.read_all(topic, start=offset)[0]
            assert (first.offset, first.timestamp) == (offset, START_MS + offset)
            assert client.list_offset(topic, START_MS + offset).offset == offset
        assert client.list_offset(topic, START_MS + left).offset == -1
        assert client.list_offset(topic, MAX_TIMESTAMP).offset == left - 1
        assert Code(client.fetch(topic, left + 1).error_code) is Code.OFFSET_OUT_OF_RANGE
        # The leader epochs of what is left, and an epoch of its own for what comes.
        described = client.describe_topic(topic).partitions[0]
        if left:
            written_in = client.read_all(topic, start=left - 1)[0].leader_epoch
            assert client.end_of_epoch(topic, written_in).end_offset == left
            assert described.leader_epoch > written_in
        # The producers of what is left.
        producer = damaged.producers[topic]
        if left:
            last = batch_of(*[b"again"] * PER_BATCH, producer=producer, base_sequence=left - PER_BATCH)
            assert client.produce(topic, last).base_offset == left - PER_BATCH, "a duplicate is not known as one"
        next_batch = batch_of(*[b"next"] * 3, producer=producer, base_sequence=left)
        row = client.produce(topic, next_batch)
        assert (row.error_code, row.base_offset) == (0, left), row.error_message
        (found, *_) = client.read_all(topic, start=left)
        assert (found.offset, found.value, found.leader_epoch) == (left, b"next", described.leader_epoch)


def test_a_partition_that_cannot_be_told_whose_it_is_goes_offline_alone(after_kill: Damaged) -> None:
    topic = PARTITION_METADATA_GARBLED
    with WireClient(after_kill.node.port) as client:
        assert Code(client.produce(topic, batch_of(b"x")).error_code) is Code.KAFKA_STORAGE_ERROR
        assert Code(client.fetch(topic, 0).error_code) is Code.KAFKA_STORAGE_ERROR
    assert any(f"{topic}-0" in line and "partition.metadata" in line for line in after_kill.said.splitlines())


def test_of_an_only_replica_without_a_log_nobody_makes_another_unasked(after_kill: Damaged) -> None:
    topic = NO_LOG_LEFT
    assert any(f"{topic}-0: A REPLICA IS LOST" in line for line in after_kill.said.splitlines())
    with WireClient(after_kill.node.port) as client:
        before = client.describe_topic(topic).partitions[0]
        assert before.leader_id == -1
        assert Code(client.produce(topic, batch_of(b"x")).error_code) is Code.NOT_LEADER_OR_FOLLOWER
    with Admin(after_kill.node.bootstrap) as admin:
        wait_until(lambda: all(one is None for one in admin.elect_leaders("unclean").values()), lambda: "not elected")
    with WireClient(after_kill.node.port) as client:
        after = client.describe_topic(topic).partitions[0]
        assert (after.leader_id, after.leader_epoch) == (1, before.leader_epoch + 1)
        assert client.produce(topic, batch_of(b"x")).base_offset == 0


def test_what_was_damaged_stays_mended(after_kill: Damaged) -> None:
    """After another clean start there is nothing left to say, and the same records are there."""
    node = after_kill.node
    ends = {}
    with WireClient(node.port) as client:
        for name in AFTER_KILL:
            ends[name] = client.log_end_offset(topic_of("kill", name))
    node.kill()
    node.restart()
    node.stop()
    before = len(node.log)
    node.restart()
    with WireClient(node.port) as client:
        for name, end_offset in ends.items():
            assert client.log_end_offset(topic_of("kill", name)) == end_offset
    said = [line for line in node.log[before:].splitlines() if "WARNING" in line and "damaged-kill" in line]
    assert not said

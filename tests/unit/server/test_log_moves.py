"""A replica is moved from one log directory of its node to another while it is served, on a disk in memory."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable
from functools import partial
from uuid import UUID

import pytest

from support.clients.wire_client import batch_of
from support.fixtures.memory_disk import MemoryDisk
from support.fixtures.waiting import until
from tidelog.base.errors import Code
from tidelog.base.ids import LeaderEpoch, Offset, PartitionIndex, TopicPartition
from tidelog.base.losses import LossId, ReplicaFate, ReplicaLoss
from tidelog.controller import ConfigChange, ConfigsToAlter, TopicToDelete
from tidelog.log import Log
from tidelog.log.lost_records import LostTail, keep_lost_tail, kept_files
from tidelog.metadata import ResourceKey, ResourceType
from tidelog.replica import Truncation
from tidelog.server.api.handlers import api_34_alter_replica_log_dirs
from tidelog.server.node import Node
from tidelog.server.replication.replication_throttles import Limit
from tidelog.server.transport.turns import TURN_SIZE
from tidelog.wire import ApiKey
from tidelog.wire.messages.api_34_alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirTopic,
)
from unit.server.test_several_directories import (
    context,
    create,
    describe,
    directory_of,
    produce,
    run,
    started,
)

TOPIC = "flights"
PARTITION = TopicPartition(TOPIC, PartitionIndex(0))
ALTER_VERSION = 2
SET = 0
SECONDS_MAX = 60.0
EPOCH = LeaderEpoch(4)


async def alter(node: Node, to: str, *partitions: int, topic: str = TOPIC) -> list[Code]:
    """Ask for a directory as a client does."""
    path = os.path.abspath(to)
    directory = AlterReplicaLogDir(path, [AlterReplicaLogDirTopic(topic, list(partitions))])
    request = AlterReplicaLogDirsRequest(dirs=[directory])
    handled = api_34_alter_replica_log_dirs.handle(node, request, context(ApiKey.ALTER_REPLICA_LOG_DIRS, ALTER_VERSION))
    return [Code(row.error_code) for result in (await handled).results for row in result.partitions]


async def turns_during(work: Awaitable[object]) -> int:
    """How often others had their turn meanwhile."""
    doing, turns = asyncio.ensure_future(work), 0
    while not doing.done():
        await asyncio.sleep(0)
        turns += 1
    await doing
    return turns


async def moved(node: Node, to: str, index: int = 0) -> None:
    """Return when it lies there, and nothing is left of the move."""
    await until(lambda: directory_of(node, TOPIC, index) == to and not node.broker.moves._moves)


def told_of(node: Node) -> tuple[UUID, ...]:
    """Where the metadata says that the partition lies."""
    state = node.image.partition(*PARTITION)
    return () if state is None else state.directories


def other_than(node: Node, index: int = 0) -> str:
    return "b" if directory_of(node, TOPIC, index) == "a" else "a"


def values_of(log: Log) -> list[tuple[int, bytes]]:
    data, offset = b"", log.log_start_offset
    while offset < log.log_end_offset:
        found = log.read(offset, size_bytes_max=1 << 20, end_offset=log.log_end_offset)
        data += found.read_all()
        offset = found.next_offset
    return [(log.log_start_offset, data)]


async def fill(node: Node, count: int, *, size: int = 100) -> None:
    for number in range(count):
        assert await produce(node, TOPIC, 0, b"%d-" % number + b"x" * size) == Code.NONE


async def holding(count: int, disk: MemoryDisk | None = None, directories: str = "a,b") -> Node:
    """A node with as many records in one partition, which lies in one of its directories."""
    node = await started(disk or MemoryDisk(), directories)
    await create(node, TOPIC, 1)
    await fill(node, count)
    return node


async def configure(node: Node, kind: ResourceType, name: str, **values: str) -> None:
    changes = [ConfigChange(key.replace("_", "."), SET, value) for key, value in values.items()]
    resource = ResourceKey(kind, name)
    (altered,) = await node.controller.request(
        lambda state: state.decide_alter_configs([ConfigsToAlter(resource, changes)])
    )
    assert altered.code == Code.NONE, altered.message
    await node.caught_up()


def files_of(disk: MemoryDisk, directory: str) -> list[str]:
    return [name for name in disk.list(directory) if name.startswith(TOPIC) and not name.endswith("-delete")]


def test_it_is_served_from_its_new_directory_with_all_that_it_held() -> None:
    async def scenario() -> None:
        node = await holding(20, disk := MemoryDisk())
        partition = node.broker.partition(TOPIC, 0)
        former, source, target = partition.log, directory_of(node, TOPIC, 0), other_than(node)
        before = values_of(former), former.lineage.entries, former.log_end_offset
        assert await alter(node, target, 0) == [Code.NONE]
        await moved(node, target)
        log = partition.log
        assert log is not former
        assert (values_of(log), log.lineage.entries, log.log_end_offset) == before
        assert await produce(node, TOPIC, 0, b"after") == Code.NONE
        assert partition.high_watermark == 21
        assert files_of(disk, source) == []
        assert files_of(disk, target) == [f"{TOPIC}-0"]
        assert "future-log" not in disk.list(f"{target}/{TOPIC}-0")
        await node.stop()
        again = await started(disk, "a,b")
        assert directory_of(again, TOPIC, 0) == target
        assert again.broker.partition(TOPIC, 0).log.log_end_offset == 21
        await again.stop()

    run(scenario)


def test_what_is_kept_of_lost_records_moves_with_the_log() -> None:
    """Also what is cut off while the log is being copied."""

    async def scenario() -> None:
        node = await holding(20, disk := MemoryDisk())
        partition = node.broker.partition(TOPIC, 0)
        source, target = directory_of(node, TOPIC, 0), other_than(node)
        loss_id = LossId(partition.topic_id, PARTITION.partition, EPOCH)

        def keep(start: int, end: int) -> None:
            row = ReplicaLoss(node.broker.broker_id, ReplicaFate.CUT, Offset(end), Offset(start))
            assert keep_lost_tail(disk, partition.log, LostTail(loss_id, row, 1_000_000)).kept_size_bytes

        keep(15, 20)
        hold(node)
        assert await alter(node, target, 0) == [Code.NONE]
        await copying(node)
        keep(10, 15)
        before = {
            path.rpartition("/")[2]: disk.read_bytes(path) for path in kept_files(disk, f"{source}/{TOPIC}-0", EPOCH)
        }
        let_go(node)
        await moved(node, target)
        after = {
            path.rpartition("/")[2]: disk.read_bytes(path) for path in kept_files(disk, f"{target}/{TOPIC}-0", EPOCH)
        }
        assert after == before
        assert len(after) == 2
        assert sum(name.endswith(".loss") for name in disk.list(f"{target}/{TOPIC}-0")) == 2
        assert files_of(disk, source) == []
        await node.stop()

    run(scenario)


def test_what_is_written_meanwhile_is_neither_lost_nor_doubled() -> None:
    async def scenario() -> None:
        node = await holding(50)
        written = 50
        for _ in range(5):
            target = other_than(node)
            assert await alter(node, target, 0) == [Code.NONE]
            async with asyncio.timeout(SECONDS_MAX):
                while directory_of(node, TOPIC, 0) != target or node.broker.moves._moves:
                    assert await produce(node, TOPIC, 0, b"%d" % written) == Code.NONE
                    written += 1
                    await asyncio.sleep(0)
        log = node.broker.partition(TOPIC, 0).log
        assert log.log_end_offset == written
        offset, seen = Offset(0), 0
        while offset < log.log_end_offset:
            found = log.read(offset, size_bytes_max=1, end_offset=log.log_end_offset)
            assert found.first_offset == offset
            offset, seen = found.next_offset, seen + 1
        assert seen == written
        await node.stop()

    run(scenario)


@pytest.mark.parametrize(
    ("to", "topic", "index", "code"),
    [
        ("nowhere", TOPIC, 0, Code.LOG_DIR_NOT_FOUND),
        ("a", "unknown", 0, Code.UNKNOWN_TOPIC_OR_PARTITION),
        ("a", TOPIC, 7, Code.UNKNOWN_TOPIC_OR_PARTITION),
        ("a", "__cluster_metadata", 0, Code.INVALID_TOPIC_EXCEPTION),
    ],
)
def test_what_cannot_be_is_refused(to: str, topic: str, index: int, code: Code) -> None:
    async def scenario() -> None:
        node = await holding(0)
        assert await alter(node, to, index, topic=topic) == [code]
        assert not node.broker.moves._moves
        await node.stop()

    run(scenario)


def test_a_directory_that_is_out_of_use_is_no_place_to_go() -> None:
    async def scenario() -> None:
        disk = MemoryDisk()
        node = await started(disk, "a,b,c")
        await create(node, TOPIC, 1)
        target = next(held for held in node.files.directories if held.path == other_than(node))
        node.files.on_directory_failed(target, "it is torn out")
        assert await alter(node, target.path, 0) == [Code.KAFKA_STORAGE_ERROR]
        await node.stop()

    run(scenario)


def hold(node: Node) -> None:
    """Let nothing be copied."""
    node.broker.moves.throttle.configure(Limit(0))


def let_go(node: Node, bytes_per_second: int | None = None) -> None:
    node.broker.moves.throttle.configure(Limit(bytes_per_second))


async def copying(node: Node) -> None:
    """Return when the copy is there."""
    await until(lambda: node.broker.moves.copies)


def test_a_copy_is_told_of_with_how_far_it_is_behind() -> None:
    async def scenario() -> None:
        node = await holding(10)
        hold(node)
        target = other_than(node)
        await alter(node, target, 0)
        await copying(node)
        answer = await describe(node, (TOPIC, [0]))
        rows = {os.path.basename(result.log_dir): result.topics for result in answer.results}
        [copy] = rows[target][0].partitions
        assert (copy.is_future_key, copy.offset_lag) == (True, 10)
        assert node.broker.moves.bytes_left == node.broker.partition(TOPIC, 0).log.segments.size_bytes > 0
        [[log]] = [topics[0].partitions for directory, topics in rows.items() if directory != target and topics]
        assert (log.is_future_key, log.offset_lag) == (False, 0)
        let_go(node)
        await moved(node, target)
        assert node.broker.moves.bytes_left == 0
        answer = await describe(node, (TOPIC, [0]))
        flat = [
            (row.is_future_key, os.path.basename(r.log_dir))
            for r in answer.results
            for t in r.topics
            for row in t.partitions
        ]
        assert flat == [(False, target)]
        await node.stop()

    run(scenario)


def test_named_with_where_it_lies_a_move_is_ended() -> None:
    async def scenario() -> None:
        node = await holding(10, disk := MemoryDisk())
        hold(node)
        source, target = directory_of(node, TOPIC, 0), other_than(node)
        await alter(node, target, 0)
        await copying(node)
        assert await alter(node, source, 0) == [Code.NONE]
        assert not node.broker.moves._moves
        assert files_of(disk, target) == []
        assert directory_of(node, TOPIC, 0) == source
        assert await produce(node, TOPIC, 0, b"y") == Code.NONE
        await node.stop()

    run(scenario)


def test_of_two_who_ask_for_different_places_at_once_the_later_is_heard() -> None:
    async def scenario() -> None:
        node = await holding(10, disk := MemoryDisk(), "a,b,c")
        first, second = (each for each in "abc" if each != directory_of(node, TOPIC, 0))
        partition, moves = node.broker.partition(TOPIC, 0), node.broker.moves
        held = {each.path: each for each in node.files.directories}
        begun = moves._start(partition, held[first])
        async with asyncio.timeout(SECONDS_MAX):
            await moves.move(partition, held[second])  # the first had no turn yet
            await begun.has_begun.wait()
            await moved(node, second)
        assert files_of(disk, first) == []
        await node.stop()

    run(scenario)


def test_a_topic_that_is_deleted_takes_its_copy_with_it() -> None:
    async def scenario() -> None:
        node = await holding(10, disk := MemoryDisk())
        hold(node)
        await alter(node, other_than(node), 0)
        await copying(node)
        await node.controller.request(lambda state: state.decide_delete_topics([TopicToDelete(TOPIC)]))
        await node.caught_up()
        assert not node.broker.moves._moves
        assert files_of(disk, "a") == files_of(disk, "b") == []
        await create(node, TOPIC, 1)
        assert await produce(node, TOPIC, 0, b"new") == Code.NONE
        await node.stop()

    run(scenario)


def test_a_replica_that_is_not_here_yet_is_made_where_it_was_asked_for() -> None:
    async def scenario() -> None:
        node = await started(MemoryDisk(), "a,b,c")
        await create(node, TOPIC, 1)
        node.files.log_dir_assignment.preferred[TopicPartition("later", PartitionIndex(0))] = next(
            held for held in node.files.directories if held.path == directory_of(node, TOPIC, 0)
        )
        await create(node, "later", 1)
        assert directory_of(node, "later", 0) == directory_of(node, TOPIC, 0)
        await node.stop()

    run(scenario)


def test_a_copy_follows_truncation_and_what_comes_after_it() -> None:
    async def scenario() -> None:
        node = await holding(10)
        partition = node.broker.partition(TOPIC, 0)
        target = other_than(node)
        let_go(node, bytes_per_second=500)
        await alter(node, target, 0)
        await copying(node)
        await until(lambda: node.broker.moves.copies[0][1].log.log_end_offset >= 3)
        hold(node)
        partition.stop()
        await node.broker.replication.truncate(partition, Truncation(Offset(2)))
        log = partition.log
        assert log.log_end_offset == 2
        epoch = LeaderEpoch((log.lineage.latest_leader_epoch or 0) + 1)
        for number in range(5):
            data = memoryview(bytearray(batch_of(b"new %d" % number)))
            log.append_as_leader(data, leader_epoch=epoch, now_ms=node.clock.wall_ms())
        let_go(node)
        [(_, future)] = node.broker.moves.copies
        await until(lambda: future.is_level)
        assert values_of(future.log) == values_of(log)
        assert future.log.lineage.entries == log.lineage.entries
        assert partition.log is log, "it is between two roles: a leader epoch may be being written to it"
        await node.stop()

    run(scenario)


def test_the_oldest_records_that_are_deleted_meanwhile_are_deleted_in_the_copy() -> None:
    async def scenario() -> None:
        node = await holding(0, disk := MemoryDisk())
        await produce(node, TOPIC, 0, b"a", b"b", b"c", b"d")
        await fill(node, 10)
        hold(node)
        partition, target = node.broker.partition(TOPIC, 0), other_than(node)
        await alter(node, target, 0)
        await copying(node)
        partition.delete_records(2)
        let_go(node)
        await moved(node, target)
        assert (partition.log.log_start_offset, partition.log.log_end_offset) == (2, 14)
        await node.stop()
        again = await started(disk, "a,b")
        assert again.broker.partition(TOPIC, 0).log.log_start_offset == 2
        await again.stop()

    run(scenario)


def test_a_log_that_starts_within_a_batch_is_moved() -> None:
    async def scenario() -> None:
        node = await holding(0)
        await produce(node, TOPIC, 0, b"a", b"b", b"c", b"d")
        await fill(node, 3)
        partition, target = node.broker.partition(TOPIC, 0), other_than(node)
        partition.delete_records(2)
        await alter(node, target, 0)
        await moved(node, target)
        assert (partition.log.log_start_offset, partition.log.log_end_offset) == (2, 7)
        await node.stop()

    run(scenario)


def test_the_controller_is_told_where_it_lies_from_then_on() -> None:
    async def scenario() -> None:
        node = await holding(0)
        ids = {held.path: held.directory_id for held in node.files.directories}
        for _ in range(2):
            target = other_than(node)
            await alter(node, target, 0)
            await moved(node, target)
            await until(partial(lambda there: told_of(node) == (ids[there],), target))
        await node.stop()

    run(scenario)


@pytest.mark.parametrize("after", ["", "a stop"])
def test_the_rate_of_moves_is_a_setting_of_the_broker(after: str) -> None:
    async def scenario() -> None:
        disk = MemoryDisk()
        node = await started(disk, "a,b")
        await configure(
            node,
            ResourceType.BROKER,
            "1",
            replica_alter_log_dirs_io_max_bytes_per_second="1000",
            leader_replication_throttled_rate="2000",
            follower_replication_throttled_rate="3000",
        )
        await create(node, TOPIC, 1)
        await configure(node, ResourceType.TOPIC, TOPIC, leader_replication_throttled_replicas="0:1")
        if after:
            await node.stop()
            node = await started(disk, "a,b")
        replication = node.broker.replication
        limits = (
            node.broker.moves.throttle.limit,
            replication.leader_throttle.limit,
            replication.follower_throttle.limit,
        )
        assert [limit.bytes_per_second for limit in limits] == [1000, 2000, 3000]
        assert replication.leader_throttle.covers(PARTITION)
        assert not replication.follower_throttle.covers(PARTITION)
        await node.stop()

    run(scenario)


def test_others_have_their_turn_while_many_replicas_are_named() -> None:
    async def story() -> None:
        node = await holding(0)
        assert await turns_during(alter(node, "/nowhere", *range(20 * TURN_SIZE))) >= 20
        await node.stop()

    run(story)

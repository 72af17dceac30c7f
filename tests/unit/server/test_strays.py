"""Logs that the metadata does not assign to this node: those that its log has removed go, any other is kept."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable
from uuid import UUID

import pytest

from support.fixtures.lone_broker import lone_replication
from support.fixtures.memory_disk import MemoryDisk
from tidelog.base.ids import BrokerId, LeaderEpoch, Offset, PartitionIndex, TopicId, TopicPartition
from tidelog.controller import LostReplica, TopicToCreate, TopicToDelete
from tidelog.io.clock import SystemClock
from tidelog.io.executor import InlineExecutor
from tidelog.io.network import RealNetwork
from tidelog.io.rng import SystemRng
from tidelog.log import LogConfig
from tidelog.metadata import MetadataImage
from tidelog.metadata.records import PartitionRecord, RegisterBrokerRecord, RemoveTopicRecord, TopicRecord
from tidelog.server.broker.broker import Broker
from tidelog.server.node import Node
from tidelog.server.settings.config import NodeConfig
from tidelog.server.storage.log_files import LogFiles
from tidelog.server.tasks import Tasks

METADATA = "logs/__cluster_metadata-0"
LOG = "logs/flights-0"
FLIGHTS = TopicPartition("flights", PartitionIndex(0))
TOPIC = TopicId(UUID(int=7))
PROPERTIES = {
    "node.id": "1",
    "process.roles": "broker,controller",
    "listeners": "PLAINTEXT://127.0.0.1:0,CONTROLLER://127.0.0.1:0",
    "controller.listener.names": "CONTROLLER",
    "controller.quorum.voters": "1@127.0.0.1:0",
    "log.dirs": "logs",
    "log.segment.delete.delay.ms": "300",
}
LATER_SECONDS = 0.8


def copy_of(disk: MemoryDisk, path: str) -> dict[str, bytes]:
    return {f"{path}/{name}": disk.read_bytes(f"{path}/{name}") for name in disk.list(path)}


def put_back(disk: MemoryDisk, copy: dict[str, bytes]) -> None:
    path = next(iter(copy)).rpartition("/")[0]
    if disk.exists(path):
        disk.remove_tree(path)
    disk.make_dirs(path)
    for file, data in copy.items():
        disk.write_atomically(file, data)


def named(disk: MemoryDisk) -> list[str]:
    """What is there of the topic, without what makes a name unique."""
    return sorted(re.sub("[0-9a-f]{32}", "*", name) for name in disk.list("logs") if name.startswith("flights"))


async def started(disk: MemoryDisk) -> Node:
    disk.locked.clear()
    config = NodeConfig.from_properties(PROPERTIES)
    node = Node(
        config, disk=disk, network=RealNetwork(), clock=SystemClock(), rng=SystemRng(), executor=InlineExecutor()
    )
    await node.start()
    return node


async def create(node: Node) -> TopicId:
    (topic,) = await node.create_topics([TopicToCreate("flights", 1, 1)])
    assert topic.topic_id is not None, topic
    return topic.topic_id


async def delete(node: Node, topic_id: TopicId) -> None:
    await node.controller.request(lambda state: state.decide_delete_topics([TopicToDelete(topic_id=topic_id)]))
    await node.caught_up()


def run(story: Callable[[MemoryDisk], Awaitable[None]]) -> None:
    asyncio.run(asyncio.wait_for(story(MemoryDisk()), 60))


def test_a_log_whose_topic_the_metadata_log_has_removed_goes_after_a_delay() -> None:
    """It came back: its disk was away when the topic was deleted, or a kill came in between."""

    async def story(disk: MemoryDisk) -> None:
        node = await started(disk)
        topic_id = await create(node)
        log = copy_of(disk, LOG)
        await delete(node, topic_id)
        await node.stop()
        put_back(disk, log)
        node = await started(disk)
        assert named(disk)[0] == "flights-0.*-delete", "the delay lets an operator change their mind"
        assert not [name for name in named(disk) if not name.endswith("-delete")]
        await asyncio.sleep(LATER_SECONDS)
        assert named(disk) == []
        await node.stop()

    run(story)


def test_a_stray_goes_once_the_metadata_log_says_that_its_topic_was_removed() -> None:
    async def story(disk: MemoryDisk) -> None:
        node = await started(disk)
        topic_id = await create(node)
        name = f"logs/flights-0.{'0' * 32}-stray"
        stray = {path.replace(LOG, name): data for path, data in copy_of(disk, LOG).items()}
        unknown = {path.replace("0-stray", "1-stray"): data for path, data in stray.items()}
        unknown[f"{name.replace('0-stray', '1-stray')}/partition.metadata"] = (
            b"version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAABw\n"
        )
        await delete(node, topic_id)
        await node.stop()
        put_back(disk, stray)
        put_back(disk, unknown)
        node = await started(disk)
        await asyncio.sleep(LATER_SECONDS)
        assert named(disk) == ["flights-0.*-stray"], "the other may be somebody's only copy"
        await node.stop()

    run(story)


def test_a_stray_goes_when_its_topic_is_removed_while_the_node_runs() -> None:
    async def story(disk: MemoryDisk) -> None:
        node = await started(disk)
        topic_id = await create(node)
        name = f"logs/flights-1.{'0' * 32}-stray"  # a partition that was assigned to this node by metadata that is lost
        put_back(disk, {path.replace(LOG, name): data for path, data in copy_of(disk, LOG).items()})
        await asyncio.sleep(LATER_SECONDS)
        assert named(disk) == ["flights-0", "flights-1.*-stray"]
        await delete(node, topic_id)
        assert named(disk) == ["flights-0.*-delete", "flights-1.*-delete"]
        await asyncio.sleep(LATER_SECONDS)
        assert named(disk) == []
        await node.stop()

    run(story)


def test_what_metadata_from_a_backup_does_not_know_is_kept() -> None:
    async def story(disk: MemoryDisk) -> None:
        await (await started(disk)).stop()
        backup = copy_of(disk, METADATA)
        node = await started(disk)
        await create(node)
        await node.stop()
        put_back(disk, backup)
        node = await started(disk)
        await asyncio.sleep(LATER_SECONDS)
        assert named(disk) == ["flights-0.*-stray"]
        await create(node)
        await node.stop()
        node = await started(disk)
        await asyncio.sleep(LATER_SECONDS)
        assert named(disk) == ["flights-0", "flights-0.*-stray"]
        await node.stop()

    run(story)


def test_a_log_whose_name_another_topic_has_is_kept_unless_its_own_was_removed() -> None:
    """The metadata was reset, and the topic made anew."""

    async def story(disk: MemoryDisk) -> None:
        node = await started(disk)
        await create(node)
        log = copy_of(disk, LOG)
        await node.stop()
        other = MemoryDisk()
        node = await started(other)
        await create(node)
        await node.stop()
        put_back(other, log)
        other.remove("logs/.tidelog_replicas")  # else a log is missed that another lies in the place of
        node = await started(other)
        await asyncio.sleep(LATER_SECONDS)
        assert "flights-0.*-stray" in named(other)
        await node.stop()

    run(story)


# Proofs.


def files_on(disk: MemoryDisk) -> LogFiles:
    disk.locked.clear()
    config = NodeConfig.from_properties(PROPERTIES)
    files = LogFiles(
        config,
        disk=disk,
        clock=SystemClock(),
        rng=SystemRng(),
        executor=InlineExecutor(),
        tasks=Tasks("node"),
        room_for_logs=lambda: None,
    )
    files.open()
    files.open_metadata_log()
    return files


def with_a_log(disk: MemoryDisk, leader_epoch: int | None) -> LogFiles:
    files = files_on(disk)
    log = files.directories[0].open_log(FLIGHTS, LogConfig(), topic_id=TOPIC, now_ms=0)
    if leader_epoch is not None:
        log.assign_leader_epoch(LeaderEpoch(leader_epoch))
    return files


@pytest.mark.parametrize(
    ("removed_in", "latest", "kept_as"),
    [
        (5, 4, "delete"),
        (5, None, "stray"),  # how old it is nobody can tell
        (5, 5, "stray"),  # it was assigned again, by metadata that is lost
        (5, 6, "stray"),
        (None, 6, "delete"),  # the topic is removed, which is final
    ],
)
def test_a_replica_that_was_assigned_to_others_goes_if_all_of_its_log_is_older(
    removed_in: int | None, latest: int | None, kept_as: str
) -> None:
    disk = MemoryDisk()
    files = with_a_log(disk, latest)
    epoch = None if removed_in is None else LeaderEpoch(removed_in)
    files.deletions.removed.note(LostReplica(BrokerId(1), FLIGHTS, TOPIC, epoch))
    files.deletions.set_strays_aside(MetadataImage.empty())
    assert named(disk) == [f"flights-0.*-{kept_as}"]


def test_what_cannot_be_read_proves_nothing() -> None:
    disk = MemoryDisk()
    files = with_a_log(disk, 4)
    disk.write_atomically(f"{LOG}/leader-epoch-checkpoint", b"rot")
    files.deletions.removed.note(LostReplica(BrokerId(1), FLIGHTS, TOPIC, LeaderEpoch(5)))
    files.deletions.set_strays_aside(MetadataImage.empty())
    assert named(disk) == ["flights-0.*-stray"]


REGISTRATION = RegisterBrokerRecord(
    broker_id=1, broker_epoch=9, incarnation_id=UUID(int=1), end_points=[], features=[], fenced=False
)
CREATED = (
    TopicRecord(name="flights", topic_id=TOPIC),
    PartitionRecord(topic_id=TOPIC, partition_id=0, replicas=[1], isr=[1], leader=1, leader_epoch=0, partition_epoch=0),
)


@pytest.mark.parametrize(
    ("runs", "from_snapshot", "kept_as"),
    [
        ([(*CREATED, RemoveTopicRecord(topic_id=TOPIC)), (REGISTRATION,)], False, "delete"),
        ([CREATED, (RemoveTopicRecord(topic_id=TOPIC),), (REGISTRATION,)], False, "delete"),
        ([CREATED, (RemoveTopicRecord(topic_id=TOPIC),), (REGISTRATION,)], True, "stray"),
        ([(REGISTRATION,)], False, "stray"),
    ],
)
def test_only_records_of_the_log_are_a_proof(runs: list[tuple[object, ...]], from_snapshot: bool, kept_as: str) -> None:
    """What a snapshot lacks may have been removed, or it is of metadata that was restored."""

    async def story(disk: MemoryDisk) -> None:
        with_a_log(disk, None)
        disk.crash()
        files = files_on(disk)
        broker = Broker(
            BrokerId(1),
            UUID(int=1),
            files,
            lone_replication(BrokerId(1), files.served, SystemClock()),
            clock=SystemClock(),
            executor=InlineExecutor(),
            tasks=Tasks("node"),
            on_failed=lambda reason: None,
        )
        end_offset = 0
        for records in runs:
            end_offset += len(records)
            broker.on_committed(records, Offset(end_offset), from_snapshot=from_snapshot)
        await broker.applied(Offset(end_offset))
        assert named(disk) == ["flights-0"], "nothing goes before all is known"
        await broker.set_strays_aside()
        assert named(disk) == [f"flights-0.*-{kept_as}"]
        await broker.stop()

    run(story)

"""A node with several log directories on a disk in memory: where logs go, and what happens when one directory fails."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any
from uuid import UUID

import pytest

from support.clients.wire_client import batch_of
from support.fixtures.memory_disk import MemoryDisk
from support.fixtures.waiting import until
from tidelog.base.errors import Code, ConfigError, DiskError, KafkaError, TidelogError
from tidelog.base.ids import PartitionIndex, TopicPartition
from tidelog.controller import TopicToCreate, TopicToDelete
from tidelog.io.clock import SystemClock
from tidelog.io.executor import InlineExecutor
from tidelog.io.network import RealNetwork
from tidelog.io.rng import SystemRng
from tidelog.log import Log
from tidelog.server.api.handlers import api_00_produce, api_03_metadata, api_35_describe_log_dirs
from tidelog.server.api.request_context import RequestContext
from tidelog.server.broker.listeners import BrokerListener
from tidelog.server.node import Node
from tidelog.server.replication.partition import Partition
from tidelog.server.settings.config import NodeConfig
from tidelog.server.transport.listener_roles import BROKER
from tidelog.server.transport.server_connection import ServerConnection
from tidelog.wire import ApiKey, RequestHeader
from tidelog.wire.messages.api_00_produce import PartitionProduceData, ProduceRequest, TopicProduceData
from tidelog.wire.messages.api_03_metadata import MetadataRequest, MetadataRequestTopic, MetadataResponsePartition
from tidelog.wire.messages.api_35_describe_log_dirs import (
    DescribableLogDirTopic,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
)

SECONDS_MAX = 60.0
MARKER = ".kafka_cleanshutdown"
PRODUCE_VERSION, METADATA_VERSION, DESCRIBE_VERSION = 9, 12, 4


class Connection(ServerConnection):
    """Nobody is at the other end."""

    def __init__(self) -> None:
        self.listener_name = "PLAINTEXT"


def new_node(disk: MemoryDisk, directories: str = "a,b,c", **settings: str) -> Node:
    """A process of its own, as far as the disk can tell."""
    disk.locked.clear()
    properties = {
        "node.id": "1",
        "process.roles": "broker,controller",
        "listeners": "PLAINTEXT://127.0.0.1:0,CONTROLLER://127.0.0.1:0",
        "controller.listener.names": "CONTROLLER",
        "controller.quorum.voters": "1@127.0.0.1:0",
        "log.dirs": directories,
    }
    more = {key.replace("_", "."): value for key, value in settings.items()}
    config = NodeConfig.from_properties(properties | more)
    return Node(
        config, disk=disk, network=RealNetwork(), clock=SystemClock(), rng=SystemRng(), executor=InlineExecutor()
    )


def run(scenario: Callable[[], Awaitable[None]]) -> None:
    async def bounded() -> None:
        await asyncio.wait_for(scenario(), SECONDS_MAX)

    asyncio.run(bounded())


async def started(disk: MemoryDisk, directories: str = "a,b,c", **settings: str) -> Node:
    node = new_node(disk, directories, **settings)
    await node.start()
    return node


async def create(node: Node, topic: str, partitions: int) -> None:
    (result,) = await node.create_topics([TopicToCreate(topic, partitions, 1)])
    assert result.code == 0, result.message


async def produce(node: Node, topic: str, partition: int, *values: bytes) -> Code:
    data = PartitionProduceData(index=partition, records=memoryview(bytearray(batch_of(*values))))
    request = ProduceRequest(acks=-1, timeout_ms=1, topic_data=[TopicProduceData(name=topic, partition_data=[data])])
    answer = api_00_produce.handle(node, request, context(ApiKey.PRODUCE, PRODUCE_VERSION))
    response = await answer if isinstance(answer, Awaitable) else answer
    assert response is not None
    return Code(response.responses[0].partition_responses[0].error_code)


async def metadata(node: Node, topic: str) -> list[MetadataResponsePartition]:
    request = MetadataRequest(topics=[MetadataRequestTopic(name=topic)], allow_auto_topic_creation=False)
    answer = api_03_metadata.handle(node, request, context(ApiKey.METADATA, METADATA_VERSION))
    response = await answer if isinstance(answer, Awaitable) else answer
    return response.topics[0].partitions


async def describe(node: Node, *asked: tuple[str, list[int]]) -> DescribeLogDirsResponse:
    topics = [DescribableLogDirTopic(topic, partitions) for topic, partitions in asked] or None
    request = DescribeLogDirsRequest(topics=topics)
    return await api_35_describe_log_dirs.handle(node, request, context(ApiKey.DESCRIBE_LOG_DIRS, DESCRIBE_VERSION))


def context(key: ApiKey, version: int) -> RequestContext:
    return RequestContext(RequestHeader(key, version, 1, None, None), Connection(), BROKER)


def directory_of(node: Node, topic: str, partition: int) -> str:
    return node.broker.partition(topic, partition).log.directory.partition("/")[0]


def directories_told(node: Node, topic: str) -> list[UUID | None]:
    """Of each partition, what the metadata says."""
    partitions = node.image.topics_by_name[topic].partitions
    return [one.directories[0] if one.directories else None for one in partitions]


def held_id(node: Node, topic: str, partition: int) -> UUID:
    held = node.files.directory_of(TopicPartition(topic, PartitionIndex(partition)))
    assert held is not None
    return held.directory_id


async def settle() -> None:
    """What was begun on this loop goes on; none of it waits for anything."""
    for _ in range(10):
        await asyncio.sleep(0)


def test_new_partitions_go_where_there_are_fewest_and_are_found_again() -> None:
    async def scenario() -> None:
        disk = MemoryDisk()
        node = await started(disk)
        await create(node, "flights", 7)
        counts = [sum(directory_of(node, "flights", index) == each for index in range(7)) for each in "abc"]
        assert sorted(counts) == [2, 2, 3]
        for index in range(7):
            assert await produce(node, "flights", index, b"%d" % index) == Code.NONE
        places = [directory_of(node, "flights", index) for index in range(7)]
        await node.stop()
        assert all(disk.exists(f"{each}/{MARKER}") for each in "abc")
        node = await started(disk)
        await create(node, "more", 2)
        assert [directory_of(node, "flights", index) for index in range(7)] == places
        counts = [len(each.partitions()) for each in node.files.directories]
        assert counts[0] == 4  # the metadata log's as well
        assert counts[1:] == [3, 3]
        for index in range(7):
            partition = node.broker.partition("flights", index)
            assert partition.log.log_end_offset == 1
            assert partition.log.recovery.was_clean
        await node.stop()

    run(scenario)


def test_each_directory_has_an_id_and_the_broker_registers_all() -> None:
    async def scenario() -> None:
        disk = MemoryDisk()
        node = await started(disk)
        ids = node.image.brokers[node.config.node_id].log_dirs
        assert len(set(ids)) == 3
        await create(node, "flights", 1)
        await until(lambda: directories_told(node, "flights") == [held_id(node, "flights", 0)])
        await node.stop()
        clusters = {line for each in "abc" for line in disk.read_bytes(f"{each}/meta.properties").splitlines()[1:2]}
        assert len(clusters) == 1
        node = await started(disk)
        assert node.image.brokers[node.config.node_id].log_dirs == ids
        await node.stop()

    run(scenario)


def test_the_controller_is_told_where_each_replica_lies_and_again_when_it_lies_elsewhere() -> None:
    async def scenario() -> None:
        disk = MemoryDisk()
        node = await started(disk)
        await create(node, "flights", 5)
        await until(lambda: directories_told(node, "flights") == [held_id(node, "flights", n) for n in range(5)])
        assert len(set(directories_told(node, "flights"))) == 3
        assert not node.image.topics_by_name["flights"].partitions[0].leader_epoch
        place = directory_of(node, "flights", 1)
        target = next(each for each in node.files.directories if each.path != place)
        await node.broker.moves.move(node.broker.partition("flights", 1), target)
        await until(lambda: directories_told(node, "flights")[1] == target.directory_id)
        place = directory_of(node, "flights", 0)
        await node.stop()
        other = next(each for each in "abc" if each != place)
        disk.rename(f"{place}/flights-0", f"{other}/flights-0")  # an operator makes room
        node = await started(disk)
        assert directory_of(node, "flights", 0) == other
        await until(lambda: directories_told(node, "flights") == [held_id(node, "flights", n) for n in range(5)])
        await node.stop()

    run(scenario)


@pytest.mark.parametrize("how", ["write", "checkpoint", "read"])
def test_a_directory_that_fails_takes_its_partitions_along_and_no_others(
    how: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        disk = MemoryDisk()
        node = await started(disk)
        await create(node, "flights", 6)
        for index in range(6):
            assert await produce(node, "flights", index, b"before") == Code.NONE
        lost = {index for index in range(6) if directory_of(node, "flights", index) == "b"}
        held = node.files.directories[1]
        disk.broken.add("b")
        index = min(lost)
        if how == "write":
            assert await produce(node, "flights", index, b"lost") == Code.KAFKA_STORAGE_ERROR
        elif how == "read":
            node.broker.failures.on_read_error(node.broker.partition("flights", index))
        else:
            node.broker.failures.on_suspicion(held)
        await settle()
        assert held.failure is not None
        assert not node.failure.done()
        for index in range(6):
            expected = Code.KAFKA_STORAGE_ERROR if index in lost else Code.NONE
            assert await produce(node, "flights", index, b"after") == expected
        for row in await metadata(node, "flights"):
            is_lost = row.partition_index in lost
            assert row.leader_id == (-1 if is_lost else 1)
            assert row.error_code == (Code.LEADER_NOT_AVAILABLE if is_lost else Code.NONE)
            assert list(row.offline_replicas) == ([1] if is_lost else [])
        (said,) = [record.getMessage() for record in caplog.records if record.levelname == "CRITICAL"]
        assert "log directory b failed" in said
        assert "start the node again" in said
        await create(node, "new", 4)
        assert {directory_of(node, "new", index) for index in range(4)} == {"a", "c"}
        await node.stop()
        assert [disk.exists(f"{each}/{MARKER}") for each in "abc"] == [True, False, True]

        disk.broken.clear()  # it was a cable
        node = await started(disk)
        for index in range(6):
            partition = node.broker.partition("flights", index)
            assert partition.log.log_end_offset == (1 if index in lost else 2)
            assert partition.log.recovery.was_clean is (index not in lost)
            assert await produce(node, "flights", index, b"again") == Code.NONE
        await node.stop()

    run(scenario)


def test_what_was_opened_in_a_directory_that_failed_meanwhile_is_not_served(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        node = await started(MemoryDisk())
        open_logs = node.files.opening.open

        async def open_slowly(*args: Any, **more: Any) -> list[Log | TidelogError | None]:
            opened = await open_logs(*args, **more)
            node.files.on_directory_failed(node.files.directories[1], "meanwhile")
            return opened

        monkeypatch.setattr(node.files.opening, "open", open_slowly)
        await create(node, "flights", 3)
        codes = [await produce(node, "flights", index, b"v") for index in range(3)]
        assert sorted(codes) == [Code.NONE, Code.NONE, Code.KAFKA_STORAGE_ERROR]
        await node.stop()

    run(scenario)


def test_a_topic_in_a_failed_directory_can_be_deleted_and_made_again() -> None:
    async def scenario() -> None:
        disk = MemoryDisk()
        node = await started(disk, "a,b")
        await create(node, "flights", 2)
        (lost,) = [index for index in range(2) if directory_of(node, "flights", index) == "b"]
        await produce(node, "flights", lost, b"old")
        disk.broken.add("b")
        assert await produce(node, "flights", lost, b"lost") == Code.KAFKA_STORAGE_ERROR
        await settle()
        await node.controller.request(lambda state: state.decide_delete_topics([TopicToDelete("flights")]))
        await node.caught_up()
        await create(node, "flights", 2)
        assert [directory_of(node, "flights", index) for index in range(2)] == ["a", "a"]
        assert await produce(node, "flights", lost, b"new") == Code.NONE
        await node.stop()
        disk.broken.clear()
        node = await started(disk, "a,b")  # where the old one still lies
        assert [directory_of(node, "flights", index) for index in range(2)] == ["a", "a"]
        assert node.broker.partition("flights", lost).log.log_end_offset == 1
        assert not disk.is_directory(f"b/flights-{lost}")
        await node.stop()

    run(scenario)


def test_the_directory_of_the_metadata_log_takes_the_node_along() -> None:
    async def scenario() -> None:
        disk = MemoryDisk()
        node = await started(disk)
        await create(node, "flights", 3)
        (index,) = [index for index in range(3) if directory_of(node, "flights", index) == "a"]
        disk.broken.add("a")
        assert await produce(node, "flights", index, b"lost") == Code.KAFKA_STORAGE_ERROR
        assert "log directory a failed" in await node.failure
        await node.stop()
        assert not disk.exists(f"a/{MARKER}")

    run(scenario)


def test_an_error_of_one_file_takes_one_partition_offline() -> None:
    async def scenario() -> None:
        disk = MemoryDisk()
        node = await started(disk)
        await create(node, "flights", 6)
        await until(lambda: None not in directories_told(node, "flights"))
        first, second = [index for index in range(6) if directory_of(node, "flights", index) == "b"]
        disk.refusals.add(f"flights-{first}/00000000000000000000.log")
        assert await produce(node, "flights", first, b"lost") == Code.KAFKA_STORAGE_ERROR
        await settle()
        assert node.files.directories[1].failure is None
        assert await produce(node, "flights", second, b"kept") == Code.NONE
        with pytest.raises(KafkaError, match="offline until this node is restarted"):
            node.broker.partition("flights", first)
        disk.refusals.clear()
        await node.stop()
        assert not disk.exists(f"b/{MARKER}")

    run(scenario)


@pytest.mark.parametrize("how", ["unreadable", "not mounted", "gone"])
def test_a_directory_that_is_missing_at_the_start_leaves_the_others_to_serve(
    how: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        disk = MemoryDisk()
        node = await started(disk)
        await create(node, "flights", 6)
        lost = {index for index in range(6) if directory_of(node, "flights", index) == "c"}
        for index in range(6):
            await produce(node, "flights", index, b"before")
        await node.stop()
        files, directories = dict(disk.files), set(disk.directories)
        if how == "unreadable":
            disk.broken.add("c")
        else:
            disk.remove_tree("c")
            if how == "not mounted":
                disk.make_dirs("c")
        for _ in range(2):
            node = await started(disk)
            assert "c" in node.files.left_out
            assert "log directory c is left out" in caplog.text
            for index in range(6):
                expected = Code.KAFKA_STORAGE_ERROR if index in lost else Code.NONE
                assert await produce(node, "flights", index, b"after") == expected
            assert [row.leader_id for row in await metadata(node, "flights")].count(-1) == len(lost)
            assert len(node.image.brokers[node.config.node_id].log_dirs) == 2
            await node.stop()
        assert how == "unreadable" or not disk.exists("c/meta.properties")
        await create_and_stop(disk, "meanwhile")

        disk.broken.clear()
        for path in [path for path in files if path.startswith("c/")]:
            disk.files[path] = files[path]
        disk.directories |= directories
        node = await started(disk)
        for index in lost:
            assert node.broker.partition("flights", index).log.log_end_offset == 1
            assert await produce(node, "flights", index, b"after") == Code.NONE
        await node.stop()

    async def create_and_stop(disk: MemoryDisk, topic: str) -> None:
        node = await started(disk)
        await create(node, topic, 3)
        assert {directory_of(node, topic, index) for index in range(3)} == {"a", "b"}
        await node.stop()

    run(scenario)


@pytest.mark.parametrize("file", ["recovery-point-offset-checkpoint", MARKER, "old-0.{}-delete"])
def test_a_file_that_the_disk_refuses_at_the_start_costs_its_directory_at_most(file: str) -> None:
    async def scenario() -> None:
        disk = MemoryDisk()
        node = await started(disk)
        await create(node, "flights", 3)
        (index,) = [index for index in range(3) if directory_of(node, "flights", index) == "c"]
        await node.stop()
        marked = file.format("0" * 32)
        if marked != file:
            disk.make_dirs(f"c/{marked}")
        disk.broken.add(f"c/{marked}")
        node = await started(disk)
        is_lost = marked == file
        assert await produce(node, "flights", index, b"v") == (Code.KAFKA_STORAGE_ERROR if is_lost else Code.NONE)
        for other in {0, 1, 2} - {index}:
            assert await produce(node, "flights", other, b"served") == Code.NONE
        await node.stop()
        disk.broken.clear()
        node = await started(disk)
        assert await produce(node, "flights", index, b"v") == Code.NONE
        await node.stop()

    run(scenario)


def test_a_partition_in_two_directories_is_refused_and_both_are_named() -> None:
    async def scenario() -> None:
        disk = MemoryDisk()
        node = await started(disk)
        await create(node, "flights", 3)
        (index,) = [index for index in range(3) if directory_of(node, "flights", index) == "b"]
        await node.stop()
        disk.make_dirs(f"c/flights-{index}")
        for path in [path for path in disk.files if path.startswith(f"b/flights-{index}/")]:
            disk.files[f"c{path[1:]}"] = disk.files[path]
        for directory in "bc":
            disk.remove(f"{directory}/{MARKER}")
        node = await started(disk)
        with pytest.raises(KafkaError, match=rf"b/flights-{index} and c/flights-{index}.*move one of them away"):
            node.broker.partition("flights", index)
        for other in {0, 1, 2} - {index}:
            assert await produce(node, "flights", other, b"served") == Code.NONE
        await node.stop()
        disk.remove_tree(f"c/flights-{index}")
        node = await started(disk)
        assert not node.broker.partition("flights", index).log.recovery.was_clean  # nobody has looked at it since
        assert await produce(node, "flights", index, b"served") == Code.NONE
        await node.stop()

    run(scenario)


@pytest.mark.parametrize(
    ("key", "said"), [("node.id", "b belongs to node 7"), ("cluster.id", "b belongs to cluster 7"), (None, "a copy")]
)
def test_directories_of_others_are_refused(key: str | None, said: str) -> None:
    async def scenario() -> None:
        disk = MemoryDisk()
        await (await started(disk)).stop()
        held = disk.files["a/meta.properties"].data
        lines = [
            b"%s=7" % key.encode() if key and line.startswith(key.encode()) else line for line in held.split(b"\n")
        ]
        disk.write_atomically("b/meta.properties", b"\n".join(lines))
        node = new_node(disk)
        with pytest.raises(ConfigError, match=said):
            await node.start()
        await node.stop()
        assert not disk.locked

    run(scenario)


def test_a_directory_in_use_is_refused_whichever_it_is() -> None:
    async def scenario() -> None:
        disk = MemoryDisk()
        await (await started(disk)).stop()
        for directory in "abc":
            node = new_node(disk)
            disk.locked.add(f"{directory}/.lock")
            with pytest.raises(DiskError, match=rf"{directory}/.lock: another process"):
                await node.start()
            await node.stop()

    run(scenario)


def test_a_full_disk_refuses_what_finds_no_room_and_serves_the_rest(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        disk = MemoryDisk()
        node = await started(disk)
        await create(node, "flights", 3)
        await until(lambda: None not in directories_told(node, "flights"))
        for index in range(3):
            assert await produce(node, "flights", index, b"acknowledged") == Code.NONE
        for room in (0, 1, 40):  # nothing, or a part of the batch
            disk.free_write_bytes = room
            for _ in range(2):
                assert await produce(node, "flights", 0, b"refused") == Code.KAFKA_STORAGE_ERROR
            await settle()
            log = node.broker.partition("flights", 0).log
            found = log.read(log.log_start_offset, size_bytes_max=1_000, end_offset=log.log_end_offset)
            assert b"acknowledged" in found.read_all()
            assert log.log_end_offset == 1
        assert [record.getMessage() for record in caplog.records if "disk is full" in record.getMessage()] != []
        disk.free_write_bytes = None
        assert await produce(node, "flights", 0, b"later") == Code.NONE
        await node.stop()
        node = await started(disk)
        log = node.broker.partition("flights", 0).log
        assert (log.recovery.was_clean, log.log_end_offset) == (True, 2)
        await node.stop()

    run(scenario)


def test_a_topic_made_anew_is_offline_where_the_past_of_the_one_before_cannot_be_wiped_out() -> None:
    """As on a full disk: the checkpoints that speak of it cannot be written. The rest is served."""

    async def scenario() -> None:
        disk = MemoryDisk()
        node = await started(disk, "b", metadata_log_dir="a")
        await create(node, "flights", 1)
        await create(node, "trains", 1)
        await produce(node, "flights", 0, b"old")
        await node.stop()
        node = await started(disk, "b", metadata_log_dir="a")
        await node.controller.request(lambda state: state.decide_delete_topics([TopicToDelete("flights")]))
        await node.caught_up()
        disk.refusals.update(f"b/{name}-offset-checkpoint.tmp" for name in ("replication", "recovery-point"))
        await create(node, "flights", 1)
        assert await produce(node, "flights", 0, b"lost") == Code.KAFKA_STORAGE_ERROR
        assert await produce(node, "trains", 0, b"served") == Code.NONE
        disk.refusals.clear()
        await node.stop()
        node = await started(disk, "b", metadata_log_dir="a")
        assert await produce(node, "flights", 0, b"new") == Code.NONE
        assert node.broker.partition("flights", 0).log.log_start_offset == 0
        await node.stop()

    run(scenario)


def test_directories_are_described_with_what_was_asked_for() -> None:
    async def scenario() -> None:
        disk = MemoryDisk()
        node = await started(disk)
        await create(node, "flights", 3)
        await create(node, "trains", 3)
        await produce(node, "flights", 0, b"one")
        everything = await describe(node)
        assert [result.error_code for result in everything.results] == [0, 0, 0]
        rows = {
            (topic.name, row.partition_index): row
            for result in everything.results
            for topic in result.topics
            for row in topic.partitions
        }
        assert set(rows) == {(topic, index) for topic in ("flights", "trains") for index in range(3)}
        assert rows["flights", 0].partition_size == node.broker.partition("flights", 0).log.segments.size_bytes > 0
        assert rows["flights", 1].partition_size == 0
        assert {(row.offset_lag, row.is_future_key) for row in rows.values()} == {(0, False)}
        assert all(0 < result.usable_bytes < result.total_bytes for result in everything.results)
        asked = await describe(node, ("flights", [1, 99]), ("nobody's", [0]))
        named = [
            (topic.name, [row.partition_index for row in topic.partitions]) for r in asked.results for topic in r.topics
        ]
        assert named == [("flights", [1])]
        disk.broken.add("b")
        codes = [Code(result.error_code) for result in (await describe(node)).results]
        assert codes == [Code.NONE, Code.KAFKA_STORAGE_ERROR, Code.NONE]
        await settle()
        assert node.files.directories[1].failure is not None
        (broken,) = [result for result in (await describe(node)).results if result.error_code]
        assert (broken.topics, broken.total_bytes, broken.usable_bytes) == ([], -1, -1)
        await node.stop()

    run(scenario)


def test_nothing_is_led_in_an_epoch_of_the_incarnation_before() -> None:
    """Each start ends the old leadership and begins one: what was led in between would be written for nothing."""

    async def scenario() -> None:
        disk = MemoryDisk()
        await create(node := await started(disk), "flights", 1)
        await node.stop()
        node = new_node(disk)
        led: list[int] = []

        class Leaderships(BrokerListener):
            def on_leadership_changed(self, partition: Partition) -> None:
                led.append(-1 if partition.replica is None else partition.replica.leader_epoch)

        node.broker.add_listener(Leaderships())
        await node.start()
        assert led == [2]  # 1 is that of nobody
        await node.stop()

    run(scenario)

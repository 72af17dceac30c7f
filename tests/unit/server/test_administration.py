"""Settings and deletions at a node on a disk in memory: what survives a loss of power, and what a disk error leaves."""

from __future__ import annotations

import asyncio
import copy
import errno
import random
from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import Any, TypeVar

import pytest

from support.clients.admin_requests import RESOURCE_TOPIC, alter, change, described, grow, set_to
from support.clients.wire_client import WireClient, batch_of
from support.fixtures.memory_disk import MemoryDisk
from support.load.group_member import commit_request
from tidelog.base.errors import Code, DiskError, KafkaError
from tidelog.base.ids import Offset
from tidelog.base.ports import Executor
from tidelog.controller import ConfigChange, ConfigOperation, TopicToCreate
from tidelog.coordinator.groups import GroupCoordinator
from tidelog.io.clock import SystemClock
from tidelog.io.executor import InlineExecutor
from tidelog.io.network import RealNetwork
from tidelog.io.rng import SystemRng
from tidelog.journal import RequestId
from tidelog.server.api.alter_configs import Alteration, alter_configs
from tidelog.server.api.handlers.api_20_delete_topics import handle as delete_topics
from tidelog.server.api.record_deletion import RecordsToDelete, delete_records
from tidelog.server.node import Node
from tidelog.server.settings.config import NodeConfig
from tidelog.server.transport.listener_roles import BROKER
from tidelog.wire.messages.api_20_delete_topics import DeleteTopicsRequest

T = TypeVar("T")

SECONDS_MAX = 60.0


class LateExecutor:
    """Works a while later, as threads do: what does not wait for it comes too early."""

    def run(self, work: Callable[[], T]) -> Awaitable[T]:
        async def wait() -> T:
            for _ in range(20):
                await asyncio.sleep(0)
            return work()

        return wait()

    compute = run


def new_node(disk: MemoryDisk, *, executor: Executor | None = None) -> Node:
    """A process of its own, as far as the disk can tell."""
    disk.locked.clear()
    properties = {
        "node.id": "1",
        "process.roles": "broker,controller",
        "listeners": "PLAINTEXT://127.0.0.1:0,CONTROLLER://127.0.0.1:0",
        "controller.listener.names": "CONTROLLER",
        "controller.quorum.voters": "1@127.0.0.1:0",
        "log.dirs": "logs",
        "offsets.topic.num.partitions": "1",
    }
    config = NodeConfig.from_properties(properties)
    return Node(
        config,
        disk=disk,
        network=RealNetwork(),
        clock=SystemClock(),
        rng=SystemRng(),
        executor=executor or InlineExecutor(),
    )


def run(scenario: Callable[[], Awaitable[None]]) -> None:
    async def bounded() -> None:
        await asyncio.wait_for(scenario(), SECONDS_MAX)

    asyncio.run(bounded())


async def filled(disk: MemoryDisk, count: int = 10, *, executor: Executor | None = None) -> Node:
    """A node with a topic of so many records, a batch and a segment each."""
    node = new_node(disk, executor=executor)
    await node.start()
    await node.create_topics([TopicToCreate("t", 1, 1, configs=[("segment.bytes", "100")])])
    partition = node.broker.partition("t", 0)
    for index in range(count):
        partition.append(memoryview(bytearray(batch_of(b"%d" % index))), acks_all=False, now_ms=1_700_000_000_000)
    return node


@pytest.mark.parametrize("seed", range(8))
def test_a_loss_of_power_after_the_answer_brings_no_deleted_record_back(seed: int) -> None:
    async def scenario() -> None:
        disk = MemoryDisk()
        node = await filled(disk)
        assert await delete_records(node, [RecordsToDelete("t", 0, 7)], timeout_ms=1_000) == [7]
        after = copy.deepcopy(disk)
        await node.stop()
        after.lose_power(random.Random(seed))
        again = new_node(after)
        await again.start()
        log = again.broker.partition("t", 0).log
        assert log.log_start_offset == 7
        assert log.log_end_offset >= 7
        assert all(entry.start_offset >= 7 for entry in log.lineage.entries)
        await again.stop()

    run(scenario)


def test_deleted_records_stay_deleted_where_the_partition_goes_offline_later() -> None:
    """The checkpoint speaks of every log in the directory, and is written without those that are offline."""

    async def scenario() -> None:
        disk = MemoryDisk()
        node = await filled(disk)
        await node.create_topics([TopicToCreate("u", 1, 1)])
        partition = node.broker.partition("u", 0)
        partition.append(memoryview(bytearray(batch_of(*[b"v"] * 10))), acks_all=False, now_ms=1_700_000_000_000)
        directory = node.files.directory_of(partition.topic_partition)
        assert directory is not None
        assert await delete_records(node, [RecordsToDelete("u", 0, 7)], timeout_ms=1_000) == [7]
        node.broker.failures.on_disk_error(partition, DiskError(partition.log.directory, "one bad sector"))
        directory.checkpoints.write_recovery_points(node.broker.partitions)
        await node.stop()
        again = new_node(disk)
        await again.start()
        assert again.broker.partition("u", 0).log.log_start_offset == 7
        await again.stop()

    run(scenario)


def test_where_no_file_can_be_opened_nothing_goes_offline_and_the_next_try_may_go_well(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def scenario() -> None:
        disk = MemoryDisk()
        node = await filled(disk)
        partition = node.broker.partition("t", 0)
        error = DiskError(f"{partition.log.directory}/5.log", "cannot create: Too many open files", errno=errno.EMFILE)
        for _ in range(3):
            node.broker.failures.on_disk_error(partition, error)
        assert [line for line in caplog.messages if "Too many open files" in line] == [
            f"t-0: what was refused is tried again: {error}"
        ]
        assert node.broker.partition("t", 0) is partition
        partition.log.segments.failure = error  # what was begun cannot be completed
        node.broker.failures.on_disk_error(partition, error)
        with pytest.raises(KafkaError, match="is offline"):
            node.broker.partition("t", 0)
        await node.stop()

    run(scenario)


def test_what_could_not_be_written_is_not_answered_as_gone_and_keeps_its_segments() -> None:
    async def scenario() -> None:
        disk = MemoryDisk()
        node = await filled(disk)
        segments = {path for path in disk.files if path.startswith("logs/t-0/") and path.endswith(".log")}
        disk.refusals.add("log-start-offset-checkpoint.tmp")
        disk.refusals.add("log-start-offset-checkpoint")
        (outcome,) = await delete_records(node, [RecordsToDelete("t", 0, 7)], timeout_ms=1_000)
        assert isinstance(outcome, KafkaError)
        assert outcome.code == Code.KAFKA_STORAGE_ERROR
        assert segments <= disk.files.keys()
        disk.refusals.clear()
        await node.stop()

    run(scenario)


def test_settings_are_in_force_when_the_answer_comes_whatever_is_still_to_be_done_before() -> None:
    async def scenario() -> None:
        node = await filled(MemoryDisk(), executor=LateExecutor())
        creating = asyncio.ensure_future(node.create_topics([TopicToCreate("u", 3, 1)]))
        await asyncio.sleep(0)
        changes = [ConfigChange("retention.ms", ConfigOperation.SET, "77")]
        context: Any = SimpleNamespace(api_version=1, listener_role=BROKER)
        (outcome,) = await alter_configs(
            node, [Alteration(RESOURCE_TOPIC, "t", changes)], context, replaces_all=False, validate_only=False
        )
        assert outcome.code is Code.NONE
        assert node.broker.partition("t", 0).log.config.retention_ms == 77
        await creating
        await node.stop()

    run(scenario)


def test_a_topic_is_deleted_when_what_forgets_its_offsets_is_synced() -> None:
    async def scenario() -> None:
        node = await filled(MemoryDisk(), executor=LateExecutor())
        await node.groups.create_topic()
        request = commit_request("g", {("t", 0): 5})

        def commit(coordinator: GroupCoordinator, request_id: RequestId, now_ms: int, wall_ms: int) -> None:
            coordinator.on_offset_commit(request_id, request, api_version=9, now_ms=now_ms, wall_ms=wall_ms)

        assert not isinstance(node.groups.submit("g", commit), KafkaError)
        context: Any = SimpleNamespace(api_version=5)
        answer = await delete_topics(node, DeleteTopicsRequest(topic_names=["t"]), context)
        assert [row.error_code for row in answer.responses] == [0]
        log = node.groups.here[0].partition.log
        assert log.recovery_point == log.log_end_offset == 2
        await node.stop()

    run(scenario)


def test_controllers_are_asked_as_brokers_are() -> None:
    async def scenario() -> None:
        node = await filled(MemoryDisk())
        port = node.listeners.advertised("CONTROLLER").port

        def ask() -> None:
            with WireClient(port) as client:
                assert grow(client, "t", 3).error_code == 0
                change(client, "t", {"max.message.bytes": set_to("50")})
                assert described(client, "t")["max.message.bytes"].value == "50"
                assert alter(client, "t", {"no.such": set_to("1")}).error_code == Code.INVALID_CONFIG

        await asyncio.to_thread(ask)
        for index in range(3):
            log = node.broker.partition("t", index).log
            assert log.config.message_size_bytes_max == 50
            assert log.config.segment_size_bytes == 100
        assert node.broker.partition("t", 0).log.log_start_offset == Offset(0)
        await node.stop()

    run(scenario)

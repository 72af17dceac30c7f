"""A real node with several log directories: they fill evenly, come and go, fill up, and belong to one node alone."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.clients.wire_client import WireClient, batch_of
from support.fixtures.waiting import wait_until
from support.nodes.server_process import NodeFailedError, ServerProcess
from support.nodes.small_disk import mounted
from tidelog import Admin, TopicPartition
from tidelog.base.errors import Code
from tidelog.base.ids import PartitionIndex
from tidelog.wire import ApiKey
from tidelog.wire.messages.api_35_describe_log_dirs import (
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
)

TOPIC = "flights"
PARTITIONS = 6
DISK_SIZE_BYTES = 8 << 20
VALUE_SIZE_BYTES = 100_000


@pytest.fixture
def directories(tmp_path: Path) -> list[Path]:
    return [tmp_path / name for name in ("a", "b", "c")]


@pytest.fixture
def server(tmp_path: Path, directories: list[Path]) -> Iterator[ServerProcess]:
    process = ServerProcess(tmp_path, *directories, replica_high_watermark_checkpoint_interval_ms="100")
    yield process
    process.close()


@pytest.fixture
def filled(server: ServerProcess) -> ServerProcess:
    """It runs, and each partition of a topic holds its own number."""
    server.start()
    with WireClient(server.port) as client:
        client.create_topic(TOPIC, partitions=PARTITIONS)
        for index in range(PARTITIONS):
            assert client.produce(TOPIC, batch_of(b"%d" % index), partition=index).error_code == 0
    return server


def partitions_in(directory: Path) -> set[int]:
    return {int(path.name.rpartition("-")[2]) for path in directory.glob(f"{TOPIC}-*")}


def describe(client: WireClient) -> list[DescribeLogDirsResult]:
    request = DescribeLogDirsRequest(topics=None)
    return client.ask(ApiKey.DESCRIBE_LOG_DIRS, 4, request, DescribeLogDirsResponse).results


def codes_of_produce(client: WireClient) -> list[Code]:
    return [Code(client.produce(TOPIC, batch_of(b"more"), partition=index).error_code) for index in range(PARTITIONS)]


@pytest.mark.parametrize("end", [signal.SIGTERM, signal.SIGKILL])
def test_logs_are_spread_and_found_again(filled: ServerProcess, directories: list[Path], end: signal.Signals) -> None:
    assert [len(partitions_in(each)) for each in directories] == [2, 2, 2]
    filled.end(end)
    markers = [(each / ".kafka_cleanshutdown").exists() for each in directories]
    assert markers == [end == signal.SIGTERM] * 3
    filled.start()
    with WireClient(filled.port) as client:
        for index in range(PARTITIONS):
            assert [record.value for record in client.read_all(TOPIC, partition=index)] == [b"%d" % index]
        results = describe(client)
        assert [Path(result.log_dir) for result in results] == directories
        for result, directory in zip(results, directories, strict=True):
            told = {row.partition_index for topic in result.topics for row in topic.partitions if topic.name == TOPIC}
            assert told == partitions_in(directory)
            facts = os.statvfs(directory)
            assert result.total_bytes == facts.f_blocks * facts.f_frsize
            assert 0 < result.usable_bytes <= result.total_bytes
    assert filled.end() == 0


@pytest.mark.parametrize("end", [signal.SIGTERM, signal.SIGKILL])
def test_logs_are_moved_to_another_directory(
    filled: ServerProcess, directories: list[Path], end: signal.Signals
) -> None:
    source, target = directories[0], directories[2]
    moved = partitions_in(source)
    bootstrap = f"127.0.0.1:{filled.port}"
    with Admin(bootstrap) as admin:
        wanted = {(1, TopicPartition(TOPIC, PartitionIndex(index))): str(target) for index in sorted(moved)}
        assert set(admin.alter_replica_log_dirs(wanted).values()) == {None}
        elsewhere = (1, TopicPartition(TOPIC, PartitionIndex(0)))
        refused = admin.alter_replica_log_dirs({elsewhere: "/nowhere"})[elsewhere]
        assert refused is not None
        assert refused.code == Code.LOG_DIR_NOT_FOUND

        def where() -> dict[str, list[tuple[int, bool]]]:
            found = admin.describe_log_dirs([1])[1]
            return {
                path: [(log.partition.partition, log.is_future) for log in each.logs if log.partition.topic == TOPIC]
                for path, each in found.items()
            }

        held = {str(target): {(index, False) for index in moved | partitions_in(target)}, str(source): set()}
        wait_until(
            lambda: all(set(where()[path]) == logs for path, logs in held.items()),
            "the logs lie where they were asked for",
        )
    with WireClient(filled.port) as client:
        assert codes_of_produce(client) == [Code.NONE] * PARTITIONS
    filled.end(end)
    filled.start()
    assert partitions_in(target) >= moved
    with WireClient(filled.port) as client:
        for index in range(PARTITIONS):
            assert [record.value for record in client.read_all(TOPIC, partition=index)] == [b"%d" % index, b"more"]


def test_a_directory_that_is_away_for_one_run(filled: ServerProcess, directories: list[Path]) -> None:
    away = directories[1].with_name("elsewhere")
    lost = partitions_in(directories[1])
    filled.end()
    directories[1].rename(away)
    filled.start()
    assert f"log directory {directories[1]} is left out" in filled.log
    assert not directories[1].exists()
    with WireClient(filled.port) as client:
        expected = [Code.KAFKA_STORAGE_ERROR if index in lost else Code.NONE for index in range(PARTITIONS)]
        assert codes_of_produce(client) == expected
        assert [Code(result.error_code) for result in describe(client)] == [
            Code.NONE, Code.KAFKA_STORAGE_ERROR, Code.NONE,
        ]  # fmt: skip
        for row in client.describe_topic(TOPIC).partitions:
            assert (list(row.offline_replicas), row.leader_id) == (
                ([1], -1) if row.partition_index in lost else ([], 1)
            )
    assert filled.end() == 0
    away.rename(directories[1])
    filled.start()
    with WireClient(filled.port) as client:
        assert codes_of_produce(client) == [Code.NONE] * PARTITIONS
        for index in range(PARTITIONS):
            values = [record.value for record in client.read_all(TOPIC, partition=index)]
            assert values == [b"%d" % index, b"more"] + ([] if index in lost else [b"more"])


def test_a_directory_that_goes_away_while_the_node_runs(filled: ServerProcess, directories: list[Path]) -> None:
    away = directories[2].with_name("elsewhere")
    lost = partitions_in(directories[2])
    directories[2].rename(away)
    wait_until(lambda: f"log directory {directories[2]} failed" in filled.log, "the node notices")
    with WireClient(filled.port) as client:
        expected = [Code.KAFKA_STORAGE_ERROR if index in lost else Code.NONE for index in range(PARTITIONS)]
        assert codes_of_produce(client) == expected
        assert client.create_topic("new", partitions=4).error_code == 0
        for index in range(4):
            assert client.produce("new", batch_of(b"new"), partition=index).error_code == 0
        assert client.fetch(TOPIC, 0, partition=min(lost)).error_code == Code.KAFKA_STORAGE_ERROR
    assert not list(away.glob("new-*"))
    filled.end()
    assert not directories[2].exists()
    away.rename(directories[2])
    filled.start()
    with WireClient(filled.port) as client:
        assert codes_of_produce(client) == [Code.NONE] * PARTITIONS
        for index in lost:
            assert [record.value for record in client.read_all(TOPIC, partition=index)] == [b"%d" % index, b"more"]


def test_a_node_takes_no_directory_of_another(filled: ServerProcess, directories: list[Path], tmp_path: Path) -> None:
    other = ServerProcess(tmp_path, tmp_path / "d", directories[1], node_id=2)
    try:
        with pytest.raises(
            NodeFailedError, match=r"b/\.lock: another process holds it.*stop that one, or name another"
        ):
            other.start()
        filled.end()
        with pytest.raises(NodeFailedError, match=r"b belongs to node 1, this is node 2"):
            other.start()
    finally:
        other.close()
    filled.start()
    with WireClient(filled.port) as client:
        assert codes_of_produce(client) == [Code.NONE] * PARTITIONS


@pytest.fixture
def small_disk(directories: list[Path]) -> Iterator[Path]:
    """The last directory, on a disk of its own."""
    path = directories[2]
    path.mkdir()
    with mounted(path, size_bytes=DISK_SIZE_BYTES):
        yield path


def test_a_disk_that_is_full(small_disk: Path, server: ServerProcess) -> None:
    server.start()
    with WireClient(server.port) as client:
        client.create_topic(TOPIC, partitions=PARTITIONS)
        on_it = sorted(partitions_in(small_disk))
        assert on_it
        acknowledged: dict[int, int] = dict.fromkeys(range(PARTITIONS), 0)
        refused = 0
        while refused < 20:
            for index in on_it:
                value = b"%d-%d" % (index, acknowledged[index])
                row = client.produce(TOPIC, batch_of(value.ljust(VALUE_SIZE_BYTES)), partition=index)
                if row.error_code:
                    assert row.error_code == Code.KAFKA_STORAGE_ERROR, row
                    refused += 1
                else:
                    assert row.base_offset == acknowledged[index]
                    acknowledged[index] += 1
        assert sum(acknowledged.values()) * VALUE_SIZE_BYTES > DISK_SIZE_BYTES // 2
        assert f"{small_disk}: the disk is full" in server.log
        elsewhere = min(set(range(PARTITIONS)) - set(on_it))
        assert client.produce(TOPIC, batch_of(b"there is room"), partition=elsewhere).error_code == 0
        check_all_there(client, on_it, acknowledged)  # a full disk can be read
    server.end(signal.SIGKILL)
    subprocess.run(["mount", "-o", f"remount,size={4 * DISK_SIZE_BYTES}", str(small_disk)], check=True)
    server.start()
    with WireClient(server.port) as client:
        check_all_there(client, on_it, acknowledged)
        for index in on_it:
            row = client.produce(TOPIC, batch_of(b"more"), partition=index)
            assert (row.error_code, row.base_offset) == (0, acknowledged[index])
    assert server.end() == 0


def check_all_there(client: WireClient, partitions: list[int], acknowledged: dict[int, int]) -> None:
    for index in partitions:
        values = [record.value for record in client.read_all(TOPIC, partition=index)]
        assert [value and value.rstrip() for value in values] == [
            b"%d-%d" % (index, number) for number in range(acknowledged[index])
        ]

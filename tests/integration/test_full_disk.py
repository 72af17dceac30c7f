"""A disk fills up under a whole node, and has room again: groups go on without a restart, and lost nothing."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from support.clients.wire_client import WireClient, batch_of
from support.fixtures.waiting import wait_until
from support.load.group_member import commit, commit_request, committed, find_coordinator, wait_for_coordinator
from support.nodes.node import NodeProcess, StartNode
from support.nodes.small_disk import mounted
from tidelog.base.errors import Code

TOPIC = "filling"
DISK_SIZE_BYTES = 24 << 20
COMMITS_MAX = 1_000  # a page of the disk takes some tens


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    path = tmp_path / "disk"
    path.mkdir()
    with mounted(path, size_bytes=DISK_SIZE_BYTES):
        yield path


def fill(disk: Path) -> None:
    with (disk / "somebody-elses").open("wb", buffering=0) as file:
        try:
            while True:
                file.write(bytes(4_096))
        except OSError:
            return


def test_groups_go_on_when_there_is_room_again(small_disk: Path, tmp_path: Path, start_node: StartNode) -> None:
    config = {"offsets.topic.num.partitions": "1", "replica.high.watermark.checkpoint.interval.ms": "200"}
    (tmp_path / "node").mkdir()
    (tmp_path / "node" / "node-1").symlink_to(small_disk, target_is_directory=True)
    node = start_node(data_dir=tmp_path / "node", config=config)
    try:
        _fill_and_make_room(node, small_disk)
    finally:
        node.close()


def test_nothing_is_made_on_a_full_disk_and_the_node_lives_on(
    small_disk: Path, tmp_path: Path, start_node: StartNode
) -> None:
    """What finds no room in the metadata log ends a node, so nothing more is tried there once the disk is full."""
    (tmp_path / "node").mkdir()
    (tmp_path / "node" / "node-1").symlink_to(small_disk, target_is_directory=True)
    node = start_node(data_dir=tmp_path / "node", config={"replica.high.watermark.checkpoint.interval.ms": "200"})
    try:
        with WireClient(node.port) as client:
            client.create_topic(TOPIC)
            client.produce(TOPIC, batch_of(b"kept"))
            fill(small_disk)
            codes = [client.create_topic(f"{TOPIC}-{number}").error_code for number in range(100)]
            assert set(codes[5:]) == {Code.KAFKA_STORAGE_ERROR}
            assert client.describe_topic("made-by-asking", create=True).error_code != 0
            assert find_coordinator(client, "g").error_code == Code.COORDINATOR_NOT_AVAILABLE
            assert [record.value for record in client.read_all(TOPIC)] == [b"kept"]
            (small_disk / "somebody-elses").unlink()
            wait_until(lambda: client.create_topic("later").error_code == Code.NONE, "topics can be made again")
            assert client.produce("later", batch_of(b"x")).error_code == Code.NONE
        assert node.is_running
    finally:
        node.close()


def _fill_and_make_room(node: NodeProcess, disk: Path) -> None:
    with WireClient(node.port) as client:
        client.create_topic(TOPIC)
        wait_for_coordinator(client, "g")
        commit(client, commit_request("g", {(TOPIC, 0): 0}))
        fill(disk)
        kept = 0
        for offset in range(1, COMMITS_MAX):
            (code,) = commit(client, commit_request("g", {(TOPIC, 0): offset})).values()
            if code != Code.NONE:
                break
            kept = offset
        assert 0 < kept < COMMITS_MAX - 1
        assert "the disk is full" in node.log
        assert client.produce(TOPIC, batch_of(bytes(100_000))).error_code == Code.KAFKA_STORAGE_ERROR
        assert find_coordinator(client, "g").error_code == Code.NONE
        (disk / "somebody-elses").unlink()
        wait_for_coordinator(client, "g")
        assert committed(client, "g", TOPIC).committed_offset == kept
        assert set(commit(client, commit_request("g", {(TOPIC, 0): kept + 1})).values()) == {Code.NONE}
        wait_until(
            lambda: client.produce(TOPIC, batch_of(bytes(100_000))).error_code == Code.NONE, "producers are served"
        )
    node.kill()
    node.start()
    with WireClient(node.port) as client:
        wait_for_coordinator(client, "g")
        assert committed(client, "g", TOPIC).committed_offset == kept + 1
    assert "goes offline" not in node.log
    node.stop()

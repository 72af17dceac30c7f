"""The log of share groups' states both ways: kafka-dump-log reads ours, and our coordinator what Kafka wrote."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from support.clients.kafka_peer import TOOL_FLAGS, KafkaPeer
from support.clients.kafka_tools import KafkaTools
from support.clients.share_state_client import ShareStateClient
from support.clients.wire_client import WireClient
from support.fixtures.coordinated_share import (
    ACKNOWLEDGED,
    ARCHIVED,
    AVAILABLE,
    KEY,
    OTHER,
    TOPIC,
    CoordinatedShare,
    batch,
    change,
)
from support.fixtures.waiting import wait_until
from support.nodes.share_node import PARTITIONS, ask, run, started
from tidelog.base.errors import Code
from tidelog.base.ids import LeaderEpoch, Offset, PartitionIndex, TopicPartition, uuid_text
from tidelog.coordinator.share import ShareCoordinator, ShareCoordinatorSettings
from tidelog.coordinator.share.records import ShareRecordType
from tidelog.io.disk import RealDisk
from tidelog.log import Log, LogConfig
from tidelog.metadata.topic_names import SHARE_GROUP_STATE_TOPIC
from tidelog.records import BatchBuilder, Record, read_records, split_whole_batches
from tidelog.server.share_state.state_messages import told_change
from tidelog.share.state import StateChange

STATES = TopicPartition(SHARE_GROUP_STATE_TOPIC, PartitionIndex(0))


def write(world: CoordinatedShare, directory: Path) -> None:
    """What the coordinator has appended, as a log of its own."""
    log = Log.open(RealDisk(), str(directory), STATES, LogConfig(), topic_id=None, clean_shutdown=True, now_ms=0)
    for _, (key, value) in world.log:
        builder = BatchBuilder()
        builder.append(world.wall_ms, key, value)
        log.append_as_leader(
            memoryview(bytearray(builder.build())),
            leader_epoch=LeaderEpoch(1),
            now_ms=world.wall_ms,
            origin="coordinator",
        )
    log.close()


def dumped(tools: KafkaTools, directory: Path) -> list[tuple[Any, Any]]:
    """Keys and values as Kafka's decoder prints them; None for a tombstone."""
    files = ",".join(str(path) for path in sorted(directory.glob("*.log")))
    said = tools.run("kafka-dump-log", "--share-group-state-decoder", "--files", files).output
    assert "isvalid: false" not in said
    found = re.findall(r" key: (\{.*?\}) payload: (.*)$", said, re.MULTILINE)
    return [
        (json.loads(key), None if payload in {"<DELETE>", "null"} else json.loads(payload)) for key, payload in found
    ]


def test_kafka_reads_what_our_coordinator_wrote(tools: KafkaTools, tmp_path: Path) -> None:
    world = CoordinatedShare()
    world.initialized(start=5)
    world.initialized(OTHER, start=None)
    for number in range(3):
        at = 10 * number
        changed = change(
            batch(at, at + 3, epoch=7), batch(at + 5, at + 5, ARCHIVED, 2), start=5, start_epoch=6, complete=3
        )
        world.write(changed)
    world.delete(OTHER)
    directory = tmp_path / str(STATES)
    write(world, directory)

    records = dumped(tools, directory)
    assert [int(key["type"]) for key, _ in records] == [
        ShareRecordType.SNAPSHOT,
        ShareRecordType.UPDATE,
        ShareRecordType.SNAPSHOT,
        *[ShareRecordType.UPDATE] * 3,
        ShareRecordType.SNAPSHOT,
        ShareRecordType.SNAPSHOT,
    ]
    keys = [key["data"] for key, _ in records]
    assert keys[0] == {"groupId": "group", "topicId": uuid_text(TOPIC), "partition": KEY.partition}
    assert keys[2]["partition"] == keys[-1]["partition"] == OTHER.partition
    values = [value and value["data"] for _, value in records]
    assert (values[0]["startOffset"], values[2]["startOffset"], values[-1]) == (5, -1, None)
    update, snapshot = values[4], values[6]
    assert update["leaderEpoch"] == 1
    assert update["stateBatches"] == [
        {"firstOffset": 0, "lastOffset": 3, "deliveryState": 2, "deliveryCount": 1},
        {"firstOffset": 5, "lastOffset": 5, "deliveryState": 4, "deliveryCount": 2},
    ]
    assert (snapshot["snapshotEpoch"], snapshot["stateEpoch"], snapshot["deliveryCompleteCount"]) == (1, 1, 3)
    kept = world.states[KEY].batches
    assert [(one["firstOffset"], one["lastOffset"]) for one in snapshot["stateBatches"]] == [
        (one.first, one.last) for one in kept
    ]


# What Kafka's coordinator answers, and ours.


def answers(client: ShareStateClient) -> list[object]:
    """One story, told as a list of what was answered."""
    found: list[object] = [[one.error_code for one in client.find(client.key(0), "group", ":x:1")]]

    def note(*rows: object) -> None:
        found.append(rows)

    def write(partition: int, changed: StateChange) -> None:
        note(*client.write(told_change(partition, changed)))

    def read(partition: int, leader_epoch: int) -> None:
        (row,) = client.read(partition, leader_epoch=leader_epoch)
        batches = [
            (one.first_offset, one.last_offset, one.delivery_state, one.delivery_count) for one in row.state_batches
        ]
        note(row.error_code, *((row.state_epoch, row.start_offset, *batches) if row.error_code == 0 else ()))

    def summarize(partition: int) -> None:
        (row,) = client.summarize(partition)
        note(row.error_code, row.state_epoch, row.leader_epoch, row.start_offset, row.delivery_complete_count)

    read(0, 1)
    write(0, change())
    summarize(0)
    note(*client.delete(0))
    note(*client.initialize(0, 1, PARTITIONS, -1, state_epoch=3, start=5))
    note(*client.initialize(2, state_epoch=1, start=-1))
    summarize(0)
    summarize(2)
    read(0, 4)
    read(0, 3)
    read(0, 4)
    write(0, change(leader_epoch=3, state_epoch=3))
    write(0, change(batch(5, 9, AVAILABLE, 1, epoch=1), leader_epoch=4, state_epoch=3, complete=0))
    write(0, change(batch(6, 6, ACKNOWLEDGED, 1, epoch=1), leader_epoch=4, state_epoch=3, start_epoch=2, complete=1))
    write(0, change(batch(9, 12, ARCHIVED, 2, epoch=1), leader_epoch=4, state_epoch=3, complete=5))
    read(0, 4)
    write(0, change(leader_epoch=4, state_epoch=2))
    write(0, change(leader_epoch=4, state_epoch=-1, start=7, complete=4))
    read(0, -1)
    summarize(0)
    note(*client.initialize(0, state_epoch=2, start=0))
    note(*client.initialize(0, state_epoch=4, start=9))
    read(0, -1)
    write(0, change(leader_epoch=4, state_epoch=3))
    read(1, 5)  # ours takes no change before
    for number in range(8):
        write(1, change(batch(10 + 2 * number, 10 + 2 * number), leader_epoch=5, state_epoch=3))
    read(1, 5)
    note(*client.delete(0, 1))
    read(1, 5)
    return found


@pytest.mark.usefixtures("needs_kafka")
def test_kafkas_coordinator_answers_the_same_and_ours_reads_its_log(tmp_path: Path) -> None:
    config = {
        "share.coordinator.state.topic.num.partitions": "1",
        "share.coordinator.snapshot.update.records.per.snapshot": "3",
    }
    peer = KafkaPeer(tmp_path / "kafka", config=config, flags=TOOL_FLAGS)
    try:
        peer.start()
        with WireClient(peer.port) as wire:
            topic_id = wire.create_topic("read", partitions=PARTITIONS).topic_id
            client = ShareStateClient(wire, topic_id)
            wait_until(lambda: client.find(client.key(0))[0].error_code == 0, "Kafka coordinates share groups")
            wait_until(lambda: client.delete(0) == [Code.NONE], "the coordinator is loaded")
            kafkas = answers(client)
            client.initialize(4, start=2)
            client.read(4, leader_epoch=6)  # a write raises no leader epoch there
            kept = batch(3, 5, AVAILABLE, 2, epoch=9)
            client.write(told_change(4, change(kept, batch(7, 7), leader_epoch=6, start=3, start_epoch=8, complete=1)))
        peer.stop()
    finally:
        peer.close()

    ours: list[object] = []

    async def scenario() -> None:
        node, topic_id = await started(tmp_path / "ours", config)
        await ask(node, topic_id, lambda client: ours.extend(answers(client)))
        await node.stop()

    run(scenario)
    assert ours == kafkas

    coordinator = ShareCoordinator(0, ShareCoordinatorSettings())
    for record in records_in(peer.log_dir / f"{SHARE_GROUP_STATE_TOPIC}-0"):
        coordinator.replay(record.key, record.value, Offset(record.offset))
    (state,) = [one for key, one in coordinator.states.items() if key.partition == 4]
    assert (state.start, state.leader_epoch, state.delivery_complete_count) == (3, 6, 1)
    assert state.batches == [batch(3, 5, AVAILABLE, 2), batch(7, 7)], "Kafka passes over what it does not know"


def records_in(directory: Path) -> Iterator[Record]:
    """All but control records."""
    for path in sorted(directory.glob("*.log")):
        data = path.read_bytes()
        for position, header in split_whole_batches(data):
            if not header.is_control:
                yield from read_records(data, position, header)

"""aiokafka: places in a log, groups, commits, the admin client; and going on after the node came back."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import aiokafka.errors
import pytest
from aiokafka.admin import NewPartitions, NewTopic, RecordsToDelete
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.coordinator.assignors.range import RangePartitionAssignor
from aiokafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor
from aiokafka.structs import OffsetAndMetadata

from support.clients.aiokafka_client import (
    TopicPartition,
    admin_of,
    consumer_of,
    produce,
    producer_of,
    read_to_end,
    told,
)
from support.clients.wire_client import WireClient, batch_of
from support.nodes.node import NodeProcess

START_MS = 1_700_000_000_000
PARTITIONS = 4
ASSIGNORS = {"range": RangePartitionAssignor, "sticky": StickyPartitionAssignor}
GROUP_SETTINGS = {"session_timeout_ms": 6_000, "heartbeat_interval_ms": 100}


@pytest.fixture
def client(shared_node: NodeProcess) -> Iterator[WireClient]:
    with WireClient(shared_node.port) as connected:
        yield connected


@pytest.fixture
def filled(client: WireClient, topic: str) -> str:
    """Four partitions with ten records each, a second apart."""
    client.create_topic(topic, partitions=PARTITIONS)
    for partition in range(PARTITIONS):
        for number in range(10):
            client.produce(topic, batch_of(b"x", timestamp_ms=START_MS + 1_000 * number), partition=partition)
    return topic


def test_places_by_offset_name_and_time(shared_node: NodeProcess, filled: str) -> None:
    async def story() -> None:
        place = TopicPartition(filled, 0)
        async with consumer_of(shared_node.bootstrap) as consumer:
            consumer.assign([place])
            assert await consumer.beginning_offsets([place]) == {place: 0}
            assert await consumer.end_offsets([place]) == {place: 10}
            consumer.seek(place, 7)
            assert [one.offset for one in await read_to_end(consumer, place)] == [7, 8, 9]
            assert await consumer.position(place) == 10
            await consumer.seek_to_beginning(place)
            assert (await consumer.getone()).offset == 0
            await consumer.seek_to_end(place)
            assert await consumer.position(place) == 10
            assert consumer.highwater(place) == 10
            for timestamp_ms, offset in ((0, 0), (START_MS + 3_500, 4), (START_MS + 9_000, 9)):
                assert (await consumer.offsets_for_times({place: timestamp_ms}))[place].offset == offset
            assert await consumer.offsets_for_times({place: START_MS + 9_001}) == {place: None}
            consumer.pause(place)
            consumer.seek(place, 0)
            assert await consumer.getmany(timeout_ms=100) == {}
            consumer.resume(place)
            assert len(await read_to_end(consumer, place)) == 10

    told(story())


def test_an_offset_out_of_range(shared_node: NodeProcess, filled: str) -> None:
    async def story() -> None:
        place = TopicPartition(filled, 0)
        async with consumer_of(shared_node.bootstrap, auto_offset_reset="none") as consumer:
            consumer.assign([place])
            consumer.seek(place, 99)
            with pytest.raises(aiokafka.errors.OffsetOutOfRangeError):
                await consumer.getone()
        async with consumer_of(shared_node.bootstrap, auto_offset_reset="earliest") as consumer:
            consumer.assign([place])
            consumer.seek(place, 99)
            assert (await consumer.getone()).offset == 0

    told(story())


@pytest.mark.parametrize("strategy", list(ASSIGNORS))
def test_two_share_a_topic_and_one_takes_over(shared_node: NodeProcess, filled: str, strategy: str) -> None:
    settings = GROUP_SETTINGS | {"group_id": filled, "partition_assignment_strategy": (ASSIGNORS[strategy],)}
    everything = {(partition, offset) for partition in range(PARTITIONS) for offset in range(10)}

    async def story() -> None:
        read: list[tuple[int, int]] = []

        async def poll(*consumers: Any) -> None:
            for consumer in consumers:
                for place, records in (await consumer.getmany(timeout_ms=20)).items():
                    read.extend((place.partition, one.offset) for one in records)

        async with consumer_of(shared_node.bootstrap, filled, **settings) as first:
            while len(read) < len(everything):
                await poll(first)
            await first.commit()
            async with consumer_of(shared_node.bootstrap, filled, **settings) as second:
                while not len(first.assignment()) == len(second.assignment()) == PARTITIONS // 2:
                    await poll(first, second)
                assert not first.assignment() & second.assignment()
            while len(first.assignment()) < PARTITIONS:
                await poll(first)
        assert sorted(read) == sorted(everything)  # nothing was read twice

    told(story())


def test_a_static_member_comes_back_to_its_partitions(shared_node: NodeProcess, filled: str) -> None:
    settings = GROUP_SETTINGS | {"group_id": filled}

    async def story() -> None:
        async with consumer_of(shared_node.bootstrap, filled, group_instance_id="one", **settings) as first:
            async with consumer_of(shared_node.bootstrap, filled, group_instance_id="two", **settings) as second:
                while not len(first.assignment()) == len(second.assignment()) == PARTITIONS // 2:
                    await asyncio.gather(first.getmany(timeout_ms=20), second.getmany(timeout_ms=20))
                before = (first.assignment(), second.assignment())
            async with consumer_of(shared_node.bootstrap, filled, group_instance_id="two", **settings) as again:
                while not again.assignment():
                    await again.getmany(timeout_ms=20)
                assert (first.assignment(), again.assignment()) == before

    told(story())


def test_commits_with_metadata_and_going_on_from_them(shared_node: NodeProcess, filled: str) -> None:
    place = TopicPartition(filled, 2)

    async def story() -> None:
        async with consumer_of(shared_node.bootstrap, group_id=filled) as consumer:
            consumer.assign([place])
            assert await consumer.committed(place) is None
            await consumer.commit({place: OffsetAndMetadata(6, "as far as that")})
            assert await consumer.committed(place) == 6
        async with consumer_of(shared_node.bootstrap, group_id=filled) as consumer:
            consumer.assign([place])
            assert (await consumer.getone()).offset == 6
            await consumer.seek_to_beginning(place)
            await consumer.seek_to_committed(place)
            assert await consumer.position(place) == 6
        async with admin_of(shared_node.bootstrap) as admin:
            assert await admin.list_consumer_group_offsets(filled) == {place: OffsetAndMetadata(6, "as far as that")}
            assert (filled, "") in [group[:2] for group in await admin.list_consumer_groups()]

    told(story())


def test_the_admin_client(shared_node: NodeProcess, topic: str) -> None:
    async def story() -> None:
        resource = ConfigResource(ConfigResourceType.TOPIC, topic, configs={"retention.ms": "7200000"})
        async with admin_of(shared_node.bootstrap) as admin:
            new = NewTopic(topic, 2, 1, topic_configs={"retention.ms": "3600000"})
            assert [row[1] for row in (await admin.create_topics([new])).topic_errors] == [0]
            assert [row[1] for row in (await admin.create_topics([new])).topic_errors] == [36]
            await admin.create_partitions({topic: NewPartitions(3)})
            (described,) = await admin.describe_topics([topic])
            assert len(described["partitions"]) == 3
            assert topic in await admin.list_topics()
            await admin.alter_configs([resource])
            (answer,) = await admin.describe_configs([ConfigResource(ConfigResourceType.TOPIC, topic)])
            configs = {entry[0]: entry[1] for entry in answer.resources[0][4]}
            assert configs["retention.ms"] == "7200000"
            cluster = await admin.describe_cluster()
            assert [one["port"] for one in cluster["brokers"]] == [shared_node.port]
            place = TopicPartition(topic, 0)
            async with producer_of(shared_node.bootstrap) as producer:
                await produce(producer, topic, [{"value": b"x"}] * 5)
            assert await admin.delete_records({place: RecordsToDelete(3)}) == {place: 3}
            async with consumer_of(shared_node.bootstrap) as consumer:
                assert await consumer.beginning_offsets([place]) == {place: 3}
            assert [row[1] for row in (await admin.delete_topics([topic])).topic_error_codes] == [0]
            assert topic not in await admin.list_topics()

    told(story())


def test_describing_a_group(shared_node: NodeProcess, filled: str) -> None:
    async def story() -> None:
        settings = GROUP_SETTINGS | {"group_id": filled, "client_id": "a-reader"}
        async with consumer_of(shared_node.bootstrap, filled, **settings) as consumer:
            while len(consumer.assignment()) < PARTITIONS:
                await consumer.getmany(timeout_ms=20)
            async with admin_of(shared_node.bootstrap) as admin:
                (answer,) = await admin.describe_consumer_groups([filled])
                (found,) = answer.groups
        code, name, state, protocol_type, protocol, members = found[:6]
        assert (code, name, state, protocol_type, protocol) == (0, filled, "Stable", "consumer", "roundrobin")
        assert [member[1:3] for member in members] == [("a-reader", "/127.0.0.1")]

    told(story())


@pytest.mark.parametrize("is_killed", [False, True], ids=["stopped", "killed"])
def test_a_group_and_a_producer_live_through_a_restart(node: NodeProcess, topic: str, is_killed: bool) -> None:
    place = TopicPartition(topic, 0)

    async def story() -> None:
        values: list[bytes] = []
        settings = GROUP_SETTINGS | {"group_id": topic, "metadata_max_age_ms": 500}
        async with (
            producer_of(node.bootstrap, enable_idempotence=True, request_timeout_ms=20_000) as producer,
            consumer_of(node.bootstrap, topic, **settings) as consumer,
        ):

            async def round_trip() -> None:
                sent = [b"%d" % number for number in range(len(values), len(values) + 50)]
                first = len(values)
                offsets = await produce(producer, topic, [{"value": value} for value in sent])
                assert offsets == list(range(first, first + 50))
                while len(values) < first + 50:
                    for records in (await consumer.getmany(timeout_ms=100)).values():
                        values.extend(record.value for record in records)
                assert values[first:] == sent

            await round_trip()
            await consumer.commit()
            await asyncio.to_thread(node.kill if is_killed else node.stop)
            await asyncio.to_thread(node.start)
            await round_trip()
            await consumer.commit()
        async with consumer_of(node.bootstrap, group_id=topic) as again:
            assert await again.committed(place) == 100

    told(story())

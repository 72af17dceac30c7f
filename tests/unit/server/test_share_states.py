"""The states of share groups over the wire, on one node: who is served, what is refused, and what damage costs."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from uuid import UUID

import pytest

from support.clients.share_state_client import ShareStateClient
from support.fixtures.coordinated_share import batch, change
from support.fixtures.log_files import change as change_byte
from support.nodes.share_node import PARTITIONS, ask, run, started
from tidelog.base.errors import Code, KafkaError
from tidelog.base.ids import LeaderEpoch, Offset, PartitionIndex, TopicId
from tidelog.coordinator.groups.share.requests import STATES_ANYWHERE, DeleteStates, LookForStates, RaiseStates
from tidelog.coordinator.share import ShareCoordinator
from tidelog.io.rng import SystemRng
from tidelog.metadata import MetadataDelta, MetadataImage
from tidelog.metadata.topic_names import SHARE_GROUP_STATE_TOPIC
from tidelog.net.backoff import Backoff
from tidelog.records import split_whole_batches
from tidelog.server.node import Node
from tidelog.server.share_state.group_requests import GroupRequests
from tidelog.server.share_state.persister import SharePersister, StartedState
from tidelog.server.share_state.share_coordinators import PORTION_BATCHES_MAX
from tidelog.server.share_state.state_messages import portions_told, told_change
from tidelog.share.key import ShareKey
from tidelog.share.state import raised_to
from tidelog.wire.messages import api_85_write_share_group_state as api_85


def test_each_partition_of_a_request_is_answered_for_itself(tmp_path: Path) -> None:
    def work(client: ShareStateClient) -> None:
        (found,) = client.find(client.key(0))
        assert (found.error_code, found.node_id) == (Code.NONE, 1)
        assert client.initialize(0, 1, PARTITIONS, -1) == [
            Code.NONE,
            Code.NONE,
            Code.UNKNOWN_TOPIC_OR_PARTITION,
            Code.INVALID_REQUEST,
        ]
        kept = batch(3, 5, epoch=7)
        assert client.write(told_change(0, change())) == [Code.FENCED_STATE_EPOCH], "nobody has read it"
        client.read(0, 1, leader_epoch=0)
        assert client.write(
            told_change(0, change(kept, start=2, start_epoch=6, complete=3)),
            told_change(1, change(state_epoch=0)),
            told_change(2, change()),
        ) == [Code.NONE, Code.FENCED_STATE_EPOCH, Code.INVALID_REQUEST]
        first, second = client.read(0, 2, leader_epoch=4)
        assert (first.error_code, first.state_epoch, first.start_offset, first.start_leader_epoch) == (0, 1, 2, 6)
        (told,) = first.state_batches
        assert (told.first_offset, told.last_offset, told.delivery_state, told.leader_epoch) == (3, 5, 2, 7)
        assert second.error_code == Code.INVALID_REQUEST
        assert "not initialized" in (second.error_message or "")
        assert client.write(told_change(0, change())) == [Code.FENCED_LEADER_EPOCH]
        summary, nothing = client.summarize(0, 3)
        assert (summary.start_offset, summary.leader_epoch, summary.delivery_complete_count) == (2, 4, 3)
        assert (nothing.error_code, nothing.start_offset, nothing.delivery_complete_count) == (0, -1, -1)
        assert client.summarize(0, version=0)[0].delivery_complete_count == -1
        assert client.delete(0, 5) == [Code.NONE, Code.NONE]
        assert client.read(0)[0].error_code == Code.INVALID_REQUEST

    async def scenario() -> None:
        node, topic_id = await started(tmp_path)
        await ask(node, topic_id, work)
        await node.stop()

    run(scenario)


@pytest.mark.parametrize("wrong", [(5, 4, 2, 1), (-1, 4, 2, 1), (0, 1, 1, 1), (0, 1, 3, 1), (0, 1, 2, -1)])
def test_batches_that_cannot_be_are_refused(tmp_path: Path, wrong: tuple[int, int, int, int]) -> None:
    def work(client: ShareStateClient) -> None:
        client.find(client.key(0))
        assert client.initialize(0, start=-2) == [Code.INVALID_REQUEST]
        assert client.initialize(0) == [Code.NONE]
        row = told_change(0, change())
        row.state_batches = [api_85.WriteShareGroupStateBatch(*wrong)]
        assert client.write(row) == [Code.INVALID_REQUEST]
        row = told_change(0, change())
        row.start_offset = -2
        assert client.write(row) == [Code.INVALID_REQUEST]
        assert client.read(0)[0].state_batches == []
        client.group_id = ""
        assert client.initialize(0) == client.delete(0) == [Code.INVALID_REQUEST]

    async def scenario() -> None:
        node, topic_id = await started(tmp_path)
        await ask(node, topic_id, work)
        await node.stop()

    run(scenario)


def test_the_topic_is_made_on_first_need_and_is_the_clusters_own(tmp_path: Path) -> None:
    def work(client: ShareStateClient) -> None:
        for version, keys in ((6, ["", "group", "group:x:0", ":" + client.key(0)]), (5, [client.key(0)])):
            found = client.find(*keys, version=version)
            assert [one.error_code for one in found[:3]] == [Code.INVALID_REQUEST] * len(found[:3])
        assert [one.error_code for one in client.find(client.key(0), "a:b:" + client.key(1))] == [Code.NONE] * 2
        assert client.wire.describe_topic(SHARE_GROUP_STATE_TOPIC).is_internal

    async def scenario() -> None:
        node, topic_id = await started(tmp_path, coordinates=False)
        await ask(node, topic_id, work)
        configs = node.image.topic_configs(SHARE_GROUP_STATE_TOPIC)
        assert configs == {
            "cleanup.policy": "delete",
            "compression.type": "producer",
            "min.insync.replicas": "2",
            "retention.bytes": "-1",
            "retention.ms": "-1",
            "segment.bytes": "104857600",
            "unclean.leader.election.enable": "false",
        }
        topic = node.image.topic(SHARE_GROUP_STATE_TOPIC)
        assert topic is not None
        assert len(topic.partitions) == 2
        await node.stop()

    run(scenario)


def test_below_level_1_nobody_is_served(tmp_path: Path) -> None:
    def work(client: ShareStateClient) -> None:
        assert client.find(client.key(0))[0].error_code == Code.INVALID_REQUEST
        assert client.initialize(0) == [Code.UNSUPPORTED_VERSION]
        assert client.write(told_change(0, change())) == [Code.UNSUPPORTED_VERSION]
        assert client.read(0)[0].error_code == Code.UNSUPPORTED_VERSION

    async def scenario() -> None:
        node, topic_id = await started(tmp_path, level=0)
        await ask(node, topic_id, work)
        assert node.image.topic(SHARE_GROUP_STATE_TOPIC) is None
        await node.stop()

    run(scenario)


def partition_at(topic_id: UUID, node: Node, index: int) -> int:
    """A partition whose state is on a partition of the internal topic."""
    return next(
        one
        for one in range(PARTITIONS)
        if (place := node.share_states.partition_for(str(ShareKey("group", TopicId(topic_id), PartitionIndex(one)))))
        and place.partition == index
    )


def test_a_damaged_partition_is_refused_with_its_offset_and_the_others_serve(tmp_path: Path) -> None:
    async def scenario() -> None:
        node, topic_id = await started(tmp_path)

        def fill(client: ShareStateClient) -> None:
            client.find(client.key(0))
            client.initialize(*range(PARTITIONS))
            client.read(*range(PARTITIONS), leader_epoch=0)
            for offset in range(20):
                client.write(*(told_change(one, change(batch(offset, offset))) for one in range(PARTITIONS)))

        await ask(node, topic_id, fill)
        await node.stop()
        segment = tmp_path / "logs" / f"{SHARE_GROUP_STATE_TOPIC}-0" / "00000000000000000000.log"
        position, header = split_whole_batches(segment.read_bytes())[17]
        change_byte(segment, position + header.size_bytes - 1, lambda byte: byte ^ 1)
        node, _ = await started(tmp_path)

        def look(client: ShareStateClient) -> None:
            hurt, whole = (partition_at(topic_id, node, index) for index in range(2))
            refused, found = client.find(client.key(hurt), client.key(whole))
            assert (refused.error_code, found.error_code) == (Code.COORDINATOR_NOT_AVAILABLE, Code.NONE)
            assert "offset 17" in (refused.error_message or "")
            assert "share.auto.offset.reset" in (refused.error_message or "")
            damaged, read = client.read(hurt, whole)
            assert damaged.error_code == Code.COORDINATOR_NOT_AVAILABLE
            assert [(one.first_offset, one.last_offset) for one in read.state_batches] == [(0, 19)]
            assert client.write(told_change(whole, change(batch(20, 20)))) == [Code.NONE]

        await ask(node, topic_id, look)
        persister = SharePersister(node.broker, node.share_states, SystemRng(), backoff=Backoff(1, 1, SystemRng()))
        with pytest.raises(KafkaError, match="offset 17") as refused:
            await persister.read("group", topic_id, PartitionIndex(partition_at(topic_id, node, 0)), LeaderEpoch(1))
        assert refused.value.code is Code.COORDINATOR_NOT_AVAILABLE
        await node.stop()

    run(scenario)


def test_only_the_metadata_that_made_it_lead_tells_a_coordinator_which_topics_are_no_more(tmp_path: Path) -> None:
    """A broker may come to lead by the same run of records that tells it of a topic: what is known before lacks it."""

    async def scenario() -> None:
        node, topic_id = await started(tmp_path, {"share.coordinator.state.topic.num.partitions": "1"})
        index = PartitionIndex(0)
        await node.share_persister.initialize("group", [StartedState(topic_id, index, 1, Offset(0))])
        states, partition = node.share_states, node.broker.partition(SHARE_GROUP_STATE_TOPIC, 0)

        async def lead_anew(before: MetadataImage, image: MetadataImage) -> ShareCoordinator:
            node.broker.image, node.broker._next_image = before, image
            states.on_leadership_changed(partition)
            node.broker.image, node.broker._next_image = image, None
            while states.here[0].refusal is not None:
                await asyncio.sleep(0.01)
            return states.here[0].coordinator

        image = node.broker.image
        older = replace(image, topics_by_id={}, topics_by_name={})
        machine = await lead_anew(older, image)
        states.on_image_changed(MetadataDelta(older), image)
        assert len(machine.states) == 1
        states.on_image_changed(MetadataDelta(image), older)
        assert len(machine.states) == 1, "no topic was deleted, and no coordinator is new"
        machine = await lead_anew(image, older)
        assert not machine.states
        node.broker.image = image
        await node.stop()

    run(scenario)


def test_a_log_that_was_pruned_tells_the_same(tmp_path: Path) -> None:
    async def scenario() -> None:
        settings = {
            "share.coordinator.snapshot.update.records.per.snapshot": "5",
            "share.coordinator.state.topic.segment.bytes": "2000",
        }
        node, topic_id = await started(tmp_path, settings)
        persister = node.share_persister
        index = PartitionIndex(0)
        (begun,) = await persister.initialize("group", [StartedState(topic_id, index, 1, Offset(0))])
        assert begun is None
        await persister.read("group", topic_id, index, LeaderEpoch(0))
        for offset in range(60):
            await persister.write("group", topic_id, index, change(batch(2 * offset, 2 * offset, epoch=3)))
        before = await persister.read("group", topic_id, index, LeaderEpoch(2))
        assert len(before.batches) == 60
        place = node.share_states.partition_for(str(ShareKey("group", topic_id, index)))
        assert place is not None
        directory = tmp_path / "logs" / str(place)
        segments = len(list(directory.glob("*.log")))
        await node.share_states.prune()
        log = node.broker.partition(place.topic, place.partition).log
        assert log.log_start_offset > 50
        assert len(list(directory.glob("*.log"))) < segments / 4
        await node.share_states.prune()
        await node.stop()
        node, _ = await started(tmp_path, settings)
        assert node.broker.partition(place.topic, place.partition).log.log_start_offset == log.log_start_offset
        assert await node.share_persister.read("group", topic_id, index, LeaderEpoch(2)) == before
        await node.stop()

    run(scenario)


def test_coordinators_of_groups_raise_epochs_and_learn_what_is_not_kept(tmp_path: Path) -> None:
    async def scenario() -> None:
        node, topic_id = await started(tmp_path)
        index = PartitionIndex(0)
        requests = GroupRequests(node.share_persister)
        asked = RaiseStates("group", 4, ((topic_id, index),))
        (lost,) = await requests.send_to_leader(STATES_ANYWHERE, asked)
        assert lost is not None
        assert lost.code is Code.INVALID_REQUEST
        await node.share_persister.initialize("group", [StartedState(topic_id, index, 1, Offset(5))])
        assert await requests.send_to_leader(STATES_ANYWHERE, asked) == (None,)
        look = LookForStates("group", ((topic_id, index), (topic_id, PartitionIndex(1))))
        kept, missing = await requests.send_to_leader(STATES_ANYWHERE, look)
        assert kept is None
        assert missing is not None
        assert missing.code is Code.INVALID_REQUEST

        def work(client: ShareStateClient) -> None:
            assert client.summarize(0)[0].state_epoch == 4
            assert client.write(told_change(0, raised_to(6))) == [Code.NONE]
            (summary,) = client.summarize(0)
            assert (summary.state_epoch, summary.start_offset) == (6, 5)
            assert client.delete(0, state_epoch=4) == [Code.NONE]
            assert client.summarize(0) == [summary]

        await ask(node, topic_id, work)
        assert await requests.send_to_leader(STATES_ANYWHERE, DeleteStates("group", 5, asked.ids)) == (None,)
        assert (await node.share_persister.read("group", topic_id, index, LeaderEpoch(0))).state_epoch == 6
        assert await requests.send_to_leader(STATES_ANYWHERE, DeleteStates("group", 6, asked.ids)) == (None,)
        (lost,) = await requests.send_to_leader(STATES_ANYWHERE, asked)
        assert lost is not None
        await node.stop()

    run(scenario)


def test_a_request_of_very_much_is_answered_in_pieces(tmp_path: Path) -> None:
    count = 3 * PORTION_BATCHES_MAX + 1
    many = [batch(2 * number, 2 * number, epoch=1) for number in range(count)]

    def work(client: ShareStateClient) -> None:
        client.find(client.key(0))
        assert client.initialize(*range(PARTITIONS)) == [Code.NONE] * PARTITIONS
        client.read(*range(PARTITIONS), leader_epoch=0)
        assert client.write(*(told_change(one, change(*many)) for one in range(PARTITIONS))) == [Code.NONE] * PARTITIONS
        rows = client.read(*range(PARTITIONS))
        assert [row.partition for row in rows] == list(range(PARTITIONS))
        assert all(len(row.state_batches) == count for row in rows)
        assert (
            client.delete(*range(PARTITIONS), *range(100, 400))
            == [Code.NONE] * PARTITIONS + [Code.UNKNOWN_TOPIC_OR_PARTITION] * 300
        )

    async def scenario() -> None:
        node, topic_id = await started(tmp_path)
        await ask(node, topic_id, work)
        assert node.share_states.memory_bytes == 0
        await node.stop()

    run(scenario)


def test_portions_of_what_is_told_are_those_of_the_change() -> None:
    many = [batch(2 * number, 2 * number, epoch=1) for number in range(2 * PORTION_BATCHES_MAX)]
    told = told_change(0, change(*many, start=3, complete=7))
    first, last = portions_told(told)
    assert (first.start, first.delivery_complete_count, len(first.batches)) == (None, -1, PORTION_BATCHES_MAX)
    assert (last.start, last.delivery_complete_count, len(last.batches)) == (3, 7, PORTION_BATCHES_MAX)
    assert [*first.batches, *last.batches] == many

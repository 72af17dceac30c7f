"""What members of consumer groups (KIP-848), and those who watch them, are answered: by a node, and by Apache Kafka.

Kafka 4.3 assigns on another thread: who joins learns with a later heartbeat what it reads. A node tells at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from uuid import UUID, uuid4

import pytest

from support.clients.kafka_peer import KafkaPeer
from support.clients.wire_client import WireClient
from support.fixtures.waiting import wait_until
from support.load.consumer_member import ConsumerMember, consumer_group
from support.load.group_member import GroupMember, wait_for_coordinator
from support.nodes.node import NodeProcess
from tidelog.base.errors import Code
from tidelog.wire import ApiKey
from tidelog.wire.messages.api_08_offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from tidelog.wire.messages.api_09_offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchResponse,
)
from tidelog.wire.messages.api_15_describe_groups import DescribeGroupsRequest, DescribeGroupsResponse
from tidelog.wire.messages.api_16_list_groups import ListGroupsRequest, ListGroupsResponse
from tidelog.wire.messages.api_42_delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
from tidelog.wire.messages.api_47_offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
)

Broker = NodeProcess | KafkaPeer
NOWHERE = UUID(int=77)


@pytest.fixture(params=["shared_node", "kafka_peer"])
def broker(request: pytest.FixtureRequest) -> Broker:
    """A node, and then Apache Kafka where it was fetched."""
    found: Broker = request.getfixturevalue(request.param)
    return found


class World:
    """A broker, a topic of four partitions, and a group whose coordinator serves."""

    def __init__(self, broker: Broker, members: ExitStack) -> None:
        self.port = int(broker.bootstrap.rpartition(":")[2])
        self.members = members
        self.client = members.enter_context(WireClient(self.port))
        self.topic, self.group = f"answers-{uuid4().hex[:8]}", f"group-{uuid4().hex[:8]}"
        self.client.create_topic(self.topic, partitions=4)
        wait_until(lambda: self.client.describe_topic(self.topic).error_code == 0, "the topic is there")
        self.topic_id = self.client.describe_topic(self.topic).topic_id
        wait_for_coordinator(self.client, self.group)

    def member(self, **options: str) -> ConsumerMember:
        member = ConsumerMember(self.port, self.group, **options)
        self.members.callback(member.close)
        return member

    def joined(self, *topics: str, **options: str) -> ConsumerMember:
        """A member that has what it is to have."""
        member = self.member(**options)
        assert member.join(*(topics or (self.topic,))) is Code.NONE, member.message
        return member

    def settle(self, *members: ConsumerMember, each: int) -> None:
        """Everybody does as told, until all have the same number of partitions."""

        def beat() -> bool:
            for one in members:
                assert one.acknowledge() is Code.NONE, one.message
            return all(one.partition_count == each for one in members)

        wait_until(beat, f"each has {each} partitions")

    def commit(self, member_id: str, epoch: int, partition: int, *, version: int = 10, **ids: UUID) -> Code:
        row = OffsetCommitRequestPartition(partition_index=partition, committed_offset=5, committed_metadata="m")
        request = OffsetCommitRequest(
            group_id=self.group,
            generation_id_or_member_epoch=epoch,
            member_id=member_id,
            topics=[
                OffsetCommitRequestTopic(name=self.topic, topic_id=ids.get("topic_id", self.topic_id), partitions=[row])
            ],
        )
        answer = self.client.ask(ApiKey.OFFSET_COMMIT, version, request, OffsetCommitResponse)
        (topic,) = answer.topics
        if version >= 10:
            assert topic.topic_id == ids.get("topic_id", self.topic_id)
        return Code(topic.partitions[0].error_code)

    def fetch(self, member_id: str | None, epoch: int, *, version: int = 10, all_topics: bool = False) -> object:
        """The error of the group; or the error and the offset of each partition, of what there is and there is not."""
        wanted = [
            OffsetFetchRequestTopic(name=self.topic, topic_id=self.topic_id, partition_indexes=[0, 9]),
            OffsetFetchRequestTopic(name="nowhere", topic_id=NOWHERE, partition_indexes=[1]),
        ]
        group = OffsetFetchRequestGroup(
            group_id=self.group, member_id=member_id, member_epoch=epoch, topics=None if all_topics else wanted
        )
        (row,) = self.client.ask(
            ApiKey.OFFSET_FETCH, version, OffsetFetchRequest(groups=[group]), OffsetFetchResponse
        ).groups
        if row.error_code:
            return Code(row.error_code)
        known = {self.topic_id: "here", NOWHERE: "nowhere"}
        return {
            (known.get(topic.topic_id, topic.name.replace(self.topic, "here")), one.partition_index): (
                Code(one.error_code).name,
                one.committed_offset,
            )
            for topic in row.topics
            for one in topic.partitions
        }


@pytest.fixture
def world(broker: Broker) -> Iterator[World]:
    with ExitStack() as members:
        yield World(broker, members)


# Heartbeats.


def test_two_members_share_a_topic_and_the_one_that_stays_gets_all(world: World) -> None:
    first = world.joined()
    world.settle(first, each=4)
    assert first.assigned == {world.topic_id: [0, 1, 2, 3]}
    second = world.joined()
    world.settle(first, second, each=2)
    told = consumer_group(world.client, world.group)
    assert (told.error_code, told.group_state, told.assignor_name) == (0, "Stable", "uniform")
    assert told.group_epoch == told.assignment_epoch == first.epoch == second.epoch
    (row,) = [one for one in told.members if one.member_id == first.member_id]
    assert (row.subscribed_topic_names, row.client_host, row.member_type) == ([world.topic], "/127.0.0.1", 1)
    assert row.assignment == row.target_assignment
    assert first.leave() is Code.NONE
    world.settle(second, each=4)


@pytest.mark.parametrize(
    ("send", "code"),
    [
        (lambda one: one.send(0), Code.INVALID_REQUEST),
        (lambda one: one.join("t", assignor="none"), Code.UNSUPPORTED_ASSIGNOR),
        (lambda one: one.join(pattern="("), Code.INVALID_REGULAR_EXPRESSION),
        (lambda one: one.send(5), Code.GROUP_ID_NOT_FOUND),
        (lambda one: one.send(-1), Code.GROUP_ID_NOT_FOUND),
        (lambda one: one.send(-2), Code.INVALID_REQUEST),
        (lambda one: one.send(-3), Code.INVALID_REQUEST),
    ],
)
def test_what_is_refused_of_somebody_who_is_no_member(
    world: World, send: Callable[[ConsumerMember], Code], code: Code
) -> None:
    assert send(world.member()) is code


def test_an_epoch_that_is_not_the_members_is_fenced(world: World) -> None:
    member = world.joined()
    world.settle(member, each=4)
    for epoch in (member.epoch + 1, member.epoch - 1):
        if epoch:
            assert member.send(epoch) is Code.FENCED_MEMBER_EPOCH
    stranger = world.member()
    assert stranger.send(member.epoch) is Code.UNKNOWN_MEMBER_ID
    assert member.join(world.topic) is Code.NONE, "it joins again under its id"
    world.settle(member, each=4)


def test_static_members_keep_their_place(world: World) -> None:
    first = world.joined(instance_id="one")
    world.settle(first, each=4)
    second = world.member(instance_id="one")
    assert second.join(world.topic) is Code.UNRELEASED_INSTANCE_ID
    epoch = first.epoch
    assert first.leave(-2) is Code.NONE
    assert second.join(world.topic) is Code.NONE
    assert (second.epoch, second.partition_count) == (epoch, 4)
    first.epoch = epoch
    assert first.beat() is Code.FENCED_INSTANCE_ID


def test_a_pattern_finds_topics_that_are_made_later(world: World) -> None:
    member = world.member()
    assert member.join(pattern=f"{world.topic}(-.*)?") is Code.NONE
    world.settle(member, each=4)
    world.client.create_topic(f"{world.topic}-more", partitions=2)
    told = consumer_group(world.client, world.group)
    assert told.members[0].subscribed_topic_regex == f"{world.topic}(-.*)?"


# Offsets.


def test_members_commit_and_fetch_by_the_ids_of_topics(world: World) -> None:
    member = world.joined()
    assert world.commit(member.member_id, member.epoch, 0) is Code.NONE
    assert world.commit(member.member_id, member.epoch, 9) is Code.UNKNOWN_TOPIC_OR_PARTITION
    assert world.commit(member.member_id, member.epoch, 0, topic_id=NOWHERE) is Code.UNKNOWN_TOPIC_ID
    assert world.fetch(member.member_id, member.epoch) == {
        ("here", 0): ("NONE", 5),
        ("here", 9): ("NONE", -1),
        ("nowhere", 1): ("UNKNOWN_TOPIC_ID", -1),
    }
    assert world.fetch(None, -1, all_topics=True) == {("here", 0): ("NONE", 5)}
    assert world.fetch(None, -1, version=9, all_topics=True) == {("here", 0): ("NONE", 5)}


def test_an_epoch_that_is_not_the_members_commits_and_fetches_nothing(world: World) -> None:
    first = world.joined()
    assert world.commit(first.member_id, first.epoch + 1, 0) is Code.STALE_MEMBER_EPOCH
    assert world.commit("stranger", first.epoch, 0) is Code.UNKNOWN_MEMBER_ID
    assert world.commit("", -1, 0) is Code.UNKNOWN_MEMBER_ID
    assert world.commit(first.member_id, first.epoch, 0, version=8) is Code.UNSUPPORTED_VERSION
    assert world.fetch(first.member_id, first.epoch + 1) is Code.STALE_MEMBER_EPOCH
    assert world.fetch("stranger", first.epoch) is Code.UNKNOWN_MEMBER_ID


def test_an_epoch_behind_commits_what_the_member_had_in_it_and_has_still(world: World) -> None:
    """KIP-1251."""
    first = world.joined()
    world.settle(first, each=4)
    old = first.epoch
    second = world.joined()
    world.settle(first, second, each=2)
    assert first.epoch > old
    kept = first.assigned[world.topic_id]
    (gone, *_) = second.assigned[world.topic_id]
    assert world.commit(first.member_id, old, kept[0]) is Code.NONE
    assert world.commit(first.member_id, old, gone) is Code.STALE_MEMBER_EPOCH
    assert world.commit(second.member_id, old, gone) is Code.STALE_MEMBER_EPOCH


# Those who watch.


def listed(world: World, types: list[str], states: list[str] | None = None) -> tuple[str, str, str] | None:
    request = ListGroupsRequest(types_filter=types, states_filter=states or [])
    answer = world.client.ask(ApiKey.LIST_GROUPS, 5, request, ListGroupsResponse)
    rows = [
        (one.protocol_type, one.group_state, one.group_type) for one in answer.groups if one.group_id == world.group
    ]
    return rows[0] if rows else None


def test_it_is_listed_with_its_type(world: World) -> None:
    world.joined()
    assert listed(world, []) == ("consumer", "Stable", "consumer")
    assert listed(world, ["Consumer"]) == listed(world, ["consumer"], ["STABLE"]) == listed(world, [])
    assert listed(world, ["classic"]) is None
    assert listed(world, ["consumer"], ["Empty"]) is None


def test_who_describes_classic_groups_finds_none(world: World) -> None:
    world.joined()
    for version, code in ((5, Code.NONE), (6, Code.GROUP_ID_NOT_FOUND)):
        request = DescribeGroupsRequest(groups=[world.group])
        (row,) = world.client.ask(ApiKey.DESCRIBE_GROUPS, version, request, DescribeGroupsResponse).groups
        assert (row.error_code, row.group_state) == (code, "Dead")


def test_offsets_of_topics_that_are_read_are_not_deleted_nor_is_a_group_with_members(world: World) -> None:
    member = world.joined()
    assert world.commit(member.member_id, member.epoch, 0) is Code.NONE

    def delete_offset() -> Code:
        topic = OffsetDeleteRequestTopic(world.topic, [OffsetDeleteRequestPartition(0)])
        request = OffsetDeleteRequest(group_id=world.group, topics=[topic])
        answer = world.client.ask(ApiKey.OFFSET_DELETE, 0, request, OffsetDeleteResponse)
        assert answer.error_code == 0
        return Code(answer.topics[0].partitions[0].error_code)

    def delete_group() -> Code:
        request = DeleteGroupsRequest(groups_names=[world.group])
        (row,) = world.client.ask(ApiKey.DELETE_GROUPS, 2, request, DeleteGroupsResponse).results
        return Code(row.error_code)

    assert delete_offset() is Code.GROUP_SUBSCRIBED_TO_TOPIC
    assert delete_group() is Code.NON_EMPTY_GROUP
    assert member.leave() is Code.NONE
    assert listed(world, []) == ("consumer", "Empty", "consumer")
    assert world.commit("", -1, 1) is Code.NONE, "nobody is there to be asked"
    assert delete_offset() is Code.NONE
    assert delete_group() is Code.NONE
    assert consumer_group(world.client, world.group).error_code == Code.GROUP_ID_NOT_FOUND


# Both protocols.


def test_a_classic_member_that_goes_leaves_its_group_to_the_new_protocol(world: World) -> None:
    with ExitStack() as stack:
        classic = GroupMember(world.port, world.group)
        stack.callback(classic.close)
        classic.take_id()
        classic.send_join()
        assert classic.receive_join() is Code.NONE
        classic.send_sync({classic.member_id: b""})
        classic.receive_sync()
        assert classic.leave() is Code.NONE
    member = world.joined()
    world.settle(member, each=4)
    assert listed(world, ["consumer"]) == ("consumer", "Stable", "consumer")

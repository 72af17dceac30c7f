"""What members of share groups (KIP-932), and those who watch them, are answered: by a node, and by Apache Kafka.

One story is told to both, and the answers have to be the same but for ids, texts and the order of rows. A node raises
the group epoch where an administrator has a group begin elsewhere; Kafka does not, so epochs are not told after that.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from support.clients.kafka_peer import TOOL_FLAGS, KafkaPeer
from support.clients.kafka_tools import KafkaTools
from support.clients.wire_client import WireClient, batch_of
from support.fixtures.coordinated import CountingRng
from support.fixtures.coordinated_sharers import Sharers
from support.fixtures.waiting import wait_until
from support.load.consumer_member import ConsumerMember, consumer_group
from support.load.group_member import commit_request, committed_of, wait_for_coordinator
from support.load.share_member import (
    ShareMember,
    alter_share_offsets,
    delete_share_offsets,
    share_group,
    share_offsets,
)
from support.nodes.node import NodeProcess
from tidelog.base.errors import Code
from tidelog.base.ids import LeaderEpoch, Offset, PartitionIndex, TopicPartition
from tidelog.coordinator.groups import GroupCoordinator, GroupSettings
from tidelog.io.disk import RealDisk
from tidelog.log import Log, LogConfig
from tidelog.metadata.topic_names import CONSUMER_OFFSETS_TOPIC
from tidelog.records import BatchBuilder, Record, read_records, split_whole_batches
from tidelog.wire import ApiKey
from tidelog.wire.messages.api_08_offset_commit import OffsetCommitResponse
from tidelog.wire.messages.api_11_join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from tidelog.wire.messages.api_12_heartbeat import HeartbeatRequest, HeartbeatResponse
from tidelog.wire.messages.api_13_leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberIdentity
from tidelog.wire.messages.api_14_sync_group import SyncGroupRequest, SyncGroupResponse
from tidelog.wire.messages.api_15_describe_groups import DescribeGroupsRequest, DescribeGroupsResponse
from tidelog.wire.messages.api_16_list_groups import ListGroupsRequest, ListGroupsResponse
from tidelog.wire.messages.api_42_delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
from tidelog.wire.messages.api_47_offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
)

CONFIG = {
    "offsets.topic.num.partitions": "1",
    "share.coordinator.state.topic.num.partitions": "1",
    "group.share.max.size": "3",
    "group.share.assignment.interval.ms": "0",
}


class Story:
    """What is asked of one broker, and what it answered: by name, so that what differs is found.

    Args:
        absent: partitions of topic t that there are not, and of which it is asked; Kafka takes half a minute for that.
    """

    def __init__(
        self, port: int, *, topics: tuple[tuple[str, int], ...] = (("t", 2), ("u", 1)), absent: tuple[int, ...] = ()
    ) -> None:
        self.port = port
        self.absent = absent
        self.client = WireClient(port)
        self.answers: dict[str, object] = {}
        self.members: list[ShareMember] = []
        self.names: dict[UUID, str] = {UUID(int=0): ""}
        for topic, partitions in topics:
            self.client.create_topic(topic, partitions=partitions)
            wait_until(lambda name=topic: self.client.describe_topic(name).error_code == 0, "the topic is there")  # type: ignore[misc]
            self.names[self.client.describe_topic(topic).topic_id] = topic
        wait_for_coordinator(self.client, "g")

    def close(self) -> None:
        for member in self.members:
            member.close()
        self.client.close()

    def note(self, name: str, answer: object) -> None:
        assert name not in self.answers
        self.answers[name] = answer

    def member(self, group: str = "g", *, member_id: str | None = None) -> ShareMember:
        self.members.append(ShareMember(self.port, group, member_id=member_id))
        return self.members[-1]

    def heard(self, member: ShareMember, code: Code) -> tuple[object, ...]:
        answer = member.answer
        if code is not Code.NONE:
            return (code.name,)
        is_told = answer.assignment is not None
        return code.name, answer.member_epoch, answer.heartbeat_interval_ms, is_told, self.reads(member)

    def reads(self, member: ShareMember) -> dict[str, list[int]]:
        return {self.names[topic]: partitions for topic, partitions in sorted(member.assigned.items())}

    def settle(self, *members: ShareMember, total: int) -> None:
        """All send heartbeats, until they read that many partitions together and nothing changes any more."""

        def beat() -> bool:
            before = [(one.epoch, one.partition_count) for one in members]
            for one in members:
                assert one.beat() is Code.NONE, one.message
            after = [(one.epoch, one.partition_count) for one in members]
            is_rested = after == before and len({epoch for epoch, _ in after}) == 1
            return is_rested and sum(count for _, count in after) == total

        wait_until(beat, f"{total} partitions are read")

    def described(self, group: str, *, epochs: bool = True) -> tuple[object, ...]:
        found = share_group(self.client, group, asks_operations=True)
        if found.error_code:
            return (Code(found.error_code).name,)
        members = sorted(
            (
                one.client_id,
                one.client_host,
                one.rack_id,
                one.member_epoch if epochs else None,
                one.subscribed_topic_names,
                sorted(
                    (part.topic_name, self.names[part.topic_id], len(part.partitions))
                    for part in one.assignment.topic_partitions
                ),
            )
            for one in found.members
        )
        told = (found.group_epoch, found.assignment_epoch) if epochs else ()
        return found.group_state, *told, found.assignor_name, found.authorized_operations, members

    def offsets(self, group: str, topics: dict[str, list[int]] | None, *, version: int = 1) -> tuple[object, ...]:
        found = share_offsets(self.client, group, topics, version=version)
        if found.error_code:
            return (Code(found.error_code).name,)
        return tuple(
            sorted(
                (
                    topic.topic_name,
                    self.names[topic.topic_id],
                    one.partition_index,
                    one.start_offset,
                    one.leader_epoch,
                    one.lag,
                    one.error_code,
                )
                for topic in found.topics
                for one in topic.partitions
            )
        )

    def altered(self, group: str, topics: dict[str, dict[int, int]]) -> tuple[object, ...]:
        found = alter_share_offsets(self.client, group, topics)
        if found.error_code:
            return (Code(found.error_code).name,)
        return tuple(
            sorted(
                (topic.topic_name, self.names[topic.topic_id], one.partition_index, Code(one.error_code).name)
                for topic in found.responses
                for one in topic.partitions
            )
        )

    def deleted(self, group: str, *topics: str) -> tuple[object, ...]:
        found = delete_share_offsets(self.client, group, *topics)
        if found.error_code:
            return (Code(found.error_code).name,)
        return tuple(
            sorted((one.topic_name, self.names[one.topic_id], Code(one.error_code).name) for one in found.responses)
        )

    def groups_deleted(self, *groups: str) -> list[tuple[str, str]]:
        request = DeleteGroupsRequest(groups_names=list(groups))
        answer = self.client.ask(ApiKey.DELETE_GROUPS, 2, request, DeleteGroupsResponse)
        return sorted((one.group_id, Code(one.error_code).name) for one in answer.results)

    def listed(self, states: tuple[str, ...] = (), types: tuple[str, ...] = ()) -> list[tuple[str, ...]]:
        request = ListGroupsRequest(states_filter=list(states), types_filter=list(types))
        answer = self.client.ask(ApiKey.LIST_GROUPS, 5, request, ListGroupsResponse)
        return sorted((one.group_id, one.protocol_type, one.group_state, one.group_type) for one in answer.groups)

    # The chapters.

    def refusals(self) -> None:
        one = self.member()
        for name, code in (
            ("joins without names", one.send(0)),
            ("joins with no name", one.join()),
            ("has an epoch", one.send(5)),
            ("leaves", one.leave()),
            ("has no such epoch", one.send(-2)),
            ("has an empty rack", one.send(0, subscribed_topic_names=["t"], rack_id="")),
            ("has no id", self.member(member_id="").join("t")),
            ("has no group", self.member("").join("t")),
        ):
            self.note(f"who {name}", code.name)
        self.note("unknown group", self.described("g"))
        self.note("nameless group", self.described(""))
        self.note("all offsets of an unknown group", self.offsets("g", None))
        self.note("offsets of an unknown group", self.offsets("g", {"t": [0, *self.absent], "nowhere": [1]}))
        self.note("nothing altered", self.altered("nothing", {}))
        self.note("altered without a group", self.altered("", {"t": {1: 3}}))
        self.note("deleted of an unknown group", self.deleted("g", "t"))
        self.note("deleted without a group", self.deleted("", "t"))
        self.note("groups by now", self.listed())

    def life(self) -> list[ShareMember]:
        first = self.member()
        self.note("first joins", self.heard(first, first.join("t")))
        self.settle(first, total=2)
        self.note("first alone", self.described("g"))
        self.note("first's epoch", (first.epoch, self.reads(first)))
        self.note("first again", self.heard(first, first.beat()))
        self.note("first says all", self.heard(first, first.beat(subscribed_topic_names=["t"])))
        self.note("first missed an answer", first.send(first.epoch - 1).name)  # Kafka does not repeat what it reads
        self.note("first is fenced", first.send(first.epoch + 1).name)
        self.note("first joins again", self.heard(first, first.join("t")))
        second = self.member()
        assert second.join("t", "u") is Code.NONE
        self.settle(first, second, total=3)
        self.note("both", (self.described("g"), sorted(one.partition_count for one in (first, second))))
        third = self.member()
        assert third.join("t") is Code.NONE
        self.settle(first, second, third, total=5)
        fourth = self.member()
        self.note("one too many", (fourth.join("t").name, fourth.send(3).name))
        self.note("all offsets", self.offsets("g", None))
        self.note("some offsets", self.offsets("g", {"t": [0, *self.absent], "nowhere": [1]}))
        self.note("no offsets", self.offsets("g", {}))
        self.note("offsets before the lag", self.offsets("g", None, version=0))
        self.note("not deleted", self.groups_deleted("g", "nope"))
        self.note("not altered", self.altered("g", {"t": {0: 0}}))
        self.note("no offsets deleted", self.deleted("g", "t"))
        return [first, second, third]

    def other_kinds(self) -> None:
        client = self.client
        for version in (5, 6):
            request = DescribeGroupsRequest(groups=["g"])
            (row,) = client.ask(ApiKey.DESCRIBE_GROUPS, version, request, DescribeGroupsResponse).groups
            self.note(f"as a classic group, version {version}", (Code(row.error_code).name, row.group_state))
        self.note("as a consumer group", Code(consumer_group(client, "g").error_code).name)
        consumer = ConsumerMember(self.port, "g")
        self.note("a consumer", (consumer.join("t").name, consumer.send(3).name, consumer.leave().name))
        consumer.close()
        for member_id in ("", "m"):
            join = JoinGroupRequest(
                group_id="g",
                session_timeout_ms=10_000,
                rebalance_timeout_ms=10_000,
                member_id=member_id,
                protocol_type="consumer",
                protocols=[JoinGroupRequestProtocol("range", b"")],
            )
            code = client.ask(ApiKey.JOIN_GROUP, 9, join, JoinGroupResponse).error_code
            self.note(f"a classic member {member_id!r}", Code(code).name)
        sync = SyncGroupRequest(group_id="g", generation_id=1, member_id="m")
        self.note("sync", Code(client.ask(ApiKey.SYNC_GROUP, 5, sync, SyncGroupResponse).error_code).name)
        beat = HeartbeatRequest(group_id="g", generation_id=1, member_id="m")
        self.note("heartbeat", Code(client.ask(ApiKey.HEARTBEAT, 4, beat, HeartbeatResponse).error_code).name)
        leave = LeaveGroupRequest(group_id="g", members=[MemberIdentity(member_id="m")])
        left = client.ask(ApiKey.LEAVE_GROUP, 5, leave, LeaveGroupResponse)
        self.note("leave", (left.error_code, [Code(one.error_code).name for one in left.members]))
        for generation, member_id in ((-1, ""), (1, "m")):
            commit = commit_request("g", {("t", 0): 1}, generation=generation, member_id=member_id)
            (topic,) = client.ask(ApiKey.OFFSET_COMMIT, 9, commit, OffsetCommitResponse).topics
            self.note(f"commit {generation}", [Code(one.error_code).name for one in topic.partitions])
        fetched = committed_of(client, "g", {"t": [0]})
        assert isinstance(fetched, dict)
        self.note("committed", {place: one.committed_offset for place, one in fetched.items()})
        delete = OffsetDeleteRequest(
            group_id="g", topics=[OffsetDeleteRequestTopic("t", [OffsetDeleteRequestPartition(partition_index=0)])]
        )
        self.note(
            "delete offsets", Code(client.ask(ApiKey.OFFSET_DELETE, 0, delete, OffsetDeleteResponse).error_code).name
        )
        consumer = ConsumerMember(self.port, "cons")
        assert consumer.join("t") is Code.NONE
        stranger = self.member("cons")
        self.note("in a consumer group", (stranger.join("t").name, stranger.send(3).name, self.described("cons")))
        self.note("offsets of a consumer group", self.offsets("cons", None))
        self.note("altered of a consumer group", (self.altered("cons", {"t": {0: 1}}), self.deleted("cons", "t")))
        consumer.leave()
        consumer.close()
        self.note("in an empty consumer group", stranger.join("t").name)
        client.ask(ApiKey.OFFSET_COMMIT, 9, commit_request("simple", {("t", 0): 1}), OffsetCommitResponse)
        self.note("in a group of offsets", (self.member("simple").join("t").name, self.described("simple")))
        self.note("all", self.listed())
        self.note("shares", (self.listed(types=("share",)), self.listed(("stable",), ("Share",))))
        self.note("empty ones", self.listed(("empty",)))
        self.note("of no type", self.listed(types=("foo",)))

    def administration(self, members: list[ShareMember]) -> None:
        for number, one in enumerate(members):
            self.note(f"{number} leaves", self.heard(one, one.leave())[:4])
        self.note("who left beats", members[0].send(4).name)
        self.note("empty", self.described("g"))
        for number in range(5):
            assert self.client.produce("t", batch_of(str(number).encode())).error_code == 0
        self.note("altered", self.altered("g", {"t": {0: 2, 7: 3}, "nowhere": {0: 1}}))
        self.note("altered offsets", self.offsets("g", None))
        self.note("altered again", (self.altered("g", {"t": {0: 1}}), self.offsets("g", {"t": [0]})))
        self.note("made", (self.altered("made", {"t": {1: 3}}), self.described("made", epochs=False)))
        self.note("made offsets", self.offsets("made", None))
        self.note("put back", (self.altered("made", {"t": {1: -1}}), self.offsets("made", None)))
        self.note("deleted", self.deleted("g", "t", "nowhere", "never"))
        self.note("deleted offsets", self.offsets("g", None))
        self.note("deleted again", (self.deleted("g", "t"), self.deleted("g")))
        again = self.member()
        assert again.join("t") is Code.NONE
        self.settle(again, total=2)
        self.note("begun anew", (self.offsets("g", None), self.reads(again)))
        again.leave()
        self.note("groups deleted", self.groups_deleted("made", "nope", "g"))
        self.note("deleted groups", (self.described("g"), self.described("made"), self.listed(types=("share",))))


def answers(port: int, absent: tuple[int, ...]) -> dict[str, object]:
    story = Story(port, absent=absent)
    try:
        story.refusals()
        members = story.life()
        story.other_kinds()
        story.administration(members)
    finally:
        story.close()
    return story.answers


@pytest.mark.usefixtures("needs_kafka")
@pytest.mark.parametrize("absent", [(), pytest.param((5,), marks=pytest.mark.slow)], ids=["", "an absent partition"])
def test_both_answer_the_same(tmp_path: Path, absent: tuple[int, ...]) -> None:
    kafka = KafkaPeer(tmp_path / "kafka", config=CONFIG, flags=TOOL_FLAGS)
    try:
        kafka.start()
        kafkas = answers(kafka.port, absent)
        last = Story(kafka.port, topics=())
        member = last.member("last", member_id="m")
        assert member.join("t") is Code.NONE
        last.settle(member, total=2)
        last.close()
        kafka.stop()
    finally:
        kafka.close()
    node = NodeProcess(tmp_path / "node", config=CONFIG)
    try:
        node.start()
        ours = answers(int(node.bootstrap.rpartition(":")[2]), absent)
    finally:
        node.close()
    differing = {name: (answer, kafkas[name]) for name, answer in ours.items() if answer != kafkas[name]}
    assert not differing

    coordinator = GroupCoordinator(0, GroupSettings(), rng=CountingRng())
    for record in records_in(kafka.log_dir / f"{CONSUMER_OFFSETS_TOPIC}-0"):
        coordinator.replay(record.key, record.value, Offset(record.offset))
    (group,) = coordinator.share_groups.groups.values()
    assert group.group_id == "last"
    assert group.subscriptions["m"].topic_names == ("t",)
    assert [sorted(one) for one in group.current("m").assigned.values()] == [[0, 1]]
    assert [sorted(one.partitions) for one in group.known_states.initialized.values()] == [[0, 1]]


def test_kafka_reads_what_was_recorded(tools: KafkaTools, tmp_path: Path) -> None:
    world = Sharers(topics={"t": 2, "u": 1})
    world.share("a", "t", "u")
    world.pass_ms(2_000)
    world.share_on("a")
    world.share_beat("a", -1)
    world.forget("u")
    partition = TopicPartition(CONSUMER_OFFSETS_TOPIC, PartitionIndex(0))
    directory = tmp_path / str(partition)
    log = Log.open(RealDisk(), str(directory), partition, LogConfig(), topic_id=None, clean_shutdown=True, now_ms=0)
    for _, (key, value) in world.log:
        builder = BatchBuilder()
        builder.append(world.wall_ms, key, value)
        batch = memoryview(bytearray(builder.build()))
        log.append_as_leader(batch, leader_epoch=LeaderEpoch(1), now_ms=world.wall_ms, origin="coordinator")
    log.close()
    files = ",".join(str(path) for path in sorted(directory.glob("*.log")))
    said = tools.run("kafka-dump-log", "--offsets-decoder", "--files", files).output
    assert "isvalid: false" not in said
    found = re.findall(r" key: (\{.*?\}) payload: (.*)$", said, re.MULTILINE)
    rows = [
        (json.loads(key)["type"], None if value == "<DELETE>" else json.loads(value)["data"]) for key, value in found
    ]
    assert len(rows) == len(world.log)
    assert {kind for kind, _ in rows} == {"10", "11", "12", "13", "14", "15"}
    states: list[Any] = [value for kind, value in rows if kind == "15"]
    assert [one["partitions"] for one in states[0]["initializingTopics"]] == [[0, 1], [0]]
    assert [one["topicName"] for one in states[1]["initializedTopics"]] == ["t", "u"]
    assert [one["topicName"] for one in states[2]["deletingTopics"]] == ["u"]
    assert [one["topicName"] for one in states[3]["initializedTopics"]] == ["t"]
    currents: list[Any] = [value for kind, value in rows if kind == "14"]
    assert (currents[1]["memberEpoch"], currents[1]["previousMemberEpoch"], currents[1]["state"]) == (3, 2, 0)
    assert [one["partitions"] for one in currents[1]["assignedPartitions"]] in ([[0, 1], [0]], [[0], [0, 1]])
    assert currents[2] is None


def records_in(directory: Path) -> Iterator[Record]:
    """All but control records."""
    for path in sorted(directory.glob("*.log")):
        data = path.read_bytes()
        for position, header in split_whole_batches(data):
            if not header.is_control:
                yield from read_records(data, position, header)

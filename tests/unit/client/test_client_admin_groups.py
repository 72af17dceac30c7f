"""The admin client and the coordinators of groups: who is asked, what is sent, and what refusals become."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from support.fixtures.model_cluster import ModelCluster
from support.fixtures.modelled_admin import FAST
from support.fixtures.scripted_broker import HANG_UP
from tidelog import CommittedOffset, ConfigResource, KafkaError, TopicPartition, aio
from tidelog.base.errors import Code
from tidelog.base.ids import PartitionIndex
from tidelog.client.admin.group_descriptions import GroupListing, ShareGroupOffset
from tidelog.wire import ApiKey, encode
from tidelog.wire.messages import api_08_offset_commit as commit
from tidelog.wire.messages import api_09_offset_fetch as fetch
from tidelog.wire.messages import api_10_find_coordinator as find
from tidelog.wire.messages import api_13_leave_group as leave
from tidelog.wire.messages import api_15_describe_groups as describe
from tidelog.wire.messages import api_16_list_groups as listing
from tidelog.wire.messages import api_21_delete_records as delete_records
from tidelog.wire.messages import api_37_create_partitions as create_partitions
from tidelog.wire.messages import api_42_delete_groups as delete
from tidelog.wire.messages import api_44_incremental_alter_configs as alter
from tidelog.wire.messages import api_77_share_group_describe as describe_shares
from tidelog.wire.messages import api_90_describe_share_group_offsets as share_offsets
from tidelog.wire.messages import api_91_alter_share_group_offsets as alter_shares
from tidelog.wire.messages import api_92_delete_share_group_offsets as forget_shares
from tidelog.wire.messages.api_69_consumer_group_describe import (
    ConsumerGroupDescribeGroup,
    ConsumerGroupDescribeResponse,
)
from tidelog.wire.messages.consumer_protocol import ConsumerProtocolAssignment, ConsumerProtocolPartitions
from tidelog.wire.primitives import ZERO_UUID

P0 = TopicPartition("t", PartitionIndex(0))
P1 = TopicPartition("t", PartitionIndex(1))


def run(work: Callable[[ModelCluster, aio.Admin], Coroutine[Any, Any, None]]) -> None:
    async def do() -> None:
        async with ModelCluster() as cluster, aio.Admin(cluster.address, **FAST) as admin:
            cluster.on(ApiKey.FIND_COORDINATOR, found_at_once)
            await work(cluster, admin)

    asyncio.run(do())


def found_at_once(request: find.FindCoordinatorRequest, version: int) -> find.FindCoordinatorResponse:
    if version < 4:
        return find.FindCoordinatorResponse(node_id=1, host="127.0.0.1", port=1)
    return find.FindCoordinatorResponse(coordinators=[find.Coordinator(key, 1) for key in request.coordinator_keys])


def test_groups_of_all_brokers_are_listed_by_id() -> None:
    async def work(cluster: ModelCluster, admin: aio.Admin) -> None:
        rows = [
            listing.ListedGroup(group_id="b", protocol_type="consumer", group_state="Stable", group_type="Classic"),
            listing.ListedGroup(group_id="a"),
        ]
        cluster.on(ApiKey.LIST_GROUPS, lambda request, version: listing.ListGroupsResponse(groups=rows))
        found = await admin.list_groups(["Stable", "Empty"])
        assert found == [GroupListing("a", "", None, None), GroupListing("b", "consumer", "Stable", "Classic")]
        [request] = cluster.messages(ApiKey.LIST_GROUPS)
        assert request.states_filter == ["Stable", "Empty"]

    run(work)


@pytest.mark.parametrize("version", [3, 6])
def test_a_coordinator_that_is_not_there_yet_is_looked_for_again(version: int) -> None:
    async def work(cluster: ModelCluster, admin: aio.Admin) -> None:
        cluster.versions[ApiKey.FIND_COORDINATOR] = (0, version)
        unavailable = find.FindCoordinatorResponse(
            error_code=Code.COORDINATOR_NOT_AVAILABLE,
            coordinators=[find.Coordinator("g", error_code=Code.COORDINATOR_NOT_AVAILABLE)],
        )
        looks = iter([unavailable])
        cluster.on(
            ApiKey.FIND_COORDINATOR, lambda request, version: next(looks, None) or found_at_once(request, version)
        )
        answers = iter([Code.NOT_COORDINATOR, Code.COORDINATOR_LOAD_IN_PROGRESS, Code.NONE])
        cluster.on(
            ApiKey.DELETE_GROUPS,
            lambda request, version: delete.DeleteGroupsResponse(
                results=[delete.DeletableGroupResult(request.groups_names[0], next(answers))]
            ),
        )
        await admin.delete_groups(["g"])
        assert len(cluster.messages(ApiKey.FIND_COORDINATOR)) == 4
        assert [request.groups_names for request in cluster.messages(ApiKey.DELETE_GROUPS)] == [["g"]] * 3

    run(work)


def test_one_group_that_cannot_be_deleted_does_not_keep_the_others() -> None:
    async def work(cluster: ModelCluster, admin: aio.Admin) -> None:
        codes = {"busy": Code.NON_EMPTY_GROUP, "gone": Code.GROUP_ID_NOT_FOUND, "idle": Code.NONE}
        cluster.on(
            ApiKey.DELETE_GROUPS,
            lambda request, version: delete.DeleteGroupsResponse(
                results=[delete.DeletableGroupResult(name, codes[name]) for name in request.groups_names]
            ),
        )
        with pytest.raises(KafkaError, match="group 'busy'") as error:
            await admin.delete_groups(["busy", "gone", "idle"])
        assert error.value.code is Code.NON_EMPTY_GROUP
        [note] = error.value.__notes__
        assert "group 'gone'" in note
        asked = {name for request in cluster.messages(ApiKey.DELETE_GROUPS) for name in request.groups_names}
        assert asked == {"busy", "gone", "idle"}

    run(work)


def test_members_are_told_with_what_they_read() -> None:
    async def work(cluster: ModelCluster, admin: aio.Admin) -> None:
        assigned = ConsumerProtocolAssignment(assigned_partitions=[ConsumerProtocolPartitions("t", [1, 0])])
        members = [
            describe.DescribedGroupMember(
                member_id="m", client_id="c", client_host="/h", member_assignment=b"\x00\x01" + encode(assigned, 1)
            ),
            describe.DescribedGroupMember(member_id="odd", client_id="d", member_assignment=b"\xff"),
        ]
        group = describe.DescribedGroup(
            group_id="g", group_state="Stable", protocol_type="consumer", protocol_data="range", members=members
        )
        cluster.on(ApiKey.DESCRIBE_GROUPS, lambda request, version: describe.DescribeGroupsResponse(groups=[group]))
        found = (await admin.describe_groups(["g"]))["g"]
        assert (found.state, found.protocol, found.coordinator) == ("Stable", "range", 1)
        assert [(member.member_id, member.partitions) for member in found.members] == [("m", (P0, P1)), ("odd", ())]

    run(work)


@pytest.mark.parametrize(("code", "state"), [(Code.GROUP_ID_NOT_FOUND, ""), (Code.NONE, "Dead")])
def test_a_group_that_is_not_there_is_an_error_in_every_version(code: Code, state: str) -> None:
    async def work(cluster: ModelCluster, admin: aio.Admin) -> None:
        group = describe.DescribedGroup(group_id="g", error_code=code, group_state=state)
        cluster.on(ApiKey.DESCRIBE_GROUPS, lambda request, version: describe.DescribeGroupsResponse(groups=[group]))
        other = ConsumerGroupDescribeGroup(group_id="g", error_code=Code.GROUP_ID_NOT_FOUND)
        cluster.on(ApiKey.CONSUMER_GROUP_DESCRIBE, lambda *_: ConsumerGroupDescribeResponse(groups=[other]))
        none = describe_shares.ShareGroupDescribeGroup(group_id="g", error_code=Code.GROUP_ID_NOT_FOUND)
        cluster.on(ApiKey.SHARE_GROUP_DESCRIBE, lambda *_: describe_shares.ShareGroupDescribeResponse(groups=[none]))
        with pytest.raises(KafkaError, match="group 'g'") as error:
            await admin.describe_groups(["g"])
        assert error.value.code is Code.GROUP_ID_NOT_FOUND

    run(work)


def test_a_share_group_is_described_altered_and_made_to_forget() -> None:
    async def work(cluster: ModelCluster, admin: aio.Admin) -> None:
        missing = describe.DescribedGroup(group_id="g", error_code=Code.GROUP_ID_NOT_FOUND)
        cluster.on(ApiKey.DESCRIBE_GROUPS, lambda *_: describe.DescribeGroupsResponse(groups=[missing]))
        other = ConsumerGroupDescribeGroup(group_id="g", error_code=Code.GROUP_ID_NOT_FOUND)
        cluster.on(ApiKey.CONSUMER_GROUP_DESCRIBE, lambda *_: ConsumerGroupDescribeResponse(groups=[other]))
        part = describe_shares.ShareGroupDescribePartitions(ZERO_UUID, "t", [1, 0])
        member = describe_shares.ShareGroupDescribeMember(
            member_id="m",
            member_epoch=3,
            client_id="c",
            client_host="/h",
            assignment=describe_shares.ShareGroupDescribeAssignment([part]),
        )
        group = describe_shares.ShareGroupDescribeGroup(
            group_id="g", group_state="Stable", group_epoch=3, assignor_name="simple", members=[member]
        )
        cluster.on(ApiKey.SHARE_GROUP_DESCRIBE, lambda *_: describe_shares.ShareGroupDescribeResponse(groups=[group]))
        found = (await admin.describe_groups(["g"]))["g"]
        assert (found.protocol_type, found.protocol, found.epoch) == ("share", "simple", 3)
        assert [(one.member_id, one.epoch, one.partitions) for one in found.members] == [("m", 3, (P0, P1))]

        rows = [
            share_offsets.DescribeShareGroupOffsetsResponsePartition(partition_index=0, start_offset=5, lag=2),
            share_offsets.DescribeShareGroupOffsetsResponsePartition(partition_index=1, start_offset=-1, lag=-1),
        ]
        topic = share_offsets.DescribeShareGroupOffsetsResponseTopic("t", ZERO_UUID, rows)
        told = share_offsets.DescribeShareGroupOffsetsResponseGroup(group_id="g", topics=[topic])
        cluster.on(
            ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS,
            lambda *_: share_offsets.DescribeShareGroupOffsetsResponse(groups=[told]),
        )
        assert await admin.list_share_group_offsets("g") == {P0: ShareGroupOffset(5, 2)}

        asked: list[alter_shares.AlterShareGroupOffsetsRequest] = []

        def altered(request: Any, version: int) -> alter_shares.AlterShareGroupOffsetsResponse:
            asked.append(request)
            return alter_shares.AlterShareGroupOffsetsResponse(error_code=Code.NON_EMPTY_GROUP)

        cluster.on(ApiKey.ALTER_SHARE_GROUP_OFFSETS, altered)
        with pytest.raises(KafkaError) as error:
            await admin.alter_share_group_offsets("g", {P0: 4, P1: 0})
        assert error.value.code is Code.NON_EMPTY_GROUP
        (topics,) = asked[0].topics
        assert [(one.partition_index, one.start_offset) for one in topics.partitions] == [(0, 4), (1, 0)]

        unknown = forget_shares.DeleteShareGroupOffsetsResponseTopic(
            topic_name="t", topic_id=ZERO_UUID, error_code=Code.UNKNOWN_TOPIC_OR_PARTITION
        )
        cluster.on(
            ApiKey.DELETE_SHARE_GROUP_OFFSETS,
            lambda *_: forget_shares.DeleteShareGroupOffsetsResponse(responses=[unknown]),
        )
        with pytest.raises(KafkaError, match="t"):
            await admin.delete_share_group_offsets("g", ["t"])

    run(work)


@pytest.mark.parametrize("version", [7, 9])
def test_offsets_come_with_their_epochs_and_those_without_a_commit_are_left_out(version: int) -> None:
    async def work(cluster: ModelCluster, admin: aio.Admin) -> None:
        cluster.versions[ApiKey.OFFSET_FETCH] = (1, version)
        rows = [
            fetch.OffsetFetchResponsePartition(
                partition_index=0, committed_offset=5, committed_leader_epoch=3, metadata="hello"
            ),
            fetch.OffsetFetchResponsePartition(partition_index=1, committed_offset=-1),
        ]
        topics = [fetch.OffsetFetchResponseTopic(name="t", partitions=rows)]
        answer = fetch.OffsetFetchResponse(topics=topics)
        if version >= 8:
            group = fetch.OffsetFetchResponseGroup(group_id="g", topics=topics)
            answer = fetch.OffsetFetchResponse(groups=[group])
        cluster.on(ApiKey.OFFSET_FETCH, lambda request, version: answer)
        assert await admin.list_group_offsets("g", [P0, P1]) == {P0: CommittedOffset(5, 3, "hello")}
        [request] = cluster.messages(ApiKey.OFFSET_FETCH)
        asked = request.groups[0] if version >= 8 else request
        assert (asked.group_id, [(topic.name, topic.partition_indexes) for topic in asked.topics]) == (
            "g", [("t", [0, 1])],
        )  # fmt: skip

    run(work)


def test_offsets_are_committed_from_outside_and_a_group_at_work_says_so() -> None:
    async def work(cluster: ModelCluster, admin: aio.Admin) -> None:
        codes = iter([Code.NONE, Code.UNKNOWN_MEMBER_ID])

        def answer(request: commit.OffsetCommitRequest, version: int) -> commit.OffsetCommitResponse:
            row = commit.OffsetCommitResponsePartition(0, next(codes))
            return commit.OffsetCommitResponse(topics=[commit.OffsetCommitResponseTopic(name="t", partitions=[row])])

        cluster.on(ApiKey.OFFSET_COMMIT, answer)
        await admin.alter_group_offsets("g", {P0: CommittedOffset(7, 2, "why")})
        [request] = cluster.messages(ApiKey.OFFSET_COMMIT)
        [row] = request.topics[0].partitions
        assert (request.group_id, request.generation_id_or_member_epoch, request.member_id) == ("g", -1, "")
        assert (row.committed_offset, row.committed_leader_epoch, row.committed_metadata) == (7, 2, "why")
        with pytest.raises(KafkaError, match="stop its consumers first") as error:
            await admin.alter_group_offsets("g", {P0: CommittedOffset(8)})
        assert error.value.code is Code.NON_EMPTY_GROUP

    run(work)


def test_partitions_are_added_and_only_what_was_postponed_is_asked_again() -> None:
    async def work(cluster: ModelCluster, admin: aio.Admin) -> None:
        answers = iter([{"a": Code.NONE, "b": Code.NOT_CONTROLLER}, {"b": Code.INVALID_PARTITIONS}])

        def answer(request: Any, version: int) -> create_partitions.CreatePartitionsResponse:
            rows = [create_partitions.CreatePartitionsTopicResult(*row) for row in next(answers).items()]
            return create_partitions.CreatePartitionsResponse(results=rows)

        cluster.on(ApiKey.CREATE_PARTITIONS, answer)
        with pytest.raises(KafkaError, match="topic 'b'"):
            await admin.create_partitions({"a": 4, "b": 2})
        asked = [
            [(topic.name, topic.count) for topic in request.topics]
            for request in cluster.messages(ApiKey.CREATE_PARTITIONS)
        ]
        assert asked == [[("a", 4), ("b", 2)], [("b", 2)]]

    run(work)


def test_settings_are_set_and_taken_back() -> None:
    async def work(cluster: ModelCluster, admin: aio.Admin) -> None:
        def answer(
            request: alter.IncrementalAlterConfigsRequest, version: int
        ) -> alter.IncrementalAlterConfigsResponse:
            rows = [
                alter.AlterConfigsResourceResponse(
                    resource_type=each.resource_type,
                    resource_name=each.resource_name,
                    error_code=Code.INVALID_CONFIG if each.resource_name == "1" else 0,
                )
                for each in request.resources
            ]
            return alter.IncrementalAlterConfigsResponse(responses=rows)

        cluster.on(ApiKey.INCREMENTAL_ALTER_CONFIGS, answer)
        topic, broker = ConfigResource("topic", "t"), ConfigResource("broker", "1")
        with pytest.raises(KafkaError, match="broker '1'"):
            await admin.alter_configs({topic: {"retention.ms": "5", "segment.bytes": None}, broker: {"k": "v"}})
        first, second = cluster.messages(ApiKey.INCREMENTAL_ALTER_CONFIGS)
        assert [(row.name, row.config_operation, row.value) for row in first.resources[0].configs] == [
            ("retention.ms", alter.OPERATION_SET, "5"),
            ("segment.bytes", alter.OPERATION_DELETE, None),
        ]
        assert [row.resource_name for row in second.resources] == ["1"]

    run(work)


def test_records_are_deleted_up_to_an_offset_or_all() -> None:
    async def work(cluster: ModelCluster, admin: aio.Admin) -> None:
        cluster.create("t", 2)

        def answer(request: delete_records.DeleteRecordsRequest, version: int) -> delete_records.DeleteRecordsResponse:
            topics = [
                delete_records.DeleteRecordsTopicResult(
                    topic.name,
                    [
                        delete_records.DeleteRecordsPartitionResult(
                            row.partition_index, 9 if row.offset < 0 else row.offset
                        )
                        for row in topic.partitions
                    ],
                )
                for topic in request.topics
            ]
            return delete_records.DeleteRecordsResponse(topics=topics)

        cluster.on(ApiKey.DELETE_RECORDS, answer)
        assert await admin.delete_records({P0: 4, P1: None}) == {P0: 4, P1: 9}

    run(work)


@pytest.mark.parametrize("is_lost", [True, False])
def test_a_member_that_is_out_though_the_answer_was_lost_is_no_error(is_lost: bool) -> None:
    """Who was none before is one: a refusal of all is not followed by silence."""

    async def work(cluster: ModelCluster, admin: aio.Admin) -> None:
        unknown = leave.MemberResponse(member_id="", group_instance_id="a", error_code=Code.UNKNOWN_MEMBER_ID)
        first = HANG_UP if is_lost else leave.LeaveGroupResponse(error_code=Code.NOT_COORDINATOR)
        answers = iter([first, leave.LeaveGroupResponse(members=[unknown])])
        cluster.on(ApiKey.LEAVE_GROUP, lambda request, version: next(answers))
        if is_lost:
            await admin.remove_group_members("g", ["a"])
        else:
            with pytest.raises(KafkaError, match="member 'a' of 'g'") as error:
                await admin.remove_group_members("g", ["a"])
            assert error.value.code is Code.UNKNOWN_MEMBER_ID
        assert next(answers, None) is None

    run(work)


def test_what_has_no_configuration_of_its_own_is_refused_by_name() -> None:
    async def work(cluster: ModelCluster, admin: aio.Admin) -> None:
        for wrong, told in ((["topics"], "'topics'"), ("topic", "'t'")):
            types: Any = wrong
            with pytest.raises(ValueError, match=f"{told}: one of 'topic', 'broker', 'group' is expected"):
                await admin.list_config_resources(types)

    run(work)

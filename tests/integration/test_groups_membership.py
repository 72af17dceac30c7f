"""Who is in a group: members that join, rebalance, fall silent, come back and go; over the wire, step by step."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from uuid import uuid4

import pytest

from support.clients.wire_client import WireClient
from support.fixtures.waiting import wait_until
from support.load.group_member import GroupMember, find_coordinator, form, rebalance, wait_for_coordinator
from support.nodes.node import NodeProcess, StartNode
from tidelog.base.errors import Code
from tidelog.wire import ApiKey, api
from tidelog.wire.messages.api_10_find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from tidelog.wire.messages.api_11_join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from tidelog.wire.messages.api_13_leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberIdentity
from tidelog.wire.messages.api_14_sync_group import SyncGroupRequest, SyncGroupResponse
from tidelog.wire.messages.api_15_describe_groups import DescribedGroup, DescribeGroupsRequest, DescribeGroupsResponse
from tidelog.wire.messages.api_16_list_groups import ListGroupsRequest, ListGroupsResponse
from tidelog.wire.messages.api_42_delete_groups import DeleteGroupsRequest, DeleteGroupsResponse

NewMember = Callable[..., GroupMember]


@pytest.fixture
def client(shared_node: NodeProcess) -> Iterator[WireClient]:
    with WireClient(shared_node.port) as connected:
        yield connected


@pytest.fixture
def group(client: WireClient) -> str:
    """A group whose coordinator serves."""
    name = f"group-{uuid4().hex[:8]}"
    wait_for_coordinator(client, name)
    return name


@pytest.fixture
def new_member() -> Iterator[NewMember]:
    """Makes members whose connections are closed at the end."""
    with ExitStack() as members:

        def make(port: int, group: str, **rest: object) -> GroupMember:
            member = GroupMember(port, group, **rest)  # type: ignore[arg-type]
            members.callback(member.close)
            return member

        yield make


def describe(client: WireClient, group: str) -> DescribedGroup:
    request = DescribeGroupsRequest(groups=[group])
    return client.ask(ApiKey.DESCRIBE_GROUPS, 6, request, DescribeGroupsResponse).groups[0]


def test_a_member_that_comes_or_goes_makes_the_others_rebalance(
    shared_node: NodeProcess, client: WireClient, group: str, new_member: NewMember
) -> None:
    first, second, third = (new_member(shared_node.port, group) for _ in range(3))
    form([first, second])
    assert [first.heartbeat(), second.heartbeat()] == [Code.NONE, Code.NONE]
    generation = first.generation
    third.take_id()
    third.send_join()
    wait_until(lambda: first.heartbeat() == Code.REBALANCE_IN_PROGRESS, "the first is told to join again")
    for member in (first, second):
        member.send_join()
    for member in (first, second, third):
        assert member.receive_join() == Code.NONE
    assert {first.generation, second.generation, third.generation} == {generation + 1}
    leader = next(one for one in (first, second, third) if one.is_leader)
    assert sorted(leader.members) == sorted(one.member_id for one in (first, second, third))
    for member in (first, second, third):
        member.send_sync({one: b"part of " + one.encode() for one in member.members} if member.is_leader else None)
    for member in (first, second, third):
        assert member.receive_sync() == (Code.NONE, b"part of " + member.member_id.encode())
    assert third.leave() == Code.NONE
    assert third.heartbeat() == Code.UNKNOWN_MEMBER_ID
    assert second.heartbeat() == Code.REBALANCE_IN_PROGRESS
    rebalance([first, second])
    found = describe(client, group)
    assert (found.group_state, found.protocol_type, found.protocol_data) == ("Stable", "consumer", "range")
    assert {one.member_id: one.member_assignment for one in found.members} == {
        member.member_id: member.member_id.encode() for member in (first, second)
    }
    assert {(one.client_id, one.client_host) for one in found.members} == {("tidelog-test", "/127.0.0.1")}


def test_a_stale_generation_is_fenced(shared_node: NodeProcess, group: str, new_member: NewMember) -> None:
    member, other = new_member(shared_node.port, group), new_member(shared_node.port, group)
    form([member, other])
    member.generation -= 1
    assert member.heartbeat() == Code.ILLEGAL_GENERATION
    member.send_sync()
    assert member.receive_sync()[0] == Code.ILLEGAL_GENERATION


def test_a_static_member_takes_its_place_again_and_fences_the_old_one(
    shared_node: NodeProcess, client: WireClient, group: str, new_member: NewMember
) -> None:
    first = new_member(shared_node.port, group, instance_id="one")
    second = new_member(shared_node.port, group, instance_id="two")
    form([first])
    second.send_join()
    wait_until(lambda: first.heartbeat() == Code.REBALANCE_IN_PROGRESS, "the first is told to join again")
    first.send_join()
    for member in (second, first):
        assert member.receive_join() == Code.NONE
    for member in (first, second):
        member.send_sync({one: one.encode() for one in member.members} if member.is_leader else None)
    for member in (first, second):
        assert member.receive_sync() == (Code.NONE, member.member_id.encode())
    generation, old_id = second.generation, second.member_id

    again = new_member(shared_node.port, group, instance_id="two")
    again.send_join()
    assert again.receive_join() == Code.NONE
    assert again.generation == generation
    assert again.member_id != old_id
    again.send_sync()
    assert again.receive_sync() == (Code.NONE, old_id.encode())
    assert first.heartbeat() == Code.NONE  # nobody noticed
    assert second.heartbeat() == Code.FENCED_INSTANCE_ID
    assert second.commit({("whatever", 0): 1}) == {Code.UNKNOWN_TOPIC_OR_PARTITION}
    # An administrator knows the name alone.
    request = LeaveGroupRequest(group_id=group, members=[MemberIdentity(member_id="", group_instance_id="two")])
    assert client.ask(ApiKey.LEAVE_GROUP, 5, request, LeaveGroupResponse).members[0].error_code == 0
    assert first.heartbeat() == Code.REBALANCE_IN_PROGRESS


def test_a_silent_member_is_out_when_its_session_ends(start_node: StartNode, new_member: NewMember) -> None:
    node = start_node(config={"group.min.session.timeout.ms": "10"})
    with WireClient(node.port) as client:
        wait_for_coordinator(client, "silent")
        lively = new_member(node.port, "silent", session_timeout_ms=10_000)
        zombie = new_member(node.port, "silent", session_timeout_ms=3_000)
        form([lively, zombie])
        wait_until(lambda: lively.heartbeat() == Code.REBALANCE_IN_PROGRESS, "the other's session ends")
        rebalance([lively])
        assert zombie.heartbeat() == Code.UNKNOWN_MEMBER_ID
        assert lively.heartbeat() == Code.NONE
        assert [one.member_id for one in describe(client, "silent").members] == [lively.member_id]
    node.stop()


def test_a_member_that_hangs_up_while_it_joins_does_not_hold_the_others_for_ever(
    start_node: StartNode, new_member: NewMember
) -> None:
    node = start_node(config={"group.min.session.timeout.ms": "10"})
    with WireClient(node.port) as client:
        wait_for_coordinator(client, "hung-up")
        lively = new_member(node.port, "hung-up", session_timeout_ms=5_000)
        form([lively])
        gone = GroupMember(node.port, "hung-up", session_timeout_ms=2_000)
        gone.take_id()
        gone.send_join()
        wait_until(lambda: lively.heartbeat() == Code.REBALANCE_IN_PROGRESS, "the newcomer is seen")
        gone.close()
        lively.send_join()
        assert lively.receive_join() == Code.NONE
        lively.send_sync({one: one.encode() for one in lively.members} if lively.is_leader else None)
        if not lively.is_leader:  # it was left with one that is gone: its session ends, and it joins alone
            code, _ = lively.receive_sync()
            assert code == Code.REBALANCE_IN_PROGRESS
            lively.send_join()
            assert lively.receive_join() == Code.NONE
            lively.send_sync({one: one.encode() for one in lively.members})
        assert lively.receive_sync()[0] == Code.NONE
        wait_until(
            lambda: lively.heartbeat() == Code.REBALANCE_IN_PROGRESS or len(describe(client, "hung-up").members) == 1,
            "the one that is gone is let go",
        )
    node.stop()


def test_members_go_on_after_a_kill(node: NodeProcess, new_member: NewMember) -> None:
    with WireClient(node.port) as client:
        wait_for_coordinator(client, "restored")
    members = [new_member(node.port, "restored") for _ in range(3)]
    form(members)
    node.kill()
    node.start()
    with WireClient(node.port) as client:
        wait_for_coordinator(client, "restored")
        found = describe(client, "restored")
        assert found.group_state == "Stable"
        assert {one.member_id: one.member_assignment for one in found.members} == {
            member.member_id: member.member_id.encode() for member in members
        }
    for member in members:
        member.close()
        member.client = WireClient(node.port)
        assert member.heartbeat() == Code.NONE
    assert members[0].leave() == Code.NONE
    assert members[1].heartbeat() == Code.REBALANCE_IN_PROGRESS


def test_what_makes_no_sense_is_refused(shared_node: NodeProcess, client: WireClient, group: str) -> None:
    def join(**changed: object) -> Code:
        values: dict[str, object] = {
            "group_id": group,
            "session_timeout_ms": 10_000,
            "rebalance_timeout_ms": 10_000,
            "member_id": "",
            "protocol_type": "consumer",
            "protocols": [JoinGroupRequestProtocol("range", b"")],
        }
        request = JoinGroupRequest(**(values | changed))  # type: ignore[arg-type]
        return Code(client.ask(ApiKey.JOIN_GROUP, 9, request, JoinGroupResponse).error_code)

    assert find_coordinator(client, "").error_code == 0
    assert join(group_id="") == Code.INVALID_GROUP_ID
    assert join(session_timeout_ms=5_999) == Code.INVALID_SESSION_TIMEOUT
    assert join(session_timeout_ms=1_800_001) == Code.INVALID_SESSION_TIMEOUT
    assert join(member_id="nobody") == Code.UNKNOWN_MEMBER_ID
    assert join(protocols=[]) == Code.INCONSISTENT_GROUP_PROTOCOL
    assert join(protocol_type="") == Code.INCONSISTENT_GROUP_PROTOCOL
    assert describe(client, group).error_code == Code.GROUP_ID_NOT_FOUND


@pytest.mark.parametrize("version", range(api(ApiKey.JOIN_GROUP).max_version + 1))
def test_every_version_joins(client: WireClient, group: str, version: int) -> None:
    request = JoinGroupRequest(
        group_id=group,
        session_timeout_ms=10_000,
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol("range", b"mine")],
    )
    answer = client.ask(ApiKey.JOIN_GROUP, version, request, JoinGroupResponse)
    if version >= 4:
        assert answer.error_code == Code.MEMBER_ID_REQUIRED
        assert answer.protocol_name == (None if version >= 7 else "")
        request.member_id = answer.member_id
        answer = client.ask(ApiKey.JOIN_GROUP, version, request, JoinGroupResponse)
    assert (answer.error_code, answer.generation_id, answer.protocol_name) == (0, 1, "range")
    assert answer.leader == answer.member_id
    assert [(one.member_id, one.metadata) for one in answer.members] == [(answer.member_id, b"mine")]
    for leave_version in (0, 2, 3, 5):
        leave = (
            LeaveGroupRequest(group_id=group, member_id=answer.member_id)
            if leave_version < 3
            else LeaveGroupRequest(group_id=group, members=[MemberIdentity(member_id=answer.member_id)])
        )
        left = client.ask(ApiKey.LEAVE_GROUP, leave_version, leave, LeaveGroupResponse)
        code = left.error_code if leave_version < 3 else left.members[0].error_code
        assert code == (Code.NONE if leave_version == 0 else Code.UNKNOWN_MEMBER_ID)


def test_who_syncs_says_what_it_takes_the_group_for(
    shared_node: NodeProcess, client: WireClient, group: str, new_member: NewMember
) -> None:
    """From version 5 on, type and name (KIP-559); older ones cannot say."""
    member = new_member(shared_node.port, group)
    form([member])
    request = SyncGroupRequest(group_id=group, generation_id=member.generation, member_id=member.member_id)
    assert client.ask(ApiKey.SYNC_GROUP, 4, request, SyncGroupResponse).error_code == Code.NONE
    for told in (("connect", "range"), ("consumer", "sticky"), (None, "range"), ("consumer", None)):
        request.protocol_type, request.protocol_name = told
        answer = client.ask(ApiKey.SYNC_GROUP, 5, request, SyncGroupResponse)
        assert answer.error_code == Code.INCONSISTENT_GROUP_PROTOCOL, told
    request.protocol_type, request.protocol_name = "consumer", "range"
    answer = client.ask(ApiKey.SYNC_GROUP, 5, request, SyncGroupResponse)
    assert (answer.error_code, answer.protocol_name) == (Code.NONE, "range")


def test_groups_are_listed_described_and_deleted(
    shared_node: NodeProcess, client: WireClient, group: str, new_member: NewMember
) -> None:
    member = new_member(shared_node.port, group)
    form([member])
    for version in range(6):
        listed = client.ask(ApiKey.LIST_GROUPS, version, ListGroupsRequest(), ListGroupsResponse)
        assert listed.error_code == 0
        (row,) = [one for one in listed.groups if one.group_id == group]
        assert row.protocol_type == "consumer"
        assert row.group_state == ("Stable" if version >= 4 else "")
        assert row.group_type == ("classic" if version >= 5 else "")
    stable = client.ask(ApiKey.LIST_GROUPS, 5, ListGroupsRequest(states_filter=["Stable"]), ListGroupsResponse)
    assert group in {one.group_id for one in stable.groups}
    for asked in (ListGroupsRequest(states_filter=["Empty"]), ListGroupsRequest(types_filter=["share"])):
        others = client.ask(ApiKey.LIST_GROUPS, 5, asked, ListGroupsResponse)
        assert group not in {one.group_id for one in others.groups}
    for version in range(7):
        asked_groups = DescribeGroupsRequest(groups=[group, group + "-not"])
        found, missing = client.ask(ApiKey.DESCRIBE_GROUPS, version, asked_groups, DescribeGroupsResponse).groups
        assert (found.group_state, len(found.members)) == ("Stable", 1)
        assert missing.group_state == "Dead"
        assert missing.error_code == (Code.GROUP_ID_NOT_FOUND if version >= 6 else Code.NONE)

    def delete(version: int) -> list[int]:
        request = DeleteGroupsRequest(groups_names=[group, group + "-not"])
        answer = client.ask(ApiKey.DELETE_GROUPS, version, request, DeleteGroupsResponse)
        return [row.error_code for row in answer.results]

    assert delete(0) == [Code.NON_EMPTY_GROUP, Code.GROUP_ID_NOT_FOUND]
    assert member.leave() == Code.NONE
    assert delete(1) == [Code.NONE, Code.GROUP_ID_NOT_FOUND]
    assert delete(2) == [Code.GROUP_ID_NOT_FOUND, Code.GROUP_ID_NOT_FOUND]


def test_every_version_finds_the_coordinator(shared_node: NodeProcess, client: WireClient, group: str) -> None:
    for version in range(7):
        request = (
            FindCoordinatorRequest(coordinator_keys=[group, "another"])
            if version >= 4
            else FindCoordinatorRequest(key=group)
        )
        answer = client.ask(ApiKey.FIND_COORDINATOR, version, request, FindCoordinatorResponse)
        found = [(answer.node_id, answer.host, answer.port, answer.error_code)]
        if version >= 4:
            assert [one.key for one in answer.coordinators] == [group, "another"]
            found = [(one.node_id, one.host, one.port, one.error_code) for one in answer.coordinators]
        assert set(found) == {(1, "127.0.0.1", shared_node.port, 0)}

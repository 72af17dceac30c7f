"""What groups have read: committed, kept over crashes, looked up, expired, deleted; over the wire."""

from __future__ import annotations

from collections.abc import Iterator
from uuid import uuid4

import pytest

from support.clients.wire_client import WireClient, batch_of
from support.fixtures.waiting import wait_until
from support.load.group_member import (
    COMMIT_VERSION,
    GroupMember,
    commit,
    commit_request,
    committed,
    committed_of,
    form,
    wait_for_coordinator,
)
from support.nodes.node import NodeProcess, StartNode
from tidelog.base.errors import Code
from tidelog.wire import ApiKey, api, encode_request
from tidelog.wire.messages.api_08_offset_commit import OffsetCommitResponse
from tidelog.wire.messages.api_09_offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchResponse,
)
from tidelog.wire.messages.api_20_delete_topics import DeleteTopicsRequest, DeleteTopicsResponse, DeleteTopicState
from tidelog.wire.messages.api_42_delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
from tidelog.wire.messages.api_47_offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
)


def new_name(what: str) -> str:
    return f"{what}-{uuid4().hex[:8]}"


@pytest.fixture
def client(shared_node: NodeProcess) -> Iterator[WireClient]:
    with WireClient(shared_node.port) as connected:
        yield connected


@pytest.fixture
def topic(client: WireClient) -> str:
    """A topic of three partitions."""
    name = new_name("groups")
    assert client.create_topic(name, partitions=3).error_code == 0
    return name


@pytest.fixture
def group(client: WireClient) -> str:
    """A group whose coordinator serves."""
    name = new_name("group")
    wait_for_coordinator(client, name)
    return name


def test_offset_leader_epoch_and_metadata_come_back(client: WireClient, topic: str, group: str) -> None:
    request = commit_request(group, {(topic, 0): 41, (topic, 2): 7}, leader_epoch=3, metadata="as far as this")
    assert commit(client, request) == {(topic, 0): Code.NONE, (topic, 2): Code.NONE}
    row = committed(client, group, topic, 2)
    assert (row.committed_offset, row.committed_leader_epoch, row.metadata) == (7, 3, "as far as this")
    missing = committed(client, group, topic, 1)
    assert (missing.committed_offset, missing.committed_leader_epoch, missing.error_code) == (-1, -1, 0)
    everything = committed_of(client, group)
    assert not isinstance(everything, Code)
    assert {place: found.committed_offset for place, found in everything.items()} == {(topic, 0): 41, (topic, 2): 7}


def test_what_is_not_utf_8_is_served_with_replacement_characters(client: WireClient, topic: str, group: str) -> None:
    """A client id in Latin-1, and metadata that is no text at all, as Kafka takes them."""
    request = commit_request(group, {(topic, 0): 41}, metadata="binary")
    frame = b"".join(encode_request(ApiKey.OFFSET_COMMIT, COMMIT_VERSION, 7, "latin-x", request))  # type: ignore[arg-type]
    client.stream.sendall(frame.replace(b"latin-x", b"latin-\xe9").replace(b"binary", b"\xff\x00\xfe\xe9ab"))
    answer = client.receive(ApiKey.OFFSET_COMMIT, COMMIT_VERSION, OffsetCommitResponse)
    assert answer.topics[0].partitions[0].error_code == 0
    row = committed(client, group, topic, 0)
    assert (row.committed_offset, row.metadata) == (41, "\ufffd\x00\ufffd\ufffdab")


def test_every_version_commits_and_fetches(client: WireClient, topic: str, group: str) -> None:
    topic_id = client.describe_topic(topic).topic_id
    known = api(ApiKey.OFFSET_COMMIT)
    for version in range(known.min_version, known.max_version + 1):
        request = commit_request(group, {(topic, 0): version}, leader_epoch=5)
        request.topics[0].topic_id = topic_id
        answer = client.ask(ApiKey.OFFSET_COMMIT, version, request, OffsetCommitResponse)
        assert [row.error_code for one in answer.topics for row in one.partitions] == [0]
        found = committed(client, group, topic)
        assert (found.committed_offset, found.committed_leader_epoch) == (version, 5 if version >= 6 else -1)
    known = api(ApiKey.OFFSET_FETCH)
    for version in range(known.min_version, known.max_version + 1):
        asked = [OffsetFetchRequestTopic(name=topic, topic_id=topic_id, partition_indexes=[0, 1])]
        fetch = (
            OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=group, topics=asked)])
            if version >= 8
            else OffsetFetchRequest(group_id=group, topics=asked)
        )
        response = client.ask(ApiKey.OFFSET_FETCH, version, fetch, OffsetFetchResponse)
        topics = response.groups[0].topics if version >= 8 else response.topics
        offsets = [(row.partition_index, row.committed_offset) for one in topics for row in one.partitions]
        assert offsets == [(0, 10), (1, -1)]


def test_partitions_that_do_not_exist_are_refused_and_the_others_kept(
    client: WireClient, topic: str, group: str
) -> None:
    nowhere = new_name("nowhere")
    codes = commit(client, commit_request(group, {(topic, 1): 5, (topic, 3): 6, (topic, -1): 6, (nowhere, 0): 7}))
    assert codes == {
        (topic, 1): Code.NONE,
        (topic, 3): Code.UNKNOWN_TOPIC_OR_PARTITION,
        (topic, -1): Code.UNKNOWN_TOPIC_OR_PARTITION,
        (nowhere, 0): Code.UNKNOWN_TOPIC_OR_PARTITION,
    }
    everything = committed_of(client, group)
    assert not isinstance(everything, Code)
    assert list(everything) == [(topic, 1)]


def test_a_commit_of_nothing_that_exists_makes_no_group(client: WireClient, group: str) -> None:
    nowhere = new_name("nowhere")
    assert set(commit(client, commit_request(group, {(nowhere, 0): 7})).values()) == {Code.UNKNOWN_TOPIC_OR_PARTITION}
    answer = client.ask(ApiKey.DELETE_GROUPS, 2, DeleteGroupsRequest(groups_names=[group]), DeleteGroupsResponse)
    assert [row.error_code for row in answer.results] == [Code.GROUP_ID_NOT_FOUND]


def test_oversized_metadata_is_refused_and_the_old_offset_stays(client: WireClient, topic: str, group: str) -> None:
    longest = "m" * 4096
    assert set(commit(client, commit_request(group, {(topic, 0): 5}, metadata=longest)).values()) == {Code.NONE}
    codes = commit(client, commit_request(group, {(topic, 0): 6}, metadata=longest + "m"))
    assert codes == {(topic, 0): Code.OFFSET_METADATA_TOO_LARGE}
    found = committed(client, group, topic)
    assert (found.committed_offset, found.metadata) == (5, longest)


def test_zombies_and_strangers_cannot_commit(shared_node: NodeProcess, client: WireClient, topic: str) -> None:
    group = new_name("group")
    wait_for_coordinator(client, group)
    member = GroupMember(shared_node.port, group)
    try:
        form([member])
        assert member.commit({(topic, 0): 10}) == {Code.NONE}
        stale = commit_request(group, {(topic, 0): 3}, generation=member.generation - 1, member_id=member.member_id)
        assert set(commit(client, stale).values()) == {Code.ILLEGAL_GENERATION}
        unknown = commit_request(group, {(topic, 0): 3}, generation=member.generation, member_id="nobody")
        assert set(commit(client, unknown).values()) == {Code.UNKNOWN_MEMBER_ID}
        assert set(commit(client, commit_request(group, {(topic, 0): 3})).values()) == {Code.UNKNOWN_MEMBER_ID}
        assert committed(client, group, topic).committed_offset == 10
        assert member.leave() == Code.NONE
        assert set(commit(client, commit_request(group, {(topic, 0): 4})).values()) == {Code.NONE}  # nobody is in it
    finally:
        member.close()


def test_offsets_of_a_deleted_topic_go_though_it_is_made_again(client: WireClient, topic: str, group: str) -> None:
    other = new_name("groups")
    client.create_topic(other)
    assert set(commit(client, commit_request(group, {(topic, 0): 5, (other, 0): 6})).values()) == {Code.NONE}
    request = DeleteTopicsRequest(topics=[DeleteTopicState(name=topic)], timeout_ms=10_000)
    answer = client.ask(ApiKey.DELETE_TOPICS, 6, request, DeleteTopicsResponse)
    assert [row.error_code for row in answer.responses] == [0]
    assert client.create_topic(topic).error_code == 0
    everything = committed_of(client, group)
    assert not isinstance(everything, Code)
    assert {place: row.committed_offset for place, row in everything.items()} == {(other, 0): 6}


def test_offsets_can_be_deleted(client: WireClient, topic: str, group: str) -> None:
    assert set(commit(client, commit_request(group, {(topic, 0): 5, (topic, 1): 6})).values()) == {Code.NONE}
    partitions = [OffsetDeleteRequestPartition(0), OffsetDeleteRequestPartition(9)]
    request = OffsetDeleteRequest(group_id=group, topics=[OffsetDeleteRequestTopic(topic, partitions)])
    answer = client.ask(ApiKey.OFFSET_DELETE, 0, request, OffsetDeleteResponse)
    assert answer.error_code == 0
    (row,) = answer.topics
    codes = {one.partition_index: one.error_code for one in row.partitions}
    assert codes == {0: Code.NONE, 9: Code.UNKNOWN_TOPIC_OR_PARTITION}
    everything = committed_of(client, group)
    assert not isinstance(everything, Code)
    assert list(everything) == [(topic, 1)]


def test_offsets_survive_kill_and_stop(node: NodeProcess) -> None:
    with WireClient(node.port) as client:
        client.create_topic("kept", partitions=2)
        for group in ("a", "b", "c"):
            wait_for_coordinator(client, group)
            request = commit_request(group, {("kept", 0): 10, ("kept", 1): 20}, leader_epoch=0, metadata=group)
            assert set(commit(client, request).values()) == {Code.NONE}
        assert set(commit(client, commit_request("b", {("kept", 0): 11})).values()) == {Code.NONE}
        answer = client.ask(ApiKey.DELETE_GROUPS, 2, DeleteGroupsRequest(groups_names=["c"]), DeleteGroupsResponse)
        assert [row.error_code for row in answer.results] == [0]
    for end in (node.kill, node.stop):
        end()
        node.start()
        with WireClient(node.port) as client:
            for group, offset in (("a", 10), ("b", 11)):
                wait_for_coordinator(client, group)
                assert committed(client, group, "kept").committed_offset == offset
                assert committed(client, group, "kept", 1).metadata == group
            wait_for_coordinator(client, "c")
            assert committed_of(client, "c") == {}


def test_offsets_expire(start_node: StartNode) -> None:
    node = start_node(config={"offsets.retention.check.interval.ms": "50"})
    with WireClient(node.port) as client:
        client.create_topic("short")
        wait_for_coordinator(client, "expiring")
        assert set(commit(client, commit_request("expiring", {("short", 0): 5})).values()) == {Code.NONE}
        assert committed(client, "expiring", "short").committed_offset == 5
        request = commit_request("expiring", {("short", 0): 6})
        request.retention_time_ms = 1  # versions 2 to 4 say how long each is to be kept
        client.ask(ApiKey.OFFSET_COMMIT, 4, request, OffsetCommitResponse)
        wait_until(lambda: committed(client, "expiring", "short").committed_offset == -1, "the offset is forgotten")
        request = commit_request("expiring", {("short", 0): 7})
        client.ask(ApiKey.OFFSET_COMMIT, 4, request, OffsetCommitResponse)
        assert committed(client, "expiring", "short").committed_offset == 7
    node.stop()


def test_clients_do_not_write_to_internal_topics(client: WireClient, group: str) -> None:
    assert client.describe_topic("__consumer_offsets").is_internal
    row = client.produce("__consumer_offsets", batch_of(b"v"))
    assert row.error_code == Code.INVALID_TOPIC_EXCEPTION
    assert "coordinators" in (row.error_message or "")

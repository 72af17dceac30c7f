"""Consumer groups (KIP-848) on a node: members, over the wire, step by step."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from uuid import uuid4

import pytest

from support.clients.wire_client import WireClient
from support.fixtures.waiting import wait_until
from support.load.consumer_member import ConsumerMember, consumer_group
from support.load.group_member import wait_for_coordinator
from support.nodes.node import NodeProcess, StartNode
from tidelog.base.errors import Code
from tidelog.cli import app
from tidelog.client.admin.admin import Admin
from tidelog.wire import ApiKey
from tidelog.wire.messages.api_19_create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from tidelog.wire.messages.api_57_update_features import (
    FeatureUpdateKey,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)
from tidelog.wire.messages.api_74_list_config_resources import (
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
)

NewMember = Callable[..., ConsumerMember]


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

        def make(port: int, group: str, **rest: object) -> ConsumerMember:
            member = ConsumerMember(port, group, **rest)  # type: ignore[arg-type]
            members.callback(member.close)
            return member

        yield make


def set_group_version(client: WireClient, level: int) -> None:
    update = FeatureUpdateKey(feature="group.version", max_version_level=level, upgrade_type=1 if level else 2)
    request = UpdateFeaturesRequest(feature_updates=[update], timeout_ms=10_000)
    assert client.ask(ApiKey.UPDATE_FEATURES, 2, request, UpdateFeaturesResponse).error_code == 0


def test_a_member_joins_is_given_all_and_shares_it_with_the_next(
    shared_node: NodeProcess, client: WireClient, group: str, topic: str, new_member: NewMember
) -> None:
    client.create_topic(topic, partitions=4)
    topic_id = client.describe_topic(topic).topic_id
    first, second = new_member(shared_node.port, group), new_member(shared_node.port, group)
    assert first.join(topic) is Code.NONE
    assert (first.epoch, first.assigned, first.interval_ms) == (1, {topic_id: [0, 1, 2, 3]}, 5_000)
    assert second.join(topic) is Code.NONE
    assert second.epoch > 0

    def beat() -> bool:
        for one in (first, second):
            assert one.acknowledge() is Code.NONE
        return first.partition_count == second.partition_count == 2

    wait_until(beat, "they share the topic")
    assert not set(first.assigned[topic_id]) & set(second.assigned[topic_id])
    told = consumer_group(client, group, asks_operations=True)
    assert (told.error_code, told.group_state, told.assignor_name) == (0, "Stable", "uniform")
    assert told.authorized_operations == 3_400
    assert {one.member_id for one in told.members} == {first.member_id, second.member_id}
    assert {one.client_host for one in told.members} == {"/127.0.0.1"}
    assert first.leave() is Code.NONE
    wait_until(lambda: second.acknowledge() is Code.NONE and second.partition_count == 4, "the other has all")


def test_a_group_that_is_not_there(client: WireClient, group: str) -> None:
    assert consumer_group(client, group).error_code == Code.GROUP_ID_NOT_FOUND
    assert consumer_group(client, "").error_code == Code.INVALID_GROUP_ID


def test_the_command_describes_it(
    shared_node: NodeProcess, group: str, topic: str, new_member: NewMember, capsys: pytest.CaptureFixture[str]
) -> None:
    member = new_member(shared_node.port, group)
    member.client.create_topic(topic, partitions=2)
    assert member.join(topic) is Code.NONE
    at = ("--bootstrap", shared_node.bootstrap, "--output", "json")
    assert app.run(["groups", "describe", group, "--members", *at]) == 0
    (row,) = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert (row["group"], row["state"], row["protocol"]) == (group, "Stable", "uniform")
    assert (row["member"], row["partitions"]) == (member.member_id, [f"{topic}-0", f"{topic}-1"])
    assert app.run(["groups", "describe", group, *at]) == 0
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [(one["topic"], one["partition"], one["host"]) for one in rows] == [(topic, n, "/127.0.0.1") for n in (0, 1)]
    with Admin(shared_node.bootstrap) as admin:
        found = admin.describe_groups([group])[group]
        assert (found.epoch, found.members[0].epoch) == (1, 1)


def test_a_group_goes_by_settings_of_its_own(
    shared_node: NodeProcess, group: str, topic: str, new_member: NewMember, capsys: pytest.CaptureFixture[str]
) -> None:
    member = new_member(shared_node.port, group)
    assert member.join(topic) is Code.NONE
    assert member.interval_ms == 5_000
    at = ("--bootstrap", shared_node.bootstrap)
    interval = "consumer.heartbeat.interval.ms"
    assert app.run(["configs", "alter", "group", group, "--config", f"{interval}=9000", *at]) == 0
    assert "9000" in capsys.readouterr().out
    assert member.acknowledge() is Code.NONE
    assert member.interval_ms == 9_000
    assert app.run(["configs", "alter", "group", group, "--config", f"{interval}=1", *at]) == 1
    assert "group.consumer.min.heartbeat.interval.ms" in capsys.readouterr().err
    assert app.run(["configs", "describe", "group", group, "--set", *at]) == 0
    assert "dynamic group" in capsys.readouterr().out
    with WireClient(shared_node.port) as client:
        request = ListConfigResourcesRequest(resource_types=[32])
        rows = client.ask(ApiKey.LIST_CONFIG_RESOURCES, 1, request, ListConfigResourcesResponse).config_resources
        assert group in {row.resource_name for row in rows}
    assert app.run(["configs", "alter", "group", group, "--delete", interval, *at]) == 0
    assert member.acknowledge() is Code.NONE
    assert member.interval_ms == 5_000


def test_a_member_that_is_silent_is_out(start_node: StartNode, new_member: NewMember, topic: str) -> None:
    node = start_node(
        config={
            "group.consumer.min.session.timeout.ms": "1000",
            "group.consumer.session.timeout.ms": "1500",
            "group.consumer.min.heartbeat.interval.ms": "100",
            "group.consumer.heartbeat.interval.ms": "100",
        }
    )
    with WireClient(node.port) as client:
        client.create_topic(topic, partitions=4)
        wait_for_coordinator(client, "g")
        first, silent = new_member(node.port, "g"), new_member(node.port, "g")
        assert first.join(topic) is silent.join(topic) is Code.NONE
        silent.close()
        wait_until(lambda: first.acknowledge() is Code.NONE and first.partition_count == 2, "they share")
        wait_until(lambda: first.acknowledge() is Code.NONE and first.partition_count == 4, "it has all again")
        assert len(consumer_group(client, "g").members) == 1


def test_groups_survive_a_kill(start_node: StartNode, new_member: NewMember, topic: str) -> None:
    node = start_node()
    with WireClient(node.port) as client:
        client.create_topic(topic, partitions=4)
        wait_for_coordinator(client, "g")
        member = new_member(node.port, "g")
        assert member.join(topic) is Code.NONE
    node.kill()
    node.start()
    with WireClient(node.port) as client:
        wait_for_coordinator(client, "g")
        again = new_member(node.port, "g", member_id=member.member_id)
        again.epoch, again.assigned = member.epoch, member.assigned
        assert again.acknowledge() is Code.NONE
        assert again.epoch == member.epoch


def test_a_member_of_many_topics_survives_a_kill(start_node: StartNode, new_member: NewMember) -> None:
    """Its records are made in pieces, and are read as any others."""
    names = [f"many-{number:03d}" for number in range(330)]
    node = start_node()
    with WireClient(node.port) as client:
        topics = [CreatableTopic(name=name, num_partitions=1, replication_factor=1) for name in names]
        request = CreateTopicsRequest(topics=topics, timeout_ms=60_000)
        made = client.ask(ApiKey.CREATE_TOPICS, 7, request, CreateTopicsResponse)
        assert {one.error_code for one in made.topics} == {0}
        wait_for_coordinator(client, "g")
        by_name, by_pattern = new_member(node.port, "g"), new_member(node.port, "g")
        assert by_name.join(*names) is Code.NONE
        assert by_name.partition_count == len(names)
        assert by_pattern.join(pattern="many-.*") is Code.NONE

        def share() -> bool:
            assert by_name.acknowledge() is by_pattern.acknowledge() is Code.NONE
            return by_name.partition_count == by_pattern.partition_count == len(names) // 2

        wait_until(share, "they share the topics")
    node.kill()
    node.start()
    with WireClient(node.port) as client:
        wait_for_coordinator(client, "g")
        for member in (by_name, by_pattern):
            again = new_member(node.port, "g", member_id=member.member_id)
            again.epoch, again.assigned = member.epoch, member.assigned
            assert again.acknowledge() is Code.NONE
        told = consumer_group(client, "g")
    assert {one.member_id: len(one.assignment.topic_partitions) for one in told.members} == {
        by_name.member_id: 165,
        by_pattern.member_id: 165,
    }


def test_below_group_version_1_nothing_is_served(start_node: StartNode, new_member: NewMember) -> None:
    node = start_node()
    with WireClient(node.port) as client:
        wait_for_coordinator(client, "g")
        member = new_member(node.port, "g")
        set_group_version(client, 0)
        assert member.join("t") is Code.UNSUPPORTED_VERSION
        assert "group.version 1" in (member.message or "")
        assert consumer_group(client, "g").error_code == Code.UNSUPPORTED_VERSION
        set_group_version(client, 1)
        assert member.join("t") is Code.NONE
        assert consumer_group(client, "g").error_code == 0

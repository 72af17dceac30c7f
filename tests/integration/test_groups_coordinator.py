"""Where groups are kept: the topic behind them, made on first need, refused with advice, damaged, or not there yet."""

from __future__ import annotations

import pytest

from support.clients.wire_client import WireClient
from support.fixtures.log_files import batches, change, last_segment, segments
from support.fixtures.waiting import wait_until
from support.load.group_member import (
    commit,
    commit_request,
    committed,
    committed_of,
    find_coordinator,
    wait_for_coordinator,
)
from support.nodes.node import NodeProcess, StartNode
from tidelog.base.errors import Code
from tidelog.server.coordinators.coordinator_partitions import partition_of
from tidelog.wire import ApiKey
from tidelog.wire.messages.api_10_find_coordinator import (
    KEY_TYPE_SHARE,
    KEY_TYPE_TRANSACTION,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from tidelog.wire.messages.api_16_list_groups import ListGroupsRequest, ListGroupsResponse
from tidelog.wire.messages.api_32_describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
)
from tidelog.wire.messages.api_42_delete_groups import DeleteGroupsRequest, DeleteGroupsResponse

OFFSETS = "__consumer_offsets"
TOPIC_RESOURCE = 2


def test_the_topic_is_made_when_a_group_is_first_asked_for(node: NodeProcess) -> None:
    with WireClient(node.port) as client:
        assert client.describe_topic(OFFSETS, create=True).error_code == Code.UNKNOWN_TOPIC_OR_PARTITION
        listed = client.ask(ApiKey.LIST_GROUPS, 5, ListGroupsRequest(), ListGroupsResponse)
        assert (listed.error_code, listed.groups) == (0, [])
        assert committed_of(client, "early") is Code.NOT_COORDINATOR
        assert find_coordinator(client, "early").error_code == 0
        topic = client.describe_topic(OFFSETS)
        assert (len(topic.partitions), topic.is_internal) == (50, True)
        resource = DescribeConfigsResource(resource_type=TOPIC_RESOURCE, resource_name=OFFSETS)
        request = DescribeConfigsRequest(resources=[resource])
        (row,) = client.ask(ApiKey.DESCRIBE_CONFIGS, 4, request, DescribeConfigsResponse).results
        configs = {one.name: one.value for one in row.configs}
        assert configs["cleanup.policy"] == "compact"
        assert configs["compression.type"] == "producer"
        assert configs["segment.bytes"] == "104857600"
        assert committed_of(client, "early") == {}


def test_many_who_ask_at_once_make_one_topic(node: NodeProcess) -> None:
    clients = [WireClient(node.port) for _ in range(20)]
    try:
        for number, client in enumerate(clients):
            client.send(ApiKey.FIND_COORDINATOR, 6, FindCoordinatorRequest(coordinator_keys=[f"group-{number}"]))
        for client in clients:
            answer = client.receive(ApiKey.FIND_COORDINATOR, 6, FindCoordinatorResponse)
            assert [one.error_code for one in answer.coordinators] == [0]
    finally:
        for client in clients:
            client.close()


def test_a_replication_factor_that_cannot_be_is_refused_with_advice(start_node: StartNode) -> None:
    node = start_node(config={"offsets.topic.replication.factor": "3"})
    with WireClient(node.port) as client:
        for _ in range(3):
            found = find_coordinator(client, "group")
            assert found.error_code == Code.COORDINATOR_NOT_AVAILABLE
            assert "offsets.topic.replication.factor" in (found.error_message or "")
        assert node.log.count("set offsets.topic.replication.factor") == 1
    node.config["offsets.topic.replication.factor"] = "1"
    node.config["offsets.topic.num.partitions"] = "3"
    node.restart()
    with WireClient(node.port) as client:
        assert find_coordinator(client, "group").error_code == 0
        assert len(client.describe_topic(OFFSETS).partitions) == 3
    node.stop()


def test_a_damaged_partition_is_refused_and_the_others_serve(start_node: StartNode) -> None:
    node = start_node(config={"offsets.topic.num.partitions": "2"})
    hurt = next(f"group-{number}" for number in range(9) if partition_of(f"group-{number}", 2) == 0)
    whole = next(f"group-{number}" for number in range(9) if partition_of(f"group-{number}", 2) == 1)
    with WireClient(node.port) as client:
        client.create_topic("read")
        for group in (hurt, whole):
            wait_for_coordinator(client, group)
            for offset in range(200):
                assert set(commit(client, commit_request(group, {("read", 0): offset})).values()) == {Code.NONE}
    node.stop()
    segment = last_segment(node, OFFSETS, 0)
    position, header = batches(segment)[20]
    change(segment, position + header.size_bytes - 1, lambda byte: byte ^ 1)
    node.start()
    with WireClient(node.port) as client:
        wait_for_coordinator(client, whole)
        assert committed(client, whole, "read").committed_offset == 199
        assert set(commit(client, commit_request(whole, {("read", 0): 200})).values()) == {Code.NONE}
        found = find_coordinator(client, hurt)
        assert found.error_code == Code.COORDINATOR_NOT_AVAILABLE
        assert "offset 20" in (found.error_message or "")
        assert committed_of(client, hurt) is Code.COORDINATOR_NOT_AVAILABLE
        refused = commit(client, commit_request(hurt, {("read", 0): 1}))
        assert set(refused.values()) == {Code.COORDINATOR_NOT_AVAILABLE}
        listed = client.ask(ApiKey.LIST_GROUPS, 5, ListGroupsRequest(), ListGroupsResponse)
        assert [one.group_id for one in listed.groups] == [whole]
        told = [line for line in node.log.splitlines() if "__consumer_offsets-0 cannot be read" in line]
        assert len(told) == 1
        assert "offset 20" in told[0]
        assert "auto.offset.reset" in told[0]
    node.stop()


def test_offsets_are_compacted_and_the_same_afterwards(start_node: StartNode) -> None:
    node = start_node(
        config={
            "offsets.topic.num.partitions": "1",
            "offsets.topic.segment.bytes": "20000",
            "log.cleaner.backoff.ms": "20",
            "log.cleaner.min.cleanable.ratio": "0.01",
        }
    )
    partitions = 10
    with WireClient(node.port) as client:
        client.create_topic("read", partitions=partitions)
        for group in ("a", "b", "c"):
            wait_for_coordinator(client, group)
        rounds = 0

        def is_compacted() -> bool:
            """Whether the oldest segment lost records, which commits go on making superfluous."""
            nonlocal rounds
            rounds += 1
            for group in ("a", "b", "c"):
                offsets = {("read", partition): rounds for partition in range(partitions)}
                assert set(commit(client, commit_request(group, offsets, leader_epoch=0)).values()) == {Code.NONE}
            try:
                return rounds > 50 and segments(node, OFFSETS)[0].stat().st_size < 10_000
            except FileNotFoundError:  # at this moment it is put in place
                return False

        wait_until(is_compacted, "the log of the offsets is compacted")
        client.ask(ApiKey.DELETE_GROUPS, 2, DeleteGroupsRequest(groups_names=["c"]), DeleteGroupsResponse)
    node.kill()
    node.start()
    with WireClient(node.port) as client:
        for group, wanted in (("a", rounds), ("b", rounds), ("c", -1)):
            wait_for_coordinator(client, group)
            assert {committed(client, group, "read", one).committed_offset for one in range(partitions)} == {wanted}
    node.stop()


@pytest.fixture(scope="module")
def open_node(start_node: StartNode) -> NodeProcess:
    """It takes whoever asks it for another node."""
    return start_node(is_open=True)


@pytest.mark.parametrize("version", [1, 6])
def test_transactions_have_a_coordinator_and_share_groups_have_none(open_node: NodeProcess, version: int) -> None:
    with WireClient(open_node.port) as client:

        def found(key_type: int) -> int:
            request = (
                FindCoordinatorRequest(key="t", key_type=key_type)
                if version == 1
                else FindCoordinatorRequest(coordinator_keys=["t"], key_type=key_type)
            )
            answer = client.ask(ApiKey.FIND_COORDINATOR, version, request, FindCoordinatorResponse)
            return answer.error_code if version == 1 else answer.coordinators[0].error_code

        assert found(KEY_TYPE_SHARE) == Code.INVALID_REQUEST
        wait_until(lambda: found(KEY_TYPE_TRANSACTION) == Code.NONE, "the transactional id has a coordinator")

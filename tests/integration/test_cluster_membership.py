"""Three nodes in processes of their own: who is taken in, who leads when one goes, and whom clients ask."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from collections.abc import Iterator, Mapping
from itertools import permutations
from pathlib import Path

import pytest

from support.clients.admin_requests import RESOURCE_BROKER_LOGGER, alter, described, grow, replace_all, set_to
from support.clients.token_client import metadata as of_topics
from support.clients.token_client import produce, token_client
from support.clients.token_requests import create as create_on
from support.clients.wire_client import WireClient, batch_of
from support.fixtures.waiting import wait_until
from support.nodes.cluster_process import HOST, ClusterNode, ClusterProcesses
from tidelog.base.errors import Code
from tidelog.base.ids import BrokerId
from tidelog.cli.ports import free_ports
from tidelog.client.cluster import real_world
from tidelog.wire import ApiKey
from tidelog.wire.messages.api_02_list_offsets import LATEST_TIMESTAMP
from tidelog.wire.messages.api_03_metadata import MetadataRequest, MetadataResponse, MetadataResponsePartition
from tidelog.wire.messages.api_10_find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from tidelog.wire.messages.api_19_create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from tidelog.wire.messages.api_20_delete_topics import DeleteTopicsRequest, DeleteTopicsResponse, DeleteTopicState
from tidelog.wire.messages.api_43_elect_leaders import ElectLeadersRequest, ElectLeadersResponse
from tidelog.wire.messages.api_57_update_features import FeatureUpdateKey, UpdateFeaturesRequest, UpdateFeaturesResponse
from tidelog.wire.messages.api_60_describe_cluster import (
    ENDPOINT_CONTROLLERS,
    DescribeClusterRequest,
    DescribeClusterResponse,
)
from tidelog.wire.messages.api_64_unregister_broker import UnregisterBrokerRequest, UnregisterBrokerResponse

HEARS_LATER = (Code.UNKNOWN_TOPIC_OR_PARTITION, Code.NOT_LEADER_OR_FOLLOWER)
"""One node may hear of a topic, or of who leads it, a moment after another."""

OLD_RELEASE = (
    "import tidelog.metadata.features as features; "
    "features.SUPPORTED_FEATURES = {features.METADATA_VERSION_FEATURE: (10, 21)}; "
    "from tidelog.cli.app import main; main()"
)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClusterProcesses]:
    """For tests that leave it as it was."""
    with ClusterProcesses(tmp_path_factory.mktemp("cluster")) as started:
        yield started


@pytest.fixture
def own_cluster(tmp_path: Path) -> Iterator[ClusterProcesses]:
    with ClusterProcesses(tmp_path) as started:
        yield started


def metadata(node: ClusterNode) -> MetadataResponse:
    with WireClient(node.port) as client:
        return client.ask(ApiKey.METADATA, 12, MetadataRequest(topics=[]), MetadataResponse)


def live(node: ClusterNode) -> list[int]:
    """The brokers that a node tells clients of."""
    return sorted(one.node_id for one in metadata(node).brokers)


def partitions(node: ClusterNode, topic: str) -> list[MetadataResponsePartition]:
    with WireClient(node.port) as client:
        return sorted(client.describe_topic(topic).partitions, key=lambda one: one.partition_index)


def create(client: WireClient, topic: str, *, partitions: int = 3, replicas: int = 3) -> None:
    request = CreateTopicsRequest(topics=[CreatableTopic(topic, partitions, replicas)], timeout_ms=20_000)
    (row,) = client.ask(ApiKey.CREATE_TOPICS, 7, request, CreateTopicsResponse).topics
    assert row.error_code == 0, row.error_message


def leaders(node: ClusterNode, topic: str) -> set[int]:
    return {one.leader_id for one in partitions(node, topic)}


def committed(nodes: Mapping[int, ClusterNode], index: int) -> list[bytes | None]:
    """What the leader of a partition gives readers; nothing while there is none."""
    leader_id = partitions(nodes[1], "flights")[index].leader_id
    if leader_id not in nodes:
        return []
    with WireClient(nodes[leader_id].port) as client:
        answer = client.list_offset("flights", LATEST_TIMESTAMP, partition=index)
        if answer.error_code != Code.NONE or answer.offset < 1:
            return []
        return [record.value for record in client.read_all("flights", partition=index)]


def active_controller(cluster: ClusterProcesses) -> ClusterNode:
    return cluster.nodes[metadata(next(one for one in cluster.nodes.values() if one.is_running)).controller_id]


# Whom clients ask.


def test_every_node_names_all_brokers_and_the_node_that_leads_the_quorum(cluster: ClusterProcesses) -> None:
    def named() -> set[int]:
        return {metadata(node).controller_id for node in cluster.nodes.values()}

    wait_until(lambda: all(live(node) == [1, 2, 3] for node in cluster.nodes.values()), "all know all")
    wait_until(lambda: len(named()) == 1, "all agree on who leads")
    for node in cluster.nodes.values():
        with WireClient(node.port) as client:
            answer = client.ask(ApiKey.DESCRIBE_CLUSTER, 1, DescribeClusterRequest(), DescribeClusterResponse)
        assert {answer.controller_id} == named()
        assert sorted(one.broker_id for one in answer.brokers) == [1, 2, 3]


def test_a_controller_tells_of_the_voters_and_of_who_leads_them(cluster: ClusterProcesses) -> None:
    leads = active_controller(cluster).node_id
    for port in cluster.controller_ports.values():
        with WireClient(port) as client:
            request = DescribeClusterRequest(endpoint_type=ENDPOINT_CONTROLLERS)
            answer = client.ask(ApiKey.DESCRIBE_CLUSTER, 1, request, DescribeClusterResponse)
        assert answer.controller_id == leads
        assert {one.broker_id: one.port for one in answer.brokers} == cluster.controller_ports


def test_whoever_made_a_topic_has_it_at_every_node_at_once(cluster: ClusterProcesses) -> None:
    """Nobody asks twice: what one node has answered is a token for the next (KIP-1243)."""

    async def make_and_use(number: int, maker: ClusterNode, leader: ClusterNode, reader: ClusterNode) -> None:
        topic, world = f"everywhere-{number}", real_world()
        async with token_client(world, HOST, maker.port) as client:
            await client.ask(create_on(topic, BrokerId(leader.node_id)))
            seen = client.stamps[-1]
        async with token_client(world, HOST, reader.port, seen) as client:
            (found,) = (await client.ask(of_topics(topic))).topics
            assert (found.error_code, len(found.partitions)) == (Code.NONE, 1)
        async with token_client(world, HOST, leader.port, seen) as client:
            (row,) = (await client.ask(produce(topic), version=12)).responses
            assert row.partition_responses[0].error_code == Code.NONE

    async def story() -> None:
        async with asyncio.timeout(60):
            for number, nodes in enumerate([*permutations(cluster.nodes.values())] * 3):
                await make_and_use(number, *nodes)

    asyncio.run(story())


@pytest.mark.parametrize("node_id", [1, 2, 3])
def test_whatever_the_controller_decides_any_node_can_be_asked_and_shows_at_once(
    cluster: ClusterProcesses, node_id: int
) -> None:
    """Two of the three are not the controller."""
    topic, node = f"flights-{node_id}", cluster.nodes[node_id]
    with WireClient(node.port) as client:
        create(client, topic, partitions=2)
        assert len(client.describe_topic(topic).partitions) == 2
        assert grow(client, topic, 3).error_code == Code.NONE
        assert len(client.describe_topic(topic).partitions) == 3
        assert alter(client, topic, {"retention.ms": set_to("7")}).error_code == Code.NONE
        assert described(client, topic)["retention.ms"].value == "7"
        assert replace_all(client, topic, {"segment.bytes": "1048576"}).error_code == Code.NONE
        assert described(client, topic)["retention.ms"].value != "7"
        assert described(client, topic)["segment.bytes"].value == "1048576"
        row = alter(client, topic, {"no.such.key": set_to("7")})
        assert (row.error_code, "no.such.key" in str(row.error_message)) == (Code.INVALID_CONFIG, True)

        elected = client.ask(ApiKey.ELECT_LEADERS, 2, ElectLeadersRequest(), ElectLeadersResponse)
        assert elected.error_code == Code.NONE
        features = UpdateFeaturesRequest(feature_updates=[FeatureUpdateKey("metadata.version", max_version_level=99)])
        refused = client.ask(ApiKey.UPDATE_FEATURES, 2, features, UpdateFeaturesResponse)
        assert refused.error_code == Code.INVALID_UPDATE_VERSION
        unknown = UnregisterBrokerRequest(broker_id=77)
        answer = client.ask(ApiKey.UNREGISTER_BROKER, 0, unknown, UnregisterBrokerResponse)
        assert answer.error_code == Code.BROKER_ID_NOT_REGISTERED

        delete = DeleteTopicsRequest(topics=[DeleteTopicState(name=topic)], timeout_ms=20_000)
        assert client.ask(ApiKey.DELETE_TOPICS, 6, delete, DeleteTopicsResponse).responses[0].error_code == Code.NONE
        assert client.describe_topic(topic).error_code == Code.UNKNOWN_TOPIC_OR_PARTITION


def test_a_request_of_an_old_version_is_forwarded_as_it_came(cluster: ClusterProcesses) -> None:
    """Its layout differs: a version below 6 names topics in another field."""
    for node in cluster.nodes.values():
        with WireClient(node.port) as client:
            create(client, "old", partitions=1, replicas=1)
            delete = DeleteTopicsRequest(topic_names=["old"], timeout_ms=20_000)
            answer = client.ask(ApiKey.DELETE_TOPICS, 4, delete, DeleteTopicsResponse)
            assert [one.error_code for one in answer.responses] == [Code.NONE]


def test_the_loggers_of_a_broker_are_its_own_to_change(cluster: ClusterProcesses) -> None:
    for node in cluster.nodes.values():
        with WireClient(node.port) as client:
            change = {"tidelog.server.lifecycle": set_to("DEBUG")}
            row = alter(client, str(node.node_id), change, kind=RESOURCE_BROKER_LOGGER)
            assert row.error_code == Code.NONE
            shown = described(client, str(node.node_id), kind=RESOURCE_BROKER_LOGGER)
            assert shown["tidelog.server.lifecycle"].value == "DEBUG"
            other = str(node.node_id % 3 + 1)
            assert alter(client, other, change, kind=RESOURCE_BROKER_LOGGER).error_code == Code.INVALID_REQUEST


def test_what_clients_cause_to_be_created_is_created_wherever_they_ask(cluster: ClusterProcesses) -> None:
    for node in cluster.nodes.values():
        with WireClient(node.port) as client:
            topic = f"automatic-{node.node_id}"
            assert client.describe_topic(topic, create=True).error_code == Code.NONE
            assert len(client.describe_topic(topic).partitions[0].replica_nodes) == 3
            request = FindCoordinatorRequest(key_type=0, coordinator_keys=["a group"])
            (found,) = client.ask(ApiKey.FIND_COORDINATOR, 4, request, FindCoordinatorResponse).coordinators
            assert found.error_code == Code.NONE
            assert found.port in {one.port for one in cluster.nodes.values()}


def test_producer_ids_are_given_once_in_the_whole_cluster(cluster: ClusterProcesses) -> None:
    given = []
    for node in cluster.nodes.values():
        with WireClient(node.port) as client:
            given += [client.new_producer_id() for _ in range(3)]
    assert len({producer_id for producer_id, _ in given}) == 9


# Who is not taken in.


@pytest.mark.parametrize("of_leader", [False, True])
def test_a_second_node_with_the_id_of_another_is_refused_and_harms_nobody(
    cluster: ClusterProcesses, tmp_path: Path, of_leader: bool
) -> None:
    leads = active_controller(cluster).node_id
    node_id = leads if of_leader else leads % 3 + 1
    others = {one: port for one, port in cluster.controller_ports.items() if one != node_id}
    second = ClusterNode(tmp_path, node_id, others)
    second.settings |= {
        "process.roles": "broker",
        "listeners": f"PLAINTEXT://127.0.0.1:{second.port}",
        "broker.session.timeout.ms": "500",
    }
    second.format()
    second.start_soon()
    try:
        assert second.wait() != 0
    finally:
        second.close()
    if of_leader:
        assert f"another process leads the metadata quorum as node {node_id}" in second.log
    else:
        assert f"another process serves as broker {node_id} of this cluster" in second.log
    assert "node.id of its own" in second.log
    assert "Traceback" not in second.log
    assert live(cluster.nodes[node_id]) == [1, 2, 3]
    assert active_controller(cluster).node_id == leads


def test_a_node_of_an_older_release_is_refused_and_harms_nobody(cluster: ClusterProcesses) -> None:
    old = cluster.add(4)
    old.settings |= {"process.roles": "broker", "listeners": f"PLAINTEXT://127.0.0.1:{old.port}"}
    old.format()
    try:
        old.start_soon(program=OLD_RELEASE)
        assert old.wait() == 2
    finally:
        old.close()
        del cluster.nodes[4]
    assert "this node supports 10 (3.5-IV1) to 21 (3.9-IV0)" in old.log
    assert "Traceback" not in old.log
    assert live(cluster.nodes[2]) == [1, 2, 3]


def test_a_node_of_another_cluster_is_refused_and_harms_nobody(cluster: ClusterProcesses) -> None:
    stranger = cluster.add(5, initial_broker_registration_timeout_ms="3000")
    stranger.settings |= {"process.roles": "broker", "listeners": f"PLAINTEXT://127.0.0.1:{stranger.port}"}
    stranger.format(cluster_id="AAAAAAAAAAAAAAAAAAAAAA")
    try:
        stranger.start_soon()
        assert stranger.wait() == 1
    finally:
        stranger.close()
        del cluster.nodes[5]
    assert "AAAAAAAAAAAAAAAAAAAAAA" in stranger.log
    assert "Traceback" not in stranger.log
    assert live(cluster.nodes[3]) == [1, 2, 3]


# Who leads when one goes.


def test_a_node_that_is_killed_is_fenced_and_comes_back_without_waiting_for_its_session(
    own_cluster: ClusterProcesses,
) -> None:
    nodes = own_cluster.nodes
    victim = next(one for one in nodes.values() if one is not active_controller(own_cluster))
    other = next(one for one in nodes.values() if one is not victim)
    with WireClient(other.port) as client:
        create(client, "flights")
    wait_until(lambda: leaders(other, "flights") == {1, 2, 3}, "each leads one")
    victim.kill()
    wait_until(lambda: victim.node_id not in live(other), "it is fenced")
    assert victim.node_id not in leaders(other, "flights")
    assert -1 not in leaders(other, "flights")
    victim.start()
    wait_until(lambda: live(other) == [1, 2, 3], "it is back")
    wait_until(
        lambda: all(len(one.isr_nodes) == 3 for one in partitions(other, "flights")), "it is in sync with the others"
    )
    assert "waits for that to end" not in victim.log

    # Killed, and back before anybody missed it.
    before = [one.leader_epoch for one in partitions(other, "flights")]
    victim.kill()
    victim.start()
    assert "waits for that to end" not in victim.log
    wait_until(
        lambda: all(len(one.isr_nodes) == 3 for one in partitions(other, "flights")), "it is in sync with the others"
    )
    assert [one.leader_epoch for one in partitions(other, "flights")] >= before


def test_a_node_that_stops_has_its_leaderships_given_away_first(own_cluster: ClusterProcesses) -> None:
    """Each in its turn, the active controller last: within the session nobody would have noticed."""
    nodes = own_cluster.nodes
    last = active_controller(own_cluster)
    with WireClient(last.port) as client:
        create(client, "flights")
    for node in [*(one for one in nodes.values() if one is not last), last]:
        wait_until(lambda: all(len(one.isr_nodes) == 3 for one in partitions(last, "flights")), "all are in sync again")
        with WireClient(last.port) as client:
            assert client.ask(ApiKey.ELECT_LEADERS, 2, ElectLeadersRequest(), ElectLeadersResponse).error_code == 0
        wait_until(lambda: leaders(last, "flights") == {1, 2, 3}, "each leads one")
        assert node.stop() == 0
        other = next(one for one in nodes.values() if one.is_running)
        state = partitions(other, "flights")
        assert all(one.leader_id not in (-1, node.node_id) for one in state), state
        assert all(node.node_id not in one.isr_nodes for one in state), state
        assert "it stops all the same" not in node.log
        node.start()


def test_who_asks_while_the_controller_is_killed_is_answered_by_the_next(own_cluster: ClusterProcesses) -> None:
    nodes = own_cluster.nodes
    controller = active_controller(own_cluster)
    others = [one for one in nodes.values() if one is not controller]
    stop, problems = threading.Event(), []
    counts = dict.fromkeys((one.node_id for one in others), 0)

    def ask(node: ClusterNode) -> None:
        with WireClient(node.port, timeout_seconds=40) as client:
            while not stop.is_set():
                topic = f"t-{node.node_id}-{counts[node.node_id]}"
                request = CreateTopicsRequest(topics=[CreatableTopic(topic, 1, 1)], timeout_ms=30_000)
                (row,) = client.ask(ApiKey.CREATE_TOPICS, 7, request, CreateTopicsResponse).topics
                if row.error_code not in (Code.NONE, Code.TOPIC_ALREADY_EXISTS):  # it was asked twice, perhaps
                    problems.append((topic, row.error_code, row.error_message))
                counts[node.node_id] += 1

    threads = [threading.Thread(target=ask, args=(node,)) for node in others]
    for thread in threads:
        thread.start()
    try:
        wait_until(lambda: min(counts.values()) >= 3, "topics are made")
        controller.kill()
        so_far = dict(counts)
        wait_until(lambda: all(counts[one] >= so_far[one] + 3 for one in counts), "topics are made again")
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    assert not problems

    # With one of three nobody can lead, and whoever asks is told so in the time that he gave.
    gone, left = others
    gone.kill()
    with WireClient(left.port) as client:
        request = CreateTopicsRequest(topics=[CreatableTopic("late", 1, 1)], timeout_ms=1_500)
        (row,) = client.ask(ApiKey.CREATE_TOPICS, 7, request, CreateTopicsResponse).topics
        assert (row.error_code, "1500 ms" in str(row.error_message)) == (Code.REQUEST_TIMED_OUT, True)
        client.describe_topic("t-0")  # it serves what it knows


def test_controllers_and_brokers_may_be_nodes_of_their_own(tmp_path: Path) -> None:
    with ClusterProcesses(tmp_path, 0) as cluster:
        ports = cluster.controller_ports
        (ports[1],) = free_ports(HOST, [None])
        controller, *brokers = (cluster.add(node_id) for node_id in (1, 2, 3))
        controller.settings |= {
            "process.roles": "controller",
            "listeners": f"CONTROLLER://127.0.0.1:{ports[1]}",
        }
        for broker in brokers:
            broker.settings |= {"process.roles": "broker", "listeners": f"PLAINTEXT://127.0.0.1:{broker.port}"}
        for node in cluster.nodes.values():
            node.format()
        cluster.start()
        first, second = brokers
        wait_until(lambda: live(first) == live(second) == [2, 3], "the brokers are there, and the controller is none")
        with WireClient(first.port) as client:
            create(client, "flights", partitions=2, replicas=2)
        assert metadata(second).controller_id in (2, 3), "whom clients can reach"
        wait_until(lambda: leaders(second, "flights") == {2, 3}, "each leads one")
        assert first.stop() == 0
        assert leaders(second, "flights") == {3}
        assert controller.stop() == 0
        with WireClient(second.port) as client:
            assert client.describe_topic("flights").error_code == Code.NONE
        controller.start()
        with WireClient(second.port) as client:
            create(client, "later", partitions=1, replicas=1)


@pytest.mark.slow
def test_a_kill_of_every_node_at_once_loses_nothing_and_leaves_somebody_to_lead(own_cluster: ClusterProcesses) -> None:
    """The machine runs on, so each has all that it wrote, and can show so; else nobody could be elected cleanly."""
    nodes = own_cluster.nodes
    request = CreateTopicsRequest(
        topics=[CreatableTopic("flights", 3, 3, configs=[CreatableTopicConfig("min.insync.replicas", "2")])],
        timeout_ms=20_000,
    )
    with WireClient(nodes[1].port) as client:
        (row,) = client.ask(ApiKey.CREATE_TOPICS, 7, request, CreateTopicsResponse).topics
        assert row.error_code == Code.NONE, row.error_message
    wait_until(lambda: leaders(nodes[1], "flights") == {1, 2, 3}, "each leads one")

    def is_acknowledged(state: MetadataResponsePartition) -> bool:
        with WireClient(nodes[state.leader_id].port) as client:
            batch = batch_of(b"acknowledged")
            answer = client.produce("flights", batch, partition=state.partition_index, acks=-1)
        assert answer.error_code in (Code.NONE, *HEARS_LATER)
        return not answer.error_code

    for state in partitions(nodes[1], "flights"):
        wait_until(lambda state=state: is_acknowledged(state), "its leader takes a record")  # type: ignore[misc]
    for node in nodes.values():
        os.kill(node.pid, signal.SIGKILL)
    for node in nodes.values():
        node.wait()
    own_cluster.start()
    wait_until(lambda: -1 not in leaders(nodes[1], "flights"), "all partitions are led")
    wait_until(lambda: all(committed(nodes, one) == [b"acknowledged"] for one in range(3)), "all is there")

"""`kraft.version` 0 to 1 of a running cluster: who votes stands in the settings, and then in the metadata log."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from support.clients.wire_client import WireClient, batch_of
from support.fixtures.waiting import wait_until
from support.nodes.cluster_process import ClusterProcesses
from support.nodes.node import NodeProcess
from tidelog import Admin
from tidelog.base.errors import Code, KafkaError
from tidelog.client.admin.cluster_descriptions import Endpoint, FeatureUpdate, UpgradeType
from tidelog.metadata.features import METADATA_VERSION

NAME = "kraft.version"


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[ClusterProcesses]:
    with ClusterProcesses(tmp_path) as started:
        yield started


def raise_it(bootstrap: str, level: int = 1, kind: UpgradeType = "upgrade", **others: int) -> KafkaError | None:
    levels = {NAME: level, **{name.replace("_", "."): one for name, one in others.items()}}
    with Admin(bootstrap) as admin:
        try:
            admin.update_features({name: FeatureUpdate(one, kind) for name, one in levels.items()})
        except KafkaError as error:
            return error
    return None


def level_of(bootstrap: str) -> int | None:
    with Admin(bootstrap) as admin:
        return admin.describe_features()[NAME].level


def voters(bootstrap: str) -> dict[int, str | None]:
    with Admin(bootstrap) as admin:
        return {one.node_id: one.directory_id for one in admin.describe_quorum().voters}


def removal(bootstrap: str, node_id: int, directory_id: str) -> Code:
    with Admin(bootstrap) as admin:
        try:
            admin.remove_raft_voter(node_id, directory_id)
        except KafkaError as error:
            return error.code
    return Code.NONE


def test_voters_of_a_running_cluster_go_into_the_log_and_change_there_from_then_on(cluster: ClusterProcesses) -> None:
    nodes = cluster.nodes
    directories = {one: node.directory_id for one, node in nodes.items()}
    assert level_of(nodes[1].bootstrap) is None
    assert removal(nodes[1].bootstrap, 3, directories[3]) == Code.UNSUPPORTED_VERSION
    with WireClient(nodes[1].port) as client:
        assert client.create_topic("t", replication_factor=3).error_code == Code.NONE
    assert raise_it(nodes[2].bootstrap) is None
    wait_until(lambda: all(level_of(node.bootstrap) == 1 for node in nodes.values()), "all know")
    assert voters(nodes[1].bootstrap) == directories
    assert raise_it(nodes[2].bootstrap) is None, "once more is no change"
    lowered = raise_it(nodes[2].bootstrap, 0, "unsafe downgrade")
    assert "do not go back into the settings" in str(lowered)

    for node in nodes.values():  # their settings name the voters still
        node.stop()
        node.start_soon()
        node.wait_until_serving()
    assert {level_of(node.bootstrap) for node in nodes.values()} == {1}
    assert voters(nodes[1].bootstrap) == directories

    wait_until(lambda: removal(nodes[1].bootstrap, 3, directories[3]) == Code.NONE, "it votes no more")
    assert set(voters(nodes[1].bootstrap)) == {1, 2}
    for node in nodes.values():
        node.stop()
    cluster.start()
    assert set(voters(nodes[3].bootstrap)) == {1, 2}, "the log counts, not the settings"
    with Admin(nodes[1].bootstrap) as admin:
        endpoint = Endpoint("CONTROLLER", "127.0.0.1", cluster.controller_ports[3])
        admin.add_raft_voter(3, directories[3], [endpoint])
    assert voters(nodes[1].bootstrap) == directories


def test_a_voter_that_is_away_holds_it_back(cluster: ClusterProcesses) -> None:
    """Nobody knows its directory; so a leader that it has not fetched from does not guess."""
    nodes = cluster.nodes
    nodes[3].stop()
    for node_id in (1, 2):
        nodes[node_id].stop()
        nodes[node_id].start_soon()
    for node_id in (1, 2):
        nodes[node_id].wait_until_serving()
    refused = raise_it(nodes[1].bootstrap, metadata_version=METADATA_VERSION)
    assert refused is not None
    assert refused.code == Code.INVALID_UPDATE_VERSION
    assert "voter 3 has not fetched from the leader" in str(refused)
    assert level_of(nodes[1].bootstrap) is None
    nodes[3].start()
    wait_until(lambda: raise_it(nodes[1].bootstrap) is None, "it fetches")
    wait_until(lambda: level_of(nodes[3].bootstrap) == 1, "all know")


def test_a_node_that_is_alone_does_so_too(node: NodeProcess) -> None:
    assert level_of(node.bootstrap) is None
    assert raise_it(node.bootstrap, metadata_version=METADATA_VERSION) is None
    assert level_of(node.bootstrap) == 1
    with WireClient(node.port) as client:
        client.create_topic("t")
        assert client.produce("t", batch_of(b"x")).error_code == Code.NONE
    node.kill()
    node.start()
    assert level_of(node.bootstrap) == 1
    assert set(voters(node.bootstrap)) == {1}

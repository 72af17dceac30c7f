"""Controllers that are no brokers: they register, features count them, and clients are told of them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from uuid import UUID

import pytest

from support.clients.wire_client import WireClient
from support.fixtures.waiting import wait_until
from support.nodes.cluster_process import HOST, ClusterNode, ClusterProcesses
from tidelog import Admin
from tidelog.base.errors import Code, KafkaError
from tidelog.cli.ports import free_ports
from tidelog.client.admin.cluster_descriptions import FeatureUpdate
from tidelog.metadata.features import METADATA_VERSION, METADATA_VERSION_MIN
from tidelog.wire import ApiKey
from tidelog.wire.messages.api_60_describe_cluster import DescribeClusterRequest, DescribeClusterResponse
from tidelog.wire.messages.api_70_controller_registration import (
    ControllerListener,
    ControllerRegistrationRequest,
    ControllerRegistrationResponse,
)

LEVEL = "metadata.version"
ENDPOINT_CONTROLLERS = 2
OLD_RELEASE = f"""
import tidelog.metadata.features as features
features.SUPPORTED_FEATURES |= {{features.METADATA_VERSION_FEATURE: ({METADATA_VERSION_MIN}, 28)}}
from tidelog.cli.app import main
main()
"""


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[ClusterProcesses]:
    """Controllers 1, 2 and 3, and broker 4, at a level below that of controllers in the metadata."""
    with ClusterProcesses(tmp_path, 0) as cluster:
        ports = cluster.controller_ports
        ports.update(zip((1, 2, 3), free_ports(HOST, [None] * 3), strict=True))
        for node_id in (1, 2, 3):
            cluster.add(node_id).settings |= {
                "process.roles": "controller",
                "listeners": f"CONTROLLER://{HOST}:{ports[node_id]}",
            }
        broker = cluster.add(4)
        broker.settings |= {
            "process.roles": "broker",
            "listeners": f"PLAINTEXT://{HOST}:{broker.port}",
            "default.replication.factor": "1",
            "offsets.topic.replication.factor": "1",
        }
        for node in cluster.nodes.values():
            node.format(features={LEVEL: 27})
        yield cluster


def set_level(cluster: ClusterProcesses, level: int) -> KafkaError | None:
    with Admin(cluster.nodes[4].bootstrap) as admin:
        try:
            admin.update_features({LEVEL: FeatureUpdate(level)})
        except KafkaError as error:
            return error
    return None


def described(cluster: ClusterProcesses, node_id: int) -> set[tuple[int, int]]:
    with WireClient(cluster.controller_ports[node_id]) as client:
        request = DescribeClusterRequest(endpoint_type=ENDPOINT_CONTROLLERS)
        answer = client.ask(ApiKey.DESCRIBE_CLUSTER, 2, request, DescribeClusterResponse)
    return {(row.broker_id, row.port) for row in answer.brokers}


def test_a_level_waits_for_every_controller_and_the_metadata_tells_of_them(cluster: ClusterProcesses) -> None:
    old, nodes = cluster.nodes[3], cluster.nodes
    old.program = OLD_RELEASE
    cluster.start()

    def refusal() -> str:
        return str(set_level(cluster, METADATA_VERSION))

    # Whoever is active, controller 3 or another one, knows of it.
    wait_until(lambda: "supports 10 (3.5-IV1) to 28 (4.2-IV0)" in refusal(), refusal)
    wait_until(lambda: set_level(cluster, 28) is None, "all can work at that")
    restart(old)
    wait_until(lambda: set_level(cluster, METADATA_VERSION) is None, refusal)
    expected = {(node_id, cluster.controller_ports[node_id]) for node_id in (1, 2, 3)}
    for node_id in (1, 2, 3):
        wait_until(lambda node_id=node_id: described(cluster, node_id) == expected, "they know")  # type: ignore[misc]
    for node_id in (1, 2, 3):
        restart(nodes[node_id])
    wait_until(lambda: all(described(cluster, one) == expected for one in (1, 2, 3)), "and after a restart")


def test_who_is_no_member_of_the_quorum_is_refused(cluster: ClusterProcesses) -> None:
    cluster.start()

    def asked(port: int) -> tuple[int, str | None]:
        request = ControllerRegistrationRequest(
            controller_id=77, incarnation_id=UUID(int=7), listeners=[ControllerListener("CONTROLLER", HOST, 9)]
        )
        with WireClient(port) as client:
            answer = client.ask(ApiKey.CONTROLLER_REGISTRATION, 0, request, ControllerRegistrationResponse)
        return answer.error_code, answer.error_message

    answers = [asked(cluster.controller_ports[node_id]) for node_id in (1, 2, 3)]
    assert sorted(code for code, _ in answers) == [Code.NOT_CONTROLLER] * 2 + [Code.UNKNOWN_CONTROLLER_ID]
    assert any("controller 77 is no voter of the metadata quorum" in (text or "") for _, text in answers)


def restart(node: ClusterNode) -> None:
    node.stop()
    node.program = None
    node.start()

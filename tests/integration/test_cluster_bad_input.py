"""What is set up wrongly is refused with a reason that helps, and the cluster goes on as if nothing had been there."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from support.fixtures.log_files import change, cut
from support.fixtures.waiting import wait_until
from support.load.verifying import verifying_load
from support.nodes.cluster import Cluster, ClusterNode
from support.nodes.server_process import NodeFailedError
from tidelog.base.errors import Code, KafkaError
from tidelog.base.ids import BrokerId, ClusterId
from tidelog.cli.node_directories import format_directory, owner_of
from tidelog.cli.ports import free_ports
from tidelog.records import split_whole_batches

RECORDS = 100
HOST = "127.0.0.1"


def check_unharmed(cluster: Cluster) -> None:
    """All three serve and are in sync, and nothing is wrong with what goes in and comes out."""
    topic = f"unharmed-{len(list(cluster.nodes[1].directory.glob('unharmed-*')))}"
    cluster.create_topic(topic, 1)
    with verifying_load(cluster.bootstrap, topic, 1, producers=["ours"], readers=["ours"]) as load:
        load.until_acknowledged(RECORDS)
        history = load.finish()
    history.check()
    assert not history.failed


def listen_elsewhere(node: ClusterNode, home: Path) -> None:
    """Ports and files of its own, and everything else as it is."""
    client, controller = free_ports(HOST, [None, None])
    node.settings["listeners"] = f"PLAINTEXT://{HOST}:{client},CONTROLLER://{HOST}:{controller}"
    node.settings["log.dirs"] = str(home)
    node.directory = home
    node.log_path = home.with_suffix(".log")
    node.properties_path = home.with_suffix(".properties")


def cluster_id(cluster: Cluster) -> ClusterId:
    owner = owner_of(str(cluster.nodes[1].directory))
    assert owner is not None
    return owner.cluster_id


@pytest.mark.slow
@pytest.mark.timeout(120)
def test_a_second_node_with_the_same_id(cluster: Cluster, tmp_path: Path) -> None:
    """It is not let in while the first one lives, and gives up once it knows that it does."""
    twin = cluster.another(2)
    listen_elsewhere(twin, tmp_path / "twin")
    format_directory(str(twin.directory), BrokerId(2), cluster_id(cluster))
    try:
        with pytest.raises(
            NodeFailedError, match=r"another process (serves as broker|leads the metadata quorum as node) 2\b"
        ):
            twin.start()
    finally:
        twin.close()
    check_unharmed(cluster)


@pytest.mark.timeout(120)
def test_a_node_of_another_cluster(cluster: Cluster) -> None:
    """Its directory says so; nobody takes its votes or its fetches for those of the node that is missing."""
    node = cluster.nodes[3]
    node.stop()
    aside = node.directory.with_name("aside")
    node.directory.rename(aside)
    format_directory(str(node.directory), BrokerId(3), ClusterId("jtxwXpv4Sgyz09Nvdi2SYg"))
    try:
        node.start_soon()
        wait_until(lambda: "is of another cluster than this node" in node.log, lambda: node.log[-2_000:])
        other = cluster.nodes[1]
        wait_until(lambda: "is of cluster jtxwXpv4Sgyz09Nvdi2SYg" in other.log, lambda: other.log[-2_000:])
    finally:
        node.close()
    shutil.rmtree(node.directory)
    aside.rename(node.directory)
    node.start()
    check_unharmed(cluster)


@pytest.mark.timeout(120)
def test_directories_that_changed_places(cluster: Cluster) -> None:
    cluster.stop()
    first, second = cluster.nodes[1], cluster.nodes[2]
    first.settings["log.dirs"], second.settings["log.dirs"] = second.settings["log.dirs"], first.settings["log.dirs"]
    with pytest.raises(NodeFailedError, match=r"belongs to node 2\b"):
        first.start()
    first.settings["log.dirs"], second.settings["log.dirs"] = second.settings["log.dirs"], first.settings["log.dirs"]
    cluster.start()
    check_unharmed(cluster)


def metadata_segment(node: ClusterNode) -> Path:
    return max((node.directory / "__cluster_metadata-0").glob("*.log"))


@pytest.mark.timeout(120)
def test_a_metadata_log_with_a_torn_tail(cluster: Cluster) -> None:
    """As a loss of power leaves it. The node cuts it off, and fetches what it misses."""
    node = cluster.nodes[2]
    node.kill()
    segment = metadata_segment(node)
    cut(segment, segment.stat().st_size - 7)
    node.start()
    check_unharmed(cluster)


@pytest.mark.timeout(120)
def test_a_metadata_log_that_is_damaged_in_the_middle(cluster: Cluster) -> None:
    """No crash does that. The node says where, and does not vote with what it cannot trust; the others go on."""
    node = cluster.nodes[2]
    node.kill()
    segment = metadata_segment(node)
    batches = split_whole_batches(segment.read_bytes())
    position, header = batches[len(batches) // 2]
    change(segment, position + header.size_bytes - 1, lambda byte: byte ^ 0xFF)
    with pytest.raises(NodeFailedError, match=rf"damaged at offset {header.base_offset}\b"):
        node.start()
    (aside,) = segment.parent.glob("*.cut")
    aside.rename(node.directory.parent / aside.name)  # as it says
    node.start()
    check_unharmed(cluster)


def test_more_replicas_than_nodes(cluster: Cluster) -> None:
    with pytest.raises(KafkaError) as refused:
        cluster.create_topic("too-many", replication_factor=4)
    assert refused.value.code == Code.INVALID_REPLICATION_FACTOR
    check_unharmed(cluster)

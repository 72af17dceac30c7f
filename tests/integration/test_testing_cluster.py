"""`tidelog.testing.Cluster`: real nodes, and every fault that can be injected."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Literal

import pytest

from support.fixtures.waiting import wait_until
from support.nodes.cluster_files import records_of
from tidelog import (
    Admin,
    ConfigResource,
    Consumer,
    KafkaError,
    LogTruncatedError,
    NetworkError,
    NewTopic,
    Producer,
    TimedOutError,
    TopicPartition,
)
from tidelog.testing import CLIENTS, Cluster, ClusterFailedError, ClusterUsageError, Node

RECORDS = 10
Codec = Literal["none", "zstd"]


@pytest.fixture(scope="module")
def running() -> Iterator[Cluster]:
    with Cluster(nodes=3, disks=2) as cluster:
        yield cluster


@pytest.fixture
def cluster(running: Cluster) -> Iterator[Cluster]:
    """The cluster of the file, healed and with all nodes running."""
    running.heal()
    for node in running.running:
        if node.is_paused:
            node.resume()
    running.start()
    yield running
    assert "Traceback" not in running.logs(characters_max=1_000_000)


def produce(cluster: Cluster, topic: str, *values: bytes, compression: Codec = "none") -> None:
    with Producer(cluster.bootstrap_servers, compression_type=compression, linger_ms=50) as producer:
        sent = [producer.send(topic, value, partition=0) for value in values]
        for one in sent:
            one.result()


def read(consumer: Consumer[bytes | None, bytes | None], count: int) -> list[bytes]:
    found: list[bytes] = []
    while len(found) < count:
        found += [record.value or b"" for record in consumer.poll(timeout_ms=1_000)]
    return found


def numbered(first: int, end: int) -> list[bytes]:
    return [b"%d" % number for number in range(first, end)]


@pytest.mark.parametrize(("replicas", "compression", "lost_count"), [(3, "zstd", 3), (2, "none", RECORDS)])
def test_truncate_loses_what_it_was_told_to_and_says_so(
    cluster: Cluster, replicas: int, compression: Codec, lost_count: int
) -> None:
    topic = f"orders-{replicas}"
    cluster.create_topic(topic, replication_factor=replicas)
    produce(cluster, topic, *numbered(0, RECORDS), compression=compression)  # in one batch
    with Consumer(cluster.bootstrap_servers, auto_offset_reset="none") as consumer:
        partition = TopicPartition(topic, 0)
        consumer.assign([partition])
        consumer.seek_to_beginning()
        assert read(consumer, RECORDS) == numbered(0, RECORDS)

        lost = cluster.truncate(topic, records=lost_count)

        kept = RECORDS - lost_count
        assert (lost.partition, lost.start_offset, lost.end_offset, lost.count) == (
            partition,
            kept,
            RECORDS,
            lost_count,
        )
        assert lost.new_leader_epoch > lost.old_leader_epoch
        produce(cluster, topic, b"a", b"b")
        with pytest.raises(LogTruncatedError) as told:
            read(consumer, 1)
        assert told.value.seek_to.offset == kept
        consumer.seek(partition, told.value.seek_to)
        assert read(consumer, 2) == [b"a", b"b"]
    cluster.wait_until_in_sync(topic)
    for node in (cluster.leader_of(topic), *cluster.followers_of(topic)):
        directory = node.directories[cluster.disk_of(node, topic) - 1] / f"{topic}-0"
        assert [record.value for record in records_of(directory)] == [*numbered(0, kept), b"a", b"b"]


def test_truncate_refuses_what_it_cannot_do(cluster: Cluster) -> None:
    cluster.create_topic("alone", replication_factor=1)
    cluster.create_topic("few")
    produce(cluster, "few", b"0")
    with pytest.raises(ClusterUsageError, match=r"alone-0 has one replica.*replication_factor=2 or more"):
        cluster.truncate("alone", records=1)
    with pytest.raises(ClusterUsageError, match=r"few-0 holds 1 \(offsets 0 up to, but not with, 1\)"):
        cluster.truncate("few", records=2)
    with pytest.raises(ClusterUsageError, match="records=0; at least one"):
        cluster.truncate("few", records=0)
    with pytest.raises(ClusterUsageError, match=r"no topic nowhere: create it first"):
        cluster.truncate("nowhere", records=1)
    with pytest.raises(ClusterUsageError, match="there is no few-1: the topic has 0 to 0"):
        cluster.truncate("few", 1, records=1)
    cluster.partition([1], [2])
    with pytest.raises(ClusterUsageError, match="links are cut: heal them first"):
        cluster.truncate("few", records=1)
    cluster.heal()
    cluster.nodes[2].pause()
    with pytest.raises(ClusterUsageError, match="node 2 is paused: resume it first"):
        cluster.truncate("few", records=1)


def test_a_killed_leader_is_replaced_and_comes_back(cluster: Cluster) -> None:
    cluster.create_topic("killed")
    leader = cluster.leader_of("killed")
    port = leader.port
    leader.kill()
    assert not leader.is_running
    with pytest.raises(ClusterUsageError, match=rf"{leader} does not run.*cluster\.nodes\[{leader.node_id}\]\.start"):
        leader.kill()
    assert cluster.leader_of("killed") is not leader
    produce(cluster, "killed", b"0")
    leader.start()
    assert leader.port == port
    cluster.wait_until_in_sync("killed")
    with pytest.raises(ClusterUsageError, match="runs already"):
        leader.start()
    leader.restart()


def test_a_paused_leader_is_replaced(cluster: Cluster) -> None:
    cluster.create_topic("paused")
    leader = cluster.leader_of("paused")
    leader.pause()
    with pytest.raises(ClusterUsageError, match=r"is paused.*resume it first, or kill it"):
        leader.stop()
    assert cluster.leader_of("paused") is not leader
    produce(cluster, "paused", b"0")
    leader.resume()
    cluster.wait_until_in_sync("paused")


def test_a_leader_that_is_cut_off_is_replaced_and_follows_when_healed(cluster: Cluster) -> None:
    cluster.create_topic("parted")
    leader = cluster.leader_of("parted")
    cluster.partition([leader])
    others = [node for node in cluster.nodes.values() if node is not leader]
    wait_until(lambda: cluster.leader_of("parted") in others, cluster.logs)
    produce(cluster, "parted", b"0")
    assert known_leader(leader, "parted") == leader.node_id  # it has not heard of it
    cluster.heal()
    cluster.wait_until_in_sync("parted")
    wait_until(lambda: known_leader(leader, "parted") != leader.node_id, cluster.logs)


def known_leader(node: Node, topic: str) -> int | None:
    with Admin(node.bootstrap_servers) as admin:
        return admin.describe_topics([topic])[topic].partitions[0].leader


def test_clients_that_are_cut_off_hear_nothing_until_it_heals(cluster: Cluster) -> None:
    with Admin(cluster.bootstrap_servers, default_api_timeout_ms=500) as admin:
        admin.create_topics([NewTopic("known", 1, 1)])
        cluster.partition([1, 2, 3], [CLIENTS])
        with pytest.raises((TimedOutError, NetworkError)):
            admin.list_topics()
        with pytest.raises(ClusterUsageError, match="no node of the cluster can answer"):
            cluster.leader_of("known")
        cluster.heal()

        def is_heard() -> bool:
            with suppress(KafkaError, NetworkError, TimedOutError):
                return "known" in {one.name for one in admin.list_topics()}
            return False

        wait_until(is_heard, cluster.logs)


def test_a_disk_that_fails_takes_its_partitions_offline_and_no_others(cluster: Cluster) -> None:
    cluster.create_topic("disks", partitions=2)
    leader = cluster.leader_of("disks")
    disk = cluster.disk_of(leader, "disks")
    assert cluster.disk_of(leader, "disks", 1) != disk
    cluster.fail_disk(leader, disk=disk)
    assert leader.is_running
    assert cluster.leader_of("disks") is not leader
    with pytest.raises(ClusterUsageError, match="failed before: mend_disk puts it back"):
        cluster.fail_disk(leader, disk=disk)
    produce(cluster, "disks", b"0")
    cluster.mend_disk(leader)
    cluster.wait_until_in_sync("disks")
    with pytest.raises(ClusterUsageError, match="no disk of node 1 failed"):
        cluster.mend_disk(1)
    with pytest.raises(ClusterUsageError, match="node 1 has no disk 3: it has 2 disks"):
        cluster.fail_disk(1, disk=3)


def test_what_a_cluster_of_one_node_does_and_refuses() -> None:
    with Cluster(nodes=1, config={"auto.create.topics.enable": "false"}) as cluster:
        node = cluster.nodes[1]
        with pytest.raises(ClusterUsageError, match=r"replication_factor=3: this cluster has 1 node; .*nodes=3"):
            cluster.create_topic("orders", replication_factor=3)
        cluster.create_topic("orders", config={"retention.ms": "-1"})
        produce(cluster, "orders", b"0")
        node.stop()
        node.settings["log.retention.hours"] = "9"
        node.start()
        assert cluster.leader_of("orders") is node
        with Admin(cluster.bootstrap_servers) as admin:
            broker = ConfigResource("broker", "1")
            assert admin.describe_configs([broker])[broker]["log.retention.hours"].value == "9"
        cluster.fail_disk(node)
        assert not node.is_running
        cluster.mend_disk(node)
        produce(cluster, "orders", b"1")
        directory = cluster.directory
        os.kill(node.pid, signal.SIGKILL)  # nobody told the cluster
        wait_until(lambda: not node.is_running, "it ends")
        node.directories[0].rename(directory / "elsewhere")
        node.directories[0].write_text("no directory")
        with pytest.raises(
            ClusterFailedError, match=r"node 1 ended with status 1 before it served; the end of .*node-1"
        ):
            node.start()
    assert not directory.exists()
    with pytest.raises(ClusterUsageError, match="the cluster is closed"):
        cluster.create_topic("late")
    with pytest.raises(ClusterUsageError, match="the cluster is closed"):
        node.start()


def test_what_leaves_the_block_says_where_the_logs_are() -> None:
    cluster = Cluster(nodes=1)
    try:
        with pytest.raises(ZeroDivisionError) as left, cluster:
            raise ZeroDivisionError
        assert left.value.__notes__ == [f"The logs of the nodes are {cluster.directory}/node-*.log"]
        assert cluster.nodes[1].log_path.exists()
    finally:
        cluster.close()
        for path in sorted(cluster.directory.rglob("*"), reverse=True):
            path.rmdir() if path.is_dir() else path.unlink()
        cluster.directory.rmdir()


def test_a_cluster_that_was_never_started(tmp_path: Path) -> None:
    cluster = Cluster(nodes=2, directory=tmp_path / "cluster")
    with pytest.raises(ClusterUsageError, match="no node of the cluster can answer"):
        cluster.leader_of("orders")
    with pytest.raises(ClusterUsageError, match="there is no node 3: this cluster's are 1 to 2"):
        cluster.partition([3])
    with pytest.raises(ClusterUsageError, match="node 1 is on both sides of the cut"):
        cluster.partition([1], [1, CLIENTS])
    with pytest.raises(ClusterUsageError, match="nothing to cut"):
        cluster.partition([])
    with pytest.raises(ClusterUsageError, match="must run, or it notices nothing"):
        cluster.fail_disk(2)
    with pytest.raises(ClusterUsageError, match="there is no node 0"):
        cluster.fail_disk(CLIENTS)
    cluster.close()
    cluster.close()
    assert (tmp_path / "cluster" / "node-2.properties").exists()

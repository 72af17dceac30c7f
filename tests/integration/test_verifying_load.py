"""The verifying load itself: it finds no fault in a node that is killed, and it finds what an old copy lost."""

from __future__ import annotations

import shutil

import pytest
from confluent_kafka.admin import AdminClient

from support.clients.confluent import create_topic
from support.load.histories import Fault
from support.load.verifying import verifying_load
from support.load.verifying_groups import verifying_group
from support.nodes.node import NodeProcess
from tidelog import Admin, CommittedOffset, TopicPartition
from tidelog.base.ids import PartitionIndex

PARTITIONS = 2
RECORDS = 300  # of each producer, before something happens


@pytest.fixture
def bootstrap(node: NodeProcess) -> str:
    create_topic(AdminClient({"bootstrap.servers": node.bootstrap}), "verified", PARTITIONS)
    return node.bootstrap


def test_a_node_that_is_killed_and_comes_back_has_no_fault(node: NodeProcess, bootstrap: str) -> None:
    with verifying_load(bootstrap, "verified", PARTITIONS) as load:
        load.until_acknowledged(RECORDS)
        node.kill()
        node.restart()
        load.until_acknowledged(RECORDS)
        history = load.finish()
    history.check()
    assert not history.failed
    assert not history.reported


def test_what_an_old_copy_of_the_files_lost_is_found_and_was_told(node: NodeProcess, bootstrap: str) -> None:
    """The partitions come back as they were some time ago. Who had read on from there is told, and so are writers."""
    directory = node.data_dir / "node-1"
    copy = node.data_dir / "copy"
    with verifying_load(bootstrap, "verified", PARTITIONS, producers=["ours", "ours-plain"], readers=["ours"]) as load:
        load.until_acknowledged(RECORDS)
        node.stop()
        for log in directory.glob("verified-*"):
            shutil.copytree(log, copy / log.name)
        node.start()
        load.until_acknowledged(RECORDS)
        node.stop()
        for log in copy.iterdir():
            shutil.rmtree(directory / log.name)
            log.rename(directory / log.name)
        node.start()
        load.until_acknowledged(RECORDS)
        history = load.finish()
    found = {finding.fault for finding in history.findings()}
    assert Fault.LOST in found
    assert found <= {Fault.LOST, Fault.MOVED, Fault.REORDERED}, "a reader of ours was not told"
    assert history.reported, "a producer of ours was not told"


def test_a_group_that_lost_a_commit_or_a_record_is_found(node: NodeProcess, bootstrap: str) -> None:
    """A node that is killed keeps both; a committed offset that is set back, and a record never given, are found."""
    with (
        verifying_load(bootstrap, "verified", PARTITIONS, producers=["librdkafka"], readers=[]) as load,
        verifying_group(bootstrap, "verifiers", "verified") as group,
    ):
        node.kill()
        node.restart()
        load.until_acknowledged(RECORDS)
        group.until_committed(3)
        history = load.finish()
        group.check(history, PARTITIONS)
    with Admin(bootstrap) as admin:
        admin.alter_group_offsets("verifiers", {TopicPartition("verified", PartitionIndex(0)): CommittedOffset(1)})
    with pytest.raises(AssertionError, match="acknowledged commits are gone"):
        group.check(history, PARTITIONS)
    group.given.pop()
    with pytest.raises(AssertionError, match="1 records were given to nobody"):
        group.check(history, PARTITIONS, seconds=0)

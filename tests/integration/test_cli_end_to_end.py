"""The README's story, as it is typed: topics, produce, kill, consume, dump."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest

from support.nodes.cli import SECONDS_MAX, rows, tidelog
from support.nodes.node import NodeProcess


def test_topics_are_created_listed_described_and_deleted(shared_node: NodeProcess) -> None:
    made = rows(
        tidelog(
            shared_node,
            "topics",
            "create",
            "cli-life",
            "--partitions",
            "3",
            "--config",
            "retention.ms=60000",
            "-o",
            "json",
        )
    )
    assert [(row["topic"], row["partitions"], row["replication_factor"]) for row in made] == [("cli-life", 3, 1)]
    assert made[0] in rows(tidelog(shared_node, "topics", "list", "-o", "json"))
    partitions = rows(tidelog(shared_node, "topics", "describe", "cli-life", "-o", "json"))
    assert [(row["partition"], row["leader"], row["isr"], row["replicas"]) for row in partitions] == [
        (index, 1, [1], [1]) for index in range(3)
    ]
    configs = rows(tidelog(shared_node, "topics", "describe", "cli-life", "--configs", "-o", "json"))
    assert {"topic": "cli-life", "key": "retention.ms", "value": "60000", "source": "dynamic topic"} in configs
    assert "cli-life" in tidelog(shared_node, "topics", "list")

    tidelog(shared_node, "topics", "create", "cli-death")
    said = tidelog(shared_node, "topics", "delete", "cli-nowhere", "cli-life", "cli-neither", "cli-death", status=1)
    assert "'cli-nowhere'" in said
    assert "(and 1 more); deleted: cli-life, cli-death" in said
    assert not {"cli-life", "cli-death"} & {
        row["topic"] for row in rows(tidelog(shared_node, "topics", "list", "-o", "json"))
    }
    assert tidelog(shared_node, "topics", "delete", "cli-life", "--if-exists") == "none was there\n"


def test_what_is_refused_says_why_in_one_line(shared_node: NodeProcess) -> None:
    tidelog(shared_node, "topics", "create", "cli-twice")
    tidelog(shared_node, "topics", "create", "cli-twice", "--if-not-exists")
    for arguments, word in [
        (["topics", "create", "cli-twice"], "cli-twice"),
        (["topics", "create", "no/slash"], "no/slash"),
        (["topics", "create", "cli-bad", "--config", "retention.mz=1"], "retention.ms"),
        (["topics", "create", "cli-bad", "--replication-factor", "3"], "replication"),
        (["topics", "describe", "cli-nowhere"], "cli-nowhere"),
        (["topics", "delete", "cli-nowhere"], "cli-nowhere"),
        (["consume", "cli-nowhere"], "cli-nowhere"),
        (["consume", "cli-twice", "--partition", "9"], "partition"),
        (["consume", "cli-twice", "--offset", "99", "--count", "1"], "99"),
    ]:
        said = tidelog(shared_node, *arguments, status=1)
        assert said.startswith("error: "), arguments
        assert word in said, arguments
        assert said.count("\n") == 1, said


def test_lines_go_in_and_come_out(shared_node: NodeProcess) -> None:
    said = rows(tidelog(shared_node, "produce", "cli-lines", "-o", "json", stdin="one\ntwo\n\nfour"))
    assert said == [{"topic": "cli-lines", "partition": 0, "records": 4, "first_offset": 0, "last_offset": 3}]
    assert tidelog(shared_node, "consume", "cli-lines", "--from-beginning", "--no-follow") == "one\ntwo\n\nfour\n"
    assert tidelog(shared_node, "consume", "cli-lines", "--offset", "1", "--count", "1") == "two\n"
    assert tidelog(shared_node, "consume", "cli-lines", "--no-follow") == ""


@pytest.mark.parametrize("compression", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_keys_headers_and_epochs_are_shown_as_json(shared_node: NodeProcess, compression: str) -> None:
    topic = f"cli-keys-{compression}"
    tidelog(
        shared_node,
        *("produce", topic, "--key-separator", ":", "--compression", compression, "--header", "from=test"),
        stdin="é:1\nk:v:w\n",
    )
    records = rows(tidelog(shared_node, "consume", topic, "--from-beginning", "--count", "2", "--output", "json"))
    assert [(row["offset"], row["leader_epoch"], row["key"], row["value"]) for row in records] == [
        (0, 0, "é", "1"),
        (1, 0, "k", "v:w"),
    ]
    assert records[0]["headers"] == [{"key": "from", "value": "test"}]
    assert records[0]["timestamp_type"] == "CreateTime"


def test_a_kill_loses_nothing_and_shows_in_the_leader_epoch(node: NodeProcess) -> None:
    tidelog(node, "topics", "create", "greetings", "--partitions", "1")
    tidelog(node, "produce", "greetings", stdin="hello\nworld\n")
    node.kill()
    node.restart()
    tidelog(node, "produce", "greetings", stdin="again\n")
    records = rows(
        tidelog(node, "consume", "greetings", "--partition", "0", "--offset", "0", "--count", "3", "--output", "json")
    )
    assert [(row["offset"], row["value"]) for row in records] == [(0, "hello"), (1, "world"), (2, "again")]
    before, after = records[1]["leader_epoch"], records[2]["leader_epoch"]
    assert before < after

    batches = rows(tidelog(node, "log", "dump", str(node.data_dir / "node-1" / "greetings-0"), "-o", "json"))
    epochs = [row["leader_epoch"] for row in batches if "leader_epoch" in row and "base_offset" in row]
    assert sorted(set(epochs)) == [before, after]
    metadata_log = str(node.data_dir / "node-1" / "__cluster_metadata-0")
    told = [
        row.get("metadata", "") for row in rows(tidelog(node, "log", "dump", metadata_log, "--records", "-o", "json"))
    ]
    assert any(record.startswith("TopicRecord(name='greetings'") for record in told)


def test_damage_to_a_file_is_shown_and_ends_with_status_1(node: NodeProcess) -> None:
    tidelog(node, "produce", "damaged", stdin="one\ntwo\n")
    node.stop()
    segment = node.data_dir / "node-1" / "damaged-0" / "00000000000000000000.log"
    content = bytearray(segment.read_bytes())
    content[-1] ^= 1
    segment.write_bytes(content)
    said = tidelog(node, "log", "dump", str(segment), status=1)
    assert said == f"error: {segment}: not as it should be; its rows say where\n"


def test_a_consumer_that_follows_ends_by_ctrl_c_with_status_130(shared_node: NodeProcess) -> None:
    tidelog(shared_node, "produce", "cli-follow", stdin="first\n")
    follower = subprocess.Popen(
        [
            sys.executable,
            "-m",
            "tidelog",
            "consume",
            "cli-follow",
            "--from-beginning",
            "--bootstrap",
            shared_node.bootstrap,
        ],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    try:
        assert follower.stdout is not None
        assert follower.stdout.readline() == b"first\n"
        tidelog(shared_node, "produce", "cli-follow", stdin="second\n")
        assert follower.stdout.readline() == b"second\n"
        follower.send_signal(signal.SIGINT)
        _, said = follower.communicate(timeout=SECONDS_MAX)
        assert (follower.returncode, said) == (130, b"")
    finally:
        follower.kill()
        follower.communicate()


def test_a_broker_that_is_not_there_is_named(shared_node: NodeProcess) -> None:
    said = tidelog(shared_node, "topics", "list", "--bootstrap", "127.0.0.1:1", "--timeout", "0.5", status=1)
    assert "127.0.0.1:1" in said
    assert said.count("\n") == 1

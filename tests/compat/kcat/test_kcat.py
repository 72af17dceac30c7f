"""kcat, as scripts use it: produce, consume, ask, and share a topic as a group."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from subprocess import Popen
from typing import Any

import pytest

from support.clients.kcat import Kcat, missing_kcat
from support.clients.wire_client import WireClient, batch_of
from support.fixtures.waiting import wait_until
from support.nodes.node import NodeProcess
from tidelog.records import split_whole_batches

START_MS = 1_700_000_000_000

pytestmark = pytest.mark.skipif(missing_kcat() is not None, reason=missing_kcat() or "")


@pytest.fixture(scope="module")
def kcat(shared_node: NodeProcess) -> Kcat:
    return Kcat(shared_node.bootstrap)


@pytest.fixture
def client(shared_node: NodeProcess) -> Iterator[WireClient]:
    with WireClient(shared_node.port) as connected:
        yield connected


def test_lines_go_in_and_come_out(kcat: Kcat, topic: str) -> None:
    lines = [b"line %d" % number for number in range(1000)]
    kcat.produce(topic, b"\n".join(lines))
    assert kcat.consume(topic, "-o", "beginning") == lines


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_every_compression(kcat: Kcat, topic: str, codec: str) -> None:
    lines = [b"the same line again, number %d" % (number % 3) for number in range(2000)]
    kcat.produce(topic, b"\n".join(lines), "-z", codec)
    assert kcat.consume(topic, "-o", "beginning") == lines


def test_keys_headers_partition_and_null(kcat: Kcat, client: WireClient, topic: str) -> None:
    client.create_topic(topic, partitions=3)
    kcat.produce(topic, b"a:one\nb:\n", "-p", "2", "-K", ":", "-Z", "-H", "trace=1", "-H", "empty=", "-H", "none")
    found = kcat.consume_json(topic, "-p", "2", "-o", "beginning")
    assert [(one["partition"], one["offset"], one["key"], one["payload"]) for one in found] == [
        (2, 0, "a", "one"),
        (2, 1, "b", None),
    ]
    assert {tuple(one["headers"]) for one in found} == {("trace", "1", "empty", "", "none", None)}
    assert {one["tstype"] for one in found} == {"create"}
    assert kcat.consume(topic, "-p", "1", "-o", "beginning") == []


def test_places_by_offset_from_the_end_and_by_time(kcat: Kcat, client: WireClient, topic: str) -> None:
    client.create_topic(topic)
    for number in range(10):
        client.produce(topic, batch_of(b"%d" % number, timestamp_ms=START_MS + 1000 * number))
    expected = [b"%d" % number for number in range(10)]
    assert kcat.consume(topic, "-p", "0", "-o", "beginning") == expected
    assert kcat.consume(topic, "-p", "0", "-o", "4") == expected[4:]
    assert kcat.consume(topic, "-p", "0", "-o", "-3") == expected[7:]
    assert kcat.consume(topic, "-p", "0", "-o", "end") == []
    assert kcat.consume(topic, "-p", "0", "-o", f"s@{START_MS + 6500}") == expected[7:]
    assert kcat.consume(topic, "-p", "0", "-o", f"s@{START_MS + 2000}", "-o", f"e@{START_MS + 5000}") == expected[2:5]
    assert kcat.consume(topic, "-p", "0", "-o", "beginning", "-c", "2") == expected[:2]


def test_querying_offsets_by_time(kcat: Kcat, client: WireClient, topic: str) -> None:
    client.create_topic(topic)
    for number in range(10):
        client.produce(topic, batch_of(b"%d" % number, timestamp_ms=START_MS + 1000 * number))
    asked = {START_MS - 5: 0, START_MS + 3001: 4, START_MS + 9000: 9, START_MS + 9001: -1, -2: 0, -1: 10}
    for timestamp_ms, offset in asked.items():
        said = kcat.run("-Q", "-t", f"{topic}:0:{timestamp_ms}").decode()
        assert said == f"{topic} [0] offset {offset}\n", timestamp_ms


def test_metadata_as_text_and_json(kcat: Kcat, shared_node: NodeProcess, client: WireClient, topic: str) -> None:
    client.create_topic(topic, partitions=2)
    said = kcat.run("-L", "-t", topic).decode()
    assert f"broker 1 at {shared_node.bootstrap} (controller)" in said
    assert f'topic "{topic}" with 2 partitions' in said
    assert "partition 1, leader 1, replicas: 1, isrs: 1" in said
    found = json.loads(kcat.run("-L", "-J"))
    assert found["brokers"] == [{"id": 1, "name": shared_node.bootstrap}]
    assert found["controllerid"] == 1
    (described,) = (one for one in found["topics"] if one["topic"] == topic)
    assert described["partitions"] == [
        {"partition": number, "leader": 1, "replicas": [{"id": 1}], "isrs": [{"id": 1}]} for number in range(2)
    ]


def test_a_topic_that_is_not_there(kcat: Kcat, client: WireClient) -> None:
    with pytest.raises(subprocess.CalledProcessError) as raised:
        kcat.run("-C", "-e", "-t", "kcat-nothing-here", "-X", "allow.auto.create.topics=false")
    assert b"Unknown topic" in raised.value.stderr
    assert client.describe_topic("kcat-nothing-here").partitions == []


def test_an_idempotent_producer_with_all_acknowledged(kcat: Kcat, topic: str) -> None:
    lines = [b"%d" % number for number in range(500)]
    settings = ("-X", "enable.idempotence=true", "-X", "acks=all")
    for start in range(0, 500, 100):
        kcat.produce(topic, b"\n".join(lines[start : start + 100]), *settings)
    assert kcat.consume(topic, "-o", "beginning") == lines


def test_a_whole_file_is_one_record(kcat: Kcat, client: WireClient, topic: str) -> None:
    client.create_topic(topic)
    text = b"a\nb\n" * 100_000
    kcat.produce(topic, text, "-D", "never in it")
    assert kcat.run("-C", "-q", "-e", "-t", topic, "-o", "beginning", "-D", "") == text


def test_an_idempotent_producer_has_the_producer_id_that_it_was_given(
    kcat: Kcat, client: WireClient, topic: str
) -> None:
    before, _ = client.new_producer_id()
    kcat.produce(topic, b"x", "-p", "0", "-X", "enable.idempotence=true")
    records: Any = client.fetch(topic, 0).records
    ((_, header),) = split_whole_batches(records)
    assert (header.producer_id, header.producer_epoch) == (before + 1, 0)


def test_what_is_written_in_a_transaction_is_read(kcat: Kcat, client: WireClient, topic: str) -> None:
    client.create_topic(topic)
    kcat.produce(topic, b"x", "-X", "transactional.id=kcat")
    assert len(kcat.consume(topic, "-o", "beginning")) == 1


GROUP_SETTINGS = (
    *("-X", "auto.offset.reset=earliest"),
    *("-X", "heartbeat.interval.ms=100"),
    *("-X", "session.timeout.ms=6000"),
    *("-X", "fetch.wait.max.ms=50"),
)


def test_a_group_goes_on_where_it_was(kcat: Kcat, client: WireClient, topic: str) -> None:
    client.create_topic(topic, partitions=2)
    for partition in ("0", "1"):
        kcat.produce(topic, b"first\n" * 5, "-p", partition)
    assert kcat.run("-G", topic, "-q", "-e", *GROUP_SETTINGS, topic).splitlines() == [b"first"] * 10
    kcat.produce(topic, b"second\n" * 3, "-p", "1")
    assert kcat.run("-G", topic, "-q", "-e", *GROUP_SETTINGS, topic).splitlines() == [b"second"] * 3
    assert kcat.run("-G", topic, "-q", "-e", *GROUP_SETTINGS, topic) == b""


@contextmanager
def reading(kcat: Kcat, topic: str, path: Path, *settings: str) -> Iterator[Popen[bytes]]:
    """A member of the topic's group that writes each value on a line of its own to a file, until it is ended."""
    arguments = ["-G", topic, "-q", "-u", *GROUP_SETTINGS, *settings, topic]
    with path.open("wb") as output, kcat.start(*arguments, output=output) as process:
        try:
            yield process
        finally:
            process.kill()


@pytest.mark.parametrize("strategy", ["range", "roundrobin", "cooperative-sticky"])
def test_two_share_a_topic_and_one_takes_over(
    kcat: Kcat, client: WireClient, topic: str, tmp_path: Path, strategy: str
) -> None:
    client.create_topic(topic, partitions=2)
    paths = [tmp_path / "first", tmp_path / "second"]
    setting = f"partition.assignment.strategy={strategy}"
    sent: list[bytes] = []

    def send() -> None:
        number = len(sent)
        sent.append(b"%d" % number)
        client.produce(topic, batch_of(sent[-1]), partition=number % 2)

    def read(path: Path) -> list[bytes]:
        return path.read_bytes().splitlines()

    def second_reads() -> bool:
        send()
        return paths[1].exists() and len(read(paths[1])) >= 3

    def everything_is_read() -> bool:
        return {value for path in paths for value in read(path)} == set(sent)

    with reading(kcat, topic, paths[0], "-X", setting):
        with reading(kcat, topic, paths[1], "-X", setting) as second:
            wait_until(second_reads, "the second has a partition, and reads it")
            wait_until(everything_is_read, "both have read all there is")  # kcat drops what it has not printed by then
            second.terminate()
            assert second.wait(20) == 0
        for _ in range(10):
            send()
        wait_until(everything_is_read, "the first reads what nobody else does any more")

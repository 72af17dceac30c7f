"""A transaction that no coordinator knows: readers of committed records stop there until an operator aborts it."""

from __future__ import annotations

import time
from collections.abc import Iterator

import confluent_kafka
import pytest

from support.clients.confluent import read_from
from support.clients.wire_client import WireClient, batch_of
from support.fixtures import log_files
from support.nodes.cli import rows, tidelog
from support.nodes.node import NodeProcess, StartNode
from tidelog import Admin
from tidelog.base.errors import TimedOutError

TIMEOUT_SECONDS = 30
LONG_AGO_MS = 1_700_000_000_000


@pytest.fixture(scope="module")
def credulous(start_node: StartNode) -> Iterator[NodeProcess]:
    """A node that takes transactional records without asking their coordinator, as Kafka before 3.6 did."""
    started = start_node(config={"transaction.partition.verification.enable": "false"})
    yield started
    started.close()


def hang(node: NodeProcess, topic: str, producer_id: int, value: bytes) -> None:
    with WireClient(node.port) as client:
        batch = batch_of(value, producer=(producer_id, 0), base_sequence=0, transactional=True)
        assert client.produce(topic, batch, transactional_id="nobody's").error_code == 0


def write(node: NodeProcess, topic: str, value: bytes) -> None:
    with WireClient(node.port) as client:
        assert client.produce(topic, batch_of(value)).error_code == 0


def committed(node: NodeProcess, topic: str) -> list[bytes | None]:
    return [one.value for one in read_from(node.bootstrap, topic, isolation_level="read_committed")]


def transactional(node: NodeProcess, name: str) -> confluent_kafka.Producer:
    producer = confluent_kafka.Producer({"bootstrap.servers": node.bootstrap, "transactional.id": name, "linger.ms": 0})
    producer.init_transactions(TIMEOUT_SECONDS)
    return producer


def test_nothing_is_taken_for_hanging_while_its_coordinator_cannot_be_read(start_node: StartNode) -> None:
    """The transaction is open, and whether it hangs nobody can tell. Other transactional ids are served meanwhile."""
    topic, damaged, whole = "unreadable", "b", "a"  # on partitions 0 and 1 of the internal topic
    node = start_node(config={"transaction.state.log.num.partitions": "2"})
    tidelog(node, "topics", "create", topic)
    producer = transactional(node, damaged)
    producer.begin_transaction()
    producer.produce(topic, b"open", partition=0, timestamp=LONG_AGO_MS)
    producer.flush(TIMEOUT_SECONDS)
    transactional(node, whole)
    node.stop()
    segment = log_files.last_segment(node, "__transaction_state", 0)
    position, header = log_files.batches(segment)[0]
    log_files.change(segment, position + header.size_bytes - 1, lambda byte: byte ^ 1)
    node.start()

    with Admin(node.bootstrap, default_api_timeout_ms=2_000) as admin:
        for ask in (admin.list_transactions, admin.find_hanging_transactions):
            with pytest.raises(TimedOutError, match=r"broker 1.*__transaction_state cannot be read"):
                ask()
    assert "__transaction_state-0 cannot be read" in node.log
    again = transactional(node, whole)
    again.begin_transaction()
    again.produce(topic, b"whole", partition=0)
    again.commit_transaction(TIMEOUT_SECONDS)
    node.close()


def test_what_hangs_is_found_and_aborted_and_readers_go_on(credulous: NodeProcess) -> None:
    topic = "hanging"
    tidelog(credulous, "topics", "create", topic, "--partitions", "2")
    write(credulous, topic, b"before")
    hang(credulous, topic, 7_000_000, b"nobody's")
    write(credulous, topic, b"behind")
    assert committed(credulous, topic) == [b"before"]

    assert rows(tidelog(credulous, "transactions", "find-hanging", "-o", "json")) == [
        {
            "topic": topic,
            "partition": 0,
            "start_offset": 1,
            "producer_id": 7_000_000,
            "producer_epoch": 0,
            "coordinator_epoch": None,
            "last_timestamp_ms": LONG_AGO_MS,
            "transactional_id": None,
        }
    ]
    [producer] = rows(tidelog(credulous, "transactions", "producers", topic, "-o", "json"))
    assert (producer["producer_id"], producer["last_sequence"], producer["start_offset"]) == (7_000_000, 0, 1)

    abort = ("transactions", "abort", topic, "--partition", "0")
    assert "--start-offset and --producer-id" in tidelog(credulous, *abort, status=2)
    nothing = tidelog(credulous, *abort, "--start-offset", "5", status=1)
    assert f"{topic}-0: no open transaction begins at offset 5: those that are open begin at 1" in nothing
    assert rows(tidelog(credulous, *abort, "--start-offset", "1", "-o", "json")) == [
        {"topic": topic, "partition": 0, "producer_id": 7_000_000, "start_offset": 1, "aborted": True}
    ]
    assert committed(credulous, topic) == [b"before", b"behind"]
    assert tidelog(credulous, "transactions", "find-hanging") == "no hanging transactions\n"
    assert "none is open" in tidelog(credulous, *abort, "--producer-id", "7000000", status=1)


def test_what_a_coordinator_holds_open_is_shown_and_left_to_it(credulous: NodeProcess) -> None:
    topic, name = "held-open", "copier"
    tidelog(credulous, "topics", "create", topic)
    producer = transactional(credulous, name)
    producer.begin_transaction()
    producer.produce(topic, b"open", partition=0, timestamp=LONG_AGO_MS)
    producer.flush(TIMEOUT_SECONDS)

    [listed] = rows(tidelog(credulous, "transactions", "list", "--state", "ongoing", "-o", "json"))
    assert (listed["transactional_id"], listed["coordinator"], listed["state"]) == (name, 1, "Ongoing")
    described = rows(tidelog(credulous, "transactions", "describe", name, "-o", "json"))
    assert rows(tidelog(credulous, "transactions", "describe", "-o", "json"))[0]["partitions"] == [f"{topic}-0"]
    assert (described[0]["state"], described[0]["producer_id"]) == ("Ongoing", listed["producer_id"])
    assert 0 < described[0]["started_ms"] <= time.time() * 1_000
    assert rows(tidelog(credulous, "transactions", "list", "--open-for", "3600", "-o", "json")) == []
    assert "not there" not in tidelog(credulous, "transactions", "describe", "nobody", status=1)

    hanging = ("transactions", "find-hanging", "--topic", topic, "--idle-for", "0")
    assert tidelog(credulous, *hanging) == "no hanging transactions\n"
    abort = ("transactions", "abort", topic, "--partition", "0", "--start-offset", "0")
    refused = tidelog(credulous, *abort, status=1)
    assert f"{topic}-0: the transaction at offset 0 does not hang" in refused
    assert repr(name) in refused
    producer.commit_transaction(TIMEOUT_SECONDS)
    assert committed(credulous, topic) == [b"open"]

    producer.begin_transaction()
    producer.produce(topic, b"forced", partition=0)
    producer.flush(TIMEOUT_SECONDS)
    [forced] = rows(
        tidelog(credulous, "transactions", "abort", topic, "--partition", "0", "--start-offset", "2", "--force",
                "-o", "json")
    )  # fmt: skip
    assert forced["aborted"]
    write(credulous, topic, b"after")
    assert committed(credulous, topic) == [b"open", b"after"]


def test_a_hanging_transaction_of_a_known_producer_is_told_with_its_id(credulous: NodeProcess) -> None:
    """A late record of a producer that has ended its transaction, which begins another one (KIP-890)."""
    topic, name = "late", "late-copier"
    tidelog(credulous, "topics", "create", topic)
    producer = transactional(credulous, name)
    producer.begin_transaction()
    producer.produce(topic, b"in time", partition=0)
    producer.commit_transaction(TIMEOUT_SECONDS)
    [known] = rows(tidelog(credulous, "transactions", "describe", name, "-o", "json"))
    with WireClient(credulous.port) as client:
        late = batch_of(
            b"late", producer=(known["producer_id"], known["producer_epoch"]), base_sequence=1, transactional=True
        )
        assert client.produce(topic, late, transactional_id=name).error_code == 0
    [found] = rows(tidelog(credulous, "transactions", "find-hanging", "--topic", topic, "-o", "json"))
    assert (found["transactional_id"], found["start_offset"], found["coordinator_epoch"]) == (name, 2, 0)
    tidelog(credulous, "transactions", "abort", topic, "--partition", "0", "--producer-id", str(known["producer_id"]))
    assert tidelog(credulous, "transactions", "find-hanging") == "no hanging transactions\n"
    assert committed(credulous, topic) == [b"in time"]

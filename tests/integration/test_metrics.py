"""What a node shows of itself: the metrics that the docs list, readiness, its log in JSON, and slow requests."""

from __future__ import annotations

import json
import re
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest
from prometheus_client.parser import text_string_to_metric_families

from support.clients.wire_client import WireClient, batch_of
from support.fixtures.waiting import wait_until
from support.load.consumer_member import ConsumerMember
from support.load.group_member import GroupMember, form, wait_for_coordinator
from support.load.share_member import ShareMember
from support.monitoring import documented
from support.nodes.metrics import metrics_port_of, page, samples
from support.nodes.node import NodeProcess
from tidelog import Factory
from tidelog.base.errors import Code
from tidelog.base.ids import PartitionIndex, TopicPartition
from tidelog.wire import ApiKey
from tidelog.wire.messages.api_78_share_fetch import (
    ShareFetchPartition,
    ShareFetchRequest,
    ShareFetchResponse,
    ShareFetchTopic,
)

TOPIC = "metrics"
SECONDS_MAX = 60.0


@pytest.fixture(scope="module")
def watched(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeProcess]:
    node = NodeProcess(
        tmp_path_factory.mktemp("watched") / "data",
        config={
            "metrics.listener": "HTTP://127.0.0.1:0",
            "metrics.partitions.enable": "true",
            "metrics.topics.max": "3",
            "logging.format": "json",
            "slow.request.log.ms": "0",
        },
    )
    node.start()
    yield node
    node.close()


def exported(node: NodeProcess) -> dict[str, str]:
    """The type of each metric, by the name that the docs give it."""
    types = dict(re.findall(r"^# TYPE (\S+) (\S+)$", page(node)[1], re.MULTILINE))
    return {name: kind for name, kind in types.items() if not name.endswith("_created")}


def test_the_docs_list_what_is_exported_and_nothing_else(watched: NodeProcess) -> None:
    assert {name: one.kind for name, one in documented().items()} == exported(watched)


def test_the_docs_list_the_labels_that_are_exported(watched: NodeProcess) -> None:
    """Of all metrics that have samples at a node by now."""
    with WireClient(watched.port) as client:
        client.create_topic("labelled")
        assert client.produce("labelled", batch_of(b"v")).error_code == 0
        assert client.produce("labelled", batch_of(b"v"), partition=9).error_code != 0
        assert client.fetch("labelled", 1, wait_ms=30).error_code == 0
    with Factory(watched.bootstrap).consumer(group_id="labelled", enable_auto_commit=False) as consumer:
        consumer.assign([TopicPartition("labelled", PartitionIndex(0))])
        consumer.commit({TopicPartition("labelled", PartitionIndex(0)): 0})
    wait_until(lambda: ("tidelog_group_lag_records", ("labelled", "labelled")) in samples(watched), "it is measured")
    known, seen = documented(), set()
    for family in text_string_to_metric_families(page(watched)[1]):
        for sample in family.samples:
            name = sample.name if family.type != "histogram" else family.name
            if not sample.name.endswith("_created"):
                assert sample.labels.keys() - {"le"} == set(known[name].labels), sample
                seen.add(name)
    assert known.keys() == seen


def test_requests_errors_and_topics_are_counted(watched: NodeProcess) -> None:
    with WireClient(watched.port) as client:
        client.create_topic(TOPIC, partitions=2)
        before = samples(watched)
        batch = batch_of(b"x" * 1_000)
        for _ in range(5):
            assert client.produce(TOPIC, batch).error_code == 0
        assert client.produce(TOPIC, batch, partition=9).error_code == Code.UNKNOWN_TOPIC_OR_PARTITION
        records = client.fetch(TOPIC, 0).records
        assert records is not None
        assert client.fetch(TOPIC, 5, wait_ms=30).error_code == 0  # which waits
        after = samples(watched)
    grown = {key: value - before.get(key, 0) for key, value in after.items()}
    assert grown["tidelog_requests_total", ("Produce", "9")] == 6
    assert grown["tidelog_request_errors_total", ("Produce", "UNKNOWN_TOPIC_OR_PARTITION")] == 1
    assert grown["tidelog_request_duration_seconds_count", ("Produce", "total")] == 6
    assert grown["tidelog_request_duration_seconds_bucket", ("Produce", "+Inf", "handle")] == 6
    assert grown["tidelog_request_duration_seconds_count", ("Fetch", "wait")] == 1
    assert grown["tidelog_request_duration_seconds_sum", ("Fetch", "wait")] > 0.02
    assert grown["tidelog_request_duration_seconds_sum", ("Produce", "handle")] > 0
    assert grown["tidelog_topic_produced_bytes_total", (TOPIC,)] == 5 * len(batch)
    assert grown["tidelog_topic_produced_batches_total", (TOPIC,)] == 5
    assert grown["tidelog_topic_appended_records_total", (TOPIC,)] == 5
    assert grown["tidelog_topic_fetched_bytes_total", ("consumer", TOPIC)] == len(records)
    assert after["tidelog_topic_fetched_bytes_total", ("follower", TOPIC)] == 0
    assert after["tidelog_topic_log_size_bytes", (TOPIC,)] == 5 * len(batch)
    assert after["tidelog_partition_high_watermark", ("0", TOPIC)] == 5
    assert after["tidelog_partition_log_end_offset", ("0", TOPIC)] == 5
    assert after["tidelog_partition_isr", ("1", TOPIC)] == 1
    assert after["tidelog_connections_open", ("PLAINTEXT",)] == 1
    assert after["tidelog_controller_active", ()] == 1
    assert after["tidelog_node_ready", ()] == 1
    directory = str(watched.data_dir / "node-1")
    assert after["tidelog_log_directory_online", (directory,)] == 1
    usable, total = (after[f"tidelog_log_directory_{what}_bytes", (directory,)] for what in ("usable", "total"))
    assert 0 < usable < total
    assert after["tidelog_disk_sync_duration_seconds_count", ()] > 0
    assert grown["tidelog_metadata_applied_offset", ()] == 0
    assert after["tidelog_metadata_lag_records", ()] == 0


def test_groups_are_counted_by_their_kind(watched: NodeProcess) -> None:
    topic = "read-by-groups"
    with WireClient(watched.port) as client:
        client.create_topic(topic)
        wait_for_coordinator(client, "counted")
    with (
        closing(ConsumerMember(watched.port, "counted-new")) as new,
        closing(GroupMember(watched.port, "counted")) as old,
    ):
        wait_until(lambda: new.join(topic) is Code.NONE, "its coordinator serves")
        form([old])
        with closing(ShareMember(watched.port, "counted-share")) as sharing:
            wait_until(lambda: sharing.join(topic) is Code.NONE, "its coordinator serves")
            found = samples(watched)
            assert sharing.leave() is Code.NONE
        assert found["tidelog_groups", ("Stable",)] == found["tidelog_group_members", ()] == 1
        assert found["tidelog_consumer_groups", ("Stable",)] == found["tidelog_consumer_group_members", ()] == 1
        assert found["tidelog_share_groups", ("Stable",)] == found["tidelog_share_group_members", ()] == 1
        assert (old.leave(), new.leave()) == (Code.NONE, Code.NONE)
    found = samples(watched)
    for kind in ("", "consumer_", "share_"):
        assert found[f"tidelog_{kind}groups", ("Stable",)] == found[f"tidelog_{kind}group_members", ()] == 0
        assert found[f"tidelog_{kind}groups", ("Empty",)] == 1


def test_what_share_groups_fetch_is_counted_apart(watched: NodeProcess) -> None:
    topic, batch, before = "shared", batch_of(b"x" * 1_000), fetched_bytes(watched)
    with WireClient(watched.port) as client, closing(ShareMember(watched.port, "sharing")) as member:
        client.create_topic(topic)
        wait_for_coordinator(client, "sharing")
        wait_until(lambda: member.join(topic) is Code.NONE, "its coordinator serves")
        wait_until(lambda: member.partition_count or member.beat() is not Code.NONE, "it is assigned the partition")
        (topic_id,) = member.assigned
        asked = [ShareFetchTopic(topic_id, [ShareFetchPartition(0)])]
        read, epoch = 0, 0
        while not read:  # the first begins at the end of the log
            request = ShareFetchRequest(
                group_id="sharing",
                member_id=member.member_id,
                share_session_epoch=epoch,
                max_wait_ms=100,
                min_bytes=1,
                max_records=10,
                batch_size=10,
                topics=[] if epoch else asked,
            )
            answer = client.ask(ApiKey.SHARE_FETCH, 1, request, ShareFetchResponse)
            assert answer.error_code == 0, answer.error_message
            read = sum(len(row.records or b"") for one in answer.responses for row in one.partitions)
            epoch += 1
            assert client.produce(topic, batch).error_code == 0
        assert member.leave() is Code.NONE
    after = fetched_bytes(watched)
    assert after["share_group"] - before["share_group"] == read
    assert after["consumer"] == before["consumer"]


def fetched_bytes(node: NodeProcess) -> dict[str, float]:
    """By who fetched, of all topics together."""
    found: dict[str, float] = {}
    for (name, labels), value in samples(node).items():
        if name == "tidelog_topic_fetched_bytes_total":
            found[labels[0]] = found.get(labels[0], 0) + value
    return found


def test_transactions_are_counted(watched: NodeProcess) -> None:
    topic = "in-transactions"
    with WireClient(watched.port) as client:
        client.create_topic(topic)
    settings = {"bootstrap.servers": watched.bootstrap, "transactional.id": "counted", "transaction.timeout.ms": 1_000}
    producer = confluent_kafka.Producer(settings)
    producer.init_transactions(SECONDS_MAX)
    producer.begin_transaction()
    producer.produce(topic, b"open", partition=0)
    producer.flush(SECONDS_MAX)
    found = samples(watched)
    assert found["tidelog_transaction_coordinators", ("serving",)] > 0
    assert found["tidelog_transaction_coordinators", ("refusing",)] == 0
    assert found["tidelog_transactions", ("Ongoing",)] == 1
    assert found["tidelog_partitions_unstable", ()] == 1
    assert found["tidelog_partitions_with_late_transactions", ()] == 0
    assert found["tidelog_partition_last_stable_offset", ("0", topic)] == 0
    assert found["tidelog_partition_high_watermark", ("0", topic)] == 1

    wait_until(
        lambda: samples(watched)["tidelog_transactions_timed_out_total", ()] == 1, "the transaction is open too long"
    )
    wait_until(lambda: samples(watched)["tidelog_transaction_markers_waiting", ()] == 0, "its marker is written")
    found = samples(watched)
    assert found["tidelog_transactions", ("Ongoing",)] == 0
    assert found["tidelog_transactions", ("CompleteAbort",)] == 1
    assert found["tidelog_transactions_fenced_total", ()] == 1
    assert found["tidelog_partitions_unstable", ()] == 0
    assert found["tidelog_partition_last_stable_offset", ("0", topic)] == 2


def test_topics_beyond_the_limit_are_added_up(watched: NodeProcess) -> None:
    batch = batch_of(b"y")
    with WireClient(watched.port) as client:
        for number in range(6):
            client.create_topic(f"many-{number}")
            client.produce(f"many-{number}", batch)
    found = samples(watched)
    labels = [key[1][0] for key in found if key[0] == "tidelog_topic_produced_bytes_total"]
    assert len(labels) == 4
    assert "_other" in labels
    total = sum(value for key, value in found.items() if key[0] == "tidelog_topic_produced_batches_total")
    assert total >= 6


def test_connections_are_counted_by_how_they_ended(watched: NodeProcess) -> None:
    before = samples(watched)
    with socket.create_connection(("127.0.0.1", watched.port), timeout=SECONDS_MAX) as stream:
        stream.sendall(b"GET / HTTP/1.1\r\n\r\n")
        assert stream.recv(10) == b""
    with WireClient(watched.port):
        pass

    def ended() -> dict[str, float]:
        """How many since, by how they ended."""
        after = samples(watched)
        return {
            why: after["tidelog_connections_closed_total", (why,)] - before["tidelog_connections_closed_total", (why,)]
            for why in ("refused", "peer")
        }

    wait_until(lambda: ended() == {"refused": 1, "peer": 1}, lambda: f"one of each has ended: {ended()}")
    accepted = "tidelog_connections_accepted_total", ()
    assert samples(watched)[accepted] - before[accepted] == 2


def test_openmetrics_is_served_to_those_who_ask_for_it(watched: NodeProcess) -> None:
    kind, text = page(watched, Accept="application/openmetrics-text; version=1.0.0")
    assert kind.startswith("application/openmetrics-text; version=1.0.0")
    assert text.endswith("# EOF\n")


def test_ready(watched: NodeProcess) -> None:
    assert page(watched, "/ready")[1] == "ready\n"


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        (b"GET / HTTP/1.1\r\n\r\n", 404),
        (b"GET /metricsandmore HTTP/1.1\r\n\r\n", 404),
        (b"POST /metrics HTTP/1.1\r\nContent-Length: 3\r\n\r\nabc", 405),
        (b"garbage\r\n\r\n", 400),
        (b"GET /metrics SPDY/9\r\n\r\n", 400),
        (b"GET /metrics HTTP/1.1\r\nX: " + b"x" * 20_000 + b"\r\n\r\n", 431),
        (b"\x16\x03\x01\x02\x00\xff\xff\xff\r\n\r\n", 400),
    ],
)
def test_what_is_not_asked_for_properly_is_told_so(watched: NodeProcess, sent: bytes, status: int) -> None:
    assert status_of(watched, sent) == status


def status_of(node: NodeProcess, sent: bytes) -> int:
    with socket.create_connection(("127.0.0.1", metrics_port_of(node)), timeout=SECONDS_MAX) as stream:
        stream.sendall(sent)
        return int(stream.recv(100).split(b" ")[1])


def test_head_has_no_body(watched: NodeProcess) -> None:
    with socket.create_connection(("127.0.0.1", metrics_port_of(watched)), timeout=SECONDS_MAX) as stream:
        stream.sendall(b"HEAD /ready HTTP/1.1\r\n\r\n")
        answer = b""
        while piece := stream.recv(1_000):
            answer += piece
    assert answer.endswith(b"Connection: close\r\n\r\n")
    assert b"Content-Length: 6\r\n" in answer


def test_more_than_a_few_at_once_are_hung_up_on(watched: NodeProcess) -> None:
    streams = [
        socket.create_connection(("127.0.0.1", metrics_port_of(watched)), timeout=SECONDS_MAX) for _ in range(17)
    ]
    try:
        closed = False
        try:
            closed = streams[-1].recv(1) == b""
        except ConnectionError:
            closed = True
        assert closed
    finally:
        for stream in streams:
            stream.close()


def test_the_log_is_json_and_slow_requests_are_in_it(watched: NodeProcess) -> None:
    """With a limit of 0 every request is slow, but for how many lines there may be."""
    topic = TOPIC + "-slow"
    with WireClient(watched.port) as client:
        client.create_topic(topic)

        def lines_of_produces() -> list[dict[str, Any]]:
            client.produce(topic, batch_of(b"z"))
            lines = [line for line in log_lines(watched) if line.get("api") == "Produce"]
            return [line for line in lines if line["client_id"] == "tidelog-test"]  # not a producer's of another test

        line = wait_until(lines_of_produces, "a produce is logged")[-1]
    assert line["node"] == 1
    assert line["level"] == "warning"
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", line["time"])
    assert (line["api_version"], line["client_id"]) == (9, "tidelog-test")
    assert line["peer"].startswith("127.0.0.1:")
    assert line["request_bytes"] > 60
    assert line["answer_bytes"] > 20
    assert line["handle_ms"] > 0
    assert line["wait_ms"] == 0
    assert "Produce v9 of client 'tidelog-test' took " in line["message"]


def log_lines(node: NodeProcess) -> list[dict[str, Any]]:
    """Raises ValueError where a line is no JSON."""
    return [json.loads(line) for line in node.log.splitlines(keepends=True) if line.endswith("\n")]


def test_a_node_that_shows_nothing_loads_nothing_for_it() -> None:
    program = "import sys, tidelog.server.main; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True).stdout.split()
    assert "tidelog.server.node" in loaded
    assert not {
        "prometheus_client",
        "tidelog.server.metrics",
        "tidelog.server.observe.metrics_listener",
    } & set(loaded)


def test_a_port_that_is_taken_is_told(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        node = NodeProcess(tmp_path / "data", config={"metrics.listener": f"HTTP://127.0.0.1:{port}"})
        with pytest.raises(AssertionError, match=f"metrics.listener: cannot listen on 127.0.0.1:{port}"):
            node.start()
        node.close()

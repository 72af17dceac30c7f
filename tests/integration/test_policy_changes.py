"""A topic that was compacted and no longer is: the gaps that compaction left are no damage, whatever the policy."""

from __future__ import annotations

import time

from support.clients.admin_requests import change, delete_records, described, set_to
from support.clients.wire_client import WireClient
from support.fixtures.waiting import wait_until
from support.nodes.node import NodeProcess, StartNode
from tidelog.base.errors import Code
from tidelog.records import BatchBuilder, Record

KEYS = 5
BATCHES = 300
EARLIEST = -2


def keyed(index: int) -> bytes:
    builder = BatchBuilder()
    builder.append(int(time.time() * 1000), b"key %d" % (index % KEYS), b"%d" % index + bytes(100))
    return builder.build()


def compacted_topic(node: NodeProcess, client: WireClient, topic: str) -> None:
    """A topic most of whose records compaction removed."""
    client.create_topic(
        topic,
        configs={"cleanup.policy": "compact", "segment.bytes": "2000", "min.cleanable.dirty.ratio": "0.01"},
    )
    for index in range(BATCHES):
        assert client.produce(topic, keyed(index)).error_code == 0
    wait_until(lambda: len(client.read_all(topic)) < BATCHES // 4, lambda: f"it is compacted: {node.log[-2000:]}")


def table_of(records: list[Record]) -> dict[bytes | None, bytes | None]:
    return {record.key: record.value for record in records}


def test_gaps_stay_gaps_when_the_policy_changes(start_node: StartNode) -> None:
    node = start_node(config={"log.cleaner.backoff.ms": "50"})
    with WireClient(node.port) as client:
        compacted_topic(node, client, "was-compacted")
        change(client, "was-compacted", {"cleanup.policy": set_to("delete"), "retention.ms": set_to("-1")})
        table = table_of(client.read_all("was-compacted"))
        assert len(table) == KEYS
    for _ in range(2):
        node.kill()
        node.restart()
        with WireClient(node.port) as client:
            assert described(client, "was-compacted")["cleanup.policy"].value == "delete"
            assert client.log_end_offset("was-compacted") == BATCHES
            assert table_of(client.read_all("was-compacted")) == table
            assert delete_records(client, "was-compacted", BATCHES + 1).error_code == Code.OFFSET_OUT_OF_RANGE
    assert "cut off" not in node.log
    assert "missing" not in node.log
    with WireClient(node.port) as client:  # and back again, on top of what was appended meanwhile
        assert client.produce("was-compacted", keyed(1)).base_offset == BATCHES
        change(client, "was-compacted", {"cleanup.policy": set_to("compact")})
        for index in range(2, BATCHES):
            assert client.produce("was-compacted", keyed(index)).error_code == 0
        wait_until(
            lambda: len(client.read_all("was-compacted")) < BATCHES // 4,
            lambda: f"it is compacted anew: {node.log[-2000:]}",
        )
        assert len(table_of(client.read_all("was-compacted"))) == KEYS


def test_records_in_gaps_are_deleted_up_to_an_offset_in_one(start_node: StartNode) -> None:
    node = start_node(config={"log.cleaner.backoff.ms": "50"})
    with WireClient(node.port) as client:
        compacted_topic(node, client, "both")
        change(client, "both", {"cleanup.policy": set_to("compact,delete"), "retention.ms": set_to("-1")})
        row = delete_records(client, "both", BATCHES - 3)
        assert (row.error_code, row.low_watermark) == (0, BATCHES - 3)
    node.kill()
    node.restart()
    with WireClient(node.port) as client:
        assert client.list_offset("both", EARLIEST).offset == BATCHES - 3
        assert [record.offset for record in client.read_all("both", start=BATCHES - 3)] == [297, 298, 299]

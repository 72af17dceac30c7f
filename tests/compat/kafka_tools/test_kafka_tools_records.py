"""The console clients and the performance tools of Kafka against a node."""

from __future__ import annotations

import pytest

from support.clients.kafka_tools import KafkaTools
from support.clients.wire_client import WireClient
from support.nodes.node import NodeProcess

At = tuple[str, str]
RECORDS = 20_000


@pytest.fixture
def own_topic(shared_node: NodeProcess, topic: str) -> str:
    with WireClient(shared_node.port) as client:
        client.create_topic(topic)
    return topic


def test_what_the_console_producer_sends_the_console_consumer_prints(tools: KafkaTools, at: At, own_topic: str) -> None:
    sent = "".join(f"key {i}:value {i} é\n" for i in range(100))
    for compression in ("none", "gzip", "snappy", "lz4", "zstd"):
        keyed = ["--reader-property", "parse.key=true", "--reader-property", "key.separator=:"]
        tools.run(
            "kafka-console-producer", *at, "--topic", own_topic, *keyed, "--compression-codec", compression, stdin=sent
        )
    shown = ["--formatter-property", "print.key=true", "--formatter-property", "key.separator=:"]
    shown += ["--partition", "0", "--offset", "0", "--max-messages", "500", "--timeout-ms", "10000"]
    assert tools.run("kafka-console-consumer", *at, "--topic", own_topic, *shown).output == sent * 5


def test_the_console_consumer_goes_on_where_its_group_stopped(tools: KafkaTools, at: At, own_topic: str) -> None:
    tools.run("kafka-console-producer", *at, "--topic", own_topic, stdin="".join(f"{i}\n" for i in range(20)))

    def consume(count: int) -> list[str]:
        limits = ["--max-messages", str(count), "--timeout-ms", "10000"]
        group = ["--group", own_topic, "--from-beginning"]
        return tools.run("kafka-console-consumer", *at, "--topic", own_topic, *group, *limits).output.split()

    assert consume(5) == [str(i) for i in range(5)]
    assert consume(15) == [str(i) for i in range(5, 20)]


@pytest.mark.parametrize("compression", ["none", "lz4"])
def test_the_performance_tools(tools: KafkaTools, at: At, own_topic: str, compression: str) -> None:
    said = tools.run(
        "kafka-producer-perf-test",
        *at,
        *("--topic", own_topic, "--num-records", str(RECORDS), "--record-size", "100", "--throughput", "-1"),
        *("--command-property", "acks=all", "--command-property", f"compression.type={compression}"),
    ).output
    assert f"{RECORDS} records sent" in said.splitlines()[-1]
    said = tools.run(
        "kafka-consumer-perf-test", *at, "--topic", own_topic, "--num-records", str(RECORDS), "--timeout", "10000"
    ).output
    columns, values = (line.split(", ") for line in said.splitlines()[:2])
    found = dict(zip(columns, values, strict=True))
    assert int(found["data.consumed.in.nMsg"]) == RECORDS

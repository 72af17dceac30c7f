"""Logs with transactions both ways: Kafka's are taken as they are, and compacted, and Kafka goes on in the result."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import confluent_kafka
import pytest

from support.clients.confluent import DEADLINE_SECONDS, new_producer, read_from
from support.clients.kafka_peer import TOOL_FLAGS, KafkaPeer
from support.clients.kafka_tools import KafkaTools
from support.fixtures.cleaning import clean
from support.fixtures.logs import FLIGHTS
from support.fixtures.transactions import committed, entries_of
from tidelog.io.disk import RealDisk
from tidelog.log import Log, LogConfig

TOPIC = "decided"
PRODUCERS = 4
SEGMENT_SIZE_BYTES = 1 << 20  # Kafka allows no less
VALUE = b"v" * 50_000
DAY_MS = 24 * 3600 * 1000

Table = dict[bytes, tuple[int, bytes]]


@pytest.fixture(scope="module")
def peer(needs_kafka: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaPeer]:
    """A broker with a topic of transactions that overlap, half of them aborted; stopped cleanly."""
    config = {"offsets.topic.num.partitions": "1", "transaction.state.log.num.partitions": "1"}
    peer = KafkaPeer(tmp_path_factory.mktemp("transactions"), config=config, flags=TOOL_FLAGS)
    try:
        peer.start()
        yield peer
    finally:
        peer.close()


def producers(peer: KafkaPeer) -> list[confluent_kafka.Producer]:
    found = [
        new_producer(peer.bootstrap, transactional_id=f"t{each}", transaction_timeout_ms=120_000, linger_ms=0)
        for each in range(PRODUCERS)
    ]
    for each in found:
        each.init_transactions(DEADLINE_SECONDS)
    return found


def transact(peer: KafkaPeer, rounds: int, random: Random) -> None:
    """Transactions of several producers at once, each of a few batches."""
    ours = producers(peer)
    is_open = [False] * PRODUCERS
    for number in range(rounds):
        which = random.randrange(PRODUCERS)
        producer = ours[which]
        if not is_open[which]:
            producer.begin_transaction()
            is_open[which] = True
        for key in random.sample("abcdef", 2):
            producer.produce(TOPIC, key=key, value=b"%d %s" % (number, VALUE))
        producer.flush(DEADLINE_SECONDS)
        if not random.randrange(3):
            random.choice([producer.commit_transaction, producer.abort_transaction])(DEADLINE_SECONDS)
            is_open[which] = False
    for producer, remains in zip(ours, is_open, strict=True):
        if remains:
            producer.abort_transaction(DEADLINE_SECONDS)


def table_of(peer: KafkaPeer) -> Table:
    """Of each key the last committed record, as a consumer of committed records finds it."""
    found = read_from(peer.bootstrap, TOPIC, isolation_level="read_committed")
    return {record.key or b"": (record.offset, record.value or b"") for record in found}


def our_table(log: Log) -> Table:
    return {record.key or b"": (record.offset, record.value or b"") for record in committed(log)}


def opened(peer: KafkaPeer, *, clean_shutdown: bool) -> Log:
    settings: dict[str, Any] = {
        "cleanup_policy": frozenset({"compact"}),
        "segment_size_bytes": SEGMENT_SIZE_BYTES,
        "min_cleanable_dirty_ratio": 0.0,
        "delete_retention_ms": 0,
    }
    return Log.open(
        RealDisk(),
        str(peer.log_dir / f"{TOPIC}-0"),
        FLIGHTS,
        LogConfig(**settings),
        topic_id=None,
        clean_shutdown=clean_shutdown,
        now_ms=0,
    )


def dumped_entries(tools: KafkaTools, directory: Path) -> list[tuple[int, ...]]:
    """What kafka-dump-log says of the transaction indexes."""
    found = []
    for path in sorted(directory.glob("*.txnindex")):
        said = tools.run("kafka-dump-log", "--files", str(path)).output
        found += [
            tuple(map(int, numbers))
            for numbers in re.findall(
                r"producerId: (\d+) firstOffset: (\d+) lastOffset: (\d+) lastStableOffset: (\d+)", said
            )
        ]
    return found


def check_dumps(tools: KafkaTools, directory: Path) -> None:
    files = ",".join(str(path) for path in sorted(directory.glob("*.log")))
    said = tools.run("kafka-dump-log", "--deep-iteration", "--files", files)
    assert not re.search(r"(?i)mismatch|corrupt|isvalid: false|Exception", said.output + said.errors)
    assert "endTxnMarker: " in said.output


def test_transactions_go_both_ways(peer: KafkaPeer, tools: KafkaTools) -> None:
    """One story, since each step takes over from the one before."""
    at = ("--bootstrap-server", peer.bootstrap)
    configs = ("cleanup.policy=compact", f"segment.bytes={SEGMENT_SIZE_BYTES}", f"min.compaction.lag.ms={DAY_MS}")
    arguments = [each for config in configs for each in ("--config", config)]
    tools.run("kafka-topics", "--create", *at, "--topic", TOPIC, *arguments)
    transact(peer, 60, Random(1))
    table = table_of(peer)
    peer.stop()
    directory = peer.log_dir / f"{TOPIC}-0"

    # Ours takes Kafka's indexes as they are, derives the same ones, and reads as a consumer does.
    written_by_kafka = {path.name: path.read_bytes() for path in directory.glob("*.txnindex") if path.stat().st_size}
    assert len(written_by_kafka) > 1
    log = opened(peer, clean_shutdown=True)
    assert (log.recovery.lines(), our_table(log)) == ([], table)
    entries = entries_of(log)
    assert [tuple(entry) for entry in entries] == dumped_entries(tools, directory)
    log.close()
    for path in directory.glob("*.txnindex"):
        path.unlink()
    log = opened(peer, clean_shutdown=False)
    assert (log.recovery.lines(), our_table(log), entries_of(log)) == ([], table, entries)
    assert {path.name: path.read_bytes() for path in directory.glob("*.txnindex")} == written_by_kafka

    # Ours compacts it; Kafka finds nothing wrong with that, and the same table.
    size_bytes = log.segments.size_bytes
    log.roll(0)
    log.flush()
    log.producers.on_high_watermark(log.log_end_offset)
    for step in range(3):
        clean(log, now_ms=step, first_dirty_offset=0)
    assert log.segments.size_bytes < size_bytes / 2
    assert our_table(log) == table
    log.close()
    check_dumps(tools, directory)
    assert [tuple(entry) for entry in entries_of(opened(peer, clean_shutdown=True))] == dumped_entries(tools, directory)
    (peer.log_dir / ".kafka_cleanshutdown").unlink()  # so that it goes through every record
    peer.start()
    assert table_of(peer) == table

    # Its producers go on in it.
    transact(peer, 30, Random(2))
    newer = table_of(peer)
    assert newer != table
    peer.stop()
    log = opened(peer, clean_shutdown=True)
    assert our_table(log) == newer
    assert log.producers.open_transactions == []
    log.close()

"""Damage to old segments that nobody scans at start: found by who reads there, and told as an error; never a hang.

After a clean stop the node trusts what was synced long ago. Whoever asks for a damaged place gets an error code, or
bytes whose checksum tells on them; what lies elsewhere is served, unless the whole partition went offline.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from support.clients.wire_client import WireClient, batch_of
from support.fixtures.log_files import batches, change, cut, partition_dir, segments
from support.nodes.node import NodeProcess
from tidelog.base.errors import Code, MalformedBatchError
from tidelog.records import check_crc, read_records, split_whole_batches

BATCHES, PER_BATCH = 8, 10
COUNT = BATCHES * PER_BATCH
START_MS = 1_700_000_000_000
HONEST = {Code.KAFKA_STORAGE_ERROR, Code.CORRUPT_MESSAGE}

Damage = Callable[[Path], object]


def in_first_batch(position: int) -> Damage:
    return lambda log: change(log, position, lambda byte: byte ^ 0x10)


def in_second_batch(position: int) -> Damage:
    return lambda log: change(log, batches(log)[1][0] + position, lambda byte: byte ^ 0x10)


DAMAGES: dict[str, Damage] = {
    "a record": in_second_batch(90),
    "a length": in_second_batch(10),
    "a length made huge": in_second_batch(8),
    "a base offset": in_second_batch(6),
    "a magic": in_second_batch(16),
    "a count": in_second_batch(58),
    "the first length": in_first_batch(10),
    "the first magic": in_first_batch(16),
    "cut in the second batch": lambda log: cut(log, batches(log)[1][0] + 70),
    "cut to nothing": lambda log: cut(log, 0),
    "all zeros": lambda log: log.write_bytes(bytes(log.stat().st_size)),
    "zeros behind": lambda log: cut(log, log.stat().st_size + 1_000),
    "gone": lambda log: log.unlink(),
}


def topic_of(name: str) -> str:
    return f"damaged-reads-{name.replace(' ', '-')}"


@pytest.fixture(scope="module")
def damaged(start_node: Callable[..., NodeProcess]) -> Iterator[NodeProcess]:
    """A node with four segments a topic, of which the second is damaged; two batches in each."""
    node = start_node()
    with WireClient(node.port) as client:
        for name in DAMAGES:
            client.create_topic(topic_of(name), configs={"segment.bytes": "1200", "index.interval.bytes": "1"})
            for first in range(0, COUNT, PER_BATCH):
                values = [b"value %d of a record that is long enough" % i for i in range(first, first + PER_BATCH)]
                row = client.produce(topic_of(name), batch_of(*values, timestamp_ms=START_MS + first))
                assert row.error_code == 0, row.error_message
    node.stop()
    for name, damage in DAMAGES.items():
        logs = segments(node, topic_of(name))
        assert len(logs) == 4
        damage(logs[1])
    node.start()
    yield node
    assert node.is_running
    node.close()
    assert "Traceback" not in node.log


@pytest.mark.parametrize("name", DAMAGES)
def test_reading_at_and_around_the_damage(damaged: NodeProcess, name: str) -> None:
    topic = topic_of(name)
    with WireClient(damaged.port) as client:
        if client.produce(topic, batch_of(b"more")).error_code == Code.KAFKA_STORAGE_ERROR:
            assert any(f"{topic}-0" in line for line in damaged.log.splitlines())
            return  # offline as a whole, and said so
        told = 0
        for offset in range(COUNT):
            row = client.fetch(topic, offset, size_bytes_max=1)
            if row.error_code:
                assert Code(row.error_code) in HONEST
                told += 1
                continue
            data = bytes(row.records)  # type: ignore[call-overload]
            try:
                ((position, header),) = split_whole_batches(data)
                check_crc(data, position, header)
            except (MalformedBatchError, ValueError):
                told += 1
                continue
            found = {record.offset: record.value for record in read_records(data, position, header)}
            assert offset in found or min(found) > offset, "the fetch went back, or in circles"
            if offset in found:
                assert found[offset] == b"value %d of a record that is long enough" % offset
            else:
                pytest.fail(f"offset {offset} was skipped without a word")
        if name != "zeros behind":
            assert told, "the damage was never told"
        undamaged = [offset for offset in range(COUNT) if not 2 * PER_BATCH <= offset < 4 * PER_BATCH]
        for offset in undamaged:
            assert client.fetch(topic, offset, size_bytes_max=1).error_code == 0, offset


@pytest.mark.parametrize("name", DAMAGES)
def test_looking_up_times_at_the_damage(damaged: NodeProcess, name: str) -> None:
    topic = topic_of(name)
    with WireClient(damaged.port) as client:
        for timestamp in (-3, *range(START_MS, START_MS + COUNT, 5)):
            row = client.list_offset(topic, timestamp)
            if row.error_code:
                assert Code(row.error_code) in HONEST
            elif timestamp >= 0:
                assert row.offset >= timestamp - START_MS


def test_the_directory_of_a_damaged_partition_is_left_as_it_is(damaged: NodeProcess) -> None:
    for name in set(DAMAGES) - {"gone"}:
        assert len(list(partition_dir(damaged, topic_of(name)).glob("*.log"))) >= 4

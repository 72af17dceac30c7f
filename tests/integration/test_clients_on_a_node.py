"""Our own clients with a real node: restarts, kills, and a disk that loses the end of a log."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from collections.abc import Callable, Coroutine
from typing import Any

import pyarrow as pa
import pytest

from support.fixtures.log_files import batches, cut, last_segment
from support.nodes.node import NodeProcess
from tidelog import (
    Admin,
    ConfigResource,
    Consumer,
    ConsumerRecord,
    EpochEnd,
    Factory,
    LogTruncatedError,
    NewTopic,
    Producer,
    RecordsLostError,
    TopicAlreadyExistsError,
    TopicPartition,
    TopicRecreatedError,
    UnknownTopicError,
    aio,
)
from tidelog.base.errors import KafkaError
from tidelog.base.ids import PartitionIndex
from tidelog.client.loop_thread import LoopThread
from tidelog.records import split_batches

WAIT_MS = 20_000


def partition(topic: str, index: int = 0) -> TopicPartition:
    return TopicPartition(topic, PartitionIndex(index))


def create(node: NodeProcess, topic: str, partitions: int = 1, **configs: str) -> TopicPartition:
    with Admin(node.bootstrap) as admin:
        admin.create_topics([NewTopic(topic, partitions, configs={k.replace("_", "."): v for k, v in configs.items()})])
    return partition(topic)


def read_values(consumer: Consumer, count: int) -> list[bytes | None]:
    found: list[bytes | None] = []
    while len(found) < count:
        records = consumer.poll(WAIT_MS)
        assert records, f"only {len(found)} of {count} records came"
        found += [record.value for record in records]
    return found


def test_a_record_that_cannot_be_encoded_fails_alone(shared_node: NodeProcess) -> None:
    create(shared_node, "clients-unencodable", partitions=2)
    with Producer(shared_node.bootstrap, linger_ms=50) as producer:
        bad = producer.send("clients-unencodable", b"bad", partition=0, headers=[("\ud800", b"")])
        good = producer.send("clients-unencodable", b"good", partition=1)
        assert good.result(20).offset == 0
        with pytest.raises(KafkaError, match="cannot be encoded"):
            bad.result(20)
        assert producer.send("clients-unencodable", b"next", partition=0).result(20).offset == 0


@pytest.mark.parametrize("compression", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_records_come_back_whatever_the_compression(shared_node: NodeProcess, compression: Any) -> None:
    topic = create(shared_node, f"clients-{compression}")
    values = [b"value %d " % number * 20 for number in range(2_000)]
    with Producer(shared_node.bootstrap, compression_type=compression, batch_size=20_000) as producer:
        for number, value in enumerate(values):
            producer.send(topic.topic, value, b"%d" % number, headers={"n": b"%d" % number})
    with Consumer(shared_node.bootstrap, auto_offset_reset="earliest") as consumer:
        consumer.assign([topic])
        records: list[ConsumerRecord] = []
        while len(records) < len(values):
            records += consumer.poll(WAIT_MS)
        assert [record.value for record in records] == values
        assert all(record.headers == (("n", record.key),) for record in records)
        assert [record.offset for record in records] == list(range(len(values)))


def test_columns_go_in_and_come_back(shared_node: NodeProcess) -> None:
    topic = create(shared_node, "clients-arrow")
    data = pa.RecordBatch.from_pydict(
        {
            "key": [None if number % 10 == 0 else b"%d" % number for number in range(50_000)],
            "value": [b"%d" % number for number in range(50_000)],
            "timestamp": pa.array(range(50_000), pa.int64()),
        }
    )
    with Producer(shared_node.bootstrap) as producer:
        placed = producer.send_arrow(topic.topic, data).result(20)
        assert sum(found.record_count for found in placed) == 50_000
    with Consumer(shared_node.bootstrap, auto_offset_reset="earliest") as consumer:
        consumer.assign([topic])
        pieces: list[pa.RecordBatch] = []
        while sum(piece.num_rows for piece in pieces) < 50_000:
            pieces.append(consumer.poll_arrow(WAIT_MS))
        found = pa.Table.from_batches(pieces)
    assert found.column("value").to_pylist() == data.column("value").to_pylist()
    assert found.column("key").to_pylist() == data.column("key").to_pylist()
    assert found.column("timestamp").cast(pa.int64()).to_pylist() == list(range(50_000))
    assert found.column("offset").to_pylist() == list(range(50_000))


def test_topics_are_administered(shared_node: NodeProcess) -> None:
    with Admin(shared_node.bootstrap) as admin:
        [made] = admin.create_topics([NewTopic("clients-admin", 3, configs={"retention.ms": "12345"})])
        assert (made.num_partitions, made.replication_factor) == (3, 1)
        with pytest.raises(TopicAlreadyExistsError):
            admin.create_topics([NewTopic("clients-admin")])
        listed = {found.name: found for found in admin.list_topics()}
        assert listed["clients-admin"].topic_id == made.topic_id
        described = admin.describe_topics(["clients-admin"])["clients-admin"]
        assert [(part.partition, part.leader, part.isr) for part in described.partitions] == [
            (index, 1, (1,)) for index in range(3)
        ]
        resource = ConfigResource("topic", "clients-admin")
        configs = admin.describe_configs([resource])[resource]
        assert (configs["retention.ms"].value, configs["retention.ms"].source) == ("12345", "dynamic topic")
        broker = ConfigResource("broker", "1")
        assert admin.describe_configs([broker])[broker]
        assert admin.describe_cluster().brokers[0].port == shared_node.port
        admin.delete_topics(["clients-admin"])
        with pytest.raises(UnknownTopicError):
            admin.delete_topics(["clients-admin"])


def test_offsets_are_found_by_time(shared_node: NodeProcess) -> None:
    topic = create(shared_node, "clients-times")
    with Producer(shared_node.bootstrap) as producer:
        for number in range(100):
            producer.send(topic.topic, b"%d" % number, timestamp_ms=1_700_000_000_000 + number * 1_000)
    with (
        Consumer(shared_node.bootstrap, default_api_timeout_ms=20_000) as consumer,
        Admin(shared_node.bootstrap) as admin,
    ):
        found = consumer.offsets_for_times({topic: 1_700_000_000_000 + 41_500})[topic]
        assert found is not None
        assert (found.offset, found.timestamp) == (42, 1_700_000_000_000 + 42_000)
        assert consumer.offsets_for_times({topic: 1_800_000_000_000}) == {topic: None}
        latest = admin.list_offsets({topic: "max_timestamp"})[topic]
        assert latest is not None
        assert latest.offset == 99


def test_a_factorys_producer_finds_the_topic_that_its_admin_made(shared_node: NodeProcess) -> None:
    factory = Factory(shared_node.bootstrap)
    with factory.admin() as admin, factory.producer(allow_auto_create_topics=False) as producer:
        admin.create_topics([NewTopic("clients-factory")])
        assert producer.send("clients-factory", b"v").result(10).offset == 0


def test_a_program_that_forgets_to_close_its_producer_loses_nothing(shared_node: NodeProcess) -> None:
    topic = create(shared_node, "clients-forgetful")
    program = f"""
from tidelog import Producer
producer = Producer({shared_node.bootstrap!r}, linger_ms=5000)
for number in range(100):
    producer.send("clients-forgetful", b"%d" % number)
"""
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)
    with Consumer(shared_node.bootstrap, auto_offset_reset="earliest") as consumer:
        consumer.assign([topic])
        assert read_values(consumer, 100) == [b"%d" % number for number in range(100)]


def test_loops_that_are_left_lose_nothing(shared_node: NodeProcess) -> None:
    topic = create(shared_node, "clients-left-loops")
    with Producer(shared_node.bootstrap) as producer:
        for number in range(1_000):
            producer.send(topic.topic, b"%d" % number, partition=0)
        producer.flush()
    with Consumer(shared_node.bootstrap, auto_offset_reset="earliest") as consumer:
        consumer.assign([topic])
        seen: list[int] = []
        while len(seen) < 1_000:
            for record in consumer:
                seen.append(record.offset)
                if record.offset % 150 == 149 or record.offset == 999:
                    assert consumer.position(topic).offset == record.offset + 1
                    break
        assert seen == list(range(1_000))


class InterruptedOnce:
    """The thread of a client, whose answer is there when Ctrl-C comes."""

    def __init__(self, thread: LoopThread) -> None:
        self._thread = thread
        self.is_interrupted = False

    def run(self, work: Coroutine[Any, Any, Any], timeout: float | None = None) -> Any:
        result = self._thread.run(work, timeout)
        if not self.is_interrupted:
            self.is_interrupted = True
            raise KeyboardInterrupt
        return result

    def close(self) -> None:
        self._thread.close()


ASKS: dict[str, Callable[[Consumer], object]] = {
    "loop": lambda consumer: next(iter(consumer)),
    "poll": lambda consumer: consumer.poll(WAIT_MS),
    "poll-batches": lambda consumer: consumer.poll_batches(WAIT_MS),
    "poll-arrow": lambda consumer: consumer.poll_arrow(WAIT_MS),
}


@pytest.mark.parametrize("ask", ASKS)
def test_records_that_ctrl_c_kept_from_the_caller_are_delivered_again(shared_node: NodeProcess, ask: str) -> None:
    topic = create(shared_node, f"clients-ctrl-c-{ask}")
    with Producer(shared_node.bootstrap) as producer:
        for number in range(10):
            producer.send(topic.topic, b"%d" % number, partition=0)
        producer.flush()
    with Consumer(shared_node.bootstrap, auto_offset_reset="earliest") as consumer:
        consumer.assign([topic])
        assert consumer.position(topic).offset == 0
        consumer._thread = interrupted = InterruptedOnce(consumer._thread)  # type: ignore[assignment]
        with pytest.raises(KeyboardInterrupt):
            ASKS[ask](consumer)
        assert interrupted.is_interrupted
        assert read_values(consumer, 10) == [b"%d" % number for number in range(10)]


def test_async_clients_do_what_the_blocking_ones_do(shared_node: NodeProcess) -> None:
    topic = create(shared_node, "clients-async")

    async def work() -> None:
        async with aio.Producer(shared_node.bootstrap) as producer:
            futures = [await producer.send(topic.topic, b"%d" % number) for number in range(1_000)]
            assert (await futures[-1]).offset == 999
        async with aio.Consumer(shared_node.bootstrap, auto_offset_reset="earliest") as consumer:
            consumer.assign([topic])
            count = 0
            while count < 1_000:
                count += sum(
                    header.record_count
                    for answer in await consumer.poll_batches(WAIT_MS)
                    for _, header in split_batches(answer.buffer)
                )
            assert count == 1_000
            assert (await consumer.position(topic)).offset == 1_000
            consumer.seek(topic, 990)
            offsets = []
            async for record in consumer:
                offsets.append(record.offset)
                if record.offset == 999:
                    break
            assert offsets == list(range(990, 1_000))

    asyncio.run(work())


def test_killed_and_restarted_under_load_every_record_is_there_once_where_it_was_said_to_be(
    node: NodeProcess,
) -> None:
    topic = create(node, "clients-killed")
    total = 20_000
    sent = threading.Event()
    with (
        Producer(node.bootstrap, batch_size=2_000, linger_ms=1, retry_backoff_ms=20) as producer,
        Consumer(node.bootstrap, auto_offset_reset="earliest", retry_backoff_ms=20) as consumer,
    ):
        consumer.assign([topic])
        futures = []

        def produce() -> None:
            for number in range(total):
                futures.append(producer.send(topic.topic, b"%d" % number))
                if number == total // 3:
                    sent.set()
            producer.flush()

        thread = threading.Thread(target=produce)
        thread.start()
        assert sent.wait(30)
        node.kill()
        node.restart()
        thread.join(60)
        offsets = [future.result(30).offset for future in futures]
        values = read_values(consumer, total)
        assert consumer.poll(100) == []
        assert (consumer.position(topic).leader_epoch or 0) > 0  # the restart was an election
    assert values == [b"%d" % number for number in range(total)]
    assert offsets == list(range(total))


def lose_the_end(node: NodeProcess, topic: str, batches_left: int) -> int:
    """Stop the node and cut its log, as a loss of power may. Returns how many records are left."""
    node.stop()
    segment = last_segment(node, topic)
    position, header = batches(segment)[batches_left]
    cut(segment, position)
    for name in (".kafka_cleanshutdown", "recovery-point-offset-checkpoint"):
        (node.data_dir / "node-1" / name).unlink(missing_ok=True)
    for index in segment.parent.glob("*.snapshot"):
        index.unlink()
    return header.base_offset


def test_a_log_that_lost_its_end_is_told_to_consumer_and_producer(node: NodeProcess) -> None:
    topic = create(node, "clients-truncated")
    with (
        Producer(node.bootstrap, linger_ms=0, retry_backoff_ms=20) as producer,
        Consumer(node.bootstrap, auto_offset_reset="none", retry_backoff_ms=20) as consumer,
    ):
        for number in range(10):
            producer.send(topic.topic, b"%d" % number).result(10)
        consumer.assign([topic])
        consumer.seek(topic, 0)
        assert len(read_values(consumer, 10)) == 10
        left = lose_the_end(node, topic.topic, 6)
        assert left == 6
        node.restart()
        with Producer(node.bootstrap, acks=1) as other:  # the log grows past where the reader stood
            for _ in range(20):
                other.send(topic.topic, b"other")
        with pytest.raises(LogTruncatedError) as error:
            read_values(consumer, 1)
        assert (error.value.position, error.value.divergent_offset) == (10, 6)
        consumer.seek(topic, 6, 0)
        assert read_values(consumer, 20) == [b"other"] * 20
        with pytest.raises(RecordsLostError, match="clients-truncated-0: acknowledged records were lost"):
            producer.send(topic.topic, b"10").result(10)
    with Admin(node.bootstrap) as admin:
        assert admin.offsets_for_leader_epoch({topic: (None, 0)}) == {topic: EpochEnd(0, 6)}


def test_a_recreated_topic_is_told(shared_node: NodeProcess) -> None:
    topic = create(shared_node, "clients-recreated")
    with (
        Producer(shared_node.bootstrap) as producer,
        Consumer(shared_node.bootstrap, auto_offset_reset="none", retry_backoff_ms=20) as consumer,
    ):
        producer.send(topic.topic, b"old").result(10)
        consumer.assign([topic])
        consumer.seek(topic, 0)
        assert read_values(consumer, 1) == [b"old"]
        with Admin(shared_node.bootstrap) as admin:
            admin.delete_topics([topic.topic])
        create(shared_node, topic.topic)
        with pytest.raises(TopicRecreatedError):
            read_values(consumer, 1)
        consumer.seek_to_beginning()
        assert producer.send(topic.topic, b"new").result(10).offset == 0
        assert read_values(consumer, 1) == [b"new"]


def test_a_record_larger_than_the_topic_takes_is_refused_and_the_next_one_is_not(shared_node: NodeProcess) -> None:
    topic = create(shared_node, "clients-large", max_message_bytes="2000")
    with Producer(shared_node.bootstrap) as producer:
        refused = producer.send(topic.topic, b"v" * 5_000)
        assert "MESSAGE_TOO_LARGE" in str(refused.exception(10))
        assert producer.send(topic.topic, b"v").result(10).offset == 0

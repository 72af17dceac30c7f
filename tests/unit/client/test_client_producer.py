"""Producers against a cluster in memory that loses, refuses and restarts as told."""

from __future__ import annotations

import asyncio
import json
import os
import threading
import warnings
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

import pyarrow as pa
import pytest

from support.fixtures.loop_runner import on_a_loop_of_its_own
from support.fixtures.model_cluster import ModelCluster, ModelPartition
from support.fixtures.scripted_broker import HANG_UP
from tidelog import (
    ClientClosedError,
    ConfigError,
    KafkaError,
    Producer,
    RecordsLostError,
    TidelogError,
    TimedOutError,
    UnsupportedVersionError,
    aio,
)
from tidelog.base.errors import Code
from tidelog.records.keys import partition_for_key
from tidelog.wire import ApiKey

FAST: dict[str, Any] = {
    "retry_backoff_ms": 2,
    "retry_backoff_max_ms": 10,
    "reconnect_backoff_ms": 1,
    "reconnect_backoff_max_ms": 5,
    "linger_ms": 0,
    "max_block_ms": 5_000,
    "delivery_timeout_ms": 10_000,
}


def run(work: Callable[[ModelCluster], Coroutine[Any, Any, None]]) -> None:
    async def do() -> None:
        async with ModelCluster() as cluster:
            await work(cluster)

    asyncio.run(do())


@pytest.fixture
def cluster() -> Iterator[ModelCluster]:
    """A cluster on an event loop of its own, for clients that block."""
    with on_a_loop_of_its_own(ModelCluster()) as cluster:
        yield cluster


def values(cluster: ModelCluster, topic: str = "t", partition: int = 0) -> list[bytes | None]:
    return [record.value for record in cluster.topics[topic].partitions[partition].records]


def test_records_arrive_as_they_were_given() -> None:
    async def work(cluster: ModelCluster) -> None:
        cluster.create("t", 3)
        async with aio.Producer(cluster.address, **FAST) as producer:
            future = await producer.send("t", "wert", "schlüssel", headers={"h": b"1", "g": None}, timestamp_ms=77)
            sent = await future
            await (await producer.send("t", None, b"schl\xc3\xbcssel", headers=[("h", "text")]))
        partition = partition_for_key("schlüssel".encode(), 3)
        first, second = cluster.topics["t"].partitions[partition].records
        assert (sent.topic, sent.partition, sent.offset, sent.timestamp, sent.leader_epoch) == (
            "t",
            partition,
            0,
            77,
            0,
        )
        assert (first.key, first.value, first.headers) == (
            "schlüssel".encode(), b"wert", (("h", b"1"), ("g", None)),
        )  # fmt: skip
        assert (second.value, second.headers) == (None, (("h", b"text"),))
        assert second.timestamp > 1_600_000_000_000

    run(work)


def test_a_partitioner_of_ones_own_may_send_something_itself() -> None:
    with on_a_loop_of_its_own(ModelCluster()) as cluster:
        cluster.create("t", 3)
        cluster.create("asked", 1)

        def choose(key: bytes | None, partitions: list[int], _available: list[int]) -> int:
            producer.send("asked", key, partition=0)
            return partitions[-1]

        with Producer(cluster.address, partitioner=choose, **FAST) as producer:
            sent = producer.send("t", b"x", b"k").result(10)
            rows = {"key": pa.array([b"a", None]), "value": pa.array([b"1", b"2"])}
            columns = producer.send_arrow("t", pa.RecordBatch.from_pydict(rows)).result(10)
        assert sent.partition == 2
        assert [one.partition for one in columns] == [2]
        assert values(cluster, "asked") == [b"k", b"a", None]


@pytest.mark.parametrize(
    "faults",
    [
        ["lose request"],
        ["lose answer"],
        ["lose answer", "lose answer", "lose request"],
        [Code.NOT_LEADER_OR_FOLLOWER, None, Code.NOT_ENOUGH_REPLICAS],
        [None, Code.NOT_ENOUGH_REPLICAS_AFTER_APPEND, "lose answer", None, "lose request"],
    ],
)
def test_through_failures_everything_is_written_once_and_in_order(faults: list[Code | str | None]) -> None:
    async def work(cluster: ModelCluster) -> None:
        cluster.create("t")
        cluster.faults.extend(faults)
        expected = [b"%d" % number for number in range(100)]
        async with aio.Producer(cluster.address, batch_size=300, **FAST) as producer:
            futures = [await producer.send("t", value) for value in expected]
            offsets = [(await future).offset for future in futures]
        assert values(cluster) == expected
        assert offsets == list(range(100))

    run(work)


def test_a_broker_that_restarts_costs_nothing_but_time() -> None:
    async def work(cluster: ModelCluster) -> None:
        cluster.create("t")
        async with aio.Producer(cluster.address, **FAST) as producer:
            await (await producer.send("t", b"0"))
            await cluster.stop()
            futures = [await producer.send("t", b"%d" % number) for number in range(1, 20)]
            cluster.topics["t"].partitions[0].elect()
            await cluster.start()
            sent = [await future for future in futures]
        assert values(cluster) == [b"%d" % number for number in range(20)]
        assert [found.offset for found in sent] == list(range(1, 20))

    run(work)


def test_a_refusal_that_does_not_pass_fails_the_record_and_not_those_behind_it() -> None:
    async def work(cluster: ModelCluster) -> None:
        cluster.create("t")
        cluster.faults.append(Code.MESSAGE_TOO_LARGE)
        async with aio.Producer(cluster.address, **FAST) as producer:
            failed = await producer.send("t", b"0")
            with pytest.raises(KafkaError, match=r"t-0: .*MESSAGE_TOO_LARGE"):
                await failed
            assert (await (await producer.send("t", b"1"))).offset == 0

    run(work)


def test_flush_and_close_raise_the_first_failure_that_nobody_asked_for() -> None:
    async def work(cluster: ModelCluster) -> None:
        cluster.create("t")
        cluster.faults.append(Code.INVALID_TIMESTAMP)
        producer = aio.Producer(cluster.address, **FAST)
        await producer.send("t", b"0")
        with pytest.raises(KafkaError, match="INVALID_TIMESTAMP") as error:
            await producer.flush()
        assert error.value.__notes__ == ["1 records were not delivered; this is the first reason."]
        await producer.flush()  # it was told
        cluster.faults.append(Code.INVALID_TIMESTAMP)
        seen = await producer.send("t", b"1")
        assert await _failure(seen) is not None
        await producer.flush()
        cluster.faults.append(Code.INVALID_TIMESTAMP)
        await producer.send("t", b"2")
        with pytest.raises(KafkaError, match="INVALID_TIMESTAMP"):
            await producer.close()
        await producer.close()

    run(work)


async def _failure(future: Any) -> TidelogError | None:
    try:
        await future
    except TidelogError as error:
        return error
    return None


def test_leaving_the_with_block_by_an_exception_keeps_that_exception() -> None:
    async def work(cluster: ModelCluster) -> None:
        cluster.create("t")
        cluster.faults.append(Code.INVALID_TIMESTAMP)
        producer = aio.Producer(cluster.address, **FAST)

        async def fail_with_it_open() -> None:
            async with producer:
                await producer.send("t", b"0")
                raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            await fail_with_it_open()
        with pytest.raises(ClientClosedError):
            await producer.send("t", b"1")

    run(work)


def test_a_topic_that_is_not_there_is_waited_for_and_named() -> None:
    async def work(cluster: ModelCluster) -> None:
        async with aio.Producer(cluster.address, **{**FAST, "max_block_ms": 1_000}) as producer:
            with pytest.raises(
                TimedOutError, match=r"topic 'nope' is not known after 1000 ms \(max_block_ms\); last: .*UNKNOWN_TOPIC"
            ):
                await producer.send("nope", b"0")
            cluster.auto_create = True
            assert (await (await producer.send("nope", b"0"))).offset == 0
        async with aio.Producer(
            cluster.address, allow_auto_create_topics=False, **{**FAST, "max_block_ms": 60}
        ) as producer:
            with pytest.raises(TimedOutError):
                await producer.send("other", b"0")

    run(work)


def test_a_topic_that_was_deleted_is_not_made_again_behind_its_owners_back() -> None:
    async def work(cluster: ModelCluster) -> None:
        cluster.auto_create = True
        async with aio.Producer(cluster.address, **{**FAST, "delivery_timeout_ms": 1_000}) as producer:
            await (await producer.send("t", b"0"))
            del cluster.topics["t"]
            future = await producer.send("t", b"1")
            with pytest.raises(TimedOutError, match="UNKNOWN_TOPIC"):
                await future
            assert "t" not in cluster.topics
            assert (await (await producer.send("t", b"2"))).offset == 0  # unless somebody asks for it

    run(work)


def test_nobody_there_names_the_servers_and_the_reason() -> None:
    async def work(cluster: ModelCluster) -> None:
        await cluster.stop()
        async with aio.Producer(f"{cluster.address},localhost:1", **{**FAST, "max_block_ms": 60}) as producer:
            text = ""
            while not (cluster.address in text and "localhost:1" in text):  # the first attempts may take longer
                with pytest.raises(TimedOutError) as error:
                    await producer.send("t", b"0")
                text = str(error.value)
        assert "connection refused; is a broker listening there?" in text

    run(work)


def test_a_broker_too_old_to_produce_to_is_said_to_be() -> None:
    async def work(cluster: ModelCluster) -> None:
        cluster.create("t")
        cluster.versions[ApiKey.PRODUCE] = (0, 2)
        producer = aio.Producer(cluster.address, **FAST)
        future = await producer.send("t", b"0")
        with pytest.raises(UnsupportedVersionError, match=r"is too old: it serves Produce in versions 0-2"):
            await future
        await producer.close()

    run(work)


@pytest.mark.parametrize(("produce", "metadata", "ids"), [(3, 4, False), (8, 8, False), (12, 12, True), (13, 13, True)])
def test_it_speaks_with_brokers_of_every_age(produce: int, metadata: int, ids: bool) -> None:
    async def work(cluster: ModelCluster) -> None:
        cluster.create("t")
        cluster.has_topic_ids = ids
        cluster.versions[ApiKey.PRODUCE] = (0, produce)
        cluster.versions[ApiKey.METADATA] = (0, metadata)
        async with aio.Producer(cluster.address, **FAST) as producer:
            assert (await (await producer.send("t", b"0"))).offset == 0
        assert {version for key, version, _ in cluster.requests if key == ApiKey.PRODUCE} == {produce}

    run(work)


def test_where_a_topic_has_no_id_names_are_used_though_the_broker_is_new() -> None:
    async def work(cluster: ModelCluster) -> None:
        cluster.create("t")
        cluster.has_topic_ids = False
        async with aio.Producer(cluster.address, **FAST) as producer:
            await (await producer.send("t", b"0"))
        assert {version for key, version, _ in cluster.requests if key == ApiKey.PRODUCE} == {12}

    run(work)


@pytest.mark.parametrize("acks", [0, 1, "1"])
def test_less_is_promised_where_less_is_asked_for(acks: Any) -> None:
    async def work(cluster: ModelCluster) -> None:
        cluster.create("t")
        async with aio.Producer(cluster.address, acks=acks, **FAST) as producer:
            sent = await (await producer.send("t", b"0"))
            assert sent.offset == (None if acks == 0 else 0)
            assert not cluster.messages(ApiKey.INIT_PRODUCER_ID)
            await (await producer.send("t", b"1"))
            while len(values(cluster)) < 2:
                await asyncio.sleep(0)
        assert values(cluster) == [b"0", b"1"]

    run(work)


def test_all_leaves_at_once_where_nobody_answers() -> None:
    async def work(cluster: ModelCluster) -> None:
        cluster.create("t")
        async with aio.Producer(cluster.address, acks=0, batch_size=200, **FAST) as producer:
            for number in range(40):  # many more batches than may be in flight
                await producer.send("t", b"%d" % number + bytes(100))
            await producer.flush()

    run(work)


@pytest.mark.parametrize("batch_size", [1_000, 3_000])
def test_a_full_buffer_empties_where_nobody_answers(batch_size: int) -> None:
    async def work(cluster: ModelCluster) -> None:
        cluster.create("t")
        options = {**FAST, "acks": 0, "batch_size": batch_size, "buffer_memory": 4_000, "max_block_ms": 60_000}
        async with aio.Producer(cluster.address, **options) as producer:
            async with asyncio.timeout(30):  # before max_block_ms is over
                for _ in range(100):
                    await producer.send("t", bytes(100))

    run(work)


def test_one_producer_id_is_asked_for_however_much_is_sent_meanwhile() -> None:
    async def work(cluster: ModelCluster) -> None:
        cluster.create("t")
        async with aio.Producer(cluster.address, batch_size=200, **FAST) as producer:
            for number in range(40):
                await producer.send("t", b"%d" % number + bytes(100))
                await asyncio.sleep(0)
        assert len(cluster.messages(ApiKey.INIT_PRODUCER_ID)) == 1

    run(work)


def test_metadata_that_waits_holds_back_no_records() -> None:
    async def work(cluster: ModelCluster) -> None:
        cluster.create("t")
        async with aio.Producer(cluster.address, **FAST) as producer:
            await (await producer.send("t", b"0"))
            cluster.hang_up()  # the connection of the bootstrap address too, which carries nothing but metadata
            await (await producer.send("t", b"1"))
            arrived, answered = asyncio.Event(), asyncio.Event()

            async def metadata(request: Any, version: int) -> Any:
                arrived.set()
                await answered.wait()
                return cluster.answer_metadata(request, version)

            cluster.on(ApiKey.METADATA, metadata)
            cluster.create("u")
            elsewhere = asyncio.create_task(producer.send("u", b"elsewhere"))
            await arrived.wait()
            async with asyncio.timeout(5):
                await (await producer.send("t", b"2"))
            assert not elsewhere.done()
            answered.set()
            await (await elsewhere)
        assert values(cluster) == [b"0", b"1", b"2"]

    run(work)


def test_records_that_the_log_lost_after_acknowledging_them_are_reported() -> None:
    async def work(cluster: ModelCluster) -> None:
        partition = cluster.create("t")
        losses: list[RecordsLostError] = []
        producer = aio.Producer(cluster.address, on_records_lost=losses.append, **FAST)
        for number in range(5):
            await (await producer.send("t", b"%d" % number))
        partition.truncate(2)
        partition.sequences.update(dict.fromkeys(partition.sequences, (1, 2, 1)))
        partition.elect()
        failed = await producer.send("t", b"5")
        with pytest.raises(RecordsLostError, match="t-0: acknowledged records were lost, up to offset 4: "):
            await failed
        assert [loss.last_offset for loss in losses] == [4]
        with pytest.raises(RecordsLostError):  # whoever goes on without noticing is told again
            await producer.send("t", b"6")
        await producer.close()

    run(work)


def test_without_sequences_a_loss_shows_by_the_offsets() -> None:
    async def work(cluster: ModelCluster) -> None:
        partition = cluster.create("t")
        losses: list[RecordsLostError] = []

        def note(loss: RecordsLostError) -> None:
            losses.append(loss)
            raise ZeroDivisionError  # which harms nobody

        async with aio.Producer(cluster.address, acks=1, on_records_lost=note, **FAST) as producer:
            for number in range(5):
                await (await producer.send("t", b"%d" % number))
            partition.truncate(2)
            partition.elect()
            assert (await (await producer.send("t", b"5"))).offset == 2
        assert [(loss.first_offset, loss.last_offset) for loss in losses] == [(2, 4)]

    run(work)


def test_an_old_producer_id_is_forgotten_with_the_topic() -> None:
    async def work(cluster: ModelCluster) -> None:
        cluster.create("t")
        async with aio.Producer(cluster.address, **FAST) as producer:
            await (await producer.send("t", b"0"))
            cluster.create("t")
            assert (await (await producer.send("t", b"1"))).offset == 0
        assert values(cluster) == [b"1"]

    run(work)


def test_a_full_buffer_is_waited_for_and_a_record_too_large_is_refused_at_once() -> None:
    async def work(cluster: ModelCluster) -> None:
        cluster.create("t")
        options = {**FAST, "buffer_memory": 3_000, "batch_size": 1_000, "max_request_size": 2_000}
        async with aio.Producer(cluster.address, **options) as producer:
            for _ in range(100):
                await producer.send("t", b"v" * 300)
            with pytest.raises(KafkaError, match=r"larger than max_request_size allows \(2000\)") as error:
                await producer.send("t", b"v" * 3_000)
            assert error.value.code is Code.MESSAGE_TOO_LARGE
        assert len(values(cluster)) == 100
        cluster.on(ApiKey.PRODUCE, lambda request, version: HANG_UP)
        producer = aio.Producer(cluster.address, **{**options, "max_block_ms": 1_000, "delivery_timeout_ms": 3_000})

        async def fill() -> None:
            for _ in range(100):
                await producer.send("t", b"v" * 300)

        with pytest.raises(TimedOutError, match=r"the buffer of 3000 bytes \(buffer_memory\) is full after 1000 ms"):
            await fill()
        with pytest.raises(
            TimedOutError, match=r"not delivered within 3000 ms; it may have been written; last: .*closed"
        ):
            await producer.close()

    run(work)


def test_keys_and_values_are_sent_as_serializers_make_them() -> None:
    async def work(cluster: ModelCluster) -> None:
        log = cluster.create("t")
        async with aio.Producer(cluster.address, key_serializer=str, value_serializer=json.dumps, **FAST) as producer:
            value: Any = {"a": 1}
            await (await producer.send("t", value, key=7))
            await (await producer.send("t", None, key=8))
            with pytest.raises(TypeError, match="not JSON serializable"):
                await producer.send("t", b"bytes")
        assert [(record.key, record.value) for record in log.records] == [(b"7", b'{"a": 1}'), (b"8", None)]
        with pytest.raises(ConfigError, match="something to call"):
            aio.Producer(cluster.address, value_serializer="json")  # type: ignore[arg-type]

    run(work)


def test_what_is_not_bytes_is_refused_by_name() -> None:
    async def work(cluster: ModelCluster) -> None:
        cluster.create("t")
        async with aio.Producer(cluster.address, **FAST) as producer:
            with pytest.raises(TypeError, match="a record's value is bytes, str or None, not int"):
                await producer.send("t", 5)
            with pytest.raises(TypeError, match="a header's name is str"):
                await producer.send("t", b"v", headers=[(b"h", b"")])  # type: ignore[list-item]
            with pytest.raises(ValueError, match="timestamp_ms=-5"):
                await producer.send("t", b"v", timestamp_ms=-5)
            with pytest.raises(KafkaError, match="has no partition 7"):
                await producer.send("t", b"v", partition=7)
            await (await producer.send("t", bytearray(b"a"), memoryview(b"k")))
        assert values(cluster) == [b"a"]

    run(work)


def test_partitions_are_counted_again_if_fewer_are_known_than_wanted() -> None:
    with on_a_loop_of_its_own(ModelCluster()) as cluster, Producer(cluster.address, **FAST) as producer:
        cluster.create("t", 2)
        assert producer.partitions_for("t") == 2
        cluster.topics["t"].partitions.append(ModelPartition())
        assert producer.partitions_for("t", at_least=2) == 2
        assert producer.partitions_for("t", at_least=3) == 3
        assert producer.partitions_for("t", at_least=9) == 3


def test_arrow_goes_in_by_key_or_by_partition() -> None:
    async def work(cluster: ModelCluster) -> None:
        cluster.create("t", 3)
        keys = [b"k%d" % (number % 7) for number in range(500)]
        contents = [b"%d" % number for number in range(500)]
        data = pa.RecordBatch.from_pydict({"key": keys, "value": contents})
        async with aio.Producer(cluster.address, batch_size=2_000, **FAST) as producer:
            placed = await (await producer.send_arrow("t", data))
            await (await producer.send_arrow("t", pa.table({"value": [b"x", b"y"]}), partition=1))
            assert await (await producer.send_arrow("t", data.slice(0, 0))) == []
        assert sum(found.record_count for found in placed) == 500
        for index, partition in enumerate(cluster.topics["t"].partitions):
            wanted = [value for key, value in zip(keys, contents, strict=True) if partition_for_key(key, 3) == index]
            assert [record.value for record in partition.records] == wanted + ([b"x", b"y"] if index == 1 else [])

    run(work)


def test_blocking_sends_from_many_threads_arrive_once_each_in_the_order_of_their_thread(
    cluster: ModelCluster,
) -> None:
    cluster.create("t")
    cluster.faults.extend([None, "lose answer", None, "lose request"])
    with Producer(cluster.address, batch_size=500, **FAST) as producer:

        def work(name: int) -> None:
            for number in range(200):
                producer.send("t", b"%d-%d" % (name, number))

        threads = [threading.Thread(target=work, args=(name,)) for name in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        producer.flush()
    written = [str(value, "ascii") for value in values(cluster) if value is not None]
    for name in range(4):
        assert [found for found in written if found.startswith(f"{name}-")] == [f"{name}-{n}" for n in range(200)]
    assert len(written) == 800


def test_a_blocking_producer_says_what_a_callback_must_not_do(cluster: ModelCluster) -> None:
    cluster.create("t")
    caught: list[BaseException] = []
    with Producer(cluster.address, **FAST) as producer:

        def callback(future: object) -> None:
            try:
                producer.flush()
            except TidelogError as error:
                caught.append(error)

        future = producer.send("t", b"0")
        future.add_done_callback(callback)
        assert future.result(5).offset == 0
        producer.flush()
    assert "would wait for itself forever" in str(caught[0])
    with pytest.raises(ClientClosedError):
        producer.send("t", b"1")
    with pytest.raises(ClientClosedError):
        producer.flush()
    producer.close()


def test_a_forked_process_is_told_to_make_a_client_of_its_own(cluster: ModelCluster) -> None:
    cluster.create("t")
    with Producer(cluster.address, **FAST) as producer:
        producer.send("t", b"0").result(5)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # newer Pythons advise against what is tested here
            child = os.fork()
        if child == 0:
            status = 1
            try:
                producer.send("t", b"1")
            except TidelogError as error:
                status = 0 if "does not survive a fork" in str(error) else 2
            os._exit(status)
        assert os.waitpid(child, 0)[1] == 0
        assert producer.send("t", b"2").result(5).offset == 1


def test_flush_that_takes_too_long_says_so_and_loses_nothing(cluster: ModelCluster) -> None:
    cluster.create("t")
    answer = cluster._handlers[ApiKey.PRODUCE]
    gate = threading.Event()

    async def slow(request: Any, version: int) -> Any:
        await asyncio.to_thread(gate.wait, 10)
        return answer(request, version)

    cluster.on(ApiKey.PRODUCE, slow)
    with Producer(cluster.address, **FAST) as producer:
        future = producer.send("t", b"0")
        with pytest.raises(TimedOutError, match=r"not all was delivered within 0\.02 s"):
            producer.flush(0.02)
        gate.set()
        assert future.result(5).offset == 0

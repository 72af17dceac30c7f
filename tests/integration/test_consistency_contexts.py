"""Clients that share a context, at a broker that is behind: what one has seen no other contradicts (KIP-1243)."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack, ExitStack
from typing import Any

import pytest

from support.fixtures.waiting import wait_until
from tidelog import (
    Admin,
    ConfigResource,
    ConsistencyContext,
    ConsistencyContextStore,
    Consumer,
    Factory,
    KafkaError,
    NewTopic,
    Producer,
    TimedOutError,
    TopicPartition,
    aio,
)
from tidelog.base.errors import Code
from tidelog.testing import CLIENTS, Cluster

BEHIND = 3
SHORT_MS = 3_000
PLACED = {0: [1, 2]}
"""Where the topics of these tests are: at brokers that are not behind."""


@pytest.fixture(scope="module")
def running() -> Iterator[Cluster]:
    with Cluster(nodes=3, config={"metadata.consistency.wait.ms.max": "300"}) as cluster:
        yield cluster


@pytest.fixture
def cluster(running: Cluster) -> Iterator[Cluster]:
    """The cluster of the file, whole again."""
    running.heal()
    with Admin(running.bootstrap_servers) as admin:
        wait_until(lambda: len(admin.describe_cluster().brokers) == 3, running.logs)
    yield running
    running.heal()


def at(cluster: Cluster, node: int) -> str:
    return cluster.nodes[node].bootstrap_servers


def cut_off(cluster: Cluster) -> None:
    """Node 3 hears of no change any more; clients reach it. Another node is the controller then, or was before."""
    cluster.partition([BEHIND])
    with Admin(at(cluster, 1)) as admin:
        wait_until(lambda: len(admin.describe_cluster().brokers) == 2, cluster.logs)


def make(cluster: Cluster, name: str, store: ConsistencyContextStore | None) -> None:
    with Admin(at(cluster, 1), consistency_context_store=store) as admin:
        admin.create_topics([NewTopic(name, replica_assignments=PLACED)])


def test_whatever_client_is_at_a_broker_that_is_behind_knows_what_another_has_made(cluster: Cluster) -> None:
    """Each is connected to the broker that falls behind, and has a cache; the topic is made by a client elsewhere.

    A client that has never been answered, and is told of no broker but this one, has nowhere else to go.
    """
    store = ConsistencyContextStore()
    factory = Factory(at(cluster, BEHIND), store)
    with ExitStack() as stack:
        admin = stack.enter_context(factory.admin())
        producer = stack.enter_context(factory.producer(linger_ms=0))
        alone = stack.enter_context(factory.consumer(auto_offset_reset="earliest"))
        members = [
            stack.enter_context(
                Consumer(
                    at(cluster, BEHIND),
                    group_id=f"readers-{protocol}",
                    group_protocol=protocol,
                    auto_offset_reset="earliest",
                    consistency_context_store=store,
                )
            )
            for protocol in ("classic", "consumer")
        ]
        assert "at-the-other" not in {one.name for one in admin.list_topics()}
        for consumer in (alone, *members):
            assert consumer.partitions_for("at-the-other") == []
        make(cluster, "warm", store)
        producer.send("warm", b"").result()
        cut_off(cluster)
        make(cluster, "at-the-other", store)

        with Admin(at(cluster, BEHIND)) as stranger:  # the broker is behind indeed
            assert "at-the-other" not in {one.name for one in stranger.list_topics()}
        assert admin.describe_topics(["at-the-other"])["at-the-other"].partitions[0].replicas == (1, 2)
        assert alone.partitions_for("at-the-other") == [0]
        producer.send("at-the-other", b"seen").result()
        partition = TopicPartition("at-the-other", 0)
        alone.assign([partition])
        assert [record.value for record in alone.poll(20_000)] == [b"seen"]
        for member in members:
            member.subscribe(["at-the-other"])
            found = wait_until(lambda: list(member.poll(1_000)), cluster.logs)  # noqa: B023
            assert [record.value for record in found] == [b"seen"]


def test_whatever_asynchronous_client_is_at_a_broker_that_is_behind_knows_it_too(cluster: Cluster) -> None:
    """Its store is one with a blocking client's, of another thread."""
    store = ConsistencyContextStore()

    async def story() -> None:
        async with AsyncExitStack() as stack:
            factory = aio.Factory(at(cluster, BEHIND), store)
            admin = await stack.enter_async_context(factory.admin())
            producer = await stack.enter_async_context(
                aio.Producer(at(cluster, BEHIND), linger_ms=0, consistency_context_store=store)
            )
            consumer = await stack.enter_async_context(factory.consumer(auto_offset_reset="earliest"))
            member = await stack.enter_async_context(
                factory.consumer(group_id="async-readers", auto_offset_reset="earliest")
            )
            await admin.list_topics()
            await asyncio.to_thread(make, cluster, "warm-too", store)
            await (await producer.send("warm-too", b""))
            for one in (consumer, member):
                assert await one.partitions_for("beside-the-loop") == []
            await asyncio.to_thread(cut_off, cluster)
            await asyncio.to_thread(make, cluster, "beside-the-loop", store)
            assert (await admin.describe_topics(["beside-the-loop"])).keys() == {"beside-the-loop"}
            await (await producer.send("beside-the-loop", b"seen"))
            assert await consumer.partitions_for("beside-the-loop") == [0]
            member.subscribe(["beside-the-loop"])
            async for record in member:
                assert record.value == b"seen"
                break

    asyncio.run(asyncio.wait_for(story(), 120))


Read = Callable[[aio.Admin, aio.Consumer[bytes | None, bytes | None]], Awaitable[Any]]
PARTITION = TopicPartition("unheard-of", 0)

READS: dict[str, Read] = {
    "list_topics": lambda admin, _: admin.list_topics(),
    "describe_topics": lambda admin, _: admin.describe_topics(["unheard-of"]),
    "describe_topics, all": lambda admin, _: admin.describe_topics(),
    "eligible leaders": lambda admin, _: admin.describe_topics(["unheard-of"], include_eligible_leaders=True),
    "eligible leaders, all": lambda admin, _: admin.describe_topics(include_eligible_leaders=True),
    "describe_cluster": lambda admin, _: admin.describe_cluster(),
    "describe_configs": lambda admin, _: admin.describe_configs([ConfigResource("topic", "unheard-of")]),
    "describe_configs, broker": lambda admin, _: admin.describe_configs([ConfigResource("broker", str(BEHIND))]),
    "describe_log_dirs": lambda admin, _: admin.describe_log_dirs(),
    "describe_log_dirs, broker": lambda admin, _: admin.describe_log_dirs([BEHIND]),
    "describe_features": lambda admin, _: admin.describe_features(),
    "describe_lineages": lambda admin, _: admin.describe_lineages([PARTITION]),
    "list_offsets": lambda admin, _: admin.list_offsets({PARTITION: "latest"}),
    "list_groups": lambda admin, _: admin.list_groups(),
    "list_transactions": lambda admin, _: admin.list_transactions(),
    "describe_producers": lambda admin, _: admin.describe_producers([PARTITION]),
    "partitions_for": lambda _, consumer: consumer.partitions_for("unheard-of"),
    "end_offsets": lambda _, consumer: consumer.end_offsets([PARTITION]),
}


def test_no_read_is_answered_by_a_broker_that_is_behind_even_if_it_is_the_only_one(cluster: Cluster) -> None:
    """The others cannot be reached: a read waits for the time that it is given, and says why in the end."""
    store = ConsistencyContextStore()

    async def story() -> None:
        limits = {"default_api_timeout_ms": SHORT_MS, "consistency_context_store": store}
        async with AsyncExitStack() as stack:
            clients = [
                (
                    await stack.enter_async_context(aio.Admin(at(cluster, BEHIND), **limits)),  # type: ignore[arg-type]
                    await stack.enter_async_context(aio.Consumer(at(cluster, BEHIND), **limits)),  # type: ignore[arg-type]
                )
                for _ in READS
            ]
            for admin, consumer in clients:
                await admin.describe_cluster()
                await consumer.partitions_for("unheard-of")
            await asyncio.to_thread(cut_off, cluster)
            await asyncio.to_thread(make, cluster, "unheard-of", store)
            cluster.partition([1, 2], [CLIENTS])
            outcomes = await asyncio.gather(
                *(read(*both) for read, both in zip(READS.values(), clients, strict=True)), return_exceptions=True
            )
        told = {
            name: outcome
            for name, outcome in zip(READS, outcomes, strict=True)
            if not isinstance(outcome, TimedOutError)
        }
        assert told == {}
        assert "STALE_METADATA" in str(outcomes[0]) or "older than what was seen" in str(outcomes[0])

    asyncio.run(asyncio.wait_for(story(), 120))


CHILD = """
import sys
from tidelog import ConsistencyContext, ConsistencyContextStore, Consumer, TidelogError

bootstrap, form, topic = sys.argv[1:]
store = ConsistencyContextStore()
if form == "bytes":
    store.store_latest(ConsistencyContext.from_bytes(sys.stdin.buffer.read()))
elif form == "json":
    store.store_latest(ConsistencyContext.from_json(sys.stdin.buffer.read()))
with Consumer(bootstrap, consistency_context_store=store, default_api_timeout_ms=3000) as consumer:
    try:
        print(consumer.partitions_for(topic))
    except TidelogError as error:
        print(type(error).__name__, error)
print(store.read().to_json())
"""


def child(cluster: Cluster, form: str, sent: bytes, topic: str) -> list[str]:
    """What another process says that knows node 3 alone."""
    command = [sys.executable, "-c", CHILD, at(cluster, BEHIND), form, topic]
    return (
        subprocess.run(command, input=sent, stdout=subprocess.PIPE, check=True, timeout=120).stdout.decode().split("\n")
    )


def test_another_process_is_shown_nothing_older_than_what_it_was_sent(cluster: Cluster) -> None:
    store = ConsistencyContextStore()
    cut_off(cluster)
    make(cluster, "across", store)
    seen = store.read()
    assert child(cluster, "none", b"", "across")[0] == "[]"  # who was sent nothing believes the broker that is behind
    for form, sent in (("bytes", seen.to_bytes()), ("json", seen.to_json().encode())):
        said, then, _ = child(cluster, form, sent, "across")
        assert said.startswith("TimedOutError")
        assert "older than what was seen" in said or "STALE_METADATA" in said
        assert ConsistencyContext.from_json(then) == seen
    cluster.heal()
    said, then, _ = child(cluster, "bytes", seen.to_bytes(), "across")
    assert said == "[0]"
    assert seen.later(ConsistencyContext.from_json(then)).token == ConsistencyContext.from_json(then).token


def test_partitions_that_one_client_adds_another_can_write_to_at_once(cluster: Cluster) -> None:
    """A cached number of partitions is no reason to refuse."""
    factory = Factory(cluster.bootstrap_servers)
    with factory.admin() as admin, factory.producer(linger_ms=0) as producer:
        admin.create_topics([NewTopic("grows", 1)])
        producer.send("grows", b"0", partition=0).result()
        admin.create_partitions({"grows": 3})
        assert producer.send("grows", b"2", partition=2).result().partition == 2
        with pytest.raises(KafkaError, match="topic 'grows' has no partition 3: it has 3, counted from 0"):
            producer.send("grows", b"3", partition=3)


def test_threads_and_event_loops_share_a_store(cluster: Cluster) -> None:
    """Each makes topics at one broker, and looks for all that were made by then at another."""
    store = ConsistencyContextStore()
    made: list[str] = []

    async def asynchronously(number: int) -> None:
        async with (
            aio.Admin(at(cluster, number % 3 + 1), consistency_context_store=store) as admin,
            aio.Admin(at(cluster, (number + 1) % 3 + 1), consistency_context_store=store) as other,
        ):
            for turn in range(5):
                await admin.create_topics([NewTopic(f"loop-{number}-{turn}", 1)])
                made.append(f"loop-{number}-{turn}")
                known = set(made)
                assert {one.name for one in await other.list_topics()} >= known

    def blocking(number: int) -> None:
        factory = Factory(at(cluster, number % 3 + 1), store)
        with (
            factory.admin() as admin,
            Admin(at(cluster, (number + 1) % 3 + 1), consistency_context_store=store) as other,
        ):
            for turn in range(5):
                admin.create_topics([NewTopic(f"thread-{number}-{turn}", 1)])
                made.append(f"thread-{number}-{turn}")
                known = set(made)
                assert {one.name for one in other.list_topics()} >= known

    with ThreadPoolExecutor(6) as pool:
        tasks = [pool.submit(blocking, number) for number in range(3)]
        tasks += [pool.submit(asyncio.run, asynchronously(number)) for number in range(3)]
        for task in tasks:
            task.result()


FOREIGN = ConsistencyContext("another-cluster", 5)


def refused(work: Callable[[], object]) -> None:
    with pytest.raises(
        KafkaError, match=r"this consistency context is of another-cluster.*a store of their own"
    ) as error:
        work()
    assert error.value.code is Code.INCONSISTENT_CLUSTER_ID


def test_the_context_of_another_cluster_is_told_of_by_every_client_and_every_call(cluster: Cluster) -> None:
    factory = Factory(cluster.bootstrap_servers, ConsistencyContextStore(FOREIGN))
    partition = TopicPartition("t", 0)
    with factory.admin() as admin:
        refused(admin.list_topics)
        refused(admin.list_topics)
    calls: list[Callable[[Admin], object]] = [
        lambda admin: admin.describe_cluster(),
        lambda admin: admin.describe_configs([ConfigResource("topic", "t")]),
        lambda admin: admin.describe_topics(["t"], include_eligible_leaders=True),
        lambda admin: admin.describe_log_dirs(),
        lambda admin: admin.describe_features(),
        lambda admin: admin.describe_groups(["g"]),
        lambda admin: admin.list_groups(),
        lambda admin: admin.list_offsets({partition: "latest"}),
        lambda admin: admin.create_topics([NewTopic("t", 1)]),
    ]
    for call in calls:
        with factory.admin() as admin:
            refused(lambda: call(admin))  # noqa: B023
    with factory.producer() as producer:
        refused(lambda: producer.send("t", b""))
    with factory.producer(transactional_id="x") as producer:
        refused(producer.init_transactions)
    with factory.consumer() as consumer:
        consumer.assign([partition])
        refused(lambda: consumer.poll(60_000))
        refused(lambda: consumer.partitions_for("t"))
        refused(lambda: consumer.end_offsets([partition]))
    for protocol in ("classic", "consumer"):
        with factory.consumer(group_id="g", group_protocol=protocol) as consumer:
            consumer.subscribe(["t"])
            refused(lambda: consumer.poll(60_000))
    assert factory.store.read() == FOREIGN
    with Producer(cluster.bootstrap_servers) as producer, Consumer(cluster.bootstrap_servers) as consumer:
        assert consumer.partitions_for("t") == []  # and nobody made it
        producer.flush()

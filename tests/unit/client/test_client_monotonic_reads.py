"""What clients with a consistency context take over of what they are answered, and when they ask again (KIP-1243)."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any
from uuid import UUID

import pytest

from support.fixtures.model_cluster import BROKER_ID, ModelCluster
from support.fixtures.modelled_admin import FAST
from support.fixtures.scripted_broker import ScriptedBroker
from support.fixtures.waiting import until
from tidelog import (
    ConsistencyContext,
    ConsistencyContextStore,
    KafkaError,
    TidelogError,
    TimedOutError,
    TopicPartition,
    aio,
)
from tidelog.base.errors import Code
from tidelog.base.ids import TopicId
from tidelog.client.cluster import Cluster, real_world
from tidelog.client.options import AdminConfig
from tidelog.net.address import Address
from tidelog.wire import APIS, ApiKey, ConsistencyState
from tidelog.wire.messages import api_10_find_coordinator as find_coordinator
from tidelog.wire.messages import api_18_api_versions as api_versions
from tidelog.wire.messages import api_35_describe_log_dirs as log_dirs
from tidelog.wire.messages import api_47_offset_delete as offset_delete
from tidelog.wire.messages.api_03_metadata import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponseTopic,
)

HEADER_WITHOUT_TAGS = {ApiKey.API_VERSIONS, ApiKey.SASL_HANDSHAKE, ApiKey.OFFSET_DELETE}
"""ApiVersions and SaslHandshake come before anybody may read metadata. OffsetDelete waits for another request."""


def seen(token: int) -> ConsistencyState:
    return ConsistencyState("model", token)


class Informant(ScriptedBroker):
    """A broker that answers Metadata when a test says so, from the metadata of that moment.

    Attributes:
        offset: of the metadata log, as far as it has it.
        topics: that are there by then.
        cluster_id: as it names the cluster.
        waiting: requests that are not answered yet.
    """

    def __init__(self, offset: int, *topics: str) -> None:
        super().__init__()
        self.offset = offset
        self.topics = set(topics)
        self.waiting: list[asyncio.Event] = []
        self.is_held = False
        self.cluster_id: str | None = "model"
        self.brokers: list[Informant] = []
        self.on(ApiKey.METADATA, self._metadata)

    async def _metadata(self, request: MetadataRequest, version: int) -> MetadataResponse:
        offset, topics = self.offset, set(self.topics)
        if self.is_held:
            self.waiting.append(released := asyncio.Event())
            await released.wait()
        self.token = seen(offset)
        names = topics if request.topics is None else [topic.name for topic in request.topics]
        return MetadataResponse(
            brokers=[MetadataResponseBroker(number, "127.0.0.1", one.port) for number, one in enumerate(self.brokers)],
            cluster_id=self.cluster_id,
            controller_id=0,
            topics=[
                MetadataResponseTopic(
                    name=name,
                    topic_id=UUID(int=1) if name in topics else UUID(int=0),
                    error_code=Code.NONE if name in topics else Code.UNKNOWN_TOPIC_OR_PARTITION,
                )
                for name in names
            ],
        )


def between_two(
    scenario: Callable[[Cluster, Informant, Informant], Awaitable[None]], store: ConsistencyContextStore | None = None
) -> None:
    """Of a client with a store that knows two brokers."""

    async def main() -> None:
        async with Informant(3) as first, Informant(3) as second, asyncio.timeout(60):
            first.brokers = second.brokers = [first, second]
            config = AdminConfig(retry_backoff_ms=5, consistency_context_store=store or ConsistencyContextStore())
            cluster = Cluster((Address("127.0.0.1", first.port),), config, real_world())
            await cluster.fetch_metadata([])
            try:
                await scenario(cluster, first, second)
            finally:
                await cluster.close()

    asyncio.run(main())


def test_an_answer_that_was_overtaken_is_not_taken_over_but_asked_for_again() -> None:
    async def scenario(cluster: Cluster, first: Informant, second: Informant) -> None:
        first.is_held = True
        slow = asyncio.ensure_future(cluster.fetch_metadata(["flights"]))
        await until(lambda: bool(first.waiting))
        second.offset, second.topics = 7, {"flights"}
        first.offset, first.topics, first.is_held = 7, {"flights"}, False
        connection = await cluster.pool.connection(Address("127.0.0.1", second.port))
        await cluster._fetch_metadata(["flights"], connection, create=False)
        assert "flights" in cluster.metadata.topics
        first.waiting[0].set()
        await slow
        assert "flights" in cluster.metadata.topics

    between_two(scenario)


def test_who_asks_for_metadata_is_not_given_what_was_asked_for_before() -> None:
    """The request that is under way was sent before another client saw a later token."""

    async def scenario(cluster: Cluster, first: Informant, second: Informant) -> None:
        cluster.want(["flights"])
        await cluster.refreshed()
        first.is_held = second.is_held = True
        earlier = asyncio.ensure_future(cluster.refreshed())
        await until(lambda: bool(first.waiting + second.waiting))
        assert cluster._config.consistency_context_store is not None
        cluster._config.consistency_context_store.store_latest(ConsistencyContext("model", 7))
        later = asyncio.ensure_future(cluster.refreshed())
        first.offset = second.offset = 7
        first.topics = second.topics = {"flights"}
        await asyncio.sleep(0)
        first.is_held = second.is_held = False
        for released in first.waiting + second.waiting:
            released.set()
        await earlier
        assert "flights" not in cluster.metadata.topics
        await later
        assert "flights" in cluster.metadata.topics
        assert seen(7) in first.tokens + second.tokens

    between_two(scenario)


class ForgetfulStore(ConsistencyContextStore):
    """Of a user, whose own place for the context has lost it."""

    def read(self) -> ConsistencyContext:
        return ConsistencyContext("model", 3)


def test_a_broker_that_answers_with_less_than_was_seen_is_asked_again_with_back_off() -> None:
    """And not at once, again and again, until the time is over: it was restored, or a store has lost its context."""

    async def scenario(cluster: Cluster, first: Informant, second: Informant) -> None:
        second.offset, second.topics = 7, {"flights"}
        connection = await cluster.pool.connection(Address("127.0.0.1", second.port))
        await cluster._fetch_metadata(["flights"], connection, create=False)
        connection = await cluster.pool.connection(Address("127.0.0.1", first.port))
        before = len(first.messages(ApiKey.METADATA))
        with pytest.raises(KafkaError, match="reflects offset 3, and this client has seen offset 7") as error:
            await cluster._fetch_metadata(["flights"], connection, create=False)
        assert error.value.code is Code.STALE_METADATA
        assert len(first.messages(ApiKey.METADATA)) == before + 1
        assert "flights" in cluster.metadata.topics

    between_two(scenario)
    between_two(scenario, ForgetfulStore())


def test_a_broker_that_does_not_name_its_cluster_is_asked_for_metadata_once() -> None:
    """It may be what it should be, and there is no more to be had."""

    async def scenario(cluster: Cluster, first: Informant, second: Informant) -> None:
        first.cluster_id = second.cluster_id = None
        assert cluster._config.consistency_context_store is not None
        fresh = AdminConfig(retry_backoff_ms=5, consistency_context_store=cluster._config.consistency_context_store)
        unnamed = Cluster((Address("127.0.0.1", first.port),), fresh, real_world())
        before = len(first.messages(ApiKey.METADATA))
        try:
            for _ in range(5):
                await unnamed.any_broker()
        finally:
            await unnamed.close()
        assert len(first.messages(ApiKey.METADATA)) == before + 1

    between_two(scenario)


def with_admin(work: Callable[[ModelCluster, aio.Admin], Awaitable[None]], token: int | None = 5) -> None:
    """Of an Admin whose store has seen an offset."""

    async def main() -> None:
        async with ModelCluster() as cluster, asyncio.timeout(60):
            context = None if token is None else ConsistencyContext("model", token)
            store = ConsistencyContextStore(context)
            async with aio.Admin(cluster.address, consistency_context_store=store, **FAST) as admin:
                await work(cluster, admin)

    asyncio.run(main())


def test_names_of_topics_are_not_taken_from_a_broker_that_is_behind() -> None:
    """Else the topics that it does not name would count as unknown."""

    async def work(cluster: ModelCluster, admin: aio.Admin) -> None:
        await admin.list_topics()
        cluster.on(ApiKey.METADATA, lambda request, version: MetadataResponse(error_code=Code.STALE_METADATA))
        with pytest.raises(KafkaError) as error:
            await admin._cluster.fetch_topic_names([TopicId(UUID(int=1))])
        assert error.value.code is Code.STALE_METADATA

    with_admin(work)


def test_of_two_that_are_asked_at_once_the_one_that_is_behind_is_asked_after_the_other() -> None:
    async def scenario(cluster: Cluster, first: Informant, second: Informant) -> None:
        refused = asyncio.Event()

        async def refuse(request: MetadataRequest, version: int) -> MetadataResponse:
            await refused.wait()
            return MetadataResponse(error_code=Code.STALE_METADATA)

        first.on(ApiKey.METADATA, refuse)
        asked = len(first.messages(ApiKey.METADATA))
        names = asyncio.ensure_future(
            cluster.retrying("names", lambda: cluster.fetch_topic_names([TopicId(UUID(int=1))]))
        )
        await until(lambda: len(first.messages(ApiKey.METADATA)) > asked)
        idle = await cluster.pool.connection(Address("127.0.0.1", second.port))
        assert await cluster.any_broker() is idle  # for something else
        refused.set()
        await names
        assert cluster._choice._behind.keys() == {Address("127.0.0.1", first.port)}

    between_two(scenario)


def test_log_directories_are_asked_for_again_where_the_broker_is_behind() -> None:
    async def work(cluster: ModelCluster, admin: aio.Admin) -> None:
        answers = iter([log_dirs.DescribeLogDirsResponse(error_code=Code.STALE_METADATA)])
        row = log_dirs.DescribeLogDirsResult(error_code=0, log_dir="/data")
        cluster.on(
            ApiKey.DESCRIBE_LOG_DIRS,
            lambda request, version: next(answers, log_dirs.DescribeLogDirsResponse(results=[row])),
        )
        assert (await admin.describe_log_dirs()).keys() == {1}
        assert len(cluster.messages(ApiKey.DESCRIBE_LOG_DIRS)) == 2

    with_admin(work)


@pytest.mark.parametrize("token", [5, None])
def test_features_are_asked_for_again_where_the_broker_is_behind(token: int | None) -> None:
    """The headers of ApiVersions have no room for a token; its answer says by itself which offset it reflects."""

    async def work(cluster: ModelCluster, admin: aio.Admin) -> None:
        cluster.token = seen(5)
        if token is not None:
            await admin.list_topics()
        epochs = iter([-1, 4, 6])

        def answer(request: Any, version: int) -> api_versions.ApiVersionsResponse:
            response = cluster._api_versions(request, version)
            if request.client_software_version == "1":  # it is no handshake
                response.finalized_features_epoch = next(epochs)
            return response

        cluster.on(ApiKey.API_VERSIONS, answer)
        await admin.describe_features()
        assert next(epochs, None) is None
        store = admin._config.consistency_context_store
        assert store is not None
        assert store.read() == ConsistencyContext("model", 6)

    with_admin(work, token)


def test_a_request_without_room_for_a_token_waits_for_one_that_has_it() -> None:
    """Else a broker that is behind could deny a topic that another client has made."""

    async def work(cluster: ModelCluster, admin: aio.Admin) -> None:
        there = find_coordinator.Coordinator(key="g", node_id=BROKER_ID, host="127.0.0.1", port=cluster.port)
        response = find_coordinator.FindCoordinatorResponse(coordinators=[there])
        cluster.on(ApiKey.FIND_COORDINATOR, lambda request, version: response)
        cluster.on(ApiKey.OFFSET_DELETE, lambda request, version: offset_delete.OffsetDeleteResponse())
        await admin.delete_group_offsets("g", [TopicPartition("t", 0)])
        keys = [key for key, _, _ in cluster.requests]
        at = keys.index(ApiKey.OFFSET_DELETE)
        assert (keys[at - 1], cluster.tokens[at - 1]) == (ApiKey.METADATA, seen(5))

    with_admin(work)


def test_a_broker_of_another_cluster_is_told_of_even_if_it_knows_no_tokens() -> None:
    """Apache Kafka passes the tag over; its Metadata names the cluster."""

    async def work(cluster: ModelCluster, admin: aio.Admin) -> None:
        store = ConsistencyContextStore(ConsistencyContext("another", 5))
        async with aio.Admin(cluster.address, consistency_context_store=store, **FAST) as stranger:
            for _ in range(2):
                with pytest.raises(KafkaError, match=r"the cluster here is model, and this .* is of another") as error:
                    await stranger.describe_cluster()
                assert error.value.code is Code.INCONSISTENT_CLUSTER_ID
        assert len(cluster.messages(ApiKey.METADATA)) == 1  # it is not asked again and again

    with_admin(work)


@pytest.mark.parametrize("knows_tokens", [True, False])
def test_an_address_of_another_cluster_is_skipped_while_there_are_others(
    caplog: pytest.LogCaptureFixture, knows_tokens: bool
) -> None:
    async def work(cluster: ModelCluster, admin: aio.Admin) -> None:
        cluster.create("t")
        async with Informant(9) as foreign:
            foreign.cluster_id = "another"
            if not knows_tokens:
                foreign.on(ApiKey.METADATA, lambda request, version: MetadataResponse(cluster_id="another"))
            asked = 0
            while not asked:  # whom a client asks first is drawn by lot
                store = ConsistencyContextStore(ConsistencyContext("model", 5))
                addresses = [f"127.0.0.1:{foreign.port}", cluster.address]
                async with aio.Admin(addresses, consistency_context_store=store, **FAST) as own:
                    for _ in range(3):
                        assert [found.name for found in await own.list_topics()] == ["t"]
                    asked = len(foreign.messages(ApiKey.METADATA))
            assert asked == 1
            told = f"127.0.0.1:{foreign.port} is of another cluster than the consistency context, and is skipped"
            assert [record.getMessage() for record in caplog.records if told in record.getMessage()]

    with_admin(work)


def test_where_all_addresses_are_of_another_cluster_that_is_told() -> None:
    async def main() -> None:
        async with Informant(9) as first, Informant(9) as second, asyncio.timeout(60):
            first.cluster_id = second.cluster_id = "another"
            store = ConsistencyContextStore(ConsistencyContext("model", 5))
            addresses = [f"127.0.0.1:{one.port}" for one in (first, second)]
            async with aio.Admin(addresses, consistency_context_store=store, **FAST) as admin:
                for _ in range(2):
                    with pytest.raises(KafkaError, match=r"the cluster here is .*this .* is of") as error:
                        await admin.list_topics()
                    assert error.value.code is Code.INCONSISTENT_CLUSTER_ID
            assert [len(one.messages(ApiKey.METADATA)) for one in (first, second)] == [1, 1]

    asyncio.run(main())


def test_an_address_of_another_cluster_is_named_where_the_right_ones_are_away() -> None:
    async def main() -> None:
        async with Informant(9) as foreign, asyncio.timeout(60):
            foreign.cluster_id = "another"
            store = ConsistencyContextStore(ConsistencyContext("model", 5))
            options = {**FAST, "default_api_timeout_ms": 300}
            addresses = [f"127.0.0.1:{foreign.port}", "127.0.0.1:1"]
            async with aio.Admin(addresses, consistency_context_store=store, **options) as admin:
                told = rf"no broker can be reached at 127.0.0.1:1; .*; of another cluster: 127.0.0.1:{foreign.port}"
                with pytest.raises(TimedOutError, match=told):
                    await admin.list_topics()

    asyncio.run(main())


def test_a_refusal_is_not_remembered_when_the_topic_is_named_again() -> None:
    """Another client may have granted the right meanwhile."""

    async def main() -> None:
        async with ModelCluster() as cluster, asyncio.timeout(60):
            cluster.create("t").append(b"0")
            granted = cluster.answer_metadata

            def denied(request: MetadataRequest, version: int) -> MetadataResponse:
                response = granted(request, version)
                response.topics = [
                    MetadataResponseTopic(name=topic.name, error_code=Code.TOPIC_AUTHORIZATION_FAILED)
                    for topic in response.topics
                ]
                return response

            cluster.on(ApiKey.METADATA, denied)
            partition = TopicPartition("t", 0)
            async with aio.Consumer(cluster.address, auto_offset_reset="earliest", **FAST) as consumer:
                consumer.assign([partition])
                with pytest.raises(KafkaError, match="TOPIC_AUTHORIZATION_FAILED"):
                    await consumer.poll(10_000)
                cluster.on(ApiKey.METADATA, granted)
                consumer.assign([])
                consumer.assign([partition])
                assert [record.value for record in await consumer.poll(10_000)] == [b"0"]

    asyncio.run(main())


def test_a_partition_that_is_not_known_is_asked_for_once_before_a_record_is_refused() -> None:
    async def main() -> None:
        async with ModelCluster() as cluster, asyncio.timeout(60):
            cluster.create("t", 1)
            async with aio.Producer(cluster.address, linger_ms=0, **FAST) as producer:
                await (await producer.send("t", b"0", partition=0))
                cluster.create("t", 3)
                assert (await (await producer.send("t", b"2", partition=2))).partition == 2
                before = len(cluster.messages(ApiKey.METADATA))
                with pytest.raises(KafkaError, match="has no partition 3: it has 3, counted from 0"):
                    await producer.send("t", b"3", partition=3)
                assert len(cluster.messages(ApiKey.METADATA)) == before + 1

    asyncio.run(main())


def test_who_comes_while_a_topic_is_asked_for_does_not_wait_for_another_answer() -> None:
    """What the answer that is under way says is there is there: only what it denies has to be asked for again."""

    async def main() -> None:
        async with ModelCluster() as cluster, asyncio.timeout(60):
            cluster.create("t")
            slowly = FAST | {"retry_backoff_ms": 20_000, "retry_backoff_max_ms": 20_000}
            async with aio.Producer(cluster.address, linger_ms=0, **slowly) as producer:
                may_answer, is_asked = asyncio.Event(), asyncio.Event()

                async def held(request: MetadataRequest, version: int) -> MetadataResponse:
                    is_asked.set()
                    await may_answer.wait()
                    return cluster.answer_metadata(request, version)

                cluster.on(ApiKey.METADATA, held)
                first = asyncio.ensure_future(producer.send("t", b"0"))
                await is_asked.wait()
                second = asyncio.ensure_future(producer.send("t", b"1"))
                await asyncio.sleep(0)
                may_answer.set()
                async with asyncio.timeout(10):
                    await asyncio.gather(first, second)

    asyncio.run(main())


class AwayStore(ConsistencyContextStore):
    """Of a user, who keeps the context elsewhere.

    Attributes:
        asked: how often it was read.
    """

    asked = 0

    def read(self) -> ConsistencyContext:
        self.asked += 1
        raise OSError("the store is away")


def test_a_store_that_raises_is_not_asked_again_and_again() -> None:
    async def main() -> None:
        store = AwayStore()
        async with ModelCluster() as cluster, asyncio.timeout(60):
            cluster.create("t")
            async with aio.Producer(cluster.address, consistency_context_store=store, **FAST) as producer:
                with pytest.raises(TidelogError, match="metadata cannot be had: OSError: the store is away"):
                    await producer.send("t", b"0")
                assert store.asked < 20

    asyncio.run(main())


@pytest.mark.parametrize("key", sorted(APIS), ids=lambda key: ApiKey(key).name.lower())
def test_every_request_has_room_for_a_token(key: int) -> None:
    known = APIS[key]
    assert known.is_flexible(known.max_version) or key in HEADER_WITHOUT_TAGS

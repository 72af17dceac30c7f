"""The admin client against brokers that refuse, postpone, or are of another age."""

from __future__ import annotations

import asyncio
from typing import Any
from uuid import UUID

import pytest

from support.fixtures.loop_runner import on_a_loop_of_its_own
from support.fixtures.model_cluster import ModelCluster
from support.fixtures.modelled_admin import FAST, run
from support.fixtures.scripted_broker import HANG_UP
from tidelog import (
    Admin,
    ConfigResource,
    EpochEnd,
    Factory,
    KafkaError,
    NewTopic,
    TimedOutError,
    TopicAlreadyExistsError,
    TopicPartition,
    UnknownTopicError,
    UnsupportedVersionError,
    aio,
)
from tidelog.base.errors import Code
from tidelog.base.ids import PartitionIndex
from tidelog.wire import ApiKey, ConsistencyState
from tidelog.wire.messages import api_19_create_topics as create_topics
from tidelog.wire.messages import api_20_delete_topics as delete_topics
from tidelog.wire.messages import api_32_describe_configs as describe_configs
from tidelog.wire.messages import api_60_describe_cluster as describe_cluster
from tidelog.wire.messages.api_03_metadata import MetadataResponse, MetadataResponseBroker

P0 = TopicPartition("t", PartitionIndex(0))


def created(*codes: Code) -> create_topics.CreateTopicsResponse:
    rows = [
        create_topics.CreatableTopicResult(
            f"t{index}", UUID(int=index + 1), code, None if code is Code.NONE else "because", num_partitions=3
        )
        for index, code in enumerate(codes)
    ]
    return create_topics.CreateTopicsResponse(topics=rows)


def test_topics_are_created_with_what_was_asked_and_the_rest_by_default() -> None:
    async def work(cluster: ModelCluster, admin: aio.Admin) -> None:
        cluster.on(ApiKey.CREATE_TOPICS, lambda request, version: created(Code.NONE, Code.NONE))
        by_hand = NewTopic("t1", replica_assignments={0: [1, 2], 1: [2, 1]})
        found = await admin.create_topics(
            [NewTopic("t0", 3, configs={"retention.ms": "1"}), by_hand], validate_only=True
        )
        assert (found[0].name, found[0].topic_id, found[0].num_partitions, found[0].replication_factor) == (
            "t0", "AAAAAAAAAAAAAAAAAAAAAQ", 3, None,
        )  # fmt: skip
        [request] = cluster.messages(ApiKey.CREATE_TOPICS)
        assert request.validate_only
        first, second = request.topics
        assert (first.num_partitions, first.replication_factor) == (3, -1)
        assert [(config.name, config.value) for config in first.configs] == [("retention.ms", "1")]
        assert (second.num_partitions, second.replication_factor) == (-1, -1)
        assert [(row.partition_index, row.broker_ids) for row in second.assignments] == [(0, [1, 2]), (1, [2, 1])]

    run(work)


def test_one_refused_topic_does_not_hide_that_the_others_exist_now() -> None:
    async def work(cluster: ModelCluster, admin: aio.Admin) -> None:
        answers = iter([created(Code.NONE, Code.TOPIC_ALREADY_EXISTS, Code.INVALID_PARTITIONS)])
        cluster.on(ApiKey.CREATE_TOPICS, lambda request, version: next(answers))
        with pytest.raises(TopicAlreadyExistsError, match=r"topic 't1': because \(TOPIC_ALREADY_EXISTS\)") as error:
            await admin.create_topics([NewTopic("t0"), NewTopic("t1"), NewTopic("t2")])
        assert error.value.__notes__ == ["also refused: topic 't2': because (INVALID_PARTITIONS)"]

    run(work)


def test_only_what_was_postponed_is_asked_again() -> None:
    async def work(cluster: ModelCluster, admin: aio.Admin) -> None:
        answers = iter([HANG_UP, created(Code.NONE, Code.NOT_CONTROLLER), created(Code.NONE, Code.NONE)])
        cluster.on(ApiKey.CREATE_TOPICS, lambda request, version: next(answers))
        found = await admin.create_topics([NewTopic("t0"), NewTopic("t1")])
        assert {topic.name for topic in found} == {"t0", "t1"}
        asked = [[topic.name for topic in request.topics] for request in cluster.messages(ApiKey.CREATE_TOPICS)]
        assert asked == [["t0", "t1"], ["t0", "t1"], ["t1"]]

    run(work)


@pytest.mark.parametrize("version", [5, 6])
def test_topics_are_deleted_by_name_in_every_version(version: int) -> None:
    async def work(cluster: ModelCluster, admin: aio.Admin) -> None:
        cluster.versions[ApiKey.DELETE_TOPICS] = (0, version)
        rows = [delete_topics.DeletableTopicResult("a"), delete_topics.DeletableTopicResult("b", error_code=3)]
        response = delete_topics.DeleteTopicsResponse(responses=rows)
        cluster.on(ApiKey.DELETE_TOPICS, lambda request, version: response)
        with pytest.raises(UnknownTopicError, match="topic 'b'"):
            await admin.delete_topics(["a", "b"])
        [request] = cluster.messages(ApiKey.DELETE_TOPICS)
        named = [topic.name for topic in request.topics] if version >= 6 else request.topic_names
        assert named == ["a", "b"]

    run(work)


def test_topics_are_listed_and_described() -> None:
    async def work(cluster: ModelCluster, admin: aio.Admin) -> None:
        cluster.create("t", 2)
        cluster.topics["t"].partitions[0].elect()
        cluster.topics["t"].partitions[1].has_leader = False
        assert [(found.name, found.num_partitions) for found in await admin.list_topics()] == [("t", 2)]
        found = (await admin.describe_topics(["t"]))["t"]
        assert (found.name, found.topic_id, found.is_internal) == ("t", "AAAAAAAAAAAAAAAAAAAAAQ", False)
        assert [(part.partition, part.leader, part.leader_epoch, part.isr) for part in found.partitions] == [
            (0, 1, 1, (1,)),
            (1, None, 0, (1,)),
        ]
        assert set(await admin.describe_topics()) == {"t"}
        with pytest.raises(UnknownTopicError, match="topic 'nope'"):
            await admin.describe_topics(["t", "nope"])

    run(work)


def test_the_cluster_is_described_by_metadata_where_brokers_are_old() -> None:
    async def work(cluster: ModelCluster, admin: aio.Admin) -> None:
        broker = describe_cluster.DescribeClusterBroker(1, "127.0.0.1", cluster.port)
        answer = describe_cluster.DescribeClusterResponse(cluster_id="model", controller_id=1, brokers=[broker])
        cluster.on(ApiKey.DESCRIBE_CLUSTER, lambda request, version: answer)
        first = await admin.describe_cluster()
        cluster.hang_up()
        del cluster.versions[ApiKey.DESCRIBE_CLUSTER]
        while await admin.describe_cluster() != first:
            pass
        assert (first.cluster_id, first.controller_id, first.brokers[0].port) == ("model", 1, cluster.port)
        with pytest.raises(UnsupportedVersionError, match="does not serve DescribeCluster"):
            await admin.describe_cluster(include_fenced_brokers=True)

    run(work)


def test_configurations_are_described_and_brokers_tell_their_own() -> None:
    async def work(cluster: ModelCluster, admin: aio.Admin) -> None:
        def answer(request: Any, version: int) -> describe_configs.DescribeConfigsResponse:
            rows = [
                describe_configs.DescribeConfigsResult(
                    error_code=Code.UNKNOWN_TOPIC_OR_PARTITION if asked.resource_name == "nope" else 0,
                    resource_type=asked.resource_type,
                    resource_name=asked.resource_name,
                    configs=[describe_configs.DescribeConfigsResourceResult("k", "v", config_source=5)],
                )
                for asked in request.resources
            ]
            return describe_configs.DescribeConfigsResponse(results=rows)

        cluster.on(ApiKey.DESCRIBE_CONFIGS, answer)
        topic, broker = ConfigResource("topic", "t"), ConfigResource("broker", "1")
        found = await admin.describe_configs([broker, topic])
        assert set(found) == {topic, broker}
        entry = found[topic]["k"]
        assert (entry.value, entry.source, entry.is_default) == ("v", "default", True)
        with pytest.raises(UnknownTopicError, match="topic 'nope'"):
            await admin.describe_configs([ConfigResource("topic", "nope")])
        with pytest.raises(KafkaError, match="there is no broker '9': there are 1"):
            await admin.describe_configs([ConfigResource("broker", "9")])

    run(work)


def test_offsets_and_ends_of_epochs_are_asked_of_the_leaders() -> None:
    async def work(cluster: ModelCluster, admin: aio.Admin) -> None:
        log = cluster.create("t")
        log.append(b"0", b"1", timestamp=1_000)
        log.elect()
        log.append(b"2", timestamp=2_000)
        assert await admin.list_offsets({P0: "earliest"}) == {P0: (0, 0, None)}
        assert await admin.list_offsets({P0: "latest"}) == {P0: (3, 1, None)}
        assert await admin.list_offsets({P0: 1_500}) == {P0: (2, 1, 2_000)}
        for wrong in ("newest", -1):
            with pytest.raises(ValueError, match="one of 'earliest', 'latest', 'max_timestamp' is expected"):
                await admin.list_offsets({P0: wrong})  # type: ignore[dict-item]
        assert await admin.offsets_for_leader_epoch({P0: (None, 0)}) == {P0: EpochEnd(0, 2)}
        assert await admin.offsets_for_leader_epoch({P0: (1, 1)}) == {P0: EpochEnd(1, 3)}
        assert await admin.offsets_for_leader_epoch({P0: (None, 7)}) == {P0: None}
        for current, code in ((0, Code.FENCED_LEADER_EPOCH), (5, Code.UNKNOWN_LEADER_EPOCH)):
            refused = (await admin.offsets_for_leader_epoch({P0: (current, 0)}))[P0]
            assert isinstance(refused, KafkaError)
            assert refused.code is code

    run(work)


def test_a_stale_leader_epoch_of_ours_is_refreshed_and_asked_again() -> None:
    async def work(cluster: ModelCluster, admin: aio.Admin) -> None:
        log = cluster.create("t")
        log.append(b"0")
        await admin.list_offsets({P0: "latest"})
        log.elect()
        assert await admin.list_offsets({P0: "latest"}) == {P0: (1, 1, None)}

    run(work)


def test_time_runs_out_with_the_reason(caplog: pytest.LogCaptureFixture) -> None:
    async def do() -> None:
        async with ModelCluster() as cluster:
            cluster.on(ApiKey.CREATE_TOPICS, lambda request, version: created(Code.NOT_CONTROLLER))
            async with aio.Admin(cluster.address, **{**FAST, "default_api_timeout_ms": 1_000}) as admin:
                with pytest.raises(
                    TimedOutError, match=r"create topics: not done within 1000 ms; last: .*NOT_CONTROLLER"
                ):
                    await admin.create_topics([NewTopic("t0")])

    asyncio.run(do())


def test_a_broker_with_stale_metadata_is_asked_again() -> None:
    async def work(cluster: ModelCluster, admin: aio.Admin) -> None:
        cluster.create("t")
        intact = cluster._handlers[ApiKey.METADATA]
        refusals = iter([MetadataResponse(error_code=Code.STALE_METADATA)] * 2)
        cluster.on(ApiKey.METADATA, lambda request, version: next(refusals, None) or intact(request, version))
        assert [found.name for found in await admin.list_topics()] == ["t"]
        assert len(cluster.messages(ApiKey.METADATA)) == 3

    run(work)


def test_a_broker_with_stale_metadata_is_asked_after_the_others() -> None:
    """It may be cut off from the cluster, and from nobody else."""

    async def do() -> None:
        async with ModelCluster() as behind, ModelCluster() as ahead:
            ahead.create("t")
            rows = [
                MetadataResponseBroker(1, "127.0.0.1", behind.port),
                MetadataResponseBroker(2, "127.0.0.1", ahead.port),
            ]
            asked = iter([MetadataResponse(brokers=rows, cluster_id="model", controller_id=1)])
            stale = MetadataResponse(error_code=Code.STALE_METADATA)
            behind.on(ApiKey.METADATA, lambda request, version: next(asked, stale))
            async with aio.Admin(behind.address, **FAST) as admin:
                await admin._cluster.fetch_metadata([])
                assert [found.name for found in await admin.list_topics()] == ["t"]
            assert len(behind.messages(ApiKey.METADATA)) == 2

    asyncio.run(do())


def test_a_factorys_clients_share_what_they_have_seen() -> None:
    with on_a_loop_of_its_own(ModelCluster()) as cluster:
        cluster.create("t").append(b"0")
        factory = Factory(cluster.address)
        with factory.admin(**FAST) as admin, factory.consumer(auto_offset_reset="earliest", **FAST) as consumer:
            cluster.token = ConsistencyState("model", 42)
            admin.list_topics()
            assert factory.store.read().token == 42
            assert consumer.partitions_for("t") == [0]
            assert cluster.tokens[-1] == ConsistencyState("model", 42)
        with factory.producer(linger_ms=0, **FAST) as producer:
            assert producer.send("t", b"1").result(5).offset == 1
        with Admin(cluster.address, **FAST) as stranger:
            stranger.list_topics()
            assert cluster.tokens[-1] is None


def test_an_async_factorys_clients_share_what_they_have_seen() -> None:
    async def do() -> None:
        async with ModelCluster() as cluster:
            cluster.create("t").append(b"0")
            factory = aio.Factory([cluster.address])
            cluster.token = ConsistencyState("model", 7)
            async with factory.admin(**FAST) as admin, factory.consumer(**FAST) as consumer:
                await admin.list_topics()
                assert await consumer.partitions_for("t") == [0]
                assert cluster.tokens[-1] == ConsistencyState("model", 7)
            async with factory.producer(linger_ms=0, **FAST) as producer:
                assert (await (await producer.send("t", b"1"))).offset == 1

    asyncio.run(do())

"""Which requests wait for the metadata of their token, and where their answers say that it did not come (KIP-1243)."""

from __future__ import annotations

import asyncio
import importlib
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import pytest

from support.clients.token_client import LATE, OneNode, TokenClient, codes_of, metadata, play, produce
from tidelog.base.errors import Code, NetworkError
from tidelog.base.ids import PartitionIndex, TopicPartition
from tidelog.base.principals import ANONYMOUS, Requester
from tidelog.metadata import MetadataDelta, MetadataImage
from tidelog.server.api.apis import APIS, DENIALS, READS
from tidelog.server.api.long_requests import in_pieces
from tidelog.server.api.request_context import RequestContext
from tidelog.server.broker.listeners import BrokerListener
from tidelog.server.transport.listener_roles import BROKER, CONTROLLER
from tidelog.sim.node import CONTROLLER_PORT
from tidelog.wire import ApiKey, ConsistencyState, RequestHeader
from tidelog.wire.api import OWN_SINCE, api
from tidelog.wire.messages.api_01_fetch import FetchPartition, FetchRequest, FetchTopic
from tidelog.wire.messages.api_02_list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from tidelog.wire.messages.api_03_metadata import MetadataRequest
from tidelog.wire.messages.api_08_offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from tidelog.wire.messages.api_19_create_topics import CreatableTopic, CreateTopicsRequest
from tidelog.wire.messages.api_20_delete_topics import DeleteTopicsRequest, DeleteTopicState
from tidelog.wire.messages.api_21_delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from tidelog.wire.messages.api_23_offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from tidelog.wire.messages.api_28_txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from tidelog.wire.messages.api_32_describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from tidelog.wire.messages.api_35_describe_log_dirs import DescribeLogDirsRequest
from tidelog.wire.messages.api_37_create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from tidelog.wire.messages.api_43_elect_leaders import ElectLeadersRequest, TopicPartitions
from tidelog.wire.messages.api_44_incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from tidelog.wire.messages.api_60_describe_cluster import ENDPOINT_CONTROLLERS, DescribeClusterRequest
from tidelog.wire.messages.api_74_list_config_resources import ListConfigResourcesRequest
from tidelog.wire.messages.api_75_describe_topic_partitions import DescribeTopicPartitionsRequest, TopicRequest
from tidelog.wire.schema import Layout, layout_of

WAIT_SECONDS = 5
STALE, FOREIGN = Code.STALE_METADATA, Code.INCONSISTENT_CLUSTER_ID
TOPIC = 2


def configs(*topics: str) -> DescribeConfigsRequest:
    return DescribeConfigsRequest(resources=[DescribeConfigsResource(TOPIC, name) for name in topics])


READS_ASKED = [
    (metadata("flights", "other"), 13, [STALE]),
    (MetadataRequest(topics=None), 13, [STALE]),
    (metadata("flights", "other"), 12, [STALE, STALE]),
    (metadata("flights"), 9, [STALE]),
    (MetadataRequest(topics=None), 12, None),
    (metadata(), 9, None),
    (configs("flights", "other"), 4, [STALE, STALE]),
    (DescribeLogDirsRequest(topics=None), 4, [STALE]),
    (DescribeLogDirsRequest(topics=None), 3, [STALE]),
    (DescribeLogDirsRequest(topics=None), 2, [STALE]),
    (DescribeClusterRequest(), 2, [STALE]),
    (ListConfigResourcesRequest(), 0, [STALE]),
    (ListConfigResourcesRequest(), 1, [STALE]),
    (DescribeTopicPartitionsRequest(topics=[TopicRequest("flights"), TopicRequest("other")]), 0, [STALE, STALE]),
    (DescribeTopicPartitionsRequest(topics=[]), 0, None),
]
"""A question, its version, and the errors of its answer; None: the connection is closed."""


@pytest.mark.parametrize("is_foreign", [False, True], ids=["late", "foreign"])
def test_a_read_says_that_it_cannot_be_answered_where_it_has_a_place_for_it(is_foreign: bool) -> None:
    """A token of another cluster is not waited for: it never comes."""

    async def story(one: OneNode) -> None:
        loop = asyncio.get_running_loop()
        for request, version, codes in READS_ASKED:
            async with one.client(LATE, cluster_id="another" if is_foreign else None) as client:
                began = loop.time()
                if codes is None:
                    with pytest.raises(NetworkError, match="closed the connection"):
                        await client.ask(request, version=version)
                else:
                    answer = await client.ask(request, version=version)
                    assert codes_of(answer) == [FOREIGN if is_foreign else STALE for _ in codes], request
                    assert client.stamps[-1] == ConsistencyState(one.node.cluster_id, one.last_offset)
                took = loop.time() - began
                assert took < 0.1 if is_foreign else WAIT_SECONDS <= took < WAIT_SECONDS + 0.1
            assert one.waiting == 0

    play(story)


def test_a_read_is_answered_when_the_metadata_comes() -> None:
    async def story(one: OneNode) -> None:
        for number, (request, version, _) in enumerate(READS_ASKED):
            async with one.client(one.last_offset + 1) as client:
                asking = asyncio.ensure_future(client.ask(request, version=version))
                await one.until(lambda: one.waiting)
                await one.make("other" if number == 0 else f"another-{number}")
                assert set(codes_of(await asking)) <= {Code.NONE}, request
                assert client.stamps[-1].token == one.last_offset

    play(story)


def test_who_has_seen_nothing_later_does_not_wait() -> None:
    """A token below zero is none."""

    async def story(one: OneNode) -> None:
        for token in (-1, -(1 << 63), 0, one.last_offset):
            async with one.client(token) as client:
                (topic,) = (await client.ask(metadata("flights"))).topics
                assert topic.error_code == Code.NONE

    play(story)


@pytest.mark.parametrize("key", [ApiKey.METADATA, ApiKey.DESCRIBE_CONFIGS])
def test_all_pieces_of_a_read_are_answered_by_the_metadata_of_the_first(key: ApiKey) -> None:
    """A topic that is made between two of them is not told of, for the token of the answer is older."""
    names = [*(f"none-{number}" for number in range(6_000)), "late"]
    request: Any = metadata(*names) if key == ApiKey.METADATA else configs(*names)
    module = importlib.import_module(f"tidelog.server.api.handlers.{MODULES[key]}")

    async def story(one: OneNode) -> None:
        pieces = 0

        def handle(node: Any, piece: Any, context: Any) -> Any:
            nonlocal pieces
            pieces += 1
            return answer_then_make(node, piece, context) if pieces == 1 else module.handle(node, piece, context)

        async def answer_then_make(node: Any, piece: Any, context: Any) -> Any:
            response = module.handle(node, piece, context)
            response = await response if isinstance(response, Awaitable) else response
            await one.make("late")
            return response

        async def ask() -> None:
            connection: Any = AnyConnection()
            context = RequestContext(RequestHeader(key, 4, 1, None, None), connection, BROKER)
            before = one.node.consistency_state
            answer = await in_pieces(api(key), handle)(one.node, request, context)
            assert pieces > 1
            rows = answer.topics if key == ApiKey.METADATA else answer.results
            assert {row.error_code for row in rows} == {Code.UNKNOWN_TOPIC_OR_PARTITION}
            assert context.read(one.node).state == before != one.node.consistency_state

        await one.simulated.machine.do(ask)

    play(story)


MODULES = {ApiKey.METADATA: "api_03_metadata", ApiKey.DESCRIBE_CONFIGS: "api_32_describe_configs"}


class AnyConnection:
    listener_name = "PLAINTEXT"
    requester = Requester(ANONYMOUS, "127.0.0.1")


class Held(BrokerListener):
    """Lets no image be published until it is told to."""

    def __init__(self) -> None:
        self.goes_on = asyncio.Event()

    async def prepare(self, delta: MetadataDelta, image: MetadataImage) -> None:
        await self.goes_on.wait()


def test_a_log_is_told_of_once_the_metadata_that_the_answer_reflects_has_its_topic() -> None:
    """Logs are made before the image with their topics is published. Who is told of one would ask another broker, with
    the token of that answer, and be told that there is no such topic.
    """

    async def story(one: OneNode) -> None:
        held = Held()
        one.node.broker.add_listener(held)
        making = asyncio.ensure_future(one.make("delays"))
        await one.until(lambda: one.node.broker.replica_of(TopicPartition("delays", PartitionIndex(0))))
        async with one.client(0) as client:
            assert await topics_here(client) == {"flights"}
            held.goes_on.set()
            await making
            assert await topics_here(client) == {"delays", "flights"}

    play(story)


async def topics_here(client: TokenClient) -> set[str]:
    answer = await client.ask(DescribeLogDirsRequest(topics=None))
    return {topic.name for directory in answer.results for topic in directory.topics}


def test_a_token_without_a_cluster_is_one_of_this() -> None:
    async def story(one: OneNode) -> None:
        async with one.client() as client:
            client.sends = ConsistencyState(None, LATE)
            assert codes_of(await client.ask(metadata("flights"))) == [STALE]

    play(story)


def test_versions_whose_headers_have_no_room_are_answered_as_ever() -> None:
    async def story(one: OneNode) -> None:
        async with one.client(LATE) as client:
            assert codes_of(await client.ask(metadata("flights"), version=8)) == [0]
            assert codes_of(await client.ask(configs("flights"), version=3)) == [0]

    play(story)


def test_a_listener_of_controllers_waits_as_well() -> None:
    async def story(one: OneNode) -> None:
        async with one.client(LATE, port=CONTROLLER_PORT) as client:
            request = DescribeClusterRequest(endpoint_type=ENDPOINT_CONTROLLERS)
            assert (await client.ask(request)).error_code == STALE

    play(story)


# Other requests.

MISSING = "other"
REFUSED: dict[ApiKey, Callable[[str], object]] = {
    ApiKey.PRODUCE: produce,
    ApiKey.FETCH: lambda name: FetchRequest(
        max_wait_ms=0, min_bytes=0, topics=[FetchTopic(topic=name, partitions=[_fetched()])]
    ),
    ApiKey.LIST_OFFSETS: lambda name: ListOffsetsRequest(
        topics=[ListOffsetsTopic(name, [ListOffsetsPartition(partition_index=0, timestamp=-1)])]
    ),
    ApiKey.OFFSET_COMMIT: lambda name: OffsetCommitRequest(
        group_id="g",
        topics=[
            OffsetCommitRequestTopic(
                name=name, partitions=[OffsetCommitRequestPartition(partition_index=0, committed_offset=1)]
            )
        ],
    ),
    ApiKey.TXN_OFFSET_COMMIT: lambda name: TxnOffsetCommitRequest(
        transactional_id="x",
        group_id="g",
        producer_id=1,
        producer_epoch=0,
        topics=[
            TxnOffsetCommitRequestTopic(name, [TxnOffsetCommitRequestPartition(partition_index=0, committed_offset=1)])
        ],
    ),
    ApiKey.DELETE_TOPICS: lambda name: DeleteTopicsRequest(topics=[DeleteTopicState(name=name)]),
    ApiKey.DELETE_RECORDS: lambda name: DeleteRecordsRequest(
        topics=[DeleteRecordsTopic(name, [DeleteRecordsPartition(0, -1)])]
    ),
    ApiKey.OFFSET_FOR_LEADER_EPOCH: lambda name: OffsetForLeaderEpochRequest(
        replica_id=-1, topics=[OffsetForLeaderTopic(name, [OffsetForLeaderPartition(partition=0, leader_epoch=0)])]
    ),
    ApiKey.CREATE_PARTITIONS: lambda name: CreatePartitionsRequest(topics=[CreatePartitionsTopic(name, 2)]),
    ApiKey.ELECT_LEADERS: lambda name: ElectLeadersRequest(topic_partitions=[TopicPartitions(name, [0])]),
    ApiKey.INCREMENTAL_ALTER_CONFIGS: lambda name: IncrementalAlterConfigsRequest(
        resources=[AlterConfigsResource(TOPIC, name, [AlterableConfig(name="retention.ms", value="1000")])]
    ),
}
DECIDED = {ApiKey.DELETE_TOPICS, ApiKey.CREATE_PARTITIONS, ApiKey.ELECT_LEADERS, ApiKey.INCREMENTAL_ALTER_CONFIGS}
"""By the controller: these wait whatever they name."""
VERSIONS = {ApiKey.PRODUCE: 12, ApiKey.FETCH: 12, ApiKey.OFFSET_COMMIT: 9}
"""Of those whose latest speaks of topic ids."""


def _fetched() -> FetchPartition:
    return FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1_000)


def test_what_would_be_an_unknown_topic_waits_and_is_done_once_it_is_known() -> None:
    async def story(one: OneNode) -> None:
        for key, ask_of in REFUSED.items():
            name = f"of-{key.name.lower()}"
            async with one.client(one.last_offset + 1) as client:
                asking = asyncio.ensure_future(client.ask(ask_of(name), version=VERSIONS.get(key)))
                await one.until(lambda: one.waiting)
                await one.make(name)
                assert "UNKNOWN_TOPIC" not in str(_all_codes(await asking)), key

    play(story)


def test_what_has_no_place_for_the_error_ends_with_its_connection() -> None:
    async def story(one: OneNode) -> None:
        for key, ask_of in REFUSED.items():
            async with one.client(LATE) as client:
                with pytest.raises(NetworkError, match="closed the connection"):
                    await client.ask(ask_of(MISSING), version=VERSIONS.get(key))

    play(story)


def test_what_succeeds_is_not_held_up() -> None:
    async def story(one: OneNode) -> None:
        loop = asyncio.get_running_loop()
        for number, (key, ask_of) in enumerate(REFUSED.items()):
            if key in DECIDED:
                continue
            await one.make(f"of-{number}")
            async with one.client(LATE) as client:
                began = loop.time()
                await client.ask(ask_of(f"of-{number}"), version=VERSIONS.get(key))
                assert loop.time() - began < WAIT_SECONDS, key

    play(story)


def test_what_the_controller_decides_waits_whatever_is_known_here() -> None:
    """One that was deposed may know less of it, or more: its refusal would be a tale of the past."""

    async def story(one: OneNode) -> None:
        requests = [REFUSED[key]("flights") for key in DECIDED]
        requests += [CreateTopicsRequest(topics=[CreatableTopic(name, 1, 1)]) for name in ("flights", MISSING)]
        for request in requests:
            async with one.client(LATE) as client:
                with pytest.raises(NetworkError):
                    await client.ask(request)
        assert one.node.image.topic(MISSING) is None

    play(story)


def test_a_partition_that_is_not_there_yet_waits_too() -> None:
    async def story(one: OneNode) -> None:
        request = ListOffsetsRequest(
            topics=[ListOffsetsTopic("flights", [ListOffsetsPartition(partition_index=7, timestamp=-1)])]
        )
        async with one.client(LATE) as client:
            with pytest.raises(NetworkError):
                await client.ask(request)

    play(story)


def test_a_fetch_session_waits_for_what_it_follows_and_does_not_name() -> None:
    async def story(one: OneNode) -> None:
        async with one.client() as client:
            first = FetchRequest(
                max_wait_ms=0, min_bytes=0, session_epoch=0, topics=[FetchTopic(topic=MISSING, partitions=[_fetched()])]
            )
            answer = await client.ask(first, version=12)
            assert answer.session_id
            client.sends = ConsistencyState(one.node.cluster_id, LATE)
            later = FetchRequest(max_wait_ms=0, min_bytes=0, session_id=answer.session_id, session_epoch=1, topics=[])
            with pytest.raises(NetworkError):
                await client.ask(later, version=12)

    play(story)


def test_a_token_of_another_cluster_ends_whatever_it_comes_with() -> None:
    async def story(one: OneNode) -> None:
        for request in (produce("flights"), metadata()):
            async with one.client(0, cluster_id="another") as client:
                with pytest.raises(NetworkError):
                    await client.ask(request, version=12)

    play(story)


# The tables.

TOPIC_FIELDS = {"topic", "topic_id", "topic_name", "topic_names", "topics", "topic_data", "topic_partitions"}
WITHOUT_A_DENIAL = {
    ApiKey.OFFSET_FETCH: "what was not committed is -1, of topics that are not there as well",
    ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS: "where a group has not begun is -1, likewise",
    ApiKey.DESCRIBE_QUORUM: "of the metadata log alone",
    ApiKey.DESCRIBE_TOLD_READERS: "whom this broker told, of topics that may be gone by now",
    ApiKey.REPORT_RESUMPTIONS: "what a reader says of itself; a topic that is not there is passed over",
    ApiKey.CONSUMER_GROUP_HEARTBEAT: "a topic that is not there is assigned once it is",
    ApiKey.STOP_REPLICA: "of controllers, which send no token",
    ApiKey.WRITE_TXN_MARKERS: "of coordinators, likewise",
    ApiKey.INITIALIZE_SHARE_GROUP_STATE: "of coordinators, likewise",
    ApiKey.READ_SHARE_GROUP_STATE: "of leaders, likewise",
    ApiKey.WRITE_SHARE_GROUP_STATE: "of leaders, likewise",
    ApiKey.DELETE_SHARE_GROUP_STATE: "of coordinators, likewise",
    ApiKey.READ_SHARE_GROUP_STATE_SUMMARY: "of coordinators, likewise",
}


READS_OF_KIP_1243 = {
    ApiKey.METADATA,
    ApiKey.DESCRIBE_ACLS,
    ApiKey.DESCRIBE_CONFIGS,
    ApiKey.DESCRIBE_LOG_DIRS,
    ApiKey.DESCRIBE_DELEGATION_TOKEN,
    ApiKey.DESCRIBE_CLIENT_QUOTAS,
    ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS,
    ApiKey.DESCRIBE_CLUSTER,
    ApiKey.LIST_CONFIG_RESOURCES,
    ApiKey.DESCRIBE_TOPIC_PARTITIONS,
}


def test_the_reads_of_the_proposal_wait_from_the_day_on_that_they_are_served() -> None:
    assert {key for key in READS if key < OWN_SINCE} == READS_OF_KIP_1243 & APIS.keys()


def test_every_api_that_names_topics_or_is_passed_on_has_a_row() -> None:
    """A row in `apis.py` without `refuse` and `are_denied`? Add one, or say here why it needs none."""
    named = {
        ApiKey(key)
        for key, served in APIS.items()
        if set(served.roles) != {CONTROLLER} and TOPIC_FIELDS & set(_field_names(layout_of(api(ApiKey(key)).request)))
    }
    assert named - READS.keys() - DENIALS.keys() == WITHOUT_A_DENIAL.keys()
    forwarded = {key for key, served in APIS.items() if served.is_forwarded}
    assert forwarded - DENIALS.keys() == {ApiKey.DESCRIBE_QUORUM}


def _field_names(layout: Layout) -> Iterator[str]:
    for field in layout.fields:
        yield field.name
        element = field.type.element if field.type.kind == "array" else field.type
        if element is not None and element.layout is not None:
            yield from _field_names(element.layout)


def _all_codes(answer: Any) -> list[str]:
    """Every error in an answer, by name."""
    found = []
    for name in getattr(answer, "__slots__", ()):
        value = getattr(answer, name)
        if name == "error_code" and value:
            found.append(Code(value).name)
        for row in value if isinstance(value, list) else ():
            found += _all_codes(row)
    return found

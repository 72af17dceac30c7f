"""Clients that exceed a quota: answered first, told for how long to wait, and held back for so long."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from itertools import count

import pytest

from support.clients.wire_client import WireClient, batch_of
from support.nodes.node import NodeProcess, StartNode
from tidelog import Admin, NewTopic
from tidelog.base.errors import Code
from tidelog.wire import ApiKey
from tidelog.wire.messages.api_00_produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from tidelog.wire.messages.api_01_fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from tidelog.wire.messages.api_03_metadata import MetadataRequest, MetadataResponse
from tidelog.wire.messages.api_19_create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from tidelog.wire.messages.api_20_delete_topics import DeleteTopicsRequest, DeleteTopicsResponse, DeleteTopicState
from tidelog.wire.messages.api_37_create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
)
from tidelog.wire.messages.api_49_alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    OpData,
    QuotaEntityData,
    QuotaEntryData,
)

TOPIC = "held-back"
VERSION = 12
MANY = 50 << 20


@pytest.fixture(scope="module")
def limited_node(start_node: StartNode) -> NodeProcess:
    node = start_node(
        config={"quota.window.num": "2", "controller.quota.window.num": "5", "connections.max.idle.ms": "600"}
    )
    with Admin(node.bootstrap) as admin:
        admin.create_topics([NewTopic(TOPIC, 1, 1)])
    return node


@pytest.fixture
def client(limited_node: NodeProcess) -> Iterator[WireClient]:
    with WireClient(limited_node.port) as client:
        yield client


def entry_of(*parts: tuple[str, str | None], **quotas: float | None) -> QuotaEntryData:
    ops = [OpData(key, value or 0.0, value is None) for key, value in quotas.items()]
    return QuotaEntryData([QuotaEntityData(*part) for part in parts], ops)


def alter(client: WireClient, entries: list[QuotaEntryData]) -> None:
    request = AlterClientQuotasRequest(entries=entries)
    answer = client.ask(ApiKey.ALTER_CLIENT_QUOTAS, 1, request, AlterClientQuotasResponse)
    assert {row.error_code for row in answer.entries} == {0}


def set_quota(node: NodeProcess, *parts: tuple[str, str | None], **quotas: float | None) -> None:
    with WireClient(node.port) as client:
        alter(client, [entry_of(*parts, **quotas)])


def produced(client: WireClient, size_bytes: int, *, acks: int = 1) -> ProduceResponse:
    row = PartitionProduceData(index=0, records=batch_of(b"x" * size_bytes))
    request = ProduceRequest(
        acks=acks, timeout_ms=10_000, topic_data=[TopicProduceData(name=TOPIC, partition_data=[row])]
    )
    if not acks:
        client.send(ApiKey.PRODUCE, 9, request)
        return ProduceResponse(responses=[])
    answer = client.ask(ApiKey.PRODUCE, 9, request, ProduceResponse)
    assert answer.responses[0].partition_responses[0].error_code == 0
    return answer


def fetched(client: WireClient, *, wait_ms: int = 0, offset: int = 0, replica_id: int = -1) -> tuple[int, int]:
    """(bytes of records, time held back in ms)"""
    topic = FetchTopic(
        topic=TOPIC, partitions=[FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=MANY)]
    )
    request = FetchRequest(replica_id=replica_id, max_wait_ms=wait_ms, min_bytes=1, max_bytes=MANY, topics=[topic])
    answer = client.ask(ApiKey.FETCH, VERSION, request, FetchResponse)
    return len(answer.responses[0].partitions[0].records or b""), answer.throttle_time_ms


def seconds_of_an_answer(client: WireClient) -> float:
    began = time.monotonic()
    client.ask(ApiKey.METADATA, 12, MetadataRequest(topics=[]), MetadataResponse)
    return time.monotonic() - began


def test_a_producer_is_answered_and_then_held_back_as_long_as_it_was_told(
    limited_node: NodeProcess, client: WireClient
) -> None:
    """For longer than an idle connection may be, and what comes meanwhile is not lost."""
    set_quota(limited_node, ("client-id", None), producer_byte_rate=20_000.0)
    answer = produced(client, 50_000)
    assert answer.throttle_time_ms >= 1_500, "of a second, which is all windows but one"
    assert seconds_of_an_answer(client) >= answer.throttle_time_ms / 1_000 - 0.2
    set_quota(limited_node, ("client-id", None), producer_byte_rate=None)
    assert produced(client, 50_000).throttle_time_ms == 0


def test_a_producer_that_waits_for_no_answer_is_held_back_too(limited_node: NodeProcess, client: WireClient) -> None:
    set_quota(limited_node, ("user", "ANONYMOUS"), producer_byte_rate=20_000.0)
    produced(client, 50_000, acks=0)
    assert seconds_of_an_answer(client) >= 1.3
    set_quota(limited_node, ("user", "ANONYMOUS"), producer_byte_rate=None)


def test_other_clients_are_not_held_back(limited_node: NodeProcess, client: WireClient) -> None:
    set_quota(limited_node, ("client-id", "somebody else"), producer_byte_rate=1.0)
    assert produced(client, 50_000).throttle_time_ms == 0
    set_quota(limited_node, ("client-id", "somebody else"), producer_byte_rate=None)


@pytest.mark.parametrize("wait_ms", [0, 5_000], ids=["at once", "after a wait"])
def test_a_reader_gets_what_it_may_have_in_all_windows_and_is_held_back(
    limited_node: NodeProcess, client: WireClient, wait_ms: int
) -> None:
    with WireClient(limited_node.port) as writer:
        offset = writer.log_end_offset(TOPIC)
        if not wait_ms:
            for _ in range(5):
                produced(writer, 20_000)
        set_quota(limited_node, ("user", None), consumer_byte_rate=15_000.0)
        if wait_ms:
            waiting = threading.Timer(0.3, lambda: produced(writer, 20_000))
            waiting.start()
        size_bytes, throttle_ms = fetched(client, offset=offset, wait_ms=wait_ms)
        assert 20_000 < size_bytes < 45_000, "one batch at least, and no more than two windows permit by much"
        assert throttle_ms > 0
        assert seconds_of_an_answer(client) >= throttle_ms / 1_000 - 0.2
        set_quota(limited_node, ("user", None), consumer_byte_rate=None)


def test_requests_are_charged_for_the_time_they_take(limited_node: NodeProcess, client: WireClient) -> None:
    set_quota(limited_node, ("user", None), request_percentage=0.001)
    throttle_ms = [fetched(client)[1] for _ in range(2)]
    assert max(throttle_ms) > 0
    assert max(throttle_ms) <= 1_000, "one window at most"
    set_quota(limited_node, ("user", None), request_percentage=None)


def test_connections_of_an_address_come_at_its_rate(limited_node: NodeProcess, client: WireClient) -> None:
    request = [entry_of(("ip", "127.0.0.1"), connection_creation_rate=1.0)]
    alter(client, request)
    refused = 0
    for _ in range(10):
        try:
            with WireClient(limited_node.port) as other:
                seconds_of_an_answer(other)
        except (ConnectionError, OSError):
            refused += 1
    assert refused >= 5
    alter(client, [entry_of(("ip", "127.0.0.1"), connection_creation_rate=None)])
    with WireClient(limited_node.port) as other:
        seconds_of_an_answer(other)


def created(client: WireClient, *counts: int, version: int = 7, validate_only: bool = False) -> CreateTopicsResponse:
    names = [f"created-{next(NUMBERS)}" for _ in counts]
    request = CreateTopicsRequest(
        topics=[CreatableTopic(name, count, 1) for name, count in zip(names, counts, strict=True)],
        timeout_ms=10_000,
        validate_only=validate_only,
    )
    answer = client.ask(ApiKey.CREATE_TOPICS, version, request, CreateTopicsResponse)
    assert [row.name for row in answer.topics] == names
    return answer


NUMBERS = count(1)


def test_partitions_are_made_while_there_are_tokens(limited_node: NodeProcess, client: WireClient) -> None:
    """Five are saved up at one in a second; who goes below zero pays that back."""
    set_quota(limited_node, ("user", None), controller_mutation_rate=1.0)
    assert created(client, 50, validate_only=True).throttle_time_ms == 0
    answer = created(client, 2, 4, 1)
    assert [row.error_code for row in answer.topics] == [0, 0, Code.THROTTLING_QUOTA_EXCEEDED]
    assert 0 < answer.throttle_time_ms <= 1_000
    assert "ask again in" in (answer.topics[-1].error_message or "")
    set_quota(limited_node, ("user", None), controller_mutation_rate=None)


def test_what_is_refused_costs_nothing_and_older_versions_are_not_refused(
    limited_node: NodeProcess, client: WireClient
) -> None:
    set_quota(limited_node, ("client-id", None), controller_mutation_rate=1.0)
    answer = created(client, 2, 0, 3, version=5)
    assert [row.error_code for row in answer.topics] == [0, Code.INVALID_PARTITIONS, 0]
    assert answer.throttle_time_ms == 0
    older = created(client, 3, 1, version=5)
    assert [row.error_code for row in older.topics] == [0, 0]
    assert older.throttle_time_ms > 1_000
    set_quota(limited_node, ("client-id", None), controller_mutation_rate=None)


def test_deleting_and_growing_cost_partitions_as_well(limited_node: NodeProcess, client: WireClient) -> None:
    topic = created(client, 3).topics[0].name
    set_quota(limited_node, ("client-id", None), controller_mutation_rate=1.0)
    growing = CreatePartitionsRequest(topics=[CreatePartitionsTopic(topic, 7)], timeout_ms=10_000)
    assert client.ask(ApiKey.CREATE_PARTITIONS, 3, growing, CreatePartitionsResponse).throttle_time_ms == 0
    deleting = DeleteTopicsRequest(topics=[DeleteTopicState(name=topic)], timeout_ms=10_000)
    deleted = client.ask(ApiKey.DELETE_TOPICS, 6, deleting, DeleteTopicsResponse)
    assert (deleted.responses[0].error_code, deleted.throttle_time_ms > 4_000) == (0, True)
    set_quota(limited_node, ("client-id", None), controller_mutation_rate=None)

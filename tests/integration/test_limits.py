"""A stranger who goes to each limit in turn, while honest clients write and read: they lose nothing."""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest

from support.clients.wire_client import WireClient, batch_of
from support.fixtures.waiting import wait_until
from support.load.group_member import wait_for_coordinator
from support.load.verifying import VerifyingLoad, verifying_load
from support.nodes.metrics import samples
from support.nodes.node import NodeProcess
from support.nodes.server_process import ServerProcess
from tidelog import Producer
from tidelog.base.errors import Code
from tidelog.wire import ApiKey
from tidelog.wire.messages.api_03_metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from tidelog.wire.messages.api_08_offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from tidelog.wire.messages.api_10_find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from tidelog.wire.messages.api_17_sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from tidelog.wire.messages.api_22_init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from tidelog.wire.messages.api_36_sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from tidelog.wire.messages.api_49_alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    OpData,
    QuotaEntityData,
    QuotaEntryData,
)

HONEST, VICTIM = "honest", "victim"
RESIDENT_BYTES_MAX = 512 << 20
STRANGER = "127.0.0.2"
LIMITS = {
    "max.connections.per.ip.overrides": f"{STRANGER}:30",
    "max.auto.created.topics.per.ip": "20",
    "max.producer.ids": "300",
    "max.partitions": "200",
    "max.client.quotas": "10",
    "group.offsets.memory.bytes": "60000",
    "transaction.coordinator.memory.bytes": "40000",
    "queued.max.request.bytes": str(32 << 20),
}


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeProcess]:
    node = NodeProcess(
        tmp_path_factory.mktemp("limits") / "data", config={"metrics.listener": "HTTP://127.0.0.1:0", **LIMITS}
    )
    try:
        node.start()
        with WireClient(node.port) as client:
            client.create_topic(HONEST, partitions=2)
            client.create_topic(VICTIM)
        yield node
        assert "Traceback" not in node.log
    finally:
        node.close()


@pytest.fixture
def load(node: NodeProcess) -> Iterator[VerifyingLoad]:
    """Honest clients, who notice nothing."""
    with verifying_load(
        node.bootstrap, HONEST, 2, producers=["ours", "librdkafka"], readers=["ours", "librdkafka"]
    ) as load:
        yield load


def resident_bytes(node: NodeProcess) -> int:
    for line in Path(f"/proc/{node.pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) * 1024
    raise AssertionError("no VmRSS")


def refusals(node: NodeProcess, setting: str) -> float:
    return samples(node)["tidelog_limit_refusals_total", (setting,)]


def connections(node: NodeProcess) -> None:
    with ExitStack() as stack:
        for _ in range(100):
            stream = stack.enter_context(socket.create_connection(("127.0.0.1", node.port), 60, (STRANGER, 0)))
            del stream
        wait_until(lambda: refusals(node, "max.connections.per.ip") >= 70, "those beyond the limit are refused")


def half_requests(node: NodeProcess) -> None:
    """Requests of 60 MB that do not come to their end: more than there is memory for."""
    with ExitStack() as stack:
        streams = [stack.enter_context(socket.create_connection(("127.0.0.1", node.port), 60)) for _ in range(8)]
        for stream in streams:
            stream.setblocking(False)
            stream.send(struct.pack(">ihhi", 60 << 20, 0, 9, 1))
        for _ in range(40):
            for stream in streams:
                with suppress(BlockingIOError, ConnectionError):
                    stream.send(bytes(1 << 20))
        wait_until(lambda: refusals(node, "queued.max.request.bytes") > 0, "one that stands still is closed")


def topics(node: NodeProcess) -> None:
    with WireClient(node.port) as client:
        codes = []
        for start in range(0, 60, 15):
            names = [MetadataRequestTopic(name=f"made-up-{start + number}") for number in range(15)]
            answer = client.ask(ApiKey.METADATA, 9, MetadataRequest(topics=names), MetadataResponse)
            codes += [one.error_code for one in answer.topics]
    assert codes.count(Code.THROTTLING_QUOTA_EXCEEDED) == 40
    assert refusals(node, "max.auto.created.topics.per.ip") == 40


def partitions(node: NodeProcess) -> None:
    with WireClient(node.port) as client:
        answers = [client.create_topic(f"large-{number}", partitions=100) for number in range(3)]
    assert Code.POLICY_VIOLATION in [one.error_code for one in answers]
    assert "max.partitions" in (answers[-1].error_message or "")


def producer_ids(node: NodeProcess) -> None:
    """Ids that nobody was given."""
    with WireClient(node.port) as client:
        for number in range(1_000):
            batch = batch_of(b"v", producer=(1 << 40 | number, 0), base_sequence=0)
            assert client.produce(VICTIM, batch).error_code == 0
    used = "tidelog_limit_used", ("max.producer.ids",)
    wait_until(lambda: samples(node)[used] <= 300, "no more are remembered than may be")
    assert refusals(node, "max.producer.ids") >= 600


def offsets(node: NodeProcess) -> None:
    codes = set()
    with WireClient(node.port) as client:
        wait_for_coordinator(client, "made-up-0")
        for number in range(300):
            one = OffsetCommitRequestPartition(partition_index=0, committed_offset=1, committed_metadata="x" * 1_000)
            request = OffsetCommitRequest(
                group_id=f"made-up-{number}", topics=[OffsetCommitRequestTopic(name=VICTIM, partitions=[one])]
            )
            answer = client.ask(ApiKey.OFFSET_COMMIT, 7, request, OffsetCommitResponse)
            codes.add(answer.topics[0].partitions[0].error_code)
    assert codes == {0, Code.INVALID_COMMIT_OFFSET_SIZE}
    assert refusals(node, "group.offsets.memory.bytes") > 200


def transactional_ids(node: NodeProcess) -> None:
    codes: set[int] = set()

    def ask() -> bool:
        find = FindCoordinatorRequest(key="made-up", key_type=1)
        client.ask(ApiKey.FIND_COORDINATOR, 3, find, FindCoordinatorResponse)  # which makes the topic
        for number in range(100):
            request = InitProducerIdRequest(
                transactional_id=f"made-up-{number}" + "x" * 1_000, transaction_timeout_ms=60_000
            )
            codes.add(client.ask(ApiKey.INIT_PRODUCER_ID, 4, request, InitProducerIdResponse).error_code)
        return Code.THROTTLING_QUOTA_EXCEEDED in codes

    with WireClient(node.port) as client:
        wait_until(ask, lambda: f"an id finds no room: {codes}")
    assert refusals(node, "transaction.coordinator.memory.bytes") > 0


def quotas(node: NodeProcess) -> None:
    entries = [
        QuotaEntryData([QuotaEntityData("user", f"made-up-{number}")], [OpData("producer_byte_rate", 1e6)])
        for number in range(20)
    ]
    with WireClient(node.port) as client:
        request = AlterClientQuotasRequest(entries=entries)
        answer = client.ask(ApiKey.ALTER_CLIENT_QUOTAS, 1, request, AlterClientQuotasResponse)
    assert [one.error_code for one in answer.entries] == [0] * 10 + [Code.POLICY_VIOLATION] * 10


ATTACKS = (connections, half_requests, topics, producer_ids, offsets, transactional_ids, quotas, partitions)


@pytest.mark.timeout(300)
def test_a_stranger_at_each_limit_harms_no_honest_client(node: NodeProcess, load: VerifyingLoad) -> None:
    load.until_acknowledged(10)
    for attack in ATTACKS:
        attack(node)
        load.until_acknowledged(10)
        assert resident_bytes(node) <= RESIDENT_BYTES_MAX, attack.__name__
    history = load.finish()
    history.check()


SASL = {
    "listeners": "CLIENTS://127.0.0.1:0,CONTROLLER://127.0.0.1:0",
    "listener.security.protocol.map": "CLIENTS:SASL_PLAINTEXT,CONTROLLER:PLAINTEXT",
    "inter.broker.listener.name": "CLIENTS",
    "sasl.enabled.mechanisms": "PLAIN",
    "sasl.mechanism.inter.broker.protocol": "PLAIN",
    "listener.name.clients.plain.sasl.jaas.config": (
        'org.apache.kafka.common.security.plain.PlainLoginModule required username="node" password="n" '
        'user_node="n" user_alice="a" user_bob="b";'
    ),
    "max.failed.authentications.per.ip": "50",
    "metrics.listener": "HTTP://127.0.0.1:0",
}


@pytest.fixture
def asking(tmp_path: Path) -> Iterator[ServerProcess]:
    node = ServerProcess(tmp_path, tmp_path / "data")
    node.settings |= SASL
    node.start()
    yield node
    node.close()


def log_in(node: ServerProcess, user: str, password: str) -> int:
    with WireClient(node.port) as client:
        handshake = client.ask(ApiKey.SASL_HANDSHAKE, 1, SaslHandshakeRequest(mechanism="PLAIN"), SaslHandshakeResponse)
        assert handshake.error_code == 0
        message = f"\0{user}\0{password}".encode()
        request = SaslAuthenticateRequest(auth_bytes=message)
        return client.ask(ApiKey.SASL_AUTHENTICATE, 2, request, SaslAuthenticateResponse).error_code


def test_passwords_are_guessed_no_faster_on_many_connections(asking: ServerProcess) -> None:
    """And a user who was there before gets in from the same address meanwhile."""
    assert log_in(asking, "alice", "a") == 0
    codes: list[int] = []

    def guess(number: int) -> None:
        codes.extend(log_in(asking, "bob", f"guess {number} {index}") for index in range(5))

    threads = [threading.Thread(target=guess, args=(number,)) for number in range(40)]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        assert log_in(asking, "alice", "a") == 0
    for thread in threads:
        thread.join()
    assert set(codes) == {Code.SASL_AUTHENTICATION_FAILED, Code.THROTTLING_QUOTA_EXCEEDED}
    assert codes.count(Code.THROTTLING_QUOTA_EXCEEDED) >= 100
    assert samples(asking)["tidelog_limit_peers", ("max.failed.authentications.per.ip",)] == 1
    wait_until(lambda: log_in(asking, "bob", "b") == 0, "an honest newcomer gets in when the budget comes back")
    assert asking.log.count("too many authentications from this address failed") < 20


def test_honest_newcomers_get_in_when_the_budget_comes_back(tmp_path: Path) -> None:
    """Clients take the refusal for one that passes: they try on by themselves."""
    node = ServerProcess(tmp_path, tmp_path / "data")
    node.settings |= SASL | {"max.failed.authentications.per.ip": "10"}
    failures: list[object] = []
    refused: list[confluent_kafka.KafkaError] = []
    try:
        node.start()
        while log_in(node, "nobody", "x") != Code.THROTTLING_QUOTA_EXCEEDED:
            pass
        theirs = confluent_kafka.Producer(
            {
                "bootstrap.servers": node.bootstrap,
                "security.protocol": "SASL_PLAINTEXT",
                "sasl.mechanism": "PLAIN",
                "sasl.username": "alice",
                "sasl.password": "a",
                "error_cb": refused.append,
            }
        )
        theirs.produce("theirs", b"v", on_delivery=lambda error, _: failures.append(error))
        options: dict[str, Any] = {
            "security_protocol": "SASL_PLAINTEXT",
            "sasl_mechanism": "PLAIN",
            "sasl_username": "bob",
            "sasl_password": "b",
        }
        with Producer(node.bootstrap, **options) as ours:
            ours.send("ours", b"v").result(60)
        assert theirs.flush(60) == 0
        assert failures == [None]
        assert "max.failed.authentications.per.ip" in refused[0].str()
    finally:
        node.close()


def test_topics_that_could_not_be_made_cost_nothing(tmp_path: Path) -> None:
    config = {"max.auto.created.topics.per.ip": "2", "default.replication.factor": "3"}
    node = NodeProcess(tmp_path / "data", config=config)
    try:
        node.start()
        with WireClient(node.port) as client:
            request = MetadataRequest(topics=[MetadataRequestTopic(name="three-replicas")])
            answers = [client.ask(ApiKey.METADATA, 9, request, MetadataResponse) for _ in range(6)]
        assert {one.topics[0].error_code for one in answers} == {Code.UNKNOWN_TOPIC_OR_PARTITION}
    finally:
        node.close()

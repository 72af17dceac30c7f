"""Settings that change while a node runs: in force with the answer, and still so after a kill."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourceType,
)

from support.clients import kafka_python_client as kafka_python
from support.clients.admin_requests import (
    DELETED,
    RESOURCE_BROKER,
    RESOURCE_BROKER_LOGGER,
    alter,
    change,
    describe,
    described,
    grow,
    replace_all,
    set_to,
)
from support.clients.wire_client import WireClient, batch_of
from support.fixtures.waiting import wait_until
from support.nodes.node import NodeProcess, StartNode
from tidelog.base.errors import Code
from tidelog.cli.ports import free_ports
from tidelog.metadata.configs import TABLE, ConfigSource, ConfigType
from tidelog.records import read_header
from tidelog.records.compression import COMPRESSION_NAMES
from tidelog.wire import ApiKey
from tidelog.wire.messages.api_33_alter_configs import AlterConfigsRequest, AlterConfigsResponse
from tidelog.wire.messages.api_74_list_config_resources import ListConfigResourcesRequest, ListConfigResourcesResponse

DEADLINE_SECONDS = 60.0
EARLIEST = -2


@pytest.fixture(scope="module")
def tidy_node(start_node: StartNode) -> NodeProcess:
    """Looks for old segments ten times a second."""
    return start_node(config={"log.retention.check.interval.ms": "100"})


@pytest.fixture
def client(tidy_node: NodeProcess) -> Iterator[WireClient]:
    with WireClient(tidy_node.port) as client:
        yield client


def taken(client: WireClient, topic: str, *values: bytes, timestamp_ms: int = 1_700_000_000_000) -> Code:
    return Code(client.produce(topic, batch_of(*values, timestamp_ms=timestamp_ms)).error_code)


def now_ms() -> int:
    return int(time.time() * 1000)


def test_the_largest_batch(client: WireClient) -> None:
    client.create_topic("largest")
    assert taken(client, "largest", bytes(2000)) == Code.NONE
    change(client, "largest", {"max.message.bytes": set_to("1000")})
    assert taken(client, "largest", bytes(2000)) == Code.MESSAGE_TOO_LARGE
    assert taken(client, "largest", bytes(500)) == Code.NONE
    change(client, "largest", {"max.message.bytes": DELETED})
    assert taken(client, "largest", bytes(2000)) == Code.NONE


def test_whose_clock_dates_the_records(client: WireClient) -> None:
    client.create_topic("clock")
    change(client, "clock", {"message.timestamp.type": set_to("LogAppendTime")})
    before = now_ms()
    answer = client.produce("clock", batch_of(b"a", timestamp_ms=5))
    assert before <= answer.log_append_time_ms <= now_ms()
    change(client, "clock", {"message.timestamp.type": DELETED})
    client.produce("clock", batch_of(b"b", timestamp_ms=6))
    stamped, kept = client.read_all("clock")
    assert stamped.timestamp == answer.log_append_time_ms
    assert kept.timestamp == 6


def test_the_codec_that_batches_are_stored_in(client: WireClient) -> None:
    def codec_of(offset: int) -> str:
        records = client.fetch("codec", offset, size_bytes_max=1).records
        assert isinstance(records, memoryview)
        return COMPRESSION_NAMES[read_header(records).compression]

    client.create_topic("codec", configs={"compression.type": "gzip", "compression.gzip.level": "1"})
    values = [b"a" * 500, b"b" * 500]
    client.produce("codec", batch_of(*values))
    producer = client.new_producer_id()
    change(client, "codec", {"compression.type": set_to("zstd")})
    batch = batch_of(*values, compression="lz4", producer=producer, base_sequence=0)
    assert (client.produce("codec", batch).base_offset, client.produce("codec", batch).base_offset) == (2, 2)
    change(client, "codec", {"compression.type": set_to("uncompressed")})
    client.produce("codec", batch_of(*values, compression="snappy"))
    change(client, "codec", {"compression.type": DELETED})
    client.produce("codec", batch_of(*values, compression="snappy"))
    assert [codec_of(offset) for offset in (0, 2, 4, 6)] == ["gzip", "zstd", "none", "snappy"]
    assert [record.value for record in client.read_all("codec")] == values * 4


def test_readers_from_before_zstd_are_told_so(client: WireClient) -> None:
    client.create_topic("modern", configs={"compression.type": "zstd"})
    client.produce("modern", batch_of(b"a"))
    assert client.fetch("modern", 0, version=9).error_code == Code.UNSUPPORTED_COMPRESSION_TYPE
    assert client.fetch("modern", 0, version=10).error_code == Code.NONE


def test_how_far_from_now_a_record_may_lie(client: WireClient) -> None:
    client.create_topic("limits")
    refused = client.produce("limits", batch_of(b"a", b"b", timestamp_ms=now_ms() + 7_200_000))
    assert refused.error_code == Code.INVALID_TIMESTAMP
    assert [each.batch_index for each in refused.record_errors] == [0, 1]
    assert all(
        "message.timestamp.after.max.ms" in (each.batch_index_error_message or "") for each in refused.record_errors
    )
    assert taken(client, "limits", b"a", timestamp_ms=now_ms() + 7_200_000) == Code.INVALID_TIMESTAMP
    change(
        client,
        "limits",
        {"message.timestamp.after.max.ms": set_to("9000000"), "message.timestamp.before.max.ms": set_to("60000")},
    )
    assert taken(client, "limits", b"a", timestamp_ms=now_ms() + 7_200_000) == Code.NONE
    assert taken(client, "limits", b"a", timestamp_ms=now_ms() - 120_000) == Code.INVALID_TIMESTAMP
    assert taken(client, "limits", b"a", timestamp_ms=now_ms()) == Code.NONE


def test_retention_by_size_and_by_time(client: WireClient) -> None:
    client.create_topic("retained", configs={"segment.bytes": "1000", "retention.ms": "-1"})
    for _ in range(10):
        taken(client, "retained", bytes(900))
    assert client.list_offset("retained", EARLIEST).offset == 0
    change(client, "retained", {"retention.bytes": set_to("2900")})
    wait_until(lambda: client.list_offset("retained", EARLIEST).offset == 7, "three segments are left")
    assert client.fetch("retained", 3).error_code == Code.OFFSET_OUT_OF_RANGE
    assert len(client.read_all("retained", start=7)) == 3
    change(client, "retained", {"retention.bytes": DELETED, "retention.ms": set_to("60000")})
    wait_until(lambda: client.list_offset("retained", EARLIEST).offset == 10, "all of it is too old")
    assert taken(client, "retained", b"new", timestamp_ms=now_ms()) == Code.NONE
    assert [record.offset for record in client.read_all("retained", start=10)] == [10]


def test_the_size_of_segments(client: WireClient, tidy_node: NodeProcess) -> None:
    client.create_topic("sized", configs={"retention.ms": "-1"})
    for _ in range(5):
        taken(client, "sized", bytes(900))
    directory = tidy_node.data_dir / "node-1" / "sized-0"
    assert len(list(directory.glob("*.log"))) == 1
    change(client, "sized", {"segment.bytes": set_to("1000")})
    for _ in range(5):
        taken(client, "sized", bytes(900))
    assert len(list(directory.glob("*.log"))) == 6


def test_a_topic_that_becomes_compacted_and_ceases_to_be(client: WireClient) -> None:
    client.create_topic("compacted")
    assert taken(client, "compacted", b"without a key") == Code.NONE
    change(client, "compacted", {"cleanup.policy": set_to("compact")})
    assert taken(client, "compacted", b"without a key") == Code.INVALID_RECORD
    change(client, "compacted", {"cleanup.policy": (2, "delete")})
    assert described(client, "compacted")["cleanup.policy"].value == "compact,delete"
    change(client, "compacted", {"cleanup.policy": (3, "compact")})
    assert taken(client, "compacted", b"without a key") == Code.NONE
    assert len(client.read_all("compacted")) == 2
    change(client, "compacted", {"cleanup.policy": (3, "delete"), "retention.ms": set_to("1")})
    assert described(client, "compacted")["cleanup.policy"].value == ""
    change(client, "compacted", {"cleanup.policy": (2, "compact")})
    assert described(client, "compacted")["cleanup.policy"].value == "compact"


def test_what_is_set_for_brokers_is_in_force_for_their_topics(node: NodeProcess) -> None:
    with WireClient(node.port) as client:
        client.create_topic("early")
        change(client, "", {"message.max.bytes": set_to("1000")}, kind=RESOURCE_BROKER)
        assert taken(client, "early", bytes(2000)) == Code.MESSAGE_TOO_LARGE
        late = client.create_topic("late")
        told = {entry.name: (entry.value, entry.config_source) for entry in late.configs or ()}
        assert told["max.message.bytes"] == ("1000", ConfigSource.DYNAMIC_DEFAULT_BROKER)
        assert taken(client, "late", bytes(2000)) == Code.MESSAGE_TOO_LARGE
        change(client, "1", {"message.max.bytes": set_to("3000")}, kind=RESOURCE_BROKER)
        assert taken(client, "early", bytes(2000)) == Code.NONE
        change(client, "late", {"max.message.bytes": set_to("1500")})
    node.kill()
    node.restart()
    with WireClient(node.port) as client:
        assert taken(client, "early", bytes(2000)) == Code.NONE
        assert taken(client, "early", bytes(4000)) == Code.MESSAGE_TOO_LARGE
        assert taken(client, "late", bytes(2000)) == Code.MESSAGE_TOO_LARGE
        row = described(client, "late")["max.message.bytes"]
        assert [(one.name, one.value, one.source) for one in row.synonyms] == [
            ("max.message.bytes", "1500", ConfigSource.DYNAMIC_TOPIC),
            ("message.max.bytes", "3000", ConfigSource.DYNAMIC_BROKER),
            ("message.max.bytes", "1000", ConfigSource.DYNAMIC_DEFAULT_BROKER),
            ("message.max.bytes", "1048588", ConfigSource.DEFAULT),
        ]
        assert (row.read_only, row.is_sensitive, row.documentation) == (
            False,
            False,
            TABLE["topic"]["max.message.bytes"].doc,
        )
        shared = described(client, "", kind=RESOURCE_BROKER)
        assert {name: (one.value, one.config_source) for name, one in shared.items()} == {
            "message.max.bytes": ("1000", ConfigSource.DYNAMIC_DEFAULT_BROKER)
        }
        own = described(client, "1", kind=RESOURCE_BROKER)
        for name in ("node.id", "broker.id"):  # by which tools of before KRaft know a broker
            assert (own[name].value, own[name].config_source) == ("1", ConfigSource.STATIC_BROKER)
        assert own["message.max.bytes"].value == "3000"
        assert own["num.partitions"].read_only
        change(client, "1", {"message.max.bytes": DELETED}, kind=RESOURCE_BROKER)
        assert taken(client, "early", bytes(2000)) == Code.MESSAGE_TOO_LARGE
        assert replace_all(client, "", {}, kind=RESOURCE_BROKER).error_code == 0
        assert taken(client, "early", bytes(2000)) == Code.NONE


def test_what_is_refused_changes_nothing(client: WireClient) -> None:
    client.create_topic("refusing", configs={"retention.ms": "5000"})
    row = alter(client, "refusing", {"segment.ms": set_to("5"), "retention.mss": set_to("1")})
    assert row.error_code == Code.INVALID_CONFIG
    assert row.error_message == "retention.mss: there is no such topic setting; the closest is retention.ms"
    row = alter(client, "1", {"num.partitions": set_to("3")}, kind=RESOURCE_BROKER)
    assert row.error_code == Code.INVALID_REQUEST
    assert "start the broker again" in (row.error_message or "")
    assert alter(client, "refusing", {"segment.ms": set_to("5")}, validate_only=True).error_code == 0
    assert replace_all(client, "refusing", {"segment.ms": None}).error_code == Code.INVALID_REQUEST
    told = described(client, "refusing")
    assert (told["segment.ms"].config_source, told["retention.ms"].value) == (ConfigSource.DEFAULT, "5000")


@pytest.mark.parametrize("kind", [0, 1, 16, 64, 99])
def test_other_kinds_of_resources_are_refused(client: WireClient, kind: int) -> None:
    assert alter(client, "x", {"retention.ms": set_to("1")}, kind=kind).error_code == Code.INVALID_REQUEST
    assert replace_all(client, "x", {"retention.ms": "1"}, kind=kind).error_code == Code.INVALID_REQUEST
    assert describe(client, "x", kind=kind).error_code == Code.INVALID_REQUEST


def test_the_settings_that_are_asked_for(client: WireClient) -> None:
    client.create_topic("asked")
    names = ["retention.ms", "cleanup.policy", "no.such"]
    assert {row.name for row in describe(client, "asked", keys=names).configs} == set(names[:2])
    everything = describe(client, "asked").configs
    assert describe(client, "asked", keys=[]).configs == everything  # as Kafka takes it
    assert len(everything) == len(TABLE["topic"])


def test_replacing_all_settings_of_every_version(client: WireClient) -> None:
    client.create_topic("replaced", configs={"retention.ms": "5000"})
    for version in range(3):
        assert replace_all(client, "replaced", {"segment.ms": f"{version + 7}"}, version=version).error_code == 0
        told = described(client, "replaced")
        assert told["segment.ms"].value == f"{version + 7}"
        assert told["retention.ms"].config_source == ConfigSource.DEFAULT
    nothing = client.ask(ApiKey.ALTER_CONFIGS, 2, AlterConfigsRequest(resources=[]), AlterConfigsResponse)
    assert nothing.responses == []


def test_levels_of_loggers(client: WireClient) -> None:
    own, name = "1", "tidelog.server.node"
    would_be = alter(client, own, {name: set_to("DEBUG")}, kind=RESOURCE_BROKER_LOGGER, validate_only=True)
    assert would_be.error_code == 0
    assert described(client, own, kind=RESOURCE_BROKER_LOGGER)[name].value == "INFO"
    change(client, own, {name: set_to("DEBUG")}, kind=RESOURCE_BROKER_LOGGER)
    assert described(client, own, kind=RESOURCE_BROKER_LOGGER)[name].value == "DEBUG"
    change(client, own, {name: DELETED}, kind=RESOURCE_BROKER_LOGGER)
    assert described(client, own, kind=RESOURCE_BROKER_LOGGER)[name].value == "INFO"
    for changes, code in (
        ({"tidelog.nobody": set_to("INFO")}, Code.INVALID_CONFIG),
        ({name: set_to("LOUD")}, Code.INVALID_CONFIG),
        ({"root": DELETED}, Code.INVALID_REQUEST),
    ):
        assert alter(client, own, changes, kind=RESOURCE_BROKER_LOGGER).error_code == code
    assert alter(client, "2", {name: set_to("INFO")}, kind=RESOURCE_BROKER_LOGGER).error_code == Code.INVALID_REQUEST


def test_the_resources_that_have_settings(client: WireClient) -> None:
    client.create_topic("listed")

    def listed(kinds: list[int], version: int = 1) -> ListConfigResourcesResponse:
        request = ListConfigResourcesRequest(resource_types=kinds)
        return client.ask(ApiKey.LIST_CONFIG_RESOURCES, version, request, ListConfigResourcesResponse)

    everything = {(one.resource_type, one.resource_name) for one in listed([]).config_resources}
    assert {(2, "listed"), (4, "1"), (8, "1")} <= everything
    assert [(one.resource_type, one.resource_name) for one in listed([4]).config_resources] == [(4, "1")]
    assert listed([16, 32]).config_resources == []
    assert listed([], version=0).config_resources == []
    assert listed([99]).error_code == Code.UNSUPPORTED_VERSION


def test_confluents_admin_client(client: WireClient, tidy_node: NodeProcess) -> None:
    client.create_topic("confluent", configs={"segment.ms": "7"})
    admin = AdminClient({"bootstrap.servers": tidy_node.bootstrap})

    def value(key: str) -> str:
        resource = ConfigResource(ResourceType.TOPIC, "confluent")
        return str(admin.describe_configs([resource])[resource].result(DEADLINE_SECONDS)[key].value)

    entries = [
        ConfigEntry("retention.ms", "1234", incremental_operation=AlterConfigOpType.SET),
        ConfigEntry("cleanup.policy", "compact", incremental_operation=AlterConfigOpType.APPEND),
        ConfigEntry("segment.ms", None, incremental_operation=AlterConfigOpType.DELETE),
    ]
    resource = ConfigResource(ResourceType.TOPIC, "confluent", incremental_configs=entries)
    admin.incremental_alter_configs([resource])[resource].result(DEADLINE_SECONDS)
    assert (value("retention.ms"), value("cleanup.policy"), value("segment.ms")) == (
        "1234",
        "delete,compact",
        "604800000",
    )
    resource = ConfigResource(ResourceType.TOPIC, "confluent", set_config={"segment.ms": "9"})
    with pytest.warns(DeprecationWarning, match="incremental_alter_configs"):
        futures = admin.alter_configs([resource])
    futures[resource].result(DEADLINE_SECONDS)
    assert (value("retention.ms"), value("segment.ms")) == ("604800000", "9")
    wrong = [ConfigEntry("retention.ms", "soon", incremental_operation=AlterConfigOpType.SET)]
    resource = ConfigResource(ResourceType.TOPIC, "confluent", incremental_configs=wrong)
    with pytest.raises(KafkaException, match="'soon' is not allowed"):
        admin.incremental_alter_configs([resource])[resource].result(DEADLINE_SECONDS)


@pytest.mark.parametrize("incremental", [True, False])
def test_kafka_pythons_admin_client(client: WireClient, tidy_node: NodeProcess, incremental: bool) -> None:
    topic = f"kafka-python-{incremental}"
    client.create_topic(topic)
    with kafka_python.admin_of(tidy_node.bootstrap) as admin:
        wanted = kafka_python.ConfigResource(
            kafka_python.ConfigResourceType.TOPIC, topic, configs={"retention.ms": "1234"}
        )
        admin.alter_configs([wanted], incremental=incremental)
    assert described(client, topic)["retention.ms"].value == "1234"


def test_a_topic_keeps_its_settings_when_it_grows(client: WireClient) -> None:
    client.create_topic("grown", configs={"max.message.bytes": "1000"})
    assert grow(client, "grown", 2).error_code == 0
    row = client.produce("grown", batch_of(bytes(2000)), partition=1)
    assert row.error_code == Code.MESSAGE_TOO_LARGE
    change(client, "grown", {"max.message.bytes": DELETED})
    assert client.produce("grown", batch_of(bytes(2000)), partition=1).error_code == 0


def test_no_setting_outlives_its_topic(client: WireClient, tidy_node: NodeProcess) -> None:
    client.create_topic("again", configs={"max.message.bytes": "1000"})
    admin = AdminClient({"bootstrap.servers": tidy_node.bootstrap})
    admin.delete_topics(["again"])["again"].result(DEADLINE_SECONDS)
    assert client.create_topic("again").error_code == 0
    assert taken(client, "again", bytes(2000)) == Code.NONE


def test_how_many_may_connect(node: NodeProcess) -> None:
    request = ListConfigResourcesRequest(resource_types=[RESOURCE_BROKER])

    def is_let_in() -> bool:
        with WireClient(node.port) as other:
            try:
                other.ask(ApiKey.LIST_CONFIG_RESOURCES, 1, request, ListConfigResourcesResponse)
            except ConnectionError:
                return False
            return True

    with WireClient(node.port) as client:
        change(client, "1", {"max.connections.per.ip": set_to("1")}, kind=RESOURCE_BROKER)
        assert not is_let_in()
        change(client, "1", {"max.connections.per.ip": DELETED}, kind=RESOURCE_BROKER)
        assert is_let_in()
        wait_until(lambda: node.log.count("connection refused") == 1, "it is told once")
        change(client, "1", {"max.connections.per.ip.overrides": set_to("127.0.0.1:1")}, kind=RESOURCE_BROKER)
        assert not is_let_in()
        change(client, "1", {"max.connections.per.ip.overrides": DELETED}, kind=RESOURCE_BROKER)
        assert is_let_in()
        change(client, "", {"max.connections": set_to("1")}, kind=RESOURCE_BROKER)
        with WireClient(node.port) as waiting:
            waiting.send(ApiKey.LIST_CONFIG_RESOURCES, 1, request)
            waiting.stream.settimeout(0.2)
            with pytest.raises(TimeoutError):
                waiting.stream.recv(1)
            waiting.stream.settimeout(DEADLINE_SECONDS)
            change(client, "", {"max.connections": DELETED}, kind=RESOURCE_BROKER)
            answer = waiting.receive(ApiKey.LIST_CONFIG_RESOURCES, 1, ListConfigResourcesResponse)
            assert [one.resource_name for one in answer.config_resources] == ["1"]


def test_how_long_deleted_files_stay(client: WireClient, tidy_node: NodeProcess) -> None:
    client.create_topic("short-lived")
    client.produce("short-lived", batch_of(b"a"))
    change(client, "", {"log.segment.delete.delay.ms": set_to("1")}, kind=RESOURCE_BROKER)
    admin = AdminClient({"bootstrap.servers": tidy_node.bootstrap})
    admin.delete_topics(["short-lived"])["short-lived"].result(DEADLINE_SECONDS)
    directory = tidy_node.data_dir / "node-1"
    wait_until(lambda: not list(directory.glob("*short-lived*")), "its files are gone long before a minute is over")
    change(client, "", {"log.segment.delete.delay.ms": DELETED}, kind=RESOURCE_BROKER)


def test_listeners_come_and_go_beside_that_of_the_file(node: NodeProcess) -> None:
    def beside(port: int) -> str:
        return f"PLAINTEXT://127.0.0.1:{node.port},NODES://127.0.0.1:0,BESIDE://127.0.0.1:{port}"

    def is_open(port: int) -> bool:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=DEADLINE_SECONDS).close()
        except ConnectionError:
            return False
        return True

    port, other = free_ports("127.0.0.1", [None, None], avoid=[node.port])
    with WireClient(node.port) as client:
        allowed = {
            "listener.security.protocol.map": set_to("PLAINTEXT:PLAINTEXT,NODES:SASL_PLAINTEXT,BESIDE:PLAINTEXT")
        }
        change(client, "1", {"listeners": set_to(beside(port)), **allowed}, kind=RESOURCE_BROKER)
        with WireClient(port) as late:
            assert described(late, "1", kind=RESOURCE_BROKER)["listeners"].value == beside(port)
            change(client, "1", {"listeners": set_to(beside(other))}, kind=RESOURCE_BROKER)
            assert late.stream.recv(1) == b"", "who is connected to what closes is hung up on"
        assert (is_open(port), is_open(other)) == (False, True)
    node.kill()
    node.restart()
    assert is_open(other)
    with WireClient(node.port) as client:
        change(client, "1", {"listeners": set_to(beside(node.port))}, kind=RESOURCE_BROKER)
        assert "listener BESIDE: cannot listen" in node.log
        change(client, "1", {"listeners": DELETED}, kind=RESOURCE_BROKER)
        assert not is_open(other)


def test_what_does_nothing_is_kept_and_told_of_once(node: NodeProcess) -> None:
    def told() -> list[str]:
        return [line for line in node.log.splitlines() if "do nothing here" in line]

    with WireClient(node.port) as client:
        client.create_topic("idle")
        change(client, "", {"num.io.threads": set_to("16")}, kind=RESOURCE_BROKER)
        change(client, "1", {"num.io.threads": set_to("4")}, kind=RESOURCE_BROKER)
        change(client, "idle", {"file.delete.delay.ms": set_to("5")})
        assert described(client, "1", kind=RESOURCE_BROKER)["num.io.threads"].value == "4"
        assert described(client, "idle")["file.delete.delay.ms"].value == "5"
        assert ["num.io.threads" in line for line in told()] == [True, False]
    node.kill()
    node.restart()
    assert len(told()) == 4, "and once more by the next process"
    with WireClient(node.port) as client:
        assert described(client, "1", kind=RESOURCE_BROKER)["num.io.threads"].value == "4"


def test_what_is_not_served_is_refused_and_described_without_secrets(client: WireClient, start_node: StartNode) -> None:
    with WireClient(start_node(is_open=True).port) as operator:
        for key in ("rsm.config.s3.secret", "listener.name.outside.sasl.jaas.config"):
            row = alter(operator, "1", {key: set_to("hunter2")}, kind=RESOURCE_BROKER)
            assert row.error_code == Code.INVALID_REQUEST
            assert (row.error_message or "").startswith(f"{key}: the value is not allowed")
            assert "hunter2" not in (row.error_message or "")
    client.create_topic("tiered")
    assert alter(client, "tiered", {"remote.storage.enable": set_to("true")}).error_code == Code.INVALID_CONFIG
    rows = described(client, "1", kind=RESOURCE_BROKER)
    secret = rows["ssl.keystore.password"]
    assert (secret.config_type, secret.value, secret.is_sensitive) == (ConfigType.PASSWORD, None, True)
    assert rows["metric.reporters"].config_type == ConfigType.LIST
    assert rows["principal.builder.class"].config_type == ConfigType.CLASS
    assert rows["authorizer.class.name"].config_type == ConfigType.STRING
    assert "OpenSSL does it" in (rows["ssl.cipher.suites"].documentation or "")

"""Quotas of clients over the wire: set, described by filters, and taken back."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from support.clients.wire_client import WireClient
from support.nodes.cli import rows, tidelog
from support.nodes.node import NodeProcess
from tidelog import Admin
from tidelog.base.errors import Code, KafkaError
from tidelog.client.admin.quota_descriptions import ClientQuotaEntity, QuotaName
from tidelog.wire import ApiKey
from tidelog.wire.messages.api_48_describe_client_quotas import (
    MATCH_ANY,
    MATCH_DEFAULT,
    MATCH_EXACT,
    ComponentData,
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
)
from tidelog.wire.messages.api_49_alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    OpData,
    QuotaEntityData,
    QuotaEntryData,
)

Parts = tuple[tuple[str, str | None], ...]
RATE = "producer_byte_rate"
CREATION = "connection_creation_rate"


@pytest.fixture
def client(node: NodeProcess) -> Iterator[WireClient]:
    with WireClient(node.port) as client:
        yield client


def entry(parts: Parts, **changes: float | None) -> QuotaEntryData:
    ops = [OpData(key, value or 0.0, value is None) for key, value in changes.items()]
    return QuotaEntryData([QuotaEntityData(*part) for part in parts], ops)


def alter(client: WireClient, *entries: QuotaEntryData, validate_only: bool = False, version: int = 1) -> list[Code]:
    request = AlterClientQuotasRequest(entries=list(entries), validate_only=validate_only)
    answer = client.ask(ApiKey.ALTER_CLIENT_QUOTAS, version, request, AlterClientQuotasResponse)
    assert [row.entity for row in answer.entries] == [one.entity for one in entries]
    return [Code(row.error_code) for row in answer.entries]


def described(
    client: WireClient, *components: tuple[str, int, str | None], strict: bool = False, version: int = 1
) -> dict[Parts, dict[str, float]]:
    request = DescribeClientQuotasRequest(components=[ComponentData(*one) for one in components], strict=strict)
    answer = client.ask(ApiKey.DESCRIBE_CLIENT_QUOTAS, version, request, DescribeClientQuotasResponse)
    assert answer.error_code == 0
    return {
        tuple((part.entity_type, part.entity_name) for part in one.entity): {v.key: v.value for v in one.values}
        for one in answer.entries or ()
    }


ALICE: Parts = (("user", "alice"),)
USERS: Parts = (("user", None),)
BOTH: Parts = (("client-id", "app"), ("user", "alice"))
DEFAULT_CLIENT: Parts = (("client-id", None), ("user", "alice"))
IP: Parts = (("ip", "10.0.0.1"),)


@pytest.mark.parametrize("version", [0, 1])
def test_quotas_are_set_found_by_filters_and_taken_back(client: WireClient, version: int) -> None:
    entities = (ALICE, USERS, BOTH, DEFAULT_CLIENT)
    entries = [entry(parts, producer_byte_rate=float(n)) for n, parts in enumerate(entities, start=1)]
    entries.append(entry(IP, connection_creation_rate=5.0))
    assert alter(client, *entries, validate_only=True, version=version) == [Code.NONE] * 5
    assert described(client, version=version) == {}
    assert alter(client, *entries, version=version) == [Code.NONE] * 5
    assert described(client, version=version) == {
        **{parts: {RATE: float(n)} for n, parts in enumerate(entities, start=1)},
        IP: {CREATION: 5.0},
    }

    def found(*components: tuple[str, int, str | None], strict: bool = False) -> set[Parts]:
        return set(described(client, *components, strict=strict, version=version))

    assert found(("user", MATCH_EXACT, "alice")) == {ALICE, BOTH, DEFAULT_CLIENT}
    assert found(("user", MATCH_EXACT, "alice"), strict=True) == {ALICE}
    assert found(("user", MATCH_DEFAULT, None)) == {USERS}
    assert found(("user", MATCH_ANY, None), strict=True) == {ALICE, USERS}
    assert found(("user", MATCH_ANY, None), ("client-id", MATCH_DEFAULT, None)) == {DEFAULT_CLIENT}
    assert found(("client-id", MATCH_ANY, None)) == {BOTH, DEFAULT_CLIENT}
    assert found(("ip", MATCH_EXACT, "::ffff:10.0.0.1")) == {IP}
    assert found(strict=True) == set()
    gone = [entry(parts, producer_byte_rate=None) for parts in entities]
    assert alter(client, *gone, entry(IP, connection_creation_rate=None), version=version) == [Code.NONE] * 5
    assert described(client, version=version) == {}


@pytest.mark.parametrize(
    ("components", "code"),
    [
        ([("", MATCH_ANY, None)], Code.INVALID_REQUEST),
        ([("group", MATCH_ANY, None)], Code.UNSUPPORTED_VERSION),
        ([("user", MATCH_EXACT, None)], Code.INVALID_REQUEST),
        ([("user", MATCH_DEFAULT, "a")], Code.INVALID_REQUEST),
        ([("user", 3, None)], Code.INVALID_REQUEST),
        ([("user", MATCH_ANY, None)] * 2, Code.INVALID_REQUEST),
        ([("user", MATCH_ANY, None), ("ip", MATCH_ANY, None)], Code.INVALID_REQUEST),
    ],
)
def test_a_filter_that_cannot_be_is_refused(
    client: WireClient, components: list[tuple[str, int, str | None]], code: Code
) -> None:
    request = DescribeClientQuotasRequest(components=[ComponentData(*one) for one in components])
    answer = client.ask(ApiKey.DESCRIBE_CLIENT_QUOTAS, 1, request, DescribeClientQuotasResponse)
    assert (answer.error_code, answer.entries) == (code, None)


def test_of_thousands_one_that_stands_there_twice_is_refused(client: WireClient) -> None:
    entries = [entry((("user", f"user-{number}"),), producer_byte_rate=9.0) for number in range(1_000)]
    again = entry((("user", "user-3"),), consumer_byte_rate=9.0)
    codes = alter(client, *entries, again)
    assert [number for number, code in enumerate(codes) if code != Code.NONE] == [3, 1_000]
    assert {codes[3], codes[1_000]} == {Code.INVALID_REQUEST}
    assert len(described(client)) == 999
    alter(client, *(entry((("user", f"user-{number}"),), producer_byte_rate=None) for number in range(1_000)))
    assert described(client) == {}


def test_a_command_for_each(node: NodeProcess) -> None:
    def listed(*arguments: str) -> set[tuple[str | None, str | None, str | None, str, float]]:
        printed = rows(tidelog(node, "quotas", "list", *arguments, "-o", "json"))
        return {(row["user"], row["client_id"], row["ip"], row["quota"], row["value"]) for row in printed}

    tidelog(node, "quotas", "set", "--user", "alice", "producer_byte_rate=1024", "request_percentage=12.5")
    tidelog(node, "quotas", "set", "--default-user", "--client-id", "app", "consumer_byte_rate=2048")
    tidelog(node, "quotas", "set", "--default-ip", "connection_creation_rate=10")
    tidelog(node, "quotas", "set", "--dry-run", "--default-ip", "connection_creation_rate=99")
    alice = {
        ("alice", None, None, "producer_byte_rate", 1024.0),
        ("alice", None, None, "request_percentage", 12.5),
    }
    assert listed("--user", "alice") == alice
    app = ("<default>", "app", None, "consumer_byte_rate", 2048.0)
    assert listed("--client-id", "app") == {app}
    assert listed() == {*alice, app, (None, None, "<default>", "connection_creation_rate", 10.0)}
    tidelog(node, "quotas", "remove", "--user", "alice", "request_percentage")
    assert {key for *_, key, _ in listed("--user", "alice")} == {"producer_byte_rate"}
    assert tidelog(node, "quotas", "remove", "--user", "alice") == "user 'alice' has no quotas any more\n"
    for whom in (["--default-user", "--client-id", "app"], ["--default-ip"]):
        tidelog(node, "quotas", "remove", *whom)
    assert listed() == set()
    assert "has no quotas" in tidelog(node, "quotas", "remove", "--user", "alice", status=2)
    unknown = tidelog(node, "quotas", "set", "--user", "alice", "producer_byte_rat=1", status=1)
    assert unknown.startswith("error: user 'alice' has no quota 'producer_byte_rat': there are ")
    assert "say for whom" in tidelog(node, "quotas", "set", "producer_byte_rate=1", status=2)
    assert "must be a whole number" in tidelog(
        node, "quotas", "set", "--user", "alice", "producer_byte_rate=1.5", status=1
    )


def test_a_client_tells_and_changes(node: NodeProcess) -> None:
    with Admin(node.bootstrap) as admin:
        one = ClientQuotaEntity(user="alice", client_id=QuotaName.DEFAULT)
        other = ClientQuotaEntity(ip="10.0.0.1")
        admin.alter_client_quotas({one: {RATE: 5.0}, other: {CREATION: 2.0}})
        assert admin.describe_client_quotas() == {one: {RATE: 5.0}, other: {CREATION: 2.0}}
        assert admin.describe_client_quotas(ClientQuotaEntity(user=QuotaName.ANY)) == {one: {RATE: 5.0}}
        assert admin.describe_client_quotas(ClientQuotaEntity(user=QuotaName.ANY), strict=True) == {}
        with pytest.raises(KafkaError, match=r"the default client-id.*above 0") as caught:
            admin.alter_client_quotas({one: {RATE: -1.0}, other: {CREATION: None}})
        assert caught.value.code == Code.INVALID_REQUEST
        assert list(admin.describe_client_quotas()) == [one]
        with pytest.raises(ValueError, match="for one name"):
            admin.alter_client_quotas({ClientQuotaEntity(user=QuotaName.ANY): {RATE: 1.0}})
        admin.alter_client_quotas({one: {RATE: None}})

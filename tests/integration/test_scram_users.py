"""SCRAM users over the wire: set, described and removed; kept over a kill, and not to be read from what is printed."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Iterator

import pytest

from support.clients.wire_client import WireClient
from support.nodes.cli import rows, tidelog
from support.nodes.node import NodeProcess
from tidelog.base.errors import Code
from tidelog.wire import ApiKey
from tidelog.wire.messages.api_50_describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    UserName,
)
from tidelog.wire.messages.api_51_alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)

SHA_256, SHA_512 = 1, 2
SALT = b"0123456789abcdef"


def upsertion(user: str, password: str, mechanism: int = SHA_256, iterations: int = 4096) -> ScramCredentialUpsertion:
    salted = hashlib.pbkdf2_hmac({1: "sha256", 2: "sha512"}[mechanism], password.encode(), SALT, iterations)
    return ScramCredentialUpsertion(user, mechanism, iterations, SALT, salted)


def alter(
    client: WireClient, *upsertions: ScramCredentialUpsertion, gone: tuple[tuple[str, int], ...] = ()
) -> dict[str, Code]:
    request = AlterUserScramCredentialsRequest(
        deletions=[ScramCredentialDeletion(*one) for one in gone], upsertions=list(upsertions)
    )
    answer = client.ask(ApiKey.ALTER_USER_SCRAM_CREDENTIALS, 0, request, AlterUserScramCredentialsResponse)
    rows = [(row.user, Code(row.error_code)) for row in answer.results]
    assert len(dict(rows)) == len(rows)
    return dict(rows)


def described(client: WireClient, *users: str) -> dict[str, tuple[Code, list[tuple[int, int]]]]:
    request = DescribeUserScramCredentialsRequest(users=[UserName(user) for user in users] or None)
    answer = client.ask(ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, 0, request, DescribeUserScramCredentialsResponse)
    assert answer.error_code == 0
    return {
        row.user: (Code(row.error_code), [(info.mechanism, info.iterations) for info in row.credential_infos])
        for row in answer.results
    }


@pytest.fixture
def client(node: NodeProcess) -> Iterator[WireClient]:
    with WireClient(node.port) as client:
        yield client


def test_users_come_change_and_go(client: WireClient) -> None:
    assert described(client) == {}
    assert alter(client, upsertion("bob", "b"), upsertion("alice", "a"), upsertion("alice", "a", SHA_512, 8192)) == {
        "bob": Code.NONE,
        "alice": Code.NONE,
    }
    assert described(client) == {
        "alice": (Code.NONE, [(SHA_256, 4096), (SHA_512, 8192)]),
        "bob": (Code.NONE, [(SHA_256, 4096)]),
    }
    assert alter(client, upsertion("bob", "x", iterations=5000), gone=(("alice", SHA_256), ("carol", SHA_256))) == {
        "alice": Code.NONE,
        "carol": Code.RESOURCE_NOT_FOUND,
        "bob": Code.NONE,
    }
    assert described(client, "alice", "carol", "bob", "dan", "dan") == {
        "alice": (Code.NONE, [(SHA_512, 8192)]),
        "carol": (Code.RESOURCE_NOT_FOUND, []),
        "bob": (Code.NONE, [(SHA_256, 5000)]),
        "dan": (Code.DUPLICATE_RESOURCE, []),
    }


def test_thousands_are_altered_and_one_that_is_named_in_both_lists_is_refused(client: WireClient) -> None:
    one = upsertion("", "same")
    names = [f"user-{number}" for number in range(2_000)]
    many = [ScramCredentialUpsertion(name, SHA_256, 4096, one.salt, one.salted_password) for name in names]
    alter(client, many[-1])
    altered = alter(client, *many, gone=((names[-1], SHA_256),))
    assert altered.pop(names[-1]) == Code.DUPLICATE_RESOURCE
    assert altered == dict.fromkeys(names[:-1], Code.NONE)
    assert list(described(client)) == sorted(names)
    assert set(alter(client, gone=tuple((name, SHA_256) for name in names)).values()) == {Code.NONE}
    assert described(client) == {}


def test_users_outlast_a_kill_and_no_output_shows_what_is_kept_of_their_passwords(
    node: NodeProcess, client: WireClient
) -> None:
    sent = upsertion("alice", "pencil")
    alter(client, sent)
    client.close()
    node.kill()
    node.restart()
    with WireClient(node.port) as again:
        assert described(again) == {"alice": (Code.NONE, [(SHA_256, 4096)])}
    (segment,) = (node.data_dir / "node-1" / "__cluster_metadata-0").glob("*.log")
    dumped = tidelog(node, "log", "dump", str(segment), "--records", "-o", "json")
    assert "UserScramCredentialRecord(name='alice'" in dumped
    for secret in (SALT, sent.salted_password):
        forms = secret.hex(), base64.b64encode(secret).decode(), json.dumps(secret.decode(errors="replace"))[1:-1]
        assert not any(form in dumped for form in forms)
    assert all(row["value"] is None for row in rows(dumped) if "Scram" in row.get("metadata", ""))

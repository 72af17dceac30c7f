"""SCRAM users over the wire: set, described and removed; kept over a kill, and not to be read from what is printed."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Iterator

import pytest
from confluent_kafka.admin import AdminClient, ScramCredentialInfo, ScramMechanism
from confluent_kafka.admin import UserScramCredentialDeletion as UserScramCredentialDeletionOfLibrdkafka
from confluent_kafka.admin import UserScramCredentialUpsertion as UserScramCredentialUpsertionOfLibrdkafka

from support.clients.wire_client import WireClient
from support.nodes.cli import rows, tidelog
from support.nodes.node import NodeProcess
from tidelog import Admin
from tidelog.base.errors import Code, KafkaError
from tidelog.client.admin.user_descriptions import UserScramCredentialDeletion, UserScramCredentialUpsertion
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


def test_a_command_for_each(node: NodeProcess) -> None:
    def listed(*users: str) -> list[tuple[str, str, int]]:
        printed = rows(tidelog(node, "users", "list", *users, "-o", "json"))
        return [(row["user"], row["mechanism"], row["iterations"]) for row in printed]

    before = listed()
    both = ("--mechanism", "SCRAM-SHA-256", "--mechanism", "SCRAM-SHA-512")
    tidelog(node, "users", "add", "erin", *both, stdin="first\n")
    assert listed("erin") == [("erin", "SCRAM-SHA-256", 4096), ("erin", "SCRAM-SHA-512", 4096)]
    assert "has a password for SCRAM-SHA-512 already" in tidelog(
        node, "users", "add", "erin", "-m", "SCRAM-SHA-512", stdin="x\n", status=2
    )
    tidelog(node, "users", "password", "erin", "--iterations", "8192", "--password-file", "-", stdin="second\n")
    assert {count for _, _, count in listed("erin")} == {8192}
    tidelog(node, "users", "remove", "erin", "-m", "SCRAM-SHA-512")
    assert listed("erin") == [("erin", "SCRAM-SHA-256", 8192)]
    tidelog(node, "users", "remove", "erin")
    assert listed() == before
    assert "'erin' has no password" in tidelog(node, "users", "password", "erin", stdin="x\n", status=2)
    assert "'erin' has no SCRAM credential" in tidelog(node, "users", "list", "erin", status=1)


def test_a_client_tells_and_changes(node: NodeProcess) -> None:
    with Admin(node.bootstrap) as admin:
        given = UserScramCredentialUpsertion("frank", "secret", "SCRAM-SHA-512", 5000)
        assert "secret" not in repr(given)
        admin.alter_user_scram_credentials([given])
        assert admin.describe_user_scram_credentials(["frank"]) == {"frank": {"SCRAM-SHA-512": 5000}}
        too_few = UserScramCredentialUpsertion("grace", "secret", iterations=5)
        gone = UserScramCredentialDeletion("frank", "SCRAM-SHA-512")
        with pytest.raises(KafkaError, match="user 'grace': 5 iterations") as caught:
            admin.alter_user_scram_credentials([too_few, gone])
        assert caught.value.code == Code.UNACCEPTABLE_CREDENTIAL
        with pytest.raises(KafkaError, match="RESOURCE_NOT_FOUND"):
            admin.describe_user_scram_credentials(["frank"])
        with pytest.raises(ValueError, match="no mechanism of SCRAM"):
            admin.alter_user_scram_credentials([UserScramCredentialDeletion("a", "PLAIN")])  # type: ignore[arg-type]


def test_librdkafka_sets_and_removes_users(node: NodeProcess) -> None:
    admin = AdminClient({"bootstrap.servers": node.bootstrap})
    info = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 10_000)
    for future in admin.alter_user_scram_credentials(
        [UserScramCredentialUpsertionOfLibrdkafka("heidi", info, b"secret", b"a salt")]
    ).values():
        future.result(10)
    asked = admin.describe_user_scram_credentials(["heidi"])
    assert isinstance(asked, dict)
    found = asked["heidi"].result(10)
    assert [one.iterations for one in found.scram_credential_infos] == [10_000]
    gone = admin.alter_user_scram_credentials(
        [UserScramCredentialDeletionOfLibrdkafka("heidi", ScramMechanism.SCRAM_SHA_256)]
    )
    gone["heidi"].result(10)

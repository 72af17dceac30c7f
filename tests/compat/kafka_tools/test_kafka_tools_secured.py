"""Kafka's tools on a listener with SASL_SSL and an authorizer: they say the same of a node and of Apache Kafka."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from support.clients.kafka_tools import KafkaTools
from support.clients.secured_kafka import PASSWORD, SecuredKafka
from support.fixtures.certificates import missing_openssl
from support.fixtures.waiting import wait_until
from support.nodes.secured_cluster import Login, SecuredCluster, properties_of
from tidelog.base.authorizers import STANDARD_AUTHORIZER
from tidelog.cli.properties import format_properties

EXITED = ("the tool has ended", "ToolRunner$")


class Place(NamedTuple):
    """A broker that Kafka's tools are run at.

    Attributes:
        bootstrap: of a listener with SASL_SSL.
        authority: whom to trust.
        admin: who may do everything.
        home: for files.
    """

    bootstrap: str
    authority: Path
    admin: Login
    home: Path


@pytest.fixture(scope="module")
def a_node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    pytest.importorskip("cryptography", reason="cryptography is not installed: pip install 'tidelog[security]'")
    home = tmp_path_factory.mktemp("node")
    secured = SecuredCluster(home, 1, config={"offsets.topic.num.partitions": "1"})
    try:
        secured.start()
        yield Place(secured.bootstrap(), secured.authority, secured.admin, home)
        secured.cluster.check_logs()
    finally:
        secured.close()


@pytest.fixture(scope="module")
def apache_kafka(needs_kafka: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    if (reason := missing_openssl()) is not None:
        pytest.skip(reason)
    home = tmp_path_factory.mktemp("kafka")
    secured = SecuredKafka(home)
    # Its nodes are nobody, on the listeners without a login.
    secured.peer.config |= {
        "authorizer.class.name": STANDARD_AUTHORIZER,
        "super.users": "User:ANONYMOUS;User:alice",
    }
    try:
        secured.peer.start()
        admin = Login("PLAIN", "alice", PASSWORD)
        yield Place(secured.bootstrap("SASL_SSL"), secured.authority.certificate, admin, home)
    finally:
        secured.peer.close()


@pytest.fixture(params=["a_node", pytest.param("apache_kafka", marks=pytest.mark.slow)])
def place(needs_kafka: None, request: pytest.FixtureRequest) -> Place:
    found: Place = request.getfixturevalue(request.param)
    return found


Tool = Callable[..., list[str]]
"""`tool(name, *arguments)` is what a tool says, line by line; `login` runs it, and `status` is its exit status."""


@pytest.fixture
def tool(tools: KafkaTools, place: Place) -> Tool:
    def run(name: str, *arguments: str, login: Login = place.admin, status: int = 0) -> list[str]:
        file = place.home / f"{login.username}.properties"
        file.write_text(format_properties(properties_of(login, place.authority)))
        at = ("--bootstrap-server", place.bootstrap, "--command-config", str(file))
        ran = tools.run(name, *at, *arguments, status=status)
        lines = f"{ran.output}\n{ran.errors}".splitlines()
        # A tool that ends the JVM, which others share, is ended by an exception.
        return [line.rstrip() for line in lines if line.strip() and not line.startswith((*EXITED, "\tat "))]

    return run


def rules(said: list[str]) -> list[str]:
    """The access rules and what they are about, as `kafka-acls` prints them, in an order of their own."""
    return sorted(line.strip() for line in said if "principal=" in line or "ResourcePattern(" in line)


def rule(operation: str) -> str:
    return f"(principal=User:bob, host=*, operation={operation}, permissionType=ALLOW)"


def about(kind: str, name: str, pattern: str) -> str:
    return f"ResourcePattern(resourceType={kind}, name={name}, patternType={pattern})"


def test_rules(tool: Tool) -> None:
    prefixed = ("--topic", "team-", "--resource-pattern-type", "prefixed")
    bob = ("--allow-principal", "User:bob")
    said = tool("kafka-acls", "--add", *bob, "--producer", *prefixed)
    assert f"Adding ACLs for resource `{about('TOPIC', 'team-', 'PREFIXED')}`:" in said
    tool("kafka-acls", "--add", *bob, "--operation", "Read", "--topic", "team-blue")
    tool("kafka-acls", "--add", "--deny-principal", "User:carol", "--operation", "All", "--group", "*")

    found = rules(tool("kafka-acls", "--list", "--topic", "team-blue"))
    assert found == [rule("READ"), f"Current ACLs for resource `{about('TOPIC', 'team-blue', 'LITERAL')}`:"]
    found = rules(tool("kafka-acls", "--list", "--topic", "team-blue", "--resource-pattern-type", "match"))
    assert found == [
        *(rule(operation) for operation in ("CREATE", "DESCRIBE", "READ", "WRITE")),
        f"Current ACLs for resource `{about('TOPIC', 'team-', 'PREFIXED')}`:",
        f"Current ACLs for resource `{about('TOPIC', 'team-blue', 'LITERAL')}`:",
    ]
    carol = "(principal=User:carol, host=*, operation=ALL, permissionType=DENY)"
    assert rules(tool("kafka-acls", "--list", "--principal", "User:carol"))[0] == carol

    tool("kafka-acls", "--remove", "--force", *bob, "--operation", "Write", *prefixed)
    found = rules(tool("kafka-acls", "--list", *prefixed))
    assert found[:-1] == [rule("CREATE"), rule("DESCRIBE")]
    for about_what in (prefixed, ("--topic", "team-blue"), ("--group", "*")):
        tool("kafka-acls", "--remove", "--force", *about_what)
        assert rules(tool("kafka-acls", "--list", *about_what)) == []


def test_users_and_quotas(tool: Tool) -> None:
    def configs(*arguments: str) -> list[str]:
        return tool("kafka-configs", *arguments)

    dora = ("--entity-type", "users", "--entity-name", "dora")
    assert configs("--alter", "--add-config", "SCRAM-SHA-512=[iterations=8192,password=secret]", *dora) == [
        "Completed updating config for user dora."
    ]
    assert configs("--describe", *dora) == [
        "SCRAM credential configs for user-principal 'dora' are SCRAM-SHA-512=iterations=8192"
    ]
    configs("--alter", "--add-config", "producer_byte_rate=1024,request_percentage=12.5", *dora)
    assert "Quota configs for user-principal 'dora' are " in configs("--describe", *dora)[0]
    configs("--alter", "--delete-config", "producer_byte_rate", *dora)
    assert configs("--describe", *dora) == [
        "Quota configs for user-principal 'dora' are request_percentage=12.5",
        "SCRAM credential configs for user-principal 'dora' are SCRAM-SHA-512=iterations=8192",
    ]
    for key in ("SCRAM-SHA-512", "request_percentage"):
        configs("--alter", "--delete-config", key, *dora)
    assert configs("--describe", *dora) == []

    app = ("--entity-type", "clients", "--entity-name", "app")
    configs("--alter", "--add-config", "consumer_byte_rate=2048", *app)
    assert configs("--describe", *app) == ["Quota configs for client-id 'app' are consumer_byte_rate=2048.0"]
    address = ("--entity-type", "ips", "--entity-name", "10.0.0.1")
    configs("--alter", "--add-config", "connection_creation_rate=7", *address)
    assert configs("--describe", *address) == ["Quota configs for ip '10.0.0.1' are connection_creation_rate=7.0"]


def columns(said: list[str]) -> list[list[str]]:
    """A table that a tool prints, row by row."""
    return [line.split() for line in said]


def test_delegation_tokens(tool: Tool, place: Place) -> None:
    def tokens(*arguments: str, status: int = 0) -> list[str]:
        return tool("kafka-delegation-tokens", *arguments, status=status)

    owner = f"User:{place.admin.username}"
    created = tokens("--create", "--max-life-time-period", "-1", "--renewer-principal", "User:bob")
    assert re.fullmatch(r"Created delegation token with tokenId : [\w-]{22}", created[1]), created
    names, row = columns(created)[-2:]
    assert names == ["TOKENID", "HMAC", "OWNER", "REQUESTER", "RENEWERS", "ISSUEDATE", "EXPIRYDATE", "MAXDATE"]
    token_id, hmac = row[:2]
    assert row[2:5] == [owner, owner, "[User:bob]"]
    describe = ("--describe", "--owner-principal", owner)
    wait_until(lambda: columns(tokens(*describe))[-1] == row, "the broker knows the token")

    renewed = tokens("--renew", "--renew-time-period", "3600000", "--hmac", hmac)
    assert any(line.startswith("Completed renew operation. New expiry date : ") for line in renewed), renewed
    token = Login("SCRAM-SHA-256", token_id, hmac, tokenauth=True)
    assert tool("kafka-topics", "--list", login=token) == tool("kafka-topics", "--list")
    expired = tokens("--expire", "--expiry-time-period", "-1", "--hmac", hmac)
    assert any(line.startswith("Completed expire operation. New expiry date : ") for line in expired), expired
    assert "DelegationTokenNotFoundException" in "".join(
        tokens("--renew", "--renew-time-period", "-1", "--hmac", hmac, status=1)
    )


def test_topics_and_groups(tool: Tool) -> None:
    one = ("--topic", "tools")
    assert tool("kafka-topics", "--create", *one, "--partitions", "2") == ["Created topic tools."]
    assert re.search(r"Topic: tools\s+TopicId: \S+\s+PartitionCount: 2", tool("kafka-topics", "--describe", *one)[0])
    group = ("--group", "readers")
    reset = tool("kafka-consumer-groups", "--reset-offsets", "--to-earliest", "--execute", *group, *one)
    assert columns(reset)[1:] == [["readers", "tools", "0", "0"], ["readers", "tools", "1", "0"]]
    described = columns(tool("kafka-consumer-groups", "--describe", "--offsets", *group))
    rows = sorted(row for row in described if row[:2] == ["readers", "tools"])
    assert rows == [["readers", "tools", partition, "0", "0", "0", "-", "-", "-"] for partition in "01"]
    assert tool("kafka-consumer-groups", "--list") == ["readers"]
    assert tool("kafka-consumer-groups", "--delete", *group) == [
        "Deletion of requested consumer groups ('readers') was successful."
    ]
    assert tool("kafka-topics", "--delete", *one) == []


@pytest.fixture
def bob(tool: Tool) -> Login:
    """Who has a password, and no rights."""
    who = ("--entity-type", "users", "--entity-name", "bob")
    tool("kafka-configs", "--alter", "--add-config", "SCRAM-SHA-256=[password=secret]", *who)
    return Login("SCRAM-SHA-256", "bob", "secret")


REFUSED: list[tuple[str, int, tuple[str, ...]]] = [
    ("TopicAuthorizationException", 1, ("kafka-topics", "--create", "--topic", "of-bob")),
    ("ClusterAuthorizationException", 1, ("kafka-acls", "--list")),
    ("ClusterAuthorizationException", 1, ("kafka-configs", "--describe", "--entity-type", "clients")),
    ("GroupAuthorizationException", 0, ("kafka-consumer-groups", "--describe", "--group", "of-others")),
]


def test_what_is_denied_is_said(tool: Tool, bob: Login) -> None:
    for error, status, (name, *arguments) in REFUSED:
        said = tool(name, *arguments, login=bob, status=status)
        assert error in "".join(said), (name, said)
    wrong = Login("SCRAM-SHA-256", "bob", "not his")
    assert "SaslAuthenticationException" in "".join(tool("kafka-topics", "--list", login=wrong, status=1))

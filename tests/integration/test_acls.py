"""Access rules are made, told of and taken back over the wire: by our admin client and our commands."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.nodes.forked_command import run_command
from support.nodes.server_process import ServerProcess
from tidelog import AclBinding, AclBindingFilter, Admin, Code, KafkaError
from tidelog.base.authorizers import STANDARD_AUTHORIZER
from tidelog.cli.ports import free_ports

READ_ORDERS = AclBinding("topic", "orders", "User:alice", "read")
DENY_ALL = AclBinding("topic", "*", "User:mallory", "all", "deny")
TEAM = AclBinding("topic", "ord", "User:bob", "describe", host="10.0.0.1", pattern_type="prefixed")
OF_CLUSTER = AclBinding("cluster", "kafka-cluster", "User:alice", "idempotent_write")


@pytest.fixture
def node(tmp_path: Path) -> Iterator[ServerProcess]:
    node = ServerProcess(tmp_path, tmp_path / "data")
    node.settings |= {"authorizer.class.name": STANDARD_AUTHORIZER, "super.users": "User:ANONYMOUS"}
    node.start()
    yield node
    node.close()


def test_rules_come_and_go(node: ServerProcess) -> None:
    with Admin(node.bootstrap) as admin:
        assert admin.describe_acls() == []
        admin.create_acls([READ_ORDERS, DENY_ALL, TEAM, OF_CLUSTER, READ_ORDERS])
        admin.create_acls([READ_ORDERS])
        everything = sorted([READ_ORDERS, DENY_ALL, TEAM, OF_CLUSTER])
        assert admin.describe_acls() == everything
        assert admin.describe_acls(AclBindingFilter("topic", "orders")) == [READ_ORDERS]
        about = admin.describe_acls(AclBindingFilter("topic", "orders", pattern_type="match"))
        assert about == sorted([READ_ORDERS, DENY_ALL, TEAM])
        assert admin.describe_acls(AclBindingFilter(principal="User:alice")) == sorted([OF_CLUSTER, READ_ORDERS])
        assert admin.describe_acls(AclBindingFilter(permission="deny")) == [DENY_ALL]
    node.end()
    node.start()
    with Admin(node.bootstrap) as admin:
        assert admin.describe_acls() == everything
        gone = admin.delete_acls([AclBindingFilter(operation="read"), AclBindingFilter(principal="User:alice")])
        assert gone == sorted([OF_CLUSTER, READ_ORDERS])
        assert admin.describe_acls() == sorted([DENY_ALL, TEAM])
        assert admin.delete_acls([AclBindingFilter(operation="read")]) == []


def test_a_listener_that_opens_early_goes_by_the_rules(node: ServerProcess) -> None:
    """It serves like the other one, once the node is there."""
    (port,) = free_ports("127.0.0.1", [None])
    node.settings["listeners"] += f",ADMIN://127.0.0.1:{port}"
    node.settings["listener.security.protocol.map"] = "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,ADMIN:PLAINTEXT"
    node.settings["early.start.listeners"] = "CONTROLLER,ADMIN"
    node.end()
    node.start()
    for bootstrap in (node.bootstrap, f"127.0.0.1:{port}"):
        with Admin(bootstrap) as admin:
            admin.create_acls([READ_ORDERS])
            assert admin.describe_acls() == [READ_ORDERS]


@pytest.mark.parametrize(
    ("wrong", "code", "says"),
    [
        (AclBinding("topic", "", "User:a", "read"), Code.INVALID_REQUEST, "the name of the resource is empty"),
        (AclBinding("topic", "a", "alice", "read"), Code.INVALID_PRINCIPAL_TYPE, "the form is TYPE:NAME"),
        (AclBinding("cluster", "us", "User:a", "alter"), Code.INVALID_REQUEST, "is kafka-cluster, and not 'us'"),
        (AclBinding("group", "g", "User:a", "write"), Code.INVALID_REQUEST, "WRITE is nothing that is done to a GROUP"),
        (AclBinding("topic", "a", "User:a", "read", host=""), Code.INVALID_REQUEST, "the host is empty"),
    ],
)
def test_what_can_be_no_rule_is_refused_and_the_others_are_made(
    node: ServerProcess, wrong: AclBinding, code: Code, says: str
) -> None:
    with Admin(node.bootstrap) as admin:
        with pytest.raises(KafkaError, match=says) as error:
            admin.create_acls([wrong, READ_ORDERS])
        assert error.value.code == code
        assert admin.describe_acls() == [READ_ORDERS]


def test_thousands_of_rules_at_once(node: ServerProcess) -> None:
    many = [AclBinding("topic", f"t{number:04}", "User:alice", "read") for number in range(1_000)]
    with Admin(node.bootstrap) as admin:
        admin.create_acls(many)
        assert admin.describe_acls() == many
        assert admin.delete_acls([AclBindingFilter("topic")]) == many
        assert admin.describe_acls() == []


def test_without_an_authorizer_there_are_no_rules(tmp_path: Path) -> None:
    node = ServerProcess(tmp_path, tmp_path / "data")
    node.start()
    try:
        with Admin(node.bootstrap) as admin:
            for ask in (
                admin.describe_acls,
                lambda: admin.create_acls([READ_ORDERS]),
                lambda: admin.delete_acls([AclBindingFilter()]),
            ):
                with pytest.raises(KafkaError, match=r"set authorizer\.class\.name") as error:
                    ask()
                assert error.value.code == Code.SECURITY_DISABLED
            with pytest.raises(KafkaError, match="access rule: allow User:alice read topic 'orders': there is no"):
                admin.create_acls([READ_ORDERS])
    finally:
        node.close()


def test_commands(node: ServerProcess) -> None:
    def run(*command: str, expects: int = 0) -> str:
        ran = run_command(["acls", *command, "--bootstrap", node.bootstrap], timeout=60)
        assert ran.returncode == expects, ran.stderr
        return ran.stdout if not expects else ran.stderr

    allow = ["allow", "--principal", "User:alice"]
    run(*allow, "--producer", "--topic", "orders")
    run(*allow, "--consumer", "--topic", "orders", "--group", "billing")
    run("deny", "--principal", "User:*", "--operation", "all", "--topic", "secret-", "--prefixed")
    listed = [json.loads(line) for line in run("list", "--output", "json").splitlines()]
    assert {(row["resource"], row["name"], row["operation"], row["permission"]) for row in listed} == {
        ("topic", "orders", "write", "allow"),
        ("topic", "orders", "describe", "allow"),
        ("topic", "orders", "create", "allow"),
        ("topic", "orders", "read", "allow"),
        ("group", "billing", "read", "allow"),
        ("topic", "secret-", "all", "deny"),
    }
    assert "secret-" in run("list", "--topic", "secret-plans", "--match")
    assert run("list", "--topic", "secret-plans") == "no access rule matches\n"
    assert "access rule: allow alice write topic 'orders': 'alice' is no principal" in run(
        "allow", "--principal", "alice", "--operation", "write", "--topic", "orders", expects=1
    )
    assert "which rules are to go?" in run("remove", "--principal", "User:alice", expects=2)
    assert "a producer does nothing with it" in run(*allow, "--producer", "--group", "g", expects=2)
    assert "--principal is missing" in run("deny", "--operation", "all", "--topic", "a", expects=2)
    assert "what with them by --producer, --consumer or --operation" in run(*allow, "--topic", "a", expects=2)
    of_alice = ["remove", "--principal", "User:alice", "--all"]
    removed = [json.loads(line) for line in run(*of_alice, "--output", "json").splitlines()]
    assert len(removed) == 5
    assert all(row == {**row, "principal": "User:alice", "removed": True} for row in removed)
    assert run(*of_alice) == "no access rule matched\n"
    assert len(run("list", "--output", "json").splitlines()) == 1

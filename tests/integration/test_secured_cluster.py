"""Three nodes whose clients log in, by password or by token, and may do what rules say: at every node alike."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest

from support.fixtures.waiting import wait_until
from support.nodes.server_process import ServerProcess
from tidelog import (
    AclBinding,
    AclBindingFilter,
    Admin,
    Code,
    Consumer,
    KafkaError,
    NewTopic,
    Producer,
    SaslAuthenticationError,
)
from tidelog.base.authorizers import STANDARD_AUTHORIZER
from tidelog.base.ids import BrokerId, ClusterId
from tidelog.cli.node_directories import format_directory
from tidelog.cli.ports import free_ports
from tidelog.client.admin.user_descriptions import UserScramCredentialUpsertion

HOST = "127.0.0.1"
MODULE = "org.apache.kafka.common.security"
NODES = f'{MODULE}.plain.PlainLoginModule required username="node" password="of nodes" user_node="of nodes";'
CLIENTS = f'{MODULE}.plain.PlainLoginModule required user_admin="of admin";'
SECRET_KEY = "the same at all nodes"


def login(user: str, mechanism: str = "SCRAM-SHA-256", password: str | None = None) -> dict[str, Any]:
    return {
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": mechanism,
        "sasl_username": user,
        "sasl_password": password or f"of {user}",
    }


ADMIN = login("admin", "PLAIN")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[ServerProcess]]:
    """Users alice and bob; topic t."""
    home: Path = tmp_path_factory.mktemp("cluster")
    ports = free_ports(HOST, [None] * 9)
    voters = ",".join(f"{number}@{HOST}:{ports[number - 1]}" for number in (1, 2, 3))
    nodes = []
    for number in (1, 2, 3):
        (home / f"n{number}").mkdir()
        directory = home / f"n{number}" / "data"
        format_directory(str(directory), BrokerId(number), ClusterId("AAAAAAAAAAAAAAAAAAAAAQ"))
        node = ServerProcess(home / f"n{number}", directory, node_id=number)
        clients, between = ports[2 + number], ports[5 + number]
        node.settings |= {
            "listeners": f"CLIENTS://{HOST}:{clients},NODES://{HOST}:{between},CONTROLLER://{HOST}:{ports[number - 1]}",
            "listener.security.protocol.map": "CLIENTS:SASL_PLAINTEXT,NODES:SASL_PLAINTEXT,CONTROLLER:SASL_PLAINTEXT",
            "inter.broker.listener.name": "NODES",
            "controller.quorum.voters": voters,
            "sasl.mechanism.inter.broker.protocol": "PLAIN",
            "sasl.mechanism.controller.protocol": "PLAIN",
            "listener.name.nodes.sasl.enabled.mechanisms": "PLAIN",
            "listener.name.controller.sasl.enabled.mechanisms": "PLAIN",
            "listener.name.clients.sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
            "listener.name.nodes.plain.sasl.jaas.config": NODES,
            "listener.name.controller.plain.sasl.jaas.config": NODES,
            "listener.name.clients.plain.sasl.jaas.config": CLIENTS,
            "authorizer.class.name": STANDARD_AUTHORIZER,
            "super.users": "User:node;User:admin",
            "delegation.token.secret.key": SECRET_KEY,
            "default.replication.factor": "3",
            "min.insync.replicas": "2",
            "group.initial.rebalance.delay.ms": "0",
        }
        nodes.append(node)
    try:
        for node in nodes:
            node.start_soon()
        for node in nodes:
            node.wait_until_serving()
        with Admin(nodes[0].bootstrap, **ADMIN) as admin:
            admin.create_topics([NewTopic("t", 2, 3)])
            admin.alter_user_scram_credentials(
                [UserScramCredentialUpsertion(user, f"of {user}") for user in ("alice", "bob")]
            )
        yield nodes
    finally:
        for node in nodes:
            node.close()


def test_a_user_may_do_what_a_rule_says_at_whichever_node(cluster: list[ServerProcess]) -> None:
    with Admin(cluster[0].bootstrap, **ADMIN) as admin:
        admin.create_acls(
            [
                AclBinding("topic", "t", "User:alice", "write"),
                AclBinding("topic", "t", "User:bob", "read"),
                AclBinding("group", "g", "User:bob", "read"),
            ]
        )
    for node in cluster:
        wait_until(partial(_writes, node, "alice"), "alice may write")
        with Consumer(node.bootstrap, group_id="g", auto_offset_reset="earliest", **login("bob")) as consumer:
            consumer.subscribe(["t"])
            assert next(iter(consumer)).value == b"x"
            consumer.commit()
        assert _may_not_write(node, "bob")


def _code_of(work: Callable[[], object]) -> Code:
    try:
        work()
    except KafkaError as error:
        return error.code
    return Code.NONE


def _write(node: ServerProcess, user: str) -> None:
    with Producer(node.bootstrap, **login(user)) as producer:
        producer.send("t", b"x").result(timeout=60)


def _writes(node: ServerProcess, user: str) -> bool:
    return _code_of(partial(_write, node, user)) == Code.NONE


def _may_not_write(node: ServerProcess, user: str) -> bool:
    """It is told so for the topic, or for the producer id, where there is no topic that the user may write to."""
    denied = (Code.TOPIC_AUTHORIZATION_FAILED, Code.CLUSTER_AUTHORIZATION_FAILED)
    return _code_of(partial(_write, node, user)) in denied


def test_what_is_asked_of_another_node_is_asked_as_the_client(cluster: list[ServerProcess]) -> None:
    """Any broker takes it; the controller decides by the client's rights."""
    for node in cluster:
        with Admin(node.bootstrap, **login("alice")) as admin:
            with pytest.raises(KafkaError) as error:
                admin.create_topics([NewTopic("of-alice", 1, 3)])
            assert error.value.code == Code.TOPIC_AUTHORIZATION_FAILED
            with pytest.raises(KafkaError) as error:
                admin.create_acls([AclBinding("topic", "t", "User:alice", "all")])
            assert error.value.code == Code.CLUSTER_AUTHORIZATION_FAILED
            assert [one.name for one in admin.list_topics()] == ["t"]
    with Admin(cluster[0].bootstrap, **ADMIN) as admin:
        admin.create_acls([AclBinding("topic", "of-alice", "User:alice", "create", pattern_type="prefixed")])
    for number, node in enumerate(cluster):
        with Admin(node.bootstrap, **login("alice")) as admin:
            wait_until(partial(_creates, admin, f"of-alice-{number}"), "alice may create")


def _creates(admin: Admin, name: str) -> bool:
    return _code_of(lambda: admin.create_topics([NewTopic(name, 1, 3)])) == Code.NONE


def test_a_job_logs_in_by_a_token_and_is_its_owner(cluster: list[ServerProcess]) -> None:
    with Admin(cluster[1].bootstrap, **login("alice")) as admin:
        token = admin.create_delegation_token()
    by_token = login(token.token_id, "SCRAM-SHA-512", b64encode(token.hmac).decode()) | {"sasl_tokenauth": True}
    with Admin(cluster[0].bootstrap, **ADMIN) as admin:
        admin.create_acls([AclBinding("topic", "t", "User:alice", "write")])
    for node in cluster:
        with Producer(node.bootstrap, **by_token) as producer:
            producer.send("t", b"by token").result(timeout=60)
        with Admin(node.bootstrap, **by_token) as admin:
            with pytest.raises(KafkaError) as error:
                admin.create_delegation_token()
            assert error.value.code == Code.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED


def test_who_is_not_known_is_let_in_nowhere(cluster: list[ServerProcess]) -> None:
    for node in cluster:
        for who in (login("alice", password="wrong"), login("mallory"), login("node", "PLAIN", "of nodes")):
            with pytest.raises(SaslAuthenticationError), Admin(node.bootstrap, **who) as admin:
                admin.list_topics()


def test_a_rule_that_goes_ends_what_it_allowed(cluster: list[ServerProcess]) -> None:
    with Admin(cluster[0].bootstrap, **ADMIN) as admin:
        admin.create_acls([AclBinding("topic", "t", "User:alice", "write")])
        for node in cluster:
            wait_until(partial(_writes, node, "alice"), "alice may write")
        admin.delete_acls([AclBindingFilter("topic", "t", "User:alice")])
    for node in cluster:
        wait_until(partial(_may_not_write, node, "alice"), "alice may not write")


def test_librdkafka_logs_in_by_scram(cluster: list[ServerProcess]) -> None:
    with Admin(cluster[0].bootstrap, **ADMIN) as admin:
        admin.create_acls([AclBinding("topic", "t", "User:bob", "read"), AclBinding("topic", "t", "User:bob", "write")])
    config: dict[str, str | int | float | bool] = {
        "bootstrap.servers": cluster[2].bootstrap,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "SCRAM-SHA-256",
        "sasl.username": "bob",
        "sasl.password": "of bob",
    }
    told: list[Any] = []
    producer = confluent_kafka.Producer(config | {"retries": 20})
    producer.produce("t", b"of librdkafka", on_delivery=lambda error, message: told.append(error))
    producer.flush(60)
    assert told == [None]

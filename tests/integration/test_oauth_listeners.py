"""A node whose clients show tokens of an authorization server."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from time import time
from typing import Any

import confluent_kafka
import pytest

from support.nodes.server_process import NodeFailedError, ServerProcess
from tidelog import (
    Admin,
    Consumer,
    KafkaError,
    NewTopic,
    Producer,
    SaslAuthenticationError,
    TopicPartition,
)

pytest.importorskip("joserfc")
from support.fixtures.json_web_tokens import Signer, unsigned

HOST = "127.0.0.1"
SIGNER = Signer("one")


@pytest.fixture
def node(tmp_path: Path) -> Iterator[ServerProcess]:
    node = ServerProcess(tmp_path, tmp_path / "data")
    keys = tmp_path / "keys.json"
    keys.write_bytes(SIGNER.key_set())
    node.settings |= {
        "listeners": f"CLIENTS://{HOST}:0,NODES://{HOST}:0,CONTROLLER://{HOST}:0",
        "listener.security.protocol.map": "CLIENTS:SASL_PLAINTEXT,NODES:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "inter.broker.listener.name": "NODES",
        "listener.name.clients.sasl.enabled.mechanisms": "OAUTHBEARER",
        "listener.name.clients.oauthbearer.sasl.server.callback.handler.class": (
            "org.apache.kafka.common.security.oauthbearer.OAuthBearerValidatorCallbackHandler"
        ),
        "sasl.oauthbearer.jwks.endpoint.url": keys.as_uri(),
        "sasl.oauthbearer.expected.audience": "tidelog",
        "sasl.oauthbearer.clock.skew.seconds": "0",
        "sasl.oauthbearer.jwks.endpoint.refresh.ms": "1",
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ANONYMOUS;User:alice",
    }
    node.start()
    yield node
    node.close()


def claims(user: str = "alice", **others: Any) -> dict[str, Any]:
    now = time()
    return {"sub": user, "iat": now, "exp": now + 3_600, "aud": "tidelog"} | others


def options(token: str) -> dict[str, Any]:
    return {
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": "OAUTHBEARER",
        "sasl_oauth_token_callback": lambda: (token, time() + 3_600),
    }


def test_who_shows_a_token_is_whom_it_names(node: ServerProcess) -> None:
    with Admin(node.bootstrap, **options(SIGNER.token(claims()))) as admin:
        admin.create_topics([NewTopic("flights", 1)])
        began = time()

        def renewed(_config: str) -> tuple[str, float]:
            expires = time() + 5
            return SIGNER.token(claims(exp=expires)), expires

        stock = confluent_kafka.Producer(
            {
                "bootstrap.servers": node.bootstrap,
                "security.protocol": "SASL_PLAINTEXT",
                "sasl.mechanisms": "OAUTHBEARER",
                "oauth_cb": renewed,
            }
        )
        sent = 0
        while time() - began < 6:  # beyond the end of the first token
            stock.produce("flights", b"a")
            assert stock.flush(30) == 0
            sent += 1
        with Consumer(node.bootstrap, auto_offset_reset="earliest", **options(SIGNER.token(claims()))) as consumer:
            consumer.assign([TopicPartition("flights", 0)])
            found: list[Any] = []
            while len(found) < sent and time() - began < 60:
                found.extend(consumer.poll(1_000))
            assert len(found) == sent
    denied = pytest.raises(KafkaError, match="flights")
    with Producer(node.bootstrap, **options(SIGNER.token(claims("bob")))) as producer, denied:
        producer.send("flights", b"b").result()


def test_tokens_that_are_not_good_let_nobody_in(node: ServerProcess, tmp_path: Path) -> None:
    stranger = Signer("two")
    bad = {
        "it expired": SIGNER.token(claims(exp=time() - 1)),
        "its algorithm is 'none'": unsigned(claims()),
        "its algorithm is 'HS256'": SIGNER.by_public_key(claims()),
        "names the key 'two'": stranger.token(claims()),
        "its signature is not good": Signer("one").token(claims()),
        "made for 'payroll'": SIGNER.token(claims(aud="payroll")),
    }
    for token in bad.values():
        with (
            pytest.raises(SaslAuthenticationError, match="invalid_token"),
            Admin(node.bootstrap, **options(token)) as one,
        ):
            one.list_topics()
    assert "the token is refused" in node.log
    (tmp_path / "keys.json").write_bytes(stranger.key_set())
    with Admin(node.bootstrap, **options(stranger.token(claims()))) as admin:
        assert admin.list_topics() == []
    with pytest.raises(SaslAuthenticationError), Admin(node.bootstrap, **options(SIGNER.token(claims()))) as one:
        one.list_topics()


def test_a_node_without_keys_says_so(tmp_path: Path) -> None:
    node = ServerProcess(tmp_path, tmp_path / "data")
    node.settings |= {
        "listeners": f"CLIENTS://{HOST}:0,NODES://{HOST}:0,CONTROLLER://{HOST}:0",
        "listener.security.protocol.map": "CLIENTS:SASL_PLAINTEXT,NODES:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "inter.broker.listener.name": "NODES",
        "sasl.enabled.mechanisms": "OAUTHBEARER",
    }
    for change, says in (({}, "has no keys"), ({"sasl.oauthbearer.jwks.endpoint.url": "file:///none"}, "No such file")):
        node.settings |= change
        with pytest.raises(NodeFailedError, match=says):
            node.start()
    node.close()

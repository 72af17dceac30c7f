"""Every API, asked by who may not ask: strangers, wrong passwords, dead tokens, removed users, and forged nodes."""

from __future__ import annotations

import random
from base64 import b64encode, urlsafe_b64decode
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any, Final
from uuid import UUID

import pytest

from fuzz.fuzz_logins import (
    BEFORE_A_LOGIN,
    HOST,
    PASSWORDS,
    KnownLine,
    Node,
    Peer,
    auth_bytes,
    authenticate,
    request,
)
from fuzz.fuzz_node import Thrower
from support.fixtures.certificates import missing_openssl
from support.fixtures.waiting import wait_until
from tidelog import Admin, NewTopic
from tidelog.client.admin.user_descriptions import UserScramCredentialDeletion, UserScramCredentialUpsertion
from tidelog.security.scram import ScramExchange, ScramSecret
from tidelog.server.api.apis import advertised
from tidelog.server.transport.listener_roles import BROKER, CONTROLLER
from tidelog.wire.api import ApiKey, api
from tidelog.wire.messages.api_17_sasl_handshake import SaslHandshakeRequest

SCRAM: Final = "SCRAM-SHA-256"
SECONDS_MAX = 0.3


def _served(role: str) -> set[ApiKey]:
    return {ApiKey(key) for key, _, _ in advertised(role)} - BEFORE_A_LOGIN


APIS = sorted(_served(BROKER) | _served(CONTROLLER))
OF_NODES = sorted(_served(CONTROLLER) - _served(BROKER))
"""What nodes ask controllers, and clients ask nobody."""
DENIED_NOBODY = frozenset(
    {
        ApiKey.DESCRIBE_CLUSTER,
        ApiKey.LIST_GROUPS,
        ApiKey.LIST_TRANSACTIONS,
        ApiKey.DESCRIBE_LOSSES,
        ApiKey.DESCRIBE_TOLD_READERS,
        ApiKey.REPORT_RESUMPTIONS,
        ApiKey.DESCRIBE_DELEGATION_TOKEN,
        ApiKey.RENEW_DELEGATION_TOKEN,
        ApiKey.EXPIRE_DELEGATION_TOKEN,
    }
)
"""Who has logged in may ask for it: what it may not see is left out, and a token is of whoever shows its HMAC."""

pytestmark = pytest.mark.skipif(missing_openssl() is not None, reason=str(missing_openssl()))

LogIn = Callable[[Peer], None]


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    node = Node(tmp_path_factory.mktemp("node"))
    node.start()
    with node.admin() as admin:
        admin.create_topics([NewTopic("orders", 1, 1)])
    yield node
    node.close()


def handshake(peer: Peer, mechanism: str) -> None:
    peer.send(request(ApiKey.SASL_HANDSHAKE, 1, SaslHandshakeRequest(mechanism=mechanism)))
    peer.frame()


def by_plain(user: str, password: str) -> LogIn:
    def log_in(peer: Peer) -> None:
        handshake(peer, "PLAIN")
        peer.send(authenticate(f"\0{user}\0{password}".encode()))
        peer.frame()

    return log_in


def by_scram(user: str, password: str, *, by_token: bool = False) -> LogIn:
    def log_in(peer: Peer) -> None:
        handshake(peer, SCRAM)
        exchange = ScramExchange(ScramSecret(SCRAM, user, password, by_token=by_token), "nonce")
        peer.send(authenticate(exchange.first_message()))
        answer = auth_bytes(peer.frame(), 1)
        if answer and (final := exchange.on_answer(answer)) is not None:
            peer.send(authenticate(final))
            peer.frame()

    return log_in


def nobody(peer: Peer) -> None:
    """No login at all."""


@pytest.fixture(scope="module")
def strangers(node: Node) -> Mapping[str, LogIn]:
    """Who may not come in, or no longer, by what is wrong with them."""
    with node.admin() as admin:
        admin.alter_user_scram_credentials([UserScramCredentialUpsertion("bob", "sesame-of-bob", SCRAM)])
        token = admin.create_delegation_token()
    by_token = by_scram(token.token_id, b64encode(token.hmac).decode(), by_token=True)
    gone = {"a removed user": by_scram("bob", "sesame-of-bob"), "a token that has ended": by_token}
    for log_in in gone.values():
        wait_until(partial(is_served, node, log_in), "it works as long as it is good")
    with node.admin() as admin:
        admin.alter_user_scram_credentials([UserScramCredentialDeletion("bob", SCRAM)])
        admin.expire_delegation_token(token.hmac)
    for log_in in gone.values():
        wait_until(partial(is_hung_up_on, node, log_in), "it is gone")
    return {"nobody": nobody, "a wrong password": by_plain("alice", "wrong"), **gone}


def is_served(node: Node, log_in: LogIn) -> bool:
    peer = Peer(node.ports["OPEN"])
    log_in(peer)
    try:
        peer.check_not_served()
    except AssertionError:
        return True
    finally:
        peer.close()
    return False


def is_hung_up_on(node: Node, log_in: LogIn) -> bool:
    return not is_served(node, log_in)


@pytest.mark.parametrize("who", ["nobody", "a wrong password", "a removed user", "a token that has ended"])
@pytest.mark.parametrize("listener", ["OPEN", "CONTROLLER"])
def test_no_api_is_served_to_who_is_not_let_in(
    node: Node, strangers: Mapping[str, LogIn], who: str, listener: str
) -> None:
    thrower = Thrower(random.Random(4))
    for key in APIS:
        peer = Peer(node.ports[listener])
        strangers[who](peer)
        peer.send(thrower.request_of(key)[2])
        assert peer.frame() is None, f"{api(key).name} is answered"
        peer.close()
    assert "the authentication failed" in node.log
    assert not [password for password in (*PASSWORDS, "sesame-of-bob", "wrong") if password in node.log]


def test_what_was_overheard_of_a_login_opens_nothing(node: Node) -> None:
    with node.admin() as admin:
        admin.alter_user_scram_credentials([UserScramCredentialUpsertion("carol", "sesame-of-carol", SCRAM)])
    log_in = by_scram("carol", "sesame-of-carol")
    wait_until(lambda: is_served(node, log_in), "the user is known")
    heard = Peer(node.ports["OPEN"])
    log_in(heard)
    replaying = Peer(node.ports["OPEN"])
    for message in heard.sent:
        replaying.send(message)
    replaying.check_not_served()
    heard.close()


@pytest.mark.parametrize("listener", ["OPEN", "CONTROLLER"])
def test_what_only_nodes_ask_is_refused_to_users_on_each_listener(node: Node, listener: str) -> None:
    """A user who has logged in and has no rule: nothing is done, and the audit log says who asked for what."""
    with node.admin() as admin:
        before = _facts(admin)
    thrower = Thrower(random.Random(5))
    line = KnownLine(node.ports[listener], "alice", PASSWORDS[2])
    for key in OF_NODES:

        def is_denied(key: ApiKey = key) -> bool:
            line.throw(thrower.request_of(key)[2], SECONDS_MAX)
            return f"denied {api(key).name}: User:alice at {HOST}" in node.log

        if listener == "CONTROLLER":
            wait_until(is_denied, f"{api(key).name} is denied", seconds=15)
        else:
            is_denied()
    line.close()
    with node.admin() as admin:
        assert _facts(admin) == before


def _facts(admin: Admin) -> tuple[Any, ...]:
    quorum = admin.describe_quorum()
    cluster = admin.describe_cluster()
    return quorum.leader_id, quorum.leader_epoch, [one.node_id for one in quorum.voters], [*map(str, cluster.brokers)]


def test_what_a_user_without_rules_is_denied_is_told_to_the_audit_log(node: Node) -> None:
    thrower = Thrower(random.Random(6))
    thrower.words[:] = ["orders", "group-1", "User"]
    with node.admin() as admin:
        topic_id = admin.describe_topics(["orders"])["orders"].topic_id
    thrower.uuids[:] = [UUID(bytes=urlsafe_b64decode(f"{topic_id}=="))]
    line = KnownLine(node.ports["OPEN"], "alice", PASSWORDS[2])
    asked = sorted(_served(BROKER) - DENIED_NOBODY)
    untold = set(asked)

    def are_all_told() -> bool:
        for key in sorted(untold):
            line.throw(thrower.request_of(key)[2], 0.05)
        log = node.log
        untold.difference_update(key for key in asked if f"denied {api(key).name}: User:alice" in log)
        return not untold

    wait_until(are_all_told, lambda: f"nothing is told of {sorted(api(key).name for key in untold)}", seconds=25)
    line.close()

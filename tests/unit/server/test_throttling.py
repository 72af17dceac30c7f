"""Whose requests are charged, and at which listeners."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from tidelog.base.principals import Principal, Requester
from tidelog.metadata.listeners import Listener
from tidelog.server.api.request_context import RequestContext
from tidelog.server.api.throttling import Throttle
from tidelog.server.quotas.client_quotas import ClientQuotas
from tidelog.server.settings.config import NodeConfig
from tidelog.server.transport.listener_roles import BROKER, CONTROLLER, INTER_BROKER
from tidelog.wire.api import ApiKey, api
from tidelog.wire.messages.api_00_produce import ProduceResponse
from tidelog.wire.messages.api_01_fetch import FetchRequest, FetchResponse, ReplicaState
from tidelog.wire.messages.api_17_sasl_handshake import SaslHandshakeResponse

ALICE = (("user", "alice"),)
MANY = 1 << 30


class Connection:
    def __init__(self) -> None:
        self.requester = Requester(Principal("User", "alice"), "10.0.0.1")
        self.muted: list[int] = []

    def mute(self, delay_ms: int) -> None:
        self.muted.append(delay_ms)


def context_of(connection: Connection, client_id: str | None = "c") -> RequestContext:
    return RequestContext(cast(Any, SimpleNamespace(client_id=client_id)), cast(Any, connection), BROKER)


def throttle(*, exempts_nodes: bool = True, **limits: float) -> Throttle:
    quotas = ClientQuotas(lambda: 1_000)
    quotas.set_quotas({ALICE: limits})
    return Throttle(quotas, exempts_nodes=exempts_nodes)


def config(*names: str) -> NodeConfig:
    listeners = tuple(Listener(name, "", 0) for name in names)
    return cast(NodeConfig, SimpleNamespace(broker_listeners=listeners, inter_broker_listener_name="NODES"))


@pytest.mark.parametrize("role", [INTER_BROKER, CONTROLLER])
def test_nobody_is_charged_where_nodes_alone_connect(role: str) -> None:
    assert Throttle.at(role, ClientQuotas(lambda: 0), config("NODES")) is None


@pytest.mark.parametrize(
    ("names", "is_exempt"), [(["NODES"], True), (["NODES", "CLIENTS"], False), (["CLIENTS", "OTHERS"], True)]
)
@pytest.mark.parametrize("state", [None, ReplicaState(2, 7)])
def test_a_follower_is_exempt_where_nodes_share_the_listener(
    names: list[str], is_exempt: bool, state: ReplicaState | None
) -> None:
    found = Throttle.at(BROKER, throttle(consumer_byte_rate=1_000.0).quotas, config(*names))
    assert found is not None
    context = context_of(Connection())
    replica_id = 2 if state is None else -1
    request = FetchRequest(
        replica_id=replica_id, replica_state=state, max_wait_ms=0, min_bytes=1, max_bytes=MANY, topics=[]
    )
    found.limiting(api(ApiKey.FETCH), lambda *_: None, None)(cast(Any, None), request, context)
    assert context.is_exempt is is_exempt
    assert request.max_bytes == (MANY if is_exempt else 11_000)


def test_a_readers_answer_is_as_large_as_all_windows_permit() -> None:
    found = throttle(consumer_byte_rate=1_000.0)
    serve = found.limiting(api(ApiKey.FETCH), lambda *_: None, None)
    for max_bytes, limited in ((MANY, 11_000), (500, 500)):
        request = FetchRequest(max_wait_ms=0, min_bytes=1, max_bytes=max_bytes, topics=[])
        serve(cast(Any, None), request, context_of(Connection()))
        assert request.max_bytes == limited


def test_the_longest_time_is_told_and_held_back_for() -> None:
    connection = Connection()
    answer = ProduceResponse(responses=[])
    found = throttle(producer_byte_rate=100.0, request_percentage=1.0)
    told = found.charge_later(api(ApiKey.PRODUCE), context_of(connection), answer, (3_000, 0), 10**9)
    assert connection.muted == [told.throttle_time_ms] == [20_000]
    assert answer.throttle_time_ms == 0, "an answer may be kept for others"


def test_whose_answer_has_no_place_for_it_is_held_back_all_the_same() -> None:
    connection = Connection()
    found = throttle(request_percentage=1.0)
    answer = SaslHandshakeResponse(mechanisms=[])
    assert found.charge_later(api(ApiKey.SASL_HANDSHAKE), context_of(connection), answer, (10, 0), 10**9) is answer
    assert found.charge_later(api(ApiKey.PRODUCE), context_of(connection), None, (10, 0), 10**9) is None
    assert connection.muted == [1_000, 1_000]


def test_what_a_node_sends_is_not_charged() -> None:
    connection = Connection()
    context = context_of(connection, None)
    context.is_exempt = True
    answer = FetchResponse()
    found = throttle(consumer_byte_rate=1.0, request_percentage=1.0)
    assert found.charge_later(api(ApiKey.FETCH), context, answer, (10, MANY), 10**9) is answer
    assert connection.muted == []

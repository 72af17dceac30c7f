"""What a requester without any rights is answered, version by version, as Apache Kafka answers it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from support.clients.authorized_kafka import AuthorizedKafka
from support.clients.wire_client import WireClient
from support.fixtures.guarded_api import VERSIONS, GuardedApi, request_of
from support.fixtures.scripted_authorizer import ScriptedAuthorizer
from tidelog.server.api.apis import APIS
from tidelog.server.transport.listener_roles import BROKER
from tidelog.wire import decode, decode_response_header, encode_response
from tidelog.wire.api import OWN_SINCE, ApiKey, api
from tidelog.wire.schema import layout_of

COMPARED = [(key, version) for key, version in VERSIONS if key < OWN_SINCE and BROKER in APIS[key].roles]

OF_TOKENS = {
    ApiKey.CREATE_DELEGATION_TOKEN,
    ApiKey.RENEW_DELEGATION_TOKEN,
    ApiKey.EXPIRE_DELEGATION_TOKEN,
    ApiKey.DESCRIBE_DELEGATION_TOKEN,
}
"""How somebody logged in decides, not rights: test_delegation_token_requests.py."""

NOT_COMPARED = {
    *((key, version) for key, version in VERSIONS if key in OF_TOKENS),
    *((ApiKey.DESCRIBE_CLUSTER, version) for version in range(3)),  # everybody may
}

UNTOLD = {
    "error_message",
    "throttle_time_ms",
    "brokers",
    "cluster_id",
    "controller_id",
    "cluster_authorized_operations",
}
"""What is said of the node, or in other words."""

DIFFERENT = {
    (ApiKey.FETCH, "aborted_transactions"): "none rather than an empty list, as beside every other error",
    (ApiKey.DESCRIBE_CLIENT_QUOTAS, "entries"): "empty rather than null",
    (ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, "results"): "Kafka adds rows without names",
    (ApiKey.JOIN_GROUP, "protocol_name"): "empty rather than null",
    (ApiKey.LIST_PARTITION_REASSIGNMENTS, "topics"): "Kafka lists what was named as if it were being moved",
}


@pytest.fixture(scope="module")
def kafka(needs_kafka: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[AuthorizedKafka]:
    started = AuthorizedKafka(tmp_path_factory.mktemp("authorized") / "kafka")
    try:
        started.peer.start()
        yield started
    finally:
        started.peer.close()


@pytest.mark.parametrize(
    ("key", "version"),
    [one for one in COMPARED if one not in NOT_COMPARED],
    ids=lambda value: value.name.lower() if isinstance(value, ApiKey) else str(value),
)
def test_a_denial_is_told_as_kafka_tells_it(kafka: AuthorizedKafka, key: ApiKey, version: int) -> None:
    with WireClient(kafka.peer.port) as client:
        theirs = client.ask(key, version, request_of(key, version), api(key).response)
    answer = GuardedApi(ScriptedAuthorizer(), {}).ask(key, version, request_of(key, version))
    left_out = UNTOLD | {field for of, field in DIFFERENT if of == key}
    assert told(as_sent(answer, key, version), left_out) == told(theirs, left_out)


def as_sent(answer: Any, key: ApiKey, version: int) -> Any:
    """What a client reads of an answer."""
    pieces: Any = encode_response(key, version, 1, answer, None)
    frame = memoryview(b"".join(map(bytes, pieces)))[4:]
    _, _, position = decode_response_header(frame, key, version)
    return decode(api(key).response, frame[position:], version, 0)


def told(value: Any, left_out: set[str]) -> Any:
    """A message as a dictionary, of which the rows are in no order: Kafka's are in that of its hash tables."""
    if isinstance(value, list):
        return sorted((told(one, left_out) for one in value), key=str)
    if not hasattr(type(value), "__layout__"):
        return bytes(value) if isinstance(value, memoryview) else value
    return {
        spec.name: told(getattr(value, spec.name), left_out)
        for spec in layout_of(type(value)).fields
        if spec.name not in left_out
    }

"""The arguments of the clients: what is checked, and that types and values agree."""

from __future__ import annotations

import re
from dataclasses import fields
from datetime import timedelta
from typing import Any, get_type_hints

import pytest

from tidelog import Admin, Consumer, Factory, Producer, aio
from tidelog.base.errors import ConfigError
from tidelog.client import options
from tidelog.client.options import (
    AdminConfig,
    AdminOptions,
    ConsumerConfig,
    ConsumerOptions,
    ProducerConfig,
    ProducerOptions,
    parse_options,
)
from tidelog.client.producer_arguments import sender_settings

PAIRS: list[tuple[type[Any], type[Any]]] = [
    (ProducerOptions, ProducerConfig),
    (ConsumerOptions, ConsumerConfig),
    (AdminOptions, AdminConfig),
]


LOADED_LATER = ("AutoOffsetReset", "ConsistencyContextStore", "Partitioner", "SSLContext")
NAMES = {name: type(name, (), {}) for name in LOADED_LATER} | vars(options)


@pytest.mark.parametrize(("typed", "config"), PAIRS)
def test_what_type_checkers_see_is_what_there_is(typed: type[Any], config: type[Any]) -> None:
    assert get_type_hints(typed, NAMES, NAMES) == get_type_hints(config, NAMES, NAMES)


@pytest.mark.parametrize("client", [Producer, Consumer, Admin, aio.Producer, aio.Consumer, aio.Admin])
@pytest.mark.parametrize(
    ("name", "closest"),
    [("clientid", "client_id"), ("client.id", "client_id"), ("request_timeout", "request_timeout_ms")],
)
def test_an_unknown_argument_is_a_type_error_that_names_the_closest(client: type[Any], name: str, closest: str) -> None:
    with pytest.raises(TypeError, match=rf"\(\) has no argument '{name}'; did you mean '{closest}'\?"):
        client("127.0.0.1:1", **{name: 1})


def test_an_argument_like_no_other_lists_those_there_are() -> None:
    with pytest.raises(TypeError, match="it takes bootstrap_servers and client_id, consistency_context_store"):
        Factory("127.0.0.1:1").admin(zzz=1)  # type: ignore[call-arg]


@pytest.mark.parametrize(
    ("config", "name", "value", "expected"),
    [
        (ProducerConfig, "acks", 2, "one of 'all', '0', '1', -1, 0, 1 is expected"),
        (ProducerConfig, "acks", True, "one of 'all'"),
        (ProducerConfig, "linger_ms", -1, "a whole number from 0 to"),
        (ProducerConfig, "linger_ms", 1.5, "a whole number"),
        (ProducerConfig, "batch_size", True, "a whole number"),
        (ProducerConfig, "compression_type", "brotli", "one of 'none', 'gzip', 'snappy', 'lz4', 'zstd'"),
        (ProducerConfig, "enable_idempotence", "yes", "True, False or None"),
        (ProducerConfig, "on_records_lost", 1, "something to call"),
        (ConsumerConfig, "auto_offset_reset", "newest", "one of 'earliest', 'latest', 'closest', 'none', a timedelta"),
        (ConsumerConfig, "auto_offset_reset", timedelta(hours=-1), "a timedelta that is not negative is expected"),
        (ConsumerConfig, "auto_offset_reset", "by_duration:1H", "one of 'earliest'"),
        (ConsumerConfig, "check_crcs", 1, "True or False"),
        (ConsumerConfig, "client_id", 7, "text is expected"),
    ],
)
def test_a_value_that_cannot_be_says_what_can(config: type[Any], name: str, value: object, expected: str) -> None:
    with pytest.raises(ConfigError, match=expected) as error:
        parse_options(config, "Client", {name: value})
    assert f"Client({name}={value!r})" in str(error.value)


def test_defaults_lie_within_their_own_bounds() -> None:
    for config in (ProducerConfig, ConsumerConfig, AdminConfig):
        defaults = {spec.name: spec.default for spec in fields(config)}
        assert parse_options(config, "Client", defaults) == config()


@pytest.mark.parametrize(
    ("given", "idempotent", "acks"),
    [
        ({}, True, -1),
        ({"acks": -1}, True, -1),
        ({"acks": "1"}, False, 1),
        ({"acks": 0}, False, 0),
        ({"enable_idempotence": False}, False, -1),
    ],
)
def test_a_producer_is_idempotent_unless_it_cannot_be(given: dict[str, Any], idempotent: bool, acks: int) -> None:
    settings = sender_settings(parse_options(ProducerConfig, "Producer", given))
    assert (settings.idempotent, settings.acks) == (idempotent, acks)


@pytest.mark.parametrize(
    "given",
    [{"acks": 1, "enable_idempotence": True}, {"max_in_flight_requests_per_connection": 6}],
)
def test_idempotence_is_refused_with_what_it_cannot_be_had_with(given: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="idempotence"):
        Producer("127.0.0.1:1", **given)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"bootstrap.servers": "h:1", "client.id": "x"}, "write ('h:1', client_id=…), not a dict of settings"),
        ({"bootstrap.servers": "h:1"}, "write ('h:1'), not a dict of settings"),
        (None, "host:port is expected"),
        (9092, "host:port is expected"),
    ],
)
@pytest.mark.parametrize("client", [Consumer, Producer, Admin])
def test_what_other_clients_take_is_answered_with_advice(client: Any, given: object, expected: str) -> None:
    with pytest.raises(TypeError, match=re.escape(expected)):
        client(given)


def test_no_bootstrap_server_is_an_error_at_once() -> None:
    with pytest.raises(ConfigError, match="bootstrap_servers names no server"):
        Consumer("")

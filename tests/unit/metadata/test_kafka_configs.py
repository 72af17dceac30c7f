"""Every setting of Apache Kafka's is in the table, with its facts, and is served, without effect, or refused.

`kafka-4.3-configs.tsv` beside this file holds the facts: names, types, defaults, what is allowed, and which change
while brokers run. `tests/support/clients/java/ConfigKeys.java` prints them from Kafka's own jars (4.3.1, as
`make peers` fetches them), and `tests/compat/kafka_tools` compares the two where those are there.
"""

from __future__ import annotations

import csv
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from re import fullmatch
from typing import Any, NamedTuple, cast

import pytest

from tidelog.base.errors import ConfigError
from tidelog.metadata.configs import (
    TABLE,
    BrokerSettings,
    ConfigKey,
    ConfigSource,
    ConfigType,
    Scope,
    Support,
    broker_entries,
    broker_values,
    topic_entries,
    topic_values,
    validate,
    validate_broker_configs,
    without_effect,
)

OTHER_DEFAULTS = {"max.connections.per.ip", "queued.max.request.bytes"}
"""Kafka has no limit there."""

OWN = {
    "broker.early.fencing.enable",
    "controller.partition.changes.max",
    "group.coordinator.memory.bytes",
    "group.offsets.memory.bytes",
    "inter.node.queued.max.request.bytes",
    "leader.in.doubt.max.ms",
    "log.scrubber.io.max.bytes.per.second",
    "logging.format",
    "losses.kept.bytes",
    "losses.retained.max",
    "losses.retention.ms",
    "max.acls",
    "max.auto.created.topics.per.ip",
    "max.client.quotas",
    "max.configured.resources",
    "max.delegation.tokens",
    "max.failed.authentications.per.ip",
    "max.incremental.fetch.session.cache.partitions",
    "max.partitions",
    "max.producer.ids",
    "max.scram.credentials",
    "metadata.consistency.wait.ms.max",
    "metrics.group.topics.max",
    "metrics.listener",
    "metrics.partitions.enable",
    "metrics.topics.max",
    "queued.max.response.bytes",
    "share.coordinator.memory.bytes",
    "slow.request.log.ms",
    "transaction.coordinator.memory.bytes",
}

OF_THE_AUTHORIZER = {"allow.everyone.if.no.acl.found", "super.users"}
"""Kafka's, of a class that reads them by itself."""

INTERNAL = {
    "leader.imbalance.per.broker.percentage",
    "share.coordinator.cold.partition.snapshot.interval.ms",
    "share.coordinator.state.topic.prune.interval.ms",
}
"""Kafka's own, which it does not tell of."""

NEVER_PASSED_OVER = (
    r"(ssl|sasl|security|delegation|remote|log\.local|local)\..*",
    r".*\.(class|class\.name|class\.path|policy|providers|reporters|assignors|enable|disable)",
)
"""What is about security, tiers, plugins, or whether something is done at all."""


class Fact(NamedTuple):
    scope: Scope
    name: str
    type: str
    default: str | None
    allowed: str
    changes: str


def facts() -> Iterator[Fact]:
    with (Path(__file__).parent / "kafka-4.3-configs.tsv").open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE):
            scope = cast(Scope, row["scope"])
            default = None if row["default"] == "null" else row["default"]
            yield Fact(scope, row["name"], row["type"], default, row["allowed"], row["changes"])


FACTS = {(fact.scope, fact.name): fact for fact in facts()}
KEYS = [(scope, key) for scope, keys in TABLE.items() for key in keys.values()]
PASSED_OVER = [(scope, key) for scope, key in KEYS if key.support == Support.WITHOUT_EFFECT]
REFUSED = [(scope, key) for scope, key in KEYS if key.support == Support.REFUSED]


def another_value(key: ConfigKey[Any]) -> str:
    """One that is not the default, and of its type."""
    if key.type == ConfigType.BOOLEAN:
        return "false" if key.default == "true" else "true"
    if key.type in (ConfigType.INT, ConfigType.SHORT, ConfigType.LONG, ConfigType.DOUBLE):
        return "7"
    return "a.value.of.no.key"


def test_the_facts_are_of_all_settings() -> None:
    assert Counter(fact.scope for fact in FACTS.values()) == {"broker": 343, "topic": 33}


@pytest.mark.parametrize("fact", FACTS.values(), ids=lambda fact: f"{fact.scope} {fact.name}")
def test_a_setting_of_kafkas_is_what_it_is_there(fact: Fact) -> None:
    key = TABLE[fact.scope][fact.name]
    assert key.type.name == fact.type
    assert key.default == fact.default or key.name in OTHER_DEFAULTS
    assert key.is_dynamic == (fact.changes != "read-only")
    with pytest.raises(ConfigError) as error:
        validate(fact.scope, fact.name, "x" * 40_000)
    assert "closest" not in str(error.value)


def test_what_is_not_kafkas_is_marked_as_our_own() -> None:
    ours = {key.name for scope, key in KEYS if (scope, key.name) not in FACTS and scope != "group"}
    assert ours == OWN | INTERNAL | OF_THE_AUTHORIZER
    assert all("Tidelog's own" in TABLE["broker"][name].doc for name in OWN - {"broker.early.fencing.enable"})


@pytest.mark.parametrize(("scope", "key"), PASSED_OVER + REFUSED, ids=lambda one: getattr(one, "name", one))
def test_whatever_is_not_served_says_why(scope: Scope, key: ConfigKey[Any]) -> None:
    assert key.why
    assert not key.why.endswith(".")
    assert key.why in key.doc


@pytest.mark.parametrize(("scope", "key"), REFUSED, ids=lambda one: getattr(one, "name", one))
def test_of_what_is_refused_only_the_default_is_taken(scope: Scope, key: ConfigKey[Any]) -> None:
    if key.default is not None:
        validate(scope, key.name, key.default)
    text = another_value(key)
    with pytest.raises(ConfigError) as error:
        validate(scope, key.name, text)
    said = str(error.value)
    assert said.startswith(f"{key.name}: ")
    assert said.endswith(f"({key.why})") or key.type == ConfigType.BOOLEAN
    assert (repr(text) in said) != key.is_sensitive


@pytest.mark.parametrize(("scope", "key"), PASSED_OVER, ids=lambda one: getattr(one, "name", one))
def test_what_is_passed_over_is_about_sizes_and_times(scope: Scope, key: ConfigKey[Any]) -> None:
    assert not any(fullmatch(pattern, key.name) for pattern in NEVER_PASSED_OVER)
    assert key.type in (ConfigType.INT, ConfigType.SHORT, ConfigType.LONG, ConfigType.DOUBLE) or key.choices
    fact = FACTS.get((scope, key.name))
    if fact is not None and (range_ := fullmatch(r"\[(-?\d+),\.\.\.(?:,(\d+))?,?\]", fact.allowed)):
        assert (key.minimum, key.maximum) == (int(range_[1]), int(range_[2]) if range_[2] else None)


@pytest.mark.parametrize(
    ("name", "text", "says"),
    [
        ("listener.name.outside.sasl.jaas.config", "hunter2", "for one mechanism of one listener"),
        ("listener.name.outside.gssapi.sasl.jaas.config", "hunter2", "for one mechanism of one listener"),
        ("listener.name.outside.PLAIN.sasl.jaas.config", "hunter2", r"small letters: .*outside\.plain\.sasl"),
        ("listener.name.outside.plain.sasl.enabled.mechanisms", "PLAIN", "is one for all of them"),
        ("listener.name.outside.connection.failed.authentication.delay.ms", "5", "is one for all of them"),
        ("listener.name.outside.max.connections", "5", "max.connections is one for all of them"),
        ("listener.name.outside.num.network.threads", "0", "whole number from 1"),
        ("config.providers.vault.param.token", "hunter2", "a value stands for itself"),
        ("rsm.config.s3.secret", "hunter2", "no tiered storage"),
        ("rlmm.config.remote.log.metadata.topic.num.partitions", "5", "no tiered storage"),
        ("authorizer.class.name", "a.b.Authorizer", "StandardAuthorizer"),
        ("listener.name.outside.max.connectons", "5", "there is no such broker setting"),
        ("listener.name.outside", "5", "there is no such broker setting"),
    ],
)
def test_settings_whose_names_are_made_of_others(name: str, text: str, says: str) -> None:
    with pytest.raises(ConfigError, match=says) as error:
        broker_values({name: text})
    assert "hunter2" not in str(error.value)


def test_a_listeners_own_setting_that_does_nothing_is_taken_and_described() -> None:
    static = {"listener.name.outside.num.network.threads": "5", "node.id": "1"}
    assert broker_values(static).by_name.keys() == TABLE["broker"].keys()
    (key,) = without_effect("broker", static)
    assert (key.name, key.why) == (*static.keys() - {"node.id"}, TABLE["broker"]["num.network.threads"].why)
    (entry,) = [one for one in broker_entries(BrokerSettings.of(static)) if one.name == key.name]
    assert (entry.value, entry.source, entry.type) == ("5", ConfigSource.STATIC_BROKER, ConfigType.INT)


def test_a_listeners_own_sasl_is_described_without_its_passwords() -> None:
    own = {
        "listener.name.outside.plain.sasl.jaas.config": "hunter2",
        "listener.name.outside.scram-sha-256.sasl.jaas.config": "hunter2",
        "listener.name.outside.plain.connections.max.reauth.ms": "5",
        "listener.name.outside.sasl.enabled.mechanisms": "PLAIN",
    }
    assert broker_values(own).by_name.keys() == TABLE["broker"].keys()
    entries = {one.name: one for one in broker_entries(BrokerSettings.of(own)) if one.name in own}
    assert [entries[name].value for name in own] == [None, None, "5", "PLAIN"]
    assert [entries[name].is_read_only for name in own] == [False, False, True, False]
    validate_broker_configs(BrokerSettings({}, {next(iter(own)): "hunter2"}, {}))


def test_all_of_them_are_described_with_their_types_and_no_password() -> None:
    secret = {"sasl.jaas.config": "hunter2"}  # as another's metadata may have it
    entries = {one.name: one for one in broker_entries(BrokerSettings({}, secret, {}))}
    assert entries.keys() == TABLE["broker"].keys()
    told = entries["sasl.jaas.config"]
    assert (told.type, told.value, told.source) == (ConfigType.PASSWORD, None, ConfigSource.DYNAMIC_BROKER)
    assert all(one.value is None for one in told.synonyms)
    assert (entries["ssl.client.auth"].value, entries["ssl.client.auth"].is_read_only) == ("none", False)
    assert (entries["authorizer.class.name"].value, entries["authorizer.class.name"].is_read_only) == ("", True)
    assert entries["metric.reporters"].type == ConfigType.LIST
    assert entries["principal.builder.class"].type == ConfigType.CLASS
    topic = {one.name: one.value for one in topic_entries({}, BrokerSettings.of({}))}
    assert (topic["remote.log.copy.disable"], topic["local.retention.ms"]) == ("false", "-2")


def test_what_is_refused_has_its_default_whatever_a_directory_of_kafkas_says() -> None:
    values = topic_values({"remote.storage.enable": "true", "local.retention.ms": "5"}, BrokerSettings.of({}))
    assert (values.by_name["remote.storage.enable"], values.by_name["local.retention.ms"]) == (False, -2)


def test_other_limits_of_addresses_change_while_brokers_run() -> None:
    key = "max.connections.per.ip.overrides"
    validate_broker_configs(BrokerSettings({}, {}, {key: "10.0.0.7:100,[::1]:3"}))
    with pytest.raises(ConfigError, match="ADDRESS:LIMIT"):
        validate_broker_configs(BrokerSettings({}, {}, {key: "10.0.0.7"}))
    with pytest.raises(ConfigError, match="lets nobody in either"):
        validate_broker_configs(BrokerSettings({}, {}, {key: "10.0.0.7:0", "max.connections.per.ip": "0"}))


MAP = "listener.security.protocol.map"


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"listeners": "PLAINTEXT"}, "NAME://HOST:PORT"),
        ({"listeners": "A://:1,A://:2"}, "stands there twice"),
        ({MAP: "A"}, "NAME:PROTOCOL"),
        ({MAP: "A:TLS"}, "with a protocol of PLAINTEXT, SSL, SASL_PLAINTEXT, SASL_SSL"),
    ],
)
def test_listeners_that_cannot_be_had_beside_others(settings: dict[str, str], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        validate_broker_configs(BrokerSettings({}, settings, {}))
    with pytest.raises(ConfigError, match="each broker's own"):
        validate_broker_configs(BrokerSettings({}, {}, settings))


def test_whose_protocol_only_the_file_of_its_broker_says_is_left_to_that() -> None:
    validate_broker_configs(BrokerSettings({}, {"listeners": "PLAINTEXT://:1,INSIDE://:2"}, {}))
    validate_broker_configs(BrokerSettings({}, {"listeners": "SASL_SSL://:1", MAP: "SASL_SSL:PLAINTEXT"}, {}))

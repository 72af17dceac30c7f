"""The table of settings: what is allowed, what is in force, and where it comes from."""

from __future__ import annotations

from types import ModuleType
from typing import get_args

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from tidelog.base.errors import ConfigError
from tidelog.base.ids import BrokerId
from tidelog.metadata.configs import (
    TABLE,
    BrokerSettings,
    ConfigSource,
    ConfigValue,
    EffectiveConfig,
    Scope,
    broker_entries,
    broker_settings,
    broker_values,
    topic_entries,
    topic_values,
    validate,
    validate_topic_configs,
)
from tidelog.metadata.configs import broker as broker_keys
from tidelog.metadata.configs import cluster as cluster_keys
from tidelog.metadata.configs import topic as topic_keys
from tidelog.metadata.configs.key import ConfigKey
from tidelog.metadata.image import ResourceKey, ResourceType

NOTHING = BrokerSettings.of({})


def entry(entries: list[EffectiveConfig], name: str) -> EffectiveConfig:
    return next(entry for entry in entries if entry.name == name)


@pytest.mark.parametrize("scope", get_args(Scope))
def test_every_default_is_allowed_and_every_setting_is_told_of(scope: Scope) -> None:
    for key in TABLE[scope].values():
        assert key.doc.endswith("."), key.name
        if key.default is not None:
            key.parse(key.default)


@pytest.mark.parametrize("scope", get_args(Scope))
def test_what_is_allowed_is_told_in_words_even_where_nothing_is(scope: Scope) -> None:
    for key in TABLE[scope].values():
        assert not key.allowed.startswith(","), key.name
        assert ", ," not in key.allowed, key.name


@pytest.mark.parametrize("module", [broker_keys, cluster_keys, topic_keys])
def test_every_key_goes_by_its_name(module: ModuleType) -> None:
    named = {name: key.name for name, key in vars(module).items() if isinstance(key, ConfigKey)}
    assert named == {name.upper().replace(".", "_"): name for name in named.values()}


@pytest.mark.parametrize("scope", get_args(Scope))
def test_only_a_key_without_a_default_may_have_no_value(scope: Scope) -> None:
    for key in TABLE[scope].values():
        assert key.kind.is_optional == (key.default is None), key.name


def test_every_synonym_is_a_setting_of_brokers_with_the_same_default() -> None:
    for key in TABLE["topic"].values():
        defaults = []
        for synonym in key.synonyms:
            behind = TABLE["broker"][synonym.name]
            if behind.default is not None:
                scaled = behind.default if synonym.scale == 1 else str(int(behind.default) * synonym.scale)
                defaults.append(scaled)
        assert set(defaults) <= {key.default}, key.name


def test_no_setting_is_listed_twice() -> None:
    assert sum(map(len, TABLE.values())) == len({(scope, name) for scope, keys in TABLE.items() for name in keys})
    names = [key.name for key in topic_entries({}, NOTHING)]
    assert names == sorted(set(names))
    names = [key.name for key in broker_entries(NOTHING)]
    assert names == sorted(set(names))


@pytest.mark.parametrize(
    ("scope", "name", "text", "value"),
    [
        ("topic", "retention.ms", " -1 ", -1),
        ("topic", "cleanup.policy", "compact, delete", ("compact", "delete")),
        ("topic", "cleanup.policy", "", ()),
        ("broker", "log.cleanup.policy", "", ()),
        ("topic", "min.cleanable.dirty.ratio", "0.25", 0.25),
        ("topic", "preallocate", "FALSE", False),
        ("topic", "message.timestamp.type", "LogAppendTime", "LogAppendTime"),
        ("topic", "segment.bytes", "14", 14),
        ("broker", "delete.topic.enable", "true", True),
        ("broker", "process.roles", "broker,controller", ("broker", "controller")),
        ("broker", "log.dirs", "/a, /b", ("/a", "/b")),
        ("broker", "log.dirs", "", ()),
    ],
)
def test_values_are_read(scope: Scope, name: str, text: str, value: ConfigValue) -> None:
    assert validate(scope, name, text) == value


@pytest.mark.parametrize(
    ("scope", "name", "text", "says"),
    [
        ("topic", "retention.sm", "1", "closest is retention.ms"),
        ("broker", "num.partition", "1", "closest is num.partitions"),
        ("topic", "retention.ms" * 9, "1", "no such topic setting"),
        ("topic", "", "1", "no such topic setting"),
        ("topic", "log.retention.ms", "1", "broker setting; the topic setting is retention.ms"),
        ("broker", "retention.ms", "1", "it is a topic setting"),
        ("topic", "segment.bytes", "13", "whole number from 14 to 2147483647"),
        ("topic", "segment.bytes", "2147483648", "whole number from 14 to 2147483647"),
        ("topic", "retention.ms", "1.5", "whole number from -1"),
        ("topic", "retention.ms", "", "whole number from -1"),
        ("topic", "min.cleanable.dirty.ratio", "1.01", "number from 0 to 1"),
        ("topic", "min.cleanable.dirty.ratio", "nan", "number from 0 to 1"),
        ("topic", "preallocate", "yes", "allowed: 'false', the default"),
        ("topic", "remote.storage.enable", "true", "no tiered storage"),
        (
            "broker",
            "sasl.oauthbearer.client.credentials.client.secret",
            "x",
            "sasl.oauthbearer.client.credentials.client.secret: the value is not allowed; allowed: nothing",
        ),
        ("topic", "compression.type", "brotli", "uncompressed, gzip, snappy, lz4, zstd, producer"),
        ("topic", "compression.gzip.level", "0", "-1, 1, 2"),
        ("topic", "compression.gzip.level", "10", "-1, 1, 2"),
        ("topic", "compression.lz4.level", "18", "from 1 to 17"),
        ("broker", "compression.zstd.level", "23", "from -131072 to 22"),
        ("topic", "cleanup.policy", "delete,forget", "any of delete, compact"),
        ("topic", "message.timestamp.type", "createtime", "CreateTime, LogAppendTime"),
        ("broker", "delete.topic.enable", "1", "true, false"),
        ("broker", "process.roles", "broker,observer", "any of broker, controller"),
        ("broker", "default.replication.factor", "0", "from 1 to 32767"),
        ("broker", "num.partitions", "1_0", "whole number from 1"),
        ("broker", "num.partitions", "\u0661", "whole number from 1"),
        ("broker", "process.roles", "", "any of broker, controller"),
        ("topic", "cleanup.policy", "delete,", "any of delete, compact"),
        ("topic", "cleanup.policy", "compact," * 4096 + "delete", "longer than 32767"),
        ("topic", "retention.ms", " " * 32767 + "5", "longer than 32767"),
    ],
)
def test_the_error_names_the_setting_and_what_is_allowed(scope: Scope, name: str, text: str, says: str) -> None:
    with pytest.raises(ConfigError, match=says) as error:
        validate(scope, name, text)
    assert str(error.value).startswith(name)


def test_settings_of_a_topic_are_checked_together() -> None:
    assert validate_topic_configs({"min.compaction.lag.ms": "5", "max.compaction.lag.ms": "5"})
    with pytest.raises(ConfigError, match=r"must not be above max\.compaction\.lag\.ms"):
        validate_topic_configs({"min.compaction.lag.ms": "6", "max.compaction.lag.ms": "5"})


def test_the_strongest_place_wins_and_the_others_are_told() -> None:
    broker = BrokerSettings(
        static={"log.retention.hours": "2", "log.retention.minutes": "3"},
        dynamic={"log.retention.ms": "50"},
        dynamic_default={"log.retention.ms": "60"},
    )
    told = entry(topic_entries({"retention.ms": "40"}, broker), "retention.ms")
    assert (told.value, told.source) == ("40", ConfigSource.DYNAMIC_TOPIC)
    assert [(s.name, s.value, s.source.name) for s in told.synonyms] == [
        ("retention.ms", "40", "DYNAMIC_TOPIC"),
        ("log.retention.ms", "50", "DYNAMIC_BROKER"),
        ("log.retention.ms", "60", "DYNAMIC_DEFAULT_BROKER"),
        ("log.retention.minutes", "180000", "STATIC_BROKER"),
        ("log.retention.hours", "7200000", "STATIC_BROKER"),
        ("log.retention.ms", "604800000", "DEFAULT"),
    ]
    assert not told.is_default
    assert topic_values({}, broker)[topic_keys.RETENTION_MS] == 50
    assert topic_values({}, BrokerSettings.of(broker.static))[topic_keys.RETENTION_MS] == 180_000
    assert topic_values({}, NOTHING)[topic_keys.RETENTION_MS] == 604_800_000


_TOPICS = st.dictionaries(st.sampled_from(["retention.ms", "segment.ms"]), st.sampled_from(["-1", "7"]))
_BROKERS = st.dictionaries(
    st.sampled_from(
        ["log.retention.ms", "log.retention.minutes", "log.retention.hours", "log.flush.scheduler.interval.ms", "x"]
    ),
    st.sampled_from(["-1", "9"]),
)


@given(_TOPICS, _BROKERS, _BROKERS, _BROKERS)
def test_what_is_in_force_is_what_is_told(
    topic: dict[str, str], static: dict[str, str], own: dict[str, str], shared: dict[str, str]
) -> None:
    assume(
        "-1"
        not in (topic.get("segment.ms"), *(one.get("log.flush.scheduler.interval.ms") for one in (static, own, shared)))
    )
    broker = BrokerSettings(static, own, shared)
    told = {one.name: one.key.parse(one.value or "") for one in topic_entries(topic, broker)}
    assert topic_values(topic, broker).by_name == told


def test_settings_for_all_brokers_lie_below_those_of_one() -> None:
    configs = {
        ResourceKey(ResourceType.BROKER, ""): {"a": "1", "b": "1"},
        ResourceKey(ResourceType.BROKER, "7"): {"b": "2"},
    }
    settings = broker_settings({"a": "0", "c": "0"}, configs, BrokerId(7))
    assert [settings.text(name) for name in "abcd"] == ["1", "2", "0", None]
    assert broker_settings({}, configs, None).text("b") == "1"
    assert broker_settings({}, configs, BrokerId(8)).text("b") == "1"


def test_no_limit_has_no_unit() -> None:
    assert topic_values({}, BrokerSettings.of({"log.retention.hours": "-1"}))[topic_keys.RETENTION_MS] == -1


def test_what_nobody_set_is_told_as_default() -> None:
    told = entry(topic_entries({}, NOTHING), "segment.bytes")
    assert told.is_default
    assert [(s.name, s.source) for s in told.synonyms] == [("log.segment.bytes", ConfigSource.DEFAULT)]
    told = entry(broker_entries(NOTHING), "log.segment.bytes")
    assert (told.value, told.is_default) == ("1073741824", True)
    told = entry(broker_entries(NOTHING), "broker.rack")
    assert (told.value, told.is_default) == (None, True)
    told = entry(broker_entries(BrokerSettings.of({"broker.rack": "r"})), "broker.rack")
    assert (told.value, told.source) == ("r", ConfigSource.STATIC_BROKER)
    assert told.is_read_only


def test_a_file_is_read_whole() -> None:
    values = broker_values({"node.id": "1", "num.partitions": "3"})
    assert values.by_name.keys() == TABLE["broker"].keys()
    assert (values[broker_keys.NODE_ID], values[broker_keys.NUM_PARTITIONS], values[broker_keys.LOG_DIRS]) == (
        1,
        3,
        None,
    )
    assert values[broker_keys.AUTO_CREATE_TOPICS_ENABLE] is True
    with pytest.raises(ConfigError, match=r"closest is node\.id"):
        broker_values({"node.di": "1"})


def test_the_sample_file_that_kafka_ships_is_taken() -> None:
    broker_values(
        {
            "process.roles": "broker,controller",
            "node.id": "1",
            "controller.quorum.bootstrap.servers": "localhost:9093",
            "listeners": "PLAINTEXT://:9092,CONTROLLER://:9093",
            "inter.broker.listener.name": "PLAINTEXT",
            "advertised.listeners": "PLAINTEXT://localhost:9092,CONTROLLER://localhost:9093",
            "controller.listener.names": "CONTROLLER",
            "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
            "num.network.threads": "3",
            "num.io.threads": "8",
            "socket.send.buffer.bytes": "102400",
            "socket.receive.buffer.bytes": "102400",
            "socket.request.max.bytes": "104857600",
            "log.dirs": "/tmp/kraft-combined-logs",
            "num.partitions": "1",
            "num.recovery.threads.per.data.dir": "1",
            "offsets.topic.replication.factor": "1",
            "share.coordinator.state.topic.replication.factor": "1",
            "share.coordinator.state.topic.min.isr": "1",
            "transaction.state.log.replication.factor": "1",
            "transaction.state.log.min.isr": "1",
            "log.retention.hours": "168",
            "log.segment.bytes": "1073741824",
            "log.retention.check.interval.ms": "300000",
        }
    )

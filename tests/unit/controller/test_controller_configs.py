"""Changing settings: what is refused, by which name, and that each resource stands for itself."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from uuid import UUID

import pytest

from tidelog.base.errors import Code
from tidelog.base.ids import BrokerId, Offset
from tidelog.controller import (
    AlteredConfigs,
    BrokerToRegister,
    ConfigChange,
    ConfigOperation,
    ConfigsToAlter,
    ControllerSettings,
    ControllerState,
    TopicToCreate,
)
from tidelog.metadata import RegisteredEndpoint, ResourceKey, ResourceType
from tidelog.metadata.configs import BrokerSettings, ConfigSource, topic_entries, topic_values
from tidelog.metadata.configs.topic import CLEANUP_POLICY
from tidelog.metadata.records import ConfigRecord

TOPIC = ResourceKey(ResourceType.TOPIC, "t")
BROKER = ResourceKey(ResourceType.BROKER, "1")
ALL_BROKERS = ResourceKey(ResourceType.BROKER, "")
SET, DELETE, APPEND, SUBTRACT = ConfigOperation


class FirstRng:
    """Takes the first of whatever there is; ids are counted."""

    def __init__(self, next_id: int = 77) -> None:
        self._next_id = next_id

    def random(self) -> float:
        return 0.0

    def randrange(self, start: int, stop: int) -> int:
        return start

    def uuid(self) -> UUID:
        self._next_id += 1
        return UUID(int=self._next_id)


def cluster(static: Mapping[str, str] | None = None, configs: Sequence[tuple[str, str]] = ()) -> ControllerState:
    """Broker 1, which is the controller's own, with topic t."""
    settings = ControllerSettings(broker=BrokerSettings.of(static or {}), node_id=BrokerId(1))
    state = ControllerState(settings)
    broker = BrokerToRegister(BrokerId(1), UUID(int=1), (RegisteredEndpoint("PLAINTEXT", "h", 9092),))
    registered = state.decide_register_broker(broker, next_offset=Offset(0))
    apply(state, registered.records)
    apply(state, state.decide_unfence_broker(BrokerId(1), registered.reply.broker_epoch).records)
    apply(state, state.decide_create_topics([TopicToCreate("t", configs=configs)], rng=FirstRng()).records)
    return state


def apply(state: ControllerState, records: Sequence[object]) -> None:
    for record in records:
        state.apply(record)


def change(
    state: ControllerState,
    resource: ResourceKey,
    *changes: tuple[str, int, str | None],
    replaces_all: bool = False,
    validate_only: bool = False,
) -> AlteredConfigs:
    asked = ConfigsToAlter(resource, [ConfigChange(*one) for one in changes], replaces_all)
    decision = state.decide_alter_configs([asked], validate_only=validate_only)
    apply(state, decision.records)
    (result,) = decision.reply
    return result


def own(state: ControllerState, resource: ResourceKey) -> Mapping[str, str]:
    return state.metadata.image(Offset(0)).configs.get(resource, {})


def test_single_settings_are_set_changed_and_deleted() -> None:
    state = cluster(configs=[("retention.ms", "5"), ("segment.ms", "7")])
    assert change(state, TOPIC, ("retention.ms", SET, "6"), ("segment.ms", DELETE, None)).code == Code.NONE
    assert own(state, TOPIC) == {"retention.ms": "6"}


def test_what_is_so_already_takes_no_record() -> None:
    state = cluster(configs=[("retention.ms", "5")])
    asked = ConfigsToAlter(TOPIC, [ConfigChange("retention.ms", SET, "5"), ConfigChange("segment.ms", DELETE)])
    decision = state.decide_alter_configs([asked])
    assert (decision.records, decision.reply[0].code) == ((), Code.NONE)


def test_deleting_writes_a_null() -> None:
    state = cluster(configs=[("retention.ms", "5")])
    decision = state.decide_alter_configs([ConfigsToAlter(TOPIC, [ConfigChange("retention.ms", DELETE)])])
    assert decision.records == (ConfigRecord(resource_type=2, resource_name="t", name="retention.ms", value=None),)


@pytest.mark.parametrize(
    ("kind", "key", "old"),
    [
        (TOPIC, "retention.ms", "of.another.release"),
        (TOPIC, "retention.ms", "remote.storage.enable"),
        (BROKER, "log.retention.ms", "of.another.release"),
        (BROKER, "log.retention.ms", "ssl.cipher.suites"),
    ],
)
def test_what_another_release_set_is_in_nobodys_way_and_can_be_deleted(kind: ResourceKey, key: str, old: str) -> None:
    state = cluster()
    apply(state, [ConfigRecord(resource_type=kind.type, resource_name=kind.name, name=old, value="1:1")])
    assert change(state, kind, (key, SET, "5")).code is Code.NONE
    assert own(state, kind) == {old: "1:1", key: "5"}
    assert change(state, kind, (old, SET, "2")).code is not Code.NONE
    assert change(state, kind, (old, DELETE, None)).code is Code.NONE
    assert own(state, kind) == {key: "5"}


def test_replacing_all_takes_back_what_is_not_named() -> None:
    state = cluster(configs=[("retention.ms", "5"), ("segment.ms", "7")])
    change(state, TOPIC, ("segment.ms", SET, "8"), replaces_all=True)
    assert own(state, TOPIC) == {"segment.ms": "8"}
    change(state, TOPIC, replaces_all=True)
    assert own(state, TOPIC) == {}


def test_validating_changes_nothing() -> None:
    state = cluster()
    assert change(state, TOPIC, ("retention.ms", SET, "6"), validate_only=True).code == Code.NONE
    assert change(state, TOPIC, ("retention.ms", SET, "x"), validate_only=True).code == Code.INVALID_CONFIG
    assert own(state, TOPIC) == {}


def test_a_list_grows_and_shrinks_on_top_of_what_is_in_force() -> None:
    state = cluster({"log.cleanup.policy": "compact"})
    change(state, TOPIC, ("cleanup.policy", APPEND, "delete, compact"))
    assert own(state, TOPIC) == {"cleanup.policy": "compact,delete"}
    change(state, TOPIC, ("cleanup.policy", SUBTRACT, "compact"))
    assert own(state, TOPIC) == {"cleanup.policy": "delete"}
    change(state, TOPIC, ("cleanup.policy", SUBTRACT, "delete"))
    assert own(state, TOPIC) == {"cleanup.policy": ""}  # neither, rather than what the file says


@pytest.mark.parametrize(
    ("name", "operation", "value", "code", "says"),
    [
        ("retention.mss", SET, "1", Code.INVALID_CONFIG, "the closest is retention.ms"),
        ("retention.mss", DELETE, None, Code.INVALID_CONFIG, "the closest is retention.ms"),
        ("log.retention.ms", SET, "1", Code.INVALID_CONFIG, "the topic setting is retention.ms"),
        ("retention.ms", SET, "soon", Code.INVALID_CONFIG, "'soon' is not allowed"),
        ("retention.ms", SET, "-2", Code.INVALID_CONFIG, "from -1"),
        ("compression.type", SET, "lzma", Code.INVALID_CONFIG, "uncompressed, gzip, snappy, lz4, zstd, producer"),
        ("retention.ms", APPEND, "1", Code.INVALID_CONFIG, "no list"),
        ("retention.ms", SET, None, Code.INVALID_REQUEST, "value is missing"),
        ("cleanup.policy", APPEND, None, Code.INVALID_REQUEST, "value is missing"),
        ("retention.ms", 9, "1", Code.INVALID_REQUEST, "operation 9"),
    ],
)
def test_what_is_wrong_is_refused_by_name(name: str, operation: int, value: str | None, code: Code, says: str) -> None:
    state = cluster()
    result = change(state, TOPIC, ("segment.ms", SET, "7"), (name, operation, value))
    assert result.code == code
    assert says in (result.message or "")
    assert name in (result.message or "")
    assert own(state, TOPIC) == {}  # the other setting of the resource neither


def test_a_key_named_twice_is_refused() -> None:
    result = change(cluster(), TOPIC, ("segment.ms", SET, "7"), ("segment.ms", DELETE, None))
    assert (result.code, result.message) == (Code.INVALID_REQUEST, "segment.ms is named more than once")


def test_settings_that_contradict_each_other_are_refused_wherever_they_come_from() -> None:
    state = cluster({"log.cleaner.max.compaction.lag.ms": "100"})
    alone = change(state, TOPIC, ("min.compaction.lag.ms", SET, "200"))
    assert alone.code == Code.INVALID_CONFIG
    assert "max.compaction.lag.ms, which is 100" in (alone.message or "")
    both = change(state, TOPIC, ("min.compaction.lag.ms", SET, "200"), ("max.compaction.lag.ms", SET, "300"))
    assert both.code == Code.NONE
    assert change(state, TOPIC, ("max.compaction.lag.ms", DELETE, None)).code == Code.INVALID_CONFIG
    brokers = change(state, ALL_BROKERS, ("log.cleaner.min.compaction.lag.ms", SET, "200"))
    assert brokers.code == Code.INVALID_REQUEST


def test_each_resource_stands_for_itself() -> None:
    state = cluster()
    missing = ResourceKey(ResourceType.TOPIC, "nowhere")
    decision = state.decide_alter_configs(
        [
            ConfigsToAlter(missing, [ConfigChange("retention.ms", SET, "1")]),
            ConfigsToAlter(TOPIC, [ConfigChange("retention.ms", SET, "1")]),
            ConfigsToAlter(BROKER, [ConfigChange("message.max.bytes", SET, "x")]),
        ]
    )
    assert [one.code for one in decision.reply] == [
        Code.UNKNOWN_TOPIC_OR_PARTITION,
        Code.NONE,
        Code.INVALID_REQUEST,
    ]
    assert len(decision.records) == 1


def test_a_resource_named_twice_is_refused_both_times() -> None:
    asked = ConfigsToAlter(TOPIC, [ConfigChange("retention.ms", SET, "1")])
    decision = cluster().decide_alter_configs([asked, asked])
    assert decision.records == ()
    assert [one.code for one in decision.reply] == [Code.INVALID_REQUEST] * 2


def test_what_is_named_twice_is_called_by_its_name() -> None:
    asked = [ConfigsToAlter(one, []) for one in (TOPIC, TOPIC, ALL_BROKERS, ALL_BROKERS)]
    told = cluster().decide_alter_configs(asked).reply
    assert "the request names topic 't' more than once" in (told[0].message or "")
    assert "the request names what all brokers share more than once" in (told[2].message or "")


def test_a_request_changes_so_many_settings_at_most(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tidelog.controller.configs.CONFIG_CHANGES_PER_REQUEST_MAX", 3)
    two = ConfigsToAlter(TOPIC, [ConfigChange(name, SET, "10") for name in ("retention.ms", "segment.ms")])
    asked = [two, ConfigsToAlter(BROKER, [ConfigChange("log.retention.ms", SET, "10")])]
    assert len(cluster().decide_alter_configs(asked).records) == 3
    asked += [ConfigsToAlter(ALL_BROKERS, [ConfigChange("log.retention.ms", SET, "10")])]
    decision = cluster().decide_alter_configs(asked)
    assert decision.records == ()
    assert [one.code for one in decision.reply] == [Code.POLICY_VIOLATION] * 3


def test_how_many_need_to_be_in_sync_is_written_for_all_brokers_or_for_a_topic() -> None:
    state = cluster({"min.insync.replicas": "2"})
    change(state, TOPIC, ("retention.ms", SET, "6"))
    assert own(state, TOPIC) == {"retention.ms": "6"}, "what the file says is no setting of the topic"
    change(state, ALL_BROKERS, ("log.retention.ms", SET, "6"))
    assert own(state, ALL_BROKERS) == {"log.retention.ms": "6", "min.insync.replicas": "2"}
    assert change(state, BROKER, ("min.insync.replicas", SET, "1")).code is Code.INVALID_REQUEST


def test_a_list_of_the_controllers_own_broker_grows_on_top_of_its_file_and_that_of_another_does_not() -> None:
    state = cluster({"log.cleanup.policy": "compact"})
    other = BrokerToRegister(BrokerId(2), UUID(int=2), (RegisteredEndpoint("PLAINTEXT", "h", 9092),))
    apply(state, state.decide_register_broker(other, next_offset=Offset(9)).records)
    for resource, result in ((BROKER, "compact,delete"), (ResourceKey(ResourceType.BROKER, "2"), "delete")):
        assert change(state, resource, ("log.cleanup.policy", APPEND, "delete")).code is Code.NONE
        assert own(state, resource) == {"log.cleanup.policy": result}


@pytest.mark.parametrize(
    ("kind", "name", "code"),
    [
        (ResourceType.BROKER, "2", Code.BROKER_ID_NOT_REGISTERED),
        (ResourceType.BROKER, "one", Code.INVALID_REQUEST),
        (ResourceType.BROKER, "01", Code.INVALID_REQUEST),
        (ResourceType.BROKER, "\N{ARABIC-INDIC DIGIT ONE}", Code.INVALID_REQUEST),
        (ResourceType.GROUP, "", Code.INVALID_REQUEST),
        (ResourceType.CLIENT_METRICS, "m", Code.INVALID_REQUEST),
        (ResourceType.BROKER_LOGGER, "1", Code.INVALID_REQUEST),
    ],
)
def test_resources_that_have_no_settings(kind: ResourceType, name: str, code: Code) -> None:
    assert change(cluster(), ResourceKey(kind, name), ("retention.ms", SET, "1")).code == code


def test_a_list_that_has_no_default_and_cannot_change_is_refused_as_any_other_one() -> None:
    result = change(cluster(), BROKER, ("log.dirs", APPEND, "/more"))
    assert result.code is Code.INVALID_REQUEST
    assert "log.dirs" in (result.message or "")


@pytest.mark.parametrize(
    ("kind", "says"),
    [
        (ResourceType.CLIENT_METRICS, "metrics of clients are not collected here"),
        (ResourceType.BROKER_LOGGER, "resources of type 8 have no settings in the metadata"),
    ],
)
def test_whose_settings_do_not_exist_is_told_why(kind: ResourceType, says: str) -> None:
    assert says in (change(cluster(), ResourceKey(kind, "1"), ("a", SET, "1")).message or "")


def test_settings_of_a_group_are_kept_whether_or_not_there_is_such_a_group() -> None:
    state, group = cluster(), ResourceKey(ResourceType.GROUP, "g")
    assert change(state, group, ("consumer.session.timeout.ms", SET, "50000")).code is Code.NONE
    assert own(state, group) == {"consumer.session.timeout.ms": "50000"}
    assert change(state, group, ("consumer.session.timeout.ms", DELETE, None)).code is Code.NONE
    assert own(state, group) == {}


@pytest.mark.parametrize(
    ("name", "text", "says"),
    [
        ("consumer.session.timeout.ms", "1000", "from 45000 (group.consumer.min.session.timeout.ms) to 60000"),
        ("consumer.heartbeat.interval.ms", "60000", "to 15000 (group.consumer.max.heartbeat.interval.ms)"),
        ("consumer.assignment.interval.ms", "60000", "to 15000"),
        ("consumer.session.timeout", "1", "the closest is consumer.session.timeout.ms"),
        ("group.consumer.session.timeout.ms", "1", "the group setting is consumer.session.timeout.ms"),
        ("consumer.session.timeout.ms", "x", "a whole number"),
    ],
)
def test_settings_of_a_group_that_brokers_do_not_allow_are_refused(name: str, text: str, says: str) -> None:
    result = change(cluster(), ResourceKey(ResourceType.GROUP, "g"), (name, SET, text))
    assert result.code is Code.INVALID_CONFIG
    assert says in (result.message or "")


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("num.partitions", "start the broker again"),
        ("log.retention.hours", "log.retention.ms, which counts before it, can"),
        ("log.retenton.ms", "the closest is log.retention.ms"),
        ("retention.ms", "it is a topic setting"),
        ("authorizer.class.name", "is not allowed"),
        ("remote.log.reader.threads", "no tiered storage"),
        ("max.connections.per.ip.overrides", "ADDRESS:LIMIT"),
        ("group.share.max.size", "start the broker again"),
    ],
)
def test_broker_settings_that_cannot_change_are_refused_with_what_to_do(name: str, says: str) -> None:
    for resource in (BROKER, ALL_BROKERS):
        result = change(cluster(), resource, (name, SET, "1"))
        assert result.code == Code.INVALID_REQUEST
        assert says in (result.message or "")


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("num.io.threads", "16"),
        ("num.network.threads", "6"),
        ("num.replica.fetchers", "4"),
        ("background.threads", "4"),
        ("num.recovery.threads.per.data.dir", "4"),
        ("log.cleaner.threads", "2"),
        ("log.cleaner.io.buffer.size", "1000000"),
        ("log.cleaner.io.buffer.load.factor", "0.8"),
        ("log.segment.delete.delay.ms", "100"),
        ("max.connections.per.ip.overrides", "10.0.0.7:100"),
        ("group.consumer.assignment.interval.ms", "5"),
        ("ssl.client.auth", "none"),
        ("listener.name.outside.num.network.threads", "5"),
    ],
)
def test_what_kafka_changes_while_it_runs_is_kept(name: str, text: str) -> None:
    for resource in (BROKER, ALL_BROKERS):
        state = cluster()
        assert change(state, resource, (name, SET, text)) == AlteredConfigs(resource, Code.NONE)
        assert own(state, resource) == {name: text}
        assert change(state, resource, (name, DELETE, None)).code == Code.NONE


def test_a_broker_keeps_the_listeners_that_clients_are_told_of() -> None:
    state = cluster()
    both = ("listeners", SET, "PLAINTEXT://:9092,OUTSIDE://:9094")
    outside = ("listener.security.protocol.map", SET, "OUTSIDE:PLAINTEXT,PLAINTEXT:PLAINTEXT")
    assert change(state, BROKER, both, outside).code == Code.NONE
    for name, text, says in (
        ("listeners", "OUTSIDE://:9094", "PLAINTEXT is missing"),
        ("listener.security.protocol.map", "OUTSIDE:PLAINTEXT,PLAINTEXT:SSL", "PLAINTEXT speaks PLAINTEXT as long"),
    ):
        refused = change(state, BROKER, (name, SET, text))
        assert refused.code == Code.INVALID_REQUEST
        assert says in (refused.message or "")
    assert change(state, BROKER, ("listeners", APPEND, "INSIDE://:9095")).code == Code.NONE
    assert own(state, BROKER)["listeners"] == "PLAINTEXT://:9092,OUTSIDE://:9094,INSIDE://:9095"
    assert change(state, BROKER, ("listeners", DELETE, None)).code == Code.NONE


def test_a_listener_that_another_broker_has_by_its_file_goes_on_speaking_what_it_does() -> None:
    state = cluster()
    other = BrokerToRegister(BrokerId(2), UUID(int=2), (RegisteredEndpoint("CLIENTS", "h", 9092),))
    apply(state, state.decide_register_broker(other, next_offset=Offset(9)).records)
    second = ResourceKey(ResourceType.BROKER, "2")
    refused = change(state, second, ("listener.security.protocol.map", SET, "CLIENTS:SSL"))
    assert refused.code is Code.INVALID_REQUEST
    assert "CLIENTS speaks PLAINTEXT as long as the broker runs" in (refused.message or "")
    assert change(state, second, ("listener.security.protocol.map", SET, "OTHERS:SSL")).code is Code.NONE


def test_topics_keep_what_does_nothing_and_refuse_tiers() -> None:
    state = cluster()
    assert change(state, TOPIC, ("file.delete.delay.ms", SET, "5")).code == Code.NONE
    assert change(state, TOPIC, ("local.retention.ms", SET, "-2")).code == Code.NONE
    refused = change(state, TOPIC, ("local.retention.ms", SET, "5"))
    assert refused.code == Code.INVALID_CONFIG
    assert "no tiered storage" in (refused.message or "")


@pytest.mark.parametrize("name", ["max.connections", "max.connections.per.ip"])
def test_nobody_locks_everybody_out_for_good(name: str) -> None:
    for resource in (BROKER, ALL_BROKERS):
        result = change(cluster(), resource, (name, SET, "0"))
        assert result.code == Code.INVALID_REQUEST
        assert name in (result.message or "")


def test_a_topic_sees_what_was_set_for_brokers_the_own_one_first() -> None:
    state = cluster({"log.retention.hours": "1"})
    change(state, ALL_BROKERS, ("log.retention.ms", SET, "20"))
    new = state.decide_create_topics([TopicToCreate("new")], rng=FirstRng(88)).reply[0]
    shared = next(entry for entry in new.configs if entry.name == "retention.ms")
    assert (shared.value, shared.source) == ("20", ConfigSource.DYNAMIC_DEFAULT_BROKER)
    change(state, BROKER, ("log.retention.ms", SET, "30"))
    new = state.decide_create_topics([TopicToCreate("new")], rng=FirstRng(88)).reply[0]
    mine = next(entry for entry in new.configs if entry.name == "retention.ms")
    assert [(one.name, one.value) for one in mine.synonyms] == [
        ("log.retention.ms", "30"),
        ("log.retention.ms", "20"),
        ("log.retention.hours", "3600000"),
        ("log.retention.ms", "604800000"),
    ]


def test_what_stands_in_the_metadata_is_what_the_table_reads() -> None:
    state = cluster()
    change(state, TOPIC, ("cleanup.policy", SET, "compact"))
    values = topic_values(own(state, TOPIC), BrokerSettings.of({}))
    assert values[CLEANUP_POLICY] == ("compact",)
    entries = {entry.name: entry.source for entry in topic_entries(own(state, TOPIC), BrokerSettings.of({}))}
    assert entries["cleanup.policy"] == ConfigSource.DYNAMIC_TOPIC

"""The one table of settings: look-ups, checks, and what is in force and why.

A topic's setting comes from the strongest place that has it:
the topic itself > this broker, changed while running > all brokers, changed while running > its file > the default.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import IntEnum
from functools import cache
from itertools import pairwise
from typing import Any, Literal, TypeVar, cast

from tidelog.base.errors import ConfigError
from tidelog.base.ids import BrokerId
from tidelog.metadata.configs import broker as broker_keys
from tidelog.metadata.configs import topic as topic_keys
from tidelog.metadata.configs.broker import BROKER_CONFIGS
from tidelog.metadata.configs.groups import GROUP_CONFIGS, check_ranges
from tidelog.metadata.configs.key import PASSWORD, ConfigKey, ConfigType, ConfigValue, Support, Synonym
from tidelog.metadata.configs.sasl import OF_LISTENER, OF_MECHANISM, is_mechanism
from tidelog.metadata.configs.tls import TLS_NAMES
from tidelog.metadata.configs.topic import TOPIC_CONFIGS
from tidelog.metadata.image import ResourceKey, ResourceType
from tidelog.metadata.ip_overrides import parse_per_ip_overrides
from tidelog.metadata.listeners import (
    LISTENERS,
    PROTOCOL_MAP,
    parse_listeners,
    parse_protocols,
)

T = TypeVar("T")

Scope = Literal["topic", "broker", "group"]

TABLE: Mapping[Scope, Mapping[str, ConfigKey[Any]]] = {
    "topic": {key.name: key for key in TOPIC_CONFIGS},
    "broker": {key.name: key for key in BROKER_CONFIGS},
    "group": {key.name: key for key in GROUP_CONFIGS},
}


_OF_LISTENERS = "listener.name."
_OF_PLUGINS: Mapping[str, str] = {
    "config.providers.": "config.providers",
    "rlmm.config.": "remote.log.metadata.manager.class.name",
    "rsm.config.": "remote.log.storage.manager.class.name",
}
"""How the settings begin that Kafka hands on to a plugin, and the setting that names it."""


class ConfigSource(IntEnum):
    """Where a value comes from, with the numbers of DescribeConfigs."""

    UNKNOWN = 0
    DYNAMIC_TOPIC = 1
    DYNAMIC_BROKER = 2
    DYNAMIC_DEFAULT_BROKER = 3
    STATIC_BROKER = 4
    DEFAULT = 5
    DYNAMIC_BROKER_LOGGER = 6
    DYNAMIC_GROUP = 8


@dataclass(frozen=True, slots=True)
class ConfigSynonym:
    """One of the places where a value could come from, under the name that it has there."""

    name: str
    value: str | None
    source: ConfigSource


@dataclass(frozen=True, slots=True)
class EffectiveConfig:
    """A setting as it is in force.

    Attributes:
        value: as text; None where it has none, or where it must not be shown.
        synonyms: every place that has a value for it, the strongest, which is in force, first.
    """

    key: ConfigKey[Any]
    value: str | None
    source: ConfigSource
    synonyms: tuple[ConfigSynonym, ...]

    @property
    def name(self) -> str:
        return self.key.name

    @property
    def is_read_only(self) -> bool:
        return not self.key.is_dynamic

    @property
    def is_default(self) -> bool:
        """Whether nobody set it (the answer of DescribeConfigs 0)."""
        return self.source == ConfigSource.DEFAULT

    @property
    def type(self) -> ConfigType:
        return self.key.type


@dataclass(frozen=True, slots=True)
class BrokerSettings:
    """What is set for one broker, and behind it for the topics on it; as text, by Kafka's keys."""

    static: Mapping[str, str]
    """Its file."""
    dynamic: Mapping[str, str]
    """Set for this broker while running."""
    dynamic_default: Mapping[str, str]
    """Set for all brokers while running."""

    @staticmethod
    def of(static: Mapping[str, str]) -> BrokerSettings:
        """Settings that come from a file alone."""
        return BrokerSettings(static, {}, {})

    def text(self, name: str) -> str | None:
        """What is set for a key, in the strongest place that has it."""
        return next((settings[name] for _, settings in self.places() if name in settings), None)

    def __getitem__(self, key: ConfigKey[T]) -> T:
        """What is in force; None of a key without a default that nobody set."""
        text = self.text(key.name)
        return key.fallback if text is None else key.parse(text)

    def places(self) -> tuple[tuple[ConfigSource, Mapping[str, str]], ...]:
        """The strongest first."""
        return (
            (ConfigSource.DYNAMIC_BROKER, self.dynamic),
            (ConfigSource.DYNAMIC_DEFAULT_BROKER, self.dynamic_default),
            (ConfigSource.STATIC_BROKER, self.static),
        )


def broker_settings(
    static: Mapping[str, str], configs: Mapping[ResourceKey, Mapping[str, str]], broker_id: BrokerId | None
) -> BrokerSettings:
    """What is set for a broker: its file, and what the metadata says over it.

    Args:
        configs: of an image.
        broker_id: None for what is set for all brokers only.
    """
    own: Mapping[str, str] = {}
    if broker_id is not None:
        own = configs.get(ResourceKey(ResourceType.BROKER, str(broker_id)), {})
    return BrokerSettings(static, own, configs.get(ResourceKey(ResourceType.BROKER, ""), {}))


def config_key(scope: Scope, name: str) -> ConfigKey[Any]:
    """The table's entry.

    Raises:
        ConfigError: there is none; names the closest one that there is.
    """
    key = TABLE[scope].get(name)
    if key is None and scope == "broker":
        key = _key_by_prefix(name)
    if key is None:
        raise ConfigError(f"{name}: there is no such {scope} setting{_suggestion(scope, name)}")
    if name != _in_small_letters(name):  # nobody would look at it: a certificate might not be asked for
        raise ConfigError(
            f"{name}: the names of a listener and of a mechanism stand here in small letters: {_in_small_letters(name)}"
        )
    return key


def _in_small_letters(name: str) -> str:
    """As the name of a setting has those of a listener and of a mechanism."""
    if not name.startswith(_OF_LISTENERS):
        return name
    listener, dot, of_listener = name.removeprefix(_OF_LISTENERS).partition(".")
    mechanism, second_dot, rest = of_listener.partition(".")
    if is_mechanism(mechanism):
        of_listener = f"{mechanism.lower()}{second_dot}{rest}"
    return f"{_OF_LISTENERS}{listener.lower()}{dot}{of_listener}"


def _key_by_prefix(name: str) -> ConfigKey[Any] | None:
    """Of a setting whose name Kafka does not know in advance: one listener's, or a plugin's; None of any other."""
    if name.startswith(_OF_LISTENERS):
        _, _, of_listener = name.removeprefix(_OF_LISTENERS).partition(".")
        mechanism, _, of_mechanism = of_listener.partition(".")
        key = TABLE["broker"].get(of_listener)
        if key is None and is_mechanism(mechanism) and of_mechanism in OF_MECHANISM:
            return replace(OF_MECHANISM[of_mechanism], name=name)
        key = key or TABLE["broker"].get(of_mechanism)
        is_own = of_listener in TLS_NAMES or of_listener in OF_LISTENER
        if key is None or key.support != Support.SERVED or is_own:
            return None if key is None else replace(key, name=name)
        why = f"no listener has a setting of its own; {key.name} is one for all of them"
        return replace(key, name=name, default=None, support=Support.REFUSED, why=why)
    for prefix, plugin in _OF_PLUGINS.items():
        if name.startswith(prefix):  # it may be a secret, as far as anybody knows
            return replace(TABLE["broker"][plugin], name=name, kind=PASSWORD, default=None)
    return None


def without_effect(scope: Scope, names: Iterable[str]) -> list[ConfigKey[Any]]:
    """Those of the settings that are taken, and do nothing here."""
    keys = (TABLE[scope].get(name) or (_key_by_prefix(name) if scope == "broker" else None) for name in names)
    return [key for key in keys if key is not None and key.support == Support.WITHOUT_EFFECT]


def validate(scope: Scope, name: str, text: str) -> ConfigValue:
    """The value of one setting.

    Raises:
        ConfigError: unknown, of the wrong type, out of range, or known and not supported. Says which, and what is.
    """
    value: ConfigValue = config_key(scope, name).parse(text)
    return value


def validate_topic_configs(configs: Mapping[str, str], broker: BrokerSettings | None = None) -> dict[str, ConfigValue]:
    """The settings made for one topic, checked one by one and together.

    Args:
        broker: what is in force where the topic says nothing; None for the defaults.

    Raises:
        ConfigError: at the first that is wrong.
    """
    values = {name: validate("topic", name, text) for name, text in configs.items()}
    _check_together(topic_values(configs, broker or BrokerSettings.of({})))
    return values


def validate_group_configs(configs: Mapping[str, str], broker: BrokerSettings) -> None:
    """The settings made for one group, checked one by one and together.

    Args:
        broker: what is in force where the group says nothing, and what it allows.

    Raises:
        ConfigError: at the first that is wrong.
    """
    for name, text in configs.items():
        validate("group", name, text)
    values = group_values(configs, broker)
    own = TABLE["group"]
    check_ranges(lambda key: values[key] if key.name in own else broker[key], lambda key: key.name)


def _check_group_settings(broker: BrokerSettings) -> None:
    """What a broker says for all of its groups."""
    values = group_values({}, broker)
    own = TABLE["group"]
    check_ranges(lambda key: values[key] if key.name in own else broker[key], lambda key: key.synonyms[0].name)


def validate_broker_configs(broker: BrokerSettings) -> None:
    """What is set for a broker while it runs, checked one by one and together with its file.

    Raises:
        ConfigError: at the first that is unknown (naming the closest known), wrong, or needs a restart.
    """
    for name, text in (*broker.dynamic_default.items(), *broker.dynamic.items()):
        key = config_key("broker", name)
        key.parse(text)
        if not key.is_dynamic:
            raise ConfigError(
                f"{name} cannot be changed while the broker runs{_changeable_instead(name)}: "
                "set it in the broker's .properties file, and start the broker again"
            )
    _check_listeners(broker)
    overrides = parse_per_ip_overrides(broker[broker_keys.MAX_CONNECTIONS_PER_IP_OVERRIDES])
    if broker[broker_keys.MAX_CONNECTIONS_PER_IP] == 0 and not any(overrides.values()):
        raise ConfigError(
            "max.connections.per.ip is 0, and max.connections.per.ip.overrides lets nobody in either: "
            "there would be no one to change it back"
        )
    _check_together(topic_values({}, broker))
    _check_group_settings(broker)


def _check_listeners(broker: BrokerSettings) -> None:
    """What is known of them without the broker's file, which may map their names."""
    of_one = [name for name in broker.dynamic_default if name in (LISTENERS, PROTOCOL_MAP)]
    if of_one:
        raise ConfigError(f"{of_one[0]} is each broker's own: set it for one after the other, not for all of them")
    text = broker.dynamic.get(LISTENERS)
    if text is not None:
        parse_listeners(LISTENERS, _elements(text))
    parse_protocols(broker[broker_keys.LISTENER_SECURITY_PROTOCOL_MAP])


def _elements(text: str) -> list[str]:
    return [element.strip() for element in text.split(",") if element.strip()]


def _check_together(values: ConfigValues) -> None:
    low, high = values[topic_keys.MIN_COMPACTION_LAG_MS], values[topic_keys.MAX_COMPACTION_LAG_MS]
    if low > high:
        raise ConfigError(
            f"min.compaction.lag.ms is {low}: it must not be above max.compaction.lag.ms, which is {high}"
        )


def _changeable_instead(name: str) -> str:
    """What to set in the place of a broker setting that stands behind the same topic setting, if there is such."""
    for key in TOPIC_CONFIGS:
        names = [synonym.name for synonym in key.synonyms]
        if name in names and names[0] != name and TABLE["broker"][names[0]].is_dynamic:
            return f" ({names[0]}, which counts before it, can)"
    return ""


class ConfigValues:
    """Every setting of a node or of a topic, by its key.

    Attributes:
        by_name: the same by Kafka's names.
    """

    __slots__ = ("by_name",)

    def __init__(self, by_name: Mapping[str, ConfigValue | None]) -> None:
        self.by_name = by_name

    def __getitem__(self, key: ConfigKey[T]) -> T:
        return cast(T, self.by_name[key.name])  # which the key parsed


def broker_values(properties: Mapping[str, str]) -> ConfigValues:
    """Every setting of a node, given its .properties file: what is not set has its default, or None without one.

    Raises:
        ConfigError: at the first setting that is unknown (naming the closest known) or wrong.
    """
    own = {name: validate("broker", name, text) for name, text in properties.items()}
    _check_group_settings(BrokerSettings.of(properties))
    return ConfigValues(_defaults("broker") | {name: value for name, value in own.items() if name in TABLE["broker"]})


@cache
def _defaults(scope: Scope) -> dict[str, ConfigValue | None]:
    return {name: key.fallback for name, key in TABLE[scope].items()}


def topic_values(configs: Mapping[str, str], broker: BrokerSettings) -> ConfigValues:
    """Every setting of a topic, as it is in force at a broker.

    Args:
        configs: what was set for the topic, checked when it was.
    """
    values = _defaults("topic").copy()
    places = [settings for _, settings in broker.places() if settings]
    for name, key in TABLE["topic"].items():
        if key.support == Support.REFUSED:
            continue  # whatever another's metadata may have: its default is what is so
        text = configs.get(name)
        if text is None and places:
            text = _text_behind(key, places)
        if text is not None:
            values[name] = key.parse(text)
    return ConfigValues(values)


def group_values(configs: Mapping[str, str], broker: BrokerSettings) -> ConfigValues:
    """Every setting of a group, as it is in force at a broker.

    Args:
        configs: what was set for the group, checked when it was.
    """
    values = _defaults("group").copy()
    places = [settings for _, settings in broker.places() if settings]
    for name, key in TABLE["group"].items():
        text = configs.get(name)
        if text is None and places:
            text = _text_behind(key, places)
        if text is not None:
            values[name] = key.parse(text)
    return ConfigValues(values)


def _text_behind(key: ConfigKey[Any], places: Sequence[Mapping[str, str]]) -> str | None:
    """What a topic's setting takes from its broker, if anything: as `_places` has it, for many topics at once."""
    for settings in places:
        for synonym in key.synonyms:
            text = settings.get(synonym.name)
            if text is not None:
                return _scaled(text, synonym)
    return None


def _scaled(text: str, synonym: Synonym) -> str:
    return text if synonym.scale == 1 or int(text) < 0 else str(int(text) * synonym.scale)


def topic_entries(configs: Mapping[str, str], broker: BrokerSettings) -> list[EffectiveConfig]:
    """Every setting of a topic with where it comes from (DescribeConfigs, CreateTopics), by name."""
    return [_entry(key, tuple(_places(key, configs, broker))) for key in TOPIC_CONFIGS]


def group_entries(configs: Mapping[str, str], broker: BrokerSettings) -> list[EffectiveConfig]:
    """Every setting of a group with where it comes from (DescribeConfigs), by name."""
    return [
        _entry(key, tuple(_places(key, configs, broker, ConfigSource.DYNAMIC_GROUP)))
        for key in sorted(GROUP_CONFIGS, key=lambda key: key.name)
    ]


def broker_entries(broker: BrokerSettings) -> list[EffectiveConfig]:
    """Every setting of a broker with where it comes from (DescribeConfigs), by name."""
    entries = []
    prefixed = {
        name: _key_by_prefix(name) for _, settings in broker.places() for name in settings.keys() - TABLE["broker"]
    }
    keys = [*BROKER_CONFIGS, *(key for key in prefixed.values() if key is not None)]
    for key in sorted(keys, key=lambda key: key.name):
        synonyms = [
            ConfigSynonym(key.name, settings[key.name], source)
            for source, settings in broker.places()
            if key.name in settings
        ]
        if key.default is not None or not synonyms:
            synonyms.append(ConfigSynonym(key.name, key.default, ConfigSource.DEFAULT))
        entries.append(_entry(key, tuple(synonyms)))
    return entries


def _places(
    key: ConfigKey[Any],
    configs: Mapping[str, str],
    broker: BrokerSettings,
    own: ConfigSource = ConfigSource.DYNAMIC_TOPIC,
) -> Iterator[ConfigSynonym]:
    """Where a setting of a topic or group has a value, the strongest first; the default is always the last."""
    if key.name in configs:
        yield ConfigSynonym(key.name, configs[key.name], own)
    for source, settings in broker.places():
        for synonym in key.synonyms:
            text = settings.get(synonym.name)
            if text is not None:
                yield ConfigSynonym(synonym.name, _scaled(text, synonym), source)
    yield ConfigSynonym(key.synonyms[0].name if key.synonyms else key.name, key.default, ConfigSource.DEFAULT)


def _entry(key: ConfigKey[Any], synonyms: tuple[ConfigSynonym, ...]) -> EffectiveConfig:
    if key.is_sensitive:
        synonyms = tuple(ConfigSynonym(s.name, None, s.source) for s in synonyms)
    return EffectiveConfig(key, synonyms[0].value, synonyms[0].source, synonyms)


def _suggestion(scope: Scope, name: str) -> str:
    for other in TABLE:
        if other != scope and name in TABLE[other]:
            own = TABLE[scope].values()
            behind = [key.name for key in own if any(one.name == name for one in key.synonyms)]
            named = f"; the {scope} setting is {behind[0]}" if scope != "broker" and behind else ""
            return f": it is a {other} setting{named}"
    closest = _closest(scope, name)
    return f"; the closest is {closest}" if closest else ""


SUGGESTED_FOR_LENGTH_MAX = 100


def _closest(scope: Scope, name: str) -> str | None:
    """The setting whose pairs of letters are most alike (Dice): one request may ask for thousands."""
    if len(name) > SUGGESTED_FOR_LENGTH_MAX:
        return None
    wanted = _pairs(name)
    alike = {known: len(pairs & wanted) / (len(pairs) + len(wanted)) for known, pairs in _pairs_of(scope).items()}
    closest = max(alike, key=alike.__getitem__)
    return closest if alike[closest] else None


@cache
def _pairs_of(scope: Scope) -> dict[str, frozenset[str]]:
    return {name: _pairs(name) for name in TABLE[scope]}


def _pairs(name: str) -> frozenset[str]:
    return frozenset(map("".join, pairwise(name)))

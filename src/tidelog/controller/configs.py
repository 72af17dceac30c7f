"""Settings of topics and brokers: changing them while the cluster runs.

Each resource of a request stands for itself: what is refused of one leaves the others alone, and nothing of a refused
one is changed. What is in force afterwards is checked as a whole, so that no two settings contradict each other.

Kafka: `ConfigurationControlManager`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import islice

from tidelog.base.errors import Code, ConfigError, KafkaError, refusal
from tidelog.base.ids import BrokerId
from tidelog.controller.leaders import changes_on_min_insync
from tidelog.controller.limits import Room
from tidelog.controller.partition_scan import PartitionScan
from tidelog.controller.pending_changes import after, pending_changes
from tidelog.controller.topic_rules import UNCLEAN_ELECTION, TopicRules
from tidelog.controller.values import (
    AlteredConfigs,
    ConfigChange,
    ConfigOperation,
    ConfigsToAlter,
    ControllerSettings,
)
from tidelog.journal import Decision
from tidelog.metadata.configs import (
    TABLE,
    BrokerSettings,
    ConfigType,
    Scope,
    Support,
    broker_entries,
    broker_settings,
    config_key,
    group_entries,
    topic_entries,
    validate_broker_configs,
    validate_group_configs,
    validate_topic_configs,
)
from tidelog.metadata.configs.limits import MAX_CONFIGURED_RESOURCES
from tidelog.metadata.configs.min_insync import ALL_BROKERS, MIN_INSYNC
from tidelog.metadata.image import MetadataView, ResourceKey, ResourceType
from tidelog.metadata.listeners import (
    LISTENERS,
    PROTOCOL_MAP,
    PROTOCOLS,
    parse_listeners,
    parse_protocols,
)
from tidelog.metadata.records.cluster import ConfigRecord
from tidelog.metadata.records.topics import PartitionChangeRecord
from tidelog.security.sasl_listener import check_login_modules

SCOPES: Mapping[ResourceType, Scope] = {
    ResourceType.TOPIC: "topic",
    ResourceType.BROKER: "broker",
    ResourceType.GROUP: "group",
}

CONFIG_CHANGES_PER_REQUEST_MAX = 10_000
"""What a request changes is worked out in one step of the event loop, as with partitions."""


def decide_alter_configs(
    metadata: MetadataView,
    settings: ControllerSettings,
    resources: Sequence[ConfigsToAlter],
    *,
    validate_only: bool,
    scan: PartitionScan,
) -> Decision[tuple[AlteredConfigs, ...]]:
    """Change settings, those resources that can be in one batch. The results are in the order of the request.

    Where fewer need to be in sync from then on, nobody may be eligible who lacks what those commit alone (rule 4). So
    who is eligible ceases to be with the setting, or before it: where those are many, or there are many partitions to
    look for them, in portions, each on being asked again, and the setting comes with the last of them. Who is eligible
    no longer loses nothing by that, but for the moment, and for good if the request is not repeated, there is one less
    to lead. Elections that are allowed by a setting follow it.

    Args:
        validate_only: say what would become of them, and do nothing.
        scan: a pass that is told what changes behind it: goes on with it.
    """
    counts = Counter(one.resource for one in resources)
    are_too_many = sum(len(one.changes) for one in resources) > CONFIG_CHANGES_PER_REQUEST_MAX
    records: list[object] = []
    altered: list[AlteredConfigs] = []
    room = Room(metadata, settings, MAX_CONFIGURED_RESOURCES, len(metadata.configs))
    for one in resources:
        try:
            if counts[one.resource] > 1:
                raise refusal(Code.INVALID_REQUEST, f"the request names {_called(one.resource)} more than once")
            if are_too_many:
                raise refusal(
                    Code.POLICY_VIOLATION,
                    f"the request changes more than {CONFIG_CHANGES_PER_REQUEST_MAX} settings: send several requests",
                )
            _check_exists(metadata, one.resource)
            changed_one = _alter(metadata, settings, one)
            if changed_one and one.resource.type == ResourceType.GROUP and one.resource not in metadata.configs:
                room.take()
            records += changed_one
        except KafkaError as error:
            altered.append(AlteredConfigs(one.resource, error.code, str(error)))
            continue
        altered.append(AlteredConfigs(one.resource, Code.NONE))
    if validate_only:
        return Decision((), tuple(altered))
    changed = {record.name for record in records if isinstance(record, ConfigRecord)}
    if not changed & {MIN_INSYNC, UNCLEAN_ELECTION.name}:
        return Decision(tuple(records), tuple(altered))
    count_max = settings.partition_changes_max
    draft = after(metadata, *records)
    changes: list[PartitionChangeRecord] = []
    if MIN_INSYNC in changed:
        rules = TopicRules(draft, settings)
        changes += islice(changes_on_min_insync(rules, scan.portion(draft, count_max)), count_max)
        if not scan.is_done:
            return Decision(tuple(changes), tuple(replace(one, has_more=True) for one in altered))
    if UNCLEAN_ELECTION.name in changed:
        changes += pending_changes(after(draft, *changes), settings)
    return Decision((*records, *changes), tuple(altered))


def _check_exists(metadata: MetadataView, resource: ResourceKey) -> None:
    kind, name = resource
    if kind == ResourceType.TOPIC:
        if name not in metadata.topics_by_name:
            raise refusal(Code.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {name!r}")
    elif kind == ResourceType.BROKER:
        if name and not (name.isdecimal() and str(int(name)) == name):
            raise refusal(Code.INVALID_REQUEST, f"{name!r} is no broker's id; it takes a number, or nothing for all")
        if name and BrokerId(int(name)) not in metadata.brokers:
            raise refusal(Code.BROKER_ID_NOT_REGISTERED, f"no broker {name} is registered")
    elif kind == ResourceType.GROUP:
        if not name:
            raise refusal(Code.INVALID_REQUEST, "a group is set by its name: what all share are settings of brokers")
    elif kind == ResourceType.CLIENT_METRICS:
        raise refusal(Code.INVALID_REQUEST, "metrics of clients are not collected here, so there is nothing to set")
    else:
        raise refusal(Code.INVALID_REQUEST, f"resources of type {kind.value} have no settings in the metadata")


def _alter(metadata: MetadataView, settings: ControllerSettings, one: ConfigsToAlter) -> list[ConfigRecord]:
    """The records that make it so; none for what is so already."""
    resource = one.resource
    scope = SCOPES[resource.type]
    before = metadata.configs.get(resource, {})
    broker = _settings_behind(metadata, settings, resource)
    names = Counter(change.name for change in one.changes)
    after = {} if one.replaces_all else dict(before)
    try:
        for change in one.changes:
            if names[change.name] > 1:
                raise refusal(Code.INVALID_REQUEST, f"{change.name} is named more than once")
            text = _changed_text(scope, change, before, broker, is_one_broker=scope == "broker" and resource.name != "")
            if text is None:
                after.pop(change.name, None)
            else:
                after[change.name] = text
        if resource == ALL_BROKERS and MIN_INSYNC not in after and MIN_INSYNC in settings.broker.static:
            after[MIN_INSYNC] = settings.broker.static[MIN_INSYNC]  # the metadata has it, whoever asks
        # What is not known any more, or was another's to know, has no effect: it must not stand in the way of the rest.
        checked = {name: text for name, text in after.items() if name in names or _counts(scope, name)}
        if scope == "topic":
            validate_topic_configs(checked, broker)
        elif scope == "group":
            validate_group_configs(checked, broker)
        else:
            validate_broker_configs(_with(broker, resource, checked))
            _check_listeners(metadata, resource, checked)
            check_login_modules(checked)
    except ConfigError as error:
        # Kafka answers so for brokers; its clients tell the two apart.
        code = Code.INVALID_REQUEST if scope == "broker" else Code.INVALID_CONFIG
        raise refusal(code, str(error)) from error
    return [
        ConfigRecord(resource_type=resource.type, resource_name=resource.name, name=name, value=after.get(name))
        for name in sorted(before.keys() | after.keys())
        if before.get(name) != after.get(name)
    ]


def _counts(scope: Scope, name: str) -> bool:
    key = TABLE[scope].get(name)
    return key is not None and key.support != Support.REFUSED


def _check_listeners(metadata: MetadataView, resource: ResourceKey, configs: Mapping[str, str]) -> None:
    """A broker keeps the listeners that it registered: clients and other brokers are told of them."""
    registered = metadata.brokers[BrokerId(int(resource.name))].endpoints if resource.name else ()
    names = {one.listener_name for one in registered}
    if LISTENERS in configs:
        missing = sorted(names - {one.name for one in parse_listeners(LISTENERS, _elements(configs[LISTENERS]))})
        if missing:
            raise ConfigError(
                f"{LISTENERS}: {', '.join(missing)} is missing, which clients are told of: to close it, "
                "take it out of the broker's .properties file, and start the broker again"
            )
    protocols = parse_protocols(configs.get(PROTOCOL_MAP, ""))
    for one in registered:
        spoken = PROTOCOLS[one.security_protocol]
        if protocols.get(one.listener_name, spoken) != spoken:
            raise ConfigError(
                f"{PROTOCOL_MAP}: {one.listener_name} speaks {spoken} as long as the broker runs: clients are told of "
                f"it. Have a new listener speak {protocols[one.listener_name]}, or start the broker again with another "
                "map in its .properties file"
            )


def _changed_text(
    scope: Scope, change: ConfigChange, before: Mapping[str, str], broker: BrokerSettings, *, is_one_broker: bool
) -> str | None:
    """The value that a setting has afterwards; None if it is to have none of its own.

    Raises:
        ConfigError: there is no such setting (naming the closest), or it is no list that could grow or shrink.
    """
    if change.operation == ConfigOperation.DELETE and change.name in before:
        return None  # even one that an earlier release knew
    key = config_key(scope, change.name)
    if change.operation == ConfigOperation.DELETE:
        return None
    if change.name == MIN_INSYNC and is_one_broker:
        raise ConfigError(f"{MIN_INSYNC} cannot differ between brokers: set it for all of them, or for a topic")
    if change.operation not in (ConfigOperation.SET, ConfigOperation.APPEND, ConfigOperation.SUBTRACT):
        raise refusal(
            Code.INVALID_REQUEST,
            f"{change.name}: operation {change.operation} is none of 0 SET, 1 DELETE, 2 APPEND, 3 SUBTRACT",
        )
    if change.value is None:
        raise refusal(Code.INVALID_REQUEST, f"{change.name}: the value is missing; to go back to the default, delete")
    if change.operation == ConfigOperation.SET:
        return change.value
    if key.type != ConfigType.LIST:
        raise ConfigError(f"{change.name} is no list: set it, there is nothing to add to or take from")
    text = before.get(change.name)
    if text is None:
        text = _text_in_force(scope, change.name, broker)
    elements = _elements(text)
    named = _elements(change.value)
    if change.operation == ConfigOperation.APPEND:
        return ",".join(dict.fromkeys([*elements, *named]))
    return ",".join(element for element in elements if element not in named)


def _elements(text: str) -> list[str]:
    return [element.strip() for element in text.split(",") if element.strip()]


def _text_in_force(scope: Scope, name: str, broker: BrokerSettings) -> str:
    entries = {"topic": topic_entries({}, broker), "group": group_entries({}, broker)}.get(scope)
    if entries is None:
        entries = broker_entries(broker)
    return next((entry.value or "" for entry in entries if entry.name == name), "")


def _settings_behind(metadata: MetadataView, settings: ControllerSettings, resource: ResourceKey) -> BrokerSettings:
    """What counts where the resource itself says nothing, as far as is known here: not the file of another broker."""
    if resource.type != ResourceType.BROKER or resource.name == "":
        return settings.broker_settings(metadata)
    broker_id = BrokerId(int(resource.name))
    static = settings.broker.static if broker_id == settings.node_id else {}
    return broker_settings(static, metadata.configs, broker_id)


def _with(broker: BrokerSettings, resource: ResourceKey, own: Mapping[str, str]) -> BrokerSettings:
    if resource.name:
        return BrokerSettings(broker.static, own, broker.dynamic_default)
    return BrokerSettings(broker.static, broker.dynamic, own)


def _called(resource: ResourceKey) -> str:
    what = resource.type.name.lower().replace("_", " ")
    return f"{what} {resource.name!r}" if resource.name else "what all brokers share"

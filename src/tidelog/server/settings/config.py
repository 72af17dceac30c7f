"""What a node is told by its `.properties` file, checked before anything is touched. Kafka: `KafkaConfig`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from socket import gethostname

from tidelog.base.authorizers import STANDARD_AUTHORIZER
from tidelog.base.errors import ConfigError
from tidelog.base.ids import BrokerId
from tidelog.metadata.configs import ConfigValues, authorization, broker_values
from tidelog.metadata.configs import broker as keys
from tidelog.metadata.configs import cluster as cluster_keys
from tidelog.metadata.configs.key import INT64_MAX, ConfigKey
from tidelog.metadata.ip_overrides import parse_per_ip_overrides
from tidelog.metadata.listeners import (
    PLAINTEXT,
    Listener,
    check_protocols,
    parse_listeners,
    parse_protocols,
)
from tidelog.server.settings.quorum_config import QuorumConfig, read_quorum_config
from tidelog.server.settings.replication_settings import inter_broker_listener_name
from tidelog.server.settings.sasl_settings import check_sasl, check_super_users

BROKER_ROLE = "broker"
CONTROLLER_ROLE = "controller"
DEFAULT_PROTOCOL_MAP = keys.LISTENER_SECURITY_PROTOCOL_MAP.default
EVERY_ADDRESS = ("0.0.0.0", "::")  # noqa: S104 - to be refused


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeConfig:
    """The settings that shape a node. Those of its topics, and those that change while it runs, stay in `static`:
    `SettingsInForce` reads them.

    Attributes:
        broker_listeners: for clients and brokers; empty for a node that is only a controller.
        inter_broker_listener_name: of the one among them on which brokers ask each other, if there is one of that name.
        protocols: of listeners, by their names; a name that is not there is that of a protocol.
        controller_listeners: for the quorum; empty for a node that is only a broker.
        queued_request_bytes_max: of requests that have come in part; `node_…` of those of other nodes.
        queued_answer_bytes_max: of answers that were not taken.
        early_listeners: the names of those for clients and brokers that open before the broker may lead.
        advertised: what clients are told, by listener name; a listener that is not in it is told as it is.
        quorum: its share in the metadata quorum.
        log_directories: absolute or relative to the process.
        metadata_log_directory: where `__cluster_metadata-0` lies; mostly the first of them.
        leader_balance_interval_seconds: how often leaderships go back to preferred replicas; None for never.
        static: the whole file, by Kafka's keys; the id by both of its names.
    """

    node_id: BrokerId
    broker_listeners: tuple[Listener, ...]
    controller_listeners: tuple[Listener, ...]
    controller_listener_name: str
    inter_broker_listener_name: str
    protocols: Mapping[str, str]
    quorum: QuorumConfig
    early_listeners: frozenset[str]
    advertised: Mapping[str, Listener]
    rack: str | None
    log_directories: tuple[str, ...]
    metadata_log_directory: str
    auto_create_topics_enable: bool
    delete_topic_enable: bool
    num_partitions: int
    default_replication_factor: int
    request_size_bytes_max: int
    queued_request_bytes_max: int
    node_queued_request_bytes_max: int
    queued_answer_bytes_max: int
    fetch_size_bytes_max: int
    described_partitions_max: int
    fetch_session_slots: int
    fetch_session_partitions: int
    connection_idle_ms_max: int | None
    listen_backlog: int
    metrics_listener: Listener | None
    metrics_topics_max: int
    metrics_group_topics_max: int
    metrics_partitions_enable: bool
    slow_request_log_ms: int | None
    logging_format: str
    metadata_consistency_wait_ms_max: int
    high_watermark_checkpoint_interval_ms: int
    recovery_point_checkpoint_interval_ms: int
    retention_check_interval_ms: int
    broker_session_timeout_ms: int
    broker_heartbeat_interval_ms: int
    broker_early_fencing_enable: bool
    controller_partition_changes_max: int
    broker_registration_timeout_ms: int
    controlled_shutdown_enable: bool
    leader_balance_interval_seconds: int | None
    static: Mapping[str, str]

    @staticmethod
    def from_properties(properties: Mapping[str, str]) -> NodeConfig:
        """Read Kafka's keys.

        Raises:
            ConfigError: a key is unknown (the closest known one is named), a value is wrong, or what is asked is not
                something that this release does.
        """
        values = broker_values(properties)
        node_id = _node_id(values)
        broker_listeners, controller_listeners = _listeners(values, _roles(values))
        _check_inter_broker_protocol(values, broker_listeners)
        listener_name = _names_of_controllers(values)[0]
        log_directories = _log_directories(values)
        advertised = _advertised(values, broker_listeners, controller_listeners)
        idle_ms = values[keys.CONNECTIONS_MAX_IDLE_MS]
        slow_ms = values[keys.SLOW_REQUEST_LOG_MS]
        parse_per_ip_overrides(values[keys.MAX_CONNECTIONS_PER_IP_OVERRIDES])
        protocols = _protocols(values, _names_of_controllers(values))
        inter_broker = inter_broker_listener_name(values)
        check_sasl(
            properties,
            protocols,
            of_brokers=[one.name for one in broker_listeners],
            of_controllers=[one.name for one in controller_listeners],
            broker_listener=inter_broker,
            controller_listener=listener_name,
        )
        check_super_users(properties, protocols, broker_listener=inter_broker, controller_listener=listener_name)
        return NodeConfig(
            node_id=node_id,
            broker_listeners=broker_listeners,
            controller_listeners=controller_listeners,
            controller_listener_name=listener_name,
            inter_broker_listener_name=inter_broker,
            protocols=protocols,
            quorum=read_quorum_config(values, node_id, controller_listeners, listener_name),
            early_listeners=_early_listeners(values, broker_listeners, controller_listeners),
            advertised=advertised,
            rack=values[keys.BROKER_RACK],
            log_directories=log_directories,
            metadata_log_directory=values[keys.METADATA_LOG_DIR] or log_directories[0],
            auto_create_topics_enable=values[keys.AUTO_CREATE_TOPICS_ENABLE],
            delete_topic_enable=values[keys.DELETE_TOPIC_ENABLE],
            num_partitions=values[keys.NUM_PARTITIONS],
            default_replication_factor=values[keys.DEFAULT_REPLICATION_FACTOR],
            request_size_bytes_max=values[keys.SOCKET_REQUEST_MAX_BYTES],
            queued_request_bytes_max=_limit(values, keys.QUEUED_MAX_REQUEST_BYTES),
            node_queued_request_bytes_max=_limit(values, keys.INTER_NODE_QUEUED_MAX_REQUEST_BYTES),
            queued_answer_bytes_max=_limit(values, keys.QUEUED_MAX_RESPONSE_BYTES),
            fetch_size_bytes_max=values[keys.FETCH_MAX_BYTES],
            described_partitions_max=values[keys.MAX_REQUEST_PARTITION_SIZE_LIMIT],
            fetch_session_slots=values[keys.MAX_INCREMENTAL_FETCH_SESSION_CACHE_SLOTS],
            fetch_session_partitions=values[keys.MAX_INCREMENTAL_FETCH_SESSION_CACHE_PARTITIONS],
            connection_idle_ms_max=None if idle_ms < 0 else idle_ms,
            listen_backlog=values[keys.SOCKET_LISTEN_BACKLOG_SIZE],
            metrics_listener=_metrics_listener(values),
            metrics_topics_max=values[keys.METRICS_TOPICS_MAX],
            metrics_group_topics_max=values[keys.METRICS_GROUP_TOPICS_MAX],
            metrics_partitions_enable=values[keys.METRICS_PARTITIONS_ENABLE],
            slow_request_log_ms=None if slow_ms < 0 else slow_ms,
            logging_format=values[keys.LOGGING_FORMAT],
            metadata_consistency_wait_ms_max=values[cluster_keys.METADATA_CONSISTENCY_WAIT_MS_MAX],
            high_watermark_checkpoint_interval_ms=values[cluster_keys.REPLICA_HIGH_WATERMARK_CHECKPOINT_INTERVAL_MS],
            recovery_point_checkpoint_interval_ms=values[keys.LOG_FLUSH_OFFSET_CHECKPOINT_INTERVAL_MS],
            retention_check_interval_ms=values[keys.LOG_RETENTION_CHECK_INTERVAL_MS],
            broker_session_timeout_ms=values[cluster_keys.BROKER_SESSION_TIMEOUT_MS],
            broker_heartbeat_interval_ms=values[cluster_keys.BROKER_HEARTBEAT_INTERVAL_MS],
            broker_early_fencing_enable=values[cluster_keys.BROKER_EARLY_FENCING_ENABLE],
            controller_partition_changes_max=values[cluster_keys.CONTROLLER_PARTITION_CHANGES_MAX],
            broker_registration_timeout_ms=values[cluster_keys.INITIAL_BROKER_REGISTRATION_TIMEOUT_MS],
            controlled_shutdown_enable=values[cluster_keys.CONTROLLED_SHUTDOWN_ENABLE],
            leader_balance_interval_seconds=(
                values[cluster_keys.LEADER_IMBALANCE_CHECK_INTERVAL_SECONDS]
                if values[cluster_keys.AUTO_LEADER_REBALANCE_ENABLE]
                else None
            ),
            static={**properties, "node.id": str(node_id), "broker.id": str(node_id)},
        )


def _limit(values: ConfigValues, key: ConfigKey[int]) -> int:
    """Of a key for which -1 is no limit."""
    limit = values[key]
    return INT64_MAX if limit < 0 else limit


def _node_id(values: ConfigValues) -> BrokerId:
    node_id, broker_id = values[keys.NODE_ID], values[keys.BROKER_ID]
    if node_id is None and broker_id >= 0:
        node_id = broker_id
    if node_id is None:
        raise ConfigError("node.id is missing: give this node a number of its own, such as node.id=1")
    if broker_id >= 0 and broker_id != node_id:
        raise ConfigError(f"broker.id is {broker_id} and node.id is {node_id}: they must agree, or leave broker.id out")
    return BrokerId(node_id)


def _roles(values: ConfigValues) -> frozenset[str]:
    roles = values[keys.PROCESS_ROLES]
    if not roles:
        raise ConfigError("process.roles is missing: broker, controller, or both with a comma between")
    return frozenset(roles)


def _listeners(values: ConfigValues, roles: frozenset[str]) -> tuple[tuple[Listener, ...], tuple[Listener, ...]]:
    """Those for clients, and those for controllers."""
    listeners = _listed(keys.LISTENERS, values)
    names = _names_of_controllers(values)
    check_protocols(_protocols(values, names), {one.name for one in listeners} | {names[0]})
    brokers = tuple(one for one in listeners if one.name not in names)
    controllers = tuple(one for one in listeners if one.name in names)
    if BROKER_ROLE in roles and not brokers:
        raise ConfigError("listeners: there is none for clients; add one such as PLAINTEXT://127.0.0.1:9092")
    if CONTROLLER_ROLE in roles and not controllers:
        raise ConfigError(f"listeners: none is named {names[0]}; add one such as {names[0]}://127.0.0.1:9093")
    if BROKER_ROLE not in roles and brokers:
        raise ConfigError(
            f"listeners: {brokers[0].name} is for clients, and this node is no broker: take it out, add it to "
            "controller.listener.names, or broker to process.roles"
        )
    if CONTROLLER_ROLE not in roles and controllers:
        raise ConfigError(
            f"listeners: {controllers[0].name} is for controllers, and this node is none: take it out, "
            "or add controller to process.roles"
        )
    return brokers, controllers


def _names_of_controllers(values: ConfigValues) -> tuple[str, ...]:
    names = values[keys.CONTROLLER_LISTENER_NAMES]
    if not names:
        raise ConfigError("controller.listener.names is missing: name the listener of controllers, such as CONTROLLER")
    return names


def _protocols(values: ConfigValues, of_controllers: tuple[str, ...]) -> Mapping[str, str]:
    """With no map but the default, listeners of controllers speak PLAINTEXT, as at Kafka."""
    text = values[keys.LISTENER_SECURITY_PROTOCOL_MAP]
    protocols = parse_protocols(text)
    return protocols if text != DEFAULT_PROTOCOL_MAP else dict.fromkeys(of_controllers, PLAINTEXT) | protocols


def _check_inter_broker_protocol(values: ConfigValues, listeners: tuple[Listener, ...]) -> None:
    """Where no listener has the name for brokers, they ask on the first one; it must speak what they do."""
    name = inter_broker_listener_name(values)
    if not listeners or name in {one.name for one in listeners}:
        return
    protocols = _protocols(values, _names_of_controllers(values))
    first = listeners[0].name
    theirs, spoken = protocols.get(name, name), protocols.get(first, first)
    if theirs != spoken:
        raise ConfigError(
            f"listeners: none is named {name}, so brokers would ask this one on {first} by {theirs}, and {first} "
            f"speaks {spoken}: set inter.broker.listener.name={first} on all brokers, or add a listener {name}"
        )


def _early_listeners(
    values: ConfigValues, of_brokers: tuple[Listener, ...], of_controllers: tuple[Listener, ...]
) -> frozenset[str]:
    """Of brokers. Those of controllers open early in any case: no rule is known before they have elected one."""
    key = authorization.EARLY_START_LISTENERS
    named = values[key]
    if named is None:
        return frozenset()
    there = [one.name for one in (*of_brokers, *of_controllers)]
    for name in named:
        if name not in there:
            raise ConfigError(f"{key.name}: {name} is none of the listeners of this node, which are {', '.join(there)}")
    for listener in of_controllers:
        if listener.name not in named and values[authorization.AUTHORIZER_CLASS_NAME] == STANDARD_AUTHORIZER:
            raise ConfigError(
                f"{key.name}: {listener.name} is missing: controllers elect one of them there, before whom there are "
                "no access rules; add it, or leave the setting out"
            )
    return frozenset(named).intersection(one.name for one in of_brokers)


def _advertised(
    values: ConfigValues, listeners: tuple[Listener, ...], controller_listeners: tuple[Listener, ...]
) -> dict[str, Listener]:
    """What clients are told of listeners, by their names. They must be able to go there.

    Kafka 4's stock file names the listener of controllers as well; clients are told nothing of it.
    """
    of_controllers = {one.name for one in controller_listeners}
    advertised = {one.name: one for one in _listed(keys.ADVERTISED_LISTENERS, values) if one.name not in of_controllers}
    bound = {one.name: one for one in listeners}
    for name in advertised.keys() - bound.keys():
        raise ConfigError(
            f"advertised.listeners: {name} is none of the listeners for clients, which are {', '.join(bound)}"
        )
    for name, listener in bound.items():
        if advertised.get(name, listener).host in EVERY_ADDRESS:
            raise ConfigError(
                f"advertised.listeners: no client can connect to {advertised.get(name, listener).host}; "
                f"say what clients are to be told, such as {name}://{gethostname()}:{listener.port}"
            )
    return advertised


def _listed(key: ConfigKey[tuple[str, ...] | None], values: ConfigValues) -> tuple[Listener, ...]:
    texts = values[key]
    return parse_listeners(key.name, texts or ())


def _metrics_listener(values: ConfigValues) -> Listener | None:
    text = values[keys.METRICS_LISTENER]
    if not text:
        return None
    (listener,) = parse_listeners("metrics.listener", (text,))
    if listener.name.upper() != "HTTP":
        raise ConfigError(f"metrics.listener: {text!r} is not of the form HTTP://HOST:PORT; nothing else is served")
    return listener


def _log_directories(values: ConfigValues) -> tuple[str, ...]:
    several = values[keys.LOG_DIRS]
    if several is None:
        several = values[keys.LOG_DIR]
    plain = [path.rstrip("/") for path in several]
    for path in plain:
        if plain.count(path) > 1:
            raise ConfigError(f"log.dirs={','.join(several)}: {path} stands there twice; name each directory once")
    return several

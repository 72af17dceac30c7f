"""What a node is told by its `.properties` file, checked before anything is touched."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from socket import gethostname
from typing import cast

from tidelog.base.errors import ConfigError
from tidelog.base.ids import BrokerId
from tidelog.metadata.config_key import INT64_MAX
from tidelog.metadata.configs import TABLE, ConfigValue, broker_values
from tidelog.metadata.ip_overrides import PER_IP_OVERRIDES, parse_per_ip_overrides
from tidelog.metadata.listeners import (
    LISTENERS,
    PLAINTEXT,
    PROTOCOL_MAP,
    Listener,
    check_protocols,
    parse_listeners,
    parse_protocols,
)
from tidelog.server.quorum_config import QuorumConfig, read_quorum_config

BROKER_ROLE = "broker"
CONTROLLER_ROLE = "controller"
DEFAULT_PROTOCOL_MAP = TABLE["broker"][PROTOCOL_MAP].default
EVERY_ADDRESS = ("0.0.0.0", "::")  # noqa: S104 - to be refused


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeConfig:
    """The settings that shape a node; those of its topics stay in `static`, for the table of settings to read.

    Attributes:
        broker_listeners: for clients and brokers; empty for a node that is only a controller.
        inter_broker_listener_name: of the one among them on which brokers ask each other, if there is one of that name.
        controller_listeners: for the quorum; empty for a node that is only a broker.
        queued_request_bytes_max: of requests that have come in part; `node_…` of those of other nodes.
        queued_answer_bytes_max: of answers that were not taken.
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
    quorum: QuorumConfig
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
    connections_max: int
    connections_per_ip_max: int
    connections_per_ip_overrides: Mapping[str, int]
    metrics_listener: Listener | None
    metrics_topics_max: int
    metrics_partitions_enable: bool
    slow_request_log_ms: int | None
    logging_format: str
    metadata_consistency_wait_ms_max: int
    high_watermark_checkpoint_interval_ms: int
    recovery_point_checkpoint_interval_ms: int
    retention_check_interval_ms: int
    file_delete_delay_ms: int
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
        listener_name = cast("tuple[str, ...]", values["controller.listener.names"])[0]
        log_directories = _log_directories(values)
        advertised = _advertised(values, broker_listeners, controller_listeners)
        idle_ms = cast(int, values["connections.max.idle.ms"])
        slow_ms = cast(int, values["slow.request.log.ms"])
        return NodeConfig(
            node_id=node_id,
            broker_listeners=broker_listeners,
            controller_listeners=controller_listeners,
            controller_listener_name=listener_name,
            inter_broker_listener_name=cast("str | None", values["inter.broker.listener.name"]) or PLAINTEXT,
            quorum=read_quorum_config(values, node_id, controller_listeners, listener_name),
            advertised=advertised,
            rack=cast("str | None", values["broker.rack"]),
            log_directories=log_directories,
            metadata_log_directory=cast("str | None", values["metadata.log.dir"]) or log_directories[0],
            auto_create_topics_enable=cast(bool, values["auto.create.topics.enable"]),
            delete_topic_enable=cast(bool, values["delete.topic.enable"]),
            num_partitions=cast(int, values["num.partitions"]),
            default_replication_factor=cast(int, values["default.replication.factor"]),
            request_size_bytes_max=cast(int, values["socket.request.max.bytes"]),
            queued_request_bytes_max=_limit(values, "queued.max.request.bytes"),
            node_queued_request_bytes_max=_limit(values, "inter.node.queued.max.request.bytes"),
            queued_answer_bytes_max=_limit(values, "queued.max.response.bytes"),
            fetch_size_bytes_max=cast(int, values["fetch.max.bytes"]),
            described_partitions_max=cast(int, values["max.request.partition.size.limit"]),
            fetch_session_slots=cast(int, values["max.incremental.fetch.session.cache.slots"]),
            fetch_session_partitions=cast(int, values["max.incremental.fetch.session.cache.partitions"]),
            connection_idle_ms_max=None if idle_ms < 0 else idle_ms,
            listen_backlog=cast(int, values["socket.listen.backlog.size"]),
            connections_max=cast(int, values["max.connections"]),
            connections_per_ip_max=cast(int, values["max.connections.per.ip"]),
            connections_per_ip_overrides=parse_per_ip_overrides(cast(str, values[PER_IP_OVERRIDES])),
            metrics_listener=_metrics_listener(values),
            metrics_topics_max=cast(int, values["metrics.topics.max"]),
            metrics_partitions_enable=cast(bool, values["metrics.partitions.enable"]),
            slow_request_log_ms=None if slow_ms < 0 else slow_ms,
            logging_format=cast(str, values["logging.format"]),
            metadata_consistency_wait_ms_max=cast(int, values["metadata.consistency.wait.ms.max"]),
            high_watermark_checkpoint_interval_ms=cast(int, values["replica.high.watermark.checkpoint.interval.ms"]),
            recovery_point_checkpoint_interval_ms=cast(int, values["log.flush.offset.checkpoint.interval.ms"]),
            retention_check_interval_ms=cast(int, values["log.retention.check.interval.ms"]),
            file_delete_delay_ms=cast(int, values["log.segment.delete.delay.ms"]),
            broker_session_timeout_ms=cast(int, values["broker.session.timeout.ms"]),
            broker_heartbeat_interval_ms=cast(int, values["broker.heartbeat.interval.ms"]),
            broker_early_fencing_enable=cast(bool, values["broker.early.fencing.enable"]),
            controller_partition_changes_max=cast(int, values["controller.partition.changes.max"]),
            broker_registration_timeout_ms=cast(int, values["initial.broker.registration.timeout.ms"]),
            controlled_shutdown_enable=cast(bool, values["controlled.shutdown.enable"]),
            leader_balance_interval_seconds=(
                cast(int, values["leader.imbalance.check.interval.seconds"])
                if values["auto.leader.rebalance.enable"]
                else None
            ),
            static={**properties, "node.id": str(node_id), "broker.id": str(node_id)},
        )


_Values = Mapping[str, "ConfigValue | None"]


def _limit(values: _Values, key: str) -> int:
    """Of a key for which -1 is no limit."""
    limit = cast(int, values[key])
    return INT64_MAX if limit < 0 else limit


def _node_id(values: _Values) -> BrokerId:
    node_id, broker_id = values["node.id"], cast(int, values["broker.id"])
    if node_id is None and broker_id >= 0:
        node_id = broker_id
    if node_id is None:
        raise ConfigError("node.id is missing: give this node a number of its own, such as node.id=1")
    if broker_id >= 0 and broker_id != node_id:
        raise ConfigError(f"broker.id is {broker_id} and node.id is {node_id}: they must agree, or leave broker.id out")
    return BrokerId(cast(int, node_id))


def _roles(values: _Values) -> frozenset[str]:
    roles = cast("tuple[str, ...] | None", values["process.roles"])
    if not roles:
        raise ConfigError("process.roles is missing: broker, controller, or both with a comma between")
    return frozenset(roles)


def _listeners(values: _Values, roles: frozenset[str]) -> tuple[tuple[Listener, ...], tuple[Listener, ...]]:
    """Those for clients, and those for controllers."""
    listeners = _listed(LISTENERS, values)
    names = cast("tuple[str, ...] | None", values["controller.listener.names"]) or ()
    if not names:
        raise ConfigError("controller.listener.names is missing: name the listener of controllers, such as CONTROLLER")
    check_protocols(_protocols(values, names), {one.name for one in listeners})
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


def _protocols(values: _Values, of_controllers: tuple[str, ...]) -> Mapping[str, str]:
    """With no map but the default, listeners of controllers speak PLAINTEXT, as at Kafka."""
    text = cast(str, values[PROTOCOL_MAP])
    protocols = parse_protocols(text)
    return protocols if text != DEFAULT_PROTOCOL_MAP else dict.fromkeys(of_controllers, PLAINTEXT) | protocols


def _advertised(
    values: _Values, listeners: tuple[Listener, ...], controller_listeners: tuple[Listener, ...]
) -> dict[str, Listener]:
    """What clients are told of listeners, by their names. They must be able to go there.

    Kafka 4's stock file names the listener of controllers as well; clients are told nothing of it.
    """
    of_controllers = {one.name for one in controller_listeners}
    told = {one.name: one for one in _listed("advertised.listeners", values) if one.name not in of_controllers}
    bound = {one.name: one for one in listeners}
    for name in told.keys() - bound.keys():
        raise ConfigError(
            f"advertised.listeners: {name} is none of the listeners for clients, which are {', '.join(bound)}"
        )
    for name, listener in bound.items():
        if told.get(name, listener).host in EVERY_ADDRESS:
            raise ConfigError(
                f"advertised.listeners: no client can connect to {told.get(name, listener).host}; "
                f"say what clients are to be told, such as {name}://{gethostname()}:{listener.port}"
            )
    return told


def _listed(key: str, values: _Values) -> tuple[Listener, ...]:
    return parse_listeners(key, cast("tuple[str, ...] | None", values[key]) or ())


def _metrics_listener(values: _Values) -> Listener | None:
    text = cast("str | None", values["metrics.listener"])
    if not text:
        return None
    (listener,) = parse_listeners("metrics.listener", (text,))
    if listener.name.upper() != "HTTP":
        raise ConfigError(f"metrics.listener: {text!r} is not of the form HTTP://HOST:PORT; nothing else is served")
    return listener


def _log_directories(values: _Values) -> tuple[str, ...]:
    several = cast("tuple[str, ...] | None", values["log.dirs"])
    if several is None:
        several = cast("tuple[str, ...]", values["log.dir"])
    plain = [path.rstrip("/") for path in several]
    for path in plain:
        if plain.count(path) > 1:
            raise ConfigError(f"log.dirs={','.join(several)}: {path} stands there twice; name each directory once")
    return several

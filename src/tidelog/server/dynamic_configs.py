"""Settings that change while the node runs: from the metadata to the logs and replicas that are open.

A log that is opened later, be it after a restart, reads the same image: settings are kept nowhere else.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from typing import cast

from tidelog.base.errors import ConfigError
from tidelog.log import LogConfig
from tidelog.metadata import ConfigResource, MetadataDelta, MetadataImage, ResourceType
from tidelog.metadata.configs import TABLE, BrokerSettings, Scope, broker_settings, without_effect
from tidelog.metadata.ip_overrides import PER_IP_OVERRIDES, parse_per_ip_overrides
from tidelog.metadata.listeners import (
    LISTENERS,
    PROTOCOL_MAP,
    Listener,
    check_protocols,
    parse_listeners,
    parse_protocols,
)
from tidelog.metadata.min_insync import MIN_INSYNC
from tidelog.replica import ReplicationSettings
from tidelog.server.broker import Broker
from tidelog.server.connections import Connections
from tidelog.server.listeners import Listeners
from tidelog.server.log_files import LogFiles
from tidelog.server.replication_throttles import limits_of

_NUMBERS = ("log.segment.delete.delay.ms", "max.connections", "max.connections.per.ip", "num.replica.fetchers")

logger = logging.getLogger("tidelog.server.dynamic_configs")


class DynamicConfigs:
    """Follows the image of one broker."""

    def __init__(
        self,
        static: Mapping[str, str],
        broker: Broker,
        files: LogFiles,
        connections: Connections,
        listeners: Listeners,
    ) -> None:
        """For one node; `static` is its file."""
        self._static = static
        self._broker = broker
        self._files = files
        self._connections = connections
        self._listeners = listeners
        self._told: set[tuple[Scope, str]] = set()

    def tell_what_does_nothing(self) -> None:
        """To be called when this node starts: what its file sets, and nothing here goes by."""
        self._tell_without_effect("broker", self._static)

    def tell_what_does_not_count(self, image: MetadataImage) -> None:
        """To be called when this node has started: whoever wrote its file may believe in what is not so."""
        text = self._static.get(MIN_INSYNC)
        in_force = image.cluster_configs().get(MIN_INSYNC, TABLE["broker"][MIN_INSYNC].default)
        if text is not None and text != in_force:
            logger.warning(
                "%s=%s in this node's file does not count: the cluster goes by %s, which is in its metadata. Take it "
                "out of the file, or change what all go by: `tidelog configs alter broker all --config %s=%s`",
                *(MIN_INSYNC, text, in_force, MIN_INSYNC, text),
            )

    def on_image_changed(self, delta: MetadataDelta, image: MetadataImage) -> None:
        """To be called on the loop, before `image` is published: who is answered from it finds it in force."""
        changed = delta.changed_configs
        if changed or delta.deleted_topics:
            self._throttle(image)
        if not changed:
            return
        names = {resource.name for resource in changed if resource.type == ResourceType.TOPIC}
        settings = broker_settings(self._static, image.configs, self._broker.broker_id)
        if self._is_own(changed):
            logger.info("settings of this broker changed: %s", _in_words(settings))
            self._tell_without_effect("broker", (*settings.dynamic_default, *settings.dynamic))
            self._configure(None, image)
            self._configure_broker(settings)
        elif names:
            self._configure(names, image)
        for name in names:
            self._tell_without_effect("topic", image.topic_configs(name))

    def _is_own(self, changed: Collection[ConfigResource]) -> bool:
        kind = ResourceType.BROKER
        own = {ConfigResource(kind, ""), ConfigResource(kind, str(self._broker.broker_id))}
        return not own.isdisjoint(changed)

    def _throttle(self, image: MetadataImage) -> None:
        settings = broker_settings(self._static, image.configs, self._broker.broker_id)
        leader, follower, moves = limits_of(settings, image.configs, self._broker.broker_id)
        self._broker.moves.throttle.configure(moves)
        replication = self._broker.replication
        if replication is not None:
            replication.leader_throttle.configure(leader)
            replication.follower_throttle.configure(follower)

    def _configure_broker(self, settings: BrokerSettings) -> None:
        number = {name: cast(int, settings.value(name)) for name in _NUMBERS}
        limits = replace(
            self._connections.limits,
            connections_max=number["max.connections"],
            per_ip_max=number["max.connections.per.ip"],
            per_ip_overrides=parse_per_ip_overrides(settings.text(PER_IP_OVERRIDES) or ""),
        )
        if limits != self._connections.limits:
            self._connections.configure(limits)
        self._files.file_delete_delay_ms = number["log.segment.delete.delay.ms"]
        if self._broker.replication is not None:
            self._broker.replication.configure(fetchers=number["num.replica.fetchers"])
        self._listeners.listen_beside(listeners_beside(settings))

    def _tell_without_effect(self, scope: Scope, names: Iterable[str]) -> None:
        """Once of each setting, and of all that are new in one line."""
        reasons: dict[str, list[str]] = {}
        for key in without_effect(scope, names):
            if (scope, key.name) not in self._told:
                self._told.add((scope, key.name))
                reasons.setdefault(key.why, []).append(key.name)
        if reasons:
            said = "; ".join(f"{', '.join(sorted(keys))} ({why})" for why, keys in reasons.items())
            logger.warning("settings of %ss that are set and do nothing here: %s", scope, said)

    def _configure(self, topics: Collection[str] | None, image: MetadataImage) -> None:
        """Give the partitions of these topics (None: of all) what is in force now."""
        in_force: dict[str, tuple[LogConfig, ReplicationSettings]] = {}
        for partition in self._broker.partitions:
            topic = partition.topic_partition.topic
            if topics is not None and topic not in topics:
                continue
            if topic not in in_force:
                replication = self._files.replication_settings(topic, image)
                in_force[topic] = self._files.log_config(topic, image), replication
            partition.configure(*in_force[topic])


def listeners_beside(settings: BrokerSettings) -> list[Listener]:
    """What `listeners` names while the broker runs, and its file does not."""
    names = settings.dynamic.get(LISTENERS)
    if names is None:
        return []
    key = TABLE["broker"][LISTENERS]
    of_file, now = (
        parse_listeners(LISTENERS, cast("tuple[str, ...]", key.parse(text)))
        for text in (settings.static.get(LISTENERS) or key.default or "", names)
    )
    there = {one.name: one for one in of_file}
    beside = []
    for listener in now:
        stays = there.get(listener.name)
        try:
            if stays is None:
                check_protocols(parse_protocols(str(settings.value(PROTOCOL_MAP))), [listener.name])
                beside.append(listener)
            elif stays != listener:
                logger.warning("listener %s stays at %s:%s, as the file says", stays.name, stays.host, stays.port)
        except ConfigError as error:  # known here alone: the map may be in this node's file
            logger.error("%s; it is left out", error)
    return beside


def _in_words(settings: BrokerSettings) -> str:
    """Of what this release does not know, nobody can say whether it is a secret."""
    keys = TABLE["broker"]
    return (
        ", ".join(
            f"{name}={value}" if name in keys and not keys[name].is_sensitive else name
            for name, value in sorted({**settings.dynamic_default, **settings.dynamic}.items())
        )
        or "back to its file"
    )

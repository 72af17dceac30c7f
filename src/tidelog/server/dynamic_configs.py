"""Settings that change while the node runs: from the metadata to the logs and replicas that are open.

A log that is opened later, be it after a restart, reads the same image: settings are kept nowhere else.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping
from dataclasses import replace

from tidelog.log import LogConfig
from tidelog.metadata import ConfigResource, MetadataDelta, MetadataImage, ResourceType
from tidelog.metadata.configs import TABLE, broker_settings
from tidelog.metadata.min_insync import MIN_INSYNC
from tidelog.replica import ReplicationSettings
from tidelog.server.broker import Broker
from tidelog.server.connections import Connections
from tidelog.server.log_files import LogFiles
from tidelog.server.replication_throttles import limits_of

logger = logging.getLogger("tidelog.server.dynamic_configs")


class DynamicConfigs:
    """Follows the image of one broker."""

    def __init__(self, static: Mapping[str, str], broker: Broker, files: LogFiles, connections: Connections) -> None:
        """For one node; `static` is its file."""
        self._static = static
        self._broker = broker
        self._files = files
        self._connections = connections

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
        if self._is_own(changed):
            logger.info("settings of this broker changed: %s", _in_words(image, self._broker.broker_id))
            self._configure(None, image)
            self._limit_connections(image)
        elif names:
            self._configure(names, image)

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

    def _limit_connections(self, image: MetadataImage) -> None:
        settings = broker_settings(self._static, image.configs, self._broker.broker_id)
        connections_max, per_ip_max = settings.value("max.connections"), settings.value("max.connections.per.ip")
        assert isinstance(connections_max, int)
        assert isinstance(per_ip_max, int)
        limits = replace(self._connections.limits, connections_max=connections_max, per_ip_max=per_ip_max)
        if limits != self._connections.limits:
            self._connections.configure(limits)

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


def _in_words(image: MetadataImage, broker_id: int) -> str:
    shared = image.configs.get(ConfigResource(ResourceType.BROKER, ""), {})
    own = image.configs.get(ConfigResource(ResourceType.BROKER, str(broker_id)), {})
    return ", ".join(f"{name}={value}" for name, value in sorted({**shared, **own}.items())) or "back to its file"

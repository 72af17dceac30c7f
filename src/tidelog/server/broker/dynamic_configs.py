"""Settings that change while the node runs: from the metadata to the logs and replicas that are open.

A log that is opened later, be it after a restart, reads the same image: settings are kept nowhere else.

Kafka: `DynamicBrokerConfig`, `DynamicConfigPublisher`.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping

from tidelog.base.ids import BrokerId
from tidelog.log import LogConfig
from tidelog.metadata import MetadataDelta, MetadataImage, ResourceType
from tidelog.metadata.configs import TABLE, BrokerSettings, Scope, without_effect
from tidelog.metadata.configs import broker as keys
from tidelog.metadata.configs.min_insync import MIN_INSYNC
from tidelog.replica import ReplicationSettings
from tidelog.server.broker.broker import Broker
from tidelog.server.broker.listeners import BrokerListener
from tidelog.server.settings.in_force import FollowsSettings, SettingsInForce

logger = logging.getLogger("tidelog.server.dynamic_configs")


class PartitionSettings:
    """Gives the partitions of a broker what is in force for their topics."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    def on_settings(self, old: SettingsInForce | None, new: SettingsInForce) -> None:
        """Where neither the broker's settings nor the topic's changed, nothing is looked at."""
        is_for_all = old is None or old.broker != new.broker
        in_force: dict[str, tuple[LogConfig, ReplicationSettings]] = {}
        for partition in self._broker.partitions:
            topic = partition.topic_partition.topic
            if not is_for_all and old is not None and old.topic_configs(topic) == new.topic_configs(topic):
                continue
            if topic not in in_force:
                in_force[topic] = new.log_config(topic), new.replication_settings(topic)
            partition.configure(*in_force[topic])


class DynamicConfigs(BrokerListener):
    """Follows the image of one broker, and tells those who go by its settings.

    Attributes:
        in_force: as of the image that is published, or is about to be.
    """

    def __init__(self, static: Mapping[str, str], broker_id: BrokerId) -> None:
        """For one node; `static` is its file."""
        self._static = static
        self._broker_id = broker_id
        self._followers: list[FollowsSettings] = []
        self._logged: set[tuple[Scope, str]] = set()
        self.in_force = SettingsInForce.of(static, {}, broker_id)

    def follow(self, follower: FollowsSettings) -> None:
        """Tell it what is in force, now and whenever that changes."""
        self._followers.append(follower)
        follower.on_settings(None, self.in_force)

    def log_what_does_nothing(self) -> None:
        """To be called when this node starts: what its file sets, and nothing here goes by."""
        self._log_without_effect("broker", self._static)

    def log_what_does_not_count(self, image: MetadataImage) -> None:
        """To be called when this node has started: whoever wrote its file may believe in what is not so."""
        text = self._static.get(MIN_INSYNC)
        in_force = image.cluster_configs().get(MIN_INSYNC, keys.MIN_INSYNC_REPLICAS.default)
        if text is not None and text != in_force:
            logger.warning(
                "%s=%s in this node's file does not count: the cluster goes by %s, which is in its metadata. Take it "
                "out of the file, or change what all go by: `tidelog configs alter broker all --config %s=%s`",
                *(MIN_INSYNC, text, in_force, MIN_INSYNC, text),
            )

    def on_image_changed(self, delta: MetadataDelta, image: MetadataImage) -> None:
        """To be called on the loop, before `image` is published: who is answered from it finds it in force."""
        old = self.in_force
        if image.configs is old.configs or image.configs == old.configs:
            return
        new = self.in_force = SettingsInForce.of(self._static, image.configs, self._broker_id)
        if new.broker != old.broker:
            logger.info("settings of this broker changed: %s", _in_words(new.broker))
            self._log_without_effect("broker", (*new.broker.dynamic_default, *new.broker.dynamic))
        for resource in delta.changed_configs:
            if resource.type == ResourceType.TOPIC:
                self._log_without_effect("topic", new.topic_configs(resource.name))
        for follower in self._followers:
            follower.on_settings(old, new)

    def _log_without_effect(self, scope: Scope, names: Iterable[str]) -> None:
        """Once of each setting, and of all that are new in one line."""
        reasons: dict[str, list[str]] = {}
        for key in without_effect(scope, names):
            if (scope, key.name) not in self._logged:
                self._logged.add((scope, key.name))
                reasons.setdefault(key.why, []).append(key.name)
        if reasons:
            said = "; ".join(f"{', '.join(sorted(keys))} ({why})" for why, keys in reasons.items())
            logger.warning("settings of %ss that are set and do nothing here: %s", scope, said)


def _in_words(settings: BrokerSettings) -> str:
    """Of what this release does not know, nobody can say whether it is a secret."""
    known = TABLE["broker"]
    return (
        ", ".join(
            f"{name}={value}" if name in known and not known[name].is_sensitive else name
            for name, value in sorted({**settings.dynamic_default, **settings.dynamic}.items())
        )
        or "back to its file"
    )

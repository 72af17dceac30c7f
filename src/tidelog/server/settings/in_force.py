"""The settings that are in force at a node, and how its parts follow them.

```
 its file, an image of the metadata  ->  SettingsInForce  ->  on_settings(old, new) of whoever follows
```

As Kafka's DynamicBrokerConfig and its reconfigurables.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Protocol, TypeVar

from tidelog.base.ids import BrokerId
from tidelog.log import LogConfig
from tidelog.metadata import ResourceKey, ResourceType
from tidelog.metadata.configs import BrokerSettings, broker_settings, topic_values
from tidelog.metadata.configs.cluster import BROKER_SESSION_TIMEOUT_MS, REPLICA_LAG_TIME_MAX_MS
from tidelog.metadata.configs.min_insync import min_insync_replicas
from tidelog.replica import ReplicationSettings
from tidelog.server.settings.log_settings import log_config

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class SettingsInForce:
    """What the file of a node, and an image over it, say of its broker and of the topics there.

    Attributes:
        configs: of the image.
    """

    broker: BrokerSettings
    configs: Mapping[ResourceKey, Mapping[str, str]]

    @staticmethod
    def of(
        static: Mapping[str, str], configs: Mapping[ResourceKey, Mapping[str, str]], broker_id: BrokerId
    ) -> SettingsInForce:
        """At a broker; `static` is its file."""
        return SettingsInForce(broker_settings(static, configs, broker_id), configs)

    def topic_configs(self, topic: str) -> Mapping[str, str]:
        """What was set for a topic itself."""
        return self.configs.get(ResourceKey(ResourceType.TOPIC, topic), {})

    def log_config(self, topic: str) -> LogConfig:
        """Of a topic's logs at this broker."""
        return log_config(topic_values(self.topic_configs(topic), self.broker), self.broker)

    def log_configs(self, topics: Iterable[str]) -> dict[str, LogConfig]:
        """Of the logs of several topics."""
        return self._of_each(topics, self.log_config)

    def replication_settings_of(self, topics: Iterable[str]) -> dict[str, ReplicationSettings]:
        """Of the replication of several topics."""
        return self._of_each(topics, self.replication_settings)

    def _of_each(self, topics: Iterable[str], of: Callable[[str], T]) -> dict[str, T]:
        """Topics for which nothing was set, mostly all of them, share one value: it says the same of each."""
        found: dict[str, T] = {}
        shared: T | None = None
        for topic in topics:
            if self.topic_configs(topic):
                found[topic] = of(topic)
                continue
            if shared is None:
                shared = of(topic)
            found[topic] = shared
        return found

    def replication_settings(self, topic: str) -> ReplicationSettings:
        """Of the replication of a topic that is led here."""
        return ReplicationSettings(
            min_insync_replicas(topic, self.configs),
            self.broker[REPLICA_LAG_TIME_MAX_MS],
            silence_ms_max=self.broker[BROKER_SESSION_TIMEOUT_MS],
        )


class FollowsSettings(Protocol):
    """A part of the node that goes by settings which change while it runs."""

    def on_settings(self, old: SettingsInForce | None, new: SettingsInForce) -> None:
        """These are in force from now on, on the loop, before the image with them is published.

        Told at once of what is in force (`old` is None), and then of each change of the broker's settings or a topic's.
        """
        ...

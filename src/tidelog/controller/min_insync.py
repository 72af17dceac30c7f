"""How many replicas of a topic must be in sync, as the controller knows it."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from tidelog.controller.values import ControllerSettings
from tidelog.metadata.configs import ConfigValue, topic_values
from tidelog.metadata.image import ConfigResource, MetadataView, ResourceType

MIN_INSYNC = "min.insync.replicas"
MinInsync = Callable[[str], int]


def min_insync_of(metadata: MetadataView, settings: ControllerSettings) -> MinInsync:
    """Of each topic by name: `min.insync.replicas` of the topic, else of all brokers, else of this controller's file.

    Leaders go by the same setting: where their files differ, it belongs into the metadata.
    """
    broker = settings.broker_settings(metadata)
    default = _min_insync(topic_values({}, broker))

    def of_topic(name: str) -> int:
        configs = metadata.configs.get(ConfigResource(ResourceType.TOPIC, name), {})
        return _min_insync(topic_values(configs, broker)) if MIN_INSYNC in configs else default

    return of_topic


def _min_insync(values: Mapping[str, ConfigValue]) -> int:
    value = values[MIN_INSYNC]
    assert isinstance(value, int)
    return value

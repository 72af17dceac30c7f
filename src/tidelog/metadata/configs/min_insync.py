"""How many replicas of a topic must be in sync: one answer for leaders and controllers alike.

The controller keeps whoever leaves the ISR eligible to lead while the leader commits nothing without it (rule 4,
KIP-966). If the two went by different numbers, somebody would be elected who lacks what is committed. So no file of a
node has a say, and what was set for one broker alone has none either: the metadata has, at the same offset for all.
A controller that becomes active puts there what its file says, if there is nothing yet.
"""

from __future__ import annotations

from collections.abc import Mapping

from tidelog.metadata.configs.topic import MIN_INSYNC_REPLICAS
from tidelog.metadata.image import ResourceKey, ResourceType

MIN_INSYNC = MIN_INSYNC_REPLICAS.name
ALL_BROKERS = ResourceKey(ResourceType.BROKER, "")


def min_insync_replicas(
    topic: str, configs: Mapping[ResourceKey, Mapping[str, str]], own: Mapping[str, str] | None = None
) -> int:
    """`min.insync.replicas` of a topic, else of all brokers, else 1.

    Args:
        configs: of an image. What is there was checked before it was written.
        own: the settings of a topic that is about to be created; None for those in `configs`.
    """
    if own is None:
        own = configs.get(ResourceKey(ResourceType.TOPIC, topic), _NOTHING)
    for settings in (own, configs.get(ALL_BROKERS, _NOTHING)):
        text = settings.get(MIN_INSYNC)
        if text is not None:
            return int(text)
    return _DEFAULT


_DEFAULT = MIN_INSYNC_REPLICAS.fallback
_NOTHING: Mapping[str, str] = {}

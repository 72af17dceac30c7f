"""What the settings of topics, and the level of the metadata, say about who may lead their partitions.

Kafka: `ReplicationControlManager`.
"""

from __future__ import annotations

from collections.abc import Mapping

from tidelog.controller.values import ControllerSettings
from tidelog.metadata.configs import broker as broker_keys
from tidelog.metadata.configs import topic as topic_keys
from tidelog.metadata.configs.min_insync import min_insync_replicas
from tidelog.metadata.features import knows_eligible_leaders
from tidelog.metadata.image import MetadataView, ResourceKey, ResourceType
from tidelog.metadata.topic_names import INTERNAL_TOPICS

UNCLEAN_ELECTION = topic_keys.UNCLEAN_LEADER_ELECTION_ENABLE


class TopicRules:
    """The rules as of one state of the metadata. To be made anew for each decision."""

    __slots__ = ("_by_default", "_configs", "_knows_eligible_leaders")

    def __init__(self, metadata: MetadataView, settings: ControllerSettings) -> None:
        self._configs = metadata.configs
        self._knows_eligible_leaders = knows_eligible_leaders(metadata.features)
        self._by_default = settings.broker_settings(metadata)[broker_keys.UNCLEAN_LEADER_ELECTION_ENABLE]

    def min_insync(self, topic: str, own: Mapping[str, str] | None = None) -> int | None:
        """How many must be in sync, so that whoever leaves the ISR below that stays eligible to lead (KIP-966).

        None where the level of the metadata has no words for that: the ISR keeps its last member then.

        Args:
            own: the settings of a topic that is about to be created.
        """
        return min_insync_replicas(topic, self._configs, own) if self._knows_eligible_leaders else None

    def allows_unclean(self, topic: str) -> bool:
        """Whether any leader is better than none there. For internal topics only their own setting says so (rule 12).

        Of a controller's file that counts which is active: what is to hold for all belongs into the metadata.
        """
        own = self._configs.get(ResourceKey(ResourceType.TOPIC, topic))
        text = None if own is None else own.get(UNCLEAN_ELECTION.name)
        if text is not None:
            return UNCLEAN_ELECTION.parse(text)
        return self._by_default and topic not in INTERNAL_TOPICS

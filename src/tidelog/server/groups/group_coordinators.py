"""The group coordinators of this broker: one for each partition of `__consumer_offsets` that it leads.

Kafka: `GroupCoordinatorService`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from tidelog.base.errors import Code, KafkaError
from tidelog.base.ids import BrokerId, TopicId
from tidelog.coordinator.memory import CoordinatorMemory
from tidelog.log.producer_state import ProducerStates
from tidelog.metadata import MetadataDelta, MetadataImage, ResourceType
from tidelog.metadata.configs import BrokerSettings, ConfigKey, group_values
from tidelog.metadata.configs import coordinators as keys
from tidelog.metadata.configs import groups as group_keys
from tidelog.metadata.configs import share_groups as share_keys
from tidelog.metadata.configs.groups import within_range
from tidelog.metadata.features import knows_topics_of_offsets
from tidelog.metadata.topic_names import CONSUMER_OFFSETS_TOPIC
from tidelog.records.transaction_marker import TransactionMarker
from tidelog.server.coordinators.coordinator_partition import CoordinatorKind, Event
from tidelog.server.coordinators.coordinator_partitions import CoordinatorNode, CoordinatorPartitions, send_to_nobody
from tidelog.server.coordinators.retried_sends import SendToLeader
from tidelog.server.settings.in_force import SettingsInForce

if TYPE_CHECKING:
    from tidelog.coordinator.groups import GroupCoordinator, GroupSettings
    from tidelog.coordinator.groups.consumer.settings import ConsumerGroupSettings
    from tidelog.coordinator.groups.share.settings import ShareGroupSettings
    from tidelog.journal import RequestId

MINUTE_MS = 60_000

TO_BE_ASKED_ELSEWHERE = frozenset(
    {Code.NOT_COORDINATOR, Code.COORDINATOR_NOT_AVAILABLE, Code.COORDINATOR_LOAD_IN_PROGRESS}
)
"""What the coordinator of a transaction knows as NOT_LEADER_OR_FOLLOWER: it sends its marker again."""

GROUPS = CoordinatorKind(
    CONSUMER_OFFSETS_TOPIC,
    noun="group",
    loss="these groups start where their auto.offset.reset says",
    logger=logging.getLogger("tidelog.server.groups"),
    module="tidelog.coordinator.groups",
    partition_count_key=keys.OFFSETS_TOPIC_NUM_PARTITIONS,
    replication_factor_key=keys.OFFSETS_TOPIC_REPLICATION_FACTOR,
    segment_size_key=keys.OFFSETS_TOPIC_SEGMENT_BYTES,
    memory_key=keys.GROUP_COORDINATOR_MEMORY_BYTES,
    topic_configs=(("cleanup.policy", "compact"), ("compression.type", "producer")),
)


class GroupCoordinators(CoordinatorPartitions["GroupCoordinator"]):
    """Finds the coordinator of a group, and keeps those that live here.

    Args:
        send_to_leader: asks share coordinators.

    Attributes:
        offsets_memory: of the committed offsets of all groups here.
    """

    def __init__(self, node: CoordinatorNode, *, send_to_leader: SendToLeader = send_to_nobody) -> None:
        super().__init__(GROUPS, node, send_to_leader=send_to_leader)
        self._rng = node.rng
        self._settings_of_all = BrokerSettings.of(node.properties)
        self.offsets_memory = CoordinatorMemory(self._settings_of_all[keys.GROUP_OFFSETS_MEMORY_BYTES])
        self._settings_of_groups: dict[str, Mapping[str, str]] = {}
        self._parsed: dict[str, ConsumerGroupSettings] | None = {}  # of those, once they are asked for
        self._parsed_shares: dict[str, ShareGroupSettings] = {}  # likewise
        self._deleted_before: set[str] = set()  # topics, until this has begun

    async def write_marker(self, index: int, marker: TransactionMarker) -> Code:
        """End a producer's transaction on a partition of the internal topic.

        Returns once the marker is committed and what it decided counts: the next OffsetFetch says so.

        Args:
            index: of the partition.

        Returns:
            NONE; or what the leader of any partition would say: INVALID_PRODUCER_EPOCH, TRANSACTION_COORDINATOR_FENCED,
            NOT_LEADER_OR_FOLLOWER, also while the groups are being loaded.
        """

        def check(producers: ProducerStates) -> None:
            producers.check_marker(
                marker.producer_id,
                marker.producer_epoch,
                marker.coordinator_epoch,
                transaction_version=marker.transaction_version,
            )

        def end(coordinator: GroupCoordinator, request_id: RequestId, now_ms: int, wall_ms: int) -> None:
            coordinator.on_end_transaction(
                request_id,
                marker.producer_id,
                marker.producer_epoch,
                is_commit=marker.is_commit,
                coordinator_epoch=marker.coordinator_epoch,
                now_ms=now_ms,
                wall_ms=wall_ms,
            )

        answer = self.submit_to_partition(index, end, check)
        if isinstance(answer, asyncio.Future):
            answer = await answer
        if isinstance(answer, KafkaError):
            return Code.NOT_LEADER_OR_FOLLOWER if answer.code in TO_BE_ASKED_ELSEWHERE else answer.code
        return Code.NONE

    def on_image_changed(self, delta: MetadataDelta, image: MetadataImage) -> None:
        """Offsets in deleted topics go, but not those in the next of that name. Consumer groups assign anew."""
        if delta.deleted_topics:
            names = frozenset(topic.name for topic in delta.deleted_topics.values())
            if not self._has_begun:
                self._deleted_before |= names
            self.notify_all(partial(forget, names, image))
            self.notify_all(partial(_forget_states, list(delta.deleted_topics)))
        if delta.are_features_changed:
            self.notify_all(partial(_name_topics, knows_topics_of_offsets(image.features)))
        news = TopicNews(image, changed_topics(delta, image), have_moved(delta, image))
        if news.changed or news.has_moved:
            self.notify_all(news.tell)

    def on_settings(self, old: SettingsInForce | None, new: SettingsInForce) -> None:
        """Consumer groups go by their own settings, over those of the broker. See `FollowsSettings`."""
        own = {resource.name: one for resource, one in new.configs.items() if resource.type == ResourceType.GROUP}
        if new.broker == self._settings_of_all and own == self._settings_of_groups:
            return
        self._settings_of_all, self._settings_of_groups, self._parsed = new.broker, own, None
        self.notify_all(self._tell_settings)

    def _tell_settings(self, coordinator: GroupCoordinator, now_ms: int, wall_ms: int) -> None:
        """An event: of what is in force when it is told."""
        broker = self._settings_of_all
        if self._parsed is None:
            self._parsed = {name: consumer_settings(broker, own) for name, own in self._settings_of_groups.items()}
            self._parsed_shares = {name: share_settings(broker, own) for name, own in self._settings_of_groups.items()}
        coordinator.consumer_groups.on_settings(consumer_settings(broker, {}), self._parsed)
        coordinator.share_groups.on_settings(share_settings(broker, {}), self._parsed_shares)

    def _new_machine(self, index: int) -> GroupCoordinator:
        from tidelog.coordinator.groups import GroupCoordinator

        machine = GroupCoordinator(
            index, self._settings(), rng=self._rng, memory=self.memory, offsets_memory=self.offsets_memory
        )
        self._tell_settings(machine, 0, 0)
        image = self._broker.newest_image
        machine.names_topics = knows_topics_of_offsets(image.features)
        machine.consumer_groups.on_metadata(image, version_of(image), ())
        return machine

    def _first_event(self) -> Event[GroupCoordinator]:
        """A log may tell of topics that are no more. One that is made after this is not they."""
        deleted = frozenset() if self._has_begun else self._deleted_before
        return partial(forget_all_but, self._broker.newest_image, deleted)

    def _settings(self) -> GroupSettings:
        from tidelog.coordinator.groups import GroupSettings

        values = self._own_values()
        return GroupSettings(
            session_timeout_ms_min=values[keys.GROUP_MIN_SESSION_TIMEOUT_MS],
            session_timeout_ms_max=values[keys.GROUP_MAX_SESSION_TIMEOUT_MS],
            initial_rebalance_delay_ms=values[keys.GROUP_INITIAL_REBALANCE_DELAY_MS],
            group_size_max=values[keys.GROUP_MAX_SIZE],
            offset_metadata_length_max=values[keys.OFFSET_METADATA_MAX_BYTES],
            offsets_retention_ms=values[keys.OFFSETS_RETENTION_MINUTES] * MINUTE_MS,
            retention_check_interval_ms=values[keys.OFFSETS_RETENTION_CHECK_INTERVAL_MS],
        )


def _name_topics(names_topics: bool, coordinator: GroupCoordinator, now_ms: int, wall_ms: int) -> None:
    coordinator.names_topics = names_topics


def _forget_states(topics: Collection[TopicId], coordinator: GroupCoordinator, now_ms: int, wall_ms: int) -> None:
    """What share groups have done with topics that are no more is no use."""
    coordinator.share_groups.on_topics_deleted(topics, now_ms=now_ms, wall_ms=wall_ms)


def forget(
    topics: Collection[str], image: MetadataImage, coordinator: GroupCoordinator, now_ms: int, wall_ms: int
) -> None:
    """Offsets in topics that are no more are no use, and would be wrong for topics of the same name.

    Args:
        image: which topics have these names now.
    """
    known = image.topics_by_name
    successors = {name: known[name].topic_id for name in topics if name in known}
    coordinator.on_topics_deleted(topics, successors, now_ms=now_ms, wall_ms=wall_ms)


def forget_all_but(
    image: MetadataImage, deleted: Collection[str], coordinator: GroupCoordinator, now_ms: int, wall_ms: int
) -> None:
    """What groups have done with topics that the image does not have, or that were `deleted`, by name.

    A node that starts replays deletions that may be older than what was committed since for the next topic of a name.
    """
    to_forget = [topic for topic in coordinator.topics if topic not in image.topics_by_name or topic in deleted]
    forget(to_forget, image, coordinator, now_ms, wall_ms)
    coordinator.share_groups.on_topics(image.topics_by_id, now_ms=now_ms, wall_ms=wall_ms)


def consumer_settings(broker: BrokerSettings, own: Mapping[str, str]) -> ConsumerGroupSettings:
    """Those of one consumer group.

    Args:
        own: what was set for it. It was checked when it was; a broker may allow less by now.
    """
    from tidelog.coordinator.groups.consumer.settings import ConsumerGroupSettings, MigrationPolicy

    values = group_values(own, broker)

    def allowed(key: ConfigKey[int]) -> int:
        return within_range(broker.__getitem__, key, values[key])

    return ConsumerGroupSettings(
        session_timeout_ms=allowed(group_keys.CONSUMER_SESSION_TIMEOUT_MS),
        heartbeat_interval_ms=allowed(group_keys.CONSUMER_HEARTBEAT_INTERVAL_MS),
        assignment_interval_ms=allowed(group_keys.CONSUMER_ASSIGNMENT_INTERVAL_MS),
        group_size_max=broker[group_keys.GROUP_CONSUMER_MAX_SIZE],
        assignors=broker[group_keys.GROUP_CONSUMER_ASSIGNORS],
        migration_policy=MigrationPolicy(broker[group_keys.GROUP_CONSUMER_MIGRATION_POLICY].lower()),
    )


def share_settings(broker: BrokerSettings, own: Mapping[str, str]) -> ShareGroupSettings:
    """Those of one share group. Args as those of `consumer_settings`."""
    from tidelog.coordinator.groups.share.settings import ShareGroupSettings

    values = group_values(own, broker)

    def allowed(key: ConfigKey[int]) -> int:
        return within_range(broker.__getitem__, key, values[key])

    return ShareGroupSettings(
        session_timeout_ms=allowed(share_keys.SHARE_SESSION_TIMEOUT_MS),
        heartbeat_interval_ms=allowed(share_keys.SHARE_HEARTBEAT_INTERVAL_MS),
        assignment_interval_ms=allowed(share_keys.SHARE_ASSIGNMENT_INTERVAL_MS),
        group_size_max=broker[share_keys.GROUP_SHARE_MAX_SIZE],
    )


@dataclass(frozen=True, slots=True)
class TopicNews:
    """What consumer groups are to know of newer metadata (KIP-848).

    Attributes:
        changed: see `changed_topics`.
        has_moved: see `have_moved`.
    """

    image: MetadataImage
    changed: frozenset[str]
    has_moved: bool

    def tell(self, coordinator: GroupCoordinator, now_ms: int, wall_ms: int) -> None:
        """An event."""
        coordinator.consumer_groups.on_metadata(
            self.image, version_of(self.image), self.changed, has_moved=self.has_moved
        )


def version_of(image: MetadataImage) -> int:
    """What tells metadata from older ones."""
    return 0 if image.last_offset is None else image.last_offset + 1


def changed_topics(delta: MetadataDelta, image: MetadataImage) -> frozenset[str]:
    """The topics that were made or deleted, or whose partitions are others, or have other replicas or leaders."""
    names = {topic.name for topic in delta.deleted_topics.values()}
    names.update(delta.created_topics.values())
    names.update(image.topics_by_id[topic_id].name for topic_id in delta.changed_partitions)
    return frozenset(names)


def have_moved(delta: MetadataDelta, image: MetadataImage) -> bool:
    """Whether brokers came, went or changed their racks: it is not known which topics stand on them."""
    return any(_rack(delta.base, one) != _rack(image, one) for one in delta.changed_brokers)


def _rack(image: MetadataImage, broker_id: BrokerId) -> str | None:
    """As assignors see it: a broker that is not registered has none."""
    broker = image.brokers.get(broker_id)
    return None if broker is None else broker.rack

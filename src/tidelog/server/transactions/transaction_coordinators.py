"""The transaction coordinators of this broker: one for each partition of `__transaction_state` that it leads.

Kafka: `TransactionCoordinator`, `TransactionStateManager`.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Mapping
from functools import partial
from itertools import count
from typing import TYPE_CHECKING

from tidelog.base.ids import PartitionIndex, TopicPartition
from tidelog.metadata import MetadataDelta, MetadataImage
from tidelog.metadata.configs import coordinators as keys
from tidelog.metadata.features import TRANSACTION_VERSION
from tidelog.metadata.topic_names import TRANSACTION_STATE_TOPIC
from tidelog.server.coordinators.coordinator_partition import CoordinatorKind, Event
from tidelog.server.coordinators.coordinator_partitions import CoordinatorNode, CoordinatorPartitions
from tidelog.server.coordinators.retried_sends import SendToLeader

if TYPE_CHECKING:
    from tidelog.coordinator.transactions import TransactionCoordinator, TransactionFacts, TransactionSettings

FLEXIBLE_VALUES_SINCE = 1
"""The level of transaction.version from which on values have the layout with tagged fields."""

TRANSACTIONS = CoordinatorKind(
    TRANSACTION_STATE_TOPIC,
    noun="transactional id",
    loss="producers with these ids begin anew; transactions that were open stay so until an operator aborts them",
    logger=logging.getLogger("tidelog.server.transactions"),
    module="tidelog.coordinator.transactions",
    partition_count_key=keys.TRANSACTION_STATE_LOG_NUM_PARTITIONS,
    replication_factor_key=keys.TRANSACTION_STATE_LOG_REPLICATION_FACTOR,
    segment_size_key=keys.TRANSACTION_STATE_LOG_SEGMENT_BYTES,
    memory_key=keys.TRANSACTION_COORDINATOR_MEMORY_BYTES,
    min_isr_key=keys.TRANSACTION_STATE_LOG_MIN_ISR,
    topic_configs=(
        ("cleanup.policy", "compact"),
        ("compression.type", "uncompressed"),
        ("unclean.leader.election.enable", "false"),
    ),
)


class TransactionCoordinators(CoordinatorPartitions["TransactionCoordinator"]):
    """Finds the coordinator of a transactional id, and keeps those that live here."""

    _facts_of_ended: TransactionFacts | None = None

    def __init__(self, node: CoordinatorNode, *, send_to_leader: SendToLeader) -> None:
        super().__init__(TRANSACTIONS, node, send_to_leader=send_to_leader)
        self._elections = UncleanElections()
        self._marker_numbers = count(1)

    def on_image_changed(self, delta: MetadataDelta, image: MetadataImage) -> None:
        """A partition that a replica leads which may lack records fails the transactions that are open there."""
        if delta.are_features_changed:
            self.notify_all(partial(_write_values, _value_version(image)))
        if delta.unclean_partitions:
            lost = {
                TopicPartition(topic.name, index)
                for topic_id, index in delta.unclean_partitions
                if (topic := image.topics_by_id.get(topic_id)) is not None
            }
            self._elections.on_elected(lost, self._host.clock.wall_ms())
            self.notify_all(partial(_lose_records, lost))

    @property
    def facts(self) -> TransactionFacts:
        """What became of transactions here since the node started."""
        from tidelog.coordinator.transactions import TransactionFacts

        facts = [one.coordinator.facts for one in self._here.values()]
        return TransactionFacts(*map(sum, zip(self._facts_of_ended or TransactionFacts(), *facts, strict=True)))

    @property
    def timeout_ms_max(self) -> int:
        """The largest time-out that a producer may ask for."""
        return int(self._own_values()[keys.TRANSACTION_MAX_TIMEOUT_MS])

    def _on_ended(self, machine: TransactionCoordinator) -> None:
        from tidelog.coordinator.transactions import TransactionFacts

        before = self._facts_of_ended or TransactionFacts()
        self._facts_of_ended = TransactionFacts(*map(sum, zip(before, machine.facts, strict=True)))

    def _first_event(self) -> Event[TransactionCoordinator]:
        """Whoever coordinated before may have gone before it heard of an unclean election."""
        return partial(_lose_records_before, self._elections.heard_ms())

    def _new_machine(self, index: int) -> TransactionCoordinator:
        from tidelog.coordinator.transactions import TransactionCoordinator

        return TransactionCoordinator(
            PartitionIndex(index),
            self._settings(),
            value_version=_value_version(self._broker.image),
            memory=self.memory,
            marker_numbers=self._marker_numbers,
        )

    def _settings(self) -> TransactionSettings:
        from tidelog.coordinator.transactions import TransactionSettings

        values = self._own_values()
        return TransactionSettings(
            timeout_ms_max=values[keys.TRANSACTION_MAX_TIMEOUT_MS],
            expiration_ms=values[keys.TRANSACTIONAL_ID_EXPIRATION_MS],
            expiry_check_interval_ms=values[keys.TRANSACTION_REMOVE_EXPIRED_TRANSACTION_CLEANUP_INTERVAL_MS],
        )


def _value_version(image: MetadataImage) -> int:
    return int(image.features.get(TRANSACTION_VERSION, 0) >= FLEXIBLE_VALUES_SINCE)


def _write_values(version: int, coordinator: TransactionCoordinator, now_ms: int, wall_ms: int) -> None:
    coordinator.value_version = version


class UncleanElections:
    """Those that this broker has heard of, whether or not it coordinated anything then.

    At most one for each partition: the last.
    """

    def __init__(self) -> None:
        self._heard_ms: dict[TopicPartition, int] = {}

    def on_elected(self, partitions: Iterable[TopicPartition], wall_ms: int) -> None:
        """Replicas that may lack records lead these now.

        Args:
            wall_ms: when this broker heard of it.
        """
        self._heard_ms |= dict.fromkeys(partitions, wall_ms)

    def heard_ms(self) -> dict[TopicPartition, int]:
        """By partition, when the last was heard of. The dict is the caller's."""
        return dict(self._heard_ms)


def _lose_records_before(
    lost_ms: Mapping[TopicPartition, int], coordinator: TransactionCoordinator, now_ms: int, wall_ms: int
) -> None:
    coordinator.on_records_lost_before(lost_ms, now_ms=now_ms, wall_ms=wall_ms)


def _lose_records(
    partitions: Collection[TopicPartition], coordinator: TransactionCoordinator, now_ms: int, wall_ms: int
) -> None:
    coordinator.on_records_lost(partitions, now_ms=now_ms, wall_ms=wall_ms)

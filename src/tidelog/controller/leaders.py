"""Who leads when brokers come and go, and when settings change.

What becomes of one partition is decided in `partition_changes.py`; here it is done to all of them.

Kafka: `ReplicationControlManager.generateLeaderAndIsrUpdates`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from enum import IntEnum
from uuid import UUID

from tidelog.base.ids import BrokerId, PartitionEpoch, PartitionIndex, TopicId
from tidelog.controller.partition_changes import (
    IsActive,
    arrived,
    change_record,
    elected_preferred,
    elected_uncleanly,
    is_spared,
    with_isr,
    without,
)
from tidelog.controller.topic_rules import TopicRules
from tidelog.metadata.image import BrokerImage, MetadataView, PartitionImage
from tidelog.metadata.records.topics import PartitionChangeRecord
from tidelog.replica import isr_size_min

EachPartition = tuple[str, TopicId, PartitionIndex, PartitionImage]
"""A partition, with the name and the id of its topic."""

NO_DIRECTORY = UUID(int=0)
"""Of a broker that has not said which of its log directories it uses."""
LOST_DIRECTORY = UUID(int=2)
"""Of a replica whose log is gone: `DirectoryId.LOST` in Kafka (KIP-858)."""


class ElectionType(IntEnum):
    """What kind of election is asked for, with the numbers of the protocol."""

    PREFERRED = 0
    UNCLEAN = 1


def is_active_in(metadata: MetadataView) -> IsActive:
    """Whether a broker may be elected, according to `metadata`."""

    def is_active(broker_id: BrokerId) -> bool:
        broker = metadata.brokers.get(broker_id)
        return broker is not None and broker.is_active

    return is_active


def directory_of(partition: PartitionImage, broker_id: BrokerId) -> UUID:
    """In which log directory of a broker its replica lies, where that is known."""
    return partition.directories[partition.replicas.index(broker_id)] if partition.directories else NO_DIRECTORY


def lies_online(partition: PartitionImage, broker: BrokerImage) -> bool:
    """Whether a broker can reach its replica: the log directory has not failed, as far as is known where it lies.

    A broker that is to get one has none that could have failed.
    """
    if broker.broker_id not in partition.replicas:
        return True
    directory = directory_of(partition, broker.broker_id)
    return directory == NO_DIRECTORY or not broker.log_dirs or directory in broker.log_dirs


def with_replica_online(
    is_active: IsActive, brokers: Mapping[BrokerId, BrokerImage], partition: PartitionImage
) -> IsActive:
    """Who may be elected in one partition: a broker that is active, and whose replica does not lie in a directory that
    failed (KIP-858).
    """
    if not partition.directories:
        return is_active
    return lambda one: is_active(one) and (one not in brokers or lies_online(partition, brokers[one]))


def changes_on_leaving(
    metadata: MetadataView,
    broker_id: BrokerId,
    rules: TopicRules,
    *,
    is_lost: bool = False,
    directories: Sequence[UUID] | None = None,
    partitions: Iterable[EachPartition],
) -> Iterator[PartitionChangeRecord]:
    """What follows when a broker is registered no longer, or a new incarnation of it takes its place.

    It loses every leadership and every seat in an ISR, be it the last one. Where fewer stay in sync than must be, it is
    eligible to lead when it is back (KIP-966).

    Args:
        is_lost: its last shutdown was unclean, so its logs may lack what it had: it is not eligible any more.
        directories: those that it has from now on. What lay in another one is gone if a new one may have taken its
            place; else it is away. None where nothing is said.
        partitions: to look at; none that it changes is changed again.
    """
    before = metadata.brokers.get(broker_id)
    is_replaced = directories is not None and before is not None and not set(directories) <= set(before.log_dirs)
    is_active = is_active_in(metadata)
    for name, topic_id, index, partition in partitions:
        if broker_id not in partition.replicas:
            continue
        is_gone = (
            is_replaced
            and directories is not None
            and directory_of(partition, broker_id) not in (*directories, NO_DIRECTORY)
        )
        may_lack = is_lost or (before is not None and not lies_online(partition, before))
        if not is_gone and broker_id not in partition.isr and not (may_lack and _may_lose(partition, broker_id)):
            continue
        changed = without(
            partition,
            broker_id,
            min_insync_replicas=rules.min_insync(name),
            is_active=with_replica_online(is_active, metadata.brokers, partition),
            is_lost=may_lack,
            is_gone=is_gone,
            is_unclean_allowed=rules.allows_unclean(name),
        )
        if is_gone and directories is not None:
            changed = _moved(partition, changed, broker_id, directories)
        if changed is not None:
            yield change_record(topic_id, index, partition, arrived(partition, changed))


def changes_on_shutdown(
    metadata: MetadataView,
    broker_id: BrokerId,
    rules: TopicRules,
    partitions: Iterable[EachPartition],
) -> Iterator[PartitionChangeRecord]:
    """What follows when a broker is about to go: whatever can do without it does so at once.

    Its leaderships go to others, and it leaves every ISR in which others are. What would have no leader it keeps.
    """
    is_active = is_active_in(metadata)
    for name, topic_id, index, partition in partitions:
        if broker_id not in partition.isr:
            continue
        others = with_replica_online(is_active, metadata.brokers, partition)
        if not partition.eligible_leader_replicas and not _is_another_in_sync(partition, broker_id, others):
            continue  # of thousands, maybe, and asked at every heartbeat
        changed = without(partition, broker_id, min_insync_replicas=rules.min_insync(name), is_active=others)
        if changed is not None and changed.leader is not None:
            yield change_record(topic_id, index, partition, arrived(partition, changed))


def can_all_do_without(
    metadata: MetadataView, broker_id: BrokerId, rules: TopicRules, partitions: Iterable[EachPartition]
) -> Iterator[bool]:
    """Of each partition in which a broker is in sync that is about to go: whether it would have a leader without it.

    Of few it is worked out what would become of them.
    """
    is_active = is_active_in(metadata)
    for name, _, _, partition in partitions:
        if broker_id not in partition.isr:
            continue
        others = with_replica_online(is_active, metadata.brokers, partition)
        if partition.leader not in (None, broker_id) or _is_another_in_sync(partition, broker_id, others):
            yield True
        elif not partition.eligible_leader_replicas:
            yield False
        else:
            changed = without(partition, broker_id, min_insync_replicas=rules.min_insync(name), is_active=others)
            yield changed is not None and changed.leader is not None


def changes_where_nobody_knows(
    metadata: MetadataView, broker_id: BrokerId, rules: TopicRules, partitions: Iterable[EachPartition]
) -> Iterator[PartitionChangeRecord]:
    """What follows when directories of a broker failed, where nobody knows in which one a replica lies: it leaves if
    others can lead. If it is well, it fetches and is back in sync at once. Its broker tells where it lies in any case.
    """
    is_active = is_active_in(metadata)
    for name, topic_id, index, partition in partitions:
        if broker_id not in partition.replicas or directory_of(partition, broker_id) != NO_DIRECTORY:
            continue
        changed = without(
            partition,
            broker_id,
            min_insync_replicas=rules.min_insync(name),
            is_active=with_replica_online(is_active, metadata.brokers, partition),
            is_lost=True,
        )
        if changed is not None and changed.leader is not None:
            yield change_record(topic_id, index, partition, arrived(partition, changed))


def changes_on_min_insync(rules: TopicRules, partitions: Iterable[EachPartition]) -> Iterator[PartitionChangeRecord]:
    """What fewer that need to be in sync take: who is in sync commits alone from then on.

    So nobody else is eligible any more, from the same batch of records on, or an earlier one.

    Args:
        rules: as they are afterwards.
    """
    for name, topic_id, index, partition in partitions:
        if not partition.eligible_leader_replicas and not partition.last_known_eligible_leader_replicas:
            continue
        min_insync = rules.min_insync(name)
        if min_insync is not None and len(partition.isr) >= isr_size_min(partition, min_insync):
            changed = with_isr(partition, partition.isr, min_insync_replicas=min_insync)
            yield change_record(topic_id, index, partition, arrived(partition, changed))


def _is_another_in_sync(partition: PartitionImage, broker_id: BrokerId, is_active: IsActive) -> bool:
    return any(one != broker_id and is_active(one) for one in partition.isr)


def _may_lose(partition: PartitionImage, broker_id: BrokerId) -> bool:
    """Whether a broker is eligible, and has not been spared already what it lost."""
    return broker_id in partition.eligible_leader_replicas and not is_spared(partition, broker_id)


def _moved(
    before: PartitionImage, after: PartitionImage | None, broker_id: BrokerId, directories: Sequence[UUID]
) -> PartitionImage:
    """The replica begins anew, in the broker's only directory, or in one that it has to choose."""
    if after is None:
        after = replace(before, partition_epoch=PartitionEpoch(before.partition_epoch + 1))
    chosen = directories[0] if len(directories) == 1 else NO_DIRECTORY
    at = before.replicas.index(broker_id)
    return replace(after, directories=(*before.directories[:at], chosen, *before.directories[at + 1 :]))


def elect_leader(
    partition: PartitionImage, kind: ElectionType, *, min_insync_replicas: int | None, is_active: IsActive
) -> PartitionImage:
    """The partition after an election that an operator asks for.

    Raises:
        KafkaError: ELECTION_NOT_NEEDED; PREFERRED_LEADER_NOT_AVAILABLE; ELIGIBLE_LEADERS_NOT_AVAILABLE.
    """
    elect = elected_preferred if kind is ElectionType.PREFERRED else elected_uncleanly
    return elect(partition, min_insync_replicas=min_insync_replicas, is_active=is_active)

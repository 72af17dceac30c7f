"""In which log directory each replica lies, as its broker says (KIP-858): so that a directory that fails costs what lay
in it, and nothing else.

Kafka: `ReplicationControlManager.handleAssignReplicasToDirs`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple
from uuid import UUID

from tidelog.base.errors import Code, KafkaError, refusal
from tidelog.base.ids import BrokerEpoch, BrokerId, PartitionEpoch, PartitionIndex, TopicId
from tidelog.controller.brokers import registered
from tidelog.controller.leaders import (
    LOST_DIRECTORY,
    NO_DIRECTORY,
    directory_of,
    is_active_in,
    lies_online,
    with_replica_online,
)
from tidelog.controller.partition_changes import change_record, without
from tidelog.controller.topic_rules import TopicRules
from tidelog.controller.values import ControllerSettings
from tidelog.journal import Decision
from tidelog.metadata.draft import MetadataDraft
from tidelog.metadata.features import knows_directories
from tidelog.metadata.image import MetadataView, PartitionImage, TopicImage

RESERVED_IDS_END = 100
"""Below are ids that stand for no directory: unknown, lost, one that is yet to be told."""


class ReplicaInDirectory(NamedTuple):
    """Where one replica lies."""

    topic_id: TopicId
    partition: PartitionIndex
    directory_id: UUID


def pieces_to_assign(
    settings: ControllerSettings, replicas: Sequence[ReplicaInDirectory]
) -> Iterator[Sequence[ReplicaInDirectory]]:
    """What a request tells of directories, in portions that are to be decided one by one; at least one."""
    for start in range(0, max(len(replicas), 1), settings.partition_changes_max):
        yield replicas[start : start + settings.partition_changes_max]


def decide_assign_directories(
    metadata: MetadataView,
    settings: ControllerSettings,
    broker_id: BrokerId,
    broker_epoch: BrokerEpoch,
    replicas: Sequence[ReplicaInDirectory],
) -> Decision[tuple[Code, ...]]:
    """Note where the replicas of one broker lie; what became of each, in the order of the request.

    Each counts alone, so a long request is decided in the portions of `pieces_to_assign`.

    Where that is a directory which the broker has lost since, the replica is lost with it. A broker that registered at
    a level without directories has lost none. One that has the replica elsewhere than in a directory that is away has
    made it anew: what it held is gone.

    LOST_DIRECTORY, at any level of metadata.version, is where a replica lies whose log is gone though its broker had
    it: it is in sync, eligible or known to have been no more, and cannot be elected before it begins anew.

    Raises:
        KafkaError: BROKER_ID_NOT_REGISTERED; STALE_BROKER_EPOCH; UNSUPPORTED_VERSION: the level of metadata.version has
            no words for directories other than LOST_DIRECTORY.
    """
    broker = registered(metadata, broker_id, broker_epoch)
    has_directories = knows_directories(metadata.features)
    if not has_directories and any(one.directory_id != LOST_DIRECTORY for one in replicas):
        raise refusal(Code.UNSUPPORTED_VERSION, "this level of metadata.version says nothing of log directories")
    draft, rules = MetadataDraft(metadata), TopicRules(metadata, settings)
    records: list[object] = []
    codes: list[Code] = []
    for one in replicas:
        try:
            topic = _find(draft, one, broker_id)
        except KafkaError as error:
            codes.append(error.code)
            continue
        codes.append(Code.NONE)
        before = topic.partitions[one.partition]
        is_reported_lost = one.directory_id == LOST_DIRECTORY
        is_lost = is_reported_lost or (bool(broker.log_dirs) and one.directory_id not in broker.log_dirs)
        is_gone = is_reported_lost or (not is_lost and not lies_online(before, broker))  # made anew, where that is away
        if directory_of(before, broker_id) == one.directory_id and not is_lost:
            continue
        changed = None
        if is_lost or is_gone:
            changed = without(
                before,
                broker_id,
                min_insync_replicas=rules.min_insync(topic.name),
                is_active=with_replica_online(is_active_in(draft), draft.brokers, before),
                is_lost=True,
                is_gone=is_gone,
                is_unclean_allowed=rules.allows_unclean(topic.name),
            )
            if changed is None and (not has_directories or directory_of(before, broker_id) == one.directory_id):
                continue
        after = _lying_in(before, changed, broker_id, one.directory_id) if has_directories else changed
        assert after is not None
        record = change_record(one.topic_id, one.partition, before, after)
        draft.apply(record)
        records.append(record)
    return Decision(tuple(records), tuple(codes))


def _find(metadata: MetadataView, one: ReplicaInDirectory, broker_id: BrokerId) -> TopicImage:
    topic = metadata.topics_by_id.get(one.topic_id)
    if topic is None:
        raise refusal(Code.UNKNOWN_TOPIC_ID, f"there is no topic {one.topic_id}")
    if not 0 <= one.partition < len(topic.partitions):
        raise refusal(Code.UNKNOWN_TOPIC_OR_PARTITION, f"topic {topic.name} has no partition {one.partition}")
    if broker_id not in topic.partitions[one.partition].replicas:
        raise refusal(Code.NOT_LEADER_OR_FOLLOWER, f"broker {broker_id} has no replica of {topic.name}-{one.partition}")
    if one.directory_id.int < RESERVED_IDS_END and one.directory_id != LOST_DIRECTORY:
        raise refusal(Code.INVALID_REQUEST, f"{one.directory_id} is the id of no directory")
    return topic


def _lying_in(
    before: PartitionImage, after: PartitionImage | None, broker_id: BrokerId, directory_id: UUID
) -> PartitionImage:
    if after is None:
        after = replace(before, partition_epoch=PartitionEpoch(before.partition_epoch + 1))
    known = before.directories or (NO_DIRECTORY,) * len(before.replicas)
    at = before.replicas.index(broker_id)
    return replace(after, directories=(*known[:at], directory_id, *known[at + 1 :]))

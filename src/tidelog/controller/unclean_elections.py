"""Which record of the metadata log elects a leader that may lack committed records, and who ordered that.

Kafka counts them in its controller as `UncleanLeaderElectionsPerSec`.
"""

from __future__ import annotations

from typing import NamedTuple

from tidelog.base.ids import BrokerId, LeaderEpoch, PartitionIndex, TopicId, TopicPartition
from tidelog.controller.topic_rules import UNCLEAN_ELECTION, TopicRules
from tidelog.controller.values import ControllerSettings
from tidelog.metadata.draft import merge
from tidelog.metadata.image import MetadataView
from tidelog.metadata.records.topics import PartitionChangeRecord

BY_OPERATOR = "an operator's request (ElectLeaders)"
BY_SETTING = f"{UNCLEAN_ELECTION.name}=true"


class UncleanElection(NamedTuple):
    """A leader was elected that was neither in sync nor eligible.

    Attributes:
        leader_epoch: that begins with it.
        was_in_sync: who was in sync before, or eligible to lead: they may hold what the leader lacks.
        ordered_by: the setting, or an operator. Where the setting allows it, every unclean election happens by itself
            as soon as a replica is alive, and an operator finds none to ask for.
    """

    topic_partition: TopicPartition
    leader: BrokerId
    leader_epoch: LeaderEpoch
    was_in_sync: tuple[BrokerId, ...]
    ordered_by: str


def unclean_election(
    before: MetadataView, record: PartitionChangeRecord, settings: ControllerSettings
) -> UncleanElection | None:
    """What one record does, given the metadata that it is about to change; None for any other change."""
    if record.leader < 0 or record.unclean_epoch < 0:
        return None
    topic, index = before.topics_by_id[TopicId(record.topic_id)], PartitionIndex(record.partition_id)
    state = topic.partitions[index]
    could_lead = (*state.isr, *state.eligible_leader_replicas)
    if record.leader in could_lead:
        return None  # it is in sync, and may have lost power
    after = merge(state, record)
    return UncleanElection(
        TopicPartition(topic.name, index),
        BrokerId(record.leader),
        after.leader_epoch,
        could_lead or state.last_known_eligible_leader_replicas,
        BY_SETTING if TopicRules(before, settings).allows_unclean(topic.name) else BY_OPERATOR,
    )

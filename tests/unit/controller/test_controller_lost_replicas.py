"""Who loses a replica, and is to be told to stop it."""

from __future__ import annotations

from uuid import UUID

from tidelog.base.ids import BrokerId, LeaderEpoch, PartitionIndex, TopicId, TopicPartition
from tidelog.controller import ControllerSettings, ControllerState, LostReplica
from tidelog.metadata.records import PartitionRecord, RemoveTopicRecord, TopicRecord
from tidelog.metadata.records.topics import PartitionChangeRecord

TOPIC = TopicId(UUID(int=7))


def told(*records: object) -> list[LostReplica]:
    """By records that follow on a topic of two partitions, on brokers 1 and 2, and 2 and 3."""
    state = ControllerState(ControllerSettings(cluster_id=None))
    state.apply(TopicRecord(name="flights", topic_id=TOPIC))
    for index, replicas in enumerate(([1, 2], [2, 3])):
        state.apply(
            PartitionRecord(
                partition_id=index,
                topic_id=TOPIC,
                replicas=replicas,
                isr=replicas,
                leader=replicas[0],
                leader_epoch=4,
                partition_epoch=9,
            )
        )
    state.lost = []
    assert state.clone().lost is None, "what is not committed is nobody's business"
    for record in records:
        state.apply(record)
    return state.lost


def lost(broker_id: int, index: int, leader_epoch: int | None) -> LostReplica:
    return LostReplica(
        BrokerId(broker_id),
        TopicPartition("flights", PartitionIndex(index)),
        TOPIC,
        None if leader_epoch is None else LeaderEpoch(leader_epoch),
    )


def test_a_deleted_topic_is_lost_to_all_who_had_it_and_has_no_epoch_of_its_own() -> None:
    everybody = [lost(1, 0, None), lost(2, 0, None), lost(2, 1, None), lost(3, 1, None)]
    assert told(RemoveTopicRecord(topic_id=TOPIC)) == everybody


def test_who_is_reassigned_away_loses_it_in_the_epoch_that_begins_with_that() -> None:
    moved = PartitionChangeRecord(partition_id=0, topic_id=TOPIC, replicas=[2, 4], isr=[2], leader=2)
    assert told(moved) == [lost(1, 0, 5)]
    added = PartitionChangeRecord(partition_id=0, topic_id=TOPIC, replicas=[1, 2, 4], leader=1)
    cancelled = PartitionChangeRecord(partition_id=0, topic_id=TOPIC, replicas=[1, 2], leader=1)
    assert told(added, cancelled) == [lost(4, 0, 6)]


def test_nobody_loses_anything_by_other_changes() -> None:
    assert told(PartitionChangeRecord(partition_id=0, topic_id=TOPIC, isr=[1])) == []
    assert told(PartitionChangeRecord(partition_id=0, topic_id=TOPIC, isr=[2], leader=2)) == []
    assert told(PartitionChangeRecord(partition_id=0, topic_id=TOPIC, replicas=[2, 1], leader=1)) == []


def test_a_state_that_nobody_asks_notes_nothing() -> None:
    state = ControllerState(ControllerSettings(cluster_id=None))
    state.apply(TopicRecord(name="flights", topic_id=TOPIC))
    state.apply(RemoveTopicRecord(topic_id=TOPIC))
    assert state.lost is None

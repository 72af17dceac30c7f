"""A decision that is too large for one batch of the metadata log counts as a whole, or not at all (KIP-868)."""

from __future__ import annotations

from uuid import UUID

import pytest

from tidelog.base.errors import Code
from tidelog.base.ids import Offset
from tidelog.controller import LOG_TRANSACTIONS, ControllerSettings, ControllerState
from tidelog.journal import Journal
from tidelog.metadata.records import (
    AbortTransactionRecord,
    BeginTransactionRecord,
    EndTransactionRecord,
    FeatureLevelRecord,
    PartitionChangeRecord,
    PartitionRecord,
    TopicRecord,
)


@pytest.mark.parametrize(
    ("last", "topics"), [(None, ["a"]), (EndTransactionRecord(), ["a", "b"]), (AbortTransactionRecord(), ["a"])]
)
def test_what_stands_between_a_begin_and_its_end_counts_with_the_end(last: object, topics: list[str]) -> None:
    journal = Journal(
        ControllerState(ControllerSettings()), not_active=Code.NOT_CONTROLLER, transactions=LOG_TRANSACTIONS
    )
    records = [
        FeatureLevelRecord(name="metadata.version", feature_level=27),
        TopicRecord(name="a", topic_id=UUID(int=500)),
        BeginTransactionRecord(),
        TopicRecord(name="b", topic_id=UUID(int=501)),
        *([] if last is None else [last]),
    ]
    for offset, record in enumerate(records):
        journal.replay(record, Offset(offset))
    journal.on_committed(Offset(len(records)))
    assert list(journal.committed.metadata.topics_by_name) == topics


@pytest.mark.parametrize(("last", "count"), [(None, 1), (EndTransactionRecord(), 2), (AbortTransactionRecord(), 1)])
def test_who_is_to_be_told_of_it_is_told_with_the_end(last: object, count: int) -> None:
    """Of replicas that are lost, and of unclean elections: those before the transaction are told in any case."""
    state = ControllerState(ControllerSettings())
    state.lost, state.unclean_elections = [], []
    journal = Journal(state, not_active=Code.NOT_CONTROLLER, transactions=LOG_TRANSACTIONS)
    topics = [UUID(int=500), UUID(int=501)]
    records: list[object] = [FeatureLevelRecord(name="metadata.version", feature_level=27)]
    for number, topic_id in enumerate(topics):
        records += [
            TopicRecord(name=f"t{number}", topic_id=topic_id),
            PartitionRecord(topic_id=topic_id, partition_id=0, replicas=[1, 2], isr=[1], leader=-1, leader_epoch=3),
        ]
    for topic_id in topics:
        records += [
            PartitionChangeRecord(topic_id=topic_id, partition_id=0, replicas=[2], isr=[2], leader=2, unclean_epoch=4),
            *([BeginTransactionRecord()] if topic_id == topics[0] else []),
        ]
    records += [] if last is None else [last]
    for offset, record in enumerate(records):
        journal.replay(record, Offset(offset))
    journal.on_committed(Offset(len(records)))
    counted = journal.committed
    assert counted.lost is not None
    assert counted.unclean_elections is not None
    assert [one.topic_partition.topic for one in counted.lost] == ["t0", "t1"][:count]
    assert [one.topic_partition.topic for one in counted.unclean_elections] == ["t0", "t1"][:count]

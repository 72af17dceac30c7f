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

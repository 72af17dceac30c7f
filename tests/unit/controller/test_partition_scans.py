"""Passes over the partitions of a state that are told what its records change behind them."""

from __future__ import annotations

import gc
from uuid import UUID

import pytest

from tidelog.base.ids import PartitionIndex, TopicId
from tidelog.controller.partition_scan import PartitionScan, PartitionScans
from tidelog.metadata import MetadataDraft, MetadataImage
from tidelog.metadata.records.brokers import UnregisterBrokerRecord
from tidelog.metadata.records.topics import PartitionChangeRecord, PartitionRecord, RemoveTopicRecord, TopicRecord

TOPIC = TopicId(UUID(int=500))


class State:
    """Two partitions of one topic, and the passes over them."""

    def __init__(self) -> None:
        self.metadata = MetadataDraft(MetadataImage.empty())
        self.scans = PartitionScans(self.metadata)
        self.apply(TopicRecord(name="a", topic_id=TOPIC))
        for index in range(2):
            self.apply(PartitionRecord(partition_id=index, topic_id=TOPIC, replicas=[1], isr=[1], leader=1))

    def apply(self, record: object) -> None:
        self.metadata.apply(record)
        self.scans.on_applied(record)

    def change(self, index: int) -> None:
        self.apply(PartitionChangeRecord(partition_id=index, topic_id=TOPIC, leader=-1))

    def seen_by(self, scan: PartitionScan) -> list[PartitionIndex]:
        """What its next portion looks at."""
        return [index for _, _, index, _ in scan.portion(self.metadata, 100)]


def test_what_changes_behind_a_pass_has_its_turn_again() -> None:
    state = State()
    scan = state.scans.pass_over(None)
    assert state.seen_by(scan) == [0, 1]
    assert scan.is_done
    state.change(0)
    assert not scan.is_done
    assert state.seen_by(scan) == [0]
    assert scan.is_done


def test_a_pass_that_began_by_itself_is_told_from_then_on() -> None:
    state = State()
    scan = PartitionScan(state.metadata)
    assert not scan.has_brokers_changed
    assert state.scans.pass_over(scan) is scan
    assert state.seen_by(scan) == [0, 1]
    state.change(1)
    assert state.seen_by(scan) == [1]


def test_what_changed_is_looked_at_in_portions_too(monkeypatch: pytest.MonkeyPatch) -> None:
    state = State()
    scan = state.scans.pass_over(None)
    assert state.seen_by(scan) == [0, 1]
    state.change(0)
    state.change(1)
    monkeypatch.setattr("tidelog.controller.partition_scan.LOOKS_PER_CHANGE", 1)
    looks = [[index for _, _, index, _ in scan.portion(state.metadata, 1)] for _ in range(3)]
    assert sorted(looks) == [[], [0], [1]]
    assert scan.is_done


def test_what_changed_and_is_gone_is_passed_over() -> None:
    state = State()
    scan = state.scans.pass_over(None)
    assert state.seen_by(scan) == [0, 1]
    state.change(0)
    state.apply(RemoveTopicRecord(topic_id=TOPIC))
    assert state.seen_by(scan) == []
    assert scan.is_done


def test_a_pass_that_begins_anew_has_all_that_there_is_then() -> None:
    state, other = State(), TopicId(UUID(int=501))
    scan = state.scans.pass_over(None)
    assert state.seen_by(scan) == [0, 1]
    state.apply(TopicRecord(name="b", topic_id=other))
    state.apply(PartitionRecord(partition_id=0, topic_id=other, replicas=[1], isr=[1], leader=1))
    scan.begin(state.metadata)
    assert state.seen_by(scan) == [0, 1, 0]


def test_a_pass_goes_on_where_it_was_and_one_of_another_state_begins_anew() -> None:
    state, other = State(), State()
    scan = state.scans.pass_over(PartitionScan())
    assert state.seen_by(scan) == [0, 1]
    assert state.scans.pass_over(scan) is scan
    assert state.seen_by(scan) == []
    assert other.scans.pass_over(scan) is scan
    assert other.seen_by(scan) == [0, 1]
    other.change(1)
    assert other.seen_by(scan) == [1]


def test_all_passes_hear_of_brokers_that_come_and_go() -> None:
    state = State()
    scans = [state.scans.pass_over(None) for _ in range(2)]
    state.scans.on_applied(UnregisterBrokerRecord(broker_id=1, broker_epoch=1))
    assert all(scan.has_brokers_changed for scan in scans)
    assert not state.scans.pass_over(None).has_brokers_changed


def test_a_pass_that_nobody_keeps_is_told_nothing() -> None:
    state = State()
    state.scans.pass_over(None)
    assert not len(state.scans._scans)


def test_a_pass_that_is_collected_meanwhile_takes_no_other_along(monkeypatch: pytest.MonkeyPatch) -> None:
    """The collector may come whenever anything is made: while a pass is told, too."""
    state = State()
    kept = [state.scans.pass_over(None) for _ in range(3)]
    for scan in kept:
        state.seen_by(scan)
    left = kept.pop(0)
    vars(left)["itself"] = left
    del left, scan
    tell = PartitionScan.on_changed

    def tell_and_collect(scan: PartitionScan, topic_id: TopicId, index: PartitionIndex) -> None:
        tell(scan, topic_id, index)
        if scan is kept[0]:
            gc.collect()

    monkeypatch.setattr(PartitionScan, "on_changed", tell_and_collect)
    state.change(0)
    assert [state.seen_by(scan) for scan in kept] == [[0], [0]]

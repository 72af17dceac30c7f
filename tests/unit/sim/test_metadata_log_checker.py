"""The metadata log as one history: what nodes and administrators are told of it, and what does not fit."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from uuid import UUID

from tidelog.base.ids import BrokerId, LeaderEpoch, Offset, TopicId
from tidelog.metadata import MetadataDelta, MetadataImage
from tidelog.metadata.records import RemoveTopicRecord, TopicRecord, encode_record
from tidelog.sim.checkers.metadata_log import CheckedMetadataLog
from tidelog.sim.checkers.quorum import QuorumView
from tidelog.sim.checkers.views import Record
from tidelog.sim.runs.stored import Control

A, B = BrokerId(1), BrokerId(2)
FIRST, SECOND = TopicId(UUID(int=1)), TopicId(UUID(int=2))
OPENED: Record = (LeaderEpoch(1), Control(b"leader change"))
MADE: Record = (LeaderEpoch(1), bytes(encode_record(TopicRecord(name="t", topic_id=FIRST))))
OTHER: Record = (LeaderEpoch(2), bytes(encode_record(TopicRecord(name="u", topic_id=SECOND))))
GONE: Record = (LeaderEpoch(2), bytes(encode_record(RemoveTopicRecord(topic_id=FIRST))))


def node(node_id: BrokerId, records: Sequence[Record], high_watermark: int | None, *, start: int = 0) -> QuorumView:
    known = None if high_watermark is None else Offset(high_watermark)
    end_offset = Offset(start + len(records))
    return QuorumView(node_id, True, False, LeaderEpoch(1), None, known, Offset(start), records, end_offset)


def look(log: CheckedMetadataLog, *views: QuorumView) -> list[str]:
    return [str(one) for view in views for one in log.check_log(view)]


def committed(*records: Record) -> CheckedMetadataLog:
    log = CheckedMetadataLog()
    assert look(log, node(A, records, len(records))) == []
    return log


def image_of(*names: str, last_offset: int) -> MetadataImage:
    delta = MetadataDelta(MetadataImage.empty())
    for name in names:
        delta.replay(TopicRecord(name=name, topic_id=FIRST if name == "t" else SECOND))
    return delta.apply(Offset(last_offset))


def test_what_is_committed_is_the_same_everywhere() -> None:
    log = CheckedMetadataLog()
    assert look(log, node(A, [OPENED, MADE], 2), node(B, [OPENED, MADE], 1), node(B, [OPENED, MADE], 2)) == []
    assert log.end_offset == 2
    log = committed(OPENED, MADE)
    assert look(log, node(B, [OPENED, OTHER], 1)) == [], "what is not committed may be anything"
    (told,) = look(log, node(B, [OPENED, OTHER], 2))
    assert told.startswith("CommittedMetadataStays: node 2 committed ")
    assert "at offset=1, where " in told


def test_what_is_committed_is_there() -> None:
    assert look(CheckedMetadataLog(), node(A, [OPENED], 2)) == [
        "CommittedMetadataStays: node 1 committed offset=1, and has no record there"
    ]


def test_what_a_node_has_lost_of_it_is_seen_when_it_says_that_its_log_is_another() -> None:
    log = committed(OPENED, MADE)
    log.on_changed(A, 1)
    assert look(log, node(A, [OPENED, OTHER], None)) == []
    assert len(look(log, node(A, [OPENED, OTHER], 2))) == 1


def test_a_log_may_begin_with_a_snapshot_of_what_is_committed_and_of_nothing_else() -> None:
    assert look(committed(OPENED, MADE), node(B, [OTHER], 2, start=2)) == []
    assert look(committed(OPENED), node(B, [OTHER], 3, start=2)) == [
        "CommittedMetadataStays: node 2 forgot offset=1 before anybody committed it"
    ]


def test_images_are_what_was_committed() -> None:
    log = committed(OPENED, MADE, OTHER)
    assert log.latest == image_of("t", "u", last_offset=2)
    for last_offset, names in ((0, ()), (2, ("t", "u")), (1, ("t",))):
        assert list(log.check_image(A, image_of(*names, last_offset=last_offset))) == []
    assert [str(one) for one in log.check_image(A, image_of("u", last_offset=1))] == [
        "ImagesAreEqual: broker 1 at offset 1 has other topics_by_name, topics_by_id"
    ]
    assert [str(one) for one in log.check_image(A, replace(log.latest, last_offset=Offset(3)))] == [
        "ImagesAreEqual: broker 1 publishes offset 3, which nobody committed"
    ]
    assert list(log.check_image(A, MetadataImage.empty())) == []


def test_what_was_told_to_be_done_is_committed_after_it_was_asked_for() -> None:
    log = committed(OPENED)
    made, early = log.begin("create", "t"), log.begin("create", "u")
    assert [str(one) for one in log.check_done(made)] == [
        "MetadataIsLinear: to create t was told to be done: from offset 1 to 1 nothing of it was committed"
    ]
    assert look(log, node(A, [OPENED, MADE], 2)) == []
    assert list(log.check_done(made)) == []
    assert len(list(log.check_done(early))) == 1
    assert len(list(log.check_done(log.begin("create", "t")))) == 1, "that is what an earlier one did"


def test_a_deletion_is_that_of_the_topic_that_was_there() -> None:
    log = committed(OPENED, MADE, OTHER)
    gone, other = log.begin("delete", "t"), log.begin("delete", "u")
    assert look(log, node(A, [OPENED, MADE, OTHER, GONE], 4)) == []
    assert list(log.check_done(gone)) == []
    assert len(list(log.check_done(other))) == 1

"""MetadataNeverGoesBack and OwnWritesSeen: what answers may say, and what they may not."""

from __future__ import annotations

from uuid import UUID

from tidelog.base.ids import LeaderEpoch, Offset, TopicId
from tidelog.sim.checkers.metadata_reads import MetadataRead, MetadataReads, TopicRead

FIRST, SECOND = TopicId(UUID(int=1)), TopicId(UUID(int=2))


def topic(*leader_epochs: int, topic_id: TopicId = FIRST) -> TopicRead:
    return TopicRead(topic_id, tuple(map(LeaderEpoch, leader_epochs)))


def read(reads: MetadataReads, answer: MetadataRead, *, who: str = "X", token: int | None = None) -> list[str]:
    found = reads.on_answered(reads.begin(who), answer, None if token is None else Offset(token))
    return [str(one) for one in found]


def test_what_grows_does_not_go_back() -> None:
    reads = MetadataReads()
    assert read(reads, {"t": topic(0, 0)}) == []
    assert read(reads, {"t": topic(1, 0, 0)}) == []
    assert read(reads, {"t": topic(0, 0, 0)}) == ["MetadataNeverGoesBack: X was told of leader epoch 0 of t-0, after 1"]
    assert read(reads, {"t": topic(1, 0)}) == ["MetadataNeverGoesBack: X was told of 2 partitions of t, after 3"]


def test_every_context_has_its_own_past() -> None:
    reads = MetadataReads()
    read(reads, {"t": topic(1)})
    assert read(reads, {"t": topic(0)}, who="Y") == []


def test_of_two_reads_that_overlap_either_may_be_newer() -> None:
    reads = MetadataReads()
    early, late = reads.begin("X"), reads.begin("X")
    assert list(reads.on_answered(late, {"t": topic(1)})) == []
    assert list(reads.on_answered(early, {"t": topic(0)})) == []
    assert read(reads, {"t": topic(0)}) != []


def test_tokens_only_grow() -> None:
    reads = MetadataReads()
    assert read(reads, {}, token=5) == []
    assert read(reads, {}, token=5) == []
    assert read(reads, {}, token=4) == ["MetadataNeverGoesBack: X was answered as of offset 4, after 5"]


def test_a_topic_that_is_gone_does_not_come_back_and_its_name_may() -> None:
    reads = MetadataReads()
    read(reads, {"t": topic(0)})
    assert read(reads, {"t": None}) == []
    assert read(reads, {"t": topic(0, topic_id=SECOND)}) == []
    told = f"MetadataNeverGoesBack: X was told of t of id {FIRST}, which was gone"
    assert read(reads, {"t": topic(0)}) == [told]


def test_a_topic_that_was_replaced_does_not_come_back() -> None:
    reads = MetadataReads()
    read(reads, {"t": topic(3)})
    assert read(reads, {"t": topic(0, topic_id=SECOND)}) == [], "a lower epoch, of another topic"
    assert read(reads, {"t": topic(3)}) != []


def test_who_made_a_topic_sees_it() -> None:
    reads = MetadataReads()
    begun = reads.begin("X")
    reads.on_created("X", "t", FIRST, 2)
    assert list(reads.on_answered(begun, {"t": None})) == [], "it was asked before"
    assert read(reads, {"t": None}, who="Y") == [], "it is no write of its own"
    assert read(reads, {"t": None}) == ["OwnWritesSeen: X made t, and was told that there is no such topic"]
    assert read(reads, {"t": topic(0)}) == ["OwnWritesSeen: X gave t 2 partitions, and was told of 1"]
    assert read(reads, {"t": topic(0, 0, topic_id=SECOND)}) == [
        f"OwnWritesSeen: X made t of id {FIRST}, and was told of id {SECOND}"
    ]


def test_who_made_a_topic_sees_it_and_nothing_else_is_asked() -> None:
    reads = MetadataReads()
    reads.on_created("X", "t", FIRST, 2)
    assert read(reads, {"t": topic(0, 0)}) == []
    assert read(reads, {"other": None}) == []


def test_once_somebody_deletes_it_nobody_counts_on_it() -> None:
    reads = MetadataReads()
    reads.on_created("X", "t", FIRST, 1)
    begun = reads.begin("X")
    reads.on_deletion_begun("t")
    assert list(reads.on_answered(begun, {"t": None})) == []
    assert read(reads, {"t": None}) == []


def test_who_deleted_a_topic_sees_it_no_more() -> None:
    reads = MetadataReads()
    reads.on_deletion_begun("t")
    assert read(reads, {"t": topic(0)}) == [], "it is not gone yet"
    reads.on_deleted("X", "t", FIRST)
    assert read(reads, {"t": topic(0)}) == [f"OwnWritesSeen: X deleted t of id {FIRST}, and was told of it"]
    assert read(reads, {"t": topic(0, topic_id=SECOND)}) == []
    assert read(reads, {"t": topic(0, topic_id=SECOND)}, who="Y") == []

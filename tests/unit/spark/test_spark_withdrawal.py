"""Which rows go, and what a table stands for: from the offsets of a checkpoint alone."""

from __future__ import annotations

import json
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from tidelog.base.ids import LeaderEpoch, Offset, PartitionIndex, TopicPartition
from tidelog.spark.coverage import PartitionKey, Span, coverage_of
from tidelog.spark.offsets import Loss, ReadPosition, StreamOffset
from tidelog.spark.withdrawal import Event, Withdrawal, events_of, lost_epochs, withdrawal_of

ID, OTHER = "AAAAAAAAAAAAAAAAAAAAAQ", "AAAAAAAAAAAAAAAAAAAAAg"
T0, T1 = TopicPartition("t", PartitionIndex(0)), TopicPartition("t", PartitionIndex(1))
KEY = PartitionKey("t", ID, 0)


def at(offset: int, epoch: int | None = 0, *lineage: tuple[int, int]) -> ReadPosition:
    return ReadPosition(
        Offset(offset),
        None if epoch is None else LeaderEpoch(epoch),
        lineage=tuple((LeaderEpoch(one), Offset(start)) for one, start in lineage),
    )


def lost(cause: str, stood: ReadPosition, resume: int | None, topic_id: str | None = ID) -> Loss:
    return Loss(cause, stood, None if resume is None else Offset(resume), topic_id)


def test_truncation_withdraws_from_the_divergence_on() -> None:
    stood = at(9, 3, (1, 0), (2, 4), (3, 6))
    end = StreamOffset({"t": ID}, {T0: at(12, 5)}, {T0: at(5)}, {T0: lost("truncated", stood, 5)})
    (event,) = events_of(end)
    assert event == Event("truncated", "t", ID, 0, 5, 9, 5, lost_leader_epochs=(2, 3), leader_epoch=5)
    assert withdrawal_of(event, with_deleted_topics=False) == Withdrawal(topic_id=ID, partition=0, from_offset=5)


def test_what_is_read_again_is_withdrawn_too() -> None:
    # onTruncation=earliest, and a divergence that cannot be told: reading begins at the log's start.
    for resume in (5, None):
        end = StreamOffset({"t": ID}, {T0: at(12, 5)}, {T0: at(2)}, {T0: lost("truncated", at(9), resume)})
        (event,) = events_of(end)
        assert (event.from_offset, event.read_from) == (2, 2)
    # onTruncation=latest, or what is left has lost its beginning: what lies between is gone and not read again.
    end = StreamOffset({"t": ID}, {T0: at(12, 5)}, {T0: at(12)}, {T0: lost("truncated", at(9), 5)})
    (event,) = events_of(end)
    assert (event.from_offset, event.to_offset, event.read_from) == (5, 9, 12)


def test_retention_and_deleted_topics_withdraw_nothing_by_default() -> None:
    losses = {T0: lost("retention", at(9), 20), T1: lost("recreated", at(7), None, ID)}
    end = StreamOffset({"t": OTHER}, {T0: at(30), T1: at(3)}, {T0: at(20), T1: at(0)}, losses)
    events = events_of(end)
    assert events == [
        Event("retention", "t", ID, 0, 9, 20, 20),
        Event("recreated", "t", ID, 1, None, 7),
        Event("started", "t", OTHER, 1, read_from=0),
    ]
    read_again = Withdrawal(topic_id=OTHER, partition=1, from_offset=0)  # of the new topic, which has no rows yet
    assert [withdrawal_of(event, with_deleted_topics=False) for event in events] == [None, None, read_again]
    assert [withdrawal_of(event, with_deleted_topics=True) for event in events] == [
        None,
        Withdrawal(topic_id=ID, partition=1),
        read_again,
    ]
    # Without ids a topic of this name may be another one than that which the rows are of.
    assert withdrawal_of(Event("started", "t", None, 1, read_from=0), with_deleted_topics=False) is None


def test_a_topic_without_id_is_known_by_its_name() -> None:
    event = Event("truncated", "t", None, 0, 5, 9, 5)
    assert withdrawal_of(event, with_deleted_topics=False) == Withdrawal("t", None, 0, 5)


def test_lost_epochs_are_those_that_reach_into_the_range() -> None:
    assert lost_epochs(at(9, 3), 5) == (3,)
    assert lost_epochs(at(9, 3, (1, 0), (3, 5)), 5) == (3,)
    assert lost_epochs(at(9, 3, (1, 0), (3, 5)), None) == (1, 3)
    assert lost_epochs(at(9, None), 5) == ()


def test_files_that_cannot_hold_such_rows_are_left_alone() -> None:
    withdrawal = Withdrawal(topic_id=ID, partition=1, from_offset=100)
    low, high = {"topicId": ID, "partition": 0, "offset": 0}, {"topicId": ID, "partition": 2, "offset": 100}
    assert withdrawal.may_be_in(low, high)
    assert not withdrawal.may_be_in(low, {**high, "offset": 99})
    assert not withdrawal.may_be_in(low, {**high, "partition": 0})
    assert not withdrawal.may_be_in({**low, "topicId": OTHER}, {**high, "topicId": OTHER})
    # Nothing is known of a file that somebody else wrote without statistics.
    assert withdrawal.may_be_in({}, {})
    assert withdrawal.may_be_in({"offset": None}, {"offset": None})


def covered(*events: tuple[int, Event], end: int, topic_id: str = ID) -> dict[PartitionKey, tuple[Span, ...]]:
    return coverage_of(events, [StreamOffset({"t": topic_id}, {T0: at(end)})])


def test_coverage_follows_what_was_read() -> None:
    started = (0, Event("started", "t", ID, 0, read_from=3))
    truncated = (4, Event("truncated", "t", ID, 0, 8, 12, 8))
    removed = (6, Event("retention", "t", ID, 0, 20, 30, 30))
    assert covered(started, end=10) == {KEY: (Span(3, 10),)}
    assert covered(started, truncated, end=15) == {KEY: (Span(3, 15),)}
    assert covered(started, truncated, removed, end=50) == {KEY: (Span(3, 20), Span(30, 50))}
    # The order in which they are told does not matter.
    assert covered(removed, truncated, started, end=50) == {KEY: (Span(3, 20), Span(30, 50))}
    # A truncation that reaches back before a gap.
    far_back = (7, Event("truncated", "t", ID, 0, 10, 40, 10))
    assert covered(started, removed, far_back, end=45) == {KEY: (Span(3, 45),)}
    skipped = (4, Event("truncated", "t", ID, 0, 8, 12, 25))
    assert covered(started, skipped, end=30) == {KEY: (Span(3, 8), Span(25, 30))}
    recreated = [(5, Event("recreated", "t", ID, 0, None, 11)), (5, Event("started", "t", OTHER, 0, read_from=0))]
    assert covered(started, *recreated, end=4, topic_id=OTHER) == {
        KEY: (Span(3, 11),),
        PartitionKey("t", OTHER, 0): (Span(0, 4),),
    }
    # A topic that comes back is read from where it stood, or from where a batch began that could not read it.
    missing, back = (5, Event("missing", "t", ID, 0, None, 11)), (6, Event("started", "t", ID, 0, read_from=11))
    assert covered(started, missing, back, end=20) == {KEY: (Span(3, 20),)}
    assert covered(started, (5, Event("started", "t", ID, 0, read_from=8)), end=20) == {KEY: (Span(3, 20),)}


steps = st.lists(
    st.tuples(st.sampled_from(["read", "truncated", "retention"]), st.integers(0, 12), st.integers(0, 4)), max_size=12
)


@given(st.integers(0, 5), steps)
def test_coverage_is_what_a_reader_would_remember(start: int, taken: list[tuple[str, int, int]]) -> None:
    stands, seen = start, set[int]()
    events = [(0, Event("started", "t", ID, 0, read_from=start))]
    for batch_id, (step, number, skipped) in enumerate(taken, start=1):
        if step == "truncated":
            divergent = min(number, stands)
            seen = {offset for offset in seen if offset < divergent}
            events.append((batch_id, Event(step, "t", ID, 0, divergent, stands, divergent + skipped)))
            stands = divergent + skipped
        elif step == "retention":
            events.append((batch_id, Event(step, "t", ID, 0, stands, stands + number, stands + number)))
            stands += number
        seen |= set(range(stands, stands + skipped))
        stands += skipped
    found = covered(*events, end=stands).get(KEY, ())
    assert {offset for span in found for offset in range(*span)} == seen
    assert all(one.end < other.start for one, other in pairwise(found))


def test_files_of_offsets_are_read_as_spark_writes_them() -> None:
    from tidelog.spark.write_ahead_log import parse_offsets

    ours = json.dumps(StreamOffset({"t": ID}, {T0: at(5)}).to_json())
    text = f'v1\n{{"batchWatermarkMs":0,"conf":{{}}}}\n{ours}\n-\n{{"t":{{"0":23}}}}\n{ours}'
    assert parse_offsets(text) == {0: json.loads(ours), 3: json.loads(ours)}
    assert parse_offsets("v1\n{}") == {}

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.base.ids import LeaderEpoch, Offset, PartitionIndex, TopicPartition
from tidelog.spark.offsets import CheckpointError, ReadPosition, StreamOffset
from tidelog.spark.plan import (
    EARLIEST,
    LATEST,
    RANGE_RECORDS_MAX,
    Bound,
    ClusterFacts,
    PlanError,
    Range,
    admit,
    clip,
    is_too_little,
    lag_json,
    ranges_of,
    split,
)
from tidelog.spark.truncation import PartitionFacts


def tp(number: int) -> TopicPartition:
    return TopicPartition("t", PartitionIndex(number))


def at(offset: int, leader_epoch: int | None = 0) -> ReadPosition:
    return ReadPosition(Offset(offset), None if leader_epoch is None else LeaderEpoch(leader_epoch))


FACTS = PartitionFacts(LeaderEpoch(3), Offset(20), Offset(90))


@pytest.mark.parametrize(
    ("bound", "found", "clamp", "means"),
    [
        (Bound("startingOffsets", EARLIEST), None, False, 20),
        (Bound("startingOffsets", LATEST), None, False, 90),
        (Bound("startingOffsets", LATEST, offsets={tp(0): 50}), None, False, 50),
        (Bound("startingOffsets", LATEST, offsets={tp(0): EARLIEST}), None, False, 20),
        (Bound("startingOffsets", EARLIEST, offsets={tp(0): LATEST}), None, False, 90),
        (Bound("startingOffsets", EARLIEST, offsets={tp(0): 90}), None, False, 90),
        (Bound("startingOffsets", EARLIEST, offsets={tp(0): 91}), None, True, 90),
        (Bound("startingOffsets", EARLIEST, offsets={tp(0): 3}), None, True, 20),
        (Bound("startingTimestamp", EARLIEST, timestamp_ms=7), 33, False, 33),
        (Bound("startingTimestamp", EARLIEST, timestamp_ms=7), 95, False, 90),
        (Bound("startingTimestamp", EARLIEST, timestamp_ms=7, latest_without_match=True), None, False, 90),
        # The stronger of two.
        (Bound("startingTimestamp", EARLIEST, timestamp_ms=7, offsets={tp(0): 50}), 33, False, 33),
        (Bound("x", EARLIEST, timestamps_ms={tp(0): 7}, offsets={tp(0): 50}), 34, False, 34),
    ],
)
def test_bounds(bound: Bound, found: int | None, clamp: bool, means: int) -> None:
    assert bound.resolve(tp(0), FACTS, None if found is None else Offset(found), clamp=clamp) == means


@pytest.mark.parametrize(
    ("bound", "says"),
    [
        (Bound("startingOffsets", LATEST, offsets={tp(0): 91}), r"offset 91 of t-0 lies outside .*\[20, 90\]"),
        (Bound("startingOffsets", LATEST, offsets={tp(0): 19}), r"offset 19 of t-0 lies outside"),
        (Bound("startingTimestamp", LATEST, timestamp_ms=7), "t-0 holds no record at or after timestamp 7"),
    ],
)
def test_bounds_that_are_not_there(bound: Bound, says: str) -> None:
    with pytest.raises(PlanError, match=says):
        bound.resolve(tp(0), FACTS, None, clamp=False)


def test_offsets_must_name_every_partition_and_no_other() -> None:
    bound = Bound("startingOffsets", LATEST, offsets={tp(0): 1, tp(7): 1})
    with pytest.raises(PlanError, match=r"it lacks t-1 and there is no t-7$"):
        bound.check_partitions([tp(0), tp(1)])
    bound.check_partitions([tp(0), tp(7)])
    Bound("startingTimestamp", LATEST, timestamp_ms=1, offsets={tp(7): 1}).check_partitions([tp(0)])


@given(
    st.lists(st.integers(0, 500), min_size=1, max_size=8).filter(any),
    st.none() | st.integers(1, 800),
)
def test_a_limit_is_shared_out(waiting: list[int], limit: int | None) -> None:
    begin = {tp(number): Offset(100 * number) for number in range(len(waiting))}
    latest = {key: Offset(offset + waiting[key.partition]) for key, offset in begin.items()}
    ends = admit(begin, latest, limit)
    taken = [ends[key] - begin[key] for key in begin]
    assert all(0 <= took <= waits for took, waits in zip(taken, waiting, strict=True))
    # None starves.
    assert all(took > 0 for took, waits in zip(taken, waiting, strict=True) if waits)
    busy = sum(1 for waits in waiting if waits)
    if limit is None:
        assert taken == waiting
    elif limit >= busy:
        # All that is allowed is read, and more only where a partition gets the one record that it gets in any case.
        assert min(limit, sum(waiting)) <= sum(taken) < limit + busy
    else:
        assert sum(taken) == busy


def test_shares_are_in_proportion() -> None:
    begin = {tp(0): Offset(0), tp(1): Offset(1000), tp(2): Offset(7)}
    latest = {tp(0): Offset(600), tp(1): Offset(1300), tp(2): Offset(107)}
    assert admit(begin, latest, 100) == {tp(0): 60, tp(1): 1030, tp(2): 17}
    assert admit(begin, latest, 101) == {tp(0): 61, tp(1): 1030, tp(2): 17}


def test_an_end_never_moves_back() -> None:
    # The high watermark of a new leader may lag behind what was read under the old one.
    assert admit({tp(0): Offset(10)}, {tp(0): Offset(7)}, None) == {tp(0): 10}


def test_a_batch_waits_for_its_minimum_but_not_for_ever() -> None:
    assert is_too_little(4, 5, waited_ms=99, delay_ms_max=100)
    assert not is_too_little(5, 5, waited_ms=99, delay_ms_max=100)
    assert not is_too_little(4, 5, waited_ms=100, delay_ms_max=100)
    assert not is_too_little(0, None, waited_ms=0, delay_ms_max=100)


def test_ranges_begin_where_the_end_says_so_or_else_where_the_last_batch_ended() -> None:
    first = StreamOffset({"t": None}, {tp(0): at(5), tp(1): at(6)})
    second = StreamOffset({"t": None}, {tp(0): at(8), tp(1): at(6), tp(2): at(4)}, begin={tp(2): at(1), tp(0): at(3)})
    assert ranges_of(first, second) == {tp(0): (at(3), at(8)), tp(1): (at(6), at(6)), tp(2): (at(1), at(4))}
    assert ranges_of(second, second) == {}


def test_offsets_that_do_not_belong_together_are_refused() -> None:
    end = StreamOffset({"t": None}, {tp(0): at(8)})
    with pytest.raises(CheckpointError, match="where t-0 begins"):
        ranges_of(StreamOffset(), end)
    with pytest.raises(CheckpointError, match="begin at 9 and end at 8"):
        ranges_of(StreamOffset({"t": None}, {tp(0): at(9)}), end)


def test_what_a_replay_can_still_read() -> None:
    begin, end = at(10, 1), at(20, 3)
    assert clip(begin, end, Offset(15)) == (begin, at(15, 3))
    assert clip(begin, end, Offset(25)) == (begin, end)
    assert clip(begin, end, Offset(10)) == clip(begin, end, Offset(3)) == clip(begin, end, None) == (begin, begin)


@given(
    st.lists(st.tuples(st.integers(0, 50), st.integers(0, 400)), min_size=1, max_size=6),
    st.none() | st.integers(1, 100),
    st.none() | st.integers(1, 40),
)
def test_splitting_keeps_every_offset_once(
    spans: list[tuple[int, int]], records_max: int | None, count_min: int | None
) -> None:
    wholes = [
        Range(tp(number), None, Offset(start), Offset(start + size)) for number, (start, size) in enumerate(spans)
    ]
    pieces = split(wholes, records_max=records_max, count_min=count_min)
    assert all(piece.record_count > 0 for piece in pieces)
    if records_max is not None:
        assert all(piece.record_count <= records_max for piece in pieces)
    if count_min is not None and pieces:
        # As in Spark's connector, rounding may miss the mark by a task for each partition.
        assert len(pieces) >= min(count_min, sum(size for _, size in spans)) - len(spans)
    for whole in wholes:
        own = [piece for piece in pieces if piece.partition == whole.partition]
        covered = [offset for piece in own for offset in range(piece.start_offset, piece.end_offset)]
        assert covered == list(range(whole.start_offset, whole.end_offset))


def test_no_task_reads_more_than_its_limit_whatever_the_options() -> None:
    whole = Range(tp(0), None, Offset(0), Offset(2 * RANGE_RECORDS_MAX + 1))
    assert len(split([whole], records_max=None, count_min=None)) == 3
    assert len(split([whole], records_max=10 * RANGE_RECORDS_MAX, count_min=None)) == 3


def test_larger_ranges_are_cut_into_more() -> None:
    wholes = [Range(tp(0), None, Offset(0), Offset(900)), Range(tp(1), None, Offset(0), Offset(100))]
    pieces = split(wholes, records_max=None, count_min=10)
    assert [piece.partition.partition for piece in pieces] == [0] * 9 + [1]


def test_pieces_keep_the_bounds_of_their_leader_epochs() -> None:
    whole = Range.between(tp(0), None, at(0, 2), at(30, 5))
    first, second, third = split([whole], records_max=10, count_min=None)
    assert [piece.leader_epoch_before for piece in (first, second, third)] == [2, None, None]
    assert {(piece.leader_epoch_min, piece.leader_epoch_max) for piece in (first, second, third)} == {(2, 5)}
    same = split([Range.between(tp(0), None, at(0, 2), at(30, 2))], records_max=10, count_min=None)
    assert [piece.leader_epoch_before for piece in same] == [2, 2, 2]


def test_an_epoch_of_no_record_bounds_nothing() -> None:
    unread = ReadPosition(Offset(3), LeaderEpoch(9), unread=True)
    assert Range.between(tp(0), None, unread, at(8, 4)) == Range(
        tp(0), None, Offset(3), Offset(8), leader_epoch_max=LeaderEpoch(4)
    )


def test_lag() -> None:
    facts = ClusterFacts({"t": None}, {tp(0): FACTS, tp(1): FACTS})
    assert lag_json({tp(0): at(80)}, facts) == {
        "avgOffsetsBehindLatest": 40.0,
        "maxOffsetsBehindLatest": 70,
        "minOffsetsBehindLatest": 10,
        "topics": {
            "t": {
                "0": {"endOffset": 90, "offsetsBehindLatest": 10},
                "1": {"endOffset": 90, "offsetsBehindLatest": 70},
            }
        },
        "v": 1,
    }


def test_no_lag_is_negative_where_a_high_watermark_went_back() -> None:
    behind = lag_json({tp(0): at(92)}, ClusterFacts({"t": None}, {tp(0): FACTS}))
    assert (behind["minOffsetsBehindLatest"], behind["maxOffsetsBehindLatest"]) == (0, 0)

from __future__ import annotations

import pytest

from tidelog.base.errors import LogTruncatedError, TopicRecreatedError
from tidelog.base.ids import LeaderEpoch, Offset, PartitionIndex, TopicPartition
from tidelog.records import BatchBuilder, BatchHeader, read_header
from tidelog.spark.plan import Range
from tidelog.spark.range_check import RangeCheck, RangeNotReadError

PIECE = Range(
    TopicPartition("t", PartitionIndex(0)),
    "id",
    Offset(100),
    Offset(200),
    leader_epoch_before=LeaderEpoch(3),
    leader_epoch_min=LeaderEpoch(3),
    leader_epoch_max=LeaderEpoch(5),
)


def batch(base_offset: int, count: int, leader_epoch: int = 3) -> BatchHeader:
    builder = BatchBuilder()
    for _ in range(count):
        builder.append(0, None, b"v")
    return read_header(builder.build(base_offset=base_offset, leader_epoch=leader_epoch))


def test_a_range_is_complete_when_its_end_is_reached() -> None:
    check = RangeCheck(PIECE)
    check.on_fetch(100, "id")
    check.on_batch(batch(90, 30, 2 + 1))
    check.on_batch(batch(120, 30, 4))
    assert not check.is_complete
    check.on_answer_read(150)
    check.on_fetch(150, "id")
    check.on_batch(batch(150, 80, 5))
    check.on_batch(batch(230, 1, 99))  # beyond the range: of no concern
    assert check.is_complete


def test_what_was_left_out_counts_as_read() -> None:
    check = RangeCheck(PIECE)
    check.on_answer_read(200)
    assert check.is_complete


@pytest.mark.parametrize(("epochs", "divergent"), [((4, 3), None), ((2,), None), ((3, 6), 110), ((6,), 100)])
def test_leader_epochs_grow_and_stay_within_those_planned(epochs: tuple[int, ...], divergent: int | None) -> None:
    check = RangeCheck(PIECE)
    for number, epoch in enumerate(epochs[:-1]):
        check.on_batch(batch(100 + 10 * number, 10, epoch))
    with pytest.raises(LogTruncatedError) as error:
        check.on_batch(batch(100 + 10 * (len(epochs) - 1), 10, epochs[-1]))
    assert error.value.divergent_offset == divergent


def test_epochs_that_nobody_knows_are_not_checked() -> None:
    check = RangeCheck(PIECE._replace(leader_epoch_min=None, leader_epoch_max=None))
    check.on_batch(batch(100, 10, 9))
    check.on_batch(batch(110, 10, -1))
    with pytest.raises(LogTruncatedError):
        check.on_batch(batch(120, 10, 8))


@pytest.mark.parametrize("gap", [(110, 111), (100, 110), (190, 300), (199, 201)])
def test_missing_offsets_are_no_success(gap: tuple[int, int]) -> None:
    with pytest.raises(RangeNotReadError, match=rf"there are no records at \[{gap[0]}, {gap[1]}\)"):
        RangeCheck(PIECE).on_fetch(100, "id", [gap])
    RangeCheck(PIECE).on_fetch(100, "id", [(200, 201)])  # beyond the range: of no concern


def test_a_compacted_topic_may_have_holes() -> None:
    check = RangeCheck(PIECE._replace(may_have_gaps=True))
    check.on_fetch(100, "id", [(100, 140), (160, 170)])
    check.on_batch(batch(140, 10)._replace(last_offset_delta=19))
    check.on_batch(batch(170, 10))
    assert check.expected_offset == 180
    with pytest.raises(RangeNotReadError, match=r"there are 10 records at \[100, 120\)"):
        RangeCheck(PIECE).on_batch(batch(100, 10)._replace(last_offset_delta=19))


def test_answers_must_be_those_that_are_due() -> None:
    check = RangeCheck(PIECE)
    check.on_fetch(100, None)
    with pytest.raises(TopicRecreatedError):
        check.on_fetch(100, "another id")
    with pytest.raises(RangeNotReadError, match="fetched from 99, not from 100"):
        check.on_fetch(99, "id")
    check.on_batch(batch(100, 10))
    with pytest.raises(RangeNotReadError, match="would go on at 105"):
        check.on_answer_read(105)

"""Which state is meant, and what goes into and comes out of a share partition."""

from __future__ import annotations

import pytest

from tidelog.base.errors import Code, KafkaError
from tidelog.base.ids import LeaderEpoch, Offset, TopicId, parse_uuid
from tidelog.share import (
    NO_LEADER_EPOCH,
    AcknowledgedRecords,
    DeliveryState,
    ShareSettings,
    ShareState,
    StateBatch,
    StateChange,
    check_acknowledged,
)
from tidelog.share.key import ShareKey
from tidelog.share.state import raised_to
from tidelog.share.summary import ShareSummary


@pytest.mark.parametrize("group", ["g", "a:b", "::", "с"])
def test_a_key_is_read_back(group: str) -> None:
    text = f"{group}:AAAAAAAAAAAAAAAAAAAABw:3"
    assert str(ShareKey.parse(text)) == text
    assert ShareKey.parse(text).group_id == group


@pytest.mark.parametrize(
    "text",
    ["", "g", "g:0", ":AAAAAAAAAAAAAAAAAAAABw:0", " :AAAAAAAAAAAAAAAAAAAABw:0", "g:short:0"]
    + [f"g:AAAAAAAAAAAAAAAAAAAABw:{partition}" for partition in ("", "x", "-1", "1_0", "99999999999", "１")],
)
def test_what_is_no_key_is_refused(text: str) -> None:
    with pytest.raises(KafkaError) as refused:
        ShareKey.parse(text)
    assert refused.value.code is Code.INVALID_REQUEST


def test_a_key_is_of_a_group_a_topic_and_a_partition() -> None:
    topic_id = TopicId(parse_uuid("AAAAAAAAAAAAAAAAAAAABw"))
    assert ShareKey.parse("g:h:AAAAAAAAAAAAAAAAAAAABw:12") == ("g:h", topic_id, 12)


def test_types_come_in_the_longest_runs_of_one_type() -> None:
    assert list(AcknowledgedRecords(5, 9, [1]).runs()) == [(5, 9, 1)]
    assert list(AcknowledgedRecords(5, 7, [2, 2, 2]).runs()) == [(5, 7, 2)]
    assert list(AcknowledgedRecords(5, 9, [1, 1, 2, 3, 3]).runs()) == [(5, 6, 1), (7, 7, 2), (8, 9, 3)]


@pytest.mark.parametrize(
    ("batches", "names"),
    [
        ([(3, 2, [1])], "batches go up"),
        ([(-1, 2, [1])], "batches go up"),
        ([(0, 2, [1]), (2, 3, [1])], "batches go up"),
        ([(0, 2, [])], "0 types"),
        ([(0, 2, [1, 1])], "2 types"),
        ([(2, 4, [1, 1, 1, 1])], "4 types"),
        ([(0, 1, [0, 5])], "is not known"),
        ([(0, 1, [-1, 1])], "is not known"),
        ([(0, 0, [1]), (1, 1, [9])], "is not known"),
    ],
)
@pytest.mark.parametrize("is_renewal_allowed", [False, True])
def test_what_cannot_be_understood_is_refused(
    batches: list[tuple[int, int, list[int]]], names: str, is_renewal_allowed: bool
) -> None:
    with pytest.raises(KafkaError, match=names) as refused:
        check_acknowledged([AcknowledgedRecords(*one) for one in batches], is_renewal_allowed=is_renewal_allowed)
    assert refused.value.code is Code.INVALID_REQUEST


def test_what_can_be_understood_is_let_through_and_a_renewal_where_it_was_announced() -> None:
    batches = [AcknowledgedRecords(0, 0, [0]), AcknowledgedRecords(1, 1, [3]), AcknowledgedRecords(4, 6, [1, 2, 3])]
    for is_renewal_allowed in (False, True):
        check_acknowledged(batches, is_renewal_allowed=is_renewal_allowed)
    renewal = [AcknowledgedRecords(4, 5, [3, 4])]
    check_acknowledged(renewal, is_renewal_allowed=True)
    with pytest.raises(KafkaError, match="is not known"):
        check_acknowledged(renewal, is_renewal_allowed=False)


def test_a_change_of_the_state_epoch_alone_is_a_raise() -> None:
    assert raised_to(4).is_raise
    assert raised_to(4).state_epoch == 4
    batch = StateBatch(Offset(1), Offset(2), DeliveryState.ARCHIVED, 1)
    assert batch.leader_epoch == NO_LEADER_EPOCH
    for change in (
        StateChange(4, LeaderEpoch(0), None),
        StateChange(4, NO_LEADER_EPOCH, Offset(0)),
        StateChange(4, NO_LEADER_EPOCH, None, batches=(batch,)),
    ):
        assert not change.is_raise


def test_what_is_not_told_is_not_known() -> None:
    change = StateChange(4, LeaderEpoch(1), None)
    assert (change.start_leader_epoch, change.delivery_complete_count, change.number) == (-1, -1, -1)
    assert ShareState(1) == ShareState(1, None, NO_LEADER_EPOCH, ())
    assert ShareSummary() == (0, 0, None, -1)


def test_the_settings_of_a_group_are_at_first_as_in_kafka() -> None:
    assert ShareSettings() == ShareSettings(delivery_count_max=5, lock_ms=30_000, records_max=2_000)

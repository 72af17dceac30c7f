"""Where a group stands to a loss, by what it committed."""

from __future__ import annotations

from dataclasses import replace
from uuid import UUID

import pytest

from tidelog.base.ids import BrokerId, LeaderEpoch, Offset, PartitionIndex, ProducerId, TopicId
from tidelog.base.losses import Loss, LossCause, ReplicaFate, ReplicaLoss
from tidelog.client.core.loss_standings import Standing, divergence_of, standing_of
from tidelog.client.core.values import CommittedOffset

LED = ReplicaLoss(BrokerId(2), ReplicaFate.LED, Offset(30))
CUT = ReplicaLoss(BrokerId(1), ReplicaFate.CUT, Offset(40), Offset(30))
AWAITED = ReplicaLoss(BrokerId(3))


def loss(*replicas: ReplicaLoss) -> Loss:
    partition = "flights", TopicId(UUID(int=7)), PartitionIndex(0)
    return Loss(*partition, LeaderEpoch(4), LossCause.BY_OPERATOR, BrokerId(2), 0, replicas)


@pytest.mark.parametrize(
    ("replicas", "committed", "standing"),
    [
        ((LED, CUT), CommittedOffset(30, 3), Standing.NOT_AFFECTED),
        ((LED, CUT), CommittedOffset(31, 3), Standing.ON_LOST_BRANCH),
        ((LED, CUT), CommittedOffset(31, 4), Standing.MOVED_OFF),
        ((LED, CUT), CommittedOffset(31, None), Standing.UNKNOWN),
        ((LED, CUT), CommittedOffset(12, None), Standing.NOT_AFFECTED),
        ((LED, AWAITED), CommittedOffset(35, 3), Standing.ON_LOST_BRANCH),
        ((AWAITED,), CommittedOffset(12, 3), Standing.UNKNOWN),
        ((AWAITED,), CommittedOffset(12, 5), Standing.MOVED_OFF),
    ],
)
def test_a_group_stands_where_its_commit_says(
    replicas: tuple[ReplicaLoss, ...], committed: CommittedOffset, standing: Standing
) -> None:
    assert standing_of(loss(*replicas), committed) is standing


def test_the_lowest_offset_that_was_cut_is_the_divergence() -> None:
    lower = ReplicaLoss(BrokerId(3), ReplicaFate.CUT, Offset(28), Offset(25))
    assert divergence_of(loss(LED, CUT, lower)) == 25
    assert divergence_of(loss(AWAITED)) is None


def test_a_producer_that_is_not_named_may_be_one_of_those_that_are_not() -> None:
    named = ReplicaLoss(
        BrokerId(1), ReplicaFate.CUT, Offset(40), Offset(30), producer_ids=(ProducerId(4),), producer_count=1
    )
    assert [loss(LED, named).may_name(producer_id) for producer_id in (4, 5)] == [True, False]
    assert loss(LED, replace(named, producer_count=2)).may_name(5)
    assert loss(LED, named, AWAITED).may_name(5)
    assert not loss(LED).may_name(4)

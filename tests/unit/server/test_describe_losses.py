"""The account of losses in pages: each entry once, whatever is wanted of them, and whatever goes meanwhile."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast
from uuid import UUID

from tidelog.base.ids import BrokerId, LeaderEpoch, PartitionIndex, TopicId
from tidelog.base.losses import Loss, LossCause, LossId, ReplicaLoss
from tidelog.metadata import MetadataImage
from tidelog.server.api.handlers.api_10000_describe_losses import LOOKED_AT_MAX, PAGE_MAX, handle
from tidelog.wire.messages.api_10000_describe_losses import DescribeLossesRequest, DescribeLossesResponse

TOPIC = TopicId(UUID(int=7))


def losses(count: int) -> dict[LossId, Loss]:
    """Of two topics in turn; every third is open."""
    found = {}
    for index in range(count):
        replicas = (ReplicaLoss(BrokerId(1)),) if index % 3 == 0 else ()
        partition = f"topic-{index % 2}", TOPIC, PartitionIndex(index)
        loss = Loss(*partition, LeaderEpoch(1), LossCause.FOUND, None, index, replicas)
        found[loss.id] = loss
    return found


def asked(account: dict[LossId, Loss], **request: Any) -> DescribeLossesResponse:
    image = MetadataImage(losses=account, open_loss_count=sum(loss.is_open for loss in account.values()))
    return handle(cast(Any, SimpleNamespace(image=image)), DescribeLossesRequest(**request), cast(Any, None))


def all_pages(account: dict[LossId, Loss], **request: Any) -> list[int]:
    """The partitions of all entries, in the order in which they came."""
    found: list[int] = []
    after: list[Any] = []
    while True:
        answer = asked(account, after=after, **request)
        assert len(answer.losses) <= PAGE_MAX
        found += [entry.partition_index for entry in answer.losses]
        after = answer.next
        if not after:
            return found


def test_all_entries_come_once_and_in_order() -> None:
    count = 2 * PAGE_MAX + 1
    assert all_pages(losses(count)) == list(range(count))
    assert all_pages(losses(2 * PAGE_MAX)) == list(range(2 * PAGE_MAX))
    assert all_pages({}) == []


def test_what_is_not_wanted_is_passed_over() -> None:
    count = 2 * LOOKED_AT_MAX + 10
    account = losses(count)
    assert all_pages(account, topics=["topic-1"]) == list(range(1, count, 2))
    assert all_pages(account, open_only=True) == list(range(0, count, 3))
    assert all_pages(account, topics=["none"]) == []
    answer = asked(account)
    assert (answer.open_count, answer.closed_count) == (len(range(0, count, 3)), count - len(range(0, count, 3)))


def test_entries_that_are_forgotten_between_two_pages_hide_no_others() -> None:
    account = losses(3 * PAGE_MAX)
    first = asked(account)
    for loss_id in list(account)[: PAGE_MAX // 2]:
        del account[loss_id]
    second = asked(account, after=first.next)
    assert [entry.partition_index for entry in second.losses] == list(range(PAGE_MAX, 2 * PAGE_MAX))
    for loss_id in list(account)[: PAGE_MAX + PAGE_MAX // 2]:
        del account[loss_id]
    third = asked(account, after=second.next)
    assert [entry.partition_index for entry in third.losses] == list(range(2 * PAGE_MAX, 3 * PAGE_MAX))

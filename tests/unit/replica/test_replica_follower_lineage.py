"""A follower that is not in sync learns the leader's lineage before it fetches, and notes it as its log grows."""

from __future__ import annotations

from support.fixtures.followed_replica import Following
from tidelog.base.ids import LeaderEpoch, Offset
from tidelog.records.lineage import EpochEntry
from tidelog.replica import (
    FetchOutcome,
    RecordsRequest,
    Truncation,
)


def test_who_is_not_in_sync_learns_the_lineage_before_it_fetches() -> None:
    one = Following(((1, 0), (3, 7)), in_isr=False)  # compaction had removed 6 when this replica was built
    one.told(one.asks(3), 3, 20)
    one.told(one.asks(4), 3, 20)
    one.told(one.asks(2), 1, 6)
    one.told(one.asks(0), 0, 0)
    ready = one.machine.take_ready()
    assert ready.epochs == ((3, 6),)
    assert isinstance(ready.request, RecordsRequest)


def test_epochs_whose_records_are_gone_are_noted_when_the_log_gets_there() -> None:
    one = Following((), end=0, in_isr=False)
    for asked, epoch, end in ((4, 4, 12), (3, 2, 8), (1, 1, 3), (0, 0, 1)):
        one.told(one.asks(asked), epoch, end)
    ready = one.gets(one.fetches(), FetchOutcome(Offset(6), Offset(6)), epochs=[(0, 0), (2, 4)])
    assert ready.epochs == ((0, 0), (1, 1), (2, 3)), "of 1 no record is left, and of 2 not the first"
    for entry in ready.epochs:
        one.lineage.assign(*entry)
    assert isinstance(ready.request, RecordsRequest)
    assert ready.request.last_fetched_epoch == 2
    ready = one.gets(ready.request, FetchOutcome(Offset(9), Offset(9)), epochs=[(4, 8)])
    assert ready.epochs == (), "its batch told the same"


def test_where_the_leaders_log_was_cut_at_its_start_ours_may_know_more() -> None:
    one = Following(((1, 0), (3, 3)), in_isr=False)
    one.told(one.asks(3), 3, 20)
    one.told(one.asks(4), 3, 20)
    one.told(one.asks(2), 2, 5)  # its log starts at 5, amid epoch 3
    one.told(one.asks(1), 1, 5)
    ready = one.machine.take_ready()
    assert ready.epochs == ()
    assert isinstance(ready.request, RecordsRequest)


def test_an_epoch_that_compaction_left_records_of_another_in_is_noted() -> None:
    one = Following(((1, 0), (3, 8)), in_isr=False)  # of epoch 3 nothing below 8 was left
    one.told(one.asks(3), 3, 20)
    one.told(one.asks(4), 3, 20)
    one.told(one.asks(2), 2, 5)  # the leader's log starts at 5, with epoch 3
    one.told(one.asks(1), 1, 5)
    assert one.machine.take_ready().epochs == ((3, 5),)


def test_who_diverges_before_all_is_noted_learns_again() -> None:
    one = Following((), end=0, in_isr=False)
    for asked, epoch, end in ((4, 4, 12), (3, 2, 8), (1, 1, 3), (0, 0, 1)):
        one.told(one.asks(asked), epoch, end)
    request = one.gets(one.fetches(), FetchOutcome(Offset(6), Offset(4)), epochs=[(0, 0), (1, 1), (2, 3)]).request
    assert request is not None
    one.machine.on_fetched(request.number, FetchOutcome(diverging=EpochEntry(LeaderEpoch(2), Offset(5))), 0)
    assert one.cuts() == Truncation(Offset(5))
    one.asks(4)

"""A follower that is far behind fetches on while it writes: below the high watermark that acknowledges nothing new."""

from __future__ import annotations

import pytest

from support.fixtures.followed_replica import BACKOFF_MS, Following, owes_nothing
from tidelog.base.errors import Code, InvariantBrokenError
from tidelog.base.ids import LeaderEpoch, Offset
from tidelog.records.lineage import EpochEntry
from tidelog.replica import FetchOutcome, FollowerState, Halt, RecordsRequest, is_committed_without


def came(end: int, *, committed: int | None, last_leader_epoch: int = 5) -> FetchOutcome:
    """Records up to `end`, from a leader that has told what is committed."""
    high_watermark = None if committed is None else Offset(committed)
    return FetchOutcome(Offset(end), high_watermark, Offset(0), last_leader_epoch=LeaderEpoch(last_leader_epoch))


def behind() -> tuple[Following, RecordsRequest]:
    """One that has 10 records, was sent 3 more of 100 that are committed, and went ahead."""
    one = Following()
    one.reconciled()
    one.machine.on_fetched(one.fetches().number, came(13, committed=100), 0)
    ready = one.machine.take_ready()
    assert (ready.append, ready.request, ready.high_watermark) == (2, None, 4)
    assert ready.ahead is not None
    return one, ready.ahead


def written(one: Following, end: int = 13) -> None:
    one.lineage.assign(LeaderEpoch(5), Offset(10))
    one.machine.on_appended(Offset(end))


def test_it_fetches_on_before_it_has_written_what_is_committed() -> None:
    one, ahead = behind()
    assert (ahead.fetch_offset, ahead.last_fetched_epoch, ahead.log_start_offset) == (13, 5, 0)
    assert one.machine.is_appending
    assert one.machine.take_ready() == owes_nothing(Offset(4)), "one request at a time"
    written(one)
    assert not one.machine.is_appending
    assert one.machine.take_ready() == owes_nothing(Offset(13)), "what comes next is asked for already"
    one.machine.on_fetched(ahead.number, came(16, committed=100), 0)
    ready = one.machine.take_ready()
    assert ready.append == ahead.number
    assert ready.ahead is not None
    assert ready.ahead.fetch_offset == 16


@pytest.mark.parametrize(("end", "committed"), [(13, 13), (13, 12), (13, None), (101, 100)])
def test_it_writes_first_what_may_count(end: int, committed: int | None) -> None:
    """At the high watermark it would join the ISR with its fetch; above, it would move the high watermark."""
    one = Following()
    one.reconciled()
    one.machine.on_fetched(one.fetches().number, came(end, committed=committed), 0)
    ready = one.machine.take_ready()
    assert (ready.append, ready.ahead, ready.request) == (2, None, None)
    written(one, end)
    assert one.fetches().fetch_offset == end


def test_the_rule() -> None:
    assert is_committed_without(Offset(99), Offset(100))
    assert not is_committed_without(Offset(100), Offset(100))
    assert not is_committed_without(Offset(0), None)


def test_what_came_for_records_that_could_not_be_written_is_dropped() -> None:
    one, ahead = behind()
    one.machine.on_appended(Offset(10))
    assert one.machine.take_ready().request is None, "it still waits for the answer"
    one.machine.on_fetched(ahead.number, came(16, committed=100), 0)
    ready = one.machine.take_ready()
    assert (ready.append, ready.ahead) == (None, None)
    assert ready.request is not None
    assert isinstance(ready.request, RecordsRequest)
    assert ready.request.fetch_offset == 10


def test_a_divergence_from_records_that_could_not_be_written_says_nothing_of_the_log() -> None:
    one, ahead = behind()
    one.machine.on_appended(Offset(10))
    one.machine.on_fetched(ahead.number, FetchOutcome(diverging=EpochEntry(LeaderEpoch(3), Offset(8))), 0)
    ready = one.machine.take_ready()
    assert ready.truncation is None
    assert isinstance(ready.request, RecordsRequest)
    assert ready.request.fetch_offset == 10


def test_a_divergence_is_one_once_the_records_are_written() -> None:
    one, ahead = behind()
    written(one)
    one.machine.take_ready()
    one.machine.on_fetched(ahead.number, FetchOutcome(diverging=EpochEntry(LeaderEpoch(5), Offset(12))), 0)
    assert one.machine.take_ready().halt == Halt(Offset(12), Offset(13), LeaderEpoch(5))


@pytest.mark.parametrize("code", [Code.OFFSET_OUT_OF_RANGE, Code.NOT_LEADER_OR_FOLLOWER])
def test_a_refusal_of_what_was_asked_ahead_of_the_log_is_no_news_of_the_log(code: Code) -> None:
    one, ahead = behind()
    one.machine.on_appended(Offset(10))
    one.machine.on_refused(ahead.number, code, 0)
    assert one.machine.state is FollowerState.FETCHING
    assert one.machine.take_ready().request is None
    one.machine.on_tick(BACKOFF_MS)
    assert one.fetches().fetch_offset == 10


def test_an_answer_that_is_told_before_the_last_one_is_written_is_a_bug() -> None:
    one, ahead = behind()
    one.machine.on_unanswered(ahead.number + 1, 0)  # nobody waits for that
    with pytest.raises(InvariantBrokenError, match="overtook what is to be appended"):
        one.machine.on_fetched(ahead.number, came(16, committed=100), 0)


def test_nothing_is_owed_once_the_epoch_is_over() -> None:
    one, ahead = behind()
    one.machine.on_stopped()
    one.machine.on_fetched(ahead.number, came(16, committed=100), 0)
    one.machine.on_appended(Offset(13))
    assert one.machine.take_ready() == owes_nothing(Offset(4))


def test_a_copy_goes_ahead_alike() -> None:
    one, ahead = behind()
    copy = one.machine.clone()
    assert copy.canonical_key() == one.machine.canonical_key()
    written(one)
    one.machine.take_ready()
    assert copy.canonical_key() != one.machine.canonical_key()
    assert copy.is_appending
    assert ahead.number == 3

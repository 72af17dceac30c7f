"""The follower of a partition: it becomes a prefix of the leader's log, then copies; what it sends is on its disk."""

from __future__ import annotations

import pytest

from support.fixtures.followed_replica import BACKOFF_MS, EPOCH, LEADER, US, Following, owes_nothing
from support.old_rules.replica_rules import high_watermark_alone
from tidelog.base.errors import Code, FencedLeaderEpochError, InvariantBrokenError, KafkaError, UnknownLeaderEpochError
from tidelog.base.ids import LeaderEpoch, Offset
from tidelog.records.lineage import EpochEntry, LeaderEpochLineage
from tidelog.replica import (
    FetchOutcome,
    FollowerState,
    Halt,
    LogStartRequest,
    RecordsRequest,
    Truncation,
)
from tidelog.replica.follower_states import TRANSITIONS, FollowerCause
from tidelog.replica.truncation import OwnLog, belies_what_was_committed

# Truncation.


def test_it_asks_where_its_last_epoch_ends_and_fetches_only_then() -> None:
    one = Following()
    one.told(one.asks(3), 3, 100)
    request = one.fetches()
    assert (request.fetch_offset, request.last_fetched_epoch, request.log_start_offset) == (10, 3, 0)
    assert one.machine.take_ready().request is None, "one request at a time"


def test_what_the_leader_lacks_goes_before_anything_is_sent() -> None:
    one = Following()
    one.told(one.asks(3), 3, 8)
    assert one.cuts() == Truncation(Offset(8))
    assert one.fetches().fetch_offset == 8


def test_it_asks_on_until_both_know_the_epoch() -> None:
    one = Following(((1, 0), (2, 3), (3, 6)), unclean_epoch=4)
    one.told(one.asks(3), 0, 0)
    assert one.cuts() == Truncation(Offset(0), below_high_watermark=Offset(4))
    one = Following(((1, 0), (3, 6)))
    one.told(one.asks(3), 2, 9)
    assert one.cuts() == Truncation(Offset(6))
    one.told(one.asks(1), 1, 4)
    assert one.cuts() == Truncation(Offset(4))
    request = one.fetches()
    assert (request.fetch_offset, request.last_fetched_epoch) == (4, 1)


def test_what_was_thought_committed_goes_only_with_a_report_and_after_an_unclean_election() -> None:
    one = Following(unclean_epoch=4)
    one.told(one.asks(3), 1, 2)
    assert one.cuts() == Truncation(Offset(2), below_high_watermark=Offset(4))
    assert one.machine.high_watermark == 2


@pytest.mark.parametrize("unclean_epoch", [None, 2, 3])
def test_a_leader_that_lacks_what_was_committed_is_not_followed(unclean_epoch: int | None) -> None:
    """An unclean election that is no newer than its last record is one that it has followed already."""
    one = Following(unclean_epoch=unclean_epoch)
    one.told(one.asks(3), 1, 2)
    ready = one.machine.take_ready()
    assert ready.halt == Halt(end_offset=Offset(2), high_watermark=Offset(4), last_epoch=LeaderEpoch(3))
    assert (ready.truncation, ready.request, ready.high_watermark) == (None, None, 4)
    assert one.machine.state is FollowerState.HALTED
    assert one.machine.take_ready() == owes_nothing(Offset(4)), "it is said once"
    assert (one.machine.log_end_offset, one.machine.next_deadline_ms()) == (10, None)
    with pytest.raises(KafkaError, match="is halted"):
        one.machine.check_serves(None)
    one.machine.on_stopped()
    assert one.machine.take_ready().halt is None


@pytest.mark.parametrize(
    ("epochs", "unclean_epoch", "halts"),
    [(((1, 0), (3, 6), (4, 10)), 4, False), (((1, 0), (3, 9)), 2, True)],
    ids=["an epoch without a record", "one record of an epoch"],
)
def test_an_unclean_election_is_held_against_the_epoch_of_the_last_record(
    epochs: tuple[tuple[int, int], ...], unclean_epoch: int, halts: bool
) -> None:
    lineage = LeaderEpochLineage((LeaderEpoch(epoch), Offset(start)) for epoch, start in epochs)
    log = OwnLog(Offset(0), Offset(10), Offset(4), lineage)
    assert belies_what_was_committed(log, Offset(2), LeaderEpoch(unclean_epoch)) is halts


def test_what_is_cut_at_the_high_watermark_was_never_committed() -> None:
    one = Following()
    one.told(one.asks(3), 1, 4)
    assert one.cuts() == Truncation(Offset(4))


def test_a_leader_with_another_log_is_not_followed_either() -> None:
    one = Following(((3, 6),), start=6, checkpoint=7)
    one.told(one.asks(3), 2, 3)
    assert one.machine.take_ready().halt == Halt(Offset(3), Offset(7), LeaderEpoch(3))


def test_a_halted_replica_does_not_ask_on_though_the_epochs_are_not_agreed_on() -> None:
    one = Following(((1, 0), (3, 6)))
    one.told(one.asks(3), 2, 2)
    ready = one.machine.take_ready()
    assert (ready.halt, ready.request) == (Halt(Offset(2), Offset(4), LeaderEpoch(3)), None)


@pytest.mark.parametrize("unclean_epoch", [None, 4])
def test_from_which_epoch_on_a_leader_may_lack_what_was_committed_is_told(unclean_epoch: int | None) -> None:
    assert Following(unclean_epoch=unclean_epoch).machine.unclean_epoch == unclean_epoch


def test_a_batch_goes_as_a_whole() -> None:
    one = Following()
    one.told(one.asks(3), 3, 8)
    one.cuts(to=7)
    assert one.fetches().fetch_offset == 7


def test_a_batch_that_goes_as_a_whole_may_leave_no_record() -> None:
    one = Following(((1, 4), (3, 8)), start=4, in_isr=True)
    one.told(one.asks(3), 2, 5)
    assert one.cuts(to=4) == Truncation(Offset(5))
    assert (one.machine.log_start_offset, one.machine.high_watermark) == (4, 4)
    one.asks(4)  # there is nothing left to compare, and the leader's lineage is to be learnt


def test_a_log_without_records_keeps_the_epoch_that_the_leader_has_too() -> None:
    one = Following(((3, 9),), start=9, end=9, checkpoint=9)
    one.told(one.asks(3), 3, 20)
    assert one.fetches().last_fetched_epoch == 3


def test_an_epoch_that_was_led_without_a_record_goes_too() -> None:
    one = Following(((1, 0), (3, 6), (4, 10)))
    one.told(one.asks(3), 3, 10)
    assert one.cuts() == Truncation(Offset(10))
    assert one.lineage.latest_leader_epoch == 3
    assert one.fetches().fetch_offset == 10


@pytest.mark.parametrize("undefined", [None, (LeaderEpoch(4), Offset(0))])
def test_an_answer_that_says_nothing_is_no_reason_to_truncate(undefined: tuple[LeaderEpoch, Offset] | None) -> None:
    one = Following()
    one.machine.on_epoch_end(one.asks(3), undefined, 1000)
    ready = one.machine.take_ready()
    assert (ready.truncation, ready.request) == (None, None)
    assert one.machine.next_deadline_ms() == 1000 + BACKOFF_MS
    one.machine.on_tick(1000 + BACKOFF_MS - 1)
    assert one.machine.take_ready().request is None
    one.machine.on_tick(1000 + BACKOFF_MS)
    one.asks(3)


def test_an_answer_that_nobody_waits_for_is_none() -> None:
    one = Following()
    first = one.asks(3)
    one.machine.on_unanswered(first, 0)
    assert one.machine.take_ready().request is None, "it is sent again, but not at once"
    one.machine.on_tick(BACKOFF_MS)
    second = one.asks(3)
    before = one.machine.canonical_key()
    one.told(first, 1, 2)
    one.machine.on_refused(first, Code.OFFSET_OUT_OF_RANGE, 0)
    one.machine.on_unanswered(first, 0)
    one.machine.on_fetched(first, FetchOutcome(), 0)
    one.machine.on_log_start(first, Offset(3), 0)
    assert one.machine.canonical_key() == before
    one.told(second, 3, 100)
    one.fetches()
    one.told(second, 1, 2)
    assert one.machine.take_ready().truncation is None, "it came twice"


@pytest.mark.parametrize("code", [Code.FENCED_LEADER_EPOCH, Code.UNKNOWN_LEADER_EPOCH, Code.NOT_LEADER_OR_FOLLOWER])
def test_no_refusal_is_a_reason_to_truncate(code: Code) -> None:
    one = Following()
    one.machine.on_refused(one.asks(3), code, 0)
    assert one.machine.take_ready().truncation is None
    one.machine.on_tick(BACKOFF_MS)
    one.told(one.asks(3), 3, 100)
    one.machine.on_refused(one.fetches().number, code, 0)
    assert one.machine.next_deadline_ms() == BACKOFF_MS
    one.machine.on_tick(BACKOFF_MS)
    assert one.fetches().fetch_offset == 10


def test_out_of_range_is_no_answer_to_a_question_about_epochs() -> None:
    one = Following()
    one.machine.on_refused(one.asks(3), Code.OFFSET_OUT_OF_RANGE, 0)
    assert one.machine.next_deadline_ms() == BACKOFF_MS
    one.machine.on_tick(BACKOFF_MS)
    one.asks(3)


def test_a_log_without_records_has_nothing_to_ask() -> None:
    one = Following((), end=0)
    request = one.fetches()
    assert (request.fetch_offset, request.last_fetched_epoch) == (0, None)


def test_a_log_without_records_diverges_from_nothing() -> None:
    one = Following((), end=0)
    one.machine.on_fetched(one.fetches().number, FetchOutcome(diverging=EpochEntry(LeaderEpoch(0), Offset(0))), 0)
    assert one.machine.take_ready().truncation is None
    assert one.machine.next_deadline_ms() == BACKOFF_MS


def test_a_log_without_records_starts_where_the_leaders_does() -> None:
    one = Following((), start=10, end=10)
    one.machine.on_refused(one.fetches().number, Code.OFFSET_OUT_OF_RANGE, 0)
    request = one.machine.take_ready().request
    assert isinstance(request, LogStartRequest)
    one.machine.on_log_start(request.number, Offset(2), 0)
    assert one.cuts() == Truncation(Offset(2), starts_anew=True)


def test_a_log_that_is_wholly_another_starts_anew() -> None:
    one = Following(((3, 6),), start=6, checkpoint=7, unclean_epoch=4)
    one.told(one.asks(3), 2, 3)
    request = one.machine.take_ready().request
    assert isinstance(request, LogStartRequest)
    one.machine.on_log_start(request.number, Offset(1), 0)
    assert one.cuts() == Truncation(Offset(1), starts_anew=True, below_high_watermark=Offset(7))
    assert one.machine.log_start_offset == one.machine.high_watermark == 1
    one.told(one.asks(4), 2, 3)  # of the leader's lineage it has nothing any more
    one.told(one.asks(1), 1, 1)
    asked = one.fetches()
    assert (asked.fetch_offset, asked.last_fetched_epoch, asked.log_start_offset) == (1, None, 1)
    again = one.gets(asked, FetchOutcome(Offset(4), Offset(4)), epochs=[(2, 1)]).request
    assert again is not None
    one.machine.on_refused(again.number, Code.OFFSET_OUT_OF_RANGE, 0)
    located = one.machine.take_ready().request
    assert located is not None
    one.machine.on_log_start(located.number, Offset(2), 0)
    assert one.machine.take_ready().truncation is None, "what it has since then is the leader's"


def test_a_log_whose_lineage_was_lost_starts_anew() -> None:
    one = Following((), end=8, checkpoint=5)  # compaction left nothing to rebuild it from
    request = one.machine.take_ready().request
    assert isinstance(request, LogStartRequest)
    one.machine.on_log_start(request.number, Offset(2), 0)
    assert one.cuts() == Truncation(Offset(2), starts_anew=True, below_high_watermark=Offset(5))


def test_who_leads_follows_nobody() -> None:
    with pytest.raises(InvariantBrokenError, match="follows nobody"):
        Following(leader=US)


def test_an_older_rule_can_be_put_in_its_place() -> None:
    one = Following(rule=high_watermark_alone)
    assert one.cuts() == Truncation(Offset(4))
    assert one.fetches().fetch_offset == 4


# Copying.


def test_the_next_fetch_follows_the_write() -> None:
    one = Following()
    one.reconciled()
    answer = FetchOutcome(Offset(13), Offset(12), Offset(2))
    ready = one.gets(one.fetches(), answer, epochs=[(5, 11)])
    assert (ready.high_watermark, ready.log_start_offset) == (12, 2)
    assert isinstance(ready.request, RecordsRequest)
    assert (ready.request.fetch_offset, ready.request.last_fetched_epoch) == (13, 5)
    assert ready.request.log_start_offset == 2


@pytest.mark.parametrize(
    ("answer", "high_watermark", "log_start"),
    [
        (FetchOutcome(None, Offset(8), Offset(0)), 8, None),
        (FetchOutcome(None, Offset(50), Offset(9)), 10, 9),
        (FetchOutcome(None, Offset(2), Offset(9)), 4, 4),
        (FetchOutcome(None, None, None), 4, None),
        (FetchOutcome(Offset(10), Offset(8), None), 8, None),
    ],
)
def test_the_high_watermark_is_the_leaders_as_far_as_the_log_goes(
    answer: FetchOutcome, high_watermark: int, log_start: int | None
) -> None:
    one = Following()
    one.reconciled()
    ready = one.gets(one.fetches(), answer)
    assert (ready.high_watermark, ready.log_start_offset) == (high_watermark, log_start)
    assert isinstance(ready.request, RecordsRequest)


def test_a_fetch_that_diverges_is_an_answer_to_cut_by() -> None:
    one = Following()
    machine = one.reconciled()
    request = one.gets(one.fetches(), FetchOutcome(None, Offset(4), Offset(0))).request
    assert request is not None
    assert machine.is_reconciled
    machine.on_fetched(request.number, FetchOutcome(diverging=EpochEntry(LeaderEpoch(2), Offset(9))), 0)
    assert not machine.is_reconciled
    assert one.cuts() == Truncation(Offset(6))
    one.told(one.asks(1), 1, 6)
    assert one.fetches().fetch_offset == 6


def test_a_fetch_that_diverges_within_its_own_epoch_is_cut_as_well() -> None:
    one = Following()
    machine = one.reconciled()
    machine.on_fetched(one.fetches().number, FetchOutcome(diverging=EpochEntry(LeaderEpoch(3), Offset(8))), 0)
    assert one.cuts() == Truncation(Offset(8))


@pytest.mark.parametrize("end", [9, 10])
def test_records_that_are_here_are_not_appended_again(end: int) -> None:
    one = Following()
    one.reconciled().on_fetched(one.fetches().number, FetchOutcome(Offset(end), Offset(10)), 0)
    ready = one.machine.take_ready()
    assert (ready.append, ready.high_watermark) == (None, 10)
    assert isinstance(ready.request, RecordsRequest)


def test_what_is_appended_need_not_move_the_end() -> None:
    one = Following()
    one.reconciled().on_fetched(one.fetches().number, FetchOutcome(Offset(12), Offset(12)), 0)
    one.machine.take_ready()
    one.machine.on_appended(Offset(10))
    assert one.fetches().fetch_offset == 10


def test_who_is_out_of_range_serves_nobody() -> None:
    one = Following()
    machine = one.reconciled()
    request = one.gets(one.fetches(), FetchOutcome(None, Offset(4), Offset(0))).request
    assert request is not None
    machine.on_refused(request.number, Code.OFFSET_OUT_OF_RANGE, 0)
    assert not machine.is_reconciled
    assert machine.next_deadline_ms() is None, "it asks at once where the leader's log starts"


def test_a_divergence_that_cannot_be_is_asked_about_again_later() -> None:
    one = Following()
    machine = one.reconciled()
    machine.on_fetched(one.fetches().number, FetchOutcome(diverging=EpochEntry(LeaderEpoch(4), Offset(9))), 0)
    assert machine.take_ready().truncation is None
    machine.on_tick(BACKOFF_MS)
    assert one.fetches().fetch_offset == 10


def test_who_is_behind_the_leaders_log_starts_anew_there() -> None:
    one = Following()
    machine = one.reconciled()
    machine.on_refused(one.fetches().number, Code.OFFSET_OUT_OF_RANGE, 0)
    request = machine.take_ready().request
    assert isinstance(request, LogStartRequest)
    assert (request.leader, request.current_leader_epoch) == (LEADER, EPOCH)
    machine.on_log_start(request.number, Offset(40), 0)
    assert one.cuts() == Truncation(Offset(40), starts_anew=True)
    one.told(one.asks(4), 4, 40)
    ready = machine.take_ready()
    assert isinstance(ready.request, RecordsRequest)
    assert (ready.request.fetch_offset, ready.high_watermark, machine.log_start_offset) == (40, 40, 40)


@pytest.mark.parametrize("log_start", [2, 10])
def test_who_is_ahead_of_the_leaders_log_asks_again_where_its_epochs_end(log_start: int) -> None:
    one = Following()
    machine = one.reconciled()
    machine.on_refused(one.fetches().number, Code.OFFSET_OUT_OF_RANGE, 0)
    request = machine.take_ready().request
    assert request is not None
    machine.on_log_start(request.number, Offset(log_start), 0)
    assert machine.take_ready().request is None
    machine.on_tick(BACKOFF_MS)
    one.told(one.asks(3), 3, 9)
    assert one.cuts() == Truncation(Offset(9))


# Consumers, time, the end.


def test_consumers_are_served_once_the_leader_of_the_epoch_accepted_a_fetch() -> None:
    one = Following()
    machine = one.reconciled()
    request = one.fetches()
    with pytest.raises(KafkaError) as refused:
        machine.check_serves(EPOCH)
    assert refused.value.code is Code.NOT_LEADER_OR_FOLLOWER
    one.gets(request, FetchOutcome(None, Offset(4), Offset(0)))
    machine.check_serves(EPOCH)
    machine.check_serves(None)
    with pytest.raises(FencedLeaderEpochError):
        machine.check_serves(LeaderEpoch(4))
    with pytest.raises(UnknownLeaderEpochError):
        machine.check_serves(LeaderEpoch(6))


def test_without_a_leader_nothing_is_sent() -> None:
    one = Following(leader=None)
    assert one.machine.state.value == "leaderless"
    assert one.machine.clone().canonical_key() == one.machine.canonical_key()
    assert one.machine.take_ready().request is None
    assert one.machine.next_deadline_ms() is None
    one.machine.on_stopped()
    assert one.machine.state.value == "stopped"


def test_stopped_means_stopped() -> None:
    one = Following()
    number = one.asks(3)
    one.machine.on_stopped()
    one.told(number, 1, 2)
    one.machine.on_truncated(Offset(2))
    one.machine.on_appended(Offset(12))
    assert one.machine.take_ready() == owes_nothing(Offset(4))
    assert one.machine.log_end_offset == 10


def test_what_was_owed_when_it_stopped_is_owed_no_more() -> None:
    one = Following()
    one.told(one.asks(3), 3, 8)
    one.machine.on_stopped()
    assert one.machine.take_ready().truncation is None
    one = Following()
    machine = one.reconciled()
    machine.on_fetched(one.fetches().number, FetchOutcome(Offset(12), Offset(12)), 0)
    machine.on_stopped()
    assert machine.take_ready().append is None
    assert not machine.is_reconciled
    one = Following(((1, 0), (3, 7)), in_isr=False)
    for asked, epoch, end in ((3, 3, 20), (4, 3, 20), (2, 1, 6), (0, 0, 0)):
        one.told(one.asks(asked), epoch, end)
    one.machine.on_stopped()
    assert one.machine.take_ready().epochs == ()


def test_who_has_learnt_all_does_not_learn_again() -> None:
    one = Following(((1, 0), (3, 7)), in_isr=False)
    for asked, epoch, end in ((3, 3, 20), (4, 3, 8), (2, 1, 6), (0, 0, 0)):
        one.told(one.asks(asked), epoch, end)
    ready = one.machine.take_ready()
    for entry in ready.epochs:
        one.lineage.assign(*entry)
    assert isinstance(ready.request, RecordsRequest)
    one.machine.on_fetched(ready.request.number, FetchOutcome(diverging=EpochEntry(LeaderEpoch(2), Offset(9))), 0)
    one.cuts()
    one.told(one.asks(1), 1, 5)
    one.cuts()
    assert one.fetches().fetch_offset == 5


def test_a_machine_that_waits_for_the_log_start_is_not_one_that_is_about_to_ask() -> None:
    one = Following()
    machine = one.reconciled()
    machine.on_refused(one.fetches().number, Code.OFFSET_OUT_OF_RANGE, 0)
    before = machine.canonical_key()
    assert isinstance(machine.take_ready().request, LogStartRequest)
    assert machine.canonical_key() != before


def test_what_the_disk_was_not_asked_for_is_a_bug() -> None:
    with pytest.raises(InvariantBrokenError):
        Following().machine.on_truncated(Offset(2))
    with pytest.raises(InvariantBrokenError):
        Following().machine.on_appended(Offset(12))
    one = Following()
    one.told(one.asks(3), 3, 8)
    with pytest.raises(InvariantBrokenError):
        one.machine.on_truncated(Offset(8))  # nobody has taken that order yet
    one = Following()
    one.reconciled().on_fetched(one.fetches().number, FetchOutcome(Offset(12), Offset(12)), 0)
    with pytest.raises(InvariantBrokenError):
        one.machine.on_appended(Offset(12))
    one.machine.take_ready()
    with pytest.raises(InvariantBrokenError, match="went back"):
        one.machine.on_appended(Offset(9))


def test_a_state_is_left_for_its_own_causes_alone() -> None:
    with pytest.raises(InvariantBrokenError, match="LEARNT while"):
        Following().machine._move(FollowerCause.LEARNT)


def test_every_state_can_be_left_and_reached() -> None:
    assert set(TRANSITIONS.values()) | {FollowerState.TRUNCATING, FollowerState.LEADERLESS} == set(FollowerState)
    assert {cause for _, cause in TRANSITIONS} == set(FollowerCause)
    assert {state for state, _ in TRANSITIONS} == set(FollowerState)


def test_machines_that_go_on_otherwise_have_other_keys() -> None:
    one = Following(((0, 0),))
    before = one.machine.canonical_key()
    number = one.asks(0)
    asking = one.machine.canonical_key()
    assert asking != before
    one.machine.on_unanswered(number, 0)
    assert one.machine.canonical_key() not in (before, asking)
    one.machine.on_tick(BACKOFF_MS)
    assert one.machine.canonical_key() == before

    one = Following(in_isr=False)
    one.told(one.asks(3), 3, 100)
    before = one.machine.canonical_key()
    one.told(one.asks(4), 2, 8)
    assert one.machine.canonical_key() != before, "its lineage is known so far"

    appending = Following().reconciled(), Following().reconciled()
    for machine, high_watermark in zip(appending, (11, 12), strict=True):
        request = machine.take_ready().request
        assert request is not None
        machine.on_fetched(request.number, FetchOutcome(Offset(12), Offset(high_watermark)), 0)
    assert appending[0].canonical_key() != appending[1].canonical_key()
    taken = appending[0].canonical_key()
    appending[0].take_ready()
    assert appending[0].canonical_key() != taken


def test_machines_that_go_on_alike_have_one_key() -> None:
    told, silent = Following(), Following()
    for one, answer in ((told, FetchOutcome(None, Offset(4), Offset(0))), (silent, FetchOutcome())):
        one.reconciled().on_fetched(one.fetches().number, answer, 0)
    assert told.machine.canonical_key() == silent.machine.canonical_key()


def test_a_copy_goes_its_own_way() -> None:
    one = Following(in_isr=False)
    one.told(one.asks(3), 3, 8)
    copy = one.machine.clone()
    assert copy.canonical_key() == one.machine.canonical_key()
    one.cuts()
    assert copy.canonical_key() != one.machine.canonical_key()
    number = one.asks(4)
    shared = one.lineage.clone()
    copy = one.machine.clone(shared)
    copy.on_epoch_end(number, (LeaderEpoch(3), Offset(8)), 0)
    assert copy.canonical_key() != one.machine.canonical_key()
    one.told(number, 3, 8)
    assert copy.canonical_key() == one.machine.canonical_key()
    shared.assign(LeaderEpoch(4), Offset(8))
    assert copy.canonical_key() != one.machine.canonical_key()

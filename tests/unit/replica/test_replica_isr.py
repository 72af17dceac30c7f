"""The in-sync replicas as the leader sees them: who joins, who leaves, and what counts until the controller answers."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from support.fixtures.led_replica import (
    BACKOFF_MS,
    LAG_MS_MAX,
    LEADER,
    SILENCE_MS_MAX,
    THREE,
    TWO,
    fetch,
    fetch_of,
    leader_of,
    proposed,
    state_of,
)
from support.old_rules.replica_rules import joins_at_the_high_watermark
from tidelog.base.errors import (
    Code,
    InvariantBrokenError,
    KafkaError,
)
from tidelog.base.ids import (
    BrokerEpoch,
    CorrelationId,
    LeaderEpoch,
    Offset,
    PartitionEpoch,
)
from tidelog.replica import (
    AcceptedFetch,
    IsrProposal,
)


def test_a_fetch_below_the_high_watermark_costs_the_seat_and_nothing_is_taken_back() -> None:
    leader = leader_of()
    fetch(leader, 2, 10)
    fetch(leader, 3, 10)
    proposal = fetch(leader, 3, 4)
    assert proposal == proposed(9, LEADER, TWO)
    assert leader.high_watermark == 10


def test_who_joins_does_so_in_the_incarnation_that_proved_it() -> None:
    """Though the next one is registered before the controller is asked: of that nothing is known."""
    leader = leader_of(state_of(isr=(1,)))
    accepted = leader.accept_fetch(fetch_of(2, 10))
    assert isinstance(accepted, AcceptedFetch)
    leader.on_fetch(accepted)
    leader.on_brokers({TWO: BrokerEpoch(21), THREE: BrokerEpoch(30)})
    proposal = leader.take_ready().isr_proposal
    assert proposal is not None
    assert (proposal.broker_epoch(TWO), proposal.broker_epoch(LEADER)) == (20, None)


@pytest.mark.parametrize(("offset", "joins"), [(9, False), (10, True), (12, True)])
def test_joining_needs_the_start_of_the_epoch(offset: int, joins: bool) -> None:
    leader = leader_of(state_of(isr=[1, 2]), checkpoint=3)
    leader.on_appended(Offset(12), now_ms=0)
    fetch(leader, 2, 5)
    assert leader.high_watermark == 5
    proposal = fetch(leader, 3, offset)
    assert proposal == (proposed(9, LEADER, TWO, THREE) if joins else None)


def test_joining_needs_the_high_watermark() -> None:
    leader = leader_of(state_of(isr=[1]))
    leader.on_appended(Offset(20), now_ms=0)
    leader.take_ready()
    assert fetch(leader, 3, 19) is None
    assert fetch(leader, 3, 20) is not None


def test_joining_at_a_high_watermark_that_stands_still_needs_the_log_end_too() -> None:
    """Else it would be asked to leave at once, and to join with its next fetch: a record of metadata each time."""
    leader = leader_of(state_of(isr=[1]), min_insync=2)
    leader.on_appended(Offset(40), now_ms=0)
    late_ms = LAG_MS_MAX + 1
    assert fetch(leader, 2, 15, now_ms=late_ms) is None
    assert leader.high_watermark == 0
    assert fetch(leader, 2, 39, now_ms=late_ms + 1) is None
    leader.on_appended(Offset(45), now_ms=0)
    assert fetch(leader, 2, 40, now_ms=late_ms + 2) is not None, "it had all that there was at its last fetch"
    leader.on_tick(late_ms + 2)
    assert leader.take_ready().isr_proposal is None


def test_joining_needs_the_registered_incarnation() -> None:
    leader = leader_of(state_of(isr=[1]), active=False)
    assert fetch(leader, 2, 10) is None
    leader.on_brokers({TWO: BrokerEpoch(19)})
    assert fetch(leader, 2, 10) is None, "the leader has yet to hear of that incarnation"
    leader.on_brokers({TWO: BrokerEpoch(20)})
    assert fetch(leader, 2, 10) is not None


def test_who_does_not_say_which_incarnation_it_is_does_not_join() -> None:
    leader = leader_of(state_of(isr=[1]), active=False)
    accepted = leader.accept_fetch(replace(fetch_of(2, 10), broker_epoch=None))
    assert isinstance(accepted, AcceptedFetch)
    leader.on_fetch(accepted)
    assert leader.take_ready().isr_proposal is None
    fetch(leader, 2, 10)
    assert isinstance(leader.accept_fetch(replace(fetch_of(2, 10), broker_epoch=None)), AcceptedFetch)


def test_until_the_controller_answers_every_possible_isr_counts() -> None:
    leader = leader_of(state_of(isr=[1]))
    leader.take_ready()
    assert fetch(leader, 2, 10) is not None
    leader.on_appended(Offset(12), now_ms=0)
    assert leader.take_ready().high_watermark == 10, "broker 2 may be in the ISR by now"
    leader.on_proposal_unanswered(now_ms=100)
    assert leader.take_ready().high_watermark == 10, "a time-out answers nothing"
    assert leader.in_sync.maximal == {1, 2}
    assert fetch(leader, 3, 12) is None, "not at once"
    leader.on_tick(100 + BACKOFF_MS)
    assert leader.take_ready().isr_proposal == proposed(9, LEADER)
    leader.on_proposal_unanswered(now_ms=200)
    leader.on_tick(200 + BACKOFF_MS - 1)
    assert leader.next_deadline_ms() == 200 + BACKOFF_MS
    assert leader.take_ready().isr_proposal is None
    leader.on_tick(200 + BACKOFF_MS)
    assert leader.take_ready().isr_proposal is not None, "until newer state answers, it is asked for"
    assert leader.in_sync.maximal == {1, 2}

    leader.on_state(state_of(isr=[1], partition_epoch=9))
    assert leader.in_sync.maximal == {1, 2}, "this is the state that it was asked on"
    leader.on_state(state_of(isr=[1], partition_epoch=10))
    assert leader.in_sync.maximal == {1}
    assert leader.take_ready().high_watermark == 12


def test_shrinking_commits_only_once_it_is_granted() -> None:
    leader = leader_of()
    fetch(leader, 2, 10)
    leader.on_tick(LAG_MS_MAX + 1)
    proposal = leader.take_ready().isr_proposal
    assert proposal is not None
    assert proposal.isr == {1, 2}
    assert leader.take_ready().high_watermark == 0
    leader.on_state(state_of(isr=[1, 2], partition_epoch=10))
    assert leader.take_ready().high_watermark == 10


def test_one_question_at_a_time() -> None:
    leader = leader_of(state_of(isr=[1]))
    leader.take_ready()
    assert fetch(leader, 2, 10) is not None
    assert fetch(leader, 3, 10) is None
    leader.on_state(state_of(isr=[1, 2], partition_epoch=10))
    assert fetch(leader, 3, 10) == proposed(10, LEADER, TWO, THREE)


def test_a_replica_that_is_new_begins_unknown() -> None:
    leader = leader_of(state_of([1, 2], [1, 2]))
    fetch(leader, 2, 10)
    leader.on_state(state_of([1, 2, 3], [1, 2, 3], partition_epoch=10))
    leader.on_appended(Offset(12), now_ms=0)
    fetch(leader, 2, 12)
    assert leader.high_watermark == 10
    fetch(leader, 3, 11)
    assert leader.high_watermark == 11


def test_after_an_unclean_election_nobody_joins_before_the_controller_knows_that_the_leader_recovered() -> None:
    leader = leader_of(replace(state_of(isr=[1]), is_recovering=True))
    assert leader.take_ready().isr_proposal == proposed(9, LEADER)
    assert leader.take_ready().isr_proposal is None
    assert fetch(leader, 2, 10) is None
    leader.on_proposal_unanswered(now_ms=0)
    assert fetch(leader, 2, 10) is None
    leader.on_tick(BACKOFF_MS)
    assert leader.take_ready().isr_proposal is not None, "it says so until it is heard"
    leader.on_state(state_of(isr=[1], partition_epoch=10))
    assert fetch(leader, 2, 10) == proposed(10, LEADER, TWO)


def test_newer_state_that_does_not_know_of_the_recovery_is_told_again() -> None:
    recovering = replace(state_of(isr=[1]), is_recovering=True)
    leader = leader_of(recovering)
    leader.take_ready()
    leader.on_state(replace(recovering, partition_epoch=PartitionEpoch(10)))
    assert leader.take_ready().isr_proposal == proposed(10, LEADER)
    assert fetch(leader, 2, 10) is None


def test_older_news_changes_nothing() -> None:
    leader = leader_of(state_of(isr=[1]))
    leader.take_ready()
    assert fetch(leader, 2, 10) is not None
    leader.on_proposal_unanswered(now_ms=0)
    before = leader.canonical_key()
    for partition_epoch in (8, 9):
        leader.on_state(state_of([1], [1], partition_epoch=partition_epoch))
        assert leader.canonical_key() == before
    assert leader.next_deadline_ms() == BACKOFF_MS


def test_state_of_another_epoch_is_for_another_machine() -> None:
    with pytest.raises(InvariantBrokenError, match="another leader epoch"):
        leader_of().on_state(replace(state_of(partition_epoch=10), leader_epoch=LeaderEpoch(6)))


def test_whoever_is_added_does_not_count_until_that_is_done() -> None:
    """A topic with one replica that gets a second one takes records meanwhile, though two must be in sync."""
    adding = replace(state_of([1, 2], [1], 9), adding_replicas=(TWO,))
    leader = leader_of(adding, min_insync=2)
    leader.on_appended(Offset(20), now_ms=0)
    assert leader.take_ready().high_watermark == 20
    leader.on_state(state_of([1, 2], [1], 10))
    leader.on_appended(Offset(30), now_ms=0)
    assert leader.take_ready().high_watermark == 20
    with pytest.raises(KafkaError) as refused:
        leader.check_enough_replicas()
    assert refused.value.code == Code.NOT_ENOUGH_REPLICAS


def test_a_refusal_that_nobody_asked_for_holds_nothing_back() -> None:
    leader = leader_of(state_of(isr=[1]))
    leader.on_proposal_unanswered(now_ms=0)
    assert leader.next_deadline_ms() is None
    assert fetch(leader, 2, 10) is not None


def test_newer_state_ends_the_pause() -> None:
    leader = leader_of(state_of(isr=[1]))
    leader.take_ready()
    assert fetch(leader, 2, 10) is not None
    leader.on_proposal_unanswered(now_ms=0)
    leader.on_state(state_of(isr=[1], partition_epoch=10))
    assert fetch(leader, 2, 10) == proposed(10, LEADER, TWO)


def test_a_proposal_that_newer_state_overtook_is_not_sent() -> None:
    leader = leader_of(state_of(isr=[1]))
    accepted = leader.accept_fetch(fetch_of(2, 10))
    assert isinstance(accepted, AcceptedFetch)
    leader.on_fetch(accepted)
    leader.on_state(state_of(isr=[1, 2], partition_epoch=10))
    assert leader.take_ready().isr_proposal is None


def test_an_answered_proposal_leaves_no_trace() -> None:
    asked, silent = leader_of(state_of(isr=[1])), leader_of(state_of(isr=[1]), active=False)
    for leader in (asked, silent):
        fetch(leader, 2, 10)
        leader.on_brokers({TWO: BrokerEpoch(20), THREE: BrokerEpoch(30)})
    assert asked.canonical_key() != silent.canonical_key()
    for leader in (asked, silent):
        leader.on_state(state_of(isr=[1], partition_epoch=10))
    assert asked.canonical_key() == silent.canonical_key()


def test_who_lags_is_left_out_when_it_is_asked_again() -> None:
    leader = leader_of(state_of(isr=[1, 2]))
    leader.take_ready()
    fetch(leader, 2, 10)
    assert fetch(leader, 3, 10) is not None
    leader.on_appended(Offset(12), now_ms=0)
    leader.on_proposal_unanswered(now_ms=LAG_MS_MAX)
    leader.on_tick(LAG_MS_MAX + BACKOFF_MS)
    assert leader.take_ready().isr_proposal == proposed(9, LEADER)
    assert leader.in_sync.maximal == {1, 2, 3}


def test_an_older_rule_of_joining_can_be_put_in_its_place() -> None:
    leader = leader_of(state_of(isr=[1, 2]), checkpoint=3, join=joins_at_the_high_watermark)
    assert fetch(leader, 3, 3) is not None
    assert fetch(leader_of(state_of(isr=[1, 2]), checkpoint=3), 3, 3) is None


def test_who_lags_is_no_reason_to_ask_again_before_the_pause_is_over() -> None:
    leader = leader_of(state_of([1, 2, 3], [1, 2, 3]))
    fetch(leader, 2, 10)
    leader.on_tick(LAG_MS_MAX + 1)
    assert leader.take_ready().isr_proposal is not None
    assert leader.next_deadline_ms() is None, "while it is asked, time alone changes nothing"
    leader.on_proposal_unanswered(now_ms=LAG_MS_MAX + 5)
    assert leader.next_deadline_ms() == LAG_MS_MAX + 5 + BACKOFF_MS
    leader.on_tick(LAG_MS_MAX + 6)
    assert leader.take_ready().isr_proposal is None
    leader.on_tick(LAG_MS_MAX + 5 + BACKOFF_MS)
    assert leader.take_ready().isr_proposal == proposed(9, LEADER, TWO)


def test_who_lost_what_it_had_is_no_reason_to_ask_again_before_the_pause_is_over() -> None:
    leader = leader_of(state_of(isr=[1, 2]))
    fetch(leader, 2, 10)
    assert fetch(leader, 3, 10) is not None
    leader.on_proposal_unanswered(now_ms=100)
    assert fetch(leader, 2, 4) is None
    leader.on_tick(100 + BACKOFF_MS)
    assert leader.take_ready().isr_proposal == proposed(9, LEADER, TWO)
    leader.on_state(state_of(isr=[1, 2, 3], partition_epoch=10))
    assert fetch(leader, 2, 4) == proposed(10, LEADER, THREE)


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("append"), st.integers(1, 3)),
        st.tuples(st.just("fetch"), st.sampled_from((2, 3))),
        st.tuples(st.just("grow"), st.integers(1, 3)),
        st.tuples(st.just("tick"), st.sampled_from((100, 2000))),
        st.tuples(st.just("time out"), st.just(0)),
        st.tuples(st.just("grant"), st.integers(0, 5)),
        st.tuples(st.just("refuse"), st.just(0)),
    ),
    max_size=60,
)


@given(steps=STEPS, min_insync=st.integers(1, 3), isr=st.sampled_from(((1,), (1, 2), (1, 2, 3))))
@example(steps=[("append", 1), ("tick", SILENCE_MS_MAX + 1)], min_insync=2, isr=(1,))
def test_what_is_committed_is_held_by_every_isr_that_may_be_true(
    steps: list[tuple[str, int]], min_insync: int, isr: tuple[int, ...]
) -> None:
    leader = leader_of(state_of(isr=isr), min_insync=min_insync)
    held = {1: 10, 2: 0, 3: 0}  # what each broker really has; followers only grow here
    true_isr, partition_epoch = frozenset(isr), 9  # as the controller has them
    asked: list[IsrProposal] = []
    waiting: dict[int, int] = {}
    now_ms = 0
    high_watermark = 0

    for number, (step, value) in enumerate(steps):
        if step == "append":
            held[1] += value
            leader.on_appended(Offset(held[1]), now_ms=0)
            waiting[number] = held[1]
            leader.on_produced(CorrelationId(number), Offset(held[1]), 1 << 40)
        elif step == "fetch":
            accepted = leader.accept_fetch(fetch_of(value, held[value], now_ms=now_ms))
            assert isinstance(accepted, AcceptedFetch)
            leader.on_fetch(accepted)
        elif step == "grow":
            for follower in (2, 3)[: value or 1]:
                held[follower] = min(held[1], held[follower] + value * 4)
        elif step == "tick":
            now_ms += value
            leader.on_tick(now_ms)
        elif step == "time out":
            leader.on_proposal_unanswered(now_ms)
        elif step == "grant" and asked:
            # The controller takes any proposal made on its own state, however late it comes; its answer may be lost.
            proposal = asked[value % len(asked)]
            if proposal.partition_epoch == partition_epoch:
                true_isr, partition_epoch = proposal.isr, partition_epoch + 1
            if value < 4:
                leader.on_state(state_of(isr=sorted(true_isr), partition_epoch=partition_epoch))
        ready = leader.take_ready()
        if ready.isr_proposal is not None:
            asked.append(ready.isr_proposal)
            assert LEADER in ready.isr_proposal.isr
        if ready.high_watermark > high_watermark:
            for broker in true_isr:
                assert held[broker] >= ready.high_watermark, f"broker {broker} may lead next, and lacks it"
            assert len(leader.isr) >= min(min_insync, 3)
        assert ready.high_watermark >= high_watermark
        high_watermark = ready.high_watermark
        assert true_isr <= leader.in_sync.maximal
        for ack in ready.acks:
            end_offset = waiting.pop(ack.correlation_id)
            assert end_offset <= high_watermark or ack.code is not Code.NONE, "refused: nothing was promised"
        assert all(end_offset > high_watermark for end_offset in waiting.values())
        copy = leader.clone()
        assert copy.canonical_key() == leader.canonical_key()
        copy.on_appended(Offset(held[1] + 100), now_ms=0)
        copy.on_stopped()
        assert leader.log_end_offset == held[1]

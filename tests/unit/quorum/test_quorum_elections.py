"""When a node tries to be elected, how long it waits for the others, and when it tries again."""

from __future__ import annotations

import pytest

from support.worlds.quorum_node import LEAST, MOST, Drawn, OneNode, fetch, key, served, voter_set
from tidelog.base.errors import Code
from tidelog.base.ids import BrokerId, LeaderEpoch, Offset
from tidelog.quorum import (
    EpochBegun,
    FetchAnswer,
    QuorumSettings,
    QuorumState,
    Role,
    SnapshotId,
    VoteAnswer,
    VoteRequested,
)

REFUSED = FetchAnswer(Code.NOT_LEADER_OR_FOLLOWER, LeaderEpoch(0), None, Offset(0))


def follower(rng: Drawn, *, now_ms: int = 0) -> OneNode:
    """Node 1 follows 2 in epoch 3, and has all that there is."""
    one = OneNode(lineage=((1, 0),), log_end=6, state=QuorumState(LeaderEpoch(3)), rng=rng, now_ms=now_ms)
    one.unanswered.clear()
    one.follow(3, 2)
    return one


def took(one: OneNode, role: Role) -> int:
    """How long it takes until it has that role because of the time, in ms."""
    began = one.now_ms
    one.wait_for(role)
    return one.now_ms - began


def lose(one: OneNode) -> None:
    """The others refuse what it asks them for."""
    for other in (2, 3):
        one.answer(VoteAnswer(Code.NONE, one.node.standing.leader_epoch, None), other)
    assert not one.is_in(Role.PROSPECTIVE)


def test_the_times_are_kafkas_unless_they_are_set() -> None:
    assert QuorumSettings() == QuorumSettings(
        election_timeout_ms=1_000,
        election_backoff_ms_max=1_000,
        fetch_timeout_ms=2_000,
        request_timeout_ms=2_000,
        retry_backoff_ms=20,
        fetch_wait_ms_max=500,
    )


# When it tries.


@pytest.mark.parametrize(("rng", "waits_ms"), [(LEAST, 1_000), (MOST, 2_000)])
def test_who_starts_and_reaches_nobody_waits_for_one_to_two_election_timeouts(rng: Drawn, waits_ms: int) -> None:
    assert took(OneNode(rng=rng, now_ms=7), Role.PROSPECTIVE) == waits_ms


@pytest.mark.parametrize(("rng", "waits_ms"), [(LEAST, 0), (MOST, 150)])
def test_who_starts_and_reaches_somebody_that_knows_no_leader_waits_for_150_ms_at_most(
    rng: Drawn, waits_ms: int
) -> None:
    one = OneNode(rng=rng, now_ms=7)
    one.answer(REFUSED)
    assert took(one, Role.PROSPECTIVE) == waits_ms


def test_who_reaches_somebody_late_waits_no_longer_than_it_would_have() -> None:
    one = OneNode(rng=MOST)
    one.wait(1_900)
    one.answer(REFUSED)
    assert took(one, Role.PROSPECTIVE) == 100


def test_only_the_first_one_that_is_reached_hurries_it() -> None:
    one = follower(LEAST)
    one.answer(served(3, 2, 6))
    one.ask_vote(3, 4, 1, 5)
    assert one.is_in(Role.UNATTACHED)
    one.answer(FetchAnswer(Code.NOT_LEADER_OR_FOLLOWER, LeaderEpoch(4), None, Offset(6)))
    assert took(one, Role.PROSPECTIVE) == 1_000


def test_who_led_is_not_hurried_by_whom_it_reaches_afterwards() -> None:
    one = OneNode(rng=MOST)
    one.wait_for(Role.PROSPECTIVE)
    one.vote_for_it(2)
    one.vote_for_it(2)
    assert one.is_in(Role.LEADER)
    one.open()
    assert not one.ask_vote(3, 2, 0, 0)
    one.answer(FetchAnswer(Code.NOT_LEADER_OR_FOLLOWER, LeaderEpoch(2), None, Offset(1)))
    assert took(one, Role.PROSPECTIVE) == 2_000


@pytest.mark.parametrize(("rng", "waits_ms"), [(LEAST, 1_000), (MOST, 2_000)])
def test_who_followed_and_hears_of_a_newer_epoch_waits_for_its_leader_anew(rng: Drawn, waits_ms: int) -> None:
    one = follower(rng)
    one.wait(1_500)
    assert not one.ask_vote(3, 4, 1, 5)
    assert took(one, Role.PROSPECTIVE) == waits_ms


def test_every_answer_of_the_leader_begins_the_fetch_timeout_anew() -> None:
    one = follower(MOST)
    one.wait(1_500)
    one.answer(served(3, 2, 6))
    assert took(one, Role.PROSPECTIVE) == 2_000


@pytest.mark.parametrize(("rng", "waits_ms"), [(LEAST, 0), (MOST, 50)])
def test_who_hears_that_its_leader_leads_no_more_waits_for_50_ms_at_most(rng: Drawn, waits_ms: int) -> None:
    one = follower(rng, now_ms=7)
    one.answer(FetchAnswer(Code.NOT_LEADER_OR_FOLLOWER, LeaderEpoch(3), None, Offset(6)))
    assert took(one, Role.PROSPECTIVE) == waits_ms


def test_that_its_leader_leads_no_more_makes_nobody_wait_longer() -> None:
    one = follower(MOST)
    one.wait(1_970)
    one.answer(FetchAnswer(Code.NOT_LEADER_OR_FOLLOWER, LeaderEpoch(3), None, Offset(6)))
    assert took(one, Role.PROSPECTIVE) == 30


@pytest.mark.parametrize(("rng", "waits_ms"), [(LEAST, (50, 100)), (MOST, (99, 149))])
def test_every_successor_gives_the_one_before_it_50_ms(rng: Drawn, waits_ms: tuple[int, int]) -> None:
    second, third = follower(rng, now_ms=7), follower(rng, now_ms=7)
    second.end(3, 2, 3, 1)
    third.end(3, 2, 3, 4, 1)
    assert (took(second, Role.PROSPECTIVE), took(third, Role.PROSPECTIVE)) == waits_ms


def test_who_is_no_successor_comes_after_all_of_them() -> None:
    one = follower(LEAST)
    one.end(3, 2, 3, 4)
    assert took(one, Role.PROSPECTIVE) == 100


def test_a_successor_that_was_not_told_of_its_leader_follows_it_all_the_same() -> None:
    one = OneNode(lineage=((1, 0),), log_end=6, state=QuorumState(LeaderEpoch(3)))
    assert one.end(5, 2, 1, 3) is Code.NONE
    assert (one.node.standing.role, one.node.standing.leader_epoch) == (Role.CANDIDATE, 6)


def test_a_successor_whose_disk_is_at_work_takes_no_epoch_before_it_is_done() -> None:
    one = follower(LEAST)
    one.answer(served(3, 2, 6, end=8))
    one.end(3, 2, 1, 3)
    assert one.is_in(Role.UNATTACHED)
    assert one.node.next_deadline_ms() is None, "the disk tells when it is done"
    one.append(8)
    one.wait_for(Role.PROSPECTIVE)


def test_a_resigned_leader_lets_the_others_go_first() -> None:
    one = OneNode(rng=LEAST)
    one.lead()
    one.now_ms += 3_000
    one.node.on_tick(one.now_ms)
    assert one.is_in(Role.RESIGNED)
    assert took(one, Role.PROSPECTIVE) == 1_000


def test_who_gives_its_vote_lets_the_one_who_has_it_go_first() -> None:
    one = OneNode(state=QuorumState(LeaderEpoch(3)), rng=LEAST)
    one.wait(990)
    assert one.ask_vote(2, 4, 0, 0)
    assert took(one, Role.PROSPECTIVE) == 1_000


def test_while_the_disk_is_at_work_a_lost_connection_counts_all_the_same() -> None:
    one = follower(MOST)
    one.answer(served(3, 2, 6, end=8))
    one.node.on_peer_closed(BrokerId(2), one.now_ms)
    assert one.is_in(Role.FOLLOWER)
    one.append(8)
    assert one.is_in(Role.PROSPECTIVE)


def test_the_disk_of_who_follows_nobody_makes_it_wait_no_longer() -> None:
    one = follower(LEAST)
    one.answer(served(3, 2, 6, end=8))
    one.end(3, 2, 3, 4)
    one.wait(90)
    one.append(8)
    assert took(one, Role.PROSPECTIVE) == 10


def test_a_candidate_that_is_being_removed_tries_on_until_that_is_committed() -> None:
    one = OneNode(voters=voter_set(1, 2, 3, version=1), lineage=((1, 0),), log_end=4)
    one.wait_for(Role.PROSPECTIVE)
    one.node.on_voters(voter_set(2, 3, version=1), one.now_ms, end_offset=Offset(4))
    assert one.is_in(Role.PROSPECTIVE)


@pytest.mark.parametrize("is_loaded", [True, False])
def test_however_long_a_snapshot_takes_the_leader_has_its_time_afterwards(*, is_loaded: bool) -> None:
    snapshot = SnapshotId(Offset(20), LeaderEpoch(3))
    one = follower(MOST)
    one.answer(served(3, 2, 6, snapshot=snapshot))
    one.wait(60_000)
    if is_loaded:
        one.lineage.clear()
        one.lineage.assign(snapshot.leader_epoch, snapshot.end_offset)
        one.node.on_snapshot_loaded(snapshot, one.now_ms)
    else:
        one.node.on_snapshot_failed(one.now_ms)
    assert one.is_in(Role.FOLLOWER)
    assert took(one, Role.PROSPECTIVE) == 2_000


def test_however_long_a_truncation_takes_the_leader_has_its_time_afterwards() -> None:
    one = follower(MOST)
    one.answer(served(3, 2, 6, diverging=(1, 4)))
    one.wait(60_000)
    one.lineage.truncate_from_end(Offset(4))
    one.node.on_truncated(Offset(4), one.now_ms)
    assert one.is_in(Role.FOLLOWER)
    assert took(one, Role.PROSPECTIVE) == 2_000


def test_who_waited_for_its_disk_alone_tries_as_soon_as_that_is_done() -> None:
    one = follower(LEAST)
    one.answer(served(3, 2, 6, snapshot=SnapshotId(Offset(20), LeaderEpoch(3))))
    one.end(3, 2, 3, 4)
    one.wait(60_000)
    assert one.is_in(Role.UNATTACHED)
    one.node.on_snapshot_failed(one.now_ms)
    assert one.is_in(Role.PROSPECTIVE)


# How long it asks.


@pytest.mark.parametrize(("rng", "lasts_ms"), [(LEAST, 1_000), (MOST, 2_000)])
def test_a_pre_vote_or_a_vote_that_nobody_answers_lasts_for_one_to_two_election_timeouts(
    rng: Drawn, lasts_ms: int
) -> None:
    one = OneNode(rng=rng)
    one.wait_for(Role.PROSPECTIVE)
    assert took(one, Role.UNATTACHED) == lasts_ms
    one.wait_for(Role.PROSPECTIVE)
    one.vote_for_it(2)
    assert one.is_in(Role.CANDIDATE)
    assert took(one, Role.UNATTACHED) == lasts_ms


def test_an_election_is_lost_as_soon_as_too_many_refuse() -> None:
    one = OneNode(voters=voter_set(1, 2, 3, 4, 5))
    one.wait_for(Role.PROSPECTIVE)
    for other in (2, 3):
        one.answer(VoteAnswer(Code.NONE, LeaderEpoch(0), None), other)
        assert one.is_in(Role.PROSPECTIVE), "three of five may yet be for it"
    one.answer(VoteAnswer(Code.NONE, LeaderEpoch(0), None), 4)
    assert one.is_in(Role.UNATTACHED)


@pytest.mark.parametrize(("rng", "waits_ms"), [(LEAST, [0, 0, 0, 0, 0, 0]), (MOST, [100, 200, 400, 800, 1_000, 1_000])])
def test_after_each_defeat_it_waits_up_to_twice_as_long_and_a_second_at_most(rng: Drawn, waits_ms: list[int]) -> None:
    one = OneNode(rng=rng)
    one.wait_for(Role.PROSPECTIVE)
    waited = []
    for _ in waits_ms:
        lose(one)
        waited.append(took(one, Role.PROSPECTIVE))
    assert waited == waits_ms


def test_a_leader_that_is_found_makes_up_for_the_defeats() -> None:
    one = OneNode(rng=MOST)
    one.wait_for(Role.PROSPECTIVE)
    for _ in range(3):
        lose(one)
        one.wait_for(Role.PROSPECTIVE)
    one.follow(1, 2)
    one.wait_for(Role.PROSPECTIVE)
    lose(one)
    assert took(one, Role.PROSPECTIVE) == 100


def test_an_election_that_is_won_makes_up_for_the_defeats() -> None:
    one = OneNode(rng=MOST)
    one.wait_for(Role.PROSPECTIVE)
    for _ in range(3):
        lose(one)
        one.wait_for(Role.PROSPECTIVE)
    one.lead()
    assert not one.ask_vote(3, 2, 0, 0)
    one.wait_for(Role.PROSPECTIVE)
    lose(one)
    assert took(one, Role.PROSPECTIVE) == 100


def asked_again_after(one: OneNode, target: int, times: int) -> list[int]:
    """How long it waits before it asks that node again, which never answers."""
    waited = []
    for _ in range(times):
        one.fail(target)
        waited.append(one.wait_for_request(target))
    return waited


def test_who_does_not_answer_is_asked_again_after_up_to_100_ms_while_it_is_an_election() -> None:
    one = OneNode(rng=MOST)
    one.unanswered.clear()
    one.wait_for(Role.PROSPECTIVE)
    assert asked_again_after(one, 2, 5) == [20, 40, 80, 100, 100]


def test_who_does_not_answer_a_leader_is_told_again_after_up_to_half_a_fetch_timeout() -> None:
    one = OneNode(voters=voter_set(1, 2, 3), rng=MOST)
    one.lead()
    told = []
    for _ in range(8):
        one.ask(fetch(3, 1, 1, 1))  # it is followed
        told += asked_again_after(one, 2, 1)
    assert told == [20, 40, 80, 160, 320, 640, 1_000, 1_000]


def test_who_does_not_answer_a_leader_that_ends_is_told_again_as_well() -> None:
    one = OneNode(rng=MOST)
    one.lead()
    one.unanswered.clear()
    one.node.on_resign(one.now_ms)
    one.take()
    assert asked_again_after(one, 2, 7) == [20, 40, 80, 160, 320, 640, 1_000]


def test_whoever_a_candidate_asked_may_be_no_voter_any_more() -> None:
    one = OneNode(voters=voter_set(1, 2, 3, 4))
    one.wait_for(Role.PROSPECTIVE)
    one.fail(2)
    one.node.on_voters(voter_set(1, 3, 4, version=1), one.now_ms, end_offset=Offset(0))
    one.wait(20)
    assert [request.message for request in one.ready.requests] == [
        VoteRequested(LeaderEpoch(0), key(1), key(2), LeaderEpoch(0), Offset(0), is_pre_vote=True)
    ]


def test_a_leader_that_is_being_removed_tells_nobody_where_it_listens() -> None:
    one = OneNode(voters=voter_set(1, 2, 3, version=1))
    one.lead()
    one.append(2)
    one.node.on_voters(voter_set(2, 3, version=1), one.now_ms)
    one.take()
    one.fail(2)
    one.wait(20)
    assert one.asked(2)[-1].message == EpochBegun(LeaderEpoch(1), BrokerId(1), key(2))


# Who goes first.


def test_who_is_refused_lets_nobody_wait() -> None:
    """Node 1 voted for 2 already, so 3 gets no vote, though its log has more: node 1 goes on with its pre-vote."""
    one = OneNode(state=QuorumState(LeaderEpoch(3), voted_id=BrokerId(2)))
    one.wait_for(Role.PROSPECTIVE)
    assert not one.ask_vote(3, 3, 3, 9)
    one.vote_for_it(2)
    assert one.is_in(Role.CANDIDATE)


def test_a_pre_vote_that_is_granted_changes_nothing() -> None:
    one = OneNode(state=QuorumState(LeaderEpoch(3)))
    before = one.node.canonical_key()
    assert one.ask_vote(2, 3, 9, 9, is_pre_vote=True)
    assert one.node.canonical_key() == before


def test_who_lets_another_go_first_waits_for_it_no_longer_than_its_own_election_lasts() -> None:
    one = OneNode(2, rng=LEAST)
    one.wait_for(Role.PROSPECTIVE)
    one.wait(950)
    assert one.ask_vote(1, 0, 0, 0, is_pre_vote=True)
    one.vote_for_it(1)
    assert one.is_in(Role.PROSPECTIVE)
    assert took(one, Role.CANDIDATE) == 50


def test_who_lets_another_go_first_does_so_for_100_ms() -> None:
    one = OneNode(2, rng=LEAST)
    one.wait_for(Role.PROSPECTIVE)
    one.wait(100)
    assert one.ask_vote(1, 0, 0, 0, is_pre_vote=True)
    one.vote_for_it(1)
    assert took(one, Role.CANDIDATE) == 100


def test_a_leader_grants_no_pre_vote_to_a_log_that_has_more() -> None:
    one = OneNode()
    one.lead()
    assert not one.ask_vote(2, 1, 1, 9, is_pre_vote=True)


def test_who_follows_a_leader_votes_for_nobody_else_in_its_epoch() -> None:
    one = follower(LEAST)
    assert not one.ask_vote(3, 3, 3, 9)
    assert one.node.standing.voted is None


# What is over is over.


def test_once_the_leader_stands_the_votes_for_another_election_count_no_more() -> None:
    one = follower(LEAST)
    one.node.on_peer_closed(BrokerId(2), one.now_ms)
    one.take()
    late = one.asked(3)[-1]
    one.answer(VoteAnswer(Code.NONE, LeaderEpoch(3), BrokerId(2)), 2)
    assert one.is_in(Role.FOLLOWER)
    one.node.on_answered(late.number, VoteAnswer(Code.NONE, LeaderEpoch(3), None, is_granted=True), one.now_ms)
    assert one.is_in(Role.FOLLOWER)
    assert one.node.standing.leader_id == 2

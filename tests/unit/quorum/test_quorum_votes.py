"""Who gets a vote and who a pre-vote, what is on disk before it is said, and when a node tries for itself."""

from __future__ import annotations

from uuid import UUID

import pytest

from support.worlds.quorum_node import OneNode, fetch, key, voter_set
from tidelog.base.errors import Code, InvariantBrokenError
from tidelog.base.ids import BrokerId, LeaderEpoch, Offset
from tidelog.quorum import (
    TRANSITIONS,
    EpochAnswer,
    EpochBegun,
    EpochEnded,
    FetchAnswer,
    QuorumLog,
    QuorumState,
    ReplicaKey,
    Role,
    RoleCause,
    VoteAnswer,
    Voter,
    VoteRequested,
    VoterSet,
)
from tidelog.quorum.standing import Standing
from tidelog.records.lineage import LeaderEpochLineage


def follower(*, lineage: tuple[tuple[int, int], ...] = ((1, 0), (3, 4)), log_end: int = 6) -> OneNode:
    """Node 1, which follows 2 in epoch 3, and has heard of it."""
    one = OneNode(lineage=lineage, log_end=log_end, state=QuorumState(LeaderEpoch(3)))
    one.follow(3, 2)
    return one


@pytest.mark.parametrize("role", Role)
@pytest.mark.parametrize("cause", RoleCause)
def test_roles_change_by_the_table(role: Role, cause: RoleCause) -> None:
    standing = Standing(key(1), None, QuorumLog(Offset(0), Offset(0), LeaderEpochLineage()))
    standing.role = role
    if (role, cause) in TRANSITIONS:
        standing.move(cause)
        assert standing.role is TRANSITIONS[role, cause]
    else:
        with pytest.raises(InvariantBrokenError):
            standing.move(cause)


@pytest.mark.parametrize(
    ("last_epoch", "end", "is_granted"),
    [(3, 6, True), (3, 7, True), (3, 5, False), (4, 1, True), (2, 100, False), (0, 0, False)],
)
@pytest.mark.parametrize("is_pre_vote", [False, True])
def test_votes_go_to_logs_that_have_all_that_ours_has(
    last_epoch: int, end: int, is_granted: bool, is_pre_vote: bool
) -> None:
    one = OneNode(lineage=((1, 0), (3, 4)), log_end=6, state=QuorumState(LeaderEpoch(3)))
    assert one.ask_vote(2, 4, last_epoch, end, is_pre_vote=is_pre_vote) is is_granted
    assert one.node.standing.leader_epoch == 4


def test_there_is_one_vote_an_epoch_and_it_is_to_be_saved_before_it_is_said() -> None:
    one = OneNode(state=QuorumState(LeaderEpoch(3)))
    assert one.ask_vote(2, 4, 0, 0)
    assert one.ready.state == QuorumState(LeaderEpoch(4), voted_id=BrokerId(2))
    assert not one.ask_vote(3, 4, 0, 0)
    assert one.ask_vote(2, 4, 0, 0), "asked again by whom it voted for"
    again = OneNode(state=one.saved)
    assert not again.ask_vote(3, 4, 0, 0), "a restart forgot the vote"
    assert again.ask_vote(3, 5, 0, 0)


def test_who_led_in_an_epoch_or_has_its_records_votes_for_nobody_in_it() -> None:
    led = OneNode(state=QuorumState(LeaderEpoch(3), leader_id=BrokerId(1)))
    assert not led.ask_vote(2, 3, 9, 9)
    older_file = OneNode(lineage=((5, 0),), log_end=1, state=QuorumState(LeaderEpoch(3)))
    assert not older_file.ask_vote(2, 5, 9, 9)
    assert older_file.node.standing.leader_epoch == 5


def test_whom_it_voted_for_in_an_epoch_stays_so_though_it_has_records_of_it() -> None:
    one = OneNode(lineage=((3, 0),), log_end=1, state=QuorumState(LeaderEpoch(3), voted_id=BrokerId(2)))
    assert one.ask_vote(2, 3, 9, 9)
    assert not one.ask_vote(3, 3, 9, 9)


def test_a_log_of_one_record_is_saved_as_one_that_has_some() -> None:
    assert OneNode(lineage=((1, 0),), log_end=1).ready.state == QuorumState(
        LeaderEpoch(1), voted_id=BrokerId(1), has_records=True
    )


def test_a_vote_is_asked_for_where_nothing_is_said_of_a_pre_vote() -> None:
    one = OneNode(state=QuorumState(LeaderEpoch(3)))
    one.ask(VoteRequested(LeaderEpoch(4), key(2), key(1), LeaderEpoch(0), Offset(0)))
    assert one.saved == QuorumState(LeaderEpoch(4), voted_id=BrokerId(2))


def test_a_node_that_was_just_made_has_voted_for_nobody() -> None:
    assert OneNode().node.standing.voted is None


def test_a_pre_vote_is_no_vote() -> None:
    one = OneNode(state=QuorumState(LeaderEpoch(3)))
    assert one.ask_vote(2, 3, 0, 0, is_pre_vote=True)
    assert one.ask_vote(3, 3, 0, 0, is_pre_vote=True)
    assert one.saved == QuorumState(LeaderEpoch(3))
    assert one.ask_vote(3, 4, 0, 0)


def test_who_hears_of_its_leader_grants_no_pre_vote() -> None:
    one = follower()
    assert not one.ask_vote(3, 3, 3, 6, is_pre_vote=True)
    one.node.on_peer_closed(BrokerId(3), one.now_ms)
    assert not one.ask_vote(3, 3, 3, 6, is_pre_vote=True), "that was not its leader"


def test_who_lost_the_connection_to_its_leader_grants_one_and_asks_for_one_at_once() -> None:
    one = follower()
    one.node.on_peer_closed(BrokerId(2), one.now_ms)
    one.take()
    assert one.is_in(Role.PROSPECTIVE)
    assert {asked.target for asked in one.ready.requests} == {2, 3}
    assert all(isinstance(asked.message, VoteRequested) and asked.message.is_pre_vote for asked in one.ready.requests)
    assert one.ask_vote(3, 3, 3, 6, is_pre_vote=True)


def test_a_refused_pre_vote_leaves_everything_as_it_was() -> None:
    one = follower()
    one.node.on_peer_closed(BrokerId(2), one.now_ms)
    one.take()
    one.answer(VoteAnswer(Code.NONE, LeaderEpoch(3), BrokerId(2)), 2)  # by the leader itself
    assert (one.node.standing.role, one.node.standing.leader_epoch, one.node.standing.leader_id) == (
        Role.FOLLOWER,
        3,
        2,
    )
    assert [asked.target for asked in one.ready.requests] == [2], "it fetches again"
    assert not one.ask_vote(3, 3, 3, 6, is_pre_vote=True), "it has heard of the leader"


def test_silence_of_the_leader_ends_with_the_fetch_time_out() -> None:
    one = follower()
    one.wait(1_999)
    assert one.is_in(Role.FOLLOWER)
    one.wait(1)
    assert one.is_in(Role.PROSPECTIVE)


def test_whose_leader_is_silent_for_the_fetch_time_out_grants_a_pre_vote() -> None:
    one = follower()
    one.now_ms += 1_999
    assert not one.ask_vote(3, 3, 3, 6, is_pre_vote=True)
    one.now_ms += 1
    assert one.ask_vote(3, 3, 3, 6, is_pre_vote=True)


def test_nobody_follows_the_leader_of_an_older_epoch() -> None:
    one = OneNode(state=QuorumState(LeaderEpoch(3)))
    one.answer(FetchAnswer(Code.UNKNOWN_LEADER_EPOCH, LeaderEpoch(2), BrokerId(2), Offset(0)))
    assert (one.node.standing.role, one.node.standing.leader_id) == (Role.UNATTACHED, None)


def test_while_the_disk_is_at_work_the_leader_is_not_silent() -> None:
    one = follower()
    one.answer(FetchAnswer(Code.NONE, LeaderEpoch(3), BrokerId(2), Offset(6), end_offset=Offset(8)))
    assert one.ready.append is not None
    one.wait(60_000)
    assert one.is_in(Role.FOLLOWER)
    one.append(8)
    one.wait(1_999)
    assert one.is_in(Role.FOLLOWER)
    one.wait(1)
    assert one.is_in(Role.PROSPECTIVE)


def test_a_majority_makes_a_candidate_and_another_one_a_leader() -> None:
    one = OneNode(voters=voter_set(1, 2, 3, 4, 5), lineage=((1, 0),), log_end=2)
    one.wait_for(Role.PROSPECTIVE)
    epoch = one.node.standing.leader_epoch
    one.vote_for_it(2)
    assert one.is_in(Role.PROSPECTIVE)
    one.vote_for_it(3)
    assert (one.node.standing.role, one.node.standing.leader_epoch) == (Role.CANDIDATE, epoch + 1)
    assert one.saved == QuorumState(LeaderEpoch(epoch + 1), voted_id=BrokerId(1), has_records=True)
    one.vote_for_it(4)
    assert one.is_in(Role.CANDIDATE)
    one.vote_for_it(5)
    assert one.is_in(Role.LEADER)
    assert one.saved == QuorumState(
        LeaderEpoch(epoch + 1), leader_id=BrokerId(1), voted_id=BrokerId(1), has_records=True
    )
    change = one.ready.leader_change
    assert change is not None
    assert (change.leader_epoch, change.leader_id) == (epoch + 1, 1)
    assert change.granting_voters == (key(1), key(4), key(5))
    begun = [asked.message for asked in one.ready.requests]
    assert len(begun) == 4
    assert all(isinstance(message, EpochBegun) for message in begun)


def test_a_vote_counts_only_in_the_election_that_it_was_asked_in() -> None:
    one = OneNode()
    one.wait_for(Role.PROSPECTIVE)
    asked = one.asked(2)[-1]
    one.node.on_answered(asked.number, VoteAnswer(Code.NONE, LeaderEpoch(7), None), one.now_ms)
    one.take()
    assert (one.node.standing.role, one.node.standing.leader_epoch) == (Role.UNATTACHED, 7)
    one.node.on_answered(asked.number, VoteAnswer(Code.NONE, LeaderEpoch(7), None, is_granted=True), one.now_ms)
    one.wait_for(Role.PROSPECTIVE)
    one.node.on_answered(asked.number, VoteAnswer(Code.NONE, LeaderEpoch(7), None, is_granted=True), one.now_ms)
    assert one.is_in(Role.PROSPECTIVE)


def test_a_lost_election_is_tried_again_after_a_random_while() -> None:
    one = OneNode()
    one.wait_for(Role.PROSPECTIVE)
    one.vote_for_it(2)
    for other in (2, 3):
        one.answer(VoteAnswer(Code.NONE, LeaderEpoch(1), None), other)
    assert (one.node.standing.role, one.node.standing.leader_epoch) == (Role.UNATTACHED, 1)
    began = one.now_ms
    one.wait_for(Role.PROSPECTIVE)
    assert one.now_ms - began <= 1_000
    assert one.node.standing.leader_epoch == 1, "a pre-vote takes no epoch"


def test_of_two_that_ask_each_other_at_once_one_goes_first() -> None:
    for number, other, expected in ((1, 2, Role.CANDIDATE), (2, 1, Role.PROSPECTIVE)):
        one = OneNode(number)
        one.wait_for(Role.PROSPECTIVE)
        assert one.ask_vote(other, 0, 0, 0, is_pre_vote=True)
        one.vote_for_it(other)
        assert one.is_in(expected)
        one.wait(100)
        assert one.is_in(Role.CANDIDATE), "the other one did not make it"


def test_the_first_successor_asks_for_votes_at_once_and_the_others_after_it() -> None:
    first = follower()
    assert first.end(3, 2, 1, 3) is Code.NONE
    assert (first.node.standing.role, first.node.standing.leader_epoch) == (Role.CANDIDATE, 4)
    assert {asked.target for asked in first.ready.requests} == {2, 3}
    second = follower()
    assert second.end(3, 2, 3, 1) is Code.NONE
    assert (second.node.standing.role, second.node.standing.leader_id) == (Role.UNATTACHED, None)
    second.wait_for(Role.PROSPECTIVE)
    assert second.now_ms >= 50
    assert second.end(3, 2, 1) is Code.NONE, "a duplicate changes nothing"
    assert second.is_in(Role.PROSPECTIVE)


def test_nobody_follows_a_leader_again_that_said_it_leads_no_more() -> None:
    one = follower()
    one.end(3, 2, 3, 1)
    assert one.begin(3, 2) is Code.NONE  # sent before, and overtaken
    assert one.node.standing.leader_id is None
    one.answer(FetchAnswer(Code.NOT_LEADER_OR_FOLLOWER, LeaderEpoch(3), BrokerId(2), Offset(6)))
    assert one.node.standing.leader_id is None
    one.wait_for(Role.PROSPECTIVE)
    assert one.begin(3, 2) is Code.NONE
    one.vote_for_it(3)
    assert one.is_in(Role.CANDIDATE), "it lets nothing stand in its way"


def test_a_leader_that_says_so_in_an_answer_is_left_as_well() -> None:
    one = follower()
    one.answer(FetchAnswer(Code.NOT_LEADER_OR_FOLLOWER, LeaderEpoch(3), None, Offset(6)))
    assert one.is_in(Role.UNATTACHED)
    one.wait(50)
    assert one.is_in(Role.PROSPECTIVE)


def test_requests_of_older_epochs_or_for_another_directory_are_refused() -> None:
    one = follower()
    assert one.begin(2, 3) is Code.FENCED_LEADER_EPOCH
    assert one.end(2, 3) is Code.FENCED_LEADER_EPOCH
    old = one.ask(VoteRequested(LeaderEpoch(2), key(3), one.node.key, LeaderEpoch(9), Offset(9)))
    assert old == VoteAnswer(Code.FENCED_LEADER_EPOCH, LeaderEpoch(3), BrokerId(2))
    assert one.begin(3, 3) is Code.INVALID_REQUEST, "two lead in one epoch, says somebody"
    directory, other = UUID(int=1), UUID(int=2)
    with_directory = OneNode()
    with_directory.node.key = ReplicaKey(BrokerId(1), directory)
    with_directory.node.standing.key = with_directory.node.key
    for message in (
        VoteRequested(LeaderEpoch(5), key(3), ReplicaKey(BrokerId(1), other), LeaderEpoch(9), Offset(9)),
        VoteRequested(LeaderEpoch(5), key(3), ReplicaKey(BrokerId(2)), LeaderEpoch(9), Offset(9)),
        EpochBegun(LeaderEpoch(5), BrokerId(3), ReplicaKey(BrokerId(1), other)),
    ):
        refused = with_directory.ask(message)
        assert isinstance(refused, VoteAnswer | EpochAnswer)
        assert refused.code is Code.INVALID_VOTER_KEY
        assert with_directory.node.standing.leader_epoch == 0, "a refusal changes nothing"


def test_the_first_election_comes_soon_after_somebody_was_reached() -> None:
    one = OneNode()
    one.fail()
    one.wait(20)
    one.answer(FetchAnswer(Code.NOT_LEADER_OR_FOLLOWER, LeaderEpoch(0), None, Offset(0)))
    began = one.now_ms
    one.wait_for(Role.PROSPECTIVE)
    assert one.now_ms - began <= 150


def test_a_stopping_node_tries_nothing() -> None:
    one = follower()
    one.node.on_resign(one.now_ms)
    one.node.on_peer_closed(BrokerId(2), one.now_ms)
    one.wait(100_000)
    assert one.is_in(Role.FOLLOWER)
    candidate = OneNode()
    candidate.wait_for(Role.PROSPECTIVE)
    candidate.node.on_resign(candidate.now_ms)
    assert candidate.is_in(Role.UNATTACHED), "at once"
    candidate.wait(100_000)
    assert candidate.is_in(Role.UNATTACHED)


def test_a_leader_that_stops_tells_the_voters_who_has_most() -> None:
    one = OneNode(voters=voter_set(1, 2, 3))
    one.lead()
    one.append(5)
    one.ask(fetch(2, 1, 3, 1))
    one.ask(fetch(3, 1, 5, 1))
    one.node.on_resign(one.now_ms)
    ended = {int(asked.target): asked.message for asked in one.take().requests}
    assert set(ended) == {2, 3}
    assert isinstance(ended[2], EpochEnded)
    assert ended[2].preferred == (key(3), key(2))
    assert one.is_in(Role.RESIGNED)
    assert one.node.standing.leader_id is None
    assert not one.ask_vote(2, 1, 9, 9), "it voted for itself in that epoch"
    one.wait(100_000)
    assert one.is_in(Role.RESIGNED)


def test_an_observer_never_tries() -> None:
    one = OneNode(4)
    one.wait(100_000)
    assert one.is_in(Role.UNATTACHED)
    one.follow(3, 2)
    one.node.on_peer_closed(BrokerId(2), one.now_ms)
    one.wait(100_000)
    assert one.is_in(Role.FOLLOWER)


def test_what_a_new_leader_says_names_whom_it_is_meant_for_and_where_it_listens() -> None:
    voters = VoterSet(
        tuple(Voter(ReplicaKey(BrokerId(one), UUID(int=one)), (("C", f"node-{one}", 9093),)) for one in (1, 2, 3)), 1
    )
    one = OneNode(voters=voters)
    one.lead()
    begun = next(asked.message for asked in one.asked(3) if isinstance(asked.message, EpochBegun))
    assert begun == EpochBegun(
        LeaderEpoch(1), BrokerId(1), ReplicaKey(BrokerId(3), UUID(int=3)), (("C", "node-1", 9093),)
    )


def test_who_refuses_to_be_told_is_told_again_later() -> None:
    one = OneNode()
    one.lead()
    one.answer(EpochAnswer(Code.INVALID_VOTER_KEY, LeaderEpoch(1), BrokerId(1)), 3)
    assert not one.ready.requests
    assert one.node.next_deadline_ms() == one.now_ms + 20
    one.wait(20)
    assert [asked.target for asked in one.ready.requests] == [3]


def test_a_voter_that_does_not_answer_is_asked_again_soon() -> None:
    one = OneNode()
    one.wait_for(Role.PROSPECTIVE)
    one.fail(2)
    assert one.node.next_deadline_ms() == one.now_ms + 20
    one.wait(20)
    assert [asked.target for asked in one.ready.requests] == [2]


def test_a_refusal_with_a_code_is_no_vote() -> None:
    one = OneNode()
    one.wait_for(Role.PROSPECTIVE)
    for other in (2, 3):
        one.answer(VoteAnswer(Code.INVALID_VOTER_KEY, LeaderEpoch(0), None, is_granted=True), other)
    assert one.is_in(Role.UNATTACHED)


def test_who_gave_its_vote_waits_for_the_one_who_has_it() -> None:
    one = OneNode(state=QuorumState(LeaderEpoch(3)))
    one.wait(999)
    assert one.ask_vote(2, 4, 0, 0)
    one.wait(999)
    assert one.is_in(Role.UNATTACHED)


def test_newer_epochs_one_after_the_other_do_not_keep_it_from_trying() -> None:
    one = OneNode(lineage=((1, 0),), log_end=5)
    has_tried = False
    for epoch in range(2, 6):
        assert not one.ask_vote(2, epoch, 1, 4), "its log has less than ours"
        one.wait(501)
        has_tried = has_tried or one.is_in(Role.PROSPECTIVE)
    assert has_tried


def test_another_than_its_leader_cannot_end_the_epoch() -> None:
    one = follower()
    assert one.end(3, 3, 1) is Code.INVALID_REQUEST
    assert one.node.standing.leader_id == 2
    leading = OneNode()
    leading.lead()
    assert leading.end(1, 1, 2) is Code.INVALID_REQUEST
    assert leading.is_in(Role.LEADER)


def test_who_led_succeeds_nobody_in_its_own_epoch() -> None:
    resigned = OneNode()
    resigned.lead()
    resigned.wait(3_000)
    assert resigned.is_in(Role.RESIGNED)
    resigned.end(1, 2, 1)  # nobody else led in it
    assert resigned.is_in(Role.RESIGNED)


def test_who_is_refused_by_the_others_follows_on_and_believes_its_closed_connection() -> None:
    one = OneNode(
        voters=voter_set(1, 2, 3, 4, 5), lineage=((1, 0), (3, 4)), log_end=6, state=QuorumState(LeaderEpoch(3))
    )
    one.follow(3, 2)
    one.node.on_peer_closed(BrokerId(2), one.now_ms)
    one.take()
    for other in (3, 4, 5):
        one.answer(VoteAnswer(Code.NONE, LeaderEpoch(3), BrokerId(2)), other)
    assert one.is_in(Role.FOLLOWER)
    assert one.node.standing.leader_id == 2
    assert one.ask_vote(3, 3, 3, 6, is_pre_vote=True), "nothing was heard of the leader since"
    one.wait_for(Role.PROSPECTIVE)
    assert one.now_ms <= 1_000, "nor is it waited for as long as for silence"


def test_who_hears_from_others_who_leads_gives_it_the_fetch_time_out() -> None:
    one = OneNode(state=QuorumState(LeaderEpoch(3)))
    one.wait(990)
    one.answer(FetchAnswer(Code.NOT_LEADER_OR_FOLLOWER, LeaderEpoch(3), BrokerId(2), Offset(0)))
    assert one.is_in(Role.FOLLOWER)
    one.wait(1_999)
    assert one.is_in(Role.FOLLOWER)
    one.wait(1)
    assert one.is_in(Role.PROSPECTIVE)


def test_a_candidate_that_is_no_voter_any_more_tries_no_more() -> None:
    one = OneNode(lineage=((1, 0),), log_end=4)
    one.wait_for(Role.PROSPECTIVE)
    one.node.on_voters(voter_set(2, 3, version=1), one.now_ms, end_offset=Offset(0))
    assert one.is_in(Role.UNATTACHED)
    one.wait(100_000)
    assert one.is_in(Role.UNATTACHED)

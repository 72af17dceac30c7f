"""What is committed, who is told when, and which fetches wait (KIP-1166)."""

from __future__ import annotations

from dataclasses import replace
from uuid import UUID

import pytest

from support.worlds.quorum_node import OneNode, fetch, key, served, voter_set
from tidelog.base.errors import Code, InvariantBrokenError
from tidelog.base.ids import BrokerId, LeaderEpoch, Offset
from tidelog.quorum import (
    Answer,
    EpochAnswer,
    EpochEnded,
    FetchAnswer,
    QuorumFetch,
    QuorumState,
    ReplicaDescription,
    ReplicaKey,
    Role,
    SnapshotId,
    VoteAnswer,
    Voter,
    VoterSet,
)
from tidelog.quorum.leader_state import PARKED_MAX


def leader(*, log_end: int = 4, commit: bool = True) -> OneNode:
    """Node 1 leads epoch 3 from offset 4 on; replica 2 has it all, so that 5 is committed."""
    one = OneNode(lineage=((1, 0), (2, 2)), log_end=log_end, state=QuorumState(LeaderEpoch(2)))
    assert one.lead() == log_end
    assert one.node.standing.leader_epoch == 3
    if commit:
        assert one.ask(fetch(2, 3, log_end + 1, 3)) == served(3, 1, log_end + 1, high_watermark=log_end + 1)
        assert one.node.high_watermark == log_end + 1
    return one


def test_nothing_is_committed_before_a_record_of_the_epoch_is() -> None:
    one = leader(commit=False)
    assert one.ask(fetch(2, 3, 4, 2)) == served(3, 1, 4), "all of the older epochs is on two of three, and may yet go"
    assert one.node.high_watermark is None
    assert not one.node.is_active
    assert one.ask(fetch(3, 3, 5, 3)) == served(3, 1, 5, high_watermark=5)
    assert one.node.is_active


def test_the_leader_counts_what_is_on_its_disk_and_followers_may_be_ahead_of_it() -> None:
    one = leader()
    one.append(7, is_synced=False)
    one.ask(fetch(2, 3, 7, 3))
    assert one.node.high_watermark == 5
    one.ask(fetch(3, 3, 6, 3))
    assert one.node.high_watermark == 6, "two of three have it; the leader is the third"
    one.node.on_synced(Offset(7), one.now_ms)
    assert one.node.high_watermark == 7


def test_observers_commit_nothing() -> None:
    one = leader()
    one.append(7)
    for observer in (4, 5, 6):
        one.ask(fetch(observer, 3, 7, 3))
    assert one.node.high_watermark == 5


@pytest.mark.parametrize(
    ("told", "tells", "waits"),
    [
        (None, True, False),  # -1: it knows none
        (4, True, False),
        (5, True, True),
        (6, True, True),
        (None, False, True),  # Fetch 17: the field is absent, and means the largest int64
    ],
)
def test_an_empty_answer_waits_unless_it_has_news_of_the_high_watermark(
    told: int | None, tells: bool, waits: bool
) -> None:
    one = leader()
    answer = one.ask(fetch(3, 3, 5, 3, told, tells=tells))
    assert answer == (None if waits else served(3, 1, 5, high_watermark=5))


def test_a_leader_that_knows_no_high_watermark_has_none_to_tell() -> None:
    one = leader(commit=False)
    assert one.ask(fetch(3, 3, 5, 3)) is not None  # which commits it
    unknowing = leader(commit=False)
    unknowing.append(6, is_synced=False)
    assert unknowing.ask(fetch(4, 3, 6, 3)) is None


def test_every_move_of_the_high_watermark_completes_those_that_know_an_older_one() -> None:
    one = leader()
    one.append(6)
    older = one.ask(fetch(4, 3, 6, 3, 5)), one.ticket
    newer = one.ask(fetch(5, 3, 6, 3, 6)), one.ticket
    silent = one.ask(fetch(6, 3, 6, 3, tells=False)), one.ticket
    assert [older[0], newer[0], silent[0]] == [None, None, None]
    one.ask(fetch(2, 3, 6, 3, 5))
    done = {reply.ticket: reply.answer for reply in one.ready.replies}
    assert done == {older[1]: served(3, 1, 6, high_watermark=6), one.ticket: served(3, 1, 6, high_watermark=6)}
    one.append(7)
    assert {reply.ticket for reply in one.ready.replies} == {newer[1], silent[1]}, "records are news to everybody"


def test_a_fetch_that_waited_its_time_out_is_told_what_holds_then() -> None:
    one = leader()
    assert one.ask(fetch(4, 3, 5, 3, tells=False, wait_ms=500)) is None
    ticket = one.ticket
    one.wait(499)
    assert not one.ready.replies
    one.append(6, is_synced=False)
    assert [reply.answer for reply in one.ready.replies if reply.ticket == ticket] == [
        served(3, 1, 5, high_watermark=5)
    ]
    assert one.ask(fetch(4, 3, 6, 3, 5, wait_ms=500)) is None
    deadline_ms = one.node.next_deadline_ms()
    assert deadline_ms is not None
    assert deadline_ms <= one.now_ms + 500
    one.wait(500)
    assert [reply.answer for reply in one.ready.replies] == [served(3, 1, 6, high_watermark=5)]
    assert one.ask(fetch(4, 3, 6, 3, 5, wait_ms=0)) == served(3, 1, 6, high_watermark=5), "who does not wait"


def test_each_waits_as_long_as_it_said() -> None:
    one = leader()
    for replica, wait_ms in ((4, 300), (5, 100), (6, 200)):
        assert one.ask(fetch(replica, 3, 5, 3, 5, wait_ms=wait_ms)) is None
    answered = []
    for _ in range(3):
        deadline_ms = one.node.next_deadline_ms()
        assert deadline_ms is not None
        before = one.now_ms
        answered += [(one.now_ms - before, reply.ticket) for reply in one.wait(deadline_ms - before).replies]
    tickets = [ticket for _, ticket in answered]
    assert tickets == [one.ticket - 1, one.ticket, one.ticket - 2]
    assert [took for took, _ in answered] == [100, 100, 100]


def test_a_sync_that_commits_nothing_is_no_news() -> None:
    one = leader()
    one.append(6, is_synced=False)
    assert one.ask(fetch(4, 3, 6, 3, 5)) is None
    one.node.on_synced(Offset(6), one.now_ms)
    assert not one.take().replies


def test_a_voter_that_asks_for_less_than_it_had_takes_nothing_back() -> None:
    one = leader()
    one.append(6)
    one.ask(fetch(2, 3, 6, 3))
    assert one.ask(fetch(2, 3, 5, 3, 5)) == served(3, 1, 5, high_watermark=6)
    assert one.ask(fetch(3, 3, 5, 3, 5)) == served(3, 1, 5, high_watermark=6)


def test_with_configured_voters_a_directory_makes_no_difference() -> None:
    one = leader(commit=False)
    with_directory = fetch(2, 3, 5, 3)
    with_directory = replace(with_directory, replica=ReplicaKey(BrokerId(2), UUID(int=5)))
    one.ask(with_directory)
    assert one.node.high_watermark == 5
    directories = VoterSet(tuple(Voter(ReplicaKey(BrokerId(one), UUID(int=one))) for one in (1, 2)), 1)
    other = OneNode(voters=directories)
    other.lead()
    other.ask(replace(fetch(2, 1, 1, 1), replica=ReplicaKey(BrokerId(2), UUID(int=9))))
    assert other.node.high_watermark is None, "it lost the directory that votes"
    assert [row.key.directory_id for row in other.node.describe().observers] == [UUID(int=9)]


def test_a_directory_that_does_not_vote_makes_no_majority() -> None:
    directories = VoterSet(tuple(Voter(ReplicaKey(BrokerId(one), UUID(int=one))) for one in (1, 2)), 1)
    one = OneNode(voters=directories)
    one.lead()
    for _ in range(2):
        one.wait(1_500)
        one.ask(replace(fetch(2, 1, 1, 1), replica=ReplicaKey(BrokerId(2), UUID(int=9))))
    assert one.is_in(Role.RESIGNED)


def test_of_two_processes_with_the_id_of_a_configured_voter_one_counts_as_long_as_it_is_heard_of() -> None:
    one = leader(commit=False)

    def fetched(directory: int, offset: int, last_epoch: int, known: int | None = None) -> Answer | None:
        replica = ReplicaKey(BrokerId(2), UUID(int=directory))
        return one.ask(replace(fetch(2, 3, offset, last_epoch, known), replica=replica))

    fetched(5, 4, 2)
    assert fetched(6, 5, 3) is None, "it is served as an observer, and waits"
    assert one.node.high_watermark is None, "what the voter has not got, the other cannot commit in its place"
    assert fetched(5, 5, 3) == served(3, 1, 5, high_watermark=5)
    assert fetched(5, 5, 3, 5) is None
    assert fetched(6, 5, 3, 5) is None
    assert len(one.ready.replies) == 0, "neither takes the place of the other"
    assert [row.key.directory_id for row in one.node.describe().observers] == [UUID(int=6)]
    one.now_ms += one.node._settings.fetch_timeout_ms - 1
    one.append(6)
    fetched(6, 6, 3)
    assert one.node.high_watermark == 5
    one.now_ms += 1
    fetched(6, 6, 3)
    assert one.node.high_watermark == 6, "the first one is gone: its place may have been taken after its disk was lost"
    assert not one.node.describe().observers


def test_a_configured_voter_that_tells_no_directory_is_still_the_one_that_told_one() -> None:
    one = leader(commit=False)
    one.ask(replace(fetch(2, 3, 4, 2), replica=ReplicaKey(BrokerId(2), UUID(int=5))))
    assert one.ask(fetch(2, 3, 5, 3)) == served(3, 1, 5, high_watermark=5)
    assert one.node.leading is not None
    assert one.node.leading.directory_of(BrokerId(2)) == UUID(int=5)
    one.now_ms += 2_000
    one.ask(fetch(2, 3, 5, 3, 5))
    assert one.node.leading.directory_of(BrokerId(2)) == UUID(int=5)


def test_who_takes_the_place_of_a_configured_voter_that_is_gone_has_nothing_of_what_that_had() -> None:
    one = leader(commit=False)
    one.ask(replace(fetch(2, 3, 5, 3), replica=ReplicaKey(BrokerId(2), UUID(int=5))))
    assert one.node.describe().voters[1].log_end_offset == 5
    one.now_ms += 2_000
    one.node.on_snapshot_request(ReplicaKey(BrokerId(2), UUID(int=6)), LeaderEpoch(3), one.now_ms)
    assert one.node.describe().voters[1].log_end_offset is None
    assert not one.node.describe().observers


def test_a_newer_fetch_of_a_replica_takes_the_place_of_its_older_one() -> None:
    one = leader()
    assert one.ask(fetch(4, 3, 5, 3, 5)) is None
    first = one.ticket
    assert one.ask(fetch(4, 3, 5, 3, 5)) is None
    assert [reply.ticket for reply in one.ready.replies] == [first]
    one.node.on_requester_disconnected(one.ticket)
    one.append(6)
    assert not one.ready.replies


def test_waiting_fetches_are_bounded() -> None:
    one = leader()
    assert one.ask(fetch(4, 3, 5, 3, 5)) is None
    assert one.node.leading is not None
    parked = one.node.leading._parked[key(4)]
    one.node.leading._parked |= {key(number): parked for number in range(100, 99 + PARKED_MAX)}
    assert one.ask(fetch(5, 3, 5, 3, 5)) == served(3, 1, 5, high_watermark=5)


def test_who_diverges_is_told_at_once_and_proves_nothing() -> None:
    one = leader(commit=False)
    for offset, last_epoch, end in ((9, 3, (3, 5)), (4, 1, (1, 2)), (3, 1, (1, 2))):
        assert one.ask(fetch(2, 3, offset, last_epoch)) == served(3, 1, offset, diverging=end)
    assert one.node.high_watermark is None
    assert one.node.describe().voters[1].log_end_offset is None


def test_who_fetches_from_before_the_log_start_is_told_the_snapshot() -> None:
    snapshot = SnapshotId(Offset(4), LeaderEpoch(2))
    one = OneNode(lineage=((2, 4),), log_end=6, log_start=4, snapshot=snapshot, state=QuorumState(LeaderEpoch(2)))
    one.lead()
    assert one.ask(fetch(2, 3, 0, 0)) == served(3, 1, 0, snapshot=snapshot)
    assert len(one.ready.replies) == 1
    assert one.ask(fetch(2, 3, 5, 1)) == served(3, 1, 5, snapshot=snapshot), "nobody can tell where epoch 1 ended"
    assert one.node.on_snapshot_request(key(2), LeaderEpoch(3), one.now_ms) is Code.NONE
    assert one.node.on_snapshot_request(key(2), LeaderEpoch(2), one.now_ms) is Code.FENCED_LEADER_EPOCH
    assert one.ask(fetch(2, 3, 4, 2)) is not None, "who has loaded it goes on from there"
    assert one.node.describe().voters[1].log_end_offset == 4


@pytest.mark.parametrize(("epoch", "code"), [(2, Code.FENCED_LEADER_EPOCH), (4, Code.UNKNOWN_LEADER_EPOCH)])
def test_a_fetch_of_another_epoch_proves_nothing_and_moves_nobody(epoch: int, code: Code) -> None:
    one = leader(commit=False)
    assert one.ask(fetch(2, epoch, 5, 3)) == FetchAnswer(code, LeaderEpoch(3), BrokerId(1), Offset(5))
    assert one.node.high_watermark is None
    assert one.is_in(Role.LEADER)


def test_who_does_not_lead_says_who_does() -> None:
    one = OneNode(state=QuorumState(LeaderEpoch(3)))
    nobody = FetchAnswer(Code.NOT_LEADER_OR_FOLLOWER, LeaderEpoch(3), None, Offset(5))
    assert one.ask(fetch(3, 3, 5, 3)) == nobody
    one.follow(3, 2)
    assert one.ask(fetch(3, 3, 5, 3)) == FetchAnswer(
        Code.NOT_LEADER_OR_FOLLOWER, LeaderEpoch(3), BrokerId(2), Offset(5)
    )


def test_fetches_wait_for_the_epoch_to_be_open_and_are_judged_then() -> None:
    one = OneNode(lineage=((1, 0),), log_end=4, state=QuorumState(LeaderEpoch(2)))
    one.wait_for(Role.PROSPECTIVE)
    one.vote_for_it(2, 3)
    one.vote_for_it(2, 3)
    assert one.ask(fetch(2, 3, 6, 2)) is None, "epoch 2 is unknown here; where it diverges the lineage will tell"
    ticket = one.ticket
    start = one.node.log.log_end_offset
    one.lineage.assign(LeaderEpoch(3), start)
    one.node.on_epoch_opened(start, one.now_ms)
    assert one.answer_to(ticket) == served(3, 1, 6, diverging=(1, 4))


def test_a_sync_of_what_was_there_before_commits_nothing_before_the_epoch_is_open() -> None:
    one = OneNode(lineage=((1, 0),), log_end=4, state=QuorumState(LeaderEpoch(2)))
    one.wait_for(Role.PROSPECTIVE)
    one.vote_for_it(2, 3)
    one.vote_for_it(2, 3)
    one.node.on_synced(Offset(4), one.now_ms)
    assert one.is_in(Role.LEADER)
    assert one.node.high_watermark is None


def test_a_fetch_that_waits_for_the_epoch_to_be_open_waits_for_no_time() -> None:
    one = OneNode(lineage=((1, 0),), log_end=4, state=QuorumState(LeaderEpoch(2)))
    one.wait_for(Role.PROSPECTIVE)
    one.vote_for_it(2, 3)
    one.vote_for_it(2, 3)
    before = one.node.next_deadline_ms()
    assert one.ask(fetch(4, 3, 4, 1, wait_ms=1)) is None
    assert one.node.next_deadline_ms() == before


def test_whoever_loads_a_snapshot_follows() -> None:
    one = leader()
    for _ in range(5):
        one.wait(1_000)
        assert one.node.on_snapshot_request(key(2), LeaderEpoch(3), one.now_ms) is Code.NONE
    assert one.is_in(Role.LEADER)


def test_a_fetch_that_was_not_judged_yet_gets_no_records() -> None:
    one = OneNode(lineage=((1, 0),), log_end=4, state=QuorumState(LeaderEpoch(2)))
    one.wait_for(Role.PROSPECTIVE)
    one.vote_for_it(2, 3)
    one.vote_for_it(2, 3)
    assert one.ask(fetch(2, 3, 2, 2)) is None
    first = one.ticket
    assert one.ask(fetch(2, 3, 2, 2)) is None
    told = {reply.ticket: reply.answer for reply in one.ready.replies}
    assert told == {first: FetchAnswer(Code.NOT_LEADER_OR_FOLLOWER, LeaderEpoch(3), BrokerId(1), Offset(2))}


def test_those_who_wait_are_told_when_somebody_else_leads() -> None:
    one = leader()
    assert one.ask(fetch(4, 3, 5, 3, 5)) is None
    ticket = one.ticket
    assert one.begin(4, 2) is Code.NONE
    told = [reply.answer for reply in one.ready.replies if reply.ticket == ticket]
    assert told == [FetchAnswer(Code.FENCED_LEADER_EPOCH, LeaderEpoch(4), BrokerId(2), Offset(5))]
    assert one.is_in(Role.FOLLOWER)


def test_a_leader_that_hears_of_a_newer_epoch_leads_no_more_and_tells_who_waits() -> None:
    one = leader()
    assert one.ask(fetch(4, 3, 5, 3, 5)) is None
    ticket = one.ticket
    request = one.asked(3)[-1]
    one.node.on_answered(request.number, EpochAnswer(Code.FENCED_LEADER_EPOCH, LeaderEpoch(5), None), one.now_ms)
    assert one.answer_to(ticket) == FetchAnswer(Code.FENCED_LEADER_EPOCH, LeaderEpoch(5), None, Offset(5))
    assert one.is_in(Role.UNATTACHED)
    assert one.node.high_watermark == 5, "what is committed stays so"


def test_a_leader_without_a_fetching_majority_resigns() -> None:
    one = leader()
    one.wait(2_999)
    assert one.is_in(Role.LEADER)
    one.ask(fetch(3, 3, 9, 9))
    one.wait(2_999)
    assert one.is_in(Role.LEADER), "who diverges follows all the same"
    one.ask(fetch(4, 3, 5, 3))
    one.wait(1)
    assert one.is_in(Role.RESIGNED), "an observer is no majority"
    one.wait_for(Role.PROSPECTIVE)


def test_a_leader_that_resigns_tells_those_who_wait_and_all_voters_at_once() -> None:
    one = leader()
    one.unanswered.clear()
    assert one.ask(fetch(4, 3, 5, 3, 5, wait_ms=9_000)) is None
    one.wait(3_000)
    refusal = FetchAnswer(Code.NOT_LEADER_OR_FOLLOWER, LeaderEpoch(3), None, Offset(5))
    assert [reply.answer for reply in one.ready.replies] == [refusal]
    assert [type(asked.message) for asked in one.ready.requests[:2]] == [EpochEnded, EpochEnded]
    assert one.node.leading is None


def test_an_epoch_that_was_not_begun_to_be_opened_is_not_opened_once_another_one_leads() -> None:
    one = OneNode()
    one.wait_for(Role.PROSPECTIVE)
    one.vote_for_it(2)
    asked = one.asked(3)[-1]
    one.node.on_answered(asked.number, VoteAnswer(Code.NONE, LeaderEpoch(1), None, is_granted=True), one.now_ms)
    assert one.is_in(Role.LEADER)
    one.follow(2, 2)
    assert one.ready.leader_change is None
    assert [type(asked.message) for asked in one.ready.requests] == [QuorumFetch]


def test_an_epoch_that_is_being_opened_is_opened_before_anything_is_fetched() -> None:
    one = OneNode()
    one.wait_for(Role.PROSPECTIVE)
    one.vote_for_it(2)
    one.vote_for_it(2)
    assert one.ready.leader_change is not None
    one.follow(2, 2)
    assert not one.ready.requests
    one.lineage.assign(LeaderEpoch(1), Offset(0))
    one.node.on_epoch_opened(Offset(0), one.now_ms)
    assert not one.take().requests, "it is not on disk"
    one.node.on_synced(Offset(1), one.now_ms)
    (asked,) = one.take().requests
    assert isinstance(asked.message, QuorumFetch)
    assert (asked.message.fetch_offset, asked.message.last_fetched_epoch) == (1, 1)
    with pytest.raises(InvariantBrokenError):
        one.node.on_epoch_opened(Offset(1), one.now_ms)


def test_two_of_five_are_no_majority() -> None:
    one = OneNode(voters=voter_set(1, 2, 3, 4, 5))
    one.lead()
    for _ in range(3):
        one.wait(1_400)
        if one.node.standing.role is Role.LEADER:
            one.ask(fetch(2, 1, 1, 1))
    assert one.is_in(Role.RESIGNED)


def test_voters_are_told_of_the_epoch_until_they_answer_or_fetch() -> None:
    one = leader(commit=False)
    assert {asked.target for asked in one.asked()} >= {2, 3}
    one.fail(2)
    one.wait(20)
    assert [asked.target for asked in one.ready.requests] == [2]
    one.fail(2)
    one.wait(39)
    assert not one.ready.requests, "the back-off doubles"
    one.ask(fetch(2, 3, 5, 3))
    one.answer(EpochAnswer(Code.NONE, LeaderEpoch(3), BrokerId(1)), 3)
    one.wait(2_000)
    assert not one.ready.requests


def test_describe_says_how_far_everybody_is() -> None:
    one = leader()
    one.now_ms += 100
    one.append(8)
    one.ask(fetch(4, 3, 8, 3))
    one.now_ms += 50
    one.ask(fetch(2, 3, 6, 3))
    described = one.node.describe(one.now_ms)
    assert (described.leader_id, described.leader_epoch, described.high_watermark) == (1, 3, 6)
    began = one.now_ms - 150
    assert described.voters == (
        ReplicaDescription(key(1), Offset(8), one.now_ms, one.now_ms),
        ReplicaDescription(key(2), Offset(6), one.now_ms, began),
        ReplicaDescription(key(3), None, None, None),
    )
    assert described.observers == (ReplicaDescription(key(4), Offset(8), one.now_ms - 50, one.now_ms - 50),)
    one.ask(fetch(2, 3, 8, 3))
    assert one.node.describe().voters[1].last_caught_up_ms == one.now_ms


def test_an_observer_that_is_silent_for_long_is_forgotten() -> None:
    one = leader()
    one.ask(fetch(4, 3, 5, 3, 5))
    for _ in range(301):
        one.now_ms += 1_000
        one.ask(fetch(2, 3, 5, 3, 5))
        one.ask(fetch(3, 3, 5, 3, 5))
    one.ask(fetch(5, 3, 5, 3, 5))
    assert [row.key for row in one.node.describe().observers] == [key(5)]
    for _ in range(299):
        one.now_ms += 1_000
        one.ask(fetch(2, 3, 5, 3, 5))
        one.ask(fetch(3, 3, 5, 3, 5))
    one.ask(fetch(6, 3, 5, 3, 5))
    described = one.node.describe()
    assert [row.key for row in described.observers] == [key(5), key(6)]
    assert [row.log_end_offset for row in described.voters[1:]] == [5, 5], "a voter is not forgotten"


def test_how_far_a_voter_was_is_not_forgotten_however_long_it_is_silent() -> None:
    one = leader()
    one.ask(fetch(3, 3, 5, 3, 5))
    for _ in range(110):
        one.now_ms += 2_900
        one.ask(fetch(2, 3, 5, 3, 5))
    one.ask(fetch(4, 3, 5, 3, 5))
    assert one.node.describe().voters[2].log_end_offset == 5


def test_so_many_replicas_are_remembered_and_others_served_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tidelog.quorum.leader_state.REPLICAS_MAX", 3)
    one = leader()
    for number in (4, 5, 6):
        assert one.ask(fetch(number, 3, 4, 2)) == served(3, 1, 4, high_watermark=5)
    assert [row.key for row in one.node.describe().observers] == [key(4), key(5)]
    one.ask(fetch(3, 3, 5, 3))
    assert one.node.describe().voters[2].log_end_offset == 5, "a voter is always"


def test_a_vote_for_somebody_else_in_a_newer_epoch_ends_the_leadership() -> None:
    one = leader()
    assert not one.ask_vote(2, 4, 2, 4)
    assert one.is_in(Role.UNATTACHED)
    assert isinstance(one.ready.replies[0].answer, VoteAnswer)

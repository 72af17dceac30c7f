"""One fetch at a time, of what is on disk; what the answers make of the log; and how a leader is found."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.worlds.quorum_node import OneNode, served, voter_set
from tidelog.base.errors import Code, InvariantBrokenError
from tidelog.base.ids import BrokerId, LeaderEpoch, Offset
from tidelog.quorum import FetchAnswer, QuorumFetch, QuorumLog, QuorumState, Role, SnapshotId
from tidelog.records.lineage import EpochEntry, LeaderEpochLineage


def follower(log_end: int = 6, number: int = 1) -> OneNode:
    """Node 1 follows 2 in epoch 3; its log is of epochs 1, from 0, and 2, from 4."""
    one = OneNode(number, lineage=((1, 0), (2, 4)), log_end=log_end, state=QuorumState(LeaderEpoch(3)))
    one.unanswered.clear()
    one.follow(3, 2)
    return one


def last_fetch(one: OneNode) -> QuorumFetch:
    sent = [request.message for request in one.ready.requests]
    assert len(sent) == 1
    assert isinstance(sent[0], QuorumFetch)
    return sent[0]


def test_a_follower_fetches_from_its_end_and_says_what_it_knows() -> None:
    fetched = last_fetch(follower())
    assert (fetched.leader_epoch, fetched.fetch_offset, fetched.last_fetched_epoch) == (3, 6, 2)
    assert (fetched.high_watermark, fetched.wait_ms_max, fetched.sends_high_watermark) == (None, 500, True)


def test_records_are_on_disk_before_the_next_fetch_says_so() -> None:
    one = follower()
    number = one.asked()[-1].number
    ready = one.answer(served(3, 2, 6, high_watermark=7, end=9))
    assert ready.append == number
    assert not ready.requests
    assert ready.high_watermark == 6, "the record below 7 is not here yet"
    one.node.on_appended(Offset(9), one.now_ms)
    assert one.take().high_watermark == 7
    assert not one.ready.requests
    one.node.on_synced(Offset(9), one.now_ms)
    one.take()
    fetched = last_fetch(one)
    assert (fetched.fetch_offset, fetched.high_watermark) == (9, 7)


def test_the_high_watermark_is_never_beyond_the_end_and_never_goes_back() -> None:
    one = follower()
    one.answer(served(3, 2, 6, high_watermark=9))
    assert one.node.high_watermark == 6
    one.answer(served(3, 2, 6, high_watermark=4))
    assert one.node.high_watermark == 6
    one.answer(served(3, 2, 6))
    assert one.node.high_watermark == 6


@pytest.mark.parametrize(("diverging", "kept"), [((1, 3), 3), ((1, 9), 4), ((2, 5), 5)])
def test_what_diverges_is_cut_where_both_logs_are_of_one_epoch(diverging: tuple[int, int], kept: int) -> None:
    one = follower()
    ready = one.answer(served(3, 2, 6, diverging=diverging))
    assert ready.truncation == kept
    assert not ready.requests
    one.lineage.truncate_from_end(Offset(kept))
    one.node.on_truncated(Offset(kept), one.now_ms)
    one.take()
    assert last_fetch(one).fetch_offset == kept


def test_what_is_committed_is_never_cut() -> None:
    one = follower()
    one.answer(served(3, 2, 6, high_watermark=5))
    with pytest.raises(InvariantBrokenError, match="leader 2 of epoch 3 has the metadata log up to 3 only, 5 is comm"):
        one.answer(served(3, 2, 6, diverging=(1, 3)))


def test_what_only_the_snapshot_covers_is_never_cut_though_nothing_is_known_to_be_committed() -> None:
    snapshot = SnapshotId(Offset(4), LeaderEpoch(2))
    one = OneNode(lineage=((2, 4),), log_end=6, log_start=4, snapshot=snapshot, state=QuorumState(LeaderEpoch(3)))
    one.unanswered.clear()
    one.follow(3, 2)
    with pytest.raises(InvariantBrokenError, match="has the metadata log up to 2 only, 4 is committed"):
        one.answer(served(3, 2, 6, diverging=(1, 2)))


def test_an_answer_that_would_cut_nothing_is_asked_for_again_later() -> None:
    one = follower()
    ready = one.answer(served(3, 2, 6, diverging=(2, 9)))
    assert ready.truncation is None
    assert not ready.requests
    one.wait(20)
    assert last_fetch(one).fetch_offset == 6


def test_a_snapshot_is_loaded_before_anything_else() -> None:
    one = follower()
    snapshot = SnapshotId(Offset(20), LeaderEpoch(3))
    ready = one.answer(served(3, 2, 6, snapshot=snapshot))
    assert (ready.load, ready.requests) == (snapshot, ())
    one.wait(60_000)
    assert one.is_in(Role.FOLLOWER), "a long load is not the leader's silence"
    one.node.on_snapshot_failed(one.now_ms)
    assert not one.take().requests, "it is asked again a moment later"
    assert one.node.next_deadline_ms() == one.now_ms + 20
    one.wait(20)
    one.answer(served(3, 2, 6, snapshot=snapshot))
    one.lineage.clear()
    one.lineage.assign(snapshot.leader_epoch, snapshot.end_offset)
    one.node.on_snapshot_loaded(snapshot, one.now_ms)
    assert one.take().high_watermark == 20
    assert (last_fetch(one).fetch_offset, last_fetch(one).last_fetched_epoch) == (20, 3)


def test_an_answer_whose_records_end_where_the_log_does_brings_nothing() -> None:
    one = follower()
    assert one.answer(served(3, 2, 6, end=6)).append is None
    assert last_fetch(one).fetch_offset == 6


def test_an_answer_of_an_older_epoch_is_not_taken() -> None:
    one = follower()
    asked = one.asked()[-1]
    one.follow(4, 3)
    one.node.on_answered(asked.number, served(3, 2, 6, high_watermark=6, end=9), one.now_ms)
    ready = one.take()
    assert (ready.append, ready.high_watermark, one.node.standing.leader_id) == (None, None, 3)


@pytest.mark.parametrize(
    "answer",
    [
        served(2, 2, 6, high_watermark=6, end=9),
        FetchAnswer(Code.UNKNOWN_LEADER_EPOCH, LeaderEpoch(2), None, Offset(6)),
    ],
)
def test_a_leader_that_is_in_an_older_epoch_is_asked_again(answer: FetchAnswer) -> None:
    """It lost what it had, or somebody else answers in its place."""
    one = follower()
    ready = one.answer(answer)
    assert (ready.append, ready.high_watermark, one.node.standing.leader_id) == (None, None, 2)
    assert not ready.requests
    one.wait(20)
    assert one.ready.requests[0].target == 2


def test_a_leader_that_cannot_serve_yet_is_followed_on() -> None:
    one = follower()
    one.answer(FetchAnswer(Code.NOT_LEADER_OR_FOLLOWER, LeaderEpoch(3), BrokerId(2), Offset(6)))
    assert one.is_in(Role.FOLLOWER)
    assert one.node.standing.leader_id == 2
    one.wait_for_request(2)


def test_an_observer_that_asks_others_for_its_leader_keeps_it_until_they_know_better() -> None:
    one = follower(number=9)
    one.fail()
    one.wait_for_request()
    if one.asked(2):
        one.fail()
        one.wait_for_request()
    assert not one.asked(2)
    one.answer(FetchAnswer(Code.NOT_LEADER_OR_FOLLOWER, LeaderEpoch(3), None, Offset(6)))
    assert one.is_in(Role.FOLLOWER)
    assert one.node.standing.leader_id == 2


def test_what_was_handed_out_is_done_though_the_epoch_is_another() -> None:
    one = follower()
    assert one.answer(served(3, 2, 6, end=9)).append is not None
    one.follow(4, 3)
    assert not [request for request in one.ready.requests if isinstance(request.message, QuorumFetch)]
    one.append(9)
    fetched = last_fetch(one)
    assert (fetched.leader_epoch, fetched.fetch_offset) == (4, 9)


@pytest.mark.parametrize(
    "answer",
    [
        served(3, 2, 6, end=9),
        served(3, 2, 6, diverging=(1, 3)),
        served(3, 2, 6, snapshot=SnapshotId(Offset(20), LeaderEpoch(3))),
    ],
    ids=["append", "truncation", "load"],
)
def test_what_was_not_handed_out_is_forgotten(answer: FetchAnswer) -> None:
    one = follower()
    asked = one.asked()[-1]
    one.node.on_answered(asked.number, answer, one.now_ms)
    one.follow(4, 3)
    assert (one.ready.append, one.ready.truncation, one.ready.load) == (None, None, None)
    assert last_fetch_of(one).fetch_offset == 6


def last_fetch_of(one: OneNode) -> QuorumFetch:
    return [request.message for request in one.ready.requests if isinstance(request.message, QuorumFetch)][-1]


def test_a_voter_whose_fetch_fails_asks_its_leader_again() -> None:
    one = follower()
    one.fail()
    assert not one.ready.requests
    one.wait(20)
    assert one.ready.requests[0].target == 2


def test_whose_fetches_fail_waits_a_little_longer_each_time_and_100_ms_at_most() -> None:
    one = follower()
    waited = []
    for _ in range(7):
        one.fail()
        waited.append(one.wait_for_request())
    assert waited == [20, 40, 60, 80, 100, 100, 100]
    one.answer(served(3, 2, 6))
    one.fail()
    assert one.node.next_deadline_ms() == one.now_ms + 20, "an answer makes up for the failures"


def test_a_fetch_that_failed_and_is_sent_again_leaves_nothing_behind() -> None:
    one = follower()
    before = one.node.canonical_key()
    one.fail()
    assert one.node.canonical_key() != before
    one.wait(20)
    assert one.node.canonical_key() == before


def test_an_observer_asks_one_voter_after_the_other_until_it_knows_who_leads() -> None:
    one = OneNode(9, voter_set(1, 2, 3))
    nobody = FetchAnswer(Code.NOT_LEADER_OR_FOLLOWER, LeaderEpoch(0), None, Offset(0))
    asked = []
    for _ in range(4):
        request = one.asked()[-1]
        assert isinstance(request.message, QuorumFetch)
        assert request.message.wait_ms_max == 0
        asked.append(request.target)
        one.answer(nobody)
        assert not one.ready.requests
        one.wait(100)
    assert asked[0] == asked[3]
    assert set(asked) == {1, 2, 3}
    one.answer(FetchAnswer(Code.FENCED_LEADER_EPOCH, LeaderEpoch(5), BrokerId(3), Offset(0)))
    assert (one.node.standing.role, one.node.standing.leader_epoch, one.node.standing.leader_id) == (
        Role.FOLLOWER,
        5,
        3,
    )
    assert one.ready.requests[0].target == 3, "at once"


def test_a_voter_that_knows_no_leader_asks_all_others_in_turn() -> None:
    one = OneNode(voters=voter_set(1, 2, 3))
    asked = []
    for _ in range(4):
        one.wait_for_request()
        asked.append(one.ready.requests[0].target)
        one.fail()
    assert asked in ([2, 3, 2, 3], [3, 2, 3, 2])


def test_an_observer_whose_leader_fails_asks_the_others() -> None:
    one = follower(number=9)
    one.answer(served(3, 2, 6, high_watermark=5))
    one.fail()
    targets = set()
    for _ in range(3):
        one.wait(100)
        targets.add(one.ready.requests[0].target)
        one.fail()
    assert targets == {1, 2, 3}
    one.wait(100)
    while one.ready.requests[0].target != 2:
        one.answer(FetchAnswer(Code.NOT_LEADER_OR_FOLLOWER, LeaderEpoch(3), BrokerId(2), Offset(6)))
        one.wait(100)
    one.answer(served(3, 2, 6, high_watermark=5))
    assert last_fetch(one).wait_ms_max == 500, "it leads still"


def test_an_observer_is_busy_with_nobody() -> None:
    one = OneNode(9, voter_set())
    assert not one.ready.requests
    assert one.node.next_deadline_ms() is None


EPOCHS = st.lists(st.integers(1, 3), max_size=6).map(sorted)


@given(shared=EPOCHS, ours=EPOCHS, theirs=EPOCHS)
def test_fetching_and_cutting_ends_with_the_common_prefix(
    shared: list[int], ours: list[int], theirs: list[int]
) -> None:
    """Two logs, each epoch written by one of them: what is kept is as long as they are the same, record by record."""
    mine = shared + [2 * epoch + 10 for epoch in ours]  # even epochs are ours, odd ones are theirs
    other = [*shared, *(2 * epoch + 11 for epoch in theirs), 99]
    leading = QuorumLog(Offset(0), Offset(len(other)), lineage_of(other))
    following = QuorumLog(Offset(0), Offset(len(mine)), lineage_of(mine))
    for _ in range(10):
        correction = leading.correction_of(following.log_end_offset, following.last_leader_epoch)
        if correction is None:
            break
        assert isinstance(correction, EpochEntry)
        point = following.truncation_point(correction)
        assert point < following.log_end_offset
        following.lineage.truncate_from_end(point)
        following.on_truncated(point)
    assert following.log_end_offset == len(shared)


def lineage_of(epochs: list[int]) -> LeaderEpochLineage:
    lineage = LeaderEpochLineage()
    for offset, epoch in enumerate(epochs):
        lineage.assign(LeaderEpoch(epoch), Offset(offset))
    return lineage


def test_a_log_knows_what_is_on_disk() -> None:
    log = QuorumLog(Offset(0), Offset(4), lineage_of([1, 1, 2, 2]))
    log.on_appended(Offset(8))
    log.on_appended(Offset(8))
    assert not log.is_synced
    log.on_synced(Offset(6))
    log.on_synced(Offset(5))
    assert log.synced_end_offset == 6
    log.on_synced(Offset(99))
    assert log.is_synced
    with pytest.raises(InvariantBrokenError):
        log.on_appended(Offset(7))
    with pytest.raises(InvariantBrokenError):
        log.on_truncated(Offset(9))
    with pytest.raises(InvariantBrokenError):
        log.on_log_start_moved(Offset(9), None)
    copy = log.clone()
    assert copy.canonical_key() == log.canonical_key()
    copy.lineage.assign(LeaderEpoch(9), Offset(8))
    assert copy.canonical_key() != log.canonical_key()


@pytest.mark.parametrize("end", [4, 6, 8])
def test_a_log_is_truncated_to_its_start_or_its_end_or_between(end: int) -> None:
    log = QuorumLog(Offset(4), Offset(8), lineage_of([1] * 8), SnapshotId(Offset(4), LeaderEpoch(1)))
    log.on_truncated(Offset(end))
    assert (log.log_end_offset, log.synced_end_offset) == (end, end)
    with pytest.raises(InvariantBrokenError):
        log.on_truncated(Offset(3))


def test_a_log_start_moves_up_to_the_log_end_with_its_snapshot() -> None:
    log = QuorumLog(Offset(0), Offset(8), lineage_of([1] * 8))
    snapshot = SnapshotId(Offset(8), LeaderEpoch(1))
    log.on_log_start_moved(Offset(8), snapshot)
    assert (log.log_start_offset, log.snapshot) == (8, snapshot)


def test_what_was_not_ordered_is_never_reported() -> None:
    one = follower()
    with pytest.raises(InvariantBrokenError):
        one.node.on_truncated(Offset(5), 0)
    with pytest.raises(InvariantBrokenError):
        one.node.on_snapshot_loaded(SnapshotId(Offset(20), LeaderEpoch(3)), 0)
    with pytest.raises(InvariantBrokenError):
        one.node.on_snapshot_failed(0)
    with pytest.raises(InvariantBrokenError):
        one.node.on_epoch_opened(Offset(6), 0)


def test_what_was_ordered_is_not_done_before_it_is_handed_out() -> None:
    one = follower()
    one.node.on_answered(one.asked()[-1].number, served(3, 2, 6, diverging=(1, 3)), one.now_ms)
    with pytest.raises(InvariantBrokenError):
        one.node.on_truncated(Offset(3), 0)
    other, snapshot = follower(), SnapshotId(Offset(20), LeaderEpoch(3))
    other.node.on_answered(other.asked()[-1].number, served(3, 2, 6, snapshot=snapshot), other.now_ms)
    with pytest.raises(InvariantBrokenError):
        other.node.on_snapshot_loaded(snapshot, 0)


def test_a_truncation_never_reaches_what_was_committed_meanwhile() -> None:
    one = follower()
    one.answer(served(3, 2, 6, high_watermark=5))
    one.answer(served(3, 2, 6, diverging=(2, 5)))
    with pytest.raises(InvariantBrokenError, match="truncated to 4: committed"):
        one.node.on_truncated(Offset(4), one.now_ms)
    one.node.on_truncated(Offset(5), one.now_ms)


def test_copies_of_a_node_are_independent() -> None:
    one = follower()
    copy = one.node.clone()
    assert copy.canonical_key() == one.node.canonical_key()
    copy.on_peer_closed(BrokerId(2), 0)
    assert copy.canonical_key() != one.node.canonical_key()
    assert one.is_in(Role.FOLLOWER)


def test_an_epoch_that_was_never_opened_is_not_that_of_the_last_record() -> None:
    """A node that was killed between the epoch's entry in the lineage and its first record: it was told to cut nothing,
    asked again, and was told the same, for ever.
    """
    lineage = lineage_of([1, 1])
    lineage.assign(LeaderEpoch(2), Offset(2))
    follower, leader = (
        QuorumLog(Offset(0), Offset(2), lineage),
        QuorumLog(Offset(0), Offset(4), lineage_of([1, 1, 3, 3])),
    )
    assert follower.last_leader_epoch == 1
    assert leader.correction_of(Offset(2), follower.last_leader_epoch) is None
    follower.on_appended(Offset(3))
    assert follower.last_leader_epoch == 2

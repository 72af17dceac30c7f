"""A voter whose log or whose votes are gone: it takes no part until it has what was committed after it asked."""

from __future__ import annotations

import pytest

from support.worlds.quorum_node import OneNode, fetch, served, voter_set
from support.worlds.quorum_world import QuorumWorld
from tidelog.base.errors import Code
from tidelog.base.ids import BrokerId, LeaderEpoch, Offset
from tidelog.quorum import FetchAnswer, QuorumFetch, QuorumLog, QuorumState, Role, SnapshotId
from tidelog.quorum.recovering import PROBE_OFFSET, Recovering
from tidelog.records.lineage import EpochEntry, LeaderEpochLineage

LOST = QuorumState(LeaderEpoch(0), is_lost=True)


def lost_node(*, lineage: tuple[tuple[int, int], ...] = (), log_end: int = 0) -> OneNode:
    return OneNode(1, lineage=lineage, log_end=log_end, state=LOST)


def last_fetch(node: OneNode) -> tuple[int, int]:
    message = node.asked()[-1].message
    assert isinstance(message, QuorumFetch)
    return message.fetch_offset, message.last_fetched_epoch


def test_it_grants_neither_votes_nor_pre_votes_and_never_stands() -> None:
    node = lost_node()
    assert not node.ask_vote(2, 5, 4, 10, is_pre_vote=True)
    assert not node.ask_vote(2, 5, 4, 10)
    assert node.node.standing.leader_epoch == 5
    assert node.end(5, 2, 1) is Code.NONE  # named as the first successor
    for _ in range(20):
        node.wait(1_000)
        assert node.is_in(Role.UNATTACHED)


def test_a_quorum_of_one_elects_nobody() -> None:
    node = OneNode(1, voter_set(1), state=LOST)
    node.wait(60_000)
    assert node.is_in(Role.UNATTACHED)


def test_it_is_a_voter_again_with_a_record_that_others_committed_after_it_asked() -> None:
    node = lost_node()
    node.follow(3, 2)
    assert last_fetch(node) == (PROBE_OFFSET, 3)
    node.answer(served(3, 2, PROBE_OFFSET, high_watermark=8, diverging=(3, 10)))
    assert last_fetch(node) == (0, 0)
    node.answer(served(3, 2, 0, high_watermark=10, end=10))
    node.lineage.assign(LeaderEpoch(3), Offset(0))
    node.append(10)
    assert last_fetch(node) == (10, 3)
    node.answer(served(3, 2, 10, high_watermark=10))  # all that the leader had when it was asked
    assert node.saved is not None
    assert node.saved.is_lost
    assert last_fetch(node) == (PROBE_OFFSET, 3)  # so it asks for a record more
    node.answer(served(3, 2, PROBE_OFFSET, high_watermark=10, diverging=(3, 10)))
    node.answer(served(3, 2, 10, high_watermark=10, end=11))
    node.append(11)
    assert node.saved.is_lost
    # It does not say that it has the record before others do.
    node.wait(1_000)
    assert last_fetch(node) == (PROBE_OFFSET, 3)
    node.answer(served(3, 2, PROBE_OFFSET, high_watermark=11, diverging=(3, 11)))
    assert last_fetch(node) == (11, 3)
    ready = node.answer(served(3, 2, 11, high_watermark=11))
    assert ready.state is not None
    assert not ready.state.is_lost
    assert ready.state.voted_id == 2  # as good as: never for another one in this epoch


def test_a_vote_that_was_not_lost_is_the_same_after_the_recovery() -> None:
    node = OneNode(1, state=QuorumState(LeaderEpoch(3), voted_id=BrokerId(3), is_lost=True))
    node.follow(3, 2)
    node.answer(served(3, 2, PROBE_OFFSET, high_watermark=1, diverging=(3, 1)))
    node.answer(served(3, 2, 0, high_watermark=2, end=2))
    node.lineage.assign(LeaderEpoch(3), Offset(0))
    node.append(2)
    node.answer(served(3, 2, 2, high_watermark=2))
    assert node.saved == QuorumState(LeaderEpoch(3), BrokerId(2), BrokerId(3), has_records=True)


def test_what_a_leader_told_counts_for_its_epoch_only() -> None:
    node = lost_node()
    node.follow(3, 2)
    node.answer(served(3, 2, PROBE_OFFSET, high_watermark=0, diverging=(3, 1)))
    node.follow(4, 3)
    assert last_fetch(node) == (PROBE_OFFSET, 4)


def test_what_is_committed_stays_so_whatever_the_leader_tells_later() -> None:
    recovering = Recovering()
    for told, committed in ((None, 0), (5, 5), (None, 5), (3, 5), (8, 8)):
        recovering.on_high_watermark(None if told is None else Offset(told))
        assert recovering.committed == committed


@pytest.mark.parametrize(
    ("barrier", "told", "synced", "is_done"),
    [
        (None, None, 9, False),
        (None, 9, 9, False),  # it has not asked yet
        (5, None, 9, False),
        (5, 5, 9, False),  # all that is committed was written before
        (5, 6, 5, False),  # what was written since is not on its disk
        (5, 6, 6, True),
        (5, 9, 9, True),
    ],
)
def test_it_has_recovered_with_a_record_beyond_the_barrier_that_is_committed_and_on_its_disk(
    barrier: int | None, told: int | None, synced: int, *, is_done: bool
) -> None:
    recovering = Recovering()
    if barrier is not None:
        recovering.on_probed(EpochEntry(LeaderEpoch(3), Offset(barrier)), None, LeaderEpoch(3))
    log = QuorumLog(Offset(0), Offset(synced), LeaderEpochLineage([(LeaderEpoch(3), Offset(0))]))
    assert recovering.is_done(log, None if told is None else Offset(told)) == is_done


@pytest.mark.parametrize(("barrier", "end", "wants"), [(None, 9, False), (5, 4, True), (5, 5, True), (5, 6, False)])
def test_it_wants_a_record_as_long_as_it_has_none_from_beyond_the_barrier(
    barrier: int | None, end: int, *, wants: bool
) -> None:
    recovering = Recovering()
    if barrier is not None:
        recovering.on_probed(EpochEntry(LeaderEpoch(3), Offset(barrier)), None, LeaderEpoch(3))
    recovering.on_nothing_new(QuorumLog(Offset(0), Offset(end), LeaderEpochLineage([(LeaderEpoch(3), Offset(0))])))
    assert recovering.wants_record == wants


@pytest.mark.parametrize(("ends", "barrier"), [(None, None), ((2, 5), None), ((4, 5), None), ((3, 5), 5)])
def test_the_barrier_is_where_the_leaders_log_ends_and_no_older_epoch_in_it(
    ends: tuple[int, int] | None, barrier: int | None
) -> None:
    recovering = Recovering()
    entry = None if ends is None else EpochEntry(LeaderEpoch(ends[0]), Offset(ends[1]))
    recovering.on_probed(entry, None, LeaderEpoch(3))
    assert recovering.barrier == barrier
    recovering.on_probed(EpochEntry(LeaderEpoch(3), Offset(9)), Offset(4), LeaderEpoch(3))
    assert (recovering.barrier, recovering.committed) == (barrier or 9, 4), "it stays where it was first"


def test_a_tail_that_the_leader_lacks_is_cut_and_never_counted() -> None:
    node = lost_node(lineage=((1, 0), (2, 4)), log_end=6)
    node.follow(3, 2)
    node.answer(served(3, 2, PROBE_OFFSET, high_watermark=5, diverging=(3, 6)))
    assert last_fetch(node) == (PROBE_OFFSET, 2)
    ready = node.answer(served(3, 2, PROBE_OFFSET, high_watermark=5, diverging=(1, 4)))
    assert ready.truncation == 4


def test_a_tail_that_the_leader_has_too_is_kept_until_it_is_committed() -> None:
    node = lost_node(lineage=((1, 0), (2, 4)), log_end=6)
    node.follow(3, 2)
    node.answer(served(3, 2, PROBE_OFFSET, high_watermark=5, diverging=(3, 8)))
    assert node.answer(served(3, 2, PROBE_OFFSET, high_watermark=5, diverging=(2, 6))).truncation is None
    assert len(node.fetches()) == 1  # that of its start, which nobody has answered
    node.wait(1_000)
    node.answer(served(3, 2, PROBE_OFFSET, high_watermark=6, diverging=(2, 6)))
    assert last_fetch(node) == (6, 2)


def test_a_probe_that_is_told_nothing_truncates_nothing() -> None:
    node = lost_node(lineage=((1, 0), (2, 4)), log_end=6)
    node.follow(3, 2)
    node.answer(served(3, 2, PROBE_OFFSET, high_watermark=5, diverging=(3, 8)))
    ready = node.answer(served(3, 2, PROBE_OFFSET, high_watermark=5))
    assert (ready.truncation, ready.load) == (None, None)
    assert last_fetch(node) == (PROBE_OFFSET, 2)


def test_a_probe_is_told_how_the_log_ends_and_counts_for_nothing() -> None:
    leader = OneNode(1)
    start = leader.lead()
    answer = leader.ask(fetch(2, 1, PROBE_OFFSET, 1))
    assert isinstance(answer, FetchAnswer)
    assert answer.diverging == (1, start + 1)
    assert leader.node.high_watermark is None


def test_that_there_will_be_records_is_saved_before_the_first_is_written() -> None:
    node = OneNode(1)
    assert node.saved is None or not node.saved.has_records
    node.follow(1, 2)
    ready = node.answer(served(1, 2, 0, high_watermark=0, end=1))
    assert ready.append is not None
    assert ready.state is not None
    assert ready.state.has_records
    loading = OneNode(1)
    loading.follow(1, 2)
    ready = loading.answer(served(1, 2, 0, snapshot=SnapshotId(Offset(5), LeaderEpoch(1))))
    assert ready.load is not None
    assert ready.state is not None
    assert ready.state.has_records


@pytest.mark.parametrize("what", ["log", "votes", "both"])
@pytest.mark.parametrize("seed", range(5))
def test_a_committed_record_outlives_the_loss_of_one_voter_and_the_absence_of_another(what: str, seed: int) -> None:
    """Two of three have it. One of them loses its log while the other one is down; the third never had it."""
    world = QuorumWorld(3, seed=seed)
    world.start()
    world.run_until(lambda: world.active)
    leader = world.active
    assert leader is not None
    loser, absent = (machine for machine in world.machines.values() if machine is not leader)
    world.crash(absent.id)
    offset = leader.propose("m1")
    world.run_until(lambda: loser.high_watermark > offset)
    world.crash(leader.id)
    loser.crash()
    loser.lose(what)
    loser.start()
    absent.start()
    world.run(30_000)
    assert world.active is None
    leader.start()
    world.run_until(lambda: world.active)
    world.run_until(lambda: loser.state is not None and not loser.state.is_lost)
    world.run_until(lambda: all(machine.high_watermark > offset for machine in world.machines.values()))
    world.check_logs()
    # A full voter again: the one that was absent can go.
    if world.active is not None and world.active is not absent:
        world.crash(absent.id)
        last = world.active.propose("m3")
        world.run_until(lambda: loser.high_watermark > last)

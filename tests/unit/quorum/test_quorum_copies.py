"""Copies of nodes, and the keys by which the exhaustive search tells nodes apart."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from uuid import UUID

import pytest

from support.worlds.quorum_node import LEAST, MOST, OneNode, fetch, served, voter_set
from support.worlds.quorum_random import play
from support.worlds.quorum_world import QuorumWorld
from tidelog.base.errors import Code
from tidelog.base.ids import BrokerId, LeaderEpoch, Offset
from tidelog.quorum import QuorumState, ReplicaKey, Role, SnapshotId, VoteAnswer
from tidelog.quorum.recovering import PROBE_OFFSET

SNAPSHOT = SnapshotId(Offset(9), LeaderEpoch(3))


def course(world: QuorumWorld) -> object:
    """What happened in it; the next random number tells how often one was drawn, so how many messages there were."""
    return world.committed, world.leaders, world.now_ms, world.rng.random()


@pytest.mark.parametrize("seed", range(9))
def test_a_life_in_which_copies_go_on_for_their_nodes_is_the_same_life(seed: int) -> None:
    has_directories, is_configured = seed % 3 == 1, seed % 3 == 2

    def lived(*, copies_nodes: bool) -> object:
        kind = {"has_directories": has_directories, "is_configured": is_configured}
        return course(play(seed, 50, copies_nodes=copies_nodes, **kind))

    assert lived(copies_nodes=True) == lived(copies_nodes=False)


def candidate() -> OneNode:
    one = OneNode(voters=voter_set(1, 2, 3, 4, 5))
    one.wait_for(Role.PROSPECTIVE)
    return one


def leader() -> OneNode:
    one = OneNode()
    one.lead()
    return one


def follower() -> OneNode:
    one = OneNode(lineage=((1, 0), (2, 4)), log_end=6, state=QuorumState(LeaderEpoch(3)))
    one.unanswered.clear()
    one.follow(3, 2)
    return one


def recovering() -> OneNode:
    one = OneNode(lineage=((1, 0), (2, 4)), log_end=6, state=QuorumState(LeaderEpoch(3), is_lost=True))
    one.follow(3, 2)
    return one


def fetched_with_directory(one: OneNode) -> None:
    one.ask(replace(fetch(3, 1, 9, 9), replica=ReplicaKey(BrokerId(3), UUID(int=3))))


@pytest.mark.parametrize(
    ("made", "event"),
    [
        (candidate, lambda one: one.vote_for_it(2)),
        (candidate, lambda one: one.answer(VoteAnswer(Code.NONE, LeaderEpoch(0), None), 2)),
        (candidate, lambda one: one.fail(2)),
        (candidate, lambda one: one.ask_vote(2, 0, 1, 1, is_pre_vote=True)),
        (candidate, lambda one: one.node.on_resign(0)),
        (OneNode, lambda one: one.ask_vote(2, 5, 0, 0)),
        (leader, lambda one: one.node.on_resign(0)),
        (leader, lambda one: one.ask(fetch(4, 1, 1, 1))),
        (leader, lambda one: one.ask(fetch(2, 1, 0, 0))),
        (leader, fetched_with_directory),
        (leader, lambda one: one.append(2, is_synced=False)),
        (leader, lambda one: one.node.on_voters(voter_set(1, 2), 0)),
        (follower, lambda one: one.node.on_peer_closed(BrokerId(2), 0)),
        (follower, lambda one: one.fail(2)),
        (follower, lambda one: one.answer(served(3, 2, 6, high_watermark=5))),
        (follower, lambda one: one.answer(served(3, 2, 6, end=8))),
        (follower, lambda one: one.answer(served(3, 2, 6, diverging=(1, 3)))),
        (follower, lambda one: one.answer(served(3, 2, 6, snapshot=SNAPSHOT))),
        (follower, lambda one: one.end(3, 2, 3, 1)),
        (recovering, lambda one: one.answer(served(3, 2, PROBE_OFFSET, diverging=(3, 7)))),
    ],
)
def test_what_makes_a_node_behave_otherwise_gives_it_another_key(
    made: Callable[[], OneNode], event: Callable[[OneNode], object]
) -> None:
    one = made()
    before = one.node.canonical_key()
    event(one)
    assert one.node.canonical_key() != before


@pytest.mark.parametrize("made", [candidate, leader, follower, recovering])
def test_clocks_and_numbers_are_no_part_of_a_key(made: Callable[[], OneNode]) -> None:
    one, later = made(), made()
    later.now_ms += 5
    later.node._number += 7
    later.node.on_tick(later.now_ms)
    assert later.node.canonical_key() == one.node.canonical_key()


def test_who_granted_and_who_refused_is_part_of_a_candidates_key() -> None:
    def answered(*, is_granted: bool) -> OneNode:
        one = candidate()
        one.answer(VoteAnswer(Code.NONE, LeaderEpoch(0), None, is_granted), 2)
        return one

    assert answered(is_granted=True).node.canonical_key() != answered(is_granted=False).node.canonical_key()


def test_whom_it_asks_is_part_of_a_key() -> None:
    one, other = OneNode(rng=LEAST), OneNode(rng=MOST)
    assert one.asked()[-1].target != other.asked()[-1].target
    assert one.node.canonical_key() != other.node.canonical_key()


def test_two_processes_with_one_id_have_their_places_in_a_leaders_key() -> None:
    one = leader()
    for directory, offset in ((5, 9), (6, 1), (7, 9)):
        replica = ReplicaKey(BrokerId(4), UUID(int=directory))
        one.ask(replace(fetch(4, 1, offset, 1, wait_ms=0), replica=replica))
    assert one.node.canonical_key() == one.node.clone().canonical_key()


def test_how_far_a_replica_is_is_part_of_the_leaders_key() -> None:
    one = leader()
    one.ask(fetch(4, 1, 0, 0, wait_ms=0))
    before = one.node.canonical_key()
    one.ask(fetch(4, 1, 1, 1, wait_ms=0))
    assert one.node.canonical_key() != before


def test_whom_an_ending_leader_prefers_is_part_of_its_key() -> None:
    def resigned(ahead: int) -> OneNode:
        one = leader()
        one.append(3)
        for other in (2, 3):
            one.ask(fetch(other, 1, 2, 1))
        one.ask(fetch(ahead, 1, 3, 1, 2))
        one.node.on_resign(one.now_ms)
        return one

    assert resigned(2).node.canonical_key() != resigned(3).node.canonical_key()

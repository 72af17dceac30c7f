"""Whole quorums on a virtual network: they elect, replicate and commit, whatever gets lost, and never take it back."""

from __future__ import annotations

import pytest

from support.examples import examples
from support.worlds.quorum_random import play
from support.worlds.quorum_world import Conditions, Machine, QuorumWorld
from tidelog.quorum import Role


def started(voters: int = 3, observers: int = 0, *, seed: object = 0) -> tuple[QuorumWorld, Machine]:
    world = QuorumWorld(voters, observers, seed=seed)
    world.start()
    world.run_until(lambda: world.active)
    leader = world.active
    assert leader is not None
    return world, leader


def until_all_know(world: QuorumWorld, offset: int) -> int:
    up = [machine for machine in world.machines.values() if machine.node is not None]
    return world.run_until(lambda: all(machine.high_watermark > offset for machine in up))


def test_a_quorum_of_one_elects_itself_when_it_is_made() -> None:
    world = QuorumWorld(1)
    world.start()
    assert world.machine(1).leads
    world.run(0)
    assert world.active is world.machine(1)
    assert world.now_ms == 0


@pytest.mark.parametrize("seed", range(examples(20)))
def test_a_fresh_cluster_elects_within_300_ms(seed: int) -> None:
    world = QuorumWorld(3, seed=seed)
    world.start()
    assert world.run_until(lambda: world.active) <= 300


@pytest.mark.parametrize("seed", range(examples(20)))
def test_a_leader_that_dies_is_followed_at_once(seed: int) -> None:
    world, leader = started(3, seed=seed)
    until_all_know(world, leader.propose("m1"))
    world.crash(leader.id)
    assert world.run_until(lambda: world.active not in (None, leader)) <= 150


@pytest.mark.parametrize("seed", range(examples(10)))
def test_a_leader_that_stops_is_followed_at_once(seed: int) -> None:
    world, leader = started(3, seed=seed)
    until_all_know(world, leader.propose("m1"))
    leader.tell(lambda node: node.on_resign(world.now_ms))
    assert world.run_until(lambda: world.active not in (None, leader)) <= 50


@pytest.mark.parametrize("seed", range(5))
def test_silence_is_noticed_by_the_fetch_time_out(seed: int) -> None:
    world, leader = started(3, seed=seed)
    until_all_know(world, leader.propose("m1"))
    world.isolate(leader.id)
    took = world.run_until(lambda: world.active not in (None, leader))
    assert world.settings.fetch_timeout_ms - world.settings.fetch_wait_ms_max <= took
    assert took <= world.settings.fetch_timeout_ms + 200
    world.run_until(lambda: not leader.leads)  # nobody fetches from it
    world.heal()
    world.run_until(lambda: leader.node is not None and leader.node.standing.role is Role.FOLLOWER)


def test_a_connection_that_closes_unseats_nobody() -> None:
    world, leader = started(5)
    epoch = leader.node.standing.leader_epoch if leader.node else None
    for machine in list(world.machines.values())[:3]:
        world.close(machine, leader.id)
        world.run(700)
        assert world.active is leader
        assert machine is leader or (machine.node is not None and machine.node.standing.leader_id == leader.id)
    assert leader.node is not None
    assert leader.node.standing.leader_epoch == epoch


def test_news_of_a_commit_travels_in_round_trips_and_under_fetch_17_in_half_a_second() -> None:
    world, leader = started(3, 5)
    world.run(5_000)
    now = until_all_know(world, leader.propose("m1"))
    world.conditions.sends_high_watermark = False
    world.run(5_000)
    before = until_all_know(world, leader.propose("m2"))
    assert now <= 6
    assert 400 <= before <= 510  # and a round trip


def test_what_a_leader_wrote_alone_goes_and_what_was_committed_stays() -> None:
    world, leader = started(3)
    until_all_know(world, leader.propose("m1"))
    world.isolate(leader.id)
    lost = leader.propose("lost")
    world.run_until(lambda: world.active not in (None, leader))
    successor = world.active
    assert successor is not None
    kept = successor.propose("kept")
    world.heal()
    until_all_know(world, kept)
    assert leader.records == successor.records
    assert "lost" not in [record.value for record in leader.records]
    assert leader.records[lost].leader_epoch == 2
    world.check_logs()


def test_who_comes_back_empty_or_late_loads_the_snapshot() -> None:
    world, leader = started(3, 1)
    world.crash(4)
    for number in range(10):
        last = leader.propose(f"m{number}")
    world.run(100)
    leader.take_snapshot(6)
    world.machine(4).start()
    until_all_know(world, last)
    assert world.machine(4).snapshot == leader.snapshot
    assert world.machine(4).records == leader.records


@pytest.mark.parametrize("loses_power", [False, True])
def test_all_at_once_may_crash(loses_power: bool) -> None:
    world, leader = started(3, 1)
    until_all_know(world, leader.propose("m1"))
    for number in range(1, 5):
        world.crash(number, loses_power=loses_power)
    world.start()
    world.run_until(lambda: world.active)
    active = world.active
    assert active is not None
    until_all_know(world, active.propose("m2"))
    assert [record.value for record in active.records] == ["leader", "m1", "leader", "m2"]


def test_old_and_new_fetches_go_together_under_loss() -> None:
    world = QuorumWorld(3, 2, conditions=Conditions(delay_ms=(0, 30), drop=0.1, duplicate=0.1, sync_ms=(0, 20)))
    world.start()
    world.run_until(lambda: world.active)
    for number in range(20):
        world.conditions.sends_high_watermark = number % 2 == 0
        world.run_until(lambda: world.active)
        active = world.active
        assert active is not None
        active.propose(f"m{number}")
        world.run(300)
    world.check_logs()


@pytest.mark.parametrize("seed", range(examples(60)))
def test_whatever_happens_nothing_committed_is_lost_and_there_is_a_leader_in_the_end(seed: int) -> None:
    play(seed)

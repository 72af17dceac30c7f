"""Replicas joined by a network that loses, repeats and reorders, through crashes and elections: what must hold."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support.worlds.replica_world import ReplicaWorld

MESSAGES_MAX = 12
STEPS_MAX = 80

Step = Callable[[], None]


def possible_steps(world: ReplicaWorld, number: int, *, may_be_unclean: bool) -> list[Step]:
    """All that may happen next. What furthers replication is named more than once, so that something happens at all."""
    steps: list[Step] = []
    for message in world.messages:

        def arrive(message: object = message, *, is_repeated: bool = False) -> None:
            if not is_repeated:
                world.messages.remove(message)  # type: ignore[arg-type]
            world.deliver(message)  # type: ignore[arg-type]

        steps += [arrive] * 4
        if len(world.messages) < MESSAGES_MAX:
            steps.append(partial(arrive, is_repeated=True))
        steps.append(partial(world.messages.remove, message))
    up = [node for node in world.nodes.values() if node.is_up]
    for node in up:
        if node.applied < len(world.history) - 1:
            steps += [partial(world.apply_next, node.broker_id)] * 3
        if node.leader is not None:
            steps += [partial(world.produce, node.broker_id, f"m{number}")] * 2
        if node.asked is not None or node.leader is not None:
            steps.append(partial(world.give_up, node.broker_id))
        steps.append(partial(world.crash, node.broker_id))
    for node in world.nodes.values():
        if not node.is_up:
            steps += [partial(world.restart, node.broker_id)] * 2 + [partial(world.expire, node.broker_id)]
    heirs = [node.broker_id for node in up if node.broker_id != world.state.leader]
    steps += [partial(world.elect, broker) for broker in heirs if broker in world.state.isr]
    if may_be_unclean:
        steps += [partial(world.elect, broker, is_unclean=True) for broker in heirs]
    steps += [partial(world.tick, 10), partial(world.tick, 40)]
    return steps


def play(world: ReplicaWorld, choices: list[int], *, may_be_unclean: bool = False) -> None:
    for number, choice in enumerate(choices):
        steps = possible_steps(world, number, may_be_unclean=may_be_unclean)
        steps[choice % len(steps)]()
        world.check()


def heal(world: ReplicaWorld) -> None:
    """Nothing fails any more: soon all replicas are in sync, and all that the leader has is committed."""
    for node in world.nodes.values():
        if not node.is_up:
            world.restart(node.broker_id)
    if world.state.leader is None:
        world.elect(world.state.isr[0])
    world.messages.clear()
    for round_number in range(60):
        for node in world.nodes.values():
            while node.applied < len(world.history) - 1:
                world.apply_next(node.broker_id)
            if round_number % 10 == 0:
                world.give_up(node.broker_id)
        world.tick(20)
        for message in list(world.messages):
            world.messages.remove(message)
            world.deliver(message)
            world.check()
    leader = world.nodes[world.state.leader or world.state.isr[0]]
    assert set(world.state.isr) == set(world.nodes), "all have joined again"
    for node in world.nodes.values():
        assert node.log.records == leader.log.records
        assert node.log.high_watermark == leader.log.end_offset


CHOICES = st.lists(st.integers(0, 1_000_000), max_size=STEPS_MAX)


@given(choices=CHOICES, min_insync=st.integers(1, 2), replica_count=st.integers(2, 3))
@settings(deadline=None)
def test_what_is_committed_survives_clean_elections(choices: list[int], min_insync: int, replica_count: int) -> None:
    world = ReplicaWorld(replica_count, min_insync=min_insync)
    play(world, choices)
    heal(world)


@given(choices=CHOICES)
@settings(deadline=None)
def test_logs_agree_again_after_unclean_elections(choices: list[int]) -> None:
    world = ReplicaWorld(3)
    play(world, choices, may_be_unclean=True)
    heal(world)


@pytest.mark.parametrize("may_be_unclean", [False, True])
def test_long_lives(may_be_unclean: bool) -> None:
    for seed in range(30):
        rng = Random(seed)
        world = ReplicaWorld(rng.choice((2, 3, 3)), min_insync=rng.choice((1, 2)))
        play(world, [rng.randrange(1_000_000) for _ in range(150)], may_be_unclean=may_be_unclean)
        heal(world)

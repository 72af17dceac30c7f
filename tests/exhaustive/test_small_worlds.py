"""Small worlds, explored to the last state: today's rules break nothing, and those that they replaced do."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from random import Random

import pytest

from support.examples import examples
from support.exhaustive.small_stop_world import StopBounds, StopWorld
from support.exhaustive.small_world import Bounds, SmallWorld
from support.exhaustive.small_world_search import State, explore
from support.exhaustive.small_worlds import REFUTATIONS, TESTED, Refutation, Size
from support.old_rules.replica_rules import OLD_RULES
from support.old_rules.stop_rules import WithoutEpochs
from support.stories.datadriven import StoryError, parse
from support.stories.replica_story import ReplicaStory
from support.stories.small_world_story import commands_of, play, scenario_of
from tidelog.base.errors import Code
from tidelog.sim.checkers.history import PartitionHistory
from tidelog.sim.checkers.partition import PartitionCheckers

STEPS_MAX = 40


@pytest.mark.parametrize("size", TESTED, ids=lambda size: f"{size.name}: {size.text}")
def test_todays_rules_break_nothing(size: Size) -> None:
    explored = explore(size.world())
    assert not explored.broken
    assert explored.states > 500


@pytest.mark.parametrize("refutation", REFUTATIONS, ids=lambda refutation: refutation.rule)
def test_rules_that_were_replaced_are_refuted_by_the_shortest_story(refutation: Refutation) -> None:
    world = refutation.world()
    explored = explore(world, is_traced=True)
    scenario = scenario_of(world, explored, says=OLD_RULES[refutation.rule].says)
    assert explored.broken.startswith(f"{refutation.invariant}:"), scenario
    assert explored.depth == len(explored.steps) == refutation.depth, scenario
    assert world.broken(play(world, commands_of(world, explored))) == explored.broken
    assert f"INVARIANT BROKEN {explored.broken}" in scenario


@pytest.mark.parametrize("rule", ["high-watermark", "returns-in-its-epoch"])
def test_what_is_found_is_a_story(rule: str) -> None:
    """Where the commands of stories suffice, it plays there and breaks the same; not so under today's rules."""
    refutation = next(one for one in REFUTATIONS if one.rule == rule)
    world = refutation.world()
    commands = [parse(line, "found") for line in commands_of(world, explore(world, is_traced=True))]
    lines = ReplicaStory(OLD_RULES[rule].rules).play(commands)
    assert any(line.startswith(f"INVARIANT BROKEN {refutation.invariant}") for line in lines), lines
    today: list[str] = []
    with suppress(StoryError):  # it may be that somebody leads there who may not, under today's
        today = ReplicaStory().play(commands)
    assert not any(line.startswith("INVARIANT BROKEN") for line in today)


@pytest.mark.parametrize(
    ("topics", "steps"),
    [
        (1, "remove add learn learn join stop"),  # overtaken by the next assignment
        (2, "delete create learn learn stop"),  # overtaken by the next topic of that name
    ],
)
def test_a_stop_that_is_obeyed_as_it_comes_deletes_what_is_in_sync(topics: int, steps: str) -> None:
    world = StopWorld(StopBounds(topics=topics, is_haste_harmless=True), WithoutEpochs)
    explored = explore(world, is_traced=True)
    assert explored.broken == "StoppedMeansStopped: A deleted what it is in sync of"
    assert [action[0] for action, _ in explored.steps] == steps.split()


def test_an_impossible_command_is_refused_with_what_is_possible() -> None:
    with pytest.raises(ValueError, match=r"cannot happen here. Possible are: .*produce A m1"):
        play(SmallWorld(Bounds(replicas=2)), ["cluster A B", "produce B m1"])


WALKED = [
    Bounds(),
    Bounds(is_isr_late=True, given_up=2),
    Bounds(min_insync=2, crashes=2, power_losses=1, unclean=1, is_request_late=True, is_answer_late=True),
    Bounds(min_insync=2, crashes=2, power_losses=2, fencings=1, is_isr_late=True, given_up=1),
]


@pytest.mark.parametrize(
    "number", [0, pytest.param(1, marks=pytest.mark.slow), pytest.param(2, marks=pytest.mark.slow), 3]
)
def test_equal_keys_mean_equal_behaviour(number: int) -> None:
    """A step is taken once for all replicas whose machines have the same key: another way to the same key agrees.

    The copies that the steps are taken on come about by random walks, each with machines of its own.
    """
    bounds = WALKED[number]
    taken = SmallWorld(bounds)
    walks = examples(60)
    for seed in range(walks):
        _walk(taken, Random(seed))
    for seed in range(walks, walks + examples(30)):
        other = SmallWorld(bounds)
        _walk(other, Random(seed))
        _compare(taken, other)


@pytest.mark.parametrize(
    "code", [None, Code.FENCED_LEADER_EPOCH, Code.UNKNOWN_LEADER_EPOCH, Code.NOT_LEADER_OR_FOLLOWER]
)
def test_what_is_lost_or_refused_is_asked_again(code: Code | None) -> None:
    """So a request that is on its way, one that is lost and one that was refused are one state."""
    world = SmallWorld(Bounds(min_insync=2, crashes=2, power_losses=1, unclean=1))
    for seed in range(40):
        _walk(world, Random(seed))
    asking = [part.replica for part in world.replicas.parts if part.ask >= 0]
    assert len(asking) > 100
    for replica in asking:
        again = replica.copy()
        assert again.follower is not None
        assert again.asked is not None
        if code is None:
            again.follower.on_unanswered(again.asked.number, 0)
        else:
            again.follower.on_refused(again.asked.number, code, 0)
        assert again.follower.take_ready().request is None
        again.follower.on_tick(0)
        asked = again.follower.take_ready().request
        assert asked is not None
        assert replace(asked, number=again.asked.number) == again.asked
        assert again.key() == replica.key()


def _walk(world: SmallWorld, rng: Random) -> list[State]:
    states = [world.initial]
    for _ in range(STEPS_MAX):
        possible = world.successors(states[-1])
        if not possible:
            break
        states.append(rng.choice(possible)[1])
    return states


def _compare(one: SmallWorld, other: SmallWorld) -> None:
    """Whatever one world did to a replica leaves the other's replica of that key the same, and sends the same."""
    compared = 0
    known = {part.replica.key(): part.replica for part in other.replicas.parts}
    for step, done in list(one.replicas.done.items()):
        number, what, *args = step
        twin = known.get(one.replicas.parts[number].replica.key())
        if twin is None:
            continue
        again = one.replicas.do_anew(twin, what, *args)
        assert (again.part, again.proposals, again.answer) == (done.part, done.proposals, done.answer), step
        compared += 1
    assert compared > 50


@pytest.mark.parametrize("bounds", WALKED, ids=range(len(WALKED)))
@pytest.mark.parametrize("rule", ["", "high-watermark", "kip-279-alone", "joins-at-the-high-watermark"])
def test_the_checkers_of_simulations_agree(bounds: Bounds, rule: str) -> None:
    """What is checked of a state here says what those say, which look at every record again."""
    world = SmallWorld(bounds, OLD_RULES[rule].rules if rule else None)
    for seed in range(40):
        checkers = PartitionCheckers(PartitionHistory(bounds.min_insync - 1))
        states = [world.initial]
        for state in _walk(world, Random(seed))[1:]:
            states.append(state)
            _tell(checkers.history, world, states[-2], state)
            found = [broken.invariant for broken in checkers.check(world.view(state))]
            broken = world.broken(state)
            assert bool(broken) == bool(found), (broken, found, seed, len(states))
            if broken:
                break


def _tell(history: PartitionHistory, world: SmallWorld, before: State, after: State) -> None:
    """What excuses a loss, of the step between two states."""
    was, now = world.spent.values[before[world.SPENT]], world.spent.values[after[world.SPENT]]
    if now.unclean > was.unclean:
        history.on_unclean_election(world.controller[after[world.CONTROL]].image.leader_epoch)
    if now.power_losses > was.power_losses:
        for part, earlier in zip(world.parts(after), world.parts(before), strict=True):
            if earlier.is_up and not part.is_up:
                history.on_power_lost(part.replica.broker_id)

"""What the bugs that are planted while runs go on share: how they are sought, and how their table is printed."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Protocol, TypeVar

import pytest

from support.old_rules.planted_bugs import Found, print_table
from tidelog.sim.faults.faults import Fault
from tidelog.sim.runs.cluster import ClusterStory
from tidelog.sim.runs.cluster_plan import ClusterPlan
from tidelog.sim.world.world import SimulatedWorld

TRIES = 5
TRY_STRIDE = 1_000

Patch = Callable[[pytest.MonkeyPatch], None]


def attribute(owner: object, name: str, value: object) -> Patch:
    """Another value for an attribute of production code."""
    return lambda patch: patch.setattr(owner, name, value)


class Planted(Protocol):
    """A bug.

    Attributes:
        rule: that it breaks.
        words: what is done wrong.
        plant: puts it there.
    """

    @property
    def rule(self) -> str: ...
    @property
    def words(self) -> str: ...
    @property
    def plant(self) -> Patch: ...


BugT = TypeVar("BugT", bound=Planted)


def run_cluster(plan: ClusterPlan, faults: Sequence[Fault], seed: int, minutes: float) -> ClusterStory:
    """A run with these faults alone; what it came to is in the recorder of the story."""
    with SimulatedWorld(seed) as world:
        story = ClusterStory(world, plan)
        story.run(minutes, faults)
        return story


def seek(bug: Planted, run: Callable[[int], Sequence[object]], first_seed: int, seeds_max: int) -> Found | None:
    """How many seeds in a row it takes, and what is said then; None where so many do not find it.

    Args:
        run: what a seed finds broken.
    """
    with pytest.MonkeyPatch.context() as patch:
        bug.plant(patch)
        for count in range(1, seeds_max + 1):
            broken = run(first_seed + count - 1)
            if broken:
                return count, tuple(map(str, broken))
    return None


def print_planted(
    planted: Mapping[str, BugT], seeds_until_found: Callable[[BugT, int, int], Found | None], seeds_max: int
) -> None:
    """The table of these bugs, or of those that the command line names."""
    logging.disable(logging.CRITICAL)
    print_table(
        {name: (bug.rule, bug.words, partial(seeds_until_found, bug)) for name, bug in planted.items()},
        seeds_max=seeds_max,
        tries=TRIES,
        stride=TRY_STRIDE,
    )

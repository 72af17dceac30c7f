"""Share groups in whole clusters: they survive what goes wrong, and what is planted is found."""

from __future__ import annotations

import pytest

from simulation.test_cluster_run import OF_SHARE_GROUPS
from support.old_rules.planted import run_cluster
from support.old_rules.planted_in_share_runs import (
    COORDINATOR_KILLS,
    ISOLATIONS,
    KILLS,
    LOSING,
    LOSSES,
    MINUTES,
    PLAN,
    PLANTED,
    seeds_until_found,
)
from tidelog.sim.faults.faults import Fault
from tidelog.sim.runs.cluster_plan import SHARE_GROUP_SHARE, draw_cluster_plan
from tidelog.sim.world.rng import SeededRng

FIRST_SEED = 4  # of planted bugs, which are found soon from here on
RARE = {"start-stays"}
"""Those that take more seeds; `support/old_rules/planted_in_share_runs.py` says how many."""


@pytest.mark.parametrize("faults", [KILLS, COORDINATOR_KILLS, ISOLATIONS])
def test_a_share_group_survives(faults: tuple[Fault, ...]) -> None:
    recorder = run_cluster(PLAN, faults, 1, MINUTES).recorder
    assert recorder.broken == []
    assert set(recorder.checks) >= OF_SHARE_GROUPS
    assert recorder.facts["record done"] > 100
    assert recorder.facts["record renewed"] > 0


def test_records_that_were_taken_back_are_told_and_those_in_their_place_are_delivered() -> None:
    def forgotten(seed: int) -> int:
        recorder = run_cluster(LOSING, LOSSES, seed, MINUTES).recorder
        assert recorder.broken == []
        return recorder.facts["share group forgot"]

    assert any(forgotten(seed) for seed in (2, 3))


def test_a_share_of_runs_has_a_share_group() -> None:
    plans = [draw_cluster_plan(SeededRng(seed), 3) for seed in range(400)]
    count = sum(plan.share is not None for plan in plans)
    assert SHARE_GROUP_SHARE - 0.05 < count / len(plans) < SHARE_GROUP_SHARE + 0.05


@pytest.mark.parametrize("name", sorted(PLANTED.keys() - RARE))
def test_a_planted_bug_is_found(name: str) -> None:
    found = seeds_until_found(PLANTED[name], FIRST_SEED, 8)
    assert found is not None
    assert not PLANTED[name].invariants.isdisjoint(text.partition(":")[0] for text in found[1])

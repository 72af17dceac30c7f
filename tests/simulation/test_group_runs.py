"""Consumer groups in whole clusters: of both protocols, and from one to the other; and what is planted is found."""

from __future__ import annotations

from dataclasses import replace

import pytest

from simulation.test_cluster_run import OF_GROUPS
from support.old_rules.planted import run_cluster
from support.old_rules.planted_in_group_runs import (
    CLASSIC_GROUP,
    DOWNGRADED,
    GROUP,
    ISOLATIONS,
    KILLS,
    MINUTES,
    PLAN,
    PLANTED,
    UPGRADED,
    seeds_until_found,
)
from tidelog.sim.faults.faults import Fault
from tidelog.sim.runs.cluster_plan import GROUP_SHARE, draw_cluster_plan
from tidelog.sim.runs.group_plan import CLASSIC, CONSUMER, GroupPlan
from tidelog.sim.world.rng import SeededRng

FIRST_SEED = 100  # of planted bugs, which are found soon from here on
RARE = {"upgrade-forgets-parts"}
"""Those that take more seeds; `support/old_rules/planted_in_group_runs.py` says how many."""


@pytest.mark.parametrize(
    ("group", "faults"),
    [(CLASSIC_GROUP, KILLS), (GROUP, KILLS), (GROUP, ISOLATIONS), (UPGRADED, KILLS), (DOWNGRADED, KILLS)],
)
def test_a_group_survives(group: GroupPlan, faults: tuple[Fault, ...]) -> None:
    recorder = run_cluster(replace(PLAN, group=group), faults, 1, MINUTES).recorder
    assert recorder.broken == []
    assert set(recorder.checks) >= OF_GROUPS
    assert recorder.facts["offset committed"] > 20


def test_members_that_are_out_commit_nothing() -> None:
    """They stand still for longer than their sessions, and go on as if no time had passed."""
    recorder = run_cluster(replace(PLAN, group=replace(GROUP, stalls=50, leaves=0, crashes=0)), (), 1, MINUTES).recorder
    assert recorder.broken == []
    assert recorder.facts["commit refused"] > 0


def test_a_share_of_runs_has_a_group() -> None:
    plans = [draw_cluster_plan(SeededRng(seed), 3) for seed in range(400)]
    groups = [plan.group for plan in plans if plan.group is not None]
    assert GROUP_SHARE - 0.1 < len(groups) / len(plans) < GROUP_SHARE + 0.1
    ways = {(group.protocols, group.later_protocols) for group in groups}
    assert ways == {(begun, later) for begun in (CLASSIC, CONSUMER) for later in (CLASSIC, CONSUMER)}


@pytest.mark.parametrize("name", sorted(PLANTED.keys() - RARE))
def test_a_planted_bug_is_found(name: str) -> None:
    found = seeds_until_found(PLANTED[name], FIRST_SEED, 12)
    assert found is not None
    assert not PLANTED[name].invariants.isdisjoint(text.partition(":")[0] for text in found[1])

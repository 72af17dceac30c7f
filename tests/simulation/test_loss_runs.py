"""The account of losses in whole clusters: nothing that is gone is missing from it; and what is planted is found."""

from __future__ import annotations

import pytest

from support.old_rules.planted import run_cluster
from support.old_rules.planted_in_accounts import (
    BLACKOUTS,
    LEFT_BEHIND,
    MINUTES,
    MOVED,
    PLAN,
    PLANTED,
    RETURNS_TWICE,
    seeds_until_found,
)
from tidelog.sim.checkers.losses import LossesAreAccounted
from tidelog.sim.faults.faults import Fault

FIRST_SEED = 1
SEEDS_MAX = 5


@pytest.mark.parametrize("faults", [LEFT_BEHIND, RETURNS_TWICE, MOVED, BLACKOUTS])
def test_what_is_lost_is_accounted_for(faults: tuple[Fault, ...]) -> None:
    recorder = run_cluster(PLAN, faults, FIRST_SEED, MINUTES).recorder
    assert recorder.broken == []
    assert recorder.checks[LossesAreAccounted.name] > 0
    assert recorder.facts["record that a loss names"] > 0


@pytest.mark.parametrize("name", sorted(PLANTED))
def test_a_planted_bug_is_found(name: str) -> None:
    found = seeds_until_found(PLANTED[name], FIRST_SEED, SEEDS_MAX)
    assert found is not None
    assert any(text.startswith(LossesAreAccounted.name) and PLANTED[name].says in text for text in found[1])

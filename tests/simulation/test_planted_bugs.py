"""A simulation that finds nothing proves something only if it finds what is there: bugs planted in the rules."""

from __future__ import annotations

import pytest

from support.old_rules import planted_in_runs
from support.old_rules.planted_bugs import RULE_NUMBERS, PlantedBug, planted_bugs, seeds_until_found
from support.worlds.random_replicas import RandomReplicas

SEEDS_MAX = 60
RARE = {
    "checkpoint-stays",
    "diverging-fetch-counts",
    "forgotten-proposals",
    "joins-as-its-predecessor",
    "joins-at-the-high-watermark",
    "kip-279-alone",
    "kip-320-first-try",
    "last-one-keeps-its-seat",
    "unfenced-truncation",
}
"""Those that take more seeds; `support/old_rules/planted_bugs.py` says how many."""


def test_production_rules_break_nothing() -> None:
    for seed in range(SEEDS_MAX):
        assert RandomReplicas(seed).run() == [], seed


@pytest.mark.parametrize(
    "bug", [pytest.param(bug, id=name) for name, bug in planted_bugs().items() if name not in RARE]
)
def test_a_planted_bug_is_found(bug: PlantedBug) -> None:
    assert seeds_until_found(bug.rules, 0, SEEDS_MAX) is not None


@pytest.mark.parametrize(("name", "first_seed"), [("commits-alone", 3), ("shrinks-unasked", 4), ("consumer-trusts", 6)])
def test_a_bug_planted_in_production_code_is_found_by_whole_runs(name: str, first_seed: int) -> None:
    """Any ten seeds in a row do; these begin with one that does."""
    assert planted_in_runs.seeds_until_found(planted_in_runs.PLANTED[name], first_seed, seeds_max=10) is not None


def test_every_rule_of_one_partition_has_its_bug() -> None:
    numbers = {number for text in RULE_NUMBERS.values() for number in text.split(", ")}
    assert numbers == {"1", "2", "3", "4", "5", "6", "7", "9", "10"}

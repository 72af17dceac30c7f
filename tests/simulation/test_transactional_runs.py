"""Transactions in whole clusters: each run has them in one of its two protocols; and what is planted is found."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from simulation.test_cluster_run import OF_TRANSACTIONS
from support.old_rules.planted_in_transactional_runs import (
    KILLS,
    MINUTES,
    PLAN,
    PLANTED,
    TRANSACTIONS,
    seeds_until_found,
)
from tidelog.base.ids import BrokerId
from tidelog.server.broker.cleaner import Cleaner
from tidelog.server.replication.partition import Partition
from tidelog.sim.checkers.copies import Fate
from tidelog.sim.faults.faults import Fault
from tidelog.sim.runs.cluster import ClusterStory
from tidelog.sim.runs.cluster_plan import TRANSACTIONAL_SHARE, draw_cluster_plan
from tidelog.sim.runs.transaction_plan import TransactionPlan
from tidelog.sim.world.rng import SeededRng
from tidelog.sim.world.world import SimulatedWorld

SOME = (
    "marker-not-written", "marker-aborts", "marker-commits", "passes-what-is-open", "lists-what-is-committed",
    "index-forgets", "offsets-at-once", "offsets-dropped", "compaction-keeps-aborted",
)  # fmt: skip
"""One for each checker, found by the first seeds; the others take more."""


@pytest.mark.parametrize(
    ("transactions", "faults"),
    [
        (replace(TRANSACTIONS, versions=(1, 1), dies=0.1, gives_up=0.2), KILLS),
        (replace(TRANSACTIONS, versions=(2, 2), dies=0.1, gives_up=0.2), KILLS),
        (replace(TRANSACTIONS, timeout_ms=300, dreams=True), (Fault("isolation", 1_500, 0.0, 2_000, BrokerId(1)),)),
    ],
)
def test_transactions_survive(transactions: TransactionPlan, faults: tuple[Fault, ...]) -> None:
    with SimulatedWorld(1) as world:
        story = ClusterStory(world, replace(PLAN, transactions=transactions))
        report = story.run(MINUTES, faults)
    assert report.broken == ()
    assert set(report.checks) >= OF_TRANSACTIONS
    assert story.transactions is not None
    fates = [one.fate for one in story.transactions]
    assert fates.count(Fate.COMMITTED) > 5
    assert set(fates) > {Fate.COMMITTED, Fate.OPEN}


def test_logs_are_compacted_meanwhile(monkeypatch: pytest.MonkeyPatch) -> None:
    compacted = set()
    swap = Cleaner._swap

    async def swapping(self: Cleaner, partition: Partition, *args: Any) -> bool:
        compacted.add(str(partition.topic_partition))
        return await swap(self, partition, *args)

    monkeypatch.setattr(Cleaner, "_swap", swapping)
    with SimulatedWorld(1) as world:
        assert ClusterStory(world, replace(PLAN, transactions=TRANSACTIONS)).run(MINUTES, KILLS).broken == ()
    assert compacted >= {"__consumer_offsets-0", "__transaction_state-0", "latest-0"}


def test_a_share_of_runs_has_transactions() -> None:
    plans = [draw_cluster_plan(SeededRng(seed), 3) for seed in range(200)]
    share = sum(plan.transactions is not None for plan in plans) / len(plans)
    assert TRANSACTIONAL_SHARE - 0.1 < share < TRANSACTIONAL_SHARE + 0.1
    versions = {plan.transactions.versions for plan in plans if plan.transactions is not None}
    assert versions == {(1,), (2,), (1, 1), (1, 2), (2, 1), (2, 2)}


@pytest.mark.parametrize("name", SOME)
def test_a_planted_bug_is_found(name: str) -> None:
    found = seeds_until_found(PLANTED[name], 1, 3)
    assert found is not None
    assert not PLANTED[name].invariants.isdisjoint(text.partition(":")[0] for text in found[1])

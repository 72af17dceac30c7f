"""What a production node would answer about leader epochs is held against its records, in whole runs."""

from __future__ import annotations

import pytest

from tidelog.records.lineage import EpochEntry, LeaderEpochLineage
from tidelog.sim.faults.faults import Fault
from tidelog.sim.runs.one_node import OneNodeStory
from tidelog.sim.runs.report import Report
from tidelog.sim.runs.workload import WorkloadPlan
from tidelog.sim.world.world import SimulatedWorld


def run() -> Report:
    with SimulatedWorld(1) as world:
        plan = WorkloadPlan(interval_ms=100, consumers=1)
        return OneNodeStory(world, plan).run(0.05, [Fault("kill", 1_000, lasts_ms=100)])


def test_every_epoch_of_the_log_is_known() -> None:
    report = run()
    assert report.broken == ()
    assert report.checks["LineageTellsTheLog"] > 10


def test_an_epoch_that_is_forgotten_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    entries = LeaderEpochLineage.entries

    def forgetful(self: LeaderEpochLineage) -> tuple[EpochEntry, ...]:
        all_of_them: tuple[EpochEntry, ...] = entries.__get__(self)
        return all_of_them[-1:]

    monkeypatch.setattr(LeaderEpochLineage, "entries", property(forgetful))
    assert "LineageTellsTheLog" in run().broken_names

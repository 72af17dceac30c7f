"""Whole runs from seeds: nothing breaks in those of our code, and what is planted is found, made short and named."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
from dataclasses import replace
from itertools import count

import pytest

from tidelog.base.invariant import invariant
from tidelog.client.async_consumer import AsyncConsumer
from tidelog.client.core.reader import PartitionReader, Phase
from tidelog.log.segment import Segment
from tidelog.replica import LeaderReady, LeaderReplica
from tidelog.server.replication.partition import Partition
from tidelog.sim.checkers.views import Record
from tidelog.sim.faults.faults import Fault
from tidelog.sim.faults.node_faults import NODE_FAULTS
from tidelog.sim.node import SimulatedNode
from tidelog.sim.runs.one_node import OneNodeStory
from tidelog.sim.runs.report import Report, RunTotals
from tidelog.sim.runs.run import run_seed
from tidelog.sim.runs.shrink import shrink
from tidelog.sim.runs.workload import WorkloadPlan
from tidelog.sim.world.rng import SeededRng
from tidelog.sim.world.world import SimulatedWorld

MINUTES = 0.1
FIRST_SEED = 12  # of planted bugs, which are found soon from here on
INVARIANTS = {
    "AckedRecordsSurvive", "DeliveredStaysDeliverable", "EpochOffsetUnique", "LeaderInIsr", "LineageTellsTheLog",
    "LogsArePrefixes", "NoSilentLoss", "OwnInvariant", "Progress",
}  # fmt: skip
OF_AN_ADMINISTRATOR = {"MetadataNeverGoesBack", "OwnWritesSeen", "StoppedMeansStopped"}
PLAIN = WorkloadPlan(partitions=1, producers=1, interval_ms=20, consumers=1)


def pass_over(reader: PartitionReader, _: object) -> None:
    reader.phase = Phase.FETCHING


PLANTED: dict[str, tuple[type, str, object, set[str]]] = {
    "recovery leaves a torn tail where it is": (
        *(Segment, "truncate", lambda *_: None),
        {"AckedRecordsSurvive", "DeliveredStaysDeliverable", "LogsArePrefixes"},
    ),
}
"""What is wrong, where, and what it breaks."""


def run_story(seed: int, plan: WorkloadPlan, faults: list[Fault]) -> tuple[Report, list[Record]]:
    """A story of one's own: what it came to, and the records that are in the log at the end."""
    with SimulatedWorld(seed) as world:
        story = OneNodeStory(world, plan)
        report = story.run(MINUTES, faults)
        return report, story.recorder.watched[plan.topic_partitions[0]].stored.records


@pytest.mark.parametrize("seed", [*range(1, 7), *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(7, 13))])
def test_nothing_breaks(seed: int) -> None:
    report = run_seed(seed, minutes=MINUTES)
    assert report.broken == ()
    assert INVARIANTS <= set(report.checks) <= INVARIANTS | OF_AN_ADMINISTRATOR
    gc.collect()  # what a dead process left behind may not complain


@pytest.mark.parametrize("kind", NODE_FAULTS.steps)
def test_a_node_survives_each_fault_alone(kind: str) -> None:
    """At its worst: three times in a row, and every record synced."""
    faults = [Fault(kind, at_ms, amount=3.0, lasts_ms=400) for at_ms in (1_000, 2_000, 3_000)]
    report, records = run_story(1, PLAIN, faults)
    assert report.broken == ()
    assert report.faults[kind] == 3
    if kind != "bit rot":
        values = [value for _, value in records]
        assert len(values) == len(set(values)) > 100  # nothing is there twice
        assert values == sorted(values, key=lambda value: int(str(value).rstrip("'").rpartition("-")[2]))


def test_kills_lose_nothing_without_a_sync() -> None:
    faults = [Fault("kill", 1_000, lasts_ms=300), Fault("kill in step", 2_000, 7, 300)]
    report, records = run_story(2, WorkloadPlan(producers=1, interval_ms=20, syncs_each=False), faults)
    assert report.broken == ()
    assert len(records) > 100


def test_topics_made_on_a_full_disk_are_there_after_the_next_start() -> None:
    faults = [Fault("disk full", at_ms, amount=300.0, lasts_ms=300) for at_ms in range(500, 5_900, 400)]
    report, _ = run_story(1, WorkloadPlan(interval_ms=1_000, consumers=1, administers=True), faults)
    assert report.broken == ()
    assert report.checks["OwnWritesSeen"] > 0


def test_power_takes_what_was_not_synced_and_readers_are_told() -> None:
    plan = WorkloadPlan(producers=1, interval_ms=20, syncs_each=False)
    faults = [Fault("power loss", 1_000, lasts_ms=300), Fault("power loss", 3_000, lasts_ms=300)]

    def told(seed: int) -> int:
        with SimulatedWorld(seed) as world:
            story = OneNodeStory(world, plan)
            assert story.run(MINUTES, faults).broken == ()
            return story.recorder.losses_reported

    assert any(told(seed) for seed in range(4))


def test_what_a_loss_of_power_left_is_to_be_kept_from_then_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """The planted bug: a kill, right after the start that follows a loss of power, empties the log."""
    kill = SimulatedNode.kill

    def kill_and_empty(node: SimulatedNode) -> None:
        kill(node)
        node.machine.disk.open(f"logs/{PLAIN.topic_partitions[0]}/{0:020}.log").truncate(0)

    monkeypatch.setattr(SimulatedNode, "kill", kill_and_empty)
    faults = [Fault("power loss", 3_000), Fault("kill", 3_001)]
    report, _ = run_story(1, WorkloadPlan(interval_ms=20, consumers=1, syncs_each=False), faults)
    assert "AckedRecordsSurvive" in report.broken_names


def test_a_seed_gives_the_same_run_in_every_process() -> None:
    told = set()
    for hash_seed in ("1", "2"):
        program = f"from tidelog.sim.runs.run import run_seed; print(run_seed(3, minutes={MINUTES}))"
        told.add(
            subprocess.run(
                [sys.executable, "-c", program],
                env={**os.environ, "PYTHONHASHSEED": hash_seed},
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                check=True,
                text=True,
            ).stdout
        )
    ours = run_seed(3, minutes=MINUTES)
    assert told == {f"{ours}\n"}
    assert run_seed(4, minutes=MINUTES).digest != ours.digest


def test_a_run_that_ended_leaves_nothing_for_the_next_to_stumble_over() -> None:
    first = [run_seed(seed, minutes=MINUTES).digest for seed in (5, 6)]
    assert [run_seed(seed, minutes=MINUTES).digest for seed in (6, 5)] == first[::-1]


def test_what_is_left_out_does_not_happen_and_the_rest_stays_as_it_was() -> None:
    whole = run_seed(5, minutes=MINUTES)
    bare = run_seed(5, minutes=MINUTES, only=())
    assert bare.schedule == whole.schedule
    assert bare.digest != whole.digest
    assert not set(bare.faults) & set(NODE_FAULTS.steps)


def test_most_kinds_are_left_out_of_most_runs_and_none_of_all() -> None:
    drawn = [{fault.kind for fault in NODE_FAULTS.draw(SeededRng(seed), 1.0)} for seed in range(200)]
    for kind in NODE_FAULTS.steps:
        share = sum(kind in kinds for kinds in drawn) / len(drawn)
        assert 0.02 < share < 0.6, kind


def find() -> Report:
    """The run of the first seed that breaks something."""
    for seed in range(FIRST_SEED, 60):
        report = run_seed(seed, minutes=MINUTES)
        if report.broken:
            return report
    raise AssertionError("what was planted was not found")


def test_a_sync_that_is_left_out_is_found_and_made_short(monkeypatch: pytest.MonkeyPatch) -> None:
    """The planted bug: what was appended is acknowledged before it is synced."""
    monkeypatch.setattr(Partition, "is_sync_awaited", property(lambda _: False))
    found = find()
    assert found.broken_names == {"AckedRecordsSurvive"}
    shrunk = shrink(found, lambda only: run_seed(found.seed, minutes=MINUTES, only=only), attempts_max=30)
    assert shrunk.report.broken_names == found.broken_names
    assert [text for text in shrunk.schedule if "loses power" in text] == shrunk.schedule
    assert len(shrunk.schedule) == 1


@pytest.mark.parametrize("planted", PLANTED)
def test_a_planted_bug_is_found(planted: str, monkeypatch: pytest.MonkeyPatch) -> None:
    owner, name, bug, invariants = PLANTED[planted]
    monkeypatch.setattr(owner, name, bug)
    assert find().broken_names & invariants


def test_readers_that_pass_over_a_truncation_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """What was not synced is lost, three times."""
    monkeypatch.setattr(PartitionReader, "_on_truncated", pass_over)
    losses = [Fault("power loss", at_ms, lasts_ms=400) for at_ms in (1_000, 2_500, 4_000)]
    broken = (run_story(seed, replace(PLAIN, syncs_each=False), losses)[0].broken_names for seed in range(1, 11))
    assert any("NoSilentLoss" in names for names in broken)


def test_a_bug_that_production_code_survives_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """It logs it, closes the connection, and goes on; the client tries again."""
    take_ready, calls = LeaderReplica.take_ready, count(1)

    def once(self: LeaderReplica) -> LeaderReady:
        invariant(next(calls) != 200, "planted")
        return take_ready(self)

    monkeypatch.setattr(LeaderReplica, "take_ready", once)
    (told,) = run_seed(2, minutes=MINUTES).broken
    assert told == 'OwnInvariant: InvariantBrokenError: planted, in once (invariant(next(calls) != 200, "planted"))'


def test_what_a_client_raises_that_it_may_not_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    async def fail(*_: object, **__: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(AsyncConsumer, "poll", fail)
    report, _ = run_story(1, PLAIN, [])
    assert report.broken_names == {"OwnInvariant"}
    assert report.broken[0].endswith("a client raised ZeroDivisionError: , in fail (raise ZeroDivisionError)")


@pytest.mark.parametrize("fault", [Fault("kil", 0), Fault("kill"), Fault("disk slow", 0)], ids=str)
def test_a_fault_of_no_such_kind_is_an_error(fault: Fault) -> None:
    with pytest.raises(KeyError, match=fault.kind):
        run_story(1, PLAIN, [fault])


@pytest.mark.parametrize("nodes", [1, 3])
def test_whatever_the_code_under_test_raises_ends_its_run_and_no_other(
    nodes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    take_ready, calls = LeaderReplica.take_ready, count(1)

    def fail(self: LeaderReplica) -> LeaderReady:
        if next(calls) >= 60:
            raise ZeroDivisionError
        return take_ready(self)

    monkeypatch.setattr(LeaderReplica, "take_ready", fail)
    assert "OwnInvariant" in run_seed(2, nodes=nodes, minutes=MINUTES).broken_names


def test_totals_are_sums() -> None:
    reports = [run_seed(seed, minutes=0.02) for seed in (1, 2)]
    totals = RunTotals.of(reports)
    assert totals.runs == 2
    assert totals.events == sum(report.events for report in reports)
    assert totals.checks["NoSilentLoss"] == sum(report.checks.get("NoSilentLoss", 0) for report in reports)

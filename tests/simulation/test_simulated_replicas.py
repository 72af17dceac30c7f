"""Replicas of several nodes in a world from a seed: nothing breaks, whatever goes wrong; and a weaker rule is found."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from dataclasses import replace

import pytest

from support.old_rules.replica_rules import high_watermark_alone
from tidelog.base.ids import BrokerId, Offset
from tidelog.log import LogConfig
from tidelog.replica import FollowerReplica, LeaderReplica
from tidelog.sim.faults.faults import Fault
from tidelog.sim.replicas import replica as hosted
from tidelog.sim.replicas.faults import REPLICA_FAULTS
from tidelog.sim.replicas.plan import Plan, draw_plan
from tidelog.sim.replicas.story import ReplicaStory
from tidelog.sim.replicas.world import ReplicaCluster
from tidelog.sim.runs.report import Report
from tidelog.sim.runs.run import run_seed
from tidelog.sim.world.rng import SeededRng
from tidelog.sim.world.world import SimulatedWorld

MINUTES = 0.1
SEEDS_MAX = 30
INVARIANTS = {
    "AckedRecordsSurvive", "DeliveredStaysDeliverable", "EpochOffsetUnique", "LeaderInIsr", "LineageTellsTheLog",
    "LogsArePrefixes", "NoSilentLoss", "OwnInvariant", "Progress", "StoppedMeansStopped", "StrongIsr", "WeakIsr",
}  # fmt: skip


def plain(**changes: object) -> Plan:
    """A small plan of one's own, with nothing in it that is drawn."""
    drawn = draw_plan(SeededRng(1), 3)
    usual = {
        "topics": 1, "replication_factor": 3, "min_insync_replicas": 2, "producers": (-1, -1), "produce_ms": 40,
        "consumers": 2, "metadata_ms_max": 20, "session_ms": 600, "heartbeat_ms": 120, "power_losses_max": 1,
        "fetch_wait_ms": 50, "lag_ms_max": 500, "is_synced": False, "allows_unclean": False,
        "log": LogConfig(segment_size_bytes=2_000), "checkpoint_ms": 5_000,
    }  # fmt: skip
    return replace(drawn, **{**usual, **changes})  # type: ignore[arg-type]


def run_story(seed: int, plan: Plan, faults: list[Fault]) -> tuple[Report, dict[str, int]]:
    """A story of one's own: what it came to, and what happened in it."""
    with SimulatedWorld(seed) as world:
        story = ReplicaStory(world, plan)
        report = story.run(MINUTES, faults)
        return report, dict(story.cluster.watch.facts)


@pytest.mark.parametrize("seed", range(1, 9))
def test_nothing_breaks(seed: int) -> None:
    report = run_seed(seed, nodes=2 + seed % 4, minutes=MINUTES)
    assert report.broken == ()
    assert set(report.checks) == INVARIANTS


@pytest.mark.parametrize("kind", REPLICA_FAULTS.steps)
def test_replicas_survive_each_fault_alone(kind: str) -> None:
    """Three times in a row, each time at another broker."""
    faults = [Fault(kind, 1_500 * turn, 9.0, 700, BrokerId(turn)) for turn in (1, 2, 3)]
    report, facts = run_story(3, plain(), faults)
    assert report.broken == ()
    assert report.faults[kind] >= 1
    assert facts["batch acknowledged"] > 20
    assert facts["record delivered"] > 40


def test_a_step_is_taken_whenever_it_comes_and_however_short_it_is() -> None:
    report, facts = run_story(3, plain(), [Fault("topic recreated", 0)])
    assert report.broken == ()
    assert facts["replica deleted"] == 3


def test_a_broker_that_stops_before_it_has_looked_at_its_logs_does_not_call_them_clean() -> None:
    async def story(cluster: ReplicaCluster) -> None:
        while BrokerId(1) not in cluster.brokers or cluster.brokers[BrokerId(1)].broker_epoch is None:
            await asyncio.sleep(0.0001)
        assert not cluster.brokers[BrokerId(1)].is_registered, "it has not been told what to open"
        cluster.stop(BrokerId(1))
        cluster.start(BrokerId(1))
        await asyncio.sleep(0)
        assert not cluster.brokers[BrokerId(1)].held.was_clean

    with SimulatedWorld(1) as world:
        world.run(story(ReplicaCluster(world, plain())))


@pytest.mark.parametrize("kind", REPLICA_FAULTS.rates)
def test_replicas_survive_what_is_bad_all_along(kind: str) -> None:
    amount = 40.0 if kind.endswith("slow") else 0.1
    report, facts = run_story(4, plain(), [Fault(kind, amount=amount), Fault("kill", 2_000, lasts_ms=500)])
    assert report.broken == ()
    assert report.faults[kind] >= 1
    assert facts["batch acknowledged"] > 5


def test_an_unclean_election_is_told_to_whoever_read_what_it_lost() -> None:
    """Two of two lose power at once, of what nobody synced; whoever comes back first leads: the operator says so."""
    plan = plain(nodes=2, replication_factor=2, producers=(-1, 1), power_losses_max=2, allows_unclean=True)
    told = []
    for seed in range(1, 5):
        losses = [
            Fault("power loss", at_ms, lasts_ms=900, broker=BrokerId(1 + at_ms % 2)) for at_ms in (2_000, 2_001, 4_001)
        ]
        report, facts = run_story(seed, replace(plan, unclean_after_ms=100), losses)
        assert report.broken == ()
        told.append(facts.get("unclean election", 0) and facts.get("reader told: the log was truncated", 0))
    assert any(told)


def test_a_seed_gives_the_same_run_in_every_process() -> None:
    told = set()
    for hash_seed in ("1", "2"):
        program = (
            "from tidelog.sim.runs.run import run_seed; "
            f"print(*(run_seed(seed, nodes=3, minutes={MINUTES}) for seed in (5, 6)))"
        )
        ran = subprocess.run(
            [sys.executable, "-c", program],
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            capture_output=True,
            text=True,
            check=True,
            timeout=100,
        )
        told.add(ran.stdout)
    assert len(told) == 1
    assert "digest='" in told.pop()


def test_what_is_left_out_of_a_schedule_does_not_happen() -> None:
    whole = run_seed(5, nodes=3, minutes=MINUTES)
    empty = run_seed(5, nodes=3, minutes=MINUTES, only=())
    assert empty.schedule == whole.schedule
    assert whole.faults
    assert not empty.faults


def test_what_production_code_finds_wrong_with_itself_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    class DoubtfulLeader(LeaderReplica):
        def on_appended(self, log_end_offset: Offset, now_ms: int) -> None:
            super().on_appended(Offset(-1), now_ms)

    monkeypatch.setattr(hosted, "LeaderReplica", DoubtfulLeader)
    report = run_seed(1, nodes=3, minutes=MINUTES)
    assert report.broken_names == {"OwnInvariant"}
    assert "the log end went back" in report.broken[0]


def test_a_weaker_truncation_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the world and its checkers are for: under the rule that KIP-101 replaced, some seeds break."""

    class WeakFollower(FollowerReplica):
        def __init__(self, *args: object, **kwargs: object) -> None:
            super().__init__(*args, **{**kwargs, "truncation": high_watermark_alone})  # type: ignore[arg-type]

    monkeypatch.setattr(hosted, "FollowerReplica", WeakFollower)
    broken: set[str] = set()
    for seed in range(1, SEEDS_MAX):
        broken |= run_seed(seed, nodes=3, minutes=0.3).broken_names
        if broken >= {"StrongIsr", "WeakIsr"}:
            break
    else:
        raise AssertionError(broken)

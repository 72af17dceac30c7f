"""Whole clusters from seeds: nothing breaks, whatever goes wrong; and what is planted is found."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
from dataclasses import replace

import pytest

from support.old_rules import planted_in_runs
from tidelog.base.ids import BrokerId
from tidelog.sim.faults.cluster_faults import CLUSTER_FAULTS
from tidelog.sim.faults.faults import Fault
from tidelog.sim.runs.cluster import ClusterStory
from tidelog.sim.runs.cluster_plan import ClusterPlan
from tidelog.sim.runs.report import Report
from tidelog.sim.runs.run import run_seed
from tidelog.sim.runs.workload import WorkloadPlan
from tidelog.sim.world.world import SimulatedWorld

MINUTES = 0.1
FIRST_SEED = 3  # of planted bugs, which are found soon from here on
INVARIANTS = {
    "AckedRecordsSurvive", "CommittedIsOnAMajority", "CommittedMetadataStays", "DeliveredStaysDeliverable",
    "EpochOffsetUnique", "ImagesAreEqual", "LeaderHasCommitted", "LeaderInIsr", "LineageTellsTheLog", "LogsArePrefixes",
    "MetadataNeverGoesBack", "NoSilentLoss", "OneLeaderPerEpoch", "OwnInvariant", "Progress",
    "LossesAreAccounted", "QuorumEpochNeverGoesBack", "StrongIsr", "VotesOnce", "WeakIsr",
}  # fmt: skip
OF_AN_ADMINISTRATOR = {"MetadataIsLinear", "OwnWritesSeen", "StoppedMeansStopped"}
OF_TRANSACTIONS = {
    "AllOrNothing", "AnsweredAbortsAreAborted", "AnsweredCommitsAreCommitted", "CommittedIsRead", "CopiedOnce",
    "LastOfEachKey", "LastStableOffsetIsStable", "NoAbortedRead", "NothingStaysOpen", "OffsetsFollowTransactions",
}  # fmt: skip
OF_GROUPS = {"EpochsOfCommits", "GroupMakesProgress", "NoCommitLost", "OnePartitionOneOwner"}
OF_SHARE_GROUPS = {
    "AcceptedOnce", "NewRecordsAreDelivered", "NoRecordSkipped", "OneMemberAtATime", "ShareGroupMakesProgress"
}  # fmt: skip
OF_SECURITY = {"RevokedStaysDenied"}
CLIENTS = WorkloadPlan(
    partitions=1,
    producers=1,
    interval_ms=50,
    consumers=1,
    replication_factor=3,
    min_insync_replicas=2,
    syncs_each=False,
)
PLAIN = ClusterPlan(clients=CLIENTS, session_ms=1_000, lag_ms_max=1_000, fetch_timeout_ms=500, checkpoint_ms=60_000)


def run_story(
    plan: ClusterPlan, *faults: Fault, seed: int = 1, minutes: float = MINUTES
) -> tuple[Report, dict[str, int]]:
    """A story of one's own: what it came to, and what happened in it."""
    with SimulatedWorld(seed) as world:
        story = ClusterStory(world, plan)
        report = story.run(minutes, faults)
        return report, dict(story.recorder.facts)


@pytest.mark.parametrize("seed", [*(pytest.param(seed, marks=pytest.mark.slow) for seed in range(1, 5)), *range(5, 9)])
def test_nothing_breaks(seed: int) -> None:
    report = run_seed(seed, nodes=3 + seed % 3, minutes=MINUTES)
    assert report.broken == ()
    others = OF_AN_ADMINISTRATOR | OF_TRANSACTIONS | OF_GROUPS | OF_SHARE_GROUPS | OF_SECURITY
    assert INVARIANTS <= set(report.checks) <= INVARIANTS | others
    gc.collect()  # what a dead process left behind may not complain


@pytest.mark.parametrize("kind", CLUSTER_FAULTS.steps)
def test_a_cluster_survives_each_fault_alone(kind: str) -> None:
    """Three times in a row, each time at another node; an operator may elect anybody."""
    faults = [Fault(kind, 1_500 * turn, 9.0, 700, BrokerId(turn)) for turn in (1, 2, 3)]
    report, facts = run_story(replace(PLAIN, allows_unclean=True), *faults)
    assert report.broken == ()
    assert report.faults[kind] >= 1
    assert facts["record acknowledged"] > 20


@pytest.mark.parametrize("kind", CLUSTER_FAULTS.rates)
def test_a_cluster_survives_what_is_bad_all_along(kind: str) -> None:
    amount = 40.0 if kind == "disk slow" else 0.02
    report, facts = run_story(PLAIN, Fault(kind, amount=amount), Fault("leader killed", 2_000, lasts_ms=500))
    assert report.broken == ()
    assert facts["record acknowledged"] > 20


def test_all_nodes_may_be_killed_at_once_and_nobody_is_elected_uncleanly() -> None:
    """What was written is in the memory of machines that did not stop: whoever returns has what it had."""
    faults = [Fault("kill of all", at_ms, lasts_ms=800) for at_ms in (1_000, 3_000)]
    report, facts = run_story(PLAIN, *faults)
    assert report.broken == ()
    assert report.faults["kill of all"] == 2
    assert "unclean election" not in facts


def test_all_may_lose_power_at_once_and_the_metadata_log_loses_nothing() -> None:
    """Each topic that was told to be made is still there; of records, only those of nobody's promise are gone."""
    plan = replace(PLAIN, clients=replace(CLIENTS, administers=True), allows_unclean=True)
    faults = [Fault("power loss of all", at_ms, lasts_ms=800) for at_ms in (1_000, 4_000)]
    report, facts = run_story(plan, *faults)
    assert report.broken == ()
    assert report.faults["power loss of all"] == 2
    assert report.checks["MetadataIsLinear"] > 0
    assert facts["unclean election"] > 0


def test_controllers_apart_may_lose_power_all_at_once_and_nobody_is_elected_uncleanly() -> None:
    plan = replace(PLAIN, nodes=6, is_parted=True, clients=replace(CLIENTS, administers=True))
    faults = [Fault("power loss of all voters", at_ms, lasts_ms=800) for at_ms in (1_000, 3_000)]
    report, facts = run_story(plan, *faults)
    assert report.broken == ()
    assert report.faults["power loss of all voters"] == 2
    assert "unclean election" not in facts


def test_power_is_lost_as_often_as_the_run_allows() -> None:
    faults = [Fault("power loss", 1_000, lasts_ms=5_000, broker=BrokerId(node)) for node in (1, 2, 3)]
    report, _ = run_story(PLAIN, *faults)
    assert report.broken == ()
    assert report.faults["power loss"] == 1
    assert "power loss of all" not in run_story(PLAIN, Fault("power loss of all", 1_000))[0].faults


def test_an_unclean_election_is_told_to_whoever_read_what_it_lost() -> None:
    """All lose power at once, of what nobody synced; whoever comes back first may be let lead."""
    plan = replace(PLAIN, clients=replace(CLIENTS, interval_ms=20, consumers=2), allows_unclean=True)
    faults = [Fault("power loss of all", at_ms, lasts_ms=900) for at_ms in (1_500, 3_000, 4_500)]

    def told(seed: int) -> int:
        with SimulatedWorld(seed) as world:
            story = ClusterStory(world, plan)
            assert story.run(MINUTES, faults).broken == ()
            return story.recorder.losses_reported if story.recorder.facts["unclean election"] else 0

    assert any(told(seed) for seed in (1, 2))


def test_a_seed_gives_the_same_run_in_every_process() -> None:
    told = set()
    for hash_seed in ("1", "2"):
        program = f"from tidelog.sim.runs.run import run_seed; print(run_seed(7, nodes=3, minutes={MINUTES / 2}))"
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
    ours = run_seed(7, nodes=3, minutes=MINUTES / 2)
    assert told == {f"{ours}\n"}
    assert run_seed(8, nodes=3, minutes=MINUTES / 2).digest != ours.digest


@pytest.mark.parametrize("name", ["says-synced", "one-is-a-majority"])
def test_a_bug_planted_in_a_cluster_is_found(name: str) -> None:
    bug = planted_in_runs.PLANTED_IN_CLUSTERS[name]
    assert planted_in_runs.seeds_until_found(bug, FIRST_SEED, seeds_max=10) is not None


def test_a_voter_that_lost_what_it_had_elects_nobody_who_lacks_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Node 3 is away while topics are made. Node 2, which knows of them, loses its log, and then node 1 goes.

    The planted bug: whoever lost its log, or its votes, is a voter like any other.
    """
    plan = replace(PLAIN, clients=replace(CLIENTS, administers=True), allows_unclean=True)

    def broken(amount: float) -> set[str]:
        faults = [
            Fault("kill", 1_500, amount, 5_000, BrokerId(3)),
            Fault("metadata lost", 4_000, amount, 1_000, BrokerId(2)),
            Fault("kill", 4_500, amount, 6_000, BrokerId(1)),
        ]
        report, _ = run_story(plan, *faults, minutes=0.2)
        assert report.faults["metadata lost"] == 1
        return set(report.broken_names)

    assert set().union(*(broken(amount) for amount in range(3))) == set()
    planted_in_runs.PLANTED_IN_CLUSTERS["votes-though-lost"].plant(monkeypatch)
    assert "LeaderHasCommitted" in set().union(*(broken(amount) for amount in range(3)))


@pytest.mark.parametrize(
    ("name", "invariant"),
    [
        ("own-writes-unseen", "OwnWritesSeen"),
        ("answers-from-the-past", "MetadataNeverGoesBack"),
        ("clients-apart", "MetadataNeverGoesBack"),
        ("believes-its-cache", "OwnWritesSeen"),
    ],
)
def test_who_is_answered_from_the_past_is_told_of(name: str, invariant: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The planted bugs: a broker passes the controller's answer on at once, or looks at no token; a client keeps what
    it has seen to itself, or believes what it has cached.
    """
    planted_in_runs.PLANTED_IN_CLUSTERS[name].plant(monkeypatch)
    plan = replace(PLAIN, clients=replace(CLIENTS, producers=0, administers=True))
    faults = [Fault("controller isolated", at_ms, lasts_ms=3_000) for at_ms in (500, 4_000)]
    broken = (run_story(plan, *faults, seed=seed)[0].broken_names for seed in range(1, 11))
    assert any(invariant in names for names in broken)


@pytest.mark.parametrize("seed", [1, 2])
def test_what_a_deposed_controller_left_to_do_is_done_by_the_next(seed: int) -> None:
    """Each partition of many changes in a decision of its own, while brokers and controllers end."""
    plan = replace(PLAIN, partition_changes_max=1)
    faults = [Fault("flood of topics", 1_500 * turn, 9.0 * turn, 700, BrokerId(turn)) for turn in (1, 2, 3)]
    report, facts = run_story(plan, *faults, seed=seed)
    assert report.broken == ()
    assert report.faults["flood of topics"] == 3
    assert facts["record acknowledged"] > 20

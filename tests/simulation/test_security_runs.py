"""Users, rights, quotas, tokens and settings in whole clusters: each broker goes by what its clients have seen."""

from __future__ import annotations

from dataclasses import replace

import pytest

from support.old_rules.planted import run_cluster
from support.old_rules.planted_in_security_runs import (
    ISOLATIONS,
    KILLS,
    MINUTES,
    PLAN,
    PLANTED,
    SECURITY,
    seeds_until_found,
)
from tidelog.sim.checkers.registers import Registers
from tidelog.sim.faults.faults import Fault
from tidelog.sim.runs.cluster_plan import SECURITY_SHARE, draw_cluster_plan
from tidelog.sim.runs.security_plan import SecurityPlan
from tidelog.sim.world.rng import SeededRng

FIRST_SEED = 1  # of planted bugs, which are found soon from here on
GATED_READS = {
    "DescribeAcls", "DescribeClientQuotas", "DescribeCluster", "DescribeConfigs", "DescribeDelegationToken",
    "DescribeLogDirs", "DescribeTopicPartitions", "DescribeUserScramCredentials", "ListConfigResources", "Metadata",
}  # fmt: skip
WITH_LOGINS = replace(SECURITY, nodes_log_in=True)
WITHOUT_AUTHORIZER = replace(SECURITY, has_authorizer=False)


@pytest.mark.parametrize(
    ("security", "faults"), [(SECURITY, KILLS), (WITH_LOGINS, ISOLATIONS), (WITHOUT_AUTHORIZER, ISOLATIONS)]
)
def test_nobody_is_served_by_what_was_before(security: SecurityPlan, faults: tuple[Fault, ...]) -> None:
    recorder = run_cluster(replace(PLAN, security=security), faults, 1, MINUTES).recorder
    assert recorder.broken == []
    assert set(Registers.names) <= set(recorder.checks)
    answered = {read for read in GATED_READS if recorder.facts[f"{read} answered"]}
    assert answered == (GATED_READS if security.has_authorizer else GATED_READS - {"DescribeAcls"})
    kinds = {"topic", "user", "quota", "delegation token", "group"}
    assert all(recorder.facts[f"{kind} written"] for kind in kinds)
    assert recorder.facts["read of a controller"] > 5
    assert recorder.facts["login"] > 5 < recorder.facts["login refused"]
    if security.has_authorizer:
        assert recorder.facts["right used"] > 5 < recorder.facts["right denied"]


def test_a_share_of_runs_has_users_and_of_these_some_have_rights() -> None:
    plans = [draw_cluster_plan(SeededRng(seed), 3) for seed in range(400)]
    found = [plan.security for plan in plans if plan.security is not None]
    assert SECURITY_SHARE - 0.1 < len(found) / len(plans) < SECURITY_SHARE + 0.1
    kinds = {(security.has_authorizer, security.nodes_log_in) for security in found}
    assert kinds == {(has, log_in) for has in (True, False) for log_in in (True, False)}


@pytest.mark.parametrize("name", sorted(PLANTED))
def test_a_planted_bug_is_found(name: str) -> None:
    found = seeds_until_found(PLANTED[name], FIRST_SEED, 8)
    assert found is not None
    assert not PLANTED[name].invariants.isdisjoint(text.partition(":")[0] for text in found[1])

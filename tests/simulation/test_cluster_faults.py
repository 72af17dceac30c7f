"""What is drawn for clusters: plans that can be, faults of every kind, words that people can read."""

from __future__ import annotations

import pytest

from tidelog.server.settings.config import NodeConfig
from tidelog.sim.faults.cluster_faults import CLUSTER_FAULTS
from tidelog.sim.runs.cluster_plan import NODES_MAX, NODES_MIN, draw_cluster_plan
from tidelog.sim.world.rng import SeededRng


def test_most_kinds_are_left_out_of_most_runs_and_none_of_all() -> None:
    drawn = [{fault.kind for fault in CLUSTER_FAULTS.draw(SeededRng(seed), 1.0, 3)} for seed in range(1000)]
    for kind in (*CLUSTER_FAULTS.steps, *CLUSTER_FAULTS.rates):
        share = sum(kind in kinds for kinds in drawn) / len(drawn)
        assert 0.01 < share < 0.6, kind


def test_words_name_the_node_that_is_met() -> None:
    for seed in range(100):
        for fault in CLUSTER_FAULTS.draw(SeededRng(seed), 1.0, 5):
            words = CLUSTER_FAULTS.words_of(fault)
            assert "the node loses" not in words
            assert "{" not in words
            if "broker}" in CLUSTER_FAULTS.steps.get(fault.kind, CLUSTER_FAULTS.rates.get(fault.kind)).words:  # type: ignore[union-attr]
                assert f"node {fault.broker}" in words


@pytest.mark.parametrize("nodes", range(NODES_MIN, NODES_MAX + 1))
def test_every_node_of_a_plan_has_a_configuration_that_can_be(nodes: int) -> None:
    for seed in range(30):
        plan = draw_cluster_plan(SeededRng(seed), nodes)
        assert plan.nodes == nodes
        assert plan.voters % 2 == 1
        assert plan.clients.min_insync_replicas <= plan.clients.replication_factor <= nodes
        for node_id in plan.node_ids:
            config = NodeConfig.from_properties(
                {
                    "node.id": str(node_id),
                    "log.dirs": "logs",
                    "controller.listener.names": "CONTROLLER",
                    **plan.properties(node_id),
                }
            )
            assert config.node_id == node_id


def test_plans_differ() -> None:
    plans = [draw_cluster_plan(SeededRng(seed), 5) for seed in range(100)]
    assert {plan.voters for plan in plans} == {3, 5}
    assert {plan.clients.min_insync_replicas for plan in plans} == {1, 2, 3}
    assert {plan.allows_unclean for plan in plans} == {False, True}
    assert {plan.power_losses_max for plan in plans} == {None, 0, 1, 2}
    parted = [plan for seed in range(30) if (plan := draw_cluster_plan(SeededRng(seed), 7)).is_parted]
    assert len(parted) > 5
    for plan in parted:
        assert set(plan.voter_ids).isdisjoint(plan.broker_ids)
        assert len(plan.broker_ids) >= plan.clients.replication_factor

"""One run from one seed.

    report = run_seed(7)
    assert not report.broken

What goes wrong is drawn before the run begins; `only` takes a part of it, which is how a failure is made short.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from tidelog.sim.runs.cluster import ClusterStory
from tidelog.sim.runs.cluster_plan import draw_cluster_plan
from tidelog.sim.runs.one_node import OneNodeStory
from tidelog.sim.runs.report import Report
from tidelog.sim.runs.story import Story
from tidelog.sim.runs.workload import draw_plan
from tidelog.sim.world.world import SimulatedWorld

MINUTES = 1.0
"""Of virtual time, in which things go wrong."""


def run_seed(
    seed: int,
    *,
    nodes: int = 1,
    minutes: float = MINUTES,
    only: Collection[int] | None = None,
) -> Report:
    """Run one seed.

    Args:
        seed: what everything random is drawn from.
        nodes: 1 is a production node with its clients; three to seven are a cluster of them with its clients.
        minutes: of virtual time, in which things go wrong.
        only: places in the report's `schedule` of what goes wrong; None for all of it.
    """
    with SimulatedWorld(seed) as world:
        story = _draw_story(world, nodes)
        drawn = story.kinds.draw(world.rng.stream("faults"), minutes, nodes)
        report = story.run(minutes, [fault for place, fault in enumerate(drawn) if only is None or place in only])
        return replace(report, schedule=tuple(map(story.kinds.words_of, drawn)))


def _draw_story(world: SimulatedWorld, nodes: int) -> Story:
    rng = world.rng.stream("plan")
    if nodes == 1:
        return OneNodeStory(world, draw_plan(rng))
    return ClusterStory(world, draw_cluster_plan(rng, nodes))

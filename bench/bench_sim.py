"""How fast a simulation is: one production node with its clients on a virtual clock, every checker on, on one core.

100 produce requests each second, each synced before it is acknowledged, and two consumers that are given every record.
Times are those of the process: what else the machine does is left out.
"""

from __future__ import annotations

import logging
import time

from harness import LONG, figure, median, say

from tidelog.sim.runs.one_node import OneNodeStory
from tidelog.sim.runs.run import run_seed
from tidelog.sim.runs.workload import WorkloadPlan
from tidelog.sim.world.world import SimulatedWorld

ROUNDS = 7 if LONG else 5
VIRTUAL_MINUTES = 1.0 if LONG else 0.5
SEEDS = range(1, 33)
CLUSTER_NODES = 3
PAUSE_MS = 50


def time_steady_load(pause_ms: int) -> tuple[float, float]:
    """Virtual seconds for each real one, and events each second, with consumers that take a while between polls."""
    with SimulatedWorld(1) as world:
        story = OneNodeStory(world, WorkloadPlan(interval_ms=10, consumers=2, pause_ms=pause_ms))
        started = time.process_time()
        report = story.run(VIRTUAL_MINUTES, [])
        seconds = time.process_time() - started
    assert not report.broken, report.broken
    return report.virtual_seconds / seconds, report.events / seconds


def time_seeds(nodes: int) -> tuple[float, float]:
    """Of runs as `tidelog sim run` makes them: virtual seconds for each real one, and faults injected in each run."""
    virtual_seconds = faults = 0.0
    started = time.process_time()
    for seed in SEEDS:
        report = run_seed(seed, nodes=nodes, minutes=0.2)
        assert not report.broken, report.broken
        virtual_seconds += report.virtual_seconds
        faults += sum(report.faults.values())
    return virtual_seconds / (time.process_time() - started), faults / len(SEEDS)


def main() -> None:
    logging.getLogger("tidelog").setLevel(logging.CRITICAL + 1)  # nodes under faults say so
    say(f"{ROUNDS} rounds of {VIRTUAL_MINUTES * 60:.0f} virtual seconds, 100 requests/s, two consumers")
    for pause_ms, what in ((0, "2 consumers"), (PAUSE_MS, f"2 consumers that poll every {PAUSE_MS} ms")):
        rounds = [time_steady_load(pause_ms) for _ in range(ROUNDS)]
        speed = median([speed for speed, _ in rounds])
        note = f"{median([events for _, events in rounds]):,.0f} events/s"
        figure(f"simulated node, 100 requests/s, {what}", speed, "x real time", at_least=20, note=note)
    for nodes in (1, CLUSTER_NODES):
        say(f"seeds {SEEDS.start}..{SEEDS.stop - 1}, {nodes} nodes")
        speed, faults = time_seeds(nodes)
        what = "one node and its clients" if nodes == 1 else f"a cluster of {nodes} nodes and its clients"
        figure(f"simulated seeds, {what}", speed, "x real time", note=f"{faults:.0f} faults a run")


if __name__ == "__main__":
    main()

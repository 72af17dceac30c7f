"""What happens to clocks: that of one node, or of each, is set while it runs."""

from __future__ import annotations

from collections.abc import Iterator
from weakref import WeakKeyDictionary

from chaos.clocks import NodeClock
from chaos.fault import Fault, Hurt, Stage
from chaos.nodes import ChaosCluster

AHEAD_SECONDS_MAX = 24 * 3_600.0
"""Less than `retention.ms`: a leader that is further ahead deletes what is that old to it, as it is told to."""
BEHIND_SECONDS_MAX = 55 * 60.0
"""Less than `message.timestamp.after.max.ms`: to a leader that is further behind, records come from the future."""

_clocks: WeakKeyDictionary[ChaosCluster, dict[int, NodeClock]] = WeakKeyDictionary()


def give_clocks(cluster: ChaosCluster) -> None:
    """Each node gets a clock of its own, before it starts."""
    clocks = {node_id: NodeClock(cluster.home / f"clock-{node_id}") for node_id in cluster.nodes}
    for node_id, node in cluster.nodes.items():
        node.program = clocks[node_id].program
    _clocks[cluster] = clocks


def jump(stage: Stage) -> Iterator[str]:
    """The clock of one node, a few times, either way; then it is set right."""
    node = stage.victim()
    yield from _set(stage, [node.node_id], str(node))


def jump_all(stage: Stage) -> Iterator[str]:
    """The clocks of all nodes, each by something else, a few times; then they are set right."""
    yield from _set(stage, list(stage.cluster.nodes), "all")


def _set(stage: Stage, node_ids: list[int], what: str) -> Iterator[str]:
    clocks = _clocks[stage.cluster]
    try:
        for _ in range(stage.dice.randrange(1, 5)):
            shifts = [_shift(stage) for _ in node_ids]
            for node_id, shift in zip(node_ids, shifts, strict=True):
                clocks[node_id].set(shift)
            yield f"{what}, to {', '.join(f'{shift:+.0f} s' for shift in shifts)}"
    finally:
        for node_id in node_ids:
            clocks[node_id].set(0)


def _shift(stage: Stage) -> float:
    """Mostly less than the longest, so that time-outs of every length are passed over."""
    furthest = stage.dice.choice([AHEAD_SECONDS_MAX, -BEHIND_SECONDS_MAX])
    return float(furthest * stage.dice.random() ** 3)


FAULTS = (
    Fault(
        kind="clock of a node jumps",
        strike=jump, hurts=Hurt.CLOCK, seconds=(0.5, 4.0), prepare=give_clocks, is_mixed=False,
    ),
    Fault(
        kind="all clocks jump",
        strike=jump_all, hurts=Hurt.CLOCK, seconds=(0.5, 4.0), prepare=give_clocks, is_mixed=False,
    ),
)  # fmt: skip

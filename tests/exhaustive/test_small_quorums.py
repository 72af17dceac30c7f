"""Disks that forget what a voter said, and logs that are taken for a snapshot's, break the smallest quorum."""

from __future__ import annotations

import pytest

from support.small_quorum import QuorumBounds, SmallQuorum
from support.small_world_search import explore


@pytest.mark.parametrize(
    ("bounds", "invariant", "steps"),
    [
        (QuorumBounds(records=0, epochs=2, forgets="votes"), "OneLeaderAnEpoch", 5),
        (QuorumBounds(epochs=2, is_sync_late=True, forgets="syncs"), "CommittedStays", 6),
        (QuorumBounds(epochs=2, candidates=2, snapshots=1, forgets="epochs"), "CommittedStays", 13),
    ],
    ids=["votes", "syncs", "epochs"],
)
def test_what_was_said_and_not_on_disk_breaks_a_quorum(bounds: QuorumBounds, invariant: str, steps: int) -> None:
    world = SmallQuorum(bounds)
    explored = explore(world, is_traced=True)
    assert explored.broken.startswith(f"{invariant}:"), world.describe(explored.steps[-1][1])
    assert len(explored.steps) == steps

"""Disks that forget what a voter said, and logs that are taken for a snapshot's, break the smallest quorum.

So does a voter that lost its log, or its votes, and takes part as if nothing had been, or too soon.
"""

from __future__ import annotations

import pytest

from support.exhaustive.small_quorum import QuorumBounds, SmallQuorum
from support.exhaustive.small_world_search import explore
from tidelog.base.ids import Offset
from tidelog.quorum import QuorumLog
from tidelog.quorum.recovering import Recovering
from tidelog.quorum.standing import Standing


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


@pytest.mark.parametrize(
    ("amnesia", "invariant", "steps"), [("log", "CommittedStays", 6), ("votes", "OneLeaderAnEpoch", 5)]
)
def test_a_voter_that_lost_something_and_votes_on_breaks_a_quorum(
    amnesia: str, invariant: str, steps: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Standing, "may_vote", property(lambda _: True))
    world = SmallQuorum(QuorumBounds(epochs=2, losses=0, amnesia=amnesia))
    explored = explore(world, is_traced=True)
    assert explored.broken.startswith(f"{invariant}:"), world.describe(explored.steps[-1][1])
    assert len(explored.steps) == steps


def test_a_voter_that_forgot_its_votes_and_only_catches_up_breaks_a_quorum(monkeypatch: pytest.MonkeyPatch) -> None:
    """The leader that it finds may have been followed by another one already, by a vote that nobody remembers."""

    def has_caught_up(_: Recovering, log: QuorumLog, leader_high_watermark: Offset | None) -> bool:
        return leader_high_watermark is not None and log.synced_end_offset >= leader_high_watermark

    monkeypatch.setattr(Recovering, "is_done", has_caught_up)
    world = SmallQuorum(QuorumBounds(epochs=2, losses=0, amnesia="votes"))
    explored = explore(world, is_traced=True)
    assert explored.broken.startswith("OneLeaderAnEpoch:"), world.describe(explored.steps[-1][1])
    assert len(explored.steps) == 8

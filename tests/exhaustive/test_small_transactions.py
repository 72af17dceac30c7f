"""A late marker ends a later transaction, unless every end bumps the epoch; and bugs of the coordinator are found."""

from __future__ import annotations

import pytest

from support.exhaustive.small_transactions import SmallTransactions, TransactionBounds, _canonical, _copied
from support.exhaustive.small_world_search import explore
from support.old_rules.planted_transactions import PLANTED

LATE = TransactionBounds(leaders=1, transactions=(2, 0))


def test_in_versions_0_and_1_a_late_marker_ends_a_later_transaction() -> None:
    """The rule that KIP-890 replaced: the marker of the first transaction looks like one of the second."""
    world = SmallTransactions(TransactionBounds(version=1, leaders=1, transactions=(2, 0)))
    explored = explore(world, is_traced=True)
    assert explored.broken.startswith("NoMarkerEndsALaterTransaction:"), explored
    assert len(explored.steps) == 11
    assert explored.steps[-1][0] == ("late marker", 0), world.describe(explored.steps[-1][1])


def test_in_version_2_it_does_not() -> None:
    explored = explore(SmallTransactions(LATE))
    assert not explored.broken
    assert explored.states > 10_000


def test_a_bumped_epoch_is_of_no_use_to_a_partition_that_does_not_look_at_it() -> None:
    world = SmallTransactions(TransactionBounds(leaders=1, transactions=(2, 0), is_epoch_checked=False))
    explored = explore(world, is_traced=True)
    assert explored.broken.startswith("NoMarkerEndsALaterTransaction:"), explored
    assert len(explored.steps) == 12


@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_bug_is_found(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    planted = PLANTED[name]
    monkeypatch.setattr(planted.owner, planted.name, planted.bug)
    world = SmallTransactions(planted.bounds)
    explored = explore(world, is_traced=True)
    assert explored.broken.startswith(f"{planted.invariant}:"), explored
    assert len(explored.steps) < 15


@pytest.mark.parametrize(
    "bounds", dict.fromkeys(one.bounds for one in PLANTED.values()), ids=lambda bounds: bounds.text
)
def test_without_a_bug_its_world_holds(bounds: TransactionBounds) -> None:
    assert not explore(SmallTransactions(bounds)).broken


def test_a_copy_goes_its_own_way() -> None:
    """A request that waits does so at the copy, and the one that was copied stays as it was."""
    world = SmallTransactions(TransactionBounds(leaders=1, late_markers=0))
    explore(world)
    waiting = [part for part in world.parts if part.machine._waiting._requests and part.owed]
    assert waiting
    for part in waiting:
        before = _canonical(part)
        copy = _copied(part.machine)
        assert _canonical(part._replace(machine=copy)) == before
        for send_id in list(copy._markers._sends):
            copy.on_sent(send_id, None, now_ms=0, wall_ms=0)
        copy.take_ready()
        assert not copy._waiting._requests
        assert _canonical(part) == before

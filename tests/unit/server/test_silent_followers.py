"""Which brokers fetch nothing at all any more."""

from __future__ import annotations

from tidelog.base.ids import BrokerId
from tidelog.server.replication.deadlines import Due
from tidelog.server.replication.silent_followers import SilentFollowers
from tidelog.sim.world.world import SimulatedWorld

TWO, THREE = BrokerId(2), BrokerId(3)


def test_who_fetches_nothing_for_a_session_is_silent_until_it_fetches_again() -> None:
    told: list[tuple[BrokerId, bool]] = []
    due_ms: list[int] = []
    with SimulatedWorld(1) as world:
        clock = world.machine("broker-1").clock

        def due_at(who: Due, at_ms: int) -> None:
            due_ms.append(at_ms - start_ms)

        def on_changed(broker_id: BrokerId, is_silent: bool) -> None:
            told.append((broker_id, is_silent))

        followers = SilentFollowers(clock, 1_000, due_at, on_changed)
        start_ms = clock.now_ms()
        followers.on_due(start_ms)
        assert due_ms == [], "nobody has fetched yet"
        followers.on_fetch(TWO, 500)
        followers.on_fetch(THREE, 100)
        assert due_ms == [1_501], "one deadline at a time; while a fetch waits, its follower cannot send another"
        followers.on_due(start_ms + 1_501)
        assert told == [(TWO, True), (THREE, True)]
        followers.on_fetch(TWO, 0)
        assert told[2:] == [(TWO, False)]
        assert due_ms == [1_501, 1_001], "who is silent is looked at again when it fetches"
        followers.on_due(start_ms + 1_000)
        assert told[3:] == []

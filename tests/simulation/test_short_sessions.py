"""Sessions of two seconds in a cluster that is busy: nobody who lives is fenced, and who is silent is."""

from __future__ import annotations

from simulation.short_sessions import run_busy


def test_nobody_who_lives_is_fenced() -> None:
    found = run_busy(60, seed=1)
    assert (found.fenced, found.elected, found.controllers) == (0, 0, 0)
    assert found.written > 100
    assert found.injected["network loss"] > 10


def test_sessions_that_are_shorter_than_a_packet_takes_are_ended() -> None:
    """The negative control: what is counted is there to be counted."""
    found = run_busy(60, seed=1, session_ms=200, loss_rate=0.2)
    assert found.fenced > 0

"""What a broker applies together of the committed metadata: little of much, and all that waits."""

from __future__ import annotations

from collections import deque

import pytest

from tidelog.base.ids import Offset
from tidelog.server.broker import broker as broker_module
from tidelog.server.broker.broker import Committed, next_run


def runs(*committed: tuple[str, bool]) -> list[tuple[str, int, bool]]:
    """Each: the records, a letter each, where they end, and whether they are of a snapshot."""
    waiting: deque[Committed] = deque()
    end_offset = 0
    for records, from_snapshot in committed:
        end_offset += len(records)
        waiting.append(Committed(tuple(records), Offset(end_offset), from_snapshot))
    found: list[tuple[str, int, bool]] = []
    while waiting:
        run = next_run(waiting)
        found.append(("".join(map(str, run.records)), int(run.end_offset), run.from_snapshot))
    return found


def test_portions_that_wait_are_applied_together_as_many_as_there_is_room_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(broker_module, "RECORDS_PER_RUN_MAX", 5)
    assert runs(("ab", False), ("cd", False), ("ef", False), ("g", False)) == [("abcd", 4, False), ("efg", 7, False)]
    assert runs(("abcdefgh", False), ("i", False)) == [("abcdefgh", 8, False), ("i", 9, False)]
    assert runs(("", False), ("a", False)) == [("a", 1, False)]


def test_a_snapshot_is_applied_alone() -> None:
    assert runs(("a", False), ("b", True), ("c", False)) == [("a", 1, False), ("b", 2, True), ("c", 3, False)]

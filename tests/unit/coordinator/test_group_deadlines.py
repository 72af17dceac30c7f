"""Deadlines that move all the time, and a heap that must not grow with it."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tidelog.coordinator.deadlines import STALE_ENTRIES_MIN, Alarm, Cause, Deadlines


def alarm(number: int) -> Alarm:
    return Alarm(Cause.SESSION, "g", str(number))


def test_an_alarm_goes_off_once_at_its_last_time() -> None:
    deadlines: Deadlines[Alarm] = Deadlines()
    deadlines.set(alarm(1), 10)
    deadlines.set(alarm(1), 30)
    deadlines.set(alarm(2), 20)
    assert deadlines.pop_due(15) is None
    assert deadlines.pop_due(40) == alarm(2)
    assert deadlines.pop_due(40) == alarm(1)
    assert deadlines.pop_due(99) is None
    assert deadlines.next_ms() is None


def test_a_cancelled_one_does_not() -> None:
    deadlines: Deadlines[Alarm] = Deadlines()
    deadlines.set(alarm(1), 10)
    deadlines.cancel(alarm(1))
    deadlines.cancel(alarm(2))
    assert deadlines.pop_due(99) is None


def test_the_heap_is_held_to_what_is_set() -> None:
    deadlines: Deadlines[Alarm] = Deadlines()
    for time_ms in range(100_000, 0, -1):
        deadlines.set(alarm(1), time_ms)
    for number in range(10_000):
        deadlines.set(alarm(number), 5)
        deadlines.cancel(alarm(number))
    deadlines.set(alarm(0), 7)
    assert len(deadlines) == 1
    assert len(deadlines._heap) <= 2 * STALE_ENTRIES_MIN
    assert deadlines.pop_due(7) == alarm(0)


STEPS = st.lists(
    st.tuples(st.sampled_from(["set", "cancel", "pop"]), st.integers(0, 5), st.integers(0, 50)), max_size=60
)


@given(STEPS)
def test_they_go_off_as_a_plain_table_says(steps: list[tuple[str, int, int]]) -> None:
    deadlines: Deadlines[Alarm] = Deadlines()
    table: dict[Alarm, int] = {}
    for step, number, time_ms in steps:
        if step == "set":
            deadlines.set(alarm(number), time_ms)
            table[alarm(number)] = time_ms
        elif step == "cancel":
            deadlines.cancel(alarm(number))
            table.pop(alarm(number), None)
        else:
            due = []
            while (one := deadlines.pop_due(time_ms)) is not None:
                due.append(one)
            assert sorted(due) == sorted(one for one, due_ms in table.items() if due_ms <= time_ms)
            assert [table[one] for one in due] == sorted(table[one] for one in due)
            for one in due:
                del table[one]
        assert len(deadlines) == len(table)
        assert deadlines.next_ms() == min(table.values(), default=None)

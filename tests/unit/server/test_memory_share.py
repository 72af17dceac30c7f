"""Who has how much of a share of memory: said by a table of what came, with a clock that the test moves."""

from __future__ import annotations

import random

import pytest

from tidelog.server.transport.memory_share import MUCH_BYTES, STILL_MS_MAX, MemoryShare

KB, MB = 1 << 10, 1 << 20


def test_what_fits_is_given_and_what_does_not_waits_until_it_does() -> None:
    share: MemoryShare[str] = MemoryShare(100 * KB)
    assert share.take("a", 60 * KB, 0)
    assert share.take("b", 60 * KB, 0)  # one may go beyond the limit
    assert not share.take("c", 10 * KB, 0)
    assert share.waiting_count == 1
    share.reduce("a", 0, 1)
    assert share.take_ready() == ((), ("c",))
    assert (share.used_bytes, share.waiting_count) == (70 * KB, 0)


@pytest.mark.parametrize("frame_bytes", [100 * MB, 3 * MB])
def test_one_frame_of_any_size_passes_though_the_share_is_full(frame_bytes: int) -> None:
    share: MemoryShare[str] = MemoryShare(MB)
    assert share.take("full", MB, 0)
    for _ in range(frame_bytes // MB):
        assert share.take("large", MB, 0)
    assert not share.take("other", MB, 0)
    share.reduce("large", 0, 0)
    assert share.take_ready().given == ("other",)  # and then the next one does


def test_the_one_that_holds_least_is_given_first() -> None:
    share: MemoryShare[str] = MemoryShare(10 * MB)
    for holder, size in (("full", 5 * MB), ("much", 2 * MB), ("little", 16 * KB), ("less", 8 * KB), ("beyond", 9 * MB)):
        assert share.take(holder, size, 0)
    for holder in ("much", "little", "less"):
        assert not share.take(holder, MB, 0), holder
    share.reduce("full", 0, 0)
    assert share.take_ready().given == ()
    share.reduce("little", 0, 0)  # who waits may leave
    share.reduce("beyond", 7 * MB, 0)
    assert share.take_ready().given == ("less",)


def test_who_goes_beyond_the_limit_is_by_turns_who_holds_least_and_who_waits_longest() -> None:
    share: MemoryShare[str] = MemoryShare(MB)
    done = "first"
    share.take(done, MB - 6 * KB, 0)
    for holder, size in (("much", 3 * KB), ("more", 2 * KB), ("less", KB)):
        assert share.take(holder, size, 0)
    assert share.take(done, MB, 0)
    for holder in ("much", "more", "less"):
        assert not share.take(holder, 5 * MB, 0)
    turns = []
    while share.waiting_count:
        share.reduce(done, 0, 0)
        (done,) = share.take_ready().given
        turns.append(done)
    assert turns == ["less", "much", "more"]


def test_those_who_hold_much_leave_a_quarter_to_the_others() -> None:
    share: MemoryShare[str] = MemoryShare(100 * MB)
    assert share.take("beyond", MUCH_BYTES, 0)
    for number in range(74):
        assert share.take(f"large {number}", MUCH_BYTES, 0)
    assert share.take("beyond", MB, 0)
    assert not share.take("large 0", MB, 0)
    for number in range(240):
        assert share.take(f"small {number}", 100 * KB, 0)
    assert share.take_ready() == ((), ())


def test_who_stood_still_for_longest_is_closed_when_somebody_waited_too_long() -> None:
    share: MemoryShare[str] = MemoryShare(2 * MB)
    for when, holder in enumerate(("first", "second")):
        assert share.take(holder, MB, when)
    assert share.take("beyond", MB, 10)
    assert not share.take("waits", 500 * KB, 20)
    assert share.next_deadline_ms() == 20 + STILL_MS_MAX
    share.on_time(19 + STILL_MS_MAX)
    assert share.take_ready() == ((), ())
    share.on_time(20 + STILL_MS_MAX)
    assert share.take_ready() == (("first", "second"), ("waits",))  # one was not enough: "beyond" is still there
    assert share.next_deadline_ms() is None
    assert share.closed_count == 2
    share.reduce("first", 0, 0)  # that its connection is gone is no news
    assert share.used_bytes == MB + 500 * KB


def test_who_moves_is_not_closed_however_long_others_wait() -> None:
    share: MemoryShare[str] = MemoryShare(MB)
    share.take("moves", 2 * MB, 0)
    assert not share.take("waits", KB, 0)
    for now_ms in range(0, 20_000, 1_000):
        assert share.take("moves", MB, now_ms)
        share.on_time(now_ms)
        assert "moves" not in share.take_ready().closed


def test_what_is_there_already_is_charged_and_the_stillest_goes() -> None:
    share: MemoryShare[str] = MemoryShare(10 * KB)
    for when, holder in enumerate("abc"):
        share.charge(holder, 3 * KB, when)
    share.charge("a", 4 * KB, 5)
    assert share.take_ready().closed == ()
    share.charge("d", 5 * KB, 6)
    assert share.take_ready().closed == ("b", "c")
    share.charge("e", 50 * KB, 7)  # alone it is too much, and is there all the same
    assert share.take_ready().closed == ("a", "d")
    assert share.used_bytes == 50 * KB
    share.reduce("e", 0, 8)
    assert share.used_bytes == 0


def test_what_is_kept_takes_no_more_than_three_quarters() -> None:
    share: MemoryShare[str] = MemoryShare(100)
    assert share.keep(75)
    assert not share.keep(1)
    assert share.take("a", 25, 0)
    assert share.take("b", 1, 0)
    assert not share.take("c", 1, 0)
    share.keep_no_more(75, 0)
    assert share.take_ready().given == ("c",)


def test_who_waits_to_keep_leaves_the_quarter_and_is_never_closed() -> None:
    share: MemoryShare[str] = MemoryShare(100)
    assert share.take("stands still", 60, 0)
    assert share.take("beyond", 50, 0)
    assert not share.take_to_keep("long", 20, 0)
    share.reduce("beyond", 0, 0)
    assert share.take_ready() == ((), ("long",))  # it goes beyond the quarter: nobody else does
    assert not share.take_to_keep("longer", 20, 1)
    share.on_time(1 + STILL_MS_MAX)
    assert share.take_ready() == (("stands still",), ("longer",))
    assert share.next_deadline_ms() is None
    share.keep_no_more(20, 0, "long")
    share.keep_no_more(20, 0, "longer")
    assert share.used_bytes == 0


def test_who_keeps_beyond_the_limit_lets_the_next_one_go_when_it_keeps_nothing() -> None:
    share: MemoryShare[str] = MemoryShare(100)
    assert share.take_to_keep("first", 500, 0)
    assert not share.take_to_keep("second", 500, 0)
    share.keep_no_more(300, 0)
    assert share.take_ready().given == ()
    share.keep_no_more(200, 0, "first")
    assert share.take_ready().given == ("second",)
    assert share.used_bytes == 500


def test_who_waits_and_has_nothing_leaves_the_line() -> None:
    share: MemoryShare[str] = MemoryShare(100)
    assert share.take("beyond", 101, 0)
    assert not share.take("gone", 10, 0)
    share.reduce("gone", 0, 0)
    share.reduce("beyond", 0, 0)
    assert share.take_ready() == ((), ())
    assert (share.used_bytes, share.waiting_count) == (0, 0)


@pytest.mark.parametrize("seed", range(3))
def test_the_books_balance_and_everybody_is_served_in_the_end(seed: int) -> None:
    """Connections that come, grow, stall and leave: never above the limit and one frame, and nobody waits for ever."""
    rng = random.Random(seed)
    limit, frame = 20 * MB, 8 * MB
    share: MemoryShare[int] = MemoryShare(limit)
    held: dict[int, int] = {}
    waiting: dict[int, tuple[int, int]] = {}
    stalled: set[int] = set()
    for now_ms in range(40_000):
        holder = rng.randrange(20)
        if holder in waiting or holder in stalled:
            pass
        elif held.get(holder, 0) >= frame or rng.random() < 0.2:
            held.pop(holder, None)
            share.reduce(holder, 0, now_ms)
        elif rng.random() < 0.05 and held.get(holder):
            stalled.add(holder)
        else:
            step = min(rng.choice([48 * KB, MB]), frame - held.get(holder, 0))
            if share.take(holder, step, now_ms):
                held[holder] = held.get(holder, 0) + step
            else:
                waiting[holder] = (step, now_ms)
        share.on_time(now_ms)
        closed, given = share.take_ready()
        for one in closed:
            del held[one]
            assert one not in waiting
            stalled.discard(one)
        for one in given:
            held[one] = held.get(one, 0) + waiting.pop(one)[0]
        assert share.used_bytes == sum(held.values()) <= limit + frame
        assert share.waiting_count == len(waiting)
        assert all(now_ms - since < 20_000 for _, since in waiting.values())

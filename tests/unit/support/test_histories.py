"""The checker of histories finds nothing in a good one, and each fault in one that was doctored to have it."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from support.load.histories import Fault, Given, History, RecordId, Told

PARTITIONS = 2
RECORDS = 6  # of each producer, to each partition
LAST = 2 * RECORDS  # the last offset: one record is there twice


def good() -> History:
    """An idempotent and a plain producer take turns in two partitions; two readers are given all of it.

    The plain one's record 3 is there twice, as a retry leaves it, and its record 5 came, though it was given up.
    """
    history = History(idempotent={"once"})
    for partition in range(PARTITIONS):
        order = [RecordId(name, partition, number) for number in range(RECORDS) for name in ("once", "plain")]
        order[-1:] = [RecordId("plain", partition, 3), RecordId("plain", partition, 5)]
        log = [Given(partition, offset, record.value, offset // 4) for offset, record in enumerate(order)]
        history.final[partition] = log
        for name in ("once", "plain"):
            history.sent[name, partition] = RECORDS
        for offset, record in enumerate(order[:-2]):
            history.acknowledged[record] = offset
        history.failed[order[-1]] = "timed out"
        for reader in ("first", "second"):
            history.given.setdefault(reader, []).extend(log)
    return history


def faults(history: History) -> set[Fault]:
    return {finding.fault for finding in history.findings()}


def test_a_good_history_has_no_fault() -> None:
    history = good()
    assert history.findings() == []
    history.check()


def replaced(stream: list[Given], offset: int, value: bytes | None) -> list[Given]:
    return [one._replace(value=value) if one.offset == offset else one for one in stream]


def lose_the_end(history: History) -> None:
    """As an unclean election does: what was acknowledged at the end is gone for all who read later."""
    del history.final[1][4:]
    history.given = {"late": [*history.final[0], *history.final[1]]}


def overwrite(history: History) -> None:
    """Another record is where one was acknowledged; the readers never saw the first."""
    first, second = history.final[0][2], history.final[0][4]
    history.final[0][2], history.final[0][4] = second._replace(offset=2), first._replace(offset=4)
    history.given = {}


def write_twice(history: History) -> None:
    """A retry of the idempotent producer was not recognised. It is told of the second place."""
    record = RecordId("once", 0, 5)
    history.final[0].append(Given(0, LAST + 1, record.value, 3))
    history.given = {}


def swap_behind_the_back(history: History) -> None:
    """Two records of the idempotent producer change places, and nobody was told of either."""
    zero, one = RecordId("once", 1, 0), RecordId("once", 1, 1)
    history.final[1] = replaced(replaced(history.final[1], 0, one.value), 2, zero.value)
    del history.acknowledged[zero], history.acknowledged[one]
    history.given = {}


def make_one_up(history: History) -> None:
    log = history.final[0]
    history.final[0] = replaced(log, LAST, b"once:0:%d" % RECORDS)
    history.given = {}


def give_garbage(history: History) -> None:
    """Only a reader gets it: the log is in order."""
    history.given["first"][: LAST + 1] = replaced(history.final[0], 3, b"once:\xff")


def mix_up_partitions(history: History) -> None:
    history.final[0] = replaced(history.final[0], LAST, b"plain:1:5")
    history.given = {}


def hide_one(history: History) -> None:
    del history.given["first"][3]


def lose_one_from_the_middle(history: History) -> None:
    """Of one that was given up: nothing but the gap shows it."""
    del history.final[0][LAST - 1]
    history.given = {}


def give_one_again(history: History) -> None:
    stream = history.given["second"]
    stream.insert(4, stream[3])


def go_back(history: History) -> None:
    stream = history.given["second"]
    stream[6:6] = stream[2:6]


def forget_what_was_given(history: History) -> None:
    """Another record took the place of one that nobody had acknowledged, and a reader had been given."""
    for reader in history.given:
        if reader == "first":
            log = history.final[1]
            history.given["second"] = [*history.final[0], *replaced(log, LAST, b"plain:1:4")]


def stop_reading(history: History) -> None:
    history.given["first"].pop()


def start_late(history: History) -> None:
    del history.given["first"][0]


def bear_another_epoch(history: History) -> None:
    history.given["first"][-1] = history.final[1][-1]._replace(leader_epoch=7)


def go_back_in_epochs(history: History) -> None:
    history.final[0][LAST] = history.final[0][LAST]._replace(leader_epoch=0)
    history.given = {}


DOCTORED: list[tuple[Callable[[History], None], set[Fault]]] = [
    (lose_the_end, {Fault.LOST}),
    (overwrite, {Fault.MOVED, Fault.REORDERED, Fault.EPOCHS}),
    (write_twice, {Fault.DUPLICATED}),
    (swap_behind_the_back, {Fault.REORDERED}),
    (make_one_up, {Fault.PHANTOM}),
    (give_garbage, {Fault.PHANTOM, Fault.VANISHED, Fault.EPOCHS}),
    (mix_up_partitions, {Fault.PHANTOM}),
    (hide_one, {Fault.SKIPPED}),
    (lose_one_from_the_middle, {Fault.SKIPPED}),
    (give_one_again, {Fault.REPEATED}),
    (go_back, {Fault.REPEATED, Fault.EPOCHS}),
    (forget_what_was_given, {Fault.VANISHED, Fault.EPOCHS}),
    (stop_reading, {Fault.UNREAD}),
    (start_late, {Fault.UNREAD}),
    (bear_another_epoch, {Fault.VANISHED}),
    (go_back_in_epochs, {Fault.EPOCHS}),
]


@pytest.mark.parametrize(("doctor", "expected"), DOCTORED, ids=[doctor.__name__ for doctor, _ in DOCTORED])
def test_a_doctored_history_has_its_fault(doctor: Callable[[History], None], expected: set[Fault]) -> None:
    history = good()
    doctor(history)
    assert faults(history) == expected
    with pytest.raises(AssertionError, match=sorted(expected, key=lambda fault: fault.name)[0].name):
        history.check()
    history.check(*expected)


def test_every_fault_is_shown() -> None:
    assert {fault for _, expected in DOCTORED for fault in expected} == set(Fault)


def test_a_producer_that_was_not_told_the_place_is_kept_all_the_same() -> None:
    history = good()
    record = RecordId("once", 0, 2)
    history.acknowledged[record] = None
    assert history.findings() == []
    history.final[0] = replaced(history.final[0], 4, b"plain:0:2")
    history.given = {}
    assert faults(history) == {Fault.LOST}


def test_a_reader_that_was_told_may_have_been_given_what_is_gone() -> None:
    """It read the old end of the partition, was told where that parts from the new one, and read on from there."""
    history = good()
    log = history.final[1]
    log[-2:] = [one._replace(leader_epoch=4) for one in log[-2:]]
    history.given["first"] = [*history.final[0], *log]
    old_end = [one._replace(value=b"plain:1:4", leader_epoch=3) for one in log[-2:]]
    history.given["second"] = [*history.final[0], *log[:-2], *old_end, Told(1, LAST - 1, LAST - 1), *log[-2:]]
    assert history.findings() == []
    history.given["second"] = [*history.final[0], *log[:-2], *old_end, Told(1, LAST, LAST - 1), *log[-2:]]
    assert faults(history) == {Fault.VANISHED}


def test_whoever_was_told_nothing_about_where_is_excused_for_all_before() -> None:
    history = good()
    log = history.final[1]
    wrong = log[4]._replace(value=b"plain:1:4", leader_epoch=None)
    history.given["second"] = [*history.final[0], *log[:4], wrong, Told(1, None, 4), *log[4:]]
    assert history.findings() == []


def test_records_below_the_start_of_the_log_are_nobodys_loss() -> None:
    history = good()
    del history.final[0][:4]
    for record in [record for record, offset in history.acknowledged.items() if record.partition == 0]:
        if history.acknowledged[record] in range(4):
            del history.acknowledged[record]
    assert history.findings() == []

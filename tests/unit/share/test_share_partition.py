"""The rules of a share partition, one by one."""

from __future__ import annotations

import pytest

from support.executed_lines import executed_lines
from tidelog.base.errors import Code, InvariantBrokenError, KafkaError
from tidelog.base.ids import CorrelationId, LeaderEpoch, Offset
from tidelog.records.lineage import LeaderEpochLineage
from tidelog.share import (
    NO_LEADER_EPOCH,
    AcknowledgedRecords,
    AcknowledgeType,
    DeliveryState,
    LogBatch,
    SharePartition,
    ShareSettings,
    ShareState,
    StateBatch,
    StateChange,
    check_acknowledged,
)
from tidelog.share.share_partition import RELEASED_AT_ONCE_MAX

ACCEPT, RELEASE, REJECT, RENEW, GAP = (
    AcknowledgeType.ACCEPT,
    AcknowledgeType.RELEASE,
    AcknowledgeType.REJECT,
    AcknowledgeType.RENEW,
    AcknowledgeType.GAP,
)
AVAILABLE, ACKNOWLEDGED, ARCHIVED = DeliveryState.AVAILABLE, DeliveryState.ACKNOWLEDGED, DeliveryState.ARCHIVED
LOCK_MS = 100


class Led:
    """Of a log with batches of ten records, of leader epoch 5 up to offset 20, and of 6 from there on."""

    def __init__(self, *, start: int = 0, is_kept: bool = True, delivery_count_max: int = 2, records_max: int = 100):
        lineage = LeaderEpochLineage([(LeaderEpoch(5), Offset(0)), (LeaderEpoch(6), Offset(20))])
        settings = ShareSettings(delivery_count_max, LOCK_MS, records_max)
        state = ShareState(1, Offset(start), NO_LEADER_EPOCH)
        self.machine = SharePartition(LeaderEpoch(7), state, lineage, settings=settings, is_kept=is_kept)
        self.now_ms = 0
        self.count = 0
        self.answers: dict[int, Code] = {}
        self.writing: StateChange | None = None

    def fetch(self, member: str = "m", records_max: int = 10, *, is_strict: bool = False) -> list[tuple[int, int, int]]:
        offset = self.machine.next_offset()
        if offset is None:
            return []
        first = offset // 10 * 10
        batches = [LogBatch(one, one + 9) for one in range(first, first + 50, 10)]
        acquired = self.machine.on_acquire(
            member, offset, batches, records_max=records_max, is_strict=is_strict, now_ms=self.now_ms
        )
        self.take()
        return [(first, last, count) for first, last, count in acquired]

    def say(self, first: int, last: int, *types: int, member: str = "m") -> int:
        self.count += 1
        batches = [AcknowledgedRecords(first, last, list(types))]
        self.machine.on_acknowledge(CorrelationId(self.count), member, batches, self.now_ms)
        self.take()
        return self.count

    def take(self) -> None:
        change, answers, _ = self.machine.take_ready()
        if change is not None:
            assert self.writing is None
            self.writing = change
        self.answers.update(answers)

    def keep(self) -> StateChange:
        assert self.writing is not None
        kept, self.writing = self.writing, None
        self.machine.on_written(self.now_ms)
        self.take()
        return kept

    def refuse(self, code: Code = Code.COORDINATOR_NOT_AVAILABLE, *, is_fenced: bool = False) -> None:
        self.writing = None
        self.machine.on_write_refused(code, self.now_ms, is_fenced=is_fenced)
        self.take()

    def pass_ms(self, passed_ms: int) -> None:
        self.now_ms += passed_ms
        self.machine.on_tick(self.now_ms)
        self.take()


def batch(first: int, last: int, state: DeliveryState, count: int, epoch: int) -> StateBatch:
    return StateBatch(Offset(first), Offset(last), state, count, LeaderEpoch(epoch))


def test_an_acknowledgement_is_answered_once_it_is_kept() -> None:
    led = Led()
    assert led.fetch() == [(0, 9, 1)]
    number = led.say(0, 9, ACCEPT)
    assert led.answers == {}
    assert led.machine.start == 0
    kept = led.keep()
    assert (kept.start, kept.start_leader_epoch, kept.batches) == (10, 5, ())
    assert led.answers == {number: Code.NONE}
    assert led.machine.start == 10


def test_each_batch_that_is_kept_bears_the_leader_epoch_of_its_records() -> None:
    led = Led()
    led.fetch(records_max=30)
    led.say(15, 24, ACCEPT)
    kept = led.keep()
    assert kept.batches == (batch(15, 19, ACKNOWLEDGED, 1, 5), batch(20, 24, ACKNOWLEDGED, 1, 6))
    assert kept.delivery_complete_count == 10
    led.say(0, 14, ACCEPT)
    assert (led.keep().start_leader_epoch, led.machine.start) == (6, 25)


def test_what_comes_while_a_change_is_written_goes_into_the_next() -> None:
    led = Led()
    led.fetch(records_max=20)
    first, second, third = led.say(0, 0, ACCEPT), led.say(5, 5, REJECT), led.say(6, 6, RELEASE)
    assert led.keep().start == 1
    assert led.answers == {first: Code.NONE}
    assert led.keep().batches == (batch(5, 5, ARCHIVED, 1, 5), batch(6, 6, AVAILABLE, 1, 5))
    assert led.answers == {first: Code.NONE, second: Code.NONE, third: Code.NONE}
    assert led.fetch("other", 1) == [(6, 6, 2)]


def test_a_refused_change_leaves_the_records_with_their_member_until_its_time_is_over() -> None:
    led = Led()
    led.fetch()
    number = led.say(0, 9, ACCEPT)
    led.refuse()
    assert led.answers == {number: Code.COORDINATOR_NOT_AVAILABLE}
    assert led.fetch("other") == [(10, 19, 1)]
    led.say(0, 9, ACCEPT)
    led.pass_ms(LOCK_MS)
    assert led.fetch("third") == [(10, 19, 2)]  # the others are being kept
    led.refuse()
    assert led.fetch("third") == [(0, 9, 2)]


def test_a_change_after_a_refused_one_tells_of_all_for_the_refused_one_may_be_kept() -> None:
    led = Led()
    led.fetch(records_max=20)
    led.say(5, 5, ACCEPT)
    led.keep()
    led.say(0, 4, ACCEPT)
    assert led.writing is not None
    assert led.writing.start == 6
    led.refuse()
    led.say(0, 0, ACCEPT)
    kept = led.keep()
    assert kept.start == 1
    assert batch(5, 5, ACKNOWLEDGED, 1, 5) in kept.batches
    assert batch(1, 4, AVAILABLE, 0, 5) in kept.batches


def test_a_member_acknowledges_what_it_has_and_all_or_nothing() -> None:
    led = Led()
    led.fetch("m")
    led.fetch("other")
    for first, last, member in ((0, 0, "other"), (5, 14, "m"), (19, 20, "other"), (0, 99, "m")):
        with pytest.raises(KafkaError) as refused:
            led.say(first, last, ACCEPT, member=member)
        assert refused.value.code == Code.INVALID_RECORD_STATE
    led.say(0, 0, ACCEPT)
    with pytest.raises(KafkaError):
        led.say(0, 1, ACCEPT)
    assert led.machine.in_flight.runs[1].outcome is None
    led.keep()
    with pytest.raises(KafkaError):
        led.say(1, 10, ACCEPT)


def test_what_is_done_is_acknowledged_again_without_an_error_once_that_is_kept() -> None:
    led = Led(delivery_count_max=1)
    led.fetch()
    led.pass_ms(LOCK_MS)
    assert led.machine.start == 10
    number = led.say(0, 9, ACCEPT)
    assert number not in led.answers
    led.keep()
    assert number not in led.answers  # it came after that change was taken
    led.keep()
    assert led.answers[number] == Code.NONE
    assert led.answers[led.say(0, 9, ACCEPT)] == Code.NONE


@pytest.mark.parametrize("leaves", [False, True])
def test_a_record_that_was_delivered_too_often_is_archived_also_where_its_members_left(leaves: bool) -> None:
    led = Led()
    assert led.fetch() == [(0, 9, 1)]
    led.pass_ms(LOCK_MS)
    assert led.fetch() == [(0, 9, 2)]
    if leaves:
        led.machine.on_member_left("m")
    else:
        led.pass_ms(LOCK_MS)
    assert led.fetch() == [(10, 19, 1)]
    assert led.keep().batches == (batch(0, 9, AVAILABLE, 1, 5),)
    assert led.keep().start == 10


def test_types_are_one_for_all_or_one_for_each() -> None:
    led = Led()
    led.fetch()
    led.say(0, 9, ACCEPT, ACCEPT, RELEASE, RELEASE, GAP, REJECT, REJECT, ACCEPT, RENEW, RENEW)
    kept = led.keep()
    assert kept.start == 2
    assert kept.batches == (
        batch(2, 3, AVAILABLE, 1, 5),
        batch(4, 6, ARCHIVED, 1, 5),
        batch(7, 7, ACKNOWLEDGED, 1, 5),
    )
    led.pass_ms(LOCK_MS // 2)
    assert led.fetch("other", 2) == [(2, 3, 2)]


def test_a_renewed_record_stays_with_its_member_and_needs_nobody_to_keep_it() -> None:
    led = Led()
    led.fetch()
    led.pass_ms(LOCK_MS - 1)
    assert led.answers[led.say(0, 4, RENEW)] == Code.NONE
    assert led.writing is None
    led.pass_ms(60)
    assert led.fetch("other", 5) == [(5, 9, 2)]
    led.pass_ms(LOCK_MS)
    assert led.fetch("third", 5, is_strict=True) == [(0, 4, 2)]


@pytest.mark.parametrize(
    ("first", "last", "types"),
    [(3, 2, [1]), (-1, 2, [1]), (0, 2, []), (0, 2, [1, 1]), (0, 0, [5]), (0, 0, [-1]), (0, 0, [4])],
)
def test_what_cannot_be_understood_is_refused(first: int, last: int, types: list[int]) -> None:
    with pytest.raises(KafkaError) as refused:
        check_acknowledged([AcknowledgedRecords(first, last, types)], is_renewal_allowed=False)
    assert refused.value.code == Code.INVALID_REQUEST


def test_batches_go_up_and_a_renewal_has_to_be_announced() -> None:
    check_acknowledged([AcknowledgedRecords(0, 0, [4]), AcknowledgedRecords(1, 1, [0])], is_renewal_allowed=True)
    for batches in ([(2, 3, [1]), (3, 4, [1])], [(2, 3, [1]), (0, 0, [1])]):
        with pytest.raises(KafkaError):
            check_acknowledged([AcknowledgedRecords(*one) for one in batches], is_renewal_allowed=True)


def test_no_more_is_in_flight_than_may_be_but_what_makes_a_batch_whole() -> None:
    led = Led(records_max=15)
    assert led.fetch(records_max=100) == [(0, 19, 1)]
    assert led.machine.next_offset() is None
    led.say(0, 4, ACCEPT)
    led.keep()
    assert led.machine.next_offset() is None
    led.say(5, 9, ACCEPT)
    led.keep()
    assert led.fetch(records_max=100) == [(20, 29, 1)]
    strict = Led(records_max=15)
    assert strict.fetch(records_max=100, is_strict=True) == [(0, 14, 1)]
    assert strict.fetch(records_max=100, is_strict=True) == []


def test_what_is_done_does_not_count_against_what_may_be_in_flight() -> None:
    led = Led(records_max=20)
    led.fetch(records_max=20)
    led.say(1, 19, ACCEPT)
    led.keep()
    assert led.fetch(records_max=10) == [(20, 29, 1)]
    assert len(led.machine.in_flight.runs) == 3


def test_where_the_log_has_no_records_nothing_is_waited_for() -> None:
    led = Led()
    read = [LogBatch(4, 5), LogBatch(6, 6, False), LogBatch(9, 9)]
    acquired = led.machine.on_acquire("m", 0, read, records_max=10, is_strict=False, now_ms=0)
    assert acquired == [(4, 5, 1), (9, 9, 1)]
    assert led.machine.start == 4
    led.say(4, 5, ACCEPT)
    led.keep()
    assert led.machine.start == 9


def test_deleted_records_are_nobodys() -> None:
    led = Led()
    led.fetch()
    number = led.say(0, 9, RELEASE)
    led.machine.on_log_start_moved(Offset(5))
    led.keep()
    assert led.answers[number] == Code.NONE
    assert led.machine.start == 5
    assert led.fetch(records_max=5) == [(5, 9, 2)]
    led.machine.on_log_start_moved(Offset(40))
    assert (led.machine.start, led.machine.end, led.machine.in_flight.open_count) == (40, 40, 0)
    assert led.fetch() == [(40, 49, 1)]


def test_where_a_group_begins_is_kept_before_anything_is_delivered() -> None:
    led = Led(start=20, is_kept=False)
    led.take()
    assert led.fetch() == []
    kept = led.keep()
    assert (kept.start, kept.start_leader_epoch) == (20, 5)
    assert led.fetch() == [(20, 29, 1)]


def test_who_is_fenced_delivers_and_keeps_nothing_any_more() -> None:
    led = Led()
    led.fetch(records_max=20)
    numbers = [led.say(0, 0, ACCEPT), led.say(1, 1, ACCEPT)]
    led.refuse(Code.NOT_LEADER_OR_FOLLOWER, is_fenced=True)
    assert led.answers == dict.fromkeys(numbers, Code.NOT_LEADER_OR_FOLLOWER)
    assert led.fetch() == []
    assert led.writing is None
    with pytest.raises(KafkaError) as refused:
        led.say(2, 2, ACCEPT)
    assert refused.value.code == Code.NOT_LEADER_OR_FOLLOWER


def test_who_waits_is_told_when_the_leadership_ends() -> None:
    led = Led()
    led.fetch()
    numbers = [led.say(0, 0, ACCEPT), led.say(1, 1, ACCEPT)]
    led.machine.on_stopped()
    led.take()
    assert led.answers == dict.fromkeys(numbers, Code.NOT_LEADER_OR_FOLLOWER)


def test_what_nobody_waits_for_is_written_again_after_a_while() -> None:
    led = Led()
    led.fetch()
    led.pass_ms(LOCK_MS)
    led.refuse()
    assert led.writing is None
    due_ms = led.machine.next_deadline_ms()
    assert due_ms is not None
    led.pass_ms(due_ms - led.now_ms)
    assert led.keep().batches == (batch(0, 9, AVAILABLE, 1, 5),)
    assert led.machine.next_deadline_ms() is None
    assert led.machine.is_idle


def test_runs_that_stand_alike_become_one() -> None:
    led = Led(records_max=2_000)
    led.fetch(records_max=1)
    for offset in range(1, 10, 2):
        led.say(offset, offset, ACCEPT)
        led.keep()
    for offset in range(2, 10, 2):
        led.say(offset, offset, REJECT)
        led.keep()
    led.fetch(records_max=40)
    for offset in range(10, 50):
        led.say(offset, offset, ACCEPT)
        led.keep()
    assert len(led.machine.in_flight.runs) < 40


def test_no_change_is_kept_that_was_not_written() -> None:
    with pytest.raises(InvariantBrokenError):
        Led().machine.on_written(0)


# How much is done in one step.

STEP_LINES_MAX = 20_000
"""That is about a millisecond."""


def test_records_whose_time_is_over_are_released_some_at_a_time() -> None:
    led = Led(records_max=30_000)
    for number in range(2_000):
        led.fetch(f"m{number % 2}", records_max=1)
    assert len(led.machine.in_flight.runs) == 2_000
    led.now_ms = LOCK_MS + 1
    steps = 0
    while (due_ms := led.machine.next_deadline_ms()) is not None and due_ms <= led.now_ms:
        assert executed_lines(lambda: led.machine.on_tick(led.now_ms)) < STEP_LINES_MAX
        steps += 1
    assert steps == 2_000 // RELEASED_AT_ONCE_MAX
    assert led.machine.next_offset() == 0
    led.take()
    assert led.writing is not None
    assert sum(one.last - one.first + 1 for one in led.writing.batches) == 20_000


@pytest.mark.parametrize("offset", [0, 1_000_000])
def test_acknowledgements_of_what_is_not_in_flight_are_looked_at_together(offset: int) -> None:
    led = Led(start=200_000)
    led.fetch()
    batches = [AcknowledgedRecords(one, one, [ACCEPT]) for one in range(offset, offset + 100_000)]

    def say() -> None:
        led.machine.on_acknowledge(CorrelationId(1), "m", batches, led.now_ms)

    if offset:
        with pytest.raises(KafkaError, match=r"nothing from 2000\d\d on was delivered") as refused:
            executed_lines(say)
        assert refused.value.code == Code.INVALID_RECORD_STATE
    assert executed_lines(lambda: say() if not offset else None) < STEP_LINES_MAX
    led.take()
    assert led.answers == ({} if offset else {1: Code.NONE})

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
)
from tidelog.share.share_partition import LOOK_INTERVAL_MS, RELEASED_AT_ONCE_MAX, RETRY_MS

ACCEPT, RELEASE, REJECT, RENEW, GAP = (
    AcknowledgeType.ACCEPT,
    AcknowledgeType.RELEASE,
    AcknowledgeType.REJECT,
    AcknowledgeType.RENEW,
    AcknowledgeType.GAP,
)
AVAILABLE, ACQUIRED, ACKNOWLEDGED, ARCHIVED = DeliveryState
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
        self.has_released = False

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
        change, answers, self.has_released = self.machine.take_ready()
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
    beyond = [AcknowledgedRecords(1, 1, [ACCEPT]), AcknowledgedRecords(led.machine.end, led.machine.end, [ACCEPT])]
    with pytest.raises(KafkaError, match="was delivered"):
        led.machine.on_acknowledge(CorrelationId(9), "m", beyond, led.now_ms)


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
    assert led.fetch() == []
    with pytest.raises(KafkaError) as refused:
        led.say(2, 2, ACCEPT)
    assert refused.value.code == Code.NOT_LEADER_OR_FOLLOWER


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


def test_what_is_acquired_together_is_told_together_by_how_often_it_was_delivered() -> None:
    led = Led(delivery_count_max=5)
    led.fetch(records_max=10)
    led.say(2, 5, RELEASE)
    led.keep()
    assert led.fetch("other", 14) == [(2, 5, 2), (10, 19, 1)]
    led.say(0, 1, RELEASE)
    led.say(4, 4, RELEASE, member="other")
    led.say(3, 3, RELEASE, member="other")
    led.keep()
    led.keep()
    assert led.fetch("third", 10) == [(0, 1, 2), (3, 4, 3), (20, 29, 1)]
    led.say(6, 9, RELEASE)
    led.say(10, 19, RELEASE, member="other")
    led.keep()
    led.keep()
    assert led.fetch("fourth", 14) == [(6, 19, 2)]


def test_a_strict_fetch_takes_so_many_records_wherever_they_lie() -> None:
    led = Led(delivery_count_max=5)
    led.fetch(records_max=10)
    led.say(2, 3, RELEASE)
    led.say(6, 9, RELEASE)
    led.keep()
    led.keep()
    assert led.fetch("other", 1, is_strict=True) == [(2, 2, 2)]
    assert led.fetch("other", 2, is_strict=True) == [(3, 3, 2), (6, 6, 2)]
    assert led.fetch("other", 3, is_strict=True) == [(7, 9, 2)]
    assert led.machine.end == 10
    led.say(9, 9, RELEASE, member="other")
    led.keep()
    assert led.fetch("other", 2, is_strict=True) == [(9, 9, 3), (10, 10, 1)]
    assert led.fetch("other", 0) == []
    assert led.fetch("other", 0, is_strict=True) == []


def test_a_batch_is_given_whole_though_a_part_of_it_was_delivered_before() -> None:
    led = Led()
    assert led.fetch(records_max=5, is_strict=True) == [(0, 4, 1)]
    led.say(0, 4, RELEASE)
    led.keep()
    assert led.fetch("other", 2) == [(0, 4, 2), (5, 9, 1)]


@pytest.mark.parametrize("is_strict", [False, True])
def test_a_fetch_gives_nothing_of_what_lies_before_the_offset_that_it_read_from(is_strict: bool) -> None:
    led = Led()
    led.fetch()
    led.say(0, 9, RELEASE)
    led.keep()
    read = [LogBatch(0, 9)]
    assert led.machine.on_acquire("m", 4, read, records_max=10, is_strict=is_strict, now_ms=0) == [(4, 9, 2)]
    assert led.machine.next_offset() == 0


def test_a_strict_fetch_that_has_what_it_wants_takes_nothing_new() -> None:
    led = Led()
    led.fetch(records_max=5, is_strict=True)
    led.say(3, 4, RELEASE)
    led.keep()
    assert led.fetch("other", 2, is_strict=True) == [(3, 4, 2)]
    assert [(run.first, run.last) for run in led.machine.in_flight.runs] == [(0, 2), (3, 4)]


@pytest.mark.parametrize("is_strict", [False, True])
def test_where_no_more_may_be_in_flight_what_is_available_is_all_that_is_given(is_strict: bool) -> None:
    led = Led(records_max=10)
    led.fetch()
    led.say(3, 3, RELEASE)
    led.keep()
    read = [LogBatch(0, 9), LogBatch(10, 19), LogBatch(20, 21, False), LogBatch(22, 30)]
    assert led.machine.on_acquire("other", 3, read, records_max=50, is_strict=is_strict, now_ms=0) == [(3, 3, 2)]
    assert led.machine.end == 10, "what lies between was not delivered yet"


def test_nothing_is_passed_over_beyond_what_a_strict_fetch_has_left() -> None:
    led = Led()
    read = [LogBatch(0, 9), LogBatch(10, 12, False), LogBatch(13, 20)]
    assert led.machine.on_acquire("m", 0, read, records_max=5, is_strict=True, now_ms=0) == [(0, 4, 1)]
    assert led.machine.end == 5


def test_a_fetch_goes_on_while_one_record_is_wanted() -> None:
    led = Led()
    read = [LogBatch(0, 9), LogBatch(10, 10, False), LogBatch(11, 12), LogBatch(13, 13, False), LogBatch(14, 15)]
    acquired = led.machine.on_acquire("m", 0, read, records_max=11, is_strict=False, now_ms=0)
    assert acquired == [(0, 9, 1), (11, 12, 1)]
    passed_over = led.machine.in_flight.runs[1]
    assert (passed_over.first, passed_over.last, passed_over.state, passed_over.delivery_count) == (10, 10, ARCHIVED, 0)


def test_what_a_member_acquires_at_the_same_time_is_one_run_for_each_leader_epoch() -> None:
    led = Led()
    for records_max in (1, 2, 12, 10):
        led.fetch(records_max=records_max, is_strict=True)
    assert [(run.first, run.last) for run in led.machine.in_flight.runs] == [(0, 19), (20, 24)]


def test_a_fetch_that_began_before_the_start_gives_what_is_behind_it() -> None:
    led = Led()
    led.fetch()
    led.machine.on_log_start_moved(Offset(15))
    read = [LogBatch(0, 9), LogBatch(10, 19)]
    assert led.machine.on_acquire("m", 0, read, records_max=10, is_strict=False, now_ms=0) == [(15, 19, 1)]


def test_nothing_is_acquired_beyond_what_follows_nor_before_the_start_is_kept() -> None:
    read = [LogBatch(10, 19)]
    with pytest.raises(InvariantBrokenError, match="10 is read, 0 was not"):
        Led().machine.on_acquire("m", 10, read, records_max=10, is_strict=False, now_ms=0)
    begun = Led(start=10, is_kept=False)
    assert begun.machine.on_acquire("m", 10, read, records_max=10, is_strict=False, now_ms=0) == []


def test_what_is_available_can_be_had_again_however_much_is_in_flight() -> None:
    led = Led(records_max=10)
    led.fetch()
    assert led.machine.next_offset() is None
    led.say(3, 3, RELEASE)
    led.keep()
    assert led.machine.in_flight.open_count == 10
    assert led.machine.next_offset() == 3


def test_settings_count_from_the_next_delivery_on() -> None:
    led = Led()
    led.fetch()
    settings = ShareSettings(delivery_count_max=1, lock_ms=7, records_max=30)
    led.machine.on_settings(settings)
    assert led.machine.settings == settings
    led.fetch(records_max=40)
    assert led.machine.end == 30
    led.pass_ms(7)
    assert led.machine.in_flight.open_count == 10
    assert led.machine.next_deadline_ms() == LOCK_MS


def test_the_last_record_that_may_be_in_flight_brings_its_whole_batch() -> None:
    led = Led(records_max=11)
    assert led.fetch(records_max=10) == [(0, 9, 1)]
    assert led.fetch(records_max=1) == [(10, 19, 1)]
    strict = Led(records_max=11)
    assert strict.fetch(records_max=10, is_strict=True) == [(0, 9, 1)]
    assert strict.fetch(records_max=10, is_strict=True) == [(10, 10, 1)]
    assert strict.fetch(records_max=10, is_strict=True) == []


def test_what_can_be_had_again_and_is_not_there_any_more_is_passed_over() -> None:
    """Compaction, or the end of a transaction, came between the two deliveries."""
    led = Led(delivery_count_max=5)
    led.fetch(records_max=30)
    led.say(0, 3, RELEASE)
    led.say(5, 16, RELEASE)
    led.say(20, 24, RELEASE)
    led.keep()
    led.keep()
    read = [LogBatch(2, 3), LogBatch(4, 11, False), LogBatch(14, 14), LogBatch(18, 32, False)]
    assert led.machine.on_acquire("other", 2, read, records_max=40, is_strict=False, now_ms=0) == [
        (2, 3, 2),
        (14, 14, 2),
    ]
    assert led.machine.next_offset() == 0
    runs = led.machine.in_flight.runs
    archived = {at for run in runs if run.state is ARCHIVED for at in range(run.first, run.last + 1)}
    assert archived == {*range(5, 14), 15, 16, *range(20, 25), 30, 31, 32}
    assert (led.machine.end, led.machine.in_flight.open_count) == (33, 30 - 16)


def test_acknowledgements_before_the_start_are_answered_once_that_start_is_kept() -> None:
    led = Led()
    led.fetch(records_max=20)
    led.say(0, 4, ACCEPT)
    led.keep()
    assert led.machine.start == 5
    assert led.answers[led.say(0, 4, REJECT)] == Code.NONE
    assert led.answers[led.say(0, 5, RENEW)] == Code.NONE
    led.machine.on_log_start_moved(Offset(8))
    before, partly = led.say(0, 7, ACCEPT), led.say(6, 8, RENEW)
    assert not {before, partly} & led.answers.keys()
    assert led.keep().start == 8
    led.keep()
    assert led.answers[before] == led.answers[partly] == Code.NONE
    led.say(6, 10, ACCEPT, ACCEPT, REJECT, RELEASE, RELEASE)
    kept = led.keep()
    assert kept.start == 9
    assert kept.batches == (batch(9, 10, AVAILABLE, 1, 5),)


def test_a_start_that_is_kept_answers_what_lies_before_it_and_no_earlier_one() -> None:
    led = Led()
    led.fetch(records_max=20)
    led.say(0, 4, ACCEPT)
    led.keep()
    led.machine.on_log_start_moved(Offset(8))
    batches = [AcknowledgedRecords(one, one, [ACCEPT]) for one in (3, 4, 5)]
    for number, (count, is_answered) in enumerate([(2, True), (3, False)], 100):
        led.machine.on_acknowledge(CorrelationId(number), "m", batches[:count], led.now_ms)
        led.take()
        assert (number in led.answers) == is_answered


def test_acknowledgements_that_follow_each_other_and_say_the_same_are_one() -> None:
    led = Led(records_max=500)
    led.fetch(records_max=100)
    one_by_one = [AcknowledgedRecords(at, at, [ACCEPT if at < 40 else REJECT]) for at in range(10, 50) if at != 25]
    led.machine.on_acknowledge(CorrelationId(1), "m", one_by_one, led.now_ms)
    runs = [(run.first, run.last, run.outcome) for run in led.machine.in_flight.runs if run.last < 50]
    assert runs == [
        (0, 9, None),
        (10, 19, ACKNOWLEDGED),
        (20, 24, ACKNOWLEDGED),
        (25, 25, None),
        (26, 39, ACKNOWLEDGED),
        (40, 49, ARCHIVED),
    ]


def test_what_lies_between_two_acknowledged_parts_may_be_anothers() -> None:
    led = Led(delivery_count_max=5)
    led.fetch(records_max=3, is_strict=True)
    led.say(1, 1, RELEASE)
    led.keep()
    assert led.fetch("other", 1, is_strict=True) == [(1, 1, 2)]
    batches = [AcknowledgedRecords(0, 0, [ACCEPT]), AcknowledgedRecords(2, 2, [ACCEPT])]
    led.machine.on_acknowledge(CorrelationId(50), "m", batches, led.now_ms)
    led.take()
    assert led.keep().start == 1
    assert led.answers[50] == Code.NONE


def test_what_a_member_that_left_had_too_often_is_passed() -> None:
    led = Led(delivery_count_max=1)
    led.fetch()
    led.machine.on_member_left("m")
    assert led.machine.start == 10


def test_it_is_idle_once_all_is_kept_and_nobody_has_records() -> None:
    led = Led()
    assert led.machine.is_idle
    led.fetch()
    assert not led.machine.is_idle
    led.say(0, 9, ACCEPT)
    assert led.writing is not None
    led.keep()
    assert led.machine.is_idle
    fresh = Led(is_kept=False)
    assert not fresh.machine.is_idle
    fresh.take()
    assert not fresh.machine.is_idle, "where it begins is being written"
    fresh.keep()
    assert fresh.machine.is_idle
    led.fetch()
    led.machine.on_acknowledge(CorrelationId(99), "m", [AcknowledgedRecords(10, 19, [REJECT])], 0)
    assert not led.machine.is_idle
    led.take()
    assert not led.machine.is_idle
    led.refuse()
    led.machine.on_member_left("m")
    assert not led.machine.is_idle
    led.pass_ms(1_000)
    led.keep()
    assert led.machine.is_idle
    led.fetch()
    led.machine.on_log_start_moved(Offset(40))
    assert led.machine.is_idle
    led.machine.on_acknowledge(CorrelationId(98), "m", [AcknowledgedRecords(20, 29, [ACCEPT])], 0)
    assert not led.machine.is_idle, "it is answered once that start is kept"


def test_who_is_fenced_answers_each_request_once() -> None:
    led = Led()
    led.fetch(records_max=20)
    for at in range(3):
        led.say(at, at, ACCEPT)
    led.machine.on_write_refused(Code.FENCED_STATE_EPOCH, 0, is_fenced=True)
    led.machine.on_stopped()
    led.machine.on_stopped()
    answers = led.machine.take_ready().answers
    assert answers == tuple((CorrelationId(number), Code.FENCED_STATE_EPOCH) for number in (1, 2, 3))


def test_nothing_is_written_again_that_an_acknowledgement_has_brought_with_it() -> None:
    led = Led()
    led.fetch()
    led.say(0, 4, ACCEPT)
    led.refuse()
    led.say(0, 9, ACCEPT)
    assert led.writing is not None
    led.keep()
    assert led.machine.next_deadline_ms() in (None, LOCK_MS)
    led.pass_ms(LOCK_MS)
    assert led.machine.next_deadline_ms() is None
    assert led.machine.is_idle


def test_what_one_fetch_acquires_is_one_run_however_it_was_delivered_before() -> None:
    led = Led(records_max=500, delivery_count_max=5)
    for records_max in [1] * 30 + [5]:
        led.now_ms += 1
        led.fetch(records_max=records_max, is_strict=True)
    assert len(led.machine.in_flight.runs) == 31
    led.machine.on_member_left("m")
    led.take()
    assert led.fetch("other", 33, is_strict=True) == [(0, 32, 2)]
    assert len(led.machine.in_flight.runs) == 3, "one for each leader epoch, and what the other did not get"


def test_times_that_are_over_are_looked_for_when_the_next_is_and_not_too_often() -> None:
    led = Led()
    for fetched_ms in (0, 60, 90):
        led.now_ms = fetched_ms
        led.fetch()
    assert led.machine.next_deadline_ms() == LOCK_MS
    led.pass_ms(10)
    assert led.machine.next_deadline_ms() == 160
    led.pass_ms(60)
    assert led.machine.next_deadline_ms() == 160 + LOOK_INTERVAL_MS, "30 ms would be too soon"
    led.pass_ms(49)
    assert led.machine.in_flight.runs[-1].state is ACQUIRED
    led.pass_ms(1)
    assert led.machine.in_flight.runs[-1].state is AVAILABLE
    assert led.machine.next_deadline_ms() is None


def test_who_is_fenced_does_not_write_however_much_time_passes() -> None:
    led = Led()
    led.fetch()
    led.pass_ms(LOCK_MS)
    led.refuse(Code.FENCED_LEADER_EPOCH, is_fenced=True)
    led.pass_ms(10 * RETRY_MS)
    assert led.writing is None


# Who is to read again.


def test_who_waits_reads_again_once_where_the_group_begins_is_kept() -> None:
    led = Led(start=20, is_kept=False)
    led.take()
    assert not led.has_released
    led.keep()
    assert led.has_released
    led.take()
    assert not led.has_released


@pytest.mark.parametrize("type_", [ACCEPT, REJECT, RELEASE])
def test_who_waits_reads_again_once_records_can_be_had_that_could_not(type_: int) -> None:
    led = Led()
    led.fetch()
    led.say(0, 9, type_)
    assert not led.has_released
    led.keep()
    assert led.has_released == (type_ == RELEASE)


def test_who_waits_reads_again_once_there_is_room_for_more() -> None:
    led = Led(records_max=5)
    assert led.fetch() == [(0, 9, 1)]
    for first, last, has_room in ((0, 0, False), (1, 4, False), (5, 5, True), (6, 6, False)):
        led.say(first, last, ACCEPT)
        led.keep()
        assert led.has_released == has_room, f"{first} to {last}"


@pytest.mark.parametrize("delivery_count_max", [1, 2])
def test_who_waits_reads_again_once_time_is_over_or_a_member_has_left(delivery_count_max: int) -> None:
    led = Led(delivery_count_max=delivery_count_max)
    led.fetch()
    led.pass_ms(LOCK_MS - 1)
    assert not led.has_released
    led.pass_ms(1)
    assert led.has_released
    led.fetch()
    assert not led.has_released
    led.machine.on_member_left("m")
    led.take()
    assert led.has_released


def test_the_start_moves_past_what_is_done_when_the_records_before_are_deleted() -> None:
    led = Led()
    led.fetch(records_max=20)
    led.say(5, 14, ACCEPT)
    led.keep()
    assert led.machine.start == 0
    led.machine.on_log_start_moved(Offset(5))
    assert led.machine.start == 15


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


def test_small_batches_that_follow_each_other_are_acquired_together() -> None:
    led = Led(start=10_000, records_max=2_000)
    batches = [LogBatch(one, one) for one in range(10_000, 11_000)]

    def acquire() -> None:
        led.machine.on_acquire("m", 10_000, batches, records_max=1_000, is_strict=True, now_ms=0)

    assert executed_lines(acquire) < 10 * len(batches)


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


def test_a_member_without_a_name_has_nothing_of_what_nobody_has() -> None:
    """Records that are done or available are nobody's: their member is empty, as a client may say that it is."""
    led = Led()
    assert led.fetch() == [(0, 9, 1)]
    led.say(1, 9, ACCEPT)
    led.keep()
    led.machine.on_member_left("")
    led.take()
    assert led.writing is None
    assert not led.has_released
    with pytest.raises(KafkaError) as refused:
        led.say(1, 9, RELEASE, member="")
    assert refused.value.code is Code.INVALID_RECORD_STATE
    led.say(0, 0, RELEASE)
    led.keep()
    with pytest.raises(KafkaError):
        led.say(0, 0, ACCEPT, member="")
    assert led.fetch(is_strict=True, records_max=1) == [(0, 0, 2)]

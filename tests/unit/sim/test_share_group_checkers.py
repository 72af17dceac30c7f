"""The checkers of share groups: what breaks each, and what does not."""

from __future__ import annotations

from itertools import count

from tidelog.base.ids import LeaderEpoch, PartitionIndex, TopicPartition
from tidelog.sim.checkers.share_groups import AcceptedOnce, Acquisition, NoRecordSkipped, OneMemberAtATime
from tidelog.sim.checkers.views import Broken, Record

P = TopicPartition("flights", PartitionIndex(0))
LOCK_MS = 100
COUNT_MAX = 3
LEADER, NEXT_LEADER = object(), object()


def record(text: str, leader_epoch: int = 0) -> Record:
    return LeaderEpoch(leader_epoch), text


class Group:
    """Members that acquire records of one partition, and what becomes of that."""

    def __init__(self) -> None:
        self.found: list[Broken] = []
        self.forgotten_at = 0
        self._ticks = count(1)
        self._now_ms = 0
        self._one_at_a_time = OneMemberAtATime()
        self._accepted_once = AcceptedOnce()
        self._none_skipped = NoRecordSkipped(COUNT_MAX)

    @property
    def broken(self) -> list[str]:
        return [each.invariant for each in self.found]

    def tick(self) -> int:
        return next(self._ticks)

    def wait(self, milliseconds: int) -> None:
        self._now_ms += milliseconds

    def forget(self) -> None:
        self.forgotten_at = self.tick()

    def acquire(
        self,
        member_id: str,
        one: Record,
        offset: int = 0,
        *,
        delivery_count: int = 1,
        asked_at: int | None = None,
        source: object = LEADER,
    ) -> Acquisition:
        found = Acquisition(
            member_id,
            P,
            offset,
            one,
            delivery_count,
            asked_at=self.tick() if asked_at is None else asked_at,
            until_ms=self._now_ms + LOCK_MS,
            source=source,
        )
        others = self._one_at_a_time.others(found, self._now_ms)
        self.found += self._one_at_a_time.on_acquired(found, others, self._now_ms)
        self.found += self._accepted_once.check(found, self.forgotten_at)
        self._none_skipped.on_acquired(found)
        return found

    def accept(self, one: Acquisition, *, is_answered: bool = True) -> None:
        one.is_open = False
        self._none_skipped.on_may_be_done(one)
        if is_answered:
            self._accepted_once.on_done(one, self.tick())

    def lose_answer(self, end_offset: int) -> None:
        self._none_skipped.on_untold(P, end_offset)

    def settle(self, *records: Record | None) -> None:
        self.found += self._none_skipped.check_settled(P, records)


def test_two_members_have_a_record_at_once() -> None:
    group = Group()
    group.acquire("a", record("m"))
    group.wait(LOCK_MS - 1)
    group.acquire("b", record("m"))
    assert group.broken == ["OneMemberAtATime"]


def test_a_record_is_another_members_once_its_time_is_over_or_it_was_said_what_became_of_it() -> None:
    group = Group()
    group.acquire("a", record("m"))
    group.wait(LOCK_MS)
    second = group.acquire("b", record("m"))
    second.is_open = False
    group.acquire("c", record("m"))
    assert group.broken == []


def test_the_next_leader_does_not_know_who_has_what() -> None:
    group = Group()
    group.acquire("a", record("m"))
    group.acquire("b", record("m"), source=NEXT_LEADER)
    group.acquire("c", record("m"), source=None)
    assert group.broken == []


def test_what_is_done_is_delivered_again() -> None:
    group = Group()
    group.accept(group.acquire("a", record("m")))
    group.acquire("b", record("m"))
    assert group.broken == ["AcceptedOnce"]


def test_an_acceptance_that_was_not_answered_or_that_was_forgotten_may_come_to_nothing() -> None:
    group = Group()
    group.accept(group.acquire("a", record("m")), is_answered=False)
    asked_before = group.tick()
    group.accept(group.acquire("b", record("m")))
    group.acquire("c", record("m"), asked_at=asked_before)
    group.forget()
    group.wait(LOCK_MS)
    group.acquire("d", record("m"))
    assert group.broken == []


def test_another_record_at_the_offset_of_one_that_is_done_is_another() -> None:
    group = Group()
    group.accept(group.acquire("a", record("m")))
    group.accept(group.acquire("b", record("n", 1)))
    group.settle(record("n", 1))
    assert group.broken == []


def test_a_record_that_nobody_was_given_is_skipped() -> None:
    group = Group()
    group.accept(group.acquire("a", record("m"), 1))
    group.settle(None, record("m"), record("n"))
    assert group.broken == ["NoRecordSkipped"]


def test_a_record_that_was_released_once_is_not_done() -> None:
    group = Group()
    group.acquire("a", record("m"), delivery_count=COUNT_MAX - 1)
    group.settle(record("m"))
    assert group.broken == ["NoRecordSkipped"]


def test_a_record_that_was_delivered_too_often_is_done_whoever_was_told() -> None:
    group = Group()
    group.acquire("a", record("m"), delivery_count=COUNT_MAX)
    group.acquire("a", record("n"), 1, delivery_count=COUNT_MAX - 1)
    group.lose_answer(2)
    group.settle(record("m"), record("n"))
    assert group.broken == []
    group.settle(record("m"), record("n"), record("o"))
    assert group.broken == ["NoRecordSkipped"]


def test_what_was_done_with_a_record_that_was_taken_back_hides_another() -> None:
    group = Group()
    group.accept(group.acquire("a", record("m")))
    group.settle(record("n", 1))
    assert group.broken == ["NewRecordsAreDelivered"]

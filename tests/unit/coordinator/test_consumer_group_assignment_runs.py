"""Target assignments of large groups: made in pieces, with other requests in between, and whole all the same."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from support.fixtures.coordinated_consumers import Consumers
from tidelog.base.errors import Code
from tidelog.base.ids import Offset
from tidelog.coordinator.groups import GroupSettings
from tidelog.coordinator.groups.consumer import assignment, consumer_members
from tidelog.coordinator.groups.consumer.group import ConsumerGroupState
from tidelog.coordinator.groups.consumer.settings import ConsumerGroupSettings
from tidelog.coordinator.groups.consumer.target_assignments import AT_ONCE_MAX
from tidelog.journal import RequestId

AT_ONCE = GroupSettings(consumer=ConsumerGroupSettings(assignment_interval_ms=0))
MANY = 8 * AT_ONCE_MAX


@dataclass
class Large(Consumers):
    """A coordinator whose topic has many partitions, and the requests that wait."""

    def join(self, member_id: str, **options: object) -> RequestId:  # type: ignore[override]
        return self.beat(member_id, 0, topics=("t",), owned={}, rebalance_ms=60_000, **options)  # type: ignore[arg-type]

    def piece(self) -> None:
        """Let the coordinator do its next piece of work."""
        assert self.coordinator.next_deadline_ms() == 0
        self.coordinator.on_time(now_ms=self.now_ms, wall_ms=self.wall_ms)
        self.drive()

    def all_pieces(self) -> int:
        """Returns how many there were."""
        count = 0
        while self.coordinator.next_deadline_ms() == 0:
            self.piece()
            count += 1
        return count

    def settle(self, *members: str) -> None:
        """Everybody does as told, until the group is at rest."""
        for _ in range(6):
            self.now_ms += 1_000
            for one in members:
                current = self.group.current(one)
                owned = {"t": [number for parts in current.assigned.values() for number in parts]}
                request_id = self.beat(one, current.member_epoch, owned=owned)
                self.all_pieces()
                self.heard(request_id)
        assert self.group.state is ConsumerGroupState.STABLE

    def owned(self, member_id: str) -> set[int]:
        return {one for partitions in self.group.current(member_id).assigned.values() for one in partitions}


@pytest.fixture
def world() -> Large:
    return Large(AT_ONCE, topics={"t": MANY})


def test_who_joins_a_large_group_is_answered_with_what_it_was_assigned(world: Large) -> None:
    request_id = world.join("a")
    assert request_id not in world.answers
    assert world.all_pieces() > 2, "others have their turn in between"
    answer = world.heard(request_id)
    assert (answer.member_epoch, world.told(answer)) == (1, {"t": set(range(MANY))})


def test_who_has_much_is_told_of_it_between_other_requests_and_only_if_it_says_everything(world: Large) -> None:
    world.join("a")
    world.all_pieces()
    assert world.told(world.heard(world.beat("a", 1))) is None
    everything = world.beat("a", 1, topics=["t"], owned={"t": range(MANY)}, rebalance_ms=60_000)
    assert everything not in world.answers
    world.all_pieces()
    assert world.told(world.heard(everything)) == {"t": set(range(MANY))}


def test_who_has_little_and_is_to_have_much_is_moved_on_between_other_requests() -> None:
    world = Large(AT_ONCE, topics={"t": 2})
    for one in "ab":
        world.join(one)
    world.settle("a", "b")
    world.make(t=MANY)
    world.beat("a", 2)
    world.all_pieces()
    assert sum(map(len, world.group.target("b").values())) == MANY // 2
    everything = world.beat("b", 2, topics=["t"], owned={"t": world.owned("b")}, rebalance_ms=60_000)
    assert everything not in world.answers
    world.all_pieces()
    assert len((world.told(world.heard(everything)) or {})["t"]) == MANY // 2


def test_a_member_that_is_told_much_does_not_undo_what_another_one_wants_meanwhile(
    world: Large, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The group epoch was set back, and nobody made the assignment that was wanted."""
    world.join("a")
    world.all_pieces()
    monkeypatch.setattr(assignment, "PIECE", 1)
    epoch = world.group.epoch
    told = world.beat("a", epoch, topics=("t",), owned={"t": range(MANY)}, rebalance_ms=60_000)
    world.piece()
    assert told not in world.answers
    world.join("b")
    assert world.group.epoch == epoch + 1
    world.all_pieces()
    assert world.heard(told).member_epoch == epoch
    assert world.group.epoch == epoch + 1


def test_large_groups_have_their_turns_one_after_the_other() -> None:
    world = Large(AT_ONCE, topics={"t": MANY, "u": AT_ONCE_MAX + 1})
    first = world.join("a", group_id="first")
    second = world.beat("b", 0, topics=("u",), owned={}, rebalance_ms=60_000, group_id="second")
    assert not {first, second} & world.answers.keys()
    while second not in world.answers:
        world.piece()
    assert first not in world.answers, "it has more to do, and came first"
    world.all_pieces()
    world.heard(first)


def test_whoever_asks_meanwhile_waits_and_the_next_assignment_is_for_them(world: Large) -> None:
    world.join("a")
    world.all_pieces()
    first = world.join("b")
    world.piece()
    second = world.join("c")
    beat = world.beat("a", 1)
    assert not {first, second, beat} & world.answers.keys()
    world.all_pieces()
    assert {first, second, beat} <= world.answers.keys()
    assert world.group.epoch == 3
    assert world.group.target_epoch == 2, "it was begun before the third came"
    assert world.owned("c") == set()
    world.settle("a", "b", "c")
    assert sorted(len(world.owned(one)) for one in "abc") == [MANY // 3] * 3
    assert world.group.target_epoch == 3


def test_a_member_that_leaves_meanwhile_gets_nothing(world: Large) -> None:
    world.join("a")
    world.all_pieces()
    waiting = world.join("b")
    world.piece()
    world.heard(world.beat("b", -1))
    world.all_pieces()
    assert world.refused(waiting) is Code.UNKNOWN_MEMBER_ID
    assert set(world.group.targets) == {"a"}
    world.settle("a")
    assert len(world.owned("a")) == MANY


def test_a_static_member_that_is_replaced_meanwhile_gets_what_was_meant_for_its_former_self(world: Large) -> None:
    for one in ("a", "b"):
        world.join(one, instance_id=f"i-{one}")
        world.all_pieces()
    world.settle("a", "b")
    world.make(t=2 * MANY)
    world.beat("a", 2)
    world.piece()
    world.heard(world.beat("b", -2, instance_id="i-b"))
    waiting = world.join("c", instance_id="i-b")
    world.all_pieces()
    world.heard(waiting)
    assert world.group.target_epoch == world.group.epoch
    assert len(world.group.target("c")) == 1
    assert sum(len(one) for one in world.group.target("c").values()) == MANY
    assert "b" not in world.group.targets
    world.settle("a", "c")
    assert len(world.owned("c")) == MANY


def test_a_static_member_that_leaves_for_a_while_is_away_whatever_is_being_done_about_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(assignment, "PIECE", 1)
    monkeypatch.setattr(consumer_members, "AT_ONCE_MAX", 0)
    for count in range(40):
        world = Large(AT_ONCE, topics={"t": 3})
        for one in "ab":
            world.join(one, instance_id=f"i-{one}")
            world.all_pieces()
        moving = world.beat("a", 1, instance_id="i-a")
        for _ in range(count):
            if world.coordinator.next_deadline_ms() == 0:
                world.piece()
        is_moved = moving in world.answers
        world.heard(world.beat("a", -2, instance_id="i-a"))
        world.all_pieces()
        assert world.group.current("a").is_away, count
        assert moving in world.answers, count
        if is_moved:
            break
    assert count > 3, "some were asked in between"


@pytest.mark.parametrize("moves", [True, False])
def test_a_member_that_is_moved_on_in_pieces_has_its_time_to_give_up(
    moves: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(consumer_members, "AT_ONCE_MAX", 0)
    world = Large(AT_ONCE, topics={"t": 4})
    for one in "ab":
        world.join(one)
        world.all_pieces()
    world.beat("a", 1)
    world.all_pieces()
    assert world.group.current("a").revoking
    for _ in range(3):
        world.pass_ms(20_000)
        owned = {"t": {0, 1}} if moves else {"t": {0, 1, 2, 3}}
        for one in "ab":
            if one in world.group.subscriptions:
                world.beat(one, world.group.current(one).member_epoch, owned=owned if one == "a" else None)
                world.all_pieces()
    assert ("a" in world.group.subscriptions) == moves


def test_what_is_done_in_pieces_is_done_when_its_piece_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """From then on the next assignment is put off, and a member has its time to give up."""
    monkeypatch.setattr(consumer_members, "AT_ONCE_MAX", 0)
    world = Large(AT_ONCE, topics={"t": 4})
    world.pass_ms(100_000)
    for one in "ab":
        world.join(one)
        world.all_pieces()
    assert world.group.assigned_at_ms == world.wall_ms
    world.beat("a", 1)
    world.all_pieces()
    assert world.group.current("a").revoking
    for passed_ms in (30_000, 29_999):
        world.pass_ms(passed_ms)
        assert set(world.group.subscriptions) == {"a", "b"}
        for one in "ab":
            world.beat(one, world.group.current(one).member_epoch)
            world.all_pieces()
    world.pass_ms(1)
    assert set(world.group.subscriptions) == {"b"}


@pytest.mark.parametrize("gives_up", [True, False])
def test_a_member_that_waits_for_an_answer_when_its_time_is_over_is_out_if_it_gave_nothing_up(
    gives_up: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(consumer_members, "AT_ONCE_MAX", 0)
    world = Large(AT_ONCE, topics={"t": 4})
    for one in "ab":
        world.join(one)
        world.all_pieces()
    world.beat("a", 1)
    world.all_pieces()
    assert world.group.current("a").revoking
    world.now_ms += 30_000
    for one in "ab":
        world.beat(one, world.group.current(one).member_epoch)
        world.all_pieces()
    world.now_ms += 30_000
    owned = {"t": {0, 1}} if gives_up else {"t": {0, 1, 2, 3}}
    waiting = world.beat("a", 1, owned=owned)
    assert waiting not in world.answers
    world.all_pieces()
    world.heard(waiting)
    assert "a" in world.group.subscriptions, "it is looked at what it says"
    for _ in range(4):
        world.pass_ms(1_000)
        world.beat("b", world.group.current("b").member_epoch)
        if "a" in world.group.subscriptions:
            world.beat("a", world.group.current("a").member_epoch, owned=owned)
    world.all_pieces()
    assert ("a" in world.group.subscriptions) == gives_up


def test_a_member_that_keeps_its_partitions_is_out_in_time_though_others_are_being_answered(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(consumer_members, "AT_ONCE_MAX", 0)
    world = Large(AT_ONCE, topics={"t": 4})
    for one in "ab":
        world.join(one)
        world.all_pieces()
    world.beat("a", 1)
    world.all_pieces()
    assert world.group.current("a").revoking
    world.now_ms += 30_000
    for one in "ab":
        world.beat(one, world.group.current(one).member_epoch)
        world.all_pieces()
    world.now_ms += 30_000
    waiting = world.beat("b", world.group.current("b").member_epoch)
    assert waiting not in world.answers
    world.coordinator.on_time(now_ms=world.now_ms, wall_ms=world.wall_ms)
    assert set(world.group.subscriptions) == {"b"}


def test_a_leader_that_fails_within_leaves_what_the_next_one_goes_on_from(world: Large) -> None:
    for one in ("a", "b"):
        world.join(one)
        world.all_pieces()
    world.settle("a", "b")
    third = world.join("c")
    waited = world.beat("a", 2)
    while len(world.log) < 3 or world.group.targets.get("c") is None:
        world.piece()  # some of the targets are written, and not the epoch
    world.coordinator.resign()
    world.drive()
    world.fail_over()
    assert world.refused(third) is world.refused(waited) is Code.NOT_COORDINATOR
    again = world.join("c")
    world.all_pieces()
    world.heard(again)
    world.settle("a", "b", "c")
    assert set.union(*(world.owned(one) for one in "abc")) == set(range(MANY))
    assert sum(len(world.owned(one)) for one in "abc") == MANY


def test_a_group_that_is_gone_meanwhile_leaves_nobody_waiting_and_does_not_come_back() -> None:
    for count in range(100):
        world = Large(AT_ONCE, topics={"t": MANY})
        waiting = world.join("a")
        for _ in range(count):
            world.piece()
        if waiting in world.answers:
            break
        world.heard(world.beat("a", -1))
        world.delete_group()
        world.all_pieces()
        assert world.refused(waiting) is Code.COORDINATOR_LOAD_IN_PROGRESS, "Java's consumer asks again then"
        assert "g" not in world.consumers.groups, count
        again = world.join("a")
        world.all_pieces()
        assert world.told(world.heard(again)) == {"t": set(range(MANY))}
    assert count > 3, "it went at several places"


def test_what_no_batch_holds_is_refused(world: Large) -> None:
    world.coordinator.batch_size_bytes_max = world.batch_bytes = 4_000
    waiting = world.join("a")
    world.all_pieces()
    assert world.refused(waiting) is Code.INVALID_REQUEST
    assert world.group.target_epoch == 0


def test_the_log_tells_the_same(world: Large) -> None:
    for one in ("a", "b", "c"):
        world.join(one)
        world.piece()
    world.all_pieces()
    world.settle("a", "b", "c")
    before = world.group.clone().canonical()
    assert world.log[-1][0] == Offset(world.next_offset - 1)
    world.fail_over()
    assert world.group.canonical() == before

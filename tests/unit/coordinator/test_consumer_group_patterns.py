"""Members that subscribe to a pattern (KIP-848): looked up in steps, and again when topics come and go."""

from __future__ import annotations

from dataclasses import replace

import pytest

from support.fixtures.coordinated_consumers import Consumers
from tidelog.base.errors import Code
from tidelog.base.ids import Offset
from tidelog.coordinator.groups import GroupSettings
from tidelog.coordinator.groups.consumer import assignment, pattern_searches
from tidelog.coordinator.groups.consumer.recorded import member_record, pattern_record
from tidelog.coordinator.groups.consumer.settings import ConsumerGroupSettings
from tidelog.coordinator.groups.consumer.target_assignments import RECORD_WORK

AT_ONCE = GroupSettings(consumer=ConsumerGroupSettings(assignment_interval_ms=0))


def world_with(pattern: str = "ab.*", **topics: int) -> Consumers:
    """One member that is subscribed to a pattern, which was looked up."""
    world = Consumers(AT_ONCE, topics=topics)
    assert world.told(world.enter("a", topics=None, pattern=pattern)) == {}, "it is looked up later"
    world.pass_ms(0)
    return world


def test_a_pattern_is_looked_up_after_the_answer() -> None:
    world = world_with(abc=1, abd=1, xyz=1, __consumer_offsets=1)
    answer = world.heard(world.beat("a", 1))
    assert (answer.member_epoch, world.told(answer)) == (2, {"abc": {0}, "abd": {0}})
    assert world.group.matched["ab.*"].topics == {"abc", "abd"}


def test_names_add_to_a_pattern() -> None:
    world = Consumers(AT_ONCE, topics={"abc": 1, "xyz": 1})
    world.enter("a", topics=["xyz"], pattern="ab.*")
    world.pass_ms(0)
    assert world.told(world.heard(world.beat("a", 1))) == {"abc": {0}, "xyz": {0}}


def test_a_pattern_that_matches_what_others_name_has_its_member_share_it() -> None:
    """The topics of the group are the same as before; who reads them is not."""
    world = Consumers(AT_ONCE, topics={"abc": 2})
    world.enter("a", topics=["abc"])
    world.enter("b", topics=None, pattern="ab.*")
    world.pass_ms(0)
    for _ in range(2):
        for member_id in "ab":
            current = world.group.current(member_id)
            owned = {"abc": [one for partitions in current.assigned.values() for one in partitions]}
            world.heard(world.beat(member_id, current.member_epoch, owned=owned))
    assert [len(world.group.current(one).assigned) for one in "ab"] == [1, 1]


def test_a_pattern_whose_topics_find_no_room_any_more_leaves_its_member_none_of_them() -> None:
    """Another names them, so the topics of the group stay; who reads them is another than before."""
    world = Consumers(AT_ONCE, topics={"abc": 2})
    world.enter("a", topics=["abc"])
    world.enter("b", topics=None, pattern="ab.*")
    world.pass_ms(0)
    assert world.group.matched["ab.*"].topics == {"abc"}
    for member_id in "ab":
        world.heard(world.beat(member_id, world.group.current(member_id).member_epoch, owned={"abc": []}))
    world.memory.limit_bytes = world.memory.used_bytes
    world.make(abd=1)
    world.pass_ms(0)
    assert world.group.matched["ab.*"].topics == frozenset()
    epoch = world.group.epoch
    world.memory.limit_bytes = world.memory.used_bytes
    world.make(abe=1)
    world.pass_ms(0)
    assert world.group.epoch == epoch, "it matches none still: nobody need be reassigned"
    world.memory.limit_bytes *= 2
    answer = world.heard(world.beat("b", world.group.current("b").member_epoch, owned={}))
    assert world.told(answer) == {}
    assert not world.group.target("b")


def test_internal_topics_match_no_pattern() -> None:
    world = world_with(".*", __consumer_offsets=1, abc=1)
    assert set(world.group.topics) == {"abc"}


def test_a_pattern_that_makes_no_sense_is_refused() -> None:
    world = Consumers(AT_ONCE)
    request = world.beat("a", 0, pattern="(", owned={}, rebalance_ms=1)
    assert world.refused(request) == Code.INVALID_REGULAR_EXPRESSION
    request = world.beat("a", 0, pattern="a" * 40_000, owned={}, rebalance_ms=1)
    assert world.refused(request) == Code.INVALID_REGULAR_EXPRESSION
    assert not world.log


def test_topics_that_are_made_and_deleted_come_and_go() -> None:
    world = world_with(abc=1)
    world.heard(world.beat("a", 1))
    world.make(abd=1, xyz=1)
    world.pass_ms(0)
    assert world.told(world.heard(world.beat("a", 2))) == {"abc": {0}, "abd": {0}}
    world.delete("abc")
    world.pass_ms(0)
    assert world.told(world.heard(world.beat("a", 3, owned={"abd": {0}}))) == {"abd": {0}}
    assert world.group.matched["ab.*"].topics == {"abd"}


def test_topics_that_do_not_match_change_nothing() -> None:
    world = world_with(abc=1)
    epoch, written = world.group.epoch, len(world.log)
    world.make(xyz=1)
    world.pass_ms(0)
    assert (world.group.epoch, len(world.log)) == (epoch, written)


def test_nothing_is_looked_up_again_though_topics_get_more_partitions() -> None:
    world = world_with(abc=1, xyz=1)
    world.make(abc=2, xyz=2)
    assert world.consumers.next_ms is None
    world.tell(has_moved=True)
    assert world.consumers.next_ms is None
    world.make(abd=1)
    assert world.consumers.next_ms == 0


def test_the_topics_of_many_patterns_are_noted_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    world = Consumers(AT_ONCE, topics={"abc": 1})
    count = 60
    for number in range(count):
        world.enter("a", topics=None, pattern="ab.*", group_id=f"g{number}")
    world.pass_ms(0)
    monkeypatch.setattr(assignment, "PIECE", 5 * RECORD_WORK)
    world.make(abd=1)
    steps = 0
    while world.consumers.next_ms is not None:
        world.coordinator.on_time(now_ms=world.now_ms, wall_ms=world.wall_ms)
        world.drive()
        steps += 1
    assert all(set(group.topics) == {"abc", "abd"} for group in world.consumers.groups.values())
    assert steps >= count // 5


def test_a_pattern_that_matches_nothing_is_looked_up_once() -> None:
    world = world_with(xyz=1)
    assert world.group.epoch == 1
    world.heard(world.beat("a", 1, topics=[], pattern="ab.*"))
    assert world.consumers.next_ms is None


def test_many_names_take_many_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pattern_searches, "STEP_NAMES_MAX", 2)
    world = Consumers(AT_ONCE, topics={f"ab{number}": 1 for number in range(5)})
    world.enter("a", topics=None, pattern="ab.*")
    world.enter("b", topics=None, pattern="ab[01]")
    for _ in range(3):
        assert not world.group.matched
        world.coordinator.on_time(now_ms=0, wall_ms=world.wall_ms)
    world.make(abc=1)
    world.delete("ab0")
    world.pass_ms(0)
    assert world.group.matched["ab.*"].topics == {"ab1", "ab2", "ab3", "ab4", "abc"}
    assert world.group.matched["ab[01]"].topics == {"ab1"}


def test_topics_that_come_at_any_time_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(assignment, "PIECE", 1)
    for count in range(12):
        world = Consumers(AT_ONCE, topics={"abc": 1, "xyz": 1})
        world.enter("a", topics=None, pattern="ab.*")
        for _ in range(count):
            world.coordinator.on_time(now_ms=0, wall_ms=world.wall_ms)
            world.drive()
        world.make(abd=1)
        world.pass_ms(0)
        assert set(world.group.topics) == {"abc", "abd"}, count


def test_a_group_that_goes_at_any_time_is_not_there_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(assignment, "PIECE", 1)
    for count in range(12):
        world = Consumers(AT_ONCE, topics={"abc": 1, "abd": 1})
        world.enter("a", topics=None, pattern="ab.*")
        for _ in range(count):
            world.coordinator.on_time(now_ms=0, wall_ms=world.wall_ms)
            world.drive()
        world.heard(world.beat("a", -1))
        world.delete_group()
        world.pass_ms(0)
        assert not world.consumers.groups, count
        assert world.memory.used_bytes == 0


@pytest.mark.parametrize("epoch", [-1, 1])
def test_a_pattern_that_is_given_up_at_any_time_leaves_nothing(epoch: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(assignment, "PIECE", 1)
    for count in range(12):
        world = Consumers(AT_ONCE, topics={"abc": 1, "abd": 1})
        world.enter("a", topics=None, pattern="ab.*")
        for _ in range(count):
            world.coordinator.on_time(now_ms=0, wall_ms=world.wall_ms)
            world.drive()
        world.heard(world.beat("a", epoch, topics=["abc"] if epoch > 0 else None, pattern="" if epoch > 0 else None))
        world.pass_ms(0)
        assert not world.group.matched, count
        assert set(world.group.topics) == ({"abc"} if epoch > 0 else set()), count


def test_names_are_matched_as_many_at_once_as_may_be(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pattern_searches, "STEP_NAMES_MAX", 5)
    world = Consumers(AT_ONCE, topics={f"ab{number:02}": 1 for number in range(40)})
    world.enter("a", topics=None, pattern="ab.*")
    steps = 0
    while world.consumers.next_ms is not None:
        world.coordinator.on_time(now_ms=0, wall_ms=world.wall_ms)
        world.drive()
        steps += 1
    assert len(world.group.topics) == 40
    assert 40 / 5 <= steps <= 40 / 5 + 3, "the pattern is compiled before, and its topics are noted afterwards"


def test_a_pattern_that_nobody_wants_is_forgotten() -> None:
    world = world_with(abc=1)
    world.enter("b", topics=None, pattern="ab.*")
    world.heard(world.beat("a", 1, pattern=""))
    assert set(world.group.matched) == {"ab.*"}
    world.heard(world.beat("b", 3, pattern="x"))
    assert not world.group.matched
    world.pass_ms(0)
    assert set(world.group.matched) == {"x"}
    world.heard(world.beat("b", -1))
    assert not world.group.matched


def test_who_leaves_before_its_pattern_is_looked_up_leaves_nothing() -> None:
    world = Consumers(AT_ONCE, topics={"abc": 1})
    world.enter("a", topics=None, pattern="ab.*")
    world.heard(world.beat("a", -1))
    world.pass_ms(0)
    assert not world.group.matched


def test_a_pattern_that_another_member_wants_is_looked_up_though_one_leaves_or_wants_another() -> None:
    for epoch, pattern in ((-1, None), (1, "x"), (1, "")):
        world = Consumers(AT_ONCE, topics={"abc": 1})
        world.enter("b", topics=None, pattern="ab.*")
        world.enter("a", topics=None, pattern="ab.*")
        world.heard(world.beat("a", epoch if epoch < 0 else world.group.current("a").member_epoch, pattern=pattern))
        world.pass_ms(0)
        assert world.group.matched["ab.*"].topics == {"abc"}


@pytest.mark.parametrize("epoch", [-1, 1])
def test_what_is_not_wanted_any_more_is_not_searched_for(epoch: int) -> None:
    world = Consumers(AT_ONCE, topics={"abc": 1})
    world.enter("a", topics=None, pattern="ab.*")
    searches = world.consumers.members.searches
    assert searches is not None
    assert not searches.is_idle
    world.heard(world.beat("a", epoch, topics=["abc"] if epoch > 0 else None, pattern="" if epoch > 0 else None))
    assert searches.is_idle


def test_another_leader_looks_again() -> None:
    world = world_with(abc=1)
    world.heard(world.beat("a", 1))
    del world.topics["abc"]
    world.topics["abd"] = 1
    world.fail_over()
    assert world.group.matched["ab.*"].topics == {"abc"}
    world.pass_ms(0)
    assert world.told(world.heard(world.beat("a", 2, owned={}))) == {"abd": {0}}


def test_partitions_of_a_topic_that_matches_are_noticed() -> None:
    world = world_with(abc=1)
    world.heard(world.beat("a", 1))
    world.make(abc=2)
    assert world.told(world.heard(world.beat("a", 2))) == {"abc": {0, 1}}


def test_a_pattern_that_another_broker_took_and_that_is_refused_here_matches_nothing() -> None:
    """Apache Kafka knows scripts of Unicode; a log of its groups is to be led all the same."""
    world = Consumers(topics={"t": 1})
    world.enter("a", topics=None, pattern="t.*")
    world.pass_ms(0)
    refused_here = r"\p{Latin}+"
    subscription = replace(world.group.subscriptions["a"], pattern=refused_here)
    world.log.append((Offset(world.next_offset), member_record("g", "a", subscription)))
    world.log.append((Offset(world.next_offset + 1), pattern_record("g", "t.*", None)))
    world.fail_over()
    world.pass_ms(0)
    assert world.group.matched[refused_here].topics == frozenset()
    world.make(u=2)
    world.pass_ms(0)
    assert not world.group.topics
    world.heard(world.beat("a", world.group.current("a").member_epoch))


def looked_up(world: Consumers) -> None:
    for _ in range(100):
        if world.consumers.next_ms is None:
            return
        world.pass_ms(0)
    raise AssertionError("it is looked up for ever")


def test_a_pattern_whose_topics_no_batch_holds_matches_none_and_stops_nobody() -> None:
    """It was raised out of `on_time`, at every leader in turn: the coordinator's partition went offline."""
    world = Consumers(AT_ONCE, topics={f"{number:05d}" + "x" * 244: 1 for number in range(4_300)})
    world.enter("a", topics=None, pattern=".*")
    looked_up(world)
    assert world.group.matched[".*"].topics == frozenset()
    world.batch_bytes = world.coordinator.batch_size_bytes_max
    world.fail_over()
    looked_up(world)
    assert world.told(world.heard(world.beat("a", world.group.current("a").member_epoch))) in (None, {})


def test_topics_that_find_no_room_are_no_topics() -> None:
    world = Consumers(AT_ONCE, topics={f"topic-{number:05d}": 1 for number in range(2_000)}, memory_bytes=1 << 20)
    for number in range(100):
        world.beat(f"m{number}", 0, group_id=f"g{number}", topics=None, pattern=".*", owned={}, rebalance_ms=1_000)
    for _ in range(100_000):
        if world.consumers.next_ms is None:
            break
        world.pass_ms(0)
    assert world.memory.used_bytes < 2 * world.memory.limit_bytes


def test_a_change_of_topics_beside_a_search_that_finds_nothing_is_not_lost() -> None:
    world = Consumers(AT_ONCE, topics={"t": 2})
    world.enter("a")
    world.enter("b", topics=None, pattern="zzz.*")
    world.make(t=4)
    looked_up(world)
    answer = world.heard(world.beat("a", world.group.current("a").member_epoch, owned={"t": [0, 1]}))
    assert world.told(answer) == {"t": {0, 1, 2, 3}}


def test_a_pattern_of_nobody_is_not_looked_up() -> None:
    world = Consumers(AT_ONCE, topics={"abc": 1})
    world.enter("a", topics=None, pattern="ab.*")
    world.heard(world.beat("a", -1))
    assert world.consumers.members.searches is not None
    assert world.consumers.members.searches.is_idle

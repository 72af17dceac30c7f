"""What raises the epoch of a consumer group, what its target assignment follows from, and when it is made (KIP-848)."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from support.fixtures.coordinated_consumers import Consumers, topic_id
from tidelog.coordinator.groups import GroupSettings
from tidelog.coordinator.groups.consumer.settings import ConsumerGroupSettings
from tidelog.wire.primitives import ZERO_UUID

AT_ONCE = GroupSettings(consumer=ConsumerGroupSettings(assignment_interval_ms=0))
TWO = {"t": 2, "u": 2}


def world_of_one(**options: object) -> Consumers:
    world = Consumers(AT_ONCE, topics=dict(TWO))
    world.enter("a", topics=["t"], **options)
    return world


# The group epoch.


def alter_topics(world: Consumers) -> None:
    world.heard(world.beat("a", 1, topics=["t", "u"]))


def add_partitions(world: Consumers) -> None:
    world.make(t=3)
    assert world.told(world.heard(world.beat("a", 1))) == {"t": {0, 1, 2}}


def delete_a_topic(world: Consumers) -> None:
    world.delete("t")
    assert world.told(world.heard(world.beat("a", 1, owned={}))) == {}


def make_it_again(world: Consumers) -> None:
    world.delete("t")
    world.make(t=2)
    owned = world.heard(world.beat("a", 1, owned={})).assignment
    assert owned is not None
    assert [one.topic_id for one in owned.topic_partitions] == [topic_id("t", 1)]


def move_a_rack(world: Consumers) -> None:
    world.racks[1] = "r"
    world.tell(has_moved=True)
    world.heard(world.beat("a", 1))


def prefer_another_assignor(world: Consumers) -> None:
    world.heard(world.beat("a", 1, assignor="range"))
    assert world.consumer_group().assignor_name == "range"


def come_back_with_another_assignor(world: Consumers) -> None:
    world.heard(world.beat("a", -2, instance_id="i"))
    world.enter("b", instance_id="i", assignor="range")


@pytest.mark.parametrize(
    "event",
    [
        alter_topics,
        add_partitions,
        delete_a_topic,
        make_it_again,
        move_a_rack,
        prefer_another_assignor,
        come_back_with_another_assignor,
    ],
)
def test_what_raises_the_group_epoch(event: Callable[[Consumers], None]) -> None:
    world = world_of_one(instance_id="i")
    event(world)
    assert world.group.epoch == 2


def say_it_again(world: Consumers) -> None:
    world.heard(world.beat("a", 1, topics=["t", "t"], rebalance_ms=60_000, owned={"t": {0, 1}}))


def stand_elsewhere(world: Consumers) -> None:
    world.heard(world.beat("a", 1, rack_id="r"))
    assert world.group.subscriptions["a"].rack_id == "r"


def call_the_same_assignor(world: Consumers) -> None:
    world.heard(world.beat("a", 1, assignor="uniform"))


def alter_another_topic(world: Consumers) -> None:
    world.make(u=5)
    world.heard(world.beat("a", 1))


def alter_nothing(world: Consumers) -> None:
    world.tell("t")
    assert world.consumers.members.may_differ(world.group)
    world.heard(world.beat("a", 1))
    assert not world.consumers.members.may_differ(world.group)


@pytest.mark.parametrize(
    "event", [say_it_again, stand_elsewhere, call_the_same_assignor, alter_another_topic, alter_nothing]
)
def test_what_does_not_raise_it(event: Callable[[Consumers], None]) -> None:
    world = world_of_one()
    event(world)
    assert world.group.epoch == 1


def test_a_heartbeat_that_changes_nothing_writes_nothing() -> None:
    world = world_of_one()
    written = len(world.log)
    world.heard(world.beat("a", 1))
    say_it_again(world)
    assert len(world.log) == written


def test_a_topic_that_is_made_later_is_assigned_then() -> None:
    world = Consumers(AT_ONCE, topics={})
    assert world.told(world.enter("a", topics=["t"])) == {}
    world.make(t=1)
    answer = world.heard(world.beat("a", 1))
    assert (answer.member_epoch, world.told(answer)) == (2, {"t": {0}})


# The target assignment.


def test_most_members_choose_the_assignor_and_the_first_one_set_among_equals() -> None:
    world = Consumers(AT_ONCE, topics={"t": 1, "u": 1})
    world.enter("a", topics=["t", "u"], assignor="range")
    assert world.consumer_group().assignor_name == "range"
    world.enter("b", topics=["t", "u"], assignor="uniform")
    assert world.consumer_group().assignor_name == "uniform"
    world.enter("c", topics=["t", "u"], assignor="range")
    assert world.consumer_group().assignor_name == "range"


def test_the_first_assignment_is_made_at_once_and_later_ones_wait_their_turn() -> None:
    world = Consumers(GroupSettings(consumer=ConsumerGroupSettings(assignment_interval_ms=1_000)))
    assert world.told(world.enter("a")) == {"t": {0, 1, 2, 3}}
    world.pass_ms(400)
    joined = world.enter("b")
    assert (joined.member_epoch, world.told(joined)) == (1, {})
    assert world.consumer_group().group_state == "Assigning"
    world.pass_ms(599)
    world.heard(world.beat("a", 1))
    assert (world.group.epoch, world.group.target_epoch) == (2, 1)
    world.pass_ms(1)
    assert world.told(world.heard(world.beat("a", 1))) == {"t": {0, 1}}
    assert world.group.target_epoch == 2
    assert world.consumer_group().group_state == "Reconciling"


def test_a_clock_that_went_back_puts_nothing_off() -> None:
    world = Consumers(GroupSettings(consumer=ConsumerGroupSettings(assignment_interval_ms=1_000)))
    world.pass_ms(5_000)
    world.enter("a")
    world.now_ms = 0
    world.enter("b")
    assert world.group.target_epoch == 2


def test_what_a_member_wants_no_more_it_loses_before_the_next_assignment() -> None:
    settings = GroupSettings(consumer=ConsumerGroupSettings(assignment_interval_ms=10_000))
    world = Consumers(settings, topics=dict(TWO))
    world.enter("a", topics=["t", "u"])
    answer = world.heard(world.beat("a", 1, topics=["t"], owned={"t": {0, 1}, "u": {0, 1}}))
    assert (answer.member_epoch, world.told(answer)) == (1, {"t": {0, 1}})
    assert world.group.target_epoch == 1
    assert world.heard(world.beat("a", 1, owned={"t": {0, 1}})).member_epoch == 1
    assert world.group.owner(topic_id("u"), 0) is None


def test_what_it_wants_no_more_is_not_given_to_it() -> None:
    settings = GroupSettings(consumer=ConsumerGroupSettings(assignment_interval_ms=10_000))
    world = Consumers(settings, topics=dict(TWO))
    world.enter("a", topics=["t", "u"])
    world.heard(world.beat("a", 1, topics=["t"], owned={"t": {0, 1}}))
    world.heard(world.beat("a", 1, owned={"t": {0, 1}}))
    assert set(world.group.current("a").assigned) == {topic_id("t")}
    assert set(world.group.targets["a"]) == {topic_id("t"), topic_id("u")}


def test_more_is_given_up_while_it_is_still_waited_for() -> None:
    settings = GroupSettings(consumer=ConsumerGroupSettings(assignment_interval_ms=10_000))
    world = Consumers(settings, topics={**TWO, "v": 1})
    world.enter("a", topics=["t", "u", "v"])
    everything = {"t": {0, 1}, "u": {0, 1}, "v": {0}}
    world.heard(world.beat("a", 1, topics=["t", "u"], owned=everything))
    answer = world.heard(world.beat("a", 1, topics=["t"], owned=everything))
    assert world.told(answer) == {"t": {0, 1}}
    assert set(world.group.current("a").revoking) == {topic_id("u"), topic_id("v")}


def test_settings_are_in_force_for_all_groups_that_have_none_of_their_own() -> None:
    world = Consumers(AT_ONCE)
    own = ConsumerGroupSettings(heartbeat_interval_ms=77)
    world.consumers.on_settings(ConsumerGroupSettings(heartbeat_interval_ms=88, session_timeout_ms=9), {"own": own})
    assert world.enter("a").heartbeat_interval_ms == 88
    assert world.enter("a", group_id="own").heartbeat_interval_ms == 77
    world.pass_ms(9)
    assert {one for one, group in world.consumers.groups.items() if group.subscriptions} == {"own"}


def test_a_topic_has_an_id_once_it_is_known() -> None:
    world = Consumers(AT_ONCE)
    assert [world.consumers.topic_id(name) for name in ("t", "nowhere")] == [topic_id("t"), ZERO_UUID]
    super(Consumers, world).fail_over()
    assert world.consumers.topic_id("t") == ZERO_UUID


def test_a_group_of_its_own_has_settings_of_its_own() -> None:
    world = Consumers(AT_ONCE)
    world.consumers.members.overrides = {
        "g": ConsumerGroupSettings(session_timeout_ms=60_000, heartbeat_interval_ms=7_000)
    }
    assert world.enter("a").heartbeat_interval_ms == 7_000
    assert world.enter("a", group_id="h").heartbeat_interval_ms == 5_000
    world.pass_ms(45_000)
    assert not world.consumers.groups["h"].subscriptions
    assert world.group.subscriptions

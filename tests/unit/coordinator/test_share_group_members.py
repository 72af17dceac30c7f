"""Members of share groups (KIP-932): how they join, are spread over partitions, leave, and are thrown out."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from support.fixtures.coordinated_consumers import Consumers
from support.fixtures.coordinated_sharers import Sharers
from tidelog.base.errors import Code
from tidelog.coordinator.groups import GroupSettings
from tidelog.coordinator.groups.share.member import ShareSubscription
from tidelog.coordinator.groups.share.settings import ShareGroupSettings
from tidelog.coordinator.groups.share.share_groups import METADATA_WAIT_MS
from tidelog.journal import SendId
from tidelog.wire.messages.api_76_share_group_heartbeat import ShareGroupHeartbeatRequest

AT_ONCE = GroupSettings(share=ShareGroupSettings(assignment_interval_ms=0))


def world_of(*members: str, **topics: int) -> Sharers:
    """A group whose members have what they are to have."""
    world = Sharers(AT_ONCE, topics=topics or {"t": 4})
    for member_id in members:
        world.share(member_id, *world.topics)
    settle(world)
    return world


def settle(world: Sharers) -> None:
    for _ in range(2):
        for member_id in list(world.share_group.subscriptions):
            world.share_on(member_id)


# Join.


def test_a_partition_is_assigned_once_there_is_a_state_of_it() -> None:
    world = Sharers(AT_ONCE, answers_at_once=False)
    answer = world.share("a")
    assert (answer.member_id, answer.member_epoch, answer.heartbeat_interval_ms) == ("a", 2, 5_000)
    assert answer.assignment is not None
    assert not answer.assignment.topic_partitions
    assert set(world.share_group.known_states.initializing) == {world.state_id("t", 0)[0]}
    assert world.share_on("a").assignment is None, "nothing has changed"
    world.answer_sends()
    assert world.starts("t") == dict.fromkeys(range(4)), "their leaders find out where the group begins"
    answer = world.share_on("a")
    assert answer.member_epoch == 3
    assert world.reads("a") == {"t": {0, 1, 2, 3}}
    assert world.share_on("a").assignment is None


def test_members_divide_partitions_and_share_them_where_they_are_more() -> None:
    world = world_of("a", "b")
    assert [len(world.reads(one)["t"]) for one in "ab"] == [2, 2]
    for member_id in "cdefgh":
        world.share(member_id)
    settle(world)
    read = [one for member_id in "abcdefgh" for one in world.reads(member_id)["t"]]
    assert sorted(read) == [0, 0, 1, 1, 2, 2, 3, 3]


def test_who_joins_again_is_told_what_it_had() -> None:
    world = world_of("a")
    epoch = world.share_group.epoch
    answer = world.share("a", "t")
    assert answer.assignment is not None
    assert [one.partitions for one in answer.assignment.topic_partitions] == [[0, 1, 2, 3]]
    assert world.share_group.epoch == epoch, "nobody need be reassigned"


def test_who_missed_an_answer_is_told_what_it_reads() -> None:
    world = Sharers(AT_ONCE)
    joined = world.share("a")
    moved = world.share_on("a")
    assert moved.member_epoch > joined.member_epoch
    again = world.share_heard(world.share_beat("a", joined.member_epoch))
    assert again.member_epoch == moved.member_epoch
    assert again.assignment == moved.assignment
    assert again.assignment is not None


def test_a_full_heartbeat_is_told_everything() -> None:
    world = world_of("a")
    answer = world.share_heard(world.share_beat("a", world.share_group.epoch, topics=["t"]))
    assert answer.assignment is not None


@pytest.mark.parametrize("letter", ["g", "é", "€", "\U0001f600"])
def test_names_are_as_long_as_their_bytes(letter: str) -> None:
    longest = 32_767 // len(letter.encode())
    for length, is_too_long in ((longest, False), (longest + 1, True)):
        world, name = Sharers(AT_ONCE, topics={"t": 1}), letter * length
        altered = world.alter({"t": {0: 1}}, group_id=name)
        asked = world.share_beat("a", 0, topics=["t"], group_id=name), world.share_beat(name, 0, topics=["t"])
        if is_too_long:
            assert {world.refused(one) for one in asked} == {Code.INVALID_REQUEST}
            assert world.refused(altered) == Code.INVALID_GROUP_ID
        else:
            assert {world.share_heard(one).member_id for one in asked} == {"a", name}
            assert world.altered(altered) == {("t", 0): Code.NONE}


@pytest.mark.parametrize("count", [1, 2_000])
def test_so_many_topics_may_be_named(count: int) -> None:
    world = Sharers(AT_ONCE, topics={})
    asked = world.share_beat("a", 0, topics=[str(one) for one in range(count)])
    world.pass_ms(0)
    world.share_heard(asked)


@pytest.mark.parametrize(
    "options",
    [
        {"group_id": ""},
        {"member_id": ""},
        {"rack_id": ""},
        {"topics": None},
        {"topics": []},
        {"epoch": -2},
        {"member_id": "m" * 32_768},
        {"group_id": "g" * 32_768},
        {"topics": [str(one) for one in range(2_001)]},
    ],
)
def test_what_makes_no_sense_is_refused(options: dict[str, object]) -> None:
    world = Sharers(AT_ONCE)
    request = {"member_id": "a", "epoch": 0, "topics": ["t"], **options}
    assert world.refused(world.share_beat(**request)) == Code.INVALID_REQUEST  # type: ignore[arg-type]
    assert not world.log


def test_who_is_no_member_is_refused() -> None:
    world = Sharers(AT_ONCE)
    assert world.refused(world.share_beat("a", 1)) == Code.GROUP_ID_NOT_FOUND
    assert world.refused(world.share_beat("a", -1)) == Code.GROUP_ID_NOT_FOUND
    world.share("b")
    assert world.refused(world.share_beat("a", 2)) == Code.UNKNOWN_MEMBER_ID
    assert world.refused(world.share_beat("a", -1)) == Code.UNKNOWN_MEMBER_ID


def test_an_epoch_that_is_not_the_members_is_fenced() -> None:
    world = world_of("a")
    current = world.share_group.current("a")
    assert current.previous_epoch < current.member_epoch
    world.share_heard(world.share_beat("a", current.previous_epoch))
    for epoch in (current.member_epoch + 1, current.previous_epoch - 1):
        assert world.refused(world.share_beat("a", epoch)) == Code.FENCED_MEMBER_EPOCH


def test_a_group_has_no_more_members_than_it_may() -> None:
    world = Sharers(GroupSettings(share=ShareGroupSettings(group_size_max=1)))
    world.share("a")
    assert world.refused(world.share_beat("b", 0, topics=["t"])) == Code.GROUP_MAX_SIZE_REACHED
    assert world.refused(world.share_beat("b", 1)) == Code.GROUP_MAX_SIZE_REACHED, "as in Kafka"
    world.share("a")


def test_members_find_no_room_beyond_what_the_node_allows() -> None:
    world = Sharers(AT_ONCE, memory_bytes=20_000)
    codes = []
    for number in range(40):
        outcome = world.answers[world.share_beat(f"m{number}", 0, topics=["t"])]
        codes.append(getattr(outcome, "code", Code.NONE))
    assert codes[0] is Code.NONE
    assert codes[-1] is Code.GROUP_MAX_SIZE_REACHED
    assert world.memory.used_bytes < 21_000, "partitions that move are counted afterwards"


# Change.


def test_a_topic_that_nobody_wants_any_more_is_given_up_at_once() -> None:
    world = Sharers(GroupSettings(share=ShareGroupSettings(assignment_interval_ms=10_000)), topics={"t": 2, "u": 2})
    world.share("a", "t", "u")
    world.pass_ms(10_000)
    world.share_on("a")
    assert set(world.reads("a")) == {"t", "u"}
    world.share_heard(world.share_beat("a", world.share_group.current("a").member_epoch, topics=["t"]))
    assert set(world.reads("a")) == {"t"}, "though the next assignment is put off"
    assert world.share_group.epoch > world.share_group.target_epoch


def test_assignments_are_made_an_interval_apart() -> None:
    world = Sharers(topics={"t": 2})
    world.share("a")
    assert world.share_on("a").assignment is None
    world.pass_ms(1_000)
    assert world.share_on("a").assignment is not None
    assert world.reads("a") == {"t": {0, 1}}


def test_a_change_raises_the_epoch_once_though_its_assignment_is_put_off() -> None:
    world = Sharers(GroupSettings(share=ShareGroupSettings(assignment_interval_ms=40_000)), topics={"t": 2})
    world.share("a")
    before = world.share_group.epoch
    for _ in range(5):
        world.pass_ms(100)
        world.share_on("a")
        assert (world.reads("a"), world.shares.next_ms) == ({}, None)
    assert world.share_group.epoch == before + 1, "what was begun is to be assigned"
    world.pass_ms(39_500)
    world.share_on("a")
    assert world.reads("a") == {"t": {0, 1}}
    assert world.share_group.epoch == before + 1


@pytest.mark.parametrize("missing_bytes", [0, 1])
def test_a_member_finds_room_to_the_last_byte_and_stays_if_it_wants_no_more(missing_bytes: int) -> None:
    world = Sharers(AT_ONCE, topics={})
    world.share("a", "t")
    new = ShareSubscription("client", "/127.0.0.1", None, ("u",))
    world.memory.limit_bytes = world.memory.used_bytes + new.size_bytes - missing_bytes
    joined = world.share_beat("b", 0, topics=["u"])
    if missing_bytes:
        assert world.refused(joined) == Code.GROUP_MAX_SIZE_REACHED
    else:
        world.share_heard(joined)
    world.memory.limit_bytes = 1
    epoch = world.share_group.current("a").member_epoch
    world.share_heard(world.share_beat("a", epoch, topics=["x"]))
    epoch = world.share_group.current("a").member_epoch
    assert world.refused(world.share_beat("a", epoch, topics=["xx"])) == Code.GROUP_MAX_SIZE_REACHED


@pytest.mark.parametrize(("passed_ms", "is_made"), [(0, False), (999, False), (1_000, True), (1_001, True), (-1, True)])
def test_the_next_assignment_is_made_when_its_time_has_come(passed_ms: int, is_made: bool) -> None:
    world = Sharers(topics={"t": 2})
    world.share("a")
    made_at_ms = world.share_group.assigned_at_ms
    assert made_at_ms == world.wall_ms
    epoch = world.share_group.current("a").member_epoch
    assert world.share_group.epoch > epoch or world.share_group.known_states.initialized
    world.now_ms += 5
    request_id = world.request_id()
    world.shares.on_share_group_heartbeat(
        request_id,
        ShareGroupHeartbeatRequest(group_id="g", member_id="a", member_epoch=epoch),
        client_id="client",
        client_host="/127.0.0.1",
        now_ms=world.now_ms,
        wall_ms=made_at_ms + passed_ms,  # a clock may have been set back
    )
    world.drive()
    world.share_heard(request_id)
    assert world.reads("a") == ({"t": {0, 1}} if is_made else {})


def test_a_group_may_have_settings_of_its_own() -> None:
    world = Sharers(AT_ONCE, topics={"t": 1})
    own = ShareGroupSettings(session_timeout_ms=10_000, heartbeat_interval_ms=77, group_size_max=1)
    world.shares.on_settings(ShareGroupSettings(session_timeout_ms=30_000, heartbeat_interval_ms=88), {"own": own})
    assert (world.shares.settings_of("own"), world.shares.settings_of("g").heartbeat_interval_ms) == (own, 88)
    assert world.share("a").heartbeat_interval_ms == 88
    assert world.share("a", group_id="own").heartbeat_interval_ms == 77
    world.share("b")
    assert world.refused(world.share_beat("b", 0, topics=["t"], group_id="own")) == Code.GROUP_MAX_SIZE_REACHED
    for passed_ms, groups in ((9_999, {"g", "own"}), (1, {"g"}), (19_999, {"g"}), (1, set())):
        world.pass_ms(passed_ms)
        assert {one for one, group in world.shares.groups.items() if group.subscriptions} == groups


def test_settings_are_those_of_kafka_unless_somebody_says_else() -> None:
    assert ShareGroupSettings() == ShareGroupSettings(
        session_timeout_ms=45_000, heartbeat_interval_ms=5_000, assignment_interval_ms=1_000, group_size_max=200
    )


def test_new_partitions_and_topics_are_read_with_a_later_heartbeat() -> None:
    world = world_of("a", t=1)
    world.share("a", "t", "u")
    world.make(t=3, u=2)
    settle(world)
    assert world.reads("a") == {"t": {0, 1, 2}, "u": {0, 1}}
    assert world.starts("u") == {0: None, 1: None}


def test_metadata_that_changes_no_topic_of_a_group_raises_no_epoch() -> None:
    world = world_of("a", "b", t=4, u=1)
    for member_id in "ab":
        world.share_heard(world.share_beat(member_id, world.share_group.current(member_id).member_epoch, topics=["t"]))
    settle(world)
    epoch, read = world.share_group.epoch, [world.reads(one) for one in "ab"]
    events: tuple[Callable[[], None], ...] = (
        lambda: world.make(u=2),
        lambda: world.tell("t"),
        lambda: world.tell(has_moved=True),
        world.fail_over,
    )
    for happens in events:
        happens()
        settle(world)
        assert world.share_group.epoch == epoch
        assert [world.reads(one) for one in "ab"] == read


def test_a_topic_whose_partitions_come_to_other_racks_raises_the_epoch_once() -> None:
    """As in Kafka: an assignor may look at racks (KIP-1101)."""
    world = world_of("a", "b", t=4)
    epoch = world.share_group.epoch
    world.racks[1] = "elsewhere"
    world.tell(has_moved=True)
    settle(world)
    assert world.share_group.epoch == epoch + 1
    world.fail_over()
    settle(world)
    assert world.share_group.epoch == epoch + 1


def test_a_topic_that_is_deleted_and_made_anew_is_another_one() -> None:
    world = world_of("a", t=2)
    world.delete("t")
    world.pass_ms(0)
    settle(world)
    assert not world.share_group.current("a").assigned
    assert not world.share_group.known_states.topic_ids
    world.make(t=1)
    settle(world)
    assert world.reads("a") == {"t": {0}}
    assert world.starts("t") == {0: None}


# Leave.


def test_who_leaves_is_replaced() -> None:
    world = world_of("a", "b")
    answer = world.share_heard(world.share_beat("a", -1))
    assert (answer.member_id, answer.member_epoch) == ("a", -1)
    settle(world)
    assert world.reads("b") == {"t": {0, 1, 2, 3}}


def test_who_is_silent_is_out() -> None:
    world = world_of("a", "b")
    world.pass_ms(30_000)
    world.share_on("b")
    world.pass_ms(15_000)
    assert set(world.share_group.subscriptions) == {"b"}
    world.pass_ms(45_000)
    assert world.share_described().group_state == "Empty"


def test_without_metadata_nobody_is_put_out() -> None:
    world = world_of("a")
    world.before_active = lambda: None  # type: ignore[method-assign]
    super(Consumers, world).fail_over()
    assert world.refused(world.share_beat("a", 2)) == Code.COORDINATOR_LOAD_IN_PROGRESS
    world.pass_ms(45_000 + METADATA_WAIT_MS - 1)
    assert "a" in world.share_group.subscriptions
    world.tell()
    world.pass_ms(1)
    assert "a" not in world.share_group.subscriptions


def test_a_session_is_over_when_its_time_is_and_not_before() -> None:
    world = world_of("a")
    world.pass_ms(44_999)
    assert "a" in world.share_group.subscriptions
    world.share_on("a")
    world.pass_ms(44_999)
    assert "a" in world.share_group.subscriptions
    world.pass_ms(1)
    assert "a" not in world.share_group.subscriptions


def test_nothing_happens_to_a_coordinator_that_is_none_any_more() -> None:
    world = world_of("a", "b")
    end = len(world.log)
    world.coordinator.resign()
    assert world.refused(world.share_beat("a", -1)) == Code.NOT_COORDINATOR
    world.shares.on_topics({}, now_ms=world.now_ms, wall_ms=world.wall_ms)
    world.shares.on_topics_deleted([world.state_id("t", 0)[0]], now_ms=world.now_ms, wall_ms=world.wall_ms)
    world.shares.on_sent(SendId(1), (), now_ms=world.now_ms, wall_ms=world.wall_ms)
    world.pass_ms(100_000)
    assert len(world.log) == end
    assert world.shares.next_ms is None


def test_a_group_without_members_is_kept() -> None:
    world = world_of("a")
    world.share_beat("a", -1)
    world.pass_ms(8 * 24 * 3_600_000)
    assert world.share_described().group_state == "Empty"
    assert world.starts("t") == dict.fromkeys(range(4))


def test_members_have_a_whole_session_after_a_failover() -> None:
    world = world_of("a")
    world.pass_ms(44_000)
    world.fail_over()
    world.pass_ms(44_000)
    world.share_on("a")
    world.pass_ms(44_000)
    assert "a" in world.share_group.subscriptions


# Other kinds of groups.


def test_share_groups_are_listed_by_their_type_and_state() -> None:
    world = world_of("a")

    def listed(states: list[str], types: list[str]) -> list[tuple[str, str, str, str]]:
        request_id = world.request_id()
        world.coordinator.on_list_groups(request_id, states, types, now_ms=world.now_ms, wall_ms=world.wall_ms)
        world.drive()
        answer = world.taken(request_id, tuple)
        return [(one.group_id, one.protocol_type, one.group_state, one.group_type) for one in answer]

    (group_id,) = world.shares.groups
    for states, types in (([], []), (["stable"], ["SHARE"]), ([], ["classic", "share"])):
        assert listed(states, types) == [(group_id, "share", "Stable", "share")]
    assert listed(["Empty"], []) == listed([], ["consumer"]) == []


def test_other_kinds_of_members_find_no_group_of_theirs() -> None:
    world = world_of("a")
    assert world.refused(world.join()) == Code.INCONSISTENT_GROUP_PROTOCOL
    assert world.refused(world.sync("m", 1)) == Code.INCONSISTENT_GROUP_PROTOCOL
    assert world.refused(world.heartbeat("m", 1)) == Code.UNKNOWN_MEMBER_ID
    assert world.refused(world.commit({("t", 0): 1})) == Code.GROUP_ID_NOT_FOUND
    consumer = world.beat("c", 0, topics=["t"], owned={}, rebalance_ms=1_000)
    assert world.refused(consumer) == Code.GROUP_ID_NOT_FOUND
    assert world.refused(world.describe()) == Code.GROUP_ID_NOT_FOUND


def test_a_member_of_a_share_group_finds_no_other_kind() -> None:
    world = Sharers(AT_ONCE)
    world.enter("c")
    assert world.refused(world.share_beat("a", 0, topics=["t"])) == Code.GROUP_ID_NOT_FOUND
    world.commit({("t", 0): 1}, group_id="simple")
    assert world.refused(world.share_beat("a", 0, topics=["t"], group_id="simple")) == Code.GROUP_ID_NOT_FOUND
    world.join(group_id="classic")
    assert world.refused(world.share_beat("a", 0, topics=["t"], group_id="classic")) == Code.GROUP_ID_NOT_FOUND
    assert world.refused(world.alter({"t": {0: 0}}, "simple")) == Code.GROUP_ID_NOT_FOUND

"""Consumer groups with many topics and members: how much is done in one step, and what is refused."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.executed_lines import Turns, counted_turns, executed_lines, in_turn
from support.fixtures.coordinated_consumers import Consumers, topic_id
from tidelog.base.errors import Code
from tidelog.coordinator.groups import GroupSettings
from tidelog.coordinator.groups.consumer import assignment, consumer_groups, consumer_members, long_records, recorded
from tidelog.coordinator.groups.consumer.assignment import Pace, Pieces, finished
from tidelog.coordinator.groups.consumer.consumer_groups import ConsumerGroups
from tidelog.coordinator.groups.consumer.group import ConsumerGroup, ConsumerGroupState, MatchedTopics
from tidelog.coordinator.groups.consumer.heartbeat_checks import TOPIC_NAMES_MAX, Lists
from tidelog.coordinator.groups.consumer.known_topics import CHANGED_MAX, KnownTopics
from tidelog.coordinator.groups.consumer.member import ConsumerSubscription, CurrentAssignment
from tidelog.coordinator.groups.consumer.settings import ConsumerGroupSettings
from tidelog.coordinator.groups.consumer.target_assignments import AssignmentRuns
from tidelog.coordinator.groups.consumer_group_records import ConsumerMemberState
from tidelog.journal import RequestId
from tidelog.wire.messages.api_68_consumer_group_heartbeat import ConsumerGroupHeartbeatRequest

AT_ONCE = GroupSettings(consumer=ConsumerGroupSettings(assignment_interval_ms=0))
REQUEST_LINES_MAX = 5_000
PIECE_LINES_MAX = 25_000
"""Each is a millisecond or a few."""


@pytest.fixture(autouse=True, scope="module")
def made_codecs() -> None:
    """What the first request of a process does once is no part of what is counted."""
    world = Consumers(AT_ONCE)
    world.enter("a")
    world.enter("b", topics=None, pattern="t")
    world.pass_ms(0)
    world.heard(world.beat("a", world.group.current("a").member_epoch, owned={}))
    world.heard(world.beat("a", -1))


def named(count: int) -> list[str]:
    return [f"topic-{number:05d}" for number in range(count)]


def known_of(world: Consumers) -> KnownTopics:
    return world.consumers.members.known


def join(world: Consumers, member_id: str, topics: list[str]) -> RequestId:
    return world.beat(member_id, 0, topics=topics, owned={}, rebalance_ms=60_000)


def longest_piece(world: Consumers) -> int:
    """In lines: of what is done in pieces because of requests."""

    def piece() -> None:
        world.coordinator.on_time(now_ms=world.now_ms, wall_ms=world.wall_ms)
        world.drive()

    longest = 0
    while world.coordinator.next_deadline_ms() == 0:
        longest = max(longest, executed_lines(piece))
    return longest


def test_who_joins_a_group_that_reads_many_topics_has_those_looked_at_that_are_new() -> None:
    world = Consumers(AT_ONCE, topics={"t": 1, "u": 1})
    join(world, "a", named(TOPIC_NAMES_MAX))
    assert executed_lines(lambda: join(world, "b", ["t"])) < REQUEST_LINES_MAX
    assert longest_piece(world) < PIECE_LINES_MAX
    world.make(u=2)
    assert executed_lines(lambda: join(world, "b", ["t", "u"])) < REQUEST_LINES_MAX
    assert longest_piece(world) < PIECE_LINES_MAX
    assert world.group.target_epoch == world.group.epoch


def test_the_hash_of_the_topics_of_a_group_follows_members_patterns_and_topics() -> None:
    world = Consumers(AT_ONCE, topics={"t": 1, "u": 1, "v": 1})

    def check() -> None:
        world.pass_ms(0)
        assert world.group.metadata_hash == known_of(world).hash_of(world.group.topics).recorded
        hash_now = world.group.topics_hash
        assert hash_now is None or hash_now.recorded == world.group.metadata_hash

    world.enter("a", topics=("t", "u"))
    check()
    world.enter("b", topics=("t",), pattern="[uv]")
    check()
    world.make(v=3, w=1)
    world.enter("a", topics=("t", "u"))
    check()
    world.delete("u")
    world.make(u=2)
    world.enter("a", topics=("t", "u"))
    check()
    world.heard(world.beat("b", -1))
    check()
    for _ in range(CHANGED_MAX + 1):
        world.tell("t")
    world.topics["t"] = 2
    world.tell("t")
    world.enter("a")
    check()
    assert set(world.group.topics) == {"t"}


@pytest.mark.parametrize("count", [TOPIC_NAMES_MAX, TOPIC_NAMES_MAX + 1])
def test_a_member_may_name_so_many_topics(count: int) -> None:
    world = Consumers(AT_ONCE)
    request = world.beat("a", 0, topics=named(count), owned={}, rebalance_ms=1)
    world.pass_ms(0)
    if count <= TOPIC_NAMES_MAX:
        world.heard(request)
    else:
        assert world.refused(request) == Code.INVALID_REQUEST
        assert not world.consumers.groups


@pytest.mark.parametrize("assignor", ["uniform", "range"])
def test_a_piece_of_an_assignment_is_as_much_as_fits_in_it_however_small_the_topics(assignor: str) -> None:
    names = named(3_000)
    world = Consumers(AT_ONCE, topics=dict.fromkeys(names, 1))
    for member_id, topics in (("a", names), ("b", names[1:]), ("c", names[2:])):
        world.beat(member_id, 0, topics=topics, owned={}, rebalance_ms=60_000, assignor=assignor)
        pieces = 0
        while world.coordinator.next_deadline_ms() == 0:
            world.coordinator.on_time(now_ms=world.now_ms, wall_ms=world.wall_ms)
            world.drive()
            pieces += 1
        assert 5 < pieces < 250


def test_the_assignment_of_a_small_group_does_not_wait_for_that_of_a_large_one() -> None:
    names = named(5_000)
    world = Consumers(AT_ONCE, topics=dict.fromkeys(names, 4))
    large = world.beat("a", 0, group_id="large", topics=names, owned={}, rebalance_ms=60_000)
    small = world.beat("b", 0, group_id="small", topics=names[:200], owned={}, rebalance_ms=60_000)
    while small not in world.answers:
        world.coordinator.on_time(now_ms=world.now_ms, wall_ms=world.wall_ms)
        world.drive()
    assert large not in world.answers


def test_no_step_is_long_though_one_member_reads_all_topics_of_a_large_cluster() -> None:
    names = named(6_000)
    world = Consumers(AT_ONCE, topics=dict.fromkeys(names, 1))

    def beat(member_id: str) -> None:
        current = world.group.current(member_id)
        lists = Lists(None, {topic: frozenset(partitions) for topic, partitions in current.assigned.items()})
        request_id = world.request_id()
        request = ConsumerGroupHeartbeatRequest(
            group_id="g", member_id=member_id, member_epoch=current.member_epoch, topic_partitions=[]
        )

        def ask() -> None:
            world.consumers.on_consumer_group_heartbeat(
                request_id,
                request,
                api_version=1,
                client_id="client",
                client_host="/127.0.0.1",
                now_ms=world.now_ms,
                wall_ms=world.wall_ms,
                lists=lists,
            )
            world.drive()

        assert executed_lines(ask) < REQUEST_LINES_MAX
        assert longest_piece(world) < PIECE_LINES_MAX
        world.heard(request_id)

    for member_id in "ab":
        request = world.beat(member_id, 0, topics=None, pattern="topic-.*", owned={}, rebalance_ms=60_000)
        assert longest_piece(world) < PIECE_LINES_MAX
        world.heard(request)
        world.now_ms += 1
    for member_id in "abaabb":
        beat(member_id)
    assert world.group.state is ConsumerGroupState.STABLE
    assert [sum(map(len, world.group.current(one).assigned.values())) for one in "ab"] == [3_000, 3_000]
    world.beat("c", 0, topics=names, owned={}, rebalance_ms=60_000)
    assert longest_piece(world) < PIECE_LINES_MAX
    before = world.group.clone().canonical()
    world.fail_over()
    assert world.group.canonical() == before


@given(st.integers(0, 30), st.integers(0, 30), st.integers(1, 7))
def test_records_that_are_made_in_pieces_are_as_those_that_are_made_at_once(
    count: int, revoked_count: int, at_once: int
) -> None:
    target = {topic_id(name): frozenset(range(index % 5 + 1)) for index, name in enumerate(named(count))}
    held = {topic: dict.fromkeys(partitions, 3) for topic, partitions in target.items()}
    given_up = {topic_id(f"other-{number}"): {7: 2} for number in range(revoked_count)}
    current = CurrentAssignment(5, 4, ConsumerMemberState.UNREVOKED_PARTITIONS, held, given_up)
    matched = MatchedTopics(frozenset(named(count)), 7, 99)
    subscription = ConsumerSubscription("c", "h", "i", None, tuple(named(count)), "p.*", 5, "range")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(long_records, "ELEMENTS_AT_ONCE", at_once)
        for made, expected in (
            (long_records.target_record("g", "m", target, Pace()), recorded.target_record("g", "m", target)),
            (long_records.current_record("g", "m", current, Pace()), recorded.current_record("g", "m", current)),
            (long_records.pattern_record("g", "p", matched, Pace()), recorded.pattern_record("g", "p", matched)),
            (
                long_records.member_record("g", "m", subscription, Pace()),
                recorded.member_record("g", "m", subscription),
            ),
        ):
            record = finished(made)
            assert record == expected
            groups: dict[str, ConsumerGroup] = {}
            read: dict[str, ConsumerGroup] = {}
            recorded.apply(groups, record)
            recorded.apply(read, expected)
            assert groups["g"].canonical() == read["g"].canonical()


@pytest.mark.parametrize("count", [100, 2_000], ids=["at-once", "in-pieces"])
def test_an_assignment_that_finds_no_room_is_not_made(count: int) -> None:
    """A group that has one keeps it; a new group is refused."""
    world = Consumers(AT_ONCE, topics={"t": 2}, memory_bytes=40_000)
    world.enter("a")
    world.make(t=count, u=count)
    refused = world.beat("b", 0, group_id="new", topics=("u",), owned={}, rebalance_ms=60_000)
    world.pass_ms(0)
    assert world.refused(refused) == Code.GROUP_MAX_SIZE_REACHED
    for _ in range(3):
        request = world.beat("a", 1, owned={"t": (0, 1)})
        world.pass_ms(10)
        assert world.heard(request).member_epoch == 1
    assert world.group.target_epoch == 1
    assert world.memory.used_bytes <= world.memory.limit_bytes
    world.memory.limit_bytes = 10_000_000
    request = world.beat("a", 1, owned={"t": (0, 1)})
    world.pass_ms(0)
    assert world.told(world.heard(request)) == {"t": set(range(count))}


def test_an_assignment_that_takes_no_more_than_the_one_before_is_made_whatever_others_have_taken() -> None:
    world = Consumers(AT_ONCE, topics={"t": 2, "u": 2, "v": 3})
    world.enter("a")
    world.memory.limit_bytes = 1
    for topic, count in (("u", 2), ("v", 0)):
        epoch = world.group.current("a").member_epoch
        world.heard(world.beat("a", epoch, topics=[topic], owned={}))
        held = world.group.current("a").assigned.get(topic_id(topic), {})
        assert len(held) == count, topic


def test_long_heartbeats_are_answered_one_after_the_other_and_once() -> None:
    world = Consumers(AT_ONCE, topics=dict.fromkeys(named(400), 1))
    waiting = [join(world, member_id, named(400)) for member_id in "abc"]
    assert not world.answers
    world.finish_pieces()
    assert {world.heard(one).member_id for one in waiting} == set("abc")
    assert not world.consumers._long_beats
    world.coordinator.resign()
    world.drive()


def test_there_is_nothing_to_do_while_topics_are_not_known() -> None:
    world = Consumers(AT_ONCE)
    super(Consumers, world).fail_over()
    assert world.consumers.next_ms is None
    world.pass_ms(5_000)


def test_nothing_is_left_to_do_for_who_resigned() -> None:
    world = Consumers(AT_ONCE, topics=dict.fromkeys(named(1_000), 1))
    waiting = [join(world, "a", named(1_000)), world.beat("b", 0, topics=None, pattern="t.*", owned={}, rebalance_ms=1)]
    world.coordinator.on_time(now_ms=0, wall_ms=world.wall_ms)
    world.drive()
    assert world.consumers.next_ms == 0
    world.coordinator.resign()
    world.drive()
    assert world.refused(waiting[0]) == Code.NOT_COORDINATOR
    assert world.consumers.members.runs.is_idle
    assert not world.consumers._chores


def test_the_topics_of_a_large_group_are_looked_at_in_pieces_when_brokers_move() -> None:
    names = named(5_000)
    world = Consumers(AT_ONCE, topics=dict.fromkeys(names, 2))
    request = join(world, "a", names)
    world.pass_ms(0)
    world.heard(request)
    for number in range(2):
        epoch, metadata_hash = world.group.epoch, world.group.metadata_hash
        world.racks[1] = f"rack-{number}"
        world.tell(has_moved=True)
        assert executed_lines(lambda: join(world, "b", ["topic-00000"])) < REQUEST_LINES_MAX
        assert longest_piece(world) < PIECE_LINES_MAX
        beat = world.beat("b", world.group.current("b").member_epoch)
        world.pass_ms(0)
        world.heard(beat)
        assert world.group.epoch > epoch
        assert world.group.metadata_hash != metadata_hash
        assert world.group.metadata_hash == known_of(world).hash_of(world.group.topics).recorded
        world.make(unread=number + 1)
        assert world.consumers.next_ms is None, "they have been looked at"
    world.fail_over()
    epoch = world.group.current("b").member_epoch
    assert executed_lines(lambda: world.beat("b", epoch)) < REQUEST_LINES_MAX
    assert longest_piece(world) < PIECE_LINES_MAX


@contextmanager
def watched_pieces() -> Iterator[Turns]:
    """Every piece of what is done about consumer groups ends because a `Pace` says so, or knows that it was enough."""
    with counted_turns() as (turns, _), pytest.MonkeyPatch.context() as patch:
        for owner, name, spare in (
            (AssignmentRuns, "_pieces", 1),
            (AssignmentRuns, "_moves", 0),
            (ConsumerGroups, "_beat_in_pieces", 1),
            (ConsumerGroups, "_match_in_pieces", 0),
            (ConsumerGroups, "_look_at_topics_of", 0),
        ):
            patch.setattr(owner, name, _watched(getattr(owner, name), turns, spare))
        yield turns


def _watched(made: Callable[..., Pieces[None]], turns: Turns, spare: int) -> Callable[..., Pieces[None]]:
    return lambda *args: in_turn(made(*args), turns, spare=spare)


def live(world: Consumers) -> None:
    """All that takes long about a group of many topics."""
    names = sorted(world.topics)

    def settle(*members: str) -> None:
        for _ in range(4):
            for member_id in members:
                current = world.group.current(member_id)
                ids = {topic_id(name): name for name in world.topics}
                owned = {ids[topic]: set(held) for topic, held in current.assigned.items()}
                world.beat(member_id, current.member_epoch, owned=owned)
                world.finish_pieces()

    for member_id, wanted in (("a", names), ("b", names[1:])):
        join(world, member_id, wanted)
        world.finish_pieces()
    settle("a", "b")
    world.beat("c", 0, pattern="topic-.*", owned={}, rebalance_ms=60_000)
    for number in range(6):
        join(world, f"d{number}", names[number : number + 3])
        world.finish_pieces()
    members = ["a", "b", "c", *(f"d{number}" for number in range(6))]
    settle(*members)
    world.make(**dict.fromkeys(names[:5], 3), **{"topic-x": 1})
    world.tell(has_moved=True)
    world.finish_pieces()
    settle(*members)
    partitions = 2 * len(names) + 5 + 1
    assert sum(world.group.current(one).partition_count for one in members) == partitions
    for member_id in ("c", "d0"):
        world.beat(member_id, -1)
        world.finish_pieces()
    left = [one for one in members if one not in ("c", "d0")]
    settle(*left)
    for member_id in left:
        world.beat(member_id, world.group.current(member_id).member_epoch, assignor="range")
        world.finish_pieces()
    settle(*left)
    assert sum(world.group.current(one).partition_count for one in left) == partitions - 1


TURNS_MIN = 5_343
"""Of the life of a group with 12 topics. What looks at elements, and counts none of them, leaves it with fewer."""


def test_whatever_is_looked_at_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where each element is a piece, it is others' turn after each."""
    monkeypatch.setattr(assignment, "PIECE", 1)
    monkeypatch.setattr(consumer_groups, "NAMES_AT_ONCE", 1)
    monkeypatch.setattr(consumer_members, "AT_ONCE_MAX", 1)
    monkeypatch.setattr(long_records, "ELEMENTS_AT_ONCE", 1)
    with counted_turns() as (turns, _):
        live(Consumers(AT_ONCE, topics=dict.fromkeys(named(12), 2)))
    assert turns.count >= TURNS_MIN


def test_work_gives_way_as_often_as_its_pace_says_and_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(assignment, "PIECE", 20)
    monkeypatch.setattr(consumer_groups, "NAMES_AT_ONCE", 20)
    monkeypatch.setattr(consumer_members, "AT_ONCE_MAX", 20)
    monkeypatch.setattr(long_records, "ELEMENTS_AT_ONCE", 4)
    with watched_pieces() as turns:
        live(Consumers(AT_ONCE, topics=dict.fromkeys(named(60), 2)))
    assert turns.count > 300

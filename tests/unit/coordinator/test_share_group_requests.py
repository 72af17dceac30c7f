"""What each request about a share group (KIP-932) is answered, in each state of the group."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from support.fixtures.coordinated_sharers import Sharers
from tidelog.base.errors import Code, KafkaError, refusal
from tidelog.coordinator.groups import GroupSettings
from tidelog.coordinator.groups.share.describe_share_groups import ShareGroupView
from tidelog.coordinator.groups.share.settings import ShareGroupSettings
from tidelog.coordinator.groups.share.states import TopicStates
from tidelog.journal import RequestId
from tidelog.wire.messages.api_91_alter_share_group_offsets import AlterShareGroupOffsetsResponse
from tidelog.wire.messages.api_92_delete_share_group_offsets import DeleteShareGroupOffsetsResponse
from tidelog.wire.primitives import ZERO_UUID

AT_ONCE = GroupSettings(share=ShareGroupSettings(assignment_interval_ms=0))


def nothing() -> Sharers:
    return Sharers(AT_ONCE, topics={"t": 2, "u": 1})


def simple() -> Sharers:
    """Offsets, of a consumer without a group."""
    world = nothing()
    world.commit({("t", 0): 1})
    return world


def consumer() -> Sharers:
    """A group of KIP-848."""
    world = nothing()
    world.enter("a")
    return world


def member() -> Sharers:
    """One member that reads `t`."""
    world = nothing()
    world.share("a")
    world.share_on("a")
    assert world.reads("a") == {"t": {0, 1}}
    return world


def empty() -> Sharers:
    world = member()
    world.share_beat("a", -1)
    return world


def going() -> Sharers:
    """Empty, and what it has done with `t` is being deleted."""
    world = empty()
    world.answers_at_once = False
    world.forget("t")
    return world


STATES: dict[str, Callable[[], Sharers]] = {
    one.__name__: one for one in (nothing, simple, consumer, empty, going, member)
}


def initialized(world: Sharers) -> RequestId:
    request_id = world.request_id()
    world.shares.offsets.on_initialized_partitions(request_id, "g", now_ms=world.now_ms, wall_ms=world.wall_ms)
    world.drive()
    return request_id


def describe(world: Sharers) -> RequestId:
    request_id = world.request_id()
    world.shares.on_share_group_describe(request_id, "g", now_ms=world.now_ms, wall_ms=world.wall_ms)
    world.drive()
    return request_id


ASKS: dict[str, Callable[[Sharers], RequestId]] = {
    "join": lambda world: world.share_beat("b", 0, topics=["t"]),
    "heartbeat": lambda world: world.share_beat("a", 2),
    "heartbeat of a stranger": lambda world: world.share_beat("b", 2),
    "heartbeat of another epoch": lambda world: world.share_beat("a", 7),
    "leave": lambda world: world.share_beat("a", -1),
    "leave of a stranger": lambda world: world.share_beat("b", -1),
    "describe": describe,
    "which partitions are initialized": initialized,
    "alter": lambda world: world.alter({"t": {1: 5}}),
    "alter to where it begins": lambda world: world.alter({"t": {1: -1}}),
    "alter to no offset": lambda world: world.alter({"t": {1: -2}}),
    "alter a partition below the first": lambda world: world.alter({"t": {-1: 5}}),
    "alter a partition above the last": lambda world: world.alter({"t": {2: 5}}),
    "alter a topic that is not there": lambda world: world.alter({"x": {0: 5}}),
    "alter nothing": lambda world: world.alter({}),
    "forget": lambda world: world.forget("t"),
    "forget a topic that was not read": lambda world: world.forget("u"),
    "forget a topic that is not there": lambda world: world.forget("x"),
    "delete": lambda world: world.delete_group(),
}

OK, WAITS = Code.NONE, None
NO_GROUP, NO_MEMBER, NON_EMPTY = Code.GROUP_ID_NOT_FOUND, Code.UNKNOWN_MEMBER_ID, Code.NON_EMPTY_GROUP
NO_TOPIC, INVALID, FENCED = Code.UNKNOWN_TOPIC_OR_PARTITION, Code.INVALID_REQUEST, Code.FENCED_MEMBER_EPOCH
LATER = Code.COORDINATOR_NOT_AVAILABLE

# In the order of STATES: nothing, simple, consumer, empty, going, member.
EXPECTED: dict[str, tuple[Code | None, ...]] = {
    "join":                              (OK, NO_GROUP, NO_GROUP, OK, OK, OK),
    "heartbeat":                         (NO_GROUP, NO_GROUP, NO_GROUP, NO_MEMBER, NO_MEMBER, OK),
    "heartbeat of a stranger":           (NO_GROUP, NO_GROUP, NO_GROUP, NO_MEMBER, NO_MEMBER, NO_MEMBER),
    "heartbeat of another epoch":        (NO_GROUP, NO_GROUP, NO_GROUP, NO_MEMBER, NO_MEMBER, FENCED),
    "leave":                             (NO_GROUP, NO_GROUP, NO_GROUP, NO_MEMBER, NO_MEMBER, OK),
    "leave of a stranger":               (NO_GROUP, NO_GROUP, NO_GROUP, NO_MEMBER, NO_MEMBER, NO_MEMBER),
    "describe":                          (NO_GROUP, NO_GROUP, NO_GROUP, OK, OK, OK),
    "which partitions are initialized":  (OK, OK, OK, OK, OK, OK),
    "alter":                             (OK, NO_GROUP, NO_GROUP, OK, LATER, NON_EMPTY),
    "alter to where it begins":          (OK, NO_GROUP, NO_GROUP, OK, LATER, NON_EMPTY),
    "alter to no offset":                (INVALID, NO_GROUP, NO_GROUP, INVALID, INVALID, NON_EMPTY),
    "alter a partition below the first": (NO_TOPIC, NO_GROUP, NO_GROUP, NO_TOPIC, NO_TOPIC, NON_EMPTY),
    "alter a partition above the last":  (NO_TOPIC, NO_GROUP, NO_GROUP, NO_TOPIC, NO_TOPIC, NON_EMPTY),
    "alter a topic that is not there":   (NO_TOPIC, NO_GROUP, NO_GROUP, NO_TOPIC, NO_TOPIC, NON_EMPTY),
    "alter nothing":                     (OK, NO_GROUP, NO_GROUP, OK, OK, NON_EMPTY),
    "forget":                            (NO_GROUP, NO_GROUP, NO_GROUP, OK, WAITS, NON_EMPTY),
    "forget a topic that was not read":  (NO_GROUP, NO_GROUP, NO_GROUP, NO_TOPIC, NO_TOPIC, NON_EMPTY),
    "forget a topic that is not there":  (NO_GROUP, NO_GROUP, NO_GROUP, NO_TOPIC, NO_TOPIC, NON_EMPTY),
    "delete":                            (NO_GROUP, OK, NON_EMPTY, OK, WAITS, NON_EMPTY),
}  # fmt: skip


def code_of(outcome: object) -> Code | None:
    if outcome is None or isinstance(outcome, KafkaError):
        return None if outcome is None else outcome.code
    if isinstance(outcome, dict | ShareGroupView):
        return OK
    if isinstance(outcome, AlterShareGroupOffsetsResponse):
        rows = [(one.error_code, one.error_message) for topic in outcome.responses for one in topic.partitions]
    elif isinstance(outcome, DeleteShareGroupOffsetsResponse):
        rows = [(one.error_code, one.error_message) for one in outcome.responses]
    else:
        return Code(outcome.error_code)  # type: ignore[attr-defined]
    for code, message in rows:
        assert (code == OK) == (message is None), "an error is told in words"
    return Code(rows[0][0]) if rows else OK


@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize("ask", ASKS)
def test_each_request_in_each_state(ask: str, state: str) -> None:
    world = STATES[state]()
    end, group = len(world.log), world.shares.groups.get("g")
    before = None if group is None else group.clone().canonical()
    request_id = ASKS[ask](world)
    expected = EXPECTED[ask][list(STATES).index(state)]
    assert code_of(world.answers.get(request_id)) == expected
    if expected not in (OK, WAITS):
        after = world.shares.groups.get("g")
        assert (len(world.log), None if after is None else after.canonical()) == (end, before)
    if expected is WAITS:
        world.answer_sends()
        assert code_of(world.answers.get(request_id)) is OK


# Which partitions are there.


def test_the_partitions_that_a_group_stands_in_are_told_by_topics() -> None:
    world = member()
    topic = world.state_id("t", 0)[0]
    there = world.taken(initialized(world), dict)
    assert there == {topic: TopicStates("t", frozenset((0, 1)))}
    there.clear()
    assert world.share_group.known_states.initialized.keys() == {topic}, "the answer is the caller's"
    assert world.answers[initialized(nothing_of(world))] == {}


def nothing_of(world: Sharers) -> Sharers:
    """The group is forgotten."""
    world.share_beat("a", -1)
    world.delete_group()
    return world


# What share coordinators refuse.


def answer(world: Sharers, *outcomes: Code) -> None:
    """Share coordinators answer what they were asked first."""
    _, send = world.pending.pop(0)
    told = tuple(None if one is OK else refusal(one) for one in outcomes)
    world.coordinator.on_sent(send.send_id, told, now_ms=world.now_ms, wall_ms=world.wall_ms)
    world.drive()


def test_each_partition_is_answered_what_became_of_it() -> None:
    world = empty()
    world.answers_at_once = False
    altered = world.alter({"x": {0: 1}, "t": {9: 1, 1: 5, 0: 6}, "u": {0: 7}})
    answer(world, LATER, OK, Code.FENCED_STATE_EPOCH)  # in the order of partitions
    assert world.altered(altered) == {
        ("x", 0): NO_TOPIC,
        ("t", 9): NO_TOPIC,
        ("t", 0): LATER,
        ("t", 1): OK,
        ("u", 0): Code.FENCED_STATE_EPOCH,
    }
    topics = {one.topic_name: one.topic_id for one in world.taken(altered, AlterShareGroupOffsetsResponse).responses}
    assert topics == {"x": ZERO_UUID, "t": world.state_id("t", 0)[0], "u": world.state_id("u", 0)[0]}


def test_what_is_refused_of_a_partition_that_is_named_twice_is_told_of_the_one_that_was_asked() -> None:
    world = empty()
    world.answers_at_once = False
    request = world.alter_request({"t": {0: 6}})
    request.topics.append(world.alter_request({"t": {0: -2}}).topics[0])
    altered = world.send_alter(request)
    answer(world, LATER)
    rows = world.taken(altered, AlterShareGroupOffsetsResponse).responses
    assert [one.error_code for row in rows for one in row.partitions] == [LATER, INVALID]


def both() -> Sharers:
    """A group without members that stands in two topics."""
    world = nothing()
    world.alter({"t": {0: 1, 1: 1}, "u": {0: 1}})
    world.answers_at_once = False
    return world


@pytest.mark.parametrize("gone", [Code.UNKNOWN_TOPIC_ID, Code.UNKNOWN_TOPIC_OR_PARTITION])
def test_each_topic_is_answered_what_became_of_it(gone: Code) -> None:
    world = both()
    forgotten = world.forget("x", "t", "u")
    answer(world, LATER, OK, gone)
    assert world.forgotten(forgotten) == {"x": NO_TOPIC, "t": LATER, "u": OK}, "what is gone with its topic is gone"
    topics = {one.topic_name: one.topic_id for one in world.taken(forgotten, DeleteShareGroupOffsetsResponse).responses}
    assert topics == {"x": ZERO_UUID, "t": world.state_id("t", 0)[0], "u": world.state_id("u", 0)[0]}
    assert set(world.share_group.known_states.deleting.values()) == {"t"}


def test_a_group_goes_if_nothing_is_left_of_it_but_what_is_gone_with_its_topic() -> None:
    for code, expected in ((Code.UNKNOWN_TOPIC_ID, OK), (LATER, LATER)):
        world = both()
        deleted = world.delete_group()
        answer(world, OK, code, OK)
        assert code_of(world.answers[deleted]) is expected
        assert ("g" in world.shares.groups) == (expected is not OK)


def test_all_is_refused_if_share_coordinators_were_not_reached() -> None:
    asks: tuple[Callable[[Sharers], RequestId], ...] = (
        lambda world: world.alter({"t": {0: 1}}),
        lambda world: world.forget("t"),
        lambda world: world.delete_group(),
    )
    for ask in asks:
        world = both()
        request_id = ask(world)
        _, send = world.pending.pop(0)
        outcome = refusal(LATER)
        world.coordinator.on_sent(send.send_id, outcome, now_ms=world.now_ms, wall_ms=world.wall_ms)
        world.drive()
        assert code_of(world.answers[request_id]) is LATER
        world.coordinator.on_sent(send.send_id, outcome, now_ms=world.now_ms, wall_ms=world.wall_ms)
        world.drive()  # told twice, it is done once


# Describe.


def test_a_group_is_described_with_what_its_members_want_and_read() -> None:
    world = nothing()
    world.share("a", "t", "u")
    world.share_beat("a", 2, rack_id="r")
    told = world.share_described()
    assert (told.group_id, told.group_state, told.assignor_name) == ("g", "Stable", "simple")
    group = world.share_group
    assert (told.group_epoch, told.assignment_epoch) == (group.epoch, group.target_epoch)
    (one,) = told.members
    assert (one.member_id, one.rack_id, one.member_epoch) == ("a", "r", group.current("a").member_epoch)
    assert (one.client_id, one.client_host, one.subscribed_topic_names) == ("client", "/127.0.0.1", ["t", "u"])
    read = {part.topic_name: (part.topic_id, part.partitions) for part in one.assignment.topic_partitions}
    assert read == {"t": (world.state_id("t", 0)[0], [0, 1]), "u": (world.state_id("u", 0)[0], [0])}
    request_id = describe(world)
    assert world.taken(request_id, ShareGroupView).weight == 1 + 2 + 2
    world.topics.pop("u")
    world.tell("u")
    (one,) = world.share_described().members
    assert [part.topic_name for part in one.assignment.topic_partitions] == ["t"], "nothing is told of what is no more"
    world.consumers.members.topics = None
    (one,) = world.share_described().members
    assert (one.member_id, one.assignment.topic_partitions) == ("a", []), "nor of what is not known yet"

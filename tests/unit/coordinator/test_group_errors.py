"""What each request is refused with, in each state of a group: as Kafka's brokers do."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from support.fixtures.coordinated import SESSION_MS, Coordinated, subscription
from tidelog.base.errors import Code, KafkaError, refusal
from tidelog.coordinator.groups import GroupCoordinator, GroupSettings, membership
from tidelog.coordinator.groups.group import TRANSITIONS, GroupState
from tidelog.journal import RequestId
from tidelog.wire.messages.api_08_offset_commit import OffsetCommitResponse
from tidelog.wire.messages.api_11_join_group import JoinGroupResponse
from tidelog.wire.messages.api_12_heartbeat import HeartbeatResponse
from tidelog.wire.messages.api_13_leave_group import LeaveGroupResponse
from tidelog.wire.messages.api_14_sync_group import SyncGroupResponse
from tidelog.wire.messages.api_28_txn_offset_commit import TxnOffsetCommitResponse

UNKNOWN = "nobody"


def nothing() -> tuple[Coordinated, str]:
    return Coordinated(), UNKNOWN


def simple() -> tuple[Coordinated, str]:
    world = Coordinated()
    world.commit({("t", 0): 1})
    return world, UNKNOWN


def empty() -> tuple[Coordinated, str]:
    world = Coordinated()
    (member,) = world.stable_group()
    world.leave((member, None))
    assert world.described().group_state == GroupState.EMPTY
    return world, member


def preparing() -> tuple[Coordinated, str]:
    """Generation 1, two members, one of them is asked to join again."""
    world = Coordinated()
    first, second = world.stable_group("a", "b")
    world.join(first)
    assert world.described().group_state == GroupState.PREPARING_REBALANCE
    return world, second


def completing() -> tuple[Coordinated, str]:
    world = Coordinated()
    member = world.member_id_required()
    world.join(member)
    world.pass_ms(6_000)
    assert world.described().group_state == GroupState.COMPLETING_REBALANCE
    return world, member


def stable() -> tuple[Coordinated, str]:
    world = Coordinated()
    (member,) = world.stable_group()
    assert world.described().group_state == GroupState.STABLE
    return world, member


STATES: dict[str, Callable[[], tuple[Coordinated, str]]] = {
    one.__name__: one for one in (nothing, simple, empty, preparing, completing, stable)
}

ASKS: dict[str, Callable[[Coordinated, str], RequestId]] = {
    "heartbeat": lambda world, member: world.heartbeat(member, 1),
    "heartbeat of a stranger": lambda world, member: world.heartbeat(UNKNOWN, 1),
    "heartbeat of another generation": lambda world, member: world.heartbeat(member, 7),
    "heartbeat of an unknown instance": lambda world, member: world.heartbeat(member, 1, instance_id="i"),
    "sync": lambda world, member: world.sync(member, 1, {member: b"mine"}),
    "sync of a stranger": lambda world, member: world.sync(UNKNOWN, 1),
    "sync of another generation": lambda world, member: world.sync(member, 2),
    "sync of another type": lambda world, member: world.sync(member, 1, protocol_type="connect"),
    "sync of another protocol": lambda world, member: world.sync(member, 1, protocol_name="sticky"),
    "join of a stranger": lambda world, member: world.join(UNKNOWN),
    "join of another type": lambda world, member: world.join(protocol_type="connect"),
    "join with another protocol": lambda world, member: world.join(protocols=(("sticky", b""),)),
    "join without protocols": lambda world, member: world.join(protocols=()),
    "commit": lambda world, member: world.commit({("t", 0): 5}, member, 1),
    "commit of a stranger": lambda world, member: world.commit({("t", 0): 5}, UNKNOWN, 1),
    "commit of another generation": lambda world, member: world.commit({("t", 0): 5}, member, 3),
    "commit of nobody": lambda world, member: world.commit({("t", 0): 5}),
    "commit of a generation, v8": lambda world, member: world.commit({("t", 0): 5}, member, 1, api_version=8),
    "commit of a generation, v9": lambda world, member: world.commit({("t", 0): 5}, member, 1, api_version=9),
    "commit of generation 0": lambda world, member: world.commit({("t", 0): 5}, member, 0),
    "commit of generation 0 of nobody": lambda world, member: world.commit({("t", 0): 5}, "", 0),
    "commit of no generation": lambda world, member: world.commit({("t", 0): 5}, member),
    "commit of no generation of a stranger": lambda world, member: world.commit({("t", 0): 5}, UNKNOWN),
    "commit of no generation of an instance": lambda world, member: world.commit({("t", 0): 5}, instance_id="i"),
    "transaction": lambda world, member: world.txn_commit({("t", 0): 5}, member_id=member, generation_id=1),
    "transaction of generation 0": lambda world, member: world.txn_commit(
        {("t", 0): 5}, member_id=member, generation_id=0
    ),
    "transaction of generation 0 of nobody": lambda world, member: world.txn_commit({("t", 0): 5}, generation_id=0),
    "transaction of no generation": lambda world, member: world.txn_commit({("t", 0): 5}, member_id=member),
    "transaction of an instance": lambda world, member: world.txn_commit({("t", 0): 5}, instance_id="i"),
    "transaction of nobody": lambda world, member: world.txn_commit({("t", 0): 5}),
    "leave, v1": lambda world, member: world.leave((member, None), api_version=1),
    "leave of a stranger, v1": lambda world, member: world.leave((UNKNOWN, None), api_version=1),
    "delete": lambda world, member: world.delete_group(),
}

UNKNOWN_MEMBER, ILLEGAL = Code.UNKNOWN_MEMBER_ID, Code.ILLEGAL_GENERATION
REBALANCING, INCONSISTENT = Code.REBALANCE_IN_PROGRESS, Code.INCONSISTENT_GROUP_PROTOCOL
NOT_FOUND, NON_EMPTY, OK, ID_REQUIRED = (
    Code.GROUP_ID_NOT_FOUND,
    Code.NON_EMPTY_GROUP,
    Code.NONE,
    Code.MEMBER_ID_REQUIRED,
)

# In the order of STATES: nothing, simple, empty, preparing, completing, stable.
EXPECTED: dict[str, tuple[Code, ...]] = {
    "heartbeat":                         (UNKNOWN_MEMBER, UNKNOWN_MEMBER, UNKNOWN_MEMBER, REBALANCING, OK, OK),
    "heartbeat of a stranger":           (UNKNOWN_MEMBER,) * 6,
    "heartbeat of another generation":   (UNKNOWN_MEMBER, UNKNOWN_MEMBER, UNKNOWN_MEMBER, ILLEGAL, ILLEGAL, ILLEGAL),
    "heartbeat of an unknown instance":  (UNKNOWN_MEMBER,) * 6,
    "sync":                              (UNKNOWN_MEMBER, UNKNOWN_MEMBER, UNKNOWN_MEMBER, REBALANCING, OK, OK),
    "sync of a stranger":                (UNKNOWN_MEMBER,) * 6,
    "sync of another generation":        (UNKNOWN_MEMBER, UNKNOWN_MEMBER, UNKNOWN_MEMBER, ILLEGAL, ILLEGAL, ILLEGAL),
    "sync of another type":              (UNKNOWN_MEMBER, UNKNOWN_MEMBER, UNKNOWN_MEMBER, *(INCONSISTENT,) * 3),
    "sync of another protocol":          (UNKNOWN_MEMBER, UNKNOWN_MEMBER, UNKNOWN_MEMBER, *(INCONSISTENT,) * 3),
    "join of a stranger":                (UNKNOWN_MEMBER,) * 6,
    "join of another type":              (ID_REQUIRED, ID_REQUIRED, ID_REQUIRED, *(INCONSISTENT,) * 3),
    "join with another protocol":        (ID_REQUIRED, ID_REQUIRED, ID_REQUIRED, *(INCONSISTENT,) * 3),
    "join without protocols":            (INCONSISTENT,) * 6,
    "commit":                            (ILLEGAL, UNKNOWN_MEMBER, UNKNOWN_MEMBER, OK, REBALANCING, OK),
    "commit of a stranger":              (ILLEGAL, *(UNKNOWN_MEMBER,) * 5),
    "commit of another generation":      (ILLEGAL, UNKNOWN_MEMBER, UNKNOWN_MEMBER, ILLEGAL, ILLEGAL, ILLEGAL),
    "commit of nobody":                  (OK, OK, OK, *(UNKNOWN_MEMBER,) * 3),
    "commit of a generation, v8":        (ILLEGAL, UNKNOWN_MEMBER, UNKNOWN_MEMBER, OK, REBALANCING, OK),
    "commit of a generation, v9":        (NOT_FOUND, UNKNOWN_MEMBER, UNKNOWN_MEMBER, OK, REBALANCING, OK),
    "commit of generation 0":            (ILLEGAL, UNKNOWN_MEMBER, UNKNOWN_MEMBER, ILLEGAL, ILLEGAL, ILLEGAL),
    "commit of generation 0 of nobody":  (ILLEGAL, *(UNKNOWN_MEMBER,) * 5),
    "commit of no generation":           (OK, OK, OK, ILLEGAL, ILLEGAL, ILLEGAL),
    "commit of no generation of a stranger":  (OK, OK, OK, *(UNKNOWN_MEMBER,) * 3),
    "commit of no generation of an instance": (OK, OK, OK, *(UNKNOWN_MEMBER,) * 3),
    "transaction":                       (ILLEGAL, UNKNOWN_MEMBER, UNKNOWN_MEMBER, OK, OK, OK),
    "transaction of generation 0":       (ILLEGAL, UNKNOWN_MEMBER, UNKNOWN_MEMBER, ILLEGAL, ILLEGAL, ILLEGAL),
    "transaction of generation 0 of nobody":  (ILLEGAL, *(UNKNOWN_MEMBER,) * 5),
    "transaction of no generation":      (OK, OK, OK, ILLEGAL, ILLEGAL, ILLEGAL),
    "transaction of an instance":        (OK, OK, OK, *(UNKNOWN_MEMBER,) * 3),
    "transaction of nobody":             (OK,) * 6,
    "leave, v1":                         (UNKNOWN_MEMBER, UNKNOWN_MEMBER, UNKNOWN_MEMBER, OK, OK, OK),
    "leave of a stranger, v1":           (UNKNOWN_MEMBER,) * 6,
    "delete":                            (NOT_FOUND, OK, OK, NON_EMPTY, NON_EMPTY, NON_EMPTY),
}  # fmt: skip


def code_of(outcome: object) -> Code:
    if isinstance(outcome, KafkaError):
        return outcome.code
    if isinstance(outcome, OffsetCommitResponse | TxnOffsetCommitResponse):
        return Code(outcome.topics[0].partitions[0].error_code)
    return Code(outcome.error_code)  # type: ignore[attr-defined]


@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize("ask", ASKS)
def test_each_request_in_each_state(ask: str, state: str) -> None:
    world, member = STATES[state]()
    before = world.described().group_state
    request_id = ASKS[ask](world, member)
    expected = EXPECTED[ask][list(STATES).index(state)]
    assert code_of(world.answers[request_id]) == expected
    if expected not in (OK, ID_REQUIRED):
        assert world.described().group_state == before


def test_a_sync_before_any_protocol_was_chosen_is_told_to_wait_whatever_it_names() -> None:
    world = Coordinated()
    member = world.member_id_required()
    world.join(member)
    assert world.described().group_state == GroupState.PREPARING_REBALANCE
    assert world.refused(world.sync(member, 0, protocol_type="consumer", protocol_name="range")) == REBALANCING


def test_every_state_can_be_reached_and_left() -> None:
    reached = {GroupState.EMPTY, *TRANSITIONS.values()}
    assert reached == set(GroupState)
    assert {state for state, _ in TRANSITIONS} == set(GroupState) - {GroupState.DEAD}


@pytest.mark.parametrize("session_ms", [5_999, 1_800_001, 0, -1])
def test_sessions_have_limits(session_ms: int) -> None:
    world = Coordinated()
    assert world.refused(world.join(session_ms=session_ms)) == Code.INVALID_SESSION_TIMEOUT
    assert not world.coordinator.groups


@pytest.mark.parametrize("session_ms", [6_000, 1_800_000])
def test_sessions_may_be_as_long_as_their_limits(session_ms: int) -> None:
    assert Coordinated().member_id_required(session_ms=session_ms)


@pytest.mark.parametrize(("rebalance_ms", "expected"), [(-1, 7_000), (0, 0), (1, 1), (9_000, 9_000)])
def test_who_says_no_rebalance_timeout_has_that_of_its_session(rebalance_ms: int, expected: int) -> None:
    world = Coordinated(GroupSettings(initial_rebalance_delay_ms=0))
    world.join(api_version=3, session_ms=7_000, rebalance_ms=rebalance_ms)
    assert world.coordinator.groups["g"].rebalance_timeout_ms == expected


def test_a_group_needs_a_name() -> None:
    world = Coordinated()
    for group_id in ("", "g" * 32_768):
        assert world.refused(world.join(group_id=group_id)) == Code.INVALID_GROUP_ID
        assert world.refused(world.sync("m", 1, group_id=group_id)) == Code.INVALID_GROUP_ID
        assert world.refused(world.heartbeat("m", 1, group_id=group_id)) == Code.INVALID_GROUP_ID
        assert world.refused(world.leave(("m", None), group_id=group_id)) == Code.INVALID_GROUP_ID
    assert world.refused(world.commit({("t", 0): 1}, group_id="é" * 20_000)) == Code.INVALID_GROUP_ID


@pytest.mark.parametrize("letter", ["g", "é", "€", "\U0001f600"])
def test_names_are_as_long_as_their_bytes(letter: str) -> None:
    world = Coordinated()
    longest = 32_767 // len(letter.encode())
    for length, is_too_long in ((longest, False), (longest + 1, True)):
        name = letter * length
        committed = world.commit({("t", 0): 1}, group_id=name)
        joined = world.join(group_id=name)
        typed = world.join(protocol_type=name)
        if is_too_long:
            assert world.refused(committed) == world.refused(joined) == Code.INVALID_GROUP_ID
            assert world.refused(typed) == Code.INVALID_REQUEST
        else:
            assert world.commit_codes(committed) == [Code.NONE]
            assert {world.taken(one, JoinGroupResponse).error_code for one in (joined, typed)} == {ID_REQUIRED}


def test_names_that_no_record_can_hold_are_refused() -> None:
    world = Coordinated()
    assert world.refused(world.join(protocol_type="x" * 32_768)) == Code.INVALID_REQUEST
    assert world.refused(world.join(protocols=(("x" * 32_768, b""),))) == Code.INVALID_REQUEST
    assert world.refused(world.join(client_id="x" * 32_731)) == Code.INVALID_REQUEST
    assert world.refused(world.join(instance_id="x" * 32_731)) == Code.INVALID_REQUEST
    assert world.member_id_required(client_id="x" * 32_730)


def test_topics_whose_names_no_key_holds_are_unknown() -> None:
    world = Coordinated()
    codes = world.commit_codes(world.commit({("t" * 40_000, 0): 1, ("t", 0): 2}))
    assert codes == [Code.UNKNOWN_TOPIC_OR_PARTITION, Code.NONE]
    assert world.fetched() == {("t", 0): 2}
    codes = world.commit_codes(world.commit({("u" * 250, 0): 1, ("u" * 249, 0): 2}))
    assert codes == [Code.UNKNOWN_TOPIC_OR_PARTITION, Code.NONE]


def test_a_full_group_takes_nobody() -> None:
    world = Coordinated(GroupSettings(group_size_max=2))
    members = world.stable_group("a", "b")
    assert world.refused(world.join()) == Code.GROUP_MAX_SIZE_REACHED
    assert not isinstance(world.answers[world.heartbeat(members[0], 1)], KafkaError)


def test_of_too_many_the_first_to_join_are_in() -> None:
    world = Coordinated(GroupSettings(group_size_max=2))
    pending = [world.member_id_required(client_id=name) for name in "abc"]
    joins = [world.join(one) for one in pending]
    assert world.refused(joins[2]) == Code.GROUP_MAX_SIZE_REACHED
    world.pass_ms(6_000)
    assert world.taken(joins[0], JoinGroupResponse).error_code == 0
    assert len(world.described().members) == 2


def test_who_finds_the_group_full_when_it_comes_back_with_its_id_is_not_waited_for() -> None:
    world = Coordinated(GroupSettings(group_size_max=2))
    late = world.member_id_required(client_id="late", session_ms=60_000)
    first, second = world.stable_group("a", "b", session_ms=60_000)
    joins = [world.join(one, session_ms=60_000) for one in (first, second)]
    assert not any(join in world.answers for join in joins), "the third may come back"
    assert world.refused(world.join(late)) == Code.GROUP_MAX_SIZE_REACHED
    assert [world.taken(join, JoinGroupResponse).generation_id for join in joins] == [2, 2]
    assert world.refused(world.join(late)) == Code.GROUP_MAX_SIZE_REACHED
    assert not world.coordinator.groups["g"].pending


def test_too_many_who_never_come_back_are_refused_until_their_time_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(membership, "PENDING_MEMBERS_MAX", 3)
    world = Coordinated()
    for name in "abc":
        world.member_id_required(client_id=name)
    assert world.refused(world.join(client_id="d")) == Code.COORDINATOR_NOT_AVAILABLE
    world.pass_ms(SESSION_MS)
    assert not world.coordinator.groups
    world.member_id_required(client_id="d")


def test_after_the_last_generation_comes_the_first() -> None:
    world = Coordinated()
    (member,) = world.stable_group()
    world.coordinator.groups["g"].generation_id = 2**31 - 1
    joined = world.taken(world.join(member, protocols=(("range", b"other"),)), JoinGroupResponse)
    assert joined.generation_id == 1


def test_an_answer_comes_only_while_active() -> None:
    world = Coordinated()
    world.coordinator.resign()
    assert world.refused(world.heartbeat("m", 1)) == Code.NOT_COORDINATOR
    assert world.refused(world.commit({("t", 0): 1})) == Code.NOT_COORDINATOR
    fresh = type(world.coordinator)(0, GroupSettings(), rng=world.rng)
    world.coordinator = fresh
    assert world.refused(world.join()) == Code.COORDINATOR_LOAD_IN_PROGRESS
    assert world.refused(world.commit({("t", 0): 1})) == Code.COORDINATOR_LOAD_IN_PROGRESS
    assert world.coordinator.next_deadline_ms() is None


def test_whoever_waits_learns_that_leadership_is_lost() -> None:
    world = Coordinated()
    first, second = world.stable_group("a", "b")
    join = world.join(first)
    world.commits_at_once = False
    commit = world.commit({("t", 0): 1}, second, 1)
    assert commit not in world.answers
    world.coordinator.resign()
    world.drive()
    assert world.refused(join) == Code.NOT_COORDINATOR
    assert world.refused(commit) == Code.NOT_COORDINATOR


def test_whoever_waits_learns_why_leadership_is_lost() -> None:
    world = Coordinated()
    first, second = world.stable_group("a", "b")
    world.join(first)
    world.join(second)
    sync = world.sync(second, 2)
    join = world.join(group_id="h", api_version=3)
    world.coordinator.resign(refusal(Code.COORDINATOR_NOT_AVAILABLE))
    world.drive()
    assert world.refused(sync) == world.refused(join) == Code.COORDINATOR_NOT_AVAILABLE
    assert not world.coordinator.groups
    world.coordinator.resign(refusal(Code.COORDINATOR_NOT_AVAILABLE))  # it is spent already
    assert world.memory.used_bytes == 0


def test_who_resigns_before_it_serves_leaves_alone_what_another_thread_may_be_loading() -> None:
    world = Coordinated()
    world.stable_group()
    loaded = GroupCoordinator(0, world.settings, rng=world.rng, memory=world.memory)
    world.replay_into(loaded)
    loaded.restore()
    used_bytes = world.memory.used_bytes
    loaded.resign()
    assert list(loaded.groups) == ["g"]
    assert world.memory.used_bytes == used_bytes, "it counts nothing yet"


def test_nothing_leaves_before_what_it_depends_on_is_committed() -> None:
    world = Coordinated()
    (member,) = world.stable_group()
    world.commits_at_once = False
    commit = world.commit({("t", 0): 1}, member, 1)
    beat = world.heartbeat(member, 1)
    assert commit not in world.answers
    assert beat not in world.answers
    world.commit_log()
    world.drive()
    assert world.commit_codes(commit) == [0]
    assert world.taken(beat, HeartbeatResponse).error_code == 0


def test_an_assignment_waits_for_its_record() -> None:
    world = Coordinated()
    member = world.member_id_required()
    world.join(member)
    world.pass_ms(6_000)
    world.commits_at_once = False
    sync = world.sync(member, 1, {member: b"mine"})
    assert sync not in world.answers
    world.commit_log()
    world.drive()
    assert world.taken(sync, SyncGroupResponse).assignment == b"mine"


def test_an_assignment_that_no_batch_holds_fails_the_rebalance() -> None:
    world = Coordinated()
    world.coordinator.batch_size_bytes_max = 1_000
    member = world.member_id_required()
    world.join(member)
    world.pass_ms(6_000)
    before = len(world.log)
    assert world.refused(world.sync(member, 1, {member: bytes(2_000)})) == Code.UNKNOWN_SERVER_ERROR
    assert len(world.log) == before
    assert world.described().group_state == GroupState.PREPARING_REBALANCE


def test_leaving_has_an_answer_for_each() -> None:
    world = Coordinated()
    first, _ = world.stable_group("a", "b")
    leave = world.leave((first, None), (UNKNOWN, None), ("", "instance"), (first, "instance"))
    assert world.leave_codes(leave) == [0, *[Code.UNKNOWN_MEMBER_ID] * 3]
    assert world.taken(leave, LeaveGroupResponse).error_code == 0
    assert world.leave_codes(world.leave((first, None), group_id="other")) == [Code.UNKNOWN_MEMBER_ID]
    pending = world.member_id_required()
    assert world.leave_codes(world.leave((pending, "instance"), (pending, None), (pending, None))) == [
        Code.UNKNOWN_MEMBER_ID,
        Code.NONE,
        Code.UNKNOWN_MEMBER_ID,
    ]


def test_subscriptions_that_cannot_be_read_want_everything() -> None:
    world = Coordinated()
    world.stable_group(protocols=(("range", subscription("t")[:-7]),))
    assert world.coordinator.groups["g"].wanted_topics() is None

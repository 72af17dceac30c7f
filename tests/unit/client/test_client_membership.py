"""Members of groups, alone: what they ask, what each answer makes them, and what their callers are told."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, TypeVar
from uuid import UUID

import pytest

from tidelog.base.errors import Code
from tidelog.base.ids import PartitionIndex, TopicId, TopicPartition
from tidelog.client.core.assignors import rows_of
from tidelog.client.core.classic_membership import ClassicMembership
from tidelog.client.core.consumer_membership import ConsumerMembership
from tidelog.client.core.membership import NO_EPOCH, KnownTopic, Membership, MembershipConfig
from tidelog.client.core.values import RebalanceKind
from tidelog.wire.compile import encode
from tidelog.wire.messages.api_11_join_group import JoinGroupRequest, JoinGroupResponse, JoinGroupResponseMember
from tidelog.wire.messages.api_12_heartbeat import HeartbeatRequest, HeartbeatResponse
from tidelog.wire.messages.api_13_leave_group import LeaveGroupRequest
from tidelog.wire.messages.api_14_sync_group import SyncGroupRequest, SyncGroupResponse
from tidelog.wire.messages.api_68_consumer_group_heartbeat import (
    ConsumerGroupHeartbeatAssignment,
    ConsumerGroupHeartbeatPartitions,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from tidelog.wire.messages.consumer_protocol import (
    ConsumerProtocolAssignment,
    assigned_partitions,
    read_subscription,
)

R = TypeVar("R")

EAGER = MembershipConfig(
    group_id="g",
    strategies=("range",),
    heartbeat_interval_ms=1_000,
    session_timeout_ms=9_000,
    rebalance_timeout_ms=60_000,
)
COOPERATIVE = replace(EAGER, strategies=("cooperative-sticky",))
TOPIC_ID = TopicId(UUID(int=7))
RETRY_MS = 10
REVOKED, ASSIGNED, LOST = RebalanceKind.REVOKED, RebalanceKind.ASSIGNED, RebalanceKind.LOST


def partitions(*indexes: int) -> frozenset[TopicPartition]:
    return frozenset(TopicPartition("t", PartitionIndex(index)) for index in indexes)


def classic(config: MembershipConfig = EAGER, topics: tuple[str, ...] = ("t",)) -> ClassicMembership:
    member = ClassicMembership(config, lambda failures: RETRY_MS * failures)
    member.on_topics({"t": KnownTopic(TOPIC_ID, 4)})
    member.subscribe(topics)
    return member


def consumer(config: MembershipConfig = EAGER) -> ConsumerMembership:
    member = ConsumerMembership(config, lambda failures: RETRY_MS * failures, member_id=UUID(int=1))
    member.on_topics({"t": KnownTopic(TOPIC_ID, 4)})
    member.subscribe(["t"])
    return member


def asks(member: Membership, kind: type[R], now_ms: int = 0) -> R:
    request = member.request(now_ms)
    assert isinstance(request, kind), request
    return request


def joins(
    member: ClassicMembership, *, generation: int, leader: str = "me", others: tuple[JoinGroupResponseMember, ...] = ()
) -> JoinGroupRequest:
    """It asks to join, and is answered that it is in."""
    request = asks(member, JoinGroupRequest)
    mine = JoinGroupResponseMember(member_id="me", metadata=request.protocols[0].metadata)
    answer = JoinGroupResponse(
        generation_id=generation,
        protocol_name=request.protocols[0].name,
        leader=leader,
        member_id="me",
        members=[mine, *others] if leader == "me" else [],
    )
    member.on_response(request, answer, 0)
    return request


def is_given(member: ClassicMembership, *indexes: int) -> SyncGroupRequest:
    """It asks for its part, and is given these."""
    request = asks(member, SyncGroupRequest)
    value = encode(ConsumerProtocolAssignment(assigned_partitions=rows_of(partitions(*indexes))), 1)
    member.on_response(request, SyncGroupResponse(assignment=b"\x00\x01" + value), 0)
    return request


def is_told(member: Membership) -> list[tuple[RebalanceKind, list[PartitionIndex]]]:
    """All that the caller is told, one after the other."""
    found = []
    while (rebalance := member.take_rebalance()) is not None:
        found.append((rebalance.kind, sorted(one.partition for one in rebalance.partitions)))
        member.on_told(rebalance)
    return found


def beats(member: Membership, code: Code = Code.NONE, now_ms: int = 1_000) -> None:
    request = asks(member, HeartbeatRequest, now_ms)
    member.on_response(request, HeartbeatResponse(error_code=code), now_ms)


def stable(config: MembershipConfig = EAGER, *indexes: int) -> ClassicMembership:
    member = classic(config)
    joins(member, generation=1)
    is_given(member, *indexes)
    is_told(member)
    assert member.is_stable
    return member


def test_a_member_joins_divides_and_reads_what_it_is_given() -> None:
    member = classic()
    asked = asks(member, JoinGroupRequest)
    assert (asked.group_id, asked.member_id, asked.rebalance_timeout_ms) == ("g", "", 60_000)
    assert member.request(0) is None, "one request at a time"
    member.on_response(asked, JoinGroupResponse(error_code=Code.MEMBER_ID_REQUIRED, member_id="me"), 0)
    other = JoinGroupResponseMember(member_id="other", metadata=asked.protocols[0].metadata)
    assert joins(member, generation=3, others=(other,)).member_id == "me"
    divided = is_given(member, 0, 1)
    assert {one.member_id: assigned_partitions(one.assignment) for one in divided.assignments} == {
        "me": tuple(sorted(partitions(0, 1))),
        "other": tuple(sorted(partitions(2, 3))),
    }
    assert (divided.generation_id, divided.protocol_name) == (3, "range")
    assert not member.is_stable, "the caller was not told"
    assert is_told(member) == [(ASSIGNED, [0, 1])]
    assert member.owned == partitions(0, 1)
    assert member.is_stable
    assert member.next_due_ms(0) == 1_000
    assert member.request(999) is None


def test_who_does_not_lead_divides_nothing() -> None:
    member = classic()
    joins(member, generation=1, leader="other")
    assert is_given(member, 3).assignments == []
    assert is_told(member) == [(ASSIGNED, [3])]


def test_a_leader_waits_until_it_knows_the_topics_of_all() -> None:
    member = classic()
    asked = asks(member, JoinGroupRequest)
    other = classic(topics=("t", "u"))
    theirs = JoinGroupResponseMember(member_id="o", metadata=asks(other, JoinGroupRequest).protocols[0].metadata)
    mine = JoinGroupResponseMember(member_id="me", metadata=asked.protocols[0].metadata)
    answer = JoinGroupResponse(
        generation_id=1, protocol_name="range", leader="me", member_id="me", members=[mine, theirs]
    )
    member.on_response(asked, answer, 0)
    assert member.request(0) is None
    assert member.next_due_ms(90_000) is None, "nothing is due, however long it takes"
    assert member.topics_to_divide == frozenset(("t", "u"))
    member.on_topics({"t": KnownTopic(TOPIC_ID, 1), "u": None})  # there is none
    given_out = {one.member_id: len(assigned_partitions(one.assignment)) for one in is_given(member).assignments}
    assert given_out == {"me": 1, "o": 0}


def test_an_eager_member_gives_all_up_before_it_joins_again() -> None:
    member = stable(EAGER, 0, 1)
    beats(member, Code.REBALANCE_IN_PROGRESS)
    assert member.rebalance is not None
    assert member.request(1_500) is None, "it does not join behind its caller's back"
    beats(member, Code.REBALANCE_IN_PROGRESS, 2_000)  # and says that it lives
    assert is_told(member) == [(REVOKED, [0, 1])]
    asked = joins(member, generation=2)
    assert read_subscription(asked.protocols[0].metadata).owned_partitions == []
    is_given(member, 1)
    assert is_told(member) == [(ASSIGNED, [1])]


def test_a_cooperative_member_keeps_what_it_has_and_joins_again_when_it_gave_some_up() -> None:
    member = stable(COOPERATIVE, 0, 1)
    beats(member, Code.REBALANCE_IN_PROGRESS)
    assert is_told(member) == []
    said = read_subscription(joins(member, generation=2, leader="other").protocols[0].metadata)
    assert (rows_of(partitions(0, 1)), 1) == (said.owned_partitions, said.generation_id)
    assert member.owned == partitions(0, 1), "it reads on meanwhile"
    is_given(member, 1, 2)
    assert is_told(member) == [(REVOKED, [0]), (ASSIGNED, [2])]
    said = read_subscription(joins(member, generation=3, leader="other").protocols[0].metadata)
    assert said.owned_partitions == rows_of(partitions(1, 2))
    is_given(member, 1, 2)
    assert is_told(member) == []
    assert member.is_stable


def test_what_was_given_in_a_generation_that_is_over_before_the_caller_was_told_is_not_read() -> None:
    member = classic(COOPERATIVE)
    joins(member, generation=1)
    is_given(member, 0, 1)
    beats(member, Code.REBALANCE_IN_PROGRESS)
    assert is_told(member) == []
    joins(member, generation=2)
    is_given(member, 1)
    assert is_told(member) == [(ASSIGNED, [1])]


@pytest.mark.parametrize("config", [EAGER, COOPERATIVE])
@pytest.mark.parametrize("code", [Code.UNKNOWN_MEMBER_ID, Code.ILLEGAL_GENERATION])
def test_who_is_no_member_any_more_has_lost_all_and_joins_once_its_caller_knows(
    config: MembershipConfig, code: Code
) -> None:
    member = stable(config, 0, 1)
    beats(member, code)
    assert member.epoch == NO_EPOCH
    assert member.request(9_000) is None
    assert is_told(member) == [(LOST, [0, 1])]
    assert asks(member, JoinGroupRequest).member_id == ("" if code is Code.UNKNOWN_MEMBER_ID else "me")


def test_a_sync_that_comes_too_late_joins_again() -> None:
    member = classic()
    joins(member, generation=1)
    request = asks(member, SyncGroupRequest)
    member.on_response(request, SyncGroupResponse(error_code=Code.REBALANCE_IN_PROGRESS), 0)
    assert member.request(0) is None, "not at once"
    asks(member, JoinGroupRequest, RETRY_MS)


def test_what_is_not_answered_is_asked_again_later_and_later() -> None:
    member = classic()
    for failures in (1, 2, 3):
        now_ms = 100 * failures
        asked = asks(member, JoinGroupRequest, now_ms)
        member.on_no_answer(asked, now_ms)
        assert member.next_due_ms(now_ms) == now_ms + RETRY_MS * failures
        assert member.request(now_ms) is None


def test_an_answer_that_nobody_waits_for_changes_nothing() -> None:
    member = classic()
    asked = asks(member, JoinGroupRequest)
    member.on_no_answer(asked, 0)
    member.on_response(asked, JoinGroupResponse(generation_id=9, member_id="me", leader="me"), 0)
    assert member.epoch == NO_EPOCH


@pytest.mark.parametrize("make", [classic, consumer])
@pytest.mark.parametrize("code", [Code.COORDINATOR_LOAD_IN_PROGRESS, Code.NOT_COORDINATOR])
def test_a_coordinator_that_is_not_ready_is_asked_again(make: Any, code: Code) -> None:
    member = make()
    asked = member.request(0)
    kind = JoinGroupResponse if isinstance(asked, JoinGroupRequest) else ConsumerGroupHeartbeatResponse
    assert member.on_response(asked, kind(error_code=code), 0) is code
    assert member.error is None
    assert member.request(0) is None
    assert type(member.request(RETRY_MS)) is type(asked)


@pytest.mark.parametrize("make", [classic, consumer])
@pytest.mark.parametrize(
    "code", [Code.GROUP_AUTHORIZATION_FAILED, Code.FENCED_INSTANCE_ID, Code.GROUP_MAX_SIZE_REACHED]
)
def test_what_will_not_pass_is_told_and_tried_again_when_the_caller_asks(make: Any, code: Code) -> None:
    member = make()
    asked = member.request(0)
    kind = JoinGroupResponse if isinstance(asked, JoinGroupRequest) else ConsumerGroupHeartbeatResponse
    member.on_response(asked, kind(error_code=code), 0)
    assert member.error.code is code
    assert "group 'g'" in str(member.error)
    assert member.request(10_000) is None
    told = member.take_error(10_000)
    assert told is not None
    assert member.error is None
    assert member.request(10_000) is None, "not at once"
    assert type(member.request(10_000 + RETRY_MS)) is type(asked)


def test_the_leader_joins_again_when_a_topic_grows_or_goes() -> None:
    for later in (KnownTopic(TOPIC_ID, 5), KnownTopic(TopicId(UUID(int=8)), 4), None):
        member = stable(COOPERATIVE, 0)
        member.on_topics({"t": KnownTopic(TOPIC_ID, 4), "x": KnownTopic(TOPIC_ID, 9)})
        assert member.is_stable
        member.on_topics({"t": later})
        asks(member, JoinGroupRequest)


def test_a_static_leader_that_keeps_an_assignment_looks_after_the_topics() -> None:
    member = classic(replace(COOPERATIVE, instance_id="one"))
    asked = asks(member, JoinGroupRequest)
    mine = JoinGroupResponseMember(member_id="me", metadata=asked.protocols[0].metadata)
    answer = JoinGroupResponse(
        generation_id=4,
        protocol_name="cooperative-sticky",
        leader="me",
        member_id="me",
        members=[mine],
        skip_assignment=True,
    )
    member.on_response(asked, answer, 0)
    assert is_given(member, 0).assignments == []
    is_told(member)
    assert member.is_stable
    member.on_topics({"t": KnownTopic(TOPIC_ID, 8)})
    asks(member, JoinGroupRequest)


def test_a_topic_that_grows_while_the_leader_waits_for_its_part_is_divided_again() -> None:
    member = classic(COOPERATIVE)
    joins(member, generation=1)
    request = asks(member, SyncGroupRequest)
    member.on_topics({"t": KnownTopic(TOPIC_ID, 8)})
    value = encode(ConsumerProtocolAssignment(assigned_partitions=rows_of(partitions(0))), 1)
    member.on_response(request, SyncGroupResponse(assignment=b"\x00\x01" + value), 0)
    is_told(member)
    asks(member, JoinGroupRequest)


def test_a_change_of_topics_joins_again_even_in_the_middle_of_joining() -> None:
    member = classic(COOPERATIVE)
    asked = asks(member, JoinGroupRequest)
    member.subscribe(["t", "u"])
    member.on_topics({"t": KnownTopic(TOPIC_ID, 4), "u": None})
    mine = JoinGroupResponseMember(member_id="me", metadata=asked.protocols[0].metadata)
    member.on_response(
        asked,
        JoinGroupResponse(
            generation_id=1, protocol_name="cooperative-sticky", leader="me", member_id="me", members=[mine]
        ),
        0,
    )
    is_given(member, 0)
    is_told(member)
    assert read_subscription(asks(member, JoinGroupRequest).protocols[0].metadata).topics == ["t", "u"]


def test_a_member_leaves_by_name_and_a_static_one_says_nothing() -> None:
    member = stable(EAGER, 0)
    request = member.leaving(5)
    assert isinstance(request, LeaveGroupRequest)
    assert [one.member_id for one in request.members] == ["me"]
    assert member.leaving(5) is None, "it has left"
    old = stable(EAGER, 0).leaving(2)
    assert isinstance(old, LeaveGroupRequest)
    assert (old.member_id, old.members) == ("me", [])
    assert stable(replace(EAGER, instance_id="one"), 0).leaving(5) is None


def test_a_member_whose_caller_went_away_joins_again_when_it_comes_back_and_was_told() -> None:
    member = stable(EAGER, 0)
    assert isinstance(member.on_away(5), LeaveGroupRequest)
    assert is_told(member) == [(LOST, [0])]
    assert member.request(99_000) is None
    member.come_back()
    asks(member, JoinGroupRequest, 99_000)


def test_nonsense_in_a_groups_own_bytes_is_an_error_of_the_group() -> None:
    member = classic()
    asked = asks(member, JoinGroupRequest)
    other = JoinGroupResponseMember(member_id="o", metadata=b"\xff")
    answer = JoinGroupResponse(generation_id=1, protocol_name="range", leader="me", member_id="me", members=[other])
    member.on_response(asked, answer, 0)
    assert member.error is not None
    member = classic()
    joins(member, generation=1)
    request = asks(member, SyncGroupRequest)
    member.on_response(request, SyncGroupResponse(assignment=b"\x00\x01\xff"), 0)
    assert member.error is not None


# KIP-848.


def heartbeat(member: ConsumerMembership, now_ms: int, *, epoch: int, given: list[int] | None = None) -> Any:
    """It asks; the answer says which epoch it is in, and what it is to read."""
    request = asks(member, ConsumerGroupHeartbeatRequest, now_ms)
    assignment = None
    if given is not None:
        rows = [ConsumerGroupHeartbeatPartitions(topic_id=TOPIC_ID, partitions=given)] if given else []
        assignment = ConsumerGroupHeartbeatAssignment(topic_partitions=rows)
    answer = ConsumerGroupHeartbeatResponse(member_epoch=epoch, heartbeat_interval_ms=500, assignment=assignment)
    member.on_response(request, answer, now_ms)
    return request


def says(request: ConsumerGroupHeartbeatRequest) -> list[int] | None:
    rows = request.topic_partitions
    return None if rows is None else [index for row in rows for index in row.partitions]


def test_a_consumer_says_all_when_it_joins_and_afterwards_what_has_changed() -> None:
    member = consumer(replace(EAGER, remote_assignor="uniform", rack="here"))
    joined = heartbeat(member, 0, epoch=3, given=[0, 1])
    assert (joined.member_epoch, joined.member_id) == (0, str(UUID(int=1)))
    assert (joined.subscribed_topic_names, joined.server_assignor, joined.rack_id) == (["t"], "uniform", "here")
    assert (joined.rebalance_timeout_ms, says(joined)) == (60_000, [])
    assert is_told(member) == [(ASSIGNED, [0, 1])]
    told = heartbeat(member, 0, epoch=3)
    assert says(told) == [0, 1], "at once"
    assert (told.subscribed_topic_names, told.server_assignor, told.rebalance_timeout_ms) == (None, None, -1)
    assert member.is_stable
    assert member.next_due_ms(0) == 500
    assert member.request(499) is None
    assert says(heartbeat(member, 500, epoch=3)) is None


def test_a_consumer_gives_up_first_says_so_and_is_given_more() -> None:
    member = consumer()
    heartbeat(member, 0, epoch=1, given=[0, 1])
    is_told(member)
    heartbeat(member, 0, epoch=1)
    heartbeat(member, 500, epoch=1, given=[1])
    assert says(heartbeat(member, 1_000, epoch=1)) is None, "its caller was not told"
    assert is_told(member) == [(REVOKED, [0])]
    assert says(heartbeat(member, 1_000, epoch=2, given=[1, 2])) == [1]
    assert is_told(member) == [(ASSIGNED, [2])]


@pytest.mark.parametrize("code", [Code.FENCED_MEMBER_EPOCH, Code.UNKNOWN_MEMBER_ID, Code.GROUP_ID_NOT_FOUND])
def test_a_consumer_that_is_out_joins_with_nothing_once_its_caller_knows(code: Code) -> None:
    member = consumer()
    heartbeat(member, 0, epoch=5, given=[0])
    is_told(member)
    request = asks(member, ConsumerGroupHeartbeatRequest)
    member.on_response(request, ConsumerGroupHeartbeatResponse(error_code=code), 0)
    assert member.request(9_000) is None
    assert is_told(member) == [(LOST, [0])]
    joined = heartbeat(member, 9_000, epoch=7)
    assert (joined.member_epoch, says(joined), joined.subscribed_topic_names) == (0, [], ["t"])


def test_what_a_consumer_said_without_an_answer_it_says_again() -> None:
    member = consumer()
    heartbeat(member, 0, epoch=1, given=[0])
    is_told(member)
    lost = asks(member, ConsumerGroupHeartbeatRequest)
    member.on_no_answer(lost, 0)
    again = heartbeat(member, RETRY_MS, epoch=1)
    assert (again.member_epoch, says(again), again.subscribed_topic_names) == (1, [0], ["t"])


def test_a_topic_whose_name_nobody_knows_is_read_once_it_has_one() -> None:
    member = ConsumerMembership(EAGER, lambda _: RETRY_MS, member_id=UUID(int=1))
    member.subscribe_to_pattern("t.*")
    joined = heartbeat(member, 0, epoch=1, given=[0])
    assert (joined.subscribed_topic_regex, joined.subscribed_topic_names) == ("t.*", [])
    assert member.unnamed == [TOPIC_ID]
    assert is_told(member) == []
    member.on_topics({"t": KnownTopic(TOPIC_ID, 1)})
    assert is_told(member) == [(ASSIGNED, [0])]
    member.subscribe(["t"])
    changed = heartbeat(member, 0, epoch=1)
    assert (changed.subscribed_topic_regex, changed.subscribed_topic_names) == ("", ["t"])


@pytest.mark.parametrize(("instance_id", "epoch"), [(None, -1), ("one", -2)])
def test_a_consumer_leaves_with_an_epoch_that_says_for_how_long(instance_id: str | None, epoch: int) -> None:
    member = consumer(replace(EAGER, instance_id=instance_id))
    assert member.leaving(0) is None, "it has not come yet"
    heartbeat(member, 0, epoch=1, given=[0])
    request = member.leaving(0)
    assert isinstance(request, ConsumerGroupHeartbeatRequest)
    assert (request.member_epoch, request.instance_id) == (epoch, instance_id)

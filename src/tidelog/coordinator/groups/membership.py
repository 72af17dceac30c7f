"""What members of classic groups ask: join, sync, heartbeat, leave.

A refusal is raised as `KafkaError`, before anything changed.

Kafka: `GroupMetadataManager`.
"""

from __future__ import annotations

from dataclasses import dataclass

from tidelog.base.errors import Code, KafkaError, refusal
from tidelog.base.ports import Rng
from tidelog.coordinator.deadlines import Alarm, Cause
from tidelog.coordinator.groups import rebalance
from tidelog.coordinator.groups.group import Group, GroupState
from tidelog.coordinator.groups.group_journal import GroupJournal
from tidelog.coordinator.groups.member import MEMBER_BYTES, Member, Protocols, protocols_bytes
from tidelog.coordinator.groups.records import NAME_SIZE_BYTES_MAX
from tidelog.coordinator.groups.settings import PENDING_MEMBERS_MAX
from tidelog.journal import Moment, RequestId
from tidelog.wire.messages.api_11_join_group import JoinGroupRequest, JoinGroupResponse
from tidelog.wire.messages.api_12_heartbeat import HeartbeatRequest, HeartbeatResponse
from tidelog.wire.messages.api_13_leave_group import (
    LeaveGroupRequest,
    LeaveGroupResponse,
    MemberIdentity,
    MemberResponse,
)
from tidelog.wire.messages.api_14_sync_group import SyncGroupRequest

MEMBER_ID_REQUIRED_SINCE = 4
SKIPS_ASSIGNMENT_SINCE = 9
LEAVES_IN_BATCHES_SINCE = 3
MEMBER_ID_SUFFIX_BYTES = 37
"""What is added to the name of a client to make a member id: a dash and a UUID."""


@dataclass(frozen=True, slots=True)
class Joiner:
    """A JoinGroup, and who sends it."""

    request: JoinGroupRequest
    request_id: RequestId
    api_version: int
    client_id: str
    client_host: str

    @property
    def protocols(self) -> Protocols:
        """The protocols, as members keep them."""
        return tuple((one.name, one.metadata) for one in self.request.protocols)

    @property
    def rebalance_timeout_ms(self) -> int:
        """The session's, for those who have none of their own (version 0)."""
        request = self.request
        return request.rebalance_timeout_ms if request.rebalance_timeout_ms >= 0 else request.session_timeout_ms


# Join.


def check_join(journal: GroupJournal, joiner: Joiner) -> None:
    """Return if the request makes sense, whatever the group.

    Raises:
        KafkaError: INVALID_SESSION_TIMEOUT, or INVALID_REQUEST for a name that no record can hold.
    """
    settings = journal.settings
    request = joiner.request
    if not settings.session_timeout_ms_min <= request.session_timeout_ms <= settings.session_timeout_ms_max:
        raise refusal(
            Code.INVALID_SESSION_TIMEOUT,
            f"a session of {request.session_timeout_ms} ms is not between group.min.session.timeout.ms "
            f"({settings.session_timeout_ms_min}) and group.max.session.timeout.ms ({settings.session_timeout_ms_max})",
        )
    names = [request.protocol_type, joiner.client_host, *(one.name for one in request.protocols)]
    suffixed = [joiner.client_id, request.group_instance_id or ""]
    longest = max(
        *(_size_bytes(one) for one in names), *(_size_bytes(one) + MEMBER_ID_SUFFIX_BYTES for one in suffixed)
    )
    if longest > NAME_SIZE_BYTES_MAX:
        raise refusal(Code.INVALID_REQUEST, f"a name of {longest} bytes is longer than {NAME_SIZE_BYTES_MAX}")


def on_join(journal: GroupJournal, at: Moment, group: Group, joiner: Joiner, rng: Rng) -> None:
    """Take a member in, or back; answered when the generation begins.

    Raises:
        KafkaError: GROUP_MAX_SIZE_REACHED, INCONSISTENT_GROUP_PROTOCOL, UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID, or
            COORDINATOR_NOT_AVAILABLE when too many have not come back with their ids.
    """
    request = joiner.request
    member_id = request.member_id
    _check_size(journal, at, group, member_id or group.static_members.get(request.group_instance_id or "", ""))
    protocols = joiner.protocols
    _check_memory(journal, group, joiner)
    if not group.supports(request.protocol_type, protocols):
        raise refusal(
            Code.INCONSISTENT_GROUP_PROTOCOL,
            f"group {group.group_id!r} is of type {group.protocol_type!r} with {sorted(group.common_protocols())}; "
            f"type {request.protocol_type!r} with {[name for name, _ in protocols]} does not fit in",
        )
    if not member_id:
        _join_first(journal, at, group, joiner, rng)
    elif member_id in group.pending:
        if request.group_instance_id is not None:
            raise refusal(Code.UNKNOWN_MEMBER_ID, f"{member_id!r} was given to a dynamic member, not to a static one")
        _add(journal, at, group, joiner, member_id)
    else:
        _rejoin(journal, at, group, joiner)


def _check_size(journal: GroupJournal, at: Moment, group: Group, member_id: str) -> None:
    """Those who are in may stay; during a rebalance the first to join again have the places."""
    size_max = journal.settings.group_size_max
    member = group.members.get(member_id)
    if group.state is GroupState.PREPARING_REBALANCE:
        is_in = member is not None and member.join_request is not None
        size = group.joined_count
    elif group.state is GroupState.EMPTY:
        return
    else:
        is_in = member is not None
        size = len(group.members)
    if not is_in and size >= size_max:
        if member_id in group.pending:
            rebalance.drop_pending(journal, group, member_id)
            rebalance.complete_if_all_joined(journal, at, group)
        elif member is not None:
            rebalance.drop(journal, group, member)
            rebalance.complete_if_all_joined(journal, at, group)
        raise refusal(
            Code.GROUP_MAX_SIZE_REACHED, f"group {group.group_id!r} has group.max.size ({size_max}) members already"
        )


def _check_memory(journal: GroupJournal, group: Group, joiner: Joiner) -> None:
    """Who wants no more than it has may stay, whatever others have taken."""
    memory, member = journal.memory, group.members.get(joiner.request.member_id)
    had_bytes = 0 if member is None else MEMBER_BYTES + protocols_bytes(member.protocols)
    more_bytes = MEMBER_BYTES + protocols_bytes(joiner.protocols) - had_bytes
    if more_bytes > 0 and not memory.has_room(more_bytes):
        raise refusal(
            Code.GROUP_MAX_SIZE_REACHED,
            f"group {group.group_id!r}: a member of {more_bytes} bytes finds no room beside the {memory.used_bytes} "
            f"bytes of all groups of this node (group.coordinator.memory.bytes is {memory.limit_bytes})",
        )


def _join_first(journal: GroupJournal, at: Moment, group: Group, joiner: Joiner, rng: Rng) -> None:
    """Someone without an id: a static member that came back, or somebody new."""
    request = joiner.request
    instance_id = request.group_instance_id
    member_id = f"{instance_id if instance_id is not None else joiner.client_id}-{rng.uuid()}"
    if instance_id is not None:
        old_id = group.static_members.get(instance_id)
        if old_id is None:
            _add(journal, at, group, joiner, member_id)
        else:
            _replace(journal, at, group, joiner, group.members[old_id], member_id=member_id)
    elif joiner.api_version >= MEMBER_ID_REQUIRED_SINCE:
        if len(group.pending) >= PENDING_MEMBERS_MAX:
            raise refusal(
                Code.COORDINATOR_NOT_AVAILABLE,
                f"group {group.group_id!r}: {len(group.pending)} members were given ids and have not come back",
            )
        group.add_pending(member_id)
        session = Alarm(Cause.SESSION, group.group_id, member_id)
        journal.deadlines.set(session, at.now_ms + request.session_timeout_ms)
        come_back = JoinGroupResponse(error_code=Code.MEMBER_ID_REQUIRED.value, protocol_name=None, member_id=member_id)
        journal.answer(joiner.request_id, come_back)
    else:
        journal.pending_member_ids[joiner.request_id] = (group.group_id, member_id)
        _add(journal, at, group, joiner, member_id)


def _add(journal: GroupJournal, at: Moment, group: Group, joiner: Joiner, member_id: str) -> None:
    request = joiner.request
    member = Member(
        group_id=group.group_id,
        member_id=member_id,
        instance_id=request.group_instance_id,
        client_id=joiner.client_id,
        client_host=joiner.client_host,
        rebalance_timeout_ms=joiner.rebalance_timeout_ms,
        session_timeout_ms=request.session_timeout_ms,
        protocols=joiner.protocols,
        is_new=True,
    )
    group.add(member, request.protocol_type)
    group.park_join(member, joiner.request_id)
    group.has_newcomers = True
    journal.deadlines.set(member.session, at.now_ms + rebalance.NEW_MEMBER_JOIN_TIMEOUT_MS)
    rebalance.begin_or_go_on(journal, at, group)


def _replace(
    journal: GroupJournal, at: Moment, group: Group, joiner: Joiner, member: Member, *, member_id: str
) -> None:
    """A static member came back without its id (KIP-345): the old one is fenced, its place is kept.

    A stable group whose protocol stays the same goes on without a rebalance, once the new id is recorded.
    """
    was_leader = group.leader_id
    _fence(journal, group, member)
    journal.deadlines.cancel(member.session)
    group.replace(member, member_id)
    group.update(member, joiner.protocols, joiner.rebalance_timeout_ms, joiner.request.session_timeout_ms)
    member.client_id, member.client_host = joiner.client_id, joiner.client_host
    group.park_join(member, joiner.request_id)
    rebalance.extend_session(journal, at, member)
    if group.state is GroupState.PREPARING_REBALANCE:
        rebalance.complete_if_all_joined(journal, at, group)
        return
    record = rebalance.record_of(group)
    if (
        group.state is not GroupState.STABLE
        or group.chosen_protocol() != group.protocol_name
        or not journal.fits((record,))
    ):
        rebalance.begin(journal, at, group)
        return
    journal.write((record,))
    is_leader = group.leader_id == member_id
    if joiner.api_version >= SKIPS_ASSIGNMENT_SINCE:
        rebalance.answer_join(journal, at, group, member, notifies_members=is_leader, skips_assignment=is_leader)
    else:
        # It must not take itself for the leader, or it would assign anew: it is told of its own old id instead.
        answer = rebalance.joined(group, member, notifies_members=False)
        answer.leader = was_leader or ""
        _answer_join_with(journal, group, member, answer)


def _rejoin(journal: GroupJournal, at: Moment, group: Group, joiner: Joiner) -> None:
    """A member with an id: it answers a call to rejoin, wants something else, or missed our last answer."""
    member = group.member(joiner.request.member_id, joiner.request.group_instance_id)
    is_same = member.protocols == joiner.protocols
    is_leader = group.leader_id == member.member_id
    if member.join_request is not None:
        _answer_superseded(journal, group, member)
    group.park_join(member, joiner.request_id)
    if is_same and group.state is GroupState.COMPLETING_REBALANCE:
        rebalance.answer_join(journal, at, group, member, notifies_members=is_leader)
    elif is_same and group.state is GroupState.STABLE and not is_leader:
        rebalance.answer_join(journal, at, group, member, notifies_members=False)
    else:
        group.update(member, joiner.protocols, joiner.rebalance_timeout_ms, joiner.request.session_timeout_ms)
        rebalance.begin_or_go_on(journal, at, group)


def _fence(journal: GroupJournal, group: Group, member: Member) -> None:
    """Whoever still waits under the old id learns that it was replaced."""
    error = refusal(
        Code.FENCED_INSTANCE_ID, f"group {group.group_id!r}: static member {member.instance_id!r} came back elsewhere"
    )
    join_request = group.take_join(member)
    if join_request is not None:
        journal.answer(join_request, error)
    if member.sync_request is not None:
        journal.answer(member.sync_request, error)
        member.sync_request = None


def _answer_superseded(journal: GroupJournal, group: Group, member: Member) -> None:
    """The same member asks again, over another connection: what it asked before is answered, for whoever listens."""
    request_id = group.take_join(member)
    if request_id is not None:
        journal.answer(request_id, refusal(Code.REBALANCE_IN_PROGRESS, "this member sent another JoinGroup meanwhile"))


def _answer_join_with(journal: GroupJournal, group: Group, member: Member, answer: JoinGroupResponse) -> None:
    request_id = group.take_join(member)
    assert request_id is not None
    journal.answer(request_id, answer)


def _size_bytes(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode())


# Sync.


def on_sync(journal: GroupJournal, at: Moment, group: Group, request: SyncGroupRequest, request_id: RequestId) -> None:
    """Tell a member its part, once the leader gave it one.

    Raises:
        KafkaError: UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID, ILLEGAL_GENERATION, INCONSISTENT_GROUP_PROTOCOL, or
            REBALANCE_IN_PROGRESS.
    """
    member = group.member_of_generation(request.member_id, request.group_instance_id, request.generation_id)
    for told, actual in (
        (request.protocol_type, group.protocol_type),
        (request.protocol_name, group.protocol_name),
    ):
        if told is not None and actual is not None and told != actual:
            raise refusal(
                Code.INCONSISTENT_GROUP_PROTOCOL,
                f"group {group.group_id!r} is of type {group.protocol_type!r} with {group.protocol_name!r}, "
                f"not of {request.protocol_type!r} with {request.protocol_name!r}",
            )
    if group.state is GroupState.PREPARING_REBALANCE:
        raise refusal(Code.REBALANCE_IN_PROGRESS, f"group {group.group_id!r} is rebalancing: join again")
    if member.sync_request is not None:
        rebalance.answer_sync(journal, at, group, member, Code.REBALANCE_IN_PROGRESS)
    member.sync_request = request_id
    group.unsynced.discard(member.member_id)
    if not group.unsynced:
        journal.deadlines.cancel(group.sync_alarm)
    if group.state is GroupState.STABLE:
        rebalance.answer_sync(journal, at, group, member)
    elif group.leader_id == member.member_id:
        rebalance.assign(journal, at, group, {one.member_id: one.assignment for one in request.assignments})


# Heartbeat.


def on_heartbeat(
    journal: GroupJournal, at: Moment, group: Group, request: HeartbeatRequest, request_id: RequestId
) -> None:
    """Extend a member's session.

    Raises:
        KafkaError: UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID, ILLEGAL_GENERATION; or REBALANCE_IN_PROGRESS, which extends
            it as well.
    """
    member = group.member_of_generation(request.member_id, request.group_instance_id, request.generation_id)
    if not member.is_new:
        rebalance.extend_session(journal, at, member)
    if group.state is GroupState.PREPARING_REBALANCE:
        raise refusal(Code.REBALANCE_IN_PROGRESS, f"group {group.group_id!r} is rebalancing: join again")
    journal.answer(request_id, HeartbeatResponse())


# Leave.


def on_leave(
    journal: GroupJournal,
    at: Moment,
    group: Group | None,
    request: LeaveGroupRequest,
    request_id: RequestId,
    *,
    api_version: int,
) -> None:
    """Let members go, each on its own; then the others rebalance."""
    identities = (
        request.members if api_version >= LEAVES_IN_BATCHES_SINCE else [MemberIdentity(member_id=request.member_id)]
    )
    results = []
    members_before = len(group.members) if group is not None else 0
    for identity in identities:
        code = Code.NONE
        try:
            if group is None:
                raise refusal(Code.UNKNOWN_MEMBER_ID)
            _leave(journal, group, identity)
        except KafkaError as error:
            code = error.code
        results.append(
            MemberResponse(
                member_id=identity.member_id, group_instance_id=identity.group_instance_id, error_code=code.value
            )
        )
    if group is not None:
        if group.state is GroupState.PREPARING_REBALANCE:
            rebalance.complete_if_all_joined(journal, at, group)
        elif len(group.members) < members_before:
            rebalance.begin(journal, at, group)
    if api_version >= LEAVES_IN_BATCHES_SINCE:
        journal.answer(request_id, LeaveGroupResponse(members=results))
    else:
        journal.answer(request_id, LeaveGroupResponse(error_code=results[0].error_code))


def _leave(journal: GroupJournal, group: Group, identity: MemberIdentity) -> None:
    member_id, instance_id = identity.member_id, identity.group_instance_id
    if member_id in group.pending and instance_id is None:
        rebalance.drop_pending(journal, group, member_id)
        return
    if not member_id and instance_id is not None:
        member_id = group.static_members.get(instance_id, "")  # an administrator knows the name only
    rebalance.drop(journal, group, group.member(member_id, instance_id))

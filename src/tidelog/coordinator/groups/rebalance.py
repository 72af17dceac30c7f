"""The rounds of a classic group: everybody joins, one assigns, everybody learns its part.

Each function moves one group on, and answers those who waited for it.

Kafka: `GroupMetadataManager`.
"""

from __future__ import annotations

from collections.abc import Mapping

from tidelog.base.errors import Code, KafkaError, refusal
from tidelog.coordinator.deadlines import Alarm, Cause
from tidelog.coordinator.groups.group import Change, Group, GroupState
from tidelog.coordinator.groups.group_journal import GroupJournal
from tidelog.coordinator.groups.member import Member
from tidelog.coordinator.groups.records import encode_group, group_key
from tidelog.journal import KeyValue, Moment
from tidelog.wire.messages.api_11_join_group import JoinGroupResponse, JoinGroupResponseMember
from tidelog.wire.messages.api_14_sync_group import SyncGroupResponse

NEW_MEMBER_JOIN_TIMEOUT_MS = 5 * 60_000
"""How long a member may wait for its first generation: it has no id to send heartbeats with."""

ABSENT_WAIT_MS_MIN = 1_000
"""How often at most a group is looked at whose static members are all away."""


def record_of(group: Group) -> KeyValue:
    """The group as it is now, for the log."""
    return group_key(group.group_id), encode_group(group.value())


def extend_session(journal: GroupJournal, at: Moment, member: Member) -> None:
    """The member was heard of, or is told something to react to."""
    journal.deadlines.set(member.session, at.now_ms + member.session_timeout_ms)


def begin(journal: GroupJournal, at: Moment, group: Group) -> None:
    """Members changed: everybody is to join again.

    The first rebalance of an empty group waits for more members, and longer while they keep coming.
    """
    if group.state is GroupState.COMPLETING_REBALANCE:
        for member in group.members.values():
            group.give(member, b"")
            answer_sync(journal, at, group, member, Code.REBALANCE_IN_PROGRESS)
    journal.deadlines.cancel(group.sync_alarm)
    group.unsynced.clear()
    group.is_initial = group.state is GroupState.EMPTY
    group.go(Change.MEMBERS_CHANGED, at.wall_ms)
    if group.is_initial:
        delay_ms = journal.settings.initial_rebalance_delay_ms
        group.has_newcomers = False
        group.initial_wait_left_ms = max(group.rebalance_timeout_ms - delay_ms, 0)
        if delay_ms:
            journal.deadlines.set(group.join_alarm, at.now_ms + delay_ms)
        else:
            complete(journal, at, group)
    elif not complete_if_all_joined(journal, at, group):
        journal.deadlines.set(group.join_alarm, at.now_ms + group.rebalance_timeout_ms)


def begin_or_go_on(journal: GroupJournal, at: Moment, group: Group) -> None:
    """Members changed, be it during a rebalance or not."""
    if group.state is GroupState.PREPARING_REBALANCE:
        complete_if_all_joined(journal, at, group)
    else:
        begin(journal, at, group)


def complete_if_all_joined(journal: GroupJournal, at: Moment, group: Group) -> bool:
    """End the join phase if nobody is waited for. Returns whether it has ended."""
    if group.state is GroupState.PREPARING_REBALANCE and not group.is_initial and group.all_joined:
        complete(journal, at, group)
    return group.state is not GroupState.PREPARING_REBALANCE


def complete(journal: GroupJournal, at: Moment, group: Group) -> None:
    """End the join phase: who has not joined is out, unless it is static."""
    journal.deadlines.cancel(group.join_alarm)
    for member in list(group.members.values()):
        if member.join_request is None and member.instance_id is None:
            drop(journal, group, member)
    if group.members and not group.elect_leader():
        # Static members only, all of them away: they keep their places until their sessions end.
        wait_ms = max(group.rebalance_timeout_ms, ABSENT_WAIT_MS_MIN)
        journal.deadlines.set(group.join_alarm, at.now_ms + wait_ms)
        return
    group.begin_generation(at.wall_ms)
    if not group.members:
        group.is_recorded = True
        journal.write((record_of(group),))
        return
    for member in group.members.values():
        member.is_new = False
        group.unsynced.add(member.member_id)
        if member.join_request is not None:
            answer_join(journal, at, group, member, notifies_members=member.member_id == group.leader_id)
    journal.deadlines.set(group.sync_alarm, at.now_ms + group.rebalance_timeout_ms)


def assign(journal: GroupJournal, at: Moment, group: Group, assignments: Mapping[str, bytes]) -> None:
    """The leader has spoken: record it, then tell everybody who waits. A member it forgot gets nothing."""
    before_bytes = group.size_bytes
    for member in group.members.values():
        group.give(member, assignments.get(member.member_id, b""))
    record = record_of(group)
    has_room = group.size_bytes <= before_bytes or journal.memory.has_room(0)
    if not has_room or not journal.fits((record,)):
        for member in group.members.values():
            group.give(member, b"")
            answer_sync(journal, at, group, member, Code.UNKNOWN_SERVER_ERROR)
        begin(journal, at, group)
        return
    group.is_recorded = True
    journal.write((record,))
    group.go(Change.ASSIGNED, at.wall_ms)
    for member in group.members.values():
        answer_sync(journal, at, group, member)


def drop(journal: GroupJournal, group: Group, member: Member, code: Code = Code.UNKNOWN_MEMBER_ID) -> None:
    """Let a member go, and tell it if it waits."""
    journal.deadlines.cancel(member.session)
    join_request = group.take_join(member)
    if join_request is not None:
        journal.answer(join_request, _removal_error(group, member, code))
    if member.sync_request is not None:
        journal.answer(member.sync_request, _removal_error(group, member, code))
        member.sync_request = None
    group.remove(member)


def drop_pending(journal: GroupJournal, group: Group, member_id: str) -> None:
    """Wait no longer for a member that was given an id."""
    group.forget_pending(member_id)
    journal.deadlines.cancel(Alarm(Cause.SESSION, group.group_id, member_id))


def answer_join(
    journal: GroupJournal,
    at: Moment,
    group: Group,
    member: Member,
    *,
    notifies_members: bool,
    skips_assignment: bool = False,
) -> None:
    """Tell a member that waits which generation it is in."""
    request_id = group.take_join(member)
    if request_id is None:
        return
    extend_session(journal, at, member)
    journal.answer(
        request_id, joined(group, member, notifies_members=notifies_members, skips_assignment=skips_assignment)
    )


def joined(
    group: Group, member: Member, *, notifies_members: bool, skips_assignment: bool = False
) -> JoinGroupResponse:
    """What a member is told of the current generation; the one who assigns is told of the members too."""
    protocol = group.protocol_name
    members = (
        [
            JoinGroupResponseMember(
                member_id=one.member_id, group_instance_id=one.instance_id, metadata=one.metadata(protocol)
            )
            for one in group.members.values()
        ]
        if notifies_members
        else []
    )
    return JoinGroupResponse(
        generation_id=group.generation_id,
        protocol_type=group.protocol_type,
        protocol_name=protocol,
        leader=group.leader_id or "",
        skip_assignment=skips_assignment,
        member_id=member.member_id,
        members=members,
    )


def answer_sync(journal: GroupJournal, at: Moment, group: Group, member: Member, code: Code | None = None) -> None:
    """Tell a member that waits its part, or the error."""
    request_id = member.sync_request
    if request_id is None:
        return
    member.sync_request = None
    extend_session(journal, at, member)
    if code is None:
        journal.answer(request_id, synced(group, member))
    else:
        journal.answer(request_id, refusal(code, f"group {group.group_id!r}: its assignment did not come to pass"))


def synced(group: Group, member: Member) -> SyncGroupResponse:
    """A member's part in the current generation."""
    return SyncGroupResponse(
        protocol_type=group.protocol_type, protocol_name=group.protocol_name, assignment=member.assignment
    )


# Deadlines.


def on_join_due(journal: GroupJournal, at: Moment, group: Group) -> None:
    """The time to join is over. The first rebalance is put off while members keep coming, within their time-out."""
    if group.state is not GroupState.PREPARING_REBALANCE:
        return
    if group.is_initial and group.has_newcomers and group.initial_wait_left_ms > 0:
        group.has_newcomers = False
        delay_ms = min(journal.settings.initial_rebalance_delay_ms, group.initial_wait_left_ms)
        group.initial_wait_left_ms -= delay_ms
        journal.deadlines.set(group.join_alarm, at.now_ms + delay_ms)
    else:
        complete(journal, at, group)


def on_sync_due(journal: GroupJournal, at: Moment, group: Group) -> None:
    """The time to sync is over: whoever did not is out."""
    if group.state not in (GroupState.COMPLETING_REBALANCE, GroupState.STABLE) or not group.unsynced:
        return
    for member_id in sorted(group.unsynced):
        drop(journal, group, group.members[member_id])
    begin(journal, at, group)


def on_session_due(journal: GroupJournal, at: Moment, group: Group, member_id: str) -> None:
    """A session is over: the member is out, unless it waits for us."""
    if member_id in group.pending:
        group.forget_pending(member_id)
        complete_if_all_joined(journal, at, group)
        return
    member = group.members.get(member_id)
    if member is None or (member.is_waiting and not member.is_new):
        return  # a new session begins with the answer
    drop(journal, group, member)
    begin_or_go_on(journal, at, group)


def _removal_error(group: Group, member: Member, code: Code) -> KafkaError:
    return refusal(code, f"group {group.group_id!r}: member {member.member_id!r} is not in it any more")

"""Members of consumer groups that speak the classic protocol, while a group changes from one to the other (KIP-848).

A JoinGroup is a heartbeat that says everything, the member epoch is the generation, and there is no leader: SyncGroup
tells what the coordinator assigned. Who is to join again is told so by its Heartbeat. Kafka: `GroupMetadataManager`.
"""

from __future__ import annotations

from tidelog.base.errors import Code, KafkaError, MalformedMessageError, refusal
from tidelog.base.ids import TopicId
from tidelog.base.ports import Rng
from tidelog.coordinator.groups.consumer.assignment import Assignment, Pace, Pieces
from tidelog.coordinator.groups.consumer.consumer_members import Arrival, ConsumerMembers, has_to_act
from tidelog.coordinator.groups.consumer.conversion import (
    classic_subscription,
    encoded_assignment,
    protocols_of,
    read_subscription,
)
from tidelog.coordinator.groups.consumer.group import ConsumerGroup
from tidelog.coordinator.groups.consumer.heartbeat_checks import check_joining, check_known
from tidelog.coordinator.groups.consumer.known_topics import KnownTopics
from tidelog.coordinator.groups.consumer.member import CurrentAssignment
from tidelog.coordinator.groups.consumer.settings import MigrationPolicy
from tidelog.coordinator.groups.consumer.target_assignments import WaitingMember
from tidelog.coordinator.groups.consumer_group_records import ConsumerMemberState
from tidelog.coordinator.groups.group_journal import GroupJournal
from tidelog.coordinator.groups.membership import LEAVES_IN_BATCHES_SINCE, MEMBER_ID_REQUIRED_SINCE, Joiner
from tidelog.journal import Moment, RequestId
from tidelog.wire.messages.api_11_join_group import JoinGroupResponse
from tidelog.wire.messages.api_12_heartbeat import HeartbeatRequest, HeartbeatResponse
from tidelog.wire.messages.api_13_leave_group import (
    LeaveGroupRequest,
    LeaveGroupResponse,
    MemberIdentity,
    MemberResponse,
)
from tidelog.wire.messages.api_14_sync_group import SyncGroupRequest, SyncGroupResponse
from tidelog.wire.messages.consumer_protocol import PROTOCOL_TYPE, ConsumerProtocolSubscription


class ClassicMembers:
    """Answers their requests. Refusals are raised, before anything changed."""

    def __init__(self, members: ConsumerMembers, journal: GroupJournal, rng: Rng) -> None:
        self._members = members
        self._journal = journal
        self._rng = rng

    def serves(self, group_id: str) -> bool:
        """Whether it is a consumer group with members."""
        group = self._members.groups.get(group_id)
        return group is not None and bool(group.subscriptions)

    def on_join(self, at: Moment, joiner: Joiner) -> bool:
        """Answered without waiting for others.

        Returns:
            Whether it was: where the last member of the consumer protocol is replaced, the group is a classic one now,
            and the joiner joins that.

        Raises:
            KafkaError: INCONSISTENT_GROUP_PROTOCOL, UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID, UNRELEASED_INSTANCE_ID, or
                GROUP_MAX_SIZE_REACHED.
        """
        request = joiner.request
        group = self._members.groups[request.group_id]
        wanted = self._wanted(group, joiner)
        instance_id = request.group_instance_id
        if request.member_id:
            if instance_id is not None or wanted.owned_partitions:
                # Who reads something was a member: what it reads may be another's by now. A new one comes with its id.
                check_known(group, request.member_id, instance_id)
            member_id = request.member_id
        else:
            member_id = f"{joiner.client_id if instance_id is None else instance_id}-{self._rng.uuid()}"
            if instance_id is None and joiner.api_version >= MEMBER_ID_REQUIRED_SINCE:
                come_back = JoinGroupResponse(
                    error_code=Code.MEMBER_ID_REQUIRED.value, protocol_name=None, member_id=member_id
                )
                self._journal.answer(joiner.request_id, come_back)
                return True
        old_id = check_joining(group, member_id, instance_id, self._members.settings_of(group.group_id))
        if old_id is not None and old_id != member_id and self._members.downgrade(group, (old_id,), at):
            return False
        change = self._members.change_of(group)
        if old_id is not None and old_id != member_id:
            change.replace_static(old_id, member_id)
        subscription = classic_subscription(
            wanted,
            joiner.protocols,
            client_id=joiner.client_id,
            client_host=joiner.client_host,
            instance_id=instance_id,
            rebalance_timeout_ms=joiner.rebalance_timeout_ms,
            session_timeout_ms=request.session_timeout_ms,
        )
        owned = _owned(wanted, group.current(member_id), self._members.known)

        def respond(current: CurrentAssignment, pace: Pace) -> Pieces[JoinGroupResponse]:
            yield from ()
            return JoinGroupResponse(
                generation_id=current.member_epoch,
                protocol_type=PROTOCOL_TYPE,
                protocol_name=joiner.protocols[0][0],
                leader="",
                member_id=member_id,
            )

        arriving = WaitingMember(joiner.request_id, member_id, owned, respond)
        self._members.admit(change, arriving, subscription, Arrival(old_id), at)
        return True

    def on_sync(self, request: SyncGroupRequest, request_id: RequestId) -> None:
        """Tell a member what it may read.

        Raises:
            KafkaError: UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID, ILLEGAL_GENERATION, INCONSISTENT_GROUP_PROTOCOL, or
                REBALANCE_IN_PROGRESS.
        """
        group = self._members.groups[request.group_id]
        current = self._checked(group, request.member_id, request.group_instance_id, request.generation_id)
        classic = group.subscriptions[request.member_id].classic
        assert classic is not None
        name, metadata = protocols_of(classic)[0]
        if request.protocol_type not in (None, PROTOCOL_TYPE) or request.protocol_name not in (None, name):
            raise refusal(
                Code.INCONSISTENT_GROUP_PROTOCOL,
                f"group {group.group_id!r}: the member joined with {name!r} of {PROTOCOL_TYPE!r}, not with "
                f"{request.protocol_name!r} of {request.protocol_type!r}",
            )
        if current.state is not ConsumerMemberState.UNREVOKED_PARTITIONS and has_to_act(group, request.member_id):
            raise _rejoin(group)
        part = {topic: frozenset(partitions) for topic, partitions in current.assigned.items()}
        assignment = encoded_assignment(part, self._members.known, metadata)
        self._journal.answer(
            request_id, SyncGroupResponse(protocol_type=PROTOCOL_TYPE, protocol_name=name, assignment=assignment)
        )

    def on_heartbeat(self, at: Moment, request: HeartbeatRequest, request_id: RequestId) -> None:
        """Extend a member's session.

        Raises:
            KafkaError: UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID, ILLEGAL_GENERATION; or REBALANCE_IN_PROGRESS, which
                extends it as well.
        """
        group = self._members.groups[request.group_id]
        member_id = request.member_id
        self._checked(group, member_id, request.group_instance_id, request.generation_id)
        self._members.refresh(group, at)
        self._members.watch(group, member_id, at, is_session=True)
        if has_to_act(group, member_id) or _may_have_more(group, member_id):
            self._members.await_member(group, member_id, at)
            raise _rejoin(group)
        self._journal.answer(request_id, HeartbeatResponse())

    def on_leave(self, at: Moment, request: LeaveGroupRequest, request_id: RequestId, *, api_version: int) -> None:
        """Let members go, whichever protocol they speak: an administrator may name any. All go at once."""
        group = self._members.groups[request.group_id]
        is_batch = api_version >= LEAVES_IN_BATCHES_SINCE
        results = []
        leaving_ids: dict[str, None] = {}
        for one in request.members if is_batch else [MemberIdentity(member_id=request.member_id)]:
            code = Code.NONE
            member_id = one.member_id
            try:
                if not member_id and one.group_instance_id is not None:
                    member_id = group.static_members.get(one.group_instance_id, "")
                check_known(group, member_id, one.group_instance_id)
                leaving_ids[member_id] = None
            except KafkaError as error:
                code = error.code
            results.append(
                MemberResponse(member_id=one.member_id, group_instance_id=one.group_instance_id, error_code=code.value)
            )
        if leaving_ids:
            self._members.remove(group, leaving_ids, at)
        answer = (
            LeaveGroupResponse(members=results) if is_batch else LeaveGroupResponse(error_code=results[0].error_code)
        )
        self._journal.answer(request_id, answer)

    def _wanted(self, group: ConsumerGroup, joiner: Joiner) -> ConsumerProtocolSubscription:
        policy = self._members.settings_of(group.group_id).migration_policy
        names = {name for name, _ in joiner.protocols}
        for member_id, one in group.subscriptions.items():
            if one.classic is not None and member_id != joiner.request.member_id:
                names &= {name for name, _ in protocols_of(one.classic)}
        if policy is not MigrationPolicy.DISABLED and joiner.request.protocol_type == PROTOCOL_TYPE and names:
            try:
                return read_subscription(joiner.protocols[0][1])
            except MalformedMessageError:
                pass  # told by what follows
        raise refusal(
            Code.INCONSISTENT_GROUP_PROTOCOL,
            f"group {group.group_id!r} is a consumer group; type {joiner.request.protocol_type!r} with "
            f"{[name for name, _ in joiner.protocols]} does not fit in (group.consumer.migration.policy is "
            f"{policy.value})",
        )

    def _checked(
        self, group: ConsumerGroup, member_id: str, instance_id: str | None, generation_id: int
    ) -> CurrentAssignment:
        check_known(group, member_id, instance_id)
        if group.subscriptions[member_id].classic is None:
            raise refusal(
                Code.UNKNOWN_MEMBER_ID, f"group {group.group_id!r}: {member_id!r} does not speak the classic protocol"
            )
        current = group.current(member_id)
        if generation_id != current.member_epoch:
            raise refusal(
                Code.ILLEGAL_GENERATION,
                f"group {group.group_id!r}: the member is at {current.member_epoch}, not {generation_id}: join again",
            )
        return current


def _rejoin(group: ConsumerGroup) -> KafkaError:
    return refusal(Code.REBALANCE_IN_PROGRESS, f"group {group.group_id!r} is rebalancing: join again")


def _may_have_more(group: ConsumerGroup, member_id: str) -> bool:
    """Whether a partition that a member waits for is free by now."""
    current = group.current(member_id)
    if current.state is not ConsumerMemberState.UNRELEASED_PARTITIONS:
        return False
    return any(
        group.owner(topic, partition) is None
        for topic, partitions in group.target(member_id).items()
        for partition in partitions
    )


def _owned(wanted: ConsumerProtocolSubscription, current: CurrentAssignment, known: KnownTopics) -> Assignment:
    """What a member says that it reads. Of the generation before that counts too: it may have missed our last answer.

    Of any other it is worth nothing; old clients do not name theirs.
    """
    if wanted.generation_id >= 0 and wanted.generation_id not in (current.member_epoch, current.previous_epoch):
        return {}
    owned: dict[TopicId, frozenset[int]] = {}
    for one in wanted.owned_partitions:
        for topic in known.ids((one.topic,)):
            owned[topic] = owned.get(topic, frozenset()).union(one.partitions)
    return owned

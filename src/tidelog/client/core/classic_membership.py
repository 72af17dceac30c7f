"""A member of a classic group: JoinGroup, SyncGroup, Heartbeat, LeaveGroup.

    OUT --JoinGroup--> JOINED --(the leader divides)--> SyncGroup --> STABLE --Heartbeat--> STABLE
     ^                                                                  |
     +-------- REBALANCE_IN_PROGRESS, or what it subscribes to changed -+

With an assignor that is not cooperative the caller gives up all it has before the member joins again (eager). With one
that is, it keeps what it has, and joins once more after it gave up what became another's (KIP-429).
Kafka: `ConsumerCoordinator`, `AbstractCoordinator`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from enum import Enum

from tidelog.base.errors import Code, MalformedMessageError
from tidelog.base.ids import TopicPartition
from tidelog.client.core.assignors import (
    ASSIGNORS,
    STICKY,
    Subscriber,
    partitions_of,
    read_sticky_user_data,
    rows_of,
    sticky_user_data,
)
from tidelog.client.core.membership import NO_EPOCH, KnownTopic, Membership, MembershipConfig
from tidelog.client.core.values import Rebalance, RebalanceKind
from tidelog.wire.compile import encode
from tidelog.wire.messages.api_11_join_group import (
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
    JoinGroupResponseMember,
)
from tidelog.wire.messages.api_12_heartbeat import HeartbeatRequest, HeartbeatResponse
from tidelog.wire.messages.api_13_leave_group import LeaveGroupRequest, MemberIdentity
from tidelog.wire.messages.api_14_sync_group import SyncGroupRequest, SyncGroupRequestAssignment, SyncGroupResponse
from tidelog.wire.messages.consumer_protocol import (
    PROTOCOL_TYPE,
    VERSION_MAX,
    VERSION_SIZE_BYTES,
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    assigned_partitions,
    read_subscription,
)

_FIRST_WITH_SEVERAL_MEMBERS = 3
"""Of LeaveGroup."""
_ASSIGNMENT_VERSION = 1
_OUT = frozenset((Code.UNKNOWN_MEMBER_ID, Code.ILLEGAL_GENERATION))


class _State(Enum):
    OUT = "it joins, or joins again"
    JOINED = "it asks for its part"
    STABLE = "it has it"


class ClassicMembership(Membership):
    """See the module."""

    def __init__(self, config: MembershipConfig, retry_delay_ms: Callable[[int], int]) -> None:
        super().__init__(config, retry_delay_ms)
        self._state = _State.OUT
        self._assignors = [ASSIGNORS[name] for name in config.strategies]
        self._is_cooperative = all(assignor.is_cooperative for assignor in self._assignors)
        self._protocol_name = ""
        self._members: list[JoinGroupResponseMember] | None = None  # of whoever leads
        self._keeps_assignment = False
        self._divided: dict[str, KnownTopic | None] | None = None  # the topics when it divided them, if it did
        self._target: frozenset[TopicPartition] | None = None  # None: there is nothing to change
        self._must_join_again = False
        self._joined_with: frozenset[str] = frozenset()
        self._last_owned: frozenset[TopicPartition] = frozenset()
        self._owned_since = NO_EPOCH

    # What to do.
    @property
    def topics_to_divide(self) -> frozenset[str] | None:
        """The topics of all members, whose partitions it is to divide, or to look after; None if it does not lead."""
        if self._state is not _State.JOINED or self._members is None:
            return None
        return frozenset().union(*(one.topics for one in self._subscribers(self._members)))

    def _due(self, now_ms: int) -> object | None:
        config = self.config
        if self._state is _State.JOINED:
            wanted = self.topics_to_divide
            if wanted is None or all(topic in self._known for topic in wanted):
                return self._sync()
        elif self._must_join and self._told is None and self._change() is None:
            return self._join()
        if not self._sends_heartbeats or now_ms < self._heartbeat_due_ms:
            return None
        return HeartbeatRequest(
            group_id=config.group_id,
            generation_id=self.epoch,
            member_id=self.member_id,
            group_instance_id=config.instance_id,
        )

    @property
    def _must_join(self) -> bool:
        return bool(self._topics) and (self._state is _State.OUT or self._must_join_again)

    def _join(self) -> JoinGroupRequest:
        config = self.config
        self._joined_with = self._topics
        return JoinGroupRequest(
            group_id=config.group_id,
            session_timeout_ms=config.session_timeout_ms,
            rebalance_timeout_ms=config.rebalance_timeout_ms,
            member_id=self.member_id,
            group_instance_id=config.instance_id,
            protocol_type=PROTOCOL_TYPE,
            protocols=[JoinGroupRequestProtocol(one.name, self._subscription(one.name)) for one in self._assignors],
        )

    def _subscription(self, assignor: str) -> bytes:
        user_data = None
        if assignor == STICKY:
            user_data = sticky_user_data(self._last_owned, self._owned_since)
        value = ConsumerProtocolSubscription(
            topics=sorted(self._topics),
            user_data=user_data,
            owned_partitions=rows_of(self.owned),
            generation_id=self._owned_since,
            rack_id=self.config.rack,
        )
        return _versioned(VERSION_MAX, encode(value, VERSION_MAX))

    def _sync(self) -> SyncGroupRequest:
        assignments = []
        subscribers = self._subscribers(self._members or ())
        if self._members is not None:
            self._divided = {topic: self._known.get(topic) for one in subscribers for topic in one.topics}
        if self._divided is not None and not self._keeps_assignment:
            counts = {topic: known.partition_count for topic, known in self._divided.items() if known is not None}
            divided = ASSIGNORS[self._protocol_name].assign(subscribers, counts)
            for member_id, partitions in divided.items():
                value = ConsumerProtocolAssignment(assigned_partitions=rows_of(frozenset(partitions)))
                encoded = _versioned(_ASSIGNMENT_VERSION, encode(value, _ASSIGNMENT_VERSION))
                assignments.append(SyncGroupRequestAssignment(member_id, encoded))
        return SyncGroupRequest(
            group_id=self.config.group_id,
            generation_id=self.epoch,
            member_id=self.member_id,
            group_instance_id=self.config.instance_id,
            protocol_type=PROTOCOL_TYPE,
            protocol_name=self._protocol_name,
            assignments=assignments,
        )

    def _subscribers(self, members: Iterable[JoinGroupResponseMember]) -> list[Subscriber]:
        found = []
        for member in members:
            said = read_subscription(member.metadata)
            owned, generation = partitions_of(said.owned_partitions), said.generation_id
            if self._protocol_name == STICKY and said.user_data:
                owned, generation = read_sticky_user_data(said.user_data)
            found.append(
                Subscriber(member.member_id, frozenset(said.topics), owned, generation, member.group_instance_id)
            )
        return found

    @property
    def assigned(self) -> frozenset[TopicPartition] | None:
        return self._target

    # What happened.
    def on_response(self, request: object, response: object, now_ms: int) -> Code:
        assert isinstance(response, JoinGroupResponse | SyncGroupResponse | HeartbeatResponse)
        code = self._took(request, response.error_code)
        if code is None:
            return Code.NONE
        if code is Code.NONE:
            self._failures = 0
            if isinstance(response, JoinGroupResponse):
                self._on_joined(response)
            elif isinstance(response, SyncGroupResponse):
                self._on_synced(response)
            self._heartbeat_due_ms = now_ms + self.config.heartbeat_interval_ms
        elif code is Code.MEMBER_ID_REQUIRED and isinstance(response, JoinGroupResponse):
            self.member_id = response.member_id
        elif code is Code.REBALANCE_IN_PROGRESS:
            self._must_join_again = True
            self._target = None  # there will be another
            self._heartbeat_due_ms = now_ms + self.config.heartbeat_interval_ms
            if not isinstance(response, HeartbeatResponse):
                self._state = _State.OUT
                self._not_before_ms = now_ms + self._retry_delay_ms(1)
        elif code in _OUT:
            if code is Code.UNKNOWN_MEMBER_ID:
                self.member_id = ""
            self._out()
        else:
            self._on_failure(code, None, now_ms)
            if not code.retriable:
                self._out()
        return code

    def on_topics(self, known: Mapping[str, KnownTopic | None]) -> None:
        super().on_topics(known)
        if self._divided is not None and self._state is _State.STABLE:
            now = {topic: known.get(topic, before) for topic, before in self._divided.items()}
            self._must_join_again = self._must_join_again or now != self._divided

    def _on_joined(self, response: JoinGroupResponse) -> None:
        self.member_id = response.member_id
        self.epoch = response.generation_id
        self._protocol_name = response.protocol_name or ""
        self._members = response.members if response.leader == response.member_id else None
        self._keeps_assignment = response.skip_assignment
        self._divided = None
        self._must_join_again = self._topics != self._joined_with
        self._state = _State.JOINED
        if self._members is not None:
            try:
                self._subscribers(self._members)
            except MalformedMessageError as error:
                self._members = None
                self._on_failure(Code.INCONSISTENT_GROUP_PROTOCOL, f"a member's subscription: {error}", 0)

    def _on_synced(self, response: SyncGroupResponse) -> None:
        try:
            self._target = frozenset(assigned_partitions(response.assignment))
        except MalformedMessageError as error:
            self._on_failure(Code.INCONSISTENT_GROUP_PROTOCOL, f"the leader's assignment: {error}", 0)
            return
        self._state = _State.STABLE
        self._members = None
        self._owned_since = self.epoch
        self._last_owned = self._target
        if self._target == self.owned:
            self._target = None
        self.on_topics(self._known)  # they may have changed since it divided them

    # How.
    @property
    def _sends_heartbeats(self) -> bool:
        return self.epoch != NO_EPOCH and self._state is _State.STABLE

    @property
    def _may_be_member(self) -> bool:
        return bool(self.member_id)

    @property
    def _is_settled(self) -> bool:
        return self._state is _State.STABLE and not self._must_join

    def _change(self) -> Rebalance | None:
        if self._target is not None:
            gone, new = self.owned - self._target, self._target - self.owned
            if gone:
                return Rebalance(RebalanceKind.REVOKED, gone)
            return Rebalance(RebalanceKind.ASSIGNED, new) if new else None
        if self._must_join and not self._is_cooperative and self.owned:
            return Rebalance(RebalanceKind.REVOKED, self.owned)
        return None

    def _on_told(self, rebalance: Rebalance) -> None:
        if rebalance.kind is RebalanceKind.REVOKED and self._is_cooperative:
            self._must_join_again = True  # what it gave up is given to another only then
        if self._target == self.owned:
            self._target = None

    def _on_subscription(self) -> None:
        self._must_join_again = True

    def _leaving(self, version: int) -> object | None:
        if self.config.instance_id is not None:
            return None  # it means to come back: its partitions are kept for it
        member_id, self.member_id = self.member_id, ""
        if version < _FIRST_WITH_SEVERAL_MEMBERS:
            return LeaveGroupRequest(group_id=self.config.group_id, member_id=member_id)
        return LeaveGroupRequest(group_id=self.config.group_id, members=[MemberIdentity(member_id=member_id)])

    def _out(self) -> None:
        super()._out()
        self._state = _State.OUT
        self._target = self._members = self._divided = None
        self._owned_since = NO_EPOCH


def _versioned(version: int, value: bytes) -> bytes:
    return version.to_bytes(VERSION_SIZE_BYTES) + value

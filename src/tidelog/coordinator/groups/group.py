"""One classic group: who is in it, in which generation, and what its state allows.

```
        ┌──────────── members changed ────────────┐
        ▼                                         │
     Empty ── first member ──► PreparingRebalance ── all joined ──► CompletingRebalance ── assigned ──► Stable
        ▲                        │            ▲                              │                           │
        └──────── all left ──────┘            └──────────────────────────────┴───── members changed ─────┘
        │
        └── deleted or forgotten ──► Dead
```

Kafka: `ClassicGroup`.
"""

from __future__ import annotations

from collections import Counter
from enum import Enum, StrEnum

from tidelog.base.errors import Code, MalformedMessageError, refusal
from tidelog.base.invariant import invariant
from tidelog.coordinator.deadlines import Alarm, Cause
from tidelog.coordinator.groups.member import MEMBER_BYTES, Member, Protocols, protocols_bytes
from tidelog.coordinator.groups.records import GroupMetadataValue, MemberMetadata
from tidelog.coordinator.memory import CoordinatorMemory
from tidelog.journal import RequestId
from tidelog.wire.messages.consumer_protocol import PROTOCOL_TYPE as CONSUMER_PROTOCOL_TYPE
from tidelog.wire.messages.consumer_protocol import subscribed_topics

GROUP_BYTES = 1_024
DOWNGRADED_MS = 0
"""The time of the state in the record of a group that was one of the new protocol until now (KIP-848): its members hold
what they held there, and are to join again."""
"""About what a group takes beside its name and its members."""


class GroupState(StrEnum):
    """The states, by the names that ListGroups shows."""

    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


class Change(Enum):
    """What moves a group to another state."""

    MEMBERS_CHANGED = "members came, went, or want something else"
    ALL_JOINED = "all that are left have joined"
    ALL_LEFT = "nobody is left to join"
    ASSIGNED = "the leader has assigned"
    RESTORED = "a generation was read from the log"
    DELETED = "it was deleted, or there is nothing left to remember"


TRANSITIONS: dict[tuple[GroupState, Change], GroupState] = {
    (GroupState.EMPTY, Change.MEMBERS_CHANGED): GroupState.PREPARING_REBALANCE,
    (GroupState.EMPTY, Change.RESTORED): GroupState.STABLE,
    (GroupState.EMPTY, Change.DELETED): GroupState.DEAD,
    (GroupState.PREPARING_REBALANCE, Change.ALL_JOINED): GroupState.COMPLETING_REBALANCE,
    (GroupState.PREPARING_REBALANCE, Change.ALL_LEFT): GroupState.EMPTY,
    (GroupState.COMPLETING_REBALANCE, Change.ASSIGNED): GroupState.STABLE,
    (GroupState.COMPLETING_REBALANCE, Change.MEMBERS_CHANGED): GroupState.PREPARING_REBALANCE,
    (GroupState.STABLE, Change.MEMBERS_CHANGED): GroupState.PREPARING_REBALANCE,
}
"""What is absent is a bug."""


class Group:
    """A classic group. Changes nothing but itself, and answers nobody: `rebalance` and `membership` do.

    Attributes:
        generation_id: grows with every completed join phase.
        state_timestamp_ms: of the wall clock; since when the group is in its state.
        is_recorded: whether the log holds a record of it.
        pending: ids that were given to members who have not come back with them (KIP-394).
        unsynced: members of this generation that have not sent SyncGroup.
        is_initial: whether this is the first rebalance after the group was empty, which waits for more members.
        has_newcomers: whether more came during its last wait.
        initial_wait_left_ms: how much longer it may wait at most.
        size_bytes: about what it takes in memory.
    """

    def __init__(self, group_id: str, memory: CoordinatorMemory) -> None:
        self.group_id = group_id
        self._memory = memory
        self.size_bytes = 0
        self.state = GroupState.EMPTY
        self.protocol_type: str | None = None
        self.protocol_name: str | None = None
        self.generation_id = 0
        self.leader_id: str | None = None
        self.state_timestamp_ms: int | None = None
        self.is_recorded = False
        self.members: dict[str, Member] = {}
        self._supporters: Counter[str] = Counter()  # how many members support each protocol
        self._joined_count = 0
        self.static_members: dict[str, str] = {}
        self.pending: set[str] = set()
        self.unsynced: set[str] = set()
        self.is_initial = False
        self.has_newcomers = False
        self.initial_wait_left_ms = 0
        self.join_alarm = Alarm(Cause.JOIN, group_id, "")
        self.sync_alarm = Alarm(Cause.SYNC, group_id, "")
        self._resize(GROUP_BYTES + 2 * len(group_id))

    # What it is.

    @property
    def is_forgettable(self) -> bool:
        """Whether nothing would be lost with it (its offsets are kept elsewhere)."""
        return self.state is GroupState.EMPTY and not self.pending and not self.is_recorded

    @property
    def rebalance_timeout_ms(self) -> int:
        """How long members have to join: the longest that any of them asked for."""
        return max((member.rebalance_timeout_ms for member in self.members.values()), default=0)

    @property
    def all_joined(self) -> bool:
        """Whether nobody is waited for."""
        return not self.pending and self._joined_count == len(self.members)

    @property
    def joined_count(self) -> int:
        """How many members wait for the answer to their JoinGroup."""
        return self._joined_count

    def member(self, member_id: str, instance_id: str | None) -> Member:
        """The member of an id.

        Raises:
            KafkaError: UNKNOWN_MEMBER_ID; or FENCED_INSTANCE_ID if its instance id has another member now.
        """
        if instance_id is not None:
            current_id = self.static_members.get(instance_id)
            if current_id is None:
                raise refusal(
                    Code.UNKNOWN_MEMBER_ID, f"group {self.group_id!r} has no static member {instance_id!r}: join again"
                )
            if current_id != member_id:
                raise refusal(
                    Code.FENCED_INSTANCE_ID,
                    f"group {self.group_id!r}: static member {instance_id!r} is {current_id!r} now, not {member_id!r}",
                )
        member = self.members.get(member_id)
        if member is None:
            raise refusal(Code.UNKNOWN_MEMBER_ID, f"group {self.group_id!r} has no member {member_id!r}: join again")
        return member

    def member_of_generation(self, member_id: str, instance_id: str | None, generation_id: int) -> Member:
        """The member, if it is of the current generation.

        Raises:
            KafkaError: as `member` does, and ILLEGAL_GENERATION.
        """
        member = self.member(member_id, instance_id)
        if generation_id != self.generation_id:
            raise refusal(
                Code.ILLEGAL_GENERATION,
                f"group {self.group_id!r} is at generation {self.generation_id}, not {generation_id}: join again",
            )
        return member

    def supports(self, protocol_type: str, protocols: Protocols) -> bool:
        """Whether a member with these protocols fits in."""
        if self.state is GroupState.EMPTY or not self.members:
            return bool(protocol_type and protocols)
        everybody = len(self.members)
        return protocol_type == self.protocol_type and any(self._supporters[name] == everybody for name, _ in protocols)

    def common_protocols(self) -> set[str]:
        """Those that all members support."""
        everybody = len(self.members)
        return {name for name, count in self._supporters.items() if count == everybody}

    def chosen_protocol(self) -> str:
        """The common protocol that most members prefer; among equals, the one first voted for."""
        common = self.common_protocols()
        votes = Counter(member.vote(common) for member in self.members.values())
        invariant(common and None not in votes, "group {}: its members have no protocol in common", self.group_id)
        return str(votes.most_common(1)[0][0])

    def wanted_topics(self) -> frozenset[str] | None:
        """The topics that members are subscribed to; None where that cannot be told, and may be any."""
        if self.members and self.protocol_type != CONSUMER_PROTOCOL_TYPE:
            return None
        wanted: set[str] = set()
        try:
            for member in self.members.values():
                for _, metadata in member.protocols:
                    wanted |= subscribed_topics(metadata)
        except MalformedMessageError:
            return None
        return frozenset(wanted)

    # What changes it.

    def go(self, change: Change, wall_ms: int) -> None:
        """Move to the state that a change leads to."""
        state = TRANSITIONS.get((self.state, change))
        invariant(state is not None, "group {}: no way from {} by {}", self.group_id, self.state, change)
        assert state is not None
        self.state = state
        self.state_timestamp_ms = wall_ms
        if state is GroupState.DEAD:
            self.release()

    def add(self, member: Member, protocol_type: str) -> None:
        """Take a member in."""
        invariant(member.member_id not in self.members, "group {}: {} twice", self.group_id, member.member_id)
        if not self.members:
            self.protocol_type = protocol_type
        self.members[member.member_id] = member
        self._supporters.update({name for name, _ in member.protocols})
        self._resize(member.size_bytes)
        self.forget_pending(member.member_id)
        if member.instance_id is not None:
            self.static_members[member.instance_id] = member.member_id
        if self.leader_id is None:
            self.leader_id = member.member_id

    def remove(self, member: Member) -> None:
        """Let a member go, who waits for nothing any more; another one leads if it did."""
        invariant(not member.is_waiting, "group {}: {} still waits", self.group_id, member.member_id)
        del self.members[member.member_id]
        self._withdraw(member)
        self._resize(-member.size_bytes)
        self.unsynced.discard(member.member_id)
        if member.instance_id is not None and self.static_members.get(member.instance_id) == member.member_id:
            del self.static_members[member.instance_id]
        if self.leader_id == member.member_id:
            self.leader_id = next(iter(self.members), None)

    def update(self, member: Member, protocols: Protocols, rebalance_timeout_ms: int, session_timeout_ms: int) -> None:
        """Note what a member wants now."""
        self._withdraw(member)
        self._resize(protocols_bytes(protocols) - protocols_bytes(member.protocols))
        member.protocols = protocols
        self._supporters.update({name for name, _ in protocols})
        member.rebalance_timeout_ms = rebalance_timeout_ms
        member.session_timeout_ms = session_timeout_ms

    def give(self, member: Member, assignment: bytes) -> None:
        """Note a member's part of the work."""
        self._resize(2 * (len(assignment) - len(member.assignment)))
        member.assignment = assignment

    def add_pending(self, member_id: str) -> None:
        """An id was given to somebody who is to come back with it."""
        self.pending.add(member_id)
        self._resize(MEMBER_BYTES + len(member_id))

    def forget_pending(self, member_id: str) -> None:
        """Nobody is waited for who was given this id."""
        if member_id in self.pending:
            self.pending.discard(member_id)
            self._resize(-MEMBER_BYTES - len(member_id))

    def charge(self, memory: CoordinatorMemory) -> None:
        """Have what it takes count there from now on."""
        self._memory.used_bytes -= self.size_bytes
        self._memory = memory
        memory.used_bytes += self.size_bytes

    def release(self) -> None:
        """Give back the memory of a group that was removed."""
        self._resize(-self.size_bytes)

    def _resize(self, more_bytes: int) -> None:
        self.size_bytes += more_bytes
        self._memory.used_bytes += more_bytes

    def park_join(self, member: Member, request_id: RequestId) -> None:
        """Let a JoinGroup wait."""
        invariant(member.join_request is None, "group {}: {} joins twice", self.group_id, member.member_id)
        member.join_request = request_id
        self._joined_count += 1

    def take_join(self, member: Member) -> RequestId | None:
        """The JoinGroup that waits, to be answered now."""
        request_id = member.join_request
        if request_id is not None:
            member.join_request = None
            self._joined_count -= 1
        return request_id

    def _withdraw(self, member: Member) -> None:
        for name in {name for name, _ in member.protocols}:
            self._supporters[name] -= 1
            if not self._supporters[name]:
                del self._supporters[name]

    def replace(self, member: Member, member_id: str) -> None:
        """Give a static member the id under which it came back; it keeps its place, and its assignment."""
        old_id = member.member_id
        self.members = {
            member_id if one_id == old_id else one_id: one for one_id, one in self.members.items()
        }  # in the same order
        self._resize(-member.size_bytes)
        member.rename(member_id)
        self._resize(member.size_bytes)
        assert member.instance_id is not None
        self.static_members[member.instance_id] = member_id
        if old_id in self.unsynced:
            self.unsynced.discard(old_id)
            self.unsynced.add(member_id)
        if self.leader_id == old_id:
            self.leader_id = member_id

    def elect_leader(self) -> bool:
        """Let somebody lead who has joined: the leader as it is, if possible. False if nobody has."""
        leader = self.members.get(self.leader_id) if self.leader_id is not None else None
        if leader is not None and leader.join_request is not None:
            return True
        joined = next((one for one in self.members.values() if one.join_request is not None), None)
        if joined is not None:
            self.leader_id = joined.member_id
        return joined is not None

    def begin_generation(self, wall_ms: int) -> None:
        """End the join phase, and begin a generation."""
        self.generation_id = self.generation_id + 1 if self.generation_id < 2**31 - 1 else 1
        self.is_initial = False
        if self.members:
            self.protocol_name = self.chosen_protocol()
            self.go(Change.ALL_JOINED, wall_ms)
        else:
            self.protocol_name = None
            self.leader_id = None
            self.go(Change.ALL_LEFT, wall_ms)

    # How it is recorded.

    def value(self) -> GroupMetadataValue:
        """What the log is to say of it."""
        return GroupMetadataValue(
            protocol_type=self.protocol_type or "",
            generation=self.generation_id,
            protocol=self.protocol_name,
            leader=self.leader_id,
            current_state_timestamp=-1 if self.state_timestamp_ms is None else self.state_timestamp_ms,
            members=[
                MemberMetadata(
                    member_id=member.member_id,
                    group_instance_id=member.instance_id,
                    client_id=member.client_id,
                    client_host=member.client_host,
                    rebalance_timeout=member.rebalance_timeout_ms,
                    session_timeout=member.session_timeout_ms,
                    subscription=member.metadata(self.protocol_name),
                    assignment=member.assignment,
                )
                for member in self.members.values()
            ],
        )


def restored(group_id: str, value: GroupMetadataValue, memory: CoordinatorMemory) -> Group:
    """The group that a record of the log tells of: empty, or in the generation that it was in."""
    group = Group(group_id, memory)
    group.is_recorded = True
    group.protocol_type = value.protocol_type or None
    group.generation_id = value.generation
    for recorded in value.members:
        member = Member(
            group_id=group_id,
            member_id=recorded.member_id,
            instance_id=recorded.group_instance_id,
            client_id=recorded.client_id,
            client_host=recorded.client_host,
            rebalance_timeout_ms=(
                recorded.rebalance_timeout if recorded.rebalance_timeout >= 0 else recorded.session_timeout
            ),
            session_timeout_ms=recorded.session_timeout,
            protocols=((value.protocol or "", recorded.subscription),),
            assignment=recorded.assignment,
        )
        group.add(member, value.protocol_type)
    group.protocol_name = value.protocol
    group.leader_id = value.leader
    if group.members:
        group.go(Change.RESTORED, value.current_state_timestamp)
    group.state_timestamp_ms = None if value.current_state_timestamp < 0 else value.current_state_timestamp
    return group

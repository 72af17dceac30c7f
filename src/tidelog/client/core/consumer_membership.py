"""A member of a group of KIP-848's protocol: all of it by ConsumerGroupHeartbeat.

The coordinator divides the partitions. The member says what it reads, and is told what it is to read. It gives up first
what is not in that, and says so. Then it is given what others gave up.
Kafka: `ConsumerMembershipManager`, `ConsumerHeartbeatRequestManager`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from uuid import UUID

from tidelog.base.errors import Code
from tidelog.base.ids import PartitionIndex, TopicId, TopicPartition
from tidelog.client.core.membership import NO_EPOCH, KnownTopic, Membership, MembershipConfig
from tidelog.client.core.values import Rebalance, RebalanceKind
from tidelog.wire.messages.api_68_consumer_group_heartbeat import (
    JOIN_MEMBER_EPOCH,
    LEAVE_MEMBER_EPOCH,
    LEAVE_STATIC_MEMBER_EPOCH,
    ConsumerGroupHeartbeatPartitions,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)

_OUT = frozenset((Code.UNKNOWN_MEMBER_ID, Code.FENCED_MEMBER_EPOCH))


class ConsumerMembership(Membership):
    """See the module.

    Args:
        member_id: it makes its own (KIP-1082).
    """

    def __init__(self, config: MembershipConfig, retry_delay_ms: Callable[[int], int], *, member_id: UUID) -> None:
        super().__init__(config, retry_delay_ms)
        self.member_id = str(member_id)
        self._pattern: str | None = None
        self._has_joined = False  # or has asked to
        self._says_all = True  # nobody knows what the coordinator has heard of
        self._says_topics = False
        self._says_owned = False
        self._target: dict[TopicId, Sequence[int]] | None = None  # as it was told last; None: nothing yet
        self._names: dict[TopicId, str] = {}

    # What the caller wants.
    def subscribe_to_pattern(self, pattern: str) -> None:
        """Read the topics whose whole name the coordinator finds to match, from now on (RE2)."""
        if self._pattern != pattern:
            self._pattern = pattern
            self._says_topics = True
        self.subscribe(())

    # What to do.
    @property
    def unnamed(self) -> list[TopicId]:
        """Topics that it is to read, of which it has to be told the names."""
        return sorted(self._target.keys() - self._names.keys()) if self._target is not None else []

    def _due(self, now_ms: int) -> object | None:
        is_news = self._says_owned or self._says_topics or self._says_all
        if self.epoch != NO_EPOCH and now_ms < self._heartbeat_due_ms and not is_news:
            return None
        if self.epoch == NO_EPOCH and (self._told is not None or not (self._topics or self._pattern)):
            return None
        config = self.config
        is_joining = self.epoch == NO_EPOCH
        self._has_joined = True
        request = ConsumerGroupHeartbeatRequest(
            group_id=config.group_id,
            member_id=self.member_id,
            member_epoch=JOIN_MEMBER_EPOCH if is_joining else self.epoch,
        )
        request.instance_id = config.instance_id
        if is_joining or self._says_all:
            request.rack_id = config.rack
            request.rebalance_timeout_ms = config.rebalance_timeout_ms
            request.server_assignor = config.remote_assignor
        if is_joining or self._says_all or self._says_topics:
            request.subscribed_topic_names = sorted(self._topics)
            request.subscribed_topic_regex = self._pattern
        if is_joining or self._says_all or self._says_owned:
            request.topic_partitions = self._rows()
        self._says_all = self._says_topics = self._says_owned = False
        return request

    @property
    def assigned(self) -> frozenset[TopicPartition] | None:
        if self._target is None:
            return None
        return frozenset(
            TopicPartition(self._names[topic_id], PartitionIndex(index))
            for topic_id, indexes in self._target.items()
            if topic_id in self._names
            for index in indexes
        )

    # What happened.
    def on_response(self, request: object, response: object, now_ms: int) -> Code:
        assert isinstance(response, ConsumerGroupHeartbeatResponse)
        code = self._took(request, response.error_code)
        if code is None:
            return Code.NONE
        if code is Code.NONE:
            self._failures = 0
            self.epoch = response.member_epoch
            self._heartbeat_due_ms = now_ms + response.heartbeat_interval_ms
            if response.assignment is not None:
                self._target = {TopicId(row.topic_id): row.partitions for row in response.assignment.topic_partitions}
                self._says_owned = self._change() is None  # it has heard it, though that changes nothing
        elif code in _OUT or (code is Code.GROUP_ID_NOT_FOUND and self.epoch != NO_EPOCH):
            self._out()
        else:
            self._says_all = True
            self._on_failure(code, response.error_message, now_ms)
            if not code.retriable:
                self._out()
        return code

    def on_no_answer(self, request: object, now_ms: int) -> None:
        if request is self._in_flight:
            self._says_all = True
        super().on_no_answer(request, now_ms)

    def on_topics(self, known: Mapping[str, KnownTopic | None]) -> None:
        super().on_topics(known)
        for name, topic in known.items():
            if topic is not None and topic.topic_id is not None:
                self._names[topic.topic_id] = name

    # How.
    @property
    def _may_be_member(self) -> bool:
        return self._has_joined

    @property
    def _is_settled(self) -> bool:
        return not (self._says_owned or self._says_all or self._says_topics or self._in_flight)

    def _change(self) -> Rebalance | None:
        wanted = self.assigned
        if wanted is None:
            return None
        if gone := self.owned - wanted:
            return Rebalance(RebalanceKind.REVOKED, gone)
        new = wanted - self.owned
        return Rebalance(RebalanceKind.ASSIGNED, new) if new else None

    def _on_told(self, rebalance: Rebalance) -> None:
        self._says_owned = rebalance.kind is not RebalanceKind.LOST

    def _on_subscription(self) -> None:
        if self._topics and self._pattern is not None:
            self._pattern = ""  # which takes it back
        self._says_topics = True

    def _leaving(self, version: int) -> object | None:
        is_static = self.config.instance_id is not None
        epoch = LEAVE_STATIC_MEMBER_EPOCH if is_static else LEAVE_MEMBER_EPOCH
        return ConsumerGroupHeartbeatRequest(
            group_id=self.config.group_id,
            member_id=self.member_id,
            member_epoch=epoch,
            instance_id=self.config.instance_id,
        )

    def _out(self) -> None:
        super()._out()
        self._has_joined = False
        self._target = None
        self._says_all = True

    def _rows(self) -> list[ConsumerGroupHeartbeatPartitions]:
        """What it reads, by the ids of the topics."""
        ids = {name: topic_id for topic_id, name in self._names.items()}
        rows: dict[UUID, list[int]] = {}
        for topic, index in sorted(self.owned):
            rows.setdefault(ids[topic], []).append(index)
        return [ConsumerGroupHeartbeatPartitions(topic_id, indexes) for topic_id, indexes in rows.items()]

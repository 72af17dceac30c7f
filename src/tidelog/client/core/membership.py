"""A consumer as a member of its group: which request is due, and what its caller has to agree to.

Pure: the shell asks for the request that is due, sends it to the coordinator, and brings the answer, or says that none
came. One request is under way at a time. Each protocol is a class: `ClassicMembership` (JoinGroup, SyncGroup,
Heartbeat) and `ConsumerMembership` (ConsumerGroupHeartbeat, KIP-848).

No partition comes or goes behind the caller's back. `take_rebalance` says what is about to change. The caller is told
when it asks for records next, and `on_told` says that it agreed. Until then the member says that it lives, and moves no
further.

    a new assignment     --> REVOKED --on_told--> ASSIGNED --on_told--> the caller reads what it is to read
    no member any more   --> LOST    --on_told--> it joins again
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from tidelog.base.errors import Code, KafkaError, TidelogError
from tidelog.base.ids import TopicId, TopicPartition
from tidelog.client.core.values import Rebalance, RebalanceKind, code_of

NO_EPOCH = -1
"""Of who is no member."""

COORDINATOR_CODES = frozenset((Code.COORDINATOR_LOAD_IN_PROGRESS, Code.COORDINATOR_NOT_AVAILABLE, Code.NOT_COORDINATOR))
"""After one of these the coordinator is looked for anew."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MembershipConfig:
    """What a member tells the group of itself.

    Attributes:
        group_id, instance_id: as `group_id` and `group_instance_id` of the consumer's options.
        session_timeout_ms, heartbeat_interval_ms: of the classic protocol; in the other the coordinator says.
        rebalance_timeout_ms: how long the caller may take until it asks for records again.
        strategies: names of assignors, of the classic protocol, the best first.
        remote_assignor: of KIP-848's protocol; None leaves it to the coordinator.
        rack: where the consumer is; None if nobody said.
    """

    group_id: str
    instance_id: str | None = None
    session_timeout_ms: int = 45_000
    heartbeat_interval_ms: int = 3_000
    rebalance_timeout_ms: int = 300_000
    strategies: tuple[str, ...] = ("range", "cooperative-sticky")
    remote_assignor: str | None = None
    rack: str | None = None


@dataclass(frozen=True, slots=True)
class KnownTopic:
    """What a member knows of a topic."""

    topic_id: TopicId | None
    partition_count: int


class Membership(ABC):
    """See the module.

    Args:
        config: what it tells of itself.
        retry_delay_ms: how long to wait after so many failures in a row.

    Attributes:
        member_id: by which the coordinator knows it; empty before it does.
        epoch: the generation, or the member epoch; NO_EPOCH while it is no member.
        owned: what the caller reads.
        error: why it cannot be a member, for the caller; None if all is well.
    """

    def __init__(self, config: MembershipConfig, retry_delay_ms: Callable[[int], int]) -> None:
        self.config = config
        self.member_id = ""
        self.epoch = NO_EPOCH
        self.owned: frozenset[TopicPartition] = frozenset()
        self.error: TidelogError | None = None
        self._retry_delay_ms = retry_delay_ms
        self._topics: frozenset[str] = frozenset()
        self._known: Mapping[str, KnownTopic | None] = {}
        self._in_flight: object | None = None
        self._not_before_ms = 0
        self._heartbeat_due_ms = 0
        self._failures = 0
        self._told: Rebalance | None = None  # what the caller is being told
        self._is_away = False  # it has left, since the caller did not come back

    @property
    def is_stable(self) -> bool:
        """Whether it is a member, and nothing is about to change."""
        return self.epoch != NO_EPOCH and self._told is None and self._is_settled and self._change() is None

    # What the caller wants.
    def subscribe(self, topics: Iterable[str]) -> None:
        """Read these topics from now on."""
        self._is_away = False
        self.error = None
        self.change_topics(topics)

    def change_topics(self, topics: Iterable[str]) -> None:
        """Other topics match what the caller subscribes to."""
        before, self._topics = self._topics, frozenset(topics)
        if self._topics != before:
            self._on_subscription()

    @property
    def rebalance(self) -> Rebalance | None:
        """What the caller has to be told next. It may change as long as it is not taken."""
        return self._told or self._next_rebalance()

    def take_rebalance(self) -> Rebalance | None:
        """What the caller has to be told next. Nothing changes until `on_told` says that it was."""
        self._told = self.rebalance
        return self._told

    @property
    @abstractmethod
    def assigned(self) -> frozenset[TopicPartition] | None:
        """What it is to read, as it was told last; None while there is nothing to change, or nothing is known."""

    def on_told(self, rebalance: Rebalance) -> None:
        """The caller knows, and has let go of what is revoked or lost."""
        self._told = None
        if rebalance.kind is RebalanceKind.ASSIGNED:
            self.owned |= rebalance.partitions
        else:
            self.owned -= rebalance.partitions
        self._on_told(rebalance)

    def come_back(self) -> None:
        """The caller asks for records again after it was away too long: it joins again, once it was told."""
        self._is_away = False

    def take_error(self, now_ms: int) -> TidelogError | None:
        """Why it cannot be a member. It tries again after a while: somebody may have allowed it by then."""
        error, self.error = self.error, None
        if error is not None:
            self._failures += 1
            self._not_before_ms = now_ms + self._retry_delay_ms(self._failures)
        return error

    # What to do.
    def request(self, now_ms: int) -> object | None:
        """The request that is due now, which counts as sent; None if none is."""
        if self._is_silent or now_ms < self._not_before_ms:
            return None
        self._in_flight = self._due(now_ms)
        return self._in_flight

    def next_due_ms(self, now_ms: int) -> int | None:
        """When the next request is due if nothing happens before; None if that is not a question of time."""
        if self._is_silent:
            return None
        if self._not_before_ms > now_ms:
            return self._not_before_ms
        return self._heartbeat_due_ms if self._sends_heartbeats else None

    def leaving(self, version: int) -> object | None:
        """The request that says that the caller is gone; None if nobody has to be told.

        Args:
            version: of LeaveGroup, that the coordinator understands.
        """
        request = self._leaving(version) if self._may_be_member else None
        self._out()
        return request

    def on_away(self, version: int) -> object | None:
        """The caller did not come back in time: as `leaving`. It joins again only when the caller does."""
        self._is_away = True
        return self.leaving(version)

    # What happened.
    @abstractmethod
    def on_response(self, request: object, response: object, now_ms: int) -> Code:
        """The answer to a request.

        Returns:
            Its code; after one of COORDINATOR_CODES the coordinator is to be looked for anew.
        """

    def on_no_answer(self, request: object, now_ms: int) -> None:
        """A request got none: nobody knows whether it was heard."""
        if request is self._in_flight:
            self._in_flight = None
            self._failures += 1
            self._not_before_ms = now_ms + self._retry_delay_ms(self._failures)

    def on_refused(self, error: TidelogError) -> None:
        """It cannot be a member: the coordinator is too old, or the group may not be used."""
        self._out()
        self.error = error

    def on_topics(self, known: Mapping[str, KnownTopic | None]) -> None:
        """What the metadata says of the topics, or the same as before; None of one that does not exist."""
        self._known = known

    # How.
    @abstractmethod
    def _due(self, now_ms: int) -> object | None:
        """The request that is due now."""

    @property
    def _sends_heartbeats(self) -> bool:
        """Whether it says from time to time that it lives."""
        return self.epoch != NO_EPOCH

    @property
    @abstractmethod
    def _may_be_member(self) -> bool:
        """Whether the coordinator may take it for a member."""

    @property
    @abstractmethod
    def _is_settled(self) -> bool:
        """Whether no answer is awaited that may change what it reads."""

    @abstractmethod
    def _change(self) -> Rebalance | None:
        """What the assignment changes for the caller."""

    @abstractmethod
    def _on_told(self, rebalance: Rebalance) -> None:
        """The caller was told, and `owned` is what it is now."""

    @abstractmethod
    def _on_subscription(self) -> None:
        """The topics are others."""

    @abstractmethod
    def _leaving(self, version: int) -> object | None:
        """See `leaving`."""

    def _out(self) -> None:
        """It is no member: what it read is another's by now."""
        self.epoch = NO_EPOCH
        self._in_flight = None

    @property
    def _is_lost(self) -> bool:
        """Whether it is no member any more, and the caller still reads."""
        return self.epoch == NO_EPOCH and bool(self.owned)

    @property
    def _is_silent(self) -> bool:
        """Whether it asks nothing before something happens."""
        return self._in_flight is not None or self.error is not None or self._is_away or self._is_lost

    def _next_rebalance(self) -> Rebalance | None:
        return Rebalance(RebalanceKind.LOST, self.owned) if self._is_lost else self._change()

    def _took(self, request: object, response_code: int) -> Code | None:
        """The code of an answer; None if it is not the one that is waited for."""
        if request is not self._in_flight:
            return None
        self._in_flight = None
        return code_of(response_code)

    def _on_failure(self, code: Code, message: str | None, now_ms: int) -> None:
        """A refusal: one that passes is tried again, of another the caller is told."""
        if code.retriable:
            self._failures += 1
            self._not_before_ms = now_ms + self._retry_delay_ms(self._failures)
            return
        what = message or code.meaning
        self.error = KafkaError(f"group {self.config.group_id!r}: {what} ({code.name}){_advice(code)}", code=code)


def _advice(code: Code) -> str:
    return _ADVICE.get(code, "")


_ADVICE = {
    Code.FENCED_INSTANCE_ID: ": another consumer has the same group_instance_id; give each its own",
    Code.UNRELEASED_INSTANCE_ID: ": a consumer that lives has the same group_instance_id; close it, or give each"
    " its own",
    Code.INCONSISTENT_GROUP_PROTOCOL: ": the group's members have other assignors; set partition_assignment_strategy so"
    " that one is in all of them",
    Code.INVALID_SESSION_TIMEOUT: ": set session_timeout_ms within the broker's group.min.session.timeout.ms and"
    " group.max.session.timeout.ms",
    Code.GROUP_MAX_SIZE_REACHED: ": close another of its consumers, or raise group.max.size",
    Code.GROUP_AUTHORIZATION_FAILED: ": an ACL that allows READ on the group is needed",
    Code.UNSUPPORTED_ASSIGNOR: ": set group_remote_assignor to one that the broker has, as 'uniform'",
}

"""What a heartbeat of a consumer group must be like, whatever the group; and whether its member may send it.

Kafka: the checks of `GroupMetadataManager`.
"""

from __future__ import annotations

from typing import NamedTuple

from tidelog.base.errors import Code, KafkaError, refusal
from tidelog.base.ids import TopicId
from tidelog.coordinator.groups.consumer.assignment import Assignment
from tidelog.coordinator.groups.consumer.group import ConsumerGroup
from tidelog.coordinator.groups.consumer.member import ConsumerSubscription, CurrentAssignment
from tidelog.coordinator.groups.consumer.pattern_searches import topic_pattern
from tidelog.coordinator.groups.consumer.settings import ConsumerGroupSettings
from tidelog.coordinator.groups.records import NAME_SIZE_BYTES_MAX
from tidelog.coordinator.memory import CoordinatorMemory
from tidelog.wire.messages.api_68_consumer_group_heartbeat import (
    JOIN_MEMBER_EPOCH,
    LEAVE_STATIC_MEMBER_EPOCH,
    ConsumerGroupHeartbeatRequest,
)

CLIENT_MAKES_MEMBER_ID_SINCE = 1
"""The version of ConsumerGroupHeartbeat from which on a client makes its own member id (KIP-1082)."""

TOPIC_NAMES_MAX = 10_000
"""That one member may name: what is done with them in one step takes a few milliseconds. Kafka has no such bound."""


def check_heartbeat(request: ConsumerGroupHeartbeatRequest, api_version: int, settings: ConsumerGroupSettings) -> None:
    """Return if the request makes sense.

    Raises:
        KafkaError: INVALID_REQUEST, UNSUPPORTED_ASSIGNOR, or INVALID_REGULAR_EXPRESSION.
    """
    epoch = request.member_epoch
    is_joining = epoch == JOIN_MEMBER_EPOCH
    if not request.group_id:
        raise _invalid("the group id is empty: set group.id")
    if not request.member_id and not (is_joining and api_version < CLIENT_MAKES_MEMBER_ID_SINCE):
        raise _invalid("the member id is empty")
    for name, value in (("instance id", request.instance_id), ("rack id", request.rack_id)):
        if value == "":
            raise _invalid(f"the {name} is empty; leave it out")
    for name, key in (("group id", request.group_id), ("member id", request.member_id)):
        if _is_too_long(key):
            raise _invalid(f"the {name} is longer than {NAME_SIZE_BYTES_MAX} bytes")
    if epoch < LEAVE_STATIC_MEMBER_EPOCH:
        raise _invalid(f"there is no member epoch {epoch}")
    if epoch == LEAVE_STATIC_MEMBER_EPOCH and request.instance_id is None:
        raise _invalid("only a static member may leave for a while: it has an instance id")
    if is_joining:
        if request.rebalance_timeout_ms < 0:
            raise _invalid("who joins says its rebalance timeout")
        if request.topic_partitions is None or request.topic_partitions:
            raise _invalid("who joins reads no partitions yet, and says so")
        if request.subscribed_topic_names is None and request.subscribed_topic_regex is None:
            raise _invalid("who joins says what it subscribes to")
    if request.server_assignor is not None and request.server_assignor not in settings.assignors:
        raise refusal(
            Code.UNSUPPORTED_ASSIGNOR,
            f"there is no assignor {request.server_assignor!r} here, but {', '.join(settings.assignors)} "
            "(group.consumer.assignors)",
        )
    if len(request.subscribed_topic_names or ()) > TOPIC_NAMES_MAX:
        raise _invalid(
            f"a member names {len(request.subscribed_topic_names or ())} topics, and may name {TOPIC_NAMES_MAX}: "
            "subscribe to a pattern, or divide the topics between groups"
        )
    pattern = request.subscribed_topic_regex
    if pattern:
        topic_pattern(pattern)


class Lists(NamedTuple):
    """What a heartbeat lists, as groups keep it. Made of a long one on another thread.

    Attributes:
        topic_names: that it names; None if it names none.
        owned: what the member says that it reads; None if it does not say.
    """

    topic_names: tuple[str, ...] | None
    owned: Assignment | None


def lists_of(request: ConsumerGroupHeartbeatRequest) -> Lists:
    """What a heartbeat lists."""
    names = request.subscribed_topic_names
    return Lists(None if names is None else tuple(sorted(set(names))), _owned_by(request))


def subscription_after(
    old: ConsumerSubscription | None,
    request: ConsumerGroupHeartbeatRequest,
    names: tuple[str, ...] | None,
    client_id: str,
    client_host: str,
) -> ConsumerSubscription:
    """What the member wants now: what it left out stays. A client of another address is the same member."""
    before = old or ConsumerSubscription(client_id, client_host)
    pattern = request.subscribed_topic_regex
    return ConsumerSubscription(
        client_id=client_id,
        client_host=client_host,
        instance_id=before.instance_id if request.instance_id is None else request.instance_id,
        rack_id=before.rack_id if request.rack_id is None else request.rack_id,
        topic_names=before.topic_names if names is None or names == before.topic_names else names,
        pattern=before.pattern if pattern is None else pattern or None,
        rebalance_timeout_ms=(
            before.rebalance_timeout_ms if request.rebalance_timeout_ms < 0 else request.rebalance_timeout_ms
        ),
        assignor=before.assignor if request.server_assignor is None else request.server_assignor,
    )


def _owned_by(request: ConsumerGroupHeartbeatRequest) -> Assignment | None:
    if request.topic_partitions is None:
        return None
    owned: dict[TopicId, frozenset[int]] = {}
    for one in request.topic_partitions:
        topic = TopicId(one.topic_id)
        before = owned.get(topic)
        owned[topic] = frozenset(one.partitions) if before is None else before.union(one.partitions)
    return owned


def is_full(request: ConsumerGroupHeartbeatRequest) -> bool:
    """Whether the member says all that there is to say: it may have missed an answer."""
    subscribes = request.subscribed_topic_names is not None or request.subscribed_topic_regex is not None
    return request.rebalance_timeout_ms >= 0 and subscribes and request.topic_partitions is not None


def check_known(group: ConsumerGroup, member_id: str, instance_id: str | None) -> None:
    """Return if it is a member, under its instance id if it has one.

    Raises:
        KafkaError: UNKNOWN_MEMBER_ID; FENCED_INSTANCE_ID if its instance id has another member now.
    """
    if instance_id is not None:
        known_id = group.static_members.get(instance_id)
        if known_id is None:
            raise refusal(
                Code.UNKNOWN_MEMBER_ID, f"group {group.group_id!r} has no static member {instance_id!r}: join again"
            )
        if known_id != member_id:
            raise refusal(
                Code.FENCED_INSTANCE_ID,
                f"group {group.group_id!r}: static member {instance_id!r} is {known_id!r} now, not {member_id!r}",
            )
    group.member(member_id)


def check_epoch(group_id: str, current: CurrentAssignment, epoch: int, owned: Assignment | None) -> None:
    """Return if a member sends the epoch that it has, or missed our last answer: then it sends the one before.

    Who missed an answer must say what it reads, and that must all be its own still.

    Raises:
        KafkaError: FENCED_MEMBER_EPOCH.
    """
    if epoch == current.member_epoch:
        return
    if epoch > current.member_epoch:
        raise _fenced(f"group {group_id!r}: the member is at epoch {current.member_epoch}, not {epoch}: join again")
    if epoch != current.previous_epoch or owned is None or not current.holds(owned):
        raise _fenced(
            f"group {group_id!r}: the member is at epoch {current.member_epoch}, and {epoch} was not its last one, or "
            "it reads what is not its own any more: join again"
        )


def check_joining(
    group: ConsumerGroup, member_id: str, instance_id: str | None, settings: ConsumerGroupSettings
) -> str | None:
    """The id under which somebody who joins is a member already; None for somebody new.

    A static member takes the place of its former self, which has left; the same one may come back at any time. Classic
    members do not say that they leave.

    Raises:
        KafkaError: UNRELEASED_INSTANCE_ID while another member has its instance id; GROUP_MAX_SIZE_REACHED.
    """
    old_id = member_id if member_id in group.subscriptions else None
    static_id = None if instance_id is None else group.static_members.get(instance_id)
    if static_id is not None and static_id != member_id:
        if not group.current(static_id).is_away and group.subscriptions[static_id].classic is None:
            raise refusal(
                Code.UNRELEASED_INSTANCE_ID,
                f"group {group.group_id!r}: static member {instance_id!r} is {static_id!r}, which has not left",
            )
        if old_id is not None:
            raise _invalid(f"group {group.group_id!r}: {member_id!r} is another member already")
        return static_id
    if old_id is None and len(group.subscriptions) >= settings.group_size_max:
        raise refusal(
            Code.GROUP_MAX_SIZE_REACHED,
            f"group {group.group_id!r} has group.consumer.max.size ({settings.group_size_max}) members already",
        )
    return old_id


def check_room(
    memory: CoordinatorMemory, group_id: str, old: ConsumerSubscription | None, new: ConsumerSubscription
) -> None:
    """Return if there is room for what a member wants. Who wants no more than it did may stay.

    Raises:
        KafkaError: GROUP_MAX_SIZE_REACHED.
    """
    more_bytes = new.size_bytes - (0 if old is None else old.size_bytes)
    if more_bytes > 0 and not memory.has_room(more_bytes):
        raise refusal(
            Code.GROUP_MAX_SIZE_REACHED,
            f"group {group_id!r}: a member of {more_bytes} bytes finds no room beside the {memory.used_bytes} bytes of "
            f"all groups of this node (group.coordinator.memory.bytes is {memory.limit_bytes})",
        )


def _is_too_long(name: str) -> bool:
    return len(name) > NAME_SIZE_BYTES_MAX // 4 and len(name.encode()) > NAME_SIZE_BYTES_MAX


def _invalid(problem: str) -> KafkaError:
    return refusal(Code.INVALID_REQUEST, problem)


def _fenced(problem: str) -> KafkaError:
    return refusal(Code.FENCED_MEMBER_EPOCH, problem)

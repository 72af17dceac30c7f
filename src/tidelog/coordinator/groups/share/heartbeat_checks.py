"""What a heartbeat of a share group must be like, whatever the group; and whether its member may send it.

Kafka: `GroupCoordinatorService`, `GroupMetadataManager`.
"""

from __future__ import annotations

from tidelog.base.errors import Code, KafkaError, refusal
from tidelog.coordinator.groups.records import NAME_SIZE_BYTES_MAX
from tidelog.coordinator.groups.share.group import ShareGroup
from tidelog.coordinator.groups.share.member import ShareCurrent, ShareSubscription
from tidelog.coordinator.groups.share.settings import ShareGroupSettings
from tidelog.wire.messages.api_76_share_group_heartbeat import ShareGroupHeartbeatRequest

JOIN_MEMBER_EPOCH = 0
LEAVE_MEMBER_EPOCH = -1

TOPIC_NAMES_MAX = 2_000
"""That one member may name: names are sorted in one step, and records hold them all. Kafka has no such bound."""


def check_heartbeat(request: ShareGroupHeartbeatRequest) -> None:
    """Return if the request makes sense.

    Raises:
        KafkaError: INVALID_REQUEST.
    """
    for name, value in (("group id", request.group_id), ("member id", request.member_id)):
        if not value:
            raise _invalid(f"the {name} is empty")
        if len(value) > NAME_SIZE_BYTES_MAX // 4 and len(value.encode()) > NAME_SIZE_BYTES_MAX:
            raise _invalid(f"the {name} is longer than {NAME_SIZE_BYTES_MAX} bytes")
    if request.rack_id == "":
        raise _invalid("the rack id is empty; leave it out")
    if request.member_epoch < LEAVE_MEMBER_EPOCH:
        raise _invalid(f"there is no member epoch {request.member_epoch}")
    if request.member_epoch == JOIN_MEMBER_EPOCH and not request.subscribed_topic_names:
        raise _invalid("who joins says what it subscribes to")
    count = len(request.subscribed_topic_names or ())
    if count > TOPIC_NAMES_MAX:
        raise _invalid(
            f"a member names {count} topics, and may name {TOPIC_NAMES_MAX}: divide the topics between groups"
        )


def names_in(request: ShareGroupHeartbeatRequest) -> tuple[str, ...] | None:
    """The topics that a heartbeat names, as groups keep them; None if it names none."""
    names = request.subscribed_topic_names
    return None if names is None else tuple(sorted(set(names)))


def subscription_after(
    old: ShareSubscription | None, request: ShareGroupHeartbeatRequest, client_id: str, client_host: str
) -> ShareSubscription:
    """What the member wants now: what it left out stays. A client of another address is the same member."""
    names = names_in(request)
    before = old or ShareSubscription(client_id, client_host)
    return ShareSubscription(
        client_id=client_id,
        client_host=client_host,
        rack_id=before.rack_id if request.rack_id is None else request.rack_id,
        topic_names=before.topic_names if names is None or names == before.topic_names else names,
    )


def check_size(group: ShareGroup, member_id: str, settings: ShareGroupSettings) -> None:
    """Return if somebody is a member, or may become one.

    Raises:
        KafkaError: GROUP_MAX_SIZE_REACHED; as Kafka does, to one who says that it is a member as well.
    """
    if member_id not in group.subscriptions and len(group.subscriptions) >= settings.group_size_max:
        raise refusal(
            Code.GROUP_MAX_SIZE_REACHED,
            f"group {group.group_id!r} has group.share.max.size ({settings.group_size_max}) members already",
        )


def check_epoch(group_id: str, current: ShareCurrent, epoch: int) -> None:
    """Return if a member sends the epoch that it has, or missed our last answer, or joins again.

    Raises:
        KafkaError: FENCED_MEMBER_EPOCH.
    """
    if epoch not in (JOIN_MEMBER_EPOCH, current.member_epoch, current.previous_epoch):
        raise refusal(
            Code.FENCED_MEMBER_EPOCH,
            f"group {group_id!r}: the member is at epoch {current.member_epoch}, not {epoch}: join again",
        )


def _invalid(problem: str) -> KafkaError:
    return refusal(Code.INVALID_REQUEST, problem)

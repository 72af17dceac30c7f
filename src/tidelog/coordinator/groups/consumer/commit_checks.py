"""Whether offsets of a consumer group may be committed or fetched by who asks.

A member commits what it reads. Its epoch may be behind, as it grows while an answer is under way: what counts is that
it had the partition in that epoch already, and has it still (KIP-1251). Kafka: `ConsumerGroup.validateOffsetCommit`.
"""

from __future__ import annotations

from tidelog.base.errors import Code, KafkaError, refusal
from tidelog.base.ids import TopicId
from tidelog.coordinator.groups.consumer.group import ConsumerGroup
from tidelog.coordinator.groups.consumer.heartbeat_checks import check_known
from tidelog.coordinator.groups.consumer.known_topics import KnownTopics
from tidelog.wire.messages.api_08_offset_commit import OffsetCommitRequest
from tidelog.wire.messages.api_09_offset_fetch import OffsetFetchRequestGroup
from tidelog.wire.messages.api_28_txn_offset_commit import TxnOffsetCommitRequest
from tidelog.wire.primitives import ZERO_UUID

SERVES_CONSUMER_GROUPS_SINCE = 9
"""The version of OffsetCommit from which on members of consumer groups may use it."""


def check_commit(
    group: ConsumerGroup, known: KnownTopics | None, request: OffsetCommitRequest, api_version: int
) -> None:
    """Return if a member may commit all of it, or anybody where there are no members.

    Raises:
        KafkaError: UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID, UNSUPPORTED_VERSION, or STALE_MEMBER_EPOCH: the commit is to
            be tried again after the next heartbeat.
    """
    epoch = request.generation_id_or_member_epoch
    if epoch < 0 and not group.subscriptions:
        return
    check_known(group, request.member_id, request.group_instance_id)
    if group.subscriptions[request.member_id].classic is not None:
        if epoch != group.current(request.member_id).member_epoch:
            raise refusal(Code.ILLEGAL_GENERATION, f"group {group.group_id!r}: {epoch} is not the member's generation")
        return
    if api_version < SERVES_CONSUMER_GROUPS_SINCE:
        raise refusal(
            Code.UNSUPPORTED_VERSION,
            f"group {group.group_id!r} is a consumer group: its members commit with OffsetCommit "
            f"{SERVES_CONSUMER_GROUPS_SINCE} or later",
        )
    behind = _epoch_behind(group, request.member_id, epoch)
    if behind is None:
        return
    for topic in request.topics:
        topic_id = _topic_id(known, topic.name) if topic.topic_id == ZERO_UUID else TopicId(topic.topic_id)
        for one in topic.partitions:
            _check_partition(group, request.member_id, behind, topic_id, one.partition_index)


def check_transactional_commit(
    group: ConsumerGroup, known: KnownTopics | None, request: TxnOffsetCommitRequest
) -> None:
    """Return if a producer may commit all of it for a member, or for nobody in particular.

    Raises:
        KafkaError: UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID, or ILLEGAL_GENERATION.
    """
    epoch = request.generation_id
    if epoch < 0 and (not group.subscriptions or not (request.member_id or request.group_instance_id is not None)):
        return
    check_known(group, request.member_id, request.group_instance_id)
    try:
        behind = _epoch_behind(group, request.member_id, epoch)
        for topic in request.topics if behind is not None else ():
            topic_id = _topic_id(known, topic.name)
            for one in topic.partitions:
                _check_partition(group, request.member_id, epoch, topic_id, one.partition_index)
    except KafkaError as error:
        raise refusal(Code.ILLEGAL_GENERATION, str(error)) from error


def check_fetch(group: ConsumerGroup, request: OffsetFetchRequestGroup) -> None:
    """Return if who asks is the member that it says it is, or says nothing.

    Raises:
        KafkaError: UNKNOWN_MEMBER_ID or STALE_MEMBER_EPOCH.
    """
    if request.member_id is None and request.member_epoch < 0:
        return
    member_id = request.member_id or ""
    group.member(member_id)
    epoch = group.current(member_id).member_epoch
    if request.member_epoch != epoch:
        raise _stale(f"group {group.group_id!r}: member {member_id!r} is at epoch {epoch}, not {request.member_epoch}")


def _epoch_behind(group: ConsumerGroup, member_id: str, epoch: int) -> int | None:
    """The epoch in which every partition has to be looked at; None where it is that of the member."""
    actual = group.current(member_id).member_epoch
    if epoch > actual or epoch < 0:
        raise _stale(f"group {group.group_id!r}: member {member_id!r} is at epoch {actual}, not {epoch}")
    return None if epoch == actual else epoch


def _check_partition(group: ConsumerGroup, member_id: str, epoch: int, topic: TopicId | None, partition: int) -> None:
    since = None if topic is None else group.current(member_id).assignment_epoch(topic, partition)
    if since is None or epoch < since:
        raise _stale(
            f"group {group.group_id!r}: member {member_id!r} did not have partition {partition} in epoch {epoch}"
        )


def _topic_id(known: KnownTopics | None, name: str) -> TopicId | None:
    return None if known is None else next(iter(known.ids((name,))), None)


def _stale(problem: str) -> KafkaError:
    return refusal(Code.STALE_MEMBER_EPOCH, f"{problem}: try again after the next heartbeat")

"""A classic group becomes a consumer group, and the other way round, while its members go on (KIP-848).

The members keep what they have: the generation becomes the epoch of the group, of its target assignment, and of each
member, and the other way round. Kafka: `ConsumerGroup.fromClassicGroup`, `ClassicGroup.fromConsumerGroup`.
"""

from __future__ import annotations

from collections.abc import Collection

from tidelog.base.errors import Code, MalformedMessageError, refusal
from tidelog.base.ids import TopicId
from tidelog.coordinator.groups import rebalance
from tidelog.coordinator.groups.consumer.assignment import Assignment
from tidelog.coordinator.groups.consumer.group import ConsumerGroup
from tidelog.coordinator.groups.consumer.heartbeat_checks import TOPIC_NAMES_MAX
from tidelog.coordinator.groups.consumer.known_topics import KnownTopics
from tidelog.coordinator.groups.consumer.member import ConsumerSubscription, CurrentAssignment
from tidelog.coordinator.groups.consumer_group_records import ClassicMemberMetadata, ClassicMemberProtocol
from tidelog.coordinator.groups.group import DOWNGRADED_MS, Change, Group
from tidelog.coordinator.groups.group_journal import GroupJournal
from tidelog.coordinator.groups.member import Member, Protocols
from tidelog.coordinator.memory import CoordinatorMemory
from tidelog.wire.compile import decode, encode
from tidelog.wire.messages.consumer_protocol import (
    PROTOCOL_TYPE,
    VERSION_MAX,
    VERSION_SIZE_BYTES,
    ConsumerProtocolAssignment,
    ConsumerProtocolPartitions,
    ConsumerProtocolSubscription,
    assigned_partitions,
)


def read_subscription(metadata: bytes) -> ConsumerProtocolSubscription:
    """What a classic member wants.

    Raises:
        MalformedMessageError: it speaks another protocol than that of consumers, or names too many topics.
    """
    version = int.from_bytes(metadata[:VERSION_SIZE_BYTES], signed=True)
    if version < 0:
        raise MalformedMessageError(f"the metadata of a member are of version {version}, and there is none below 0")
    wanted = decode(
        ConsumerProtocolSubscription,
        metadata,
        min(version, VERSION_MAX),
        VERSION_SIZE_BYTES,
        ignores_trailing_bytes=True,
    )
    if len(wanted.topics) > TOPIC_NAMES_MAX:
        raise MalformedMessageError(f"a member names {len(wanted.topics)} topics, and may name {TOPIC_NAMES_MAX}")
    return wanted


def classic_subscription(
    wanted: ConsumerProtocolSubscription,
    protocols: Protocols,
    *,
    client_id: str,
    client_host: str,
    instance_id: str | None,
    rebalance_timeout_ms: int,
    session_timeout_ms: int,
) -> ConsumerSubscription:
    """A classic member, as a consumer group keeps it."""
    return ConsumerSubscription(
        client_id=client_id,
        client_host=client_host,
        instance_id=instance_id,
        rack_id=wanted.rack_id,
        topic_names=tuple(sorted(set(wanted.topics))),
        rebalance_timeout_ms=rebalance_timeout_ms,
        classic=ClassicMemberMetadata(
            session_timeout_ms=session_timeout_ms,
            supported_protocols=[ClassicMemberProtocol(name, metadata) for name, metadata in protocols],
        ),
    )


def protocols_of(classic: ClassicMemberMetadata) -> Protocols:
    """What a classic member offers."""
    return tuple((one.name, one.metadata) for one in classic.supported_protocols)


def upgraded(group: Group, known: KnownTopics) -> ConsumerGroup | None:
    """The consumer group that a classic group with members becomes, not recorded yet.

    Returns:
        None if it is not one of consumers, or a member or its part cannot be read.
    """
    if group.protocol_type != PROTOCOL_TYPE:
        return None
    generation = group.generation_id
    found = ConsumerGroup(group.group_id)
    try:
        for member in group.members.values():
            wanted = read_subscription(member.protocols[0][1])
            subscription = classic_subscription(
                wanted,
                member.protocols,
                client_id=member.client_id,
                client_host=member.client_host,
                instance_id=member.instance_id,
                rebalance_timeout_ms=member.rebalance_timeout_ms,
                session_timeout_ms=member.session_timeout_ms,
            )
            part: dict[TopicId, dict[int, int]] = {}
            for topic, partition in assigned_partitions(member.assignment):
                for topic_id in known.ids((topic,)):
                    if found.owner(topic_id, partition) is None:
                        part.setdefault(topic_id, {})[int(partition)] = generation
            found.set_subscription(member.member_id, subscription)
            found.set_target(member.member_id, {topic: frozenset(one) for topic, one in part.items()})
            found.set_current(member.member_id, CurrentAssignment(generation, generation, assigned=part))
    except MalformedMessageError:
        return None
    found.set_epoch(generation, known.hash_of(found.topics).recorded)
    found.set_target_epoch(generation, None)
    return found


def downgraded(
    group: ConsumerGroup, leaving_ids: Collection[str], known: KnownTopics, memory: CoordinatorMemory
) -> Group:
    """The classic group that a consumer group becomes whose members are all classic but for those that leave.

    It is stable, and to be rebalanced. The generation is the epoch that its members know: a heartbeat of another would
    tell them that they lost what they read.
    """
    found = Group(group.group_id, memory)
    found.generation_id = group.epoch
    for member_id, one in group.subscriptions.items():
        if member_id in leaving_ids:
            continue
        classic = one.classic
        assert classic is not None
        member = Member(
            group_id=group.group_id,
            member_id=member_id,
            instance_id=one.instance_id,
            client_id=one.client_id,
            client_host=one.client_host,
            rebalance_timeout_ms=one.rebalance_timeout_ms,
            session_timeout_ms=classic.session_timeout_ms,
            protocols=protocols_of(classic),
        )
        found.add(member, PROTOCOL_TYPE)
        found.give(member, encoded_assignment(group.target(member_id), known, member.protocols[0][1]))
    if found.members:
        found.protocol_name = found.chosen_protocol()
        found.go(Change.RESTORED, DOWNGRADED_MS)
    return found


def encoded_assignment(assignment: Assignment, known: KnownTopics, metadata: bytes) -> bytes:
    """A part, as a classic member reads it: in the version of its own metadata, and of topics that exist."""
    version = min(max(int.from_bytes(metadata[:VERSION_SIZE_BYTES], signed=True), 0), VERSION_MAX)
    names = {topic: known.name(topic) for topic in assignment}
    value = ConsumerProtocolAssignment(
        assigned_partitions=[
            ConsumerProtocolPartitions(name, sorted(assignment[topic]))
            for topic, name in sorted(names.items())
            if name is not None
        ]
    )
    return version.to_bytes(VERSION_SIZE_BYTES) + encode(value, version)


def retire(journal: GroupJournal, classic: Group) -> None:
    """A classic group became a consumer group. Who waits is told to join again."""
    for member_id in sorted(classic.pending):
        rebalance.drop_pending(journal, classic, member_id)
    for alarm in (classic.join_alarm, classic.sync_alarm):
        journal.deadlines.cancel(alarm)
    for member in classic.members.values():
        journal.deadlines.cancel(member.session)
        for request_id in (classic.take_join(member), member.sync_request):
            if request_id is not None:
                error = refusal(Code.REBALANCE_IN_PROGRESS, f"group {classic.group_id!r}: join again")
                journal.answer(request_id, error)
    classic.release()

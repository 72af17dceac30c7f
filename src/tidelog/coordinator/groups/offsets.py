"""Committed offsets: commit, fetch, delete. A refusal of the whole request is raised, before anything changed.

Kafka: `OffsetMetadataManager`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Container, Iterator, Mapping, Sequence
from types import MappingProxyType
from uuid import UUID

from tidelog.base.errors import Code, refusal
from tidelog.coordinator.groups import rebalance
from tidelog.coordinator.groups.consumer import recorded
from tidelog.coordinator.groups.group import Group, GroupState
from tidelog.coordinator.groups.group_journal import GroupJournal
from tidelog.coordinator.groups.records import (
    NAME_SIZE_BYTES_MAX,
    decode_offset,
    encode_expiring_offset,
    encode_offset,
    group_key,
    offset_key,
    offset_key_head,
    pack_partition,
)
from tidelog.coordinator.groups.state import OFFSET_BYTES
from tidelog.journal import KeyValue, Moment, RequestId
from tidelog.wire.messages.api_08_offset_commit import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from tidelog.wire.messages.api_09_offset_fetch import (
    OffsetFetchRequestGroup,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponseTopic,
)
from tidelog.wire.messages.api_42_delete_groups import DeletableGroupResult
from tidelog.wire.messages.api_47_offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)
from tidelog.wire.messages.consumer_protocol import PROTOCOL_TYPE as CONSUMER_PROTOCOL_TYPE
from tidelog.wire.primitives import ZERO_UUID

TopicIds = Callable[[str], UUID]
"""The id of the topic of a name that there is now; zero if there is none, or that is not known."""

NAMES_MISSING_GROUPS_SINCE = 9
"""The version of OffsetCommit from which on a group that is not there has an error of its own."""

NO_SUCCESSORS: Mapping[str, UUID] = MappingProxyType({})

TIMESTAMP_MS_MAX = 2**63 - 1
TOPIC_NAME_LENGTH_MAX = 249
_METADATA_TOO_LARGE = Code.OFFSET_METADATA_TOO_LARGE.value


# Commit.


def on_commit(
    journal: GroupJournal,
    at: Moment,
    request: OffsetCommitRequest,
    request_id: RequestId,
    id_of: TopicIds,
    *,
    names_topics: bool = True,
) -> None:
    """Remember positions, of somebody who may commit.

    Args:
        id_of: the id of a topic of a name, where the request does not say it.
        names_topics: whether records may name topics by their ids.

    Raises:
        KafkaError: INVALID_COMMIT_OFFSET_SIZE if all of it together is more than a batch holds, or finds no room beside
            the offsets of other groups. What is committed already is committed anew however little room there is.
    """
    group_id = request.group_id
    length_max = journal.settings.offset_metadata_length_max
    wall_ms = at.wall_ms
    retention_ms = request.retention_time_ms
    records: list[KeyValue] = []
    kept: list[KeptOffset] = []
    topics = []
    for topic in request.topics:
        partitions = []
        if len(topic.name) > TOPIC_NAME_LENGTH_MAX:  # nor would a key hold some of them
            code = Code.UNKNOWN_TOPIC_OR_PARTITION.value
            partitions = [OffsetCommitResponsePartition(one.partition_index, code) for one in topic.partitions]
            topics.append(OffsetCommitResponseTopic(name=topic.name, partitions=partitions))
            continue
        head = offset_key_head(group_id, topic.name)
        topic_id = ZERO_UUID
        if names_topics:
            topic_id = id_of(topic.name) if topic.topic_id == ZERO_UUID else topic.topic_id
        for one in topic.partitions:
            metadata = one.committed_metadata or ""
            if metadata and is_metadata_too_large(metadata, length_max):
                partitions.append(OffsetCommitResponsePartition(one.partition_index, _METADATA_TOO_LARGE))
                continue
            value = (
                encode_offset(one.committed_offset, one.committed_leader_epoch, metadata, wall_ms, topic_id)
                if retention_ms < 0
                else encode_expiring_offset(
                    one.committed_offset, metadata, wall_ms, min(wall_ms + retention_ms, TIMESTAMP_MS_MAX)
                )
            )
            records.append((head + pack_partition(one.partition_index), value))
            kept.append(((topic.name, one.partition_index), value))
            partitions.append(OffsetCommitResponsePartition(one.partition_index))
        topics.append(OffsetCommitResponseTopic(name=topic.name, partitions=partitions))
    if not journal.fits(records):
        raise refusal(
            Code.INVALID_COMMIT_OFFSET_SIZE,
            f"group {group_id!r}: {len(records)} offsets with their metadata are more than a batch of "
            f"{journal.batch_size_bytes_max} bytes holds: commit fewer at once",
        )
    check_room(journal, group_id, kept)
    journal.write_and_answer(tuple(records), request_id, OffsetCommitResponse(topics=topics))


KeptOffset = tuple[tuple[str, int], bytes]
"""(topic, partition), and what is to be kept of its offset."""


def check_room(journal: GroupJournal, group_id: str, offsets: Sequence[KeptOffset]) -> None:
    """Check that offsets find room. Those that take no more than what they replace always do.

    Raises:
        KafkaError: INVALID_COMMIT_OFFSET_SIZE.
    """
    memory = journal.offsets_memory
    if memory.used_bytes + sum(OFFSET_BYTES + len(value) for _, value in offsets) <= memory.limit_bytes:
        return  # as if all were new
    known = journal.state.offsets.get(group_id, {})
    more_bytes = 0
    for (topic, partition), value in offsets:
        before = known.get(topic, {}).get(partition)
        more_bytes += len(value) + OFFSET_BYTES if before is None else len(value) - len(before)
    if more_bytes > 0 and not memory.has_room(more_bytes):
        raise refusal(
            Code.INVALID_COMMIT_OFFSET_SIZE,
            f"group {group_id!r}: its offsets find no room beside the {memory.used_bytes} bytes of those of all groups "
            f"of this node (group.offsets.memory.bytes is {memory.limit_bytes}): delete groups that nobody uses",
        )


def check_committer(
    journal: GroupJournal, at: Moment, group: Group | None, request: OffsetCommitRequest, api_version: int
) -> None:
    """Return if it is a member of the current generation, or nobody in particular in an empty group.

    Raises:
        KafkaError: UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID, ILLEGAL_GENERATION or REBALANCE_IN_PROGRESS as the group is;
            GROUP_ID_NOT_FOUND.
    """
    generation_id = request.generation_id_or_member_epoch
    if group is None:
        if generation_id < 0:
            return
        if journal.state.has_offsets(request.group_id):
            raise refusal(
                Code.UNKNOWN_MEMBER_ID, f"group {request.group_id!r} has offsets, and no member {request.member_id!r}"
            )
        if api_version >= NAMES_MISSING_GROUPS_SINCE:
            raise refusal(Code.GROUP_ID_NOT_FOUND, f"there is no group {request.group_id!r}")
        raise refusal(Code.ILLEGAL_GENERATION, f"there is no group {request.group_id!r}, of any generation")
    if generation_id < 0 and group.state is GroupState.EMPTY:
        return
    if generation_id < 0 and not request.member_id and request.group_instance_id is None:
        raise refusal(
            Code.UNKNOWN_MEMBER_ID,
            f"group {group.group_id!r} has members: only they commit; stop them before its offsets are set by hand",
        )
    member = group.member_of_generation(request.member_id, request.group_instance_id, generation_id)
    if group.state is GroupState.COMPLETING_REBALANCE:
        raise refusal(Code.REBALANCE_IN_PROGRESS, f"group {group.group_id!r}: the generation has no assignment yet")
    if not member.is_new:
        rebalance.extend_session(journal, at, member)


def is_metadata_too_large(metadata: str, length_max: int) -> bool:
    """Whether metadata is longer than `offset.metadata.max.bytes`, or than any record holds."""
    return len(metadata) > length_max or len(metadata.encode()) > NAME_SIZE_BYTES_MAX


# Fetch.


def on_fetch(
    journal: GroupJournal,
    request: OffsetFetchRequestGroup,
    request_id: RequestId,
    id_of: TopicIds,
    *,
    require_stable: bool,
) -> None:
    """Answer the positions of one group; -1 where there is none, or it was committed for another topic of that name.

    Args:
        id_of: the id of a topic of a name, where the request does not say it.
        require_stable: a position that an open transaction may yet move is UNSTABLE_OFFSET_COMMIT (KIP-447). Of all
            positions, those that are there by open transactions alone are told too; Kafka keeps silent about them,
            as if there were none.
    """
    recorded = journal.state.offsets.get(request.group_id, {})
    unstable = journal.state.pending.groups.get(request.group_id, {}) if require_stable else {}
    if request.topics is None:
        wanted: Iterator[tuple[str, UUID, Collection[int]]] = (
            (name, ZERO_UUID, {**recorded.get(name, {}), **unstable.get(name, {})}) for name in {**recorded, **unstable}
        )
    else:
        wanted = ((topic.name, topic.topic_id, topic.partition_indexes) for topic in request.topics)
    topics = []
    for name, said_id, indexes in wanted:
        topic_id = id_of(name) if said_id == ZERO_UUID else said_id
        positions = recorded.get(name, {})
        partitions = []
        for index in indexes:
            if unstable and index in unstable.get(name, ()):
                code = Code.UNSTABLE_OFFSET_COMMIT.value
                partitions.append(OffsetFetchResponsePartition(partition_index=index, error_code=code))
                continue
            value = positions.get(index)
            if value is None:
                partitions.append(OffsetFetchResponsePartition(partition_index=index))
                continue
            found = decode_offset(value)
            if not found.is_for(topic_id):
                partitions.append(OffsetFetchResponsePartition(partition_index=index))
                continue
            partitions.append(
                OffsetFetchResponsePartition(
                    partition_index=index,
                    committed_offset=found.offset,
                    committed_leader_epoch=-1 if found.leader_epoch is None else found.leader_epoch,
                    metadata=found.metadata,
                )
            )
        topics.append(OffsetFetchResponseTopic(name=name, partitions=partitions))
    journal.answer(request_id, OffsetFetchResponseGroup(group_id=request.group_id, topics=topics))


# Delete.


def on_offset_delete(
    journal: GroupJournal, group: Group | None, request: OffsetDeleteRequest, request_id: RequestId
) -> None:
    """Forget positions in topics that no member is subscribed to, those of open transactions too.

    Raises:
        KafkaError: GROUP_ID_NOT_FOUND; NON_EMPTY_GROUP if it has members whose subscriptions are not ours to read.
    """
    group_id = request.group_id
    consumer_group = journal.state.consumer_groups.get(group_id)
    if group is None and consumer_group is None and not journal.state.has_offsets(group_id):
        raise refusal(Code.GROUP_ID_NOT_FOUND, f"there is no group {group_id!r}")
    if group is not None and group.members and group.protocol_type != CONSUMER_PROTOCOL_TYPE:
        raise refusal(
            Code.NON_EMPTY_GROUP, f"group {group_id!r} has members of type {group.protocol_type!r}: stop them first"
        )
    wanted: Container[str] | None = frozenset() if group is None else group.wanted_topics()
    if consumer_group is not None:
        wanted = consumer_group.topics
    records: list[KeyValue] = []
    topics = []
    for topic in request.topics:
        is_subscribed = wanted is None or topic.name in wanted
        code = Code.GROUP_SUBSCRIBED_TO_TOPIC if is_subscribed else Code.NONE
        if not is_subscribed:
            records += (
                (offset_key(group_id, topic.name, one.partition_index), None)
                for one in topic.partitions
                if journal.state.offset_of(group_id, topic.name, one.partition_index) is not None
                or journal.state.pending.has(group_id, topic.name, one.partition_index)
            )
        topics.append(
            OffsetDeleteResponseTopic(
                topic.name,
                [OffsetDeleteResponsePartition(one.partition_index, code.value) for one in topic.partitions],
            )
        )
    journal.write_in_parts(records)
    journal.answer(request_id, OffsetDeleteResponse(topics=topics))


def on_delete_group(journal: GroupJournal, group: Group | None, group_id: str, request_id: RequestId) -> None:
    """Forget a group that has no members, with its offsets: open transactions commit none to it any more.

    Raises:
        KafkaError: GROUP_ID_NOT_FOUND or NON_EMPTY_GROUP.
    """
    consumer_group = journal.state.consumer_groups.get(group_id)
    if group is None and consumer_group is None and not journal.state.has_offsets(group_id):
        raise refusal(Code.GROUP_ID_NOT_FOUND, f"there is no group {group_id!r}")
    if consumer_group is not None and consumer_group.subscriptions:
        raise refusal(
            Code.NON_EMPTY_GROUP, f"group {group_id!r} is {consumer_group.state.value}: stop its members first"
        )
    if group is not None and group.state is not GroupState.EMPTY:
        raise refusal(Code.NON_EMPTY_GROUP, f"group {group_id!r} is {group.state.value}: stop its members first")
    records: list[KeyValue] = tombstones(journal, group_id)
    if consumer_group is not None:
        records += recorded.group_tombstones(consumer_group)
    if group is not None:
        for member_id in sorted(group.pending):
            rebalance.drop_pending(journal, group, member_id)
        if group.is_recorded:
            records.append((group_key(group_id), None))
            group.is_recorded = False
    journal.write_in_parts(records)
    journal.answer(request_id, DeletableGroupResult(group_id))


def tombstones(
    journal: GroupJournal,
    group_id: str,
    topics: Collection[str] | None = None,
    successors: Mapping[str, UUID] = NO_SUCCESSORS,
) -> list[KeyValue]:
    """What forgets all offsets of a group, or those in some topics; those that are pending likewise.

    Args:
        successors: other topics that have some of these names now. A position for which an offset in one is committed,
            or pending, is kept: what else is said of it does not count for them (see `OffsetAndMetadata.is_for`).
    """
    state = journal.state
    positions = {(topic, partition): None for topic, partition, _ in state.positions_of(group_id)}
    positions.update(dict.fromkeys(state.pending.positions_of(group_id)))

    def is_of_successor(topic: str, partition: int) -> bool:
        value = state.offset_of(group_id, topic, partition)
        values = [*([] if value is None else [value]), *state.pending.values(group_id, topic, partition)]
        return any(decode_offset(one).topic_id == successors[topic] for one in values)

    return [
        (offset_key(group_id, topic, partition), None)
        for topic, partition in positions
        if (topics is None or topic in topics) and not (topic in successors and is_of_successor(topic, partition))
    ]

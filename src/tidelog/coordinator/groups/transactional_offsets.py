"""Offsets that a producer commits in its transaction, and the end of that (KIP-98).

A consumer's positions and what was made of the records up to them count together or not at all. Who commits is fenced
as a member (KIP-447, from version 3 on): the producer of a member that was replaced must not move the group.

Kafka: `OffsetMetadataManager.commitTransactionalOffset`.
"""

from __future__ import annotations

from tidelog.base.errors import Code, KafkaError, refusal
from tidelog.coordinator.groups.group import Group, GroupState
from tidelog.coordinator.groups.group_journal import GroupJournal
from tidelog.coordinator.groups.offsets import (
    TOPIC_NAME_LENGTH_MAX,
    KeptOffset,
    TopicIds,
    check_room,
    is_metadata_too_large,
)
from tidelog.coordinator.groups.pending_offsets import size_bytes
from tidelog.coordinator.groups.records import encode_offset, offset_key_head, pack_partition
from tidelog.journal import KeyValue, Moment, RequestId, TransactionPart
from tidelog.wire.messages.api_28_txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)
from tidelog.wire.primitives import ZERO_UUID

ABORTABLE_SINCE = 4
"""The version of TxnOffsetCommit from which on a client that is told TRANSACTION_ABORTABLE aborts (KIP-890)."""


def on_commit(
    journal: GroupJournal,
    at: Moment,
    request: TxnOffsetCommitRequest,
    request_id: RequestId,
    id_of: TopicIds,
    *,
    names_topics: bool = True,
    api_version: int,
) -> None:
    """Remember positions of somebody who may commit until the producer's transaction ends.

    It prolongs no session and waits for no rebalance: the producer is not the member.

    Args:
        id_of: the id of a topic of a name.
        names_topics: whether records may name topics by their ids.

    Raises:
        KafkaError: INVALID_COMMIT_OFFSET_SIZE if all of it together is more than a batch holds, or finds no room beside
            the offsets of other groups once the transaction is committed; TRANSACTION_ABORTABLE
            (COORDINATOR_LOAD_IN_PROGRESS, to be tried again, before version 4) if it finds no room in memory.
    """
    length_max = journal.settings.offset_metadata_length_max
    records: list[KeyValue] = []
    topics = []
    kept: list[KeptOffset] = []
    more_bytes = 0
    for topic in request.topics:
        partitions = []
        is_unknown = len(topic.name) > TOPIC_NAME_LENGTH_MAX
        head = b"" if is_unknown else offset_key_head(request.group_id, topic.name)
        topic_id = id_of(topic.name) if names_topics else ZERO_UUID
        for one in topic.partitions:
            metadata = one.committed_metadata or ""
            code = Code.NONE
            if is_unknown:
                code = Code.UNKNOWN_TOPIC_OR_PARTITION
            elif is_metadata_too_large(metadata, length_max):
                code = Code.OFFSET_METADATA_TOO_LARGE
            else:
                value = encode_offset(one.committed_offset, one.committed_leader_epoch, metadata, at.wall_ms, topic_id)
                records.append((head + pack_partition(one.partition_index), value))
                kept.append(((topic.name, one.partition_index), value))
                more_bytes += size_bytes(request.group_id, topic.name, value)
            partitions.append(TxnOffsetCommitResponsePartition(one.partition_index, code.value))
        topics.append(TxnOffsetCommitResponseTopic(topic.name, partitions))
    if not journal.fits(records):
        raise refusal(
            Code.INVALID_COMMIT_OFFSET_SIZE,
            f"group {request.group_id!r}: {len(records)} offsets with their metadata are more than a batch of "
            f"{journal.batch_size_bytes_max} bytes holds: commit fewer at once",
        )
    if more_bytes and not journal.memory.has_room(more_bytes):
        raise _no_room(journal, request.group_id, more_bytes, api_version)
    check_room(journal, request.group_id, kept)
    part = TransactionPart(request.producer_id, request.producer_epoch)
    journal.write_and_answer(tuple(records), request_id, TxnOffsetCommitResponse(topics=topics), transaction=part)


def on_end(
    journal: GroupJournal,
    request_id: RequestId,
    producer_id: int,
    producer_epoch: int,
    *,
    is_commit: bool,
    coordinator_epoch: int,
) -> None:
    """Let what a transaction committed count, or forget it. Answered with `Code.NONE` once the marker is committed.

    A marker of a producer that committed nothing here is written like any other: the log's producers learn from it.
    """
    journal.end_transaction_and_answer(
        producer_id,
        producer_epoch,
        request_id,
        Code.NONE,
        is_committed=is_commit,
        coordinator_epoch=coordinator_epoch,
    )


def check_producer(request: TxnOffsetCommitRequest) -> None:
    """Return if a transaction can be meant.

    Raises:
        KafkaError: INVALID_PRODUCER_ID_MAPPING for nobody's transaction.
    """
    if request.producer_id < 0 or request.producer_epoch < 0:
        raise refusal(
            Code.INVALID_PRODUCER_ID_MAPPING,
            f"producer {request.producer_id} at epoch {request.producer_epoch} has no transactions",
        )


def check_committer(journal: GroupJournal, group: Group | None, request: TxnOffsetCommitRequest) -> None:
    """Return if it is for a member of the current generation, or for nobody in particular.

    Clients before version 3 name no member, and are not fenced; neither is who assigns partitions itself.

    Raises:
        KafkaError: UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID or ILLEGAL_GENERATION as the group is.
    """
    generation_id = request.generation_id
    if group is None:
        if generation_id < 0:
            return
        if journal.state.has_offsets(request.group_id):
            raise refusal(
                Code.UNKNOWN_MEMBER_ID, f"group {request.group_id!r} has offsets, and no member {request.member_id!r}"
            )
        raise refusal(Code.ILLEGAL_GENERATION, f"there is no group {request.group_id!r}, of any generation")
    if generation_id < 0 and group.state is GroupState.EMPTY:
        return
    if generation_id >= 0 or request.member_id or request.group_instance_id is not None:
        group.member_of_generation(request.member_id, request.group_instance_id, generation_id)


def _no_room(journal: GroupJournal, group_id: str, more_bytes: int, api_version: int) -> KafkaError:
    """Transactions that all wait for room would wait for each other: who can gives its own up."""
    return refusal(
        Code.TRANSACTION_ABORTABLE if api_version >= ABORTABLE_SINCE else Code.COORDINATOR_LOAD_IN_PROGRESS,
        f"group {group_id!r}: offsets of {more_bytes} bytes in a transaction find no room beside the "
        f"{journal.memory.used_bytes} bytes of all groups of this node (group.coordinator.memory.bytes is "
        f"{journal.memory.limit_bytes}): end some transactions first",
    )

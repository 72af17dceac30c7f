"""OffsetCommit and OffsetFetch: the positions of a group, to the wire and back.

From version 10 on topics have ids in place of names: what was committed for a topic that was made anew is not found.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from tidelog.base.errors import Code
from tidelog.base.ids import PartitionIndex, TopicId, TopicPartition
from tidelog.client.core.group_metadata import GroupMetadata
from tidelog.client.core.values import CommittedOffset, code_of
from tidelog.wire.messages.api_08_offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from tidelog.wire.messages.api_09_offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchResponse,
)

LAST_WITH_NAMES = 9
"""Of both."""
_FIRST_WITH_SEVERAL_GROUPS = 8
_FIRST_WITH_STABLE = 7

TopicIds = Mapping[str, TopicId]
Committed = dict[TopicPartition, CommittedOffset | Code | None]


def commit_request(
    member: GroupMetadata, offsets: Mapping[TopicPartition, CommittedOffset], topic_ids: TopicIds | None
) -> OffsetCommitRequest:
    """A request to commit.

    Args:
        topic_ids: of all the topics, for version 10; None for older ones.
    """
    topics = []
    for name, indexes in by_topic(offsets).items():
        topic = OffsetCommitRequestTopic(
            partitions=[_committing(index, offsets[TopicPartition(name, PartitionIndex(index))]) for index in indexes]
        )
        if topic_ids is None:
            topic.name = name
        else:
            topic.topic_id = topic_ids[name]
        topics.append(topic)
    return OffsetCommitRequest(
        group_id=member.group_id,
        generation_id_or_member_epoch=member.generation,
        member_id=member.member_id,
        group_instance_id=member.group_instance_id,
        topics=topics,
    )


def commit_codes(response: OffsetCommitResponse, topic_ids: TopicIds | None) -> dict[TopicPartition, Code]:
    """What became of each partition."""
    names = _names(topic_ids)
    return {
        TopicPartition(names.get(TopicId(topic.topic_id), topic.name), PartitionIndex(row.partition_index)): code_of(
            row.error_code
        )
        for topic in response.topics
        for row in topic.partitions
    }


def offset_fetch_request(
    group_id: str,
    partitions: Iterable[TopicPartition] | None,
    topic_ids: TopicIds | None,
    *,
    version: int,
    member: GroupMetadata | None = None,
    require_stable: bool = False,
) -> OffsetFetchRequest:
    """A request for what a group has committed.

    Args:
        partitions: None for all that there is.
        topic_ids: as in `commit_request`.
        version: of the request.
        member: who asks, of a group of KIP-848's protocol.
        require_stable: whether what an open transaction is about to commit is worth an error.
    """
    topics: list[OffsetFetchRequestTopic] | None = None
    if partitions is not None:
        topics = []
        for name, indexes in by_topic(partitions).items():
            topic = OffsetFetchRequestTopic(partition_indexes=indexes)
            if topic_ids is None:
                topic.name = name
            else:
                topic.topic_id = topic_ids[name]
            topics.append(topic)
    if version < _FIRST_WITH_SEVERAL_GROUPS:
        is_stable = require_stable and version >= _FIRST_WITH_STABLE
        return OffsetFetchRequest(group_id=group_id, topics=topics, require_stable=is_stable)
    group = OffsetFetchRequestGroup(group_id=group_id, topics=topics)
    if member is not None:
        group.member_id, group.member_epoch = member.member_id, member.generation
    return OffsetFetchRequest(groups=[group], require_stable=require_stable)


def fetched_offsets(response: OffsetFetchResponse, topic_ids: TopicIds | None) -> tuple[Code, Committed]:
    """The code of the group as a whole; and of each partition what was committed, None for nothing, or why not."""
    names = _names(topic_ids)
    groups = response.groups
    code = code_of(groups[0].error_code if groups else response.error_code)
    found: Committed = {}
    for topic in groups[0].topics if groups else response.topics:
        for row in topic.partitions:
            key = TopicPartition(names.get(TopicId(topic.topic_id), topic.name), PartitionIndex(row.partition_index))
            if row.error_code:
                found[key] = code_of(row.error_code)
            elif row.committed_offset < 0:
                found[key] = None
            else:
                epoch = row.committed_leader_epoch if row.committed_leader_epoch >= 0 else None
                found[key] = CommittedOffset(row.committed_offset, epoch, row.metadata or "")
    return code, found


def by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[int]]:
    """The numbers of the partitions of each topic."""
    found: dict[str, list[int]] = {}
    for topic, index in dict.fromkeys(partitions):
        found.setdefault(topic, []).append(index)
    return found


def _committing(index: int, committed: CommittedOffset) -> OffsetCommitRequestPartition:
    return OffsetCommitRequestPartition(
        partition_index=index,
        committed_offset=committed.offset,
        committed_leader_epoch=-1 if committed.leader_epoch is None else committed.leader_epoch,
        committed_metadata=committed.metadata,
    )


def _names(topic_ids: TopicIds | None) -> dict[TopicId, str]:
    return {topic_id: name for name, topic_id in (topic_ids or {}).items()}

"""OffsetForLeaderEpoch 2-4: where does a leader epoch end in the leader's log (KIP-101, KIP-279, KIP-320)?

Behaviour: answers the largest epoch up to the one asked and its exclusive end offset; asked for one older than the
first known, (asked, start of the first); asked for one this log has never heard of, (-1, -1). The current leader epoch
is checked, so that nobody truncates by the answer of a stale leader. A consumer that asks about an epoch older than
an unclean election is noted (told_readers.py). A reader that debugs (replica id -2, said and not
defaulted, with no current epoch) is answered by followers too, each from its own log: nobody truncates by that.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.base.errors import KafkaError
from tidelog.base.ids import LeaderEpoch, Offset
from tidelog.server.api.request_context import RequestContext, code_of
from tidelog.server.api.told_readers import ReaderName
from tidelog.wire.messages.api_23_offset_for_leader_epoch import (
    DEBUGGING_CONSUMER_REPLICA_ID,
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopicResult,
)

if TYPE_CHECKING:
    from tidelog.server.api.ports import DataApi
    from tidelog.server.replication.partition import Partition

FIRST_WITH_REPLICA_ID = 3
CONSUMER_REPLICA_ID = -1


def handle(
    node: DataApi, request: OffsetForLeaderEpochRequest, context: RequestContext
) -> OffsetForLeaderEpochResponse:
    # Version 2 has no field for it: whoever asks in it is an ordinary consumer.
    debugs = request.replica_id == DEBUGGING_CONSUMER_REPLICA_ID and context.api_version >= FIRST_WITH_REPLICA_ID
    topics = []
    for topic in request.topics:
        rows = []
        for requested in topic.partitions:
            row = EpochEndOffset(error_code=0, partition=requested.partition, leader_epoch=-1, end_offset=-1)
            try:
                partition = node.broker.partition(topic.topic, requested.partition)
                known = _end(partition, requested, debugs)
                if known is not None:
                    row.leader_epoch, row.end_offset = known
                    if request.replica_id == CONSUMER_REPLICA_ID:
                        _note_reader(node, partition, LeaderEpoch(requested.leader_epoch), known, context)
            except KafkaError as error:
                row.error_code = code_of(error, f"OffsetForLeaderEpoch {topic.topic}-{requested.partition}")
            rows.append(row)
        topics.append(OffsetForLeaderTopicResult(topic=topic.topic, partitions=rows))
    return OffsetForLeaderEpochResponse(topics=topics)


def _note_reader(
    node: DataApi,
    partition: Partition,
    leader_epoch: LeaderEpoch,
    known: tuple[LeaderEpoch, Offset],
    context: RequestContext,
) -> None:
    """Records of its epoch may be lost: it compares its position with what it is told."""
    state = node.image.partition(*partition.topic_partition)
    if state is not None and state.unclean_epoch is not None and leader_epoch < state.unclean_epoch:
        reader = ReaderName(context.header.client_id or "", context.connection.peer.rpartition(":")[0])
        now_ms = node.clock.wall_ms()
        node.told_readers.note(partition.topic_partition, partition.topic_id, reader, known, now_ms, has_compared=True)


def _end(partition: Partition, requested: OffsetForLeaderPartition, debugs: bool) -> tuple[LeaderEpoch, Offset] | None:
    is_own_log_meant = debugs and requested.current_leader_epoch < 0
    replica = None if is_own_log_meant else partition.leader(requested.current_leader_epoch)
    if requested.leader_epoch < 0:
        return None
    leader_epoch = LeaderEpoch(requested.leader_epoch)
    if replica is not None:
        return replica.offset_for_leader_epoch(leader_epoch)
    return partition.log.lineage.end_offset_for(leader_epoch, partition.log.log_end_offset)

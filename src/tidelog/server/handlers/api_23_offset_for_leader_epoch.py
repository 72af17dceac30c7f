"""OffsetForLeaderEpoch 2-4: where does a leader epoch end in the leader's log (KIP-101, KIP-279, KIP-320)?

Behaviour: answers the largest epoch up to the one asked and its exclusive end offset; asked for one older than the
first known, (asked, start of the first); asked for one this log has never heard of, (-1, -1). The current leader epoch
is checked, so that nobody truncates by the answer of a stale leader.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.base.errors import KafkaError
from tidelog.base.ids import LeaderEpoch
from tidelog.server.dispatch import RequestContext, code_of
from tidelog.wire.messages.api_23_offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderTopicResult,
)

if TYPE_CHECKING:
    from tidelog.server.node import Node


def handle(node: Node, request: OffsetForLeaderEpochRequest, context: RequestContext) -> OffsetForLeaderEpochResponse:
    topics = []
    for topic in request.topics:
        rows = []
        for asked in topic.partitions:
            row = EpochEndOffset(error_code=0, partition=asked.partition, leader_epoch=-1, end_offset=-1)
            try:
                partition = node.broker.partition(topic.topic, asked.partition)
                replica = partition.leader(asked.current_leader_epoch)
                if asked.leader_epoch >= 0:
                    known = replica.offset_for_leader_epoch(LeaderEpoch(asked.leader_epoch))
                    if known is not None:
                        row.leader_epoch, row.end_offset = known
            except KafkaError as error:
                row.error_code = code_of(error, f"OffsetForLeaderEpoch {topic.topic}-{asked.partition}")
            rows.append(row)
        topics.append(OffsetForLeaderTopicResult(topic=topic.topic, partitions=rows))
    return OffsetForLeaderEpochResponse(topics=topics)

"""Where share groups stand in partitions, and how many records they lag behind (KIP-932, KIP-1226).

Share coordinators tell where a group stands, and the leaders of partitions where these end.
Kafka: `GroupCoordinatorService`, `NetworkPartitionMetadataClient`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from tidelog.base.errors import Code, KafkaError, NetworkError, TidelogError, refusal
from tidelog.base.ids import BrokerId, LeaderEpoch, Offset, PartitionIndex, TopicId
from tidelog.server.broker.broker import Broker
from tidelog.server.share_state.persister import SharePersister
from tidelog.share.summary import ShareSummary

REQUEST_CLASS = "ends of partitions"
TIMEOUT_MS = 15_000
NOT_KNOWN = -1
PORTION = 500
"""Partitions that are asked about at once: each waits by itself."""

Place = tuple[TopicId, PartitionIndex]


class SharePosition(NamedTuple):
    """Where a group stands in one partition.

    Attributes:
        start: all before it is done; None if the group has not begun, or nobody could tell.
        lag: how many records it has not done; None if it is not known.
        error: why the end of the partition is not known.
    """

    start: Offset | None = None
    leader_epoch: LeaderEpoch = LeaderEpoch(0)
    lag: int | None = None
    error: KafkaError | None = None


class ShareGroupPositions:
    """See the module."""

    def __init__(self, broker: Broker, persister: SharePersister) -> None:
        self._broker = broker
        self._persister = persister

    async def of(self, group_id: str, places: Sequence[Place]) -> dict[Place, SharePosition]:
        """Where a group stands. As in Kafka, what share coordinators do not tell counts as if nothing were kept."""
        found: dict[Place, SharePosition] = {}
        for start in range(0, len(places), PORTION):
            some = places[start : start + PORTION]
            summaries = dict(zip(some, await self._persister.summarize(group_id, some), strict=True))
            ends = await self._ends(place for place, one in summaries.items() if _has_lag(one))
            for place, summary in summaries.items():
                found[place] = _position(summary, ends.get(place))
        return found

    async def _ends(self, places: Iterable[Place]) -> Mapping[Place, Offset | KafkaError]:
        """Where partitions end for those who read uncommitted records; or why that is not known."""
        ends: dict[Place, Offset | KafkaError] = {}
        elsewhere: dict[BrokerId, list[Place]] = {}
        for place in places:
            leader = self._leader(place)
            if isinstance(leader, KafkaError):
                ends[place] = leader
            elif leader == self._broker.broker_id:
                ends[place] = self._end_here(place)
            else:
                elsewhere.setdefault(leader, []).append(place)
        for told in await asyncio.gather(*(self._ask(leader, some) for leader, some in elsewhere.items())):
            ends.update(told)
        return ends

    def _leader(self, place: Place) -> BrokerId | KafkaError:
        topic = self._broker.image.topic_by_id(place[0])
        if topic is None or place[1] >= len(topic.partitions):
            return refusal(Code.UNKNOWN_TOPIC_OR_PARTITION)
        leader = topic.partitions[place[1]].leader
        return refusal(Code.LEADER_NOT_AVAILABLE) if leader is None else leader

    def _end_here(self, place: Place) -> Offset | KafkaError:
        try:
            partition = self._broker.partition_by_id(*place)
            partition.leader().latest_offset()  # refuses while it may be that one is not committed yet
            return partition.high_watermark
        except KafkaError as error:
            return error

    async def _ask(self, leader: BrokerId, places: Sequence[Place]) -> dict[Place, Offset | KafkaError]:
        from tidelog.wire.messages.api_02_list_offsets import (
            LATEST_TIMESTAMP,
            ListOffsetsPartition,
            ListOffsetsRequest,
            ListOffsetsResponse,
            ListOffsetsTopic,
        )

        topics = self._broker.image.topics_by_id
        names = {topic_id: topics[topic_id].name for topic_id, _ in places if topic_id in topics}
        rows = {name: ListOffsetsTopic(name, []) for name in names.values()}
        for topic_id, index in places:
            if topic_id in names:
                row = ListOffsetsPartition(partition_index=index, timestamp=LATEST_TIMESTAMP)
                rows[names[topic_id]].partitions.append(row)
        unknown: Offset | KafkaError = refusal(Code.LEADER_NOT_AVAILABLE)
        told: dict[tuple[str, int], Offset | KafkaError] = {}
        try:
            connection = await self._broker.replication.peers.connection(leader, REQUEST_CLASS)
            request = ListOffsetsRequest(topics=list(rows.values()))
            response = await connection.request(request, ListOffsetsResponse, timeout_ms=TIMEOUT_MS)
        except (NetworkError, TidelogError) as error:
            unknown = error if isinstance(error, KafkaError) else refusal(Code.NETWORK_EXCEPTION, str(error))
        else:
            told = {
                (topic.name, one.partition_index): (
                    refusal(Code(one.error_code)) if one.error_code else Offset(one.offset)
                )
                for topic in response.topics
                for one in topic.partitions
            }
        return {place: told.get((names.get(place[0], ""), place[1]), unknown) for place in places}


def _has_lag(summary: ShareSummary | KafkaError) -> bool:
    return (
        isinstance(summary, ShareSummary) and summary.start is not None and summary.delivery_complete_count != NOT_KNOWN
    )


def _position(summary: ShareSummary | KafkaError, end: Offset | KafkaError | None) -> SharePosition:
    if isinstance(summary, KafkaError):
        return SharePosition()
    if isinstance(end, KafkaError):
        return SharePosition(error=end)
    if end is None or summary.start is None:
        return SharePosition(summary.start, summary.leader_epoch)
    lag = end - summary.start - summary.delivery_complete_count
    return SharePosition(summary.start, summary.leader_epoch, lag)

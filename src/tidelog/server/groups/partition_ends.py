"""Where partitions end for those who read uncommitted records, whoever leads them.

Kafka: `NetworkPartitionMetadataClient`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence

from tidelog.base.errors import Code, KafkaError, NetworkError, TidelogError, refusal
from tidelog.base.ids import BrokerId, Offset, PartitionIndex, TopicId
from tidelog.server.broker.broker import Broker

REQUEST_CLASS = "ends of partitions"
TIMEOUT_MS = 15_000

Place = tuple[TopicId, PartitionIndex]


class PartitionEnds:
    """Asks the leaders, of which this broker is one."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    async def of(self, places: Iterable[Place], *, timeout_ms: int = TIMEOUT_MS) -> Mapping[Place, Offset | KafkaError]:
        """The exclusive end of what is committed in each; or why that is not known.

        Args:
            places: few enough for one request to each leader.
            timeout_ms: of each leader's answer.
        """
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
        asked = (self._ask(leader, some, timeout_ms) for leader, some in elsewhere.items())
        for told in await asyncio.gather(*asked):
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

    async def _ask(
        self, leader: BrokerId, places: Sequence[Place], timeout_ms: int
    ) -> dict[Place, Offset | KafkaError]:
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
            response = await connection.request(request, ListOffsetsResponse, timeout_ms=timeout_ms)
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

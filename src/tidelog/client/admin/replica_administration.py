"""How an Admin asks for partitions and each of their replicas: who may lead, and which leader epochs each log holds."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import TypeVar

from tidelog.base.errors import Code, NetworkError, TidelogError
from tidelog.base.ids import BrokerId, LeaderEpoch, Offset, TopicPartition, uuid_text
from tidelog.client.admin.admin_messages import described
from tidelog.client.admin.cluster_descriptions import PartitionLineages, ReplicaLineage
from tidelog.client.admin.descriptions import PartitionDescription, TopicDescription
from tidelog.client.cluster import Cluster
from tidelog.client.core.lineage_search import LineageSearch
from tidelog.client.refusals import raise_first, refused
from tidelog.net.connection import Connection
from tidelog.wire.messages.api_23_offset_for_leader_epoch import (
    DEBUGGING_CONSUMER_REPLICA_ID,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from tidelog.wire.messages.api_75_describe_topic_partitions import (
    Cursor,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponsePartition,
    TopicRequest,
)

R = TypeVar("R")

_EPOCH_END_WITH_REPLICA = 3
_QUESTIONS_MAX = 10_000
"""More than any log has epochs: whoever answers so long answers nonsense."""


class ReplicaAdministration:
    """See `AsyncAdmin`, whose methods these are.

    Args:
        request_timeout_ms: of one request; `cluster` knows how long all attempts may take together.
    """

    def __init__(self, cluster: Cluster, *, request_timeout_ms: int) -> None:
        self._cluster = cluster
        self._request_timeout_ms = request_timeout_ms

    async def describe_partitions(self, topics: Iterable[str] | None) -> dict[str, TopicDescription]:
        """As `describe_topics`, eligible leaders included (KIP-966).

        Raises:
            UnsupportedVersionError: the broker is too old for it.
        """
        names = None if topics is None else sorted(set(topics))

        async def send_request() -> dict[str, TopicDescription]:
            found: dict[str, tuple[str | None, bool, list[PartitionDescription]]] = {}
            cursor: Cursor | None = None
            while names is None or names:
                request = DescribeTopicPartitionsRequest(topics=[TopicRequest(name) for name in names or ()])
                request.cursor = cursor
                connection = await self._cluster.any_broker()
                response = await self._request(connection, request, DescribeTopicPartitionsResponse)
                for topic in response.topics:
                    raise_first([refused(topic.error_code, f"topic {topic.name!r}", None)])
                    topic_id = uuid_text(topic.topic_id) if topic.topic_id.int else None
                    held = found.setdefault(topic.name or "", (topic_id, topic.is_internal, []))
                    held[2].extend(map(_partition, topic.partitions))
                cursor = response.next_cursor
                if cursor is None:
                    break
            return {
                name: TopicDescription(name, topic_id, is_internal, tuple(rows))
                for name, (topic_id, is_internal, rows) in found.items()
            }

        return await self._cluster.retrying("describe topics", send_request)

    async def describe_lineages(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, PartitionLineages]:
        wanted = [TopicPartition(*partition) for partition in partitions]

        async def send_request() -> dict[str, TopicDescription]:
            names = sorted({partition.topic for partition in wanted})
            await self._cluster.fetch_metadata(names)
            metadata = self._cluster.metadata
            for name in names:
                if name not in metadata.topics:
                    code = metadata.errors.get(name, Code.UNKNOWN_TOPIC_OR_PARTITION)
                    raise_first([refused(code, f"topic {name!r}", None)])
            return {name: described(metadata.topics[name]) for name in names}

        topics = await self._cluster.retrying("describe topics", send_request)
        found = {}
        for partition in wanted:
            state = next(
                (each for each in topics[partition.topic].partitions if each.partition == partition.partition), None
            )
            if state is None:
                raise_first([refused(Code.UNKNOWN_TOPIC_OR_PARTITION, str(partition), None)])
            assert state is not None
            lineages = await asyncio.gather(
                *(
                    self._lineage(BrokerId(broker_id), partition, state.leader_epoch)
                    for broker_id in sorted(state.replicas)
                )
            )
            found[partition] = PartitionLineages(
                state.leader, state.leader_epoch, state.isr, {each.broker_id: each for each in lineages}
            )
        return found

    async def _lineage(
        self, broker_id: BrokerId, partition: TopicPartition, leader_epoch: int | None
    ) -> ReplicaLineage:
        """What one replica has; whatever is in the way is part of the answer."""
        search = LineageSearch(LeaderEpoch(leader_epoch or 0))
        try:
            if broker_id not in self._cluster.metadata.brokers:
                raise NetworkError(f"broker {broker_id} is not among those that are up")
            connection = await self._cluster.broker(broker_id)
            for _ in range(_QUESTIONS_MAX):
                question = search.question
                if question is None:
                    break
                search.on_answer(await self._epoch_end(connection, partition, question))
        except TidelogError as error:
            return ReplicaLineage(broker_id, (), error)
        return ReplicaLineage(broker_id, search.spans)

    async def _epoch_end(
        self, connection: Connection, partition: TopicPartition, leader_epoch: LeaderEpoch
    ) -> tuple[LeaderEpoch, Offset] | None:
        row = OffsetForLeaderPartition(partition=partition.partition, leader_epoch=leader_epoch)
        request = OffsetForLeaderEpochRequest(
            replica_id=DEBUGGING_CONSUMER_REPLICA_ID, topics=[OffsetForLeaderTopic(partition.topic, [row])]
        )
        response = await self._request(
            connection, request, OffsetForLeaderEpochResponse, min_version=_EPOCH_END_WITH_REPLICA
        )
        [answer] = [row for topic in response.topics for row in topic.partitions]
        raise_first([refused(answer.error_code, f"{partition} at {connection.address}", None)])
        if answer.leader_epoch < 0 or answer.end_offset < 0:
            return None
        return LeaderEpoch(answer.leader_epoch), Offset(answer.end_offset)

    async def _request(self, connection: Connection, request: object, response: type[R], *, min_version: int = 0) -> R:
        return await connection.request(request, response, timeout_ms=self._request_timeout_ms, min_version=min_version)


def _partition(row: DescribeTopicPartitionsResponsePartition) -> PartitionDescription:
    return PartitionDescription(
        row.partition_index,
        row.leader_id if row.leader_id >= 0 else None,
        row.leader_epoch if row.leader_epoch >= 0 else None,
        tuple(row.replica_nodes),
        tuple(row.isr_nodes),
        tuple(row.offline_replicas),
        None if row.eligible_leader_replicas is None else tuple(row.eligible_leader_replicas),
        None if row.last_known_elr is None else tuple(row.last_known_elr),
    )

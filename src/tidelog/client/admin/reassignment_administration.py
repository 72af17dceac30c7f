"""How an Admin has partitions moved to other brokers, and asks which are on their way (KIP-455)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TypeVar

from tidelog.base.errors import Code, KafkaError, NetworkError
from tidelog.base.ids import PartitionIndex, TopicPartition
from tidelog.client.admin.reassignment import PartitionReassignment, ReassignmentOutcome
from tidelog.client.cluster import Cluster
from tidelog.client.refusals import raise_first, refused
from tidelog.net.connection import Connection
from tidelog.wire.messages.api_45_alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartition,
    ReassignableTopic,
)
from tidelog.wire.messages.api_46_list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    ListPartitionReassignmentsTopics,
)

R = TypeVar("R")

_WITH_FACTOR_CHANGE = 1
_UNKNOWN = Code.UNKNOWN_TOPIC_OR_PARTITION
"""Retriable elsewhere, where a broker may hear of a topic later than others. The controller knows."""


class ReassignmentAdministration:
    """See `AsyncAdmin`, whose methods these are.

    Args:
        request_timeout_ms: of one request; `cluster` knows how long all attempts may take together.
    """

    def __init__(self, cluster: Cluster, *, request_timeout_ms: int) -> None:
        self._cluster = cluster
        self._request_timeout_ms = request_timeout_ms

    async def alter(
        self, replicas: Mapping[TopicPartition, Sequence[int] | None], *, allow_replication_factor_change: bool
    ) -> dict[TopicPartition, ReassignmentOutcome]:
        left = dict(replicas)
        outcomes: dict[TopicPartition, ReassignmentOutcome] = {}
        may_be_done = False  # an answer was lost: what it gave up, is given up

        async def send_request() -> None:
            nonlocal may_be_done
            request = AlterPartitionReassignmentsRequest(
                timeout_ms=self._request_timeout_ms,
                allow_replication_factor_change=allow_replication_factor_change,
                topics=_topics(left),
            )
            min_version = 0 if allow_replication_factor_change else _WITH_FACTOR_CHANGE
            connection = await self._controller()
            try:
                answer = await self._request(
                    connection, request, AlterPartitionReassignmentsResponse, min_version=min_version
                )
            except NetworkError:
                may_be_done = True
                raise
            error = refused(answer.error_code, "the reassignments", answer.error_message)
            if error is not None and error.code is Code.REQUEST_TIMED_OUT:
                may_be_done = True
            raise_first([error])
            later: list[KafkaError] = []
            for topic in answer.responses:
                for row in topic.partitions:
                    partition = TopicPartition(topic.name, PartitionIndex(row.partition_index))
                    error = refused(row.error_code, str(partition), row.error_message)
                    if error is not None and error.code.retriable and error.code is not _UNKNOWN:
                        later.append(error)
                        continue
                    is_given_up = may_be_done and left.get(partition, ()) is None
                    if error is not None and is_given_up and error.code is Code.NO_REASSIGNMENT_IN_PROGRESS:
                        error = None
                    left.pop(partition, None)
                    outcomes[partition] = ReassignmentOutcome(error, row.error_message if error is None else None)
            raise_first(later)

        if left:
            await self._cluster.retrying("reassign partitions", send_request)
        return {partition: outcomes[partition] for partition in replicas if partition in outcomes}

    async def list(self, partitions: Iterable[TopicPartition] | None) -> dict[TopicPartition, PartitionReassignment]:
        topics = None
        if partitions is not None:
            by_name: dict[str, list[int]] = {}
            for partition in dict.fromkeys(partitions):
                by_name.setdefault(partition.topic, []).append(partition.partition)
            topics = [ListPartitionReassignmentsTopics(name, indexes) for name, indexes in by_name.items()]

        async def send_request() -> dict[TopicPartition, PartitionReassignment]:
            request = ListPartitionReassignmentsRequest(timeout_ms=self._request_timeout_ms, topics=topics)
            answer = await self._request(await self._controller(), request, ListPartitionReassignmentsResponse)
            raise_first([refused(answer.error_code, "the reassignments", answer.error_message)])
            return {
                TopicPartition(topic.name, PartitionIndex(row.partition_index)): PartitionReassignment(
                    tuple(row.replicas), tuple(row.adding_replicas), tuple(row.removing_replicas)
                )
                for topic in sorted(answer.topics, key=lambda topic: topic.name)
                for row in sorted(topic.partitions, key=lambda row: row.partition_index)
            }

        return await self._cluster.retrying("list reassignments", send_request)

    async def _request(self, connection: Connection, request: object, response: type[R], *, min_version: int = 0) -> R:
        return await connection.request(request, response, timeout_ms=self._request_timeout_ms, min_version=min_version)

    async def _controller(self) -> Connection:
        if self._cluster.metadata.controller_id is None:
            await self._cluster.fetch_metadata([])
        return await self._cluster.controller()


def _topics(replicas: Mapping[TopicPartition, Sequence[int] | None]) -> list[ReassignableTopic]:
    topics: dict[str, ReassignableTopic] = {}
    for (name, index), brokers in replicas.items():
        topic = topics.setdefault(name, ReassignableTopic(name, []))
        topic.partitions.append(ReassignablePartition(index, None if brokers is None else list(brokers)))
    return list(topics.values())

"""How an Admin asks brokers what lies in their log directories, and has replicas moved between them (KIP-113)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TypeVar

from tidelog.base.errors import Code, KafkaError
from tidelog.base.ids import BrokerId, PartitionIndex, TopicPartition
from tidelog.client.admin.log_dirs import LogDescription, LogDirDescription
from tidelog.client.cluster import Cluster
from tidelog.client.refusals import raise_first, refused
from tidelog.wire.messages.api_34_alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopic,
)
from tidelog.wire.messages.api_35_describe_log_dirs import (
    DescribableLogDirTopic,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
)

R = TypeVar("R")


class LogDirAdministration:
    """See `AsyncAdmin`, whose methods these are.

    Args:
        request_timeout_ms: of one request; `cluster` knows how long all attempts may take together.
    """

    def __init__(self, cluster: Cluster, *, request_timeout_ms: int) -> None:
        self._cluster = cluster
        self._request_timeout_ms = request_timeout_ms

    async def describe(
        self, broker_ids: Iterable[int] | None, partitions: Iterable[TopicPartition] | None
    ) -> dict[int, dict[str, LogDirDescription]]:
        if broker_ids is None:
            await self._cluster.retrying("list brokers", lambda: self._cluster.fetch_metadata([]))
            broker_ids = list(self._cluster.metadata.brokers)
        topics = None
        if partitions is not None:
            topics = [DescribableLogDirTopic(name, indexes) for name, indexes in _by_topic(partitions).items()]
        request = DescribeLogDirsRequest(topics=topics)
        found: dict[int, dict[str, LogDirDescription]] = {}
        for broker_id in sorted(broker_ids):
            answer = await self._request(
                broker_id, "describe log directories", request, DescribeLogDirsResponse, check=_check_described
            )
            found[broker_id] = {
                row.log_dir: LogDirDescription(
                    refused(row.error_code, f"{row.log_dir} of broker {broker_id}", None),
                    row.total_bytes if row.total_bytes >= 0 else None,
                    row.usable_bytes if row.usable_bytes >= 0 else None,
                    tuple(
                        LogDescription(
                            TopicPartition(topic.name, PartitionIndex(each.partition_index)),
                            each.partition_size,
                            each.offset_lag,
                            each.is_future_key,
                        )
                        for topic in row.topics
                        for each in topic.partitions
                    ),
                )
                for row in answer.results
            }
        return found

    async def alter(
        self, directories: Mapping[tuple[int, TopicPartition], str]
    ) -> dict[tuple[int, TopicPartition], KafkaError | None]:
        outcomes: dict[tuple[int, TopicPartition], KafkaError | None] = dict.fromkeys(directories)
        for broker_id in sorted({broker_id for broker_id, _ in directories}):
            paths: dict[str, list[TopicPartition]] = {}
            for (at, partition), path in directories.items():
                if at == broker_id:
                    paths.setdefault(path, []).append(partition)
            request = AlterReplicaLogDirsRequest(
                dirs=[
                    AlterReplicaLogDir(
                        path, [AlterReplicaLogDirTopic(name, its) for name, its in _by_topic(partitions).items()]
                    )
                    for path, partitions in paths.items()
                ]
            )
            answer = await self._request(broker_id, "move replicas", request, AlterReplicaLogDirsResponse)
            for topic in answer.results:
                for row in topic.partitions:
                    partition = TopicPartition(topic.topic_name, PartitionIndex(row.partition_index))
                    what = f"{partition} of broker {broker_id}"
                    if row.error_code == Code.LOG_DIR_NOT_FOUND:
                        what += f": {directories.get((broker_id, partition))}"
                    outcomes[broker_id, partition] = refused(row.error_code, what, None)
        return outcomes

    async def _request(
        self,
        broker_id: int,
        what: str,
        request: object,
        response: type[R],
        *,
        check: Callable[[int, R], None] | None = None,
    ) -> R:
        async def send_request() -> R:
            if BrokerId(broker_id) not in self._cluster.metadata.brokers:
                await self._cluster.fetch_metadata([])
            connection = await self._cluster.broker(BrokerId(broker_id))
            answer = await connection.request(request, response, timeout_ms=self._request_timeout_ms)
            if check is not None:
                check(broker_id, answer)
            return answer

        return await self._cluster.retrying(what, send_request)


def _check_described(broker_id: int, answer: DescribeLogDirsResponse) -> None:
    raise_first([refused(answer.error_code, f"the log directories of broker {broker_id}", None)])


def _by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[int]]:
    by_topic: dict[str, list[int]] = {}
    for topic, index in dict.fromkeys(partitions):
        by_topic.setdefault(topic, []).append(index)
    return by_topic

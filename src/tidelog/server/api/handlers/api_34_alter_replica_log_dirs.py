"""AlterReplicaLogDirs 1-2: replicas here are to lie in other log directories (KIP-113).

Behaviour: the answer comes when the moves have begun; DescribeLogDirs tells how far they are. Named with the directory
where it lies, a replica stays there, and a move of it is ended; named with a third one, it goes there. A replica that
is not here yet gets REPLICA_NOT_AVAILABLE, and is made there once it comes. LOG_DIR_NOT_FOUND: not one of `log.dirs`;
KAFKA_STORAGE_ERROR: that directory, or the replica, is out of use.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING

from tidelog.base.errors import Code, KafkaError, refusal
from tidelog.base.ids import CLUSTER_METADATA, PartitionIndex, TopicPartition
from tidelog.server.api.request_context import RequestContext, code_of
from tidelog.server.storage.log_dir import LogDir
from tidelog.server.transport.turns import in_turns
from tidelog.wire.messages.api_34_alter_replica_log_dirs import (
    AlterReplicaLogDirPartitionResult,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopicResult,
)

if TYPE_CHECKING:
    from tidelog.server.api.ports import DataApi


async def handle(
    node: DataApi, request: AlterReplicaLogDirsRequest, context: RequestContext
) -> AlterReplicaLogDirsResponse:
    results: dict[str, AlterReplicaLogDirTopicResult] = {}
    async for path, name, index in in_turns(_named(request)):
        result = results.setdefault(name, AlterReplicaLogDirTopicResult(name, []))
        if index is None:
            continue
        try:
            await _move(node, TopicPartition(name, PartitionIndex(index)), path)
            code = Code.NONE
        except KafkaError as error:
            code = code_of(error, "AlterReplicaLogDirs")
        result.partitions.append(AlterReplicaLogDirPartitionResult(index, code))
    return AlterReplicaLogDirsResponse(results=list(results.values()))


def _named(request: AlterReplicaLogDirsRequest) -> Iterator[tuple[str, str, int | None]]:
    """(directory, topic, partition) of each replica; no partition for a topic of which none is named."""
    for directory in request.dirs:
        for topic in directory.topics:
            for index in topic.partitions or (None,):
                yield directory.path, topic.name, index


async def _move(node: DataApi, topic_partition: TopicPartition, path: str) -> None:
    if topic_partition.topic == CLUSTER_METADATA.topic:
        raise refusal(Code.INVALID_TOPIC_EXCEPTION, "metadata.log.dir says where the metadata log lies")
    target = _directory(node, path)
    try:
        node.broker.partition(*topic_partition)
    except KafkaError as error:
        if error.code != Code.NOT_LEADER_OR_FOLLOWER:
            raise
        node.files.log_dir_assignment.preferred[topic_partition] = target
        raise refusal(
            Code.REPLICA_NOT_AVAILABLE, f"{topic_partition} is not here yet; once it comes, it is made in {path}"
        ) from error
    await node.broker.moves.move(node.broker.partition(*topic_partition), target)


def _directory(node: DataApi, path: str) -> LogDir:
    """Raises KafkaError where it cannot be used."""
    held = {directory.path: directory for directory in node.files.directories}
    for configured in node.config.log_directories:
        if path == os.path.abspath(configured):
            directory = held.get(configured)
            if directory is None or directory.failure is not None:
                raise refusal(Code.KAFKA_STORAGE_ERROR, f"log directory {path} is out of use")
            return directory
    raise refusal(Code.LOG_DIR_NOT_FOUND, f"{path} is not one of the log.dirs of this broker")
